//! Members in one process, over real sockets and disks, and clients of theirs.
#![allow(dead_code, reason = "each test binary uses a part of this")]

#[path = "../../../cli/tests/common/ports.rs"]
mod ports;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

pub(crate) use ports::free_port;
use tenure_server::{Entrance, Running, Settings, StartError, os, start};
use tonic::transport::{Channel, Endpoint};

/// How long anything may take here before the test fails.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// Waits until something is so.
pub(crate) fn wait<T>(what: &str, mut is_so: impl FnMut() -> Option<T>) -> T {
    let until_us = os::now_us() + u64::try_from(DEADLINE.as_micros()).unwrap();
    loop {
        if let Some(found) = is_so() {
            return found;
        }
        assert!(os::now_us() < until_us, "waited too long: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The same, for what has to be asked for.
pub(crate) async fn wait_for<T>(what: &str, mut is_so: impl AsyncFnMut() -> Option<T>) -> T {
    let until_us = os::now_us() + u64::try_from(DEADLINE.as_micros()).unwrap();
    loop {
        if let Some(found) = is_so().await {
            return found;
        }
        assert!(os::now_us() < until_us, "waited too long: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Whatever comes, comes in time.
pub(crate) async fn soon<F: IntoFuture>(what: F) -> F::Output {
    tokio::time::timeout(DEADLINE, what).await.expect("it came in time")
}

/// Some members of one cluster.
pub(crate) struct Members {
    dir: tempfile::TempDir,
    listed: Vec<(String, String)>,
    running: Vec<Option<Running>>,
}

impl Members {
    /// Founds a cluster and waits for its first leader.
    pub(crate) fn found(size: usize) -> Self {
        // A port that was free may be somebody else's by now: then all of them begin again.
        let members = (0..5).find_map(|_| Self::start(size)).expect("five times no free ports");
        members.leader();
        wait("all know the leader", || {
            members.all().all(|one| one.member.lead().borrow().by.is_some()).then_some(())
        });
        members
    }

    fn start(size: usize) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let listed = (0..size).map(|at| (format!("m{at}"), format!("127.0.0.1:{}", free_port())));
        let listed: Vec<_> = listed.collect();
        let stop = Arc::new(AtomicBool::new(false));
        let starting: Vec<_> = (0..size)
            .map(|at| {
                let stop = stop.clone();
                let settings = settings(dir.path(), at, &listed);
                let settings = Settings { stop: stop.clone(), ..settings };
                // One that cannot start is waited for by the others for ever, unless they are told.
                std::thread::spawn(move || {
                    start(settings).inspect_err(|_| stop.store(true, Ordering::Release))
                })
            })
            .collect();
        let started: Vec<_> = starting.into_iter().map(|one| one.join().unwrap()).collect();
        let mut running = Vec::new();
        for one in started {
            match one {
                Ok(one) => running.push(Some(one)),
                Err(StartError::Listen { .. } | StartError::Interrupted) => {}
                Err(other) => panic!("{other}"),
            }
        }
        let whole = running.len() == size;
        let members = Self { dir, listed, running };
        whole.then_some(members)
    }

    /// Starts one more, which joins by itself.
    pub(crate) fn join(&mut self) -> usize {
        let at = self.running.len();
        let address = format!("127.0.0.1:{}", free_port());
        let seeds = self.listed.iter().map(|(_, address)| address.clone()).collect();
        self.listed.push((format!("m{at}"), address));
        let entrance = Entrance::Join(seeds);
        let settings = Settings { entrance, ..settings(self.dir.path(), at, &self.listed) };
        self.running.push(Some(start(settings).unwrap()));
        at
    }

    fn all(&self) -> impl Iterator<Item = &Running> {
        self.running.iter().flatten()
    }

    /// One of them, which runs.
    pub(crate) fn one(&self, at: usize) -> &Running {
        self.running[at].as_ref().unwrap()
    }

    /// Its id.
    pub(crate) fn id(&self, at: usize) -> u64 {
        self.one(at).member.id().get()
    }

    /// Waits for a leader that serves.
    pub(crate) fn leader(&self) -> usize {
        wait("a member leads", || {
            self.running.iter().position(|one| {
                let status = one.as_ref().map(|one| one.member.status());
                status.is_some_and(|status| status.is_ok_and(|it| it.agreement.serving))
            })
        })
    }

    /// One that runs and does not lead.
    pub(crate) fn follower(&self) -> usize {
        let leader = self.leader();
        (0..self.running.len()).find(|at| *at != leader && self.running[*at].is_some()).unwrap()
    }

    /// Stops one, as by a signal.
    pub(crate) fn stop(&mut self, at: usize) {
        if let Some(one) = self.running[at].take() {
            one.stop();
        }
    }

    /// Starts one that was stopped, with the disk it had.
    pub(crate) fn start_again(&mut self, at: usize) {
        assert!(self.running[at].is_none(), "it runs");
        self.running[at] = Some(start(settings(self.dir.path(), at, &self.listed)).unwrap());
    }

    /// A connection to one, made when it is first needed.
    pub(crate) fn connect(&self, at: usize) -> Channel {
        let address = format!("http://{}", self.one(at).clients);
        Endpoint::from_shared(address).unwrap().connect_lazy()
    }
}

impl Drop for Members {
    fn drop(&mut self) {
        for one in self.running.iter_mut().filter_map(Option::take) {
            one.stop();
        }
    }
}

fn settings(dir: &Path, at: usize, listed: &[(String, String)]) -> Settings {
    let name = format!("m{at}");
    Settings {
        clients: "127.0.0.1:0".into(),
        members: Some(listed[at].1.clone()),
        entrance: Entrance::Bootstrap(listed.to_vec()),
        segment_bytes: 256 * 1024,
        reserve_bytes: 64 * 1024,
        ..Settings::new(&name, dir.join(&name))
    }
}
