//! Holds the replicated state and applies log entries to it.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use tenure_types::{
    Epoch, LeaseId, Limit, Limits, Name, PlaceNumber, Refusal, Revision, Term, Token,
};
use xxhash_rust::xxh3::Xxh3Default;

use crate::access::{Access, KnownPrincipal};
use crate::codec::{EntryPayload, EventRef, Malformed, open_entry, put_outcome};
use crate::command::{GroupKey, PoolKey, Reopening};
use crate::event::{TimeLabel, WallClock};
use crate::outcome::{Effects, Notice, Outcome};
use crate::request::LEVEL_RECORDS;
use crate::state::drain::Drains;
use crate::state::due::{CLOCK_MAX, DueSet};
use crate::state::history::History;
use crate::state::list::LinkedList;
use crate::state::names::LockNames;
use crate::state::owner::{OwnerId, Owners};
use crate::state::rank::RankIndex;
use crate::state::record::{Grant, Key, KeyRequest, Lease, Lock, Place, SeqRequest, WaitRecord};
use crate::state::shares::RecordShares;
use crate::state::slab::{Slab, SlabIndex};
use crate::state::tokens::GrantTokens;
use crate::state::touched::TouchedLocks;

/// The newest level that this build can apply. A cluster is raised to it by command, once every member knows it.
pub const LEVEL_MAX: u16 = crate::request::LEVEL_PRIORITY_RULES;

/// The level at which every new cluster starts. It never changes, because a later build that replays a log from its
/// beginning must go through the same states. For the same reason the defaults of the limits never change; a better
/// default is set by command.
const LEVEL_FIRST: u16 = 1;

/// From this level on, every duration that the cluster promises to a client lasts one millisecond of the machine's
/// clock longer.
const LEVEL_ROUNDED_UP: u16 = 2;

/// How many bytes of outcomes are collected before they are hashed.
const HASH_BUFFER_BYTES: usize = 64 * 1024;

/// The state machine: everything the cluster has agreed on.
pub struct Machine {
    pub(crate) clock_ms: u64,
    /// The term whose leader's count `clock_ms` follows.
    pub(crate) clock_term: Term,
    /// The clock at the end of the entries of all earlier terms.
    pub(crate) base_ms: u64,
    pub(crate) epoch: Epoch,
    /// The counter of the newest token.
    pub(crate) counter: u64,
    pub(crate) revision: Revision,
    /// The number of the newest place.
    pub(crate) newest_place: PlaceNumber,
    /// How many leases were ever granted.
    pub(crate) leases_granted: u64,
    pub(crate) level: u16,
    /// The end of the quiet period after a restore; the machine grants no lock before it.
    pub(crate) quiet_until_ms: Option<u64>,
    /// How far the queues have been served that may advance since a prefix was opened or the quiet period ended.
    pub(crate) reopening: Option<Reopening>,
    /// How many acquire requests were queued because the deadlock search reached its bound.
    pub(crate) deadlock_searches_cut: u64,
    pub(crate) limits: Limits,
    pub(crate) state_bytes: u64,
    /// A running hash over every applied payload and every outcome.
    pub(crate) rolling_hash: u128,

    pub(crate) leases: Slab<Lease>,
    pub(crate) locks: Slab<Lock>,
    pub(crate) grants: Slab<Grant>,
    pub(crate) places: Slab<Place>,
    pub(crate) waits: Slab<WaitRecord>,
    pub(crate) keys: Slab<Key>,
    pub(crate) seq_requests: Slab<SeqRequest>,
    pub(crate) key_requests: Slab<KeyRequest>,
    /// Idempotency keys, oldest first.
    pub(crate) key_request_order: LinkedList,
    pub(crate) history: History,
    /// Who may do what. Shared with frozen copies of the state.
    pub(crate) access: Arc<Access>,
    /// The principals that own something.
    pub(crate) owners: Owners,
    /// The prefixes below which nothing is granted.
    pub(crate) drains: Drains,

    // Derived from the records: not part of a snapshot, rebuilt when one is read.
    pub(crate) leases_by_id: BTreeMap<LeaseId, SlabIndex>,
    pub(crate) names: LockNames,
    pub(crate) tokens: GrantTokens,
    pub(crate) keys_by_name: BTreeMap<Name, SlabIndex>,
    pub(crate) key_requests_by_key: BTreeMap<(Box<str>, Name), SlabIndex>,
    /// How many of these each owner has.
    pub(crate) key_request_shares: RecordShares,
    pub(crate) due: DueSet,
    /// The waiting place of each group, at each lock that it waits for.
    pub(crate) groups: BTreeMap<GroupKey, SlabIndex>,
    /// The order of each queue that has had a request with a priority since it was last empty.
    pub(crate) ranks: BTreeMap<SlabIndex, RankIndex>,
    /// The semaphores whose numbers of slots an operator has set.
    pub(crate) sized: BTreeMap<Name, SlabIndex>,
    /// The places that wait for any slot of a pool, by its prefix.
    pub(crate) pool_waiters: BTreeSet<PoolKey>,

    // Scratch state of the command being executed. Between commands it keeps only what is known of the last caller.
    pub(crate) now: Work,

    // Properties of this build, not of the cluster: not part of a snapshot.
    /// The newest level that this build can apply.
    pub(crate) level_known: u16,
    /// The level that the cluster was raised to, if this build cannot apply it.
    pub(crate) outgrown: Option<u16>,
}

/// What a command has touched so far and must process before it ends.
#[derive(Default)]
pub(crate) struct Work {
    /// Whether the command has begun a revision.
    pub(crate) emitting: bool,
    /// Locks whose queues may advance, in the order of their names.
    pub(crate) touched: TouchedLocks,
    /// The lock whose queue is being served. It is not put into `touched` for a change that serving its queue makes.
    pub(crate) served: Option<SlabIndex>,
    /// Whether serving the queue of that lock changed it.
    pub(crate) touched_again: bool,
    /// Locks that may be left without grant and queue.
    pub(crate) idle: Vec<SlabIndex>,
    /// Election locks that lost their leader.
    pub(crate) vacant: Vec<SlabIndex>,
    pub(crate) notices: Vec<Notice>,
    /// The principal of the command being executed, if it can own something. Kept for the next command, which often
    /// has the same.
    pub(crate) caller: Option<Name>,
    /// What the access rules say of this principal, if the command before had the same.
    pub(crate) known: Option<KnownPrincipal>,
    /// The owner that this principal is, if it owns anything. Looked up once for each command.
    pub(crate) caller_owner: Option<OwnerId>,
    /// How many more places and holders the commands of this entry may visit in search of deadlocks.
    pub(crate) search_left: usize,
    /// Whether this entry has served a slice of the queues that were reopened.
    pub(crate) reopened: bool,
    /// Scratch space for encoding outcomes before hashing.
    pub(crate) buffer: Vec<u8>,
}

impl Machine {
    /// Creates the state of a new cluster.
    pub fn new(epoch: Epoch) -> Self {
        let revision = epoch.revision(Revision(0));
        Self {
            clock_ms: 0,
            clock_term: Term(0),
            base_ms: 0,
            epoch,
            counter: 0,
            revision,
            newest_place: PlaceNumber(0),
            leases_granted: 0,
            level: LEVEL_FIRST,
            quiet_until_ms: None,
            reopening: None,
            deadlock_searches_cut: 0,
            limits: Limits::default(),
            state_bytes: 0,
            rolling_hash: 0,
            leases: Slab::default(),
            locks: Slab::default(),
            grants: Slab::default(),
            places: Slab::default(),
            waits: Slab::default(),
            keys: Slab::default(),
            seq_requests: Slab::default(),
            key_requests: Slab::default(),
            key_request_order: LinkedList::default(),
            history: History::new(revision.next()),
            access: Arc::default(),
            owners: Owners::default(),
            drains: Drains::default(),
            leases_by_id: BTreeMap::new(),
            names: LockNames::default(),
            tokens: GrantTokens::default(),
            keys_by_name: BTreeMap::new(),
            key_requests_by_key: BTreeMap::new(),
            key_request_shares: RecordShares::default(),
            due: DueSet::default(),
            groups: BTreeMap::new(),
            ranks: BTreeMap::new(),
            sized: BTreeMap::new(),
            pool_waiters: BTreeSet::new(),
            now: Work::default(),
            level_known: LEVEL_MAX,
            outgrown: None,
        }
    }

    /// Applies one entry of the log.
    ///
    /// `payload` is `None` for entries that the log itself adds. `apply` clears `effects` and then fills it with one
    /// outcome for each command, in order. No entry that a log can contain makes this panic.
    pub fn apply(&mut self, log_term: Term, payload: Option<&[u8]>, effects: &mut Effects) {
        effects.clear();
        if log_term != self.clock_term {
            self.clock_term = log_term;
            self.base_ms = self.clock_ms;
            #[cfg(mutants)]
            if mutant!("full_ttl_on_new_term") {
                self.renew_all();
            }
        }
        let Some(payload) = payload else { return };
        if let Ok(entry) = open_entry(payload).and_then(|entry| self.check_form(entry)) {
            if entry.term == log_term || mutant!("wrong_term_entry_counts") {
                // Time first: whatever is due ends before any command can see it.
                self.advance_clock(entry.count_ms);
                self.label(entry.wall);
                self.now.reopened = false;
                self.end_due();
                self.now.search_left = self.searches_per_entry();
                for request in entry {
                    let outcome = self.execute(request);
                    effects.outcomes.push(outcome);
                    self.debug_check();
                }
            } else {
                let refused = Err(Refusal::NotLeader);
                let revision = self.revision;
                effects
                    .outcomes
                    .extend(entry.map(|_| Outcome { revision, result: refused.clone() }));
            }
        }
        self.history.set_label(None);
        self.roll_hash(log_term, payload, &effects.outcomes);
        core::mem::swap(&mut self.now.notices, &mut effects.notices);
    }

    /// Refuses an entry in a form that its level does not have, as a build of that level does.
    fn check_form<'a>(&self, entry: EntryPayload<'a>) -> Result<EntryPayload<'a>, Malformed> {
        if entry.wall.is_some() && self.level < LEVEL_RECORDS { Err(Malformed) } else { Ok(entry) }
    }

    /// Copies the leader's wall clock into the events of this entry, and into the record of who sets a quota. No rule
    /// reads it, because wall clocks jump and differ between members.
    fn label(&mut self, wall: Option<WallClock>) {
        #[cfg(mutants)]
        if let Some(WallClock { unix_ms }) = wall
            && mutant!("clock_from_the_label")
        {
            self.clock_ms = self.clock_ms.max(unix_ms.min(CLOCK_MAX));
        }
        let clock_ms = self.clock_ms;
        self.history.set_label(wall.map(|wall| TimeLabel { wall, clock_ms }));
    }

    fn advance_clock(&mut self, count_ms: u64) {
        let clock_ms = self.base_ms.saturating_add(count_ms).min(CLOCK_MAX);
        // A clock that stands still is safe. A clock that goes back would revive leases that have ended.
        self.clock_ms = self.clock_ms.max(clock_ms);
    }

    /// The deadline of a promise to a client that lasts `ms` from now.
    pub(crate) fn deadline(&self, ms: u64) -> u64 {
        self.clock_ms.saturating_add(self.promised_ms(ms)).min(CLOCK_MAX)
    }

    /// How far the clock must advance before a promised duration has certainly passed.
    ///
    /// A leader rounds its count down to whole milliseconds. The entry that makes a promise may be dated up to a
    /// millisecond too early while the entry that ends it is dated exactly, so the clock may advance by up to a
    /// millisecond more than the real time between them. A duration of 0 stays 0: a lock without a lock-delay gets
    /// none.
    pub(crate) fn promised_ms(&self, ms: u64) -> u64 {
        let rounds_up = self.level >= LEVEL_ROUNDED_UP && !mutant!("lease_rounded_down");
        if rounds_up && ms > 0 { ms.saturating_add(1) } else { ms }
    }

    /// Takes the next token. The caller must have checked that one is left.
    pub(crate) fn next_token(&mut self) -> Token {
        self.counter += 1;
        let counter = if mutant!("token_from_revision") {
            self.coming_revision().0 & Token::COUNTER_MAX
        } else {
            self.counter
        };
        Token::new(self.epoch, counter).expect("S2: tokens are left, the caller asked")
    }

    /// How many tokens this epoch has left.
    pub(crate) fn tokens_left(&self) -> u64 {
        Token::COUNTER_MAX - self.counter
    }

    /// The revision of the command being executed, or the one it will get if it changes anything.
    pub(crate) fn coming_revision(&self) -> Revision {
        if self.now.emitting { self.revision } else { self.revision.next() }
    }

    /// Begins the revision of the command being executed, unless it has begun already.
    pub(crate) fn begin_revision(&mut self) -> Revision {
        self.revision = self.coming_revision();
        self.now.emitting = true;
        self.revision
    }

    /// Adds an event to the revision of the command being executed.
    pub(crate) fn emit(&mut self, event: &EventRef<'_>) {
        let revision = self.begin_revision();
        self.history.emit(revision, event);
    }

    /// Serves the queues that may advance, announces vacancies, drops idle locks and closes the revision.
    pub(crate) fn finish(&mut self) {
        self.grant_pass();
        self.announce_vacancies();
        self.drop_idle_locks();
        if self.now.emitting {
            self.now.emitting = false;
            self.history.commit();
            self.trim_history();
        }
    }

    pub(crate) fn trim_history(&mut self) {
        let revisions = self.limits.get(Limit::HistoryRevisions);
        let bytes = self.limits.get(Limit::HistoryBytes);
        loop {
            let kept = (self.revision.0 + 1).saturating_sub(self.history.floor().0);
            let over = kept > revisions || self.history.bytes() > bytes && kept > 1;
            if !over || !self.history.drop_oldest() {
                return;
            }
        }
    }

    fn roll_hash(&mut self, log_term: Term, payload: &[u8], outcomes: &[Outcome]) {
        let buffer = &mut self.now.buffer;
        let mut hasher = Xxh3Default::new();
        buffer.clear();
        buffer.extend_from_slice(&self.rolling_hash.to_le_bytes());
        // Items that ended because they were due have no outcome, but they have changed these numbers.
        for number in [log_term.0, self.clock_ms, self.revision.0, self.counter] {
            buffer.extend_from_slice(&number.to_le_bytes());
        }
        for outcome in outcomes {
            put_outcome(buffer, outcome, self.level);
            // The hash does not depend on how the bytes are divided.
            if buffer.len() > HASH_BUFFER_BYTES {
                hasher.update(buffer);
                buffer.clear();
            }
        }
        hasher.update(buffer);
        hasher.update(payload);
        self.rolling_hash = hasher.digest128();
        // A long answer must not occupy memory for ever.
        buffer.clear();
        buffer.shrink_to(2 * HASH_BUFFER_BYTES);
    }

    /// Checks the whole state after every command, in debug builds and while the state is small.
    fn debug_check(&self) {
        #[cfg(all(debug_assertions, not(mutants)))]
        if self.leases.len() + self.locks.len() < 64
            && let Err(violation) = self.check_invariants()
        {
            panic!("{}: {}", violation.invariant, violation.detail);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::{encode_request, seal_labelled};
    use crate::outcome::Answer;
    use crate::request::{
        Acquire, Ask, AskLease, AskWait, Asks, Command, LeaseRef, NewLease, Purpose, Request,
        RequestId,
    };
    use tenure_types::Mode;

    #[test]
    fn a_long_answer_leaves_no_long_buffer_behind() {
        let id = LeaseId::new(1).expect("a lease's number");
        let long = "n".repeat(500);
        let acquire = Command::Acquire(Acquire {
            lease: AskLease::Existing(LeaseRef::Id(id)),
            locks: Asks::One(Ask { lock: &long, mode: Mode::Slot { of: 600, take: 600 } }),
            any: false,
            wait: AskWait::Unlimited,
            metadata: b"",
            lock_delay_ms: 0,
            max_hold_ms: None,
            min_hold_ms: 0,
            progress_within_ms: 0,
            supersede: None,
            resume: false,
            priority: 0,
            purpose: Purpose::Lock,
            independent: false,
        });
        for level in [crate::request::LEVEL_SHARES, LEVEL_MAX] {
            let mut machine = Machine::new(Epoch::default());
            let new = NewLease { id, ttl_ms: 60_000, client: "a", metadata: b"" };
            let mut commands = Vec::from([
                Command::RaiseLevel { level },
                Command::GrantLease(new),
                acquire.clone(),
            ]);
            // The same request again and again: every answer names all slots.
            commands.extend((0..20).map(|_| acquire.clone()));
            let requests: Vec<Vec<u8>> = commands
                .into_iter()
                .map(|command| {
                    let mut out = Vec::new();
                    encode_request(
                        &Request { principal: "", id: RequestId::None, command },
                        &mut out,
                    );
                    out
                })
                .collect();
            let entry = seal_labelled(Term(1), 0, None, requests.iter().map(Vec::as_slice));
            let mut effects = Effects::default();
            machine.apply(Term(1), Some(&entry), &mut effects);
            let last = effects.outcomes.last().expect("an outcome");
            let Ok(Answer::Acquired(acquired)) = &last.result else { panic!("{last:?}") };
            assert_eq!(acquired.grants.as_slice().len(), 600);
            let kept = machine.now.buffer.capacity();
            assert!(kept <= 2 * HASH_BUFFER_BYTES, "level {level}: {kept} bytes");
            // The name is written once, so that an answer has a few bytes for each slot.
            let mut bytes = Vec::new();
            put_outcome(&mut bytes, last, level);
            assert_eq!(
                bytes.len() < 600 * 10,
                level == LEVEL_MAX,
                "level {level}: {}",
                bytes.len()
            );
            let read = crate::codec::decode_outcome(&bytes).expect("it is read in both forms");
            assert_eq!(&read, last);
        }
    }
}
