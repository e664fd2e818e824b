//! Splits an action of a script into its words, flags and options.

use std::collections::BTreeMap;

/// Words that modify an action rather than name its object.
const FLAGS: [&str; 9] =
    ["shared", "try", "independent", "now", "by-handle", "old-handle", "waive", "resume", "any-of"];

/// A parsed action: `A lock deploy shared wait=5s #3/0`.
#[derive(Default)]
pub(super) struct Words {
    /// The plain words, in order.
    pub(super) plain: Vec<String>,
    flags: Vec<String>,
    options: BTreeMap<String, String>,
    /// The number of the request, and the number up to which earlier ones are answered.
    pub(super) seq: Option<(u64, u64)>,
}

impl Words {
    pub(super) fn of(action: &str) -> Self {
        let mut words = Words::default();
        for word in action.split(' ').filter(|word| !word.is_empty()) {
            if FLAGS.contains(&word) {
                words.flags.push(word.to_owned());
            } else if let Some(seq) = word.strip_prefix('#') {
                let (seq, done) = seq.split_once('/').expect("a request is written #seq/done");
                words.seq = Some((number(seq), number(done)));
            } else if let Some((key, value)) = word.split_once('=').filter(|(key, _)| {
                key.bytes().all(|b| b.is_ascii_lowercase() || b == b'-' || b == b'_')
            }) {
                words.options.insert(key.to_owned(), text(value));
            } else {
                words.plain.push(text(word));
            }
        }
        words
    }

    pub(super) fn flag(&self, flag: &str) -> bool {
        self.flags.iter().any(|word| word == flag)
    }

    pub(super) fn option(&self, key: &str) -> Option<&str> {
        self.options.get(key).map(String::as_str)
    }

    pub(super) fn number(&self, key: &str) -> Option<u64> {
        self.option(key).map(number)
    }

    pub(super) fn span(&self, key: &str) -> Option<u64> {
        self.option(key).map(span)
    }

    pub(super) fn options(&self) -> impl Iterator<Item = (&str, &str)> {
        self.options.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }

    pub(super) fn at(&self, at: usize) -> &str {
        self.plain.get(at).map_or_else(|| panic!("a word is missing"), String::as_str)
    }
}

/// Expands a text: `x*4097` is 4097 times `x`, `""` is empty, `^G` is a control character.
fn text(word: &str) -> String {
    if let Some((part, times)) = word.split_once('*')
        && let Ok(times) = times.parse()
    {
        return part.repeat(times);
    }
    word.replace("\"\"", "").replace("^G", "\u{7}")
}

pub(super) fn number(word: &str) -> u64 {
    word.parse().unwrap_or_else(|_| panic!("`{word}` is no number"))
}

/// Parses a duration: `500ms`, `10s`, `5m`, `24h`.
pub(super) fn span(word: &str) -> u64 {
    let digits = word.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &word[digits.len()..] {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => panic!("`{word}` is no time"),
    };
    number(digits) * unit
}

/// Writes a duration as expectations do.
pub(super) fn show_span(ms: u64) -> String {
    if ms.is_multiple_of(1_000) { format!("{}s", ms / 1_000) } else { format!("{ms}ms") }
}

/// Writes bytes as expectations do.
pub(super) fn show_bytes(bytes: &[u8]) -> String {
    if bytes.is_empty() {
        return String::from("\"\"");
    }
    if bytes.len() > 64 {
        return format!("{} bytes", bytes.len());
    }
    String::from_utf8_lossy(bytes).into_owned()
}
