//! Summarises all locks: their number, the longest waits and holds, and the prefixes with the most waiters and locks.
//!
//! None of this is indexed, so a summary reads every lock, a bounded number in each turn of the event loop. Callers
//! that may read everything share one summary; every other principal has its own. A summary is kept for a time in
//! proportion to what it cost, so summaries take a small part of one processor, whatever the number of pages that show
//! them.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use tenure_core::view::{HolderView, LockView, WaiterView};
use tenure_core::{Machine, SortedLocks};
use tenure_types::{HolderState, Revision, Verb};
use tenure_wire::Failure;
use tokio::sync::Mutex;

use super::lock_search::{SORTED_MAX, is_election, walk};
use crate::dispatch::{Dispatch, Principal, ReadConsistency, ReadScope, WITHIN};
use crate::metrics::LockTotals;
use crate::os;

/// The most turns for one summary. A summary that needs more leaves out the remaining locks and is marked incomplete.
const TURNS_MAX: usize = 1_000;
/// The most locks in each list, and the most prefixes.
const LISTED_MAX: usize = 25;
/// The most prefixes that are counted; all others count together.
const PREFIXES_MAX: usize = 500;
const OTHER: &str = "…";
/// A summary is kept for this time, or for this multiple of the time that it took, whichever is longer.
const AGE_MIN_US: u64 = 1_000_000;
const AGE_PER_COST: u64 = 100;
/// The most summaries that are kept.
const KEPT_MAX: usize = 32;

/// A lock in one of the lists.
#[derive(Clone, Debug)]
pub(crate) struct ListedLock {
    pub(crate) lock: String,
    pub(crate) holders: usize,
    /// The first holder.
    pub(crate) holder: Option<HolderView>,
    /// The first that waits.
    pub(crate) first: Option<WaiterView>,
    pub(crate) waiting: u64,
}

/// Counts of the locks whose names share their first segment.
#[derive(Clone, Debug, Default)]
pub(crate) struct PrefixCount {
    pub(crate) prefix: String,
    pub(crate) locks: u64,
    pub(crate) waiting: u64,
    /// The longest wait among the first waiters of these locks.
    pub(crate) longest_wait_ms: u64,
}

/// The summary.
#[derive(Clone, Debug, Default)]
pub(crate) struct Overview {
    pub(crate) revision: Revision,
    pub(crate) locks: u64,
    pub(crate) held: u64,
    pub(crate) awaited: u64,
    pub(crate) revoking: u64,
    pub(crate) waiters: u64,
    pub(crate) elections: u64,
    pub(crate) leases: u64,
    pub(crate) keys: u64,
    /// Whether every lock was read.
    pub(crate) complete: bool,
    pub(crate) longest_waits: Vec<ListedLock>,
    pub(crate) longest_holds: Vec<ListedLock>,
    pub(crate) longest_queues: Vec<ListedLock>,
    pub(crate) prefixes: Vec<PrefixCount>,
    pub(crate) totals: LockTotals,
    counted: BTreeMap<String, PrefixCount>,
}

/// The summaries that were made last.
#[derive(Default)]
pub(crate) struct Overviews(Mutex<BTreeMap<String, KeptOverview>>);

struct KeptOverview {
    /// The generation of the access rules before it was made: under other rules it may show too much.
    rules: u64,
    made_us: u64,
    took_us: u64,
    overview: Arc<Overview>,
}

impl Overviews {
    /// A summary of what the principal may read. The first caller makes it, the others wait for it.
    pub(crate) async fn recent(
        &self,
        dispatch: &Dispatch,
        who: &Principal,
    ) -> Result<Arc<Overview>, Failure> {
        let principal = who.clone();
        let reads_all = move |machine: &Machine| machine.may(principal.name(), Verb::Read, "");
        let scope = ReadScope::list("");
        let (_, reads_all) =
            dispatch.read(who, scope, ReadConsistency::Stale, WITHIN, reads_all).await?;
        let key = if reads_all { String::new() } else { format!(":{}", who.name()) };
        let mut kept = self.0.lock().await;
        let (now_us, rules) = (os::now_us(), dispatch.member().identity().generation());
        let is_old = |it: &KeptOverview| {
            let age_us = now_us.saturating_sub(it.made_us);
            it.rules != rules || age_us >= AGE_MIN_US.max(it.took_us * AGE_PER_COST)
        };
        if let Some(kept) = kept.get(&key).filter(|it| !is_old(it)) {
            return Ok(Arc::clone(&kept.overview));
        }
        kept.retain(|_, it| !is_old(it));
        if kept.len() >= KEPT_MAX {
            let oldest = kept.iter().min_by_key(|(_, it)| it.made_us).map(|(key, _)| key.clone());
            oldest.map(|key| kept.remove(&key));
        }
        let overview = Arc::new(make(dispatch, who).await?);
        let made_us = os::now_us();
        let took_us = made_us.saturating_sub(now_us);
        let made = KeptOverview { rules, made_us, took_us, overview: Arc::clone(&overview) };
        kept.insert(key, made);
        Ok(overview)
    }
}

/// Reads all locks that the principal may read.
async fn make(dispatch: &Dispatch, who: &Principal) -> Result<Overview, Failure> {
    let mut sum = Overview::default();
    let mut after: Option<String> = None;
    for _ in 0..TURNS_MAX {
        let (from, principal) = (after.clone(), who.clone());
        let ask = move |machine: &Machine| {
            let sorted = machine.sorted_locks(SORTED_MAX)?;
            Some(part(sorted, principal.name(), from.as_deref()))
        };
        let read =
            dispatch.read_next_page(who, ReadScope::list(""), ReadConsistency::Stale, WITHIN, ask);
        let (revision, Some((part, read_to))) = read.await? else { continue };
        sum.add(part);
        sum.revision = revision;
        after = read_to;
        if after.is_none() {
            sum.complete = true;
            break;
        }
    }
    let facts = |machine: &Machine| (machine.stats().leases, machine.stats().keys);
    let scope = ReadScope::Known;
    let (_, facts) =
        dispatch.read_next_page(who, scope, ReadConsistency::Stale, WITHIN, facts).await?;
    (sum.leases, sum.keys) = facts;
    sum.totals = dispatch.member().lock_metrics().totals();
    let mut prefixes: Vec<_> = std::mem::take(&mut sum.counted).into_values().collect();
    prefixes.sort_by_key(|it| std::cmp::Reverse((it.waiting, it.locks)));
    prefixes.truncate(LISTED_MAX);
    sum.prefixes = prefixes;
    Ok(sum)
}

/// Summarises some locks. Runs on the event loop. Returns the last name that it read if there are more.
fn part(sorted: SortedLocks<'_>, who: &str, after: Option<&str>) -> (Overview, Option<String>) {
    let machine = sorted.machine();
    let mut part = Overview::default();
    let last = walk(&sorted, (who, ""), after, |view| {
        part.add_lock(machine, who, view);
        ControlFlow::Continue(0)
    });
    part.cut();
    (part, last)
}

impl Overview {
    fn add_lock(&mut self, machine: &Machine, who: &str, view: LockView) {
        let name = view.lock.as_str();
        let mut first = machine.queue(name, None, usize::from(view.waiting > 0));
        // A waiter for several locks is shown with only those locks that the caller may read.
        machine.redact_waiters(who, &mut first);
        let first = first.into_iter().next();
        let in_state = |held: bool| {
            u64::from(view.holders.iter().any(|it| (it.state == HolderState::Held) == held))
        };
        self.locks += 1;
        self.held += in_state(true);
        self.revoking += in_state(false);
        self.awaited += u64::from(view.waiting > 0);
        self.waiters += view.waiting;
        self.elections += u64::from(is_election(machine, &view));
        let segment = name.split('/').next().unwrap_or_default();
        let waited_ms = first.as_ref().map_or(0, |first| first.waiting_ms);
        let lock = PrefixCount {
            prefix: if segment.len() < name.len() {
                format!("{segment}/")
            } else {
                name.to_owned()
            },
            locks: 1,
            waiting: view.waiting,
            longest_wait_ms: waited_ms,
        };
        self.count(lock);
        let listed = ListedLock {
            lock: name.to_owned(),
            holders: view.holders.len()
                + usize::try_from(view.more_holders).unwrap_or(usize::MAX / 2),
            holder: view.holders.into_iter().next(),
            first,
            waiting: view.waiting,
        };
        if listed.waiting > 0 {
            self.longest_waits.push(listed.clone());
            self.longest_queues.push(listed.clone());
        }
        if listed.holder.is_some() {
            self.longest_holds.push(listed);
        }
    }

    fn count(&mut self, more: PrefixCount) {
        let is_new = !self.counted.contains_key(&more.prefix);
        let full = is_new && self.counted.len() >= PREFIXES_MAX;
        let key = if full { OTHER.to_owned() } else { more.prefix };
        let sum = self.counted.entry(key.clone()).or_default();
        sum.prefix = key;
        sum.locks += more.locks;
        sum.waiting += more.waiting;
        sum.longest_wait_ms = sum.longest_wait_ms.max(more.longest_wait_ms);
    }

    /// Adds the summary of another part of the locks.
    fn add(&mut self, part: Overview) {
        self.locks += part.locks;
        self.held += part.held;
        self.awaited += part.awaited;
        self.revoking += part.revoking;
        self.waiters += part.waiters;
        self.elections += part.elections;
        self.longest_waits.extend(part.longest_waits);
        self.longest_holds.extend(part.longest_holds);
        self.longest_queues.extend(part.longest_queues);
        part.counted.into_values().for_each(|count| self.count(count));
        self.cut();
    }

    /// Cuts each list to its length bound.
    fn cut(&mut self) {
        let waited = |it: &ListedLock| it.first.as_ref().map_or(0, |first| first.waiting_ms);
        let held = |it: &ListedLock| it.holder.as_ref().map_or(0, |holder| holder.held_ms);
        longest(&mut self.longest_waits, waited);
        longest(&mut self.longest_holds, held);
        longest(&mut self.longest_queues, |it| it.waiting);
    }
}

fn longest(list: &mut Vec<ListedLock>, length: impl Fn(&ListedLock) -> u64) {
    // Equal ones stay in the order of names, so that rows do not change places.
    list.sort_by_key(|it| std::cmp::Reverse(length(it)));
    list.truncate(LISTED_MAX);
}
