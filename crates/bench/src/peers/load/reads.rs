//! Measures clients that read the newest value of one key.

use std::sync::Arc;

use anyhow::{Context, Result};
use tenure_server::os;

use crate::peers::CONNECTIONS;
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
    plan: &MeasurePlan,
) -> Result<SampleMetrics> {
    let key = fresh_name("reads");
    let shape = ClientShape { clients, connections: CONNECTIONS.min(clients), ttl: TTL };
    let mut all = connect(system, servers, shape, plan).await?;
    let writer = all.first_mut().context("there is a client")?;
    writer.write(&key).await.context("writing the key")?;
    let shared = Arc::new(MeasureWindow::default());
    let mut tasks = MeasuringTasks::new();
    for mut client in all {
        let (shared, key) = (shared.clone(), key.clone());
        tasks.spawn(async move {
            let mut latencies_us = Vec::new();
            while !shared.is_over() {
                let began_us = os::now_us();
                client.read(&key).await.context("reading")?;
                shared.count(began_us, &mut latencies_us);
            }
            Ok(latencies_us)
        });
    }
    window::measure(system, servers, &shared, tasks, plan).await
}
