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

/// With so many batches on their way, each mostly one client's one command, those that come now may wait for others: an
/// entry costs about the same whether it has one command or a hundred, and with so many nobody's answer comes sooner
/// for an entry of its own.
const CROWD: u64 = 64;
const CROWD_GATHERS_US: u64 = 200;

/// What is on its way through this member.
#[derive(Default)]
pub(crate) struct Load {
    batches: AtomicU64,
    commands: AtomicU64,
    bytes: AtomicU64,
}

impl Load {
    /// Takes note of a batch; tells how long it should wait for others.
    pub(super) fn add(&self, commands: u64, bytes: u64) -> u64 {
        self.commands.fetch_add(commands, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let others = self.batches.fetch_add(1, Ordering::Relaxed);
        if others >= CROWD { CROWD_GATHERS_US } else { 0 }
    }

    pub(super) fn sub(&self, commands: u64, bytes: u64) {
        self.batches.fetch_sub(1, Ordering::Relaxed);
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

    #[test]
    fn only_one_of_many_waits_for_others() {
        let load = Load::default();
        assert!((0..CROWD).all(|_| load.add(1, 0) == 0));
        assert_eq!(load.add(1, 0), CROWD_GATHERS_US);
        load.sub(1, 0);
        load.sub(1, 0);
        assert_eq!(load.add(100, 0), 0);
    }
}
