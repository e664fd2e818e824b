//! Members in this process, over real sockets and disks.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tenure_server::{Entrance, Running, Settings, os, start};

use crate::client::Client;

const DEADLINE: Duration = Duration::from_secs(60);

/// A cluster that ends with its test.
pub(crate) struct Members {
    running: Vec<Running>,
    _dir: tempfile::TempDir,
}

impl Members {
    pub(crate) fn start(size: usize) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let listed = (0..size).map(|at| (format!("m{at}"), format!("127.0.0.1:{}", free_port())));
        let listed: Vec<_> = listed.collect();
        let starting: Vec<_> = (0..size)
            .map(|at| {
                let name = format!("m{at}");
                let settings = Settings {
                    clients: "127.0.0.1:0".into(),
                    members: Some(listed[at].1.clone()),
                    entrance: Entrance::Bootstrap(listed.clone()),
                    segment_bytes: 256 * 1024,
                    reserve_bytes: 64 * 1024,
                    hosts: vec!["locks.example".to_owned()],
                    ..Settings::new(&name, dir.path().join(&name))
                };
                std::thread::spawn(move || start(settings).unwrap())
            })
            .collect();
        let running = starting.into_iter().map(|one| one.join().unwrap()).collect();
        let members = Self { running, _dir: dir };
        members.leader();
        members
    }

    pub(crate) fn leader(&self) -> usize {
        wait("a member leads", || {
            let leads = |one: &Running| one.member.status().is_ok_and(|it| it.agreement.serving);
            self.running.iter().position(leads)
        })
    }

    pub(crate) fn client(&self, at: usize, name: &'static str) -> Client {
        Client::new(self.running[at].clients, name)
    }

    /// Ends one of them.
    pub(crate) fn stop(&self, at: usize) {
        self.running[at].stop();
    }
}

impl Drop for Members {
    fn drop(&mut self) {
        std::thread::scope(|scope| {
            for one in &self.running {
                scope.spawn(|| one.stop());
            }
        });
    }
}

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

/// A port that is free, and stays so: below those that the system gives to connections.
fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let next = std::process::id() * 64 + NEXT.fetch_add(1, Ordering::Relaxed);
        let port = u16::try_from(10_000 + next % 20_000).unwrap();
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}
