//! Defines the reason code, status and effect of each refusal and error of the store and the proxy.
//!
//! The reasons of the fence are in `tenure_fence`. A code that the cluster's own table of errors has too means the same
//! there, including the status; a test compares them.

pub use tenure_fence::reason::{Effect, Reason as Fence, Row, TicketReason};

tenure_fence::reasons! {
    /// Why the store or the proxy did not do what was asked.
    Reason
    OtherLock "OTHER_LOCK" 409 None,
        "the key belongs to another lock or slot",
        "write under the lock that the key belongs to";
    CompareFailed "COMPARE_FAILED" 412 None,
        "the value has another length than `at`; it is in `bytes`",
        "read the key again";
    KeyNotFound "KEY_NOT_FOUND" 404 None,
        "there is no such key",
        "nothing: it is not there";
    InvalidName "INVALID_NAME" 400 None,
        "a key or a lock is empty, too long, or has control characters",
        "use 1 to 512 bytes of UTF-8 without control characters";
    InvalidField "INVALID_FIELD" 400 None,
        "a parameter or a header has an invalid value",
        "correct the field that is named";
    Malformed "MALFORMED" 400 None,
        "the body cannot be read",
        "correct the body";
    ValueTooLong "VALUE_TOO_LONG" 400 None,
        "appending would make the value longer than 8 MiB",
        "use another key, or split the value";
    TooLarge "TOO_LARGE" 413 None,
        "the body has more than 1 MiB, or the state more than `--state-bytes-max`",
        "send less at once";
    TooSlow "TOO_SLOW" 408 None,
        "the body took longer than 30 s, or a state longer than 2 minutes",
        "send it faster";
    NoSpace "NO_SPACE" 507 None,
        "the store keeps as much as `--bytes-max` or, for states, `--states-bytes-max` allows",
        "delete keys, remove versions with `tenure store state purge`, or start the store with a larger bound";
    Overloaded "OVERLOADED" 503 None,
        "more than 1,024 writes or 64 MiB wait, or a state waited 30 s for its transfer",
        "send it again after the time given";
    ShuttingDown "SHUTTING_DOWN" 503 None,
        "the store has stopped writing",
        "send it again when the store is back";
    HostNotAllowed "HOST_NOT_ALLOWED" 403 None,
        "a host name that is not ours, or a page of another origin; `--hosts` adds names",
        "use the address the store listens on";
    Unauthenticated "UNAUTHENTICATED" 401 None,
        "the store was started with `--readers`, `--writers` or tickets, and the request has no key of these files",
        "send a header Authorization: Bearer with a key; for a state, a key or a ticket as the password";
    UnknownOperation "UNKNOWN_OPERATION" 404 None,
        "there is no such path",
        "use /v1/data/KEY for objects, /v1/states/NAME for states, /v1/floors/LOCK for a floor";
    UnknownVerb "UNKNOWN_VERB" 405 None,
        "the path does not take this verb",
        "GET reads; PUT, POST and DELETE change an object; PUT raises a floor; LOCK and UNLOCK are for states";
    Internal "INTERNAL" 500 Unknown,
        "the disk failed; the store stops, and is best started again",
        "look at the log, then read before you write again";
    StateLocked "STATE_LOCKED" 423 None,
        "another client holds the state; `LOCK` and `UNLOCK` answer with its info",
        "wait with -lock-timeout, or terraform force-unlock if that client is dead";
    StateLockLost "STATE_LOCK_LOST" 409 None,
        "the state is not locked under the id of the client: it was unlocked, or its lock had another holder since",
        "read the state again, and compare it with errored.tfstate";
    StaleState "STALE_STATE" 409 None,
        "the serial does not follow the one that is stored: the state was changed since it was read",
        "read the state again, and apply again";
    OtherLineage "OTHER_LINEAGE" 409 None,
        "the state that is stored has another lineage: it was created independently",
        "use another name, or delete the state that is stored";
    StateNotFound "STATE_NOT_FOUND" 404 None,
        "there is no such state or version",
        "nothing: it is not there";
    DigestMismatch "DIGEST_MISMATCH" 400 None,
        "the body does not have the sum in `Content-MD5`",
        "send it again";
    ReadOnly "READ_ONLY" 403 None,
        "a key of `--readers` does not write states",
        "use a key of --writers, or a ticket";
    FileFailed "FILE_FAILED" 500 None,
        "the file of a state cannot be read or written",
        "look at the disk of the store, then send it again";
    ClusterUnavailable "CLUSTER_UNAVAILABLE" 503 None,
        "the store asked its cluster for the lock of a state and was not granted it",
        "look at tenure cluster status, then send it again";
    UpstreamUnreachable "UPSTREAM_UNREACHABLE" 502 None,
        "no process listens at the service behind the proxy",
        "start the service behind the proxy, then send it again";
    UpstreamBrokeOff "UPSTREAM_BROKE_OFF" 502 Unknown,
        "the connection to the service broke before an answer came",
        "look at the service before you send it again";
    UpstreamTimeout "UPSTREAM_TIMEOUT" 504 Unknown,
        "the service took longer than `--timeout`",
        "look at the service before you send it again";
}
