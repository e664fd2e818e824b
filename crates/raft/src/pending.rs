//! Who waits for which entry, and what may be concluded when it is applied?

use std::collections::BTreeMap;

use tenure_core::outcome::Outcome;
use tenure_store::Point;

use crate::io::{Fate, Output, Ticket, Why};

/// Proposals of this member, by the entry they are in.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    /// By index, then term: after a lost and regained leadership both may be there.
    entries: BTreeMap<(u64, u64), Vec<Run>>,
}

/// So many commands in a row belong to this ticket.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Run {
    pub(crate) ticket: Ticket,
    pub(crate) commands: usize,
    /// They are not in the entry: their answer only waits for those before it.
    pub(crate) refused: Option<Why>,
}

impl Run {
    /// What is said if the entry will not come to anything here.
    fn otherwise(self, fate: impl FnOnce(usize) -> Fate) -> Output {
        let Self { ticket, commands, refused } = self;
        let fate = match refused {
            Some(why) => Fate::NotDone { commands, why },
            None => fate(commands),
        };
        Output::Answer { ticket, fate }
    }
}

impl Pending {
    pub(crate) fn add(&mut self, at: Point, runs: Vec<Run>) {
        if !runs.is_empty() {
            self.entries.insert((at.index, at.term), runs);
        }
    }

    /// Says that commands were not done, after what is owed to the same ticket for the commands
    /// before them, which can only be in the entry sealed last.
    pub(crate) fn refuse(&mut self, last: Point, run: Run, why: Why, out: &mut Vec<Output>) {
        let run = Run { refused: run.refused.or(Some(why)), ..run };
        let before = self.entries.get_mut(&(last.index, last.term));
        match before.filter(|runs| runs.last().is_some_and(|last| last.ticket == run.ticket)) {
            Some(runs) => runs.push(run),
            None => out.push(run.otherwise(|commands| Fate::NotDone { commands, why })),
        }
    }

    /// An entry was applied with these outcomes: its own waiters have them, and whoever waited for
    /// another entry in its place knows that that one never happened.
    pub(crate) fn applied(
        &mut self,
        at: Point,
        outcomes: &mut Vec<Outcome>,
        out: &mut Vec<Output>,
    ) {
        while let Some(first) = self.entries.first_entry() {
            let (index, term) = *first.key();
            if index > at.index {
                return;
            }
            let runs = first.remove();
            if term == at.term || mutant!("other_term_is_success") {
                let mut outcomes = outcomes.drain(..);
                out.extend(runs.into_iter().map(|run| {
                    run.otherwise(|commands| {
                        Fate::Applied(outcomes.by_ref().take(commands).collect())
                    })
                }));
            } else {
                let why = Why::Replaced;
                let replaced = |run: Run| run.otherwise(|commands| Fate::NotDone { commands, why });
                out.extend(runs.into_iter().map(replaced));
            }
        }
    }

    /// A snapshot jumped over these indexes: nobody here will ever know.
    pub(crate) fn skipped(&mut self, to_index: u64, out: &mut Vec<Output>) {
        while let Some(first) = self.entries.first_entry()
            && first.key().0 <= to_index
        {
            let unknown = |run: Run| run.otherwise(|commands| Fate::Unknown { commands });
            out.extend(first.remove().into_iter().map(unknown));
        }
    }
}
