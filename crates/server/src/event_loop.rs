//! Drives one member's node on a thread of its own: the event loop.
//!
//! One turn: take what has arrived, read the clock, end the node's turn, do what comes out. Sends leave before the
//! one sync of the turn, so that other disks work while this one does. What became durable is told to the node at once,
//! in a further turn without sleep.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError};
use std::time::Duration;

use tenure_core::outcome::Notice;
use tenure_node::transfer::TransferEnd;
use tenure_node::{Input, Node, Output, PeerMessage};
use tenure_raft::{MemberId, Saved, Stop};
use tenure_store::{DataDir, Fatal, SnapshotError, Snapshots, WriteError};
use tenure_types::Revision;

use crate::callers::{self, Callers, CountingObserver};
use crate::dispatch::Delivery;
use crate::error::chain;
use crate::log_writer::{LogWriter, Where, spawn};
use crate::member::{End, LoopEvent, MemberHandle};
use crate::metrics::FreedAt;
use crate::os;
use crate::peer::{Class, Frame, Net};
use crate::snapshot_disk::SnapshotDisk;

/// Inputs taken in one turn, at most.
const TAKEN_MAX: usize = 8_192;
/// A log that was not written for so long is quiet, and is marked.
const QUIET_US: u64 = 500_000;
/// How long the APIs have to say that a member found damage.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// Called on the loop when the member ends by itself.
pub(crate) type OnEnd = Box<dyn Fn(&End) + Send>;

/// One member's loop and everything it owns.
pub(crate) struct EventLoop {
    pub(crate) node: Node,
    pub(crate) log_writer: LogWriter,
    pub(crate) snapshots: Snapshots,
    pub(crate) snapshot_disk: SnapshotDisk,
    pub(crate) net: Arc<Net>,
    pub(crate) member: MemberHandle,
    pub(crate) events: Receiver<LoopEvent>,
    pub(crate) on_end: OnEnd,
    // Held for its lock.
    pub(crate) dir: DataDir,
}

/// What a loop knows from turn to turn.
struct Driver {
    on: EventLoop,
    callers: Callers,
    outputs: Vec<Output>,
    outgoing: BTreeMap<MemberId, Vec<Frame>>,
    written_at_us: u64,
    /// Watches were offered everything up to this revision.
    told: Revision,
    /// Callers that wait for the member to end.
    leaving: Vec<Sender<()>>,
    may_end: bool,
    /// Why the directory does not take this member's record, as it was last logged.
    record_objection: Option<String>,
    count: Count,
}

/// What has to do with counting only.
struct Count {
    /// The last entry that was here at the start. What is applied up to it has happened, and was counted, before.
    from_index: u64,
    begun: bool,
    /// Commands of this turn that may have made room for others.
    freed: Vec<FreedAt>,
}

impl EventLoop {
    /// Runs until the member ends.
    pub(crate) fn run(self) {
        let guard = EndOnPanic { member: self.member.clone() };
        let driver = Driver {
            count: Count {
                from_index: self.log_writer.last_index(),
                begun: false,
                freed: Vec::new(),
            },
            told: self.node.machine().revision(),
            on: self,
            callers: Callers::default(),
            outputs: Vec::new(),
            outgoing: BTreeMap::new(),
            written_at_us: 0,
            leaving: Vec::new(),
            may_end: false,
            record_objection: None,
        };
        driver.run();
        drop(guard);
    }
}

/// Ends the process when the loop panics in a build that unwinds, as debug builds and tests do. The panic hook only
/// logs, and members inside a test have none, so the process would go on without its loop. Release builds abort
/// instead.
struct EndOnPanic {
    member: MemberHandle,
}

impl Drop for EndOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            tracing::error!("panic in the event loop; stopping. No acknowledged command is lost");
            crate::log::flush();
            self.member.over().end(End::Disk("a bug".into()));
            std::process::exit(1);
        }
    }
}

impl Driver {
    fn run(mut self) {
        let end = self.turns();
        self.on.member.over().end(end.clone());
        self.tell_callers();
        self.on.net.close();
        self.on.member.outbox().send(Delivery::Notices(Vec::new()));
        self.on.member.feed().close();
        self.on.member.tally().close();
        if end.is_corrupt() || end == End::Cluster(Stop::Removed) {
            // Whoever ends the process then would end the APIs too, before they have said why.
            std::thread::sleep(LAST_WORDS);
        }
        if end != End::Told {
            (self.on.on_end)(&end);
        }
        let told = std::mem::take(&mut self.leaving);
        // The directory is free before anyone hears that it is.
        drop(self);
        for done in told {
            let _ = done.send(());
        }
    }

    /// Tells every caller that still waits that the member has ended.
    fn tell_callers(&mut self) {
        let mut outputs = Vec::new();
        self.on.node.end(&mut outputs);
        for output in outputs {
            self.callers.perform(output, &self.on.node, &self.on.member);
        }
        while let Ok(event) = self.on.events.try_recv() {
            callers::refuse(event, &self.on.member);
        }
    }

    fn turns(&mut self) -> End {
        self.on.log_writer.measure(self.on.member.meters().clone());
        self.on.log_writer.prepare(self.on.member.inbox());
        let mut wait = Duration::ZERO;
        loop {
            if let Err(end) = self.take(wait) {
                return end;
            }
            // After the last input was taken, never before: see `Node::turn`.
            let now_us = os::now_us();
            let machine = self.on.node.machine();
            let before = (machine.clock_ms(), machine.next_due_ms());
            let mut counted =
                CountingObserver { meters: self.on.member.meters(), freed: &mut self.count.freed };
            let wake_at_us = self.on.node.turn(now_us, &mut self.outputs, &mut counted);
            self.count_late(before);
            let synced = match self.perform(now_us) {
                Ok(synced) => synced,
                Err(end) => return end,
            };
            let inbox = self.on.member.inbox();
            if let Some(space) = self.on.log_writer.look(now_us, &self.on.snapshots, inbox) {
                self.on.node.handle(Input::Space(space));
            }
            if self.may_end {
                return self.last_words();
            }
            wait = if synced { Duration::ZERO } else { os::until(wake_at_us) };
        }
    }

    /// Waits for an input and takes all that are there.
    fn take(&mut self, wait: Duration) -> Result<(), End> {
        let first = if wait.is_zero() {
            match self.on.events.try_recv() {
                Ok(event) => Some(event),
                Err(TryRecvError::Empty) => None,
                Err(TryRecvError::Disconnected) => return Err(End::Told),
            }
        } else {
            match self.on.events.recv_timeout(wait) {
                Ok(event) => Some(event),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return Err(End::Told),
            }
        };
        let Some(first) = first else { return self.mark_if_quiet() };
        self.handle(first)?;
        for _ in 1..TAKEN_MAX {
            let Ok(event) = self.on.events.try_recv() else { break };
            self.handle(event)?;
        }
        Ok(())
    }

    fn handle(&mut self, event: LoopEvent) -> Result<(), End> {
        let event = match self.callers.take(event) {
            Ok(input) => {
                self.on.node.handle(input);
                return Ok(());
            }
            Err(event) => event,
        };
        match event {
            LoopEvent::Look(ask) => ask(&self.on.node),
            LoopEvent::Freeze { done } => {
                let _ = done.send(self.on.node.freeze());
            }
            LoopEvent::Synced(report) => {
                let durable =
                    self.on.log_writer.finish(report).map_err(|fatal| fatal_end(&fatal))?;
                if let Some(number) = durable {
                    self.on.node.handle(Input::Persisted { number });
                }
            }
            LoopEvent::Prepared(prepared) => {
                self.on.log_writer.adopt(prepared).map_err(write_end)?
            }
            LoopEvent::Leave { done } => {
                self.leaving.push(done);
                self.on.node.handle(Input::Leave);
            }
            LoopEvent::Die(end) => return Err(end),
            LoopEvent::Input(_)
            | LoopEvent::Read { .. }
            | LoopEvent::Admin { .. }
            | LoopEvent::Join { .. } => {
                unreachable!("the node takes these")
            }
        }
        Ok(())
    }

    /// Does what the turn wants; tells whether something became durable.
    fn perform(&mut self, now_us: u64) -> Result<bool, End> {
        let mut wrote = false;
        let mut compact = None;
        let mut applied = None;
        let mut learned = None;
        let mut notices: Vec<Notice> = Vec::new();
        let mut outputs = std::mem::take(&mut self.outputs);
        for output in outputs.drain(..) {
            let Some(output) = self.callers.perform(output, &self.on.node, &self.on.member) else {
                continue;
            };
            let Some(output) = self.on.snapshot_disk.take(output) else { continue };
            match output {
                Output::Send { to, message } => self.send(to, &message),
                Output::SendSnapshot { to, step } => {
                    if !self.on.net.send_snapshot(to, step, self.on.snapshots.clone()) {
                        let saved = Saved::No;
                        self.on.node.handle(Input::SnapshotSent { to, saved });
                    }
                }
                Output::Persist(persist) => {
                    self.on.log_writer.write(&persist).map_err(write_end)?;
                    wrote = true;
                }
                Output::Notices(more) => {
                    // In order with the answers before and after them.
                    notices.extend(more.iter().cloned());
                    self.on.member.outbox().put(Delivery::Notices(more));
                }
                Output::Skipped => self.on.member.outbox().put(Delivery::CloseAll),
                Output::Applied { point, .. } => applied = Some(point.index),
                Output::SaveSnapshot { point, meta, frozen } => {
                    let (snapshots, member) = (self.on.snapshots.clone(), self.on.member.clone());
                    let work = move || save(&snapshots, point, &meta, &frozen, &member);
                    if !spawn("tenure-snapshot", work) {
                        let saved = Saved::No;
                        self.on.node.handle(Input::SnapshotSaved { point, saved });
                    }
                }
                Output::CompactLog { to } => compact = Some(to),
                Output::Led(lead) => {
                    self.on.member.set_lead(lead);
                    self.log_leader(lead.term.0, lead.by);
                }
                Output::Directory { directory, members, vouched } => {
                    learned = Some((directory, members, vouched));
                }
                Output::TransferEnded { to, point, ending } => {
                    let index = point.index;
                    match ending {
                        TransferEnd::Arrived => tracing::info!(%to, index, "snapshot sent"),
                        other => {
                            tracing::warn!(%to, index, cause = %other, "cannot send a snapshot");
                        }
                    }
                }
                Output::AskStanding { address, name, question } => {
                    self.on.net.ask_standing(address, name, question);
                }
                Output::CallBack { join, record } => {
                    if !self.on.net.call_back(join, record) {
                        let answer = Err("no thread for the call".to_owned());
                        self.on.node.handle(Input::CalledBack { join, answer });
                    }
                }
                Output::MayEnd => self.may_end = true,
                Output::Stop(stop) => return Err(End::Cluster(stop)),
                Output::Answer { .. }
                | Output::ReadReady { .. }
                | Output::ReadFailed { .. }
                | Output::JoinAnswer { .. }
                | Output::AdminDone { .. } => unreachable!("callers take these"),
                Output::FindSnapshot { .. }
                | Output::ReadChunk { .. }
                | Output::OpenTransfer { .. }
                | Output::WriteChunk { .. }
                | Output::FinishTransfer { .. } => unreachable!("the snapshot threads take these"),
            }
        }
        self.outputs = outputs;
        self.flush();
        // A removed member is told so before its link goes.
        if let Some((directory, members, vouched)) = learned {
            self.on.net.learn(&directory, &members, vouched);
            self.log_card_objection();
        }
        if let Some(index) = applied {
            self.offer(now_us, index, &notices);
        }
        // Before the sync: only what is durable on a majority is applied and answered.
        self.on.member.outbox().ring();
        let inbox = self.on.member.inbox();
        let durable =
            self.on.log_writer.sync(self.sync_where(), inbox).map_err(|fatal| fatal_end(&fatal))?;
        if wrote {
            self.written_at_us = now_us;
            self.on.log_writer.prepare(inbox);
        }
        if let Some(number) = durable {
            self.on.node.handle(Input::Persisted { number });
        }
        if let Some(to) = compact {
            self.on.log_writer.compact_to(to).map_err(write_end)?;
        }
        Ok(durable.is_some())
    }

    /// Leaves what was applied with those who watch and those who count.
    fn offer(&mut self, now_us: u64, index: u64, notices: &[Notice]) {
        let (member, count) = (&self.on.member, &mut self.count);
        let tally = member.tally();
        let counted = (count.begun && tally.is_attended()).then_some(|records| {
            // Room is handed over only if somebody waited for it, who then has a notice.
            let granted = |notice: &Notice| matches!(notice, Notice::Granted { .. });
            let freed = if notices.iter().any(granted) { &count.freed[..] } else { &[] };
            tally.leave(now_us, records, freed);
        });
        member.feed().offer(&mut self.told, self.on.node.machine(), counted);
        count.freed.clear();
        if count.begun {
            member.meters().count_notices(notices);
        }
        count.begun |= index >= count.from_index;
    }

    /// Notes by how much the first thing that ended by the clock in this turn was late.
    fn count_late(&self, (before_ms, due_ms): (u64, Option<u64>)) {
        let now_ms = self.on.node.machine().clock_ms();
        let Some(due_ms) = due_ms.filter(|due_ms| before_ms < now_ms && *due_ms <= now_ms) else {
            return;
        };
        if self.on.node.replica().leads() {
            self.on.member.meters().ended_late(now_ms - due_ms);
        }
    }

    /// A follower has nothing else to do than to wait for its disk. A leader has others to keep, so
    /// it does not wait for a slow one.
    fn sync_where(&self) -> Where {
        let slow = self.on.log_writer.is_slow();
        if self.on.node.replica().leads() && slow { Where::Aside } else { Where::Here }
    }

    fn send(&mut self, to: MemberId, message: &PeerMessage) {
        let class = match () {
            () if message.carries_entries() => Class::Entries,
            () if message.is_bulk() => Class::Bulk,
            () => Class::Urgent,
        };
        let frame = Frame::new(&message.encode(), class);
        self.outgoing.entry(to).or_default().push(frame);
    }

    /// Gives each link what the turn has for it, at once.
    fn flush(&mut self) {
        for (member, frames) in std::mem::take(&mut self.outgoing) {
            if !self.on.net.send(member, frames) {
                self.on.node.handle(Input::Unreachable { member });
            }
        }
    }

    fn mark_if_quiet(&mut self) -> Result<(), End> {
        let quiet = os::now_us().saturating_sub(self.written_at_us) >= QUIET_US;
        if quiet && self.on.log_writer.is_unmarked() {
            self.on.log_writer.mark().map_err(write_end)?;
        }
        Ok(())
    }

    fn log_leader(&self, term: u64, by: Option<MemberId>) {
        match by {
            Some(id) if id == self.on.node.replica().id() => tracing::info!(term, "leads"),
            Some(id) => tracing::info!(leader = %id, term, "follows"),
            None => tracing::info!(term, "nobody leads"),
        }
    }

    /// Logs why the leader does not write this member's record to the directory, once for each reason.
    fn log_card_objection(&mut self) {
        let objection = self.on.node.record_objection();
        if objection == self.record_objection {
            return;
        }
        match &objection {
            Some(why) => tracing::warn!(why, "the directory does not take this member's card"),
            None => tracing::info!("the directory takes this member's card"),
        }
        self.record_objection = objection;
    }

    fn last_words(&mut self) -> End {
        match self.on.log_writer.close() {
            Ok(()) => {
                let index = self.on.log_writer.last_index();
                let path = self.on.dir.path().display();
                tracing::info!(last_index = index, data = %path, "stopped");
                End::Told
            }
            Err(error) => write_end(error),
        }
    }
}

/// Writes a snapshot and reports, in any case.
fn save(
    snapshots: &Snapshots,
    point: tenure_store::Point,
    meta: &[u8],
    frozen: &tenure_core::Frozen,
    member: &MemberHandle,
) {
    let written = (|| {
        let mut sync_thread = snapshots.write(point, meta)?;
        let mut failed = None;
        frozen.write(&mut |part| {
            if failed.is_none() {
                failed = sync_thread.append(part).err();
            }
        });
        match failed {
            Some(error) => Err(error),
            None => sync_thread.finish(),
        }
    })();
    let saved = match written {
        Ok(id) => {
            tracing::info!(index = point.index, bytes = id.bytes, "snapshot saved");
            Saved::Yes
        }
        Err(SnapshotError::Fatal(fatal)) => return member.tell(LoopEvent::Die(fatal_end(&fatal))),
        Err(error) => {
            tracing::warn!(cause = chain(&error), "cannot save a snapshot");
            Saved::No
        }
    };
    member.tell(LoopEvent::Input(Input::SnapshotSaved { point, saved }));
}

fn write_end(error: WriteError) -> End {
    End::Disk(chain(&error))
}

fn fatal_end(error: &Fatal) -> End {
    End::Disk(chain(error))
}
