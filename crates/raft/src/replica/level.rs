//! May the level of the machine's rules be raised?
//!
//! A member applies every entry by the rules of the level that the entries before it have set. One
//! that does not know them must not go on, and a leader must not bring it there.

use bytes::Bytes;
use tenure_core::codec::raised_level;

use super::Replica;
use crate::io::Why;
use crate::member::MemberId;

/// How many may say what they know: members, and those who are about to be. Whoever has the members'
/// port can say hello under any id.
const KNOWS_MAX: usize = 1_024;

impl Replica {
    /// Another member says what it knows.
    pub(super) fn hear_level(&mut self, member: MemberId, level: u16) {
        if self.knows.len() >= KNOWS_MAX {
            self.knows.retain(|id, _| self.members.contains(*id));
        }
        self.knows.insert(member, level);
    }

    /// Why these commands must not be proposed: one of them raises the level beyond what some member
    /// is known to know. Whoever joins meanwhile and knows less stops when it learns of it.
    pub(super) fn level_objection(&self, requests: &[Bytes]) -> Option<Why> {
        let level = requests.iter().filter_map(|request| raised_level(request)).max()?;
        let known = |id: MemberId| {
            let me = id == self.config.id;
            if me { Some(self.config.level_known) } else { self.knows.get(&id).copied() }
        };
        let mut members = self.members.all().into_iter().map(|id| (id, known(id)));
        let (member, known) = members.find(|(_, known)| known.is_none_or(|known| known < level))?;
        Some(Why::LevelNotKnown { level, member, known })
    }
}
