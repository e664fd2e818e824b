//! Lists the drained prefixes with the holders that are left below them, for all APIs.

use std::time::Duration;

use tenure_core::SortedLocks;
use tenure_types::{Name, Revision};
use tenure_wire::{Failure, v1};

use super::{encode, query};
use crate::dispatch::{Dispatch, Principal, ReadScope};

/// The most locks and grants that one read visits to count holders, for all its prefixes together.
const COUNTED_MAX: usize = 10_000;
/// The most reads that count the holders of one prefix.
const READS_MAX: usize = 200;

/// The drained prefixes that concern the caller. If it asks for one, its holders are counted in as many reads as that
/// takes; no lock below it is granted meanwhile, so the count is never too low.
pub(crate) async fn list(
    dispatch: &Dispatch,
    who: &Principal,
    it: &v1::ListDrainsRequest,
    within: Duration,
) -> Result<v1::ListDrainsResponse, Failure> {
    let (mut after, mut reads) = (None, 0);
    let (mut revision, mut drains) = read(dispatch, who, it, within, &mut after).await?;
    while it.prefix.is_some() && after.is_some() && reads < READS_MAX {
        reads += 1;
        let (newer, more) = read(dispatch, who, it, within, &mut after).await?;
        revision = newer;
        match (drains.first_mut(), more.into_iter().next()) {
            (Some(sum), Some(more)) => {
                sum.holders += more.holders;
                sum.more_holders = more.more_holders;
            }
            // It was opened meanwhile.
            _ => drains.clear(),
        }
    }
    Ok(v1::ListDrainsResponse { header: Some(dispatch.header(revision)), drains })
}

/// Reads the drained prefixes and counts holders, after the lock `after`. Leaves there the lock after which to go on.
async fn read(
    dispatch: &Dispatch,
    who: &Principal,
    it: &v1::ListDrainsRequest,
    within: Duration,
    after: &mut Option<Name>,
) -> Result<(Revision, Vec<v1::DrainView>), Failure> {
    let (principal, only) = (who.clone(), it.prefix.clone());
    let from = after.take();
    let ask = move |sorted: SortedLocks<'_>| {
        let machine = sorted.machine();
        let mut seen = machine.drains_seen_by(principal.name());
        seen.retain(|drain| only.as_deref().is_none_or(|only| *drain.prefix == *only));
        let max = COUNTED_MAX / seen.len().max(1);
        let mut last = None;
        let counted = |drain: &tenure_core::view::DrainView| {
            let view = encode::drain_view(drain);
            if !machine.counts_drain(principal.name(), &drain.prefix) {
                return v1::DrainView { more_holders: true, ..view };
            }
            let left = sorted.holders_left(&drain.prefix, from.as_ref(), max);
            let (holders, more_holders) = (left.holders, left.last.is_some());
            last = left.last;
            v1::DrainView { holders, more_holders, ..view }
        };
        let drains = seen.iter().map(counted).collect::<Vec<_>>();
        (drains, last)
    };
    let fresh = query::fresh(it.stale);
    let read = dispatch.read_sorted(who, ReadScope::Known, fresh, within, ask).await;
    let (revision, (drains, last)) = read?;
    *after = last;
    Ok((revision, drains))
}
