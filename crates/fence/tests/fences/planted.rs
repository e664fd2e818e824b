//! Tests that a wrong restatement of the rule is noticed.
//!
//! The rule is restated twice in SQL and once in Lua. The tests break each of them in one place after the other.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::subject::Subject;
use crate::trials::answers_are_those_of_the_rule;

/// Enough steps for every planted bug to show.
const STEPS: usize = 400;

/// The original text, and what a careless author might have written instead.
pub(crate) type Planted = (&'static str, &'static str);

/// Tries every broken text. `make` returns a subject that uses the text, under the lock that it names.
pub(crate) fn every_one_is_found<S: Subject>(
    text: &str,
    planted: &[Planted],
    make: impl Fn(&str, &str) -> S,
) {
    for (number, (from, to)) in planted.iter().enumerate() {
        let spoilt = text.replace(from, to);
        assert_ne!(spoilt, text, "`{from}` is not there any more");
        let lock = format!("planted{number}");
        let data = make(&lock, &spoilt);
        let found =
            catch_unwind(AssertUnwindSafe(|| answers_are_those_of_the_rule(&lock, &data, STEPS)));
        assert!(found.is_err(), "`{to}` instead of `{from}` was not noticed");
    }
}
