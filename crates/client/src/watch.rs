//! Watches locks and keys: every change exactly once and in order, across reconnects.

use std::future::IntoFuture;
use std::pin::Pin;
use std::time::Duration;

use tenure_types::Revision;
use tenure_wire::{convert, v1};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::Streaming;
use v1::lock_service_client::LockServiceClient;

use crate::client::Client;
use crate::clock;
use crate::election::failed;
use crate::error::Error;

/// The pause between attempts to resume grows from the first value to the second.
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// One change, as the cluster reports it.
pub use tenure_wire::v1::Event;

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
/// ```no_run
/// # async fn example(client: tenure::Client) -> Result<(), tenure::Error> {
/// let mut watch = client.watch("deploy").await?;
/// let batch = watch.next().await?;
/// # Ok(()) }
/// ```
pub struct Watch {
    ask: WatchAsk,
    /// The next revision that has not been returned.
    next: Option<Revision>,
    stream: Option<WatchStream>,
}

struct WatchStream {
    from: Streaming<v1::WatchResponse>,
    /// Kept open, because closing it would end the watch.
    _to: mpsc::UnboundedSender<v1::WatchRequest>,
}

/// All events of one revision.
///
/// ```no_run
/// # fn example(batch: tenure::Batch) {
/// for event in &batch.events { println!("{:?} {}", event.cause(), event.client); }
/// # }
/// ```
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct Batch {
    /// The revision of the events.
    pub revision: Revision,
    /// The events, in order.
    pub events: Vec<Event>,
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
            let next = self.from;
            let mut watch = Watch { ask: self, next, stream: None };
            watch.begin_until().await?;
            Ok(watch)
        })
    }
}

impl Watch {
    /// Returns the next revision that changed something. If the connection breaks, the watch resumes on another one
    /// where it was. If the history no longer reaches back there, this returns [`Error::Compacted`].
    ///
    /// ```no_run
    /// # async fn example(mut watch: tenure::Watch) -> Result<(), tenure::Error> {
    /// while let Some(batch) = watch.next().await? { println!("{}", batch.revision); }
    /// # Ok(()) }
    /// ```
    pub async fn next(&mut self) -> Result<Option<Batch>, Error> {
        loop {
            let Some(stream) = &mut self.stream else {
                self.begin_until().await?;
                continue;
            };
            let Ok(Some(message)) = stream.from.message().await else {
                self.stream = None;
                continue;
            };
            if let Some(batch) = self.take(message.into_fields())? {
                return Ok(Some(batch));
            }
        }
    }

    fn take(&mut self, it: tenure_wire::shared::WatchFields) -> Result<Option<Batch>, Error> {
        let revision = |number| convert::revision_from(number).unwrap_or(Revision(0));
        if it.compact_revision != 0 {
            return Err(Error::Compacted { floor: revision(it.compact_revision) });
        }
        if it.canceled {
            self.stream = None;
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
        Ok(Some(Batch { revision: at, events: it.events }))
    }

    async fn begin_until(&mut self) -> Result<(), Error> {
        let until = Instant::now() + self.ask.client.shared.settings.timeout;
        let mut pause = PAUSE_MIN;
        loop {
            let session = self.ask.client.shared.session(until).await;
            let session = session.ok_or_else(|| self.ask.client.shared.no_session())?;
            match tokio::time::timeout_at(until, self.begin(session.channel.clone())).await {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(Some(error))) => return Err(error),
                Ok(Err(None)) | Err(_) if Instant::now() >= until => {
                    return Err(Error::Unavailable);
                }
                Ok(Err(None)) | Err(_) => {
                    tokio::time::sleep(clock::jittered(pause)).await;
                    pause = (pause * 2).min(PAUSE_MAX);
                }
            }
        }
    }

    /// Starts or resumes the watch, and waits for the member's confirmation.
    async fn begin(
        &mut self,
        channel: crate::credentials::MemberChannel,
    ) -> Result<(), Option<Error>> {
        let (to, requests) = mpsc::unbounded_channel();
        let asked = v1::WatchRequest {
            key: self.ask.key.clone(),
            prefix: self.ask.prefix,
            start_revision: self.next.map_or(0, convert::revision),
            watch_id: 1,
            prev_kv: self.ask.previous,
            ..Default::default()
        };
        to.send(asked).map_err(|_| None)?;
        let requests = UnboundedReceiverStream::new(requests);
        let opened = LockServiceClient::new(channel).watch(requests).await;
        let mut from = opened.map_err(|status| failed(&status))?.into_inner();
        let first = from.message().await.map_err(|status| failed(&status))?.ok_or(None)?;
        let first = first.into_fields();
        if first.created && self.next.is_none() {
            // A watch from now on begins behind the revision of the confirmation.
            let before = first.header.as_ref().and_then(|it| convert::revision_from(it.revision));
            self.next = before.map(Revision::next);
        }
        self.stream = Some(WatchStream { from, _to: to });
        self.take(first).map_err(Some)?;
        Ok(())
    }
}
