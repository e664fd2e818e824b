//! Answers list queries page by page.
//!
//! A page ends after the requested number of records, or when it is long enough for one message.

use std::time::Duration;

use tenure_core::event::{Batch, Event, Subject};
use tenure_core::request::LeaseRef;
use tenure_core::view::{KeyView, LeaseView, LockView};
use tenure_core::{Compacted, Filter, Machine, Most, RevisionRecords, SortedLocks};
use tenure_types::{LeaseId, PlaceNumber, Refusal, Revision, Verb};
use tenure_wire::{Failure, Message, convert, v1};

use super::query::{failed, fresh, name, page, to_error};
use super::{decode, encode, past, present};
use crate::dispatch::{Dispatch, Principal, ReadConsistency, ReadScope};

/// The size at which a page is cut; it may exceed this by at most [`PART`] records. Clients accept 4 MiB by default.
const PAGE_BYTES: usize = 1024 * 1024;

/// The number of records read at once. Values may be large: the event loop copies at most this many beyond a page.
const PART: usize = 8;

/// The most of a history that one turn of the event loop copies, and the most turns for one page.
const PIECE: Most = Most { revisions: 1_000, bytes: 256 * 1024 };
const PIECES: usize = 20;

/// A page of records, and whether there may be more after it.
struct RecordPage<T> {
    records: Vec<T>,
    cut: bool,
}

/// Reads records until there are enough of them, or enough bytes. It runs on the event loop, which must not copy more
/// than goes into a page.
fn gather<V, K>(
    max: usize,
    mut after: Option<K>,
    read: impl Fn(Option<&K>, usize) -> Vec<V>,
    last: impl Fn(&V) -> K,
    bytes: impl Fn(&V) -> usize,
) -> RecordPage<V> {
    let (mut records, mut total) = (Vec::new(), 0);
    while records.len() < max && total < PAGE_BYTES {
        let wanted = PART.min(max - records.len());
        let part = read(after.as_ref(), wanted);
        let ended = part.len() < wanted;
        total += part.iter().map(&bytes).sum::<usize>();
        records.extend(part);
        if ended {
            return RecordPage { records, cut: false };
        }
        after = records.last().map(&last);
    }
    RecordPage { records, cut: true }
}

fn after(name: &str) -> Option<String> {
    (!name.is_empty()).then(|| name.to_owned())
}

fn names(names: &[tenure_types::Name]) -> usize {
    names.iter().map(|name| name.as_bytes().len() + 16).sum()
}

fn lock_bytes(view: &LockView) -> usize {
    view.lock.as_bytes().len()
        + view.holders.iter().map(|it| 128 + it.metadata.len()).sum::<usize>()
}

fn lease_bytes(view: &LeaseView) -> usize {
    let holds: usize = view.holds.iter().map(|(lock, _)| lock.as_bytes().len() + 16).sum();
    let waits: usize = view.waits.iter().map(|(_, lock)| lock.as_bytes().len() + 16).sum();
    view.metadata.len() + holds + waits + names(&view.keys)
}

pub(crate) async fn locks(
    dispatch: &Dispatch,
    who: &Principal,
    it: &v1::ListLocksRequest,
    within: Duration,
) -> Result<v1::ListLocksResponse, v1::Error> {
    let (prefix, after, max) = (it.prefix.clone(), after(&it.after), page(it.limit));
    let principal = who.clone();
    let ask = move |sorted: SortedLocks<'_>| {
        let who = principal.name();
        let read = |after: Option<&String>, max| {
            sorted.locks_seen_by(who, &prefix, after.map(String::as_str), max)
        };
        gather(max, after.clone(), read, |view| view.lock.as_str().to_owned(), lock_bytes)
    };
    let scope = ReadScope::list(&it.prefix);
    let read = dispatch.read_sorted(who, scope, fresh(it.stale), within, ask).await;
    let (revision, views) = read.map_err(failed)?;
    let mut locks: Vec<_> = views.records.iter().map(encode::lock_view).collect();
    let age_ms = present::clock_age_ms(dispatch);
    locks.iter_mut().for_each(|lock| present::lock(lock, age_ms));
    let next = locks.last().filter(|_| views.cut).map(|last| last.lock.clone());
    let (header, next) = (Some(dispatch.header(revision)), next.unwrap_or_default());
    Ok(v1::ListLocksResponse { header, locks, next })
}

pub(crate) async fn queue(
    dispatch: &Dispatch,
    who: &Principal,
    it: &v1::QueueRequest,
    within: Duration,
) -> Result<v1::QueueResponse, v1::Error> {
    let (lock, max) = (name(&it.lock, "lock")?, page(it.limit));
    let after = (it.after != 0).then_some(PlaceNumber(it.after));
    // Read the places at once: they are small, and every further part would walk the queue from its head.
    let (scope, principal) = (ReadScope::read(&lock), who.clone());
    let ask = move |machine: &Machine| {
        let mut waiters = machine.queue(&lock, after, max);
        machine.redact_waiters(principal.name(), &mut waiters);
        waiters
    };
    let read = dispatch.read_page(who, scope, fresh(it.stale), within, ask).await;
    let (revision, views) = read.map_err(failed)?;
    let RecordPage { records: mut waiters, cut } = cut(views, max, encode::waiter_view);
    let age_ms = present::clock_age_ms(dispatch);
    waiters.iter_mut().for_each(|waiter| waiter.waiting_ms += age_ms);
    let next = waiters.last().filter(|_| cut).map_or(0, |last| last.place);
    Ok(v1::QueueResponse { header: Some(dispatch.header(revision)), waiters, next })
}

pub(crate) async fn leases(
    dispatch: &Dispatch,
    who: &Principal,
    it: &v1::ListLeasesRequest,
    within: Duration,
) -> Result<v1::ListLeasesResponse, v1::Error> {
    let max = page(it.limit);
    let after = match it.after {
        0 => None,
        id => Some(
            convert::lease_from(id)
                .ok_or_else(|| to_error(decode::invalid("after", "is negative")))?,
        ),
    };
    let principal = who.clone();
    let ask = move |machine: &Machine| {
        let id = |view: &LeaseView| view.id;
        if machine.may(principal.name(), Verb::Read, "") {
            let read = |after: Option<&LeaseId>, max| machine.leases(after.copied(), max);
            return gather(max, after, read, id, lease_bytes);
        }
        let own = machine.own_leases(principal.name(), after, max);
        let read = |after: Option<&LeaseId>, max| {
            let rest = own.iter().filter(|id| after.is_none_or(|after| *id > after));
            let views = rest.filter_map(|id| machine.lease(LeaseRef::Id(*id)));
            views.take(max).collect()
        };
        gather(max, after, read, id, lease_bytes)
    };
    let read = dispatch.read_page(who, ReadScope::Known, fresh(it.stale), within, ask).await;
    let (revision, views) = read.map_err(failed)?;
    let next = views.records.last().filter(|_| views.cut).map_or(0, |last| convert::lease(last.id));
    let leases = views.records.iter().map(encode::lease_view).collect();
    Ok(v1::ListLeasesResponse { header: Some(dispatch.header(revision)), leases, next })
}

pub(crate) async fn keys(
    dispatch: &Dispatch,
    who: &Principal,
    it: &v1::ListKeysRequest,
    within: Duration,
) -> Result<v1::ListKeysResponse, v1::Error> {
    let (prefix, after, max) = (it.prefix.clone(), after(&it.after), page(it.limit));
    let principal = who.clone();
    let ask = move |machine: &Machine| {
        let who = principal.name();
        let read = |after: Option<&String>, max| {
            machine.keys_seen_by(who, &prefix, after.map(String::as_str), max)
        };
        let bytes = |view: &KeyView| view.key.as_bytes().len() + view.value.len();
        gather(max, after.clone(), read, |view| view.key.as_str().to_owned(), bytes)
    };
    let scope = ReadScope::list(&it.prefix);
    let read = dispatch.read_page(who, scope, fresh(it.stale), within, ask).await;
    let (revision, views) = read.map_err(failed)?;
    let kvs: Vec<_> = views.records.iter().map(encode::key_value).collect();
    let next = kvs.last().filter(|_| views.cut).map(|last| last.key.clone());
    let (header, next) = (Some(dispatch.header(revision)), next.unwrap_or_default());
    Ok(v1::ListKeysResponse { header, kvs, next })
}

/// Where the next piece of a history begins, and how fresh it has to be.
#[derive(Clone, Copy)]
struct HistoryCursor {
    from: Revision,
    fresh: ReadConsistency,
}

/// The part of a lock's history that was found so far.
#[derive(Default)]
struct HistoryPiece {
    batches: Vec<Batch>,
    /// The revision at which to go on.
    next: Revision,
    floor: Revision,
    revision: Revision,
}

impl HistoryPiece {
    /// Adds the events of a lock from the next part of the history.
    fn extend(&mut self, lock: &str, floor: Revision, records: &RevisionRecords) {
        for record in records.iter() {
            let named = record.events().filter(|it| it.is_admitted(Filter::Exact(lock)));
            // A key may have the same name; its events do not belong here.
            let of_lock = |event: &Event| matches!(event.subject, Subject::Lock(_));
            let events: Vec<_> = named.map(|it| it.to_event()).filter(of_lock).collect();
            if !events.is_empty() {
                let (revision, label) = (record.revision, record.label());
                self.batches.push(Batch { revision, label, events });
            }
        }
        (self.next, self.floor, self.revision) = (records.next(), floor, records.newest());
    }
}

/// Copies a bounded part of the history; runs on the event loop, which decodes nothing.
fn piece(machine: &Machine, from: Revision) -> Result<(Revision, RevisionRecords), Box<v1::Error>> {
    let (floor, newest) = (machine.floor(), machine.revision());
    let from = if from == Revision(0) { floor } else { from };
    if from > newest.next() {
        let refusal = Refusal::FutureRevision { asked: from, newest };
        return Err(Box::new(v1::Error::from(&refusal)));
    }
    let records = machine.records(from, PIECE);
    let compacted = |gone: Compacted| to_error(Failure::Compacted { floor: gone.floor });
    let records = records.map_err(|gone| Box::new(compacted(gone)))?;
    Ok((floor, records))
}

/// The history of a lock: as many of its revisions as requested. The search is bounded, so a page may be empty and
/// still say where to go on.
pub(crate) async fn history(
    dispatch: &Dispatch,
    who: &Principal,
    it: &v1::HistoryRequest,
    fresh: ReadConsistency,
    within: Duration,
) -> Result<v1::HistoryResponse, v1::Error> {
    if let Some(search) = &it.archive {
        return past::history(dispatch, who, it, search, fresh, within).await;
    }
    let (lock, max) = (name(&it.lock, "lock")?, page(it.limit));
    let from = convert::revision_from(it.from)
        .ok_or_else(|| to_error(decode::invalid("from", "is negative")))?;
    let mut found = HistoryPiece::default();
    let mut at = HistoryCursor { from, fresh };
    let deadline_us = dispatch.deadline_us(within);
    for turn in 0..PIECES {
        let ask = move |machine: &Machine| piece(machine, at.from);
        let within = dispatch.until(deadline_us);
        let scope = ReadScope::read(&lock);
        let read = match turn {
            0 => dispatch.read_page(who, scope, at.fresh, within, ask).await,
            _ => dispatch.read_next_page(who, scope, at.fresh, within, ask).await,
        };
        let (_, piece) = read.map_err(failed)?;
        match piece {
            Ok((floor, records)) => found.extend(&lock, floor, &records),
            // The history was compacted between two pieces: the next page says so.
            Err(_) if turn > 0 => break,
            Err(error) => return Err(*error),
        }
        let is_end = found.next > found.revision || found.next <= at.from;
        if is_end || found.batches.len() > max {
            break;
        }
        // This member's state never goes back, so later pieces are as fresh as the first.
        at = HistoryCursor { from: found.next, fresh: ReadConsistency::Stale };
    }
    let HistoryPiece { floor, revision, .. } = found;
    let mut events = found;
    if let Some(beyond) = events.batches.get(max) {
        events.next = beyond.revision;
        events.batches.truncate(max);
    }
    let read = events.batches.len();
    let RecordPage { records: batches, .. } = cut(events.batches, read + 1, |batch| {
        encode::batch(batch.revision, batch.label, &batch.events)
    });
    let next = match batches.last() {
        Some(last) if batches.len() < read => last.revision + 1,
        _ => convert::revision(events.next),
    };
    let floor = convert::revision(floor);
    let header = Some(dispatch.header(revision));
    Ok(v1::HistoryResponse { header, batches, next, floor, before: None, archive: None })
}

/// Takes records until there are enough of them, or enough bytes.
fn cut<V, T: Message>(views: Vec<V>, max: usize, encode: impl Fn(&V) -> T) -> RecordPage<T> {
    let whole = views.len() < max;
    let mut bytes = 0;
    let mut records = Vec::with_capacity(views.len());
    for view in &views {
        let record = encode(view);
        bytes += record.encoded_len();
        if bytes > PAGE_BYTES && !records.is_empty() {
            break;
        }
        records.push(record);
    }
    let cut = !whole || records.len() < views.len();
    RecordPage { records, cut }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A page of the numbers from 0 up to `end`, each with this weight.
    fn paged(end: usize, max: usize, weight: usize) -> (RecordPage<usize>, usize) {
        let most = std::cell::Cell::new(0);
        let read = |after: Option<&usize>, max: usize| {
            most.set(most.get().max(max));
            let first = after.map_or(0, |after| after + 1);
            (first..end).take(max).collect()
        };
        let page = gather(max, None, read, |last| *last, |_| weight);
        (page, most.get())
    }

    #[test]
    fn a_page_ends_with_the_records_or_after_as_many_as_were_asked_for() {
        let (page, _) = paged(20, 100, 1);
        assert_eq!((page.records, page.cut), ((0..20).collect(), false));
        let (page, _) = paged(200, 100, 1);
        assert_eq!((page.records, page.cut), ((0..100).collect(), true));
        let (page, _) = paged(0, 100, 1);
        assert_eq!((page.records.len(), page.cut), (0, false));
    }

    #[test]
    fn a_page_of_large_records_ends_early_and_says_so() {
        let (page, most) = paged(1_000, 1_000, PAGE_BYTES);
        assert_eq!((page.records.len(), page.cut), (PART, true));
        assert_eq!(most, PART, "no more is read at once, however many were asked for");
    }
}
