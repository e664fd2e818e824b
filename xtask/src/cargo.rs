//! Starts cargo as a child process.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, ExitCode, ExitStatus};

use anyhow::{Context, Result};

use crate::repo::Repo;

/// A cargo command at the top of the repository, ready for more arguments.
///
/// Children stay in our process group, so an interrupt typed at the terminal reaches them too.
pub(crate) fn cargo(repo: &Repo, subcommand: &str) -> Command {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from(env!("CARGO")));
    let mut command = Command::new(program);
    command.current_dir(repo.root()).arg(subcommand);
    // Remove the variables that `cargo run` sets for xtask's package: with them, build scripts that read their own
    // would run again, and everything that depends on them would be compiled again.
    for (name, _) in std::env::vars_os() {
        let own =
            |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
        if name.to_str().is_some_and(own) {
            command.env_remove(name);
        }
    }
    // `cargo fmt` resolves no dependencies and does not know the flag.
    if subcommand != "fmt" && in_ci() && repo.path("Cargo.lock").is_file() {
        command.arg("--locked");
    }
    // A clean checkout is compiled once: what a second compilation or a debugger could use takes time to write.
    if in_ci() {
        command.env("CARGO_INCREMENTAL", "0").env("CARGO_PROFILE_DEV_DEBUG", "none");
        command.env("CARGO_PROFILE_SIM_DEBUG", "none");
    }
    command
}

/// The compiler that cargo uses.
pub(crate) fn rustc() -> Command {
    Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| OsString::from("rustc")))
}

/// The directory in which cargo keeps what it downloaded.
pub(crate) fn home() -> Option<PathBuf> {
    let named = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    named.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")))
}

/// Whether continuous integration started us.
pub(crate) fn in_ci() -> bool {
    std::env::var("CI").is_ok_and(|value| value == "true" || value == "1")
}

/// Adds compiler flags to those in the caller's environment.
pub(crate) fn add_rustflags(command: &mut Command, flags: &str) {
    let before = std::env::var("RUSTFLAGS").unwrap_or_default();
    command.env("RUSTFLAGS", format!("{before} {flags}").trim());
}

/// Runs a command on our own terminal and returns its exit code.
pub(crate) fn hand_over(mut command: Command) -> Result<ExitCode> {
    let status = command.status().with_context(|| format!("cannot start {}", shown(&command)))?;
    Ok(exit_code(status))
}

/// The command as a user would type it, without its environment.
pub(crate) fn shown(command: &Command) -> String {
    let mut words = vec!["cargo".to_owned()];
    words.extend(command.get_args().map(|arg| arg.to_string_lossy().into_owned()));
    words.join(" ")
}

fn exit_code(status: ExitStatus) -> ExitCode {
    // A child that a signal ended has no code; report a plain failure.
    status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formatting_is_never_told_about_the_lock_file() {
        let repo = Repo::find().unwrap();
        assert_eq!(shown(&cargo(&repo, "fmt")), "cargo fmt");
    }
}
