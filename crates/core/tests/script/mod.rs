//! Plays a scenario written in words: turns it into log entries and compares what the machine does.
//!
//! A script has one entry of the log, or one query, on each line:
//!
//! ```text
//!  1s  A lease 10s       granted
//!  2s  A lock deploy     held token=1
//! 11s  -                 A lost deploy; A expired
//! ```
//!
//! Two or more spaces separate time, action and expectation. The time is what the present leader has counted, so it
//! starts again with `term 2` and after `restore`. `-` is an entry without commands, or nothing to expect. Several
//! commands of one entry, and their answers, are joined by ` + `. Notices to other leases follow the answers after `;`.
//! An expectation may leave out details in parentheses, all or none. A line that begins with `..` continues the
//! expectation before it.
//!
//! Every line also checks the invariants. It is also applied to a second machine, which is written to a snapshot and
//! read back after each line: the two must be indistinguishable.

mod access;
mod action;
mod answer;
mod exercise;
mod patch;
mod stage;
mod view;
mod words;

pub(crate) use exercise::exercise;
pub(crate) use patch::{frames, number_len, rehash, replace_number};
pub(crate) use stage::ScriptRun;

/// Plays a script and compares every line with its expectation.
#[track_caller]
pub(crate) fn check(script: &str) {
    play(script);
}

/// Plays a script, compares every line, and returns the final stage.
#[track_caller]
pub(crate) fn play(script: &str) -> ScriptRun {
    play_at(script, |count_ms| 1_772_421_240_000 + count_ms)
}

/// Plays a script with entries that carry this wall clock, by their count.
#[track_caller]
pub(crate) fn play_at(script: &str, wall: fn(u64) -> u64) -> ScriptRun {
    let lines = parse(script);
    let mut stage = ScriptRun::new(wall);
    for line in &lines {
        let got = stage.step(line.time_ms, line.action);
        let wanted = line.expected.as_str();
        let same = match &got {
            Ok(got) if wanted.contains('(') => got == wanted,
            Ok(got) => without_details(got) == wanted,
            Err(_) => false,
        };
        if !same {
            let got = got.unwrap_or_else(|broken| format!("BROKEN: {broken}"));
            panic!("{}\nexpected: {wanted}\n     got: {got}\n", mark(script, line.number));
        }
    }
    stage
}

struct Line<'a> {
    number: usize,
    time_ms: u64,
    action: &'a str,
    expected: String,
}

#[track_caller]
fn parse(script: &str) -> Vec<Line<'_>> {
    let mut lines: Vec<Line<'_>> = Vec::new();
    for (number, text) in script.lines().enumerate() {
        let text = text.trim();
        if text.is_empty() {
            continue;
        }
        if let Some(more) = text.strip_prefix("..") {
            let last = lines.last_mut().expect("a script does not begin with `..`");
            last.expected = format!("{} {}", last.expected, more.trim()).trim().to_owned();
            continue;
        }
        let mut columns = text.split("  ").map(str::trim).filter(|column| !column.is_empty());
        let (Some(time), Some(action), expected, None) =
            (columns.next(), columns.next(), columns.next(), columns.next())
        else {
            panic!("{}\na line has time, action and expectation", mark(script, number));
        };
        let expected = expected.unwrap_or_default().to_owned();
        lines.push(Line { number, time_ms: words::span(time), action, expected });
    }
    lines
}

/// Returns the script with one line marked.
fn mark(script: &str, number: usize) -> String {
    let mut text = String::from("\n");
    for (at, line) in script.lines().enumerate() {
        text.push_str(if at == number { " >> " } else { "    " });
        text.push_str(line);
        text.push('\n');
    }
    text
}

/// Returns a text without the parts in parentheses.
fn without_details(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(" (") {
        out.push_str(before);
        rest = after.split_once(')').map_or("", |(_, rest)| rest);
    }
    out.push_str(rest);
    out
}

#[test]
#[should_panic(expected = ">> 1s  A lock deploy  held token=2")]
fn a_script_that_does_not_hold_shows_the_line_that_fails() {
    check("1s  A lease 10s  granted\n1s  A lock deploy  held token=2");
}

#[test]
fn details_may_be_left_out_all_or_none() {
    check("1s  A lease 10s  granted\n1s  A lock deploy  held token=1 (place=1)");
    check("1s  A lease 10s  granted\n1s  A lock deploy  held token=1");
}
