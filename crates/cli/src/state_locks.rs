//! Acquires the locks of states at a cluster, for `tenure store --addr`.

use std::mem::ManuallyDrop;
use std::time::Duration;

use tenure::{Builder, Client, Error, Guard, Refusal, Token};
use tenure_gate::store::{LockRefused, StateCluster, StateFuture, StateHold};
use tokio::sync::OnceCell;

use crate::failure::chain;

/// How long a lock stays held after the store dies. The store acquires it again once it is back.
const TTL: Duration = Duration::from_secs(15);

/// A cluster that is connected to when the first lock is asked for, so that a store starts without it.
pub(crate) struct StateLocks {
    builder: Builder,
    client: OnceCell<Client>,
}

/// A lock that the store holds for a client of its own.
///
/// Dropping the guard would release the lock. When the store stops, the work of its client goes on, so the lock is left
/// to its lease.
struct ClusterHold(ManuallyDrop<Guard>);

impl StateLocks {
    pub(crate) fn new(builder: Builder) -> Self {
        Self { builder, client: OnceCell::new() }
    }
}

impl StateCluster for StateLocks {
    fn acquire<'a>(
        &'a self,
        lock: &'a str,
        note: &'a str,
    ) -> StateFuture<'a, Result<Box<dyn StateHold>, LockRefused>> {
        Box::pin(async move {
            let connect = async || self.builder.clone().connect().await;
            let client =
                self.client.get_or_try_init(connect).await.map_err(|error| refused(&error))?;
            let ask = client.lock(lock).ttl(TTL).metadata(note.to_owned());
            let guard = ask.no_wait().await.map_err(|error| refused(&error))?;
            Ok(Box::new(ClusterHold(ManuallyDrop::new(guard))) as Box<dyn StateHold>)
        })
    }
}

/// Translates an error for the store. Terraform tries again only if another client holds the lock, so each refusal that
/// ends by itself is told as such.
fn refused(error: &Error) -> LockRefused {
    let (client, words) = match error {
        Error::Refused(Refusal::Held(held)) => {
            let client = held.holder.as_ref().map(|holder| holder.client.to_string());
            (client, held.to_string())
        }
        Error::Refused(Refusal::Draining(draining)) => {
            (draining.by.as_ref().map(ToString::to_string), draining.to_string())
        }
        Error::Refused(quiet @ Refusal::Quiet { .. }) => (None, quiet.to_string()),
        other => return LockRefused::Failed(chain(other)),
    };
    LockRefused::Held { client: client.unwrap_or_default(), words }
}

impl StateHold for ClusterHold {
    fn token(&self) -> Token {
        self.0.token()
    }

    fn lost(&self) -> StateFuture<'_, ()> {
        Box::pin(async {
            self.0.lost().await;
        })
    }

    fn release(self: Box<Self>) -> StateFuture<'static, ()> {
        Box::pin(async move {
            match ManuallyDrop::into_inner(self.0).release().await {
                // The store has reported a loss.
                Ok(()) | Err(Error::Lost(_)) => {}
                Err(error) => eprintln!(
                    "warning: a lock was not released and ends with its lease: {}",
                    chain(&error)
                ),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use tenure_types::{Draining, Held, Name};

    use super::*;

    #[test]
    fn a_refusal_that_ends_by_itself_makes_terraform_try_again() {
        let lock = Name::new("prod").unwrap();
        let held = Held { lock: lock.clone(), holder: None, ahead: 1 };
        let draining = Draining {
            lock,
            prefix: "pr".into(),
            by: Some(Name::new("ana").unwrap()),
            reason: "upgrade".into(),
        };
        for (refusal, who, said) in [
            (Refusal::Held(Box::new(held)), "", "lock `prod` is held, 1 waiting"),
            (
                Refusal::Draining(Box::new(draining)),
                "ana",
                "lock `prod` is not granted: `pr` is drained by ana: upgrade",
            ),
            (
                Refusal::Quiet { left_ms: 2_500 },
                "",
                "the cluster was restored; locks are granted in 3 s",
            ),
        ] {
            let expected = LockRefused::Held { client: who.to_owned(), words: said.to_owned() };
            assert_eq!(refused(&Error::Refused(refusal)), expected);
        }
        assert!(matches!(refused(&Error::Unavailable), LockRefused::Failed(_)));
    }
}
