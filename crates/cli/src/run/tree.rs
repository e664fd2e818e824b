//! Finds and signals the processes below one of ours.
//!
//! The caller is a subreaper: a process whose parent dies becomes its child, so no process escapes by forking twice or
//! by starting a session. The list may be outdated when it is used; the next search finds what it missed.

use std::fs;

use rustix::process::{Pid, Signal, kill_process};

/// The greatest depth at which a process is searched.
const DEPTH_MAX: usize = 1_000;

/// A process in the state in which it was last seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ProcessInfo {
    pub(super) pid: Pid,
    pub(super) state: ProcessState,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ProcessState {
    /// The process runs or waits for something.
    Alive,
    /// A signal stopped the process: only SIGKILL and SIGCONT have an effect.
    Stopped,
    /// The process has ended, and its parent has not reaped it.
    Zombie,
}

/// All descendants of a process.
pub(super) fn below(root: Pid) -> Vec<ProcessInfo> {
    let mut found = Vec::new();
    let mut look = children(root).unwrap_or_else(|| searched(root));
    while let Some(pid) = look.pop() {
        // A pid that was reused meanwhile could appear twice.
        if found.iter().any(|it: &ProcessInfo| it.pid == pid) {
            continue;
        }
        if let Some(stat) = stat(pid) {
            found.push(ProcessInfo { pid, state: stat.state });
        }
        look.extend(children(pid).unwrap_or_default());
    }
    found
}

/// All descendants that have not ended.
pub(super) fn living(root: Pid) -> Vec<ProcessInfo> {
    let mut all = below(root);
    all.retain(|it| it.state != ProcessState::Zombie);
    all
}

/// A process that was below another one, if it is alive and still below it. Pids are reused, so its ancestors are
/// checked.
pub(super) fn still_below(root: Pid, pid: Pid) -> Option<ProcessInfo> {
    let ProcessStat { state, mut parent, .. } =
        stat(pid).filter(|it| it.state != ProcessState::Zombie)?;
    for _ in 0..DEPTH_MAX {
        if parent? == root {
            return Some(ProcessInfo { pid, state });
        }
        parent = stat(parent?)?.parent;
    }
    None
}

/// Whether a process is stopped.
pub(super) fn is_stopped(pid: Pid) -> bool {
    stat(pid).is_some_and(|it| it.state == ProcessState::Stopped)
}

/// Sends a signal to each process and returns how many received it. A process that has ended meanwhile needs none.
pub(super) fn signal(processes: &[ProcessInfo], signal: Signal) -> usize {
    processes.iter().filter(|it| kill_process(it.pid, signal).is_ok()).count()
}

/// The children of all threads of a process; `None` if the kernel does not list them.
fn children(of: Pid) -> Option<Vec<Pid>> {
    let tasks = fs::read_dir(format!("/proc/{of}/task")).ok()?;
    let mut found = Vec::new();
    let mut listed = false;
    for task in tasks.flatten() {
        if let Ok(text) = fs::read_to_string(task.path().join("children")) {
            listed = true;
            found.extend(text.split_whitespace().filter_map(pid));
        }
    }
    listed.then_some(found)
}

/// All descendants of a process, for kernels that do not list children: derived from the parents of all processes.
fn searched(root: Pid) -> Vec<Pid> {
    let Ok(all) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = all.flatten().filter_map(|it| pid(it.file_name().to_str()?));
    let parents: Vec<(Pid, Pid)> = pids.filter_map(|pid| Some((pid, stat(pid)?.parent?))).collect();
    descendants(root, &parents)
}

/// All descendants of a process among pairs of a process and its parent. The pairs were not read at one instant: if a
/// pid was reused meanwhile, they may form a ring.
fn descendants(root: Pid, parents: &[(Pid, Pid)]) -> Vec<Pid> {
    let mut found = vec![root];
    let mut at = 0;
    while at < found.len() {
        let parent = found[at];
        let children = parents.iter().filter(|it| it.1 == parent).map(|it| it.0);
        let new: Vec<Pid> = children.filter(|pid| !found.contains(pid)).collect();
        found.extend(new);
        at += 1;
    }
    found.split_off(1)
}

/// What the kernel tells about a process. An id is `None` if it belongs to another PID namespace, as the session of a
/// process that entered a container has: the kernel shows 0 then.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProcessStat {
    pub(super) state: ProcessState,
    pub(super) parent: Option<Pid>,
    pub(super) group: Option<Pid>,
    pub(super) session: Option<Pid>,
}

/// The stat of a process, if it exists.
pub(super) fn stat(of: Pid) -> Option<ProcessStat> {
    let text = fs::read_to_string(format!("/proc/{of}/stat")).ok()?;
    // The process name may contain any character; it ends at the last parenthesis.
    let mut words = text.rsplit_once(')')?.1.split_whitespace();
    let state = match words.next()? {
        "T" | "t" => ProcessState::Stopped,
        "Z" | "X" => ProcessState::Zombie,
        _ => ProcessState::Alive,
    };
    let mut id = || words.next().and_then(pid);
    Some(ProcessStat { state, parent: id(), group: id(), session: id() })
}

fn pid(text: &str) -> Option<Pid> {
    Pid::from_raw(text.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use super::*;

    /// A shell with one process below it.
    struct Family(Child);

    impl Family {
        fn start() -> Self {
            let mut command = Command::new("sh");
            command.args(["-c", "sleep 60 & wait"]).stdout(Stdio::null());
            Self(command.spawn().unwrap())
        }

        fn pid(&self) -> Pid {
            Pid::from_child(&self.0)
        }
    }

    impl Drop for Family {
        fn drop(&mut self) {
            signal(&below(self.pid()), Signal::KILL);
            self.0.kill().unwrap();
            self.0.wait().unwrap();
        }
    }

    fn until<T>(mut is_so: impl FnMut() -> Option<T>) -> T {
        loop {
            if let Some(found) = is_so() {
                return found;
            }
            std::thread::yield_now();
        }
    }

    #[test]
    fn what_is_below_is_found_in_both_ways() {
        let family = Family::start();
        let sleep = until(|| below(family.pid()).first().copied());
        assert_eq!(searched(family.pid()), [sleep.pid]);
        assert_eq!(still_below(family.pid(), sleep.pid), Some(sleep));
        assert_eq!(still_below(sleep.pid, family.pid()), None);
        assert!(below(sleep.pid).is_empty());
    }

    #[test]
    fn a_ring_of_parents_is_searched_once() {
        let [root, child, grandchild] = [100, 101, 102].map(|pid| Pid::from_raw(pid).unwrap());
        // The parent of the root ended and its pid went to a grandchild, between the reading of the two.
        let parents = [(root, grandchild), (child, root), (grandchild, child)];
        assert_eq!(descendants(root, &parents), [child, grandchild]);
    }

    #[test]
    fn a_stopped_process_is_told_from_one_that_runs() {
        let family = Family::start();
        let sleep = until(|| below(family.pid()).first().copied());
        assert_eq!(signal(&[sleep], Signal::STOP), 1);
        until(|| (below(family.pid())[0].state == ProcessState::Stopped).then_some(()));
        assert_eq!(signal(&[sleep], Signal::CONT), 1);
        until(|| (below(family.pid())[0].state == ProcessState::Alive).then_some(()));
    }
}
