//! Defines the messages between members and their encoding.
//!
//! A message never names its sender or receiver: the link it came over identifies them. Proposals are not among the
//! kinds, so a member never accepts one from another member.

use bytes::Bytes;
use tenure_store::{LogEntry, LogId};

use crate::codec::{Malformed, Reader, Writer, share};
use crate::member::{MemberId, Membership};
use crate::observed::Observed;

/// The version of this format.
const VERSION: u8 = 2;

/// A message from one member to another.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Message {
    /// A message of the Raft protocol.
    Step(Box<Step>),
    /// The hash of the sender's state after an entry.
    Hash {
        /// Index of the entry.
        index: u64,
        /// The hash.
        hash: u128,
    },
    /// The sender has started, and asks what the receiver knows of its promises. Always answered.
    Hello,
    /// The answer to [`Message::Hello`]: what the sender knows that the receiver has promised. If the receiver's disk
    /// has less, it was rolled back.
    Remember(Observed),
    /// The sender's disk is nearly full. Repeated while it is.
    Short,
    /// The promises of members that the sender knows, passed on by a leader.
    Observed(Vec<(MemberId, Observed)>),
    /// The members according to the part of the log that the sender has applied. The sender vouches for them.
    Members(std::collections::BTreeSet<MemberId>),
}

/// A message of the Raft protocol. Its kind determines which fields have a meaning.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step {
    /// The kind of the message.
    pub kind: StepKind,
    /// The sender's term.
    pub term: u64,
    /// Term of the entry at `index`.
    pub log_term: u64,
    /// An index in the log.
    pub index: u64,
    /// The sender's commit index, or the one that the receiver may use.
    pub commit: u64,
    /// Term of the entry at `commit`.
    pub commit_term: u64,
    /// Whether the sender rejects.
    pub reject: bool,
    /// In a rejection: the index at which the logs may agree.
    pub reject_hint: u64,
    /// The context of a read, or the mark of a requested election.
    pub context: Bytes,
    /// From a leader: the newest entry that is durable on its own disk.
    pub durable: LogId,
    /// Entries after `index`.
    pub entries: Vec<LogEntry>,
    /// With [`StepKind::Snapshot`]: the snapshot that is sent along with this message.
    pub snapshot: Option<Box<AnnouncedSnapshot>>,
}

/// The snapshot that a message announces.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AnnouncedSnapshot {
    /// The last entry that it includes.
    pub point: LogId,
    /// The members after that entry. Only the snapshot itself contains the retired ones.
    pub members: Membership,
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $number:literal),+ $(,)?) => {
        /// The kinds of steps.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum StepKind { $($(#[$doc])* $name = $number),+ }

        impl StepKind {
            /// Returns the kind with this number.
            pub fn from_number(number: u8) -> Option<Self> {
                match number {
                    $($number => Some(Self::$name),)+
                    _ => None,
                }
            }
        }
    };
}

kinds! {
    /// Entries to append.
    Append = 1,
    /// The answer to `Append`.
    AppendAnswer = 2,
    /// A candidate requests a vote.
    Vote = 3,
    /// The answer to `Vote`.
    VoteAnswer = 4,
    /// A snapshot that replaces entries.
    Snapshot = 5,
    /// A leader's heartbeat.
    Heartbeat = 6,
    /// A follower's answer to a heartbeat.
    HeartbeatAnswer = 7,
    /// The receiver must start an election now.
    TimeoutNow = 8,
    /// A follower asks up to which index it must have applied to answer a read.
    ReadIndex = 9,
    /// The answer to `ReadIndex`.
    ReadIndexAnswer = 10,
    /// A member asks whether it would get a vote.
    PreVote = 11,
    /// The answer to `PreVote`.
    PreVoteAnswer = 12,
}

impl Message {
    /// Encodes the message.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.encode_into(&mut out);
        out
    }

    /// Encodes the message at the end of these bytes.
    pub fn encode_into(&self, out: &mut Vec<u8>) {
        out.reserve(64 + self.payload_bytes());
        out.put_u8(VERSION);
        match self {
            Message::Step(step) => step.put(out),
            Message::Hash { index, hash } => {
                out.put_u8(32);
                out.put(*index);
                out.extend_from_slice(&hash.to_le_bytes());
            }
            Message::Hello => out.put_u8(33),
            Message::Remember(observed) => {
                out.put_u8(34);
                observed.put(out);
            }
            Message::Short => out.put_u8(35),
            Message::Observed(all) => {
                out.put_u8(36);
                out.put(all.len() as u64);
                for (member, observed) in all {
                    out.put(member.get());
                    observed.put(out);
                }
            }
            Message::Members(ids) => {
                out.put_u8(37);
                out.put(ids.len() as u64);
                ids.iter().for_each(|id| out.put(id.get()));
            }
        }
    }

    /// Decodes a message; payloads share the buffer they arrived in. No input makes this panic, or allocate more than a
    /// small multiple of the input's size.
    pub fn decode(buffer: &Bytes) -> Result<Self, Malformed> {
        let mut reader = Reader::new(buffer);
        if reader.u8()? != VERSION {
            return Err(Malformed);
        }
        let message = match reader.u8()? {
            32 => {
                let index = reader.number()?;
                let hash = reader.raw(16)?.try_into().map_err(|_| Malformed)?;
                Message::Hash { index, hash: u128::from_le_bytes(hash) }
            }
            33 => Message::Hello,
            34 => Message::Remember(Observed::get(&mut reader)?),
            35 => Message::Short,
            36 => {
                let mut all = Vec::new();
                // The loop ends with the bytes, whatever number was claimed.
                for _ in 0..reader.number()? {
                    let member = MemberId::new(reader.number()?).ok_or(Malformed)?;
                    all.push((member, Observed::get(&mut reader)?));
                }
                Message::Observed(all)
            }
            37 => Message::Members(Membership::read_ids(&mut reader)?),
            kind => {
                let kind = StepKind::from_number(kind).ok_or(Malformed)?;
                Message::Step(Box::new(Step::get(kind, &mut reader, buffer)?))
            }
        };
        reader.end()?;
        Ok(message)
    }

    fn payload_bytes(&self) -> usize {
        match self {
            Message::Step(step) => step.entries.iter().map(|entry| entry.payload.len() + 24).sum(),
            _ => 0,
        }
    }
}

impl Step {
    fn put(&self, out: &mut Vec<u8>) {
        out.put_u8(self.kind as u8);
        for number in
            [self.term, self.log_term, self.index, self.commit, self.commit_term, self.reject_hint]
        {
            out.put(number);
        }
        out.put_u8(u8::from(self.reject));
        put_point(out, self.durable);
        out.put_bytes(&self.context);
        out.put_u8(u8::from(self.snapshot.is_some()));
        if let Some(head) = &self.snapshot {
            let AnnouncedSnapshot { point, members } = &**head;
            put_point(out, *point);
            members.encode(out);
        }
        // An entry's position gives its index, so the indexes cannot have a gap.
        out.put(self.entries.len() as u64);
        for entry in &self.entries {
            out.put(entry.term);
            out.put_u8(entry.kind);
            out.put_bytes(&entry.payload);
        }
    }

    fn get(kind: StepKind, reader: &mut Reader<'_>, buffer: &Bytes) -> Result<Self, Malformed> {
        let mut numbers = [0; 6];
        for number in &mut numbers {
            *number = reader.number()?;
        }
        let [term, log_term, index, commit, commit_term, reject_hint] = numbers;
        let reject = reader.flag()?;
        let durable = get_point(reader)?;
        let context = share(buffer, reader.bytes()?);
        let snapshot = if reader.flag()? {
            let point = get_point(reader)?;
            Some(Box::new(AnnouncedSnapshot { point, members: Membership::read(reader)? }))
        } else {
            None
        };
        if snapshot.is_some() != (kind == StepKind::Snapshot) {
            return Err(Malformed);
        }
        let mut entries = Vec::new();
        let mut before = log_term;
        for number in 1..=reader.number()? {
            let index = index.checked_add(number).ok_or(Malformed)?;
            let term = reader.number()?;
            if term < before || term == 0 {
                return Err(Malformed);
            }
            before = term;
            let kind = reader.u8()?;
            let payload = share(buffer, reader.bytes()?);
            entries.push(LogEntry { index, term, kind, payload });
        }
        if !entries.is_empty() && kind != StepKind::Append {
            return Err(Malformed);
        }
        Ok(Self {
            kind,
            term,
            log_term,
            index,
            commit,
            commit_term,
            reject,
            reject_hint,
            context,
            durable,
            entries,
            snapshot,
        })
    }
}

fn put_point(out: &mut Vec<u8>, point: LogId) {
    out.put(point.index);
    out.put(point.term);
}

fn get_point(reader: &mut Reader<'_>) -> Result<LogId, Malformed> {
    Ok(LogId { index: reader.number()?, term: reader.number()? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::member::MemberId;

    fn step(kind: StepKind) -> Step {
        Step {
            kind,
            term: 7,
            log_term: 5,
            index: 300,
            commit: 299,
            commit_term: 5,
            reject: false,
            reject_hint: 0,
            context: Bytes::from_static(b"context"),
            durable: LogId { index: 300, term: 5 },
            entries: Vec::new(),
            snapshot: None,
        }
    }

    fn examples() -> Vec<Message> {
        let entry = |index, term| LogEntry { index, term, kind: 0, payload: "payload".into() };
        let append = Step { entries: vec![entry(301, 5), entry(302, 7)], ..step(StepKind::Append) };
        let members = Membership {
            learners: MemberId::new(9).into_iter().collect(),
            ..Membership::of_voters((1..4).filter_map(MemberId::new))
        };
        let head = Box::new(AnnouncedSnapshot { point: LogId { index: 9, term: 2 }, members });
        let observed = Observed {
            term: 3,
            vote: MemberId::new(7),
            held_in: 3,
            held: LogId { index: u64::MAX, term: 3 },
            committed: LogId { index: 12, term: 2 },
        };
        vec![
            Message::Step(Box::new(append)),
            Message::Step(Box::new(step(StepKind::PreVoteAnswer))),
            Message::Step(Box::new(Step { snapshot: Some(head), ..step(StepKind::Snapshot) })),
            Message::Hash { index: 1000, hash: u128::MAX / 3 },
            Message::Hello,
            Message::Remember(observed),
            Message::Short,
            Message::Observed(MemberId::new(2).map(|id| (id, observed)).into_iter().collect()),
            Message::Members((1..4).filter_map(MemberId::new).collect()),
        ]
    }

    #[test]
    fn what_is_written_is_read_back() {
        for message in examples() {
            let bytes = Bytes::from(message.encode());
            assert_eq!(Message::decode(&bytes), Ok(message));
        }
    }

    #[test]
    fn no_part_and_no_flipped_bit_of_a_message_makes_reading_panic() {
        for message in examples() {
            let bytes = message.encode();
            for end in 0..bytes.len() {
                let part = Bytes::copy_from_slice(&bytes[..end]);
                assert_eq!(Message::decode(&part), Err(Malformed));
            }
            for bit in 0..bytes.len() * 8 {
                let mut flipped = bytes.clone();
                flipped[bit / 8] ^= 1 << (bit % 8);
                if let Ok(read) = Message::decode(&Bytes::from(flipped.clone())) {
                    assert_eq!(read.encode(), flipped, "one way to write each message");
                }
            }
        }
    }
}
