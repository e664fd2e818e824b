//! Holds what `tenure fence` and `tenure store` share: flags for tickets and TLS, start errors and signals.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use clap::Args;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tenure_gate::{KeySourceTls, ServeTls, StartError, TokenPolicy};

use crate::connection_args::{ConnectionArgs, LOOPBACK};
use crate::failure::{CliError, chain};
use crate::output;

/// Flags that say whose tokens are believed.
#[derive(Args)]
pub(crate) struct TokenProofArgs {
    /// Take signed tickets only, and refuse bare numbers. Beyond loopback this is the default
    #[arg(long, conflicts_with = "bare_tokens")]
    require_ticket: bool,
    /// Believe every number, also where other machines reach it
    #[arg(long)]
    bare_tokens: bool,
    /// Read the cluster's public keys here: http(s)://member:port, or a file with the set [default:
    /// http://127.0.0.1:7450]
    #[arg(long, value_name = "PLACE", value_delimiter = ',')]
    keys: Vec<String>,
    /// For https://: this authority signed the members' certificates [env: TENURE_CA]
    #[arg(long, value_name = "FILE")]
    tls_ca: Option<PathBuf>,
    /// Show this certificate to members [env: TENURE_CERT]
    #[arg(long, value_name = "FILE")]
    tls_cert: Option<PathBuf>,
    /// The private key of --tls-cert [env: TENURE_KEY]
    #[arg(long, value_name = "FILE")]
    tls_key: Option<PathBuf>,
    /// Take tickets of these principals only
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    principals: Vec<String>,
}

/// Flags that say how clients reach the service.
#[derive(Args)]
pub(crate) struct GateServeArgs {
    /// Let other machines reach it without TLS
    #[arg(long)]
    pub(crate) insecure: bool,
    /// Serve TLS with this certificate
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,
    /// The private key of --cert
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
    /// Refuse clients without a certificate that this authority signed
    #[arg(long, value_name = "FILE", requires = "cert")]
    client_ca: Option<PathBuf>,
    /// Answer to these host names too, beside addresses and localhost
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub(crate) hosts: Vec<String>,
}

impl GateServeArgs {
    pub(crate) fn tls(&self) -> Option<ServeTls> {
        let (cert, key) = (self.cert.clone()?, self.key.clone()?);
        Some(ServeTls { cert, key, client_ca: self.client_ca.clone() })
    }

    /// The URL of the service.
    pub(crate) fn address(&self, at: SocketAddr) -> String {
        format!("{}://{at}", if self.cert.is_some() { "https" } else { "http" })
    }
}

impl TokenProofArgs {
    /// Which tokens to accept at this address. If the process connects to a cluster, certificates are for that too, and
    /// its members have the keys.
    pub(crate) fn believe(
        &self,
        listen: SocketAddr,
        cluster: Option<&str>,
    ) -> Result<TokenPolicy, CliError> {
        if !self.is_required(listen) {
            let unused = !self.keys.is_empty() || !self.principals.is_empty();
            let tls = self.tls_ca.is_some() || self.tls_cert.is_some() || self.tls_key.is_some();
            if unused || tls && cluster.is_none() {
                let text =
                    "keys, certificates and principals are for tickets; try --require-ticket";
                return Err(CliError::arguments(text.to_owned()));
            }
            return Ok(TokenPolicy::Numbers);
        }
        let keys = match (&self.keys[..], cluster) {
            ([], Some(members)) => self.keys_of(members)?,
            ([], None) => vec![format!("http://{LOOPBACK}")],
            (keys, _) => keys.to_vec(),
        };
        let tls = if keys.iter().any(|it| it.starts_with("https://")) { self.tls()? } else { None };
        let principals = self.principals.clone();
        let tell = Arc::new(|what: &str| eprintln!("warning: {what}"));
        Ok(TokenPolicy::Tickets { keys, tls, principals, tell })
    }

    /// Where these members have their keys.
    fn keys_of(&self, members: &str) -> Result<Vec<String>, CliError> {
        let scheme = if self.tls()?.is_some() { "https" } else { "http" };
        let place = |member: &str| {
            let named = member.contains("://");
            if named { member.to_owned() } else { format!("{scheme}://{member}") }
        };
        Ok(members.split(',').map(|member| place(member.trim())).collect())
    }

    /// The TLS settings for reading keys, resolved as for every other command.
    fn tls(&self) -> Result<Option<KeySourceTls>, CliError> {
        let place = self.connection().place()?;
        Ok(place.tls.map(|tls| KeySourceTls { ca: tls.ca, own: tls.own }))
    }

    /// The flags of a connection to the cluster, as far as they are here.
    pub(crate) fn connection(&self) -> ConnectionArgs {
        ConnectionArgs {
            tls_ca: self.tls_ca.clone(),
            tls_cert: self.tls_cert.clone(),
            tls_key: self.tls_key.clone(),
            ..ConnectionArgs::default()
        }
    }

    pub(crate) fn is_required(&self, listen: SocketAddr) -> bool {
        self.require_ticket || !self.bare_tokens && !listen.ip().is_loopback()
    }

    /// Whether the operator accepts that clients can invent tokens.
    pub(crate) fn bare_tokens(&self) -> bool {
        self.bare_tokens
    }

    /// Describes which tokens are accepted, for the start message.
    pub(crate) fn words(&self, listen: SocketAddr) -> &'static str {
        if self.is_required(listen) {
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
pub(crate) fn stop_request() -> Result<StopRequest, CliError> {
    let failed = |error| CliError::refused(format!("cannot listen for signals: {error}"));
    let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(failed)?;
    let (stop, stopped) = channel();
    std::thread::spawn(move || {
        for (at, signal) in signals.forever().enumerate() {
            if at > 0 || stop.send(()).is_err() {
                std::process::exit(128 + signal);
            }
        }
    });
    Ok(StopRequest(stopped))
}

impl StopRequest {
    /// Waits until a signal asks the process to stop.
    pub(crate) fn wait(&self) {
        let _ = self.0.recv();
    }
}
