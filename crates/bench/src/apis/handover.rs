//! Measures how long a contended lock has no holder during a hand-over.

use std::net::SocketAddr;

use anyhow::{Result, bail};
use tenure_server::os;
use tenure_wire::v1::answer;

use super::session::{SessionConnection, acquire, release, request, us};
use super::{ApiMeasurement, BenchCaller, MeasureTimes};

const LOCK: &str = "bench/handover";

/// Lets `waiters` clients of one session pass a lock on: each holder releases it and queues again.
pub(super) async fn measure(
    address: SocketAddr,
    waiters: usize,
    times: MeasureTimes,
) -> Result<ApiMeasurement> {
    let mut connection = SessionConnection::open(address, &BenchCaller::default()).await?;
    let leases = connection.leases(waiters).await?;
    let ask = |at: usize| request(at as u64, acquire(&leases[at], LOCK, None));
    connection.send((0..waiters).map(ask).collect())?;
    let start_us = os::now_us();
    let from_us = start_us + us(times.warm_up);
    let end_us = from_us + us(times.measure);
    let (mut latencies_us, mut released_us) = (Vec::new(), None);
    let mut handovers = 0;
    loop {
        let message = connection.next().await?;
        let now_us = os::now_us();
        let mut held: Vec<(usize, u64)> = Vec::new();
        for answer in message.answers {
            match answer.result {
                Some(answer::Result::Acquired(it)) => {
                    held.push((usize::try_from(answer.id)?, it.token));
                }
                Some(answer::Result::Queued(_) | answer::Result::Released(_)) => {}
                other => bail!("a waiter was told {other:?}"),
            }
        }
        for grant in message.grants {
            held.push((usize::try_from(grant.id)?, grant.token));
        }
        for (at, token) in held {
            if let Some(released_us) = released_us
                && now_us >= from_us
            {
                latencies_us.push(now_us - released_us);
            }
            handovers += 1;
            released_us = Some(os::now_us());
            connection.send(vec![
                request(at as u64, release(&leases[at], LOCK, token)),
                request(at as u64, acquire(&leases[at], LOCK, None)),
            ])?;
        }
        if now_us >= end_us {
            latencies_us.sort_unstable();
            return Ok(ApiMeasurement {
                took: times.measure,
                latencies_us,
                cycles_in_all: handovers,
            });
        }
    }
}
