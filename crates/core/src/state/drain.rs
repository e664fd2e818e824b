//! Keeps the prefixes that are closed to new grants, and finds the one that a name is below.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use core::ops::Bound;
use tenure_types::{Name, Revision};

/// The most prefixes that can be drained at once.
pub(crate) const DRAINS_MAX: usize = 1_000;

/// The weight of a drained prefix in `state_bytes`, without its texts.
const DRAIN_BYTES: u64 = 64;

/// Why a prefix is closed, and since when.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Drain {
    /// The revision that closed it.
    pub(crate) created: Revision,
    /// The clock when it was closed.
    pub(crate) since_ms: u64,
    /// The name that the operator gave.
    pub(crate) by: Option<Name>,
    /// The authenticated caller.
    pub(crate) principal: Option<Name>,
    /// The reason that the operator gave; may be empty.
    pub(crate) reason: Box<str>,
}

/// The drained prefixes. The empty prefix is that of every name.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Drains(BTreeMap<Box<str>, Drain>);

impl Drains {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn get(&self, prefix: &str) -> Option<&Drain> {
        self.0.get(prefix)
    }

    pub(crate) fn insert(&mut self, prefix: &str, drain: Drain) {
        self.0.insert(Box::from(prefix), drain);
    }

    pub(crate) fn remove(&mut self, prefix: &str) -> Option<Drain> {
        self.0.remove(prefix)
    }

    /// The prefixes in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &Drain)> {
        self.0.iter().map(|(prefix, drain)| (&**prefix, drain))
    }

    /// The longest drained prefix of a name. Costs nothing while no prefix is drained.
    ///
    /// It takes the greatest entry that is not above the name. If that is no prefix of the name, every drained prefix
    /// of the name is a prefix of the part that both share, so it searches again with that part.
    pub(crate) fn covering(&self, name: &str) -> Option<(&str, &Drain)> {
        if self.0.is_empty() {
            return None;
        }
        let mut head = name;
        loop {
            let not_above = (Bound::Unbounded, Bound::Included(head));
            let (prefix, drain) = self.0.range::<str, _>(not_above).next_back()?;
            if head.starts_with(&**prefix) {
                return Some((prefix, drain));
            }
            head = common(head, prefix);
        }
    }

    /// The weight of all of them in `state_bytes`.
    pub(crate) fn weight(&self) -> u64 {
        self.iter().map(|(prefix, drain)| drain.weight(prefix)).sum()
    }
}

impl Drain {
    /// The weight in `state_bytes`.
    pub(crate) fn weight(&self, prefix: &str) -> u64 {
        let name = |name: &Option<Name>| name.as_ref().map_or(0, |name| name.as_bytes().len());
        let texts = prefix.len() + name(&self.by) + name(&self.principal) + self.reason.len();
        DRAIN_BYTES + texts as u64
    }
}

/// What two texts have in common at their beginning, in whole characters.
fn common<'a>(one: &'a str, other: &str) -> &'a str {
    let same = one.char_indices().zip(other.chars()).find(|((_, a), b)| a != b);
    match same {
        Some(((at, _), _)) => &one[..at],
        None => &one[..one.len().min(other.len())],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn drains(prefixes: &[&str]) -> Drains {
        let mut drains = Drains::default();
        for prefix in prefixes {
            let reason = Box::from("");
            let (created, since_ms) = (Revision(1), 0);
            let drain = Drain { created, since_ms, by: None, principal: None, reason };
            drains.insert(prefix, drain);
        }
        drains
    }

    #[test]
    fn a_name_is_below_the_longest_prefix_that_it_begins_with() {
        let prefixes = ["a", "ab/", "ab/c", "ab/cz", "b", "db/eu/", "é", "db"];
        let drains = drains(&prefixes);
        let names = [
            "a", "ab", "ab/", "ab/b", "ab/cc", "ab/d", "b", "c", "db", "db/eu", "db/eu/x", "d",
            "db/ev", "è", "é", "éa", "z", "ab/czz",
        ];
        for name in names {
            let longest = prefixes.iter().filter(|prefix| name.starts_with(**prefix));
            let longest = longest.max_by_key(|prefix| prefix.len()).copied();
            assert_eq!(drains.covering(name).map(|(prefix, _)| prefix), longest, "{name}");
        }
    }

    #[test]
    fn the_empty_prefix_is_that_of_every_name() {
        assert_eq!(drains(&[]).covering("x"), None);
        assert_eq!(drains(&["", "y"]).covering("x").map(|(prefix, _)| prefix), Some(""));
        assert_eq!(drains(&["", "y"]).iter().map(|(p, _)| p).collect::<Vec<_>>(), ["", "y"]);
    }
}
