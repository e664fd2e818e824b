//! Records when a member led and what the state machine's clock showed, and checks leases against it.
//!
//! It polls every member all the time and writes nothing to the log: entries carry the clock, and would hide how much
//! of it is lost with a leader.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use tenure_server::os;

use super::client::{Client, ClientReply, number};

/// The pause between two polls.
const PAUSE: Duration = Duration::from_millis(10);
/// A gap of this length between polls that saw a leader counts as leaderless: some polls, and the event loop's
/// tolerance.
const GAP_US: u64 = 70_000;
/// How much a change of leader may add to the life of a lease.
const CHECKPOINT_US: u64 = 1_000_000;
/// The time from the end of a lease until a reader has seen it.
const SEEN_US: u64 = 400_000;

/// One poll of a member that led.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LeaderPoll {
    pub(crate) asked_us: u64,
    pub(crate) told_us: u64,
    pub(crate) term: u64,
    pub(crate) clock_ms: u64,
    /// The newest revision that the member had.
    pub(crate) revision: u64,
}

/// Threads that poll the members.
pub(crate) struct Watch {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Vec<LeaderPoll>>>,
}

/// All polls, in order.
pub(crate) struct PolledLeaders {
    polls: Vec<LeaderPoll>,
}

/// A lease from its last renewal to its end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ObservedLease {
    pub(crate) lease: u64,
    /// When the last renewal was requested, and when it was known to be done.
    pub(crate) asked_us: u64,
    pub(crate) told_us: u64,
    /// When its end was seen.
    pub(crate) gone_us: u64,
    /// The latest revision at which it had ended.
    pub(crate) revision: u64,
}

/// The verdict on leases.
#[derive(Default, Debug)]
pub(crate) struct Judged {
    pub(crate) early: u64,
    pub(crate) late: u64,
    /// The longest that a lease was seen beyond ttl, leaderless time and checkpoints.
    pub(crate) overshoot_ms: u64,
    /// The longest that a lease was seen beyond ttl and leaderless time only.
    pub(crate) stretch_ms: u64,
    /// The time during which no poll saw a leader.
    pub(crate) leaderless_ms: u64,
    pub(crate) said: Vec<String>,
}

impl Watch {
    pub(crate) fn begin(members: &[SocketAddr]) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let threads = members.iter().map(|member| {
            let (member, stop) = (*member, stop.clone());
            std::thread::spawn(move || poll(member, &stop))
        });
        Self { threads: threads.collect(), stop }
    }

    pub(crate) fn end(self) -> PolledLeaders {
        self.stop.store(true, Ordering::Release);
        let polls = self.threads.into_iter().flat_map(|thread| thread.join().unwrap());
        PolledLeaders::new(polls.collect())
    }
}

fn poll(member: SocketAddr, stop: &AtomicBool) -> Vec<LeaderPoll> {
    let mut client = Client::new(vec![member], Duration::from_secs(1));
    let mut polls = Vec::new();
    while !stop.load(Ordering::Acquire) {
        let asked_us = os::now_us();
        if let ClientReply::Ok(status) = client.say("status")
            && status.contains("serving=true")
        {
            let [term, clock_ms, revision] =
                ["term", "clock_ms", "revision"].map(|name| number(&status, name));
            polls.push(LeaderPoll { asked_us, told_us: os::now_us(), term, clock_ms, revision });
        }
        std::thread::sleep(PAUSE);
    }
    polls
}

impl PolledLeaders {
    pub(crate) fn new(mut polls: Vec<LeaderPoll>) -> Self {
        polls.sort_by_key(|poll| poll.told_us);
        Self { polls }
    }

    /// Checks that each lease lived its time and no longer.
    pub(crate) fn judge(&self, leases: &[ObservedLease], ttl_ms: u64) -> Judged {
        let (from, to) = match (self.polls.first(), self.polls.last()) {
            (Some(first), Some(last)) => (first.told_us, last.told_us),
            _ => panic!("no member was ever seen to lead"),
        };
        let leaderless_ms = self.leaderless_us(from, to) / 1_000;
        let mut judged = Judged { leaderless_ms, ..Judged::default() };
        for lease in leases {
            let lived_us = lease.gone_us - lease.asked_us;
            let (before, after) = (self.clock_before(lease.asked_us), self.clock_after(lease));
            let lived_ms = before.zip(after).map(|(before, after)| after.saturating_sub(before));
            if lived_us < ttl_ms * 1_000 || lived_ms.is_some_and(|lived_ms| lived_ms < ttl_ms) {
                judged.early += 1;
                judged.said.push(format!("early: {lease:?}, {lived_ms:?} ms by the clock"));
            }
            let (told_us, gone_us) = (lease.told_us, lease.gone_us);
            let (lost_us, changes) = (self.leaderless_us(told_us, gone_us), self.changes(lease));
            let bound_us = told_us + ttl_ms * 1_000 + lost_us + changes * CHECKPOINT_US;
            let over_us = gone_us.saturating_sub(bound_us);
            let stretch_us = gone_us.saturating_sub(bound_us - changes * CHECKPOINT_US);
            judged.stretch_ms = judged.stretch_ms.max(stretch_us / 1_000);
            judged.overshoot_ms = judged.overshoot_ms.max(over_us / 1_000);
            if over_us > SEEN_US {
                judged.late += 1;
                judged.said.push(format!(
                    "late by {over_us} us: {lease:?}, {changes} changes, {lost_us} us leaderless"
                ));
            }
        }
        judged
    }

    /// The leaderless time between two instants.
    fn leaderless_us(&self, from_us: u64, to_us: u64) -> u64 {
        let pairs = self.polls.windows(2).filter_map(|pair| {
            let (last, next) = (pair.first()?.told_us, pair.last()?.told_us);
            let shared_us = next.min(to_us).saturating_sub(last.max(from_us));
            (next - last > GAP_US).then_some(shared_us)
        });
        pairs.sum()
    }

    /// How often the leader changed between the last renewal and the end.
    fn changes(&self, lease: &ObservedLease) -> u64 {
        let first = self.polls.iter().rev().find(|poll| poll.told_us <= lease.asked_us);
        let during = self
            .polls
            .iter()
            .filter(|poll| poll.told_us > lease.asked_us && poll.told_us <= lease.gone_us + GAP_US);
        let mut terms: Vec<u64> = first.into_iter().chain(during).map(|poll| poll.term).collect();
        terms.sort_unstable();
        terms.dedup();
        (terms.len() as u64).saturating_sub(1)
    }

    /// The last clock value seen before an instant.
    fn clock_before(&self, moment_us: u64) -> Option<u64> {
        let before = self.polls.iter().rev().find(|poll| poll.told_us <= moment_us);
        before.map(|poll| poll.clock_ms)
    }

    /// The first clock value seen after the end. The member that showed the end may have been ahead of the leader,
    /// whose own disk need not be part of the majority: only the clock of a state that contains the end counts.
    fn clock_after(&self, lease: &ObservedLease) -> Option<u64> {
        let after =
            |poll: &&LeaderPoll| poll.asked_us >= lease.gone_us && poll.revision >= lease.revision;
        self.polls.iter().find(after).map(|poll| poll.clock_ms)
    }
}
