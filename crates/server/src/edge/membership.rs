//! How do members come, go and lead, whichever member is asked?

use tenure_raft::{MemberId, Replica};
use tenure_wire::Failure;
use tokio::sync::oneshot;

use super::Edge;
use crate::member::{Event, NotTaken};

impl Edge {
    /// Looks at this member as it is.
    pub(crate) async fn look<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&Replica) -> T + Send + 'static,
    ) -> Result<T, Failure> {
        let (done, answer) = oneshot::channel();
        let look = Event::Look(Box::new(move |replica| {
            let _ = done.send(ask(replica));
        }));
        match self.member().try_tell(look) {
            Ok(()) => answer.await.map_err(|_| Failure::ShuttingDown),
            Err(NotTaken::Full(_)) => {
                Err(Failure::Overloaded { retry_after_ms: super::load::RETRY_AFTER_MS })
            }
            Err(NotTaken::Ended(_)) => Err(Failure::ShuttingDown),
        }
    }

    /// Whether this member hears from another one.
    pub(crate) fn hears(&self, id: MemberId) -> bool {
        id == self.member().id() || self.inner.net.is_linked(id)
    }
}
