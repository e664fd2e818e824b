//! Makes invitations, with which members join by themselves.

use std::time::Duration;

use clap::Args;
use serde_json::json;
use tenure_wire::v1;
use v1::cluster_service_client::ClusterServiceClient;

use super::change::{AGREE, changed};
use super::status::list;
use crate::connection_args::{ConnectedCluster, ConnectionArgs, request_id};
use crate::duration;
use crate::exit::Exit;
use crate::failure::CliError;
use crate::output::{self, OutputFormat};

/// Flags of `tenure cluster invite`.
#[derive(Args)]
pub(crate) struct InviteArgs {
    /// How long the invitation lasts, a day at most
    #[arg(long, value_name = "TIME", value_parser = duration::parse, default_value = "1h")]
    expires: Duration,
    /// Admit only the member with this id [default: the first that presents the invitation]
    #[arg(long, value_name = "NUMBER")]
    id: Option<u64>,
    #[command(flatten)]
    pub(crate) reach: ConnectionArgs,
}

/// Prints a new invitation.
pub(super) async fn invite(
    cluster: &ConnectedCluster,
    flags: &InviteArgs,
) -> Result<Exit, CliError> {
    check_listens(&list(cluster).await?.members)?;
    let made = order(cluster, Some(flags.expires), flags.id).await?;
    match cluster.output {
        OutputFormat::Json => output::object(&json!({
            "event": "invited", "invitation": made.invitation, "id": made.id, "expires_ms": made.expires_ms,
        })),
        OutputFormat::Text => {
            output::out(&format!("{}\n", made.invitation));
            let expires = duration::shown(Duration::from_millis(made.expires_ms));
            output::tell(&format!(
                "it lets one member join within {expires}: tenure serve … --join ADDR --invitation TOKEN\n"
            ));
        }
    }
    Ok(Exit::Done)
}

/// Has the cluster make an invitation; an hour if it is not said how long it lasts.
pub(super) async fn order(
    cluster: &ConnectedCluster,
    expires: Option<Duration>,
    member_id: Option<u64>,
) -> Result<v1::InviteResponse, CliError> {
    let expires_ms = expires.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
    let ask = v1::InviteRequest { expires_ms, member_id };
    let asked = async |channel| ClusterServiceClient::new(channel).invite(ask).await;
    cluster.client.order(&request_id(None), Some(AGREE), asked).await.map_err(changed)
}

/// Refuses in a cluster that no member can join: one that was started to run alone has no port for other members.
pub(super) fn check_listens(members: &[v1::Member]) -> Result<(), CliError> {
    if members.iter().any(|it| it.member_address.rsplit_once(':').is_some()) {
        return Ok(());
    }
    let text = "no member of this cluster listens for others: `tenure dev` starts one alone";
    Err(CliError::refused(text).next("tenure serve --help, to found a cluster that grows"))
}
