//! Implements the rules a second time, in the plainest code.
//!
//! The model keeps everything in ordered maps and vectors, clones freely and computes every derived number from
//! scratch, so that a reader can hold it beside the page of rules and compare sentence by sentence. It shares nothing
//! with the real machine but the public types: a mistake would have to be made twice to stay hidden.

mod abandon;
mod access;
mod any;
mod ask;
mod deadlock;
mod drain;
mod due;
mod event;
mod hand_on;
mod key;
mod lease;
mod level;
mod once;
mod pass;
mod pool;
mod progress;
mod reopen;
mod resize;
mod settings;
mod state;
mod supersede;
mod take_away;
#[cfg(test)]
mod tests;
mod upgrade;
mod urgent_role;
mod view;

use std::collections::{BTreeMap, BTreeSet};

use tenure_core::StoppedFor;
use tenure_core::access::AccessChange;
use tenure_core::event::{Batch, Cause, Event, Subject, TimeLabel, WallClock};
use tenure_core::outcome::{Answer, Effects, Notice};
use tenure_core::request::{Command, Purpose, Request};
use tenure_core::view::{KeyView, LeaseView, LockView, WaiterView};
use tenure_types::{
    Epoch, Handle, LeaseId, Limit, Limits, Mode, Name, PlaceNumber, Refusal, Revision, Term, Token,
};

use event::blank;
use level::{
    LEVEL_ANY, LEVEL_COUNTED, LEVEL_DRAINS, LEVEL_FAIR_RECORDS, LEVEL_GROUPS, LEVEL_HAND_ON,
    LEVEL_MIN_HOLD, LEVEL_OWNED, LEVEL_PRIORITY, LEVEL_PROGRESS, LEVEL_RATES, LEVEL_RECORDS,
    LEVEL_REOPENING, LEVEL_REPAIRED, LEVEL_SETTERS, LEVEL_SHARES, LEVEL_URGENT_ROLES, LEVEL_WHOLE,
};
use pass::takes;
use state::later;

/// The clock never goes beyond this, so that sums of two times never overflow.
const CLOCK_MAX: u64 = (1 << 60) - 1;

/// The most slots of a semaphore that one ask may take.
const TAKE_MAX: u32 = 1_024;

/// The highest priority, and how much earlier each step counts as having asked.
const PRIORITY_MAX: u8 = 9;
const PRIORITY_STEP_MS: u64 = 30_000;

/// Only the real machine has handles; the model always shows this one.
const NO_HANDLE: Handle = Handle { slot: 0, generation: 0 };

/// The result of a command.
type Verdict = Result<Answer, Refusal>;

/// Maps a handle to its lease, by id and creation revision.
type HandleOf<'a> = &'a dyn Fn(Handle) -> Option<(LeaseId, Revision)>;

/// One entry of the log as the model sees it.
#[derive(Clone, Copy, Debug)]
pub struct ModelEntry<'a> {
    /// The term of the leader that sealed it.
    pub term: Term,
    /// The leader's count.
    pub count_ms: u64,
    /// The leader's wall clock, which the model only copies.
    pub wall: Option<WallClock>,
    /// The requests; `None` for one that cannot be read.
    pub requests: &'a [Option<Request<'a>>],
}

/// The naive model.
#[derive(Clone)]
pub struct Model {
    epoch: Epoch,
    /// The number of tokens given in this epoch.
    tokens_used: u64,
    clock_ms: u64,
    clock_term: Term,
    base_ms: u64,
    revision: Revision,
    floor: Revision,
    history: Vec<Batch>,
    limits: Limits,
    level: u16,
    /// The number of the next place.
    next_place: u64,
    /// The time until which nothing is granted; `None` once `end_due` has ended the quiet period.
    quiet_until_ms: Option<u64>,
    /// Which queues have been served since a prefix was opened or the quiet period ended, unless all have.
    reopening: Option<reopen::ModelReopening>,
    /// Whether the present entry has served a slice of them.
    sliced: bool,
    leases: BTreeMap<LeaseId, Lease>,
    locks: BTreeMap<Name, Lock>,
    /// All places. Those that wait for a lock are its queue: all queues share one order.
    places: BTreeMap<PlaceNumber, Place>,
    keys: BTreeMap<Name, Key>,
    key_records: Vec<once::KeyedRequest>,
    rules: access::Rules,
    owned: access::Owned,
    /// The closed prefixes.
    drains: BTreeMap<String, drain::Drain>,
    /// The label of the present entry.
    label: Option<TimeLabel>,
    /// The events of the present command, or of the present `end_due`.
    events: Vec<Event>,
    /// The locks of which the present command ended or took away an election's grant.
    vacated: BTreeSet<Name>,
    /// The locks in whose queues an upgrade ended with its hold, for the next grant pass.
    left_by_upgrades: BTreeSet<Name>,
    /// The notices of the present entry.
    notices: Vec<Notice>,
    /// The revision of the answer that the present command repeats.
    repeated: Option<Revision>,
}

/// A lease. It is live while its deadline is in the future.
#[derive(Clone)]
struct Lease {
    id: LeaseId,
    created: Revision,
    ttl_ms: u64,
    deadline_ms: u64,
    client: Name,
    metadata: Vec<u8>,
    changed: Revision,
    done: u64,
    records: BTreeMap<u64, once::RequestRecord>,
    owner: Option<access::OwnerKey>,
}

/// A lock. It exists while it has a grant or a waiter.
#[derive(Clone)]
struct Lock {
    slots: Option<u32>,
    /// Whether an operator set the number of slots.
    sized: bool,
    created: Revision,
    modified: Revision,
    version: u64,
    grants: Vec<Grant>,
}

/// One grant: held, cooling, delayed or resting.
#[derive(Clone)]
struct Grant {
    token: Token,
    lease: LeaseId,
    lease_created: Revision,
    client: Name,
    mode: Mode,
    slot: Option<u32>,
    place: PlaceNumber,
    since_ms: u64,
    state: GrantState,
    purpose: Purpose,
    metadata: Vec<u8>,
    lock_delay_ms: u64,
    max_hold_ms: Option<u64>,
    max_hold_due_ms: Option<u64>,
    min_hold_ms: u64,
    progress: Option<progress::ModelPromise>,
    /// The number of asks that rely on it; `None` if asks were not counted when it was asked for.
    asks: Option<u64>,
    /// The owner of the lease.
    owner: Option<access::OwnerKey>,
}

/// Whether the holder still has the grant.
#[derive(Clone, Copy, PartialEq, Eq)]
enum GrantState {
    Held,
    Cooling { until_ms: u64 },
    Delayed { until_ms: u64 },
    Resting { until_ms: u64 },
}

/// An ask that waits, or is about to be granted.
#[derive(Clone)]
struct Place {
    number: PlaceNumber,
    lease: LeaseId,
    client: Name,
    /// The locks, in the order of names.
    locks: Vec<(Name, Mode)>,
    metadata: Vec<u8>,
    lock_delay_ms: u64,
    max_hold_ms: Option<u64>,
    min_hold_ms: u64,
    /// Within how much time it promises progress once it is granted.
    progress_within_ms: u64,
    /// The group whose older waiters it replaces.
    group: Option<Name>,
    priority: u8,
    purpose: Purpose,
    independent: bool,
    /// Whether its lease holds the lock and waits to be the only holder.
    upgrade: bool,
    /// Whether one of its locks is enough.
    any: bool,
    /// The prefix of the pool whose slots its locks are.
    pool: Option<Name>,
    wait_until_ms: Option<u64>,
    created: Revision,
    since_ms: u64,
    /// The number of asks that rely on it; `None` if asks were not counted when it was asked for.
    asks: Option<u64>,
}

/// A key and its value.
#[derive(Clone)]
struct Key {
    value: Vec<u8>,
    created: Revision,
    modified: Revision,
    version: u64,
    lease: Option<LeaseId>,
    /// The principal that last wrote it.
    owner: Option<access::OwnerKey>,
}

impl Model {
    /// A new cluster.
    pub fn new(epoch: Epoch) -> Self {
        let revision = epoch.revision(Revision(0));
        Self {
            epoch,
            tokens_used: 0,
            clock_ms: 0,
            clock_term: Term(0),
            base_ms: 0,
            revision,
            floor: revision.next(),
            history: Vec::new(),
            limits: Limits::default(),
            level: 1,
            next_place: 1,
            quiet_until_ms: None,
            reopening: None,
            sliced: false,
            leases: BTreeMap::new(),
            locks: BTreeMap::new(),
            places: BTreeMap::new(),
            keys: BTreeMap::new(),
            key_records: Vec::new(),
            rules: access::Rules::default(),
            owned: access::Owned::default(),
            drains: BTreeMap::new(),
            label: None,
            events: Vec::new(),
            vacated: BTreeSet::new(),
            left_by_upgrades: BTreeSet::new(),
            notices: Vec::new(),
            repeated: None,
        }
    }

    /// Applies one entry.
    ///
    /// In its answers every lease handle is `Handle { slot: 0, generation: 0 }`. For commands that name a lease by
    /// handle, the caller passes `handle_of`, which maps each handle to its lease (id, creation revision).
    pub fn apply(
        &mut self,
        log_term: Term,
        entry: Option<ModelEntry<'_>>,
        handle_of: &dyn Fn(Handle) -> Option<(LeaseId, Revision)>,
    ) -> Effects {
        let mut effects = Effects::default();
        if log_term != self.clock_term {
            self.clock_term = log_term;
            self.base_ms = self.clock_ms;
        }
        let Some(entry) = entry else { return effects };
        if entry.term != log_term {
            for _ in entry.requests {
                let outcome = self.outcome(Err(Refusal::NotLeader));
                effects.outcomes.push(outcome);
            }
            return effects;
        }
        self.clock_ms = self.clock_ms.max(later(self.base_ms, entry.count_ms));
        self.label = entry.wall.map(|wall| TimeLabel { wall, clock_ms: self.clock_ms });
        self.sliced = false;
        self.end_due();
        self.finish_step();
        for request in entry.requests {
            let verdict = match request {
                None => Err(Refusal::Malformed),
                Some(Request { command: Command::Abandon(_), .. })
                    if self.level < LEVEL_COUNTED =>
                {
                    Err(Refusal::Malformed)
                }
                Some(Request { command: Command::SetAccess(_), .. })
                    if self.level < LEVEL_OWNED =>
                {
                    Err(Refusal::Malformed)
                }
                Some(Request { command: Command::SetAccess(change), .. })
                    if self.level < LEVEL_RATES
                        && (access::sets_rates(change)
                            || matches!(change, AccessChange::Replace(_))) =>
                {
                    Err(Refusal::Malformed)
                }
                Some(Request { command: Command::SetAccess(change), .. })
                    if self.level < LEVEL_URGENT_ROLES
                        && urgent_role::permits_priorities(change) =>
                {
                    Err(Refusal::Malformed)
                }
                Some(Request { command: Command::Acquire(ask), .. })
                    if self.level < LEVEL_MIN_HOLD && ask.min_hold_ms != 0 =>
                {
                    Err(Refusal::Malformed)
                }
                Some(Request { command: Command::Acquire(ask), .. })
                    if self.level < LEVEL_GROUPS && (ask.supersede.is_some() || ask.resume) =>
                {
                    Err(Refusal::Malformed)
                }
                Some(Request { command: Command::Acquire(ask), .. })
                    if self.level < LEVEL_PRIORITY && ask.priority > 0
                        || self.level < LEVEL_PROGRESS && ask.progress_within_ms > 0 =>
                {
                    Err(Refusal::Malformed)
                }
                Some(Request { command: Command::Acquire(ask), .. })
                    if self.level < LEVEL_ANY && (ask.any || ask.pool().is_some()) =>
                {
                    Err(Refusal::Malformed)
                }
                Some(Request { command: Command::Acquire(ask), .. })
                    if self.level < LEVEL_SHARES
                        && ask.locks.as_slice().iter().any(|one| takes(one.mode) > 1) =>
                {
                    Err(Refusal::Malformed)
                }
                Some(Request { command: Command::Resize { .. }, .. })
                    if self.level < LEVEL_SHARES =>
                {
                    Err(Refusal::Malformed)
                }
                Some(Request { command: Command::Progress { .. }, .. })
                    if self.level < LEVEL_PROGRESS =>
                {
                    Err(Refusal::Malformed)
                }
                Some(Request { command: Command::Upgrade(_) | Command::HandOn { .. }, .. })
                    if self.level < LEVEL_HAND_ON =>
                {
                    Err(Refusal::Malformed)
                }
                Some(Request {
                    command: Command::Drain { .. } | Command::Undrain { .. }, ..
                }) if self.level < LEVEL_DRAINS => Err(Refusal::Malformed),
                Some(request) => {
                    self.admit(request).and_then(|()| self.run_once(request, handle_of))
                }
            };
            self.finish_step();
            let outcome = self.outcome(verdict);
            effects.outcomes.push(outcome);
        }
        effects.notices = std::mem::take(&mut self.notices);
        effects
    }

    /// Restores the state under a new epoch. Returns `false`, without a change, unless the epoch is newer.
    pub fn restore(&mut self, epoch: Epoch, stopped: StoppedFor) -> bool {
        if epoch <= self.epoch {
            return false;
        }
        let longest_ms = match stopped {
            StoppedFor::ForGood => 0,
            StoppedFor::ForMs(ms) => self.longest_unsure_ms().saturating_sub(ms),
        };
        let until_ms = later(self.clock_ms, longest_ms);
        self.quiet_until_ms = (until_ms > self.clock_ms).then_some(until_ms);
        self.reopening = None;
        self.leases.clear();
        self.places.clear();
        self.locks.retain(|_, lock| lock.sized);
        self.locks.values_mut().for_each(|lock| lock.grants.clear());
        self.keys.retain(|_, key| key.lease.is_none());
        self.forget_owners();
        self.epoch = epoch;
        self.tokens_used = 0;
        self.revision = epoch.revision(self.revision);
        self.history.clear();
        self.floor = self.revision.next();
        self.clock_term = Term(0);
        self.base_ms = self.clock_ms;
        true
    }

    /// How long a client of the former incarnation may keep others out.
    fn longest_unsure_ms(&self) -> u64 {
        let mut ttl_ms = self.limits.get(Limit::TtlMaxMs);
        let mut delay_ms = self.limits.get(Limit::LockDelayMs);
        let mut ends = Vec::from_iter(self.quiet_until_ms);
        for lease in self.leases.values() {
            ttl_ms = ttl_ms.max(lease.ttl_ms);
        }
        for grant in self.locks.values().flat_map(|lock| &lock.grants) {
            delay_ms = delay_ms.max(grant.lock_delay_ms);
            match grant.state {
                GrantState::Held | GrantState::Resting { .. } => {}
                GrantState::Cooling { until_ms } => {
                    ends.push(until_ms.saturating_add(self.whole(grant.lock_delay_ms)));
                }
                GrantState::Delayed { until_ms } => ends.push(until_ms),
            }
        }
        let left_ms = |until_ms: u64| until_ms.saturating_sub(self.clock_ms);
        let ends = ends.into_iter().map(left_ms);
        ends.fold(self.whole(ttl_ms) + self.whole(delay_ms), u64::max)
    }

    /// The clock.
    pub fn clock_ms(&self) -> u64 {
        self.clock_ms
    }

    /// The newest revision.
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// The oldest revision that can be read.
    pub fn floor(&self) -> Revision {
        self.floor
    }

    /// The earliest deadline.
    pub fn next_due_ms(&self) -> Option<u64> {
        self.pending().into_iter().map(|item| item.deadline_ms).min()
    }

    /// The level.
    pub fn level(&self) -> u16 {
        self.level
    }

    /// The weight of the state.
    pub fn state_bytes(&self) -> u64 {
        self.weigh()
    }

    /// The limits.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// All locks in the order of names.
    pub fn locks(&self) -> Vec<LockView> {
        self.view_locks()
    }

    /// The queue of a lock.
    pub fn queue(&self, lock: &str) -> Vec<WaiterView> {
        self.view_queue(lock)
    }

    /// All live leases in the order of ids, handles zeroed.
    pub fn leases(&self) -> Vec<LeaseView> {
        self.view_leases()
    }

    /// All keys in the order of names.
    pub fn keys(&self) -> Vec<KeyView> {
        self.view_keys()
    }

    /// The kept history from the floor on.
    pub fn history(&self) -> &[Batch] {
        &self.history
    }

    /// Runs a command that is known not to be a repetition.
    fn run(&mut self, principal: &str, command: &Command<'_>, handle_of: HandleOf<'_>) -> Verdict {
        let verdict = self.run_command(principal, command, handle_of);
        self.name_caller(principal, command);
        verdict.map_err(|refusal| self.blanked(principal, refusal))
    }

    fn run_command(
        &mut self,
        principal: &str,
        command: &Command<'_>,
        handle_of: HandleOf<'_>,
    ) -> Verdict {
        match command {
            Command::GrantLease(new) => self.grant_lease(new),
            Command::Renew(leases) => self.renew(leases, handle_of),
            Command::Revoke { lease, by } => self.revoke(principal, *lease, *by, handle_of),
            Command::Acquire(ask) => self.acquire(ask, handle_of),
            Command::Release(hold) => self.release(hold, handle_of),
            Command::Leave { lease, lock } => self.leave(*lease, lock, handle_of),
            Command::Downgrade(hold) => self.downgrade(hold, handle_of),
            Command::Update { hold, metadata } => self.update(hold, metadata, handle_of),
            Command::Force { lock, token, by, reason, urgency } => {
                self.force(lock, *token, (by, reason), *urgency)
            }
            Command::Stopped { lease, created, lock, token } => {
                self.stopped(*lease, *created, lock, *token)
            }
            Command::Put(put) => self.put(put, handle_of),
            Command::Delete { key, expect, guard } => self.delete(key, *expect, *guard),
            Command::SetLimits(limits) => self.set_limits(limits),
            Command::Compact { keep } => self.compact(*keep),
            Command::RaiseLevel { level } => self.raise_level(*level),
            Command::Abandon(abandon) => self.abandon(principal, abandon, handle_of),
            Command::SetAccess(change) => self.set_access(principal, change),
            Command::Drain { prefix, by, reason } => {
                self.drain(self.named(principal), prefix, (by, reason))
            }
            Command::Undrain { prefix, by } => self.undrain(prefix, by),
            Command::Resize { lock, slots, by } => self.resize(lock, *slots, by),
            Command::Progress { hold, number } => self.report(hold, *number, handle_of),
            Command::Upgrade(upgrade) => self.upgrade(upgrade, handle_of),
            Command::HandOn { hold, to } => self.hand_on(hold, *to, handle_of),
        }
    }

    /// Ends one command, or one `end_due`: records vacancies, the revision and the history.
    fn finish_step(&mut self) {
        for name in std::mem::take(&mut self.vacated) {
            if self.held_grants(&name).is_empty() {
                self.events.push(blank(Cause::Vacant, Subject::Lock(name)));
            }
        }
        self.drop_unused_locks();
        self.forget_owners();
        if !self.events.is_empty() {
            self.revision = self.revision.next();
            let events = std::mem::take(&mut self.events);
            self.history.push(Batch { revision: self.revision, label: self.label, events });
        }
        while self.history.len() as u64 > self.limits.get(Limit::HistoryRevisions) {
            self.floor = self.history.remove(0).revision.next();
        }
    }
}
