//! What does the one who watches see?

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::{Compacted, Records};
use tenure_types::Revision;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, sleep_until};

use super::index::Seat;
use super::library::{Ask, Part};
use super::shared::{OwnedFilter, Shared, admitted};
use super::slot::{At, Found, Slot};
use super::{Inner, Options, Start};

/// Between two attempts to learn which revision now is, while nobody leads.
const PAUSE: Duration = Duration::from_millis(20);

/// The next thing a watch has to say.
#[derive(Clone, Debug)]
pub enum Step {
    /// The events of one revision.
    Batch(Arc<Shared>),
    /// Every event up to this revision was handed out.
    Progress(Revision),
    /// The revision that is next is older than the history. The watch has ended.
    Compacted {
        /// The oldest revision that can be watched from.
        floor: Revision,
    },
    /// Too much waited for too long. The watch has ended.
    SlowConsumer {
        /// Where to go on: everything before it was handed out.
        resume: Revision,
    },
    /// The member has ended.
    Closed,
}

/// A subscription. Dropping it ends it.
pub struct Watch {
    inner: Arc<Inner>,
    slot: Arc<Slot>,
    seat: Seat,
    filter: OwnedFilter,
    options: Options,
    /// Read from the history and older than anything in the buffer.
    read: VecDeque<Arc<Shared>>,
    /// A question on its way; kept, so that giving up a `next` loses nothing.
    looking: Option<oneshot::Receiver<Part>>,
    reading: Option<oneshot::Receiver<Revision>>,
    started: Option<Revision>,
    /// The member is known to have everything before this.
    known: Revision,
    mark_at: Option<Instant>,
    end: Option<Step>,
}

/// The member has ended.
struct Ended;

impl Watch {
    pub(super) fn new(
        inner: Arc<Inner>,
        filter: OwnedFilter,
        start: Start,
        options: Options,
    ) -> Self {
        let (at, started) = match start {
            Start::Now => (At::Start, None),
            Start::From(next) => (At::Behind { next, seen: false }, Some(next)),
        };
        let patience_us = u64::try_from(options.patience.as_micros()).unwrap_or(u64::MAX);
        let slot = Arc::new(Slot::new(at, patience_us));
        // First of all: from now on the loop offers what it applies.
        inner.member.feed().enter();
        let mut stage = inner.stage();
        if stage.closed {
            slot.close();
        }
        let seat = stage.index.add(&filter, options.previous, slot.clone());
        drop(stage);
        let mut watch = Self {
            inner,
            slot,
            seat,
            filter,
            options,
            read: VecDeque::new(),
            looking: None,
            reading: None,
            started,
            known: Revision(0),
            mark_at: None,
            end: None,
        };
        watch.handed_out();
        watch
    }

    /// The revision that it starts at, once that is known: every event from it on is handed out, and
    /// none before. For [`Start::Now`] it is fixed by a read that begins when this or
    /// [`next`](Self::next) is first awaited, so nothing that was acknowledged before is handed out.
    pub async fn started(&mut self) -> Option<Revision> {
        if self.started.is_none() && self.start().await.is_err() {
            self.end = Some(Step::Closed);
        }
        self.started
    }

    /// The next step. Giving up waiting for it loses nothing. After a step that ends the watch there
    /// is no other.
    pub async fn next(&mut self) -> Step {
        if let Some(end) = &self.end {
            return end.clone();
        }
        let step = self.step().await.unwrap_or(Step::Closed);
        if !matches!(step, Step::Batch(_) | Step::Progress(_)) {
            self.end = Some(step.clone());
        }
        self.handed_out();
        step
    }

    /// The revision up to which every event was handed out, if that can be told now: there is nothing
    /// on its way to this watch.
    pub fn done(&self) -> Option<Revision> {
        if !self.read.is_empty() || self.end.is_some() {
            return None;
        }
        // In this order: what was served by then was in the buffer before it is looked at.
        let served = self.inner.stage().served;
        let next = self.slot.done(served)?;
        self.mark(next, self.known.max(served))
    }

    async fn step(&mut self) -> Result<Step, Ended> {
        loop {
            if let Some(batch) = self.read.pop_front() {
                return Ok(Step::Batch(batch));
            }
            let at = match self.slot.take() {
                Found::Batch(batch) => return Ok(Step::Batch(batch)),
                Found::Nothing(at) => at,
            };
            match at {
                At::Start => self.start().await?,
                At::Behind { next, seen: true } => self.join(next),
                At::Behind { next, seen: false } => {
                    let next = match self.look(next).await? {
                        Ok(next) => next,
                        Err(Compacted { floor }) => return Ok(Step::Compacted { floor }),
                    };
                    if let Some(progress) = self.late_mark(next) {
                        return Ok(progress);
                    }
                }
                At::Live { .. } => {
                    if let Some(progress) = self.wait().await {
                        return Ok(progress);
                    }
                }
                At::Slow { resume } => return Ok(Step::SlowConsumer { resume }),
                At::Closed => return Ok(Step::Closed),
            }
        }
    }

    /// Finds out which revision now is.
    async fn start(&mut self) -> Result<(), Ended> {
        loop {
            if self.reading.is_none() {
                let (sender, receiver) = oneshot::channel();
                self.inner.asks.send(Ask::Now(sender)).map_err(|_| Ended)?;
                self.reading = Some(receiver);
            }
            let Some(reading) = &mut self.reading else { continue };
            let read = reading.await;
            self.reading = None;
            if let Ok(revision) = read {
                let next = revision.next();
                (self.started, self.known) = (Some(next), next);
                self.slot.set(At::Behind { next, seen: true });
                return Ok(());
            }
            if self.inner.member.ended().is_some() {
                return Err(Ended);
            }
            sleep(PAUSE).await;
        }
    }

    /// Reads a part of the history.
    async fn look(&mut self, next: Revision) -> Result<Result<Revision, Compacted>, Ended> {
        if self.looking.is_none() {
            let (sender, receiver) = oneshot::channel();
            self.inner.asks.send(Ask::Part(next, sender)).map_err(|_| Ended)?;
            self.looking = Some(receiver);
        }
        let Some(looking) = &mut self.looking else { return Ok(Ok(next)) };
        let looked = looking.await;
        self.looking = None;
        Ok(looked.map_err(|_| Ended)?.map(|part| {
            self.keep(&part, next, part.next());
            self.known = part.newest().next();
            let (next, seen) = (part.next(), part.is_complete());
            self.slot.set(At::Behind { next, seen });
            next
        }))
    }

    /// Goes over to the hub's stream, or reads on if too much happened meanwhile.
    fn join(&mut self, next: Revision) {
        let inner = self.inner.clone();
        let stage = inner.stage();
        let joined = stage.join(&self.slot, next);
        let to = stage.next;
        drop(stage);
        let Some(parts) = joined else {
            self.slot.set(At::Behind { next, seen: false });
            return;
        };
        for part in parts {
            self.keep(&part, next, to);
        }
    }

    /// Keeps what matches of the revisions from `from` to before `to`.
    fn keep(&mut self, records: &Records, from: Revision, to: Revision) {
        let wanted = from..to;
        let records = records.iter().filter(|record| wanted.contains(&record.revision));
        let (filter, previous) = (self.filter.filter(), self.options.previous);
        self.read.extend(records.filter_map(|record| admitted(record, filter, previous)));
    }

    /// Waits for news, or until a mark is due.
    async fn wait(&mut self) -> Option<Step> {
        let Some(mark_at) = self.mark_at else {
            self.slot.news.notified().await;
            return None;
        };
        tokio::select! {
            biased;
            () = self.slot.news.notified() => return None,
            () = sleep_until(mark_at) => self.handed_out(),
        }
        self.done().map(Step::Progress)
    }

    /// A mark while reading the history, which may match nothing for long.
    fn late_mark(&self, next: Revision) -> Option<Step> {
        let due = self.mark_at.is_some_and(|at| at <= now());
        let next = (due && self.read.is_empty()).then_some(next)?;
        self.mark(next, self.known).map(Step::Progress)
    }

    /// Everything before `next` was handed out; none if the cluster is not known to be there yet.
    fn mark(&self, next: Revision, known: Revision) -> Option<Revision> {
        (next <= known).then(|| Revision(next.0.saturating_sub(1)))
    }

    fn handed_out(&mut self) {
        self.mark_at = self.options.progress.map(|every| now() + every);
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.inner.stage().index.remove(self.seat);
        self.inner.member.feed().leave();
    }
}

fn now() -> Instant {
    Instant::now()
}
