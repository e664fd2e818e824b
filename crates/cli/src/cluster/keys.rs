//! Lists the keys that sign tickets and rotates the key of a member.

use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::json;
use tenure_wire::json::ticket::KeySet;
use tenure_wire::v1;
use v1::ticket_service_client::TicketServiceClient;

use super::change::{AGREE, find};
use super::member_id;
use super::status::list;
use crate::connection_args::{ConnectedCluster, request_id};
use crate::duration;
use crate::exit::Exit;
use crate::failure::CliError;
use crate::listing::Listing;
use crate::output::{self, OutputFormat, Side};
use crate::print_args::{ListArgs, QuietArgs};

/// What can be done with the keys that sign tickets.
#[derive(Subcommand)]
pub(crate) enum KeysCommand {
    /// List the public keys that verify tickets
    ///
    ///   tenure cluster keys list
    #[command(verbatim_doc_comment)]
    List(ListArgs),
    /// Give a member a new key; tickets of the old one are believed for a while
    ///
    ///   tenure cluster keys rotate b                  every few months
    ///   tenure cluster keys rotate b --overlap 0      it may have leaked: every older key of b is out at once
    ///   tenure cluster keys rotate --all              one member after another
    #[command(verbatim_doc_comment)]
    Rotate(TicketKeyRotateArgs),
}

/// Flags of `tenure cluster keys rotate`.
#[derive(Args)]
pub(crate) struct TicketKeyRotateArgs {
    /// Which member, by name or id
    #[arg(required_unless_present = "all", conflicts_with = "all")]
    member: Option<String>,
    /// Every member, one after another
    #[arg(long)]
    all: bool,
    /// Believe tickets of the old key for this long [default: 24h, at most 30d]
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    overlap: Option<Duration>,
    #[command(flatten)]
    pub(crate) connection: QuietArgs,
}

impl KeysCommand {
    pub(crate) fn output(&self) -> OutputFormat {
        match self {
            Self::List(connection) => connection.output,
            Self::Rotate(it) => it.connection.output,
        }
    }
}

/// Runs one of these subcommands.
pub(super) fn run(command: &KeysCommand) -> Result<Exit, CliError> {
    match command {
        KeysCommand::List(connection) => connection.with(show),
        KeysCommand::Rotate(flags) => flags.connection.with(async |it| rotate(it, flags).await),
    }
}

/// Shows the key set. JSON output has the form in which the API serves it.
async fn show(cluster: &ConnectedCluster) -> Result<Exit, CliError> {
    let ask = v1::TicketKeysRequest {};
    let asked = async |channel| TicketServiceClient::new(channel).keys(ask).await;
    let set = cluster.client.question(asked).await?;
    if cluster.output == OutputFormat::Json {
        output::object(&KeySet::from(set));
        return Ok(Exit::Done);
    }
    let members = list(cluster).await?.members;
    let head = ["MEMBER", "KEY", "STATE"].map(|head| (head, Side::Left));
    let mut listing = Listing::new(cluster, &head);
    for key in &set.keys {
        let name = members.iter().find(|it| it.member_id == key.member_id);
        let name = name.map_or_else(|| member_id::shown(key.member_id), |it| it.name.clone());
        let state = key.retires_in_ms.map_or("signs".to_owned(), |left_ms| {
            format!("believed for {} more", duration::ms(left_ms))
        });
        // The objects are one set, printed above.
        listing.item(&key.key, |table| table.row([name, key.key.clone(), state]), || ());
    }
    listing.print();
    Ok(Exit::Done)
}

async fn rotate(cluster: &ConnectedCluster, flags: &TicketKeyRotateArgs) -> Result<Exit, CliError> {
    let members = match &flags.member {
        Some(given) => vec![find(cluster, given).await?],
        None => list(cluster).await?.members,
    };
    for member in members {
        rotate_one(cluster, flags, &member).await?;
    }
    Ok(Exit::Done)
}

/// Asks the member itself to generate the key: the private key never leaves the member.
async fn rotate_one(
    cluster: &ConnectedCluster,
    flags: &TicketKeyRotateArgs,
    member: &v1::Member,
) -> Result<(), CliError> {
    let overlap_ms = flags.overlap.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
    let ask = v1::RotateTicketKeyRequest { overlap_ms };
    let channel = cluster.place.channel(&member.client_address)?;
    let asked = async |_| TicketServiceClient::new(channel).rotate_key(ask).await;
    let rotated = cluster.client.order(&request_id(None), Some(AGREE), asked).await;
    let rotated = rotated.map_err(|error| {
        let failure = CliError::from(error).with("member", output::clean(&member.name));
        // A rotation carries no request id to repeat it with. The key list shows whether it happened.
        if failure.exit == Exit::Unknown {
            failure.next("tenure cluster keys list")
        } else {
            failure
        }
    })?;
    match cluster.output {
        OutputFormat::Json => output::object(&json!({
            "event": "rotated", "member": member.name, "member_id": member.member_id.to_string(),
            "key": rotated.key,
        })),
        OutputFormat::Text if cluster.quiet => {}
        OutputFormat::Text => {
            output::out(&format!("{} signs with {}\n", output::clean(&member.name), rotated.key));
        }
    }
    Ok(())
}
