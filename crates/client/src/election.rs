//! How is one of several chosen to lead, and how do others learn who?

use std::time::Duration;

use bytes::Bytes;
use tenure_types::{LeaseId, Token};
use tenure_wire::{convert, v1};
use tokio::time::Instant;
use tonic::Streaming;
use v1::election_service_client::ElectionServiceClient;

use crate::ask::LockAsk;
use crate::client::Client;
use crate::clock;
use crate::error::{Error, Meaning};
use crate::guard::Guard;

/// Pauses between attempts to go on observing grow from the first to the second.
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// An election: a lock whose metadata is the leader's value.
///
/// ```no_run
/// # async fn serve() {}
/// # async fn example(client: tenure::Client) -> Result<(), tenure::Error> {
/// let lead = client.election("billing").campaign("10.0.0.5:9000").await?;
/// lead.run(serve()).await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Election {
    client: Client,
    name: String,
}

/// Who leads.
///
/// ```no_run
/// # async fn example(client: tenure::Client) -> Result<(), tenure::Error> {
/// if let Some(leader) = client.election("billing").leader().await? {
///     println!("{} says {:?}", leader.client, leader.value);
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Leader {
    /// The leader's client.
    pub client: String,
    /// The value it leads with.
    pub value: Bytes,
    /// The fencing token of its leadership.
    pub token: Token,
    /// Its lease.
    pub lease: LeaseId,
}

/// A change of leader.
///
/// ```
/// # use tenure::Change;
/// fn route(change: Change) -> Option<bytes::Bytes> {
///     match change { Change::Leader(leader) => Some(leader.value), Change::Vacant => None }
/// }
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// Somebody leads, or leads with another value.
    Leader(Leader),
    /// Nobody leads.
    Vacant,
}

/// Sees who leads now, and every change after it that it can still learn of.
///
/// ```no_run
/// # async fn example(client: tenure::Client) -> Result<(), tenure::Error> {
/// let mut seen = client.election("billing").observe().await?;
/// while let Some(change) = seen.next().await? { println!("{change:?}"); }
/// # Ok(()) }
/// ```
pub struct Observer {
    election: Election,
    from: Option<Streaming<v1::LeaderResponse>>,
    last: Option<Change>,
}

/// Leadership: a guard, and the value that others see.
///
/// ```no_run
/// # async fn example(lead: tenure::Leadership) -> Result<(), tenure::Error> {
/// lead.proclaim("10.0.0.5:9001").await?;
/// lead.resign().await
/// # }
/// ```
#[derive(Debug)]
#[must_use = "dropping leadership resigns"]
pub struct Leadership {
    guard: Guard,
}

impl Client {
    /// An election by name. Elections and locks share their names.
    ///
    /// ```no_run
    /// # fn example(client: tenure::Client) { let billing = client.election("billing"); }
    /// ```
    pub fn election(&self, name: impl Into<String>) -> Election {
        Election { client: self.clone(), name: name.into() }
    }
}

impl Election {
    /// Waits its turn to lead, with a value for others to see.
    ///
    /// ```no_run
    /// # async fn example(client: tenure::Client) -> Result<(), tenure::Error> {
    /// let lead = client.election("billing").campaign("10.0.0.5:9000").await?;
    /// # Ok(()) }
    /// ```
    pub async fn campaign(&self, value: impl Into<Bytes>) -> Result<Leadership, Error> {
        self.campaign_with(value, |ask| ask).await
    }

    /// Campaigns with more to say about the ask: how long to wait, for which ttl.
    ///
    /// ```no_run
    /// # async fn example(client: tenure::Client) -> Result<(), tenure::Error> {
    /// use std::time::Duration;
    /// let election = client.election("billing");
    /// let lead = election.campaign_with("10.0.0.5:9000", |ask| ask.wait(Duration::from_secs(5))).await?;
    /// # Ok(()) }
    /// ```
    pub async fn campaign_with(
        &self,
        value: impl Into<Bytes>,
        say: impl FnOnce(LockAsk) -> LockAsk,
    ) -> Result<Leadership, Error> {
        let mut ask = say(self.client.lock(&self.name)).metadata(value);
        ask.ask.election = true;
        Ok(Leadership { guard: ask.await? })
    }

    /// Who leads now.
    ///
    /// ```no_run
    /// # async fn example(client: tenure::Client) -> Result<(), tenure::Error> {
    /// let leader = client.election("billing").leader().await?;
    /// # Ok(()) }
    /// ```
    pub async fn leader(&self) -> Result<Option<Leader>, Error> {
        let mut seen = self.observe().await?;
        Ok(match seen.next().await? {
            Some(Change::Leader(leader)) => Some(leader),
            Some(Change::Vacant) | None => None,
        })
    }

    /// Sees who leads, from now on.
    ///
    /// ```no_run
    /// # async fn example(client: tenure::Client) -> Result<(), tenure::Error> {
    /// let mut seen = client.election("billing").observe().await?;
    /// # Ok(()) }
    /// ```
    pub async fn observe(&self) -> Result<Observer, Error> {
        Ok(Observer { election: self.clone(), from: None, last: None })
    }
}

impl Observer {
    /// The next change; the first one is how it stands now.
    ///
    /// ```no_run
    /// # async fn example(mut seen: tenure::Observer) -> Result<(), tenure::Error> {
    /// let change = seen.next().await?;
    /// # Ok(()) }
    /// ```
    pub async fn next(&mut self) -> Result<Option<Change>, Error> {
        let mut pause = PAUSE_MIN;
        let mut until = Instant::now() + self.election.client.shared.settings.timeout;
        loop {
            let Some(from) = &mut self.from else {
                match self.begin(until).await {
                    Ok(from) => self.from = Some(from),
                    Err(Some(error)) => return Err(error),
                    Err(None) if Instant::now() >= until => return Err(Error::Unavailable),
                    Err(None) => {
                        tokio::time::sleep(clock::jittered(pause)).await;
                        pause = (pause * 2).min(PAUSE_MAX);
                    }
                }
                continue;
            };
            match from.message().await {
                Ok(Some(told)) => {
                    let change = change(told.leader);
                    until = Instant::now() + self.election.client.shared.settings.timeout;
                    // After a reconnect the first thing told may be known already.
                    if self.last.as_ref() != Some(&change) {
                        self.last = Some(change.clone());
                        return Ok(Some(change));
                    }
                }
                Ok(None) | Err(_) => {
                    self.from = None;
                    until = Instant::now() + self.election.client.shared.settings.timeout;
                }
            }
        }
    }

    async fn begin(&self, until: Instant) -> Result<Streaming<v1::LeaderResponse>, Option<Error>> {
        let line = self.election.client.shared.line(until).await.ok_or(Some(Error::Unavailable))?;
        let ask = v1::LeaderRequest { name: self.election.name.clone(), stale: false };
        let mut client = ElectionServiceClient::new(line.channel.clone());
        let asked = tokio::time::timeout_at(until, client.observe(ask)).await.map_err(|_| None)?;
        asked.map(tonic::Response::into_inner).map_err(|status| failed(&status))
    }
}

impl Leadership {
    /// The guard underneath.
    ///
    /// ```no_run
    /// # fn example(lead: tenure::Leadership) { println!("token {}", lead.guard().token()); }
    /// ```
    pub fn guard(&self) -> &Guard {
        &self.guard
    }

    /// Runs work that is dropped at its current await if leadership is lost.
    ///
    /// ```no_run
    /// # async fn serve() {}
    /// # async fn example(lead: tenure::Leadership) -> Result<(), tenure::Error> {
    /// lead.run(serve()).await
    /// # }
    /// ```
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output, Error> {
        self.guard.run(work).await
    }

    /// Leads with another value.
    ///
    /// ```no_run
    /// # async fn example(lead: tenure::Leadership) -> Result<(), tenure::Error> {
    /// lead.proclaim("10.0.0.5:9001").await
    /// # }
    /// ```
    pub async fn proclaim(&self, value: impl Into<Bytes>) -> Result<(), Error> {
        self.guard.update(value).await
    }

    /// Gives leadership back. The work has stopped.
    ///
    /// ```no_run
    /// # async fn example(lead: tenure::Leadership) -> Result<(), tenure::Error> {
    /// lead.resign().await
    /// # }
    /// ```
    pub async fn resign(self) -> Result<(), Error> {
        self.guard.release().await
    }
}

fn change(leader: Option<v1::Leadership>) -> Change {
    let known = leader.and_then(|it| {
        Some(Leader {
            client: it.client,
            value: it.value,
            token: Token::from_u64(it.token)?,
            lease: convert::lease_from(it.lease)?,
        })
    });
    known.map_or(Change::Vacant, Change::Leader)
}

/// What a status means: nothing if it is worth trying again.
pub(crate) fn failed(status: &tonic::Status) -> Option<Error> {
    match Meaning::of(tenure_wire::status::error_from(status)?) {
        Meaning::No(error) => Some(error),
        Meaning::Again { .. } | Meaning::Doubt => None,
    }
}
