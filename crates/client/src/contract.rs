//! Sends commands of the wire contract that this crate has no API of its own for.
//!
//! For the project's own tools, which show and change everything the contract has. Not part of what this crate
//! promises.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tenure_types::Revision;
use tenure_wire::{convert, v1};
use tokio::time::Instant;

use crate::client::Client;
use crate::credentials::MemberChannel;
use crate::error::{Error, Meaning, RequestId};
use crate::query::meaning;
use crate::shared::RequestIdentity;

impl Client {
    /// Returns the answer to [`Client::explain`] as the wire has it.
    #[doc(hidden)]
    pub async fn explain_raw(&self, lock: impl Into<String>) -> Result<v1::ExplainResponse, Error> {
        self.wire_explain(lock).await
    }

    /// Returns the answer to [`Client::show`] as the wire has it.
    #[doc(hidden)]
    pub async fn show_raw(&self, lock: impl Into<String>) -> Result<Option<v1::LockView>, Error> {
        self.wire_show(lock).await
    }

    /// Returns the answer to [`Client::status`] as the wire has it.
    #[doc(hidden)]
    pub async fn status_raw(&self) -> Result<v1::StatusResponse, Error> {
        self.wire_status().await
    }

    /// Waits until a member that the client is connected to knows a leader, at the longest for `time`, and returns
    /// whether one does.
    #[doc(hidden)]
    pub async fn has_leader(&self, time: Duration) -> bool {
        tokio::time::timeout(time, self.shared.led()).await.is_ok()
    }

    /// For tests of lost renewals: the client does not send renewals while this is set.
    #[doc(hidden)]
    pub fn drop_renewals(&self, drop: bool) {
        self.shared.mute.store(drop, Ordering::Relaxed);
    }

    /// Sends a command over the session, to the leader, until it is answered. With an id it takes effect once, however
    /// often it is sent. Without one it must be harmless to repeat.
    #[doc(hidden)]
    pub async fn ask(
        &self,
        command: v1::request::Command,
        id: Option<&RequestId>,
    ) -> Result<(v1::answer::Result, Revision), Error> {
        let identity =
            id.map_or(RequestIdentity::Harmless, |id| RequestIdentity::Key(id.to_string()));
        let (answer, revision) = self.shared.call(command, identity).await?;
        Ok((answer, convert::revision_from(revision).unwrap_or(Revision(0))))
    }

    /// Sends a query outside of the session, and retries while no member can answer it.
    #[doc(hidden)]
    pub async fn question<T>(
        &self,
        ask: impl AsyncFn(MemberChannel) -> Result<tonic::Response<T>, tonic::Status>,
    ) -> Result<T, Error> {
        self.query(|channel| ask(channel)).await
    }

    /// Sends an administrative command outside of the session. If no answer comes, the error says that it may have
    /// taken effect. It is sent once, and may run for as long as the caller waits, which can be longer than for a
    /// query.
    #[doc(hidden)]
    pub async fn order<T>(
        &self,
        id: &RequestId,
        within: Option<Duration>,
        ask: impl AsyncFnOnce(MemberChannel) -> Result<tonic::Response<T>, tonic::Status>,
    ) -> Result<T, Error> {
        let (began, timeout) = (Instant::now(), self.shared.settings.timeout);
        let session = self.shared.session(began + timeout).await;
        let session = session.ok_or_else(|| self.shared.no_session())?;
        let unknown = || Error::Unknown { request: Some(id.clone()), waited: began.elapsed() };
        let asked = match within {
            Some(within) => tokio::time::timeout(within, ask(session.channel.clone())).await,
            None => Ok(ask(session.channel.clone()).await),
        };
        match asked.map_err(|_| unknown())? {
            Ok(answer) => Ok(answer.into_inner()),
            Err(status) => Err(match meaning(&status) {
                Meaning::No(error) => error,
                Meaning::Again { error, .. } => error.unwrap_or(Error::Unavailable),
                Meaning::Doubt => unknown(),
            }),
        }
    }
}
