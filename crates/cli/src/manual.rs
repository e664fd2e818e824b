//! Prints completions, manual pages and help on commands, reasons and exit codes.

use std::path::PathBuf;

use clap::{Args, CommandFactory};
use serde_json::json;

use crate::Arguments;
use crate::exit::{self, Exit};
use crate::failure::CliError;
use crate::output::{self, OutputFormat};
use crate::reason;

/// How to make and use certificates: `tenure help certificates`.
const CERTIFICATES: &str = include_str!("certificates.txt");

/// Flags of `tenure completions`.
#[derive(Args)]
pub(crate) struct CompletionsArgs {
    /// For which shell
    #[arg(value_enum)]
    shell: clap_complete::Shell,
    /// Output format
    #[arg(long, value_name = "FORM", value_enum, default_value_t)]
    pub(crate) output: OutputFormat,
}

/// Flags of `tenure man`.
#[derive(Args)]
pub(crate) struct ManArgs {
    /// Write one page for every command into this directory
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Output format
    #[arg(long, value_name = "FORM", value_enum, default_value_t)]
    pub(crate) output: OutputFormat,
}

/// Flags of `tenure help`.
#[derive(Args)]
pub(crate) struct HelpArgs {
    /// A command, a reason in capitals, `reasons` for all of them, `exit`, or `certificates`
    words: Vec<String>,
    /// Output format
    #[arg(long, value_name = "FORM", value_enum, default_value_t)]
    pub(crate) output: OutputFormat,
}

pub(crate) fn completions(flags: &CompletionsArgs) -> Result<Exit, CliError> {
    let mut text = Vec::new();
    clap_complete::generate(flags.shell, &mut Arguments::command(), "tenure", &mut text);
    let text = String::from_utf8_lossy(&text);
    match flags.output {
        OutputFormat::Json => {
            output::object(&json!({ "shell": flags.shell.to_string(), "text": text }));
        }
        OutputFormat::Text => output::out(&text),
    }
    Ok(Exit::Done)
}

/// Prints or writes manual pages.
pub(crate) fn man(flags: &ManArgs) -> Result<Exit, CliError> {
    let failed = |error| CliError::refused(format!("cannot write manual pages: {error}"));
    let mut command = Arguments::command();
    command.build();
    match &flags.dir {
        Some(dir) => {
            std::fs::create_dir_all(dir).map_err(failed)?;
            let pages = write_pages(dir, &command, "tenure").map_err(failed)?;
            if flags.output == OutputFormat::Json {
                let one = |(name, file)| json!({ "page": name, "section": 1, "file": file });
                pages.into_iter().map(one).for_each(|page| output::object(&page));
            } else {
                output::tell(&format!("wrote {} pages into {}\n", pages.len(), dir.display()));
            }
        }
        None => {
            let text = page(command).map_err(failed)?;
            match flags.output {
                OutputFormat::Json => {
                    output::object(&json!({ "page": "tenure", "section": 1, "text": text }));
                }
                OutputFormat::Text => output::out(&text),
            }
        }
    }
    Ok(Exit::Done)
}

fn page(command: clap::Command) -> std::io::Result<String> {
    let mut text = Vec::new();
    clap_mangen::Man::new(command).render(&mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

fn write_pages(
    dir: &std::path::Path,
    command: &clap::Command,
    name: &str,
) -> std::io::Result<Vec<(String, PathBuf)>> {
    let file = dir.join(format!("{name}.1"));
    std::fs::write(&file, page(command.clone())?)?;
    let mut pages = vec![(name.to_owned(), file)];
    for below in command.get_subcommands().filter(|it| !it.is_hide_set()) {
        pages.extend(write_pages(dir, below, &format!("{name}-{}", below.get_name()))?);
    }
    Ok(pages)
}

/// Explains a command, a reason or the exit codes.
pub(crate) fn help(flags: &HelpArgs) -> Result<Exit, CliError> {
    if flags.output == OutputFormat::Json {
        return help_objects(&flags.words);
    }
    match &flags.words[..] {
        [] => output::out(&long_help(Arguments::command())),
        [word] if word == "exit" => output::out(&exit_codes()),
        [word] if word == "reasons" => output::out(&reasons()),
        [word] if word == "certificates" => output::out(CERTIFICATES),
        [word] if is_reason(word) => output::out(&reason_help(word)?),
        words => output::out(&command_help(words)?),
    }
    Ok(Exit::Done)
}

fn is_reason(word: &str) -> bool {
    word.chars().all(|c| c.is_ascii_uppercase() || c == '_')
}

/// Prints the same help as objects for programs.
fn help_objects(words: &[String]) -> Result<Exit, CliError> {
    match words {
        [word] if word == "exit" => {
            for (code, meaning) in exit::TABLE {
                output::object(&json!({ "code": code, "meaning": meaning }));
            }
        }
        [word] if word == "reasons" => {
            for section in reason::sections() {
                section.rows.iter().for_each(|row| output::object(&row.object(section.by)));
            }
        }
        [word] if is_reason(word) => {
            // Compute the text first: it fails for an unknown reason.
            let text = reason_help(word)?;
            for (by, row) in reason::find(word) {
                let mut said = row.object(by);
                said["text"] = json!(text);
                output::object(&said);
            }
        }
        [word] if word == "certificates" => {
            output::object(&json!({ "topic": word, "text": CERTIFICATES }));
        }
        [] => {
            let text = long_help(Arguments::command());
            output::object(&json!({ "command": "tenure", "text": text }));
        }
        words => {
            let text = command_help(words)?;
            let command = format!("tenure {}", words.join(" "));
            output::object(&json!({ "command": command, "text": text }));
        }
    }
    Ok(Exit::Done)
}

pub(crate) fn long_help(mut command: clap::Command) -> String {
    command.render_long_help().to_string()
}

fn command_help(words: &[String]) -> Result<String, CliError> {
    let mut command = Arguments::command();
    command.build();
    let mut at = &command;
    for word in words {
        at = at.find_subcommand(word).ok_or_else(|| {
            let text = format!("there is no command `{}`", words.join(" "));
            CliError::arguments(text).next("tenure help, or a reason in capitals: tenure help HELD")
        })?;
    }
    Ok(long_help(at.clone()))
}

fn reason_help(word: &str) -> Result<String, CliError> {
    let found = reason::find(word);
    if found.is_empty() {
        let sections = reason::sections();
        let known = sections.iter().flat_map(|section| &section.rows).map(|row| row.reason);
        let mut near: Vec<&str> =
            known.filter(|known| known.contains(word) || word.contains(known)).collect();
        near.sort_unstable();
        near.dedup();
        let failure = CliError::arguments(format!("there is no reason {word}"));
        let failure = if near.is_empty() { failure } else { failure.with("near", near.join(", ")) };
        return Err(failure.next("tenure help reasons"));
    }
    let shown = found.iter().map(|(by, row)| {
        let effect = match row.effect {
            "none" => "none: it did not happen",
            _ => "unknown: it may have happened, or may still",
        };
        let exit = row.exit.map_or(String::new(), |code| format!("  exit     {code}\n"));
        let (reason, meaning, advice) = (row.reason, row.meaning, row.advice);
        format!(
            "{reason}: {meaning}\n  said by  {by}\n  effect   {effect}\n{exit}  try      {advice}\n"
        )
    });
    Ok(shown.collect::<Vec<_>>().join("\n"))
}

/// Every reason, grouped by what reports it.
fn reasons() -> String {
    let sections = reason::sections().into_iter().map(|section| {
        let rows =
            section.rows.iter().map(|row| format!("  {:<24}  {}\n", row.reason, row.meaning));
        format!("Said by {}:\n{}", section.by, rows.collect::<String>())
    });
    sections.collect::<Vec<_>>().join("\n")
}

fn exit_codes() -> String {
    let lines = exit::TABLE.iter().map(|(code, meaning)| format!("{code:>8}  {meaning}\n"));
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_message_and_no_help_refers_to_a_file_that_a_user_of_the_binary_does_not_have() {
        let crates = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
        let mut folders = vec![crates.join("cli/src"), crates.join("gate/src")];
        let mut files = 0;
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
                if entry.is_dir() {
                    folders.push(entry);
                    continue;
                }
                files += 1;
                let text = std::fs::read_to_string(&entry).unwrap();
                let shipped = text.split("#[cfg(test)]").next().unwrap_or_default();
                for line in shipped.lines() {
                    let own = line.trim_start().starts_with("//")
                        && !line.trim_start().starts_with("/// ");
                    // The comments of flags and commands are their help; other comments are ours.
                    let refers = line.contains("docs/") && !own && !line.contains("`docs/");
                    assert!(!refers, "{}: {line}", entry.display());
                }
            }
        }
        assert!(files > 50, "{files} files");
    }
}
