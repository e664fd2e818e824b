//! How are lists answered, page by page?
//!
//! A page ends after as many records as were asked for, or when it is long enough for one message.

use std::time::Duration;

use tenure_core::{Filter, Machine};
use tenure_types::{PlaceNumber, Refusal, Revision};
use tenure_wire::{Failure, Message, convert, v1};

use super::ask::{failed, fresh, name, page, told};
use super::{decode, encode};
use crate::edge::{Edge, Fresh};

/// A page is cut here, at the latest. Clients take 4 MiB unless told otherwise.
const PAGE_BYTES: usize = 1024 * 1024;

/// A page of records, and the last one if there may be more behind it.
struct Page<T> {
    records: Vec<T>,
    cut: bool,
}

/// Takes records until there are enough of them, or of their bytes.
fn cut<V, T: Message>(views: Vec<V>, max: usize, encode: impl Fn(&V) -> T) -> Page<T> {
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
    Page { records, cut }
}

fn after(name: &str) -> Option<String> {
    (!name.is_empty()).then(|| name.to_owned())
}

pub(crate) async fn locks(
    edge: &Edge,
    it: &v1::ListLocksRequest,
    within: Duration,
) -> Result<v1::ListLocksResponse, v1::Error> {
    let (prefix, after, max) = (it.prefix.clone(), after(&it.after), page(it.limit));
    let ask = move |machine: &Machine| machine.locks(&prefix, after.as_deref(), max);
    let (revision, views) = edge.read(fresh(it.stale), within, ask).await.map_err(failed)?;
    let Page { records: locks, cut } = cut(views, max, encode::lock_view);
    let next = locks.last().filter(|_| cut).map(|last| last.lock.clone()).unwrap_or_default();
    Ok(v1::ListLocksResponse { header: Some(edge.header(revision)), locks, next })
}

pub(crate) async fn queue(
    edge: &Edge,
    it: &v1::QueueRequest,
    within: Duration,
) -> Result<v1::QueueResponse, v1::Error> {
    let (lock, max) = (name(&it.lock, "lock")?, page(it.limit));
    let after = (it.after != 0).then_some(PlaceNumber(it.after));
    let ask = move |machine: &Machine| machine.queue(&lock, after, max);
    let (revision, views) = edge.read(fresh(it.stale), within, ask).await.map_err(failed)?;
    let Page { records: waiters, cut } = cut(views, max, encode::waiter_view);
    let next = waiters.last().filter(|_| cut).map_or(0, |last| last.place);
    Ok(v1::QueueResponse { header: Some(edge.header(revision)), waiters, next })
}

pub(crate) async fn leases(
    edge: &Edge,
    it: &v1::ListLeasesRequest,
    within: Duration,
) -> Result<v1::ListLeasesResponse, v1::Error> {
    let max = page(it.limit);
    let after = match it.after {
        0 => None,
        id => Some(
            convert::lease_from(id).ok_or_else(|| told(decode::invalid("after", "is negative")))?,
        ),
    };
    let ask = move |machine: &Machine| machine.leases(after, max);
    let (revision, views) = edge.read(fresh(it.stale), within, ask).await.map_err(failed)?;
    let Page { records: leases, cut } = cut(views, max, encode::lease_view);
    let id = |view: &v1::LeaseView| view.lease.as_ref().map_or(0, |lease| lease.lease);
    let next = leases.last().filter(|_| cut).map_or(0, id);
    Ok(v1::ListLeasesResponse { header: Some(edge.header(revision)), leases, next })
}

pub(crate) async fn keys(
    edge: &Edge,
    it: &v1::ListKeysRequest,
    within: Duration,
) -> Result<v1::ListKeysResponse, v1::Error> {
    let (prefix, after, max) = (it.prefix.clone(), after(&it.after), page(it.limit));
    let ask = move |machine: &Machine| machine.keys(&prefix, after.as_deref(), max);
    let (revision, views) = edge.read(fresh(it.stale), within, ask).await.map_err(failed)?;
    let Page { records: kvs, cut } = cut(views, max, encode::key_value);
    let next = kvs.last().filter(|_| cut).map(|last| last.key.clone()).unwrap_or_default();
    Ok(v1::ListKeysResponse { header: Some(edge.header(revision)), kvs, next })
}

pub(crate) async fn history(
    edge: &Edge,
    it: &v1::HistoryRequest,
    within: Duration,
) -> Result<v1::HistoryResponse, v1::Error> {
    let (lock, max) = (name(&it.lock, "lock")?, page(it.limit));
    let from = convert::revision_from(it.from)
        .ok_or_else(|| told(decode::invalid("from", "is negative")))?;
    let ask = move |machine: &Machine| {
        let floor = machine.floor();
        let from = if from == Revision(0) { floor } else { from };
        let newest = machine.revision();
        if from > newest.next() {
            return (floor, Err(v1::Error::from(&Refusal::FutureRevision { asked: from, newest })));
        }
        let events = machine.events(from, Filter::Exact(&lock), max);
        (floor, events.map_err(|gone| told(Failure::Compacted { floor: gone.floor })))
    };
    let (revision, (floor, events)) = edge.read(Fresh::Now, within, ask).await.map_err(failed)?;
    let events = events?;
    let read = events.batches.len();
    let Page { records: batches, .. } =
        cut(events.batches, read + 1, |batch| encode::batch(batch.revision, &batch.events));
    let next = match batches.last() {
        Some(last) if batches.len() < read => last.revision + 1,
        _ => convert::revision(events.next),
    };
    let floor = convert::revision(floor);
    Ok(v1::HistoryResponse { header: Some(edge.header(revision)), batches, next, floor })
}
