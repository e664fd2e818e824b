//! Where does somebody look up a command, a reason or an exit code?

use std::path::PathBuf;

use clap::{Args, CommandFactory};
use serde_json::json;
use tenure_wire::reason;

use crate::Arguments;
use crate::exit::{self, Exit};
use crate::failure::Failure;
use crate::output::{self, Output};

/// Flags of `tenure completions`.
#[derive(Args)]
pub(crate) struct Completions {
    /// For which shell
    #[arg(value_enum)]
    shell: clap_complete::Shell,
    /// How to say it
    #[arg(long, value_name = "FORM", value_enum, default_value_t)]
    pub(crate) output: Output,
}

/// Flags of `tenure man`.
#[derive(Args)]
pub(crate) struct Man {
    /// Write one page for every command into this directory
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// How to say it
    #[arg(long, value_name = "FORM", value_enum, default_value_t)]
    pub(crate) output: Output,
}

/// Flags of `tenure help`.
#[derive(Args)]
pub(crate) struct Help {
    /// A command, a reason in capitals, or `exit`
    words: Vec<String>,
    /// How to say it
    #[arg(long, value_name = "FORM", value_enum, default_value_t)]
    pub(crate) output: Output,
}

/// Prints completions.
pub(crate) fn completions(flags: &Completions) -> Result<Exit, Failure> {
    let mut text = Vec::new();
    clap_complete::generate(flags.shell, &mut Arguments::command(), "tenure", &mut text);
    let text = String::from_utf8_lossy(&text);
    match flags.output {
        Output::Json => {
            output::object(&json!({ "shell": flags.shell.to_string(), "text": text }));
        }
        Output::Text => output::out(&text),
    }
    Ok(Exit::Done)
}

/// Prints or writes manual pages.
pub(crate) fn man(flags: &Man) -> Result<Exit, Failure> {
    let failed = |error| Failure::refused(format!("cannot write manual pages: {error}"));
    let mut command = Arguments::command();
    command.build();
    match &flags.dir {
        Some(dir) => {
            std::fs::create_dir_all(dir).map_err(failed)?;
            let pages = write_pages(dir, &command, "tenure").map_err(failed)?;
            if flags.output == Output::Json {
                let one = |(name, file)| json!({ "page": name, "section": 1, "file": file });
                pages.into_iter().map(one).for_each(|page| output::object(&page));
            } else {
                output::tell(&format!("wrote {} pages into {}\n", pages.len(), dir.display()));
            }
        }
        None => {
            let text = page(command).map_err(failed)?;
            match flags.output {
                Output::Json => {
                    output::object(&json!({ "page": "tenure", "section": 1, "text": text }));
                }
                Output::Text => output::out(&text),
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

/// Explains something.
pub(crate) fn help(flags: &Help) -> Result<Exit, Failure> {
    if flags.output == Output::Json {
        return help_objects(&flags.words);
    }
    match &flags.words[..] {
        [] => output::out(&long_help(Arguments::command())),
        [word] if word == "exit" => output::out(&exit_codes()),
        [word] if word.chars().all(|c| c.is_ascii_uppercase() || c == '_') => {
            output::out(&reason_help(word)?);
        }
        words => output::out(&command_help(words)?),
    }
    Ok(Exit::Done)
}

/// The same for programs.
fn help_objects(words: &[String]) -> Result<Exit, Failure> {
    match words {
        [word] if word == "exit" => {
            for (code, meaning) in exit::TABLE {
                output::object(&json!({ "code": code, "meaning": meaning }));
            }
        }
        [word] if word.chars().all(|c| c.is_ascii_uppercase() || c == '_') => {
            // Its text first: whoever asks for a reason that is none is told so.
            let text = reason_help(word)?;
            let mut said = json!({ "reason": word, "text": text });
            if let Some(row) = reason::row(word) {
                let effect = reason::effect_word(row.effect);
                said["meaning"] = json!(row.meaning);
                said["effect"] = json!(effect);
                said["http"] = json!(row.http);
                said["next"] = json!(row.advice);
            }
            output::object(&said);
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

fn command_help(words: &[String]) -> Result<String, Failure> {
    let mut command = Arguments::command();
    command.build();
    let mut at = &command;
    for word in words {
        at = at.find_subcommand(word).ok_or_else(|| {
            let text = format!("there is no command `{}`", words.join(" "));
            Failure::arguments(text).next("tenure help, or a reason in capitals: tenure help HELD")
        })?;
    }
    Ok(long_help(at.clone()))
}

fn reason_help(word: &str) -> Result<String, Failure> {
    let row = reason::row(word).ok_or_else(|| {
        let near = reason::TABLE.iter().map(|row| row.reason);
        let near: Vec<&str> =
            near.filter(|known| known.contains(word) || word.contains(known)).collect();
        let text = format!("there is no reason {word}");
        let failure = Failure::arguments(text);
        let failure = if near.is_empty() { failure } else { failure.with("near", near.join(", ")) };
        failure.next("docs/reference/errors.md has them all")
    })?;
    let effect = match reason::effect_word(row.effect) {
        "none" => "none: it did not happen",
        _ => "unknown: it may have happened, or may still",
    };
    Ok(format!("{}: {}\n  effect   {effect}\n  try      {}\n", row.reason, row.meaning, row.advice))
}

fn exit_codes() -> String {
    let lines = exit::TABLE.iter().map(|(code, meaning)| format!("{code:>8}  {meaning}\n"));
    lines.collect()
}
