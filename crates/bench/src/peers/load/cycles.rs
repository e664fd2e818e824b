//! Measures clients that each acquire and release a lock of their own, and wait for every answer.

use std::sync::Arc;

use anyhow::{Context, Result};
use tenure_server::os;

use crate::peers::results::SampleMetrics;
use crate::peers::servers::PeerServers;
use crate::peers::system::{ClientShape, PeerClient, PeerSystem};
use crate::peers::window::{self, MeasureWindow, MeasuringTasks};
use crate::peers::workload::MeasurePlan;

use super::{TTL, connect, fresh_name};

pub(super) async fn measure<S: PeerSystem>(
    system: &S,
    servers: &PeerServers,
    clients: usize,
    connections: usize,
    plan: &MeasurePlan,
) -> Result<SampleMetrics> {
    let shape = ClientShape { clients, connections, ttl: TTL };
    let all = connect(system, servers, shape, plan).await?;
    let shared = Arc::new(MeasureWindow::default());
    let (mut tasks, name) = (MeasuringTasks::new(), fresh_name("cycles"));
    for (at, mut client) in all.into_iter().enumerate() {
        let (shared, lock) = (shared.clone(), format!("{name}-{at}"));
        tasks.spawn(async move {
            let mut latencies_us = Vec::new();
            while !shared.is_over() {
                let began_us = os::now_us();
                let held = client.acquire_free(&lock).await.context("acquiring")?;
                client.release(held).await.context("releasing")?;
                shared.count(began_us, &mut latencies_us);
            }
            Ok(latencies_us)
        });
    }
    window::measure(system, servers, &shared, tasks, plan).await
}
