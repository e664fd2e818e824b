//! Removes the metrics that name locks or principals, for callers that may not see them.

use crate::metrics::OTHER;

/// Removes the series whose label names a prefix or a principal. The series of all other locks, and those of callers
/// without a principal, name neither and stay.
pub(super) fn without_names(text: &str) -> String {
    let other = format!("prefix=\"{OTHER}\"");
    let stays = |line: &&str| {
        (!line.contains("prefix=\"") || line.contains(&other))
            && (!line.contains("principal=\"") || line.contains("principal=\"\"}"))
    };
    let mut left = String::with_capacity(text.len());
    for line in text.split_inclusive('\n').filter(stays) {
        left.push_str(line);
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_of_prefixes_are_removed_and_all_others_stay() {
        let text = "# TYPE tenure_locks_held gauge\n\
            tenure_locks_held{prefix=\"secret\",mode=\"exclusive\"} 3\n\
            tenure_locks_held{prefix=\"other\",mode=\"any\"} 2\n\
            tenure_wait_seconds_bucket{le=\"0.1\",prefix=\"a \\\"b\\\" prefix\"} 1\n\
            tenure_principal_requests_total{principal=\"ana\"} 3\n\
            tenure_principal_requests_total{principal=\"\"} 4\n\
            tenure_leases 7\n# EOF\n";
        let left = without_names(text);
        assert!(!left.contains("secret") && !left.contains("0.1"), "{left}");
        assert!(!left.contains("ana") && left.contains("principal=\"\"} 4"), "{left}");
        for line in ["# TYPE", "prefix=\"other\"", "tenure_leases 7", "# EOF"] {
            assert!(left.contains(line), "{line}: {left}");
        }
    }
}
