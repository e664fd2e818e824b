//! Runs a member's event loop, and executes the outputs of its node.

use bytes::Bytes;
use tenure_core::codec::{decode_request, open_entry};
use tenure_core::event::WallClock;
use tenure_node::{ClusterView, Input, NodeFailure, Output, ReadId, ReconfigureInput};
use tenure_raft::{Persist, Space, Stop};
use tenure_store::LogEntry;
use tenure_store::sim::Restart;

use super::MS;
use super::event::SimEvent;
use super::oracle::ensure;
use super::session_host::Reader;
use super::world::SimCluster;
use crate::invariant::{CheckResult, InvariantViolation};

/// How long after its deadline a command may be sealed: what is proposed may wait for others.
const LATE_US: u64 = 60 * MS;

impl SimCluster {
    pub(super) fn turn(&mut self, member: usize, boot: u64) -> CheckResult {
        let target = &mut self.sim_members[member];
        if target.boot != boot || target.turn_at_us != Some(self.now_us) {
            return Ok(());
        }
        target.turn_at_us = None;
        let until_us = target.paused_until_us.max(target.loop_waits_until_us);
        if until_us > self.now_us {
            self.wake(member, until_us);
            return Ok(());
        }
        let local_us = target.local_us(self.now_us);
        if self.waits_for_log(member)? {
            return Ok(());
        }
        let taken = self.take_inputs(member, local_us)?;
        if taken == 0 && !self.mark_if_quiet(member) {
            return Ok(());
        }
        let target = &mut self.sim_members[member];
        let Some(process) = &mut target.process else { return Ok(()) };
        let (space, restores) = process.log_writer.check_space(self.now_us);
        if let Some(space) = space {
            process.node.handle(Input::Space(space));
        }
        if restores {
            let at_us = self.now_us + self.rng.u64(MS..30 * MS);
            self.queue.push(at_us, SimEvent::Reserve { member, boot });
        }
        let unix_ms = wrong_wall_ms(member as u64, self.now_us);
        process.node.handle(Input::WallClock(WallClock { unix_ms }));
        let mut outputs = std::mem::take(&mut process.outputs);
        let wake_us = process.node.turn(local_us, &mut outputs, &mut ());
        let wake_us = target.real_us(wake_us).max(self.now_us + 1);
        self.wake(member, wake_us);
        // The oracle learns what was applied before any client or member does.
        self.applied(member)?;
        let mut compact = None;
        for output in outputs.drain(..) {
            self.perform(member, output, &mut compact)?;
            if self.sim_members[member].boot != boot {
                return Ok(());
            }
        }
        if let Some(process) = &mut self.sim_members[member].process {
            process.outputs = outputs;
        }
        self.begin_sync(member)?;
        if let Some(to) = compact.filter(|_| self.sim_members[member].boot == boot) {
            self.compact(member, to)?;
        }
        self.wake_for_inbox(member, local_us);
        self.check_desk(member, local_us)
    }

    fn perform(&mut self, member: usize, output: Output, compact: &mut Option<u64>) -> CheckResult {
        let Some(process) = &mut self.sim_members[member].process else { return Ok(()) };
        match output {
            Output::Send { to, message } => self.send(member, to, &message),
            Output::SendSnapshot { to, step } => {
                self.send_snapshot(member, to, *step);
                Ok(())
            }
            Output::Persist(persist) => {
                self.check_term(member, &persist)?;
                self.seals(member, &persist)?;
                self.write(member, &persist).map(|_| ())
            }
            Output::Answer { to, outcomes } => self.answer(member, to, outcomes),
            Output::Notices(notices) => {
                self.leave_notices(member, notices);
                Ok(())
            }
            Output::Skipped => {
                self.leave_skipped(member);
                Ok(())
            }
            Output::ReadReady { read } => self.read_ready(member, read),
            Output::ReadFailed { read, failure } => self.read_failed(member, read, failure),
            Output::AdminDone { admin, result } => {
                self.trace(|| format!("admin request {admin:?} at {member}: {result:?}"));
                let process =
                    self.sim_members[member].process.as_mut().expect("it has just turned");
                let waited = process.host.admins.remove(&admin.0);
                self.faults
                    .count_by("admin_unknown", u64::from(result == Err(NodeFailure::Unknown)));
                ensure(waited.is_some(), "N1", || {
                    format!("{member} answered {admin:?}, which did not wait")
                })?;
                match waited.and_then(|it| it.operation) {
                    Some(operation) => {
                        let input = ReconfigureInput::Changed(result);
                        self.handle_operation_result(member, operation, input)
                    }
                    None => Ok(()),
                }
            }
            Output::SaveSnapshot { point, meta, frozen } => {
                process.saving = Some((point, meta, frozen));
                let at_us = self.now_us + self.rng.u64(MS..100 * MS);
                let boot = self.sim_members[member].boot;
                self.queue.push(at_us, SimEvent::Save { member, boot });
                self.log(member, "snapshot begun")
            }
            Output::CompactLog { to } => {
                *compact = Some(to);
                Ok(())
            }
            Output::Led(lead) => {
                self.trace(|| format!("{member} in {:?} is led by {:?}", lead.term, lead.by));
                if let Some(process) = &mut self.sim_members[member].process {
                    process.lead = lead.by;
                }
                if lead.by == Some(self.sim_members[member].id) && !self.is_survivor(member) {
                    self.oracle.leads(member, lead.term.0)?;
                }
                self.tell_sessions_of_leader(member);
                self.log(member, "another leader")?;
                self.tell_operations(member, &ReconfigureInput::Led)
            }
            Output::MayEnd => self.may_end(member),
            Output::Stop(reason) => self.stopped(member, &reason),
            output @ (Output::FindSnapshot { .. }
            | Output::ReadChunk { .. }
            | Output::OpenTransfer { .. }
            | Output::WriteChunk { .. }
            | Output::FinishTransfer { .. }) => {
                let stalled_us = self.sim_members[member].snapshots_stalled_until_us;
                if self.now_us >= stalled_us {
                    return self.perform_transfer_step(member, output);
                }
                self.faults.count("transfer_stalled");
                let (boot, step) = (self.sim_members[member].boot, Box::new(output));
                self.queue.push(stalled_us, SimEvent::Transfer { member, boot, step });
                Ok(())
            }
            Output::CallBack { join, record } => {
                self.call_back(member, join, &record.names);
                Ok(())
            }
            Output::JoinAnswer { join, answer } => {
                self.trace(|| format!("{member} answers {join:?}: {answer:?}"));
                self.handle_join_answer(member, join, *answer)
            }
            Output::TransferEnded { .. } => {
                self.faults.count("transfer_ended");
                self.log(member, "snapshot sent or not")
            }
            Output::AskStanding { of, address, name: _, question } => {
                self.ask_standing(member, of, address, &question)
            }
            Output::Applied { .. } | Output::Directory { .. } => Ok(()),
        }
    }

    /// S14 and N4: checks that a leader may propose what it proposes.
    fn seals(&mut self, member: usize, persist: &Persist) -> CheckResult {
        let target = &self.sim_members[member];
        let Some(process) = &target.process else { return Ok(()) };
        let status = process.replica().status();
        if !status.leading || self.is_survivor(member) {
            return Ok(());
        }
        let local_us = target.local_us(self.now_us);
        let (space, stalled) = (process.log_writer.space(), target.stalled);
        for entry in persist.entries.iter().filter(|entry| entry.term == status.term.0) {
            self.oracle.seals(entry, self.now_us, stalled);
            ensure(space == Space::Enough || !grows(entry), "S14", || {
                format!("{member} is short of space and seals {}", entry.index)
            })?;
            for ask in asks(entry) {
                let here = || process.host.batches.values().filter(|it| it.asks.contains(&ask));
                let in_time = here().any(|it| local_us <= it.deadline_us + LATE_US);
                // A client repeats an ask through several members, so one that was in time may be sealed twice.
                let forwarded = self.in_time.get(&(member, ask)).copied();
                let in_time = in_time || forwarded == Some(true);
                let expired = forwarded == Some(false) || here().count() > 0;
                ensure(in_time || !expired, "N4", || {
                    let due: Vec<u64> = here().map(|it| it.deadline_us).collect();
                    let (index, now) = (entry.index, local_us);
                    format!(
                        "{member} seals {index} at {now}, ask {ask} of it had expired: {due:?}, {forwarded:?}"
                    )
                })?;
            }
        }
        Ok(())
    }

    /// Notes which forwarded commands had expired when they arrived.
    pub(super) fn forwarded(&mut self, member: usize, within_us: Option<u64>, requests: &[Bytes]) {
        for request in requests {
            let Ok(request) = decode_request(request) else { continue };
            let Ok(ask) = request.principal.parse() else { continue };
            *self.in_time.entry((member, ask)).or_default() |= within_us != Some(0);
        }
    }

    /// The member was asked to leave, and has handed over or cannot.
    fn may_end(&mut self, member: usize) -> CheckResult {
        let Some(process) = &mut self.sim_members[member].process else { return Ok(()) };
        // The loop refuses what is in its inbox when it ends, such as the next step of an operation that has just heard
        // of a failure.
        for input in process.inbox.take_all() {
            process.host.refuse(&input);
        }
        let mut outputs = Vec::new();
        process.node.end(&mut outputs);
        let mut compact = None;
        for output in outputs {
            self.perform(member, output, &mut compact)?;
        }
        let process = self.sim_members[member].process.as_mut().expect("it has just ended");
        for input in process.inbox.take_all() {
            process.host.refuse(&input);
        }
        let host = &process.host;
        let left = host.batches.len() + host.reads.len() + host.admins.len();
        ensure(left == 0, "N3", || {
            format!("{member} ended and left {left} callers without a word")
        })?;
        self.faults.count("leave");
        // A disk that fails now is found at the next start.
        let _ = process.log_writer.close();
        self.crash(member, Restart::ProcessKilled);
        Ok(())
    }

    pub(super) fn stopped(&mut self, member: usize, reason: &Stop) -> CheckResult {
        self.trace(|| format!("{member} stops: {reason}"));
        let target = &self.sim_members[member];
        let expected = match reason {
            // N15: no member takes itself for removed that was not.
            Stop::Removed => self.members.retired.contains(&target.id),
            Stop::Outgrown { known, .. } => {
                *known == target.level && *known < tenure_core::LEVEL_MAX
            }
            Stop::Forgot { .. } => target.must_stop.is_some() || target.may_forget,
            _ => false,
        };
        if matches!(reason, Stop::Removed) {
            self.tell_operations(member, &ReconfigureInput::Removed)?;
        }
        self.end(member, Restart::ProcessKilled);
        self.sim_members[member].dead = true;
        self.sim_members[member].outgrown = matches!(reason, Stop::Outgrown { .. });
        let invariant = match reason {
            Stop::Diverged { .. } => "S9",
            Stop::Removed => "N15",
            _ => "S8",
        };
        ensure(expected, invariant, || format!("{member} stopped: {reason}"))
    }

    /// Hands the entries, or the snapshot, that a member has applied to the oracle.
    pub(super) fn applied(&mut self, member: usize) -> CheckResult {
        if self.is_survivor(member) {
            return Ok(());
        }
        let Some(process) = &mut self.sim_members[member].process else { return Ok(()) };
        let applied = process.replica().status().applied;
        if applied == process.seen {
            return Ok(());
        }
        let from = process.seen.index + 1;
        process.seen = applied;
        let level = self.oracle.level();
        for index in from..=applied.index {
            match process.replica().entry(index) {
                Some(entry) => self.oracle.applies(member, entry)?,
                None => {
                    // A snapshot has taken the place of everything up to here.
                    self.faults.count("snapshot_installed");
                    break;
                }
            }
        }
        self.oracle.state(member, applied, process.node.machine())?;
        self.check_level(level)?;
        let Some(process) = &self.sim_members[member].process else { return Ok(()) };
        let members = process.replica().members();
        if applied.index > self.members_at && *members != self.members {
            self.check_removed(members)?;
            self.members = members.clone();
            self.members_since_us = self.now_us;
            if self.members.is_joint() {
                self.faults.count("joint");
            }
        }
        self.members_at = self.members_at.max(applied.index);
        self.check_members()
    }

    /// S6: a read sees whatever was acknowledged before it began.
    fn read_ready(&mut self, member: usize, read: ReadId) -> CheckResult {
        let process = self.sim_members[member].process.as_mut().expect("it has just turned");
        let Some(found) = process.host.reads.remove(&read.0) else {
            return Err(InvariantViolation::new(
                "N1",
                format!("{member} served {read:?}, which did not wait"),
            ));
        };
        let applied = process.replica().status().applied.index;
        let revision = process.node.machine().revision();
        let floor = found.floor;
        ensure(applied >= floor, "S6", || {
            format!("{member} served a read at {applied}, {floor} was acknowledged before it began")
        })?;
        ensure(revision >= found.revision, "S6", || {
            format!("{member} served a read at {revision}, {} was asked for", found.revision)
        })?;
        self.faults.count("read");
        match found.reader {
            Reader::Session(stream) => self.handle_session_read_end(stream, read.0),
            Reader::Operation(operation) => {
                let view = Box::new(ClusterView::of(&process.node));
                self.handle_operation_result(
                    member,
                    operation,
                    ReconfigureInput::Viewed(Ok(view)),
                )?;
            }
            Reader::Backup => self.backed_up(member),
        }
        Ok(())
    }

    fn read_failed(&mut self, member: usize, read: ReadId, failure: NodeFailure) -> CheckResult {
        let process = self.sim_members[member].process.as_mut().expect("it has just turned");
        let Some(found) = process.host.reads.remove(&read.0) else {
            return Err(InvariantViolation::new(
                "N1",
                format!("{member} failed {read:?}, which did not wait"),
            ));
        };
        self.faults.count("read_failed");
        self.log(member, "a read failed")?;
        self.trace(|| format!("{read:?} at {member} failed: {failure}"));
        match found.reader {
            Reader::Session(stream) => self.handle_session_read_end(stream, read.0),
            Reader::Operation(operation) => {
                self.handle_operation_result(
                    member,
                    operation,
                    ReconfigureInput::Viewed(Err(failure)),
                )?;
            }
            Reader::Backup => {}
        }
        Ok(())
    }
}

/// Whether an entry has a command that makes the state grow.
fn grows(entry: &LogEntry) -> bool {
    let Ok(mut opened) = open_entry(&entry.payload) else { return false };
    opened.any(|request| decode_request(request).is_ok_and(|request| request.command.grows()))
}

/// The asks whose commands an entry has.
fn asks(entry: &LogEntry) -> Vec<u64> {
    let Ok(opened) = open_entry(&entry.payload) else { return Vec::new() };
    opened.filter_map(|request| decode_request(request).ok()?.principal.parse().ok()).collect()
}

/// The wall clock of a member: hours apart from the others, and set anew to and fro every ten seconds.
fn wrong_wall_ms(member: u64, now_us: u64) -> u64 {
    const EPOCH_MS: u64 = 1_700_000_000_000;
    const HOUR_MS: u64 = 3_600_000;
    let jump = (now_us / 10_000_000).wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(member) >> 60;
    EPOCH_MS + member * HOUR_MS + jump * HOUR_MS + now_us / 1_000
}
