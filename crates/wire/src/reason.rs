//! Maps each refusal and failure to its reason, codes and advice.
//!
//! This is the only table of reasons. Every API takes its codes from it. The command line prints this part of
//! `docs/reference/errors.md` from it, because it knows the other parts.

use std::fmt::Write as _;

use tonic::Code;

use crate::v1::Effect;

/// One reason and its form in every API.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Row {
    /// The stable word for programs.
    pub reason: &'static str,
    /// What it means, for the reference.
    pub meaning: &'static str,
    /// The gRPC code.
    pub code: Code,
    /// The HTTP status.
    pub http: u16,
    /// The effect on a WebSocket.
    pub socket: Socket,
    /// Whether the request may have taken effect.
    pub effect: Effect,
    /// Whether and how to retry.
    pub retry: Retry,
    /// The advice to the user.
    pub advice: &'static str,
}

/// The effect of an error on the WebSocket that caused it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Socket {
    /// The member sends the error in a message and keeps the socket open.
    Frame,
    /// The member sends the error in a message. If the client repeats it, the member closes the socket with this code.
    FrameThenClose(u16),
    /// The member sends the leader's address in a message and keeps the socket open.
    Redirect,
    /// The member closes the socket with this code.
    Close(u16),
    /// The member refuses the upgrade with the HTTP status. It closes a socket that is already open with this code.
    RefuseUpgrade(u16),
}

/// Whether and how to retry a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Retry {
    /// Not with the same request: the answer would be the same, or the state has changed since.
    No,
    /// At once, at this or another member.
    AtOnce,
    /// After the given time; if none is given, with growing pauses.
    Later,
    /// At any time with the same request id, to learn the outcome.
    SameId,
}

impl Socket {
    fn words(self) -> String {
        match self {
            Self::Frame => "error frame".to_owned(),
            Self::FrameThenClose(code) => format!("error frame; repeated: close {code}"),
            Self::Redirect => "error frame with the leader".to_owned(),
            Self::Close(code) => format!("close {code}"),
            Self::RefuseUpgrade(code) => format!("upgrade refused, or close {code}"),
        }
    }
}

impl Retry {
    fn words(self) -> &'static str {
        match self {
            Self::No => "no",
            Self::AtOnce => "at once",
            Self::Later => "later",
            Self::SameId => "same request id",
        }
    }
}

/// The word for an effect.
pub fn effect_word(effect: Effect) -> &'static str {
    match effect {
        Effect::None => "none",
        Effect::Unknown => "unknown",
    }
}

/// Returns the row of a reason.
pub fn row(reason: &str) -> Option<&'static Row> {
    TABLE.iter().find(|row| row.reason == reason)
}

/// Whether `LockService` reports this as success with `acquired` false. Every other API reports an error.
pub fn is_not_acquired(reason: &str) -> bool {
    matches!(reason, "HELD" | "WAIT_TIMEOUT")
}

macro_rules! rows {
    ($($reason:literal $code:ident $http:literal $socket:ident $(($close:literal))?
        $effect:ident $retry:ident, $meaning:literal, $advice:literal;)+) => {
        &[$(Row {
            reason: $reason,
            meaning: $meaning,
            code: Code::$code,
            http: $http,
            socket: Socket::$socket $(($close))?,
            effect: Effect::$effect,
            retry: Retry::$retry,
            advice: $advice,
        }),+]
    };
}

/// Every reason: first the refusals of the machine, then the failures around it.
#[rustfmt::skip]
pub const TABLE: &[Row] = rows! {
    "HELD" FailedPrecondition 423 Frame None No,
        "another client has the lock, and the acquire request does not wait", "wait in the queue";
    "WAIT_TIMEOUT" Aborted 423 Frame None No,
        "timed out waiting for the lock; the queue position is gone", "ask again, or wait longer";
    "DEADLOCK" FailedPrecondition 409 Frame None No,
        "waiting would close a ring of leases that wait for each other",
        "release what you hold, then ask for all at once";
    "OVERLAP" FailedPrecondition 409 Frame None No,
        "the lease already holds or awaits some of these locks in another way",
        "release or leave first, or use another lease";
    "DUPLICATE_LOCK" InvalidArgument 400 Frame None No,
        "the same lock twice in one acquire request", "name each lock once";
    "OTHER_KIND" FailedPrecondition 409 Frame None No,
        "the lock has another number of slots, or none", "ask with the slots the lock has";
    "NOT_HOLDER" FailedPrecondition 409 Frame None No,
        "the lease does not hold this lock under this token", "stop the work; the lock is not yours";
    "NOT_WAITING" FailedPrecondition 409 Frame None No,
        "the lease does not wait for this lock", "nothing: the queue position is gone";
    "NOT_EXCLUSIVE" FailedPrecondition 409 Frame None No,
        "only an exclusive hold can be downgraded", "nothing: it is shared already, or a semaphore";
    "TOKEN_OUTDATED" FailedPrecondition 409 Frame None No,
        "no grant of the lock has the token that was shown; the holder of now is in the error",
        "look at the holder, then name its token";
    "NOT_COOLING" FailedPrecondition 409 Frame None No,
        "no grant is revoking under this lease, lock and token", "nothing: the lock has gone on";
    "MAX_HOLD_TOO_SHORT" InvalidArgument 400 Frame None No,
        "`max_hold` must exceed the ttl", "use a longer max_hold or a shorter ttl";
    "LEASE_NOT_FOUND" NotFound 404 Frame None No,
        "no live lease has this id or handle", "stop the work, take a new lease and ask again";
    "LEASE_EXISTS" AlreadyExists 409 Frame None No,
        "the id is in use by another lease", "ask for another id, or let one be chosen";
    "COMPARE_FAILED" FailedPrecondition 412 Frame None No,
        "the key is not as the condition says", "read the key again";
    "GUARD_FAILED" FailedPrecondition 412 Frame None No,
        "no live grant of the guarding lock has the token", "stop the work; the lock is not yours";
    "REQUEST_STALE" FailedPrecondition 409 Frame None No,
        "the request was answered or given up before", "use a new request id";
    "REQUEST_ID_CONFLICT" FailedPrecondition 409 Frame None No,
        "the same request id came with another command", "use a new request id";
    "REQUEST_WINDOW" ResourceExhausted 429 Frame None Later,
        "too many requests of the lease are unanswered", "wait for earlier answers";
    "REQUESTS_FULL" ResourceExhausted 429 Frame None Later,
        "too many requests with a key are remembered, of this caller or in all", "try again later";
    "QUEUE_FULL" ResourceExhausted 429 Frame None Later,
        "the queue of the lock is full", "try again later, or split the lock";
    "TOO_MANY_LOCKS" ResourceExhausted 429 Frame None No,
        "the lease holds or awaits as many locks as it may", "end what is not needed, or raise the limit";
    "TOO_MANY_KEYS" ResourceExhausted 429 Frame None No,
        "as many keys are bound to the lease as may be", "end what is not needed, or raise the limit";
    "TOO_MANY_LEASES" ResourceExhausted 429 Frame None Later,
        "the cluster has as many leases as it may", "end what is not needed, or raise the limit";
    "NO_SPACE" ResourceExhausted 507 Frame None Later,
        "the state is as large as it may be", "release locks, delete keys, or raise the limit";
    "INVALID_NAME" InvalidArgument 400 Frame None No,
        "a name is empty, too long, or has control characters",
        "use 1 to 512 bytes of UTF-8 without control characters";
    "METADATA_TOO_LONG" InvalidArgument 400 Frame None No,
        "more metadata than allowed", "stay within the limit, or raise it";
    "VALUE_TOO_LONG" InvalidArgument 400 Frame None No,
        "a larger value than allowed", "stay within the limit, or raise it";
    "INVALID_TTL" InvalidArgument 400 Frame None No,
        "the ttl is outside the allowed range", "stay within the limit, or raise it";
    "INVALID_WAIT" InvalidArgument 400 Frame None No,
        "the wait is longer than allowed", "stay within the limit, or raise it";
    "INVALID_LOCK_DELAY" InvalidArgument 400 Frame None No,
        "the lock-delay is longer than allowed", "stay within the limit, or raise it";
    "INVALID_MAX_HOLD" InvalidArgument 400 Frame None No,
        "`max_hold` is longer than allowed", "stay within the limit, or raise it";
    "INVALID_SLOTS" InvalidArgument 400 Frame None No,
        "more slots than allowed, or none", "stay within the limit, or raise it";
    "TOO_MANY_LOCKS_IN_ASK" InvalidArgument 400 Frame None No,
        "more locks in one acquire request than allowed",
        "name fewer locks; each slot of a pool counts, so divide a large pool by longer prefixes";
    "TOO_MANY_IN_COMMAND" InvalidArgument 400 Frame None No,
        "more than may stand in one command", "split the command";
    "INVALID_LIMIT" InvalidArgument 400 Frame None No,
        "a limit cannot be set to this value", "name a value in this range";
    "INVALID_LEVEL" InvalidArgument 400 Frame None No,
        "the feature level is below the present one, or not known here", "name a feature level in this range";
    "FUTURE_REVISION" OutOfRange 400 Frame None No,
        "the revision has not been reached", "name a revision that exists";
    "TOKENS_EXHAUSTED" ResourceExhausted 507 Frame None No,
        "every token of this epoch is used", "back up and restore with a new epoch";
    "FORBIDDEN" PermissionDenied 403 Frame None No,
        "the principal is unknown or disabled, or its roles do not permit this",
        "ask an administrator for the verb that is named";
    "QUOTA_EXCEEDED" ResourceExhausted 429 Frame None Later,
        "the principal has as much as its quota allows",
        "give something back, or ask an administrator for more";
    "ACCESS_FULL" ResourceExhausted 507 Frame None No,
        "the access rules have no room for more", "delete what is not needed";
    "PRINCIPAL_NOT_FOUND" NotFound 404 Frame None No,
        "no principal has this name", "create the principal first";
    "ACCESS_CHANGED" Aborted 409 Frame None No,
        "the role or principal is no longer as it was when the change was prepared",
        "read it again, then change what is there now";
    "QUIET" Unavailable 503 Frame None Later,
        "the cluster was restored and waits until every lease of before would have ended",
        "wait in the queue";
    "DRAINING" Unavailable 503 Frame None Later,
        "an operator has drained the prefix of the lock: nothing below it is granted until it is opened",
        "wait in the queue, or ask again after the maintenance";
    "SUPERSEDED" Aborted 409 Frame None No,
        "a newer request of the same group has replaced this one in the queue",
        "nothing: the newer request does the work";
    "POOL_EMPTY" NotFound 404 Frame None No,
        "no slot of the pool exists, or none is as large as the request",
        "add a slot, as `tenure resize gpu/0 1` does for `gpu/`";
    "DRAINS_FULL" ResourceExhausted 507 Frame None No,
        "1,000 prefixes are drained, which is the limit", "open what is done, or drain a shorter prefix";

    "NOT_LEADER" Unavailable 503 Redirect None AtOnce,
        "the member does not lead, or the leader changed before this was agreed on",
        "send it again; nothing happened";
    "NO_LEADER" Unavailable 503 Frame None Later,
        "no leader at the moment", "send it again; nothing happened";
    "NO_QUORUM" Unavailable 503 Frame None Later,
        "too few members answer to agree on anything", "look at the members: tenure cluster status";
    "UNKNOWN_OUTCOME" DeadlineExceeded 504 Frame Unknown SameId,
        "the request was sent on and no outcome came in time",
        "send it again with the same request id, or look";
    "DEADLINE" DeadlineExceeded 504 Frame None AtOnce,
        "the deadline passed before anything was done", "send it again with more time; nothing happened";
    "OVERLOADED" Unavailable 503 Frame None Later,
        "the member has more to do than it can", "send it again after the time given";
    "QUOTA" ResourceExhausted 429 FrameThenClose(4429) None Later,
        "the principal asks for more than it may", "slow down, or give something back";
    "SHUTTING_DOWN" Unavailable 503 Close(1001) None AtOnce,
        "the member is about to stop", "send it to another member";
    "DISK_FULL" ResourceExhausted 507 Frame None Later,
        "the member's disk is full", "free space on that member";
    "CORRUPT" DataLoss 500 Close(1011) None AtOnce,
        "the member found damage and serves nothing", "send it to another member; replace this one";
    "INTERNAL" Internal 500 Close(1011) Unknown SameId,
        "the member made a mistake", "look at the member's log";
    "UNAUTHENTICATED" Unauthenticated 401 RefuseUpgrade(4401) None No,
        "credentials are missing or wrong", "give credentials";
    "PERMISSION_DENIED" PermissionDenied 403 Frame None No,
        "the principal may not do this", "ask for the verb that is named";
    "HOST_NOT_ALLOWED" PermissionDenied 403 RefuseUpgrade(1008) None No,
        "the host name or origin of the request is not one of ours", "use the address the member listens on";
    "MALFORMED" InvalidArgument 400 FrameThenClose(1007) None No,
        "the request cannot be read, or has a field that is not known",
        "correct what the message names, or use a client that is not newer than the cluster";
    "INVALID_FIELD" InvalidArgument 400 Frame None No,
        "a field cannot be as it is", "correct the field that is named";
    "WAIT_TOO_LONG" InvalidArgument 400 Frame None No,
        "the wait is longer than the lease would live, and this API renews nothing",
        "wait at most as long as the bound, or renew the lease first";
    "TOO_LARGE" ResourceExhausted 413 Close(1009) None No,
        "the message is longer than the API takes", "send less at once";
    "UNSUPPORTED_MEDIA" Unimplemented 415 Close(1003) None No,
        "the body is of a type or in an encoding that the API does not take", "send what is named, not compressed";
    "HEADERS_TOO_LARGE" ResourceExhausted 431 RefuseUpgrade(1009) None No,
        "the headers are longer than the API takes", "send shorter headers";
    "TOO_SLOW" DeadlineExceeded 408 RefuseUpgrade(1008) None AtOnce,
        "the request came too slowly", "send it faster";
    "UNKNOWN_OPERATION" Unimplemented 404 Frame None No,
        "there is no such call or path", "look at /openapi.json or the reflection service";
    "UNKNOWN_VERB" Unimplemented 405 Frame None No,
        "the path does not take this verb", "look at /openapi.json";
    "COMPACTED" OutOfRange 410 Frame None No,
        "the history does not reach back so far; the oldest retained revision is in the error",
        "read the state anew, then watch from its revision";
    "SLOW_CONSUMER" ResourceExhausted 429 Frame None AtOnce,
        "a watch was not read as fast as it was written; where to resume is in the error",
        "start the watch again from the revision given";
    "OTHER_CLUSTER" FailedPrecondition 409 Close(1008) None No,
        "the client knows another cluster than this one", "check the addresses";
    "RESTORED" FailedPrecondition 409 Close(1008) None No,
        "the cluster was restored from a backup since; every lease of before is gone",
        "stop the work, forget the leases and begin anew";
    "KEY_NOT_FOUND" NotFound 404 Frame None No,
        "the key does not exist", "nothing: it is not there";
    "MEMBER_NOT_FOUND" NotFound 404 Frame None No,
        "there is no such member", "look at the members: tenure cluster status";
    "MEMBER_EXISTS" AlreadyExists 409 Frame None No,
        "a member of this id or name exists", "remove it first, or use another";
    "NOT_CAUGHT_UP" FailedPrecondition 409 Frame None Later,
        "the member is too far behind to vote", "try again when it has caught up";
    "LEVEL_NOT_KNOWN" FailedPrecondition 409 Frame None Later,
        "a member does not know the feature level, or has not said so since the leader started",
        "upgrade and start that member, then raise the feature level";
    "LEVEL_TOO_LOW" FailedPrecondition 409 Frame None No,
        "the cluster is below the feature level that the call needs",
        "tenure cluster raise-level 15";
    "NO_ADMINISTRATOR" FailedPrecondition 409 Frame None No,
        "identity was to be enabled, and no administrator could prove who it is then",
        "tenure auth init --data-dir DIR, on the machine of a member";
    "MEMBERSHIP_CHANGING" FailedPrecondition 409 Frame None Later,
        "another change of membership is not finished", "try again later";
    "QUORUM_AT_RISK" FailedPrecondition 409 Frame None No,
        "too few members would be left to agree on anything", "add a member first";
    "TOO_MANY_HOPS" Unavailable 503 Frame None Later,
        "the request was passed on too often without finding the leader", "try again later";
    "TOKEN_TOO_LARGE" FailedPrecondition 409 Frame None No,
        "the plain lock protocol cannot carry a token of 2^53 or more; the lock was given back",
        "use another API";
};

/// Renders the table as a part of the reference of errors.
pub fn reference() -> String {
    let mut page = String::from(INTRODUCTION);
    for row in TABLE {
        let (effect, retry) = (effect_word(row.effect), row.retry.words());
        let _ = writeln!(
            page,
            "| `{}` | {} | `{}` | {} | {} | {effect} | {retry} | {} |",
            row.reason,
            row.meaning,
            code_name(row.code),
            row.http,
            row.socket.words(),
            row.advice,
        );
    }
    page
}

const INTRODUCTION: &str = "\
## The cluster

The same through every API.

- **effect** `unknown`: the same request id learns which.
- **again** says whether sending the same thing again makes sense. *later* means after `retry_after_ms` if it is
  there, else with growing pauses. An answer with `no` would be the same, or what to do depends on you.
- **gRPC**: the code; metadata `tenure-reason` and `tenure-effect`; the whole error as `tenure.v1.Error` in
  `grpc-status-details-bin`. In `LockService`, `HELD` and `WAIT_TIMEOUT` are no errors: `acquired` is false.
- **HTTP**: the status, and `{\"error\":{\"reason\":…,\"message\":…,\"effect\":…,…}}`; `Retry-After` where a
  time is given.
- **WebSocket**: an error frame answers one request and the socket goes on; a close code ends it.

| reason | meaning | gRPC | HTTP | WebSocket | effect | again | what to do |
|---|---|---|---|---|---|---|---|
";

/// The name of a gRPC code as its specification writes it.
pub fn code_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use tenure_types::{Limit, Refusal};

    use super::*;
    use crate::Failure;
    use crate::refusal::tests::samples;

    #[test]
    fn every_reason_stands_once_and_is_used() {
        let rows: BTreeSet<_> = TABLE.iter().map(|row| row.reason).collect();
        assert_eq!(rows.len(), TABLE.len(), "a reason stands twice");
        let given: BTreeSet<_> = samples()
            .iter()
            .map(Refusal::reason)
            .chain(Failure::samples().iter().map(Failure::reason))
            .collect();
        assert_eq!(rows, given);
    }

    #[test]
    fn a_refusal_never_happened_and_gives_the_tables_advice() {
        for refusal in samples() {
            let row = row(refusal.reason()).unwrap();
            assert_eq!(row.effect, Effect::None, "{}", row.reason);
            // These refusals share a reason with a more common one, whose advice is in the table.
            let shared = matches!(
                refusal,
                Refusal::Limit {
                    limit: Limit::NameBytes
                        | Limit::HistoryRevisions
                        | Limit::HistoryBytes
                        | Limit::EndsPerEntry,
                    ..
                } | Refusal::PriorityForbidden { .. }
            );
            assert!(shared || row.advice == refusal.advice(), "{}", row.reason);
        }
    }

    #[test]
    fn what_may_have_happened_is_never_retried_by_a_library() {
        // gRPC libraries retry UNAVAILABLE by themselves, proxies retry 503 and 408.
        for row in TABLE.iter().filter(|row| row.effect == Effect::Unknown) {
            assert_ne!(row.code, Code::Unavailable, "{}", row.reason);
            assert!(![408, 425, 503].contains(&row.http), "{}", row.reason);
            assert_eq!(row.retry, Retry::SameId, "{}", row.reason);
        }
    }

    #[test]
    fn only_a_lock_that_others_have_is_no_error_in_the_lock_service() {
        let ok: Vec<_> = TABLE.iter().filter(|row| is_not_acquired(row.reason)).collect();
        assert_eq!(ok.len(), 2, "both stand in the table");
        assert!(ok.iter().all(|row| row.http == 423), "and no other row has their status");
        assert_eq!(TABLE.iter().filter(|row| row.http == 423).count(), 2);
    }

    #[test]
    fn statuses_are_of_the_kind_their_codes_are() {
        for row in TABLE {
            assert!((400..600).contains(&row.http), "{}", row.reason);
            assert_ne!(row.code, Code::Ok, "{}", row.reason);
            let ours = matches!(row.code, Code::Unavailable | Code::Internal | Code::DataLoss);
            assert!(!ours || row.http >= 500, "{}", row.reason);
        }
    }
}
