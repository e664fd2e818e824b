//! Measures how much memory one lock, waiter or lease takes.
//!
//! Each kind is built in a process of its own. The growth of the process is divided by the number of objects, so it
//! includes indexes, spare capacity and the allocator's overhead.

use std::process::Command as Process;

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use tenure_core::request::{Acquire, AskWait, Command};
use tenure_types::{Handle, Limit};

use crate::core::load::{Load, acquire, encoded};
use crate::run_results::RunResults;

/// The kind of object whose memory is measured.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum MemoryKind {
    Lock,
    ListedLock,
    Waiter,
    Lease,
}

pub(crate) fn measure(scale: u64, results: &mut RunResults) -> Result<()> {
    let count = 1_000_000 / scale;
    for (kind, name) in [
        (MemoryKind::Lock, "bytes_per_held_lock"),
        (MemoryKind::ListedLock, "bytes_per_listed_lock"),
        (MemoryKind::Waiter, "bytes_per_waiter"),
        (MemoryKind::Lease, "bytes_per_lease"),
    ] {
        let bytes = in_own_process(kind, count)?;
        results.add(
            name,
            bytes,
            format!("bytes, of {count}, by what the process grew (to reach: 250)"),
        );
    }
    Ok(())
}

fn in_own_process(kind: MemoryKind, count: u64) -> Result<f64> {
    let program = std::env::current_exe().context("finding this program")?;
    let kind = kind.to_possible_value().context("every kind has a name")?;
    let output = Process::new(program)
        .args(["memory", kind.get_name(), &count.to_string()])
        .output()
        .context("starting a process to measure memory in")?;
    ensure!(
        output.status.success(),
        "measuring memory failed: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout)?.trim().parse().context("reading the measured bytes")
}

/// Builds `count` objects, and returns the bytes that one of them takes.
pub(crate) fn bytes_per_object(kind: MemoryKind, count: u64) -> Result<f64> {
    let mut load = Load::new();
    // The history has a limit of its own; it is kept out of the measurement.
    load.apply_all(&[encoded(Command::SetLimits(vec![(Limit::HistoryRevisions, 1)]))]);
    let name = |lock: u64| format!("jobs/import/{lock:08}");
    let before = match kind {
        MemoryKind::Lock | MemoryKind::ListedLock => {
            let leases = load.leases(1_000, 3_600_000);
            let before = resident_bytes()?;
            for lock in 0..count {
                let lease = leases[usize::try_from(lock % 1_000)?];
                load.apply_all(&[encoded(acquire(lease, &name(lock), AskWait::No))]);
            }
            // A list request has put their names in order.
            if kind == MemoryKind::ListedLock {
                let _ = load.machine.sorted_locks(usize::MAX);
            }
            before
        }
        MemoryKind::Waiter => {
            // A lease can wait for a lock once, so a thousand leases wait for a thousand locks each.
            let leases = load.leases(1_000, 3_600_000);
            let locks = count.div_ceil(1_000) + 1;
            let holder = load.leases_from(1_001, 1, 3_600_000);
            for lock in 0..locks {
                load.apply_all(&[encoded(acquire(holder[0], &name(lock), AskWait::No))]);
            }
            let before = resident_bytes()?;
            for waiter in 0..count {
                let lease = leases[usize::try_from(waiter % 1_000)?];
                let lock = name(waiter / 1_000);
                load.apply_all(&[encoded(independent(lease, &lock))]);
            }
            before
        }
        MemoryKind::Lease => {
            let before = resident_bytes()?;
            load.leases(count, 3_600_000);
            before
        }
    };
    let grown = resident_bytes()?.saturating_sub(before);
    Ok(grown as f64 / count as f64)
}

/// A wait that closes no cycle, so that the search for deadlocks is not part of the measurement.
fn independent(lease: Handle, lock: &str) -> Command<'_> {
    match acquire(lease, lock, AskWait::Unlimited) {
        Command::Acquire(acquire) => Command::Acquire(Acquire { independent: true, ..acquire }),
        other => other,
    }
}

/// The resident memory of this process.
pub(crate) fn resident_bytes() -> Result<u64> {
    let statm =
        std::fs::read_to_string("/proc/self/statm").context("reading this process's memory")?;
    let pages: u64 =
        statm.split_whitespace().nth(1).context("statm has a second field")?.parse()?;
    // The page size of every platform this benchmark runs on.
    Ok(pages * 4_096)
}
