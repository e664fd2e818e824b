//! Measures a long queue: how long it takes to form and to drain, and who does not get the lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tenure_server::os;
use tokio::task::JoinSet;

use crate::peers::CONNECTIONS;
use crate::peers::results::SampleMetrics;
use crate::peers::servers::{PeerServers, os_us};
use crate::peers::system::{ClientShape, PeerClient, PeerSystem};
use crate::peers::usage::{UsageSnapshot, resident_mib};
use crate::peers::workload::MeasurePlan;

use super::{TTL, connect, fresh_name};

/// The pause between two samples of memory and queue.
const PAUSE: Duration = Duration::from_millis(100);
/// How long clients of a system without a queue may try in vain before the lock is released.
const TRYING: Duration = Duration::from_secs(1);

/// What the waiters share.
#[derive(Default)]
struct QueueCount {
    inside: AtomicU64,
    overlaps: AtomicU64,
    granted: AtomicU64,
    failed: AtomicU64,
}

/// The largest memory of one server, and of all together, in MiB.
#[derive(Default)]
struct MemoryPeak {
    largest: f64,
    all: f64,
}

impl MemoryPeak {
    fn update(&mut self, pids: &[u32]) {
        let now = resident_mib(pids);
        self.largest = now.iter().copied().fold(self.largest, f64::max);
        self.all = self.all.max(now.iter().sum());
    }
}

pub(super) async fn measure<S: PeerSystem>(
    system: &S,
    servers: &PeerServers,
    waiters: usize,
    plan: &MeasurePlan,
) -> Result<SampleMetrics> {
    let (addresses, lock) = (servers.addresses(), fresh_name("queue"));
    let (pids, data) = (servers.pids(), plan.data.clone());
    let mut peak = MemoryPeak::default();
    let shape = ClientShape { clients: waiters + 1, connections: CONNECTIONS, ttl: TTL };
    let mut all = connect(system, servers, shape, plan).await?;
    let mut holder = all.pop().context("one client holds the lock")?;
    let held = holder.acquire_queued(&lock).await.context("taking the lock first")?;

    let before = UsageSnapshot::now(&pids, &data)?;
    let (from_us, count) = (os::now_us(), Arc::new(QueueCount::default()));
    let until_us = from_us + os_us(plan.queue_max);
    let mut tasks = JoinSet::new();
    for client in all {
        tasks.spawn(wait_once(client, lock.clone(), count.clone()));
    }
    while os::now_us() < until_us {
        peak.update(&pids);
        match tokio::time::timeout(PAUSE * 50, system.queue_len(&addresses, &lock)).await {
            Ok(Ok(None)) => {
                tokio::time::sleep(TRYING.min(plan.queue_max / 4)).await;
                break;
            }
            Ok(Ok(Some(queued)))
                if queued + count.failed.load(Ordering::Acquire) > waiters as u64 =>
            {
                break;
            }
            // A system that is overloaded may not say how long the queue is.
            _ => tokio::time::sleep(PAUSE).await,
        }
    }
    let queued_us = os::now_us();
    // A system that is overloaded may refuse this, too; then the queue does not move.
    let released = holder.release(held).await;
    let ended = |count: &QueueCount| {
        count.granted.load(Ordering::Acquire) + count.failed.load(Ordering::Acquire)
    };
    while ended(&count) < waiters as u64 && os::now_us() < until_us && released.is_ok() {
        peak.update(&pids);
        tokio::time::sleep(PAUSE.min(Duration::from_millis(20))).await;
    }
    let drained_us = os::now_us();
    let used = UsageSnapshot::now(&pids, &data)?.since(&before);
    tasks.shutdown().await;

    let overlaps = count.overlaps.load(Ordering::Acquire);
    ensure!(overlaps == 0, "two clients held the lock at once, {overlaps} times");
    let granted = count.granted.load(Ordering::Acquire) as f64;
    let mut metrics = SampleMetrics::default();
    metrics.add("failed", waiters as f64 - granted);
    metrics.add("queue_s", (queued_us - from_us) as f64 / 1e6);
    metrics.add("drain_s", (drained_us - queued_us) as f64 / 1e6);
    metrics.add("all_s", (drained_us - from_us) as f64 / 1e6);
    metrics.add("memory_mib", peak.all);
    metrics.add("largest_mib", peak.largest);
    metrics.add("cpu_us", (used.servers_s + used.clients_s) * 1e6 / waiters as f64);
    metrics.other_cores = Some(used.other_cores);
    if let Err(error) = released {
        metrics.note = Some(format!("the first holder could not release: {error:#}"));
    } else if granted < waiters as f64 && drained_us >= until_us {
        metrics.note =
            Some(format!("{granted} of {waiters} had the lock within {:?}", plan.queue_max));
    }
    Ok(metrics)
}

/// Waits for the lock once. A waiter that fails drops its client, and so gives up its place.
async fn wait_once<C: PeerClient>(mut client: C, lock: String, count: Arc<QueueCount>) {
    let Ok(held) = client.acquire_queued(&lock).await else {
        count.failed.fetch_add(1, Ordering::AcqRel);
        return;
    };
    if count.inside.fetch_add(1, Ordering::AcqRel) != 0 {
        count.overlaps.fetch_add(1, Ordering::AcqRel);
    }
    count.inside.fetch_sub(1, Ordering::AcqRel);
    let counter = match client.release(held).await {
        Ok(()) => &count.granted,
        Err(_) => &count.failed,
    };
    counter.fetch_add(1, Ordering::AcqRel);
}
