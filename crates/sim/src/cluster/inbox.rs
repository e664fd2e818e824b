//! Holds the inputs that wait for a member's event loop in the queue that ships, and checks N16: while a source waits,
//! no other source gets more than its part. Checks N2 and N3 after each turn: no budget leaks, and no caller is
//! forgotten.

use std::collections::{BTreeMap, BTreeSet};

use tenure_core::codec::encode_request;
use tenure_core::request::{Command, Expect, Put, Request, RequestId};
use tenure_node::{
    CallId, CommandBatch, ConnectionShare, FAIR_QUANTUM, InboxClass, InboxQueue, Input, Permit,
    RateLimit, ReplyTo, STALLED_US, Served, Source, SourceShare, Weight, Window, WindowBounds,
    WindowPart,
};
use tenure_types::Revision;

use super::S;
use super::oracle::ensure;
use super::session_host::{Reader, SubmittedBatch, WaitKey, wait_key};
use super::world::SimCluster;
use crate::invariant::{CheckResult, InvariantViolation};

/// The number of principals that the clients of a run use.
const PRINCIPALS: usize = 3;
/// The source of a client that sends far more than the others.
const GREEDY: u64 = 99;
/// The commands that it sends at once.
const FLOOD: u64 = 200;
/// How long it waits for them: longer than a small window takes for all of them.
const FLOOD_US: u64 = 30 * S;
/// How long after its deadline a batch or a read may wait here, and for how many turns at least: a process that was
/// paused takes a part of what waits with each turn.
const LATE_US: u64 = 5 * S;
const LATE_TURNS: u32 = 100;
/// The most events that a turn takes, as in the server, and a smaller number, so that events are left for the next.
const TURN_MAX: [usize; 2] = [8_192, 8];

/// The inputs that wait for the event loop of one process.
pub(super) struct SimInbox {
    queue: InboxQueue<Input>,
    /// Commands in it that are admitted.
    commands: u64,
    /// Batches and reads in it.
    numbers: BTreeSet<WaitKey>,
    /// Those of them whose deadline has passed: since when, and how many turns ago.
    late: BTreeMap<WaitKey, (u64, u32)>,
    /// How many events each source has in the queue for the rest.
    queued: BTreeMap<u64, usize>,
    /// For each source that waits, the cost of what it and every other source got since it began to wait.
    turns: BTreeMap<u64, BTreeMap<u64, u64>>,
    /// The highest cost so far.
    cost_max: u64,
    sources: BTreeMap<u64, SimSource>,
    connections: BTreeMap<Source, ConnectionShare>,
}

/// A principal or an address at one member.
#[derive(Default)]
struct SimSource {
    share: SourceShare,
    rate: RateLimit,
    since_us: Option<u64>,
    taken: u64,
}

impl SimInbox {
    pub(super) fn new(bounds: WindowBounds) -> Self {
        Self {
            queue: InboxQueue::new(Window::new(bounds)),
            commands: 0,
            numbers: BTreeSet::new(),
            late: BTreeMap::new(),
            queued: BTreeMap::new(),
            turns: BTreeMap::new(),
            cost_max: 0,
            sources: BTreeMap::new(),
            connections: BTreeMap::new(),
        }
    }

    /// The admitted commands in it.
    pub(super) fn commands(&self) -> u64 {
        self.commands
    }

    /// Whether a batch or a read whose deadline has passed is here and may be: the loop takes and answers it soon.
    pub(super) fn may_be_late(&self, number: WaitKey, local_us: u64) -> bool {
        let late = self.late.get(&number).copied().unwrap_or((local_us, 0));
        let is_soon = local_us < late.0 + LATE_US || late.1 < LATE_TURNS;
        self.numbers.contains(&number) && is_soon
    }

    /// Counts a turn of those whose deadlines have passed and that are still here.
    pub(super) fn count_late(&mut self, overdue: impl Iterator<Item = WaitKey>, local_us: u64) {
        for number in overdue.filter(|number| self.numbers.contains(number)) {
            self.late.entry(number).or_insert((local_us, 0)).1 += 1;
        }
    }

    /// The share of a connection, which counts what it has in flight.
    pub(super) fn share(&mut self, source: Source) -> ConnectionShare {
        let of = || SimSource { share: SourceShare::new(source.share), ..SimSource::default() };
        let share = self.sources.entry(source.share).or_insert_with(of).share.clone();
        let connection = || ConnectionShare::new(source.connection, share);
        self.connections.entry(source).or_insert_with(connection).clone()
    }

    /// Whether a source may send one more request at this time of the member's clock. Also N2: it never sends more than
    /// its rate allows.
    pub(super) fn may_send(
        &mut self,
        source: Source,
        local_us: u64,
        per_second: u64,
    ) -> Result<bool, InvariantViolation> {
        let Some(found) = self.sources.get_mut(&source.share) else { return Ok(true) };
        if found.rate.take(local_us, per_second).is_err() {
            return Ok(false);
        }
        let since_us = *found.since_us.get_or_insert(local_us);
        found.taken += 1;
        let most = per_second * (local_us.saturating_sub(since_us) + 2 * S) / S;
        let taken = found.taken;
        ensure(taken <= most, "N2", || {
            format!("source {} has sent {taken} requests, {most} are allowed", source.share)
        })?;
        Ok(true)
    }

    /// Queues an input; a read comes from this source.
    fn push(&mut self, input: Input, reader: Source) {
        let class = match &input {
            Input::Submit(batch) => self.queue.class_of(batch),
            Input::Read { .. } => {
                InboxClass::Rest { source: reader, cost: tenure_node::COMMAND_COST }
            }
            Input::Admin { .. } | Input::Join { .. } | Input::Leave => {
                InboxClass::Keeps { source: Source::default(), cost: tenure_node::COMMAND_COST }
            }
            _ => InboxClass::Members,
        };
        self.commands += commands(&input);
        self.numbers.extend(number(&input));
        let mut owed = 0;
        if let InboxClass::Rest { source, cost } = class {
            if let Input::Submit(batch) = &input {
                owed = batch.permit.take_owed();
            }
            self.cost_max = self.cost_max.max(cost);
            *self.queued.entry(source.share).or_default() += 1;
            self.turns.entry(source.share).or_default();
        }
        self.queue.push(class, owed, input);
    }

    /// Takes the inputs of one turn. Returns them, and the parts of the window of the reads among them.
    fn take(&mut self, local_us: u64, most: usize) -> TakenInputs {
        let limit = self.queue.rest_limit(|| local_us);
        let (mut served, mut reads) = (Vec::new(), Vec::new());
        let mut inputs = Vec::new();
        let begin = |event: &mut Served<Input>, window: &Window| {
            served.push((event.source.share, event.cost));
            match &mut event.value {
                Input::Submit(batch) => batch.permit.begin(window.begin(event.cost)),
                Input::Read { read, .. } => reads.push((read.0, window.begin(event.cost))),
                _ => {}
            }
        };
        self.queue.take(most, limit, begin, &mut inputs);
        for input in &inputs {
            self.commands -= commands(input);
            if let Some(number) = number(input) {
                self.numbers.remove(&number);
                self.late.remove(&number);
            }
        }
        let checked = served.into_iter().try_for_each(|(share, cost)| self.served(share, cost));
        TakenInputs { inputs, reads, checked }
    }

    /// N16: what a source got counts for all that wait.
    fn served(&mut self, share: u64, cost: u64) -> CheckResult {
        let most = 2 * (FAIR_QUANTUM + self.cost_max);
        for (waits, got) in &mut self.turns {
            *got.entry(share).or_default() += cost;
            let own = got.get(waits).copied().unwrap_or(0);
            let theirs = got.get(&share).copied().unwrap_or(0);
            ensure(theirs <= own + most, "N16", || {
                format!("source {waits} waits and got {own}, source {share} got {theirs}")
            })?;
        }
        if let Some(left) = self.queued.get_mut(&share) {
            *left -= 1;
            if *left == 0 {
                self.queued.remove(&share);
                self.turns.remove(&share);
            }
        }
        Ok(())
    }

    /// Takes everything, when the process ends.
    pub(super) fn take_all(&mut self) -> Vec<Input> {
        self.commands = 0;
        self.numbers.clear();
        self.late.clear();
        self.queued.clear();
        self.turns.clear();
        self.queue.take_all()
    }

    /// How long after a turn the next one is due because of what is left here.
    fn due_in_us(&mut self, local_us: u64) -> Option<u64> {
        if self.queue.is_empty() {
            return None;
        }
        let limit = self.queue.rest_limit(|| local_us);
        Some(if self.queue.has_some(limit) { 50 } else { STALLED_US })
    }

    /// N2: nothing is counted as under way or in flight if nothing is.
    pub(super) fn check_idle(&self, member: usize) -> CheckResult {
        let cost = self.queue.window().cost();
        ensure(cost == 0 || !self.queue.is_empty(), "N2", || {
            format!("nothing is under way at {member}, and the window has a cost of {cost}")
        })?;
        for (source, SimSource { share, .. }) in &self.sources {
            let bytes = share.bytes();
            ensure(bytes == 0 || !self.queue.is_empty(), "N2", || {
                format!("source {source} has nothing in flight at {member}, and {bytes} bytes")
            })?;
        }
        Ok(())
    }
}

/// The inputs of one turn.
struct TakenInputs {
    inputs: Vec<Input>,
    reads: Vec<(u64, WindowPart)>,
    checked: CheckResult,
}

/// The source that a client's requests come from: several clients share a principal.
pub(super) fn source_of(client: usize, connection: u64) -> Source {
    Source { share: 1 + (client % PRINCIPALS) as u64, connection }
}

fn commands(input: &Input) -> u64 {
    match input {
        Input::Submit(batch) => batch.permit.commands(),
        _ => 0,
    }
}

/// The number by which the caller of an input waits.
fn number(input: &Input) -> Option<WaitKey> {
    match input {
        Input::Submit(batch) => Some(wait_key(batch.reply)),
        Input::Read { read, .. } => Some((0, read.0)),
        _ => None,
    }
}

impl SimCluster {
    /// Puts an input into the inbox of a process that runs.
    pub(super) fn put_in_inbox(&mut self, member: usize, input: Input) {
        let Some(process) = &mut self.sim_members[member].process else { return };
        let reader = match &input {
            Input::Read { read, .. } => process.host.reads.get(&read.0).map(|read| read.reader),
            _ => None,
        };
        let reader = match reader {
            Some(Reader::Session(stream)) => source_of(stream.client, stream.client as u64),
            _ => Source::default(),
        };
        process.inbox.push(input, reader);
    }

    /// Hands a member's loop the inputs of its turn, and returns how many there are.
    pub(super) fn take_inputs(
        &mut self,
        member: usize,
        local_us: u64,
    ) -> Result<usize, InvariantViolation> {
        let few = self.rng.u8(0..8) == 0;
        let Some(process) = &mut self.sim_members[member].process else { return Ok(0) };
        let TakenInputs { inputs, reads, checked } =
            process.inbox.take(local_us, TURN_MAX[usize::from(few)]);
        for (read, part) in reads {
            if let Some(waiting) = process.host.reads.get_mut(&read) {
                waiting.under_way = Some(part);
            }
        }
        let taken = inputs.len();
        for input in inputs {
            process.node.handle(input);
        }
        checked.map(|()| taken)
    }

    /// Wakes a member for what its last turn has left in the inbox.
    pub(super) fn wake_for_inbox(&mut self, member: usize, local_us: u64) {
        let Some(process) = &mut self.sim_members[member].process else { return };
        if let Some(in_us) = process.inbox.due_in_us(local_us) {
            self.faults.count(if in_us == STALLED_US { "window_closed" } else { "left_in_inbox" });
            self.wake(member, self.now_us + in_us);
        }
    }

    /// N2 and N3, after a turn of a member.
    pub(super) fn check_desk(&mut self, member: usize, local_us: u64) -> CheckResult {
        let Some(process) = &mut self.sim_members[member].process else { return Ok(()) };
        process.inbox.count_late(process.host.past_deadline(local_us), local_us);
        let (used, held) = (process.admission.commands(), process.node.held_commands());
        let hog = process.hog.as_ref().map_or(0, Permit::commands);
        let queued = process.inbox.commands();
        ensure(used == held + hog + queued, "N2", || {
            format!(
                "{used} commands are admitted at {member}, {held} and {hog} are in flight, {queued} wait"
            )
        })?;
        let host = &process.host;
        if held == 0 && host.batches.is_empty() && host.reads.is_empty() {
            process.inbox.check_idle(member)?;
        }
        ensure(used > 0 || process.admission.bytes() == 0, "N2", || {
            format!("no command is in flight at {member}, and {} bytes", process.admission.bytes())
        })?;
        let waiting: usize = process.host.batches.values().map(|batch| batch.admitted).sum();
        ensure(held + queued >= waiting as u64, "N2", || {
            format!("{waiting} commands wait at {member}, {held} are admitted")
        })?;
        match process.host.overdue(&process.inbox, local_us) {
            Some(what) => {
                Err(InvariantViolation::new("N3", format!("{what} at {member} has no answer")))
            }
            None => Ok(()),
        }
    }

    /// One client sends far more than the others, over several connections.
    pub(super) fn flood(&mut self, member: usize) {
        let (boot, local_us) =
            (self.sim_members[member].boot, self.sim_members[member].local_us(self.now_us));
        if !self.sim_members[member].is_up() {
            return;
        }
        self.faults.count("flood");
        for command in 0..FLOOD {
            self.numbers += 1;
            let number = self.numbers;
            let value = [7; 200];
            let value = &value[..self.rng.usize(0..value.len())];
            // All are refused, so that a whole flood in one entry does not use up the history.
            let expect = Expect::Modified(Revision(u64::MAX));
            let put = Put { key: "flood", value, lease: None, expect, guard: None };
            let request =
                Request { principal: "", id: RequestId::None, command: Command::Put(put) };
            let mut bytes = Vec::new();
            encode_request(&request, &mut bytes);
            let Some(process) = &mut self.sim_members[member].process else { return };
            let share = process.inbox.share(Source { share: GREEDY, connection: command % 4 });
            let length = bytes.len() as u64;
            let Some(permit) = process.admission.admit_from(Weight::Asks, length, Some(&share))
            else {
                return self.faults.count("overloaded");
            };
            let (asked_at_us, deadline_us) = (local_us, local_us + FLOOD_US);
            let pending = SubmittedBatch { session: None, asks: vec![0], admitted: 1, deadline_us };
            let reply = ReplyTo::Call(CallId(number));
            process.host.submitted(reply, pending);
            let (requests, linger_us) = ([bytes.into()].into(), 0);
            let batch =
                CommandBatch { requests, linger_us, asked_at_us, deadline_us, reply, permit };
            self.give(member, boot, Input::Submit(Box::new(batch)));
        }
    }
}
