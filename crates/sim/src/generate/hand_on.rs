//! Draws upgrades of shared holds, and holds that are handed on.

use tenure_core::request::{AskWait, LeaseRef, Purpose};
use tenure_core::view::{HolderView, LockView, WaiterView};
use tenure_types::{HolderState, Mode};

use super::Generator;
use super::command::{hold, lease_ref, reference};
use super::memory::pick;
use super::step::{OwnedAcquire, OwnedAskLease, OwnedCommand, OwnedHold};
use crate::observe::ObservedState;

/// An upgrade, mostly of a shared hold.
pub(super) fn upgrade(made: &mut Generator, view: &ObservedState) -> OwnedCommand {
    if made.rng.bool()
        && let Some(step) = step_into_ring(made, view)
    {
        return step;
    }
    let held = |state: HolderState| state == HolderState::Held;
    let shared: Vec<_> = view
        .locks
        .iter()
        .flat_map(|lock| lock.holders.iter().map(move |holder| (lock, holder)))
        .filter(|(_, holder)| holder.mode == Mode::Shared && held(holder.state))
        .collect();
    let found = pick(&mut made.rng, &shared).filter(|_| made.rng.u32(..12) > 0);
    let (lease, lock) = match found {
        Some((lock, holder)) => {
            let lease = reference(made, view, holder.lease, holder.lease_created);
            (lease, lock.lock.as_str().to_owned())
        }
        None => {
            let lock = hold(made, view).lock;
            (lease_ref(made, view), lock)
        }
    };
    let wait = match made.rng.u32(..8) {
        0 => AskWait::No,
        1 => AskWait::Limit { ms: 0 },
        2 | 3 => AskWait::Limit { ms: made.rng.u64(1..30) * 100 },
        _ => AskWait::Unlimited,
    };
    let (resume, independent) = (made.rng.u32(..20) == 0, made.rng.u32(..5) == 0);
    OwnedCommand::Upgrade { lease, lock, wait, resume, independent }
}

/// A step towards a ring that an upgrade closes, if there is one to take. One lease is the only holder of a lock and
/// shares it. Another one waits to share it, and for a second lock that a third one holds. Then the first one waits for
/// a lock of the second one, and at last wants to be the only holder.
fn step_into_ring(made: &mut Generator, view: &ObservedState) -> Option<OwnedCommand> {
    let (mut first, mut second, mut third) = (Vec::new(), Vec::new(), Vec::new());
    for (lock, queue) in view.locks.iter().zip(&view.queues) {
        let [holder] = &lock.holders[..] else { continue };
        if holder.mode != Mode::Shared || holder.state != HolderState::Held {
            continue;
        }
        let Some(waiter) = queue.first() else {
            first.push((lock, holder));
            continue;
        };
        if waiter.mode != Mode::Shared || waiter.lease == holder.lease {
            continue;
        }
        for (other, waiting) in view.locks.iter().zip(&view.queues) {
            let theirs = other.holders.iter().any(|it| it.lease == waiter.lease);
            if theirs && other.lock != lock.lock {
                match waiting.iter().any(|it| it.lease == holder.lease) {
                    true => third.push((lock, holder)),
                    false => second.push((other, holder)),
                }
            }
        }
    }
    if let Some((lock, holder)) = pick(&mut made.rng, &third) {
        let lease = reference(made, view, holder.lease, holder.lease_created);
        let (lock, independent) = (lock.lock.as_str().to_owned(), made.rng.u32(..8) == 0);
        let wait = AskWait::Unlimited;
        return Some(OwnedCommand::Upgrade { lease, lock, wait, resume: false, independent });
    }
    if let Some((other, holder)) = pick(&mut made.rng, &second) {
        let lease = reference(made, view, holder.lease, holder.lease_created);
        let mode = other.slots.map_or(Mode::Exclusive, Mode::slot);
        return Some(waiting(lease, vec![(other.lock.as_str().to_owned(), mode)]));
    }
    let (lock, holder) = pick(&mut made.rng, &first)?;
    // Who is to wait holds a lock, and another lock is held by neither of the two.
    let held = |it: &LockView| it.lock != lock.lock && it.slots.is_none() && it.holders.len() == 1;
    let others: Vec<&LockView> = view.locks.iter().filter(|it| held(it)).collect();
    let theirs: Vec<&HolderView> = others.iter().flat_map(|it| &it.holders).collect();
    let waiter = pick(&mut made.rng, &theirs).filter(|it| it.lease != holder.lease)?;
    let apart = |it: &&&LockView| {
        it.holders.iter().all(|it| it.lease != holder.lease && it.lease != waiter.lease)
    };
    let blocks: Vec<&LockView> = others.iter().filter(apart).copied().collect();
    let blocks = pick(&mut made.rng, &blocks)?;
    let lease = reference(made, view, waiter.lease, waiter.lease_created);
    let name = |it: &LockView| it.lock.as_str().to_owned();
    Some(waiting(lease, vec![(name(lock), Mode::Shared), (name(blocks), Mode::Exclusive)]))
}

/// A plain request that waits for these locks.
fn waiting(lease: LeaseRef, locks: Vec<(String, Mode)>) -> OwnedCommand {
    OwnedCommand::Acquire(OwnedAcquire {
        lease: OwnedAskLease::Existing(lease),
        locks,
        any: false,
        pool: false,
        wait: AskWait::Unlimited,
        metadata: Vec::new(),
        lock_delay_ms: 0,
        max_hold_ms: None,
        min_hold_ms: 0,
        progress_within_ms: 0,
        supersede: None,
        resume: false,
        priority: 0,
        purpose: Purpose::Lock,
        independent: false,
    })
}

/// A hold and a receiver: mostly one that waits for the lock.
pub(super) fn hand_on(made: &mut Generator, view: &ObservedState) -> OwnedCommand {
    let mut awaited = Vec::new();
    for (lock, queue) in view.locks.iter().zip(&view.queues) {
        for holder in &lock.holders {
            let fits = |waiter: &&WaiterView| waiter.mode == holder.mode && waiter.locks.len() == 1;
            let picky = made.rng.u32(..4) > 0;
            let waiters = queue.iter().filter(|waiter| !picky || fits(waiter));
            awaited.extend(waiters.map(|waiter| (lock, holder, waiter)));
        }
    }
    // What is left of a min hold goes on with the receiver.
    if made.rng.bool() && awaited.iter().any(|(_, holder, _)| holder.min_hold_ms > 0) {
        awaited.retain(|(_, holder, _)| holder.min_hold_ms > 0);
    }
    let found = pick(&mut made.rng, &awaited).filter(|_| made.rng.u32(..12) > 0);
    if let Some((lock, holder, waiter)) = found {
        let lease = reference(made, view, holder.lease, holder.lease_created);
        let hold = OwnedHold { lease, lock: lock.lock.as_str().to_owned(), token: holder.token };
        return OwnedCommand::HandOn { hold, to: waiter.lease };
    }
    let to = pick(&mut made.rng, &view.leases).map(|lease| lease.id);
    let hold = hold(made, view);
    OwnedCommand::HandOn { hold, to: to.unwrap_or(super::command::new_lease(made).id) }
}
