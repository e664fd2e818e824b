//! Counts operations and their latencies between two moments, with what was used meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use anyhow::{Context, Result, ensure};
use tenure_server::os;
use tokio::task::JoinSet;

use super::results::SampleMetrics;
use super::servers::{PeerServers, os_us};
use super::system::PeerSystem;
use super::usage::{UsageSnapshot, resident_mib};
use super::workload::MeasurePlan;

/// What the tasks of a measurement share.
#[derive(Default)]
pub(crate) struct MeasureWindow {
    /// Whether operations count.
    open: AtomicBool,
    /// Whether the tasks are to end.
    over: AtomicBool,
    /// The operations that counted.
    done: AtomicU64,
}

impl MeasureWindow {
    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// Counts an operation that began at this moment and has just ended.
    pub(crate) fn count(&self, began_us: u64, latencies_us: &mut Vec<u64>) {
        if self.open.load(Ordering::Acquire) {
            self.done.fetch_add(1, Ordering::Relaxed);
            latencies_us.push(os::now_us() - began_us);
        }
    }
}

/// The latencies that each task returns.
pub(crate) type MeasuringTasks = JoinSet<Result<Vec<u64>>>;

/// Waits for the warm-up, measures, ends the tasks and returns the metrics; `per` names one operation: `cycle`.
pub(crate) async fn measure<S: PeerSystem>(
    system: &S,
    servers: &PeerServers,
    window: &Arc<MeasureWindow>,
    mut tasks: MeasuringTasks,
    plan: &MeasurePlan,
) -> Result<SampleMetrics> {
    let (pids, data) = (servers.pids(), plan.data.clone());
    sleep_with(&mut tasks, plan.warm_up).await?;
    let fsyncs = system.fsyncs(servers).await?;
    let before = UsageSnapshot::now(&pids, &data)?;
    window.open.store(true, Ordering::Release);
    sleep_with(&mut tasks, plan.window).await?;
    // A machine that is very busy may need longer for the first operation.
    let until_us = os::now_us() + os_us(plan.prepare_max);
    while window.done.load(Ordering::Acquire) == 0 && os::now_us() < until_us {
        sleep_with(&mut tasks, plan.window).await?;
    }
    window.open.store(false, Ordering::Release);
    let done = window.done.load(Ordering::Acquire);
    let used = UsageSnapshot::now(&pids, &data)?.since(&before);
    let fsyncs_after = system.fsyncs(servers).await?;
    let memory = resident_mib(&pids);
    window.over.store(true, Ordering::Release);
    ensure!(done > 0, "nothing was done in {:.1} s", used.seconds);
    let mut metrics = SampleMetrics::default();
    let count = done as f64;
    metrics.add("per_s", count / used.seconds);
    metrics.add("cpu_us", (used.servers_s + used.clients_s) * 1e6 / count);
    metrics.add("servers_cpu_us", used.servers_s * 1e6 / count);
    metrics.add("clients_cpu_us", used.clients_s * 1e6 / count);
    metrics.add("servers_cores", used.servers_s / used.seconds);
    metrics.add("memory_mib", memory.iter().sum());
    match (fsyncs, fsyncs_after) {
        (Some(before), Some(after)) => {
            metrics.add("fsyncs", after.saturating_sub(before) as f64 / count);
        }
        _ => used.flushes.into_iter().for_each(|it| metrics.add("disk_flushes", it as f64 / count)),
    }
    metrics.other_cores = Some(used.other_cores);
    let mut latencies_us = Vec::new();
    let ended = tokio::time::timeout(plan.prepare_max, async {
        while let Some(ended) = tasks.join_next().await {
            match ended {
                Ok(each) => latencies_us.extend(each?),
                Err(error) if error.is_cancelled() => {}
                Err(error) => return Err(error).context("a client ended early"),
            }
        }
        anyhow::Ok(())
    });
    ended.await.context("the clients do not end")??;
    metrics.add_percentiles(latencies_us);
    Ok(metrics)
}

/// Sleeps, and fails as soon as a task ends: none should.
async fn sleep_with(tasks: &mut MeasuringTasks, time: std::time::Duration) -> Result<()> {
    match tokio::time::timeout(time, tasks.join_next()).await {
        Err(_) => Ok(()),
        Ok(None) => anyhow::bail!("there are no clients"),
        Ok(Some(ended)) => {
            ended.context("a client ended early")??;
            anyhow::bail!("a client ended early")
        }
    }
}
