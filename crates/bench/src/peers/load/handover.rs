//! Measures how soon a lock that many want passes from one client to the next.
//!
//! All clients acquire one lock, release it at once and ask for it again. The gap is the time from the call that
//! releases the lock until the next client has it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use anyhow::{Context, Result, ensure};
use tenure_server::os;

use crate::peers::CONNECTIONS;
use crate::peers::results::SampleMetrics;
use crate::peers::servers::PeerServers;
use crate::peers::system::{ClientShape, PeerClient, PeerSystem};
use crate::peers::window::{self, MeasureWindow, MeasuringTasks};
use crate::peers::workload::MeasurePlan;

use super::{TTL, connect, fresh_name};

/// No client released the lock yet.
const NONE: usize = usize::MAX;

/// What the clients know of the lock.
struct ContendedLock {
    window: Arc<MeasureWindow>,
    /// When it was last released, and by which client.
    released_us: AtomicU64,
    by: AtomicUsize,
    /// The number of clients that hold the lock.
    inside: AtomicU64,
    /// How often two held it at once, and how often a client got it back from itself.
    overlaps: AtomicU64,
    kept: AtomicU64,
    grants: AtomicU64,
}

pub(super) async fn measure<S: PeerSystem>(
    system: &S,
    servers: &PeerServers,
    clients: usize,
    plan: &MeasurePlan,
) -> Result<SampleMetrics> {
    let shape = ClientShape { clients, connections: CONNECTIONS.min(clients), ttl: TTL };
    let all = connect(system, servers, shape, plan).await?;
    let shared = Arc::new(ContendedLock {
        window: Arc::default(),
        released_us: AtomicU64::new(os::now_us()),
        by: AtomicUsize::new(NONE),
        inside: AtomicU64::new(0),
        overlaps: AtomicU64::new(0),
        kept: AtomicU64::new(0),
        grants: AtomicU64::new(0),
    });
    let (mut tasks, lock) = (MeasuringTasks::new(), fresh_name("handover"));
    for (at, client) in all.into_iter().enumerate() {
        tasks.spawn(take_turns(client, at, lock.clone(), shared.clone()));
    }
    let mut metrics = window::measure(system, servers, &shared.window.clone(), tasks, plan).await?;
    let overlaps = shared.overlaps.load(Ordering::Acquire);
    ensure!(overlaps == 0, "two clients held the lock at once, {overlaps} times");
    let grants = shared.grants.load(Ordering::Acquire).max(1) as f64;
    let kept = shared.kept.load(Ordering::Acquire) as f64;
    metrics.add("back_to_releaser_percent", kept / grants * 100.0);
    Ok(metrics)
}

async fn take_turns<C: PeerClient>(
    mut client: C,
    at: usize,
    lock: String,
    shared: Arc<ContendedLock>,
) -> Result<Vec<u64>> {
    let mut gaps_us = Vec::new();
    while !shared.window.is_over() {
        let held = tokio::select! {
            held = client.acquire_queued(&lock) => held.context("acquiring")?,
            // The rest of the queue need not drain.
            () = over(&shared.window) => break,
        };
        if shared.inside.fetch_add(1, Ordering::AcqRel) != 0 {
            shared.overlaps.fetch_add(1, Ordering::AcqRel);
        }
        shared.window.count(shared.released_us.load(Ordering::Acquire), &mut gaps_us);
        shared.grants.fetch_add(1, Ordering::Relaxed);
        if shared.by.load(Ordering::Acquire) == at {
            shared.kept.fetch_add(1, Ordering::Relaxed);
        }
        shared.inside.fetch_sub(1, Ordering::AcqRel);
        shared.by.store(at, Ordering::Release);
        shared.released_us.store(os::now_us(), Ordering::Release);
        client.release(held).await.context("releasing")?;
    }
    Ok(gaps_us)
}

async fn over(window: &MeasureWindow) {
    while !window.is_over() {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}
