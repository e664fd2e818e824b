//! Parses scenario files.
//!
//! ```text
//! == a held lock is refused to those who do not wait
//! ana lease 60s                 -> granted
//! ana lock deploy               -> held
//! @http,grpc ben try deploy     -> HELD
//! ```
//!
//! Each line is one step: the APIs it runs on (all by default), the client, the command with its words and options, and
//! the result. A refusal is written as its reason, in capitals; any other result as a word and some facts.

use std::collections::BTreeMap;

/// The roles of a member.
pub(crate) const SHAPES: [&str; 3] = ["alone", "leader", "follower"];

/// A scenario: its title and its steps.
#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    pub(crate) title: String,
    pub(crate) steps: Vec<Step>,
}

/// One line.
#[derive(Clone, Debug, Default)]
pub(crate) struct Step {
    /// The file and the line, for error messages.
    pub(crate) at: String,
    /// The APIs and shapes that the step runs on; all, if none is named.
    only: Vec<String>,
    pub(crate) who: String,
    pub(crate) verb: String,
    pub(crate) words: Vec<String>,
    pub(crate) options: BTreeMap<String, String>,
    pub(crate) outcome: String,
    pub(crate) facts: BTreeMap<String, String>,
}

impl Step {
    /// Whether the step runs on this API of a member with this shape.
    pub(crate) fn is_for(&self, api: &str, shape: &str) -> bool {
        let (shapes, apis): (Vec<_>, Vec<_>) =
            self.only.iter().partition(|it| SHAPES.contains(&it.as_str()));
        (apis.is_empty() || apis.iter().any(|it| *it == api))
            && (shapes.is_empty() || shapes.iter().any(|it| *it == shape))
    }

    /// Whether the step must be refused.
    pub(crate) fn is_refused(&self) -> bool {
        self.outcome.starts_with(|first: char| first.is_ascii_uppercase())
    }

    pub(crate) fn word(&self, number: usize) -> &str {
        self.words.get(number).unwrap_or_else(|| panic!("{}: a word is missing", self.at))
    }

    pub(crate) fn option(&self, name: &str) -> Option<&str> {
        self.options.get(name).map(String::as_str)
    }
}

/// Parses a file.
pub(crate) fn read(file: &str, text: &str) -> Vec<Scenario> {
    let mut scenarios: Vec<Scenario> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if let Some(title) = line.strip_prefix("== ") {
            scenarios.push(Scenario { title: title.to_owned(), steps: Vec::new() });
        } else if !line.is_empty() {
            let at = format!("{file}:{}", number + 1);
            let scenario = scenarios.last_mut().unwrap_or_else(|| panic!("{at}: no title before"));
            scenario.steps.push(step(at, line));
        }
    }
    scenarios
}

fn step(at: String, line: &str) -> Step {
    let (asked, told) = line.split_once("->").unwrap_or_else(|| panic!("{at}: no `->`"));
    let mut words = asked.split_whitespace().peekable();
    let mut step = Step { at, ..Step::default() };
    if let Some(apis) = words.next_if(|word| word.starts_with('@')) {
        step.only = apis[1..].split(',').map(str::to_owned).collect();
    }
    let mut next = || words.next().map(str::to_owned);
    step.who = next().unwrap_or_else(|| panic!("{}: who?", step.at));
    step.verb = next().unwrap_or_else(|| panic!("{}: what?", step.at));
    for word in words {
        match word.split_once('=').filter(|(name, _)| !name.is_empty()) {
            Some((name, value)) => {
                step.options.insert(name.to_owned(), value.to_owned());
            }
            None => step.words.push(word.to_owned()),
        }
    }
    let mut told = told.split_whitespace();
    step.outcome =
        told.next().unwrap_or_else(|| panic!("{}: what comes of it?", step.at)).to_owned();
    for fact in told {
        let (name, value) =
            fact.split_once('=').unwrap_or_else(|| panic!("{}: `{fact}` is no fact", step.at));
        step.facts.insert(name.to_owned(), value.to_owned());
    }
    step
}

/// Parses a duration such as `50ms`, `60s` or `2h` into milliseconds.
pub(crate) fn ms(text: &str) -> u64 {
    let digits = text.trim_end_matches(|it: char| it.is_ascii_alphabetic());
    let number: u64 = digits.parse().unwrap_or_else(|_| panic!("`{text}` is no duration"));
    match &text[digits.len()..] {
        "ms" => number,
        "s" => number * 1_000,
        "h" => number * 3_600_000,
        other => panic!("`{other}` is no unit"),
    }
}
