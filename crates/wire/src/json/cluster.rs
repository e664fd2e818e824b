//! Defines the JSON of `/v1/cluster` and its paths.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::error::Leader;
use super::{Decimal, Header, is_false, signed};
use crate::v1;

/// `GET /v1/cluster`: how the cluster is.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Status {
    /// The cluster's name, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// The leader; absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leader: Option<Leader>,
    /// The members, in the order of their ids.
    pub members: Vec<MemberStatus>,
    /// How many more members may fail, of those that are up, before nothing is agreed on any more.
    pub survives: u32,
    /// The epoch, which leads every token and revision.
    pub epoch: u32,
    /// Drawn anew when the cluster is restored from a backup.
    pub incarnation: Decimal,
    /// The feature level in force.
    pub level: u32,
    /// The machine's clock.
    pub clock_ms: u64,
    /// The oldest revision that can be watched from.
    pub floor: Decimal,
    /// How much there is of everything.
    pub counts: Counts,
    /// The limits in force.
    pub limits: Vec<LimitValue>,
    /// It takes connections from elsewhere without TLS or credentials.
    #[serde(default, skip_serializing_if = "is_false")]
    pub insecure: bool,
    /// The cluster was restored and grants no lock for so much longer: clients of the former cluster may still hold
    /// theirs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quiet_ms: Option<u64>,
    /// Who answers, and when.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub header: Option<Header>,
}

/// How a member is.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct MemberStatus {
    /// Its id.
    pub member_id: Decimal,
    /// Its name.
    pub name: String,
    /// Its part.
    pub role: Role,
    /// Where clients reach it.
    pub client_address: String,
    /// Where other members reach it.
    pub member_address: String,
    /// Whether the member that answers has heard from it within the last seconds. A follower hears only from the
    /// leader: it reports of the others whether it has a connection.
    pub up: bool,
    /// How many entries it is behind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub behind: Option<u64>,
    /// The last entry it applied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub applied: Option<u64>,
    /// How long its slowest syncs take, in microseconds (99th percentile).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fsync_p99_us: Option<u64>,
    /// How much room its disk has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_free_bytes: Option<u64>,
    /// How its state is: `up to date`, `behind`, `not heard of`, `out of space`; empty if that is not known here.
    pub state: String,
    /// Version of its software.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub software: Option<String>,
}

/// A member's part in the cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Not a member.
    #[default]
    Outside,
    /// Learns, does not vote.
    Learner,
    /// Votes and follows.
    Follower,
    /// Leads.
    Leader,
}

impl From<v1::Role> for Role {
    fn from(role: v1::Role) -> Self {
        match role {
            v1::Role::Outside => Self::Outside,
            v1::Role::Learner => Self::Learner,
            v1::Role::Follower => Self::Follower,
            v1::Role::Leader => Self::Leader,
        }
    }
}

/// How much there is of everything.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct Counts {
    /// Leases.
    pub leases: u64,
    /// Locks that are held or awaited.
    pub locks: u64,
    /// Grants in force, those that are revoking (`cooling`) or delayed among them.
    pub grants: u64,
    /// Queue positions.
    pub waiting: u64,
    /// Keys.
    pub keys: u64,
    /// Weight of the whole state without its history.
    pub state_bytes: u64,
    /// Bytes of history.
    pub history_bytes: u64,
}

/// A limit and its value.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct LimitValue {
    /// Its name.
    pub limit: String,
    /// Its value.
    pub value: u64,
}

impl From<v1::Counts> for Counts {
    fn from(counts: v1::Counts) -> Self {
        Self {
            leases: counts.leases,
            locks: counts.locks,
            grants: counts.grants,
            waiting: counts.waiting,
            keys: counts.keys,
            state_bytes: counts.state_bytes,
            history_bytes: counts.history_bytes,
        }
    }
}

impl From<v1::MemberStatus> for MemberStatus {
    fn from(status: v1::MemberStatus) -> Self {
        let member = status.member.unwrap_or_default();
        Self {
            role: member.role().into(),
            member_id: Decimal(member.member_id),
            name: member.name,
            client_address: member.client_address,
            member_address: member.member_address,
            up: status.up,
            behind: status.behind,
            applied: status.applied,
            fsync_p99_us: status.fsync_p99_us,
            disk_free_bytes: status.disk_free_bytes,
            state: status.state,
            software: (!status.software.is_empty()).then_some(status.software),
        }
    }
}

impl From<v1::StatusResponse> for Status {
    fn from(status: v1::StatusResponse) -> Self {
        let limit = |limit: v1::LimitValue| LimitValue { limit: limit.limit, value: limit.value };
        Self {
            cluster: (!status.cluster.is_empty()).then_some(status.cluster),
            leader: status.leader.filter(|leader| leader.member_id != 0).map(Into::into),
            members: status.members.into_iter().map(Into::into).collect(),
            survives: status.survives,
            epoch: status.epoch,
            incarnation: Decimal(status.incarnation),
            level: status.level,
            clock_ms: status.clock_ms,
            floor: signed(status.floor),
            counts: status.counts.unwrap_or_default().into(),
            limits: status.limits.into_iter().map(limit).collect(),
            insecure: status.insecure,
            quiet_ms: status.quiet_ms,
            header: status.header.map(Into::into),
        }
    }
}

/// `POST /v1/cluster/invitations`: an invitation, with which one member can join by itself.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Invite {
    /// How long it lasts; an hour if absent, a day at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_ms: Option<u64>,
    /// The only member that it admits; any member if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member_id: Option<Decimal>,
}

/// An invitation for one member.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Invitation {
    /// The secret text that the member presents, shown here only.
    pub invitation: String,
    /// The part of it that is no secret, as in the key `tenure/invitations/…`.
    pub id: String,
    /// How long it lasts from now on.
    pub expires_ms: u64,
    /// Who answers, and when.
    pub header: Header,
}

/// `GET /v1/cluster/invitations`: the invitations that have not expired.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Invitations {
    /// The invitations, in the order of their ids.
    pub invitations: Vec<InvitationView>,
    /// Who answers, and when.
    pub header: Header,
}

/// An invitation without its secret.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct InvitationView {
    /// Its id: the part of the token between the underscores.
    pub id: String,
    /// How long it lasts from now on.
    pub expires_ms: u64,
    /// The only member that it admits; any member if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member_id: Option<Decimal>,
    /// The member that has used it. It admits no other one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_by: Option<Decimal>,
}

impl From<v1::InvitationView> for InvitationView {
    fn from(it: v1::InvitationView) -> Self {
        let (member_id, used_by) = (it.member_id.map(Decimal), it.used_by.map(Decimal));
        Self { id: it.id, expires_ms: it.expires_ms, member_id, used_by }
    }
}

/// `DELETE /v1/cluster/invitations/{invitation}`: the invitation does not exist.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct InvitationCancelled {
    /// Whether it existed before.
    pub cancelled: bool,
    /// Who answers, and when.
    pub header: Header,
}

/// `POST /v1/cluster/members`: a member to be added, without a vote at first.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AddMember {
    /// The id it drew at its first start.
    pub member_id: Decimal,
    /// Its name.
    pub name: String,
    /// Where other members reach it.
    pub member_address: String,
    /// Where clients reach it.
    pub client_address: String,
}

impl From<AddMember> for v1::AddMemberRequest {
    fn from(member: AddMember) -> Self {
        Self {
            member_id: member.member_id.0,
            name: member.name,
            member_address: member.member_address,
            client_address: member.client_address,
            hops: 0,
        }
    }
}

/// `POST /v1/cluster/members/{member}`: a change of one member. `DELETE` removes it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ChangeMember {
    /// What to do.
    pub action: MemberAction,
}

/// What to do with a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum MemberAction {
    /// Give it a vote.
    Promote,
    /// Let it lead.
    Lead,
}

/// The members after a change, and `GET /v1/cluster/members`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Members {
    /// All members, in the order of their ids.
    pub members: Vec<Member>,
    /// Who answers, and when.
    pub header: Header,
}

/// A member.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Member {
    /// Its id.
    pub member_id: Decimal,
    /// Its name.
    pub name: String,
    /// Its part.
    pub role: Role,
    /// Where clients reach it.
    pub client_address: String,
    /// Where other members reach it.
    pub member_address: String,
}

impl From<v1::Member> for Member {
    fn from(member: v1::Member) -> Self {
        Self {
            role: member.role().into(),
            member_id: Decimal(member.member_id),
            name: member.name,
            client_address: member.client_address,
            member_address: member.member_address,
        }
    }
}
