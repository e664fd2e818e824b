//! How much is on its way, and what is too much?

use std::sync::atomic::{AtomicU64, Ordering};

/// Commands on their way, at most, and what they may weigh. Whoever comes then is refused at once.
const COMMANDS_MAX: u64 = 16_384;
const BYTES_MAX: u64 = 8 * 1024 * 1024;
/// Of these, so much is kept for commands that keep or give back what somebody has.
const KEPT: u64 = 4;
/// After so long a refused caller may try again.
pub(crate) const RETRY_AFTER_MS: u64 = 100;

/// How much a command matters to those who already have something.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Weight {
    /// It asks for more.
    Asks,
    /// It renews, releases or gives up: refusing it would make things worse.
    Keeps,
}

/// What is on its way through this member.
#[derive(Default)]
pub(crate) struct Load {
    commands: AtomicU64,
    bytes: AtomicU64,
}

impl Load {
    pub(super) fn add(&self, commands: u64, bytes: u64) {
        self.commands.fetch_add(commands, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn sub(&self, commands: u64, bytes: u64) {
        self.commands.fetch_sub(commands, Ordering::Relaxed);
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Whether there is room for one more of this kind.
    pub(crate) fn has_room(&self, weight: Weight) -> bool {
        let part = match weight {
            Weight::Asks => KEPT - 1,
            Weight::Keeps => KEPT,
        };
        self.commands.load(Ordering::Relaxed) < COMMANDS_MAX / KEPT * part
            && self.bytes.load(Ordering::Relaxed) < BYTES_MAX / KEPT * part
    }

    /// Commands on their way.
    pub(crate) fn commands(&self) -> u64 {
        self.commands.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quarter_is_kept_for_those_who_have_something() {
        let load = Load::default();
        load.add(COMMANDS_MAX / 4 * 3, 0);
        assert!(!load.has_room(Weight::Asks));
        assert!(load.has_room(Weight::Keeps));
        load.add(COMMANDS_MAX / 4, 0);
        assert!(!load.has_room(Weight::Keeps));
        load.sub(COMMANDS_MAX / 4 * 3, 0);
        load.sub(COMMANDS_MAX / 4, 0);
        assert!(load.has_room(Weight::Asks));
        load.add(1, BYTES_MAX);
        assert!(!load.has_room(Weight::Keeps));
    }
}
