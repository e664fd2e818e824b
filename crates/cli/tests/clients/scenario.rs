//! Reads scenario files: one step per line, as `clients/scenarios/README.md` describes.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

/// One scenario.
#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    pub(crate) name: String,
    /// The first comment: what must happen.
    pub(crate) title: String,
    pub(crate) cluster: ClusterKind,
    /// A feature that a driver must have for this scenario to apply to it.
    pub(crate) feature: Option<String>,
    /// Why it may be played a second time if it failed.
    pub(crate) retry: Option<String>,
    pub(crate) steps: Vec<Step>,
}

/// On which cluster a scenario is played.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum ClusterKind {
    /// One for many scenarios at the same time. No member is disturbed.
    Shared,
    /// For one scenario at a time, which may kill and stop members.
    Disturbed,
    /// Members use TLS.
    Tls,
    /// Members demand credentials.
    Access,
}

/// One line of a scenario.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) line: usize,
    pub(crate) text: String,
    pub(crate) what: StepKind,
}

#[derive(Clone, Debug)]
pub(crate) enum StepKind {
    /// A driver runs a command; the answer is awaited and compared, or gets a label.
    Command { actor: String, command: String, fields: Vec<Field>, then: Then },
    /// An answer that has a label is awaited and compared.
    Answer { label: String, expected: Expected },
    /// An answer that has a label has not come.
    Pending { label: String },
    /// One labelled answer came before another.
    Before { first: String, second: String },
    /// A driver reports an event.
    Hears { actor: String, stream: String, event: String, fields: Vec<Field> },
    /// Something is awaited that the cluster shows.
    Until(Vec<String>),
    /// The runner does something to a driver, its connections or the members.
    Act { verb: String, words: Vec<String>, fields: Vec<Field>, then: Then },
}

#[derive(Clone, Debug)]
pub(crate) enum Then {
    Expect(Expected),
    /// The command is repeated until its answer is as expected.
    Repeat(Expected),
    Label(String),
}

/// `name=value`, `name>value` or `name~value`.
#[derive(Clone, Debug)]
pub(crate) struct Field {
    pub(crate) name: String,
    pub(crate) relation: char,
    pub(crate) value: String,
}

/// What an answer must be: one of these kinds, and these fields.
#[derive(Clone, Debug)]
pub(crate) struct Expected {
    pub(crate) kinds: Vec<String>,
    /// The reasons or causes, one of which must be there.
    pub(crate) words: Vec<String>,
    pub(crate) fields: Vec<Field>,
}

const VERBS: &[&str] = &[
    "start", "launch", "cut", "swallow", "hold", "heal", "stop", "continue", "kill", "freeze",
    "thaw", "restart", "key", "revoke", "limit", "fill",
];

/// The fields that a driver gets as numbers.
const NUMBERS: &[&str] = &["slots", "take", "priority", "number", "expect_version"];

/// Reads every scenario of a directory, in the order of their names.
pub(crate) fn read_all(directory: &Path) -> Result<Vec<Scenario>, String> {
    let files =
        fs::read_dir(directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    let mut paths: Vec<PathBuf> = files.flatten().map(|file| file.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|end| end == "txt"));
    paths.sort();
    paths.iter().map(|path| read(path)).collect()
}

fn read(path: &Path) -> Result<Scenario, String> {
    let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
    let mut scenario = Scenario {
        name,
        title: String::new(),
        cluster: ClusterKind::Shared,
        feature: None,
        retry: None,
        steps: Vec::new(),
    };
    for (at, line) in text.lines().enumerate() {
        let wrong = |why: &str| format!("{}:{}: {why}: {line}", path.display(), at + 1);
        if let Some(comment) = line.strip_prefix('#') {
            if scenario.title.is_empty() {
                scenario.title = comment.trim().to_owned();
            }
            continue;
        }
        let line = line.split("  # ").next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        if let Some(kind) = line.strip_prefix("cluster: ") {
            scenario.cluster = match kind {
                "disturbed" => ClusterKind::Disturbed,
                "tls" => ClusterKind::Tls,
                "access" => ClusterKind::Access,
                _ => return Err(wrong("there is no such cluster")),
            };
        } else if let Some(feature) = line.strip_prefix("feature: ") {
            scenario.feature = Some(feature.to_owned());
        } else if let Some(reason) = line.strip_prefix("retry: ") {
            scenario.retry = Some(reason.to_owned());
        } else {
            let what = step(line).map_err(|why| wrong(&why))?;
            scenario.steps.push(Step { line: at + 1, text: line.to_owned(), what });
        }
    }
    if scenario.title.is_empty() || scenario.steps.is_empty() {
        return Err(format!(
            "{}: a scenario has a first comment that says what must happen, and steps",
            path.display()
        ));
    }
    Ok(scenario)
}

fn step(line: &str) -> Result<StepKind, String> {
    let mut words = split(line)?;
    let then = then(&mut words)?;
    let first = words.first().cloned().ok_or("no words")?;
    if let [label] = &words[..]
        && let Some(Then::Expect(expected)) = then
    {
        return Ok(StepKind::Answer { label: label.clone(), expected });
    }
    let word = |at: usize| words.get(at).map(String::as_str);
    match (word(1), word(2), words.len()) {
        (Some("pending"), None, 2) => return Ok(StepKind::Pending { label: first }),
        (Some("before"), Some(second), 3) => {
            return Ok(StepKind::Before { first, second: second.to_owned() });
        }
        _ => {}
    }
    if first == "until" {
        return Ok(StepKind::Until(words.split_off(1)));
    }
    let then = then.unwrap_or_else(|| Then::Expect(Expected::ok()));
    if VERBS.contains(&first.as_str()) {
        let (fields, words) = fields(words.split_off(1))?;
        return Ok(StepKind::Act { verb: first, words, fields, then });
    }
    if !first.starts_with(|letter: char| letter.is_ascii_uppercase()) {
        return Err(format!("`{first}` is neither a verb nor a client"));
    }
    let command = word(1).ok_or("a client does something")?.to_owned();
    let (mut given, names) = fields(words.split_off(2))?;
    if command == "hears" {
        let [stream, event] = &names[..] else { return Err("hears STREAM EVENT".to_owned()) };
        let (stream, event) = (stream.clone(), event.clone());
        return Ok(StepKind::Hears { actor: first, stream, event, fields: given });
    }
    let subject = subject(&command).ok_or_else(|| format!("there is no command `{command}`"))?;
    for name in names {
        if given.iter().any(|field| field.name == subject) || subject.is_empty() {
            return Err(format!("`{name}` is one word too many"));
        }
        given.push(Field { name: subject.to_owned(), relation: '=', value: name });
    }
    Ok(StepKind::Command { actor: first, command, fields: given, then })
}

/// What the word after a command is.
fn subject(command: &str) -> Option<&'static str> {
    Some(match command {
        "lock" | "check" | "await_lost" | "work" | "release" | "reenter" | "fork" => "guard",
        "upgrade" | "downgrade" | "hand_on" | "progress" => "guard",
        "lease_grant" | "lease_release" => "lease",
        "campaign" | "proclaim" | "resign" => "leader",
        "observe" | "watch" => "stream",
        "put" | "get" | "delete" => "key",
        "show" | "explain" | "force" | "run" | "resize" | "history" => "lock",
        "drain" | "undrain" | "drains" | "locks" => "prefix",
        "revoke" => "target",
        "open" | "close" => "handle",
        "cancel" => "of",
        "hello" | "exit" => "",
        _ => return None,
    })
}

/// Whether a command names a client object.
pub(crate) fn has_handle(command: &str) -> bool {
    let without = [
        "check",
        "await_lost",
        "work",
        "release",
        "reenter",
        "upgrade",
        "downgrade",
        "hand_on",
        "progress",
        "fork",
        "lease_release",
        "proclaim",
        "resign",
        "cancel",
        "hello",
        "exit",
        "open",
        "close",
    ];
    !without.contains(&command)
}

fn then(words: &mut Vec<String>) -> Result<Option<Then>, String> {
    let arrow = words.iter().position(|word| ["->", "->>", "=>"].contains(&word.as_str()));
    let Some(at) = arrow else { return Ok(None) };
    let after = words.split_off(at);
    if after[0] == "=>" {
        let [_, label] = &after[..] else { return Err("=> LABEL".to_owned()) };
        return Ok(Some(Then::Label(label.clone())));
    }
    let (fields, mut names) = fields(after[1..].to_vec())?;
    if names.is_empty() {
        return Err("-> KIND".to_owned());
    }
    let list = |text: &str| text.split('|').map(str::to_owned).collect::<Vec<_>>();
    let words = names.split_off(1).first().map_or_else(Vec::new, |words| list(words));
    let expected = Expected { kinds: list(&names[0]), words, fields };
    Ok(Some(if after[0] == "->" { Then::Expect(expected) } else { Then::Repeat(expected) }))
}

impl Expected {
    fn ok() -> Self {
        Self { kinds: vec!["ok".to_owned()], words: Vec::new(), fields: Vec::new() }
    }
}

fn fields(words: Vec<String>) -> Result<(Vec<Field>, Vec<String>), String> {
    let (mut fields, mut names) = (Vec::new(), Vec::new());
    for word in words {
        match word.find(['=', '>', '~']) {
            Some(0) => return Err(format!("`{word}` has no name")),
            Some(at) => {
                let relation = char::from(word.as_bytes()[at]);
                let (name, value) = (word[..at].to_owned(), word[at + 1..].to_owned());
                fields.push(Field { name, relation, value });
            }
            None => names.push(word),
        }
    }
    Ok((fields, names))
}

/// Splits a line at spaces that are not between quotation marks, which are removed.
fn split(line: &str) -> Result<Vec<String>, String> {
    let (mut words, mut word, mut quoted, mut begun) = (Vec::new(), String::new(), false, false);
    for letter in line.chars() {
        match letter {
            '"' => {
                quoted = !quoted;
                begun = true;
            }
            ' ' if !quoted => {
                if begun {
                    words.push(std::mem::take(&mut word));
                }
                begun = false;
            }
            other => {
                word.push(other);
                begun = true;
            }
        }
    }
    if quoted {
        return Err("a quotation mark is missing".to_owned());
    }
    if begun {
        words.push(word);
    }
    Ok(words)
}

impl Field {
    /// The field as the driver gets it: durations in milliseconds, lists, numbers.
    pub(crate) fn sent(&self) -> (String, Value) {
        let duration = self.value.strip_suffix("ms").map(|text| (text, 1));
        let duration = duration.or_else(|| self.value.strip_suffix('s').map(|text| (text, 1_000)));
        let times = [
            "ttl",
            "wait",
            "max_hold",
            "min_hold",
            "progress_within",
            "lock_delay",
            "limit",
            "deadline",
            "timeout",
            "linger",
            "for",
        ];
        if times.contains(&self.name.as_str()) {
            let (text, factor) = duration.unwrap_or((&self.value, 1_000));
            let name =
                if self.name == "for" { "ms".to_owned() } else { format!("{}_ms", self.name) };
            return (
                name,
                text.parse::<u64>().map_or(json!(self.value), |number| json!(number * factor)),
            );
        }
        let value = match self.value.strip_prefix('[').and_then(|text| text.strip_suffix(']')) {
            Some(list) => json!(list.split(',').collect::<Vec<_>>()),
            None if self.value == "true" => json!(true),
            None if NUMBERS.contains(&self.name.as_str()) => {
                self.value.parse::<u64>().map_or(json!(self.value), |number| json!(number))
            }
            None => {
                match self.value.strip_prefix('@').and_then(|many| many.parse::<usize>().ok()) {
                    Some(many) => json!("x".repeat(many)),
                    None => json!(self.value),
                }
            }
        };
        (self.name.clone(), value)
    }
}
