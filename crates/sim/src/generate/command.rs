//! Generates commands, and chooses their leases, locks and tokens.
//!
//! Most commands are about the present state; some are late and name something of the past.

use tenure_core::request::{
    AskWait, LEVEL_ANY, LEVEL_MIN_HOLD, LEVEL_POLICY, LEVEL_PRIORITY, LEVEL_PROGRESS, LEVEL_SHARES,
    LeaseRef, Purpose, Urgency,
};
use tenure_core::view::HolderView;
use tenure_types::{HolderState, LeaseId, Limit, Mode, PlaceNumber, Revision, Token};

use super::memory::{PastGrant, pick};
use super::step::{
    OwnedAcquire, OwnedAskLease, OwnedCommand, OwnedExpect, OwnedHold, OwnedId, OwnedLease,
    OwnedRequest,
};
use super::{CommandKind, Generator, absurd, access};
use crate::observe::ObservedState;

/// Few ttls, so that several things are due at the same time.
const TTLS: [u64; 5] = [1_000, 1_500, 2_000, 3_000, 5_000];

/// The ttl where waiters are to grow old: longer than any of them can be passed.
const PATIENT_TTL: u64 = 600_000;

/// A request of this kind.
pub(super) fn request(
    made: &mut Generator,
    view: &ObservedState,
    kind: CommandKind,
) -> OwnedRequest {
    match kind {
        CommandKind::Absurd => return absurd::request(made, view),
        CommandKind::Retry => {
            if let Some(request) = retry(made, view) {
                return request;
            }
        }
        _ => {}
    }
    let command = command(made, view, kind);
    let mut request = OwnedRequest::plain(command);
    if kind == CommandKind::Abandon
        && let OwnedCommand::Abandon { ask, place, .. } = &request.command
        && let Some(past) = made.memory.asks.iter().find(|it| it.place == *place && it.id == *ask)
    {
        request.principal = past.principal.clone();
        // Mostly without a request id, so that an ask that was taken back can be taken back once more.
        if made.rng.u32(..6) > 0 {
            return request;
        }
        // A request numbered by its lease keeps the principal.
        let principal = std::mem::take(&mut request.principal);
        identify(made, view, &mut request);
        if !matches!(request.id, OwnedId::Key(_)) {
            request.principal = principal;
        }
        return request;
    }
    if made.rng.u32(..100) < made.swarm.ids {
        identify(made, view, &mut request);
    }
    request
}

fn command(made: &mut Generator, view: &ObservedState, kind: CommandKind) -> OwnedCommand {
    match kind {
        CommandKind::GrantLease => OwnedCommand::GrantLease(new_lease(made)),
        CommandKind::Renew => {
            let many = made.rng.usize(1..=3);
            OwnedCommand::Renew((0..many).map(|_| lease_ref(made, view)).collect())
        }
        CommandKind::Revoke => OwnedCommand::Revoke {
            lease: lease_ref(made, view),
            other: made.rng.bool().then(|| {
                let (reason, urgency) = (reason(made), urgency(made));
                (who(&reason).to_owned(), reason, urgency)
            }),
        },
        CommandKind::Release => OwnedCommand::Release(hold(made, view)),
        CommandKind::Leave => leave(made, view),
        CommandKind::Downgrade => OwnedCommand::Downgrade(hold(made, view)),
        // Few numbers, so that some are not larger than the one before.
        CommandKind::Progress => {
            OwnedCommand::Progress { hold: hold(made, view), number: made.rng.u64(..8) }
        }
        CommandKind::Upgrade => super::hand_on::upgrade(made, view),
        CommandKind::HandOn => super::hand_on::hand_on(made, view),
        CommandKind::Update => {
            OwnedCommand::Update { hold: hold(made, view), metadata: metadata(made) }
        }
        CommandKind::Force => {
            let grant = grant(made, view);
            let (reason, urgency) = (reason(made), urgency(made));
            let by = who(&reason).to_owned();
            OwnedCommand::Force { lock: grant.lock, token: grant.token, by, reason, urgency }
        }
        CommandKind::Stopped => stopped(made, view),
        CommandKind::Put => put(made, view),
        CommandKind::Delete => OwnedCommand::Delete {
            key: key(made),
            expect: expect(made, view),
            guard: guard(made, view),
        },
        CommandKind::SetLimits => OwnedCommand::SetLimits(some_limits(made, view)),
        CommandKind::Compact => {
            let span = view.revision.0.saturating_sub(view.floor.0) + 3;
            OwnedCommand::Compact { keep: Revision(view.floor.0 + made.rng.u64(..span)) }
        }
        CommandKind::RaiseLevel => {
            OwnedCommand::RaiseLevel { level: made.rng.u16(1..=tenure_core::LEVEL_MAX) }
        }
        CommandKind::SetAccess => access::change(made),
        CommandKind::Drain => {
            let (prefix, reason) = (prefix(made), reason(made));
            OwnedCommand::Drain { prefix, by: who(&reason).to_owned(), reason }
        }
        CommandKind::Undrain => {
            let drained = pick(&mut made.rng, &view.drains).map(|drain| drain.prefix.to_string());
            let prefix = drained.unwrap_or_else(|| prefix(made));
            let by = who(&reason(made)).to_owned();
            OwnedCommand::Undrain { prefix, by }
        }
        CommandKind::Resize => {
            // Mostly a semaphore with a queue: the others have no waiter to grant or to end.
            let waited = view.locks.iter().filter(|lock| lock.slots.is_some() && lock.waiting > 0);
            let waited: Vec<&str> = waited.map(|lock| lock.lock.as_str()).collect();
            let lock = match pick(&mut made.rng, &waited).filter(|_| made.rng.u32(..4) > 0) {
                Some(lock) => (*lock).to_owned(),
                None => any_lock(made),
            };
            let slots = (made.rng.u32(..5) > 0).then(|| made.rng.u32(0..=6));
            let by = who(&reason(made)).to_owned();
            OwnedCommand::Resize { lock, slots, by }
        }
        CommandKind::Abandon => abandon(made, view),
        CommandKind::Acquire | CommandKind::Retry | CommandKind::Absurd | CommandKind::Raw => {
            OwnedCommand::Acquire(acquire(made, view))
        }
    }
}

/// The beginning of the name of a lock, in whole characters; sometimes of all locks, or of one.
fn prefix(made: &mut Generator) -> String {
    let locks = &made.swarm.locks;
    let (lock, _) = &locks[made.rng.usize(..locks.len())];
    let many = lock.chars().count();
    let len = if made.rng.u32(..6) == 0 { 0 } else { made.rng.usize(1..=many) };
    lock.chars().take(len).collect()
}

/// Takes an ask back: mostly one that was answered, sometimes combined with a part of another one.
fn abandon(made: &mut Generator, view: &ObservedState) -> OwnedCommand {
    // Sometimes of a hold with a min hold: what becomes of that depends on how the hold came about.
    let holders = view.locks.iter().flat_map(|lock| &lock.holders);
    let long: Vec<&HolderView> = holders.filter(|holder| holder.min_hold_ms > 0).collect();
    if made.rng.u32(..3) == 0
        && let Some(holder) = pick(&mut made.rng, &long)
    {
        let lease = reference(made, view, holder.lease, holder.lease_created);
        return OwnedCommand::Abandon { ask: OwnedId::None, lease, place: holder.place };
    }
    let past = pick(&mut made.rng, &made.memory.asks).cloned();
    let Some(past) = past else {
        let (lease, place) = (lease_ref(made, view), PlaceNumber(1));
        return OwnedCommand::Abandon { ask: OwnedId::None, lease, place };
    };
    let by_handle = made.rng.u32(..100) < made.swarm.handles;
    let (id, handle) = past.lease;
    let mut lease = if by_handle { LeaseRef::Handle(handle) } else { LeaseRef::Id(id) };
    let (mut ask, mut place) = (past.id, past.place);
    match made.rng.u32(..30) {
        0 => lease = lease_ref(made, view),
        1 => place = PlaceNumber(place.0 + 1),
        2 => ask = OwnedId::None,
        _ => {}
    }
    OwnedCommand::Abandon { ask, lease, place }
}

/// Repeats an earlier request, unchanged or with a change.
fn retry(made: &mut Generator, view: &ObservedState) -> Option<OwnedRequest> {
    let mut request = pick(&mut made.rng, &made.memory.requests)?.clone();
    match made.rng.u32(..8) {
        0 => request.command = command(made, view, CommandKind::Release),
        1 => {
            if let OwnedCommand::Acquire(acquire) = &mut request.command {
                acquire.wait = AskWait::Limit { ms: 700 };
            }
        }
        2 => {
            if let OwnedId::Seq { done, seq, .. } = &mut request.id {
                *done = if made.rng.bool() { *seq } else { seq.saturating_sub(1) };
            }
        }
        _ => {}
    }
    Some(request)
}

fn identify(made: &mut Generator, view: &ObservedState, request: &mut OwnedRequest) {
    if made.rng.u32(..3) == 0 {
        made.memory.next_key += 1;
        // Few keys and two principals: the same key under another principal is another request.
        let number = made.memory.next_key - made.rng.u64(..=1).min(made.memory.next_key - 1);
        request.id = OwnedId::Key(format!("r{number}"));
        request.principal = ["", "p", "q"][made.rng.usize(..3)].to_owned();
        return;
    }
    let Some(lease) = pick(&mut made.rng, &view.leases) else { return };
    let seq = made.memory.next_seq(lease.id, lease.created);
    let done = if made.rng.u32(..3) == 0 { seq.saturating_sub(made.rng.u64(1..4)) } else { 0 };
    let by_handle = made.rng.u32(..100) < made.swarm.handles;
    let reference = if by_handle { LeaseRef::Handle(lease.handle) } else { LeaseRef::Id(lease.id) };
    request.id = OwnedId::Seq { lease: reference, seq, done };
}

/// A lease to be granted, mostly with one of few ids, so that ids are used again.
pub(super) fn new_lease(made: &mut Generator) -> OwnedLease {
    let client = made.rng.usize(..made.swarm.clients);
    let number = client as u64 + 1 + if made.rng.u32(..4) == 0 { 10 } else { 0 };
    let patient = made.swarm.patient;
    OwnedLease {
        id: LeaseId::new(number).expect("small and positive"),
        // Mostly one ttl per client: a lease that is asked for twice must be the same to be answered.
        ttl_ms: if patient {
            PATIENT_TTL
        } else if made.rng.u32(..5) == 0 {
            TTLS[made.rng.usize(..TTLS.len())]
        } else {
            TTLS[client % TTLS.len()]
        },
        client: format!("c{client}"),
        metadata: if made.rng.u32(..10) == 0 { metadata(made) } else { Vec::new() },
    }
}

/// A reference to a lease by id or handle, mostly to a live one.
pub(super) fn lease_ref(made: &mut Generator, view: &ObservedState) -> LeaseRef {
    let by_handle = made.rng.u32(..100) < made.swarm.handles;
    let stale = made.rng.u32(..100) < made.swarm.stale;
    let found = if stale || view.leases.is_empty() {
        pick(&mut made.rng, &made.memory.leases).map(|(id, _, handle)| (*id, *handle))
    } else {
        pick(&mut made.rng, &view.leases).map(|lease| (lease.id, lease.handle))
    };
    match found {
        Some((_, handle)) if by_handle => LeaseRef::Handle(handle),
        Some((id, _)) => LeaseRef::Id(id),
        None => LeaseRef::Id(LeaseId::new(1).expect("one is positive")),
    }
}

/// A reference to a lease by id, or by its handle if it is still live.
pub(super) fn reference(
    made: &mut Generator,
    view: &ObservedState,
    lease: LeaseId,
    created: Revision,
) -> LeaseRef {
    if made.rng.u32(..100) < made.swarm.handles {
        let known = &made.memory.leases;
        let past = known.iter().find(|(id, since, _)| (*id, *since) == (lease, created));
        let live = view.leases.iter().find(|live| (live.id, live.created) == (lease, created));
        if let Some(handle) = live.map(|live| live.handle).or(past.map(|past| past.2)) {
            return LeaseRef::Handle(handle);
        }
    }
    LeaseRef::Id(lease)
}

/// A grant: mostly one in force, sometimes one of the past.
fn grant(made: &mut Generator, view: &ObservedState) -> PastGrant {
    let stale = made.rng.u32(..100) < made.swarm.stale;
    if !stale {
        let all: usize = view.locks.iter().map(|lock| lock.holders.len()).sum();
        if all > 0 {
            let index = made.rng.usize(..all);
            let grants = view
                .locks
                .iter()
                .flat_map(|lock| lock.holders.iter().map(move |holder| (lock, holder)));
            if let Some((lock, holder)) = grants.skip(index).take(1).next() {
                return PastGrant {
                    lock: lock.lock.as_str().to_owned(),
                    token: holder.token,
                    lease: holder.lease,
                    created: holder.lease_created,
                };
            }
        }
    }
    if let Some(grant) = made.memory.grant(&mut made.rng) {
        return grant.clone();
    }
    PastGrant {
        lock: made.swarm.locks[0].0.clone(),
        token: Token::from_u64(1).expect("one is not zero"),
        lease: LeaseId::new(1).expect("one is positive"),
        created: Revision(1),
    }
}

pub(super) fn hold(made: &mut Generator, view: &ObservedState) -> OwnedHold {
    let grant = grant(made, view);
    let mut lease = reference(made, view, grant.lease, grant.created);
    let mut lock = grant.lock;
    // Use the right token with the wrong lease, or for the wrong lock.
    match made.rng.u32(..25) {
        0 => lease = lease_ref(made, view),
        1 => lock = any_lock(made),
        _ => {}
    }
    OwnedHold { lease, lock, token: grant.token }
}

fn leave(made: &mut Generator, view: &ObservedState) -> OwnedCommand {
    let waiting: Vec<_> = view.leases.iter().filter(|lease| !lease.waits.is_empty()).collect();
    if let Some(lease) = pick(&mut made.rng, &waiting)
        && made.rng.u32(..4) > 0
    {
        let lock = pick(&mut made.rng, &lease.waits).map(|(_, lock)| lock.as_str().to_owned());
        let lock = lock.unwrap_or_default();
        let lease = reference(made, view, lease.id, lease.created);
        return OwnedCommand::Leave { lease, lock };
    }
    let grant = grant(made, view);
    let lease = if made.rng.bool() {
        reference(made, view, grant.lease, grant.created)
    } else {
        lease_ref(made, view)
    };
    OwnedCommand::Leave { lease, lock: grant.lock }
}

fn stopped(made: &mut Generator, view: &ObservedState) -> OwnedCommand {
    let cooling: Vec<PastGrant> = view
        .locks
        .iter()
        .flat_map(|lock| lock.holders.iter().map(move |holder| (lock, holder)))
        .filter(|(_, holder)| matches!(holder.state, HolderState::Cooling { .. }))
        .map(|(lock, holder)| PastGrant {
            lock: lock.lock.as_str().to_owned(),
            token: holder.token,
            lease: holder.lease,
            created: holder.lease_created,
        })
        .collect();
    let found = pick(&mut made.rng, &cooling).cloned();
    let mut grant = found.unwrap_or_else(|| grant(made, view));
    match made.rng.u32(..16) {
        0 => grant.created = grant.created.next(),
        1 => grant.lock = any_lock(made),
        2 => grant.lease = new_lease(made).id,
        _ => {}
    }
    let PastGrant { lock, token, lease, created } = grant;
    OwnedCommand::Stopped { lease, created, lock, token }
}

fn acquire(made: &mut Generator, view: &ObservedState) -> OwnedAcquire {
    let swarm = made.swarm.clone();
    let rng = &mut made.rng;
    let multi = rng.u32(..100) < swarm.multi;
    let many = if multi { rng.usize(2..=3.min(swarm.locks.len())) } else { 1 };
    let mut choice: Vec<usize> = (0..swarm.locks.len()).collect();
    rng.shuffle(&mut choice);
    let mut locks: Vec<(String, Mode)> = choice
        .iter()
        .take(many)
        .map(|index| {
            let (name, slots) = &swarm.locks[*index];
            let mode = match slots {
                _ if rng.u32(..40) == 0 => Mode::slot(rng.u32(1..=3)),
                Some(_) if rng.u32(..40) == 0 => Mode::Exclusive,
                Some(of) => Mode::slot(*of),
                None if rng.u32(..100) < swarm.shared => Mode::Shared,
                None => Mode::Exclusive,
            };
            let shared = swarm.shares > 0 && rng.u32(..100) < swarm.shares;
            let known = shared && (view.level >= LEVEL_SHARES || rng.u32(..20) == 0);
            match mode {
                // Sometimes one more than there are.
                Mode::Slot { of, .. } if known => {
                    (name.clone(), Mode::Slot { of, take: rng.u32(1..=of + 1).min(rng.u32(1..=6)) })
                }
                _ => (name.clone(), mode),
            }
        })
        .collect();
    let wait = match () {
        () if rng.u32(..100) < swarm.tries => {
            if rng.bool() {
                AskWait::No
            } else {
                AskWait::Limit { ms: 0 }
            }
        }
        () if rng.u32(..100) < swarm.limited => AskWait::Limit { ms: rng.u64(1..30) * 100 },
        () => AskWait::Unlimited,
    };
    let lock_delay_ms = if rng.u32(..100) < swarm.delay { rng.u64(1..20) * 100 } else { 0 };
    let max_hold_ms = (rng.u32(..100) < swarm.max_hold).then(|| rng.u64(8..80) * 100);
    // Below the level of min holds most sequences would be refused most of the time.
    let min_hold = rng.u32(..100) < swarm.min_hold;
    let known = view.level >= LEVEL_MIN_HOLD || rng.u32(..20) == 0;
    let min_hold_ms = if min_hold && known { rng.u64(1..60) * 100 } else { 0 };
    let grouped = rng.u32(..100) < swarm.supersede;
    let known = view.level >= LEVEL_POLICY || rng.u32(..20) == 0;
    let group = ["web", "api"][rng.usize(..2)];
    let supersede = (grouped && known).then(|| group.to_owned());
    let resume = known && rng.u32(..20) == 0;
    let urgent = swarm.priority > 0 && rng.u32(..100) < swarm.priority;
    let known = urgent && (view.level >= LEVEL_PRIORITY || rng.u32(..20) == 0);
    let priority = if known { [1, 1, 2, 9][rng.usize(..4)] } else { 0 };
    let promises = swarm.progress > 0 && rng.u32(..100) < swarm.progress;
    let known = promises && (view.level >= LEVEL_PROGRESS || rng.u32(..20) == 0);
    let progress_within_ms = if known { rng.u64(1..40) * 100 } else { 0 };
    let choice = swarm.choices > 0 && rng.u32(..100) < swarm.choices;
    let any = choice && (view.level >= LEVEL_ANY || rng.u32(..20) == 0);
    let pool = any && rng.u32(..100) < swarm.pools;
    let purpose = if rng.u32(..100) < swarm.elections { Purpose::Election } else { Purpose::Lock };
    let independent = rng.u32(..100) < swarm.independent;
    let new = rng.u32(..100) < swarm.new_lease || view.leases.is_empty();
    let lease = if new {
        OwnedAskLease::New(new_lease(made))
    } else {
        OwnedAskLease::Existing(lease_ref(made, view))
    };
    let metadata = if made.rng.u32(..4) == 0 { metadata(made) } else { Vec::new() };
    if pool {
        let take = if made.rng.u32(..5) == 0 { 2 } else { 1 };
        locks = vec![(prefix(made), Mode::Slot { of: 1, take })];
    }
    OwnedAcquire {
        lease,
        locks,
        any: any && !pool,
        pool,
        wait,
        metadata,
        lock_delay_ms,
        max_hold_ms,
        min_hold_ms,
        progress_within_ms,
        supersede,
        resume,
        priority,
        purpose,
        independent,
    }
}

fn put(made: &mut Generator, view: &ObservedState) -> OwnedCommand {
    // Sometimes use a large value: the only way to a full state in few commands.
    let value = if made.rng.u32(..12) == 0 { vec![b'v'; 20_000] } else { metadata(made) };
    OwnedCommand::Put {
        key: key(made),
        value,
        lease: made.rng.bool().then(|| lease_ref(made, view)),
        expect: expect(made, view),
        guard: guard(made, view),
    }
}

fn key(made: &mut Generator) -> String {
    pick(&mut made.rng, &made.swarm.keys).cloned().unwrap_or_default()
}

fn any_lock(made: &mut Generator) -> String {
    pick(&mut made.rng, &made.swarm.locks).map(|(lock, _)| lock.clone()).unwrap_or_default()
}

fn expect(made: &mut Generator, view: &ObservedState) -> OwnedExpect {
    let key = pick(&mut made.rng, &view.keys);
    match (made.rng.u32(..10), key) {
        (0, _) => OwnedExpect::Absent,
        (1, Some(key)) => OwnedExpect::Modified(key.modified),
        (2, Some(key)) => OwnedExpect::Value(key.value.to_vec()),
        (3, _) => OwnedExpect::Value(metadata(made)),
        (4, _) => OwnedExpect::Modified(view.revision),
        _ => OwnedExpect::Any,
    }
}

fn guard(made: &mut Generator, view: &ObservedState) -> Option<(String, Token)> {
    (made.rng.u32(..100) < made.swarm.guards).then(|| {
        let grant = grant(made, view);
        (grant.lock, grant.token)
    })
}

fn metadata(made: &mut Generator) -> Vec<u8> {
    let len = made.rng.usize(..6);
    vec![b'm'; len]
}

fn reason(made: &mut Generator) -> String {
    ["", "stuck", "deploy"][made.rng.usize(..3)].to_owned()
}

/// The name that goes with a reason, so that there are callers without a reason, without a name, and with both.
fn who(reason: &str) -> &'static str {
    match reason {
        "" => "ana",
        "stuck" => "ops@host",
        _ => "",
    }
}

fn urgency(made: &mut Generator) -> Urgency {
    if made.rng.u32(..3) == 0 { Urgency::Now } else { Urgency::Cooling }
}

/// Limits that a short sequence hits.
pub(super) fn tight_limits(made: &mut Generator, view: &ObservedState) -> Vec<(Limit, u64)> {
    let many = made.rng.usize(1..=5);
    (0..many).map(|_| one_limit(made, view)).collect()
}

fn some_limits(made: &mut Generator, view: &ObservedState) -> Vec<(Limit, u64)> {
    let many = made.rng.usize(..=3);
    (0..many)
        .map(|_| {
            let (limit, value) = one_limit(made, view);
            // Return to the default half of the time, or everything ends up refused.
            (limit, if made.rng.bool() { limit.default_value() } else { value })
        })
        .collect()
}

fn one_limit(made: &mut Generator, view: &ObservedState) -> (Limit, u64) {
    let rng = &mut made.rng;
    // History bytes stay at their default: the machine alone defines how they are counted.
    match rng.u32(..17) {
        0 => (Limit::WaitersPerLock, rng.u64(0..=3)),
        1 => (Limit::Leases, rng.u64(1..=4)),
        2 => (Limit::LocksPerLease, rng.u64(1..=4)),
        3 => (Limit::KeysPerLease, rng.u64(0..=2)),
        4..=6 => (Limit::EndsPerEntry, rng.u64(1..=3)),
        7 => (Limit::HistoryRevisions, rng.u64(3..=12)),
        8 => (Limit::StateBytes, 65_536.max(view.state_bytes / 2)),
        9 => (Limit::Requests, rng.u64(0..=3)),
        10 => (Limit::RequestBytes, rng.u64(0..=400)),
        11 => (Limit::LocksPerAsk, rng.u64(1..=2)),
        12 => (Limit::MetadataBytes, rng.u64(0..=4)),
        13 => (Limit::TtlMaxMs, rng.u64(1..=4) * 1_000),
        14 => (Limit::LockDelayMs, rng.u64(0..=10) * 100),
        15 => (Limit::NameBytes, rng.u64(1..=35)),
        _ => (Limit::WaitMs, rng.u64(1..=20) * 100),
    }
}
