//! Finds locks by more than the beginning of their names.
//!
//! Only the order of names is indexed, so a search reads locks one after the other: a bounded number for each page, and
//! of those a bounded number in each turn of the event loop. A page may have fewer locks than were asked for and still
//! say where to go on.

use std::ops::ControlFlow;

use serde::Deserialize;
use tenure_core::view::LockView;
use tenure_core::{Machine, SortedLocks};
use tenure_types::{HolderState, Revision};
use tenure_wire::{Failure, v1};
use utoipa::ToSchema;

use super::encode;
use super::query::{failed, page};
use crate::dispatch::{Dispatch, Principal, ReadConsistency, ReadScope, WITHIN};

/// How many locks one turn of the event loop reads, and how many of them at a time. The turn ends earlier if these have
/// so many holders, and so many waiters were compared.
const TURN: usize = 1_000;
const PART: usize = 8;
const COST_MAX: usize = 8_192;
/// In how many turns a page is read.
const TURNS_MAX: usize = 20;
/// How many names one turn sorts.
pub(super) const SORTED_MAX: usize = 4_096;
/// How many waiters of a lock are compared with the client that is searched for.
const WAITERS_MAX: usize = 100;
/// When to try again if names came faster than they were sorted.
const RETRY_MS: u64 = 1_000;
/// The size at which a page is cut.
const PAGE_BYTES: usize = 1024 * 1024;

/// The state of a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LockState {
    /// A lease holds it.
    Held,
    /// Someone waits for it.
    Awaited,
    /// It was taken away and may not be granted again yet, or its lock-delay runs.
    Revoking,
}

/// What to search for.
#[derive(Clone, Debug, Default)]
pub(crate) struct LockSearch {
    pub(crate) prefix: String,
    /// A part of the lock's name, in lowercase.
    pub(crate) contains: Option<String>,
    pub(crate) client: Option<String>,
    pub(crate) state: Option<LockState>,
    pub(crate) waiting_ms: Option<u64>,
    pub(crate) election: Option<bool>,
}

/// A page of what was found.
pub(crate) struct LocksFound {
    pub(crate) locks: Vec<v1::LockView>,
    pub(crate) next: Option<String>,
    pub(crate) revision: Revision,
}

/// What one turn found, and the last name that it read if there are more.
struct Turn {
    found: Vec<LockView>,
    read_to: Option<String>,
}

impl LockSearch {
    /// Finds the next page of locks that the principal may read.
    pub(crate) async fn find(
        &self,
        dispatch: &Dispatch,
        who: &Principal,
        mut after: Option<String>,
        limit: u32,
        fresh: ReadConsistency,
    ) -> Result<LocksFound, v1::Error> {
        let max = page(limit);
        let scope = ReadScope::list(&self.prefix);
        // This read counts as a request, decides how fresh all of the answer is, and ends when all names are sorted.
        let facts = dispatch.read_sorted(who, scope.clone(), fresh, WITHIN, |_| ()).await;
        let (revision, ()) = facts.map_err(failed)?;
        let (mut locks, mut bytes, mut has_read) = (Vec::new(), 0, false);
        for _ in 0..TURNS_MAX {
            let (search, from, principal) = (self.clone(), after.clone(), who.clone());
            let wanted = max - locks.len();
            let ask = move |machine: &Machine| {
                let sorted = machine.sorted_locks(SORTED_MAX)?;
                Some(search.turn(sorted, principal.name(), from.as_deref(), wanted))
            };
            let read = dispatch
                .read_next_page(who, scope.clone(), ReadConsistency::Stale, WITHIN, ask)
                .await;
            // Names that came meanwhile are sorted first.
            let Some(turn) = read.map_err(failed)?.1 else { continue };
            has_read = true;
            after = turn.read_to;
            for view in &turn.found {
                let lock = encode::lock_view(view);
                bytes += tenure_wire::Message::encoded_len(&lock);
                locks.push(lock);
            }
            if after.is_none() || locks.len() >= max || bytes >= PAGE_BYTES {
                break;
            }
        }
        if !has_read {
            return Err((&Failure::Overloaded { retry_after_ms: RETRY_MS }).into());
        }
        Ok(LocksFound { locks, next: after, revision })
    }

    /// Reads some locks. Runs on the event loop.
    fn turn(&self, sorted: SortedLocks<'_>, who: &str, after: Option<&str>, wanted: usize) -> Turn {
        let mut found = Vec::new();
        let read_to = walk(&sorted, (who, &self.prefix), after, |view| {
            let waiting = usize::try_from(view.waiting).unwrap_or(usize::MAX).min(WAITERS_MAX);
            if self.matches(sorted.machine(), &view) {
                found.push(view);
            }
            if found.len() == wanted {
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(if self.client.is_some() { waiting } else { 0 })
        });
        Turn { found, read_to }
    }

    fn matches(&self, machine: &Machine, view: &LockView) -> bool {
        let name = view.lock.as_str();
        let contains = |part: &String| name.to_lowercase().contains(part.as_str());
        self.contains.as_ref().is_none_or(contains)
            && self.election.is_none_or(|election| is_election(machine, view) == election)
            && self.state.is_none_or(|state| is_in(view, state))
            && self.waiting_ms.is_none_or(|least| waits_for(machine, view) >= Some(least))
            && self.client.as_ref().is_none_or(|client| concerns(machine, view, client))
    }
}

/// Calls `visit` with each lock below a prefix that a principal may read, until one turn of the event loop has done
/// enough or `visit` breaks off. `visit` returns what it cost beyond the lock and its holders. Returns the last name
/// that was read if there may be more.
pub(super) fn walk(
    sorted: &SortedLocks<'_>,
    (who, prefix): (&str, &str),
    after: Option<&str>,
    mut visit: impl FnMut(LockView) -> ControlFlow<(), usize>,
) -> Option<String> {
    let mut after = after.map(str::to_owned);
    let (mut read, mut cost) = (0, 0);
    while read < TURN && cost < COST_MAX {
        let part = sorted.locks_seen_by(who, prefix, after.as_deref(), PART);
        let is_last = part.len() < PART;
        for view in part {
            read += 1;
            cost += 1 + view.holders.len();
            after = Some(view.lock.as_str().to_owned());
            match visit(view) {
                ControlFlow::Continue(more) => cost += more,
                ControlFlow::Break(()) => return after,
            }
        }
        if is_last {
            return None;
        }
    }
    after
}

fn is_in(view: &LockView, state: LockState) -> bool {
    let held = |held: bool| view.holders.iter().any(|it| (it.state == HolderState::Held) == held);
    match state {
        LockState::Held => held(true),
        LockState::Awaited => view.waiting > 0,
        LockState::Revoking => held(false),
    }
}

/// Whether a lock is that of an election, by its holder or the first that waits.
pub(super) fn is_election(machine: &Machine, view: &LockView) -> bool {
    use tenure_core::request::Purpose;
    let held = view.holders.iter().any(|holder| holder.purpose == Purpose::Election);
    let first = || machine.queue(view.lock.as_str(), None, 1);
    held || view.waiting > 0 && first().iter().any(|it| it.purpose == Purpose::Election)
}

/// How long the first in the queue has waited; the queue is in the order of arrival.
fn waits_for(machine: &Machine, view: &LockView) -> Option<u64> {
    if view.waiting == 0 {
        return None;
    }
    machine.queue(view.lock.as_str(), None, 1).first().map(|first| first.waiting_ms)
}

fn concerns(machine: &Machine, view: &LockView, client: &str) -> bool {
    view.holders.iter().any(|holder| holder.client.as_str().starts_with(client))
        || view.waiting > 0
            && machine
                .queue(view.lock.as_str(), None, WAITERS_MAX)
                .iter()
                .any(|waiter| waiter.client.as_str().starts_with(client))
}
