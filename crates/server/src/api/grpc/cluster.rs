//! Implements the gRPC cluster service: members, membership changes and status.

use std::collections::BTreeSet;

use tenure_raft::{MemberId, Membership};
use tenure_types::Limit;
use tenure_wire::{Failure, member_state, v1};
use tonic::{Request, Response, Status};

use super::call::{GrpcCall, to_status};
use crate::api::decode;
use crate::dispatch::{ClusterView, Dispatch, Principal};
use crate::metrics::certificate_expiry;
use crate::os;
use tenure_node::directory::{MemberNames, MemberRecord, Preference};

/// The most times a request may be forwarded; one with more has gone in circles.
const HOPS_MAX: u32 = 5;
/// The placeholder for an unknown address.
const NOWHERE: &str = "-";

pub(super) struct ClusterApi {
    pub(super) dispatch: Dispatch,
}

impl ClusterApi {
    async fn header(&self) -> Result<Option<v1::Header>, Failure> {
        let revision = self.dispatch.inspect(|replica| replica.machine().revision()).await?;
        Ok(Some(self.dispatch.header(revision)))
    }

    /// The members after a change.
    async fn members_now(&self, call: &GrpcCall) -> Result<Vec<v1::Member>, Failure> {
        Ok(members(&self.dispatch.view_now(&call.who, call.within()).await?))
    }
}

#[tonic::async_trait]
impl v1::cluster_service_server::ClusterService for ClusterApi {
    async fn members(
        &self,
        request: Request<v1::MembersRequest>,
    ) -> Result<Response<v1::MembersResponse>, Status> {
        let (call, _) = GrpcCall::new(&self.dispatch, request)?;
        let lineage = self.dispatch.member().lineage();
        let seen =
            async { Ok((self.header().await?, members(&self.dispatch.view(&call.who).await?))) };
        let (header, members) = call.own_view(seen).await?;
        Ok(Response::new(v1::MembersResponse {
            header,
            members,
            leader: Some(self.dispatch.leader_hint().await),
            epoch: lineage.epoch.get().into(),
            incarnation: lineage.incarnation.0,
        }))
    }

    async fn add(
        &self,
        request: Request<v1::AddMemberRequest>,
    ) -> Result<Response<v1::AddMemberResponse>, Status> {
        let (call, it) = GrpcCall::new(&self.dispatch, request)?;
        if it.hops > HOPS_MAX {
            return Err(to_status(Failure::TooManyHops { hops: it.hops }));
        }
        let id = member(it.member_id)?;
        let name = if it.name.is_empty() { id.to_string() } else { it.name };
        let clients = if it.client_address.is_empty() { NOWHERE.into() } else { it.client_address };
        let preference = Preference::default();
        let names = MemberNames { name, members: it.member_address, clients, preference };
        let record = MemberRecord { id, names };
        self.dispatch.add(&call.who, record, call.within()).await?;
        Ok(Response::new(v1::AddMemberResponse {
            header: self.header().await.map_err(to_status)?,
            members: self.members_now(&call).await.map_err(to_status)?,
        }))
    }

    async fn invite(
        &self,
        request: Request<v1::InviteRequest>,
    ) -> Result<Response<v1::InviteResponse>, Status> {
        let (call, it) = GrpcCall::new(&self.dispatch, request)?;
        let member = decode::optional_member(it.member_id).map_err(to_status)?;
        let made = self.dispatch.invite(&call.who, it.expires_ms, member, call.within()).await?;
        Ok(Response::new(v1::InviteResponse {
            header: Some(self.dispatch.header(made.revision)),
            invitation: made.token.to_string(),
            id: made.token.id(),
            expires_ms: made.expires_ms,
        }))
    }

    async fn list_invitations(
        &self,
        request: Request<v1::ListInvitationsRequest>,
    ) -> Result<Response<v1::ListInvitationsResponse>, Status> {
        let (call, _) = GrpcCall::new(&self.dispatch, request)?;
        let (revision, invitations) = self.dispatch.invitations(&call.who, call.within()).await?;
        let header = Some(self.dispatch.header(revision));
        Ok(Response::new(v1::ListInvitationsResponse { header, invitations }))
    }

    async fn cancel_invitation(
        &self,
        request: Request<v1::CancelInvitationRequest>,
    ) -> Result<Response<v1::CancelInvitationResponse>, Status> {
        let (call, it) = GrpcCall::new(&self.dispatch, request)?;
        let cancel = self.dispatch.cancel_invitation(&call.who, &it.id, call.within());
        let (revision, cancelled) = cancel.await?;
        let header = Some(self.dispatch.header(revision));
        Ok(Response::new(v1::CancelInvitationResponse { header, cancelled }))
    }

    async fn promote(
        &self,
        request: Request<v1::PromoteMemberRequest>,
    ) -> Result<Response<v1::PromoteMemberResponse>, Status> {
        let (call, it) = GrpcCall::new(&self.dispatch, request)?;
        self.dispatch.promote(&call.who, member(it.member_id)?, call.within()).await?;
        Ok(Response::new(v1::PromoteMemberResponse {
            header: self.header().await.map_err(to_status)?,
            members: self.members_now(&call).await.map_err(to_status)?,
        }))
    }

    async fn remove(
        &self,
        request: Request<v1::RemoveMemberRequest>,
    ) -> Result<Response<v1::RemoveMemberResponse>, Status> {
        let (call, it) = GrpcCall::new(&self.dispatch, request)?;
        let before = self.header().await.map_err(to_status)?;
        let cluster = self.dispatch.remove(&call.who, member(it.member_id)?, call.within()).await?;
        Ok(Response::new(v1::RemoveMemberResponse {
            // A member that removed itself has no newer header.
            header: self.header().await.unwrap_or(before),
            members: members(&cluster),
        }))
    }

    async fn leave(
        &self,
        request: Request<v1::LeaveClusterRequest>,
    ) -> Result<Response<v1::LeaveClusterResponse>, Status> {
        let (call, _) = GrpcCall::new(&self.dispatch, request)?;
        let header = self.header().await.map_err(to_status)?;
        self.dispatch.remove(&call.who, self.dispatch.member().id(), call.within()).await?;
        Ok(Response::new(v1::LeaveClusterResponse { header }))
    }

    async fn transfer_leadership(
        &self,
        request: Request<v1::TransferLeadershipRequest>,
    ) -> Result<Response<v1::TransferLeadershipResponse>, Status> {
        let (call, it) = GrpcCall::new(&self.dispatch, request)?;
        let to = (it.member_id != 0).then(|| member(it.member_id)).transpose()?;
        self.dispatch.transfer(&call.who, to, call.within()).await?;
        Ok(Response::new(v1::TransferLeadershipResponse {
            header: self.header().await.map_err(to_status)?,
            leader: Some(self.dispatch.leader_hint().await),
        }))
    }

    async fn status(
        &self,
        request: Request<v1::StatusRequest>,
    ) -> Result<Response<v1::StatusResponse>, Status> {
        let (call, _) = GrpcCall::new(&self.dispatch, request)?;
        Ok(Response::new(call.own_view(status(&self.dispatch, &call.who)).await?))
    }
}

fn member(id: u64) -> Result<MemberId, Status> {
    MemberId::new(id).ok_or_else(|| to_status(decode::invalid("member_id", "is missing")))
}

pub(in crate::api) fn members(cluster: &ClusterView) -> Vec<v1::Member> {
    let member = |id: MemberId| {
        let names = cluster.directory.get(&id);
        let names = names.map(|names| (&*names.name, &*names.members, &*names.clients));
        let (name, member_address, client_address) = names.unwrap_or_default();
        v1::Member {
            member_id: id.get(),
            name: name.to_owned(),
            member_address: member_address.to_owned(),
            client_address: client_address.to_owned(),
            role: role(cluster, id).into(),
        }
    };
    cluster.members.all().into_iter().map(member).collect()
}

pub(in crate::api) fn role(cluster: &ClusterView, id: MemberId) -> v1::Role {
    if cluster.status.leader == Some(id) {
        v1::Role::Leader
    } else if cluster.members.voters.contains(&id) {
        v1::Role::Follower
    } else if cluster.members.contains(id) {
        v1::Role::Learner
    } else {
        v1::Role::Outside
    }
}

/// When the certificate that this member presents expires. The file may have been replaced, so it is read.
async fn own_certificate_expires_ms(dispatch: &Dispatch) -> Option<u64> {
    let path = dispatch.member().meters().certificates()?.own_certificate_file().to_owned();
    let read = move || certificate_expiry(&path);
    let expires_s = dispatch.runtime().spawn_blocking(read).await.ok()??;
    Some(expires_s.saturating_mul(1_000))
}

/// How the cluster is, as far as one member knows: of the others only what it hears from them.
pub(in crate::api) async fn status(
    dispatch: &Dispatch,
    who: &Principal,
) -> Result<v1::StatusResponse, Failure> {
    let cluster = dispatch.view(who).await?;
    let me = dispatch.member().id();
    let metrics = dispatch.member().metrics();
    let own_certificate_expires_ms = own_certificate_expires_ms(dispatch).await;
    let peers = &dispatch.member().meters().peer_certificates;
    let of = |member: v1::Member| {
        let id = MemberId::new(member.member_id);
        let own = id == Some(me);
        let up = id.is_some_and(|id| cluster.up.contains(&id));
        let matched = id.and_then(|id| cluster.status.matched.get(&id));
        let behind = if own {
            Some(cluster.status.committed.saturating_sub(cluster.status.applied.index))
        } else {
            matched.map(|matched| cluster.status.last.index.saturating_sub(*matched))
        };
        let state = match (up, behind) {
            _ if own && metrics.disk_short => member_state::OUT_OF_SPACE,
            (false, _) => member_state::NOT_HEARD_OF,
            (true, Some(0)) => member_state::UP_TO_DATE,
            (true, Some(_)) => member_state::BEHIND,
            (true, None) => "",
        };
        v1::MemberStatus {
            member: Some(member),
            up,
            behind,
            applied: own.then_some(cluster.status.applied.index),
            fsync_p99_us: own.then_some(metrics.sync_p99_us),
            disk_free_bytes: own.then_some(metrics.disk_free_bytes),
            state: state.to_owned(),
            software: if own { super::SOFTWARE.to_owned() } else { String::new() },
            certificate_expires_ms: match id {
                _ if own => own_certificate_expires_ms,
                Some(id) => peers.expires_ms(id),
                None => None,
            },
        }
    };
    let lineage = dispatch.member().lineage();
    let facts = dispatch.inspect(|replica| {
        let machine = replica.machine();
        let stats = machine.stats();
        let limit = |limit: Limit| v1::LimitValue {
            limit: limit.name().to_owned(),
            value: machine.limits().get(limit),
        };
        let revision = machine.revision();
        let response = v1::StatusResponse {
            level: machine.level().into(),
            clock_ms: machine.clock_ms(),
            floor: tenure_wire::convert::revision(machine.floor()),
            counts: Some(v1::Counts {
                leases: stats.leases,
                locks: stats.locks,
                grants: stats.grants,
                waiting: stats.places,
                keys: stats.keys,
                state_bytes: machine.state_bytes(),
                history_bytes: stats.history_bytes,
            }),
            limits: Limit::all().map(limit).collect(),
            quiet_ms: machine.quiet_ms(),
            ..Default::default()
        };
        (revision, response)
    });
    let (revision, facts) = facts.await?;
    Ok(v1::StatusResponse {
        header: Some(dispatch.header(revision)),
        leader: Some(dispatch.leader_hint().await),
        members: members(&cluster).into_iter().map(of).collect(),
        survives: survives(&cluster.members, |id| cluster.up.contains(&id)),
        epoch: lineage.epoch.get().into(),
        incarnation: lineage.incarnation.0,
        insecure: dispatch.is_insecure(),
        state_age_ms: dispatch.member().meters().state_age_ms(os::now_us()),
        ..facts
    })
}

/// How many more of the members that are up may fail before the quorum is lost. During a change of membership both
/// majorities count.
fn survives(members: &Membership, is_up: impl Fn(MemberId) -> bool) -> u32 {
    let spare = |voters: &BTreeSet<MemberId>| {
        let up = voters.iter().filter(|id| is_up(**id)).count();
        up.saturating_sub(voters.len() / 2 + 1)
    };
    let majorities = [&members.voters, &members.outgoing].into_iter();
    let least = majorities.filter(|voters| !voters.is_empty()).map(spare).min();
    least.and_then(|least| u32::try_from(least).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(ids: impl IntoIterator<Item = u64>) -> BTreeSet<MemberId> {
        ids.into_iter().filter_map(MemberId::new).collect()
    }

    #[test]
    fn a_member_that_is_down_counts_as_failed() {
        let five = Membership::of_voters(ids(1..=5));
        let up_to = |last: u64| survives(&five, |id| id.get() <= last);
        assert_eq!([5, 4, 3, 2, 0].map(up_to), [2, 1, 0, 0, 0]);
        assert_eq!(survives(&Membership::of_voters(ids([1])), |_| true), 0);
        assert_eq!(survives(&Membership::of_voters(ids([1, 2])), |_| true), 0);
    }

    #[test]
    fn a_learner_does_not_help_and_a_change_needs_both_majorities() {
        let mut members = Membership::of_voters(ids(1..=3));
        members.learners = ids([4]);
        assert_eq!(survives(&members, |id| id.get() != 3), 0);
        members.outgoing = ids([1, 2]);
        assert_eq!(survives(&members, |_| true), 0);
    }
}
