//! Elects one of several clients as leader, and lets others observe who leads.

use std::time::Duration;

use bytes::Bytes;
use tenure_types::{LeaseId, Token};
use tenure_wire::{convert, v1};
use tokio::time::Instant;
use tonic::Streaming;
use v1::election_service_client::ElectionServiceClient;

use crate::ask::LockAsk;
use crate::cancellation::Cancellation;
use crate::client::Client;
use crate::clock;
use crate::error::{Error, Meaning};
use crate::guard::Guard;
use crate::lease_state::Lost;
use crate::work::LostWork;

/// The pause between attempts to resume an observation grows from the first value to the second.
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

/// The current leader of an election.
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
    /// The fencing token of its grant.
    pub token: Token,
    /// The leader's lease.
    pub lease: LeaseId,
}

/// A change of leader.
///
/// ```
/// # use tenure::Change;
/// fn route(change: Change) -> Option<bytes::Bytes> {
///     match change { Change::Leader(leader) => Some(leader.value), _ => None }
/// }
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Change {
    /// A client leads, or the leader has changed its value.
    Leader(Leader),
    /// No client leads.
    Vacant,
}

/// Observes an election: the current leader, then each later change that the observer can still learn of.
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

/// Leadership: a guard, and the value that other clients see.
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
    /// Returns the election of this name. Elections and locks share one namespace.
    ///
    /// ```no_run
    /// # fn example(client: tenure::Client) { let billing = client.election("billing"); }
    /// ```
    pub fn election(&self, name: impl Into<String>) -> Election {
        Election { client: self.clone(), name: name.into() }
    }
}

impl Election {
    /// Waits in the queue until this client leads, with a value for other clients to see.
    ///
    /// ```no_run
    /// # async fn example(client: tenure::Client) -> Result<(), tenure::Error> {
    /// let lead = client.election("billing").campaign("10.0.0.5:9000").await?;
    /// # Ok(()) }
    /// ```
    pub async fn campaign(&self, value: impl Into<Bytes>) -> Result<Leadership, Error> {
        self.campaign_with(value, |ask| ask).await
    }

    /// Campaigns with further options of the request, such as how long to wait or which ttl.
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

    /// Returns the current leader, if there is one.
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

    /// Observes the leader, from now on.
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
    /// Returns the next change. The first one is the current state.
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
                    // After a reconnect, the first message may repeat a change that was already returned.
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
        let shared = &self.election.client.shared;
        let session = shared.session(until).await.ok_or_else(|| Some(shared.no_session()))?;
        let ask = v1::LeaderRequest { name: self.election.name.clone(), stale: false };
        let mut client = ElectionServiceClient::new(session.channel.clone());
        let asked = tokio::time::timeout_at(until, client.observe(ask)).await.map_err(|_| None)?;
        asked.map(tonic::Response::into_inner).map_err(|status| failed(&status))
    }
}

impl Leadership {
    /// Returns the guard of the leader's lock.
    ///
    /// ```no_run
    /// # fn example(lead: tenure::Leadership) { println!("token {}", lead.guard().token()); }
    /// ```
    pub fn guard(&self) -> &Guard {
        &self.guard
    }

    /// Checks that this client can rely on leading at this moment. Only compares the clock, sends nothing.
    ///
    /// ```no_run
    /// # fn example(lead: tenure::Leadership) -> Result<(), tenure::Error> {
    /// lead.check()?;
    /// # Ok(()) }
    /// ```
    pub fn check(&self) -> Result<(), Error> {
        self.guard.check()
    }

    /// Returns the fencing token of the leader's grant.
    ///
    /// ```no_run
    /// # fn example(lead: tenure::Leadership) { println!("token {}", lead.token()); }
    /// ```
    pub fn token(&self) -> Token {
        self.guard.token()
    }

    /// Waits until leadership is lost, and returns why and by whom.
    ///
    /// ```no_run
    /// # async fn example(lead: tenure::Leadership) { println!("lost: {}", lead.lost().await); }
    /// ```
    pub async fn lost(&self) -> Lost {
        self.guard.lost().await
    }

    /// Returns a handle that tells work when to stop, for work that cannot be dropped.
    ///
    /// ```no_run
    /// # fn example(lead: tenure::Leadership) { let stop = lead.cancellation(); }
    /// ```
    pub fn cancellation(&self) -> Cancellation {
        self.guard.cancellation()
    }

    /// Runs work, and drops it at its current await if leadership is lost; see [`Guard::run`].
    ///
    /// ```no_run
    /// # async fn serve() {}
    /// # async fn example(lead: tenure::Leadership) -> Result<(), tenure::Error> {
    /// lead.run(serve()).await?;
    /// # Ok(()) }
    /// ```
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output, LostWork<F::Output>> {
        self.guard.run(work).await
    }

    /// Replaces the value that other clients see.
    ///
    /// ```no_run
    /// # async fn example(lead: tenure::Leadership) -> Result<(), tenure::Error> {
    /// lead.proclaim("10.0.0.5:9001").await
    /// # }
    /// ```
    pub async fn proclaim(&self, value: impl Into<Bytes>) -> Result<(), Error> {
        self.guard.update(value).await
    }

    /// Gives up leadership. The caller must have stopped its work.
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

/// Converts a status, or returns `None` if it is worth trying again.
pub(crate) fn failed(status: &tonic::Status) -> Option<Error> {
    match Meaning::of(tenure_wire::status::error_from(status)?) {
        Meaning::No(error) => Some(error),
        Meaning::Again { .. } | Meaning::Doubt => None,
    }
}
