//! Decides whether the level of the machine may be raised.
//!
//! A member applies every entry by the rules of the level that the entries before it have set. A member that does not
//! know the level must stop, and a leader must not cause that.

use bytes::Bytes;
use tenure_core::codec::raised_level;

use super::Replica;
use crate::io::RejectReason;
use crate::member::MemberId;

/// The most ids whose level is remembered: members, and those about to join. Any process that can reach the member port
/// can introduce itself under any id.
const KNOWS_MAX: usize = 1_024;

impl Replica {
    /// Records the level that another member knows.
    pub(super) fn on_level(&mut self, member: MemberId, level: u16) {
        if self.knows.len() >= KNOWS_MAX {
            self.knows.retain(|id, _| self.members.contains(*id));
        }
        self.knows.insert(member, level);
    }

    /// Why these commands must not be proposed: one of them raises the level above what some member is known to know. A
    /// member that joins meanwhile and knows less stops when it learns of it.
    pub(super) fn level_objection(&self, requests: &[Bytes]) -> Option<RejectReason> {
        let level = requests.iter().filter_map(|request| raised_level(request)).max()?;
        let known = |id: MemberId| {
            let me = id == self.config.id;
            if me { Some(self.config.level_known) } else { self.knows.get(&id).copied() }
        };
        let mut members = self.members.all().into_iter().map(|id| (id, known(id)));
        let (member, known) = members.find(|(_, known)| known.is_none_or(|known| known < level))?;
        Some(RejectReason::LevelNotKnown { level, member, known })
    }
}
