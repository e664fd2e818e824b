//! Defines the verbs that permissions name, and the quotas of a principal.

use crate::Name;

/// What a principal may do with the names below a prefix.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Verb {
    /// Read locks, queues, keys and their history.
    Read = 0,
    /// Acquire locks.
    Acquire = 1,
    /// Write and delete keys.
    Keys = 2,
    /// Run for leadership.
    Elect = 3,
    /// Follow an election without taking part.
    Observe = 4,
    /// Get signed tickets for held locks.
    Sign = 5,
    /// Take locks away and end the leases of others.
    Force = 6,
    /// Operate the cluster: limits, levels, compaction, backups, members.
    Operate = 7,
    /// Change roles, principals, credentials and quotas.
    Administer = 8,
}

impl Verb {
    /// All verbs, in the order of their numbers.
    pub const ALL: [Verb; 9] = [
        Verb::Read,
        Verb::Acquire,
        Verb::Keys,
        Verb::Elect,
        Verb::Observe,
        Verb::Sign,
        Verb::Force,
        Verb::Operate,
        Verb::Administer,
    ];

    /// Returns the verb with this number.
    pub fn from_number(number: u8) -> Option<Verb> {
        Self::ALL.get(usize::from(number)).copied()
    }

    /// Returns the verb with this name.
    pub fn from_name(name: &str) -> Option<Verb> {
        Self::ALL.into_iter().find(|verb| verb.name() == name)
    }

    /// Its name in commands, files and errors.
    pub fn name(self) -> &'static str {
        match self {
            Verb::Read => "read",
            Verb::Acquire => "acquire",
            Verb::Keys => "keys",
            Verb::Elect => "elect",
            Verb::Observe => "observe",
            Verb::Sign => "sign",
            Verb::Force => "force",
            Verb::Operate => "operate",
            Verb::Administer => "administer",
        }
    }
}

/// A set of verbs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct VerbSet(u16);

impl VerbSet {
    /// The set of all verbs.
    pub const ALL: VerbSet = VerbSet((1 << Verb::ALL.len()) - 1);

    /// Creates a set of these verbs.
    pub const fn from_verbs(verbs: &[Verb]) -> Self {
        let mut set = Self(0);
        let mut at = 0;
        while at < verbs.len() {
            set = set.with(verbs[at]);
            at += 1;
        }
        set
    }

    /// Creates a set from its bits; `None` if a bit stands for no verb.
    pub fn from_bits(bits: u16) -> Option<Self> {
        (bits & !Self::ALL.0 == 0).then_some(Self(bits))
    }

    /// One bit for each verb, by its number.
    pub fn bits(self) -> u16 {
        self.0
    }

    /// Whether the set has this verb.
    #[inline]
    pub fn contains(self, verb: Verb) -> bool {
        self.0 & 1 << verb as u8 != 0
    }

    /// Whether the two sets have a verb in common.
    #[inline]
    pub fn meets(self, other: VerbSet) -> bool {
        self.0 & other.0 != 0
    }

    /// The set with one more verb.
    #[must_use]
    pub const fn with(self, verb: Verb) -> Self {
        Self(self.0 | 1 << verb as u8)
    }

    /// The verbs of the set, in the order of their numbers.
    pub fn iter(self) -> impl Iterator<Item = Verb> {
        Verb::ALL.into_iter().filter(move |verb| self.contains(*verb))
    }
}

impl FromIterator<Verb> for VerbSet {
    fn from_iter<I: IntoIterator<Item = Verb>>(verbs: I) -> Self {
        verbs.into_iter().fold(Self::default(), Self::with)
    }
}

/// One quantity that is bounded for each principal.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Quota {
    /// Leases.
    Leases = 0,
    /// Places in queues.
    Places = 1,
    /// Locks held.
    Locks = 2,
    /// Keys.
    Keys = 3,
    /// Bytes of the names and values of keys, and of metadata.
    Bytes = 4,
    /// Sessions at one member.
    Sessions = 5,
    /// Watches at one member.
    Watches = 6,
    /// Requests at one member in one second.
    RequestsPerSecond = 7,
    /// Bytes of requests that one member has not answered yet.
    BytesInFlight = 8,
}

impl Quota {
    /// All quotas, in the order of their numbers.
    pub const ALL: [Quota; 9] = [
        Quota::Leases,
        Quota::Places,
        Quota::Locks,
        Quota::Keys,
        Quota::Bytes,
        Quota::Sessions,
        Quota::Watches,
        Quota::RequestsPerSecond,
        Quota::BytesInFlight,
    ];
    /// Those of the replicated state, which are counted when a command is applied. Each member counts the others for
    /// itself.
    pub const OF_STATE: [Quota; 5] =
        [Quota::Leases, Quota::Places, Quota::Locks, Quota::Keys, Quota::Bytes];
    /// Those that each member counts for itself.
    pub const OF_MEMBER: [Quota; 4] =
        [Quota::Sessions, Quota::Watches, Quota::RequestsPerSecond, Quota::BytesInFlight];

    /// Returns the quota with this number.
    pub fn from_number(number: u8) -> Option<Quota> {
        Self::ALL.get(usize::from(number)).copied()
    }

    /// Returns the quota with this name.
    pub fn from_name(name: &str) -> Option<Quota> {
        Self::ALL.into_iter().find(|quota| quota.name() == name)
    }

    /// Its name in commands, files and errors.
    pub fn name(self) -> &'static str {
        match self {
            Quota::Leases => "leases",
            Quota::Places => "places",
            Quota::Locks => "locks",
            Quota::Keys => "keys",
            Quota::Bytes => "bytes",
            Quota::Sessions => "sessions",
            Quota::Watches => "watches",
            Quota::RequestsPerSecond => "requests_per_second",
            Quota::BytesInFlight => "bytes_in_flight",
        }
    }
}

/// Where the value of a quota was set.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum QuotaSource {
    /// For all principals.
    Default,
    /// For this principal.
    Principal,
}

/// Who set the value of a quota, and when. Both are for people: no rule reads them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QuotaSetter {
    /// The principal; `None` if the caller had no name.
    pub principal: Option<Name>,
    /// The leader's wall clock then, in milliseconds since 1970; `None` if it is not known.
    pub unix_ms: Option<u64>,
}

/// The value of each quota; `None` where none is set.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Quotas([Option<u64>; Quota::ALL.len()]);

impl Quotas {
    /// The value of a quota, if one is set.
    #[inline]
    pub fn get(&self, quota: Quota) -> Option<u64> {
        self.0[quota as usize]
    }

    /// Whether one of those that each member counts for itself is set.
    pub fn counts_at_members(&self) -> bool {
        Quota::OF_MEMBER.into_iter().any(|quota| self.get(quota).is_some())
    }

    /// Sets a quota, or removes its value.
    pub fn set(&mut self, quota: Quota, value: Option<u64>) {
        self.0[quota as usize] = value;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_verb_and_quota_has_one_number_and_one_name() {
        for (number, verb) in Verb::ALL.into_iter().enumerate() {
            assert_eq!(verb as usize, number);
            assert_eq!(Verb::from_name(verb.name()), Some(verb));
        }
        for (number, quota) in Quota::ALL.into_iter().enumerate() {
            assert_eq!(quota as usize, number);
            assert_eq!(Quota::from_name(quota.name()), Some(quota));
        }
        assert!(Quota::OF_STATE.into_iter().chain(Quota::OF_MEMBER).eq(Quota::ALL));
    }

    #[test]
    fn a_set_has_the_verbs_that_were_added_and_no_others() {
        let set: VerbSet = [Verb::Read, Verb::Administer].into_iter().collect();
        assert!(set.contains(Verb::Read) && set.contains(Verb::Administer));
        assert!(!set.contains(Verb::Acquire));
        assert_eq!(VerbSet::from_bits(set.bits()), Some(set));
        assert_eq!(VerbSet::from_bits(1 << 9), None);
        assert_eq!(VerbSet::ALL.iter().count(), 9);
    }
}
