//! Measures how soon a lock is granted after the server that leads, or the process that holds it, is killed.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tenure_server::os;

use crate::peers::results::SampleMetrics;
use crate::peers::servers::PeerServers;
use crate::peers::system::{ClientShape, PeerClient, PeerSystem};
use crate::peers::workload::MeasurePlan;

use super::{TTL, fresh_name};

/// The ttl of a holder that is killed.
const HOLDER_TTL: Duration = Duration::from_secs(2);
/// The pause before another attempt, where a client does not retry by itself.
const PAUSE: Duration = Duration::from_millis(10);
/// What a holder says when it has the lock.
const HELD: &str = "held";

/// Kills the leader, and measures until an acquire that began after that is granted.
pub(super) async fn leader<S: PeerSystem>(
    system: &S,
    servers: &mut PeerServers,
    plan: &MeasurePlan,
) -> Result<SampleMetrics> {
    let addresses = servers.addresses();
    let at = system.leader(servers).await.context("finding the leader")?;
    let shape = ClientShape { clients: 1, connections: 1, ttl: TTL };
    let mut client = system.clients(&addresses, shape).await?.pop().context("one client")?;
    let name = fresh_name("leader-killed");
    let held = client.acquire_free(&name).await.context("before the kill")?;
    client.release(held).await.context("before the kill")?;
    servers.kill(at)?;
    let killed_us = os::now_us();
    let granted = tokio::time::timeout(plan.prepare_max, async {
        let mut attempts = 0;
        loop {
            attempts += 1;
            // A lock of its own for each attempt: one whose answer was lost may hold the one before.
            if client.acquire_free(&format!("{name}-{attempts}")).await.is_ok() {
                return attempts;
            }
            tokio::time::sleep(PAUSE).await;
        }
    });
    let attempts = granted.await.context("no grant after the leader was killed")?;
    let took_us = os::now_us() - killed_us;
    let mut metrics = SampleMetrics::default();
    metrics.add("ms", took_us as f64 / 1e3);
    metrics.add("attempts", f64::from(attempts));
    Ok(metrics)
}

/// How often a holder is started: on a machine that is very busy it may lose its lock before it is killed.
const HOLDERS_MAX: usize = 3;

/// Kills the process that holds a lock, and measures until a waiter has it.
pub(super) async fn holder<S: PeerSystem>(
    system: &S,
    servers: &PeerServers,
    plan: &MeasurePlan,
) -> Result<SampleMetrics> {
    for _ in 0..HOLDERS_MAX {
        if let Some(metrics) = one_holder(system, servers, plan).await? {
            return Ok(metrics);
        }
    }
    bail!("{HOLDERS_MAX} holders lost their locks before they were killed")
}

/// One attempt; `None` if the holder lost its lock too early.
async fn one_holder<S: PeerSystem>(
    system: &S,
    servers: &PeerServers,
    plan: &MeasurePlan,
) -> Result<Option<SampleMetrics>> {
    let (addresses, lock) = (servers.addresses(), fresh_name("holder-killed"));
    let mut holding = start_holder(system.name(), &addresses, &lock)?;
    let shape = ClientShape { clients: 1, connections: 1, ttl: TTL };
    let mut client = system.clients(&addresses, shape).await?.pop().context("one client")?;
    let waiting = lock.clone();
    let waiter = tokio::spawn(async move {
        let held = client.acquire_queued(&waiting).await;
        (os::now_us(), held.map(drop))
    });
    // At different moments between two renewals.
    let beat_ms = fastrand::u64(0..1_000);
    tokio::time::sleep(Duration::from_millis(500 + beat_ms)).await;
    if waiter.is_finished() {
        return Ok(None);
    }
    holding.0.kill().context("killing the holder")?;
    let killed_us = os::now_us();
    let granted = tokio::time::timeout(plan.prepare_max, waiter).await;
    let (granted_us, granted) = granted.context("no grant after the holder was killed")??;
    granted.context("no grant after the holder was killed")?;
    let mut metrics = SampleMetrics::default();
    metrics.add("ms", granted_us.saturating_sub(killed_us) as f64 / 1e3);
    Ok(Some(metrics))
}

/// A process that holds a lock. It is killed when this is dropped.
struct HolderProcess(Child);

impl Drop for HolderProcess {
    fn drop(&mut self) {
        // It was killed before, unless the measurement failed.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts this program as a holder, and waits until it has the lock.
fn start_holder(system: &str, addresses: &[String], lock: &str) -> Result<HolderProcess> {
    let program = std::env::current_exe().context("finding this program")?;
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(program);
    command.args(["peers", "--hold", lock, "--system", system]);
    command.args(["--address", &addresses.join(",")]);
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut holding = HolderProcess(command.spawn().context("starting a holder")?);
    let from = holding.0.stdout.take().context("a holder has an output")?;
    let mut line = String::new();
    BufReader::new(from).read_line(&mut line).context("hearing from the holder")?;
    ensure!(line.trim() == HELD, "the holder says `{}`", line.trim());
    Ok(holding)
}

/// Takes a lock, says so, and keeps it until this process is killed.
pub(crate) async fn hold<S: PeerSystem>(
    system: &S,
    addresses: &[String],
    lock: &str,
) -> Result<()> {
    let shape = ClientShape { clients: 1, connections: 1, ttl: HOLDER_TTL };
    let mut client = system.clients(addresses, shape).await?.pop().context("one client")?;
    let held = client.acquire_queued(lock).await.context("taking the lock")?;
    println!("{HELD}");
    client.hold(held).await
}
