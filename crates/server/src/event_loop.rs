//! Drives one member's node on a thread of its own: the event loop.
//!
//! One turn takes the events that have arrived, reads the clock, ends the node's turn, and performs the outputs.
//! Messages and answers leave before the turn's write and its only sync, so that the other members' disks work while
//! this one does. The loop reports what became durable to the node at once, in a further turn without sleep.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use tenure_core::event::WallClock;
use tenure_core::outcome::Notice;
use tenure_node::transfer::TransferEnd;
use tenure_node::{Input, Node, Output, PeerMessage};
use tenure_raft::{MemberId, SnapshotDelivery, Stop};
use tenure_store::{DataDir, Fatal, SnapshotError, Snapshots, WriteError};
use tenure_types::Revision;

use crate::callers::{self, Callers, CountingObserver};
use crate::dispatch::Delivery;
use crate::error::chain;
use crate::inbox::InboxEvents;
use crate::log_writer::{LogWriter, spawn_for};
use crate::member::{End, LoopEvent, MemberHandle};
use crate::metrics::FreedAt;
use crate::os;
use crate::peer::{Frame, FrameClass, IncomingLinks, Net};
use crate::snapshot_disk::{SNAPSHOT_PAUSE_MAX, SnapshotDisk};

/// The largest number of events that one turn takes.
const TAKEN_MAX: usize = 8_192;
/// The longest sleep of an idle loop. `/healthz` reports a loop that has not turned for several times as long.
const IDLE: Duration = Duration::from_secs(1);
/// How long the APIs have to report that the member found damage or was removed, before the process may end.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(200);

/// Called on the event loop's thread when the member ends without being told to.
pub(crate) type OnEnd = Box<dyn Fn(&End) + Send>;

/// One member's event loop and everything that it owns.
pub(crate) struct EventLoop {
    pub(crate) node: Node,
    pub(crate) log_writer: LogWriter,
    pub(crate) snapshots: Snapshots,
    pub(crate) snapshot_disk: SnapshotDisk,
    pub(crate) net: Arc<Net>,
    pub(crate) member: MemberHandle,
    pub(crate) events: InboxEvents,
    pub(crate) on_end: OnEnd,
    // Owned for the lock on the data directory.
    pub(crate) dir: DataDir,
}

/// The state that an event loop keeps from turn to turn.
struct Driver {
    on: EventLoop,
    callers: Callers,
    events: Vec<LoopEvent>,
    incoming: IncomingLinks,
    /// Which of these connections are ready to be read.
    ready: Vec<bool>,
    outputs: Vec<Output>,
    outgoing: BTreeMap<MemberId, Vec<Frame>>,
    /// The revision up to which the loop has offered all events to watches.
    told: Revision,
    /// Callers that wait for the member to end.
    leaving: Vec<Sender<()>>,
    may_end: bool,
    /// The reason, as last logged, why the leader does not write this member's record to the directory.
    record_objection: Option<String>,
    count: Count,
}

/// The state that only metrics need.
struct Count {
    /// The last entry in the log at the start. Entries up to it were counted before the restart, so they are not
    /// counted again.
    from_index: u64,
    begun: bool,
    /// The commands of this turn that may have freed locks.
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
            events: Vec::new(),
            incoming: IncomingLinks::default(),
            ready: Vec::new(),
            outputs: Vec::new(),
            outgoing: BTreeMap::new(),
            leaving: Vec::new(),
            may_end: false,
            record_objection: None,
        };
        driver.run();
        drop(guard);
    }
}

/// Ends the process when the loop panics. Release builds abort by themselves. The members of the test layers are debug
/// builds, which unwind: without this, a failed assertion would leave a process without its loop, for which tests wait.
struct EndOnPanic {
    member: MemberHandle,
}

impl Drop for EndOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            tracing::error!("panic in the event loop; stopping. No acknowledged command is lost");
            crate::log::flush();
            self.member.over().end(End::Panic { thread: "tenure-loop" });
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
        self.on.member.archive().close();
        self.on.member.lock_metrics().close();
        if end.is_corrupt() || end == End::Cluster(Stop::Removed) {
            // `on_end` may end the process, and with it the APIs, before they have told clients why.
            std::thread::sleep(CLOSE_TIMEOUT);
        }
        if end != End::Told {
            (self.on.on_end)(&end);
        }
        let told = std::mem::take(&mut self.leaving);
        // Frees the data directory before the callers of `leave` hear that the member has ended.
        drop(self);
        for done in told {
            let _ = done.send(());
        }
    }

    /// Answers every caller that still waits: the member has ended.
    fn tell_callers(&mut self) {
        let mut outputs = Vec::new();
        self.on.node.end(&mut outputs);
        for output in outputs {
            self.callers.perform(output, &self.on.node, &self.on.member);
        }
        for event in self.on.events.take_all() {
            callers::refuse(event, &self.on.member);
        }
    }

    fn turns(&mut self) -> End {
        // Also an event loop that hangs in its first turn has to be found.
        self.on.member.meters().turned(os::now_us());
        self.on.log_writer.measure(self.on.member.meters().clone());
        self.on.log_writer.prepare(self.on.member.inbox());
        let mut wait = Duration::ZERO;
        loop {
            if let Err(end) = self.take(wait) {
                return end;
            }
            // Read the clock after the last input was taken, never before: see `Node::turn`.
            let now_us = os::now_us();
            self.on.node.handle(Input::WallClock(WallClock { unix_ms: os::wall_ms() }));
            self.on.member.meters().turned(now_us);
            let machine = self.on.node.machine();
            let before = (machine.clock_ms(), machine.next_due_ms());
            let mut counted =
                CountingObserver { meters: self.on.member.meters(), freed: &mut self.count.freed };
            let wake_at_us = self.on.node.turn(now_us, &mut self.outputs, &mut counted);
            self.count_late(before);
            let (clock_ms, leader) = (self.on.node.machine().clock_ms(), self.on.node.lead().by);
            self.on.member.meters().clock_at(clock_ms, now_us, leader.is_some());
            // Before the answers of the turn: a caller that was told of a change of access can rely on it here.
            self.on.member.publish(self.on.node.machine());
            let synced = match self.perform(now_us) {
                Ok(synced) => synced,
                Err(end) => return end,
            };
            let inbox = self.on.member.inbox();
            if let Some(space) = self.on.log_writer.check_space(now_us, &self.on.snapshots, inbox) {
                self.on.node.handle(Input::Space(space));
            }
            if self.may_end {
                return self.close_log();
            }
            wait = if synced { Duration::ZERO } else { os::until(wake_at_us).min(IDLE) };
        }
    }

    /// Waits for an event or a message, and takes all that are there.
    fn take(&mut self, wait: Duration) -> Result<(), End> {
        let has_read = self.read_messages(wait);
        // Keeps its memory for the next turn.
        let mut events = std::mem::take(&mut self.events);
        self.on.events.take(TAKEN_MAX, &mut events);
        if events.is_empty() {
            self.events = events;
            if has_read {
                return Ok(());
            }
            return self.on.log_writer.mark_if_quiet(os::now_us()).map_err(write_end);
        }
        let (mut left, mut taken) = (TAKEN_MAX, 0);
        // Also what arrives meanwhile: it shares the turn's sync.
        while !events.is_empty() {
            left -= events.len();
            for event in events.drain(..) {
                taken += u64::from(is_counted(&event));
                self.handle(event)?;
            }
            self.on.events.take(left, &mut events);
        }
        self.events = events;
        // Once for all of them: other threads write to the same memory with every event that they send.
        self.on.member.meters().taken(taken);
        Ok(())
    }

    /// Waits for an event or a message of another member. Passes on the messages, and returns whether a
    /// connection was ready.
    fn read_messages(&mut self, wait: Duration) -> bool {
        let mut fds = self.incoming.fds();
        self.on.events.wait(wait, &mut fds);
        self.ready.clear();
        self.ready.extend(fds.iter().map(|fd| !fd.revents().is_empty()));
        if !self.ready.contains(&true) {
            return false;
        }
        let node = &mut self.on.node;
        self.incoming.read(&self.ready, &mut |message| node.handle(message));
        true
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
            LoopEvent::Inspect { ask, .. } => ask(&self.on.node),
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
                self.on.log_writer.adopt(*prepared).map_err(write_end)?;
            }
            LoopEvent::Incoming(link) => self.incoming.add(*link),
            LoopEvent::Leave { done } => {
                self.leaving.push(done);
                self.on.node.handle(Input::Leave);
            }
            LoopEvent::Die(end) => return Err(end),
            LoopEvent::Input(_)
            | LoopEvent::Call { .. }
            | LoopEvent::Read(_)
            | LoopEvent::Admin { .. }
            | LoopEvent::Join { .. } => {
                unreachable!("the node takes these")
            }
        }
        Ok(())
    }

    /// Performs the outputs of the turn and returns whether something became durable. If the member has to stop, its
    /// messages still leave: they tell the others what it has committed, or that its state differs.
    fn perform(&mut self, now_us: u64) -> Result<bool, End> {
        let mut stop = None;
        let mut writes = Vec::new();
        let mut compact = None;
        let mut applied = None;
        let mut learned = None;
        let mut notices: Vec<Notice> = Vec::new();
        let mut outputs = std::mem::take(&mut self.outputs);
        for output in outputs.drain(..) {
            // Of a state that made the member stop, clients and the disk see no more.
            if stop.is_some() && !matches!(output, Output::Send { .. }) {
                continue;
            }
            let Some(output) = self.callers.perform(output, &self.on.node, &self.on.member) else {
                continue;
            };
            let Some(output) = self.on.snapshot_disk.take(output) else { continue };
            match output {
                Output::Send { to, message } => self.send(to, &message),
                Output::SendSnapshot { to, step } => {
                    if !self.on.net.send_snapshot(to, *step, self.on.snapshots.clone()) {
                        let saved = SnapshotDelivery::Failed;
                        self.on.node.handle(Input::SnapshotSent { to, saved });
                    }
                }
                Output::Persist(persist) => writes.push(persist),
                Output::Notices(more) => {
                    // Put at once, to stay in order with the answers before and after them.
                    notices.extend(more.iter().cloned());
                    self.on.member.outbox().put(Delivery::Notices(more));
                }
                Output::Skipped => self.on.member.outbox().put(Delivery::CloseAll),
                Output::Applied { point, .. } => applied = Some(point.index),
                Output::SaveSnapshot { point, meta, frozen } => {
                    let (snapshots, member) = (self.on.snapshots.clone(), self.on.member.clone());
                    let work = move || save(&snapshots, point, &meta, &frozen, &member);
                    if !spawn_for(self.on.member.inbox(), "tenure-snapshot", work) {
                        let saved = SnapshotDelivery::Failed;
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
                Output::AskStanding { of, address, name, question } => {
                    self.on.net.ask_standing(of, address, name, *question);
                }
                Output::CallBack { join, record } => {
                    if !self.on.net.call_back(join, *record) {
                        let answer = Err("no thread for the call".to_owned());
                        self.on.node.handle(Input::CalledBack { join, answer });
                    }
                }
                Output::MayEnd => self.may_end = true,
                Output::Stop(reason) => stop = Some(reason),
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
        // Before the write to the log: the other members' disks work while this one does.
        self.flush();
        // Safe before the sync: the node applies and answers only what is durable on a majority.
        self.on.member.outbox().ring();
        for persist in &writes {
            self.on.log_writer.write(persist, now_us).map_err(write_end)?;
        }
        if let Some(reason) = stop {
            return Err(End::Cluster(reason));
        }
        // The flush above tells a removed member so before its link is closed.
        if let Some((directory, members, vouched)) = learned {
            self.on.net.learn(&directory, &members, vouched);
            self.log_record_objection();
        }
        let (inbox, leads) = (self.on.member.inbox(), self.on.node.replica().leads());
        let durable = self.on.log_writer.sync(leads, inbox).map_err(|fatal| fatal_end(&fatal))?;
        if !writes.is_empty() {
            self.on.log_writer.prepare(inbox);
        }
        // Last: a leader's sync goes on meanwhile on its own thread, and no answer waits for watches and metrics.
        if let Some(index) = applied {
            self.offer(now_us, index, &notices);
        }
        if let Some(number) = durable {
            self.on.node.handle(Input::Persisted { number });
        }
        if let Some(to) = compact {
            self.on.log_writer.compact_to(to).map_err(write_end)?;
        }
        Ok(durable.is_some())
    }

    /// Offers what was applied to watches and to the lock metrics.
    fn offer(&mut self, now_us: u64, index: u64, notices: &[Notice]) {
        let (member, count) = (&self.on.member, &mut self.count);
        let lock_metrics = member.lock_metrics();
        let counted = (count.begun && lock_metrics.is_attended()).then_some(|records| {
            // A freed lock was handed over only if a waiter got it, and that waiter has a notice.
            let granted = |notice: &Notice| matches!(notice, Notice::Granted { .. });
            let freed = if notices.iter().any(granted) { &count.freed[..] } else { &[] };
            lock_metrics.leave(now_us, records, freed);
        });
        let archive = Some(&**member.archive()).filter(|it| it.is_running());
        member.feed().offer(&mut self.told, self.on.node.machine(), counted, archive);
        count.freed.clear();
        if count.begun {
            member.meters().count_notices(notices);
        }
        if !count.begun && index >= count.from_index {
            count.begun = true;
            member.identity().caught_up();
        }
        member.audit().news(count.begun, self.on.node.machine().revision());
    }

    /// Records how late the first thing was that the clock ended in this turn.
    fn count_late(&self, (before_ms, due_ms): (u64, Option<u64>)) {
        let now_ms = self.on.node.machine().clock_ms();
        let Some(due_ms) = due_ms.filter(|due_ms| before_ms < now_ms && *due_ms <= now_ms) else {
            return;
        };
        if self.on.node.replica().leads() {
            self.on.member.meters().ended_late(now_ms - due_ms);
        }
    }

    fn send(&mut self, to: MemberId, message: &PeerMessage) {
        let class = match () {
            () if message.carries_entries() => FrameClass::Entries,
            () if message.is_bulk() => FrameClass::Bulk,
            () => FrameClass::Urgent,
        };
        let frame = Frame::new(message, class);
        self.outgoing.entry(to).or_default().push(frame);
    }

    /// Hands each link all frames of the turn at once.
    fn flush(&mut self) {
        for (member, frames) in std::mem::take(&mut self.outgoing) {
            if !self.on.net.send(member, frames) {
                self.on.node.handle(Input::Unreachable { member });
            }
        }
    }

    fn log_leader(&self, term: u64, by: Option<MemberId>) {
        match by {
            Some(id) if id == self.on.node.replica().id() => tracing::info!(term, "became leader"),
            Some(id) => tracing::info!(leader = %id, term, "follows a leader"),
            None => tracing::info!(term, "no leader yet: electing one"),
        }
    }

    /// Logs why the leader does not write this member's record to the directory, once for each reason.
    fn log_record_objection(&mut self) {
        let objection = self.on.node.record_objection();
        if objection == self.record_objection {
            return;
        }
        match &objection {
            Some(why) => tracing::warn!(why, "the leader rejects this member's directory record"),
            None => tracing::info!("the leader accepts this member's directory record"),
        }
        self.record_objection = objection;
    }

    fn close_log(&mut self) -> End {
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

/// Writes a snapshot, which takes at most half of the disk's time, and reports whether that succeeded.
fn save(
    snapshots: &Snapshots,
    point: tenure_store::LogId,
    meta: &[u8],
    frozen: &tenure_core::Frozen,
    member: &MemberHandle,
) {
    let written = (|| {
        let mut writer = snapshots.write(point, meta)?;
        let mut failed = None;
        frozen.write(&mut |part| {
            if failed.is_some() {
                return;
            }
            match writer.append(part) {
                Ok(busy) if busy > Duration::ZERO => {
                    std::thread::sleep(busy.min(SNAPSHOT_PAUSE_MAX));
                }
                Ok(_) => {}
                Err(error) => failed = Some(error),
            }
        });
        match failed {
            Some(error) => Err(error),
            None => writer.finish(),
        }
    })();
    let saved = match written {
        Ok(id) => {
            tracing::info!(index = point.index, bytes = id.bytes, "snapshot saved");
            SnapshotDelivery::Delivered
        }
        Err(SnapshotError::Fatal(fatal)) => return member.tell(LoopEvent::Die(fatal_end(&fatal))),
        Err(error) => {
            tracing::warn!(cause = chain(&error), "cannot save a snapshot");
            SnapshotDelivery::Failed
        }
    };
    member.tell(LoopEvent::Input(Input::SnapshotSaved { point, saved }));
}

/// Whether an event was counted as sent: the log writer's own reports were not.
fn is_counted(event: &LoopEvent) -> bool {
    !matches!(event, LoopEvent::Synced(_) | LoopEvent::Prepared(_))
}

fn write_end(error: WriteError) -> End {
    End::Disk(chain(&error))
}

fn fatal_end(error: &Fatal) -> End {
    End::Disk(chain(error))
}
