//! Counts holders and waiters by the first segment of the lock's name.

use std::collections::{BTreeMap, BTreeSet};

use tenure_core::view::LockView;
use tenure_core::{Machine, SortedLocks};
use tenure_types::Mode;

use super::HeldLabels;
use crate::api::http::{Http, HttpError};
use crate::dispatch::{Principal, ReadConsistency, ReadScope, WITHIN};
use crate::metrics::{OTHER, PREFIXES_MAX};

/// The most locks read at once, and the most pages for one response; the rest counts as `other`.
const PAGE: usize = 1_000;
const PAGES_MAX: usize = 100;
/// The most places per page that are counted by mode; beyond that only their number is known.
const PLACES_MAX: usize = 10_000;
/// The mode of holders and waiters whose mode is not known.
const ANY: &str = "any";

/// Counts by the first segment of a lock's name.
#[derive(Clone, Default)]
pub(super) struct Walked {
    pub(super) held: BTreeMap<HeldLabels, u64>,
    pub(super) waiters: BTreeMap<HeldLabels, u64>,
    prefixes: BTreeSet<String>,
}

impl Walked {
    fn add(&mut self, sorted: SortedLocks<'_>, after: Option<&str>) -> Option<String> {
        let locks = sorted.locks("", after, PAGE);
        let mut places_left = PLACES_MAX;
        for lock in &locks {
            let first = lock.lock.as_str().split('/').next().unwrap_or_default();
            let known = self.prefixes.contains(first) || self.prefixes.len() < PREFIXES_MAX;
            if known {
                self.prefixes.insert(first.to_owned());
            }
            let prefix = if known { first } else { OTHER };
            self.add_waiters(sorted.machine(), lock, prefix, &mut places_left);
            // Many grants at a time have the same mode.
            let more = lock.holders.first().map(|first| (first.mode, lock.more_holders));
            for (of, count) in lock.holders.iter().map(|holder| (holder.mode, 1)).chain(more) {
                let held = HeldLabels { prefix: prefix.to_owned(), mode: mode(of) };
                *self.held.entry(held).or_default() += count;
            }
        }
        locks.last().filter(|_| locks.len() == PAGE).map(|last| last.lock.as_str().to_owned())
    }

    /// Counts a queue by mode. The queue of a semaphore has one mode; other queues are read.
    fn add_waiters(
        &mut self,
        machine: &Machine,
        lock: &LockView,
        prefix: &str,
        places_left: &mut usize,
    ) {
        let mut add = |mode: &'static str, count: u64| {
            if count > 0 {
                *self.waiters.entry(HeldLabels { prefix: prefix.to_owned(), mode }).or_default() +=
                    count;
            }
        };
        if lock.slots.is_some() {
            return add("slot", lock.waiting);
        }
        let shared = machine.waiting_shared(lock.lock.as_str(), *places_left);
        let seen = lock.waiting.min(*places_left as u64);
        *places_left =
            places_left.saturating_sub(usize::try_from(lock.waiting).unwrap_or(usize::MAX));
        add("shared", shared);
        add("exclusive", seen - shared);
        add(ANY, lock.waiting - seen);
    }
}

/// Reads the locks page by page, so that the event loop serves others in between.
pub(super) async fn walk(http: &Http) -> Result<Walked, HttpError> {
    let member = Principal::member();
    let mut walked = Walked::default();
    let mut after = None;
    for _ in 0..PAGES_MAX {
        let (so_far, from) = (walked.clone(), after.clone());
        let page = move |sorted: SortedLocks<'_>| {
            let mut walked = so_far.clone();
            let next = walked.add(sorted, from.as_deref());
            (walked, next)
        };
        let (dispatch, known) = (&http.dispatch, ReadScope::Known);
        let read = dispatch.read_sorted(&member, known, ReadConsistency::Stale, WITHIN, page).await;
        let (_, (more, next)) = read?;
        walked = more;
        match next {
            Some(next) => after = Some(next),
            None => return Ok(walked),
        }
    }
    // There are more locks than are read for a metric: only the total of the rest is known.
    let sums = |machine: &Machine| (machine.stats().grants, machine.stats().places);
    let read =
        http.dispatch.read(&member, ReadScope::Known, ReadConsistency::Stale, WITHIN, sums).await;
    let (_, (grants, places)) = read?;
    let rest = grants.saturating_sub(walked.held.values().sum());
    *walked.held.entry(HeldLabels { prefix: OTHER.to_owned(), mode: ANY }).or_default() += rest;
    let rest = places.saturating_sub(walked.waiters.values().sum());
    *walked.waiters.entry(HeldLabels { prefix: OTHER.to_owned(), mode: ANY }).or_default() += rest;
    Ok(walked)
}

fn mode(mode: Mode) -> &'static str {
    match mode {
        Mode::Exclusive => "exclusive",
        Mode::Shared => "shared",
        Mode::Slot { .. } => "slot",
    }
}
