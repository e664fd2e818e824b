//! Would a restatement of the rule that is wrong be noticed?
//!
//! The rule is said again in SQL, twice, and in Lua. Here each of them is spoilt in one place after the other.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::subject::Subject;
use crate::trials::answers_are_those_of_the_rule;

/// Enough that every planted bug shows.
const STEPS: usize = 400;

/// What stands in the text, and what a careless writer might have put there.
pub(crate) type Planted = (&'static str, &'static str);

/// Tries every spoilt text. `make` returns something that goes by it, under a lock that it names.
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
