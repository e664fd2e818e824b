//! Who belongs to the cluster, and how is it?

use axum::extract::State;
use tenure_raft::{MemberId, Replica};
use tenure_wire::json::Decimal;
use tenure_wire::json::cluster::{Counts, Member, MemberStatus, Members, Role, Status};
use tenure_wire::json::error::Leader;

use super::Http;
use super::answer::{Answered, json};
use super::call::Call;
use super::limits::{Nothing, values};
use crate::book;

/// Shows how the cluster and its members are, as the member that is asked sees them.
#[utoipa::path(
    get, path = "/v1/cluster", tag = "cluster",
    responses((status = 200, description = "How the cluster is.", body = Status)),
)]
pub(super) async fn status(State(http): State<Http>, call: Call) -> Answered {
    call.query::<Nothing>()?;
    let (revision, mut status) = http.edge.look(|it| (it.machine().revision(), seen(it))).await?;
    for member in &mut status.members {
        member.up = MemberId::new(member.member_id.0).is_some_and(|id| http.edge.hears(id));
        if !member.up {
            "unreachable from here".clone_into(&mut member.state);
        }
    }
    status.header = Some(http.header(revision));
    json(&status)
}

/// Lists the members.
#[utoipa::path(
    get, path = "/v1/cluster/members", tag = "cluster",
    responses((status = 200, description = "The members.", body = Members)),
)]
pub(super) async fn members(State(http): State<Http>, call: Call) -> Answered {
    call.query::<Nothing>()?;
    json(&listed(&http).await?)
}

async fn listed(http: &Http) -> Result<Members, super::Refused> {
    let ask = |it: &Replica| (it.machine().revision(), seen(it));
    let (revision, status) = http.edge.look(ask).await?;
    let member = |it: MemberStatus| Member {
        member_id: it.member_id,
        name: it.name,
        role: it.role,
        client_address: it.client_address,
        member_address: it.member_address,
    };
    let members = status.members.into_iter().map(member).collect();
    Ok(Members { members, header: http.header(revision) })
}

/// The cluster as one member has it.
fn seen(replica: &Replica) -> Status {
    let machine = replica.machine();
    let agreement = replica.status();
    let book = book::read(machine);
    let named = |id: MemberId| book.get(&id).cloned();
    let membership = replica.members();
    let newest = agreement.committed.max(agreement.last.index);
    let member = |id: MemberId| {
        let names = named(id);
        let me = id == replica.id();
        let applied = me.then_some(agreement.applied.index);
        let matched = agreement.matched.get(&id).copied().filter(|_| agreement.leading);
        let behind = applied.or(matched).map(|at| newest.saturating_sub(at));
        MemberStatus {
            member_id: Decimal(id.get()),
            name: names.as_ref().map(|it| it.name.clone()).unwrap_or_default(),
            role: role(agreement.leader, membership.voters.contains(&id), id),
            client_address: names.as_ref().map(|it| it.clients.clone()).unwrap_or_default(),
            member_address: names.map(|it| it.members).unwrap_or_default(),
            up: me,
            behind,
            applied,
            fsync_p99_us: None,
            disk_free_bytes: None,
            state: if behind.is_some_and(|behind| behind > 0) { "behind" } else { "ok" }.to_owned(),
            software: me.then(|| concat!("tenure ", env!("CARGO_PKG_VERSION")).to_owned()),
        }
    };
    let stats = machine.stats();
    let voters = u32::try_from(membership.voters.len()).unwrap_or(u32::MAX);
    Status {
        cluster: None,
        leader: agreement.leader.map(|id| Leader {
            member_id: Decimal(id.get()),
            name: named(id).map(|it| it.name).unwrap_or_default(),
            address: named(id).map(|it| it.clients).unwrap_or_default(),
        }),
        members: membership.all().into_iter().map(member).collect(),
        survives: voters.saturating_sub(1) / 2,
        epoch: u32::from(machine.epoch().get()),
        incarnation: Decimal(0),
        level: u32::from(machine.level()),
        clock_ms: machine.clock_ms(),
        floor: Decimal(machine.floor().0),
        counts: Counts {
            leases: stats.leases,
            locks: stats.locks,
            grants: stats.grants,
            waiting: stats.places,
            keys: stats.keys,
            state_bytes: machine.state_bytes(),
            history_bytes: stats.history_bytes,
        },
        limits: values(machine),
        insecure: false,
        header: None,
    }
}

fn role(leader: Option<MemberId>, votes: bool, id: MemberId) -> Role {
    match (leader == Some(id), votes) {
        (true, _) => Role::Leader,
        (false, true) => Role::Follower,
        (false, false) => Role::Learner,
    }
}
