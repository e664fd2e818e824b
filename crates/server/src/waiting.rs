//! Who waits for an answer?

use std::collections::BTreeMap;

use tenure_core::Machine;
use tenure_core::outcome::{Answer, Outcome};
use tenure_raft::{Fate, Ticket, Why};

use crate::figures::Meters;
use crate::member::{Done, Question, Submission, Undone, WishDone};
use crate::meter::Freed;

/// Everyone the loop owes something.
#[derive(Default)]
pub(crate) struct Waiting {
    newest: u64,
    commands: BTreeMap<Ticket, Commands>,
    reads: BTreeMap<Ticket, Question>,
    wishes: BTreeMap<Ticket, WishDone>,
}

struct Commands {
    left: usize,
    at_us: u64,
    fates: Vec<Result<Outcome, Undone>>,
    done: Done,
}

/// What is counted of the answers of a turn.
pub(crate) struct Seen<'a> {
    pub(crate) now_us: u64,
    pub(crate) meters: &'a Meters,
    /// Commands that may have made room for others.
    pub(crate) freed: &'a mut Vec<Freed>,
}

impl Seen<'_> {
    fn applied(&mut self, outcomes: &[Outcome], asked_at_us: u64) {
        self.meters.committed(self.now_us.saturating_sub(asked_at_us));
        for outcome in outcomes {
            match &outcome.result {
                Ok(Answer::Renewed(leases)) => {
                    self.meters.renewed(leases.iter().flatten().count() as u64);
                }
                Ok(
                    Answer::Released
                    | Answer::Revoked
                    | Answer::Left
                    | Answer::Stopped
                    | Answer::Forced { .. }
                    | Answer::Downgraded { .. },
                ) => self.freed.push(Freed { revision: outcome.revision, asked_at_us }),
                _ => {}
            }
        }
    }
}

impl Waiting {
    fn ticket(&mut self) -> Ticket {
        self.newest += 1;
        Ticket(self.newest)
    }

    /// Remembers a submission and gives back what the replica needs of it.
    pub(crate) fn submit(&mut self, it: Submission) -> Option<(Ticket, Vec<bytes::Bytes>, u64)> {
        let Submission { requests, patience_us, at_us, done } = it;
        if requests.is_empty() {
            done(Vec::new());
            return None;
        }
        let ticket = self.ticket();
        let commands = Commands { left: requests.len(), at_us, fates: Vec::new(), done };
        self.commands.insert(ticket, commands);
        Some((ticket, requests, patience_us))
    }

    pub(crate) fn read(&mut self, ask: Question) -> Ticket {
        let ticket = self.ticket();
        self.reads.insert(ticket, ask);
        ticket
    }

    pub(crate) fn wish(&mut self, done: WishDone) -> Ticket {
        let ticket = self.ticket();
        self.wishes.insert(ticket, done);
        ticket
    }

    /// A part of an answer, or all of it.
    pub(crate) fn answer(&mut self, ticket: Ticket, fate: Fate, seen: &mut Seen<'_>) {
        let Some(commands) = self.commands.get_mut(&ticket) else { return };
        let before = commands.fates.len();
        match fate {
            Fate::Applied(outcomes) => {
                seen.applied(&outcomes, commands.at_us);
                commands.fates.extend(outcomes.into_iter().map(Ok));
            }
            Fate::NotDone { commands: number, why } => {
                commands.fates.extend((0..number).map(|_| Err(Undone::NotDone(why))));
            }
            Fate::Unknown { commands: number } => {
                commands.fates.extend((0..number).map(|_| Err(Undone::Unknown)));
            }
        }
        commands.left = commands.left.saturating_sub(commands.fates.len() - before);
        if commands.left == 0
            && let Some(Commands { fates, done, .. }) = self.commands.remove(&ticket)
        {
            done(fates);
        }
    }

    pub(crate) fn read_ready(&mut self, ticket: Ticket, machine: &Machine) {
        if let Some(ask) = self.reads.remove(&ticket) {
            ask(machine);
        }
    }

    pub(crate) fn read_failed(&mut self, ticket: Ticket) {
        self.reads.remove(&ticket);
    }

    pub(crate) fn changed(&mut self, ticket: Ticket, result: Result<(), Why>) {
        if let Some(done) = self.wishes.remove(&ticket) {
            done(result);
        }
    }

    /// Tells everyone that no answer will come.
    pub(crate) fn end(&mut self) {
        for (_, Commands { left, mut fates, done, .. }) in std::mem::take(&mut self.commands) {
            fates.extend((0..left).map(|_| Err(Undone::Unknown)));
            done(fates);
        }
        *self = Self { newest: self.newest, ..Self::default() };
    }
}
