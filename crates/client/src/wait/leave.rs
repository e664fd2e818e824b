//! Leaves the queues of a request that its caller has given up.

use std::sync::Arc;

use tenure_types::Token;
use tenure_wire::v1;
use v1::answer::Result as Answer;
use v1::request::Command;

use crate::ask::AcquireOptions;
use crate::error::{Error, strange};
use crate::held_lease::HeldLease;

/// Leaves the queue, and releases what was granted meanwhile. If any of the locks was enough, each may be the one that
/// was granted; otherwise the first one stands for all of them.
pub(super) async fn leave(held: &Arc<HeldLease>, ask: &AcquireOptions) -> Result<(), Error> {
    let many = if ask.any { ask.locks.len() } else { 1 };
    for lock in ask.locks.iter().take(many) {
        if leave_one(held, lock).await? == LeftQueue::Yes {
            break;
        }
    }
    Ok(())
}

/// Whether a request was there that could leave the queue of a lock, or held the lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum LeftQueue {
    Yes,
    NotThere,
}

async fn leave_one(held: &Arc<HeldLease>, lock: &str) -> Result<LeftQueue, Error> {
    let command = Command::Leave(v1::LeaveRequest {
        lock: lock.to_owned(),
        lease_slot: held.handle.slot,
        lease_generation: held.handle.generation,
        ..Default::default()
    });
    let granted = match held.numbered(command).await {
        Ok(Answer::Left(left)) => left.held,
        Ok(_) => return Err(strange()),
        Err(Error::Refused(_)) => return Ok(LeftQueue::NotThere),
        Err(error) => return Err(error),
    };
    for grant in granted {
        if let Some(token) = Token::from_u64(grant.token) {
            held.release(grant.lock, token).await?;
        }
    }
    Ok(LeftQueue::Yes)
}
