//! Draws upgrades of shared holds, and holds that are handed on.

use tenure_core::request::AskWait;
use tenure_core::view::WaiterView;
use tenure_types::{HolderState, Mode};

use super::Generator;
use super::command::{hold, lease_ref, reference};
use super::memory::pick;
use super::step::{OwnedCommand, OwnedHold};
use crate::observe::ObservedState;

/// An upgrade, mostly of a shared hold.
pub(super) fn upgrade(made: &mut Generator, view: &ObservedState) -> OwnedCommand {
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
