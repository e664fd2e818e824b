//! Defines the JSON of `/v1/cluster` and its paths.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::error::Leader;
use super::{Decimal, Header, is_false, signed};
use crate::v1;

/// `GET /v1/cluster`: the status of the cluster.
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
    /// How many more of the members that are up may fail before the cluster can no longer commit.
    pub survives: u32,
    /// The epoch, which is the high part of every token and revision.
    pub epoch: u32,
    /// A random number that is drawn again when the cluster is restored from a backup.
    pub incarnation: Decimal,
    /// The feature level in force.
    pub level: u32,
    /// The machine's clock.
    pub clock_ms: u64,
    /// The oldest revision that can be watched from.
    pub floor: Decimal,
    /// The number of records of each kind, and their bytes.
    pub counts: Counts,
    /// The limits in force.
    pub limits: Vec<LimitValue>,
    /// Whether the member accepts connections from other machines without TLS or credentials.
    #[serde(default, skip_serializing_if = "is_false")]
    pub insecure: bool,
    /// For how much longer the cluster grants no lock after a restore, because clients of the cluster from before may
    /// still hold theirs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quiet_ms: Option<u64>,
    /// How long ago the member that answers applied an entry while it knew a leader; absent if it has not since it
    /// started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state_age_ms: Option<u64>,
    /// The member that answers, and the revision that the answer is based on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub header: Option<Header>,
}

/// The status of a member.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct MemberStatus {
    /// Its id.
    pub member_id: Decimal,
    /// Its name.
    pub name: String,
    /// Its role.
    pub role: Role,
    /// The address for clients.
    pub client_address: String,
    /// The address for other members.
    pub member_address: String,
    /// Whether the member that answers has received a message from it within the last seconds. A follower receives
    /// messages only from the leader; for each other member it reports whether it has a connection.
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
    /// Its state: `up to date`, `behind`, `not heard of`, `out of space`; empty if the member that answers does not
    /// know it.
    pub state: String,
    /// Version of its software.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub software: Option<String>,
    /// When its certificate expires, in milliseconds since 1970. Of another member: the one that it presented on its
    /// present connection to the member that answers. Absent without certificates, and without a connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate_expires_ms: Option<u64>,
}

/// A member's role in the cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Not a member.
    #[default]
    Outside,
    /// Learns, does not vote.
    Learner,
    /// Votes and follows a leader.
    Follower,
    /// The member leads.
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

/// The number of records of each kind, and their bytes.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct Counts {
    /// The number of leases.
    pub leases: u64,
    /// Locks that are held or awaited.
    pub locks: u64,
    /// Grants in force, including those that are revoking (`cooling`) or delayed.
    pub grants: u64,
    /// Queue positions.
    pub waiting: u64,
    /// The number of keys.
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
            certificate_expires_ms: status.certificate_expires_ms,
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
            state_age_ms: status.state_age_ms,
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
    /// The part of the text that is not secret. It is also the name of the invitation's key below
    /// `tenure/invitations/`.
    pub id: String,
    /// How long it lasts from now on.
    pub expires_ms: u64,
    /// The member that answers, and the revision that the answer is based on.
    pub header: Header,
}

/// `GET /v1/cluster/invitations`: the invitations that have not expired.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Invitations {
    /// The invitations, in the order of their ids.
    pub invitations: Vec<InvitationView>,
    /// The member that answers, and the revision that the answer is based on.
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

/// `DELETE /v1/cluster/invitations/{invitation}`: the response. Afterwards the invitation does not exist.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct InvitationCancelled {
    /// Whether it existed before.
    pub cancelled: bool,
    /// The member that answers, and the revision that the answer is based on.
    pub header: Header,
}

/// `POST /v1/cluster/members`: a member to be added, without a vote at first.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AddMember {
    /// The id that the member generated at its first start.
    pub member_id: Decimal,
    /// Its name.
    pub name: String,
    /// The address for other members.
    pub member_address: String,
    /// The address for clients.
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
    /// The change to make.
    pub action: MemberAction,
}

/// What to do with a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum MemberAction {
    /// Give it a vote.
    Promote,
    /// Transfer leadership to it.
    Lead,
}

/// The members after a change, and `GET /v1/cluster/members`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Members {
    /// All members, in the order of their ids.
    pub members: Vec<Member>,
    /// The member that answers, and the revision that the answer is based on.
    pub header: Header,
}

/// A member.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Member {
    /// Its id.
    pub member_id: Decimal,
    /// Its name.
    pub name: String,
    /// Its role.
    pub role: Role,
    /// The address for clients.
    pub client_address: String,
    /// The address for other members.
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
