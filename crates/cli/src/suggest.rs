//! Completes the commands that `tenure` suggests with the flags that chose the cluster.
//!
//! A suggested command is copied and pasted. Without `--addr` it would go to another cluster than the one it is about.

use std::ffi::{OsStr, OsString};
use std::sync::OnceLock;

use clap::{Command, CommandFactory};

use crate::failure::quoted;

/// The flags that say which cluster to use and how to connect to it.
const FLAGS: &[&str] = &[
    "--addr",
    "--tls-ca",
    "--tls-cert",
    "--tls-key",
    "--api-key-file",
    "--token-file",
    "--insecure-credentials",
    "--client-config",
];
/// The one of these that has no value.
const SWITCH: &str = "--insecure-credentials";

/// The flags of this process: each with its name, and as it is typed.
static GIVEN: OnceLock<Vec<(&'static str, String)>> = OnceLock::new();

/// Remembers the flags of this command line.
pub(crate) fn remember(words: &[OsString]) {
    let _ = GIVEN.set(given(words));
}

/// Repeats the flags of this process in every command in the text that takes them. Text that is quoted stays as it is.
pub(crate) fn suggested(text: &str) -> String {
    match GIVEN.get() {
        Some(given) if !given.is_empty() => completed(text, given),
        _ => text.to_owned(),
    }
}

fn given(words: &[OsString]) -> Vec<(&'static str, String)> {
    let ours = words.split(|word| word == "--").next().unwrap_or_default();
    let mut given = Vec::new();
    let mut at = 1;
    while let Some(word) = ours.get(at) {
        at += 1;
        let word = word.to_string_lossy();
        let (name, joined) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (&*word, None),
        };
        let Some(flag) = FLAGS.iter().find(|flag| **flag == name) else { continue };
        if *flag == SWITCH {
            given.push((*flag, SWITCH.to_owned()));
            continue;
        }
        let value = joined.or_else(|| {
            at += 1;
            Some(ours.get(at - 1)?.to_string_lossy().into_owned())
        });
        if let Some(value) = value {
            given.push((*flag, format!("{flag} {}", quoted(value))));
        }
    }
    given
}

fn completed(text: &str, given: &[(&'static str, String)]) -> String {
    const NAME: &str = "tenure ";
    let parser = crate::Arguments::command();
    let mut complete = String::new();
    let (mut rest, mut quote, mut before) = (text, None, ' ');
    while let Some(next) = rest.chars().next() {
        // A quote in the middle of a word is an apostrophe.
        let opens = before.is_whitespace() && matches!(next, '\'' | '"');
        let skipped = match quote {
            None if before.is_whitespace() && rest.starts_with(NAME) => {
                complete.push_str("tenure");
                let line = &rest[NAME.len()..];
                for (_, flag) in
                    given.iter().filter(|(name, flag)| takes(&parser, line, name, flag))
                {
                    complete.push(' ');
                    complete.push_str(flag);
                }
                rest = &rest["tenure".len()..];
                before = 'e';
                continue;
            }
            None if opens => {
                quote = Some(next);
                next.len_utf8()
            }
            // The shell's way to write a quote between quotes.
            Some('\'') if rest.starts_with(r"'\''") => r"'\''".len(),
            Some(open) if open == next => {
                quote = None;
                next.len_utf8()
            }
            _ => next.len_utf8(),
        };
        complete.push_str(&rest[..skipped]);
        rest = &rest[skipped..];
        before = next;
    }
    complete
}

/// Whether the command that this text begins with takes the flag, and does not have it yet.
fn takes(parser: &Command, text: &str, name: &str, flag: &str) -> bool {
    let mut command = parser;
    for word in text.split([' ', ',', ';', '\n']) {
        match command.get_subcommands().find(|it| OsStr::new(it.get_name()) == word) {
            Some(inner) => command = inner,
            None => break,
        }
    }
    let long = name.trim_start_matches('-');
    let known = command.get_arguments().any(|it| it.get_long() == Some(long));
    let own = text.split("tenure ").next().unwrap_or_default();
    known && !own.contains(flag)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complete(line: &str, text: &str) -> String {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        completed(text, &given(&words))
    }

    #[test]
    fn every_command_that_talks_to_the_cluster_gets_the_flags_that_chose_it() {
        let addr = "tenure explain held --addr a:1,b:1";
        for (text, expected) in [
            (
                "tenure force held --token 49 --reason \"…\"",
                "tenure --addr a:1,b:1 force held --token 49 --reason \"…\"",
            ),
            (
                "tenure explain a · tenure history a",
                "tenure --addr a:1,b:1 explain a · tenure --addr a:1,b:1 history a",
            ),
            (
                "stop the work; look: tenure lease list, or again",
                "stop the work; look: tenure --addr a:1,b:1 lease list, or again",
            ),
            ("tenure doctor", "tenure --addr a:1,b:1 doctor"),
            // These take no address, or have it.
            ("tenure dev, or: tenure help exit", "tenure dev, or: tenure help exit"),
            ("tenure run --addr a:1,b:1 x -- y", "tenure run --addr a:1,b:1 x -- y"),
            ("what `tenure lock` printed", "what `tenure lock` printed"),
            // A name is not a command.
            (
                r"the members' logs; tenure explain 'it'\''s a tenure lock x'",
                r"the members' logs; tenure --addr a:1,b:1 explain 'it'\''s a tenure lock x'",
            ),
        ] {
            assert_eq!(complete(addr, text), expected);
            assert_eq!(complete(addr, expected), expected, "it is not done twice");
        }
    }

    #[test]
    fn files_are_repeated_as_a_shell_wants_them_and_those_of_the_command_are_not_ours() {
        let line = "tenure run --tls-ca=my'ca --insecure-credentials --addr a:1 x -- y --addr b:1";
        let expected = r"tenure --tls-ca 'my'\''ca' --insecure-credentials --addr a:1 locks";
        assert_eq!(complete(line, "tenure locks"), expected);
        assert_eq!(complete("tenure locks", "tenure locks"), "tenure locks");
    }
}
