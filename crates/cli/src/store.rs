//! Runs a store that refuses stale tokens.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use clap::{Args, Subcommand};
use serde_json::json;
use tenure_gate::store::{PORT, Settings, StateCluster, StateLimits, StoreLimits, start};

use crate::connection_args::ConnectionArgs;
use crate::data_dir;
use crate::exit::Exit;
use crate::failure::{CliError, chain};
use crate::floor::{FloorCommand, FloorOf};
use crate::guard;
use crate::output::{self, OutputFormat};
use crate::state::StateCommand;
use crate::state_locks::StateLocks;

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
    serve: guard::GateServeArgs,
    /// Let only readers with a token of this file read, sent as Authorization: Bearer; one token per line
    #[arg(long, value_name = "FILE")]
    readers: Option<PathBuf>,
    /// Keep at most so many bytes
    #[arg(long, value_name = "BYTES", default_value_t = StoreLimits::default().bytes_max)]
    bytes_max: u64,
    #[command(flatten)]
    proof: guard::TokenProofArgs,
    #[command(flatten)]
    states: StateArgs,
    /// Output format
    #[arg(long, value_name = "FORM", value_enum, default_value_t)]
    output: OutputFormat,
    #[command(subcommand)]
    command: Option<StoreCommand>,
}

/// Flags for the states of Terraform and OpenTofu.
#[derive(Args)]
#[command(next_help_heading = "States of Terraform and OpenTofu")]
struct StateArgs {
    /// Hold the lock of each locked state at this cluster: its members, with commas between
    #[arg(long, value_name = "LIST")]
    addr: Option<String>,
    /// Authenticate there with the API key in this file [env: TENURE_API_KEY, the key itself, or TENURE_API_KEY_FILE]
    #[arg(long, value_name = "FILE", requires = "addr", conflicts_with = "token_file")]
    api_key_file: Option<PathBuf>,
    /// Authenticate there with the bearer token in this file [env: TENURE_TOKEN_FILE]
    #[arg(long, value_name = "FILE", requires = "addr")]
    token_file: Option<PathBuf>,
    /// Let clients with a key of this file use all states, sent as the password; one key per line
    #[arg(long, value_name = "FILE")]
    writers: Option<PathBuf>,
    /// Keep so many versions of a state
    #[arg(long, value_name = "N", default_value_t = StateLimits::default().versions_max)]
    state_versions: u64,
    /// The longest state
    #[arg(long, value_name = "BYTES", default_value_t = StateLimits::default().bytes_max)]
    state_bytes_max: usize,
    /// Keep at most so many bytes of states, old versions among them; a write removes the oldest of its state for this
    #[arg(long, value_name = "BYTES", default_value_t = StateLimits::default().total_bytes_max)]
    states_bytes_max: u64,
}

/// What can be typed after `tenure store`.
#[derive(Subcommand)]
enum StoreCommand {
    /// Show and repair the floors of a store that is stopped: the highest token seen for each lock
    ///
    ///   tenure store floor list
    #[command(subcommand, verbatim_doc_comment)]
    Floor(FloorCommand),
    /// List, show, restore and purge the states of Terraform in a store that runs
    ///
    ///   tenure store state list
    #[command(subcommand, verbatim_doc_comment)]
    State(StateCommand),
}

impl StoreArgs {
    pub(crate) fn output(&self) -> OutputFormat {
        match &self.command {
            Some(StoreCommand::Floor(command)) => command.output(),
            Some(StoreCommand::State(command)) => command.output(),
            None => self.output,
        }
    }

    /// The cluster at which the locks of states are held, if the flags name one.
    fn cluster(&self) -> Result<Option<Arc<dyn StateCluster>>, CliError> {
        let Some(addr) = &self.states.addr else { return Ok(None) };
        let place = ConnectionArgs {
            addr: Some(addr.clone()),
            api_key_file: self.states.api_key_file.clone(),
            token_file: self.states.token_file.clone(),
            ..self.proof.connection()
        };
        let builder = place.place()?.builder()?;
        Ok(Some(Arc::new(StateLocks::new(builder))))
    }
}

/// Runs the store until a signal stops it.
pub(crate) fn run(flags: &StoreArgs) -> Result<Exit, CliError> {
    match &flags.command {
        Some(StoreCommand::Floor(command)) => return command.run(FloorOf::Store),
        Some(StoreCommand::State(command)) => return command.run(),
        None => {}
    }
    let stop = guard::stop_request()?;
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
        writers: flags.states.writers.clone(),
        states: StateLimits {
            bytes_max: flags.states.state_bytes_max,
            versions_max: flags.states.state_versions,
            total_bytes_max: flags.states.states_bytes_max,
        },
        cluster: flags.cluster()?,
        tell: Arc::new(|what: &str| eprintln!("tenure store: {what}")),
        believe: flags.proof.believe(flags.listen, flags.states.addr.as_deref())?,
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
    stop.wait();
    store.stop();
    Ok(Exit::Done)
}
