//! How does one thread drive the replica?
//!
//! One turn: take what has arrived, read the clock, end the replica's turn, do what comes out. Sends
//! leave before the one sync of the turn, so that other disks work while this one does. What became
//! durable is told to the replica at once, in a further turn without sleep.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError};
use std::time::Duration;

use tenure_core::outcome::Notice;
use tenure_raft::{
    Change, Input, Kind, MemberId, Membership, Message, Output, Replica, Saved, Stop, Ticket, Why,
    Wish,
};
use tenure_store::{DataDir, Fatal, SnapshotError, Snapshots, WriteError};
use tenure_types::Revision;

use crate::book;
use crate::edge::Delivery;
use crate::member::{End, Event, Lead, Member};
use crate::meter::Freed;
use crate::os;
use crate::peer::{Frame, Net};
use crate::pen::{Pen, Where, spawn};
use crate::prefer::{self, Chooser};
use crate::waiting::{Seen, Waiting};

/// A member that is to decide with the others is at most so many entries behind.
const BEHIND_MAX: u64 = 1_000;
/// Inputs taken in one turn, at most.
const TAKEN_MAX: usize = 8_192;
/// A log that was not written for so long is quiet, and is marked.
const QUIET_US: u64 = 500_000;
/// How often the address book is read again while the state changes.
const BOOK_US: u64 = 500_000;
/// How long a leader that leaves tries to hand over.
const HAND_OVER_US: u64 = 2_000_000;
/// How long the doors have to say that a member found damage.
const LAST_WORDS: Duration = Duration::from_millis(200);
/// The ticket of wishes whose answer nobody waits for; others count from 1.
const NOBODY: Ticket = Ticket(0);

/// Called on the loop when the member ends by itself.
pub(crate) type OnEnd = Box<dyn Fn(&End) + Send>;

/// One member's loop and everything it owns.
pub(crate) struct Loop {
    pub(crate) replica: Replica,
    pub(crate) pen: Pen,
    pub(crate) snapshots: Snapshots,
    pub(crate) net: Arc<Net>,
    pub(crate) member: Member,
    pub(crate) events: Receiver<Event>,
    pub(crate) on_end: OnEnd,
    // Held for its lock.
    pub(crate) dir: DataDir,
}

/// What a loop knows from turn to turn.
struct Driver {
    on: Loop,
    waiting: Waiting,
    outputs: Vec<Output>,
    outgoing: BTreeMap<MemberId, Vec<Frame>>,
    written_at_us: u64,
    book: Known,
    /// Watches were offered everything up to this revision.
    told: Revision,
    leaving: Option<(u64, Vec<Sender<()>>)>,
    chooser: Chooser,
    count: Count,
}

/// What has to do with counting only.
struct Count {
    /// The last entry that was here at the start. What is applied up to it has happened, and was counted, before.
    from_index: u64,
    begun: bool,
    /// Commands of this turn that may have made room for others.
    freed: Vec<Freed>,
}

/// The members and addresses that the links were last told.
#[derive(Default)]
struct Known {
    members: Membership,
    revision: Revision,
    at_us: u64,
}

impl Loop {
    /// Runs until the member ends.
    pub(crate) fn run(self) {
        let guard = Guard { member: self.member.clone() };
        let driver = Driver {
            count: Count { from_index: self.pen.last_index(), begun: false, freed: Vec::new() },
            told: self.replica.machine().revision(),
            on: self,
            waiting: Waiting::default(),
            outputs: Vec::new(),
            outgoing: BTreeMap::new(),
            written_at_us: 0,
            book: Known::default(),
            leaving: None,
            chooser: Chooser::default(),
        };
        driver.run();
        drop(guard);
    }
}

/// A loop that panics has ended too, and everyone must know.
struct Guard {
    member: Member,
}

impl Drop for Guard {
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
        self.waiting.end();
        self.on.net.close();
        self.on.member.over().end(end.clone());
        self.on.member.outbox().send(Delivery::Notices(Vec::new()));
        self.on.member.feed().close();
        self.on.member.tally().close();
        if end.is_corrupt() || end == End::Cluster(Stop::Removed) {
            // Whoever ends the process then would end the doors too, before they have said why.
            std::thread::sleep(LAST_WORDS);
        }
        if end != End::Told {
            (self.on.on_end)(&end);
        }
        let told = self.leaving.take();
        // The directory is free before anyone hears that it is.
        drop(self);
        for done in told.into_iter().flat_map(|(_, done)| done) {
            let _ = done.send(());
        }
    }

    fn turns(&mut self) -> End {
        self.tell_book(true);
        self.on.pen.measure(self.on.member.meters().clone());
        self.on.pen.prepare(self.on.member.inbox());
        let mut wait = Duration::ZERO;
        loop {
            if let Err(end) = self.take(wait) {
                return end;
            }
            // After the last input was taken, never before: see `Replica::turn`.
            let now_us = os::now_us();
            let machine = self.on.replica.machine();
            let before = (machine.clock_ms(), machine.next_due_ms());
            let wake_at_us = self.on.replica.turn(now_us, &mut self.outputs);
            self.count_late(before);
            let synced = match self.perform(now_us) {
                Ok(synced) => synced,
                Err(end) => return end,
            };
            let inbox = self.on.member.inbox();
            if let Some(space) = self.on.pen.look(now_us, &self.on.snapshots, inbox) {
                self.on.replica.handle(Input::Space(space));
            }
            if self.may_leave(now_us) {
                return self.last_words();
            }
            self.tell_book(false);
            self.choose_leader(now_us);
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

    /// Whether a learner that is to decide with the others is too far behind for it: until it has
    /// caught up, the majority would have one member less than it seems.
    fn too_early(&self, wish: &Wish) -> Option<Why> {
        let Wish::Change(changes) = wish else { return None };
        let status = self.on.replica.status();
        let behind = |change: &Change| match change {
            Change::Promote(id) => {
                let matched = *status.matched.get(id)?;
                let behind = status.committed.saturating_sub(matched);
                // One that has nothing yet may not be there at all, however short the log is.
                (matched == 0 || behind > BEHIND_MAX).then_some(behind)
            }
            Change::AddLearner(_) | Change::Remove(_) => None,
        };
        let behind = changes.iter().filter_map(behind).max()?;
        Some(Why::NotCaughtUp { behind })
    }

    fn handle(&mut self, event: Event) -> Result<(), End> {
        let input = match event {
            Event::Input(input) => input,
            Event::Submit(submission) => {
                let Some((ticket, requests, patience_us)) = self.waiting.submit(submission) else {
                    return Ok(());
                };
                if self.on.replica.leads() {
                    self.on.member.meters().took(requests.len());
                }
                Input::Submit { ticket, requests, patience_us }
            }
            Event::Read(ask) => Input::Read { ticket: self.waiting.read(ask) },
            Event::Wish { wish, done } => {
                if let Some(why) = self.too_early(&wish) {
                    done(Err(why));
                    return Ok(());
                }
                Input::Admin { ticket: self.waiting.wish(done), wish }
            }
            Event::Look(ask) => {
                ask(&self.on.replica);
                return Ok(());
            }
            Event::Freeze { done } => {
                let _ = done.send(self.on.replica.freeze());
                return Ok(());
            }
            Event::Synced(report) => {
                let durable = self.on.pen.finish(report).map_err(|fatal| fatal_end(&fatal))?;
                let Some(number) = durable else { return Ok(()) };
                Input::Persisted { number }
            }
            Event::Prepared(prepared) => return self.on.pen.adopt(prepared).map_err(write_end),
            Event::Leave { done } => {
                self.leave(done);
                return Ok(());
            }
            Event::Die(end) => return Err(end),
        };
        self.on.replica.handle(input);
        Ok(())
    }

    /// Does what the turn wants; tells whether something became durable.
    fn perform(&mut self, now_us: u64) -> Result<bool, End> {
        let mut wrote = false;
        let mut compact = None;
        let mut applied = None;
        let mut notices: Vec<Notice> = Vec::new();
        let mut outputs = std::mem::take(&mut self.outputs);
        for output in outputs.drain(..) {
            match output {
                Output::Send { to, message } => self.send(to, &message),
                Output::SendSnapshot { to, step } => {
                    if !self.on.net.send_snapshot(to, step, self.on.snapshots.clone()) {
                        let saved = Saved::No;
                        self.on.replica.handle(Input::SnapshotSent { to, saved });
                    }
                }
                Output::Persist(persist) => {
                    self.on.pen.write(&persist).map_err(write_end)?;
                    wrote = true;
                }
                Output::Answer { ticket, fate } => {
                    let (meters, freed) = (self.on.member.meters(), &mut self.count.freed);
                    self.waiting.answer(ticket, fate, &mut Seen { now_us, meters, freed });
                }
                Output::ReadReady { ticket } => {
                    self.waiting.read_ready(ticket, self.on.replica.machine());
                }
                Output::ReadFailed { ticket } => self.waiting.read_failed(ticket),
                Output::Changed { ticket, result } => self.waiting.changed(ticket, result),
                Output::Notices(more) => notices.extend(more),
                Output::Applied { point, .. } => applied = Some(point.index),
                Output::SaveSnapshot { point, meta, frozen } => {
                    let (snapshots, member) = (self.on.snapshots.clone(), self.on.member.clone());
                    let work = move || save(&snapshots, point, &meta, &frozen, &member);
                    if !spawn("tenure-snapshot", work) {
                        let saved = Saved::No;
                        self.on.replica.handle(Input::SnapshotSaved { point, saved });
                    }
                }
                Output::CompactLog { to } => compact = Some(to),
                Output::Led { term, by } => {
                    self.on.member.set_lead(Lead { term, by });
                    self.say_led(term.0, by);
                }
                Output::Stop(stop) => return Err(End::Cluster(stop)),
            }
        }
        self.outputs = outputs;
        self.flush();
        if let Some(index) = applied {
            self.offer(now_us, index, &notices);
        }
        let inbox = self.on.member.inbox();
        let durable =
            self.on.pen.sync(self.sync_where(), inbox).map_err(|fatal| fatal_end(&fatal))?;
        if wrote {
            self.written_at_us = now_us;
            self.on.pen.prepare(inbox);
        }
        if let Some(number) = durable {
            self.on.replica.handle(Input::Persisted { number });
        }
        if let Some(to) = compact {
            self.on.pen.compact_to(to).map_err(write_end)?;
        }
        if !notices.is_empty() {
            self.on.member.outbox().put(Delivery::Notices(notices));
        }
        self.on.member.outbox().ring();
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
        member.feed().offer(&mut self.told, self.on.replica.machine(), counted);
        count.freed.clear();
        if count.begun {
            member.meters().told(notices);
        }
        count.begun |= index >= count.from_index;
    }

    /// Notes by how much the first thing that ended by the clock in this turn was late.
    fn count_late(&self, (before_ms, due_ms): (u64, Option<u64>)) {
        let now_ms = self.on.replica.machine().clock_ms();
        let Some(due_ms) = due_ms.filter(|due_ms| before_ms < now_ms && *due_ms <= now_ms) else {
            return;
        };
        if self.on.replica.leads() {
            self.on.member.meters().ended_late(now_ms - due_ms);
        }
    }

    /// A follower has nothing else to do than to wait for its disk. A leader has others to keep, so
    /// it does not wait for a slow one.
    fn sync_where(&self) -> Where {
        let slow = self.on.pen.is_slow();
        if self.on.replica.leads() && slow { Where::Aside } else { Where::Here }
    }

    fn send(&mut self, to: MemberId, message: &Message) {
        let entries = matches!(message, Message::Step(step) if step.kind == Kind::Append);
        let frame = Frame::new(&message.encode(), entries);
        self.outgoing.entry(to).or_default().push(frame);
    }

    /// Gives each link what the turn has for it, at once.
    fn flush(&mut self) {
        for (member, frames) in std::mem::take(&mut self.outgoing) {
            if !self.on.net.send(member, frames) {
                self.on.replica.handle(Input::Unreachable { member });
            }
        }
    }

    fn mark_if_quiet(&mut self) -> Result<(), End> {
        let quiet = os::now_us().saturating_sub(self.written_at_us) >= QUIET_US;
        if quiet && self.on.pen.is_unmarked() {
            self.on.pen.mark().map_err(write_end)?;
        }
        Ok(())
    }

    /// Tells the links who the members are and where they live.
    fn tell_book(&mut self, first: bool) {
        let now_us = os::now_us();
        let (members, machine) = (self.on.replica.members(), self.on.replica.machine());
        let due = self.book.revision != machine.revision()
            && now_us.saturating_sub(self.book.at_us) >= BOOK_US;
        if first || due || *members != self.book.members {
            self.on.net.learn(&book::read(machine), members);
            let members = members.clone();
            self.book = Known { members, revision: machine.revision(), at_us: now_us };
        }
    }

    fn say_led(&self, term: u64, by: Option<MemberId>) {
        match by {
            Some(id) if id == self.on.replica.id() => tracing::info!(term, "leads"),
            Some(id) => tracing::info!(leader = %id, term, "follows"),
            None => tracing::info!(term, "nobody leads"),
        }
    }

    /// Hands leadership to a member that is preferred, if one is and can take it.
    fn choose_leader(&mut self, now_us: u64) {
        if self.leaving.is_some() || !self.chooser.is_due(now_us) {
            return;
        }
        let replica = &mut self.on.replica;
        let (status, book) = (replica.status(), book::read(replica.machine()));
        let members = replica.members();
        if let Some(to) = self.chooser.look(now_us, replica.id(), &status, members, &book) {
            tracing::info!(%to, "hands leadership to a preferred member");
            replica.handle(Input::Admin { ticket: NOBODY, wish: Wish::Transfer(to) });
        }
    }

    fn leave(&mut self, done: Sender<()>) {
        if let Some((_, waiting)) = &mut self.leaving {
            waiting.push(done);
            return;
        }
        let status = self.on.replica.status();
        let voters = &self.on.replica.members().voters;
        let near = |id: MemberId| voters.contains(&id) && self.on.net.is_linked(id);
        let book = book::read(self.on.replica.machine());
        let next = prefer::successor(&status, &book, near);
        let mut until_us = 0;
        if let Some(to) = next.filter(|_| status.leading) {
            self.on.replica.handle(Input::Admin { ticket: NOBODY, wish: Wish::Transfer(to) });
            until_us = os::now_us() + HAND_OVER_US;
        }
        self.leaving = Some((until_us, vec![done]));
    }

    fn may_leave(&self, now_us: u64) -> bool {
        let Some((until_us, _)) = self.leaving else { return false };
        now_us >= until_us || !self.on.replica.status().leading
    }

    fn last_words(&mut self) -> End {
        match self.on.pen.close() {
            Ok(()) => {
                let index = self.on.pen.last_index();
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
    member: &Member,
) {
    let written = (|| {
        let mut writer = snapshots.write(point, meta)?;
        let mut failed = None;
        frozen.write(&mut |part| {
            if failed.is_none() {
                failed = writer.append(part).err();
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
            Saved::Yes
        }
        Err(SnapshotError::Fatal(fatal)) => return member.tell(Event::Die(fatal_end(&fatal))),
        Err(error) => {
            tracing::warn!(cause = chain(&error), "cannot save a snapshot");
            Saved::No
        }
    };
    member.tell(Event::Input(Input::SnapshotSaved { point, saved }));
}

fn write_end(error: WriteError) -> End {
    End::Disk(chain(&error))
}

fn fatal_end(error: &Fatal) -> End {
    End::Disk(chain(error))
}

/// An error and what caused it, in one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
