//! Implements the operator's requests for information: explain, show, list, status, and the cause of a loss.

use tenure_types::Token;
use tenure_wire::v1;
use v1::answer::Result as Answer;
use v1::cluster_service_client::ClusterServiceClient;
use v1::lock_admin_service_client::LockAdminServiceClient;
use v1::request::Command;

use crate::client::Client;
use crate::credentials::MemberChannel;
use crate::election::failed;
use crate::error::{Error, strange};
use crate::guard::Guard;
use crate::lease_state::{Cause, Lost};
use crate::shared::{ClientShared, RequestIdentity, cause};
use crate::view::{Explanation, LockView, Status};

/// The maximum number of history pages that one lookup reads.
const PAGES_MAX: usize = 100;

impl Client {
    /// Returns who holds a lock, who waits for it, and when it can be free.
    ///
    /// ```no_run
    /// # async fn example(client: tenure::Client) -> Result<(), tenure::Error> {
    /// let explained = client.explain("deploy").await?;
    /// println!("{} before the next one", explained.ahead.len());
    /// # Ok(()) }
    /// ```
    pub async fn explain(&self, lock: impl Into<String>) -> Result<Explanation, Error> {
        Ok(Explanation::of(self.wire_explain(lock).await?))
    }

    pub(crate) async fn wire_explain(
        &self,
        lock: impl Into<String>,
    ) -> Result<v1::ExplainResponse, Error> {
        let ask = v1::ExplainRequest { lock: lock.into(), ..Default::default() };
        match self.shared.call(Command::Explain(ask), RequestIdentity::Harmless).await? {
            (Answer::Explained(explained), _) => Ok(*explained),
            _ => Err(strange()),
        }
    }

    /// Returns a lock and its holders, or `None` if no lease holds it or waits for it.
    ///
    /// ```no_run
    /// # async fn example(client: tenure::Client) -> Result<(), tenure::Error> {
    /// let lock = client.show("deploy").await?;
    /// # Ok(()) }
    /// ```
    pub async fn show(&self, lock: impl Into<String>) -> Result<Option<LockView>, Error> {
        Ok(self.wire_show(lock).await?.map(LockView::of))
    }

    pub(crate) async fn wire_show(
        &self,
        lock: impl Into<String>,
    ) -> Result<Option<v1::LockView>, Error> {
        let ask = v1::GetLockRequest { lock: lock.into(), stale: false };
        match self.shared.call(Command::GetLock(ask), RequestIdentity::Harmless).await? {
            (Answer::Lock(shown), _) => Ok(shown.lock),
            _ => Err(strange()),
        }
    }

    /// Returns one page of the locks whose names start with `prefix`, ordered by name. The page starts behind the name
    /// `after`.
    ///
    /// ```no_run
    /// # async fn example(client: tenure::Client) -> Result<(), tenure::Error> {
    /// for lock in client.locks("jobs/", None).await? { println!("{}", lock.name); }
    /// # Ok(()) }
    /// ```
    pub async fn locks(&self, prefix: &str, after: Option<&str>) -> Result<Vec<LockView>, Error> {
        let ask = v1::ListLocksRequest {
            prefix: prefix.to_owned(),
            after: after.unwrap_or_default().to_owned(),
            ..Default::default()
        };
        let asked = async |channel| LockAdminServiceClient::new(channel).list(ask).await;
        Ok(self.single(asked).await?.locks.into_iter().map(LockView::of).collect())
    }

    /// Returns the state of the cluster and of its members.
    ///
    /// ```no_run
    /// # async fn example(client: tenure::Client) -> Result<(), tenure::Error> {
    /// println!("survives {} failures", client.status().await?.survives);
    /// # Ok(()) }
    /// ```
    pub async fn status(&self) -> Result<Status, Error> {
        Ok(Status::of(self.wire_status().await?))
    }

    pub(crate) async fn wire_status(&self) -> Result<v1::StatusResponse, Error> {
        let ask = v1::StatusRequest {};
        self.single(async |channel| ClusterServiceClient::new(channel).status(ask).await).await
    }

    /// Returns how a grant was lost, by whom and why, from the cluster's history. Returns `None` if the grant was not
    /// lost, or if the history no longer reaches back that far.
    ///
    /// A grant also counts as lost if its own client revoked the lease: the cause is then "revoked" and no client is
    /// named. If another client revoked the lease, the history of its locks names that client but carries no reason.
    ///
    /// ```no_run
    /// # async fn example(client: tenure::Client, token: tenure::Token) -> Result<(), tenure::Error> {
    /// if let Some(lost) = client.why_taken("deploy", token).await? {
    ///     println!("{lost}");                  // forced by ops@host: stuck for an hour
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn why_taken(&self, lock: &str, token: Token) -> Result<Option<Lost>, Error> {
        self.shared.why_taken(lock, token).await
    }

    async fn single<T>(
        &self,
        ask: impl AsyncFnOnce(MemberChannel) -> Result<tonic::Response<T>, tonic::Status>,
    ) -> Result<T, Error> {
        self.shared.single(ask).await
    }
}

impl Guard {
    /// Returns why the lock was lost, by whom, and the reason given. Returns `None` if the lock is not lost.
    ///
    /// A guard that was connected at that moment already knows the answer. A guard that was cut off only learns that
    /// its lock is gone, so this call reads the cluster's history, with the limits of [`Client::why_taken`]: it also
    /// reports a lease that its own client revoked, and for a lease that another client revoked it names that client
    /// but no reason.
    ///
    /// ```no_run
    /// # async fn example(guard: tenure::Guard) -> Result<(), tenure::Error> {
    /// guard.lost().await;                     // stop the work first
    /// println!("{:?}", guard.why_lost().await?);
    /// # Ok(()) }
    /// ```
    pub async fn why_lost(&self) -> Result<Option<Lost>, Error> {
        let lost = match self.check() {
            Ok(()) => return Ok(None),
            Err(Error::Lost(lost)) => lost,
            Err(error) => return Err(error),
        };
        if !lost.is_riddle() {
            return Ok(Some(lost));
        }
        for lock in self.locks() {
            if let Some(found) = self.held().shared.why_taken(&lock.name, lock.token).await? {
                return Ok(Some(found));
            }
        }
        Ok(Some(lost))
    }
}

impl ClientShared {
    async fn why_taken(&self, lock: &str, token: Token) -> Result<Option<Lost>, Error> {
        let mut from = 0;
        for _ in 0..PAGES_MAX {
            let ask = v1::HistoryRequest {
                lock: lock.to_owned(),
                from,
                limit: 1_000,
                ..Default::default()
            };
            let asked = async |channel| LockAdminServiceClient::new(channel).history(ask).await;
            let page = self.single(asked).await?;
            let events = page.batches.iter().flat_map(|batch| &batch.events);
            let mut ours = events.filter(|event| event.token == token.get());
            // Of all events of a grant, only its loss has a cause that `cause` maps to something other than `Gone`.
            if let Some(event) = ours.find(|event| cause(event.cause()) != Cause::Gone) {
                let (by, reason) = (event.by.as_deref(), event.reason.as_deref());
                let (by, reason) = (by.unwrap_or_default(), reason.unwrap_or_default());
                return Ok(Some(Lost::on_word(cause(event.cause()), by, reason)));
            }
            if page.next <= from {
                break;
            }
            from = page.next;
        }
        Ok(None)
    }

    /// Sends a query outside of the session, within the usual request timeout.
    pub(crate) async fn single<T>(
        &self,
        ask: impl AsyncFnOnce(MemberChannel) -> Result<tonic::Response<T>, tonic::Status>,
    ) -> Result<T, Error> {
        let until = tokio::time::Instant::now() + self.settings.timeout;
        let session = self.session(until).await.ok_or_else(|| self.no_session())?;
        let answer = tokio::time::timeout_at(until, ask(session.channel.clone())).await;
        let answer = answer.map_err(|_| Error::Unavailable)?;
        Ok(answer.map_err(|status| to_error(&status))?.into_inner())
    }
}

/// Converts the status of a failed query. A query changes nothing, so the result is never "unknown".
fn to_error(status: &tonic::Status) -> Error {
    failed(status).unwrap_or(Error::Unavailable)
}
