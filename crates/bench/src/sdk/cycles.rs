//! Measures cycles through the SDK.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use tenure::{Client, Lease};
use tenure_server::os;

use crate::apis::{ApiMeasurement, MeasureTimes, gather, session::us};

/// The ttl of the leases: none ends during a measurement.
const TTL: Duration = Duration::from_secs(60);

/// Lets clients cycle: first to warm up, then measured.
pub(super) async fn measure(
    address: SocketAddr,
    clients: usize,
    connections: usize,
    times: MeasureTimes,
) -> Result<ApiMeasurement> {
    let mut leases = Vec::new();
    for at in 0..connections {
        let builder = Client::builder().address(address.to_string()).name("bench");
        let client = builder.connect().await.context("connecting")?;
        let share = clients / connections + usize::from(at < clients % connections);
        for _ in 0..share {
            leases.push(client.lease(TTL).await.context("taking a lease")?);
        }
    }
    let mut tasks = tokio::task::JoinSet::new();
    let start_us = os::now_us();
    for (at, lease) in leases.into_iter().enumerate() {
        let lock = format!("sdk/{clients:08}/{at:08}");
        tasks.spawn(cycle(lease, lock, start_us, times));
    }
    gather(tasks, times).await
}

async fn cycle(
    lease: Lease,
    lock: String,
    start_us: u64,
    times: MeasureTimes,
) -> Result<ApiMeasurement> {
    let measured_from_us = start_us + us(times.warm_up);
    let end_us = measured_from_us + us(times.measure);
    let (mut latencies_us, mut cycles_in_all) = (Vec::new(), 0);
    loop {
        let began_us = os::now_us();
        let guard = lease.lock(lock.as_str()).no_wait().await.context("acquiring")?;
        guard.release().await.context("releasing")?;
        let now_us = os::now_us();
        cycles_in_all += 1;
        if began_us >= measured_from_us && now_us < end_us {
            latencies_us.push(now_us - began_us);
        }
        if now_us >= end_us {
            return Ok(ApiMeasurement { took: times.measure, latencies_us, cycles_in_all });
        }
    }
}
