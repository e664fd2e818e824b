//! Holds what `tenure fence` and `tenure store` share: ticket flags, start errors and signals.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use clap::Args;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tenure_gate::{Believe, KeySourceTls, StartError};

use crate::connection_args::{ConnectionArgs, LOOPBACK};
use crate::failure::{CliError, chain};
use crate::output;

/// Flags that say whose tokens are believed.
#[derive(Args)]
pub(crate) struct TokenProofArgs {
    /// Take signed tickets only: whoever invents a number is refused
    #[arg(long)]
    require_ticket: bool,
    /// Read the cluster's public keys here: http(s)://member:port, or a file with the set [default:
    /// http://127.0.0.1:7450]
    #[arg(long, value_name = "PLACE", value_delimiter = ',', requires = "require_ticket")]
    keys: Vec<String>,
    /// For https://: this authority signed the members' certificates [env: TENURE_CA]
    #[arg(long, value_name = "FILE", requires = "require_ticket")]
    tls_ca: Option<PathBuf>,
    /// Show this certificate to members [env: TENURE_CERT]
    #[arg(long, value_name = "FILE", requires = "require_ticket")]
    tls_cert: Option<PathBuf>,
    /// The private key of --tls-cert [env: TENURE_KEY]
    #[arg(long, value_name = "FILE", requires = "require_ticket")]
    tls_key: Option<PathBuf>,
}

impl TokenProofArgs {
    pub(crate) fn believe(&self) -> Result<Believe, CliError> {
        if !self.require_ticket {
            return Ok(Believe::Numbers);
        }
        let usual = || vec![format!("http://{LOOPBACK}")];
        let keys = if self.keys.is_empty() { usual() } else { self.keys.clone() };
        let tls = if keys.iter().any(|it| it.starts_with("https://")) { self.tls()? } else { None };
        Ok(Believe::Tickets { keys, tls, tell: Arc::new(|what| eprintln!("warning: {what}")) })
    }

    /// The TLS settings for reading keys, resolved as for every other command.
    fn tls(&self) -> Result<Option<KeySourceTls>, CliError> {
        let reach = ConnectionArgs {
            tls_ca: self.tls_ca.clone(),
            tls_cert: self.tls_cert.clone(),
            tls_key: self.tls_key.clone(),
            ..ConnectionArgs::default()
        };
        Ok(reach.place()?.tls.map(|tls| KeySourceTls { ca: tls.ca, own: tls.own }))
    }

    pub(crate) fn is_required(&self) -> bool {
        self.require_ticket
    }

    /// Describes which tokens are accepted, for the start message.
    pub(crate) fn words(&self) -> &'static str {
        if self.require_ticket {
            "signed tickets only"
        } else {
            "every number; --require-ticket asks for a proof"
        }
    }
}

impl From<StartError> for CliError {
    fn from(error: StartError) -> Self {
        let text = format!("{}; try {}", chain(&error), error.advice());
        match error {
            // Such a setting can only come from a flag.
            StartError::Setting(_) => Self::arguments(text),
            _ if error.is_setting() => Self::config(text),
            _ => Self::refused(text),
        }
    }
}

/// Ends the process at once, with one line that says why it cannot go on.
pub(crate) fn end(why: &str) -> ! {
    output::tell(&format!("error: {why}; try starting it again once the disk is well\n"));
    std::process::exit(1);
}

/// Receives the request to stop.
pub(crate) struct StopRequest(Receiver<()>);

/// Listens for Ctrl-C and SIGTERM. The first signal asks the process to stop; the second exits at once.
pub(crate) fn asked() -> Result<StopRequest, CliError> {
    let failed = |error| CliError::refused(format!("cannot listen for signals: {error}"));
    let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(failed)?;
    let (ask, asked) = channel();
    std::thread::spawn(move || {
        for (at, signal) in signals.forever().enumerate() {
            if at > 0 || ask.send(()).is_err() {
                std::process::exit(128 + signal);
            }
        }
    });
    Ok(StopRequest(asked))
}

impl StopRequest {
    /// Waits until a signal asks the process to stop.
    pub(crate) fn wait(&self) {
        let _ = self.0.recv();
    }
}
