//! Finds the watches that an event concerns.
//!
//! Watches with the same filter form a group. Groups are found by the name that an event concerns: one lookup among
//! exact names, and a walk through the prefixes that the name begins with.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use tenure_core::RevisionRecord;

use super::shared::{Gathered, OwnedFilter, SharedBatch};
use super::slot::WatchSlot;

/// The position of a watch: its group, and its number in the group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct GroupPlace {
    pub(super) group: usize,
    at: usize,
}

/// All watches, by filter.
#[derive(Default)]
pub(super) struct Index {
    /// A group keeps its number while it has watches.
    groups: Vec<Option<WatchGroup>>,
    free: Vec<usize>,
    /// The groups without and with previous values.
    names: [WatchNames; 2],
}

#[derive(Default)]
struct WatchNames {
    all: Option<usize>,
    exact: BTreeMap<String, usize>,
    prefix: BTreeMap<String, usize>,
}

struct WatchGroup {
    filter: OwnedFilter,
    previous: bool,
    /// A watch keeps its number: the hub serves a group by number while watches come and go.
    slots: Vec<Option<Arc<WatchSlot>>>,
    free: Vec<usize>,
    len: usize,
}

impl Index {
    /// Adds a watch.
    pub(super) fn add(
        &mut self,
        filter: &OwnedFilter,
        previous: bool,
        slot: Arc<WatchSlot>,
    ) -> GroupPlace {
        let number = match self.find(filter, previous) {
            Some(number) => number,
            None => self.open(filter, previous),
        };
        let group = self.groups[number].as_mut().expect("a group that is found is there");
        group.len += 1;
        let at = group.free.pop().unwrap_or_else(|| {
            group.slots.push(None);
            group.slots.len() - 1
        });
        group.slots[at] = Some(slot);
        GroupPlace { group: number, at }
    }

    /// Removes a watch.
    pub(super) fn remove(&mut self, permit: GroupPlace) {
        let place = &mut self.groups[permit.group];
        let Some(group) = place else { return };
        if group.slots[permit.at].take().is_none() {
            return;
        }
        group.free.push(permit.at);
        group.len -= 1;
        if group.len > 0 {
            return;
        }
        let names = &mut self.names[usize::from(group.previous)];
        match &group.filter {
            OwnedFilter::All => names.all = None,
            OwnedFilter::Exact(name) => drop(names.exact.remove(name)),
            OwnedFilter::Prefix(prefix) => drop(names.prefix.remove(prefix)),
        }
        *place = None;
        self.free.push(permit.group);
    }

    /// Up to `max` watches of a group, and the number to go on from; none when there are no more.
    pub(super) fn some(
        &self,
        group: usize,
        from: usize,
        max: usize,
    ) -> Option<(Vec<Arc<WatchSlot>>, usize)> {
        let slots = &self.groups.get(group)?.as_ref()?.slots;
        let some = slots.get(from..).filter(|rest| !rest.is_empty())?;
        let some = &some[..max.min(some.len())];
        Some((some.iter().flatten().cloned().collect(), from + some.len()))
    }

    /// Every watch.
    pub(super) fn slots(&self) -> impl Iterator<Item = &Arc<WatchSlot>> {
        self.groups.iter().flatten().flat_map(|group| group.slots.iter().flatten())
    }

    /// The events of a record, by the group that they concern.
    pub(super) fn split(&self, record: RevisionRecord<'_>) -> Vec<(usize, Arc<SharedBatch>)> {
        let mut seen: BTreeMap<usize, Gathered> = BTreeMap::new();
        for recorded in record.events() {
            for (previous, names) in [false, true].into_iter().zip(&self.names) {
                let with = |group| seen.entry(group).or_default().add(&recorded, previous);
                match recorded.drained() {
                    Some(prefix) => names.each_in_common(prefix, with),
                    None => names.each(recorded.name(), with),
                }
            }
        }
        let (revision, label) = (record.revision, record.label());
        let share = |(group, seen): (usize, Gathered)| Some((group, seen.share(revision, label)?));
        seen.into_iter().filter_map(share).collect()
    }

    fn find(&self, filter: &OwnedFilter, previous: bool) -> Option<usize> {
        let names = &self.names[usize::from(previous)];
        match filter {
            OwnedFilter::All => names.all,
            OwnedFilter::Exact(name) => names.exact.get(name).copied(),
            OwnedFilter::Prefix(prefix) => names.prefix.get(prefix).copied(),
        }
    }

    fn open(&mut self, filter: &OwnedFilter, previous: bool) -> usize {
        let number = self.free.pop().unwrap_or_else(|| {
            self.groups.push(None);
            self.groups.len() - 1
        });
        let names = &mut self.names[usize::from(previous)];
        match filter {
            OwnedFilter::All => names.all = Some(number),
            OwnedFilter::Exact(name) => drop(names.exact.insert(name.clone(), number)),
            OwnedFilter::Prefix(prefix) => drop(names.prefix.insert(prefix.clone(), number)),
        }
        let filter = filter.clone();
        let group = WatchGroup { filter, previous, slots: Vec::new(), free: Vec::new(), len: 0 };
        self.groups[number] = Some(group);
        number
    }
}

impl WatchNames {
    /// Calls `with` for every group that an event with this name concerns.
    fn each(&self, name: Option<&str>, mut with: impl FnMut(usize)) {
        self.all.into_iter().for_each(&mut with);
        let Some(name) = name else { return };
        self.exact.get(name).copied().into_iter().for_each(&mut with);
        self.each_prefix_of(name, with);
    }

    /// Calls `with` for every group of a prefix that has names in common with this prefix.
    fn each_in_common(&self, prefix: &str, mut with: impl FnMut(usize)) {
        self.all.into_iter().for_each(&mut with);
        self.each_prefix_of(prefix, &mut with);
        let longer = (Bound::Excluded(prefix), Bound::Unbounded);
        let longer = self.prefix.range::<str, _>(longer);
        let below = longer.take_while(|(other, _)| other.starts_with(prefix));
        below.for_each(|(_, group)| with(*group));
    }

    /// Calls `with` for every group of a prefix that the name begins with.
    fn each_prefix_of(&self, name: &str, mut with: impl FnMut(usize)) {
        // Search for the largest prefix that does not sort after the name, again and again with less of the name. A
        // prefix of the name that is longer than the part both share would have been found before.
        let mut left = name.as_bytes();
        while let Some((prefix, group)) = last_not_after(&self.prefix, left) {
            let shared = prefix.bytes().zip(name.bytes()).take_while(|(a, b)| a == b).count();
            if shared < prefix.len() {
                left = &left[..shared];
                continue;
            }
            with(group);
            let Some(shorter) = shared.checked_sub(1) else { return };
            left = &left[..shorter];
        }
    }
}

/// The greatest key that does not sort after these bytes, which may end inside a character.
fn last_not_after<'a>(map: &'a BTreeMap<String, usize>, bytes: &[u8]) -> Option<(&'a str, usize)> {
    // A key that ends inside a cut character cannot be a prefix of a name, so whole characters are enough.
    let whole = match str::from_utf8(bytes) {
        Ok(whole) => whole,
        Err(cut) => str::from_utf8(&bytes[..cut.valid_up_to()]).unwrap_or_default(),
    };
    let range = (Bound::Unbounded, Bound::Included(whole));
    map.range::<str, _>(range).next_back().map(|(key, group)| (key.as_str(), *group))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drained_prefix_finds_the_prefixes_that_have_names_in_common_with_it() {
        let prefixes = ["", "db/", "db/eu/", "db/eu/a", "db/us/", "dc/", "d"];
        let names = WatchNames {
            all: Some(100),
            exact: BTreeMap::from([("db/eu/".to_owned(), 200)]),
            prefix: prefixes.iter().map(|prefix| (*prefix).to_owned()).zip(0..).collect(),
        };
        for drained in ["", "d", "db/", "db/eu/", "db/eu/a/b", "x"] {
            let mut found = Vec::new();
            names.each_in_common(drained, |group| found.push(group));
            found.sort_unstable();
            let common = |prefix: &str| prefix.starts_with(drained) || drained.starts_with(prefix);
            let all = prefixes.iter().enumerate();
            let expected = all.filter(|(_, prefix)| common(prefix)).map(|(at, _)| at);
            let expected: Vec<usize> = expected.chain([100]).collect();
            assert_eq!(found, expected, "{drained:?}");
        }
    }

    #[test]
    fn a_name_finds_exactly_the_prefixes_it_begins_with() {
        let parts = ["", "a", "b", "ab", "ä", "äb", "/", "a/", "aä"];
        let mut names = WatchNames::default();
        let mut all = Vec::new();
        for (number, (first, second)) in parts
            .iter()
            .flat_map(|first| parts.iter().map(move |second| (first, second)))
            .enumerate()
        {
            let prefix = format!("{first}{second}");
            // Some are left out, so that the walk meets others in their place.
            if number % 3 != 1 && names.prefix.insert(prefix.clone(), all.len()).is_none() {
                all.push(prefix);
            }
        }
        names.prefix = all.iter().cloned().zip(0..).collect();
        let mut hits = 0;
        for (first, second) in parts.iter().flat_map(|a| parts.iter().map(move |b| (a, b))) {
            for third in parts {
                let name = format!("{first}{second}{third}");
                let mut found = Vec::new();
                names.each(Some(&name), |group| found.push(group));
                found.sort_unstable();
                let begins = |(_, prefix): &(usize, &String)| name.starts_with(prefix.as_str());
                let expected: Vec<usize> =
                    all.iter().enumerate().filter(begins).map(|(at, _)| at).collect();
                assert_eq!(found, expected, "{name:?}");
                hits += found.len();
            }
        }
        assert!(hits > 100, "the test has seen {hits} prefixes");
    }
}
