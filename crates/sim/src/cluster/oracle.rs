//! Knows what the cluster has agreed on, and checks that every member agrees with it.
//!
//! The oracle applies each entry once, when the first member does. Every other application of that
//! index, on any member, at any time, must be of the same entry and lead to the same state.

use std::collections::BTreeMap;

use bytes::Bytes;
use tenure_core::Machine;
use tenure_core::codec::{decode_request, encode_request, open_entry, seal_entry};
use tenure_core::event::{Batch, Cause, Event};
use tenure_core::outcome::{Effects, Outcome};
use tenure_core::request::{Command, LeaseRef, Request, RequestId};
use tenure_core::view::LeaseView;
use tenure_node::directory::{self, MemberRecord};
use tenure_raft::FIRST;
use tenure_store::{LogEntry, LogId};
use tenure_types::{Epoch, LeaseId, Limit, Revision, Term};

use super::ask_history::AcquireHistory;
use super::call_history::CallHistory;
use super::invited::InvitationHistory;
use super::restoring::FormerHolds;
use super::strangers;
use crate::invariant::{CheckResult, InvariantViolation};

/// How fast a member's clock may run against real time, in parts per million.
pub(super) const RATE_PPM: i64 = 10_000;
/// Counts are whole milliseconds.
const ROUNDING_US: i128 = 1_000;
/// A leader stamps once a second; a transfer of leadership may hold that back for an election.
const STAMP_GAP_MS: u64 = 1_000 + 1_000;
/// The part of a stall that a leader may count: the sleep that it had asked for, and its grace.
const STALL_MS: u64 = 100;

/// The number of revisions kept.
const HISTORY: u64 = 200;
/// The longest ttl and the longest lock-delay that clients may ask for.
const TTL_MAX_MS: u64 = 30_000;
const LOCK_DELAY_MAX_MS: u64 = 1_000;

/// One entry, and the state after it.
struct Agreed {
    term: u64,
    kind: u8,
    payload: Bytes,
    mark: Mark,
}

/// What is compared of a state at every step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Mark {
    hash: u128,
    clock_ms: u64,
    revision: u64,
    due_ms: Option<u64>,
}

impl Mark {
    fn of(machine: &Machine) -> Self {
        Self {
            hash: machine.rolling_hash(),
            clock_ms: machine.clock_ms(),
            revision: machine.revision().0,
            due_ms: machine.next_due_ms(),
        }
    }
}

/// When and by which leader an entry was sealed.
#[derive(Clone, Copy, Debug)]
struct SealedEntry {
    at_us: u64,
    stalled: Stalled,
}

/// How often and how long altogether a member's loop has been stalled.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stalled {
    pub(super) times: u64,
    pub(super) for_us: u64,
}

/// The last entry with a count.
#[derive(Clone, Copy)]
struct Stamp {
    term: u64,
    count_ms: u64,
    sealed: SealedEntry,
    /// Whether something was due after it.
    pending: bool,
}

/// What has been agreed on.
pub(super) struct Oracle {
    machine: Machine,
    agreed: Vec<Agreed>,
    effects: Effects,
    sealed: BTreeMap<(u64, u64), SealedEntry>,
    sent: BTreeMap<(u64, u64), Bytes>,
    /// The least of clock − (1 + ε) × real time over all entries.
    pace_us: Option<i128>,
    stamp: Option<Stamp>,
    /// The requests of clients, and their results.
    pub(super) asked: AcquireHistory,
    /// The acquires of callers without a session.
    pub(super) calls: CallHistory,
    /// The invitations that members have used.
    pub(super) invitations: InvitationHistory,
    leaders: BTreeMap<u64, usize>,
    votes: BTreeMap<(usize, u64), u64>,
    newest_token: u64,
    revision_seen: Revision,
    /// All events so far, including those that the history has dropped.
    happened: Vec<Batch>,
    /// The highest index that a member has acknowledged to a client.
    pub(super) acknowledged: u64,
    /// What clients from before the last restore may still rely on.
    former: FormerHolds,
    /// How often the level was raised since the cluster was bootstrapped.
    raises: u64,
    /// The present time of the simulation.
    pub(super) now_us: u64,
}

impl Oracle {
    pub(super) fn new(machine: Machine) -> Self {
        let first = machine.events(machine.floor(), tenure_core::Filter::All, usize::MAX);
        Self {
            agreed: Vec::new(),
            effects: Effects::default(),
            sealed: BTreeMap::new(),
            sent: BTreeMap::new(),
            pace_us: None,
            stamp: None,
            asked: AcquireHistory::default(),
            calls: CallHistory::default(),
            invitations: InvitationHistory::default(),
            leaders: BTreeMap::new(),
            votes: BTreeMap::new(),
            newest_token: 0,
            revision_seen: machine.revision(),
            happened: first.expect("the floor can be asked for").batches,
            machine,
            acknowledged: FIRST.index,
            former: FormerHolds::default(),
            raises: 0,
            now_us: 0,
        }
    }

    /// Begins the history of a restored cluster. Tokens go on from where they were.
    pub(super) fn restored(&self, machine: Machine, former: FormerHolds) -> Self {
        let (newest_token, raises) = (self.newest_token, self.raises);
        Self { newest_token, former, raises, ..Self::new(machine) }
    }

    /// The locks that are held, and how much longer the leases of their holders live.
    pub(super) fn held(&self) -> impl Iterator<Item = (String, u64)> {
        let leases = self.machine.leases(None, usize::MAX).into_iter();
        leases.flat_map(|lease| {
            let left_ms = lease.left_ms;
            lease.holds.into_iter().map(move |(lock, _)| (lock.as_str().to_owned(), left_ms))
        })
    }

    /// What clients from before the last restore may still rely on.
    pub(super) fn former_holds(&self) -> FormerHolds {
        self.former.clone()
    }

    /// The last index agreed on.
    pub(super) fn last(&self) -> u64 {
        FIRST.index + self.agreed.len() as u64
    }

    pub(super) fn full_hash(&self) -> u128 {
        self.machine.full_hash()
    }

    /// The revision of everything agreed on.
    pub(super) fn revision(&self) -> Revision {
        self.machine.revision()
    }

    pub(super) fn has_key(&self, key: &str) -> bool {
        self.machine.key(key).is_some()
    }

    /// The level of the rules in force.
    pub(super) fn level(&self) -> u16 {
        self.machine.level()
    }

    /// How often the level was raised since the cluster was bootstrapped.
    pub(super) fn raises(&self) -> u64 {
        self.raises
    }

    /// Whether this member has ever led.
    pub(super) fn led(&self, member: usize) -> bool {
        self.leaders.values().any(|leader| *leader == member)
    }

    /// A lease in the newest state.
    pub(super) fn lease(&self, lease: LeaseId) -> Option<LeaseView> {
        self.machine.lease(LeaseRef::Id(lease))
    }

    /// Whether the newest state has a lease.
    pub(super) fn has_lease(&self, lease: LeaseRef) -> bool {
        self.machine.has_lease(lease)
    }

    /// The oldest revision that the newest state knows.
    pub(super) fn floor(&self) -> Revision {
        self.machine.floor()
    }

    /// The events from a revision up to, but not including, another.
    pub(super) fn happened(&self, from: Revision, to: Revision) -> impl Iterator<Item = &Batch> {
        let start = self.happened.partition_point(|batch| batch.revision < from);
        self.happened[start..].iter().take_while(move |batch| batch.revision < to)
    }

    pub(super) fn terms(&self) -> usize {
        self.leaders.len()
    }

    /// Records that a member claims to lead.
    pub(super) fn leads(&mut self, member: usize, term: u64) -> CheckResult {
        let leader = *self.leaders.entry(term).or_insert(member);
        ensure(leader == member, "S12", || format!("{leader} and {member} both lead term {term}"))
    }

    /// Records that a member has granted a vote and sent it.
    pub(super) fn votes(&mut self, member: usize, term: u64, to: u64) -> CheckResult {
        let first = *self.votes.entry((member, term)).or_insert(to);
        ensure(first == to, "S12", || format!("{member} voted for {first} and {to} in term {term}"))
    }

    /// Records that a leader has sealed an entry.
    pub(super) fn seals(&mut self, entry: &LogEntry, at_us: u64, stalled: Stalled) {
        // A member that is alone may lead the same term twice, if its disk never knew of the first
        // time. What it sealed then was never heard of.
        self.sealed.insert((entry.index, entry.term), SealedEntry { at_us, stalled });
    }

    /// Records that a leader has sent entries.
    pub(super) fn sends(&mut self, member: usize, entries: &[LogEntry]) -> CheckResult {
        for entry in entries {
            let at = (entry.index, entry.term);
            let first = self.sent.entry(at).or_insert_with(|| entry.payload.clone());
            ensure(*first == entry.payload, "S12", || {
                format!("{member} sent a second entry at index {} of term {}", at.0, at.1)
            })?;
        }
        Ok(())
    }

    /// Records that a member has applied an entry.
    pub(super) fn applies(&mut self, member: usize, entry: &LogEntry) -> CheckResult {
        if entry.index <= self.last() {
            let at = entry.index.checked_sub(FIRST.index + 1);
            let agreed = at.and_then(|at| self.agreed.get(usize::try_from(at).ok()?));
            let same = agreed.is_some_and(|agreed| {
                (agreed.term, agreed.kind, &agreed.payload)
                    == (entry.term, entry.kind, &entry.payload)
            });
            let index = entry.index;
            return ensure(same, "S12", || format!("{member} applied another entry at {index}"));
        }
        let next = self.last() + 1;
        ensure(entry.index == next, "S12", || {
            format!("{member} applied {}, no member has applied {next}", entry.index)
        })?;
        self.agree(entry)
    }

    /// A member's state after an entry.
    pub(super) fn state(&self, member: usize, at: LogId, machine: &Machine) -> CheckResult {
        let agreed = at.index.checked_sub(FIRST.index + 1);
        let Some(agreed) = agreed.and_then(|at| self.agreed.get(usize::try_from(at).ok()?)) else {
            let is_first = at.index <= FIRST.index;
            return ensure(is_first, "S12", || format!("{member} is at {at:?}, ahead of everyone"));
        };
        let found = Mark::of(machine);
        ensure(agreed.mark == found && agreed.term == at.term, "S9", || {
            format!("{member} at {at:?} has {found:?}, others had {:?}", agreed.mark)
        })
    }

    /// T1: nothing but a command gives a lease more time; a change of leaders does not.
    fn check_nothing_given(&self, entry: &LogEntry, before: &[(LeaseId, u64)]) -> CheckResult {
        for lease in self.machine.leases(None, usize::MAX) {
            let ends_ms = self.machine.clock_ms() + lease.left_ms;
            let given = before.iter().any(|(id, ended_ms)| *id == lease.id && *ended_ms < ends_ms);
            ensure(!given, "T1", || {
                format!("lease {} was given time by entry {}", lease.id, entry.index)
            })?;
        }
        Ok(())
    }

    fn ends_ms(&self) -> Vec<(LeaseId, u64)> {
        let leases = self.machine.leases(None, usize::MAX);
        leases.iter().map(|lease| (lease.id, self.machine.clock_ms() + lease.left_ms)).collect()
    }

    fn agree(&mut self, entry: &LogEntry) -> CheckResult {
        let before = self.machine.clock_ms();
        // The log's own entries begin a term, and hold no command.
        let ends_ms = if entry.payload.is_empty() { self.ends_ms() } else { Vec::new() };
        let command = entry.kind == 0 && !entry.payload.is_empty();
        let payload = command.then_some(&entry.payload[..]);
        let mut effects = std::mem::take(&mut self.effects);
        let level = self.machine.level();
        self.calls.begin_entry(level);
        self.machine.apply(Term(entry.term), payload, &mut effects);
        self.raises += u64::from(self.machine.level() > level);
        let outgrown = self.machine.outgrown();
        let (term, kind, payload) = (entry.term, entry.kind, entry.payload.clone());
        self.agreed.push(Agreed { term, kind, payload, mark: Mark::of(&self.machine) });
        ensure(outgrown.is_none(), "N9", || {
            format!("entry {} raises the level to {outgrown:?}, which no build knows", entry.index)
        })?;
        let checked = self
            .check_nothing_given(entry, &ends_ms)
            .and_then(|()| self.check_agreed(entry, command, before, &effects));
        self.effects = effects;
        checked
    }

    fn check_agreed(
        &mut self,
        entry: &LogEntry,
        command: bool,
        clock_before_ms: u64,
        effects: &Effects,
    ) -> CheckResult {
        if command {
            self.check_time(entry, clock_before_ms)?;
            self.note_outcomes(entry, effects)?;
            self.check_tokens()?;
        }
        self.machine
            .check_invariants()
            .map_err(|violation| InvariantViolation::new(violation.invariant, violation.detail))
    }

    /// S5: the clock grows by no more than real time. L2: a leader stamps in time. T3: a stall is
    /// forgiven.
    fn check_time(&mut self, entry: &LogEntry, clock_before_ms: u64) -> CheckResult {
        let index = entry.index;
        let Ok(opened) = open_entry(&entry.payload) else { return Ok(()) };
        let Some(sealed) = self.sealed.get(&(index, entry.term)).copied() else {
            return Err(InvariantViolation::new("S12", format!("no member sealed entry {index}")));
        };
        let clock_us = i128::from(self.machine.clock_ms()) * 1000;
        let real_us = i128::from(sealed.at_us);
        let fastest_us = real_us + real_us * i128::from(RATE_PPM) / 1_000_000;
        let pace_us = clock_us - fastest_us;
        let least = self.pace_us.map_or(pace_us, |least| least.min(pace_us));
        self.pace_us = Some(least);
        ensure(pace_us <= least + ROUNDING_US, "S5", || {
            let ahead = (pace_us - least) / 1000;
            format!("at entry {index} the clock is {ahead} ms ahead of real time")
        })?;
        ensure(clock_before_ms <= self.machine.clock_ms(), "S5", || {
            format!("the clock went back at entry {index}")
        })?;
        let count_ms = opened.count_ms;
        if let Some(stamp) = self.stamp.filter(|stamp| stamp.term == entry.term) {
            let grown_ms = count_ms.saturating_sub(stamp.count_ms);
            let (now, then) = (sealed.stalled, stamp.sealed.stalled);
            let stalled_us = now.for_us.saturating_sub(then.for_us);
            let stalls = now.times.saturating_sub(then.times);
            let gap_us = sealed.at_us.saturating_sub(stamp.sealed.at_us);
            let awake_ms = gap_us.saturating_sub(stalled_us) / 1000;
            let most_ms = awake_ms + awake_ms / 50 + stalls * STALL_MS + 5;
            ensure(stalled_us == 0 || grown_ms <= most_ms, "T3", || {
                let stalled_ms = stalled_us / 1000;
                format!("{grown_ms} ms counted, {stalled_ms} ms of them stalled, at entry {index}")
            })?;
            ensure(!stamp.pending || grown_ms <= STAMP_GAP_MS, "L2", || {
                format!("no stamp for {grown_ms} ms before entry {index}")
            })?;
        }
        let pending = self.machine.next_due_ms().is_some();
        self.stamp = Some(Stamp { term: entry.term, count_ms, sealed, pending });
        Ok(())
    }

    /// S7 and S13: the result of each command fits what clients asked for. N6: the cluster never agrees on anything
    /// that a stranger sent.
    fn note_outcomes(&mut self, entry: &LogEntry, effects: &Effects) -> CheckResult {
        let Ok(opened) = open_entry(&entry.payload) else { return Ok(()) };
        for (request, outcome) in opened.zip(&effects.outcomes) {
            let Ok(request) = decode_request(request) else { continue };
            ensure(!strangers::is_forged(&request), "N6", || {
                format!("entry {} has what a stranger said", entry.index)
            })?;
            ensure(!strangers::takes_over(&request), "N7", || {
                format!("entry {} gives a stranger's record to a member", entry.index)
            })?;
            self.invitations.applied(&request, outcome)?;
            self.calls.applied(&request, outcome);
            if let Ok(ask) = request.principal.parse() {
                self.asked.applied(ask, entry.index, outcome)?;
            }
        }
        Ok(())
    }

    /// S2: tokens only grow. Also keeps all events for the watchers.
    fn check_tokens(&mut self) -> CheckResult {
        let from = self.revision_seen.next();
        self.revision_seen = self.machine.revision();
        let Ok(events) = self.machine.events(from, tenure_core::Filter::All, usize::MAX) else {
            return Err(InvariantViolation::new(
                "W3",
                format!("{from} was given up as it happened"),
            ));
        };
        for (revision, event) in dated_events(&events.batches) {
            self.calls.happened(revision, event)?;
            if event.cause != Cause::Granted {
                continue;
            }
            let token = event.token.map_or(0, tenure_types::Token::get);
            let newest = std::mem::replace(&mut self.newest_token, token);
            ensure(token > newest, "S2", || format!("token {token} after {newest}"))?;
            self.former.granted(&event.subject, self.now_us)?;
        }
        self.calls.end_entry();
        self.happened.extend(events.batches);
        Ok(())
    }

    /// Records that a client gets the result of an ask.
    pub(super) fn answers(&mut self, ask: u64, outcome: &Outcome) -> CheckResult {
        let index = self.asked.answered(ask, outcome)?;
        self.acknowledged = self.acknowledged.max(index);
        Ok(())
    }
}

/// The events of some batches, each with its revision.
fn dated_events(batches: &[Batch]) -> impl Iterator<Item = (Revision, &Event)> {
    batches.iter().flat_map(|batch| batch.events.iter().map(|event| (batch.revision, event)))
}

/// The state that a cluster begins with. History is short, so that it is given up in every run. Leases are short, so
/// that a restored cluster grants locks before the run is over.
pub(super) fn first_state(initial_members: &[MemberRecord], level: u16) -> Machine {
    let limits = vec![
        (Limit::HistoryRevisions, HISTORY),
        (Limit::TtlMaxMs, TTL_MAX_MS),
        (Limit::LockDelayMs, LOCK_DELAY_MAX_MS),
    ];
    let command = Command::SetLimits(limits);
    let mut request = Vec::new();
    encode_request(&Request { principal: "", id: RequestId::None, command }, &mut request);
    let term = Term(FIRST.term);
    let entry = seal_entry(term, 0, [&request[..]]);
    let mut machine = directory::first_state(initial_members, level, Epoch::default());
    machine.apply(term, Some(&entry), &mut Effects::default());
    machine
}

pub(super) fn ensure(holds: bool, invariant: &str, detail: impl FnOnce() -> String) -> CheckResult {
    if holds { Ok(()) } else { Err(InvariantViolation::new(invariant, detail())) }
}
