//! Keeps the state that can be derived from answers and events alone.
//!
//! Within an entry the ledger advances event by event, so that a check can see the state at the time when a command
//! came. After each step it is corrected from the views; the comparison with the model checks that the two agree.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use tenure_core::StoppedFor;
use tenure_core::event::{Cause, Event, Subject};
use tenure_core::outcome::{Answer, Outcome};
use tenure_core::request::{AskLease, Command, Request, RequestId, Revoker, Urgency};
use tenure_core::view::WaiterView;
use tenure_types::{HolderState, LeaseId, Limit, Mode, Name, PlaceNumber, Revision, Token};

use super::Handles;
use super::handle::LeaseKey;
use super::priority::AskedAt;
use super::upgrade;
use crate::observe::{ObservedCommand, ObservedStep};

/// The largest clock, by the rules.
pub(super) const CLOCK_MAX: u64 = (1 << 60) - 1;

/// The level from which on a promised time lasts a millisecond of the clock longer.
const LEVEL_ROUNDED_UP: u16 = 2;

/// The level from which on the min hold of a hold that was handed on lasts although the receiver is abandoned.
const LEVEL_REPAIRED: u16 = 12;

/// A lease that is not known to have ended.
#[derive(Clone, Copy, Debug)]
pub struct KnownLease {
    /// The revision that created it.
    pub created: Revision,
    /// Its ttl.
    pub ttl: u64,
    /// Its deadline.
    pub deadline: u64,
}

/// The state of a grant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GrantStanding {
    /// The lease holds the lock.
    Held,
    /// Cooling until this time.
    Cooling(u64),
    /// Delayed or resting until this time.
    Delayed(u64),
}

/// A grant in force.
#[derive(Clone, Debug)]
pub struct KnownGrant {
    /// Its lock.
    pub lock: Name,
    /// Its lease.
    pub lease: LeaseKey,
    /// Its mode.
    pub mode: Mode,
    /// Its slot.
    pub slot: Option<u32>,
    /// Its state.
    pub standing: GrantStanding,
    /// Its lock-delay, if it was ever seen: a grant made in this entry shows it later.
    pub delay: Option<u64>,
    /// Until when it rests at least, if it was ever seen. Without a min hold this is in the past.
    pub rests: Option<u64>,
}

/// The state derived so far.
#[derive(Default)]
pub struct ObservedLedger {
    /// The clock of the entry.
    pub clock: u64,
    /// The level of the rules.
    pub level: u16,
    /// The level at the beginning of the entry: a command in it may raise it.
    level_before: u16,
    /// Leases that have not ended: live ones, and those that are due and wait for their slice.
    pub leases: BTreeMap<LeaseId, KnownLease>,
    /// Leases that have ended.
    pub ended: BTreeSet<LeaseKey>,
    /// Grants in force.
    pub grants: BTreeMap<Token, KnownGrant>,
    /// The queue of each lock, in order.
    pub queues: BTreeMap<Name, VecDeque<(PlaceNumber, LeaseId)>>,
    /// When each waiting place asked, and its priority.
    pub asked: BTreeMap<PlaceNumber, AskedAt>,
    /// Places as they were last seen.
    pub groups: BTreeMap<PlaceNumber, WaiterView>,
    /// The place to which a hold was handed on in this entry.
    pub handed_on: Option<PlaceNumber>,
    /// Until when the hold that was handed on last rests at least.
    handed_rest: Option<u64>,
    /// Until when holds that were handed on rest at least, because of those who had them before.
    pub handed_rests: BTreeMap<Token, u64>,
    /// Drained prefixes.
    pub drains: BTreeSet<String>,
    /// An upper bound of the time until which nothing may be granted after a restore.
    pub quiet_until: u64,
    /// A lower bound of the time until which nothing may be granted after a restore.
    pub quiet_least: u64,
    /// Leases that a renewal with a request id named in this entry, or before their principal was revoked. The renewal
    /// took effect, or it was a repetition and did not.
    pub maybe_renewed: BTreeSet<LeaseId>,
    /// The largest ttl of the leases that may or may not have ended.
    doubtful_ttl: u64,
}

impl ObservedLedger {
    /// Begins an entry.
    pub fn begin(&mut self, seen: &ObservedStep<'_>) {
        self.clock = seen.after.clock;
        self.level = seen.before.level;
        self.level_before = seen.before.level;
        // A lease of a revoked principal is in no view any more, so its deadline stays unknown until it ends.
        self.maybe_renewed.retain(|id| !seen.before.leases.iter().any(|lease| lease.id == *id));
    }

    /// The deadline of something promised for this long from now.
    pub fn deadline(&self, ms: u64) -> u64 {
        deadline(self.clock, promised(self.level, ms))
    }

    /// Whether a lease with this ttl has this much left after a renewal in this entry, made before or after a command
    /// of the entry raised the level.
    pub fn renewed_left(&self, ttl: u64, left: u64) -> bool {
        [self.level_before, self.level].iter().any(|level| {
            self.clock.saturating_add(left) == deadline(self.clock, promised(*level, ttl))
        })
    }

    /// Whether a lease with this ttl that was last renewed at this time has this much left.
    pub fn left_since(&self, ttl: u64, renewed: u64, left: u64) -> bool {
        let until = deadline(renewed, promised(self.level, ttl));
        renewed <= self.clock && self.clock.saturating_add(left) == until
    }

    /// The most time that a lease with this ttl can have left.
    pub fn longest(&self, ttl: u64) -> u64 {
        promised(self.level, ttl)
    }

    /// Whether some lease may be due that is not in the ledger.
    pub fn doubtful(&self) -> bool {
        self.doubtful_ttl > 0
    }

    /// Whether a lease is live now.
    pub fn live(&self, lease: LeaseId) -> bool {
        self.leases.get(&lease).is_some_and(|known| known.deadline > self.clock)
    }

    /// Whether the lease with this id and creation revision is live now.
    pub fn live_key(&self, (id, created): LeaseKey) -> bool {
        self.live(id) && self.leases.get(&id).is_some_and(|known| known.created == created)
    }

    /// Records an event.
    pub fn event(&mut self, part: &ObservedCommand<'_>, event: &Event) {
        match &event.subject {
            Subject::Lease(id) => self.lease_event(part, *id, event.cause),
            Subject::Lock(lock) => match (event.token, event.place) {
                (Some(token), _) => self.grant_event(part, lock, token, event),
                (None, Some(place)) => self.place_event(lock, place, event),
                (None, None) => {}
            },
            Subject::Settings => {
                let request = part.command.map(|(request, _)| &request.command);
                match request {
                    Some(Command::RaiseLevel { level }) => self.level = *level,
                    Some(Command::Drain { prefix, .. }) => {
                        self.drains.insert((*prefix).to_owned());
                    }
                    Some(Command::Undrain { prefix, .. }) => {
                        self.drains.remove(*prefix);
                    }
                    _ => {}
                }
            }
            Subject::Key(_) => {}
        }
    }

    /// Records an answer: renewals have no event.
    pub fn answered(&mut self, handles: &Handles, request: &Request<'_>, outcome: &Outcome) {
        let (Command::Renew(leases), Ok(Answer::Renewed(renewals))) =
            (&request.command, &outcome.result)
        else {
            return;
        };
        // A repeated answer is an old one and renews nothing, so only the views can tell.
        if request.id != RequestId::None {
            let named = leases.iter().filter_map(|lease| handles.resolve(self, *lease));
            let named: Vec<LeaseId> = named.map(|(id, _)| id).collect();
            self.maybe_renewed.extend(named);
            return;
        }
        for (reference, renewal) in leases.iter().zip(renewals) {
            let key = handles.resolve(self, *reference);
            if let (Some(renewal), Some((id, _))) = (renewal, key) {
                let deadline = self.deadline(renewal.ttl_ms);
                if let Some(known) = self.leases.get_mut(&id) {
                    known.deadline = deadline;
                }
            }
        }
    }

    /// Takes the deadline of a lease from the event that revokes it, if a renewal of which only the views could tell
    /// whether it took effect explains it: a lease of a revoked principal is in no view any more.
    pub fn learn_renewal(&mut self, event: &Event) {
        let (Cause::Revoked, Some(id), Some(left), Some(renewed)) =
            (event.cause, event.lease, event.left_ms, event.renewed_ms)
        else {
            return;
        };
        let ttl = self.leases.get(&id).map(|known| known.ttl);
        if self.maybe_renewed.contains(&id)
            && ttl.is_some_and(|ttl| self.left_since(ttl, renewed, left))
            && let Some(known) = self.leases.get_mut(&id)
        {
            known.deadline = self.clock.saturating_add(left);
        }
    }

    /// Corrects the ledger from the views.
    pub fn settle(&mut self, seen: &ObservedStep<'_>) {
        self.clock = seen.after.clock;
        self.level = seen.after.level;
        if !seen.whole {
            self.settle_doubtful(seen);
        }
        for lease in &seen.after.leases {
            let known = KnownLease {
                created: lease.created,
                ttl: lease.ttl_ms,
                deadline: self.clock.saturating_add(lease.left_ms),
            };
            self.leases.insert(lease.id, known);
        }
        self.handed_on = None;
        let clock = self.clock;
        self.handed_rests.retain(|_, until| *until > clock);
        let waiters = seen.after.queues.iter().flatten();
        let asked = |waiter: &WaiterView| AskedAt {
            clock: self.clock - waiter.waiting_ms,
            priority: waiter.priority,
            upgrade: upgrade::is_one(seen.after, waiter),
        };
        self.asked = waiters.clone().map(|waiter| (waiter.place, asked(waiter))).collect();
        self.groups = waiters.map(|waiter| (waiter.place, waiter.clone())).collect();
        self.drains = seen.after.drains.iter().map(|drain| drain.prefix.to_string()).collect();
        self.grants.clear();
        self.queues.clear();
        for (lock, queue) in seen.after.locks.iter().zip(&seen.after.queues) {
            for holder in &lock.holders {
                let standing = match holder.state {
                    HolderState::Held => GrantStanding::Held,
                    HolderState::Cooling { left_ms } => {
                        GrantStanding::Cooling(self.clock + left_ms)
                    }
                    HolderState::Delayed { left_ms } | HolderState::Resting { left_ms } => {
                        GrantStanding::Delayed(self.clock + left_ms)
                    }
                };
                let grant = KnownGrant {
                    lock: lock.lock.clone(),
                    lease: (holder.lease, holder.lease_created),
                    mode: holder.mode,
                    slot: holder.slot,
                    standing,
                    delay: Some(holder.lock_delay_ms),
                    rests: Some(deadline(
                        self.clock.saturating_sub(holder.held_ms),
                        promised(self.level, holder.min_hold_ms),
                    )),
                };
                self.grants.insert(holder.token, grant);
            }
            if !queue.is_empty() {
                let places = queue.iter().map(|waiter| (waiter.place, waiter.lease)).collect();
                self.queues.insert(lock.lock.clone(), places);
            }
        }
    }

    /// Ends everything, as a restore does.
    pub fn restored(&mut self, seen: &ObservedStep<'_>, stopped: StoppedFor) {
        self.restored_least(seen, stopped);
        let longest = self.leases.values().map(|lease| lease.ttl).max().unwrap_or(0);
        // A grant that keeps others out still does so after a restore, and so does the quiet period of an earlier
        // restore.
        let kept_out = seen.before.locks.iter().flat_map(|lock| &lock.holders);
        let kept_out = kept_out.map(|holder| match holder.state {
            HolderState::Held | HolderState::Resting { .. } => 0,
            HolderState::Cooling { left_ms } | HolderState::Delayed { left_ms } => left_ms,
        });
        let longest = kept_out.fold(longest.max(self.doubtful_ttl), u64::max);
        // The delay of a grant is unknown, but at most the largest lock-delay allowed.
        let delay = *Limit::LockDelayMs.range().end();
        let unknown = seen.before.limits.get(Limit::TtlMaxMs);
        // A ttl and a lock-delay may each last a millisecond longer.
        let longest = longest.max(unknown).saturating_add(delay).saturating_add(2);
        let clock = seen.after.clock;
        let most = longest.max(self.quiet_until.saturating_sub(clock));
        self.quiet_until = match stopped {
            StoppedFor::ForMs(ms) if ms < most => clock.saturating_add(most - ms),
            _ => 0,
        };
        let ended = std::mem::take(&mut self.leases);
        self.ended.extend(ended.iter().map(|(id, known)| (*id, known.created)));
        self.doubtful_ttl = 0;
        self.grants.clear();
        self.queues.clear();
    }

    /// Computes the lower bound: a lease that the ledger does not know may be as long as the limits allowed.
    fn restored_least(&mut self, seen: &ObservedStep<'_>, stopped: StoppedFor) {
        let clock = seen.after.clock;
        let limits = &seen.before.limits;
        let promised = |limit| promised(seen.before.level, limits.get(limit));
        let unknown = promised(Limit::TtlMaxMs) + promised(Limit::LockDelayMs);
        let earlier = self.quiet_least.saturating_sub(clock);
        self.quiet_least = match stopped {
            StoppedFor::ForGood => 0,
            StoppedFor::ForMs(ms) => deadline(clock, unknown.max(earlier).saturating_sub(ms)),
        };
    }

    /// Corrects the ledger after events were lost: what the views do not show has ended, unless it may only be due.
    fn settle_doubtful(&mut self, seen: &ObservedStep<'_>) {
        let shown: BTreeSet<LeaseKey> =
            seen.after.leases.iter().map(|lease| (lease.id, lease.created)).collect();
        let clock = self.clock;
        let ended = &mut self.ended;
        let doubtful = &mut self.doubtful_ttl;
        // A lease of a revoked principal is in no view, and keeps what it has until its slice comes.
        let backlog = seen.after.backlog();
        self.leases.retain(|id, known| {
            let key = (*id, known.created);
            let is_shown = shown.contains(&key);
            let is_due = !is_shown && (backlog || known.deadline <= clock);
            if is_due {
                *doubtful = known.ttl.max(*doubtful);
            } else if !is_shown {
                ended.insert(key);
            }
            is_shown || is_due && known.deadline > clock
        });
        // At the largest clock a new lease is due at once, and the event of its grant may be lost.
        let mut waiters = seen.after.queues.iter().flatten();
        let is_known = |id: LeaseId| shown.iter().any(|(known, _)| *known == id);
        if waiters.any(|waiter| !is_known(waiter.lease)) {
            *doubtful = (*doubtful).max(1);
        }
    }

    fn lease_event(&mut self, part: &ObservedCommand<'_>, id: LeaseId, cause: Cause) {
        if cause == Cause::LeaseGranted {
            let ttl = part.command.and_then(|(request, _)| new_ttl(request)).unwrap_or(0);
            let known = KnownLease { created: part.revision, ttl, deadline: self.deadline(ttl) };
            self.leases.insert(id, known);
        } else if let Some(known) = self.leases.remove(&id) {
            self.ended.insert((id, known.created));
        }
    }

    fn place_event(&mut self, lock: &Name, place: PlaceNumber, event: &Event) {
        let queue = self.queues.entry(lock.clone()).or_default();
        if event.cause == Cause::Queued {
            if let Some(lease) = event.lease {
                queue.push_back((place, lease));
                let (clock, priority) = (self.clock, event.priority.unwrap_or(0));
                let upgrade = event.reason.as_deref() == Some("upgrade");
                self.asked.entry(place).or_insert(AskedAt { clock, priority, upgrade });
            }
        } else {
            queue.retain(|(other, _)| *other != place);
        }
    }

    fn grant_event(
        &mut self,
        part: &ObservedCommand<'_>,
        lock: &Name,
        token: Token,
        event: &Event,
    ) {
        match event.cause {
            Cause::Granted => self.granted(part, lock, token, event),
            Cause::Downgraded => self.regranted(lock, token, event, Mode::Shared),
            Cause::Upgraded => self.regranted(lock, token, event, Mode::Exclusive),
            Cause::HandedOn => {
                self.handed_on = event.place;
                let given = self.grants.remove(&token).and_then(|grant| grant.rests);
                self.handed_rest = given.filter(|_| self.level >= LEVEL_REPAIRED);
            }
            Cause::Updated => {}
            cause => {
                let ends = self.clock.saturating_add(event.left_ms.unwrap_or(0));
                let cools = self.cools(part, cause, token);
                match (event.left_ms, self.grants.get_mut(&token)) {
                    (Some(_), Some(grant)) if cools => {
                        grant.standing = GrantStanding::Cooling(ends);
                    }
                    (Some(_), Some(grant)) => grant.standing = GrantStanding::Delayed(ends),
                    (None, _) => {
                        self.grants.remove(&token);
                    }
                    (Some(_), None) => {}
                }
            }
        }
    }

    /// Whether an end for this cause leaves the grant cooling rather than delayed.
    pub fn cools(&self, part: &ObservedCommand<'_>, cause: Cause, token: Token) -> bool {
        if !matches!(cause, Cause::Forced | Cause::Revoked | Cause::MaxHold | Cause::NoProgress) {
            return false;
        }
        let urgency = match part.command.map(|(request, _)| &request.command) {
            Some(Command::Force { urgency, .. }) => *urgency,
            Some(Command::Revoke { by: Revoker::Other { urgency, .. }, .. }) => *urgency,
            Some(Command::Revoke { by: Revoker::Holder, .. }) => return false,
            _ => Urgency::Cooling,
        };
        let live = self.grants.get(&token).is_some_and(|grant| self.live_key(grant.lease));
        urgency == Urgency::Cooling && live
    }

    fn granted(&mut self, part: &ObservedCommand<'_>, lock: &Name, token: Token, event: &Event) {
        let (Some(lease), Some(mode)) = (event.lease, event.mode) else { return };
        let created = self.leases.get(&lease).map_or(part.revision, |known| known.created);
        let grant = KnownGrant {
            lock: lock.clone(),
            lease: (lease, created),
            mode,
            slot: event.slot,
            standing: GrantStanding::Held,
            delay: None,
            rests: None,
        };
        self.grants.insert(token, grant);
        if self.handed_on.is_some() && self.handed_on == event.place {
            self.handed_rests.extend(self.handed_rest.take().map(|until| (token, until)));
            // Only this grant may pass others: its holder chose it.
            self.handed_on = None;
        }
        if let (Some(queue), Some(place)) = (self.queues.get_mut(lock), event.place) {
            queue.retain(|(other, _)| *other != place);
        }
    }

    /// Records that a hold has another mode, under a new token.
    fn regranted(&mut self, lock: &Name, token: Token, event: &Event, mode: Mode) {
        if let (Some(queue), Some(place)) = (self.queues.get_mut(lock), event.place) {
            queue.retain(|(other, _)| *other != place);
        }
        let old = self.grants.iter().find(|(_, grant)| {
            grant.lock == *lock
                && Some(grant.lease.0) == event.lease
                && grant.standing == GrantStanding::Held
        });
        if let Some(old) = old.map(|(token, _)| *token)
            && let Some(mut grant) = self.grants.remove(&old)
        {
            grant.mode = mode;
            self.grants.insert(token, grant);
        }
    }
}

/// How far the clock must advance before this much time has surely passed, given that the counts of entries are whole
/// milliseconds, rounded down.
fn promised(level: u16, ms: u64) -> u64 {
    if level >= LEVEL_ROUNDED_UP && ms > 0 { ms.saturating_add(1) } else { ms }
}

fn deadline(clock: u64, ms: u64) -> u64 {
    clock.saturating_add(ms).min(CLOCK_MAX)
}

fn new_ttl(request: &Request<'_>) -> Option<u64> {
    match &request.command {
        Command::GrantLease(new) => Some(new.ttl_ms),
        Command::Acquire(acquire) => match &acquire.lease {
            AskLease::New(new) => Some(new.ttl_ms),
            AskLease::Existing(_) => None,
        },
        _ => None,
    }
}
