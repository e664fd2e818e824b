//! Answers arguments that the parser does not understand: names what the user probably meant.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser};

use crate::exit::Exit;
use crate::failure::{self, CliError};
use crate::output::{self, OutputFormat};
use crate::{Arguments, command_line, manual};

/// Reports wrong arguments, or prints the requested help; as an object with `--output json`.
pub(crate) fn not_understood(mut error: clap::Error, words: &[OsString]) -> ExitCode {
    let unknown = match (error.kind(), error.get(ContextKind::InvalidArg)) {
        (ErrorKind::UnknownArgument, Some(ContextValue::String(flag))) => Some(flag.clone()),
        _ => None,
    };
    let unknown = unknown.filter(|it| it.starts_with('-'));
    if unknown.is_some() {
        // The parser's tip is to pass the flag as a value, which is never meant.
        error.insert(ContextKind::Suggested, ContextValue::None);
    }
    let ours = words.split(|word| word == "--").next().unwrap_or_default();
    let objects = wants_objects(words);
    if let Some(ContextValue::String(value)) = error.get(ContextKind::InvalidValue) {
        // It may have any length, and control characters.
        let shown = ContextValue::String(output::shortened(value));
        error.insert(ContextKind::InvalidValue, shown);
    }
    if let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand)
        && ours.get(1).is_some_and(|first| first == word.as_str())
        && let similar @ [_, ..] = &command_line::swapped(word, &Arguments::command())[..]
    {
        let similar = ContextValue::Strings(similar.to_vec());
        error.insert(ContextKind::SuggestedSubcommand, similar);
    }
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand && words.len() == 1 {
        // A user who types the name alone gets the examples to begin with.
        output::tell(&manual::long_help(Arguments::command()));
        return Exit::Arguments.into();
    }
    let forgotten = ours.get(1).filter(|_| ours.len() == words.len()).and_then(|command| {
        let stray = match (error.kind(), error.get(ContextKind::InvalidArg)?) {
            (ErrorKind::UnknownArgument, ContextValue::String(stray)) => Some(stray.as_str()),
            // Several locks may be named, so the words of the command count as locks.
            (ErrorKind::MissingRequiredArgument, _) => None,
            _ => return None,
        };
        dashes(command.to_str()?, stray, ours)
    });
    let foreign = match error.get(ContextKind::InvalidSubcommand) {
        Some(ContextValue::String(word))
            if ours.get(1).is_some_and(|first| first == word.as_str()) =>
        {
            command_line::advice(word).map(|next| (word.clone(), next))
        }
        Some(ContextValue::String(word)) => ours.get(1).and_then(|first| {
            let first = first.to_str()?;
            let next = command_line::second_advice(first, word)?;
            Some((format!("{first} {word}"), next))
        }),
        _ => None,
    };
    if let Some((flag, next)) =
        unknown.as_deref().zip(unknown.as_deref().and_then(command_line::flag_advice))
    {
        let failure = CliError::arguments(format!("there is no flag `{flag}` here")).next(next);
        return failure.report_as(if objects { OutputFormat::Json } else { OutputFormat::Text });
    }
    if let Some((word, next)) = foreign {
        let failure = CliError::arguments(format!("there is no command `{word}`")).next(next);
        return failure.report_as(if objects { OutputFormat::Json } else { OutputFormat::Text });
    }
    if objects && error.use_stderr() {
        let failure = CliError::misunderstood(&error.to_string());
        let failure = match forgotten {
            Some(line) => failure.next(line),
            None => failure,
        };
        return failure.report_as(OutputFormat::Json);
    }
    if let Some(line) = forgotten {
        return CliError::arguments("the command to run comes behind --")
            .with("effect", "none: no lock was asked for")
            .next(line)
            .report_as(OutputFormat::Text);
    }
    error.exit()
}

/// Whether errors are printed as objects, also if the arguments cannot be parsed.
pub(crate) fn wants_objects(words: &[OsString]) -> bool {
    let ours = words.split(|word| word == "--").next().unwrap_or_default();
    ours.windows(2).any(|pair| pair[0] == "--output" && pair[1] == "json")
        || ours.iter().any(|word| word == "--output=json")
}

/// The command line that a user meant who forgot the `--` before the command to run: the command begins at the stray
/// word, or else behind the first lock. The same word may occur earlier, as the lock's name or a flag's value;
/// inserting `--` there does not parse.
fn dashes(command: &str, stray: Option<&str>, words: &[OsString]) -> Option<String> {
    if !matches!(command, "run" | "elect") || stray.is_some_and(|stray| stray.starts_with('-')) {
        return None;
    }
    let with_dashes = |at: usize| [&words[..at], &[OsString::from("--")], &words[at..]].concat();
    let begins = |at: usize| stray.is_none_or(|stray| words[at] == stray);
    let at = (2..words.len())
        .find(|at| begins(*at) && Arguments::try_parse_from(with_dashes(*at)).is_ok())?;
    let quoted = |words: &[OsString]| {
        let words: Vec<String> = words.iter().map(|it| failure::quoted(it.display())).collect();
        words.join(" ")
    };
    Some(format!("tenure {} -- {}", quoted(&words[1..at]), quoted(&words[at..])))
}
