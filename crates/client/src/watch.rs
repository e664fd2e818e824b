//! Watches locks and keys: every change exactly once and in order, across reconnects.

use std::future::{IntoFuture, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tenure_types::Revision;
use tenure_wire::shared::WatchFields;
use tenure_wire::{convert, v1};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_stream::Stream;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::Streaming;
use v1::lock_service_client::LockServiceClient;

use crate::client::Client;
use crate::clock;
use crate::credentials::MemberChannel;
use crate::election::failed;
use crate::error::Error;
use crate::event::{Batch, Event};
use crate::view::revision;

/// The pause between attempts to resume grows from the first value to the second.
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// A watch to be started. Awaiting it starts it.
///
/// ```no_run
/// # async fn example(client: tenure::Client, revision: tenure::Revision) -> Result<(), tenure::Error> {
/// let mut watch = client.watch_prefix("jobs/").from(revision).await?;
/// while let Some(batch) = watch.next().await? {
///     println!("{}: {} events", batch.revision, batch.events.len());
/// }
/// # Ok(()) }
/// ```
#[must_use = "nothing is watched until this is awaited"]
pub struct WatchAsk {
    client: Client,
    key: String,
    prefix: bool,
    from: Option<Revision>,
    previous: bool,
}

/// A running watch: every change of some locks and keys, each exactly once, in order.
///
/// Also a [`Stream`] of results. After an error that a retry does not help, such as [`Error::Compacted`], it ends.
///
/// ```no_run
/// # async fn example(client: tenure::Client) -> Result<(), tenure::Error> {
/// let mut watch = client.watch("deploy").await?;
/// let batch = watch.next().await?;
/// # Ok(()) }
/// ```
pub struct Watch {
    ask: Arc<WatchAsk>,
    /// The next revision that has not been returned.
    next: Option<Revision>,
    state: WatchState,
}

enum WatchState {
    /// Starts or resumes on a session.
    Starting(Pin<Box<dyn Future<Output = Result<Started, Error>> + Send>>),
    Running(Box<WatchStream>),
    /// Interrupted: the next poll starts again.
    Broken,
    Over,
}

/// A stream that was started, and its first message.
struct Started {
    stream: WatchStream,
    first: WatchFields,
}

struct WatchStream {
    from: Streaming<v1::WatchResponse>,
    /// Kept open, because closing it would end the watch.
    _to: mpsc::UnboundedSender<v1::WatchRequest>,
}

impl Client {
    /// Watches one lock or key.
    ///
    /// ```no_run
    /// # async fn example(client: tenure::Client) -> Result<(), tenure::Error> {
    /// let mut watch = client.watch("deploy").await?;
    /// # Ok(()) }
    /// ```
    pub fn watch(&self, key: impl Into<String>) -> WatchAsk {
        let (client, key) = (self.clone(), key.into());
        WatchAsk { client, key, prefix: false, from: None, previous: false }
    }

    /// Watches all locks and keys whose names start with `prefix`. An empty prefix matches everything.
    ///
    /// ```no_run
    /// # async fn example(client: tenure::Client) -> Result<(), tenure::Error> {
    /// let mut watch = client.watch_prefix("jobs/").await?;
    /// # Ok(()) }
    /// ```
    pub fn watch_prefix(&self, prefix: impl Into<String>) -> WatchAsk {
        WatchAsk { prefix: true, ..self.watch(prefix) }
    }
}

impl WatchAsk {
    /// Starts the watch at this revision. The default is now.
    ///
    /// ```no_run
    /// # async fn example(client: tenure::Client) -> Result<(), tenure::Error> {
    /// let mut watch = client.watch("deploy").from(tenure::Revision(8841)).await?;
    /// # Ok(()) }
    /// ```
    pub fn from(mut self, revision: Revision) -> Self {
        self.from = Some(revision);
        self
    }

    /// Includes the previous value in each event.
    ///
    /// ```no_run
    /// # async fn example(client: tenure::Client) -> Result<(), tenure::Error> {
    /// let mut watch = client.watch("config").with_previous().await?;
    /// # Ok(()) }
    /// ```
    pub fn with_previous(mut self) -> Self {
        self.previous = true;
        self
    }
}

impl IntoFuture for WatchAsk {
    type Output = Result<Watch, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let (next, ask) = (self.from, Arc::new(self));
            let started = start(ask.clone(), next).await?;
            let mut watch = Watch { ask, next, state: WatchState::Broken };
            watch.started(started)?;
            Ok(watch)
        })
    }
}

impl Stream for Watch {
    type Item = Result<Batch, Error>;

    fn poll_next(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Batch, Error>>> {
        let batch = |(revision, events): RevisionEvents| {
            let events = events.into_iter().map(Event::of).collect();
            Batch { revision, events }
        };
        self.poll_raw(context).map(|next| next.map(|raw| raw.map(batch)))
    }
}

/// A revision, and its events as the wire has them.
type RevisionEvents = (Revision, Vec<v1::Event>);

impl Watch {
    /// Returns the next revision that changed something. If the connection breaks, the watch resumes on another one
    /// where it was. If the history no longer reaches back there, this returns [`Error::Compacted`]. Dropping the
    /// future loses nothing.
    ///
    /// Returns [`Error::Unavailable`] if no member can be reached within the client's timeout; the next call goes on
    /// where the watch was. Returns `None` after an error that a retry does not help.
    ///
    /// ```no_run
    /// # async fn example(mut watch: tenure::Watch) -> Result<(), tenure::Error> {
    /// while let Some(batch) = watch.next().await? { println!("{}", batch.revision); }
    /// # Ok(()) }
    /// ```
    pub async fn next(&mut self) -> Result<Option<Batch>, Error> {
        poll_fn(|context| Pin::new(&mut *self).poll_next(context)).await.transpose()
    }

    /// Does the same, with the events as the wire has them.
    #[cfg(feature = "internals")]
    #[doc(hidden)]
    pub async fn next_raw(&mut self) -> Result<Option<crate::event::RawBatch>, Error> {
        let next = poll_fn(|context| self.poll_raw(context)).await.transpose()?;
        Ok(next.map(|(revision, events)| crate::event::RawBatch { revision, events }))
    }

    fn poll_raw(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<RevisionEvents, Error>>> {
        loop {
            let heard = match &mut self.state {
                WatchState::Over => return Poll::Ready(None),
                WatchState::Broken => {
                    let starting = Box::pin(start(self.ask.clone(), self.next));
                    self.state = WatchState::Starting(starting);
                    continue;
                }
                WatchState::Starting(starting) => match ready!(starting.as_mut().poll(context)) {
                    Ok(started) => self.started(started).map(|()| None),
                    Err(error) => Err(error),
                },
                WatchState::Running(stream) => {
                    match ready!(Pin::new(&mut stream.from).poll_next(context)) {
                        Some(Ok(message)) => self.take(message.into_fields()),
                        Some(Err(_)) | None => {
                            self.state = WatchState::Broken;
                            Ok(None)
                        }
                    }
                }
            };
            match heard {
                Ok(None) => {}
                Ok(Some(batch)) => return Poll::Ready(Some(Ok(batch))),
                Err(error) => {
                    let passing = matches!(error, Error::Unavailable);
                    self.state = if passing { WatchState::Broken } else { WatchState::Over };
                    return Poll::Ready(Some(Err(error)));
                }
            }
        }
    }

    fn started(&mut self, started: Started) -> Result<(), Error> {
        let Started { stream, first } = started;
        if first.created && self.next.is_none() {
            // A watch from now on begins behind the revision of the confirmation.
            let before = first.header.as_ref().and_then(|it| convert::revision_from(it.revision));
            self.next = before.map(Revision::next);
        }
        self.state = WatchState::Running(Box::new(stream));
        self.take(first).map(drop)
    }

    fn take(&mut self, it: WatchFields) -> Result<Option<RevisionEvents>, Error> {
        if it.compact_revision != 0 {
            return Err(Error::Compacted { floor: revision(it.compact_revision) });
        }
        if it.canceled {
            self.state = WatchState::Broken;
            if it.resume_revision != 0 {
                self.next = Some(revision(it.resume_revision));
                return Ok(None);
            }
            return match it.error.map(crate::error::Meaning::of) {
                Some(crate::error::Meaning::No(error)) => Err(error),
                _ => Ok(None),
            };
        }
        if it.created {
            return Ok(None);
        }
        let at = revision(it.revision);
        // Revisions that were already returned are skipped, whatever a member sends.
        if self.next.is_some_and(|next| at < next) {
            return Ok(None);
        }
        self.next = Some(at.next());
        if it.progress || it.events.is_empty() {
            return Ok(None);
        }
        Ok(Some((at, it.events)))
    }
}

/// Starts or resumes a watch, within the client's timeout.
async fn start(ask: Arc<WatchAsk>, next: Option<Revision>) -> Result<Started, Error> {
    let shared = &ask.client.shared;
    let until = Instant::now() + shared.settings.timeout;
    let mut pause = PAUSE_MIN;
    loop {
        let session = shared.session(until).await.ok_or_else(|| shared.no_session())?;
        match tokio::time::timeout_at(until, begin(&ask, next, session.channel.clone())).await {
            Ok(Ok(started)) => return Ok(started),
            Ok(Err(Some(error))) => return Err(error),
            Ok(Err(None)) | Err(_) if Instant::now() >= until => return Err(Error::Unavailable),
            Ok(Err(None)) | Err(_) => {
                tokio::time::sleep(clock::jittered(pause)).await;
                pause = (pause * 2).min(PAUSE_MAX);
            }
        }
    }
}

/// Starts or resumes a watch on one session, and waits for the member's confirmation.
async fn begin(
    ask: &WatchAsk,
    next: Option<Revision>,
    channel: MemberChannel,
) -> Result<Started, Option<Error>> {
    let (to, requests) = mpsc::unbounded_channel();
    let asked = v1::WatchRequest {
        key: ask.key.clone(),
        prefix: ask.prefix,
        start_revision: next.map_or(0, convert::revision),
        watch_id: 1,
        prev_kv: ask.previous,
        ..Default::default()
    };
    to.send(asked).map_err(|_| None)?;
    let requests = UnboundedReceiverStream::new(requests);
    let opened = LockServiceClient::new(channel).watch(requests).await;
    let mut from = opened.map_err(|status| failed(&status))?.into_inner();
    let first = from.message().await.map_err(|status| failed(&status))?.ok_or(None)?;
    Ok(Started { stream: WatchStream { from, _to: to }, first: first.into_fields() })
}
