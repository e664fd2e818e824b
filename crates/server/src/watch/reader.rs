//! Steps a watch through the history and the hub's stream.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::{Compacted, RevisionRecords};
use tenure_types::Revision;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, sleep_until};

use super::index::GroupPlace;
use super::library::{HistoryPart, HistoryQuestion};
use super::permitted::EventObserver;
use super::shared::{OwnedFilter, SharedBatch, admitted};
use super::slot::{NextBatch, WatchPosition, WatchSlot};
use super::{HubShared, Start, WatchOptions};
use crate::dispatch::{Principal, WatchCount};
use crate::member::MemberEnded;

/// The pause between two attempts to learn the newest revision, while there is no leader.
const PAUSE: Duration = Duration::from_millis(20);

/// The next item of a watch.
#[derive(Clone, Debug)]
pub enum WatchStep {
    /// The events of one revision.
    Batch(Arc<SharedBatch>),
    /// Every event up to this revision was delivered.
    Progress(Revision),
    /// The next revision is older than the history. The watch has ended.
    Compacted {
        /// The oldest revision that a watch can start from.
        floor: Revision,
    },
    /// Too much waited in the buffer for too long. The watch has ended.
    SlowConsumer {
        /// The revision to resume at: everything before it was delivered.
        resume: Revision,
    },
    /// The principal of the watch may not observe any of it any more. The watch has ended.
    Forbidden,
    /// The member has ended.
    Closed,
}

/// A subscription. Dropping it ends it.
pub struct WatchReader {
    inner: Arc<HubShared>,
    slot: Arc<WatchSlot>,
    permit: GroupPlace,
    filter: OwnedFilter,
    options: WatchOptions,
    /// Batches read from the history, older than anything in the buffer.
    read: VecDeque<Arc<SharedBatch>>,
    /// A query in flight. It is kept here, so that cancelling a `next` loses nothing.
    part: Option<oneshot::Receiver<HistoryPart>>,
    reading: Option<oneshot::Receiver<Revision>>,
    started: Option<Revision>,
    /// The member is known to have everything before this revision.
    known: Revision,
    mark_at: Option<Instant>,
    end: Option<WatchStep>,
    /// Counts the watch against the limit of its connection.
    count: Option<WatchCount>,
    /// The principal that watches; none if the member itself does.
    observer: Option<EventObserver>,
}

impl WatchReader {
    pub(super) fn new(
        inner: Arc<HubShared>,
        filter: OwnedFilter,
        start: Start,
        options: WatchOptions,
    ) -> Self {
        let (at, started) = match start {
            Start::Now => (WatchPosition::Start, None),
            Start::From(next) => (WatchPosition::Behind { next, seen: false }, Some(next)),
        };
        let unread_max_us = u64::try_from(options.unread_max.as_micros()).unwrap_or(u64::MAX);
        let slot = Arc::new(WatchSlot::new(at, unread_max_us));
        // Register first: from now on the event loop offers the records it applies.
        inner.member.feed().enter();
        let mut stage = inner.stage();
        if stage.closed {
            slot.close();
        }
        let permit = stage.index.add(&filter, options.previous, slot.clone());
        drop(stage);
        let mut watch = Self {
            inner,
            slot,
            permit,
            filter,
            options,
            read: VecDeque::new(),
            part: None,
            reading: None,
            started,
            known: Revision(0),
            mark_at: None,
            end: None,
            count: None,
            observer: None,
        };
        watch.handed_out();
        watch
    }

    /// Counts the watch against a limit for as long as it exists.
    pub(crate) fn counted(mut self, count: WatchCount) -> Self {
        self.count = Some(count);
        self
    }

    /// Delivers only what the principal may observe at the time of the delivery.
    pub(crate) fn seen_by(mut self, who: Principal) -> Self {
        self.observer = Some(EventObserver::new(who));
        self
    }

    /// The revision at which the watch starts, once it is known: every event from it on is delivered, and none before.
    /// For [`Start::Now`] a read fixes it. The read begins when this or [`next`](Self::next) is first awaited, so
    /// nothing acknowledged before is delivered.
    pub async fn started(&mut self) -> Option<Revision> {
        if self.started.is_none() && self.start().await.is_err() {
            self.end = Some(WatchStep::Closed);
        }
        self.started
    }

    /// The next step. Cancelling the wait loses nothing. After a step that ends the watch, the same step is returned
    /// again.
    pub async fn next(&mut self) -> WatchStep {
        if let Some(end) = &self.end {
            return end.clone();
        }
        let step = loop {
            let step = self.step().await.unwrap_or(WatchStep::Closed);
            let Some(observer) = &mut self.observer else { break step };
            if let Some(seen) = observer.permit(self.inner.member.identity(), &self.filter, step) {
                break seen;
            }
        };
        if !matches!(step, WatchStep::Batch(_) | WatchStep::Progress(_)) {
            self.end = Some(step.clone());
        }
        self.handed_out();
        step
    }

    /// The revision up to which every event was delivered, if it is known now: nothing is on its way to this watch.
    pub fn done(&self) -> Option<Revision> {
        if !self.read.is_empty() || self.end.is_some() {
            return None;
        }
        // Read `served` first: everything served by then was in the buffer before this looks at the buffer.
        let served = self.inner.stage().served;
        let next = self.slot.done(served)?;
        self.mark(next, self.known.max(served))
    }

    async fn step(&mut self) -> Result<WatchStep, MemberEnded> {
        loop {
            if let Some(batch) = self.read.pop_front() {
                return Ok(WatchStep::Batch(batch));
            }
            let at = match self.slot.take() {
                NextBatch::Batch(batch) => return Ok(WatchStep::Batch(batch)),
                NextBatch::Nothing(at) => at,
            };
            match at {
                WatchPosition::Start => self.start().await?,
                WatchPosition::Behind { next, seen: true } => self.join(next),
                WatchPosition::Behind { next, seen: false } => {
                    let next = match self.read_part(next).await? {
                        Ok(next) => next,
                        Err(Compacted { floor }) => return Ok(WatchStep::Compacted { floor }),
                    };
                    if let Some(progress) = self.late_mark(next) {
                        return Ok(progress);
                    }
                }
                WatchPosition::Live { .. } => {
                    if let Some(progress) = self.wait().await {
                        return Ok(progress);
                    }
                }
                WatchPosition::Slow { resume } => return Ok(WatchStep::SlowConsumer { resume }),
                WatchPosition::Closed => return Ok(WatchStep::Closed),
            }
        }
    }

    /// Reads the newest revision.
    async fn start(&mut self) -> Result<(), MemberEnded> {
        loop {
            if self.reading.is_none() {
                let (sender, receiver) = oneshot::channel();
                self.inner.asks.send(HistoryQuestion::Now(sender)).map_err(|_| MemberEnded)?;
                self.reading = Some(receiver);
            }
            let Some(reading) = &mut self.reading else { continue };
            let read = reading.await;
            self.reading = None;
            if let Ok(revision) = read {
                let next = revision.next();
                (self.started, self.known) = (Some(next), next);
                self.slot.set(WatchPosition::Behind { next, seen: true });
                return Ok(());
            }
            if self.inner.member.ended().is_some() {
                return Err(MemberEnded);
            }
            sleep(PAUSE).await;
        }
    }

    /// Reads a part of the history.
    async fn read_part(
        &mut self,
        next: Revision,
    ) -> Result<Result<Revision, Compacted>, MemberEnded> {
        if self.part.is_none() {
            let (sender, receiver) = oneshot::channel();
            self.inner.asks.send(HistoryQuestion::Part(next, sender)).map_err(|_| MemberEnded)?;
            self.part = Some(receiver);
        }
        let Some(part) = &mut self.part else { return Ok(Ok(next)) };
        let read = part.await;
        self.part = None;
        Ok(read.map_err(|_| MemberEnded)?.map(|part| {
            self.keep(&part, next, part.next());
            self.known = part.newest().next();
            let (next, seen) = (part.next(), part.is_complete());
            self.slot.set(WatchPosition::Behind { next, seen });
            next
        }))
    }

    /// Joins the hub's stream, or reads on if too much happened meanwhile.
    fn join(&mut self, next: Revision) {
        let inner = self.inner.clone();
        let stage = inner.stage();
        let joined = stage.join(&self.slot, next);
        let to = stage.next;
        drop(stage);
        let Some(parts) = joined else {
            self.slot.set(WatchPosition::Behind { next, seen: false });
            return;
        };
        for part in parts {
            self.keep(&part, next, to);
        }
    }

    /// Keeps the matching events of the revisions from `from` to before `to`.
    fn keep(&mut self, records: &RevisionRecords, from: Revision, to: Revision) {
        let wanted = from..to;
        let records = records.iter().filter(|record| wanted.contains(&record.revision));
        let (filter, previous) = (self.filter.filter(), self.options.previous);
        self.read.extend(records.filter_map(|record| admitted(record, filter, previous)));
    }

    /// Waits for a batch, or until a progress mark is due.
    async fn wait(&mut self) -> Option<WatchStep> {
        let Some(mark_at) = self.mark_at else {
            self.slot.news.notified().await;
            return None;
        };
        tokio::select! {
            biased;
            () = self.slot.news.notified() => return None,
            () = sleep_until(mark_at) => self.handed_out(),
        }
        self.done().map(WatchStep::Progress)
    }

    /// A progress mark while the watch reads the history, which may match nothing for long.
    fn late_mark(&self, next: Revision) -> Option<WatchStep> {
        let due = self.mark_at.is_some_and(|at| at <= now());
        let next = (due && self.read.is_empty()).then_some(next)?;
        self.mark(next, self.known).map(WatchStep::Progress)
    }

    /// The revision before `next`, up to which everything was delivered; none if the member is not known to have
    /// reached it.
    fn mark(&self, next: Revision, known: Revision) -> Option<Revision> {
        (next <= known).then(|| Revision(next.0.saturating_sub(1)))
    }

    fn handed_out(&mut self) {
        self.mark_at = self.options.progress.map(|every| now() + every);
    }
}

impl Drop for WatchReader {
    fn drop(&mut self) {
        self.inner.stage().index.remove(self.permit);
        self.inner.member.feed().leave();
    }
}

fn now() -> Instant {
    Instant::now()
}
