//! Raises a cluster that was never used to the newest level of the machine's rules that all its members know.
//!
//! Initial members agree on the level of the first state, see [`Bootstrap`](crate::Bootstrap). If one of them was of an
//! older version and was upgraded before the first lease was granted, the leader raises the level as soon as every
//! member has said what it knows. Any other cluster is raised by command: a raised level keeps older versions out for
//! ever.

use tenure_core::request::Command;
use tenure_raft::{ProposalId, ReplicaInput as RaftInput};

use crate::directory;
use crate::node::Node;

/// The pause between two attempts, while a member has not reported its level or knows a lower one.
const PAUSE_US: u64 = 200_000;
/// The proposal id of the command; no caller waits for its answer.
const NO_CALLER: ProposalId = ProposalId(0);

impl Node {
    /// Proposes to raise the level, if this member leads a new cluster whose level is not the newest.
    pub(crate) fn raise_level(&mut self) {
        let machine = self.replica.machine();
        let level = machine.level_known();
        let due = self.raised_at_us.is_none_or(|at_us| self.now_us >= at_us + PAUSE_US);
        let is_new = machine.is_new() && machine.level() < level;
        // A leader that does not serve yet may have a log to apply in which the cluster is no new one.
        if !due || !is_new || !self.replica.leads() || !self.replica.status().serving {
            return;
        }
        self.raised_at_us = Some(self.now_us);
        let requests = [directory::encode(Command::RaiseLevel { level }).into()];
        self.replica.handle(RaftInput::Submit {
            proposal: NO_CALLER,
            requests: requests.into(),
            linger_us: 0,
            deadline_us: u64::MAX,
        });
        self.again = true;
    }
}
