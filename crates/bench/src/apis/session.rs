//! Measures acquire-and-release cycles over gRPC sessions.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tenure_server::os;
use tenure_wire::v1::session_service_client::SessionServiceClient;
use tenure_wire::v1::{self, answer, request};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::Streaming;

use super::unary::with;
use super::{ApiMeasurement, BenchCaller, MeasureTimes};

/// The longest ttl that a cluster allows by default, so that no lease ends during a measurement.
const TTL_MS: u64 = 3_600_000;

/// One connection with a session on it.
pub(super) struct SessionConnection {
    to: UnboundedSender<v1::SessionRequest>,
    from: Streaming<v1::SessionResponse>,
}

/// How a client sends its acquires.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum AcquireForm {
    /// Without a sequence number: if no answer arrives, the acquire may have taken effect.
    Once,
    /// With sequence numbers, as the SDK sends them: a repeated acquire takes effect once.
    Numbered,
}

/// One client, with a lease, a lock and one command in flight. It acquires and releases the lock in turn.
struct SessionClient {
    lease: v1::Lease,
    lock: String,
    token: Option<u64>,
    began_us: u64,
    said: AcquireForm,
    seq: u64,
}

impl SessionClient {
    fn acquire(&mut self, id: u64) -> v1::Request {
        let mut request = request(id, acquire(&self.lease, &self.lock, Some(0)));
        if self.said == AcquireForm::Numbered {
            self.seq += 1;
            (request.seq, request.done) = (self.seq, self.seq - 1);
        }
        request
    }
}

impl SessionConnection {
    pub(super) async fn open(address: SocketAddr, caller: &BenchCaller) -> Result<Self> {
        let channel = tonic::transport::Endpoint::from_shared(format!("http://{address}"))?
            .tcp_nodelay(true)
            .initial_stream_window_size(1024 * 1024)
            .initial_connection_window_size(4 * 1024 * 1024)
            .connect()
            .await
            .context("connecting")?;
        let (to, requests) = unbounded_channel();
        let hello = v1::Hello { client: "bench".into(), ..Default::default() };
        to.send(v1::SessionRequest { hello: Some(hello), requests: Vec::new() })?;
        let authorization = caller.authorization()?;
        let requests = with(UnboundedReceiverStream::new(requests), authorization.as_ref());
        let mut from = SessionServiceClient::new(channel).open(requests).await?.into_inner();
        let welcome = from.message().await?.and_then(|message| message.welcome);
        welcome.context("a session begins with a welcome")?;
        Ok(Self { to, from })
    }

    pub(super) fn send(&self, requests: Vec<v1::Request>) -> Result<()> {
        self.to.send(v1::SessionRequest { hello: None, requests }).context("the session ended")
    }

    pub(super) async fn next(&mut self) -> Result<v1::SessionResponse> {
        self.from.message().await?.context("the session ended")
    }

    /// Grants `count` leases.
    pub(super) async fn leases(&mut self, count: usize) -> Result<Vec<v1::Lease>> {
        let new = v1::NewLease { ttl_ms: TTL_MS, ..Default::default() };
        let ask = |id| request(id, request::Command::GrantLease(new.clone()));
        self.send((0..count as u64).map(ask).collect())?;
        let mut leases = Vec::new();
        while leases.len() < count {
            for answer in self.next().await?.answers {
                match answer.result {
                    Some(answer::Result::LeaseGranted(lease)) => leases.push(lease),
                    other => bail!("a lease was not granted: {other:?}"),
                }
            }
        }
        Ok(leases)
    }
}

pub(super) fn request(id: u64, command: request::Command) -> v1::Request {
    v1::Request { id, command: Some(command), ..Default::default() }
}

pub(super) fn acquire(lease: &v1::Lease, lock: &str, wait_ms: Option<u64>) -> request::Command {
    request::Command::Acquire(v1::AcquireRequest {
        lock: lock.to_owned(),
        lease_slot: lease.lease_slot,
        lease_generation: lease.lease_generation,
        wait_ms,
        ..Default::default()
    })
}

pub(super) fn release(lease: &v1::Lease, lock: &str, token: u64) -> request::Command {
    request::Command::Release(v1::ReleaseRequest {
        lock: lock.to_owned(),
        lease_slot: lease.lease_slot,
        lease_generation: lease.lease_generation,
        token,
        ..Default::default()
    })
}

/// Runs the cycles of all clients: first without measuring, to warm up, then measured.
pub(crate) async fn measure(
    address: SocketAddr,
    (clients, connections): (usize, usize),
    said: AcquireForm,
    caller: &BenchCaller,
    times: MeasureTimes,
) -> Result<ApiMeasurement> {
    let mut tasks = tokio::task::JoinSet::new();
    // Distinguishes the locks of this measurement from those of others.
    let shape = clients * 1_000 + connections + if said == AcquireForm::Once { 0 } else { 500 };
    for at in 0..connections {
        let share = clients / connections + usize::from(at < clients % connections);
        // Each measurement has locks of its own, because those of an earlier one may still be held.
        let locks = format!("bench/{:04}/{shape:08}/{at:08}", caller.measurement);
        let caller = caller.clone();
        tasks.spawn(async move { cycle(address, &locks, share, said, &caller, times).await });
    }
    super::gather(tasks, times).await
}

async fn cycle(
    address: SocketAddr,
    locks: &str,
    share: usize,
    said: AcquireForm,
    caller: &BenchCaller,
    times: MeasureTimes,
) -> Result<ApiMeasurement> {
    let mut connection = SessionConnection::open(address, caller).await?;
    let leases = connection.leases(share).await?;
    let mut clients: Vec<SessionClient> = leases
        .into_iter()
        .enumerate()
        .map(|(number, lease)| SessionClient {
            lease,
            lock: format!("{locks}/{number:08}"),
            token: None,
            began_us: os::now_us(),
            said,
            seq: 0,
        })
        .collect();
    let start_us = os::now_us();
    let first = clients.iter_mut().enumerate();
    let first = first.map(|(id, it)| it.acquire(id as u64));
    connection.send(first.collect())?;
    let (mut latencies_us, mut cycles_in_all) = (Vec::new(), 0);
    let measured_from_us = start_us + us(times.warm_up);
    let end_us = measured_from_us + us(times.measure);
    loop {
        let message = connection.next().await?;
        let now_us = os::now_us();
        let mut next = Vec::with_capacity(message.answers.len());
        for answer in message.answers {
            let client = &mut clients[usize::try_from(answer.id)?];
            let asked = match answer.result {
                Some(answer::Result::Acquired(acquired)) => {
                    client.token = Some(acquired.token);
                    request(answer.id, release(&client.lease, &client.lock, acquired.token))
                }
                Some(answer::Result::Released(_)) => {
                    cycles_in_all += 1;
                    if client.began_us >= measured_from_us && now_us < end_us {
                        latencies_us.push(now_us - client.began_us);
                    }
                    client.began_us = now_us;
                    client.acquire(answer.id)
                }
                other => bail!("a client was told {other:?}"),
            };
            next.push(asked);
        }
        if now_us >= end_us {
            return Ok(ApiMeasurement { took: times.measure, latencies_us, cycles_in_all });
        }
        if !next.is_empty() {
            connection.send(next)?;
        }
    }
}

pub(crate) fn us(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
