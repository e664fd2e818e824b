//! Runs a store that refuses stale tokens.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use tenure_gate::store::{PORT, Settings, StoreLimits, start};

use crate::data_dir;
use crate::exit::Exit;
use crate::failure::{CliError, chain};
use crate::guard;
use crate::output::{self, OutputFormat};

/// Flags of `tenure store`.
#[derive(Args)]
pub(crate) struct StoreArgs {
    /// Keep the data here [default: ~/.local/share/tenure/store]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Listen here
    #[arg(long, value_name = "ADDR", default_value_t = SocketAddr::from(([127, 0, 0, 1], PORT)))]
    listen: SocketAddr,
    /// Let other machines reach it, although it asks nobody who they are
    #[arg(long)]
    insecure: bool,
    /// Answer to these host names too, beside addresses and localhost
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    hosts: Vec<String>,
    /// Keep at most so many bytes
    #[arg(long, value_name = "BYTES", default_value_t = StoreLimits::default().bytes_max)]
    bytes_max: u64,
    #[command(flatten)]
    proof: guard::TokenProofArgs,
    /// How to say that it is ready
    #[arg(long, value_name = "FORM", value_enum, default_value_t)]
    pub(crate) output: OutputFormat,
}

/// Runs the store until a signal stops it.
pub(crate) fn run(flags: &StoreArgs) -> Result<Exit, CliError> {
    let asked = guard::asked()?;
    let data = match &flags.data {
        Some(data) => data.clone(),
        None => data_dir::default_parent("--data DIR")?.join("store"),
    };
    let store = start(Settings {
        listen: flags.listen,
        insecure: flags.insecure,
        hosts: flags.hosts.clone(),
        limits: StoreLimits { bytes_max: flags.bytes_max, ..StoreLimits::default() },
        believe: flags.proof.believe()?,
        on_end: Box::new(|broken| {
            guard::end(&format!("the store cannot write: {}", chain(broken)))
        }),
        ..Settings::new(&data)
    })?;
    let address = format!("http://{}", store.address);
    match flags.output {
        OutputFormat::Json => output::object(&json!({
            "event": "ready", "http": address, "data": data, "tickets": flags.proof.is_required(),
        })),
        OutputFormat::Text => output::tell(&format!(
            "tenure store: every write names a lock and its token; docs/guides/store.md\n  http     {address}\n  \
            data     {}\n  believes {}\nready. Ctrl-C stops.\n",
            data.display(),
            flags.proof.words()
        )),
    }
    asked.wait();
    store.stop();
    Ok(Exit::Done)
}
