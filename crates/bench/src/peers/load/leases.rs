//! Measures what it takes to keep many leases alive.

use anyhow::{Context, Result};
use tenure_server::os;

use crate::peers::results::SampleMetrics;
use crate::peers::servers::PeerServers;
use crate::peers::system::PeerSystem;
use crate::peers::usage::{UsageSnapshot, resident_mib};
use crate::peers::workload::MeasurePlan;

pub(super) async fn measure<S: PeerSystem>(
    system: &S,
    servers: &PeerServers,
    leases: usize,
    plan: &MeasurePlan,
) -> Result<SampleMetrics> {
    let (addresses, pids, data) = (servers.addresses(), servers.pids(), plan.data.clone());
    let memory: f64 = resident_mib(&pids).iter().sum();
    let from_us = os::now_us();
    let kept = system.keep_leases(&addresses, leases, plan.lease_ttl);
    let kept = tokio::time::timeout(plan.prepare_max, kept).await;
    let kept = kept
        .with_context(|| format!("{leases} leases are not there after {:?}", plan.prepare_max))??;
    let created_us = os::now_us();
    // Wait one renewal interval, in which the renewals spread out, and measure during the next one.
    tokio::time::sleep(plan.renewals).await;
    let before = UsageSnapshot::now(&pids, &data)?;
    tokio::time::sleep(plan.renewals).await;
    let used = UsageSnapshot::now(&pids, &data)?.since(&before);
    let living = tokio::time::timeout(plan.prepare_max, kept.living).await;
    let living = living.context("counting the leases takes too long")??;
    drop(kept.kept);
    let mut metrics = SampleMetrics::default();
    metrics.add("servers_cpu_percent", used.servers_s / used.seconds * 100.0);
    metrics.add("clients_cpu_percent", used.clients_s / used.seconds * 100.0);
    metrics.add("create_s", (created_us - from_us) as f64 / 1e6);
    metrics.add("lost", leases.saturating_sub(living) as f64);
    metrics.add("memory_mib", resident_mib(&pids).iter().sum());
    metrics.add("memory_before_mib", memory);
    metrics.other_cores = Some(used.other_cores);
    Ok(metrics)
}
