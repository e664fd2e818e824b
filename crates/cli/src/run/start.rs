//! Prepares the command's process and replaces it with the command.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use rustix::process::{
    Pid, Signal, getpid, getppid, kill_process, set_parent_process_death_signal,
    setpriority_process,
};

use super::codes;

/// Ties itself to the watchdog, waits until it may begin, and becomes the command.
pub(super) fn run(arguments: &[OsString]) -> ExitCode {
    let [watchdog, usual, program, rest @ ..] = arguments else {
        return ExitCode::from(codes::USAGE);
    };
    if let Err(error) = tie(watchdog, usual) {
        eprintln!("error: the command cannot be tied to its watchdog: {error}");
        return ExitCode::from(codes::NOT_EXECUTABLE);
    }
    let error = Command::new(program).args(rest).exec();
    eprintln!("error: cannot run `{}`: {error}", program.display());
    let missing = error.kind() == ErrorKind::NotFound;
    ExitCode::from(if missing { codes::NOT_FOUND } else { codes::NOT_EXECUTABLE })
}

fn tie(watchdog: &OsString, usual: &OsString) -> std::io::Result<()> {
    // The watchdog runs at a higher priority; the command does not.
    if let Some(usual) = usual.to_str().and_then(|usual| usual.parse().ok()) {
        setpriority_process(None, usual)?;
    }
    // Exec keeps this setting unless the program changes its user.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let watchdog = watchdog.to_str().and_then(|pid| Pid::from_raw(pid.parse().ok()?));
    if getppid() != watchdog {
        return Err(std::io::Error::other("the watchdog is gone"));
    }
    // The watchdog sees the stop, `tenure run` gives the terminal to this group, and the watchdog continues it.
    Ok(kill_process(getpid(), Signal::STOP)?)
}
