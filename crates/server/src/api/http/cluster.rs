//! Shows the cluster and changes its membership, over HTTP.

use axum::extract::State;
use tenure_raft::MemberId;
use tenure_types::Revision;
use tenure_wire::Failure;
use tenure_wire::json::Decimal;
use tenure_wire::json::cluster::{
    AddMember, ChangeMember, Invitation, InvitationCancelled, Invitations, Invite, MemberAction,
    Members, Status,
};

use super::answer::{HttpResult, json};
use super::call::{HttpCall, within};
use super::leases::TimeoutParameter;
use super::limits::NoParameters;
use super::{Http, HttpError};
use crate::api::{decode, grpc};
use crate::dispatch::ClusterView;
use tenure_node::directory::{MemberNames, MemberRecord, Preference};

const AT: &str = "/v1/cluster/members/";

/// Shows how the cluster and its members are, as the member that is asked sees them.
#[utoipa::path(
    get, path = "/v1/cluster", tag = "cluster", operation_id = "show_cluster",
    responses((status = 200, description = "How the cluster is.", body = Status)),
)]
pub(super) async fn status(State(http): State<Http>, call: HttpCall) -> HttpResult {
    call.query::<NoParameters>()?;
    json(&Status::from(grpc::cluster::status(&http.dispatch, &http.who()).await?))
}

/// Lists the members.
#[utoipa::path(
    get, path = "/v1/cluster/members", tag = "cluster", operation_id = "list_members",
    responses((status = 200, description = "The members.", body = Members)),
)]
pub(super) async fn members(State(http): State<Http>, call: HttpCall) -> HttpResult {
    call.query::<NoParameters>()?;
    listed(&http).await
}

/// Adds a member that learns and does not vote.
#[utoipa::path(
    post, path = "/v1/cluster/members", tag = "cluster",
    operation_id = "add_member", request_body = AddMember, params(TimeoutParameter),
    responses((status = 200, description = "The members now.", body = Members)),
)]
pub(super) async fn add(State(http): State<Http>, call: HttpCall) -> HttpResult {
    let within = within(call.query::<TimeoutParameter>()?.timeout)?;
    let body: AddMember = call.json().await?;
    let id = MemberId::new(body.member_id.0);
    let id = id.ok_or_else(|| decode::invalid("member_id", "is no member id"))?;
    let names = MemberNames {
        name: body.name,
        members: body.member_address,
        clients: body.client_address,
        preference: Preference::default(),
    };
    http.dispatch.add(&http.who(), MemberRecord { id, names }, within).await?;
    listed(&http).await
}

/// Makes an invitation, with which one member can join by itself. The answer shows its secret, which is not stored.
#[utoipa::path(
    post, path = "/v1/cluster/invitations", tag = "cluster", request_body = Invite, params(TimeoutParameter),
    responses((status = 200, description = "The invitation.", body = Invitation)),
)]
pub(super) async fn invite(State(http): State<Http>, call: HttpCall) -> HttpResult {
    let within = within(call.query::<TimeoutParameter>()?.timeout)?;
    let Invite { expires_ms, member_id } = call.json().await?;
    let member = decode::optional_member(member_id.map(|Decimal(id)| id))?;
    let made = http.dispatch.invite(&http.who(), expires_ms, member, within).await?;
    let header = http.header(made.revision);
    let (invitation, id, expires_ms) = (made.token.to_string(), made.token.id(), made.expires_ms);
    json(&Invitation { invitation, id, expires_ms, header })
}

/// Lists the invitations that have not expired.
#[utoipa::path(
    get, path = "/v1/cluster/invitations", tag = "cluster",
    operation_id = "list_invitations", params(TimeoutParameter),
    responses((status = 200, description = "The invitations.", body = Invitations)),
)]
pub(super) async fn invitations(State(http): State<Http>, call: HttpCall) -> HttpResult {
    let within = within(call.query::<TimeoutParameter>()?.timeout)?;
    let (revision, invitations) = http.dispatch.invitations(&http.who(), within).await?;
    let invitations = invitations.into_iter().map(Into::into).collect();
    json(&Invitations { invitations, header: http.header(revision) })
}

/// Takes an invitation back: no member can join with it any more.
#[utoipa::path(
    delete, path = "/v1/cluster/invitations/{invitation}", tag = "cluster",
    params(("invitation" = String, Path, description = "The id of the invitation."), TimeoutParameter),
    responses((status = 200, description = "It does not exist.", body = InvitationCancelled)),
)]
pub(super) async fn cancel_invitation(State(http): State<Http>, call: HttpCall) -> HttpResult {
    let within = within(call.query::<TimeoutParameter>()?.timeout)?;
    let id = call.name("/v1/cluster/invitations/")?;
    call.nothing().await?;
    let (revision, cancelled) = http.dispatch.cancel_invitation(&http.who(), &id, within).await?;
    json(&InvitationCancelled { cancelled, header: http.header(revision) })
}

/// Gives a member that has caught up a vote, or lets it lead.
#[utoipa::path(
    post, path = "/v1/cluster/members/{member}", tag = "cluster",
    operation_id = "change_member", request_body = ChangeMember,
    params(("member" = String, Path, description = "The member's name or id."), TimeoutParameter),
    responses((status = 200, description = "The members now.", body = Members)),
)]
pub(super) async fn change(State(http): State<Http>, call: HttpCall) -> HttpResult {
    let within = within(call.query::<TimeoutParameter>()?.timeout)?;
    let id = http.member(call.name(AT)?).await?;
    match call.json::<ChangeMember>().await?.action {
        MemberAction::Promote => http.dispatch.promote(&http.who(), id, within).await?,
        MemberAction::Lead => drop(http.dispatch.transfer(&http.who(), Some(id), within).await?),
    }
    listed(&http).await
}

/// Removes a member for ever: its id never comes back.
#[utoipa::path(
    delete, path = "/v1/cluster/members/{member}", tag = "cluster", operation_id = "remove_member",
    params(("member" = String, Path, description = "The member's name or id."), TimeoutParameter),
    responses((status = 200, description = "The members now.", body = Members)),
)]
pub(super) async fn remove(State(http): State<Http>, call: HttpCall) -> HttpResult {
    let within = within(call.query::<TimeoutParameter>()?.timeout)?;
    let id = http.member(call.name(AT)?).await?;
    call.nothing().await?;
    let revision = async || http.dispatch.inspect(|replica| replica.machine().revision()).await;
    let before = revision().await?;
    let cluster = http.dispatch.remove(&http.who(), id, within).await?;
    // One that removed itself has nothing newer to say.
    shown(&http, &cluster, revision().await.unwrap_or(before))
}

async fn listed(http: &Http) -> HttpResult {
    let cluster = http.dispatch.view(&http.who()).await?;
    let revision = http.dispatch.inspect(|replica| replica.machine().revision()).await?;
    shown(http, &cluster, revision)
}

fn shown(http: &Http, cluster: &ClusterView, revision: Revision) -> HttpResult {
    let members = grpc::cluster::members(cluster).into_iter().map(Into::into).collect();
    json(&Members { members, header: http.header(revision) })
}

impl Http {
    /// The member with this name or, if no member has it, with this decimal id.
    async fn member(&self, member: String) -> Result<MemberId, HttpError> {
        let cluster = self.dispatch.view(&self.who()).await?;
        let mut all = cluster.members.all().into_iter();
        let by_name = |id: &MemberId| cluster.directory.get(id).is_some_and(|it| it.name == member);
        let by_id = || member.parse().ok().and_then(MemberId::new);
        let found = all.find(by_name).or_else(by_id);
        Ok(found.ok_or(Failure::MemberNotFound { member })?)
    }
}
