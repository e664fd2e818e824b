//! Drives the clients of the cluster benchmark, and records their latencies.
//!
//! Each client has one lease, one lock, and one command in flight: it acquires, waits for the answer, releases, waits,
//! and so on. The number of commands in flight therefore equals the number of clients at all times.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use tenure_bench::percentile;
use tenure_core::outcome::{Answer, Outcome};
use tenure_core::request::{AskWait, Command};
use tenure_server::{MemberHandle, NodeFailure, os};
use tenure_types::{Handle, Limit, Token};

use crate::core::load::{acquire, encoded, new_lease, release};

/// The longest ttl that a lease may have: none ends during a measurement.
const TTL_MS: u64 = 3_600_000;
/// How long an answer may take before the measurement fails.
const TIMEOUT: Duration = Duration::from_secs(30);

/// All clients that send commands.
pub(crate) struct Clients {
    clients: Vec<LoadClient>,
    answered: Sender<ClientAnswer>,
    answers: Receiver<ClientAnswer>,
}

struct LoadClient {
    lease: Handle,
    lock: String,
    /// The token, while the client holds its lock.
    held: Option<Token>,
    sent_at_us: u64,
}

/// The index of a client, and its answer.
type ClientAnswer = (usize, Vec<Result<Outcome, NodeFailure>>);

/// The results of one measurement.
pub(crate) struct ClusterMeasurement {
    pub(crate) took: Duration,
    /// The latencies of all commands, in ascending order.
    pub(crate) latencies_us: Vec<u64>,
    pub(crate) syncs: u64,
}

impl ClusterMeasurement {
    /// The latency that `percent` of the commands do not exceed.
    pub(crate) fn percentile(&self, percent: usize) -> f64 {
        percentile(&self.latencies_us, percent * 10).map_or(f64::NAN, |us| us as f64)
    }
}

impl Clients {
    /// Grants a lease to each of `count` clients.
    pub(crate) fn new(member: &MemberHandle, count: usize) -> Result<Self> {
        let raised = Command::SetLimits(vec![(Limit::StateBytes, 1 << 36)]);
        let mut requests = vec![Bytes::from(encoded(raised))];
        requests.extend((1..=count as u64).map(|id| Bytes::from(new_lease(id, TTL_MS))));
        let outcomes = member.submit(requests, Duration::ZERO, TIMEOUT);
        let clients = outcomes.into_iter().skip(1).enumerate().map(|(at, outcome)| {
            match outcome.context("granting a lease")?.result {
                Ok(Answer::LeaseGranted(lease)) => Ok(LoadClient {
                    lease: lease.handle,
                    lock: format!("bench/cluster/{at:050}"),
                    held: None,
                    sent_at_us: 0,
                }),
                other => bail!("a lease was not granted: {other:?}"),
            }
        });
        let clients = clients.collect::<Result<_>>()?;
        let (answered, answers) = channel();
        Ok(Self { clients, answered, answers })
    }

    /// Keeps `in_flight` commands in flight during a warm-up and then during the measurement.
    pub(crate) fn measure(
        &mut self,
        member: &MemberHandle,
        in_flight: usize,
        warm_up: Duration,
        measure: Duration,
    ) -> Result<ClusterMeasurement> {
        (0..in_flight).for_each(|at| self.send(member, at));
        self.run(member, warm_up, &mut Vec::new())?;
        let mut latencies_us = Vec::new();
        let syncs = member.metrics().syncs;
        let took = self.run(member, measure, &mut latencies_us)?;
        let syncs = member.metrics().syncs - syncs;
        for _ in 0..in_flight {
            self.take()?;
        }
        latencies_us.sort_unstable();
        Ok(ClusterMeasurement { took, latencies_us, syncs })
    }

    /// Sends the next command after every answer.
    fn run(
        &mut self,
        member: &MemberHandle,
        time: Duration,
        latencies_us: &mut Vec<u64>,
    ) -> Result<Duration> {
        let start_us = os::now_us();
        loop {
            let at = self.take()?;
            let now_us = os::now_us();
            latencies_us.push(now_us - self.clients[at].sent_at_us);
            self.send(member, at);
            let took = Duration::from_micros(now_us - start_us);
            if took >= time {
                return Ok(took);
            }
        }
    }

    fn send(&mut self, member: &MemberHandle, at: usize) {
        let client = &mut self.clients[at];
        let command = match client.held {
            Some(token) => release(client.lease, &client.lock, token),
            None => acquire(client.lease, &client.lock, AskWait::No),
        };
        let request = Bytes::from(encoded(command));
        client.sent_at_us = os::now_us();
        let answered = self.answered.clone();
        member.submit_then(vec![request], Duration::ZERO, TIMEOUT, move |fates| {
            // After a failed measurement the receiver is gone.
            let _ = answered.send((at, fates));
        });
    }

    /// Waits for one answer, and returns which client it is for.
    fn take(&mut self) -> Result<usize> {
        let (at, mut fates) = self.answers.recv_timeout(TIMEOUT).context("waiting for answers")?;
        let outcome = fates.pop().context("every command has a fate")??;
        let client = &mut self.clients[at];
        client.held = match (client.held, outcome.result) {
            (None, Ok(Answer::Acquired(acquired))) => {
                let grant = acquired.grants.as_slice().first().context("one lock was asked for")?;
                Some(grant.token)
            }
            (Some(_), Ok(Answer::Released)) => None,
            (_, other) => bail!("client {at} was told {other:?}"),
        };
        Ok(at)
    }
}
