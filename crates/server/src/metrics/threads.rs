//! Measures how much processor time each thread of this process uses.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::Serialize;

/// What the operating system has counted for one thread.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ThreadCounts {
    name: String,
    running_ns: u64,
    delayed_ns: u64,
    switches: u64,
}

/// The counts of all threads of this process at one moment, by thread id.
#[derive(Debug)]
pub(crate) struct ThreadSnapshot(BTreeMap<u32, ThreadCounts>);

/// What one thread did between two snapshots.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct ThreadUse {
    /// The name of the thread, of which Linux keeps 15 characters.
    pub(crate) name: String,
    /// The id by which `perf record -t` and `top -H` name the thread.
    pub(crate) id: u32,
    /// The share of one processor that it used, in percent.
    pub(crate) cpu_percent: f64,
    /// The share of the time in which it could have run and had no processor, in percent.
    pub(crate) delayed_percent: f64,
    /// How often it stopped running, because it waited or because its turn was over.
    pub(crate) switches: u64,
}

impl ThreadSnapshot {
    /// Reads the counts of all threads. Threads that the system does not describe are missing.
    pub(crate) fn read() -> Self {
        let tasks = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
        let threads = tasks.filter_map(|task| {
            let id = task.file_name().to_str()?.parse().ok()?;
            // A thread may end while it is read.
            Some((id, ThreadCounts::read(&task.path())?))
        });
        Self(threads.collect())
    }

    /// What each thread did from `before` to this snapshot, `elapsed_us` later: the busiest first. A thread that began
    /// in between counts from its beginning; one that ended is missing.
    pub(crate) fn since(&self, before: &Self, elapsed_us: u64) -> Vec<ThreadUse> {
        let percent = |ns: u64| {
            let share = ns as f64 / 10.0 / elapsed_us.max(1) as f64;
            (share * 100.0).round() / 100.0
        };
        let mut threads: Vec<ThreadUse> = self
            .0
            .iter()
            .map(|(&id, now)| {
                // The system gives the id of a thread that ended to a later one, whose counts begin at 0.
                let began = before.0.get(&id).filter(|it| it.running_ns <= now.running_ns);
                let from =
                    |of: fn(&ThreadCounts) -> u64| of(now).saturating_sub(began.map_or(0, of));
                ThreadUse {
                    name: now.name.clone(),
                    id,
                    cpu_percent: percent(from(|it| it.running_ns)),
                    delayed_percent: percent(from(|it| it.delayed_ns)),
                    switches: from(|it| it.switches),
                }
            })
            .collect();
        threads.sort_by(|a, b| b.cpu_percent.total_cmp(&a.cpu_percent).then(a.id.cmp(&b.id)));
        threads
    }
}

impl ThreadCounts {
    fn read(task: &Path) -> Option<Self> {
        let name = fs::read_to_string(task.join("comm")).ok()?.trim_end().to_owned();
        let times = fs::read_to_string(task.join("schedstat")).ok()?;
        let mut times = times.split_ascii_whitespace().map(|it| it.parse().ok());
        let (running_ns, delayed_ns) = (times.next()??, times.next()??);
        let status = fs::read_to_string(task.join("status")).unwrap_or_default();
        let switches = status.lines().filter_map(|line| {
            let (field, count) = line.split_once(':')?;
            field.ends_with("voluntary_ctxt_switches").then(|| count.trim().parse::<u64>().ok())?
        });
        Some(Self { name, running_ns, delayed_ns, switches: switches.sum() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    fn times(name: &str, running_ns: u64, delayed_ns: u64, switches: u64) -> ThreadCounts {
        ThreadCounts { name: name.to_owned(), running_ns, delayed_ns, switches }
    }

    #[test]
    fn shares_are_of_the_time_between_two_snapshots_and_the_busiest_comes_first() {
        let before = ThreadSnapshot(BTreeMap::from([
            (1, times("main", 5_000_000, 0, 7)),
            (2, times("tenure-loop", 1_000_000_000, 4_000_000, 10)),
            (3, times("ended", 9_000_000, 0, 1)),
            (4, times("old owner of the id", 8_000_000_000, 0, 100)),
        ]));
        let after = ThreadSnapshot(BTreeMap::from([
            (1, times("main", 5_000_000, 0, 7)),
            (2, times("tenure-loop", 1_500_000_000, 54_000_000, 25)),
            (4, times("began", 250_000_000, 0, 3)),
        ]));
        let used = after.since(&before, 1_000_000);
        let shown: Vec<_> = used
            .iter()
            .map(|it| (it.name.as_str(), it.cpu_percent, it.delayed_percent, it.switches))
            .collect();
        assert_eq!(
            shown,
            [("tenure-loop", 50.0, 5.0, 15), ("began", 25.0, 0.0, 3), ("main", 0.0, 0.0, 0)]
        );
    }

    #[test]
    fn a_thread_that_computes_is_seen_computing() {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let busy = || {
                while !stop.load(Ordering::Acquire) {
                    std::hint::spin_loop();
                }
            };
            std::thread::Builder::new().name("computes".into()).spawn_scoped(scope, busy).unwrap();
            let before = ThreadSnapshot::read();
            let seen = until(|| {
                let used = ThreadSnapshot::read().since(&before, 1_000);
                used.into_iter().find(|it| it.name == "computes" && it.cpu_percent > 0.0)
            });
            stop.store(true, Ordering::Release);
            assert!(seen.is_some());
        });
    }

    /// Asks again until there is an answer, for as long as a very busy machine may need.
    fn until<T>(mut ask: impl FnMut() -> Option<T>) -> Option<T> {
        let end_us = crate::os::now_us() + 60_000_000;
        loop {
            let answer = ask();
            if answer.is_some() || crate::os::now_us() > end_us {
                return answer;
            }
            std::thread::yield_now();
        }
    }
}
