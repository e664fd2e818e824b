//! Computes when a retired key is removed from the set.
//!
//! The machine's clock stands still while nothing is written, and the entry that retires a key advances it by all the
//! time since. So the caller first advances the clock with an entry that does nothing else, and then reads it.

/// How long after the clock was read the entry that retires a key may be applied without shortening the overlap.
const WRITTEN_WITHIN_MS: u64 = 1_000;

/// The time at which a key that is retired now with this overlap is removed, by a clock that was advanced just before.
pub(crate) fn retires_ms(clock_ms: u64, overlap_ms: u64) -> u64 {
    // Without an overlap the key is removed at once.
    let late_ms = if overlap_ms == 0 { 0 } else { WRITTEN_WITHIN_MS };
    clock_ms.saturating_add(overlap_ms).saturating_add(late_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_overlap_is_never_shorter_than_asked_and_none_is_none() {
        assert_eq!(retires_ms(500, 0), 500);
        assert_eq!(retires_ms(500, 30_000), 30_500 + WRITTEN_WITHIN_MS);
        assert_eq!(retires_ms(u64::MAX - 1, 30_000), u64::MAX);
    }
}
