//! Checks the promises of the cluster against recorded events.
//!
//! The checks use nothing but the events: they repeat none of the machine's code, so that a user can check a cluster by
//! what it has recorded. Where events are missing, what they would have said counts as unknown, never as a violation.

use std::collections::BTreeMap;
use std::path::PathBuf;

use tenure_core::event::{ANY, Batch, Cause, Event, FORCED_NOW, Subject, UPGRADE};
use tenure_types::{LeaseId, Mode, PlaceNumber, Revision, Token};

use super::frame::RevisionRange;
pub use super::merge::{UnreadableArchive, verify_dirs};
use super::verified_queue::VerifiedQueue;

/// The promises that are checked.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Promise {
    /// An exclusive lock has one holder, a semaphore no more than its slots.
    OneHolder,
    /// Every token is larger than all before it.
    TokensGrow,
    /// No request overtakes one that waits for the same lock.
    FirstCome,
    /// No lease, revocation or lock-delay ends before its time.
    NotEarly,
    /// Every member has the same events for the same revision.
    SameEverywhere,
    /// Every revision that an archive lacks is in a hole that it marks, or was removed by its bounds.
    NothingUnmarked,
}

impl Promise {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::OneHolder,
        Self::TokensGrow,
        Self::FirstCome,
        Self::NotEarly,
        Self::SameEverywhere,
        Self::NothingUnmarked,
    ];

    /// The promise in words.
    pub fn words(self) -> &'static str {
        match self {
            Self::OneHolder => "no two holders",
            Self::TokensGrow => "tokens only grow",
            Self::FirstCome => "first come, first served",
            Self::NotEarly => "nothing ends early",
            Self::SameEverywhere => "the same on all members",
            Self::NothingUnmarked => "nothing missing unmarked",
        }
    }
}

/// A promise that was broken.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BrokenPromise {
    /// The promise.
    pub promise: Promise,
    /// The revision that broke it.
    pub revision: Revision,
    /// A sentence about what broke it.
    pub detail: String,
}

/// How the former holder of a lock ended.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum HandoverKind {
    /// It gave the lock back, or confirmed that it has stopped.
    GivenBack,
    /// Its lease ran out.
    Expired,
    /// The lock was taken away, and its lease would have ended since.
    TakenAway,
    /// The lock was taken away without waiting for the holder: only a fence protects the resource then.
    Unprotected,
}

/// A lock that went from one holder to the next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Handover {
    /// How the former holder ended.
    pub kind: HandoverKind,
    /// The revision of the next grant.
    pub revision: Revision,
    /// The former and the next token.
    pub tokens: (Token, Token),
    /// From the last moment at which the former holder could act to the next grant, by the cluster's clock.
    pub margin_ms: i64,
}

impl Handover {
    /// The margin, if the cluster promises one: the holder neither gave the lock back, nor was it taken without
    /// waiting.
    pub fn promised_margin_ms(&self) -> Option<i64> {
        matches!(self.kind, HandoverKind::Expired | HandoverKind::TakenAway)
            .then_some(self.margin_ms)
    }

    /// Whether a negative margin breaks a promise: always, unless an operator took the lock without waiting.
    fn may_not_be_negative(&self) -> bool {
        self.kind != HandoverKind::Unprotected
    }
}

/// The last moment of a former holder.
#[derive(Clone, Copy, Debug)]
struct LastMoment {
    kind: HandoverKind,
    token: Token,
    clock_ms: u64,
}

/// Follows which holds have ended and are not followed by a grant yet.
#[derive(Default)]
pub(super) struct Handovers {
    ends: BTreeMap<(Box<str>, Option<u32>), LastMoment>,
}

impl Handovers {
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(super) fn knows(&self, lock: &str) -> bool {
        if self.ends.is_empty() {
            return false;
        }
        let from = (Box::from(lock), None);
        self.ends.range(from..).next().is_some_and(|((name, _), _)| **name == *lock)
    }

    /// Adds an event. Returns the hand-over that it completes.
    pub(super) fn add(
        &mut self,
        revision: Revision,
        clock_ms: u64,
        event: &Event,
    ) -> Option<Handover> {
        let (Subject::Lock(lock), Some(token)) = (&event.subject, event.token) else { return None };
        let key = (Box::from(lock.as_str()), event.slot);
        let stops_ms = event.renewed_ms.zip(event.ttl_ms).map(|(renewed, ttl)| renewed + ttl);
        let kind = match event.cause {
            Cause::Granted => {
                let before = self.ends.remove(&key)?;
                let margin_ms = signed(clock_ms) - signed(before.clock_ms);
                let tokens = (before.token, token);
                return Some(Handover { kind: before.kind, revision, tokens, margin_ms });
            }
            Cause::Cooled => {
                // Without a reason the deadline of the lease has passed.
                let (given, now) =
                    (event.reason.is_some(), event.reason.as_deref() == Some(FORCED_NOW));
                let taken = self.ends.get_mut(&key).filter(|end| end.token == token)?;
                if now || event.by.is_some() {
                    taken.kind = HandoverKind::Unprotected;
                } else if given {
                    (taken.kind, taken.clock_ms) = (HandoverKind::GivenBack, clock_ms);
                } else {
                    taken.kind = HandoverKind::TakenAway;
                }
                return None;
            }
            Cause::MinHoldOver => {
                // An operator who ends the rest of a lock that was taken without waiting ends its protection too.
                let ended = self.ends.get_mut(&key).filter(|end| end.token == token)?;
                if clock_ms < ended.clock_ms && (event.reason.is_some() || event.by.is_some()) {
                    ended.kind = HandoverKind::Unprotected;
                }
                return None;
            }
            Cause::Released | Cause::HandedOn => HandoverKind::GivenBack,
            Cause::Expired => HandoverKind::Expired,
            // Only an operator may choose not to wait for the holder.
            Cause::MaxHold | Cause::NoProgress => HandoverKind::TakenAway,
            // What keeps others out for a shorter time than the holder has is only a lock-delay.
            Cause::Forced | Cause::Revoked
                if event
                    .left_ms
                    .zip(stops_ms)
                    .is_some_and(|(left, stops)| clock_ms + left >= stops) =>
            {
                HandoverKind::TakenAway
            }
            Cause::Forced | Cause::Revoked => HandoverKind::Unprotected,
            _ => return None,
        };
        let clock_ms = if kind == HandoverKind::GivenBack { Some(clock_ms) } else { stops_ms };
        let Some(clock_ms) = clock_ms else {
            self.ends.remove(&key);
            return None;
        };
        // Of several holders that shared the lock, the one counts that could act last.
        let end = LastMoment { kind, token, clock_ms };
        let known = self.ends.entry(key).or_insert(end);
        if known.clock_ms <= clock_ms {
            *known = end;
        }
        None
    }
}

/// What one grant of a lock is.
#[derive(Clone, Copy, Debug)]
struct VerifiedGrant {
    token: Token,
    lease: Option<LeaseId>,
    mode: Mode,
    slot: Option<u32>,
    place: Option<PlaceNumber>,
    phase: VerifiedPhase,
}

/// Whether a grant is held, or only keeps others out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum VerifiedPhase {
    Held,
    /// Taken away: until the holder confirms, or until this clock; unknown if no event told it.
    Revoking(Option<u64>),
    Delayed(Option<u64>),
    /// Given back before its min hold was over.
    Resting(Option<u64>),
}

/// The result of a verification.
#[derive(Clone, Default, Debug)]
pub struct VerifyReport {
    /// How many revisions were checked.
    pub revisions: u64,
    /// How many grants among their events.
    pub grants: u64,
    /// The first and the last revision.
    pub range: Option<(Revision, Revision)>,
    /// Revisions that are missing in between.
    pub holes: Vec<RevisionRange>,
    /// Every hand-over, with its lock.
    pub handovers: Vec<(Box<str>, Handover)>,
    /// The promises that were broken.
    pub broken: Vec<BrokenPromise>,
    /// The archives that were read.
    pub archives: Vec<ArchiveSummary>,
    /// Files that could not be read as they were written.
    pub damaged: Vec<DamagedSegment>,
}

/// A segment of which a part, or all, cannot be read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DamagedSegment {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub detail: String,
}

/// One archive that was read.
#[derive(Clone, Default, Debug)]
pub struct ArchiveSummary {
    /// The directory of the archive.
    pub dir: PathBuf,
    /// How many revisions it has.
    pub revisions: u64,
    /// The first and the last of them.
    pub range: Option<(Revision, Revision)>,
    /// The revisions that it lacks between them.
    pub holes: Vec<RevisionRange>,
    /// The bytes of a last frame that is not complete, as a crash or a copy of a running member leaves it.
    pub incomplete_bytes: u64,
}

/// The margins of the hand-overs for which the cluster promises one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MarginSummary {
    /// The number of such hand-overs.
    pub count: usize,
    /// Half of them are at most this.
    pub p50_ms: i64,
    /// All but one in a hundred are at most this.
    pub p99_ms: i64,
    /// The smallest.
    pub min_ms: i64,
}

impl VerifyReport {
    /// The margins, summed up; none if no hand-over has one.
    pub fn margins(&self) -> Option<MarginSummary> {
        let promised = self.handovers.iter().filter_map(|(_, it)| it.promised_margin_ms());
        let mut all: Vec<i64> = promised.collect();
        all.sort_unstable();
        let at = |percent: usize| all[(all.len() * percent).div_ceil(100).max(1) - 1];
        let min_ms = *all.first()?;
        Some(MarginSummary { count: all.len(), p50_ms: at(50), p99_ms: at(99), min_ms })
    }
}

/// Checks events in the order of their revisions.
#[derive(Default)]
pub struct Verifier {
    grants: BTreeMap<Box<str>, Vec<VerifiedGrant>>,
    queues: BTreeMap<Box<str>, VerifiedQueue>,
    newest_token: Option<Token>,
    /// The newest request that is known to have asked since the last hole, and the revision in which it began to wait.
    newest_place: Option<(PlaceNumber, Revision)>,
    /// The place that a hold was handed on to last.
    handed_on: Option<PlaceNumber>,
    handovers: Handovers,
    report: VerifyReport,
}

impl Verifier {
    /// Checks the events of a revision.
    pub fn add(&mut self, batch: &Batch) {
        let revision = batch.revision;
        self.report.revisions += 1;
        let first = self.report.range.map_or(revision, |(first, _)| first);
        self.report.range = Some((first, revision));
        for event in &batch.events {
            let clock_ms = batch.label.map(|label| label.clock_ms);
            self.check(revision, clock_ms, event);
            if let (Some(clock_ms), Subject::Lock(lock)) = (clock_ms, &event.subject)
                && let Some(handover) = self.handovers.add(revision, clock_ms, event)
            {
                let name = Box::from(lock.as_str());
                if handover.may_not_be_negative() && handover.margin_ms < 0 {
                    let late = -handover.margin_ms;
                    self.broke(Promise::NotEarly, revision, format!(
                        "lock `{lock}` was granted {late} ms before its former holder had to stop"
                    ));
                }
                self.report.handovers.push((name, handover));
            }
        }
    }

    /// Declares that revisions are missing: what was known before them may have changed.
    pub fn skip(&mut self, hole: RevisionRange) {
        self.forget();
        self.report.holes.push(hole);
    }

    /// Forgets what may have changed since.
    pub(super) fn forget(&mut self) {
        self.grants.clear();
        self.queues.clear();
        self.newest_place = None;
        self.handovers = Handovers::default();
    }

    /// Notes revisions of which some events are missing.
    pub(super) fn note_hole(&mut self, hole: RevisionRange) {
        self.report.holes.push(hole);
    }

    /// Returns the result.
    pub fn finish(self) -> VerifyReport {
        self.report
    }

    pub(super) fn broke(&mut self, promise: Promise, revision: Revision, detail: String) {
        self.report.broken.push(BrokenPromise { promise, revision, detail });
    }

    fn check(&mut self, revision: Revision, clock_ms: Option<u64>, event: &Event) {
        self.check_life(revision, clock_ms, event);
        let Subject::Lock(lock) = &event.subject else { return };
        let lock = lock.as_str();
        match (event.cause, event.token, event.place) {
            (Cause::Granted, Some(token), place) => {
                self.report.grants += 1;
                self.check_token(revision, lock, token);
                // Of several slots for one request, the first has passed the queue.
                if !self.is_granted(lock, place) {
                    self.check_queue(revision, lock, place);
                }
                self.grant(revision, lock, token, event);
            }
            (Cause::Downgraded, Some(token), _) => {
                self.check_token(revision, lock, token);
                self.regrant(lock, token, event, Mode::Shared);
            }
            (Cause::Upgraded, Some(token), place) => {
                self.check_token(revision, lock, token);
                if let Some((queue, place)) = self.queues.get_mut(lock).zip(place) {
                    queue.remove(place);
                }
                self.check_alone(revision, lock, token, event);
                self.regrant(lock, token, event, Mode::Exclusive);
            }
            (Cause::Queued, _, Some(place)) if event.reason.as_deref() == Some(UPGRADE) => {
                self.queues.entry(lock.into()).or_default().add_first(place);
            }
            (Cause::Queued, _, Some(place)) => {
                let asked_ms = clock_ms.filter(|_| self.asks_now(revision, place, event));
                let queue = self.queues.entry(lock.into()).or_default();
                queue.add(place, asked_ms, event.priority.unwrap_or(0));
            }
            // Its giver chose who has it next.
            (Cause::HandedOn, Some(token), place) => {
                if let Some((queue, place)) = self.queues.get_mut(lock).zip(place) {
                    queue.choose(place);
                }
                self.handed_on = place;
                self.end(revision, lock, token, clock_ms, event);
            }
            // A waiter left, for whatever reason.
            (_, None, Some(place)) => {
                if let Some(queue) = self.queues.get_mut(lock) {
                    queue.remove(place);
                }
            }
            (_, Some(token), _) => self.end(revision, lock, token, clock_ms, event),
            _ => {}
        }
    }

    /// Whether a request that begins to wait asks in the same revision. One for any slot of a pool also joins the queue
    /// of a slot that is added later, at the position of the time at which it asked.
    fn asks_now(&mut self, revision: Revision, place: PlaceNumber, event: &Event) -> bool {
        let is_choice = event.reason.as_deref() == Some(ANY);
        let asks_now = match self.newest_place {
            // Requests are numbered in the order in which they ask.
            Some((newest, at)) => place > newest || (place, revision) == (newest, at),
            None => !is_choice,
        };
        if asks_now {
            self.newest_place = Some((place, revision));
        }
        asks_now || !is_choice
    }

    /// Notes that a hold has another mode, under another token.
    fn regrant(&mut self, lock: &str, token: Token, event: &Event, mode: Mode) {
        let grants = self.grants.get_mut(lock).into_iter().flatten();
        for grant in grants.filter(|it| it.lease == event.lease) {
            (grant.token, grant.mode) = (token, mode);
        }
    }

    /// Checks that a hold that becomes exclusive is the only one.
    fn check_alone(&mut self, revision: Revision, lock: &str, token: Token, event: &Event) {
        let mut grants = self.grants.get(lock).into_iter().flatten();
        if let Some(other) = grants.find(|it| it.lease != event.lease) {
            let detail = format!(
                "lock `{lock}` became exclusive with token {token} while token {} is there",
                other.token
            );
            self.broke(Promise::OneHolder, revision, detail);
        }
    }

    /// Whether a request has a grant of this lock already.
    fn is_granted(&self, lock: &str, place: Option<PlaceNumber>) -> bool {
        let grants = self.grants.get(lock).into_iter().flatten();
        place.is_some() && grants.into_iter().any(|grant| grant.place == place)
    }

    fn check_token(&mut self, revision: Revision, lock: &str, token: Token) {
        if let Some(newest) = self.newest_token.filter(|newest| *newest >= token) {
            let detail =
                format!("lock `{lock}` was granted with token {token} after token {newest}");
            self.broke(Promise::TokensGrow, revision, detail);
        }
        self.newest_token = self.newest_token.max(Some(token));
    }

    fn check_queue(&mut self, revision: Revision, lock: &str, place: Option<PlaceNumber>) {
        let Some((queue, place)) = self.queues.get_mut(lock).zip(place) else { return };
        if let Some(before) = queue.grant(place) {
            let (place, before) = (place.0, before.0);
            let detail =
                format!("queue position {place} got lock `{lock}` while {before} waits for it");
            self.broke(Promise::FirstCome, revision, detail);
        }
    }

    fn grant(&mut self, revision: Revision, lock: &str, token: Token, event: &Event) {
        let mode = event.mode.unwrap_or(Mode::Exclusive);
        let grants = self.grants.entry(lock.into()).or_default();
        let other = grants.iter().find(|other| match (mode, other.mode) {
            (Mode::Shared, Mode::Shared) => false,
            (Mode::Slot { .. }, Mode::Slot { .. }) => other.slot == event.slot,
            _ => true,
        });
        // A slot that is handed on stays what it was, also if the semaphore was made smaller.
        let handed_on = event.place.is_some() && self.handed_on == event.place;
        let over = matches!(mode, Mode::Slot { of, .. } if grants.len() as u64 >= u64::from(of));
        let detail = match other {
            Some(other) => {
                let state = match other.phase {
                    VerifiedPhase::Held => "is held",
                    VerifiedPhase::Revoking(_) => "is being revoked",
                    VerifiedPhase::Delayed(_) => "is in its lock-delay",
                    VerifiedPhase::Resting(_) => "rests until its min hold is over",
                };
                Some(format!(
                    "lock `{lock}` was granted with token {token} while token {} {state}",
                    other.token
                ))
            }
            None if over && !handed_on => {
                Some(format!("semaphore `{lock}` was granted beyond its slots"))
            }
            None => None,
        };
        let (lease, slot, phase) = (event.lease, event.slot, VerifiedPhase::Held);
        grants.push(VerifiedGrant { token, lease, mode, slot, place: event.place, phase });
        if let Some(detail) = detail {
            self.broke(Promise::OneHolder, revision, detail);
        }
    }

    fn end(
        &mut self,
        revision: Revision,
        lock: &str,
        token: Token,
        clock_ms: Option<u64>,
        event: &Event,
    ) {
        let Some(grants) = self.grants.get_mut(lock) else { return };
        let Some(at) = grants.iter().position(|grant| grant.token == token) else { return };
        let was = grants[at].phase;
        let until = event.left_ms.zip(clock_ms).map(|(left_ms, clock_ms)| left_ms + clock_ms);
        let next = match event.cause {
            Cause::Forced | Cause::Revoked | Cause::MaxHold | Cause::NoProgress
                if event.left_ms.is_some() =>
            {
                Some(VerifiedPhase::Revoking(until))
            }
            Cause::Expired | Cause::Cooled if event.left_ms.is_some() => {
                Some(VerifiedPhase::Delayed(until))
            }
            Cause::Released | Cause::DelayOver if event.left_ms.is_some() => {
                Some(VerifiedPhase::Resting(until))
            }
            Cause::Updated | Cause::Vacant | Cause::Queued => return,
            _ => None,
        };
        match next {
            Some(phase) => grants[at].phase = phase,
            None => drop(grants.swap_remove(at)),
        }
        if grants.is_empty() {
            self.grants.remove(lock);
        }
        // A revocation, a lock-delay and a rest end at their time, unless an event tells why they ended before.
        let told = event.reason.is_some() || event.by.is_some();
        let due = match (event.cause, was) {
            (Cause::Cooled, VerifiedPhase::Revoking(until)) if !told => until,
            (Cause::DelayOver, VerifiedPhase::Delayed(until) | VerifiedPhase::Revoking(until)) => {
                until
            }
            // After an end that the holder did not ask for, events do not tell a lock-delay from a rest.
            (
                Cause::MinHoldOver,
                VerifiedPhase::Resting(until)
                | VerifiedPhase::Delayed(until)
                | VerifiedPhase::Revoking(until),
            ) if !told => until,
            _ => None,
        };
        if let Some((due, clock_ms)) = due.zip(clock_ms).filter(|(due, clock_ms)| clock_ms < due) {
            let early = due - clock_ms;
            let what = match event.cause {
                Cause::Cooled => "the revocation",
                Cause::MinHoldOver => "the min hold",
                _ => "the lock-delay",
            };
            let detail = format!("{what} of lock `{lock}` ended {early} ms early");
            self.broke(Promise::NotEarly, revision, detail);
        }
    }

    /// Checks that a lease did not run out before its time.
    fn check_life(&mut self, revision: Revision, clock_ms: Option<u64>, event: &Event) {
        let (Cause::Expired, Some(clock_ms)) = (event.cause, clock_ms) else { return };
        let Some((ttl_ms, renewed_ms)) = event.ttl_ms.zip(event.renewed_ms) else { return };
        if clock_ms < renewed_ms + ttl_ms {
            let early = renewed_ms + ttl_ms - clock_ms;
            let client = event.client.as_ref().map_or("", |client| client.as_str());
            let detail =
                format!("the lease of `{client}` expired {early} ms before its ttl was over");
            self.broke(Promise::NotEarly, revision, detail);
        }
    }
}

fn signed(ms: u64) -> i64 {
    i64::try_from(ms).unwrap_or(i64::MAX)
}
