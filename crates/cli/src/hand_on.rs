//! Gives a hold to a lease that waits for the lock.

use clap::Args;
use serde_json::json;
use tenure_wire::v1;
use v1::answer::Result as Answer;
use v1::request::Command;

use crate::connection_args::{flag_or_variable, request_id};
use crate::exit::Exit;
use crate::failure::CliError;
use crate::lease;
use crate::lock::wait::strange;
use crate::output::{self, OutputFormat};
use crate::print_args::QuietArgs;

/// Flags of `tenure hand-on`.
#[derive(Args)]
pub(crate) struct HandOnArgs {
    /// The lock that is held
    #[arg(value_parser = output::name)]
    lock: String,
    /// The lease that gets it, and waits for it; its first digits will do
    #[arg(long, value_name = "LEASE")]
    to: String,
    /// The lease that holds it; its first digits will do [env: TENURE_LEASE]
    #[arg(long, value_name = "LEASE")]
    lease: Option<String>,
    /// The token it is held under [env: TENURE_TOKEN]
    #[arg(long)]
    token: Option<u64>,
    #[command(flatten)]
    pub(crate) connection: QuietArgs,
}

pub(crate) fn hand_on(flags: &HandOnArgs) -> Result<Exit, CliError> {
    let lease: String = flag_or_variable(flags.lease.clone(), "--lease", "TENURE_LEASE")?;
    let token: u64 = flag_or_variable(flags.token, "--token", "TENURE_TOKEN")?;
    flags.connection.with(async |cluster| {
        let (lease, to) =
            (lease::find(cluster, &lease).await?, lease::find(cluster, &flags.to).await?);
        let lock = flags.lock.clone();
        let request = v1::HandOnRequest { lock, lease, token, to, ..Default::default() };
        let command = Command::HandOn(request);
        let asked = cluster.client.ask(command, Some(&request_id(None))).await?;
        let (Answer::HandedOn(it), _) = asked else { return Err(strange()) };
        match cluster.output {
            OutputFormat::Json => output::object(&json!({
                "event": "handed_on", "lock": flags.lock, "to": to.to_string(),
                "token": it.token.to_string(),
            })),
            OutputFormat::Text if cluster.quiet => {}
            OutputFormat::Text => output::tell(&format!(
                "tenure: lock `{}` is held by lease {} now, token {}\n",
                flags.lock,
                lease::short(to),
                it.token
            )),
        }
        Ok(Exit::Done)
    })
}
