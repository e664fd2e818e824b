//! Shows and sets the limits of the cluster.

use clap::Args;
use serde_json::json;
use tenure_types::Limit;
use tenure_wire::v1;
use v1::cluster_service_client::ClusterServiceClient;
use v1::maintenance_service_client::MaintenanceServiceClient;

use super::change::{AGREE, repeatable};
use crate::connection_args::{ConnectedCluster, request_id};
use crate::exit::Exit;
use crate::failure::CliError;
use crate::listing::Listing;
use crate::output::{self, OutputFormat, Side};
use crate::print_args::ListArgs;

/// Flags of `tenure cluster limits`.
#[derive(Args)]
pub(crate) struct LimitsArgs {
    /// The limits to set, all or none; without any, all limits are shown
    #[arg(value_name = "LIMIT=VALUE", value_parser = setting)]
    set: Vec<(Limit, u64)>,
    #[command(flatten)]
    pub(crate) connection: ListArgs,
}

/// Shows the limits, or sets some.
pub(super) async fn limits(
    cluster: &ConnectedCluster,
    flags: &LimitsArgs,
) -> Result<Exit, CliError> {
    let before = current(cluster).await?;
    if flags.set.is_empty() {
        show(cluster, &before);
        return Ok(Exit::Done);
    }
    let limits = flags
        .set
        .iter()
        .map(|(limit, value)| v1::LimitValue { limit: limit.name().to_owned(), value: *value });
    let ask = v1::SetLimitsRequest { limits: limits.collect() };
    let asked = async |channel| MaintenanceServiceClient::new(channel).set_limits(ask).await;
    cluster.client.order(&request_id(None), Some(AGREE), asked).await.map_err(repeatable)?;
    for (limit, value) in &flags.set {
        let was = value_of(&before, *limit);
        match cluster.output {
            OutputFormat::Json => output::object(&json!({
                "event": "limit_set", "limit": limit.name(), "value": value, "was": was,
            })),
            OutputFormat::Text if cluster.quiet => {}
            OutputFormat::Text => {
                let was = was.map_or(String::new(), |was| format!(", was {was}"));
                output::out(&format!("{} is {value}{was}\n", limit.name()));
            }
        }
    }
    Ok(Exit::Done)
}

/// The limits in force, as the member that answers knows them.
async fn current(cluster: &ConnectedCluster) -> Result<Vec<v1::LimitValue>, CliError> {
    let ask = v1::StatusRequest {};
    let asked = async |channel| ClusterServiceClient::new(channel).status(ask).await;
    Ok(cluster.client.question(asked).await?.limits)
}

fn value_of(all: &[v1::LimitValue], limit: Limit) -> Option<u64> {
    all.iter().find(|it| it.limit == limit.name()).map(|it| it.value)
}

fn show(cluster: &ConnectedCluster, all: &[v1::LimitValue]) {
    let head = [
        ("LIMIT", Side::Left),
        ("VALUE", Side::Right),
        ("DEFAULT", Side::Right),
        ("FROM", Side::Right),
        ("TO", Side::Right),
    ];
    let mut listing = Listing::new(cluster, &head);
    for limit in Limit::all() {
        // A member of another version may not know it.
        let Some(value) = value_of(all, limit) else { continue };
        let (default, range) = (limit.default_value(), limit.range());
        let numbers = [value, default, *range.start(), *range.end()].map(|it| it.to_string());
        let [value_text, default_text, from, to] = numbers;
        let cells = [limit.name().to_owned(), value_text, default_text, from, to];
        let object = || {
            json!({
                "limit": limit.name(), "value": value, "default": default,
                "from": range.start(), "to": range.end(), "reason": limit.reason(),
            })
        };
        listing.item(limit.name(), |table| table.row(cells), object);
    }
    listing.print();
}

/// Reads `LIMIT=VALUE`.
fn setting(text: &str) -> Result<(Limit, u64), String> {
    let Some((name, value)) = text.split_once('=') else {
        return Err("a limit is set with LIMIT=VALUE, such as waiters_per_lock=20000".to_owned());
    };
    let limit = Limit::from_name(name.trim()).ok_or_else(|| {
        format!("there is no limit `{}`; try tenure cluster limits", output::clean(name))
    })?;
    let digits: String = value.trim().chars().filter(|it| *it != '_').collect();
    let (from, to) = limit.range().into_inner();
    let value = digits.parse().ok().filter(|value| limit.range().contains(value));
    value.map(|value| (limit, value)).ok_or_else(|| {
        format!("{} is a whole number from {from} to {to}, not `{}`", limit.name(), digits)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_names_a_limit_and_a_value_within_its_range() {
        assert_eq!(setting("waiters_per_lock=20_000"), Ok((Limit::WaitersPerLock, 20_000)));
        assert_eq!(setting("locks_per_ask=64"), Ok((Limit::LocksPerAsk, 64)));
        for (wrong, says) in [
            ("waiters_per_lock", "LIMIT=VALUE"),
            ("waiters=5", "no limit `waiters`"),
            ("locks_per_ask=65", "from 1 to 64"),
            ("locks_per_ask=-1", "from 1 to 64"),
            ("locks_per_ask=", "from 1 to 64"),
        ] {
            let said = setting(wrong).unwrap_err();
            assert!(said.contains(says), "{wrong}: {said}");
        }
    }
}
