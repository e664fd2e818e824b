//! Searches the past of locks: the replicated history for the newest revisions, and the archive for those before.

use std::collections::VecDeque;
use std::time::Duration;

use tenure_core::{Compacted, Machine, Most};
use tenure_types::Revision;
use tenure_wire::{Failure, Message, convert, v1};

use super::query::{failed, name, page, to_error};
use super::{decode, encode};
use crate::archive::{ArchiveQuery, ArchiveSubject, FoundPart, RevisionRange};
use crate::dispatch::{Dispatch, Principal, ReadConsistency, ReadScope};

/// The most of the history that one turn of the event loop copies, and the most turns for one page: enough for the
/// whole history at its default size. What is left out then is reported as missing.
const PIECE: Most = Most { revisions: 4_096, bytes: 256 * 1024 };
const PIECES: usize = 512;

/// The size at which a page is cut: clients accept 4 MiB by default.
const PAGE_BYTES: usize = 1024 * 1024;

/// The newest revisions that match, before those that an earlier page had. The search is bounded, so a page may be
/// empty and still say where to go on.
///
/// A member refuses a search as overloaded while the caller has another, or while there are too many.
pub(super) async fn history(
    dispatch: &Dispatch,
    who: &Principal,
    it: &v1::HistoryRequest,
    search: &v1::ArchiveSearch,
    fresh: ReadConsistency,
    within: Duration,
) -> Result<v1::HistoryResponse, v1::Error> {
    let query = query(it, search)?;
    self::search(dispatch, who, query, fresh, within).await
}

/// Searches for what a query says.
pub(super) async fn search(
    dispatch: &Dispatch,
    who: &Principal,
    mut query: ArchiveQuery,
    fresh: ReadConsistency,
    within: Duration,
) -> Result<v1::HistoryResponse, v1::Error> {
    let deadline_us = dispatch.deadline_us(within);
    let archive = dispatch.member().archive().clone();
    // Right after a start the archive is still being read: without it the answer would lack the past.
    if tokio::time::timeout(within, archive.loaded()).await.is_err() {
        return Err(to_error(dispatch.overloaded()));
    }
    // Everything before this revision is in the archive, or missing there.
    let durable = archive.durable_before();
    let scope = || ReadScope::read(query.name());
    let facts = |machine: &Machine| (machine.floor(), machine.revision());
    // This read decides whether the caller may see these locks at all.
    let left = dispatch.until(deadline_us);
    let read = dispatch.read_page(who, scope(), fresh, left, facts).await;
    let (revision, (floor, newest)) = read.map_err(failed)?;
    let slot = dispatch.begin_search().map_err(to_error)?;
    let mut found = FoundPart::default();
    let mut at = durable.unwrap_or(floor).max(floor);
    let mut newer = VecDeque::new();
    for _ in 0..PIECES {
        if at > newest || at >= query.before {
            break;
        }
        let ask = move |machine: &Machine| machine.records(at, PIECE);
        let left = dispatch.until(deadline_us);
        let read = dispatch.read_next_page(who, scope(), ReadConsistency::Stale, left, ask).await;
        let records = match read.map_err(failed)?.1 {
            Ok(records) => records,
            // The history was cut since the last part.
            Err(Compacted { floor }) => {
                found.holes.push(RevisionRange { from: at, next: floor });
                at = floor;
                continue;
            }
        };
        let before = records.iter().take_while(|record| record.revision < query.before);
        newer.extend(before.filter_map(|record| query.matching(record)));
        // One more than are asked for, which tells that there are more.
        let excess = newer.len().saturating_sub(query.max + 1);
        newer.drain(..excess);
        at = records.next();
    }
    let end = newest.next().min(query.before);
    if at < end {
        found.holes.push(RevisionRange { from: at, next: end });
    }
    if durable.is_some_and(|durable| durable < floor && floor <= query.before) {
        let from = durable.unwrap_or(floor);
        found.holes.push(RevisionRange { from, next: floor });
    }
    let mut newer: Vec<_> = newer.into_iter().rev().collect();
    if newer.len() > query.max {
        newer.truncate(query.max);
        found.more_before = newer.last().map(|last| last.revision);
        found.batches = newer;
        archive.begin(&query, &mut found);
    } else {
        query.max -= newer.len();
        query.before = query.before.min(durable.unwrap_or(Revision(0)));
        // The slot is taken until the search has ended, also if its caller has gone.
        let search = move || {
            let found = archive.search(&query);
            drop(slot);
            found
        };
        let searching = dispatch.runtime().spawn_blocking(search).await;
        let older = searching.map_err(|_| to_error(Failure::Internal))?;
        let older = older.map_err(|error| {
            tracing::warn!(cause = %error, "cannot read the event archive");
            to_error(Failure::Internal)
        })?;
        let holes = [std::mem::take(&mut found.holes), older.holes.clone()].concat();
        found = FoundPart { batches: [newer, older.batches].concat(), holes, ..older };
    }
    Ok(answer(dispatch, revision, floor, found))
}

fn query(it: &v1::HistoryRequest, search: &v1::ArchiveSearch) -> Result<ArchiveQuery, Failure> {
    let subject = if search.prefix {
        ArchiveSubject::Prefix(it.lock.clone())
    } else {
        ArchiveSubject::Lock(name(&it.lock, "lock")?)
    };
    let before = convert::revision_from(search.before)
        .ok_or_else(|| decode::invalid("before", "is negative"))?;
    Ok(ArchiveQuery {
        subject,
        since_ms: search.since_unix_ms,
        until_ms: search.until_unix_ms,
        client: (!search.client.is_empty()).then(|| search.client.clone()),
        lost: search.lost,
        cause: None,
        before: if before == Revision(0) { Revision(u64::MAX) } else { before },
        max: page(it.limit),
    })
}

fn answer(
    dispatch: &Dispatch,
    revision: Revision,
    floor: Revision,
    found: FoundPart,
) -> v1::HistoryResponse {
    let range = |range: &RevisionRange| v1::RevisionRange {
        from: convert::revision(range.from),
        next: convert::revision(range.next),
    };
    let (mut batches, mut bytes, mut more_before) = (Vec::new(), 0, found.more_before);
    for batch in &found.batches {
        if bytes >= PAGE_BYTES {
            more_before = batches.last().map(|_| batch.revision.next());
            break;
        }
        let batch = encode::batch(batch.revision, batch.label, &batch.events);
        bytes += batch.encoded_len();
        batches.push(batch);
    }
    v1::HistoryResponse {
        header: Some(dispatch.header(revision)),
        batches,
        next: convert::revision(revision.next()),
        floor: convert::revision(floor),
        before: more_before.map(convert::revision),
        archive: Some(v1::ArchiveExtent {
            begins: found.begins.map(convert::revision),
            begins_unix_ms: found.begins_ms,
            holes: found.holes.iter().map(range).collect(),
        }),
    }
}
