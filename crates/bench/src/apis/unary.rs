//! Measures cycles of single gRPC calls.

use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};
use tenure_server::os;
use tenure_wire::v1;
use tenure_wire::v1::lock_admin_service_client::LockAdminServiceClient;
use tenure_wire::v1::lock_service_client::LockServiceClient;
use tonic::transport::{Channel, Endpoint};

use super::session::us;
use super::{ApiMeasurement, MeasureTimes};

/// The longest ttl that a lease may have, in seconds: none ends during a measurement.
const TTL_S: i64 = 3_600;

/// Connects one channel for each connection, which clients share.
pub(super) async fn connect(address: SocketAddr, connections: usize) -> Result<Vec<Channel>> {
    let mut channels = Vec::new();
    for _ in 0..connections {
        let endpoint = Endpoint::from_shared(format!("http://{address}"))?.tcp_nodelay(true);
        channels.push(endpoint.connect().await.context("connecting")?);
    }
    Ok(channels)
}

/// Lets clients cycle: first to warm up, then measured.
pub(super) async fn measure(
    address: SocketAddr,
    clients: usize,
    connections: usize,
    times: MeasureTimes,
) -> Result<ApiMeasurement> {
    let channels = connect(address, connections).await?;
    let mut tasks = tokio::task::JoinSet::new();
    for at in 0..clients {
        let channel = channels[at % connections].clone();
        let lock = format!("bench/unary/{clients:04}/{at:08}");
        tasks.spawn(async move { cycle(channel, lock, times).await });
    }
    super::gather(tasks, times).await
}

async fn cycle(channel: Channel, lock: String, times: MeasureTimes) -> Result<ApiMeasurement> {
    let grant = v1::LeaseGrantRequest { ttl: TTL_S, ..Default::default() };
    let lease = LockServiceClient::new(channel.clone()).lease_grant(grant).await?.into_inner().id;
    let mut locks = LockAdminServiceClient::new(channel);
    let from_us = os::now_us() + us(times.warm_up);
    let end_us = from_us + us(times.measure);
    let (mut latencies_us, mut cycles_in_all) = (Vec::new(), 0);
    loop {
        let began_us = os::now_us();
        if began_us >= end_us {
            return Ok(ApiMeasurement { took: times.measure, latencies_us, cycles_in_all });
        }
        let ask = v1::AcquireRequest {
            lock: lock.clone(),
            lease,
            wait_ms: Some(0),
            ..Default::default()
        };
        let token = locks.acquire(ask).await?.into_inner().token;
        ensure!(token > 0, "a lock comes with a token");
        let hold = v1::ReleaseRequest { lock: lock.clone(), lease, token, ..Default::default() };
        locks.release(hold).await?;
        cycles_in_all += 1;
        if began_us >= from_us {
            latencies_us.push(os::now_us() - began_us);
        }
    }
}
