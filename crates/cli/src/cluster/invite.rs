//! Makes invitations, with which members join by themselves.

use std::time::Duration;

use clap::Args;
use serde_json::json;
use tenure_wire::json::cluster::InvitationView;
use tenure_wire::v1;
use v1::cluster_service_client::ClusterServiceClient;

use super::change::{AGREE, changed};
use super::member_id;
use super::status::list;
use crate::connection_args::{ConnectedCluster, request_id};
use crate::duration;
use crate::exit::Exit;
use crate::failure::CliError;
use crate::listing::Listing;
use crate::output::{self, OutputFormat, Side};
use crate::print_args::ListArgs;

/// Flags of `tenure cluster invite`.
#[derive(Args)]
pub(crate) struct InviteArgs {
    /// How long the invitation lasts, a day at most
    #[arg(long, value_name = "TIME", value_parser = duration::parse, default_value = "1h")]
    expires: Duration,
    /// Admit only the member with this id, which its log shows [default: the first that presents the invitation]
    #[arg(long, value_name = "ID", value_parser = member_id::parse)]
    id: Option<u64>,
    /// List the invitations that have not expired, without their secrets
    #[arg(long, conflicts_with_all = ["id", "cancel"])]
    list: bool,
    /// Take back the invitation with this id: no member can join with it any more
    #[arg(long, value_name = "INVITATION", conflicts_with = "id")]
    cancel: Option<String>,
    #[command(flatten)]
    pub(crate) connection: ListArgs,
}

/// Prints a new invitation, lists those that there are, or takes one back.
pub(super) async fn invite(
    cluster: &ConnectedCluster,
    flags: &InviteArgs,
) -> Result<Exit, CliError> {
    if flags.list {
        return show(cluster).await;
    }
    if let Some(id) = &flags.cancel {
        return cancel(cluster, id).await;
    }
    check_listens(&list(cluster).await?.members)?;
    let made = order(cluster, Some(flags.expires), flags.id).await?;
    match cluster.output {
        OutputFormat::Json => output::object(&json!({
            "event": "invited", "invitation": made.invitation, "id": made.id, "expires_ms": made.expires_ms,
        })),
        OutputFormat::Text => {
            output::out(&format!("{}\n", made.invitation));
            if !cluster.quiet {
                let expires = duration::shown(Duration::from_millis(made.expires_ms));
                output::tell(&format!(
                    "it lets one member join within {expires}: tenure serve … --join ADDR --invitation TOKEN\n"
                ));
            }
        }
    }
    Ok(Exit::Done)
}

async fn show(cluster: &ConnectedCluster) -> Result<Exit, CliError> {
    let ask = v1::ListInvitationsRequest {};
    let asked = async |channel| ClusterServiceClient::new(channel).list_invitations(ask).await;
    let head = ["INVITATION", "EXPIRES IN", "ADMITS", "USED BY"].map(|head| (head, Side::Left));
    let mut listing = Listing::new(cluster, &head);
    for it in cluster.client.question(asked).await?.invitations {
        let cells = || {
            let expires = duration::shown(Duration::from_millis(it.expires_ms));
            let member = |id: Option<u64>, none: &str| id.map_or(none.to_owned(), member_id::shown);
            let (admits, used) = (member(it.member_id, "any member"), member(it.used_by, "-"));
            [it.id.clone(), expires, admits, used]
        };
        listing.item(&it.id, |table| table.row(cells()), || InvitationView::from(it.clone()));
    }
    listing.print();
    Ok(Exit::Done)
}

async fn cancel(cluster: &ConnectedCluster, given: &str) -> Result<Exit, CliError> {
    // A whole token is accepted too: its owner may have nothing else at hand.
    let id = given.split('_').nth(1).unwrap_or(given).to_owned();
    let ask = v1::CancelInvitationRequest { id: id.clone() };
    let asked =
        async |channel| ClusterServiceClient::new(channel).cancel_invitation(ask.clone()).await;
    let answer =
        cluster.client.order(&request_id(None), Some(AGREE), asked).await.map_err(changed)?;
    if !answer.cancelled {
        let text = format!("there is no invitation `{}`", output::clean(&id));
        return Err(CliError::refused(text).next("tenure cluster invite --list"));
    }
    match cluster.output {
        OutputFormat::Json => output::object(&json!({ "event": "cancelled", "id": id })),
        OutputFormat::Text if cluster.quiet => {}
        OutputFormat::Text => output::out(&format!("invitation {id} is taken back\n")),
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
    Err(CliError::refused(text).next("tenure serve --help, to bootstrap a cluster that grows"))
}
