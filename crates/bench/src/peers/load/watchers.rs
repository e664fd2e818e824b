//! Measures how soon all watches of one key receive the event of a write.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tenure_server::os;

use crate::peers::results::SampleMetrics;
use crate::peers::servers::{PeerServers, os_us};
use crate::peers::system::{ClientShape, PeerClient, PeerSystem};
use crate::peers::usage::{UsageSnapshot, resident_mib};
use crate::peers::workload::MeasurePlan;

use super::{TTL, connect, fresh_name};

/// The pause between two writes.
const BETWEEN: Duration = Duration::from_millis(50);

pub(super) async fn measure<S: PeerSystem>(
    system: &S,
    servers: &PeerServers,
    watchers: usize,
    plan: &MeasurePlan,
) -> Result<SampleMetrics> {
    let (addresses, key) = (servers.addresses(), fresh_name("watched"));
    let (pids, data) = (servers.pids(), plan.data.clone());
    let shape = ClientShape { clients: 1, connections: 1, ttl: TTL };
    let mut writer = connect(system, servers, shape, plan).await?.pop().context("one client")?;
    writer.write(&key).await.context("writing the key")?;
    let heard = Arc::new(AtomicU64::new(0));
    let watches = system.watch(&addresses, &key, watchers, heard.clone());
    let watches = tokio::time::timeout(plan.prepare_max, watches).await;
    let mut watches = watches.context("the watches are not established in time")??;
    let (mut took_us, mut wanted) = (Vec::new(), heard.load(Ordering::Acquire));
    let before = UsageSnapshot::now(&pids, &data)?;
    for _ in 0..plan.writes {
        wanted += watchers as u64;
        let from_us = os::now_us();
        writer.write(&key).await.context("writing the key")?;
        while heard.load(Ordering::Acquire) < wanted {
            ensure!(watches.try_join_next().is_none(), "a watch ended");
            ensure!(os::now_us() - from_us < os_us(plan.queue_max), "not all watches heard of it");
            tokio::time::sleep(Duration::from_micros(200)).await;
        }
        took_us.push(os::now_us() - from_us);
        tokio::time::sleep(BETWEEN).await;
    }
    let used = UsageSnapshot::now(&pids, &data)?.since(&before);
    watches.shutdown().await;
    let mut metrics = SampleMetrics::default();
    took_us.sort_unstable();
    let median_us = took_us.get(took_us.len() / 2).copied().context("the key was written")?;
    metrics.add("all_heard_ms", median_us as f64 / 1e3);
    let events = (watchers * plan.writes) as f64;
    metrics.add("cpu_us", (used.servers_s + used.clients_s) * 1e6 / events);
    metrics.add("servers_cpu_us", used.servers_s * 1e6 / events);
    metrics.add("memory_mib", resident_mib(&pids).iter().sum());
    metrics.other_cores = Some(used.other_cores);
    Ok(metrics)
}
