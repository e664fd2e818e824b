//! Runs a store that refuses stale tokens.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::json;
use tenure_gate::store::{PORT, Settings, StoreLimits, start};

use crate::data_dir;
use crate::exit::Exit;
use crate::failure::{CliError, chain};
use crate::floor::{FloorCommand, FloorOf};
use crate::guard;
use crate::output::{self, OutputFormat};

/// Flags of `tenure store`.
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct StoreArgs {
    /// Keep the data here [default: ~/.local/share/tenure/store]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Listen here
    #[arg(long, value_name = "ADDR", default_value_t = SocketAddr::from(([127, 0, 0, 1], PORT)))]
    listen: SocketAddr,
    #[command(flatten)]
    serve: guard::ServeArgs,
    /// Let only readers with a token of this file read, sent as Authorization: Bearer; one token per line
    #[arg(long, value_name = "FILE")]
    readers: Option<PathBuf>,
    /// Keep at most so many bytes
    #[arg(long, value_name = "BYTES", default_value_t = StoreLimits::default().bytes_max)]
    bytes_max: u64,
    #[command(flatten)]
    proof: guard::TokenProofArgs,
    /// Output format
    #[arg(long, value_name = "FORM", value_enum, default_value_t)]
    output: OutputFormat,
    #[command(subcommand)]
    command: Option<StoreCommand>,
}

/// What can be typed after `tenure store`.
#[derive(Subcommand)]
enum StoreCommand {
    /// Show and repair the highest tokens seen by a store that is stopped
    ///
    ///   tenure store floor list
    #[command(subcommand, verbatim_doc_comment)]
    Floor(FloorCommand),
}

impl StoreArgs {
    pub(crate) fn output(&self) -> OutputFormat {
        match &self.command {
            Some(StoreCommand::Floor(command)) => command.output(),
            None => self.output,
        }
    }
}

/// Runs the store until a signal stops it.
pub(crate) fn run(flags: &StoreArgs) -> Result<Exit, CliError> {
    if let Some(StoreCommand::Floor(command)) = &flags.command {
        return command.run(FloorOf::Store);
    }
    let asked = guard::asked()?;
    let data = match &flags.data {
        Some(data) => data.clone(),
        None => data_dir::default_parent("--data DIR")?.join("store"),
    };
    let store = start(Settings {
        listen: flags.listen,
        insecure: flags.serve.insecure,
        bare_tokens: flags.proof.bare_tokens(),
        tls: flags.serve.tls(),
        readers: flags.readers.clone(),
        hosts: flags.serve.hosts.clone(),
        limits: StoreLimits { bytes_max: flags.bytes_max, ..StoreLimits::default() },
        believe: flags.proof.believe(flags.listen)?,
        on_end: Box::new(|broken| {
            guard::end(&format!("the store cannot write: {}", chain(broken)))
        }),
        ..Settings::new(&data)
    })?;
    let address = flags.serve.address(store.address);
    match flags.output {
        OutputFormat::Json => output::object(&json!({
            "event": "ready", "http": address, "data": data, "tickets": flags.proof.is_required(flags.listen),
        })),
        OutputFormat::Text => output::tell(&format!(
            "tenure store: every write names a lock and its token; how: tenure help store\n  http     {address}\n  \
            data     {}\n  believes {}\nready. Ctrl-C stops.\n",
            data.display(),
            flags.proof.words(flags.listen)
        )),
    }
    asked.wait();
    store.stop();
    Ok(Exit::Done)
}
