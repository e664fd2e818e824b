//! Reads the command line as people type it: flags of the cluster before the command, and words of other tools.

use std::ffi::{OsStr, OsString};

use clap::{Args, Command};

use crate::duration;
use crate::failure::CliError;
use crate::print_args::ListArgs;

/// Commands of other tools, and what does the same here.
const WORDS: &[(&str, &str)] = &[
    ("acquire", "tenure run LOCK -- COMMAND, or: tenure lock LOCK"),
    ("add", "tenure cluster add NAME"),
    ("del", "tenure key delete KEY"),
    ("endpoint", "tenure cluster status"),
    ("exec", "tenure run LOCK -- COMMAND"),
    ("get", "tenure key get KEY"),
    ("grant", "tenure lease grant --ttl 60s"),
    ("health", "tenure doctor, or: tenure cluster status"),
    ("info", "tenure cluster status, or: tenure explain LOCK"),
    ("keepalive", "tenure lease keep LEASE -- COMMAND"),
    ("kv", "tenure key get KEY, or: tenure key put KEY VALUE"),
    ("leader", "tenure cluster status, or: tenure observe ELECTION"),
    ("leases", "tenure lease list"),
    ("list", "tenure locks"),
    ("login", "--api-key-file FILE, or TENURE_API_KEY; look: tenure auth status"),
    ("ls", "tenure locks"),
    ("member", "tenure cluster members"),
    ("members", "tenure cluster members"),
    ("nodes", "tenure cluster members"),
    ("put", "tenure key put KEY VALUE"),
    ("release", "tenure unlock LOCK"),
    ("renew", "tenure lease renew LEASE"),
    ("revoke", "tenure lease revoke LEASE, or: tenure force LOCK"),
    ("server", "tenure dev, or: tenure serve"),
    ("session", "tenure lease list"),
    ("show", "tenure explain LOCK"),
    ("snapshot", "tenure backup FILE"),
    ("start", "tenure dev, or: tenure serve"),
    ("status", "tenure cluster status, or: tenure explain LOCK"),
    ("version", "tenure --version"),
    ("who", "tenure explain LOCK"),
    ("whoami", "tenure auth status"),
];

/// Words of other tools after one of our commands, and what does the same here.
const SECOND_WORDS: &[(&str, &str, &str)] = &[
    ("auth", "grant", "tenure auth role put ROLE --allow VERBS:PREFIX"),
    ("auth", "list", "tenure auth principal list, tenure auth key list, or: tenure auth role list"),
    ("auth", "token", "tenure auth key create PRINCIPAL"),
    ("auth", "user", "tenure auth principal put NAME --role ROLE"),
    ("auth", "whoami", "tenure auth status"),
    ("cluster", "health", "tenure doctor, or: tenure cluster status"),
    ("cluster", "info", "tenure cluster status"),
    ("cluster", "join", "tenure cluster invite; at the new member: tenure serve --join"),
    ("cluster", "leader", "tenure cluster status"),
    ("cluster", "list", "tenure cluster members"),
    ("cluster", "ls", "tenure cluster members"),
    ("cluster", "nodes", "tenure cluster members"),
    ("key", "del", "tenure key delete KEY"),
    ("key", "ls", "tenure key list"),
    ("key", "rm", "tenure key delete KEY"),
    ("key", "set", "tenure key put KEY VALUE"),
    ("lease", "create", "tenure lease grant --ttl 60s"),
    ("lease", "get", "tenure lease show LEASE"),
    ("lease", "keepalive", "tenure lease keep LEASE -- COMMAND"),
    ("lease", "keep-alive", "tenure lease keep LEASE -- COMMAND"),
    ("lease", "ls", "tenure lease list"),
    ("lease", "timetolive", "tenure lease show LEASE"),
];

/// Flags of other tools, and what stands for them here.
const FLAGS: &[(&str, &str)] = &[
    ("--format", "--output json"),
    ("--json", "--output json"),
    ("--nonblock", "--wait 0"),
    ("--port", "--clients 127.0.0.1:PORT"),
    ("--prefix", "the prefix without a flag: tenure locks jobs/"),
    ("--timeout", "--wait TIME"),
    ("-n", "--wait 0"),
    ("-o", "--output json"),
    ("-w", "--wait TIME"),
];

/// What stands here for a flag of another tool.
pub(crate) fn flag_advice(flag: &str) -> Option<&'static str> {
    FLAGS.iter().find(|(known, _)| *known == flag).map(|(_, advice)| *advice)
}

/// What does here what a command of another tool does.
pub(crate) fn advice(word: &str) -> Option<&'static str> {
    WORDS.iter().find(|(known, _)| *known == word).map(|(_, advice)| *advice)
}

/// What does here what a word of another tool does after one of our commands.
pub(crate) fn second_advice(command: &str, word: &str) -> Option<&'static str> {
    let is_it = |it: &&(&str, &str, &str)| it.0 == command && it.1 == word;
    SECOND_WORDS.iter().find(is_it).map(|(_, _, advice)| *advice)
}

/// Moves flags of the cluster that stand before the command behind it, where the parser expects them:
/// `tenure --addr a:1 lease list` becomes `tenure lease list --addr a:1`.
pub(crate) fn ordered(words: Vec<OsString>, parser: &Command) -> Vec<OsString> {
    let flags = ListArgs::augment_args(Command::new(""));
    let mut end = 1;
    while let Some(word) = words.get(end).and_then(|word| word.to_str()?.strip_prefix("--")) {
        let (name, joined) = word.split_once('=').map_or((word, false), |(name, _)| (name, true));
        let Some(flag) = flags.get_arguments().find(|it| it.get_long() == Some(name)) else {
            break;
        };
        end += if joined || !flag.get_action().takes_values() { 1 } else { 2 };
    }
    if end == 1 || end >= words.len() {
        return words;
    }
    let (mut at, mut command) = (end, parser);
    while let Some(inner) = words.get(at).and_then(|word| subcommand(command, word)) {
        (at, command) = (at + 1, inner);
    }
    [&words[..1], &words[end..at], &words[1..end], &words[at..]].concat()
}

/// The commands that differ from a typed word in two neighbouring letters that are swapped.
pub(crate) fn swapped(word: &str, parser: &Command) -> Vec<String> {
    let letters: Vec<char> = word.chars().collect();
    let turned = |at: usize| {
        let mut letters = letters.clone();
        letters.swap(at, at + 1);
        letters.into_iter().collect::<String>()
    };
    let turned: Vec<String> = (0..letters.len().saturating_sub(1)).map(turned).collect();
    let names = parser.get_subcommands().map(|it| it.get_name().to_owned());
    names.filter(|name| turned.contains(name)).collect()
}

/// Refuses a unit that stands alone behind the number of a time, as in `--wait 5 s`: the parser would take it as the
/// name of a lock.
pub(crate) fn stray_unit(words: &[OsString], parser: &Command) -> Option<CliError> {
    let ours = words.split(|word| word == "--").next()?;
    let mut command = parser;
    for word in ours.iter().skip(1) {
        command = subcommand(command, word).or(Some(command).filter(|it| !it.has_subcommands()))?;
        if !command.has_subcommands() {
            break;
        }
    }
    let is_time = |name: &str| {
        let mut flags = command.get_arguments();
        let flag = flags.find(|it| it.get_long() == Some(name));
        let value = flag.and_then(|it| it.get_value_names()?.first());
        value.is_some_and(|value| value.as_str() == "TIME")
    };
    for (at, word) in ours.iter().enumerate() {
        let Some(flag) = word.to_str().and_then(|it| it.strip_prefix("--")) else { continue };
        let (name, number, unit) = match flag.split_once('=') {
            Some((name, number)) => (name, Some(number), ours.get(at + 1)),
            None => (flag, ours.get(at + 1).and_then(|it| it.to_str()), ours.get(at + 2)),
        };
        let Some((number, word)) = number.zip(unit.and_then(|it| it.to_str())) else { continue };
        let bare = !number.is_empty() && number.bytes().all(|c| c.is_ascii_digit() || c == b'.');
        if let Some(unit) = duration::unit(word).filter(|_| bare && is_time(name)) {
            let failure = CliError::arguments(format!("is `{word}` a lock?"));
            let failure = failure.with("effect", "none: nothing was sent");
            return Some(failure.next(format!("--{name} {number}{unit}")));
        }
    }
    None
}

fn subcommand<'a>(of: &'a Command, word: &OsStr) -> Option<&'a Command> {
    of.get_subcommands().find(|it| it.get_name() == word)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn flags_before_the_command_stand_behind_it_afterwards() {
        let ordered = |line: &str| {
            let words = line.split(' ').map(OsString::from).collect();
            let words = ordered(words, &crate::Arguments::command());
            let words: Vec<String> = words.iter().map(|it| it.display().to_string()).collect();
            words.join(" ")
        };
        for (typed, expected) in [
            ("tenure --addr a:1 locks jobs/", "tenure locks --addr a:1 jobs/"),
            ("tenure --addr=a:1 lease list", "tenure lease list --addr=a:1"),
            (
                "tenure --insecure-credentials --client me run x -- y",
                "tenure run --insecure-credentials --client me x -- y",
            ),
            ("tenure locks --addr a:1", "tenure locks --addr a:1"),
            ("tenure --quiet lease list", "tenure lease list --quiet"),
            ("tenure --no-header --addr a:1 locks", "tenure locks --no-header --addr a:1"),
            ("tenure --version", "tenure --version"),
            ("tenure --addr a:1", "tenure --addr a:1"),
            ("tenure --addr a:1 --help", "tenure --addr a:1 --help"),
        ] {
            assert_eq!(ordered(typed), expected);
        }
    }

    #[test]
    fn no_word_of_other_tools_is_one_of_ours() {
        let parser = crate::Arguments::command();
        for (word, _) in WORDS {
            assert!(subcommand(&parser, OsStr::new(word)).is_none(), "{word}");
        }
        for (command, word, _) in SECOND_WORDS {
            let command = subcommand(&parser, OsStr::new(command)).unwrap();
            assert!(subcommand(command, OsStr::new(word)).is_none(), "{word}");
        }
    }

    #[test]
    fn what_is_advised_exists() {
        let parser = crate::Arguments::command();
        let second = SECOND_WORDS.iter().map(|(_, _, advice)| advice);
        for advice in WORDS.iter().map(|(_, advice)| advice).chain(second) {
            for line in advice.split("tenure ").skip(1) {
                let mut command = &parser;
                let line = line.split([',', ';']).next().unwrap_or_default();
                let words = line.split(' ').filter(|it| !it.is_empty());
                for word in words.take_while(|it| it.bytes().all(|c| c.is_ascii_lowercase())) {
                    command = subcommand(command, OsStr::new(word))
                        .unwrap_or_else(|| panic!("`{word}` in `{advice}` is no command"));
                }
            }
        }
    }
}
