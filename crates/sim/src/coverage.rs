//! Counts which answers, refusals and events have occurred, and reports those that have not.

use std::collections::BTreeMap;

use tenure_core::event::{Batch, Cause};
use tenure_core::outcome::{Answer, Effects, Notice};
use tenure_types::{Limit, Refusal};

/// The cases that no sequence can reach, with the reasons.
const UNREACHABLE: [(&str, &str); 4] = [
    ("refusal Superseded", "reported by an API to a caller that waits, never by the machine"),
    ("refusal DrainsFull", "it takes 1,000 drained prefixes"),
    ("refusal TokensExhausted", "it takes 2^48 grants"),
    ("refusal WaitTimeout", "reported by an API to a caller that waits, never by the machine"),
];

const ANSWERS: [&str; 25] = [
    "LeaseGranted",
    "Renewed",
    "Revoked",
    "Acquired",
    "Queued",
    "Ended",
    "Released",
    "Left",
    "AlreadyHeld",
    "Downgraded",
    "Updated",
    "Forced",
    "Stopped",
    "Put",
    "Deleted",
    "LimitsSet",
    "Compacted",
    "LevelRaised",
    "Abandoned",
    "AccessSet",
    "Drained",
    "Undrained",
    "Progressed",
    "HandedOn",
    "Resized",
];

const REFUSALS: [&str; 39] = [
    "NotLeader",
    "Malformed",
    "InvalidLevel",
    "InvalidName",
    "Limit",
    "InvalidLimit",
    "TooManyInCommand",
    "LeaseNotFound",
    "LeaseExists",
    "Held",
    "WaitTimeout",
    "Overlap",
    "Duplicate",
    "OtherKind",
    "Deadlock",
    "NotHolder",
    "NotWaiting",
    "NotExclusive",
    "TokenOutdated",
    "NotCooling",
    "MaxHoldTooShort",
    "CompareFailed",
    "GuardFailed",
    "RequestStale",
    "RequestConflict",
    "RequestWindow",
    "TokensExhausted",
    "Quiet",
    "FutureRevision",
    "Forbidden",
    "PriorityForbidden",
    "Quota",
    "AccessFull",
    "PrincipalNotFound",
    "AccessChanged",
    "Draining",
    "DrainsFull",
    "Superseded",
    "PoolEmpty",
];

const NOTICES: [&str; 4] = ["Granted", "Lost", "WaitEnded", "LeaseEnded"];

/// How often each case has occurred.
#[derive(Clone, Default)]
pub struct Coverage {
    answers: BTreeMap<&'static str, u64>,
    refusals: BTreeMap<&'static str, u64>,
    causes: BTreeMap<Cause, u64>,
    notices: BTreeMap<&'static str, u64>,
    limits: BTreeMap<Limit, u64>,
}

impl Coverage {
    /// Counts the effects of a step.
    pub fn count(&mut self, effects: &Effects, batches: &[Batch]) {
        for outcome in &effects.outcomes {
            match &outcome.result {
                Ok(answer) => *self.answers.entry(answer_name(answer)).or_default() += 1,
                Err(refusal) => {
                    *self.refusals.entry(refusal_name(refusal)).or_default() += 1;
                    if let Refusal::Limit { limit, .. } = refusal {
                        *self.limits.entry(*limit).or_default() += 1;
                    }
                }
            }
        }
        for notice in &effects.notices {
            *self.notices.entry(notice_name(notice)).or_default() += 1;
        }
        for event in batches.iter().flat_map(|batch| &batch.events) {
            *self.causes.entry(event.cause).or_default() += 1;
        }
    }

    /// Adds the counts of another thread.
    pub fn add(&mut self, other: &Coverage) {
        add(&mut self.answers, &other.answers);
        add(&mut self.refusals, &other.refusals);
        add(&mut self.causes, &other.causes);
        add(&mut self.notices, &other.notices);
        add(&mut self.limits, &other.limits);
    }

    /// One line with every counter.
    pub fn line(&self) -> String {
        let mut line = String::from("coverage");
        for (kind, name, count) in self.all() {
            line.push_str(&format!(" {kind}.{name}={count}"));
        }
        for (limit, count) in &self.limits {
            line.push_str(&format!(" limit.{}={count}", limit.name()));
        }
        line
    }

    /// The reachable cases that have not occurred.
    pub fn missing(&self) -> Vec<String> {
        self.all()
            .into_iter()
            .filter(|(_, _, count)| *count == 0)
            .map(|(kind, name, _)| format!("{kind} {name}"))
            .filter(|name| UNREACHABLE.iter().all(|(unreachable, _)| unreachable != name))
            .collect()
    }

    /// The unreachable cases, with the reasons.
    pub fn unreachable() -> impl Iterator<Item = (&'static str, &'static str)> {
        UNREACHABLE.into_iter()
    }

    fn all(&self) -> Vec<(&'static str, String, u64)> {
        let named =
            |kind: &'static str, names: &[&'static str], seen: &BTreeMap<&'static str, u64>| {
                let each = names
                    .iter()
                    .map(|name| (kind, (*name).to_owned(), seen.get(name).copied().unwrap_or(0)));
                each.collect::<Vec<_>>()
            };
        let mut all = named("answer", &ANSWERS, &self.answers);
        all.extend(named("refusal", &REFUSALS, &self.refusals));
        for cause in Cause::ALL {
            let count = self.causes.get(&cause).copied().unwrap_or(0);
            all.push(("cause", format!("{cause:?}"), count));
        }
        all.extend(named("notice", &NOTICES, &self.notices));
        all
    }
}

fn add<K: Ord + Copy>(into: &mut BTreeMap<K, u64>, from: &BTreeMap<K, u64>) {
    for (key, count) in from {
        *into.entry(*key).or_default() += count;
    }
}

fn answer_name(answer: &Answer) -> &'static str {
    match answer {
        Answer::LeaseGranted(_) => "LeaseGranted",
        Answer::Renewed(_) => "Renewed",
        Answer::Revoked => "Revoked",
        Answer::Acquired(_) => "Acquired",
        Answer::Queued(_) => "Queued",
        Answer::Ended => "Ended",
        Answer::Released => "Released",
        Answer::Left => "Left",
        Answer::AlreadyHeld(_) => "AlreadyHeld",
        Answer::Downgraded { .. } => "Downgraded",
        Answer::Updated { .. } => "Updated",
        Answer::Forced { .. } => "Forced",
        Answer::Stopped => "Stopped",
        Answer::Put(_) => "Put",
        Answer::Deleted { .. } => "Deleted",
        Answer::LimitsSet => "LimitsSet",
        Answer::Compacted { .. } => "Compacted",
        Answer::LevelRaised => "LevelRaised",
        Answer::Abandoned { .. } => "Abandoned",
        Answer::AccessSet => "AccessSet",
        Answer::Drained => "Drained",
        Answer::Undrained { .. } => "Undrained",
        Answer::Progressed { .. } => "Progressed",
        Answer::HandedOn { .. } => "HandedOn",
        Answer::Resized => "Resized",
    }
}

fn refusal_name(refusal: &Refusal) -> &'static str {
    match refusal {
        Refusal::NotLeader => "NotLeader",
        Refusal::Malformed => "Malformed",
        Refusal::InvalidLevel { .. } => "InvalidLevel",
        Refusal::InvalidName => "InvalidName",
        Refusal::Limit { .. } => "Limit",
        Refusal::InvalidLimit { .. } => "InvalidLimit",
        Refusal::TooManyInCommand { .. } => "TooManyInCommand",
        Refusal::LeaseNotFound => "LeaseNotFound",
        Refusal::LeaseExists { .. } => "LeaseExists",
        Refusal::Held(_) => "Held",
        Refusal::WaitTimeout => "WaitTimeout",
        Refusal::Overlap { .. } => "Overlap",
        Refusal::Duplicate { .. } => "Duplicate",
        Refusal::OtherKind { .. } => "OtherKind",
        Refusal::Deadlock { .. } => "Deadlock",
        Refusal::NotHolder { .. } => "NotHolder",
        Refusal::NotWaiting { .. } => "NotWaiting",
        Refusal::NotExclusive { .. } => "NotExclusive",
        Refusal::TokenOutdated { .. } => "TokenOutdated",
        Refusal::NotCooling { .. } => "NotCooling",
        Refusal::MaxHoldTooShort { .. } => "MaxHoldTooShort",
        Refusal::CompareFailed { .. } => "CompareFailed",
        Refusal::GuardFailed { .. } => "GuardFailed",
        Refusal::RequestStale => "RequestStale",
        Refusal::RequestConflict => "RequestConflict",
        Refusal::RequestWindow { .. } => "RequestWindow",
        Refusal::TokensExhausted => "TokensExhausted",
        Refusal::Quiet { .. } => "Quiet",
        Refusal::FutureRevision { .. } => "FutureRevision",
        Refusal::Forbidden { .. } => "Forbidden",
        Refusal::PriorityForbidden { .. } => "PriorityForbidden",
        Refusal::Quota { .. } => "Quota",
        Refusal::AccessFull { .. } => "AccessFull",
        Refusal::PrincipalNotFound => "PrincipalNotFound",
        Refusal::AccessChanged => "AccessChanged",
        Refusal::Draining(_) => "Draining",
        Refusal::DrainsFull { .. } => "DrainsFull",
        Refusal::PoolEmpty { .. } => "PoolEmpty",
        Refusal::Superseded(_) => "Superseded",
    }
}

fn notice_name(notice: &Notice) -> &'static str {
    match notice {
        Notice::Granted { .. } => "Granted",
        Notice::Lost { .. } => "Lost",
        Notice::WaitEnded { .. } => "WaitEnded",
        Notice::LeaseEnded { .. } => "LeaseEnded",
    }
}
