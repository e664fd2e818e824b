//! How is the machine asked something from a door?

use std::sync::Arc;
use std::time::Duration;

use tenure_core::Machine;
use tenure_raft::Why;
use tenure_types::Revision;
use tokio::sync::oneshot;

use super::{Edge, Failure, deadline_us};
use crate::member::{Event, Undone};
use crate::os;

/// Between two attempts while nobody leads.
pub(super) const PAUSE: Duration = Duration::from_millis(20);

/// How fresh an answer has to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fresh {
    /// Not older than the question.
    Now,
    /// As this member has it.
    Stale,
    /// Not older than this revision.
    AtLeast(Revision),
}

impl Edge {
    /// Asks the machine something, again and again until there is an answer or the time is over. The
    /// answer comes with the revision it is from.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        fresh: Fresh,
        within: Duration,
        ask: impl Fn(&Machine) -> T + Send + Sync + 'static,
    ) -> Result<(Revision, T), Failure> {
        let deadline_us = deadline_us(within);
        let ask = Arc::new(ask);
        loop {
            let (done, answer) = oneshot::channel();
            let ask = ask.clone();
            let question = move |machine: &Machine| {
                let ready = match fresh {
                    Fresh::AtLeast(revision) => machine.revision() >= revision,
                    Fresh::Now | Fresh::Stale => true,
                };
                if ready {
                    let _ = done.send((machine.revision(), ask(machine)));
                }
            };
            let event = match fresh {
                Fresh::Now => Event::Read(Box::new(question)),
                _ => Event::Look(Box::new(move |replica| question(replica.machine()))),
            };
            // A full inbox drops the question, as a leader that cannot confirm itself does.
            let _ = self.member().try_tell(event);
            match tokio::time::timeout(os::until(deadline_us), answer).await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(_)) if self.member().over().is() => return Err(self.unread(fresh)),
                Ok(Err(_)) if os::now_us() < deadline_us => tokio::time::sleep(PAUSE).await,
                Ok(Err(_)) | Err(_) => return Err(self.unread(fresh)),
            }
        }
    }

    /// Why there is no answer. What needs nobody else was in time but for this member.
    fn unread(&self, fresh: Fresh) -> Failure {
        match fresh {
            Fresh::Now => self.failure(Undone::NotDone(Why::NotLeader { leader: None })),
            Fresh::Stale | Fresh::AtLeast(_) => match self.member().ended() {
                Some(end) => Failure::Ended(end),
                None => Failure::Deadline,
            },
        }
    }
}
