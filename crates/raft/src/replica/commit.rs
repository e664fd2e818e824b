//! Decides when a leader tells the other members how far the log is committed.
//!
//! Every message with entries carries the commit index, so under load it needs no messages of its own. Those would be
//! half of all messages: one to each member, and its acknowledgement. Without further entries the leader sends the
//! index after [`COMMIT_US`]. It sends it at once while clients have sessions at other members: these members tell
//! their clients of grants when they apply the entry.

use super::Replica;
use crate::config::{COMMIT_AT_ONCE_US, COMMIT_US};

/// What a leader has told the others of its commit index.
#[derive(Debug, Default)]
pub(super) struct ToldCommit {
    /// The index that all messages with entries since carry at least.
    index: u64,
    /// When to send a newer index at the latest.
    due_us: Option<u64>,
    /// Until when a newer index is sent at once.
    at_once_until_us: u64,
}

impl ToldCommit {
    /// Records that entries are being sent, together with this commit index.
    pub(super) fn sent_with_entries(&mut self, index: u64) {
        self.index = index;
        self.due_us = None;
    }

    pub(super) fn due_us(&self) -> Option<u64> {
        self.due_us
    }
}

impl Replica {
    /// Records that another member has sent commands of its clients. It needs the next commit indexes at once.
    pub fn serve_other_members(&mut self) {
        self.told_commit.at_once_until_us = self.now_us.saturating_add(COMMIT_AT_ONCE_US);
    }

    /// Sends a new commit index to the other members if it is due.
    pub(super) fn tell_commit(&mut self) {
        if !self.leads() {
            self.told_commit.due_us = None;
            return;
        }
        let (told, now_us) = (&mut self.told_commit, self.now_us);
        let committed = self.node.raft.raft_log.committed;
        if committed <= told.index {
            told.due_us = None;
            return;
        }
        let is_due = *told.due_us.get_or_insert(now_us.saturating_add(COMMIT_US)) <= now_us;
        if is_due || now_us < told.at_once_until_us {
            told.sent_with_entries(committed);
            self.node.raft.bcast_append();
        }
    }
}
