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
}

impl Pending {
    pub(crate) fn add(&mut self, at: Point, runs: Vec<Run>) {
        if !runs.is_empty() {
            self.entries.insert((at.index, at.term), runs);
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
                for run in runs {
                    let outcomes: Vec<_> = outcomes.by_ref().take(run.commands).collect();
                    out.push(Output::Answer { ticket: run.ticket, fate: Fate::Applied(outcomes) });
                }
            } else {
                for Run { ticket, commands } in runs {
                    let fate = Fate::NotDone { commands, why: Why::Replaced };
                    out.push(Output::Answer { ticket, fate });
                }
            }
        }
    }

    /// A snapshot jumped over these indexes: nobody here will ever know.
    pub(crate) fn skipped(&mut self, to_index: u64, out: &mut Vec<Output>) {
        while let Some(first) = self.entries.first_entry()
            && first.key().0 <= to_index
        {
            for Run { ticket, commands } in first.remove() {
                out.push(Output::Answer { ticket, fate: Fate::Unknown { commands } });
            }
        }
    }
}
