//! Runs the cluster that the watch tests use.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use tempfile::TempDir;
use tenure_core::Filter;
use tenure_core::codec::encode_request;
use tenure_core::event::Batch;
use tenure_core::request::{Command, Expect, Put, Request, RequestId};
use tenure_server::watch::Hub;
use tenure_server::{MemberHandle, RunningServer, ServerSettings, StartMode, start};
use tenure_types::Revision;
use tokio::runtime::Runtime;

pub(crate) use crate::bounded::{DEADLINE, wait};
use crate::bounded::{listed, start_all};

/// Members, each with a hub, on one runtime.
pub(crate) struct Cluster {
    pub(crate) running: Vec<RunningServer>,
    pub(crate) hubs: Vec<Hub>,
    pub(crate) runtime: Runtime,
    listed: Vec<(String, String)>,
    dir: TempDir,
}

impl Cluster {
    pub(crate) fn found(size: usize) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let listed = listed(size);
        let running = start_all((0..size).map(|at| settings(dir.path(), at, &listed)).collect());
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let hubs = running.iter().map(|one| one.hub().clone()).collect();
        let cluster = Self { running, hubs, runtime, listed, dir };
        cluster.leader();
        cluster
    }

    pub(crate) fn leader(&self) -> usize {
        wait("a member leads", || {
            let leads =
                |one: &RunningServer| one.member.status().is_ok_and(|s| s.agreement.serving);
            self.running.iter().position(leads)
        })
    }

    pub(crate) fn member(&self) -> &MemberHandle {
        &self.running[self.leader()].member
    }

    /// Restarts a stopped member, with a new hub.
    pub(crate) fn restart(&mut self, at: usize) {
        self.running[at] = start(settings(self.dir.path(), at, &self.listed)).unwrap();
        self.hubs[at] = self.running[at].hub().clone();
    }

    /// The whole history that is kept.
    pub(crate) fn history(&self) -> Vec<Batch> {
        history(self.member())
    }

    /// Waits until every member has applied a revision.
    pub(crate) fn all_at(&self, revision: Revision) {
        for one in &self.running {
            wait("all have applied it", || {
                (one.member.status().ok()?.revision >= revision).then_some(())
            });
        }
    }

    pub(crate) fn stop(&self) {
        self.running.iter().for_each(RunningServer::stop);
    }
}

pub(crate) fn history(member: &MemberHandle) -> Vec<Batch> {
    let all = |machine: &tenure_core::Machine| {
        machine
            .events(machine.floor(), Filter::All, usize::MAX)
            .expect("the floor can be asked for")
    };
    member.read(DEADLINE, all).unwrap().batches
}

/// The command as encoded in the log.
pub(crate) fn encode(command: Command<'_>) -> Bytes {
    let mut bytes = Vec::new();
    encode_request(&Request { principal: "", id: RequestId::None, command }, &mut bytes);
    Bytes::from(bytes)
}

pub(crate) fn put(key: &str, value: &[u8]) -> Bytes {
    encode(Command::Put(Put { key, value, lease: None, expect: Expect::Any, guard: None }))
}

/// Runs commands, and returns the revision of the last.
pub(crate) fn done(member: &MemberHandle, commands: Vec<Bytes>) -> Revision {
    let fates = member.submit(commands, Duration::ZERO, DEADLINE);
    let revisions: Vec<_> = fates
        .into_iter()
        .map(|fate| {
            let outcome = fate.expect("an undisturbed leader answers");
            outcome.result.expect("nothing here is refused");
            outcome.revision
        })
        .collect();
    *revisions.last().expect("there is a command")
}

fn settings(dir: &Path, at: usize, listed: &[(String, String)]) -> ServerSettings {
    let name = format!("m{at}");
    ServerSettings {
        clients: "127.0.0.1:0".into(),
        members: Some(listed[at].1.clone()),
        entrance: StartMode::Bootstrap(listed.to_vec()),
        segment_bytes: 4 * 1024 * 1024,
        reserve_bytes: 64 * 1024,
        snapshot_entries: 100,
        ..ServerSettings::new(&name, dir.join(&name))
    }
}
