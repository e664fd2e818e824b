//! Reports how far the work under a lock has come.

use clap::Args;
use serde_json::json;
use tenure_wire::v1;
use v1::answer::Result as Answer;
use v1::request::Command;

use crate::connection_args::flag_or_variable;
use crate::duration;
use crate::exit::Exit;
use crate::failure::CliError;
use crate::lease;
use crate::lock::wait::strange;
use crate::output::{self, OutputFormat};
use crate::print_args::QuietArgs;

/// Flags of `tenure progress`.
#[derive(Args)]
pub(crate) struct ProgressArgs {
    /// The number, larger than the last one
    number: u64,
    /// The lock that is held; one of them, if they are several [env: TENURE_LOCK]
    #[arg(long, value_parser = output::name)]
    lock: Option<String>,
    /// The lease that holds it; its first digits will do [env: TENURE_LEASE]
    #[arg(long, value_name = "LEASE")]
    lease: Option<String>,
    /// The token it is held under [env: TENURE_TOKEN]
    #[arg(long)]
    token: Option<u64>,
    #[command(flatten)]
    pub(crate) connection: QuietArgs,
}

pub(crate) fn progress(flags: &ProgressArgs) -> Result<Exit, CliError> {
    let lock: String = flag_or_variable(flags.lock.clone(), "--lock", "TENURE_LOCK")?;
    let lease: String = flag_or_variable(flags.lease.clone(), "--lease", "TENURE_LEASE")?;
    let token: u64 = flag_or_variable(flags.token, "--token", "TENURE_TOKEN")?;
    flags.connection.with(async |cluster| {
        let lease = lease::find(cluster, &lease).await?;
        let (number, lock) = (flags.number, lock.clone());
        let command = Command::Progress(v1::ProgressRequest {
            lock,
            lease,
            token,
            number,
            ..Default::default()
        });
        // A number that was reported twice counts once, so the request needs no id.
        let (Answer::Progressed(it), _) = cluster.client.ask(command, None).await? else {
            return Err(strange());
        };
        match cluster.output {
            OutputFormat::Json => output::object(&json!({
                "event": "progressed", "number": number.to_string(), "left_ms": it.left_ms,
            })),
            OutputFormat::Text if cluster.quiet => {}
            OutputFormat::Text => output::tell(&match it.left_ms {
                Some(ms) => format!("a larger number is due in {}\n", duration::ms(ms)),
                None => "no progress was promised; nothing is due\n".to_owned(),
            }),
        }
        Ok(Exit::Done)
    })
}
