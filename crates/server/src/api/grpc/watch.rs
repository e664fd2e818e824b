//! Serves several watches over one gRPC stream.
//!
//! Each watch has a task that takes its steps from the hub and passes them to the stream, which takes a few at a time.
//! A client that does not read makes the tasks wait. The hub then decides what happens to each watch, and the others go
//! on.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use tenure_types::{Refusal, Revision, Verb};
use tenure_wire::shared::{EncodedWatch, WatchFields};
use tenure_wire::status::REASON;
use tenure_wire::{Failure, convert, v1};
use tokio::sync::{Notify, mpsc};
use tokio::task::{AbortHandle, JoinSet};
use tonic::{Status, Streaming};

use super::call::{Streamed, to_status};
use crate::api::{decode, encode, query};
use crate::dispatch::{Caller, Dispatch, Principal};
use crate::metrics::Api;
use crate::watch::{
    BatchForm, OwnedFilter, SharedBatch, Start, WatchOptions, WatchReader, WatchStep,
};

/// The most watches on one stream.
const WATCHES_MAX: usize = 256;
/// The most messages in flight from all watches of a stream to its reader.
const READY_MAX: usize = 64;
/// The time without events after which a watch reports its progress.
const PROGRESS: Duration = Duration::from_secs(30);
/// The pause before a requested progress mark is tried again while events are in flight.
const AGAIN: Duration = Duration::from_millis(10);

/// Serves the watches of one stream.
pub(super) fn serve(
    dispatch: &Dispatch,
    from: Streaming<v1::WatchRequest>,
) -> Streamed<v1::WatchResponse> {
    let (to, ready) = mpsc::channel(READY_MAX);
    let watching = WatchStreams {
        dispatch: dispatch.clone(),
        who: Caller::principal(),
        from,
        asking: true,
        to,
        ready,
        watches: BTreeMap::new(),
        tasks: JoinSet::new(),
        newest: 0,
        over: false,
    };
    Box::pin(stream::unfold(watching, |mut watching| async move {
        let next = watching.next().await?;
        Some((next, watching))
    }))
}

/// All watches of a stream. Dropping it ends them.
struct WatchStreams {
    dispatch: Dispatch,
    who: Principal,
    from: Streaming<v1::WatchRequest>,
    /// Whether the client may still send requests.
    asking: bool,
    to: mpsc::Sender<WatchMessage>,
    ready: mpsc::Receiver<WatchMessage>,
    watches: BTreeMap<i64, RunningWatch>,
    tasks: JoinSet<()>,
    newest: u64,
    over: bool,
}

/// A running watch.
struct RunningWatch {
    serial: u64,
    task: AbortHandle,
    mark: Arc<Notify>,
}

/// A message of a watch. Ids may be used again: the serial number identifies the watch.
struct WatchMessage {
    id: i64,
    serial: u64,
    what: WatchUpdate,
}

enum WatchUpdate {
    Started(Revision),
    Step(WatchStep),
    /// It would start at a revision that does not exist yet.
    Future {
        asked: Revision,
        newest: Revision,
    },
}

impl WatchStreams {
    async fn next(&mut self) -> Option<Result<v1::WatchResponse, Status>> {
        while !self.over {
            tokio::select! {
                request = self.from.next(), if self.asking => match request {
                    Some(Ok(request)) => match self.take(request) {
                        Ok(None) => {}
                        Ok(Some(response)) => return Some(Ok(response)),
                        Err(failure) => return self.end(to_status(failure)),
                    },
                    Some(Err(status)) => return self.end(super::plain(status)),
                    None => self.asking = false,
                },
                Some(said) = self.ready.recv() => {
                    if self.watches.get(&said.id).is_some_and(|one| one.serial == said.serial) {
                        return self.encode(said);
                    }
                }
            }
            while self.tasks.try_join_next().is_some() {}
            // No watch runs, and the client cannot request another.
            self.over = !self.asking && self.watches.is_empty();
        }
        None
    }

    fn end(&mut self, status: Status) -> Option<Result<v1::WatchResponse, Status>> {
        self.over = true;
        // A started stream sends its status in the trailers, which the layer that counts calls does not read.
        if let Some(Ok(reason)) = status.metadata().get(REASON).map(|reason| reason.to_str()) {
            self.dispatch.request_metrics().refused(Api::Grpc, reason);
        }
        Some(Err(status))
    }

    fn take(&mut self, it: v1::WatchRequest) -> Result<Option<v1::WatchResponse>, Failure> {
        let id = it.watch_id;
        if it.cancel {
            let one = self.watches.remove(&id).ok_or_else(|| unknown(id))?;
            one.task.abort();
            let canceled = WatchFields { canceled: true, ..self.fields(Revision(0)) };
            return Ok(Some(v1::WatchResponse::new(id, canceled)));
        }
        if it.progress {
            self.watches.get(&id).ok_or_else(|| unknown(id))?.mark.notify_one();
            return Ok(None);
        }
        if self.watches.contains_key(&id) {
            return Err(decode::invalid("watch_id", "is in use on this stream"));
        }
        if self.watches.len() >= WATCHES_MAX {
            let bound = WATCHES_MAX as u64;
            return Err(Failure::Quota { limit: "watches_per_stream", bound, retry_after_ms: 0 });
        }
        let filter = match (it.key.is_empty(), it.prefix) {
            (true, true) => OwnedFilter::All,
            (true, false) => return Err(decode::invalid("key", "is missing")),
            (false, true) => OwnedFilter::Prefix(it.key),
            (false, false) => OwnedFilter::Exact(it.key),
        };
        let start = match convert::revision_from(it.start_revision) {
            None => return Err(decode::invalid("start_revision", "is negative")),
            Some(Revision(0)) => Start::Now,
            Some(revision) => Start::From(revision),
        };
        let options = WatchOptions {
            progress: Some(PROGRESS),
            previous: it.prev_kv,
            ..WatchOptions::default()
        };
        let watch = self.dispatch.watch(&self.who, filter, start, options)?;
        let (dispatch, who) = (self.dispatch.clone(), self.who.clone());
        self.newest += 1;
        let serial = self.newest;
        let mark = Arc::new(Notify::new());
        let to = self.to.clone();
        let say = move |what| {
            let (to, said) = (to.clone(), WatchMessage { id, serial, what });
            async move { to.send(said).await.is_ok() }
        };
        let marked = mark.clone();
        let task = self.tasks.spawn(async move {
            match future(&dispatch, &who, start).await {
                Some(what) => drop(say(what).await),
                None => run(watch, marked, say).await,
            }
        });
        self.watches.insert(id, RunningWatch { serial, task, mark });
        Ok(None)
    }

    fn encode(&mut self, said: WatchMessage) -> Option<Result<v1::WatchResponse, Status>> {
        let WatchMessage { id, what, .. } = said;
        let ended =
            |fields, error: v1::Error| WatchFields { canceled: true, error: Some(error), ..fields };
        let fields = match what {
            WatchUpdate::Started(next) => {
                let before = Revision(next.0.saturating_sub(1));
                WatchFields { created: true, ..self.fields(before) }
            }
            WatchUpdate::Step(WatchStep::Batch(batch)) => {
                return Some(Ok(v1::WatchResponse::shared(id, self.encoded(&batch))));
            }
            WatchUpdate::Step(WatchStep::Progress(revision)) => {
                let number = convert::revision(revision);
                WatchFields { progress: true, revision: number, ..self.fields(revision) }
            }
            WatchUpdate::Step(WatchStep::Compacted { floor }) => {
                let compact_revision = convert::revision(floor);
                let fields = WatchFields { compact_revision, ..self.fields(floor) };
                ended(fields, Failure::Compacted { floor }.into())
            }
            WatchUpdate::Step(WatchStep::SlowConsumer { resume }) => {
                let resume_revision = convert::revision(resume);
                let fields = WatchFields { resume_revision, ..self.fields(resume) };
                ended(fields, Failure::SlowConsumer { resume }.into())
            }
            WatchUpdate::Future { asked, newest } => {
                let refusal = Refusal::FutureRevision { asked, newest };
                ended(self.fields(newest), v1::Error::from(&refusal))
            }
            WatchUpdate::Step(WatchStep::Forbidden) => {
                let failure = Failure::PermissionDenied { verb: Verb::Observe.name() };
                ended(self.fields(Revision(0)), failure.into())
            }
            WatchUpdate::Step(WatchStep::Closed) => {
                return self.end(to_status(self.dispatch.farewell()));
            }
        };
        if let Some(error) = &fields.error {
            self.dispatch.request_metrics().refused(Api::Grpc, &error.reason);
        }
        if fields.canceled {
            self.watches.remove(&id);
        }
        Some(Ok(v1::WatchResponse::new(id, fields)))
    }

    fn fields(&self, revision: Revision) -> WatchFields {
        WatchFields { header: Some(self.dispatch.header(revision)), ..Default::default() }
    }

    /// The encoded batch. The first stream that needs it encodes it for all.
    fn encoded(&self, batch: &SharedBatch) -> EncodedWatch {
        EncodedWatch::of(batch.form(BatchForm::Proto, |batch| {
            let encode = |it| encode::event(batch.revision, batch.label, it);
            let events = batch.events.iter().map(encode);
            let revision = convert::revision(batch.revision);
            let fields = self.fields(batch.revision);
            WatchFields { revision, events: events.collect(), ..fields }.share().into_bytes()
        }))
    }
}

fn unknown(id: i64) -> Failure {
    decode::invalid("watch_id", &format!("{id} is no watch of this stream"))
}

/// Why a watch cannot start at the requested revision; none if it can, or if the newest revision is not known, so that
/// the watch waits.
async fn future(dispatch: &Dispatch, who: &Principal, start: Start) -> Option<WatchUpdate> {
    let Start::From(asked) = start else { return None };
    let newest = query::beyond(dispatch, who, asked).await.ok()??;
    Some(WatchUpdate::Future { asked, newest })
}

/// Sends the steps of one watch until it ends or the stream is gone.
async fn run<F: Future<Output = bool>>(
    mut watch: WatchReader,
    mark: Arc<Notify>,
    say: impl Fn(WatchUpdate) -> F,
) {
    match watch.started().await {
        Some(next) if !say(WatchUpdate::Started(next)).await => return,
        Some(_) => {}
        None => drop(say(WatchUpdate::Step(WatchStep::Closed)).await),
    }
    let mut marking = false;
    loop {
        if marking && let Some(done) = watch.done() {
            marking = false;
            if !say(WatchUpdate::Step(WatchStep::Progress(done))).await {
                return;
            }
        }
        let step = tokio::select! {
            biased;
            step = watch.next() => step,
            () = mark.notified(), if !marking => {
                marking = true;
                continue;
            }
            () = tokio::time::sleep(AGAIN), if marking => continue,
        };
        let last = !matches!(step, WatchStep::Batch(_) | WatchStep::Progress(_));
        if !say(WatchUpdate::Step(step)).await || last {
            return;
        }
    }
}
