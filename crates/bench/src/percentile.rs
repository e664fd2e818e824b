//! Finds percentiles of sorted measurements.

/// The smallest value that `per_mille` of 1,000 values do not exceed. The values are in ascending order.
pub fn percentile<T: Copy>(sorted: &[T], per_mille: usize) -> Option<T> {
    let at = (sorted.len() * per_mille).div_ceil(1_000).saturating_sub(1);
    sorted.get(at).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_one_of_the_values() {
        let values: Vec<u64> = (1..=1_000).collect();
        let found = [0, 500, 990, 999, 1_000].map(|per_mille| percentile(&values, per_mille));
        assert_eq!(found, [Some(1), Some(500), Some(990), Some(999), Some(1_000)]);
        assert_eq!(percentile(&[7], 500), Some(7));
        assert_eq!(percentile::<u64>(&[], 500), None);
    }
}
