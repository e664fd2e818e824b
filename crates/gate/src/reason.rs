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
        "something in the query cannot be as it is",
        "correct the field that is named";
    Malformed "MALFORMED" 400 None,
        "the body cannot be read",
        "correct the body";
    ValueTooLong "VALUE_TOO_LONG" 400 None,
        "appending would make the value longer than 8 MiB",
        "use another key, or split the value";
    TooLarge "TOO_LARGE" 413 None,
        "the body has more than 1 MiB",
        "send less at once";
    TooSlow "TOO_SLOW" 408 None,
        "the body took longer than 30 s",
        "send it faster";
    NoSpace "NO_SPACE" 507 None,
        "the store keeps as much as `--bytes-max` allows",
        "delete keys, or start the store with a larger --bytes-max";
    Overloaded "OVERLOADED" 503 None,
        "more than 1,024 writes or 64 MiB wait",
        "send it again after the time given";
    ShuttingDown "SHUTTING_DOWN" 503 None,
        "the store has stopped writing",
        "send it again when the store is back";
    HostNotAllowed "HOST_NOT_ALLOWED" 403 None,
        "a host name that is not ours, or a page of another origin; `--hosts` adds names",
        "use the address the store listens on";
    Unauthenticated "UNAUTHENTICATED" 401 None,
        "the store was started with `--readers`, and the request has no token of that file",
        "send a header Authorization: Bearer with a reader's token";
    UnknownOperation "UNKNOWN_OPERATION" 404 None,
        "there is no such path",
        "use /v1/data/KEY for objects, /v1/data to list them, /v1/floors/LOCK for a floor";
    UnknownVerb "UNKNOWN_VERB" 405 None,
        "the path does not take this verb",
        "GET reads; PUT, POST and DELETE change an object; PUT raises a floor";
    Internal "INTERNAL" 500 Unknown,
        "the disk failed; the store stops, and is best started again",
        "look at the log, then read before you write again";
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
