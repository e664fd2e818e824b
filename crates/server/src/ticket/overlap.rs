//! Computes when a retired key is removed from the set.
//!
//! The machine's clock stands still while nothing is written, and the entry that retires a key advances it by all the
//! time since. So the caller first advances the clock with an entry that does nothing else, and then reads it.

use std::future::Future;

/// How long the entry that retires a key may take after the clock was read, without cost to the overlap.
const WRITTEN_WITHIN_MS: u64 = 1_000;

/// The time at which a key that is retired now with this overlap is removed, by a clock that was advanced just before.
pub(crate) fn retires_ms(clock_ms: u64, overlap_ms: u64) -> u64 {
    // Without an overlap the key is removed at once.
    let late_ms = if overlap_ms == 0 { 0 } else { WRITTEN_WITHIN_MS };
    clock_ms.saturating_add(overlap_ms).saturating_add(late_ms)
}

/// Reads something by the machine's clock after the clock was moved.
pub(crate) async fn read_after_moving<T, E>(
    moved: impl Future<Output = Result<(), E>>,
    read: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    if !mutant!("key_overlap_from_a_still_clock") {
        moved.await?;
    }
    read.await
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::convert::Infallible;

    use super::*;
    use crate::plant;

    /// How long a key is still good that is retired with this overlap after the cluster was idle for a day.
    fn overlap_after_a_day(overlap_ms: u64) -> u64 {
        let (counted_ms, clock_ms) = (86_400_000, Cell::new(1_000));
        let moved = async {
            clock_ms.set(counted_ms);
            Ok::<(), Infallible>(())
        };
        let read = read_after_moving(moved, async { Ok(clock_ms.get()) });
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let Ok(read_ms) = runtime.block_on(read);
        let retires_ms = retires_ms(read_ms, overlap_ms);
        // The entry that retires it has the leader's count.
        retires_ms.saturating_sub(counted_ms)
    }

    #[test]
    fn an_idle_cluster_has_the_whole_overlap_and_the_planted_still_clock_is_caught() {
        let is_whole = |left_ms: u64| left_ms >= 30_000;
        let whole =
            "T8: a key that is retired after a day without writes stays valid for its overlap";
        assert!(is_whole(overlap_after_a_day(30_000)), "{whole}");
        let planted = plant::with("key_overlap_from_a_still_clock", || overlap_after_a_day(30_000));
        assert!(!is_whole(planted), "T8: the planted bug is not noticed");
    }

    #[test]
    fn an_overlap_is_never_shorter_than_asked_and_none_is_none() {
        assert_eq!(retires_ms(500, 0), 500);
        assert_eq!(retires_ms(500, 30_000), 30_500 + WRITTEN_WITHIN_MS);
        assert_eq!(retires_ms(u64::MAX - 1, 30_000), u64::MAX);
    }
}
