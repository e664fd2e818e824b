//! Checks which rows of the table of reasons the tests have seen.

use std::collections::BTreeSet;

use tenure_wire::reason::TABLE;

/// The rows that these tests cannot cause, and the reason.
pub(crate) const ELSEWHERE: &[(&str, &str)] = &[
    (
        "INTERNAL",
        "an answer of the machine to another question: only a mistake of ours, which would be corrected",
    ),
    ("ACCESS_CHANGED", ACCESS),
    ("ACCESS_FULL", ACCESS),
    ("FORBIDDEN", ACCESS),
    ("LEVEL_TOO_LOW", ACCESS),
    ("NO_ADMINISTRATOR", ACCESS),
    ("PRINCIPAL_NOT_FOUND", ACCESS),
    ("QUOTA_EXCEEDED", ACCESS),
    ("DRAINS_FULL", "it takes 1,000 drained prefixes: `draining.rs` of core"),
];

/// The tests of the access service and of the command line cause these with members of their own.
const ACCESS: &str = "it needs access rules, or a level, that would change every other row";

/// The number of rows seen, and of rows that can be seen. Fails if one is missing, or if one listed in [`ELSEWHERE`]
/// was seen.
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
