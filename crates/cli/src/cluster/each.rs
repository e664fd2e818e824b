//! Collects the status that every member reports about itself.
//!
//! Only the leader knows which members lag behind; only a member itself knows the state of its disk.

use std::time::Duration;

use tenure::MemberChannel;
use tenure_wire::v1;
use tokio::task::JoinSet;
use v1::cluster_service_client::ClusterServiceClient;

use crate::connection_args::ConnectionTarget;
use crate::failure::CliError;

/// How long a member may take to answer before the status is shown without its own report.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Returns the status that the leader reports, or the connected member if the leader does not answer, completed with
/// each member's report about itself.
pub(crate) async fn status(
    client: &tenure::Client,
    place: &ConnectionTarget,
) -> Result<v1::StatusResponse, CliError> {
    let status = client.status_raw().await?;
    let mut status = seen_by_leader(place, &status).await.unwrap_or(status);
    by_name(&mut status);
    let mut asked = JoinSet::new();
    for (at, it) in status.members.iter().enumerate() {
        let known = it.fsync_p99_us.is_some() && it.disk_free_bytes.is_some();
        let address = it.member.as_ref().map(|member| member.client_address.clone());
        if let Some(address) = address.filter(|_| it.up && !known) {
            let channel = place.channel(&address)?;
            asked.spawn(async move {
                let said = tokio::time::timeout(TIMEOUT, ask(channel)).await;
                (at, said.ok().flatten())
            });
        }
    }
    while let Some(said) = asked.join_next().await {
        if let Ok((at, Some(own))) = said {
            let it = &mut status.members[at];
            it.fsync_p99_us = it.fsync_p99_us.or(own.fsync_p99_us);
            it.disk_free_bytes = it.disk_free_bytes.or(own.disk_free_bytes);
            if it.state.is_empty() {
                it.state = own.state;
            }
            if it.software.is_empty() {
                it.software = own.software;
            }
        }
    }
    // A follower may know the leader before it records the leader's role in its member list.
    let leader = status.leader.as_ref().map_or(0, |leader| leader.member_id);
    let up = status.members.iter_mut().filter(|it| it.up);
    for member in up.filter_map(|it| it.member.as_mut()) {
        if leader != 0 && member.member_id == leader {
            member.role = v1::Role::Leader.into();
        }
    }
    Ok(status)
}

/// Sorts the members by name.
pub(crate) fn by_name(status: &mut v1::StatusResponse) {
    status.members.sort_by_cached_key(|it| it.member.as_ref().map(|member| member.name.clone()));
}

/// Requests the status from the leader. `None` if the connected member leads, or if the leader does not answer.
async fn seen_by_leader(
    place: &ConnectionTarget,
    seen: &v1::StatusResponse,
) -> Option<v1::StatusResponse> {
    let (asked, leader) = (seen.header?.member_id, seen.leader.as_ref()?.member_id);
    let is_leader = |it: &&v1::Member| it.member_id == leader;
    let leader = seen.members.iter().filter_map(|it| it.member.as_ref()).find(is_leader)?;
    if leader.member_id == asked {
        return None;
    }
    let channel = place.channel(&leader.client_address).ok()?;
    let mut cluster = ClusterServiceClient::new(channel);
    let said = tokio::time::timeout(TIMEOUT, cluster.status(v1::StatusRequest {})).await;
    Some(said.ok()?.ok()?.into_inner())
}

/// What a member reports about itself; `None` without an answer.
async fn ask(channel: MemberChannel) -> Option<v1::MemberStatus> {
    let said =
        ClusterServiceClient::new(channel).status(v1::StatusRequest {}).await.ok()?.into_inner();
    let own = said.header?.member_id;
    said.members.into_iter().find(|it| it.member.as_ref().is_some_and(|it| it.member_id == own))
}
