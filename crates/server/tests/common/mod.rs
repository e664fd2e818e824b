//! Runs members in one process, over real sockets and disks, and connects clients to them.
#![allow(dead_code, reason = "each test binary uses a part of this")]

use std::path::{Path, PathBuf};
use std::time::Duration;

use tenure_server::{RunningServer, ServerSettings, StartMode, os, start};
use tonic::transport::{Channel, Endpoint};

use crate::bounded::{self, listed, try_start_all};
pub(crate) use crate::bounded::{DEADLINE, free_port, wait};

/// The same as `wait`, for asynchronous conditions.
pub(crate) async fn wait_for<T>(what: &str, mut is_so: impl AsyncFnMut() -> Option<T>) -> T {
    let until_us = os::now_us() + u64::try_from(DEADLINE.as_micros()).unwrap();
    loop {
        let asked = tokio::time::timeout(DEADLINE, is_so()).await;
        if let Some(found) = asked.unwrap_or_else(|_| panic!("no answer in time: {what}")) {
            return found;
        }
        assert!(os::now_us() < until_us, "waited too long: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Fails the test if the future takes too long.
pub(crate) async fn soon<F: IntoFuture>(what: F) -> F::Output {
    tokio::time::timeout(DEADLINE, what).await.expect("it came in time")
}

/// The members of one cluster.
pub(crate) struct Members {
    dir: tempfile::TempDir,
    listed: Vec<(String, String)>,
    running: Vec<Option<RunningServer>>,
}

impl Members {
    /// Founds a cluster and waits for its first leader.
    pub(crate) fn found(size: usize) -> Self {
        // If another process has taken one of the free ports meanwhile, all members start again.
        let members = (0..5).find_map(|_| Self::start(size)).expect("five times no free ports");
        members.leader();
        wait("all know the leader", || {
            members.all().all(|one| one.member.lead().borrow().by.is_some()).then_some(())
        });
        members
    }

    fn start(size: usize) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let listed = listed(size);
        let all = (0..size).map(|at| settings(dir.path(), at, &listed)).collect();
        let running = try_start_all(all)?.into_iter().map(Some).collect();
        Some(Self { dir, listed, running })
    }

    /// Starts another member, which joins by itself.
    pub(crate) fn join(&mut self) -> usize {
        let at = self.running.len();
        let address = format!("127.0.0.1:{}", free_port());
        let seeds = self.listed.iter().map(|(_, address)| address.clone()).collect();
        self.listed.push((format!("m{at}"), address));
        let entrance = StartMode::Join(seeds);
        let invitation = Some(bounded::invite(self.one(self.leader()).clients));
        let settings = settings(self.dir.path(), at, &self.listed);
        let settings = ServerSettings { entrance, invitation, ..settings };
        self.running.push(Some(start(settings).unwrap()));
        at
    }

    fn all(&self) -> impl Iterator<Item = &RunningServer> {
        self.running.iter().flatten()
    }

    /// A running member.
    pub(crate) fn one(&self, at: usize) -> &RunningServer {
        self.running[at].as_ref().unwrap()
    }

    /// The id of a member.
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

    /// A running member that does not lead.
    pub(crate) fn follower(&self) -> usize {
        let leader = self.leader();
        (0..self.running.len()).find(|at| *at != leader && self.running[*at].is_some()).unwrap()
    }

    /// The data directory of a member.
    pub(crate) fn data(&self, at: usize) -> PathBuf {
        self.dir.path().join(format!("m{at}"))
    }

    /// Stops a member, as a signal would.
    pub(crate) fn stop(&mut self, at: usize) {
        if let Some(one) = self.running[at].take() {
            bounded::stop(one);
        }
    }

    /// Restarts a stopped member with its disk.
    pub(crate) fn start_again(&mut self, at: usize) {
        assert!(self.running[at].is_none(), "it runs");
        self.running[at] = Some(start(settings(self.dir.path(), at, &self.listed)).unwrap());
    }

    /// A connection to a member, opened when it is first needed. A call on it fails if it is not answered in time.
    pub(crate) fn connect(&self, at: usize) -> Channel {
        let address = format!("http://{}", self.one(at).clients);
        Endpoint::from_shared(address).unwrap().timeout(DEADLINE).connect_lazy()
    }
}

impl Drop for Members {
    fn drop(&mut self) {
        self.running.iter_mut().filter_map(Option::take).for_each(bounded::stop);
    }
}

fn settings(dir: &Path, at: usize, listed: &[(String, String)]) -> ServerSettings {
    let name = format!("m{at}");
    ServerSettings {
        clients: "127.0.0.1:0".into(),
        members: Some(listed[at].1.clone()),
        entrance: StartMode::Bootstrap(listed.to_vec()),
        segment_bytes: 256 * 1024,
        reserve_bytes: 64 * 1024,
        hosts: vec!["locks.example".to_owned()],
        ..ServerSettings::new(&name, dir.join(&name))
    }
}
