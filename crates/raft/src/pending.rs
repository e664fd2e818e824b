//! Tracks which proposals are in which entry, and reports their fate when the entry is applied.

use std::collections::BTreeMap;

use tenure_core::outcome::Outcome;
use tenure_store::LogId;

use crate::io::{ProposalFate, ProposalId, RejectReason, ReplicaOutput};

/// Proposals of this member, by the entry that contains them.
#[derive(Debug, Default)]
pub(crate) struct PendingProposals {
    /// By index, then term: after leadership was lost and regained, both may be present.
    entries: BTreeMap<(u64, u64), Vec<CommandRun>>,
}

/// A number of consecutive commands with the same proposal id.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CommandRun {
    pub(crate) proposal: ProposalId,
    pub(crate) commands: usize,
    /// Set if the commands are not in the entry: their answer only waits for the answers before it.
    pub(crate) refused: Option<RejectReason>,
}

impl CommandRun {
    /// The answer if this member cannot report an outcome of the entry.
    fn otherwise(self, fate: impl FnOnce(usize) -> ProposalFate) -> ReplicaOutput {
        let Self { proposal, commands, refused } = self;
        let fate = match refused {
            Some(why) => ProposalFate::NotDone { commands, why },
            None => fate(commands),
        };
        ReplicaOutput::Answer { proposal, fate }
    }
}

impl PendingProposals {
    pub(crate) fn add(&mut self, at: LogId, runs: Vec<CommandRun>) {
        if !runs.is_empty() {
            self.entries.insert((at.index, at.term), runs);
        }
    }

    /// Reports that commands were not applied, after the answers owed under the same proposal id for the commands
    /// before them. Those can only be in the entry sealed last.
    pub(crate) fn refuse(
        &mut self,
        last: LogId,
        run: CommandRun,
        why: RejectReason,
        out: &mut Vec<ReplicaOutput>,
    ) {
        let run = CommandRun { refused: run.refused.or(Some(why)), ..run };
        let before = self.entries.get_mut(&(last.index, last.term));
        match before.filter(|runs| runs.last().is_some_and(|last| last.proposal == run.proposal)) {
            Some(runs) => runs.push(run),
            None => out.push(run.otherwise(|commands| ProposalFate::NotDone { commands, why })),
        }
    }

    /// Reports the outcomes of an applied entry to its own proposals. Proposals that expected another entry at this
    /// position learn that it was never applied.
    pub(crate) fn applied(
        &mut self,
        at: LogId,
        outcomes: &mut Vec<Outcome>,
        out: &mut Vec<ReplicaOutput>,
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
                        ProposalFate::Applied(outcomes.by_ref().take(commands).collect())
                    })
                }));
            } else {
                let why = RejectReason::Replaced;
                let replaced = |run: CommandRun| {
                    run.otherwise(|commands| ProposalFate::NotDone { commands, why })
                };
                out.extend(runs.into_iter().map(replaced));
            }
        }
    }

    /// Reports the proposals up to this index as unknown: a snapshot skipped their entries, so this member will never
    /// learn their outcome.
    pub(crate) fn skipped(&mut self, to_index: u64, out: &mut Vec<ReplicaOutput>) {
        while let Some(first) = self.entries.first_entry()
            && first.key().0 <= to_index
        {
            let unknown =
                |run: CommandRun| run.otherwise(|commands| ProposalFate::Unknown { commands });
            out.extend(first.remove().into_iter().map(unknown));
        }
    }
}
