//! Builds the programs of later layers while the tests of an earlier one wait for disks, elections and deadlines.

use std::fs::File;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result};

use crate::repo::Repo;

/// Builds that run one after another in the background. Dropping it ends the one that runs.
pub(crate) struct AheadBuilds {
    state: Arc<Mutex<BuildState>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct BuildState {
    running: Option<Child>,
    is_over: bool,
}

impl AheadBuilds {
    /// Starts the builds at the lowest priority. Each later layer runs its own cargo command anyway: a build that
    /// failed here fails there again, with its messages.
    pub(crate) fn start(repo: &Repo, builds: Vec<Command>) -> Result<Self> {
        let path = repo.path("target/xtask/ahead.log");
        let log =
            File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
        let state = Arc::new(Mutex::new(BuildState::default()));
        let shared = state.clone();
        let work = move || {
            for build in builds {
                if !run(&shared, build, &log) {
                    return;
                }
            }
        };
        let thread = thread::Builder::new().spawn(work).context("cannot start a thread")?;
        Ok(Self { state, thread: Some(thread) })
    }
}

impl Drop for AheadBuilds {
    fn drop(&mut self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.is_over = true;
        if let Some(running) = &mut state.running {
            // It may have ended by itself.
            let _ = running.kill();
        }
        drop(state);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Runs one build to its end; `false` if no other shall follow.
fn run(state: &Mutex<BuildState>, build: Command, log: &File) -> bool {
    let started = {
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.is_over {
            return false;
        }
        match start(build, log) {
            Ok(child) => {
                state.running = Some(child);
                true
            }
            Err(_) => false,
        }
    };
    while started {
        thread::sleep(super::binaries::LOOK);
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        let ended = state.running.as_mut().map(Child::try_wait);
        if !matches!(ended, Some(Ok(None))) {
            state.running = None;
            return !state.is_over;
        }
    }
    false
}

/// Starts a command at the lowest priority, where the system has `nice`.
fn start(build: Command, log: &File) -> std::io::Result<Child> {
    let mut nice = Command::new("nice");
    nice.args(["-n", "19"]).arg(build.get_program()).args(build.get_args());
    if let Some(dir) = build.get_current_dir() {
        nice.current_dir(dir);
    }
    for (name, value) in build.get_envs() {
        match value {
            Some(value) => nice.env(name, value),
            None => nice.env_remove(name),
        };
    }
    nice.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log.try_clone()?).spawn()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn builds_run_in_order_and_end_with_their_owner() {
        let repo = Repo::find().unwrap();
        let mark = repo.path("target/xtask/selftest-ahead");
        let _ = std::fs::remove_file(&mark);
        let mut touch = Command::new("touch");
        touch.arg(&mark);
        let mut sleep = Command::new("sleep");
        sleep.arg("1000");
        let builds = AheadBuilds::start(&repo, vec![touch, sleep]).unwrap();
        let is_asleep = || {
            let state = builds.state.lock().unwrap();
            mark.exists() && state.running.is_some()
        };
        while !is_asleep() {
            thread::sleep(super::super::binaries::LOOK);
        }
        drop(builds);
    }
}
