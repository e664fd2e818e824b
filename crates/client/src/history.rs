//! Reads what happened to locks, also from the archives of members.

use std::time::{Duration, SystemTime};

use tenure_types::Revision;
use tenure_wire::{convert, v1};
use v1::lock_admin_service_client::LockAdminServiceClient;

use crate::{Batch, Client, Error, Event};

/// The most revisions in one answer of a member.
const PAGE: u32 = 1_000;

/// A search of the past, made by [`Client::history`].
///
/// ```no_run
/// # async fn example(client: tenure::Client) -> Result<(), tenure::Error> {
/// use std::time::{Duration, SystemTime};
/// let past = client.history("deploy").since(SystemTime::now() - Duration::from_secs(7_200)).lost().read().await?;
/// for batch in &past.batches { println!("{} {:?}", batch.revision, batch.events); }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[must_use = "a search does nothing until it is read"]
pub struct HistoryAsk {
    client: Client,
    lock: String,
    search: v1::ArchiveSearch,
    limit: usize,
}

/// What is known of the past.
///
/// ```no_run
/// # async fn example(client: tenure::Client) -> Result<(), tenure::Error> {
/// let past = client.history("deploy").read().await?;
/// if let Some(begins) = past.archive_begins { println!("complete from revision {begins} on"); }
/// # Ok(()) }
/// ```
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct Past {
    /// The newest revisions that were asked for, oldest first.
    pub batches: Vec<Batch>,
    /// The revision from which on the member has the events of these locks; `None` if it keeps no archive.
    pub archive_begins: Option<Revision>,
    /// The time of the first event from there on, by the wall clock of that moment's leader.
    pub archive_begins_at: Option<SystemTime>,
    /// Revisions that the member could not record: the first, and the one after the last. Another member may have them.
    pub missing: Vec<(Revision, Revision)>,
}

impl Client {
    /// Reads what happened to a lock: the newest 1,000 revisions, from the cluster and from the archive of a member.
    ///
    /// ```no_run
    /// # async fn example(client: tenure::Client) -> Result<(), tenure::Error> {
    /// let past = client.history("deploy").read().await?;
    /// # Ok(()) }
    /// ```
    pub fn history(&self, lock: impl Into<String>) -> HistoryAsk {
        let search = v1::ArchiveSearch::default();
        HistoryAsk { client: self.clone(), lock: lock.into(), search, limit: PAGE as usize }
    }

    /// Reads what happened to all locks whose names begin with `prefix`. An empty prefix matches every lock.
    ///
    /// ```no_run
    /// # async fn example(client: tenure::Client) -> Result<(), tenure::Error> {
    /// let losses = client.history_prefix("jobs/").lost().read().await?;
    /// # Ok(()) }
    /// ```
    pub fn history_prefix(&self, prefix: impl Into<String>) -> HistoryAsk {
        let mut ask = self.history(prefix);
        ask.search.prefix = true;
        ask
    }
}

impl HistoryAsk {
    /// Only events since this time, by their labels.
    ///
    /// ```no_run
    /// # async fn example(client: tenure::Client, then: std::time::SystemTime) -> Result<(), tenure::Error> {
    /// let past = client.history("deploy").since(then).read().await?;
    /// # Ok(()) }
    /// ```
    pub fn since(mut self, time: SystemTime) -> Self {
        self.search.since_unix_ms = Some(unix_ms(time));
        self
    }

    /// Only events until this time, by their labels.
    ///
    /// ```no_run
    /// # async fn example(client: tenure::Client, then: std::time::SystemTime) -> Result<(), tenure::Error> {
    /// let past = client.history("deploy").until(then).read().await?;
    /// # Ok(()) }
    /// ```
    pub fn until(mut self, time: SystemTime) -> Self {
        self.search.until_unix_ms = Some(unix_ms(time));
        self
    }

    /// Only events of clients whose names begin with this text.
    ///
    /// ```no_run
    /// # async fn example(client: tenure::Client) -> Result<(), tenure::Error> {
    /// let past = client.history("deploy").of_client("ci-7").read().await?;
    /// # Ok(()) }
    /// ```
    pub fn of_client(mut self, client: impl Into<String>) -> Self {
        self.search.client = client.into();
        self
    }

    /// Only ends of holds that the holder did not ask for.
    ///
    /// ```no_run
    /// # async fn example(client: tenure::Client) -> Result<(), tenure::Error> {
    /// let losses = client.history("deploy").lost().read().await?;
    /// # Ok(()) }
    /// ```
    pub fn lost(mut self) -> Self {
        self.search.lost = true;
        self
    }

    /// The most revisions; the newest ones are kept.
    ///
    /// ```no_run
    /// # async fn example(client: tenure::Client) -> Result<(), tenure::Error> {
    /// let newest = client.history("deploy").limit(10).read().await?;
    /// # Ok(()) }
    /// ```
    pub fn limit(mut self, revisions: usize) -> Self {
        self.limit = revisions;
        self
    }

    /// Reads it.
    ///
    /// ```no_run
    /// # async fn example(client: tenure::Client) -> Result<(), tenure::Error> {
    /// let past = client.history("deploy").read().await?;
    /// println!("the archive begins at {:?}", past.archive_begins_at);
    /// # Ok(()) }
    /// ```
    pub async fn read(mut self) -> Result<Past, Error> {
        let mut past = Past {
            batches: Vec::new(),
            archive_begins: None,
            archive_begins_at: None,
            missing: Vec::new(),
        };
        let revision = |number| convert::revision_from(number).unwrap_or(Revision(0));
        loop {
            let ask = v1::HistoryRequest {
                lock: self.lock.clone(),
                limit: PAGE,
                archive: Some(self.search.clone()),
                ..Default::default()
            };
            let asked = |channel| {
                let ask = ask.clone();
                async move { LockAdminServiceClient::new(channel).history(ask).await }
            };
            let page = self.client.query(asked).await?;
            for batch in page.batches {
                if past.batches.len() < self.limit {
                    let events = batch.events.into_iter().map(Event::of).collect();
                    past.batches.push(Batch { revision: revision(batch.revision), events });
                }
            }
            if let Some(archive) = page.archive {
                past.archive_begins = archive.begins.map(revision);
                past.archive_begins_at = archive.begins_unix_ms.map(time);
                for hole in archive.holes {
                    let hole = (revision(hole.from), revision(hole.next));
                    if !past.missing.contains(&hole) {
                        past.missing.push(hole);
                    }
                }
            }
            match page.before.filter(|_| past.batches.len() < self.limit) {
                Some(before) => self.search.before = before,
                None => break,
            }
        }
        past.batches.reverse();
        Ok(past)
    }
}

fn unix_ms(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

pub(crate) fn time(unix_ms: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH
        .checked_add(Duration::from_millis(unix_ms))
        .unwrap_or(SystemTime::UNIX_EPOCH)
}
