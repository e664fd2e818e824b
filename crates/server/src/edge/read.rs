//! Asks the machine on behalf of an API.

use std::time::Duration;

use tenure_core::Machine;
use tenure_node::{Fresh, Principal};
use tenure_types::Revision;
use tokio::sync::oneshot;

use super::{Edge, Failure, LAST_WORD};
use crate::member::Event;

impl Edge {
    /// Asks the machine something. The answer comes with the revision it is from.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        fresh: Fresh,
        within: Duration,
        ask: impl FnOnce(&Machine) -> T + Send + 'static,
    ) -> Result<(Revision, T), Failure> {
        let (done, answer) = oneshot::channel();
        let question = Box::new(move |machine: Result<&Machine, tenure_node::Failure>| {
            let _ = done.send(machine.map(|machine| (machine.revision(), ask(machine))));
        });
        let (principal, deadline_us) = (Principal::anyone(), self.deadline_us(within));
        let event = Event::Read { question, principal, fresh, deadline_us };
        if let Err(not_taken) = self.member().try_tell(event) {
            return Err(self.failure(not_taken.back().1, within));
        }
        let failure = match tokio::time::timeout(within + LAST_WORD, answer).await {
            Ok(Ok(Ok(answer))) => return Ok(answer),
            Ok(Ok(Err(failure))) => failure,
            Ok(Err(_)) => tenure_node::Failure::Stopping,
            // The event loop waits, for its disk most likely.
            Err(_) => tenure_node::Failure::Expired,
        };
        Err(self.failure(failure, within))
    }
}
