//! The workloads: each drives the clients of any system and returns its metrics.

mod cycles;
mod handover;
mod killed;
mod leases;
mod queue;
mod reads;
mod watchers;

use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::results::SampleMetrics;
use super::servers::PeerServers;
use super::system::{ClientShape, PeerSystem};
use super::usage::resident_mib;
use super::workload::{MeasurePlan, PeerWorkload};

pub(crate) use killed::hold;

/// The ttl of locks that no test ends: none runs out during a measurement.
const TTL: Duration = Duration::from_secs(600);

/// No server may take more memory than that, and this process with all clients not so much more than when a workload
/// begins: what the clients of another system have freed may still be its.
const MEMORY_MAX_MIB: f64 = 4_096.0;
/// How often the memory of the servers is read.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Runs one workload, and stops it before it takes the memory of the machine.
pub(crate) async fn measure<S: PeerSystem>(
    system: &S,
    servers: &mut PeerServers,
    workload: PeerWorkload,
    plan: &MeasurePlan,
) -> Result<SampleMetrics> {
    let pids = servers.pids();
    tokio::select! {
        measured = run(system, servers, workload, plan) => measured,
        taken = too_much_memory(&pids) => bail!("stopped when one process had {taken:.0} MiB of memory"),
    }
}

async fn too_much_memory(servers: &[u32]) -> f64 {
    let clients = || resident_mib(&[std::process::id()]).into_iter().sum::<f64>();
    let before = clients();
    loop {
        let largest = resident_mib(servers).into_iter().fold(clients() - before, f64::max);
        if largest > MEMORY_MAX_MIB {
            return largest;
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

async fn run<S: PeerSystem>(
    system: &S,
    servers: &mut PeerServers,
    workload: PeerWorkload,
    plan: &MeasurePlan,
) -> Result<SampleMetrics> {
    match workload {
        PeerWorkload::Cycles { clients, connections } => {
            cycles::measure(system, servers, clients, connections, plan).await
        }
        PeerWorkload::HandOver { clients } => {
            handover::measure(system, servers, clients, plan).await
        }
        PeerWorkload::Reads { clients } => reads::measure(system, servers, clients, plan).await,
        PeerWorkload::HolderKilled => killed::holder(system, servers, plan).await,
        PeerWorkload::LeaderKilled => killed::leader(system, servers, plan).await,
        PeerWorkload::Leases { leases } => leases::measure(system, servers, leases, plan).await,
        PeerWorkload::Watchers { watchers } => {
            watchers::measure(system, servers, watchers, plan).await
        }
        PeerWorkload::Queue { waiters } => queue::measure(system, servers, waiters, plan).await,
    }
}

/// A name that no other measurement of these servers uses.
fn fresh_name(kind: &str) -> String {
    format!("bench-{kind}-{}", tenure_server::os::now_us())
}

/// Connects clients to the leader, which each system answers fastest from.
async fn connect<S: PeerSystem>(
    system: &S,
    servers: &PeerServers,
    shape: ClientShape,
    plan: &MeasurePlan,
) -> Result<Vec<S::Client>> {
    let leader = system.leader(servers).await.context("finding the leader")?;
    let address = servers.addresses().into_iter().nth(leader).context("the leader is a server")?;
    let clients = tokio::time::timeout(plan.prepare_max, system.clients(&[address], shape)).await;
    clients.with_context(|| {
        format!("{} clients are not connected after {:?}", shape.clients, plan.prepare_max)
    })?
}
