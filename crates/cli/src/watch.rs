//! Prints changes and leaders as they happen.

use clap::Args;
use serde_json::json;
use tenure::{Change, Error, RawBatch as Batch, Refusal, Revision};
use tenure_wire::json::event::Event;

use crate::connection_args::ConnectionArgs;
use crate::exit::Exit;
use crate::failure::{CliError, quoted};
use crate::inspect::event_line;
use crate::output::{self, OutputFormat};
use crate::signals;

/// Flags of `tenure watch`.
#[derive(Args)]
pub(crate) struct WatchArgs {
    /// Only locks and keys whose names begin with this text
    #[arg(default_value = "", hide_default_value = true)]
    prefix: String,
    /// From this revision on; 1 is the first [default: from now]
    #[arg(long, value_name = "REVISION", value_parser = clap::value_parser!(u64).range(1..))]
    from: Option<u64>,
    /// End after so many revisions
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,
}

/// Flags of `tenure observe`.
#[derive(Args)]
pub(crate) struct ObserveArgs {
    /// Which election
    #[arg(value_parser = output::name)]
    name: String,
    /// End after so many changes; the first one is how it stands now
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,
}

/// Prints changes until the limit or a signal.
pub(crate) fn watch(flags: &WatchArgs) -> Result<Exit, CliError> {
    flags.connection.with(async |cluster| {
        let mut asked = signals::listen()?;
        let mut ask = cluster.client.watch_prefix(&flags.prefix);
        if let Some(from) = flags.from {
            ask = ask.from(Revision(from));
        }
        let mut watch = ask.await.map_err(|error| broken(flags, None, error))?;
        let (mut seen, mut last) = (0, None);
        while flags.limit.is_none_or(|limit| seen < limit) {
            let batch = tokio::select! {
                batch = watch.next_raw() => batch.map_err(|error| broken(flags, last, error))?,
                signal = asked.signal() => return Ok(Exit::Signal(signal)),
            };
            let Some(batch) = batch else { break };
            seen += 1;
            last = Some(batch.revision);
            print(cluster.output, batch);
        }
        Ok(Exit::Done)
    })
}

/// The failure of a watch, with the command that continues it without a gap.
fn broken(flags: &WatchArgs, last: Option<Revision>, error: tenure::Error) -> CliError {
    let prefix = match flags.prefix.as_str() {
        "" => String::new(),
        prefix => format!(" {}", quoted(prefix)),
    };
    let nearest = match &error {
        Error::Refused(Refusal::FutureRevision { newest, .. }) => Some(newest.next()),
        Error::Compacted { floor } => Some(*floor),
        _ => None,
    };
    let failure = CliError::from(error);
    if let Some(from) = nearest {
        let next = format!("tenure watch{prefix} --from {from}, or without --from: from now on");
        return failure.next(next);
    }
    let Some(Revision(last)) = last.filter(|_| failure.exit == Exit::Unreachable) else {
        return failure;
    };
    failure.next(format!("tenure watch{prefix} --from {}, which misses nothing", last + 1))
}

fn print(output: OutputFormat, batch: Batch) {
    match output {
        OutputFormat::Json => {
            let events: Vec<Event> = batch.events.into_iter().map(Event::from).collect();
            let said = json!({ "revision": batch.revision.to_string(), "events": events });
            output::object(&said);
        }
        OutputFormat::Text => {
            for event in &batch.events {
                output::out(&event_line(batch.revision, event));
            }
        }
    }
}

/// Prints the leader, and every change of leader.
pub(crate) fn observe(flags: &ObserveArgs) -> Result<Exit, CliError> {
    flags.connection.with(async |cluster| {
        let mut asked = signals::listen()?;
        let mut observer = cluster.client.election(&flags.name).observe().await?;
        let mut seen = 0;
        while flags.limit.is_none_or(|limit| seen < limit) {
            let change = tokio::select! {
                change = observer.next() => change?,
                signal = asked.signal() => return Ok(Exit::Signal(signal)),
            };
            let Some(change) = change else { break };
            seen += 1;
            print_change(cluster.output, &flags.name, &change);
        }
        Ok(Exit::Done)
    })
}

fn print_change(output: OutputFormat, name: &str, change: &Change) {
    match (output, change) {
        (OutputFormat::Json, Change::Vacant) => {
            output::object(&json!({ "event": "vacant", "name": name }));
        }
        (OutputFormat::Json, Change::Leader(leader)) => {
            let (value, value_base64) = tenure_wire::json::text_or_base64(&leader.value);
            let mut said = json!({
                "event": "leader", "name": name, "client": leader.client,
                "token": leader.token.to_string(), "lease": leader.lease.to_string(),
            });
            match value_base64 {
                Some(value) => said["value_base64"] = json!(value),
                None => said["value"] = json!(value.unwrap_or_default()),
            }
            output::object(&said);
        }
        (OutputFormat::Text, Change::Vacant) => output::out("vacant\n"),
        (OutputFormat::Text, Change::Leader(leader)) => {
            let (client, token) = (output::clean(&leader.client), leader.token);
            let value = output::bytes(&leader.value);
            output::out(&format!("{value}  {client}  token {token}\n"));
        }
        (OutputFormat::Json | OutputFormat::Text, _) => {}
    }
}
