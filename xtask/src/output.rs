//! Parses the output of test runners, cargo and our own programs.

use std::collections::BTreeMap;
use std::ops::AddAssign;

use anyhow::{Context, Result};
use serde_json::Value;

/// How many tests passed and failed, and how many of both ran a second time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Tests {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) retried: u64,
}

impl AddAssign for Tests {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.retried += other.retried;
    }
}

/// The sum of all `test result:` lines.
pub(crate) fn tests<'a>(lines: impl IntoIterator<Item = &'a str>) -> Tests {
    let mut sum = Tests::default();
    for line in lines {
        // The words may follow others: a test that prints may leave an unfinished line before them.
        let Some((_, counts)) = line.split_once("test result: ") else { continue };
        let count = |what| number_before(counts, what).unwrap_or(0);
        sum += Tests { passed: count(" passed"), failed: count(" failed"), retried: 0 };
    }
    sum
}

/// The `name=number` words of a line such as `model sequences=20000 commands=9 violations=0`, if it starts with
/// `word`.
pub(crate) fn fields(word: &str, line: &str) -> Option<BTreeMap<String, u64>> {
    let mut words = line.split_whitespace();
    if words.next() != Some(word) {
        return None;
    }
    let pairs = words.filter_map(|pair| pair.split_once('='));
    Some(pairs.filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?))).collect())
}

/// One field of such a line, which must be present.
pub(crate) fn field(fields: &BTreeMap<String, u64>, name: &str) -> Result<u64> {
    fields.get(name).copied().with_context(|| format!("its last line has no number `{name}=`"))
}

/// The two numbers of a word such as `faults=25/25`.
pub(crate) fn ratio(line: &str, name: &str) -> Option<(u64, u64)> {
    let word = line.split_whitespace().find_map(|word| word.strip_prefix(name))?;
    let (part, whole) = word.split_once('/')?;
    Some((part.parse().ok()?, whole.parse().ok()?))
}

/// The whole part of the number in a word such as `sim_hours=10.3`.
pub(crate) fn whole(line: &str, name: &str) -> Option<u64> {
    let word = line.split_whitespace().find_map(|word| word.strip_prefix(name))?;
    word.split('.').next()?.parse().ok()
}

/// Caught and planted, from `mutants caught=12/12`, or from `raft-mutants caught=3/3` and the like.
pub(crate) fn caught(line: &str) -> Option<(u64, u64)> {
    let (whose, numbers) = line.trim().split_once("mutants caught=")?;
    if !whose.is_empty() && !whose.ends_with('-') {
        return None;
    }
    let (caught, planted) = numbers.split_once('/')?;
    let planted = planted.split_whitespace().next()?;
    Some((caught.parse().ok()?, planted.parse().ok()?))
}

/// How many inputs each target replayed, from lines with `replayed TARGET inputs=N`.
pub(crate) fn replayed<'a>(lines: impl IntoIterator<Item = &'a str>) -> BTreeMap<String, u64> {
    let mut inputs = BTreeMap::new();
    for line in lines {
        let Some((_, rest)) = line.split_once("replayed ") else { continue };
        let Some((target, count)) = rest.split_once(" inputs=") else { continue };
        let digits = count.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
        if let Ok(count) = digits.parse::<u64>() {
            *inputs.entry(target.to_owned()).or_default() += count;
        }
    }
    inputs
}

/// The largest `apply_per_s=` of all lines, if one is above zero.
pub(crate) fn apply_per_s<'a>(lines: impl IntoIterator<Item = &'a str>) -> Option<f64> {
    let numbers = lines.into_iter().filter_map(|line| {
        let (_, rest) = line.split_once("apply_per_s=")?;
        let end = rest.find(|c: char| !matches!(c, '0'..='9' | '.' | '_')).unwrap_or(rest.len());
        rest[..end].replace('_', "").parse::<f64>().ok()
    });
    numbers.filter(|number| *number > 0.0).reduce(f64::max)
}

/// The files that cargo built for crates under `root`, from its JSON messages, without repeats.
pub(crate) fn built<'a>(root: &str, lines: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let mut files = Vec::new();
    for line in lines.into_iter().filter(|line| is_message(line)) {
        let Ok(message) = serde_json::from_str::<Value>(line) else { continue };
        let ours = message["manifest_path"].as_str().is_some_and(|path| path.starts_with(root));
        if message["reason"] == "compiler-artifact" && ours {
            let names = message["filenames"].as_array().into_iter().flatten();
            files.extend(names.filter_map(Value::as_str).map(str::to_owned));
        }
    }
    files.sort();
    files.dedup();
    files
}

/// Whether the line is one of cargo's JSON messages, which are not for people.
pub(crate) fn is_message(line: &str) -> bool {
    line.starts_with("{\"reason\":")
}

/// How many warnings cargo reports.
pub(crate) fn warnings<'a>(lines: impl IntoIterator<Item = &'a str>) -> u64 {
    // A crate's library and its tests share most warnings; cargo reports how many are duplicates.
    let summaries = lines.into_iter().filter(|line| line.starts_with("warning: `"));
    summaries
        .filter_map(|line| {
            let (_, rest) = line.split_once(" generated ")?;
            let all: u64 = rest.split_whitespace().next()?.parse().ok()?;
            let repeated = if rest.contains("duplicates)") || rest.contains("duplicate)") {
                number_before(rest, " duplicate").unwrap_or(all)
            } else {
                0
            };
            Some(all.saturating_sub(repeated))
        })
        .sum()
}

/// The number directly before `what`.
fn number_before(text: &str, what: &str) -> Option<u64> {
    let (before, _) = text.split_once(what)?;
    before.rsplit(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_results_add_up() {
        let lines = [
            "running 3 tests",
            "test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out",
            "test a ... test result: FAILED. 10 passed; 2 failed; 0 ignored",
        ];
        assert_eq!(super::tests(lines), Tests { passed: 13, failed: 2, retried: 0 });
    }

    #[test]
    fn no_result_line_is_no_test() {
        assert_eq!(super::tests(["error: could not compile"]), Tests::default());
    }

    #[test]
    fn the_line_of_the_model_is_read_by_name() {
        let line = "model sequences=20000 commands=1234 violations=0";
        let read = fields("model", line).unwrap();
        assert_eq!(field(&read, "commands").unwrap(), 1234);
        assert!(field(&read, "absent").is_err());
        assert!(fields("model", "thread panicked").is_none());
    }

    #[test]
    fn caught_mutants_are_read_with_their_total() {
        assert_eq!(caught("mutants caught=11/12"), Some((11, 12)));
        assert_eq!(caught("mutants caught=all"), None);
    }

    #[test]
    fn replayed_inputs_are_found_behind_the_words_of_the_test_runner() {
        let lines = ["test command ... replayed command inputs=4", "replayed name inputs=0"];
        let expected = BTreeMap::from([("command".to_owned(), 4), ("name".to_owned(), 0)]);
        assert_eq!(replayed(lines), expected);
    }

    #[test]
    fn only_a_positive_speed_counts() {
        assert_eq!(apply_per_s(["core apply_per_s=1500.5 p99_us=3"]), Some(1500.5));
        assert_eq!(apply_per_s(["core apply_per_s=0"]), None);
        assert_eq!(apply_per_s(["core apply_per_s=fast"]), None);
    }

    #[test]
    fn only_artifacts_of_this_repository_count() {
        let line = |manifest: &str, file: &str| {
            serde_json::json!({
                "reason": "compiler-artifact", "manifest_path": manifest, "filenames": [file],
            })
            .to_string()
            // Restore cargo's order of keys: the reason comes first.
            .replace("\"reason\":\"compiler-artifact\"", "\"x\":0")
            .replacen('{', "{\"reason\":\"compiler-artifact\",", 1)
        };
        let (ours, theirs) = (line("/r/a/Cargo.toml", "a"), line("/elsewhere/Cargo.toml", "b"));
        assert_eq!(built("/r", [ours.as_str(), &ours, &theirs, "plain"]), ["a"]);
    }

    #[test]
    fn warnings_that_repeat_count_once() {
        let lines = [
            "warning: unused variable: `x`",
            "warning: `tenure-core` (lib) generated 2 warnings",
            "warning: `tenure-core` (lib test) generated 3 warnings (2 duplicates)",
        ];
        assert_eq!(warnings(lines), 3);
    }
}
