//! Tests that a snapshot arrives whole, whatever the network, the disks and the processes at both ends do.
//!
//! Drives a sender and a receiver from a seed over a channel that loses, doubles, reorders and damages messages,
//! with crashes at both ends, lost links, damaged snapshots and failing disks. After a while the faults stop, and
//! the transfer must end.

use std::collections::BTreeMap;

use bytes::Bytes;
use tenure_node::transfer::{
    IncomingTransfer, OutgoingTransfers, ReplicaView, SnapshotUnreadable, TransferAction,
    TransferEnd, TransferMessage, TransferRefusal,
};
use tenure_raft::{AnnouncedSnapshot, MemberId, Membership, Step, StepKind};
use tenure_store::{LogId, SnapshotId};

const SECOND: u64 = 1_000_000;
/// The time until which there are faults.
const FAULTS_US: u64 = 60 * SECOND;
/// By then everything has arrived: a transfer that began just before the faults stopped may have to stall first.
const END_US: u64 = FAULTS_US + 400 * SECOND;
const BYTES_MAX: u64 = 3_000_000;

struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// The members at the two ends.
const SENDER: u64 = 1;
const RECEIVER: u64 = 2;

enum Event {
    Deliver { link: u64, to: u64, message: TransferMessage },
    Disk { boot: u64, action: TransferAction },
    Start,
    Link,
    Break,
    CrashSender,
    CrashReceiver,
    Installed { boot: u64, id: SnapshotId },
    Wake,
}

struct World {
    rng: Rng,
    now_us: u64,
    seq: u64,
    events: BTreeMap<(u64, u64), Event>,
    link: u64,
    linked: bool,
    faults: u64,
    source: Bytes,
    id: SnapshotId,
    outgoing: OutgoingTransfers,
    term: u64,
    sender_boot: u64,
    /// Transfers that were begun and not reported.
    open: u32,
    incoming: IncomingTransfer,
    receiver_boot: u64,
    receiver_busy_us: u64,
    part: Option<(SnapshotId, Vec<u8>)>,
    /// The transfer whose writes count: the last that was opened and did not fail.
    opened: Option<u64>,
    complete: Option<SnapshotId>,
    seen_term: u64,
    applied: u64,
    arrived: u64,
    wake_us: u64,
}

fn member(number: u64) -> MemberId {
    MemberId::new(number).unwrap()
}

fn size(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap()
}

fn buffer() -> Bytes {
    let mut rng = Rng(7);
    (0..BYTES_MAX / 8).flat_map(|_| rng.next().to_le_bytes()).collect::<Vec<u8>>().into()
}

impl World {
    fn new(seed: u64, buffer: &Bytes) -> Self {
        let mut rng = Rng(seed);
        let faults = rng.below(3) * 8;
        let point = LogId { index: 10, term: 1 };
        let mut world = Self {
            rng,
            now_us: 0,
            seq: 0,
            events: BTreeMap::new(),
            link: 1,
            linked: true,
            faults,
            source: buffer.clone(),
            id: SnapshotId { point, bytes: 1, checksum: 0 },
            outgoing: OutgoingTransfers::default(),
            term: 2,
            sender_boot: 1,
            open: 0,
            incoming: IncomingTransfer::default(),
            receiver_boot: 1,
            receiver_busy_us: 0,
            part: None,
            opened: None,
            complete: None,
            seen_term: 0,
            applied: 0,
            arrived: 0,
            wake_us: u64::MAX,
        };
        world.new_snapshot(buffer);
        world.after(0, Event::Start);
        if world.rng.chance(70) {
            for _ in 0..world.rng.below(6) {
                let at_us = world.rng.below(FAULTS_US);
                let event = match world.rng.below(3) {
                    0 => Event::Break,
                    1 => Event::CrashSender,
                    _ => Event::CrashReceiver,
                };
                world.after(at_us, event);
            }
        }
        world
    }

    /// The sender's replica has a newer snapshot, in other bytes.
    fn new_snapshot(&mut self, buffer: &Bytes) {
        let bytes = 1 + self.rng.below(BYTES_MAX);
        let begin = self.rng.below(BYTES_MAX - bytes + 1);
        self.source = buffer.slice(size(begin)..size(begin + bytes));
        let point = LogId { index: self.id.point.index + 1, term: 1 };
        self.id =
            SnapshotId { point, bytes, checksum: u32::try_from(self.rng.below(1 << 32)).unwrap() };
    }

    fn after(&mut self, delay_us: u64, event: Event) {
        self.seq += 1;
        self.events.insert((self.now_us + delay_us, self.seq), event);
    }

    fn fault(&mut self) -> bool {
        self.now_us < FAULTS_US && self.rng.chance(self.faults)
    }

    fn done(&self) -> bool {
        self.applied >= self.id.point.index && self.open == 0
    }

    fn run(&mut self, buffer: &Bytes) {
        while !self.done() || self.now_us < FAULTS_US {
            let Some(((at_us, _), event)) = self.events.pop_first() else {
                assert!(self.done(), "nothing is left to happen, and the snapshot has not arrived");
                return;
            };
            self.now_us = at_us;
            assert!(self.now_us < END_US, "the snapshot has not arrived, open: {}", self.open);
            let mut actions = Vec::new();
            let mut by = SENDER;
            match event {
                Event::Deliver { link, .. } if link != self.link || !self.linked => {}
                Event::Deliver { to: SENDER, message, .. } => {
                    self.outgoing.handle(member(RECEIVER), &message, self.now_us, &mut actions);
                }
                Event::Deliver { message, .. } => {
                    by = RECEIVER;
                    if let TransferMessage::Offer { step, .. } = &message {
                        self.seen_term = self.seen_term.max(step.term);
                    }
                    let view = ReplicaView { term: self.seen_term, applied: self.applied };
                    let from = member(SENDER);
                    self.incoming.handle(from, message, view, self.now_us, &mut actions);
                }
                Event::Disk { boot, action } => by = self.disk(boot, action, &mut actions),
                Event::Start => {
                    if self.linked && self.applied < self.id.point.index {
                        self.open = 1;
                        let step = self.step();
                        self.outgoing.start(member(RECEIVER), step, self.now_us, &mut actions);
                    } else if self.applied < self.id.point.index {
                        self.after(SECOND, Event::Start);
                    }
                }
                Event::Link => {
                    self.linked = true;
                    self.outgoing.linked(member(RECEIVER), self.now_us, &mut actions);
                }
                Event::Break => self.cut(),
                Event::CrashSender => {
                    self.cut();
                    self.sender_boot += 1;
                    self.term += 1;
                    self.outgoing = OutgoingTransfers::default();
                    self.open = 0;
                    if self.rng.chance(30) {
                        self.new_snapshot(buffer);
                    }
                    self.after(2 * SECOND, Event::Start);
                }
                Event::CrashReceiver => {
                    self.cut();
                    self.receiver_boot += 1;
                    self.incoming = IncomingTransfer::default();
                    self.receiver_busy_us = self.now_us;
                    self.opened = None;
                    if let Some((_, bytes)) = &mut self.part {
                        // What was not synced may be lost.
                        bytes.truncate(size(self.rng.below(bytes.len() as u64 + 1)));
                    }
                    if let Some(id) = self.complete {
                        self.applied = self.applied.max(id.point.index);
                    }
                }
                Event::Installed { boot, id } => {
                    if boot == self.receiver_boot {
                        self.applied = self.applied.max(id.point.index);
                    }
                }
                Event::Wake => self.wake_us = u64::MAX,
            }
            self.outgoing.turn(self.now_us, &mut actions);
            for action in actions {
                self.act(by, action, buffer);
            }
            let wake_us = self.outgoing.wake_us().max(self.now_us + 1);
            if wake_us < self.wake_us {
                self.wake_us = wake_us;
                self.after(wake_us - self.now_us, Event::Wake);
            }
        }
    }

    fn step(&self) -> Step {
        let point = self.id.point;
        let head = AnnouncedSnapshot { point, members: Membership::default() };
        Step {
            kind: StepKind::Snapshot,
            term: self.term,
            log_term: 0,
            index: 0,
            commit: 0,
            commit_term: 0,
            durable: LogId::default(),
            reject: false,
            reject_hint: 0,
            context: Bytes::new(),
            entries: vec![],
            snapshot: Some(Box::new(head)),
        }
    }

    /// The link breaks; a new one comes up later.
    fn cut(&mut self) {
        self.link += 1;
        self.linked = false;
        self.outgoing.unlinked(member(RECEIVER));
        let longest_us = if self.rng.chance(12) { 40 * SECOND } else { SECOND };
        let delay_us = 1 + self.rng.below(longest_us);
        self.after(delay_us, Event::Link);
    }

    fn act(&mut self, by: u64, action: TransferAction, buffer: &Bytes) {
        match action {
            TransferAction::Send { message, .. } => self.send(3 - by, message),
            TransferAction::Report { ending, .. } => self.report(ending, buffer),
            TransferAction::Find { .. } | TransferAction::Read { .. } => {
                let delay_us = 1 + self.rng.below(20_000);
                self.after(delay_us, Event::Disk { boot: self.sender_boot, action });
            }
            TransferAction::Open { .. }
            | TransferAction::Write { .. }
            | TransferAction::Finish { .. } => {
                // There is one disk, which works in order.
                let begin_us = self.receiver_busy_us.max(self.now_us);
                self.receiver_busy_us = begin_us + 1 + self.rng.below(20_000);
                let delay_us = self.receiver_busy_us - self.now_us;
                self.after(delay_us, Event::Disk { boot: self.receiver_boot, action });
            }
        }
    }

    fn send(&mut self, to: u64, mut message: TransferMessage) {
        if self.fault() {
            return;
        }
        if self.fault()
            && let TransferMessage::Chunk { bytes, .. } = &mut message
        {
            let mut damaged = bytes.to_vec();
            damaged[0] ^= 1;
            *bytes = damaged.into();
        }
        let copies = if self.fault() { 2 } else { 1 };
        for _ in 0..copies {
            let delay_us = if self.fault() { self.rng.below(3 * SECOND) } else { 1_000 };
            let message = message.clone();
            self.after(delay_us, Event::Deliver { link: self.link, to, message });
        }
    }

    fn report(&mut self, ending: TransferEnd, buffer: &Bytes) {
        assert_eq!(self.open, 1, "one report for each transfer");
        self.open = 0;
        if ending.is_damage() {
            self.new_snapshot(buffer);
        }
        // The engine finds out by probing whether the other end is there now.
        self.after(500_000, Event::Start);
    }

    fn disk(
        &mut self,
        boot: u64,
        action: TransferAction,
        actions: &mut Vec<TransferAction>,
    ) -> u64 {
        let to = member(RECEIVER);
        let receives = matches!(
            action,
            TransferAction::Open { .. }
                | TransferAction::Write { .. }
                | TransferAction::Finish { .. }
        );
        if boot != (if receives { self.receiver_boot } else { self.sender_boot }) {
            return SENDER;
        }
        let rare = self.rng.chance(2) && self.fault();
        match action {
            TransferAction::Find { point, .. } => {
                let id = (point == self.id.point && !rare).then_some(self.id);
                self.outgoing.found(to, point, id, self.now_us, actions);
            }
            TransferAction::Read { id, offset, len, .. } => {
                let bytes = if id != self.id || rare {
                    Err(if self.rng.chance(50) {
                        SnapshotUnreadable::Damaged
                    } else {
                        SnapshotUnreadable::Failed
                    })
                } else {
                    Ok(self.source.slice(size(offset)..size(offset + len)))
                };
                self.outgoing.read(to, id, offset, bytes, actions);
            }
            TransferAction::Write { number, .. } | TransferAction::Finish { number, .. }
                if self.opened != Some(number) => {}
            TransferAction::Open { number, id } if self.complete == Some(id) => {
                self.opened = Some(number);
                self.incoming.written(number, id.bytes, actions);
            }
            TransferAction::Open { number, id } => {
                self.opened = Some(number);
                self.part.take_if(|(part, _)| *part != id);
                let (_, bytes) = self.part.get_or_insert_with(|| (id, Vec::new()));
                self.incoming.written(number, bytes.len() as u64, actions);
            }
            TransferAction::Write { number, .. } if rare => {
                self.opened = None;
                self.incoming.failed(number, TransferRefusal::Disk, actions);
            }
            TransferAction::Write { number, id, offset, bytes } => {
                let (part, there) = self.part.as_mut().expect("it was opened");
                assert_eq!(*part, id, "bytes are of the snapshot that was opened");
                assert_eq!(there.len() as u64, offset, "bytes follow those that are there");
                there.extend_from_slice(&bytes);
                self.incoming.written(number, there.len() as u64, actions);
            }
            TransferAction::Finish { number, id, .. } => self.finish(number, id, rare, actions),
            TransferAction::Send { .. } | TransferAction::Report { .. } => {
                unreachable!("not of a disk")
            }
        }
        if receives { RECEIVER } else { SENDER }
    }

    fn finish(
        &mut self,
        number: u64,
        id: SnapshotId,
        rare: bool,
        actions: &mut Vec<TransferAction>,
    ) {
        if self.complete != Some(id) {
            let (part, bytes) = self.part.take().expect("it was opened");
            assert_eq!(part, id);
            assert_eq!(bytes.len() as u64, id.bytes, "nothing is missing");
            if id == self.id {
                assert!(bytes == self.source, "the snapshot arrived as it was sent");
            }
            if rare {
                self.opened = None;
                return self.incoming.failed(number, TransferRefusal::Damaged, actions);
            }
            self.complete = Some(id);
        }
        self.arrived += 1;
        self.incoming.received(id, self.now_us, actions);
        // The replica installs it soon, or not at all: it may be busy with another, or know a newer leader.
        if !(self.rng.chance(20) && self.now_us < FAULTS_US) {
            let delay_us = self.rng.below(900_000);
            self.after(delay_us, Event::Installed { boot: self.receiver_boot, id });
        }
    }
}

fn run(seeds: std::ops::Range<u64>) -> u64 {
    let buffer = buffer();
    seeds
        .map(|seed| {
            let mut world = World::new(seed, &buffer);
            let ran = std::panic::AssertUnwindSafe(|| world.run(&buffer));
            if let Err(panic) = std::panic::catch_unwind(ran) {
                eprintln!("seed {seed} failed");
                std::panic::resume_unwind(panic);
            }
            world.arrived
        })
        .sum()
}

#[cfg_attr(not(mutants), test)]
pub(crate) fn a_snapshot_arrives_whole_and_every_transfer_ends_in_one_report() {
    let arrived = run(0..2_000);
    assert!(arrived >= 2_000, "{arrived} snapshots arrived");
}
