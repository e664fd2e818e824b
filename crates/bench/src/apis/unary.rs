//! Measures cycles of single gRPC calls.

use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};
use tenure_server::os;
use tenure_wire::v1;
use tenure_wire::v1::lock_admin_service_client::LockAdminServiceClient;
use tenure_wire::v1::lock_service_client::LockServiceClient;
use tonic::Request;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Channel, Endpoint};

use super::session::us;
use super::{ApiMeasurement, BenchCaller, MeasureTimes};

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
pub(crate) async fn measure(
    address: SocketAddr,
    (clients, connections): (usize, usize),
    caller: &BenchCaller,
    times: MeasureTimes,
) -> Result<ApiMeasurement> {
    let channels = connect(address, connections).await?;
    let mut tasks = tokio::task::JoinSet::new();
    for at in 0..clients {
        let channel = channels[at % connections].clone();
        let lock = format!("bench/unary/{clients:04}/{at:08}");
        let authorization = caller.authorization()?;
        tasks.spawn(async move { cycle(channel, lock, authorization, times).await });
    }
    super::gather(tasks, times).await
}

/// A request with the credentials of its caller.
pub(super) fn with<T>(message: T, authorization: Option<&MetadataValue<Ascii>>) -> Request<T> {
    let mut request = Request::new(message);
    if let Some(value) = authorization {
        request.metadata_mut().insert("authorization", value.clone());
    }
    request
}

async fn cycle(
    channel: Channel,
    lock: String,
    authorization: Option<MetadataValue<Ascii>>,
    times: MeasureTimes,
) -> Result<ApiMeasurement> {
    let who = authorization.as_ref();
    let grant = with(v1::LeaseGrantRequest { ttl: TTL_S, ..Default::default() }, who);
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
        let token = locks.acquire(with(ask, who)).await?.into_inner().token;
        ensure!(token > 0, "a lock comes with a token");
        let hold = v1::ReleaseRequest { lock: lock.clone(), lease, token, ..Default::default() };
        locks.release(with(hold, who)).await?;
        cycles_in_all += 1;
        if began_us >= from_us {
            latencies_us.push(os::now_us() - began_us);
        }
    }
}
