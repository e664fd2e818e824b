//! Delivers Ctrl-C and other end signals to a command that waits.

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tokio::sync::mpsc;

use crate::failure::CliError;

/// Signals that ask the process to end. The first is delivered; the second exits at once.
pub(crate) struct StopSignals {
    from: mpsc::UnboundedReceiver<u8>,
}

/// Listens from now on.
pub(crate) fn listen() -> Result<StopSignals, CliError> {
    let failed = |error| CliError::refused(format!("cannot listen for signals: {error}"));
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(failed)?;
    let (to, from) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        let mut heard = false;
        for signal in signals.forever() {
            if heard {
                std::process::exit(128 + signal);
            }
            heard = true;
            let _ = to.send(u8::try_from(signal).unwrap_or(0));
        }
    });
    Ok(StopSignals { from })
}

impl StopSignals {
    /// Waits for the first signal and returns its number.
    pub(crate) async fn signal(&mut self) -> u8 {
        match self.from.recv().await {
            Some(signal) => signal,
            None => std::future::pending().await,
        }
    }
}
