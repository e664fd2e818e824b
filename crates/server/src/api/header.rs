//! Builds the response header and the leader hint.

use tenure_raft::MemberId;
use tenure_types::Revision;
use tenure_wire::{convert, v1};

use crate::dispatch::{Dispatch, Principal, ReadConsistency, ReadScope, WITHIN};
use tenure_node::directory;

/// The cluster's id as a number: the first half of its digits.
pub(crate) fn cluster_id(cluster: &str) -> u64 {
    let digits = cluster.get(..16).unwrap_or(cluster);
    u64::from_str_radix(digits, 16).unwrap_or_default()
}

impl Dispatch {
    /// The header of a response: cluster, member, revision and term.
    pub(crate) fn header(&self, revision: Revision) -> v1::Header {
        v1::Header {
            cluster_id: cluster_id(self.cluster()),
            member_id: self.member().id().get(),
            revision: convert::revision(revision),
            raft_term: self.lead().term.0,
        }
    }

    /// The client address of the leader, as far as this member knows.
    pub(crate) async fn leader_hint(&self) -> v1::LeaderHint {
        let Some(leader) = self.lead().by else { return v1::LeaderHint::default() };
        let names = self.names(leader).await;
        let (name, address) = names.map(|names| (names.name, names.clients)).unwrap_or_default();
        v1::LeaderHint { member_id: leader.get(), name, address }
    }

    /// The name and the addresses of a member.
    pub(crate) async fn names(&self, id: MemberId) -> Option<directory::MemberNames> {
        let ask = move |machine: &tenure_core::Machine| directory::read(machine).remove(&id);
        self.read(&Principal::member(), ReadScope::Known, ReadConsistency::Stale, WITHIN, ask)
            .await
            .ok()?
            .1
    }
}
