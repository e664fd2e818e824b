//! Which rows of the table were seen, and which cannot be?

use std::collections::BTreeSet;

use tenure_wire::reason::TABLE;

/// Rows that no scenario here can provoke, and why.
pub(crate) const ELSEWHERE: &[(&str, &str)] = &[
    ("LEVEL_TOO_LOW", "every command belongs to the first level so far"),
    ("TOKENS_EXHAUSTED", "an epoch has 2^48 tokens; the machine's scripts have one without"),
    ("NOT_LEADER", "every member passes requests on and waits: no door gives it"),
    ("DEADLINE", "a call that was not sent on in time says why: NO_LEADER"),
    ("CORRUPT", "a damaged member stops before it opens its doors"),
    ("INTERNAL", "a mistake that is known is corrected"),
    ("UNAUTHENTICATED", "members without credentials let everybody in"),
    ("HEADERS_TOO_LARGE", "the HTTP library answers the bare status before any door"),
    ("MEMBERSHIP_CHANGING", "a race between two changes"),
];

/// How many rows were seen, of how many that can be. Fails if one is missing, or can be seen after all.
pub(crate) fn count(covered: &BTreeSet<String>) -> (usize, usize) {
    let elsewhere: BTreeSet<_> = ELSEWHERE.iter().map(|(reason, _)| *reason).collect();
    let here: BTreeSet<_> =
        TABLE.iter().map(|row| row.reason).filter(|it| !elsewhere.contains(it)).collect();
    let missing: Vec<_> = here.iter().filter(|it| !covered.contains(**it)).collect();
    assert!(missing.is_empty(), "rows that nothing provoked: {missing:?}");
    let surprising: Vec<_> = elsewhere.iter().filter(|it| covered.contains(**it)).collect();
    assert!(surprising.is_empty(), "rows that can be provoked after all: {surprising:?}");
    (here.iter().filter(|it| covered.contains(**it)).count(), here.len())
}
