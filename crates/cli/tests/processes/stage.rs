//! Sets up three members, in plaintext or under TLS, and a program beside them that is no member.

use std::time::Duration;

use tenure_server::tls::DialTrust;

use crate::authority::{Authority, CertificateFiles};
use crate::common::client::number;
use crate::common::waiting::wait_within;
use crate::common::{Cluster, field, wait};
use crate::stranger::{Claim, Stranger};

/// How long members may take to serve again after an attack: an election, and connecting.
const SERVE: Duration = Duration::from_secs(15);
/// How long one attempt to write or read may take.
const ATTEMPT: Duration = Duration::from_secs(2);
/// An id that no member has drawn: ids are random, and this one is too small to be one.
pub(crate) const UNKNOWN_ID: u64 = 7;
/// A name that no member has.
pub(crate) const STRANGER: &str = "stranger";

pub(crate) struct ClusterAndStranger {
    pub(crate) cluster: Cluster,
    pub(crate) stranger: Stranger,
    /// The certificates in the order of the members; `None` in plaintext.
    cert_files: Option<(Authority, Vec<CertificateFiles>)>,
    /// How many writes were acknowledged so far.
    writes: u64,
}

/// Defines a test for each transport from a function of a [`ClusterAndStranger`].
macro_rules! in_plaintext_and_under_tls {
    ($($(#[$doc:meta])* $name:ident;)+) => {
        mod in_plaintext {
            $($(#[$doc])* #[test] fn $name() { super::$name(crate::stage::ClusterAndStranger::plain()); })+
        }
        mod under_tls {
            $($(#[$doc])* #[test] fn $name() { super::$name(crate::stage::ClusterAndStranger::secured()); })+
        }
    };
}
pub(crate) use in_plaintext_and_under_tls;

/// Gives each member a certificate of one authority, before the members start.
fn secure(cluster: &mut Cluster) -> (Authority, Vec<CertificateFiles>) {
    let authority = Authority::new(cluster.dir.path(), "ours");
    let cert_files: Vec<_> = cluster.members.iter().map(|one| authority.sign(&one.name)).collect();
    for (one, cert_files) in cluster.members.iter_mut().zip(&cert_files) {
        one.flags = cert_files.flags();
    }
    cluster.trust = Some(DialTrust::load(&cert_files[0].ca, None).unwrap());
    (authority, cert_files)
}

/// What the members of a scenario speak, among themselves and with their clients.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transport {
    Plain,
    Tls,
}

impl Transport {
    /// Three members that are not started.
    pub(crate) fn three(self) -> Cluster {
        let mut cluster = Cluster::new();
        for _ in 0..3 {
            cluster.add();
        }
        if self == Transport::Tls {
            secure(&mut cluster);
        }
        cluster
    }
}

impl ClusterAndStranger {
    pub(crate) fn plain() -> Self {
        Self {
            cluster: Cluster::found(3),
            stranger: Stranger::plain(),
            cert_files: None,
            writes: 0,
        }
        .served()
    }

    /// Members under TLS. The stranger has a certificate of their authority that names no member.
    pub(crate) fn secured() -> Self {
        let mut cluster = Cluster::new();
        for _ in 0..3 {
            cluster.add();
        }
        let (authority, cert_files) = secure(&mut cluster);
        let stranger = Stranger::with(&authority.sign(STRANGER));
        let (cluster, cert_files) = (cluster.founded(), Some((authority, cert_files)));
        Self { cluster, stranger, cert_files, writes: 0 }.served()
    }

    pub(crate) fn is_secured(&self) -> bool {
        self.cert_files.is_some()
    }

    fn served(mut self) -> Self {
        self.assert_all_serve();
        self
    }

    /// Starts a member that was stopped.
    pub(crate) fn start(&mut self, at: usize) {
        self.cluster.start(at, &[]);
    }

    /// Starts a new member that joins through the first one.
    pub(crate) fn start_new(&mut self) -> usize {
        let (seed, invitation) = (self.cluster.advertised(0), self.cluster.invite("{}"));
        self.start_new_with(&["--join", &seed, "--invitation", &invitation])
    }

    /// Starts a new member with these flags.
    pub(crate) fn start_new_with(&mut self, more: &[&str]) -> usize {
        let at = self.cluster.add();
        let name = self.cluster.members[at].name.clone();
        if let Some((authority, cert_files)) = &mut self.cert_files {
            let new = authority.sign(&name);
            self.cluster.members[at].flags = new.flags();
            cert_files.push(new);
        }
        self.cluster.start(at, more);
        at
    }

    /// Speaks with the certificate of a member, or in plaintext, where that makes no difference.
    pub(crate) fn speaker_of(&self, at: usize) -> Stranger {
        match &self.cert_files {
            Some((_, cert_files)) => Stranger::with(&cert_files[at]),
            None => Stranger::plain(),
        }
    }

    pub(crate) fn id(&self, at: usize) -> u64 {
        self.cluster.id(at).parse().unwrap()
    }

    /// The port of this member for other members.
    pub(crate) fn port(&self, at: usize) -> u16 {
        self.cluster.members[at].members
    }

    pub(crate) fn status(&self, at: usize) -> String {
        wait("it tells its status", || self.cluster.ask(at, "status"))
    }

    /// A number of a member's status.
    pub(crate) fn number(&self, at: usize, name: &str) -> u64 {
        number(&self.status(at), name)
    }

    /// The cluster as its clients see it: an attacking program knows that much.
    pub(crate) fn claim(&self) -> Claim {
        let up = self.cluster.members.iter().position(|one| one.process.is_some());
        let status = self.status(up.expect("a member is started"));
        let own = |name| field(&status, name).unwrap();
        let (cluster, epoch, incarnation) = (own("cluster"), own("epoch"), own("incarnation"));
        Claim { cluster, epoch, incarnation }
    }

    /// The leader, and the other members.
    pub(crate) fn roles(&self) -> (usize, [usize; 2]) {
        let leader = self.cluster.leader();
        (leader, [(leader + 1) % 3, (leader + 2) % 3])
    }

    /// Fails unless every started member runs, one takes a write, and all of them read it and agree on the state.
    pub(crate) fn assert_all_serve(&mut self) {
        let up: Vec<usize> = (0..self.cluster.members.len())
            .filter(|at| self.cluster.members[*at].process.is_some())
            .collect();
        self.writes += 1;
        let value = self.writes.to_string();
        let write = format!("put served {value}");
        self.until("a write is acknowledged", &up, |cluster| {
            up.iter().any(|at| {
                let answer = cluster.ask_within(ATTEMPT, *at, &write);
                answer.is_some_and(|answer| answer.starts_with("ok"))
            })
        });
        for at in &up {
            self.until("every member reads it", &up, |cluster| {
                let read = cluster.ask_within(ATTEMPT, *at, "get served");
                read.is_some_and(|read| field(&read, "value").as_deref() == Some(&value))
            });
        }
        self.cluster.agree(&up);
    }

    /// Fails if a member reads, or lists as its own, anything that only the stranger wrote.
    pub(crate) fn assert_nothing_forged(&self) {
        for at in 0..self.cluster.members.len() {
            if self.cluster.members[at].process.is_none() {
                continue;
            }
            for line in ["get forged", "stale get forged"] {
                let read = self.cluster.ask(at, line).unwrap_or_default();
                assert!(read.starts_with("ok absent"), "{line} at m{at}: {read}");
            }
        }
    }

    /// Fails if the members are not the three initial members, all of them voters.
    pub(crate) fn assert_same_members(&self) {
        let members = self.cluster.ok("members");
        assert!(members.starts_with("ok count=3 "), "{members}");
        for (at, one) in self.cluster.members.iter().enumerate().take(3) {
            assert!(members.contains(&format!("name={}", one.name)), "m{at}: {members}");
        }
        assert!(!members.contains("learner"), "{members}");
    }

    /// Waits until a condition holds; fails at once if a member that should run has stopped.
    pub(crate) fn until(
        &mut self,
        what: &str,
        up: &[usize],
        mut is_so: impl FnMut(&Cluster) -> bool,
    ) {
        wait_within(SERVE, what, || {
            for at in up {
                let process = self.cluster.members[*at].process.as_mut().unwrap();
                if let Some(status) = process.try_ended() {
                    let words = process.words();
                    let last = words.lines().last().unwrap_or_default();
                    panic!("m{at} stopped, {status}, saying: {last}");
                }
            }
            is_so(&self.cluster).then_some(())
        });
    }
}
