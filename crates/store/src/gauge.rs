//! Decides from the free disk space whether the state may grow.
//!
//! Growth stops before the log needs the reserve: as soon as less than one further segment fits beside it. Growth
//! resumes when two segments fit, so that a disk near the limit does not change the answer at every check.

/// Decides from the free space whether the state may grow.
#[derive(Debug, Clone, Copy)]
pub struct Gauge {
    segment_bytes: u64,
    reserve_bytes: u64,
    short: bool,
    /// A write found no space, whatever the free bytes say: a quota may lie below them.
    refused: bool,
}

/// The free space of a disk at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Free {
    /// Bytes that can still be allocated.
    pub bytes: u64,
    /// Whether the reserve is held in addition to the free bytes.
    pub reserve_held: bool,
}

impl Gauge {
    /// A gauge for a log with segments and a reserve of these sizes.
    pub fn new(segment_bytes: u32, reserve_bytes: u64) -> Self {
        let segment_bytes = u64::from(segment_bytes);
        Self { segment_bytes, reserve_bytes, short: false, refused: false }
    }

    /// Records that a write found no space. The disk counts as short of space until the reserve is held again.
    pub fn refuse(&mut self) {
        self.refused = true;
    }

    /// Takes the free space and returns whether the disk is short of space.
    pub fn update(&mut self, free: Free) -> bool {
        self.refused &= !free.reserve_held;
        let held = if free.reserve_held { self.reserve_bytes } else { 0 };
        let segments = if self.short { 2 } else { 1 };
        let wanted = self.reserve_bytes.saturating_add(segments * self.segment_bytes);
        self.short = self.refused || free.bytes.saturating_add(held) < wanted;
        self.short
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn free(bytes: u64, reserve_held: bool) -> Free {
        Free { bytes, reserve_held }
    }

    #[test]
    fn growth_ends_before_the_reserve_is_needed_and_begins_again_later() {
        let mut gauge = Gauge::new(100, 1000);
        assert!(!gauge.update(free(100, true)), "one segment fits");
        assert!(gauge.update(free(99, true)));
        assert!(gauge.update(free(199, true)), "one is not enough to begin again");
        assert!(!gauge.update(free(200, true)));
        assert!(!gauge.update(free(1100, false)), "a reserve that can be taken is as good");
        assert!(gauge.update(free(1099, false)));
    }

    #[test]
    fn a_refused_write_counts_until_the_reserve_is_held_again() {
        let mut gauge = Gauge::new(100, 1000);
        gauge.refuse();
        assert!(gauge.update(free(u64::MAX, false)), "the free bytes are not ours to use");
        assert!(!gauge.update(free(200, true)));
    }
}
