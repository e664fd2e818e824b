//! Waits until a shared hold has become an exclusive one.

use std::sync::Arc;
use std::time::Duration;

use tenure_types::Token;
use tenure_wire::v1;
use tokio::time::Instant;
use v1::answer::Result as Answer;
use v1::request::Command;

use super::{NotGranted, PlaceCleanup, PlaceLeft, deadline};
use crate::ask::{AcquireOptions, WaitLimit};
use crate::ask_update::{GrantedAt, at};
use crate::error::{Error, strange};
use crate::guard::Lock;
use crate::held_lease::HeldLease;
use crate::local_queue::LocalPermits;

/// Turns the shared hold of a lease into an exclusive one. If the caller no longer waits, the lease leaves the queue
/// and gives back what it holds of the lock.
pub(crate) async fn upgrade(
    held: &Arc<HeldLease>,
    lock: &Lock,
    wait: Duration,
) -> Result<GrantedAt, Error> {
    let mut ask = AcquireOptions::new(vec![lock.name.clone()]);
    ask.upgrade = true;
    ask.wait = if wait.is_zero() { WaitLimit::No } else { WaitLimit::For(wait) };
    let until = deadline(&held.shared, &ask);
    let (ask, permits) = (Some(Box::new(ask)), LocalPermits::default());
    let mut leaving = PlaceCleanup { held: held.clone(), ask, permits, sent: None };
    let stood = Box::pin(leaving.stand(until, None)).await;
    let NotGranted { error, place } = match stood {
        Ok(granted) => {
            leaving.ask = None;
            return Ok(granted);
        }
        Err(not) => not,
    };
    leaving.sent = None;
    if place == PlaceLeft::Perhaps {
        // The answer tells whether the upgrade came first: then the token is another one.
        let began = Instant::now();
        return match leave_upgrade(held, lock).await {
            // Not answered: it is not certain under which token the lock is held. What there is is given back in the
            // background.
            Err(Error::Unknown { .. } | Error::Unavailable | Error::Unreachable { .. }) => {
                Err(Error::Unknown { request: None, waited: began.elapsed() })
            }
            left => {
                leaving.ask = None;
                left?.ok_or(error)
            }
        };
    }
    leaving.ask = None;
    Err(error)
}

/// Leaves the queue in which a lease waits for an upgrade. Returns the hold if it was upgraded before.
async fn leave_upgrade(held: &Arc<HeldLease>, old: &Lock) -> Result<Option<GrantedAt>, Error> {
    let command = Command::Leave(v1::LeaveRequest {
        lock: old.name.clone(),
        lease_slot: held.handle.slot,
        lease_generation: held.handle.generation,
        ..Default::default()
    });
    let seq = held.seq().await;
    let (answer, revision) = held.shared.call(command, seq.identity()).await?;
    let Answer::Left(left) = answer else { return Err(strange()) };
    let is_new = |it: &&v1::LockGrant| it.lock == old.name && it.token != old.token.get();
    let new = left.held.iter().find(is_new).and_then(|it| Token::from_u64(it.token));
    Ok(new.map(|token| (vec![Lock { token, ..old.clone() }], at(revision))))
}
