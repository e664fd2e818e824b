//! How do commands that reach a follower get to the leader, and their answers back?
//!
//! In frames of the link that the two have anyway. A member that is sent a command and does not lead
//! says so; it never sends it on, so there are no loops. When a link breaks, what was sent over it and
//! not answered may have happened.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::{Buf, BufMut, Bytes};
use tenure_core::codec::{decode_outcome, encode_outcome};
use tenure_core::outcome::{Answer, Notice, Outcome};
use tenure_raft::{Change, MemberId, Why, Wish};

use super::frame::Frame;
use super::net::Net;
use crate::edge::Delivery;
use crate::member::{Event, Member, Submission, Undone};

/// The first byte of a frame with commands; messages of the agreement begin with their version.
const COMMANDS: u8 = 0xc0;
/// The first byte of a frame with answers.
const ANSWERS: u8 = 0xc1;

/// The first byte of a frame with an operator's wish.
const WISH: u8 = 0xc2;
/// The first byte of a frame with what became of it.
const WISHED: u8 = 0xc3;

/// Told what became of forwarded commands, in order.
type Done = Box<dyn FnOnce(Vec<Result<Outcome, Undone>>) + Send>;
/// Told what became of a forwarded wish.
type WishDone = Box<dyn FnOnce(Result<(), Undone>) + Send>;

/// Commands that were sent on and are not answered yet.
#[derive(Default)]
pub(crate) struct Forwards {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    newest: u64,
    waiting: BTreeMap<u64, Waiting>,
}

struct Waiting {
    to: MemberId,
    what: What,
}

enum What {
    Commands { commands: usize, done: Done },
    Wish(WishDone),
}

impl What {
    /// Tells whoever waits that there is no answer, and what that means.
    fn fail(self, undone: Undone) {
        match self {
            What::Commands { commands, done } => done(vec![Err(undone); commands]),
            What::Wish(done) => done(Err(undone)),
        }
    }
}

/// A frame that the bytes of a link may be.
pub(super) enum Forwarded {
    Commands { number: u64, patience_us: u64, requests: Vec<Bytes> },
    Answers { number: u64, fates: Vec<Result<Outcome, Undone>> },
    Wish { number: u64, wish: Wish },
    Wished { number: u64, result: Result<(), Undone> },
}

impl Forwards {
    fn wait(&self, to: MemberId, what: What) -> u64 {
        let mut state = self.lock();
        state.newest += 1;
        let number = state.newest;
        state.waiting.insert(number, Waiting { to, what });
        number
    }

    /// The link to a member is gone: nobody will answer what was sent over it.
    pub(super) fn lost(&self, to: MemberId) {
        let mut state = self.lock();
        let numbers: Vec<u64> =
            state.waiting.iter().filter(|(_, it)| it.to == to).map(|(number, _)| *number).collect();
        let lost: Vec<Waiting> =
            numbers.iter().filter_map(|number| state.waiting.remove(number)).collect();
        drop(state);
        lost.into_iter().for_each(|waiting| waiting.what.fail(Undone::Unknown));
    }

    fn answered(&self, from: MemberId, number: u64) -> Option<What> {
        let mut state = self.lock();
        let expected = state.waiting.get(&number).is_some_and(|waiting| waiting.to == from);
        expected.then(|| state.waiting.remove(&number).map(|waiting| waiting.what)).flatten()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Net {
    /// Sends commands to the leader. `done` is called in any case, once.
    pub(crate) fn forward(&self, to: MemberId, requests: &[Bytes], patience_us: u64, done: Done) {
        #[cfg(feature = "virtual-time")]
        if let Some(leader) = self.inside(to) {
            let member = self.member.clone();
            let requests = requests.to_vec();
            return leader
                .submit_then(requests, patience_us, move |fates| deliver(&member, fates, done));
        }
        let commands = requests.len();
        let number = self.forwards.wait(to, What::Commands { commands, done });
        self.send_on(to, number, &encode_commands(number, patience_us, requests));
    }

    /// Sends an operator's wish to the leader. `done` is called in any case, once.
    pub(crate) fn forward_wish(&self, to: MemberId, wish: &Wish, done: WishDone) {
        #[cfg(feature = "virtual-time")]
        if let Some(leader) = self.inside(to) {
            let done = |result: Result<(), Why>| done(result.map_err(Undone::NotDone));
            return leader.wish_then(wish.clone(), done);
        }
        let number = self.forwards.wait(to, What::Wish(done));
        self.send_on(to, number, &encode_wish(number, wish));
    }

    fn send_on(&self, to: MemberId, number: u64, frame: &[u8]) {
        if !self.send(to, vec![Frame::new(frame, false)])
            && let Some(what) = self.forwards.answered(to, number)
        {
            // It never left this member.
            what.fail(Undone::NotDone(Why::NotLeader { leader: None }));
        }
    }
}

/// Does what a forwarded frame wants.
pub(super) fn take(net: &Arc<Net>, from: MemberId, forwarded: Forwarded) {
    match forwarded {
        Forwarded::Commands { number, patience_us, requests } => {
            let commands = requests.len();
            let kept = net.clone();
            let done = Box::new(move |fates: Vec<Result<Outcome, Undone>>| {
                let frame = encode_answers(number, &fates);
                // If the link is gone, the other end knows that it will not hear from us.
                kept.send(from, vec![Frame::new(&frame, false)]);
            });
            let event = Event::Submit(Submission::new(requests, patience_us, done));
            if let Err(not_taken) = net.member.try_tell(event)
                && let Event::Submit(submission) = not_taken.back()
            {
                (submission.done)(vec![Err(Undone::NotDone(Why::Busy)); commands]);
            }
        }
        Forwarded::Answers { number, fates } => match net.forwards.answered(from, number) {
            Some(What::Commands { commands, done }) if commands == fates.len() => {
                deliver(&net.member, fates, done);
            }
            other => drop(other.map(|what| what.fail(Undone::Unknown))),
        },
        Forwarded::Wish { number, wish } => {
            let kept = net.clone();
            net.member.wish_then(wish, move |result| {
                let frame = encode_wished(number, &result.map_err(Undone::NotDone));
                kept.send(from, vec![Frame::new(&frame, false)]);
            });
        }
        Forwarded::Wished { number, result } => match net.forwards.answered(from, number) {
            Some(What::Wish(done)) => done(result),
            other => drop(other.map(|what| what.fail(Undone::Unknown))),
        },
    }
}

/// Hands answers over, followed by what this member's own machine has said too early.
///
/// This member applies the same log, perhaps before the leader's answer arrives: then the notice of a
/// grant has passed before anyone listened for it. The loop looks what has become of each place.
fn deliver(member: &Member, fates: Vec<Result<Outcome, Undone>>, done: Done) {
    let queued = |fate: &Result<Outcome, Undone>| {
        matches!(fate, Ok(Outcome { result: Ok(Answer::Queued(_)), .. }))
    };
    if !fates.iter().any(queued) {
        return done(fates);
    }
    let outbox = member.outbox().clone();
    member.tell(Event::Look(Box::new(move |replica| {
        let machine = replica.machine();
        let mut missed = Vec::new();
        for fate in &fates {
            if let Ok(Outcome { revision, result: Ok(Answer::Queued(queued)) }) = fate
                && machine.revision() >= *revision
            {
                let lease = queued.lease;
                let (place, revision) = (queued.place, machine.revision());
                match machine.what_became_of(lease.id, lease.created, place) {
                    Answer::Acquired(acquired) => missed.push(Notice::Granted {
                        lease: lease.handle,
                        place,
                        revision,
                        grants: acquired.grants,
                    }),
                    Answer::Ended => {
                        missed.push(Notice::WaitEnded { lease: lease.handle, place, revision });
                    }
                    _ => {}
                }
            }
        }
        done(fates);
        outbox.send(Delivery::Notices(missed));
    })));
}

/// Whether the bytes of a frame are ours rather than the agreement's, and what they say.
pub(super) fn decode(bytes: &Bytes) -> Option<Option<Forwarded>> {
    match bytes.first() {
        Some(&COMMANDS) => Some(decode_commands(bytes.slice(1..))),
        Some(&ANSWERS) => Some(decode_answers(bytes.slice(1..))),
        Some(&WISH) => Some(decode_wish(bytes.slice(1..))),
        Some(&WISHED) => Some(decode_wished(bytes.slice(1..))),
        _ => None,
    }
}

/// A frame that can be read, written again: it has one form.
pub(crate) fn rewritten(bytes: &Bytes) -> Option<Vec<u8>> {
    Some(match decode(bytes)?? {
        Forwarded::Commands { number, patience_us, requests } => {
            encode_commands(number, patience_us, &requests)
        }
        Forwarded::Answers { number, fates } => encode_answers(number, &fates),
        Forwarded::Wish { number, wish } => encode_wish(number, &wish),
        Forwarded::Wished { number, result } => encode_wished(number, &result),
    })
}

fn encode_commands(number: u64, patience_us: u64, requests: &[Bytes]) -> Vec<u8> {
    let length: usize = requests.iter().map(|request| request.len() + 4).sum();
    let mut out = Vec::with_capacity(length + 21);
    out.put_u8(COMMANDS);
    out.put_u64_le(number);
    out.put_u64_le(patience_us);
    out.put_u32_le(length_of(requests));
    for request in requests {
        out.put_u32_le(length_of(request));
        out.put_slice(request);
    }
    out
}

fn decode_commands(mut bytes: Bytes) -> Option<Forwarded> {
    let number = bytes.try_get_u64_le().ok()?;
    let patience_us = bytes.try_get_u64_le().ok()?;
    let count = bytes.try_get_u32_le().ok()? as usize;
    let mut requests = Vec::with_capacity(count.min(bytes.len() / 4));
    for _ in 0..count {
        requests.push(part(&mut bytes)?);
    }
    bytes.is_empty().then_some(Forwarded::Commands { number, patience_us, requests })
}

fn encode_answers(number: u64, fates: &[Result<Outcome, Undone>]) -> Vec<u8> {
    let mut out = Vec::with_capacity(16 + fates.len() * 48);
    out.put_u8(ANSWERS);
    out.put_u64_le(number);
    out.put_u32_le(length_of(fates));
    let mut bytes = Vec::new();
    for fate in fates {
        match fate {
            Ok(outcome) => {
                bytes.clear();
                encode_outcome(outcome, &mut bytes);
                out.put_u8(0);
                out.put_u32_le(length_of(&bytes));
                out.put_slice(&bytes);
            }
            Err(undone) => put_undone(&mut out, *undone),
        }
    }
    out
}

fn decode_answers(mut bytes: Bytes) -> Option<Forwarded> {
    let number = bytes.try_get_u64_le().ok()?;
    let count = bytes.try_get_u32_le().ok()? as usize;
    let mut fates = Vec::with_capacity(count.min(bytes.len()));
    for _ in 0..count {
        fates.push(match bytes.try_get_u8().ok()? {
            0 => Ok(decode_outcome(&part(&mut bytes)?).ok()?),
            kind => Err(get_undone(kind, &mut bytes)?),
        });
    }
    bytes.is_empty().then_some(Forwarded::Answers { number, fates })
}

fn encode_wish(number: u64, wish: &Wish) -> Vec<u8> {
    let mut out = vec![WISH];
    out.put_u64_le(number);
    let (kind, changes) = match wish {
        Wish::Transfer(to) => (0, vec![(0, *to)]),
        Wish::Change(changes) => (1, changes.iter().map(change_parts).collect()),
    };
    out.put_u8(kind);
    for (kind, member) in changes {
        out.put_u8(kind);
        out.put_u64_le(member.get());
    }
    out
}

fn change_parts(change: &Change) -> (u8, MemberId) {
    match change {
        Change::AddLearner(id) => (1, *id),
        Change::Promote(id) => (2, *id),
        Change::Remove(id) => (3, *id),
    }
}

fn decode_wish(mut bytes: Bytes) -> Option<Forwarded> {
    let number = bytes.try_get_u64_le().ok()?;
    let kind = bytes.try_get_u8().ok()?;
    let mut changes = Vec::new();
    while !bytes.is_empty() {
        let change = bytes.try_get_u8().ok()?;
        let member = MemberId::new(bytes.try_get_u64_le().ok()?)?;
        changes.push(match change {
            0 if kind == 0 && changes.is_empty() => {
                let wish = Wish::Transfer(member);
                return bytes.is_empty().then_some(Forwarded::Wish { number, wish });
            }
            1 => Change::AddLearner(member),
            2 => Change::Promote(member),
            3 => Change::Remove(member),
            _ => return None,
        });
    }
    (kind == 1).then_some(Forwarded::Wish { number, wish: Wish::Change(changes) })
}

fn encode_wished(number: u64, result: &Result<(), Undone>) -> Vec<u8> {
    let mut out = vec![WISHED];
    out.put_u64_le(number);
    match result {
        Ok(()) => out.put_u8(0),
        Err(undone) => put_undone(&mut out, *undone),
    }
    out
}

fn decode_wished(mut bytes: Bytes) -> Option<Forwarded> {
    let number = bytes.try_get_u64_le().ok()?;
    let result = match bytes.try_get_u8().ok()? {
        0 => Ok(()),
        kind => Err(get_undone(kind, &mut bytes)?),
    };
    bytes.is_empty().then_some(Forwarded::Wished { number, result })
}

fn put_undone(out: &mut Vec<u8>, undone: Undone) {
    match undone {
        Undone::Unknown => out.put_u8(1),
        Undone::NotDone(why) => {
            out.put_u8(2);
            put_why(out, why);
        }
        Undone::TooLarge { bound } => {
            out.put_u8(3);
            out.put_u64_le(bound);
        }
    }
}

fn get_undone(kind: u8, bytes: &mut Bytes) -> Option<Undone> {
    match kind {
        1 => Some(Undone::Unknown),
        2 => get_why(bytes).map(Undone::NotDone),
        3 => Some(Undone::TooLarge { bound: bytes.try_get_u64_le().ok()? }),
        _ => None,
    }
}

/// Why something was not done, as far as the other end can use it.
fn put_why(out: &mut Vec<u8>, why: Why) {
    match why {
        Why::NotLeader { leader } => {
            out.put_u8(0);
            out.put_u64_le(leader.map_or(0, MemberId::get));
        }
        Why::Transferring => out.put_u8(1),
        Why::Busy => out.put_u8(2),
        Why::Replaced => out.put_u8(3),
        Why::ChangeUnderWay => out.put_u8(4),
        Why::Impossible => out.put_u8(5),
        Why::Retired => out.put_u8(6),
        Why::DiskFull => out.put_u8(9),
        Why::NotCaughtUp { behind } => {
            out.put_u8(7);
            out.put_u64_le(behind);
        }
        Why::LevelNotKnown { level, member, known } => {
            out.put_u8(8);
            out.put_u16_le(level);
            out.put_u64_le(member.get());
            out.put_u16_le(known.unwrap_or(u16::MAX));
        }
        // A reason that this version cannot name: it was not done, which is what matters.
        _ => out.put_u8(2),
    }
}

fn get_why(bytes: &mut Bytes) -> Option<Why> {
    Some(match bytes.try_get_u8().ok()? {
        0 => Why::NotLeader { leader: MemberId::new(bytes.try_get_u64_le().ok()?) },
        1 => Why::Transferring,
        2 => Why::Busy,
        3 => Why::Replaced,
        4 => Why::ChangeUnderWay,
        5 => Why::Impossible,
        6 => Why::Retired,
        9 => Why::DiskFull,
        7 => Why::NotCaughtUp { behind: bytes.try_get_u64_le().ok()? },
        8 => Why::LevelNotKnown {
            level: bytes.try_get_u16_le().ok()?,
            member: MemberId::new(bytes.try_get_u64_le().ok()?)?,
            known: Some(bytes.try_get_u16_le().ok()?).filter(|known| *known != u16::MAX),
        },
        _ => return None,
    })
}

fn part(bytes: &mut Bytes) -> Option<Bytes> {
    let length = bytes.try_get_u32_le().ok()? as usize;
    (length <= bytes.len()).then(|| bytes.split_to(length))
}

fn length_of<T>(items: &[T]) -> u32 {
    u32::try_from(items.len()).expect("a frame is shorter than 4 GiB")
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_types::{Refusal, Revision};

    #[test]
    fn commands_and_answers_read_back() {
        let requests = vec![Bytes::from_static(b"one"), Bytes::new()];
        let bytes = Bytes::from(encode_commands(7, 50, &requests));
        match decode(&bytes) {
            Some(Some(Forwarded::Commands { number: 7, patience_us: 50, requests: read })) => {
                assert_eq!(read, requests);
            }
            _ => panic!("commands did not read back"),
        }
        let outcome = |result| Ok(Outcome { revision: Revision(3), result });
        let leader = MemberId::new(9);
        let mut fates = vec![outcome(Ok(Answer::Released)), outcome(Err(Refusal::LeaseNotFound))];
        fates.push(Err(Undone::Unknown));
        let whys = [Why::Transferring, Why::Busy, Why::Replaced, Why::ChangeUnderWay];
        let member = MemberId::new(9).unwrap();
        let more = [
            Why::Impossible,
            Why::Retired,
            Why::DiskFull,
            Why::NotLeader { leader },
            Why::NotCaughtUp { behind: 7 },
            Why::LevelNotKnown { level: 2, member, known: Some(1) },
            Why::LevelNotKnown { level: 2, member, known: None },
        ];
        fates.extend(whys.into_iter().chain(more).map(|why| Err(Undone::NotDone(why))));
        let bytes = Bytes::from(encode_answers(8, &fates));
        match decode(&bytes) {
            Some(Some(Forwarded::Answers { number: 8, fates: read })) => assert_eq!(read, fates),
            _ => panic!("answers did not read back"),
        }
        for cut in 1..bytes.len() {
            assert!(matches!(decode(&bytes.slice(..cut)), Some(None)), "cut at {cut}");
        }
    }

    #[test]
    fn wishes_read_back() {
        let id = |number| MemberId::new(number).unwrap();
        let changes =
            vec![Change::AddLearner(id(1)), Change::Promote(id(2)), Change::Remove(id(3))];
        for wish in [Wish::Transfer(id(4)), Wish::Change(changes)] {
            match decode(&Bytes::from(encode_wish(5, &wish))) {
                Some(Some(Forwarded::Wish { number: 5, wish: read })) => assert_eq!(read, wish),
                _ => panic!("a wish did not read back"),
            }
        }
        for result in [Ok(()), Err(Undone::Unknown), Err(Undone::NotDone(Why::Impossible))] {
            match decode(&Bytes::from(encode_wished(6, &result))) {
                Some(Some(Forwarded::Wished { number: 6, result: read })) => {
                    assert_eq!(read, result);
                }
                _ => panic!("an answer to a wish did not read back"),
            }
        }
    }

    #[test]
    fn messages_of_the_agreement_are_not_ours() {
        let hello = Bytes::from(tenure_raft::Message::Hello.encode());
        assert!(decode(&hello).is_none());
    }
}
