//! Checks the answers that clients got against each other and against the cluster's final state.
//!
//! Clients record the answers while faults happen; the check runs afterwards. A request that was never answered counts
//! as neither done nor not done. Times are those of the test's own clock, which all clients share.

use std::collections::{BTreeMap, BTreeSet};

/// A command that a client was told had been done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Acknowledged {
    /// When the client first sent it.
    pub(crate) asked_us: u64,
    pub(crate) told_us: u64,
    /// Whether the command was certainly sent once, both by the client and by the member that it asked. The answer to
    /// a repetition has a newer revision than the command's own.
    pub(crate) once: bool,
    pub(crate) revision: u64,
    pub(crate) done: Done,
}

/// The command with the values of its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Done {
    Put { key: String, value: String, version: u64 },
    Leased { lease: u64 },
    Renewed { lease: u64 },
    Queued { lock: String, lease: u64, place: u64 },
    Granted { lock: String, lease: u64, place: u64, token: u64 },
    Released { lock: String, token: u64 },
}

/// A request that was never answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unsure {
    Put { key: String },
    Release { lock: String, token: u64, asked_us: u64 },
}

/// What one client, or all of them, recorded.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    pub(crate) told: Vec<Acknowledged>,
    pub(crate) unsure: Vec<Unsure>,
}

/// The cluster's final state.
#[derive(Clone, Debug, Default)]
pub(crate) struct Holds {
    /// The value and version of each key.
    pub(crate) keys: BTreeMap<String, (String, u64)>,
    /// The lease and token of each held lock.
    pub(crate) locks: BTreeMap<String, (u64, u64)>,
    pub(crate) leases: BTreeSet<u64>,
    pub(crate) revision: u64,
}

/// A grant and how it ended.
struct Grant<'a> {
    told: &'a Acknowledged,
    lease: u64,
    place: u64,
    token: u64,
    /// When the release was requested, and its revision if that is known exactly.
    released: Option<(u64, Option<u64>)>,
    /// Whether a client was told of the release.
    confirmed: bool,
}

impl Acknowledged {
    /// Whether the revision is the command's own, not a newer one.
    fn is_exact(&self) -> bool {
        self.once
    }
}

impl History {
    pub(crate) fn join(all: impl IntoIterator<Item = Self>) -> Self {
        let mut joined = Self::default();
        for one in all {
            joined.told.extend(one.told);
            joined.unsure.extend(one.unsure);
        }
        joined
    }

    pub(crate) fn grants(&self) -> usize {
        self.told.iter().filter(|told| matches!(told.done, Done::Granted { .. })).count()
    }

    /// Everything that is inconsistent; empty if all is well.
    pub(crate) fn complaints(&self, holds: &Holds) -> Vec<String> {
        let mut found = Vec::new();
        self.check_keys(holds, &mut found);
        self.check_leases(holds, &mut found);
        self.check_revisions(holds, &mut found);
        let locks = self.locks(&mut found);
        check_tokens(&locks, &mut found);
        for (lock, grants) in &locks {
            check_lock(lock, grants, holds, &mut found);
        }
        self.check_places(&mut found);
        found
    }

    /// S8 and S7: nothing acknowledged is lost, nothing is done twice.
    fn check_keys(&self, holds: &Holds, found: &mut Vec<String>) {
        let mut newest: BTreeMap<&str, (u64, &str)> = BTreeMap::new();
        for told in &self.told {
            let Done::Put { key, value, version } = &told.done else { continue };
            let (before, _) = newest.get(key.as_str()).copied().unwrap_or((0, ""));
            // Each key has one writer, which repeats one value until it is answered before it writes the next.
            if *version != before + 1 {
                found.push(format!("put {key} {value}: version {version} after {before}"));
            }
            newest.insert(key, (*version, value));
        }
        let unsure = |key: &str| {
            self.unsure.iter().any(|it| matches!(it, Unsure::Put { key: other } if other == key))
        };
        for (key, (version, value)) in newest {
            match holds.keys.get(key) {
                None => found.push(format!("lost: key {key} is absent, {value} was acknowledged")),
                Some((held, at)) if *at == version && held != value => {
                    found.push(format!("lost: key {key} holds {held}, {value} was acknowledged"));
                }
                Some((held, at)) if *at < version => {
                    found.push(format!("lost: key {key} holds {held} at {at}, not {version}"));
                }
                Some((held, at)) if *at > version && !unsure(key) => {
                    found.push(format!(
                        "key {key} holds {held} at {at}, no client wrote after {version}"
                    ));
                }
                Some(_) => {}
            }
        }
    }

    fn check_leases(&self, holds: &Holds, found: &mut Vec<String>) {
        for told in &self.told {
            if let Done::Leased { lease } | Done::Renewed { lease } = told.done
                && !holds.leases.contains(&lease)
            {
                found.push(format!("lost: lease {lease} was acknowledged and is gone"));
            }
        }
    }

    /// Revisions date changes: no two changes share one, and they follow the order of time.
    fn check_revisions(&self, holds: &Holds, found: &mut Vec<String>) {
        let mut owners: BTreeMap<u64, &Acknowledged> = BTreeMap::new();
        for told in self.told.iter().filter(|told| told.is_exact()) {
            if matches!(told.done, Done::Put { .. } | Done::Released { .. })
                && let Some(other) = owners.insert(told.revision, told)
            {
                found.push(format!("one revision for two changes: {other:?} and {told:?}"));
            }
        }
        let mut asked: Vec<&Acknowledged> = self.told.iter().collect();
        asked.sort_by_key(|told| told.asked_us);
        let mut answered = asked.clone();
        answered.sort_by_key(|told| told.told_us);
        let mut answered = answered.into_iter().peekable();
        let mut newest = 0;
        for told in asked {
            while let Some(before) = answered.next_if(|before| before.told_us < told.asked_us) {
                newest = newest.max(before.revision);
            }
            if told.revision < newest {
                found.push(format!("revision went back: {told:?} after revision {newest}"));
            }
        }
        for told in self.told.iter().filter(|told| told.revision > holds.revision) {
            found.push(format!("lost: {told:?}, the cluster is at revision {}", holds.revision));
        }
    }

    /// The grants of each lock, ordered by token.
    fn locks(&self, found: &mut Vec<String>) -> BTreeMap<&str, Vec<Grant<'_>>> {
        let mut releases = BTreeMap::new();
        for told in &self.told {
            if let Done::Released { lock, token } = &told.done {
                let exact = told.is_exact().then_some(told.revision);
                releases.insert((lock.as_str(), *token), (told.asked_us, exact, true));
            }
        }
        for unsure in &self.unsure {
            if let Unsure::Release { lock, token, asked_us } = unsure {
                releases.insert((lock.as_str(), *token), (*asked_us, None, false));
            }
        }
        let mut locks: BTreeMap<&str, Vec<Grant<'_>>> = BTreeMap::new();
        for told in &self.told {
            let Done::Granted { lock, lease, place, token } = &told.done else { continue };
            let release = releases.remove(&(lock.as_str(), *token));
            locks.entry(lock).or_default().push(Grant {
                told,
                lease: *lease,
                place: *place,
                token: *token,
                released: release.map(|(asked_us, exact, _)| (asked_us, exact)),
                confirmed: release.is_some_and(|(.., confirmed)| confirmed),
            });
        }
        for ((lock, token), _) in releases {
            found
                .push(format!("lock {lock} was released under token {token}, which no client got"));
        }
        for grants in locks.values_mut() {
            grants.sort_by_key(|grant| grant.token);
        }
        locks
    }

    /// Q1: places are numbered in the order of the requests.
    fn check_places(&self, found: &mut Vec<String>) {
        // The first answer to a request names its place, whether it waits or holds.
        let mut asks: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
        for told in &self.told {
            if let Done::Queued { place, .. } | Done::Granted { place, .. } = told.done {
                let ask = asks.entry(place).or_insert((told.asked_us, told.told_us));
                *ask = (ask.0.min(told.asked_us), ask.1.min(told.told_us));
            }
        }
        let mut asked: Vec<(u64, u64)> = asks.iter().map(|(place, ask)| (ask.0, *place)).collect();
        asked.sort_unstable();
        let mut told: Vec<(u64, u64)> = asks.iter().map(|(place, ask)| (ask.1, *place)).collect();
        told.sort_unstable();
        let mut told = told.into_iter().peekable();
        let mut newest = 0;
        for (asked_us, place) in asked {
            while let Some((_, before)) = told.next_if(|(told_us, _)| *told_us < asked_us) {
                newest = newest.max(before);
            }
            if place < newest {
                found.push(format!("queue order: place {place} was asked for after {newest}"));
            }
        }
    }
}

/// S2: every token is larger than every one before it, in the whole cluster.
fn check_tokens(locks: &BTreeMap<&str, Vec<Grant<'_>>>, found: &mut Vec<String>) {
    let mut asked: Vec<&Grant<'_>> = locks.values().flatten().collect();
    asked.sort_by_key(|grant| grant.told.asked_us);
    let mut answered = asked.clone();
    answered.sort_by_key(|grant| grant.told.told_us);
    let mut answered = answered.into_iter().peekable();
    let mut newest = 0;
    let mut seen = BTreeSet::new();
    for grant in asked {
        while let Some(before) =
            answered.next_if(|before| before.told.told_us < grant.told.asked_us)
        {
            newest = newest.max(before.token);
        }
        if grant.token <= newest {
            found.push(format!("token {} was granted after {newest}", grant.token));
        }
        if !seen.insert(grant.token) {
            found.push(format!("token {} was granted twice", grant.token));
        }
    }
}

/// S1, Q1 and S8 of one lock.
fn check_lock(lock: &str, grants: &[Grant<'_>], holds: &Holds, found: &mut Vec<String>) {
    for pair in grants.windows(2) {
        let [first, next] = pair else { continue };
        let (token, then) = (first.token, next.token);
        if first.place > next.place {
            found.push(format!("queue order: lock {lock} went to token {token} before {then}"));
        }
        match first.released {
            None => {
                found.push(format!("two holders of {lock}: {token} was never released, {then}"));
            }
            Some((asked_us, _)) if next.told.told_us < asked_us => {
                found.push(format!("two holders of {lock}: {then} before the release of {token}"));
            }
            Some((_, Some(revision))) if next.told.revision < revision => {
                let at = next.told.revision;
                found.push(format!(
                    "two holders of {lock}: {then} at revision {at}, {token} until {revision}"
                ));
            }
            Some(_) => {}
        }
    }
    let Some(last) = grants.last() else { return };
    let held = holds.locks.get(lock).copied();
    if last.released.is_none() && held != Some((last.lease, last.token)) {
        found.push(format!("lost: lock {lock} is {held:?}, token {} was granted", last.token));
    }
    for grant in grants.iter().filter(|grant| grant.confirmed) {
        if held.is_some_and(|(_, token)| token == grant.token) {
            found.push(format!("lost: the release of {lock} under token {}", grant.token));
        }
    }
    if let Some((_, token)) = held.filter(|(_, token)| *token < last.token) {
        found.push(format!("lock {lock} is held under {token}, {} was granted", last.token));
    }
}
