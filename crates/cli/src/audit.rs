//! Shows the newest records of the audit log of one member.

use std::time::Duration;

use clap::Args;
use serde_json::Value;
use tenure_wire::{v1, wall};
use v1::maintenance_service_client::MaintenanceServiceClient;

use crate::connection_args::{ConnectedCluster, ConnectionArgs};
use crate::exit::Exit;
use crate::failure::CliError;
use crate::output::{self, OutputFormat, Side, Table};
use crate::wall_time;

/// How long a member may take to answer before the next address is tried.
const ONE: Duration = Duration::from_secs(2);

/// Flags of `tenure audit`.
#[derive(Args)]
pub(crate) struct AuditArgs {
    /// Show only the newest so many records, at most 1000
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1000))]
    last: u32,
    /// Leave out the line with the names of the columns
    #[arg(long)]
    no_header: bool,
    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,
}

/// Shows the newest records, oldest first.
pub(crate) fn audit(flags: &AuditArgs) -> Result<Exit, CliError> {
    flags.connection.with_any(async |cluster| {
        let records = records(cluster, flags.last).await?;
        match cluster.output {
            // As recorded: what reads the audit file reads this too.
            OutputFormat::Json => {
                records.iter().for_each(|record| output::out(&format!("{record}\n")));
            }
            OutputFormat::Text if records.is_empty() => {
                output::tell("the audit log of this member has no records yet\n");
            }
            OutputFormat::Text => {
                let table = table(&records);
                output::out(&if flags.no_header { table.body() } else { table.text() });
            }
        }
        Ok(Exit::Done)
    })
}

/// Asks the members at the given addresses themselves, until one answers: the session of the client may be with the
/// leader instead.
async fn records(cluster: &ConnectedCluster, last: u32) -> Result<Vec<String>, CliError> {
    let ask = v1::AuditRequest { last };
    let mut found = Err(tenure::Error::Unavailable);
    for address in &cluster.place.addresses {
        let channel = cluster.place.channel(address)?;
        let asked = async |_| MaintenanceServiceClient::new(channel.clone()).audit(ask).await;
        let limit = ONE.min(cluster.place.timeout);
        match tokio::time::timeout(limit, cluster.client.question(asked)).await {
            Ok(Err(error)) if error.is_retryable() => found = Err(error),
            Err(_) => {}
            Ok(answer) => {
                found = answer;
                break;
            }
        }
    }
    Ok(found?.records)
}

fn table(records: &[String]) -> Table {
    let head = ["TIME", "ACT", "TARGET", "BY", "FROM", "OUTCOME", "WHY"];
    let mut table = Table::new(&head.map(|name| (name, Side::Left)));
    for record in records {
        // A record that is no object has nothing to show but its place.
        table.row(cells(&serde_json::from_str(record).unwrap_or_default()));
    }
    table
}

/// A record as the cells of a line.
fn cells(record: &Value) -> [String; 7] {
    let text = |field: &str| record[field].as_str().filter(|text| !text.is_empty());
    let cell = |text: Option<&str>| text.map_or_else(|| "-".to_owned(), output::shortened);
    let time = text("time").and_then(wall::parse).map(wall_time::local);
    let target = match (record["from_revision"].as_u64(), record["to_revision"].as_u64()) {
        (Some(from), Some(to)) => format!("revisions {from} to {to}"),
        _ => cell(text("target")),
    };
    let outcome = match text("reason") {
        Some(reason) => format!("{} {reason}", cell(text("outcome"))),
        None => cell(text("outcome")),
    };
    [
        time.unwrap_or_else(|| cell(text("time"))),
        cell(text("act")),
        target,
        // The name that a caller gave counts only if the cluster knows no principal.
        cell(text("principal").or_else(|| text("who"))),
        cell(text("from")),
        outcome,
        cell(text("why")),
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_record_is_one_line_with_who_did_it_and_how_it_ended() {
        let shown = |record: Value| cells(&record)[1..].join(" | ");
        let force = json!({
            "time": "2026-03-02T03:14:07.112Z", "act": "force", "target": "deploy", "who": "ann",
            "principal": "ops", "outcome": "done", "why": "stuck", "token": 412,
        });
        assert_eq!(cells(&force)[0], wall_time::local(1_772_421_247_112));
        assert_eq!(shown(force), "force | deploy | ops | - | done | stuck");
        let start = json!({"act": "start", "target": "c1", "who": "a", "outcome": "done"});
        assert_eq!(shown(start), "start | c1 | a | - | done | -");
        let denied = json!({
            "act": "denied", "from": "10.0.0.7", "outcome": "refused", "reason": "UNAUTHENTICATED",
        });
        assert_eq!(shown(denied), "denied | - | - | 10.0.0.7 | refused UNAUTHENTICATED | -");
        let gap = json!({"act": "gap", "from_revision": 3, "to_revision": 20, "outcome": "done"});
        assert_eq!(shown(gap), "gap | revisions 3 to 20 | - | - | done | -");
    }

    #[test]
    fn what_is_no_record_is_one_line_too() {
        let text = table(&["no object".to_owned()]).text();
        assert_eq!(text.lines().count(), 2, "{text}");
    }
}
