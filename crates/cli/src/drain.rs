//! Closes locks to new holders for maintenance, waits until no holder is left, opens them again and lists them.

use std::time::Duration;

use clap::Args;
use serde_json::json;
use tenure_wire::json::lock::DrainShown;
use tenure_wire::v1;
use tokio::time::Instant;
use v1::answer::Result as Answer;
use v1::lock_admin_service_client::LockAdminServiceClient;
use v1::request::Command;

use crate::connection_args::{self, ConnectedCluster, request_id};
use crate::duration;
use crate::exit::Exit;
use crate::failure::{CliError, quoted};
use crate::listing::Listing;
use crate::lock::wait::strange;
use crate::output::{self, OutputFormat, Side};
use crate::print_args::{ListArgs, QuietArgs};
use crate::waiting;

/// How often the command counts the holders that are left.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Flags of `tenure drain`.
#[derive(Args)]
pub(crate) struct DrainArgs {
    /// The beginning of the names of the locks
    #[arg(value_parser = output::name)]
    #[arg(required_unless_present_any = ["all", "list"], conflicts_with_all = ["all", "list"])]
    prefix: Option<String>,
    /// Every lock of the cluster
    #[arg(long, conflicts_with = "list")]
    all: bool,
    /// The reason, shown to clients that ask for one of the locks
    #[arg(long, value_name = "TEXT", required_unless_present = "list", conflicts_with = "list")]
    reason: Option<String>,
    /// Wait until no holder is left, at most so long [without a time: as long as it takes]
    #[arg(long, value_name = "TIME", value_parser = duration::parse, num_args = 0..=1)]
    #[arg(conflicts_with = "list")]
    wait: Option<Option<Duration>>,
    /// List what is drained, since when, by whom and why, and how many holders are left
    #[arg(long)]
    list: bool,
    #[command(flatten)]
    pub(crate) connection: ListArgs,
}

/// Flags of `tenure undrain`.
#[derive(Args)]
pub(crate) struct UndrainArgs {
    /// The prefix, exactly as it was drained
    #[arg(value_parser = output::name, required_unless_present = "all", conflicts_with = "all")]
    prefix: Option<String>,
    /// What `tenure drain --all` has drained
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    pub(crate) connection: QuietArgs,
}

/// Drains a prefix, or lists what is drained.
pub(crate) fn drain(flags: &DrainArgs) -> Result<Exit, CliError> {
    flags.connection.with(async |cluster| {
        if flags.list {
            return list(cluster).await;
        }
        let prefix = flags.prefix.clone().unwrap_or_default();
        let reason = flags.reason.clone().unwrap_or_default();
        let by = connection_args::actor_name(&cluster.client);
        let ask = v1::DrainRequest { prefix: Some(prefix.clone()), reason: reason.clone(), by };
        let asked = cluster.client.ask(Command::Drain(ask), Some(&request_id(None))).await;
        let (answer, revision) = asked.map_err(|error| {
            let (prefix, reason) = (quoted(&prefix), quoted(&reason));
            let again = match flags.all {
                true => format!("tenure drain --all --reason {reason}"),
                false => format!("tenure drain {prefix} --reason {reason}"),
            };
            repeatable(error, &again)
        })?;
        let Answer::Drained(_) = answer else { return Err(strange()) };
        match cluster.output {
            OutputFormat::Json => output::object(&json!({
                "event": "drained", "prefix": prefix, "revision": revision.to_string(),
            })),
            OutputFormat::Text if cluster.quiet => {}
            OutputFormat::Text => {
                let open = waiting::undrain_command(&prefix);
                output::out(&format!(
                    "{} drained at revision {revision}; open: {open}\n",
                    locks(&prefix)
                ));
            }
        }
        match flags.wait {
            Some(most) => emptied(cluster, &prefix, most).await,
            None => Ok(Exit::Done),
        }
    })
}

/// Opens a prefix.
pub(crate) fn undrain(flags: &UndrainArgs) -> Result<Exit, CliError> {
    flags.connection.with(async |cluster| {
        let prefix = flags.prefix.clone().unwrap_or_default();
        let by = connection_args::actor_name(&cluster.client);
        let ask = v1::UndrainRequest { prefix: Some(prefix.clone()), by };
        let asked = cluster.client.ask(Command::Undrain(ask), Some(&request_id(None))).await;
        let again = waiting::undrain_command(&prefix);
        let (answer, revision) = asked.map_err(|error| repeatable(error, &again))?;
        let Answer::Undrained(it) = answer else { return Err(strange()) };
        if !it.existed {
            let failure = CliError::refused(format!("{} not drained", locks(&prefix)));
            return Err(failure.with("effect", "none").next("tenure drain --list"));
        }
        match cluster.output {
            OutputFormat::Json => output::object(&json!({
                "event": "undrained", "prefix": prefix, "revision": revision.to_string(),
            })),
            OutputFormat::Text if cluster.quiet => {}
            OutputFormat::Text => {
                output::out(&format!("{} open at revision {revision}\n", locks(&prefix)));
            }
        }
        Ok(Exit::Done)
    })
}

/// The failure of a command that may be repeated: a second time it has no effect.
fn repeatable(error: tenure::Error, again: &str) -> CliError {
    let failure = CliError::from(error);
    if failure.exit == Exit::Unknown { failure.next(again) } else { failure }
}

/// The locks of a prefix, as the subject of a sentence with the verb.
fn locks(prefix: &str) -> String {
    match prefix {
        "" => "all locks are".to_owned(),
        prefix => format!("locks below `{}` are", output::shortened(prefix)),
    }
}

/// Waits until no holder is left below a prefix.
async fn emptied(
    cluster: &ConnectedCluster,
    prefix: &str,
    most: Option<Duration>,
) -> Result<Exit, CliError> {
    let began = Instant::now();
    let mut told = None;
    loop {
        let drains = listed(cluster, Some(prefix.to_owned())).await?;
        let Some(drain) = drains.first() else {
            let failure = CliError::refused(format!("{} open again", locks(prefix)));
            return Err(failure.with("effect", "another client opened it while this one waited"));
        };
        if drain.holders == 0 && !drain.more_holders {
            let took = duration::shown(began.elapsed());
            match cluster.output {
                OutputFormat::Json => {
                    output::object(&json!({ "event": "emptied", "prefix": prefix }));
                }
                OutputFormat::Text if cluster.quiet => {}
                OutputFormat::Text => output::out(&format!("no holder is left after {took}\n")),
            }
            return Ok(Exit::Done);
        }
        let left = holders(drain);
        if most.is_some_and(|most| began.elapsed() >= most) {
            let look = match prefix {
                "" => "tenure locks".to_owned(),
                prefix => format!("tenure locks {}", quoted(prefix)),
            };
            let failure = CliError::new(Exit::NotAcquired, "WAIT_TIMEOUT", format!("{left} left"));
            let failure = failure.with("effect", "the locks stay drained; holders finish");
            return Err(failure.next(format!("{look}, or the same again to wait on")));
        }
        if told.as_ref() != Some(&left) && cluster.output == OutputFormat::Text && !cluster.quiet {
            output::tell(&format!("tenure: {left} left\n"));
            told = Some(left);
        }
        let next = most
            .map_or(POLL_INTERVAL, |most| POLL_INTERVAL.min(most.saturating_sub(began.elapsed())));
        tokio::time::sleep(next).await;
    }
}

/// Lists what is drained.
async fn list(cluster: &ConnectedCluster) -> Result<Exit, CliError> {
    let head = [
        ("PREFIX", Side::Left),
        ("FOR", Side::Left),
        ("BY", Side::Left),
        ("HOLDERS LEFT", Side::Right),
        ("REASON", Side::Left),
    ];
    let mut listing = Listing::new(cluster, &head);
    for drain in listed(cluster, None).await? {
        let shown = if drain.prefix.is_empty() { "(all)".to_owned() } else { drain.prefix.clone() };
        let by = if drain.by.is_empty() { &drain.principal } else { &drain.by };
        let more = if drain.more_holders { "+" } else { "" };
        let cells = || {
            [
                shown.clone(),
                duration::ms(drain.drained_ms),
                by.clone(),
                format!("{}{more}", drain.holders),
                drain.reason.clone(),
            ]
        };
        let object = || DrainShown::from(drain.clone());
        listing.item(&drain.prefix, |table| table.row(cells()), object);
    }
    listing.print_or("nothing is drained");
    Ok(Exit::Done)
}

/// How many holders are left, in words.
fn holders(drain: &v1::DrainView) -> String {
    let count = output::count(drain.holders, "holder");
    if drain.more_holders { format!("more than {count}") } else { count }
}

/// The drained prefixes; only the given one, if one is given.
pub(crate) async fn listed(
    cluster: &ConnectedCluster,
    prefix: Option<String>,
) -> Result<Vec<v1::DrainView>, CliError> {
    let ask = v1::ListDrainsRequest { prefix, stale: false };
    let asked = async |channel| LockAdminServiceClient::new(channel).list_drains(ask.clone()).await;
    Ok(cluster.client.question(asked).await?.drains)
}
