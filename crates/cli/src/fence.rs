//! Runs a fencing proxy in front of an HTTP service.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::json;
use tenure_gate::proxy::{PORT, Reads, Settings, start};

use crate::data_dir;
use crate::duration;
use crate::exit::Exit;
use crate::failure::CliError;
use crate::floor::{FloorCommand, FloorOf};
use crate::guard;
use crate::output::{self, OutputFormat};

/// What can be typed after `tenure fence`.
#[derive(Subcommand)]
pub(crate) enum FenceCommand {
    /// Guard an HTTP service that knows nothing of tokens
    ///
    ///   tenure fence proxy --upstream http://127.0.0.1:3000 --resource ledger    on http://127.0.0.1:8001
    ///   tenure run ledger -- sh -c 'curl -X POST -H "Fencing-Token: $TENURE_TOKEN" http://127.0.0.1:8001/pay'
    ///   tenure fence proxy --upstream http://127.0.0.1:3000 --resource ledger --open-reads
    ///
    /// For a service in any language, unchanged. Every request needs the token of the lock in the header
    /// Fencing-Token. The proxy keeps the highest token seen: a lower one is rejected with 412 STALE_TOKEN, none with
    /// 428 TOKEN_REQUIRED, and the service does not see the request. A request with a larger token waits until those
    /// that were let in before have ended. Run one proxy per lock, and leave no other way to the service.
    ///
    /// On loopback it believes every number. For other machines it demands TLS, and tickets that the cluster signed.
    ///
    /// What the proxy answers itself has a reason and its effect, as JSON: `tenure help STALE_TOKEN` explains one. 503
    /// FENCE_BUSY means that older requests did not end within --wait; 502 and 504 that the service failed, and the
    /// effect says whether the request may have happened. The proxy runs until Ctrl-C or SIGTERM and then ends with 0;
    /// with 2 if the upstream is no http:// address; with 78 if a file, a directory or the address cannot be used, as
    /// when another proxy uses the directory; with 1 if its data cannot be read, or tickets cannot be verified.
    #[command(verbatim_doc_comment)]
    Proxy(Box<ProxyArgs>),
    /// Show and repair the floor of a proxy that is stopped: the highest token seen
    ///
    ///   tenure fence floor list ledger
    #[command(subcommand, verbatim_doc_comment)]
    Floor(FloorCommand),
}

/// Flags of `tenure fence proxy`.
#[derive(Args)]
pub(crate) struct ProxyArgs {
    /// The service: http://host:port
    #[arg(long, value_name = "URL")]
    upstream: String,
    /// The lock that guards the service
    #[arg(long, value_name = "LOCK")]
    resource: String,
    /// Which slot of it, if it is a semaphore
    #[arg(long, value_name = "N")]
    slot: Option<u32>,
    /// Listen here
    #[arg(long, value_name = "ADDR", default_value_t = SocketAddr::from(([127, 0, 0, 1], PORT)))]
    listen: SocketAddr,
    #[command(flatten)]
    serve: guard::GateServeArgs,
    /// Keep the highest token seen here [default: below ~/.local/share/tenure/fence]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Let GET, HEAD, OPTIONS and TRACE pass without a token
    #[arg(long)]
    open_reads: bool,
    /// Let every token through once
    #[arg(long)]
    once: bool,
    /// Wait so long for requests with lower tokens, then answer 503
    #[arg(long, value_name = "TIME", value_parser = duration::parse, default_value = "5s")]
    wait: Duration,
    /// Cut a request off that takes longer
    #[arg(long, value_name = "TIME", value_parser = duration::parse, default_value = "60s")]
    timeout: Duration,
    #[command(flatten)]
    proof: guard::TokenProofArgs,
    /// Output format
    #[arg(long, value_name = "FORM", value_enum, default_value_t)]
    pub(crate) output: OutputFormat,
}

impl FenceCommand {
    pub(crate) fn output(&self) -> OutputFormat {
        match self {
            Self::Proxy(flags) => flags.output,
            Self::Floor(command) => command.output(),
        }
    }
}

/// Runs the proxy until a signal stops it.
pub(crate) fn run(command: &FenceCommand) -> Result<Exit, CliError> {
    let flags = match command {
        FenceCommand::Proxy(flags) => flags,
        FenceCommand::Floor(command) => return command.run(FloorOf::Proxy),
    };
    let stop = guard::stop_request()?;
    let data = match &flags.data {
        Some(data) => data.clone(),
        None => data_dir::default_parent("--data DIR")?
            .join("fence")
            .join(dir_of(&flags.resource, flags.slot)),
    };
    let proxy = start(Settings {
        slot: flags.slot,
        listen: flags.listen,
        insecure: flags.serve.insecure,
        bare_tokens: flags.proof.bare_tokens(),
        tls: flags.serve.tls(),
        hosts: flags.serve.hosts.clone(),
        reads: if flags.open_reads { Reads::Open } else { Reads::Fenced },
        once: flags.once,
        wait: flags.wait,
        timeout: flags.timeout,
        believe: flags.proof.believe(flags.listen, None)?,
        ..Settings::new(&flags.upstream, &flags.resource, &data)
    })?;
    let address = flags.serve.address(proxy.address);
    match flags.output {
        OutputFormat::Json => output::object(&json!({
            "event": "ready", "http": address, "data": data, "lock": flags.resource,
            "upstream": flags.upstream, "tickets": flags.proof.is_required(flags.listen),
        })),
        OutputFormat::Text => output::tell(&format!(
            "tenure fence proxy: guards {} with lock `{}`; how: tenure help fence proxy\n  http     {address}\n  \
            data     {}\n  believes {}\nready. Ctrl-C stops. Leave no other way to the service.\n",
            flags.upstream,
            flags.resource,
            data.display(),
            flags.proof.words(flags.listen)
        )),
    }
    stop.wait();
    proxy.stop();
    Ok(Exit::Done)
}

/// The directory name for a lock and slot: injective, and safe for any characters in the lock's name.
///
/// Not the escaping of URLs, although it looks like it: a dot is escaped too, because a name may be `..` and because a
/// dot separates the slot. The names are on disk, so the digits stay lowercase, which the crate `percent-encoding` does
/// not write.
pub(crate) fn dir_of(lock: &str, slot: Option<u32>) -> String {
    let mut name = String::new();
    for byte in lock.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => name.push(char::from(byte)),
            other => name.push_str(&format!("%{other:02x}")),
        }
    }
    slot.map_or(name.clone(), |slot| format!("{name}.{slot}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_lock_and_slot_has_a_directory_of_its_own() {
        assert_eq!(dir_of("deploy", None), "deploy");
        assert_eq!(dir_of("a/..", Some(3)), "a%2f%2e%2e.3");
        assert_ne!(dir_of("a.3", None), dir_of("a", Some(3)));
    }
}
