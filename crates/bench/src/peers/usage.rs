//! Reads what processes and the machine used from /proc.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Context, Result};
use tenure_server::os;

/// The clock ticks of /proc/stat in a second: fixed by the interface between kernel and programs.
const TICKS_PER_S: f64 = 100.0;
/// More than this many cores used by others make a sample doubtful.
pub(crate) const QUIET_MAX: f64 = 0.25;

/// What was used so far.
pub(crate) struct UsageSnapshot {
    at_us: u64,
    servers_ns: ThreadTimes,
    clients_ns: ThreadTimes,
    machine_ticks: u64,
    flushes: Option<u64>,
}

/// The CPU time of each thread, in nanoseconds.
type ThreadTimes = BTreeMap<String, u64>;

/// What was used between two moments.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WindowUsage {
    pub(crate) seconds: f64,
    /// CPU of the servers, in seconds.
    pub(crate) servers_s: f64,
    /// CPU of this process, which has all clients, in seconds.
    pub(crate) clients_s: f64,
    /// The cores that other processes used.
    pub(crate) other_cores: f64,
    /// How often the disk was told to make its writes durable, by any process.
    pub(crate) flushes: Option<u64>,
}

impl UsageSnapshot {
    /// Reads everything for these servers; `data` is a directory on their disk.
    pub(crate) fn now(pids: &[u32], data: &Path) -> Result<Self> {
        let servers_ns = pids.iter().flat_map(|pid| thread_times(&pid.to_string())).collect();
        let clients_ns = thread_times("self").collect();
        let machine_ticks = busy_ticks()?;
        let at_us = os::now_us();
        Ok(Self { at_us, servers_ns, clients_ns, machine_ticks, flushes: flushes(data) })
    }

    pub(crate) fn since(&self, before: &Self) -> WindowUsage {
        let seconds = (self.at_us - before.at_us) as f64 / 1e6;
        let servers_s = seconds_since(&self.servers_ns, &before.servers_ns);
        let clients_s = seconds_since(&self.clients_ns, &before.clients_ns);
        let machine_s =
            self.machine_ticks.saturating_sub(before.machine_ticks) as f64 / TICKS_PER_S;
        let flushes = self.flushes.zip(before.flushes).map(|(now, then)| now.saturating_sub(then));
        let other_cores = ((machine_s - servers_s - clients_s) / seconds).max(0.0);
        WindowUsage { seconds, servers_s, clients_s, other_cores, flushes }
    }
}

/// The CPU time of each thread of a process that lives.
fn thread_times(pid: &str) -> impl Iterator<Item = (String, u64)> + use<> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task"));
    let of = |task: std::io::Result<std::fs::DirEntry>| {
        let task = task.ok()?;
        // A thread may end between being listed and being read.
        let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        let ns = text.split(' ').next()?.parse().ok()?;
        Some((task.file_name().to_string_lossy().into_owned(), ns))
    };
    tasks.into_iter().flatten().filter_map(of)
}

/// What the threads that live now used since then. The last bit of one that ended meanwhile is not counted.
fn seconds_since(now: &ThreadTimes, then: &ThreadTimes) -> f64 {
    let of = |(id, ns): (&String, &u64)| ns.saturating_sub(then.get(id).copied().unwrap_or(0));
    now.iter().map(of).sum::<u64>() as f64 / 1e9
}

/// The ticks that all cores worked, and those that the host took away.
fn busy_ticks() -> Result<u64> {
    let text = std::fs::read_to_string("/proc/stat").context("reading /proc/stat")?;
    busy(&text).context("/proc/stat has no line for all cores")
}

/// Everything but idle and waiting for the disk; guests are part of the users' time already.
fn busy(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let fields: Vec<u64> = line.split_whitespace().filter_map(|it| it.parse().ok()).collect();
    let &[user, nice, system, _idle, _iowait, irq, softirq, steal, ..] = &fields[..] else {
        return None;
    };
    Some(user + nice + system + irq + softirq + steal)
}

/// How many flushes the disk of this directory completed.
fn flushes(data: &Path) -> Option<u64> {
    let device = std::fs::metadata(data).ok()?.dev();
    // The number that the C library's `major` and `minor` take apart.
    let major = (device >> 8) & 0xfff;
    let minor = (device & 0xff) | ((device >> 12) & 0xfff00);
    let text = std::fs::read_to_string("/proc/diskstats").ok()?;
    flushes_of(&text, major, minor)
}

fn flushes_of(text: &str, major: u64, minor: u64) -> Option<u64> {
    text.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let is_it = fields.first()?.parse() == Ok(major) && fields.get(1)?.parse() == Ok(minor);
        is_it.then(|| fields.get(18)?.parse().ok())?
    })
}

/// The resident memory of each process, in MiB.
pub(crate) fn resident_mib(pids: &[u32]) -> Vec<f64> {
    let of = |pid: &u32| {
        let text = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        line.split_whitespace().next()?.parse::<f64>().ok()
    };
    pids.iter().filter_map(of).map(|kib| kib / 1_024.0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_time_leaves_out_idle_and_disk() {
        assert_eq!(busy("cpu  1 2 4 1000 1000 8 16 32 64 0\ncpu0 1\n"), Some(63));
        assert_eq!(busy("intr 1\n"), None);
    }

    #[test]
    fn flushes_are_those_of_one_disk() {
        let text = " 254 0 vda 1 2 3 4 5 6 7 8 9 10 11 0 0 0 0 77 5\n 254 1 vda1 1 2 3 4 5 6 7 8 9 10 11 0 0 0 0 0 0\n";
        assert_eq!(flushes_of(text, 254, 0), Some(77));
        assert_eq!(flushes_of(text, 8, 0), None);
    }

    #[test]
    fn a_window_says_what_others_used() {
        let threads = |all: &[(&str, u64)]| {
            all.iter().map(|(id, ns)| ((*id).to_owned(), *ns)).collect::<ThreadTimes>()
        };
        let at = |at_us, servers_ns, clients_ns, machine_ticks| UsageSnapshot {
            at_us,
            servers_ns: threads(servers_ns),
            clients_ns: threads(clients_ns),
            machine_ticks,
            flushes: Some(at_us),
        };
        // A thread of the servers began and one ended.
        let before = at(0, &[("1", 500_000_000), ("2", 9_000_000_000)], &[], 100);
        let servers = [("1", 1_000_000_000), ("3", 500_000_000)];
        let used = at(2_000_000, &servers, &[("4", 500_000_000)], 400).since(&before);
        assert!((used.other_cores - 0.75).abs() < 1e-9, "{used:?}");
        assert_eq!(used.flushes, Some(2_000_000));
    }
}
