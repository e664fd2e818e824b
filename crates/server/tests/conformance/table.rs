//! Which rows of the table were seen, and which cannot be?

use std::collections::BTreeSet;

use tenure_wire::reason::TABLE;

/// Rows that nothing here can provoke, and why.
pub(crate) const ELSEWHERE: &[(&str, &str)] = &[(
    "INTERNAL",
    "an answer of the machine to another question: only a mistake of ours, which would be corrected",
)];

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
