//! Closes prefixes to new grants, and opens them again.

use tenure_core::event::{Cause, Event, Subject};
use tenure_core::outcome::Answer;
use tenure_core::view::DrainView;
use tenure_types::{Draining, Name, Refusal, Revision};

use super::event::blank;
use super::{LEVEL_REOPENING, LEVEL_REPAIRED, Model, Verdict};

/// The most prefixes that can be closed at once.
const DRAINS_MAX: usize = 1_000;

/// A closed prefix.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Drain {
    created: Revision,
    since_ms: u64,
    by: Option<Name>,
    principal: Option<Name>,
    reason: String,
}

impl Model {
    pub(super) fn drain(
        &mut self,
        principal: Option<Name>,
        prefix: &str,
        said: (&str, &str),
    ) -> Verdict {
        self.can_be_drained(prefix)?;
        self.can_be_said(said)?;
        let (by, reason) = said;
        let mut drain = Drain {
            created: self.this_revision(),
            since_ms: self.clock_ms,
            by: Name::new(by).ok(),
            principal,
            reason: reason.to_owned(),
        };
        match self.drains.get(prefix) {
            Some(old) => {
                drain.created = old.created;
                drain.since_ms = old.since_ms;
                if *old == drain {
                    return Ok(Answer::Drained);
                }
            }
            None if self.drains.len() == DRAINS_MAX => {
                return Err(Refusal::DrainsFull { max: DRAINS_MAX as u64 });
            }
            None => {}
        }
        self.drains.insert(prefix.to_owned(), drain);
        self.drain_event(Cause::Drained, prefix, said);
        Ok(Answer::Drained)
    }

    pub(super) fn undrain(&mut self, prefix: &str, by: &str) -> Verdict {
        match self.level >= LEVEL_REPAIRED && !prefix.is_empty() {
            true => drop(self.known_name(prefix)?),
            false => self.can_be_drained(prefix)?,
        }
        self.can_be_said((by, ""))?;
        let existed = self.drains.remove(prefix).is_some();
        if existed {
            self.drain_event(Cause::Undrained, prefix, (by, ""));
            if self.level < LEVEL_REOPENING {
                let locks = self.locks.keys().filter(|lock| lock.starts_with(prefix));
                let below: Vec<Name> = locks.cloned().collect();
                self.grant_pass(below);
            } else if !self.places.is_empty() {
                self.begin_reopening();
                self.reopen();
            }
        }
        Ok(Answer::Undrained { existed })
    }

    /// Whether nothing may be granted of this lock.
    pub(super) fn is_drained(&self, lock: &Name) -> bool {
        self.drains.keys().any(|prefix| lock.starts_with(prefix.as_str()))
    }

    /// The refusal of an ask that does not wait for these locks, if one of them is closed.
    pub(super) fn closed<'a>(&self, locks: impl Iterator<Item = &'a Name>) -> Option<Refusal> {
        for lock in locks {
            let over = self.drains.iter().filter(|(prefix, _)| lock.starts_with(prefix.as_str()));
            if let Some((prefix, drain)) = over.max_by_key(|(prefix, _)| prefix.len()) {
                return Some(Refusal::Draining(Box::new(Draining {
                    lock: lock.clone(),
                    prefix: prefix.as_str().into(),
                    by: drain.by.clone().or(drain.principal.clone()),
                    reason: drain.reason.as_str().into(),
                })));
            }
        }
        None
    }

    /// The closed prefixes in order.
    pub fn drains(&self) -> Vec<DrainView> {
        let view = |(prefix, drain): (&String, &Drain)| DrainView {
            prefix: prefix.as_str().into(),
            created: drain.created,
            drained_ms: self.clock_ms - drain.since_ms,
            by: drain.by.clone(),
            principal: drain.principal.clone(),
            reason: drain.reason.as_str().into(),
        };
        self.drains.iter().map(view).collect()
    }

    /// The weight of the closed prefixes.
    pub(super) fn weigh_drains(&self) -> usize {
        let name = |name: &Option<Name>| name.as_ref().map_or(0, |name| name.len());
        let one = |(prefix, drain): (&String, &Drain)| {
            64 + prefix.len() + name(&drain.by) + name(&drain.principal) + drain.reason.len()
        };
        self.drains.iter().map(one).sum()
    }

    /// Any name can be a prefix, and so can the empty text.
    fn can_be_drained(&self, prefix: &str) -> Result<(), Refusal> {
        if prefix.is_empty() { Ok(()) } else { self.name(prefix).map(|_| ()) }
    }

    fn drain_event(&mut self, cause: Cause, prefix: &str, (by, reason): (&str, &str)) {
        self.events.push(Event {
            by: Name::new(by).ok(),
            reason: (!reason.is_empty()).then(|| reason.into()),
            value: Some(prefix.as_bytes().into()),
            ..blank(cause, Subject::Settings)
        });
    }
}
