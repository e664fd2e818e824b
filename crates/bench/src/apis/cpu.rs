//! Measures the CPU time of each stage of a command.

use anyhow::{Context, Result};

use crate::cluster::members::BenchCluster;

/// The thread name of the clients.
pub(crate) const CLIENTS: &str = "bench-clients";

/// The stages of a command, and the thread names of each.
const STAGES: [(&str, &[&str]); 4] = [
    ("clients", &[CLIENTS]),
    ("leader_dispatch", &["tenure-dispatch"]),
    // Links are a part of the event loop's work that has threads of its own.
    ("leader_loop", &["tenure-loop", "tenure-link", "tenure-log"]),
    ("leader_archive", &["tenure-archive"]),
];

/// CPU time by stage, in nanoseconds.
pub(crate) struct CpuUsed {
    stages: Vec<(&'static str, u64)>,
}

impl CpuUsed {
    /// Reads the CPU time used so far.
    pub(crate) fn now(cluster: &BenchCluster) -> Result<Self> {
        let mut stages: Vec<(&'static str, u64)> =
            STAGES.iter().map(|(stage, _)| (*stage, 0)).collect();
        for task in std::fs::read_dir("/proc/self/task").context("listing threads")? {
            let path = task.context("listing threads")?.path();
            // A thread may end between being listed and being read.
            let Ok(name) = std::fs::read_to_string(path.join("comm")) else { continue };
            let stage =
                STAGES.iter().position(|(_, names)| names.iter().any(|it| name.starts_with(it)));
            if let Some(stage) = stage {
                stages[stage].1 += on_cpu_ns(&path).unwrap_or(0);
            }
        }
        let mut followers = 0;
        for pid in cluster.followers() {
            let tasks =
                std::fs::read_dir(format!("/proc/{pid}/task")).context("listing threads")?;
            for task in tasks.flatten() {
                followers += on_cpu_ns(&task.path()).unwrap_or(0);
            }
        }
        stages.push(("two_followers", followers));
        Ok(Self { stages })
    }

    pub(crate) fn since(&self, before: &Self) -> Self {
        let stages = self.stages.iter().zip(&before.stages);
        let stages = stages.map(|((stage, now), (_, then))| (*stage, now.saturating_sub(*then)));
        Self { stages: stages.collect() }
    }

    /// The CPU time in microseconds for each of `cycles` cycles.
    pub(crate) fn per(&self, cycles: u64) -> impl Iterator<Item = (&'static str, f64)> + '_ {
        let us = move |ns: u64| ns as f64 / 1_000.0 / (cycles as f64).max(1.0);
        self.stages.iter().map(move |(stage, ns)| (*stage, us(*ns)))
    }
}

fn on_cpu_ns(task: &std::path::Path) -> Option<u64> {
    let text = std::fs::read_to_string(task.join("schedstat")).ok()?;
    text.split(' ').next()?.parse().ok()
}
