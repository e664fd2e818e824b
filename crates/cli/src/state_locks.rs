//! Acquires the locks of states at a cluster, for `tenure store --addr`.

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
struct ClusterHold(Guard);

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
            let failed = |error: Error| LockRefused::Failed(chain(&error));
            let connect = async || self.builder.clone().connect().await;
            let client = self.client.get_or_try_init(connect).await.map_err(failed)?;
            let ask = client.lock(lock).ttl(TTL).metadata(note.to_owned());
            match ask.no_wait().await {
                Ok(guard) => Ok(Box::new(ClusterHold(guard)) as Box<dyn StateHold>),
                Err(Error::Refused(Refusal::Held(held))) => {
                    let client = held.holder.as_ref().map(|holder| holder.client.to_string());
                    let words = held.to_string();
                    Err(LockRefused::Held { client: client.unwrap_or_default(), words })
                }
                Err(error) => Err(failed(error)),
            }
        })
    }
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
            if let Err(error) = self.0.release().await {
                eprintln!(
                    "warning: a lock was not released and ends with its lease: {}",
                    chain(&error)
                );
            }
        })
    }
}
