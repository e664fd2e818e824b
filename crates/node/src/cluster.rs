//! Shows the cluster as one member sees it.

use std::collections::{BTreeMap, BTreeSet};

use tenure_raft::{MemberId, Membership, ReplicaStatus};

use crate::directory::{self, MemberNames};
use crate::node::Node;

/// The cluster as one member sees it.
#[derive(Clone, Debug)]
pub struct ClusterView {
    /// The voters, learners and retired ids.
    pub members: Membership,
    /// The state of the replicated log.
    pub status: ReplicaStatus,
    /// The names and addresses of members.
    pub directory: BTreeMap<MemberId, MemberNames>,
    /// The members with which this one is in contact, see [`Node::in_contact`], itself among them.
    pub up: BTreeSet<MemberId>,
    /// The machine's clock.
    pub clock_ms: u64,
}

impl ClusterView {
    /// The cluster as a node sees it.
    pub fn of(node: &Node) -> Self {
        let replica = node.replica();
        Self {
            members: replica.members().clone(),
            status: replica.status(),
            directory: directory::read(replica.machine()),
            up: node.in_contact().chain([replica.id()]).collect(),
            clock_ms: replica.machine().clock_ms(),
        }
    }
}
