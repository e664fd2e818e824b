//! Removes what is too much or too old from the archive.
//!
//! Age removes whole segments. When the archive is too large, the prefixes with the most bytes lose their oldest events
//! first, down to a common size, so that a client that floods its own prefix shortens its own past and no other's.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::sync::Arc;

use tenure_core::RevisionRecords;

use super::frame::{ArchiveFrame, RevisionRange};
use super::segment::{ArchiveSegment, OTHERS, PrefixUse, prefix_of_event};
use super::writer::{ArchiveWriter, sync_dir};
use crate::os;

/// The newest events of every prefix that stay, however much the others have.
const KEPT_EVENTS: u64 = 1_000;

/// The prefixes that are shortened, each with the number of the first segment that keeps its events.
type Cuts = BTreeMap<Box<str>, usize>;

impl ArchiveWriter {
    /// Removes what is too much, and with `aged` what is too old. Returns whether it removed something.
    pub(super) fn retain(&mut self, aged: bool) -> io::Result<bool> {
        let mut removed = false;
        if aged {
            let age_ms = u64::try_from(self.keep.age_max.as_millis()).unwrap_or(u64::MAX);
            let oldest_ms = os::wall_ms().saturating_sub(age_ms);
            if self.open_segment().is_some_and(|open| open.written_ms < oldest_ms) {
                self.seal()?;
            }
            while self.sealed.first().is_some_and(|first| first.written_ms < oldest_ms) {
                self.remove_oldest()?;
                removed = true;
            }
        }
        if self.bytes() <= self.keep.bytes_max {
            return Ok(removed);
        }
        // The target leaves room, so that this is done once for every quarter of the archive that is written.
        let cuts = plan(&self.sealed, self.keep.bytes_max / 4 * 3);
        self.rewrite(&cuts)?;
        // The newest events of very many prefixes may not fit: then age decides.
        while self.bytes() > self.keep.bytes_max && !self.sealed.is_empty() {
            self.remove_oldest()?;
        }
        sync_dir(&self.dir)?;
        Ok(true)
    }

    fn bytes(&self) -> u64 {
        let open = self.open_segment().map_or(0, |open| open.len);
        self.sealed.iter().map(|it| it.len).sum::<u64>() + open
    }

    fn remove_oldest(&mut self) -> io::Result<()> {
        let oldest = self.sealed.remove(0);
        fs::remove_file(&oldest.path)
    }

    /// Writes segments again without what the plan removes, and joins small neighbours.
    fn rewrite(&mut self, cuts: &Cuts) -> io::Result<()> {
        let mut groups: Vec<SegmentMerge> = Vec::new();
        for (number, segment) in self.sealed.iter().enumerate() {
            let removed: BTreeSet<Box<str>> = segment
                .uses
                .keys()
                .filter(|prefix| cuts.get(*prefix).is_some_and(|first| number < *first))
                .cloned()
                .collect();
            let gone: u64 = removed.iter().map(|prefix| segment.uses[prefix].bytes).sum();
            let left = segment.len.saturating_sub(gone);
            match groups.last_mut() {
                Some(group) if group.bytes + left <= self.segment_bytes() => {
                    group.bytes += left;
                    group.parts.push((segment.clone(), removed));
                }
                _ => groups
                    .push(SegmentMerge { bytes: left, parts: vec![(segment.clone(), removed)] }),
            }
        }
        let mut sealed = Vec::with_capacity(groups.len());
        for group in groups {
            match &group.parts[..] {
                [(same, removed)] if removed.is_empty() => sealed.push(same.clone()),
                parts => sealed.push(Arc::new(self.join(parts)?)),
            }
        }
        self.sealed = sealed;
        Ok(())
    }

    /// Writes one segment in the place of several. A crash leaves the old ones, or the new one and perhaps some old
    /// ones, which the next start removes.
    fn join(
        &self,
        parts: &[(Arc<ArchiveSegment>, BTreeSet<Box<str>>)],
    ) -> io::Result<ArchiveSegment> {
        let (first, last) = (&parts[0].0, &parts[parts.len() - 1].0);
        let range = RevisionRange { from: first.range.from, next: last.range.next };
        let mut cuts = BTreeMap::new();
        let mut frames = Vec::new();
        for (segment, removed) in parts {
            cuts.extend(segment.cuts.iter().map(|(prefix, upto)| (prefix.clone(), *upto)));
            cuts.extend(removed.iter().map(|prefix| (prefix.clone(), segment.range.next)));
            match segment.frames() {
                Ok(found) => {
                    frames.extend(found.into_iter().filter_map(|it| without(it, segment, removed)));
                }
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                    frames.push(ArchiveFrame::Hole(segment.range));
                }
                Err(error) => return Err(error),
            }
        }
        frames.insert(0, ArchiveFrame::Covers { range, cuts: cuts.into_iter().collect() });
        let segment = ArchiveSegment::write(&first.path, range.from, &frames)?;
        sync_dir(&self.dir)?;
        for (replaced, _) in &parts[1..] {
            fs::remove_file(&replaced.path)?;
        }
        Ok(segment)
    }
}

/// Segments that become one.
struct SegmentMerge {
    bytes: u64,
    parts: Vec<(Arc<ArchiveSegment>, BTreeSet<Box<str>>)>,
}

/// A frame without the events of some prefixes; none if nothing is left of it.
fn without(
    frame: ArchiveFrame,
    segment: &ArchiveSegment,
    removed: &BTreeSet<Box<str>>,
) -> Option<ArchiveFrame> {
    match frame {
        ArchiveFrame::Records { .. } if removed.is_empty() => Some(frame),
        ArchiveFrame::Records { written_ms, records } => {
            let mut left = Vec::new();
            for record in records.iter() {
                record.put_some(&mut left, |event| {
                    let prefix = prefix_of_event(event);
                    let counted = if segment.uses.contains_key(prefix) { prefix } else { OTHERS };
                    !removed.contains(counted)
                });
            }
            let records = Arc::new(RevisionRecords::decode(&left).ok()?);
            Some(ArchiveFrame::Records { written_ms, records })
        }
        ArchiveFrame::Hole(_) => Some(frame),
        // The new segment has one of its own.
        ArchiveFrame::Covers { .. } => None,
    }
}

/// Decides which prefixes are shortened so that all fit into `target` bytes.
fn plan(segments: &[Arc<ArchiveSegment>], target: u64) -> Cuts {
    let mut all: BTreeMap<&str, PrefixUse> = BTreeMap::new();
    for (prefix, used) in segments.iter().flat_map(|segment| &segment.uses) {
        let sum = all.entry(prefix).or_default();
        sum.events += used.events;
        sum.bytes += used.bytes;
    }
    let share = common_share(all.values().map(|used| used.bytes).collect(), target);
    let floods = all.into_iter().filter(|(_, used)| used.bytes > share).map(|(prefix, _)| prefix);
    let first_kept = |prefix: &str| {
        let (mut events, mut bytes) = (0, 0);
        for (number, segment) in segments.iter().enumerate().rev() {
            if bytes >= share && events >= KEPT_EVENTS {
                return number + 1;
            }
            let used = segment.uses.get(prefix).copied().unwrap_or_default();
            (events, bytes) = (events + used.events, bytes + used.bytes);
        }
        0
    };
    floods
        .map(|prefix| (prefix.into(), first_kept(prefix)))
        .filter(|(_, first)| *first > 0)
        .collect()
}

/// The size such that prefixes cut to it fit into `target` bytes together.
fn common_share(mut sizes: Vec<u64>, target: u64) -> u64 {
    sizes.sort_unstable();
    let (mut left, mut count) = (target, sizes.len() as u64);
    for size in sizes {
        let share = left / count.max(1);
        if size > share {
            return share;
        }
        left -= size;
        count -= 1;
    }
    u64::MAX
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use tenure_types::Revision;

    use super::*;

    #[test]
    fn small_prefixes_keep_all_and_large_ones_share_the_rest() {
        assert_eq!(common_share(vec![], 100), u64::MAX);
        assert_eq!(common_share(vec![10, 20], 100), u64::MAX);
        assert_eq!(common_share(vec![10, 20, 500], 100), 70);
        assert_eq!(common_share(vec![500, 10, 400], 100), 45);
        assert_eq!(common_share(vec![60, 60], 100), 50);
    }

    /// Segments that have these prefixes, each with a number of events of 100 bytes.
    fn segments(dir: &Path, count: u64, uses: &[(&str, u64)]) -> Vec<Arc<ArchiveSegment>> {
        let segment = |number: u64| {
            let path = dir.join(number.to_string());
            let mut segment = ArchiveSegment::create(path, Revision(number + 1)).unwrap();
            for (prefix, events) in uses {
                let used = PrefixUse { events: *events, bytes: events * 100 };
                segment.uses.insert((*prefix).into(), used);
            }
            Arc::new(segment)
        };
        (0..count).map(segment).collect()
    }

    /// How many events of a prefix a plan leaves.
    fn left(segments: &[Arc<ArchiveSegment>], cuts: &Cuts, prefix: &str) -> u64 {
        let first = cuts.get(prefix).copied().unwrap_or(0);
        segments[first..].iter().map(|it| it.uses[prefix].events).sum()
    }

    #[test]
    fn no_plan_leaves_a_prefix_less_than_its_floor() {
        let dir = tempfile::tempdir().unwrap();
        let all = segments(dir.path(), 20, &[("deploy", 45), ("jobs/", 130), ("bench/", 5_000)]);
        // However little may stay.
        for target in [0, 1, 100_000, 300_000, 2_000_000] {
            let cuts = plan(&all, target);
            assert_eq!(left(&all, &cuts, "deploy"), 900, "it has fewer than the floor: {target}");
            assert!((KEPT_EVENTS..=2_600).contains(&left(&all, &cuts, "jobs/")), "{target}");
            assert!(left(&all, &cuts, "bench/") >= KEPT_EVENTS, "{target}");
        }
        // The one that floods is shortened first, and the others not at all as long as that is enough.
        let cuts = plan(&all, 2_000_000);
        assert_eq!(cuts.keys().map(|it| &**it).collect::<Vec<_>>(), ["bench/"]);
        assert_eq!(left(&all, &cuts, "jobs/"), 2_600);
    }

    #[test]
    fn prefixes_beyond_those_that_are_counted_share_one_floor() {
        let dir = tempfile::tempdir().unwrap();
        let all = segments(dir.path(), 20, &[("deploy", 45), (OTHERS, 300)]);
        let cuts = plan(&all, 0);
        assert_eq!(left(&all, &cuts, "deploy"), 900);
        assert_eq!(left(&all, &cuts, OTHERS), 1_200, "the floor of one prefix, to whole segments");
    }
}
