//! Takes locks and leases away from other clients.

use std::future::IntoFuture;
use std::pin::Pin;

use tenure_types::{LeaseId, Token};
use tenure_wire::{convert, v1};
use v1::answer::Result as Answer;
use v1::request::Command;

use crate::client::Client;
use crate::error::{Error, strange};
use crate::shared::RequestIdentity;

/// Whether a holder that loses its lock may stop its work first.
///
/// ```
/// assert_ne!(tenure::Urgency::StopFirst, tenure::Urgency::Now);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Urgency {
    /// The lock goes to the next waiter only after the holder has confirmed that it stopped, or after its lease would
    /// have ended.
    StopFirst,
    /// The lock goes to the next waiter at once. Only a fence protects the resource from the old holder then.
    Now,
}

/// A request to take a lock away, made by [`Client::force`]. Awaiting it sends it.
///
/// ```no_run
/// # async fn example(client: tenure::Client, token: tenure::Token) -> Result<(), tenure::Error> {
/// let ask = client.force("deploy", token, "runner 7 was deleted", tenure::Urgency::StopFirst);
/// ask.by("ana").await
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing is taken away until this is awaited"]
pub struct ForceAsk {
    client: Client,
    request: v1::ForceRequest,
}

/// A request to end the lease of another client, made by [`Client::revoke`]. Awaiting it sends it.
///
/// ```no_run
/// # async fn example(client: tenure::Client, lease: tenure::LeaseId) -> Result<(), tenure::Error> {
/// client.revoke(lease, "the machine is gone", tenure::Urgency::StopFirst).by("ana").await
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing is revoked until this is awaited"]
pub struct RevokeAsk {
    client: Client,
    request: v1::RevokeRequest,
}

impl Client {
    /// Takes a lock away from the holder that has it under this token. The holder is told the reason and this client's
    /// name, or the one given by [`ForceAsk::by`].
    ///
    /// ```no_run
    /// # async fn example(client: tenure::Client, token: tenure::Token) -> Result<(), tenure::Error> {
    /// client.force("deploy", token, "runner 7 was deleted", tenure::Urgency::StopFirst).await
    /// # }
    /// ```
    pub fn force(
        &self,
        lock: impl Into<String>,
        token: Token,
        reason: &str,
        urgency: Urgency,
    ) -> ForceAsk {
        let request = v1::ForceRequest {
            lock: lock.into(),
            token: token.get(),
            reason: reason.to_owned(),
            now: urgency == Urgency::Now,
            by: self.name().to_owned(),
        };
        ForceAsk { client: self.clone(), request }
    }

    /// Ends the lease of another client and everything bound to it. That client is told the reason and this client's
    /// name, or the one given by [`RevokeAsk::by`].
    ///
    /// ```no_run
    /// # async fn example(client: tenure::Client, lease: tenure::LeaseId) -> Result<(), tenure::Error> {
    /// client.revoke(lease, "the machine is gone", tenure::Urgency::StopFirst).await
    /// # }
    /// ```
    pub fn revoke(&self, lease: LeaseId, reason: &str, urgency: Urgency) -> RevokeAsk {
        let request = v1::RevokeRequest {
            lease: convert::lease(lease),
            by_other: true,
            reason: reason.to_owned(),
            now: urgency == Urgency::Now,
            by: self.name().to_owned(),
            ..Default::default()
        };
        RevokeAsk { client: self.clone(), request }
    }
}

impl ForceAsk {
    /// Takes the lock away in the name of this operator, instead of the client's name.
    ///
    /// ```no_run
    /// # async fn example(client: tenure::Client, token: tenure::Token) -> Result<(), tenure::Error> {
    /// client.force("deploy", token, "stuck for an hour", tenure::Urgency::Now).by("ana").await
    /// # }
    /// ```
    pub fn by(mut self, operator: impl Into<String>) -> Self {
        self.request.by = operator.into();
        self
    }
}

impl RevokeAsk {
    /// Ends the lease in the name of this operator, instead of the client's name.
    ///
    /// ```no_run
    /// # async fn example(client: tenure::Client, lease: tenure::LeaseId) -> Result<(), tenure::Error> {
    /// client.revoke(lease, "the machine is gone", tenure::Urgency::Now).by("ana").await
    /// # }
    /// ```
    pub fn by(mut self, operator: impl Into<String>) -> Self {
        self.request.by = operator.into();
        self
    }
}

impl IntoFuture for ForceAsk {
    type Output = Result<(), Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let command = Command::Force(self.request);
            match self.client.shared.call(command, RequestIdentity::key()).await? {
                (Answer::Forced(_), _) => Ok(()),
                _ => Err(strange()),
            }
        })
    }
}

impl IntoFuture for RevokeAsk {
    type Output = Result<(), Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let command = Command::Revoke(self.request);
            match self.client.shared.call(command, RequestIdentity::key()).await? {
                (Answer::Revoked(_), _) => Ok(()),
                _ => Err(strange()),
            }
        })
    }
}
