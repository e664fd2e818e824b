//! Closes prefixes to new grants for maintenance, opens them again and lists them.

use std::time::Duration;

use tenure_types::Revision;
use tenure_wire::{convert, v1};
use v1::answer::Result as Answer;
use v1::lock_admin_service_client::LockAdminServiceClient;
use v1::request::Command;

use crate::client::Client;
use crate::error::{Error, strange};
use crate::shared::RequestIdentity;

/// A prefix that is closed to new grants.
///
/// ```no_run
/// # async fn example(client: tenure::Client) -> Result<(), tenure::Error> {
/// for drained in client.drains().await? { println!("{}: {}", drained.prefix, drained.reason); }
/// # Ok(()) }
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct DrainView {
    /// The prefix; empty if it is that of every lock.
    pub prefix: String,
    /// How long ago it was closed.
    pub since: Duration,
    /// The name that the operator gave who closed it; empty if none was given.
    pub by: String,
    /// The authenticated caller that closed it; empty if there was none.
    pub principal: String,
    /// The reason that was given; may be empty.
    pub reason: String,
    /// The revision that closed it.
    pub created: Revision,
    /// How many holders below it may still be at work. [`Client::drains`] counts them, an explanation does not.
    pub holders: u64,
    /// Whether there are more holders than one answer counts.
    pub more_holders: bool,
}

impl DrainView {
    pub(crate) fn of(it: v1::DrainView) -> Self {
        Self {
            prefix: it.prefix,
            since: Duration::from_millis(it.drained_ms),
            by: it.by,
            principal: it.principal,
            reason: it.reason,
            created: convert::revision_from(it.created).unwrap_or(Revision(0)),
            holders: it.holders,
            more_holders: it.more_holders,
        }
    }
}

impl Client {
    /// Closes a prefix: no lock whose name begins so is granted until [`Client::undrain`] opens it. Clients that ask
    /// queue, or are refused with this reason if they do not wait. Holders keep their locks, renew and finish. The
    /// empty prefix is that of every lock.
    ///
    /// ```no_run
    /// # async fn example(client: tenure::Client) -> Result<(), tenure::Error> {
    /// client.drain("db/", "new disks").await?;
    /// # Ok(()) }
    /// ```
    pub async fn drain(&self, prefix: impl Into<String>, reason: &str) -> Result<(), Error> {
        let prefix = Some(prefix.into());
        let (reason, by) = (reason.to_owned(), self.name().to_owned());
        let command = Command::Drain(v1::DrainRequest { prefix, reason, by });
        match self.shared.call(command, RequestIdentity::key()).await? {
            (Answer::Drained(_), _) => Ok(()),
            _ => Err(strange()),
        }
    }

    /// Opens a prefix that [`Client::drain`] closed; its queues go on in order. Returns whether it was closed.
    ///
    /// ```no_run
    /// # async fn example(client: tenure::Client) -> Result<(), tenure::Error> {
    /// client.undrain("db/").await?;
    /// # Ok(()) }
    /// ```
    pub async fn undrain(&self, prefix: impl Into<String>) -> Result<bool, Error> {
        let (prefix, by) = (Some(prefix.into()), self.name().to_owned());
        let command = Command::Undrain(v1::UndrainRequest { prefix, by });
        match self.shared.call(command, RequestIdentity::key()).await? {
            (Answer::Undrained(it), _) => Ok(it.existed),
            _ => Err(strange()),
        }
    }

    /// Returns the prefixes that are closed, ordered, with how many holders are left below each.
    ///
    /// ```no_run
    /// # async fn example(client: tenure::Client) -> Result<(), tenure::Error> {
    /// let left: u64 = client.drains().await?.iter().map(|drained| drained.holders).sum();
    /// # Ok(()) }
    /// ```
    pub async fn drains(&self) -> Result<Vec<DrainView>, Error> {
        let ask = v1::ListDrainsRequest::default();
        let asked = async |channel| LockAdminServiceClient::new(channel).list_drains(ask).await;
        let listed = self.shared.single(asked).await?;
        Ok(listed.drains.into_iter().map(DrainView::of).collect())
    }
}
