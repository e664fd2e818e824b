//! How do the processes that guard data run: signals, last words, exit code?

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, channel};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tenure_gate::StartError;

/// A configuration that cannot be used.
const EX_CONFIG: u8 = 78;

/// Why one did not start: one line, and an exit code.
pub(crate) struct Fault {
    text: String,
    code: u8,
}

impl Fault {
    pub(crate) fn config(text: impl Into<String>) -> Self {
        Self { text: text.into(), code: EX_CONFIG }
    }
}

impl From<StartError> for Fault {
    fn from(error: StartError) -> Self {
        let code = if error.is_setting() { EX_CONFIG } else { 1 };
        Self { text: format!("{}; try {}", chain(&error), error.advice()), code }
    }
}

/// Says why, if it did not go well, and gives the exit code.
pub(crate) fn report(ended: Result<(), Fault>) -> ExitCode {
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(Fault { text, code }) => {
            eprintln!("error: {text}");
            ExitCode::from(code)
        }
    }
}

/// An error and what caused it, in one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// Ends the process because it cannot go on: one clear line, at once.
pub(crate) fn end(why: &str) -> ! {
    eprintln!("error: {why}; try starting it again once the disk is well");
    std::process::exit(1);
}

/// Somebody may ask the process to stop.
pub(crate) struct Asked(Receiver<()>);

/// Listens for Ctrl-C and SIGTERM. The first asks to stop, the second does not ask.
pub(crate) fn asked() -> Result<Asked, Fault> {
    let failed = |error| Fault { text: format!("cannot listen for signals: {error}"), code: 1 };
    let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(failed)?;
    let (ask, asked) = channel();
    std::thread::spawn(move || {
        for (at, signal) in signals.forever().enumerate() {
            if at > 0 || ask.send(()).is_err() {
                std::process::exit(128 + signal);
            }
        }
    });
    Ok(Asked(asked))
}

impl Asked {
    /// Waits until the process shall stop.
    pub(crate) fn wait(&self) {
        let _ = self.0.recv();
    }
}

/// Where data is kept if nobody says otherwise.
pub(crate) fn home() -> Result<PathBuf, Fault> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(data) = set("XDG_DATA_HOME").filter(|path| path.is_absolute()) {
        return Ok(data.join("tenure"));
    }
    let home = set("HOME").ok_or_else(|| {
        Fault::config("there is no home directory to keep data in; try --data DIR")
    })?;
    Ok(home.join(".local/share/tenure"))
}
