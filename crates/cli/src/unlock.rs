//! Releases a lock that a lease holds.

use clap::Args;
use serde_json::json;
use tenure_wire::v1;
use v1::answer::Result as Answer;
use v1::request::Command;

use crate::connection_args::{flag_or_variable, request_id};
use crate::exit::Exit;
use crate::failure::{CliError, quoted};
use crate::lease;
use crate::lock::wait::{self, strange};
use crate::output::{self, OutputFormat};
use crate::print_args::QuietArgs;
use crate::waiting::holder_words;

/// Flags of `tenure unlock`.
#[derive(Args)]
pub(crate) struct UnlockArgs {
    /// Which lock
    #[arg(value_parser = output::name)]
    lock: String,
    /// The lease that holds it; its first digits will do [env: TENURE_LEASE]
    #[arg(long, value_name = "LEASE")]
    lease: Option<String>,
    /// The token it is held under: no other grant is given back [env: TENURE_TOKEN]
    #[arg(long)]
    token: Option<u64>,
    /// Repeat a request whose outcome is not known
    #[arg(long, value_name = "ID")]
    request_id: Option<String>,
    #[command(flatten)]
    pub(crate) connection: QuietArgs,
}

pub(crate) fn unlock(flags: &UnlockArgs) -> Result<Exit, CliError> {
    let lease: String = flag_or_variable(flags.lease.clone(), "--lease", "TENURE_LEASE")?;
    let token: u64 = flag_or_variable(flags.token, "--token", "TENURE_TOKEN")?;
    flags.connection.with(async |cluster| {
        let lease = lease::find(cluster, &lease).await?;
        let lock = flags.lock.clone();
        let command =
            Command::Release(v1::ReleaseRequest { lock, lease, token, ..Default::default() });
        let id = request_id(flags.request_id.as_ref());
        let released = match cluster.client.ask(command, Some(&id)).await {
            Ok(released) => released,
            Err(error) => return Err(whose(cluster, &flags.lock, error.into()).await),
        };
        let (Answer::Released(_), revision) = released else { return Err(strange()) };
        match cluster.output {
            OutputFormat::Json => output::object(&json!({
                "event": "released", "lock": flags.lock, "token": token.to_string(),
                "revision": revision.to_string(),
            })),
            OutputFormat::Text if cluster.quiet => {}
            OutputFormat::Text => {
                let lock = &flags.lock;
                output::tell(&format!("lock `{lock}` released at revision {revision}\n"));
            }
        }
        Ok(Exit::Done)
    })
}

/// Adds to a failure who holds the lock instead.
async fn whose(
    cluster: &crate::connection_args::ConnectedCluster,
    lock: &str,
    failure: CliError,
) -> CliError {
    if failure.reason != "NOT_HOLDER" {
        return failure;
    }
    let Ok(explained) = wait::explain(cluster, lock, None).await else { return failure };
    let holder = explained.lock.iter().flat_map(|lock| &lock.holders).next();
    let holder = holder.map_or("no client".to_owned(), holder_words);
    let failure = failure.with("held by", holder);
    failure.next(format!("stop the work; look: tenure history {}", quoted(lock)))
}
