//! Lists the drained prefixes with the holders that are left below them, for all APIs.

use std::time::Duration;

use tenure_core::SortedLocks;
use tenure_wire::{Failure, v1};

use super::{encode, query};
use crate::dispatch::{Dispatch, Principal, ReadScope};

/// The most locks and grants that one answer visits to count holders, for all its prefixes together.
const COUNTED_MAX: usize = 10_000;

/// The drained prefixes that concern the caller.
pub(crate) async fn list(
    dispatch: &Dispatch,
    who: &Principal,
    it: &v1::ListDrainsRequest,
    within: Duration,
) -> Result<v1::ListDrainsResponse, Failure> {
    let (principal, only) = (who.clone(), it.prefix.clone());
    let ask = move |sorted: SortedLocks<'_>| {
        let mut seen = sorted.machine().drains_seen_by(principal.name());
        seen.retain(|drain| only.as_deref().is_none_or(|only| *drain.prefix == *only));
        let max = COUNTED_MAX / seen.len().max(1);
        let counted = |drain: &tenure_core::view::DrainView| {
            let left = sorted.holders_left(&drain.prefix, max);
            let (holders, more_holders) = (left.holders, !left.complete);
            v1::DrainView { holders, more_holders, ..encode::drain_view(drain) }
        };
        seen.iter().map(counted).collect::<Vec<_>>()
    };
    let fresh = query::fresh(it.stale);
    let read = dispatch.read_sorted(who, ReadScope::Known, fresh, within, ask).await;
    let (revision, drains) = read?;
    Ok(v1::ListDrainsResponse { header: Some(dispatch.header(revision)), drains })
}
