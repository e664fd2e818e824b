//! Who waits for an answer or for their turn?

use std::collections::BTreeMap;
use std::sync::mpsc::Sender;

use tenure_core::Machine;
use tenure_core::outcome::{Answer, Notice, Outcome};
use tenure_raft::{Fate, Ticket, Why};
use tenure_types::{Handle, PlaceNumber};

use crate::member::{Done, Question, Submission, Undone, WishDone};

/// Everyone the loop owes something.
#[derive(Default)]
pub(crate) struct Waiting {
    newest: u64,
    commands: BTreeMap<Ticket, Commands>,
    reads: BTreeMap<Ticket, Question>,
    wishes: BTreeMap<Ticket, WishDone>,
    places: BTreeMap<(Handle, PlaceNumber), Sender<Notice>>,
}

struct Commands {
    left: usize,
    fates: Vec<Result<Outcome, Undone>>,
    watch: Option<Sender<Notice>>,
    done: Done,
}

impl Waiting {
    fn ticket(&mut self) -> Ticket {
        self.newest += 1;
        Ticket(self.newest)
    }

    /// Remembers a submission and gives back what the replica needs of it.
    pub(crate) fn submit(&mut self, it: Submission) -> Option<(Ticket, Vec<bytes::Bytes>, u64)> {
        let Submission { requests, patience_us, watch, done } = it;
        if requests.is_empty() {
            done(Vec::new());
            return None;
        }
        let ticket = self.ticket();
        let commands = Commands { left: requests.len(), fates: Vec::new(), watch, done };
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
    pub(crate) fn answer(&mut self, ticket: Ticket, fate: Fate) {
        let Some(commands) = self.commands.get_mut(&ticket) else { return };
        let before = commands.fates.len();
        match fate {
            Fate::Applied(outcomes) => commands.fates.extend(outcomes.into_iter().map(Ok)),
            Fate::NotDone { commands: number, why } => {
                commands.fates.extend((0..number).map(|_| Err(Undone::NotDone(why))));
            }
            Fate::Unknown { commands: number } => {
                commands.fates.extend((0..number).map(|_| Err(Undone::Unknown)));
            }
        }
        commands.left = commands.left.saturating_sub(commands.fates.len() - before);
        if commands.left == 0
            && let Some(Commands { fates, watch, done, .. }) = self.commands.remove(&ticket)
        {
            // Registered here, on the loop, so that the grant cannot come first.
            if let Some(watch) = watch
                && let Some(Ok(Outcome { result: Ok(Answer::Queued(queued)), .. })) = fates.last()
            {
                self.places.insert((queued.lease.handle, queued.place), watch);
            }
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

    /// Passes notices on. Call it after the answers of the same turn.
    pub(crate) fn notify(&mut self, notices: Vec<Notice>) {
        for notice in notices {
            match notice {
                Notice::Granted { lease, place, .. } | Notice::WaitEnded { lease, place, .. } => {
                    if let Some(watch) = self.places.remove(&(lease, place)) {
                        let _ = watch.send(notice);
                    }
                }
                Notice::LeaseEnded { lease, .. } => {
                    let (from, to) = (PlaceNumber(0), PlaceNumber(u64::MAX));
                    let range = (lease, from)..=(lease, to);
                    let keys: Vec<_> = self.places.range(range).map(|(key, _)| *key).collect();
                    for key in keys {
                        if let Some(watch) = self.places.remove(&key) {
                            let _ = watch.send(notice.clone());
                        }
                    }
                }
                Notice::Lost { .. } => {}
            }
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
