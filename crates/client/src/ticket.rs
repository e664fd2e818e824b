//! Requests signed tickets, with which a holder proves its grant to a resource.

use std::time::Duration;

use tenure_wire::v1;
use tokio::time::Instant;
use v1::ticket_service_client::TicketServiceClient;

use crate::error::Error;
use crate::guard::{Guard, Lock};

/// The pause before the client asks another member.
const PAUSE: Duration = Duration::from_millis(50);

impl Guard {
    /// Requests a signed ticket: a JWT that proves lock, slot, mode, token, lease and holder to a resource that has the
    /// cluster's public keys. For several locks, this is the ticket of the first by name.
    ///
    /// A ticket does not expire. Send it to the resource in place of the token, which it carries.
    /// [`downgrade`](Guard::downgrade) changes the token, so a new ticket is needed after it.
    ///
    /// ```no_run
    /// # async fn send(_: (&str, String)) {}
    /// # async fn example(guard: tenure::Guard) -> Result<(), tenure::Error> {
    /// let ticket = guard.ticket().await?;
    /// send(("Fencing-Token", ticket)).await;
    /// # Ok(()) }
    /// ```
    pub async fn ticket(&self) -> Result<String, Error> {
        match self.locks().next() {
            Some(lock) => self.ticket_of(lock).await,
            None => Err(Error::Unavailable),
        }
    }

    /// Requests a ticket for each lock, in the order of [`locks`](Guard::locks).
    ///
    /// ```no_run
    /// # async fn example(guard: tenure::Guard) -> Result<(), tenure::Error> {
    /// for (lock, ticket) in guard.locks().zip(guard.tickets().await?) {
    ///     println!("{}: {ticket}", lock.name);
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn tickets(&self) -> Result<Vec<String>, Error> {
        let mut tickets = Vec::new();
        for lock in self.locks() {
            tickets.push(self.ticket_of(lock).await?);
        }
        Ok(tickets)
    }

    async fn ticket_of(&self, lock: &Lock) -> Result<String, Error> {
        self.check()?;
        let held = self.held();
        let until = Instant::now() + held.shared.settings.timeout;
        loop {
            let ask = v1::SignTicketRequest {
                lock: lock.name.clone(),
                lease_slot: held.handle.slot,
                lease_generation: held.handle.generation,
                token: lock.token.get(),
                ..Default::default()
            };
            let asked = async |channel| TicketServiceClient::new(channel).sign(ask).await;
            match held.shared.single(asked).await {
                // Signing twice is harmless, and another member may be reachable.
                Err(Error::Unavailable) if Instant::now() < until => {
                    tokio::time::sleep(PAUSE).await;
                }
                signed => return Ok(signed?.ticket),
            }
        }
    }
}
