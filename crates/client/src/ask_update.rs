//! Reads what a member says about a lock request.

use std::time::Duration;

use tenure_types::{Name, Refusal, Revision, SupersededBy, Token};
use tenure_wire::{convert, v1};
use v1::answer::Result as Answer;

use crate::ask::AcquireOptions;
use crate::error::{Error, Meaning, strange};
use crate::guard::Lock;
use crate::response_slot::Response;

/// What was granted, and a revision at which it was held.
pub(crate) type GrantedAt = (Vec<Lock>, Revision);

/// The outcome of a message about a request.
pub(crate) enum AcquireUpdate {
    Granted(Option<v1::Lease>, GrantedAt),
    Queued(Option<v1::Lease>, u64),
    /// The wait is over without a grant.
    Over,
    No(Error),
    /// The request had no effect: it is sent again, at the earliest after this time. The refusal, where it says why.
    Again(Duration, Option<Error>),
    /// The outcome is not known: the request is sent again.
    Doubt,
}

pub(crate) fn update_of(said: Response, ask: &AcquireOptions) -> AcquireUpdate {
    match said {
        Response::Answer(answer) => match answer.result {
            Some(Answer::Acquired(it)) => match locks(ask.first(), it.token, it.slot, &it.locks) {
                Some(locks) => AcquireUpdate::Granted(it.lease, (locks, at(answer.revision))),
                None => AcquireUpdate::No(strange()),
            },
            Some(Answer::Queued(it)) => AcquireUpdate::Queued(it.lease, it.ahead),
            Some(Answer::Ended(_)) => AcquireUpdate::Over,
            Some(Answer::Error(error)) => meant(*error),
            _ => AcquireUpdate::No(strange()),
        },
        Response::Granted(it) => match locks(Some(&it.lock), it.token, it.slot, &it.locks) {
            Some(locks) => AcquireUpdate::Granted(None, (locks, at(it.revision))),
            None => AcquireUpdate::No(strange()),
        },
        Response::WaitEnded(it) => match (superseded(&it), it.error) {
            (Some(error), _) => AcquireUpdate::No(error),
            (None, Some(error)) => meant(error),
            (None, None) => AcquireUpdate::Over,
        },
        Response::Gone => AcquireUpdate::Doubt,
    }
}

/// What an error means for a request.
fn meant(error: v1::Error) -> AcquireUpdate {
    match Meaning::of(error) {
        Meaning::No(error) => AcquireUpdate::No(error),
        Meaning::Again { after, error } => AcquireUpdate::Again(after, error),
        Meaning::Doubt => AcquireUpdate::Doubt,
    }
}

/// The refusal of a request that a newer one of its group has replaced.
fn superseded(ended: &v1::WaitEnded) -> Option<Error> {
    let client = Name::new(&ended.superseded_by).ok()?;
    let lease = convert::lease_from(ended.superseded_by_lease)?;
    Some(Error::Refused(Refusal::Superseded(Box::new(SupersededBy { client, lease }))))
}

pub(crate) fn at(revision: i64) -> Revision {
    convert::revision_from(revision).unwrap_or(Revision(0))
}

/// Reads the locks of a grant: a single one of this name stands alone, several are in a list.
pub(crate) fn locks(
    only: Option<&String>,
    token: u64,
    slot: Option<u32>,
    several: &[v1::LockGrant],
) -> Option<Vec<Lock>> {
    if several.is_empty() {
        let name = only?.clone();
        return Some(vec![Lock { name, token: Token::from_u64(token)?, slot }]);
    }
    let lock = |it: &v1::LockGrant| {
        Some(Lock { name: it.lock.clone(), token: Token::from_u64(it.token)?, slot: it.slot })
    };
    several.iter().map(lock).collect()
}
