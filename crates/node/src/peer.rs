//! Encodes and decodes the messages of members over a link.
//!
//! Messages of the replicated log begin with the version of their own format. Everything else begins with one
//! byte from 0xc0 on that names its kind.

use bytes::{Buf, BufMut, Bytes};
use tenure_core::codec::{decode_outcome, encode_outcome};
use tenure_raft::{MemberId, MembershipChange, Message, RejectReason, StepKind};
use tenure_types::Verb;

use crate::directory::MemberNames;
use crate::failure::NodeFailure;
use crate::io::{AdminRequest, Outcomes};
use crate::transfer::TransferMessage;

/// Commands, without the time that is left for them.
const COMMANDS: u8 = 0xc0;
const ANSWERS: u8 = 0xc1;
const ADMIN: u8 = 0xc2;
const ADMIN_ANSWER: u8 = 0xc3;
/// Commands, with the time that is left for them. Read by members that know level 2.
const COMMANDS_WITHIN: u8 = 0xc4;
/// A member's record. Read by members that know level 2, like the kinds from 0xc5 to 0xc9, which are a transfer's.
const ANNOUNCE: u8 = 0xca;

/// An admin request with the principal that wants it. Read by members that know level 3.
const ADMIN_BY: u8 = 0xcc;

/// The level from which on members read [`COMMANDS_WITHIN`] and all kinds of failures but [`FORBIDDEN_VERB`] and
/// [`FORBIDDEN_PRIORITY`].
pub(crate) const WITHIN_LEVEL: u16 = 2;
/// The level from which on members read [`ADMIN_BY`] and [`FORBIDDEN_VERB`].
pub(crate) const PRINCIPAL_LEVEL: u16 = tenure_core::request::LEVEL_ACCESS;
/// The level from which on members read [`FORBIDDEN_PRIORITY`].
const PRIORITY_LEVEL: u16 = tenure_core::request::LEVEL_PRIORITY_RULES;

/// The kind of a failure that names the missing verb.
const FORBIDDEN_VERB: u8 = 10;
/// The kind of a failure that names the greatest permitted priority.
const FORBIDDEN_PRIORITY: u8 = 11;

/// A message from one member to another.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PeerMessage {
    /// A message of the replicated log.
    Raft(Message),
    /// Commands that reached the sender and that the receiver, as leader, is to propose.
    Commands {
        /// The sender's number for them.
        number: u64,
        /// How long they may wait for others before they are proposed.
        linger_us: u64,
        /// How long the caller still waits. A member of an older version does not say.
        within_us: Option<u64>,
        /// The commands, in the form of the log.
        requests: Vec<Bytes>,
    },
    /// The results of forwarded commands.
    Answers {
        /// The receiver's number for them.
        number: u64,
        /// Each command's outcome, in order.
        outcomes: Outcomes,
    },
    /// An admin request that reached the sender and that the receiver, as leader, is to carry out.
    Admin {
        /// The sender's number for it.
        number: u64,
        /// The name of the principal that wants it. A member of an older version does not say.
        principal: Option<String>,
        /// The requested change.
        request: AdminRequest,
    },
    /// The result of a forwarded admin request.
    AdminAnswer {
        /// The receiver's number for it.
        number: u64,
        /// Its result.
        result: Result<(), NodeFailure>,
    },
    /// A part of the transfer of a snapshot.
    Transfer(Box<TransferMessage>),
    /// The sender's record, which the receiver, as leader, is to write to the directory.
    Announce {
        /// The sender's names.
        names: Box<MemberNames>,
    },
}

impl PeerMessage {
    /// Encodes the message.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.encode_into(&mut out);
        out
    }

    /// Encodes the message at the end of these bytes.
    pub fn encode_into(&self, out: &mut Vec<u8>) {
        let encoded = match self {
            PeerMessage::Raft(message) => return message.encode_into(out),
            PeerMessage::Commands { number, linger_us, within_us, requests } => {
                encode_commands(*number, *linger_us, *within_us, requests)
            }
            PeerMessage::Answers { number, outcomes } => encode_answers(*number, outcomes),
            PeerMessage::Admin { number, principal, request } => {
                encode_admin(*number, principal.as_deref(), request)
            }
            PeerMessage::AdminAnswer { number, result } => encode_admin_answer(*number, result),
            PeerMessage::Transfer(transfer) => transfer.encode(),
            PeerMessage::Announce { names } => {
                [&[ANNOUNCE][..], names.to_string().as_bytes()].concat()
            }
        };
        out.extend_from_slice(&encoded);
    }

    /// Decodes a message. No bytes make it panic, and it allocates at most a small multiple of their length.
    pub fn decode(bytes: &Bytes) -> Option<Self> {
        match bytes.first() {
            Some(&(COMMANDS | COMMANDS_WITHIN)) => decode_commands(bytes.clone()),
            Some(&ANSWERS) => decode_answers(bytes.slice(1..)),
            Some(&(ADMIN | ADMIN_BY)) => decode_admin(bytes.clone()),
            Some(&ADMIN_ANSWER) => decode_admin_answer(bytes.slice(1..)),
            Some(0xc5..=0xc9) => {
                let transfer = TransferMessage::decode(bytes.clone())?;
                Some(PeerMessage::Transfer(Box::new(transfer)))
            }
            Some(&ANNOUNCE) => {
                let names = MemberNames::parse(str::from_utf8(&bytes[1..]).ok()?)?;
                Some(PeerMessage::Announce { names: Box::new(names) })
            }
            _ => Message::decode(bytes).ok().map(PeerMessage::Raft),
        }
    }

    /// Whether it is a part of a snapshot. Such a message is large and not urgent: it must not delay others.
    pub fn is_bulk(&self) -> bool {
        matches!(self, PeerMessage::Transfer(it) if matches!(**it, TransferMessage::Chunk { .. }))
    }

    /// Whether it carries entries of the log, which are sent again if they are lost.
    pub fn carries_entries(&self) -> bool {
        matches!(self, PeerMessage::Raft(Message::Step(step)) if step.kind == StepKind::Append)
    }
}

fn encode_commands(
    number: u64,
    linger_us: u64,
    within_us: Option<u64>,
    requests: &[Bytes],
) -> Vec<u8> {
    let length: usize = requests.iter().map(|request| request.len() + 4).sum();
    let mut out = Vec::with_capacity(length + 29);
    out.put_u8(if within_us.is_some() { COMMANDS_WITHIN } else { COMMANDS });
    out.put_u64_le(number);
    out.put_u64_le(linger_us);
    if let Some(within_us) = within_us {
        out.put_u64_le(within_us);
    }
    out.put_u32_le(length_of(requests));
    for request in requests {
        out.put_u32_le(length_of(request));
        out.put_slice(request);
    }
    out
}

fn decode_commands(mut bytes: Bytes) -> Option<PeerMessage> {
    let kind = bytes.try_get_u8().ok()?;
    let number = bytes.try_get_u64_le().ok()?;
    let linger_us = bytes.try_get_u64_le().ok()?;
    let within_us = match kind {
        COMMANDS_WITHIN => Some(bytes.try_get_u64_le().ok()?),
        _ => None,
    };
    let count = bytes.try_get_u32_le().ok()? as usize;
    let mut requests = Vec::with_capacity(count.min(bytes.len() / 4));
    for _ in 0..count {
        requests.push(part(&mut bytes)?);
    }
    bytes.is_empty().then_some(PeerMessage::Commands { number, linger_us, within_us, requests })
}

fn encode_answers(number: u64, outcomes: &Outcomes) -> Vec<u8> {
    let mut out = Vec::with_capacity(16 + outcomes.len() * 48);
    out.put_u8(ANSWERS);
    out.put_u64_le(number);
    out.put_u32_le(length_of(outcomes));
    let mut bytes = Vec::new();
    for outcome in outcomes {
        match outcome {
            Ok(outcome) => {
                bytes.clear();
                encode_outcome(outcome, &mut bytes);
                out.put_u8(0);
                out.put_u32_le(length_of(&bytes));
                out.put_slice(&bytes);
            }
            Err(failure) => put_failure(&mut out, *failure),
        }
    }
    out
}

fn decode_answers(mut bytes: Bytes) -> Option<PeerMessage> {
    let number = bytes.try_get_u64_le().ok()?;
    let count = bytes.try_get_u32_le().ok()? as usize;
    let mut outcomes = Vec::with_capacity(count.min(bytes.len()));
    for _ in 0..count {
        outcomes.push(match bytes.try_get_u8().ok()? {
            0 => Ok(decode_outcome(&part(&mut bytes)?).ok()?),
            kind => Err(get_failure(kind, &mut bytes)?),
        });
    }
    bytes.is_empty().then_some(PeerMessage::Answers { number, outcomes })
}

fn encode_admin(number: u64, principal: Option<&str>, request: &AdminRequest) -> Vec<u8> {
    let mut out = vec![if principal.is_some() { ADMIN_BY } else { ADMIN }];
    out.put_u64_le(number);
    if let Some(principal) = principal {
        out.put_u32_le(length_of(principal.as_bytes()));
        out.put_slice(principal.as_bytes());
    }
    let (kind, changes) = match request {
        AdminRequest::Transfer(to) => (0, vec![(0, *to)]),
        AdminRequest::Change(changes) => (1, changes.iter().map(change_parts).collect()),
    };
    out.put_u8(kind);
    for (kind, member) in changes {
        out.put_u8(kind);
        out.put_u64_le(member.get());
    }
    out
}

fn change_parts(change: &MembershipChange) -> (u8, MemberId) {
    match change {
        MembershipChange::AddLearner(id) => (1, *id),
        MembershipChange::Promote(id) => (2, *id),
        MembershipChange::Remove(id) => (3, *id),
    }
}

fn decode_admin(mut bytes: Bytes) -> Option<PeerMessage> {
    let named = bytes.try_get_u8().ok()? == ADMIN_BY;
    let number = bytes.try_get_u64_le().ok()?;
    let principal =
        if named { Some(str::from_utf8(&part(&mut bytes)?).ok()?.to_owned()) } else { None };
    let kind = bytes.try_get_u8().ok()?;
    let mut changes = Vec::new();
    while !bytes.is_empty() {
        let change = bytes.try_get_u8().ok()?;
        let member = MemberId::new(bytes.try_get_u64_le().ok()?)?;
        changes.push(match change {
            0 if kind == 0 && changes.is_empty() => {
                let request = AdminRequest::Transfer(member);
                let message = PeerMessage::Admin { number, principal, request };
                return bytes.is_empty().then_some(message);
            }
            1 => MembershipChange::AddLearner(member),
            2 => MembershipChange::Promote(member),
            3 => MembershipChange::Remove(member),
            _ => return None,
        });
    }
    let request = AdminRequest::Change(changes);
    (kind == 1).then_some(PeerMessage::Admin { number, principal, request })
}

fn encode_admin_answer(number: u64, result: &Result<(), NodeFailure>) -> Vec<u8> {
    let mut out = vec![ADMIN_ANSWER];
    out.put_u64_le(number);
    match result {
        Ok(()) => out.put_u8(0),
        Err(failure) => put_failure(&mut out, *failure),
    }
    out
}

fn decode_admin_answer(mut bytes: Bytes) -> Option<PeerMessage> {
    let number = bytes.try_get_u64_le().ok()?;
    let result = match bytes.try_get_u8().ok()? {
        0 => Ok(()),
        kind => Err(get_failure(kind, &mut bytes)?),
    };
    bytes.is_empty().then_some(PeerMessage::AdminAnswer { number, result })
}

fn put_failure(out: &mut Vec<u8>, failure: NodeFailure) {
    match failure {
        NodeFailure::Unknown => out.put_u8(1),
        NodeFailure::Rejected(why) => {
            out.put_u8(2);
            put_reason(out, why);
        }
        NodeFailure::TooLarge { bound } => {
            out.put_u8(3);
            out.put_u64_le(bound);
        }
        NodeFailure::Expired => out.put_u8(4),
        NodeFailure::Overloaded => out.put_u8(5),
        NodeFailure::Forbidden { verb: None } => out.put_u8(6),
        NodeFailure::Forbidden { verb: Some(verb) } => {
            out.put_u8(FORBIDDEN_VERB);
            out.put_u8(verb as u8);
        }
        NodeFailure::PriorityForbidden { asked, most } => {
            out.put_u8(FORBIDDEN_PRIORITY);
            out.put_u8(asked);
            out.put_u8(most);
        }
        NodeFailure::Stopping => out.put_u8(7),
        NodeFailure::NoLeader => out.put_u8(8),
        NodeFailure::NotLeader { leader } => {
            out.put_u8(9);
            out.put_u64_le(leader.get());
        }
    }
}

fn get_failure(kind: u8, bytes: &mut Bytes) -> Option<NodeFailure> {
    Some(match kind {
        1 => NodeFailure::Unknown,
        2 => NodeFailure::Rejected(get_reason(bytes)?),
        3 => NodeFailure::TooLarge { bound: bytes.try_get_u64_le().ok()? },
        4 => NodeFailure::Expired,
        5 => NodeFailure::Overloaded,
        6 => NodeFailure::Forbidden { verb: None },
        7 => NodeFailure::Stopping,
        8 => NodeFailure::NoLeader,
        9 => NodeFailure::NotLeader { leader: MemberId::new(bytes.try_get_u64_le().ok()?)? },
        FORBIDDEN_VERB => {
            NodeFailure::Forbidden { verb: Some(Verb::from_number(bytes.try_get_u8().ok()?)?) }
        }
        FORBIDDEN_PRIORITY => NodeFailure::PriorityForbidden {
            asked: bytes.try_get_u8().ok()?,
            most: bytes.try_get_u8().ok()?,
        },
        _ => return None,
    })
}

/// The failure as a member that knows the rules up to this level can decode it. No translation claims an effect that
/// the original does not.
pub(crate) fn failure_for(level: u16, failure: NodeFailure) -> NodeFailure {
    if level >= PRIORITY_LEVEL {
        return failure;
    }
    let failure = match failure {
        // The verb with which every priority is permitted.
        NodeFailure::PriorityForbidden { .. } => NodeFailure::Forbidden { verb: Some(Verb::Force) },
        other => other,
    };
    if level >= PRINCIPAL_LEVEL {
        return failure;
    }
    if level >= WITHIN_LEVEL {
        return match failure {
            NodeFailure::Forbidden { .. } => NodeFailure::Forbidden { verb: None },
            other => other,
        };
    }
    match failure {
        NodeFailure::Unknown | NodeFailure::Rejected(_) | NodeFailure::TooLarge { .. } => failure,
        NodeFailure::Expired
        | NodeFailure::Overloaded
        | NodeFailure::Forbidden { .. }
        | NodeFailure::PriorityForbidden { .. } => NodeFailure::Rejected(RejectReason::Busy),
        NodeFailure::Stopping | NodeFailure::NoLeader => {
            NodeFailure::Rejected(RejectReason::NotLeader { leader: None })
        }
        NodeFailure::NotLeader { leader } => {
            NodeFailure::Rejected(RejectReason::NotLeader { leader: Some(leader) })
        }
    }
}

fn put_reason(out: &mut Vec<u8>, why: RejectReason) {
    match why {
        RejectReason::NotLeader { leader } => {
            out.put_u8(0);
            out.put_u64_le(leader.map_or(0, MemberId::get));
        }
        RejectReason::Transferring => out.put_u8(1),
        RejectReason::Busy => out.put_u8(2),
        RejectReason::Replaced => out.put_u8(3),
        RejectReason::ChangeUnderWay => out.put_u8(4),
        RejectReason::Impossible => out.put_u8(5),
        RejectReason::Retired => out.put_u8(6),
        RejectReason::DiskFull => out.put_u8(9),
        RejectReason::Expired => out.put_u8(10),
        RejectReason::NotCaughtUp { behind } => {
            out.put_u8(7);
            out.put_u64_le(behind);
        }
        RejectReason::LevelNotKnown { level, member, known } => {
            out.put_u8(8);
            out.put_u16_le(level);
            out.put_u64_le(member.get());
            out.put_u16_le(known.unwrap_or(u16::MAX));
        }
    }
}

fn get_reason(bytes: &mut Bytes) -> Option<RejectReason> {
    Some(match bytes.try_get_u8().ok()? {
        0 => RejectReason::NotLeader { leader: MemberId::new(bytes.try_get_u64_le().ok()?) },
        1 => RejectReason::Transferring,
        2 => RejectReason::Busy,
        3 => RejectReason::Replaced,
        4 => RejectReason::ChangeUnderWay,
        5 => RejectReason::Impossible,
        6 => RejectReason::Retired,
        9 => RejectReason::DiskFull,
        10 => RejectReason::Expired,
        7 => RejectReason::NotCaughtUp { behind: bytes.try_get_u64_le().ok()? },
        8 => RejectReason::LevelNotKnown {
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
    u32::try_from(items.len()).expect("a message is shorter than 4 GiB")
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_core::outcome::{Answer, Outcome};
    use tenure_types::{Refusal, Revision};

    fn reads_back(message: &PeerMessage) {
        let bytes = Bytes::from(message.encode());
        assert_eq!(PeerMessage::decode(&bytes).as_ref(), Some(message));
        for cut in 0..bytes.len() {
            assert_eq!(PeerMessage::decode(&bytes.slice(..cut)), None, "cut at {cut}");
        }
    }

    #[test]
    fn every_message_reads_back_and_no_part_of_one_does() {
        let id = |number| MemberId::new(number).unwrap();
        let outcome = |result| Ok(Outcome { revision: Revision(3), result });
        let whys = [
            RejectReason::Transferring,
            RejectReason::Busy,
            RejectReason::Replaced,
            RejectReason::ChangeUnderWay,
            RejectReason::Impossible,
            RejectReason::Retired,
            RejectReason::DiskFull,
            RejectReason::Expired,
            RejectReason::NotLeader { leader: Some(id(9)) },
            RejectReason::NotLeader { leader: None },
            RejectReason::NotCaughtUp { behind: 7 },
            RejectReason::LevelNotKnown { level: 2, member: id(9), known: Some(1) },
            RejectReason::LevelNotKnown { level: 2, member: id(9), known: None },
        ];
        let mut outcomes =
            vec![outcome(Ok(Answer::Released)), outcome(Err(Refusal::LeaseNotFound))];
        outcomes.extend(whys.map(|why| Err(NodeFailure::Rejected(why))));
        outcomes.extend(
            [
                NodeFailure::Unknown,
                NodeFailure::TooLarge { bound: 5 },
                NodeFailure::Expired,
                NodeFailure::Overloaded,
                NodeFailure::Forbidden { verb: None },
                NodeFailure::Forbidden { verb: Some(Verb::Operate) },
                NodeFailure::PriorityForbidden { asked: 7, most: 3 },
                NodeFailure::Stopping,
                NodeFailure::NoLeader,
                NodeFailure::NotLeader { leader: id(4) },
            ]
            .map(Err),
        );
        reads_back(&PeerMessage::Answers { number: 8, outcomes });
        let requests = vec![Bytes::from_static(b"one"), Bytes::new()];
        for within_us in [None, Some(77)] {
            let requests = requests.clone();
            reads_back(&PeerMessage::Commands { number: 7, linger_us: 50, within_us, requests });
        }
        for result in [
            Ok(()),
            Err(NodeFailure::Unknown),
            Err(NodeFailure::Rejected(RejectReason::Impossible)),
        ] {
            reads_back(&PeerMessage::AdminAnswer { number: 6, result });
        }
        let names = MemberNames::parse("a h:1 h:2 70").unwrap();
        let announce = PeerMessage::Announce { names: Box::new(names) };
        assert_eq!(PeerMessage::decode(&Bytes::from(announce.encode())), Some(announce));
        let point = tenure_store::LogId { index: 9, term: 2 };
        let snapshot = tenure_store::SnapshotId { point, bytes: 7, checksum: 5 };
        let chunk = TransferMessage::chunk(snapshot, 3, Bytes::from_static(b"part"));
        assert!(PeerMessage::Transfer(Box::new(chunk.clone())).is_bulk());
        reads_back(&PeerMessage::Transfer(Box::new(chunk)));
        reads_back(&PeerMessage::Transfer(Box::new(TransferMessage::Done { id: snapshot })));
        for principal in [None, Some(String::new()), Some("ana".to_owned())] {
            let request = AdminRequest::Transfer(id(4));
            reads_back(&PeerMessage::Admin { number: 5, principal, request });
        }
        reads_back(&PeerMessage::Raft(Message::Hello));
    }

    #[test]
    fn changes_of_members_read_back() {
        let id = |number| MemberId::new(number).unwrap();
        let changes = vec![
            MembershipChange::AddLearner(id(1)),
            MembershipChange::Promote(id(2)),
            MembershipChange::Remove(id(3)),
        ];
        for principal in [None, Some("ana".to_owned())] {
            let request = AdminRequest::Change(changes.clone());
            let message = PeerMessage::Admin { number: 5, principal, request };
            assert_eq!(PeerMessage::decode(&Bytes::from(message.encode())), Some(message));
        }
    }

    #[test]
    fn an_older_member_is_told_nothing_that_it_cannot_read() {
        for failure in [
            NodeFailure::Expired,
            NodeFailure::Forbidden { verb: Some(Verb::Operate) },
            NodeFailure::PriorityForbidden { asked: 7, most: 3 },
            NodeFailure::Stopping,
            NodeFailure::NoLeader,
        ] {
            let told = failure_for(1, failure);
            assert!(matches!(told, NodeFailure::Rejected(_)), "{failure:?}");
            assert_eq!(told.effect(), failure.effect());
        }
        let forbidden = NodeFailure::Forbidden { verb: Some(Verb::Operate) };
        assert_eq!(failure_for(2, forbidden), NodeFailure::Forbidden { verb: None });
        assert_eq!(failure_for(3, forbidden), forbidden);
        let urgent = NodeFailure::PriorityForbidden { asked: 7, most: 3 };
        let force = NodeFailure::Forbidden { verb: Some(Verb::Force) };
        assert_eq!([3, 14].map(|level| failure_for(level, urgent)), [force; 2]);
        assert_eq!(failure_for(15, urgent), urgent);
    }
}
