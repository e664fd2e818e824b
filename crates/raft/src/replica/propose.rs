//! Queues commands and batches them into log entries.

use std::sync::Arc;

use bytes::Bytes;
use tenure_core::codec::{decode_request, seal_entry_of};
use tenure_core::request::{Command, LEVEL_RECORDS};
use tenure_store::LogId;

use super::Replica;
use crate::config::{ENTRY_BYTES_MAX, ENTRY_COMMANDS_MAX, UNSYNCED_BYTES_MAX, WAITING_MAX};
use crate::io::{ProposalFate, ProposalId, RejectReason, ReplicaOutput};
use crate::pending::CommandRun;

/// The bytes of a length in an entry: two up to 16 KiB, and seldom more.
const LENGTH_BYTES: usize = 2;

/// Commands that wait to be proposed.
#[derive(Debug, Default)]
pub(super) struct ProposalQueue {
    submitted: Vec<Submitted>,
    commands: usize,
    /// The shortest linger among the commands that came since the last turn.
    linger_us: Option<u64>,
    /// The time at which the queue must be proposed.
    until_us: Option<u64>,
}

/// Commands of one caller.
#[derive(Debug)]
struct Submitted {
    proposal: ProposalId,
    requests: Arc<[Bytes]>,
    /// The time at which the caller gives up.
    deadline_us: u64,
}

impl ProposalQueue {
    pub(super) fn add(
        &mut self,
        proposal: ProposalId,
        requests: Arc<[Bytes]>,
        linger_us: u64,
        deadline_us: u64,
    ) {
        self.commands += requests.len();
        self.submitted.push(Submitted { proposal, requests, deadline_us });
        self.linger_us = Some(self.linger_us.map_or(linger_us, |now| now.min(linger_us)));
    }

    /// Whether the queue must be proposed now. Patience counts from the turn in which a command was taken.
    fn is_due(&mut self, now_us: u64) -> bool {
        if let Some(linger_us) = self.linger_us.take() {
            let until_us = now_us.saturating_add(linger_us);
            self.until_us = Some(self.until_us.map_or(until_us, |old| old.min(until_us)));
        }
        !self.submitted.is_empty()
            && (self.commands >= ENTRY_COMMANDS_MAX
                || self.until_us.is_none_or(|until_us| until_us <= now_us))
    }

    fn is_empty(&self) -> bool {
        self.submitted.is_empty()
    }

    fn is_too_long(&self) -> bool {
        self.commands > WAITING_MAX
    }

    /// Ends the waiting of all queued commands, because an entry is proposed now.
    fn hurry(&mut self) {
        self.until_us = None;
    }

    pub(super) fn until_us(&self) -> Option<u64> {
        self.until_us
    }

    /// Takes all batches. The next ones are probably as many.
    fn take(&mut self) -> Vec<Submitted> {
        let room = self.submitted.len();
        let Self { submitted, .. } = std::mem::take(self);
        self.submitted.reserve(room);
        submitted
    }

    /// Takes the batches that ask for something new. Batches that only keep or give back something stay, unless they
    /// alone are too many.
    fn take_asks(&mut self) -> Vec<Submitted> {
        let keeping = |it: &Submitted| it.requests.iter().all(|request| is_keeping(request));
        let (kept, asks): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.submitted).into_iter().partition(keeping);
        self.commands = kept.iter().map(|it| it.requests.len()).sum();
        self.submitted = kept;
        if self.is_too_long() {
            return asks.into_iter().chain(self.take()).collect();
        }
        asks
    }
}

impl Replica {
    /// Batches waiting commands into entries and proposes them.
    pub(super) fn propose_waiting(&mut self, out: &mut Vec<ReplicaOutput>) {
        let is_due = self.queue.is_due(self.now_us);
        if self.leads() && (!is_due || self.is_disk_behind() && !self.queue.is_too_long()) {
            return;
        }
        if !self.leads() || self.is_disk_behind() {
            let led_elsewhere = RejectReason::NotLeader { leader: self.leader() };
            // A lease must not end because the disk is slow, so renewals and releases wait for it.
            let (why, refused) = match self.leads() {
                true => (RejectReason::Busy, self.queue.take_asks()),
                false => (led_elsewhere, self.queue.take()),
            };
            for Submitted { proposal, requests, .. } in refused {
                let fate = ProposalFate::NotDone { commands: requests.len(), why };
                out.push(ReplicaOutput::Answer { proposal, fate });
            }
            return;
        }
        let may_grow = self.may_grow() || mutant!("growth_on_a_full_disk");
        let submitted = self.queue.take();
        let mut joined = EntryDraft::for_batches(submitted.len());
        // An entry is written to the log whole.
        let bytes_max = ENTRY_BYTES_MAX.min(self.config.batch_bytes);
        for Submitted { proposal, requests, deadline_us } in submitted {
            let expired = (self.now_us >= deadline_us).then_some(RejectReason::Expired);
            if let Some(why) = expired.or_else(|| self.level_objection(&requests)) {
                let fate = ProposalFate::NotDone { commands: requests.len(), why };
                out.push(ReplicaOutput::Answer { proposal, fate });
                continue;
            }
            for (at, request) in requests.iter().enumerate() {
                if !may_grow && grows(request) {
                    joined.refuse(proposal, RejectReason::DiskFull);
                    continue;
                }
                if joined.is_full(request.len(), bytes_max) {
                    self.propose_joined(&mut joined, out);
                }
                joined.add(proposal, &requests, at);
            }
        }
        self.propose_joined(&mut joined, out);
    }

    /// Whether the unsynced writes of this member have reached the bound at which it proposes nothing more.
    pub(super) fn is_disk_behind(&self) -> bool {
        self.held.unsynced_bytes() >= UNSYNCED_BYTES_MAX
    }

    /// Proposes an entry to advance the clock, with the waiting commands if possible, or else without any.
    pub(super) fn propose_now(&mut self, out: &mut Vec<ReplicaOutput>) {
        // An entry without commands is small, and leases must end however slow the disk is.
        if self.queue.is_empty() || self.is_disk_behind() {
            let _ = self.seal(&EntryCommands::default());
        } else {
            self.queue.hurry();
            self.propose_waiting(out);
        }
    }

    fn propose_joined(&mut self, joined: &mut EntryDraft, out: &mut Vec<ReplicaOutput>) {
        let EntryDraft { commands, runs } = std::mem::take(joined);
        if commands.count == 0 {
            for run in runs {
                self.pending.refuse(self.sealed, run, RejectReason::DiskFull, out);
            }
            return;
        }
        let before = self.sealed;
        match self.seal(&commands) {
            Ok(at) => {
                #[cfg(mutants)]
                if mutant!("answer_when_proposed") {
                    self.answer_early(&commands, &runs, out);
                    return;
                }
                self.pending.add(at, runs);
            }
            Err(why) => {
                for run in runs {
                    self.pending.refuse(before, run, why, out);
                }
            }
        }
    }

    /// Seals an entry with the present count. The count is read after the last command was added, because a command
    /// must never be dated before it was sent.
    fn seal(&mut self, commands: &EntryCommands) -> Result<LogId, RejectReason> {
        let term = self.term();
        self.clock.lead(term);
        let count_ms = self.clock.count_ms(self.now_us, self.quorum_at_us());
        // Only a member that knows the level can read the label, and all members know the level that was applied.
        let wall = self.wall.filter(|_| self.machine.level() >= LEVEL_RECORDS);
        let bytes = commands.encoded_bytes();
        let payload = seal_entry_of(bytes, term, count_ms, wall, commands.iter());
        if self.node.propose(Vec::new(), payload).is_err() {
            let transferring = self.node.raft.lead_transferee.is_some();
            return Err(if transferring { RejectReason::Transferring } else { RejectReason::Busy });
        }
        self.clock.stamp();
        self.told_commit.sent_with_entries(self.node.raft.raft_log.committed);
        let index = self.node.raft.raft_log.last_index();
        self.sealed = LogId { index, term: term.0 };
        Ok(self.sealed)
    }

    /// Planted bug: answers before the entry is committed.
    #[cfg(mutants)]
    fn answer_early(
        &mut self,
        commands: &EntryCommands,
        runs: &[CommandRun],
        out: &mut Vec<ReplicaOutput>,
    ) {
        let mut copy = tenure_core::SnapshotReader::default();
        copy.push(&self.machine.encode()).expect("the machine writes what it reads");
        let mut copy = copy.finish().expect("the machine writes what it reads");
        let term = copy.clock_term();
        let payload = seal_entry_of(0, term, 0, None, commands.iter());
        let mut effects = tenure_core::outcome::Effects::default();
        copy.apply(term, Some(&payload), &mut effects);
        let mut outcomes = effects.outcomes.into_iter();
        for run in runs.iter().filter(|run| run.refused.is_none()) {
            let fate = ProposalFate::Applied(outcomes.by_ref().take(run.commands).collect());
            out.push(ReplicaOutput::Answer { proposal: run.proposal, fate });
        }
    }
}

/// One entry under construction.
#[derive(Default)]
struct EntryDraft {
    commands: EntryCommands,
    runs: Vec<CommandRun>,
}

/// The commands of an entry, as parts of the batches that they were submitted in.
#[derive(Default)]
struct EntryCommands {
    parts: Vec<BatchPart>,
    count: usize,
    bytes: usize,
}

/// Consecutive commands of one batch.
struct BatchPart {
    batch: Arc<[Bytes]>,
    first: usize,
    end: usize,
}

impl EntryCommands {
    /// Adds the command at this position of a batch.
    fn add(&mut self, batch: &Arc<[Bytes]>, at: usize) {
        self.count += 1;
        self.bytes += batch[at].len();
        match self.parts.last_mut() {
            Some(part) if part.end == at && Arc::ptr_eq(&part.batch, batch) => part.end += 1,
            _ => self.parts.push(BatchPart { batch: batch.clone(), first: at, end: at + 1 }),
        }
    }

    fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.parts.iter().flat_map(|part| &part.batch[part.first..part.end]).map(|it| &it[..])
    }

    /// The bytes of the commands and of their lengths, about.
    fn encoded_bytes(&self) -> usize {
        self.bytes + self.count * LENGTH_BYTES
    }
}

impl EntryDraft {
    /// A draft with room for this many batches, as far as they fit into one entry.
    fn for_batches(batches: usize) -> Self {
        let room = batches.min(ENTRY_COMMANDS_MAX);
        let commands =
            EntryCommands { parts: Vec::with_capacity(room), ..EntryCommands::default() };
        Self { commands, runs: Vec::with_capacity(room) }
    }

    /// Whether a command of this size does not fit in the entry any more.
    fn is_full(&self, more: usize, bytes_max: usize) -> bool {
        let EntryCommands { count, bytes, .. } = self.commands;
        count > 0 && (count >= ENTRY_COMMANDS_MAX || bytes + more > bytes_max)
    }

    fn add(&mut self, proposal: ProposalId, batch: &Arc<[Bytes]>, at: usize) {
        self.commands.add(batch, at);
        self.count(proposal, None);
    }

    /// Keeps the position of a command that is not proposed, so that answers stay in order.
    fn refuse(&mut self, proposal: ProposalId, why: RejectReason) {
        self.count(proposal, Some(why));
    }

    fn count(&mut self, proposal: ProposalId, refused: Option<RejectReason>) {
        match self.runs.last_mut() {
            Some(run) if run.proposal == proposal && run.refused == refused => run.commands += 1,
            _ => self.runs.push(CommandRun { proposal, commands: 1, refused }),
        }
    }
}

/// Whether a request would make the state grow. A request that cannot be decoded changes nothing.
fn grows(request: &[u8]) -> bool {
    decode_request(request).is_ok_and(|request| request.command.grows())
}

/// Whether a request keeps or gives back what a client has.
fn is_keeping(request: &[u8]) -> bool {
    decode_request(request).is_ok_and(|request| keeps(&request.command))
}

/// Whether a command keeps or gives back what a client has: refusing it makes an overload worse.
pub fn keeps(command: &Command<'_>) -> bool {
    match command {
        Command::Renew(_)
        | Command::Revoke { .. }
        | Command::Release(_)
        | Command::Leave { .. }
        | Command::Downgrade(_)
        | Command::Stopped { .. }
        | Command::Progress { .. }
        | Command::HandOn { .. }
        | Command::Abandon(_) => true,
        Command::GrantLease(_)
        | Command::Acquire(_)
        | Command::Upgrade(_)
        | Command::Update { .. }
        | Command::Force { .. }
        | Command::Put(_)
        // A key that is deleted late blocks no client, and the end of its lease deletes it.
        | Command::Delete { .. }
        | Command::SetLimits(_)
        | Command::Compact { .. }
        | Command::RaiseLevel { .. }
        | Command::SetAccess(_)
        | Command::Drain { .. }
        | Command::Undrain { .. }
        | Command::Resize { .. } => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_core::codec::encode_request;
    use tenure_core::request::{Expect, Request, RequestId};

    fn encoded(command: Command<'_>) -> Bytes {
        let mut bytes = Vec::new();
        encode_request(&Request { principal: "", id: RequestId::None, command }, &mut bytes);
        bytes.into()
    }

    #[test]
    fn a_queue_that_is_too_long_gives_up_what_asks_for_more_and_keeps_renewals() {
        let mut queue = ProposalQueue::default();
        let delete = || encoded(Command::Delete { key: "k", expect: Expect::Any, guard: None });
        let renew = || encoded(Command::Renew(Vec::new()));
        queue.add(ProposalId(1), (0..WAITING_MAX).map(|_| delete()).collect(), 0, 1);
        queue.add(ProposalId(2), [renew()].into(), 0, 1);
        queue.add(ProposalId(3), [renew(), delete()].into(), 0, 1);
        assert!(queue.is_too_long());
        let asks: Vec<_> = queue.take_asks().iter().map(|it| it.proposal).collect();
        assert_eq!(asks, [ProposalId(1), ProposalId(3)], "a batch is refused as a whole");
        assert_eq!(queue.commands, 1);
        assert_eq!(queue.take()[0].proposal, ProposalId(2));
    }

    #[test]
    fn an_entry_has_the_commands_of_its_batches_in_order_and_without_those_that_were_left_out() {
        let batch = |texts: &[&'static str]| -> Arc<[Bytes]> {
            texts.iter().map(|text| Bytes::from_static(text.as_bytes())).collect()
        };
        let (one, other) = (batch(&["a", "b", "c", "d"]), batch(&["e"]));
        let mut commands = EntryCommands::default();
        for (batch, at) in [(&one, 0), (&one, 1), (&one, 3), (&other, 0), (&one, 2)] {
            commands.add(batch, at);
        }
        assert_eq!(commands.iter().collect::<Vec<_>>().concat(), b"abdec");
        assert_eq!((commands.parts.len(), commands.count, commands.bytes), (4, 5, 5));
    }

    #[test]
    fn renewals_alone_are_bounded_too() {
        let mut queue = ProposalQueue::default();
        let renew = encoded(Command::Renew(Vec::new()));
        queue.add(ProposalId(1), vec![renew; WAITING_MAX + 1].into(), 0, 1);
        assert_eq!(queue.take_asks().len(), 1);
        assert!(queue.is_empty());
    }
}
