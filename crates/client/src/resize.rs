//! Sets how many slots a semaphore has.

use tenure_wire::v1;
use v1::answer::Result as Answer;
use v1::request::Command;

use crate::client::Client;
use crate::error::{Error, strange};
use crate::shared::RequestIdentity;

impl Client {
    /// Sets how many slots a semaphore has, also while it is used. From then on this number counts, whatever number a
    /// request names. `None` leaves it to the requests again: to the first one after the semaphore was not used.
    ///
    /// More slots are granted at once, in the order of the queue. With fewer, every holder keeps its slots, and none is
    /// granted until enough were given back. A client that waits for more slots than there are is refused. Needs
    /// feature level 11.
    ///
    /// ```no_run
    /// # async fn example(client: tenure::Client) -> Result<(), tenure::Error> {
    /// client.resize("runners", Some(12)).await?;
    /// # Ok(()) }
    /// ```
    pub async fn resize(&self, lock: impl Into<String>, slots: Option<u32>) -> Result<(), Error> {
        let (lock, slots, by) = (lock.into(), slots.unwrap_or(0), self.name().to_owned());
        let command = Command::Resize(v1::ResizeRequest { lock, slots, by });
        match self.shared.call(command, RequestIdentity::key()).await? {
            (Answer::Resized(_), _) => Ok(()),
            _ => Err(strange()),
        }
    }
}
