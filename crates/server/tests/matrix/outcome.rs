//! Turns the answer of any API into one word, and decides which words a row of the reference permits.

use tenure_types::Verb;
use tenure_wire::v1;

use super::stage::{Column, HIDDEN};

/// The answer of a call: a word for the page, and the bytes in which the caller could find more than it may know.
pub(super) struct Outcome {
    pub(super) word: String,
    pub(super) body: Vec<u8>,
}

pub(super) const OK: &str = "OK";
/// The answer to the renewal of a lease that does not exist.
pub(super) const TTL_0: &str = "ttl 0";
/// A message without an answer has changed nothing.
pub(super) const NO_EFFECT: &str = "no effect";
/// A session began without the lease that it was to resume.
pub(super) const LEFT_OUT: &str = "left out";

impl Outcome {
    pub(super) fn ok(body: Vec<u8>) -> Self {
        Self { word: OK.to_owned(), body }
    }

    pub(super) fn word(word: &str, body: Vec<u8>) -> Self {
        Self { word: word.to_owned(), body }
    }

    /// A refusal with this reason and text. Of a missing permission the word has the verb.
    pub(super) fn refused(reason: &str, message: &str, mut body: Vec<u8>) -> Self {
        body.extend_from_slice(message.as_bytes());
        let verb = Verb::ALL.into_iter().find(|it| message.contains(&format!("`{}`", it.name())));
        let word = match verb {
            Some(verb) if reason == "PERMISSION_DENIED" => format!("{reason} {}", verb.name()),
            _ => reason.to_owned(),
        };
        Self { word, body }
    }

    pub(super) fn error(error: &v1::Error, body: Vec<u8>) -> Self {
        Self::refused(&error.reason, &error.message, body)
    }

    /// Whether the answer has something that only a reader of the owner's locks, keys and leases may know.
    pub(super) fn shows(&self, what: &str) -> bool {
        self.body.windows(what.len()).any(|it| it == what.as_bytes())
    }
}

/// Refusals of the right caller that are not about permission.
const RIGHT: &[(&str, &str)] = &[
    // The only voter cannot leave.
    ("ClusterService/Leave", "QUORUM_AT_RISK"),
    // These name a member that does not exist, so that they change nothing.
    ("ClusterService/Promote", "MEMBER_NOT_FOUND"),
    ("ClusterService/TransferLeadership", "MEMBER_NOT_FOUND"),
    ("POST /v1/cluster/members/{member} promote", "MEMBER_NOT_FOUND"),
    ("POST /v1/cluster/members/{member} lead", "MEMBER_NOT_FOUND"),
    // No lease waits for the lock.
    ("LockAdminService/HandOn", "NOT_WAITING"),
    ("hand_on", "NOT_WAITING"),
];

/// Calls that need no lease of another principal: they grant one, or list those of the caller.
const OWN_LEASES: [&str; 5] = [
    "LockService/LeaseGrant",
    "POST /v1/leases",
    "grant_lease",
    "LeaseService/List",
    "GET /v1/leases",
];

/// What is required to resume a lease.
const RESUMES: &str = "leases of others are left out";

/// Whether a caller with the owner's role makes the call: it names the owner's lease, which the role does not open.
pub(super) fn names_a_lease(requires: &str, variant: &str) -> bool {
    let verbs = ["`acquire`", "`elect`", "`acquire` or `elect`"];
    let explains = requires.starts_with("`read`");
    ["lease", "guard"].contains(&variant)
        || verbs.contains(&requires)
        || requires.contains("own lease") && !explains
        || requires.ends_with("for some name")
        || requires.starts_with("`acquire` for each lock")
        || requires.ends_with(RESUMES)
}

/// Whether the outcome is one that the reference permits.
pub(super) fn is_expected(call: &str, requires: &str, column: Column, outcome: &Outcome) -> bool {
    let word = &*outcome.word;
    if requires.starts_with("nothing, not even") {
        return word == OK;
    }
    if !column.is_known() {
        return word == "UNAUTHENTICATED" && !outcome.shows(HIDDEN);
    }
    if column == Column::Right {
        let refused = RIGHT.iter().find(|it| it.0 == call).map(|it| it.1);
        return word == refused.unwrap_or(OK);
    }
    if outcome.shows(HIDDEN) {
        return false;
    }
    let denied = |verb: &str| word == format!("PERMISSION_DENIED {verb}");
    // As if the lease did not exist.
    let unseen = ["LEASE_NOT_FOUND", "NOT_COOLING", TTL_0, NO_EFFECT, LEFT_OUT].contains(&word);
    let unseen = unseen || word == OK && OWN_LEASES.contains(&call);
    if column == Column::OthersLease {
        // A guard counts only for the principal that holds the lock.
        return unseen || call.ends_with(" guard") && word == "GUARD_FAILED";
    }
    let verb = if call.ends_with("view=observe") { "observe" } else { first_verb(requires) };
    match requires {
        "a known principal" => word == OK,
        "a known principal, by the upgrade or by the first message" => word == OK,
        _ if requires.ends_with(RESUMES) => word == LEFT_OUT,
        "the caller's own lease" => unseen,
        "the caller's own lease, or `force` for the cluster" => unseen || denied("force"),
        // A list has nothing of others.
        _ if requires.starts_with("own leases") => unseen,
        _ if requires.ends_with("for some name") && column == Column::WrongPrefix => unseen,
        _ if requires.contains("the rest is left out") && column == Column::WrongPrefix => {
            !outcome.shows("own/") && (word == OK || denied(verb))
        }
        // The lock socket names only the reason.
        _ => denied(verb) || call == "acquire" && word == "PERMISSION_DENIED",
    }
}

/// The first verb that a requirement names.
fn first_verb(requires: &str) -> &str {
    requires.split('`').nth(1).unwrap_or_default()
}

#[test]
fn an_outcome_that_the_reference_does_not_permit_is_found() {
    let outcome = |word: &str| Outcome::word(word, Vec::new());
    let leak = || Outcome::ok(format!("client {HIDDEN}").into_bytes());
    let (read, own) = ("`read`", "the caller's own lease");
    let below = "`read` for some name in question; the rest is left out";
    let cases = [
        (read, Column::NoIdentity, outcome(OK)),
        (read, Column::RevokedKey, outcome("PERMISSION_DENIED read")),
        (read, Column::NoRole, outcome("UNAUTHENTICATED")),
        (read, Column::WrongPrefix, outcome("PERMISSION_DENIED keys")),
        (read, Column::WrongPrefix, outcome("KEY_NOT_FOUND")),
        (read, Column::WrongPrefix, leak()),
        (read, Column::Right, outcome("PERMISSION_DENIED read")),
        (own, Column::WrongPrefix, outcome("NOT_HOLDER")),
        (own, Column::WrongPrefix, outcome(OK)),
        (own, Column::OthersLease, outcome(OK)),
        ("`acquire` or `elect`", Column::OthersLease, outcome("NOT_HOLDER")),
        ("`acquire` or `keys` or `elect` for some name", Column::WrongPrefix, outcome(OK)),
        (below, Column::NoRole, outcome(OK)),
        (below, Column::WrongPrefix, Outcome::ok(b"own/1/key".to_vec())),
        ("a known principal", Column::UnknownKey, outcome(OK)),
        ("a known principal", Column::NoRole, leak()),
        ("`operate` for the cluster", Column::WrongPrefix, outcome(OK)),
    ];
    for (requires, column, outcome) in cases {
        let word = &outcome.word;
        assert!(!is_expected("call", requires, column, &outcome), "{requires} {column:?} {word}");
    }
    let denied = outcome("PERMISSION_DENIED read");
    assert!(is_expected("call", read, Column::WrongPrefix, &denied));
    assert!(is_expected("call", read, Column::NoRole, &denied));
    assert!(is_expected("call", read, Column::Right, &leak()));
}
