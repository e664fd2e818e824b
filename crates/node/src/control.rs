//! Encodes and decodes the text protocol of the members' port.
//!
//! Members speak it before a link carries messages of the log, or instead of a link: to introduce themselves, to open a
//! link, to join, to read each other's event archives. A message is text, one `name value` per line, and the first line
//! names the message. It is sent rarely, and people read it in packet dumps. A reader ignores fields that it does not
//! know, so later versions can add some.

use std::collections::BTreeMap;
use std::fmt::Display;

use tenure_raft::{MemberId, RejectReason};
use tenure_store::{LogId, SnapshotId};
use tenure_types::Revision;

use crate::directory::{self, LEVEL_MIN, MemberNames, MemberRecord};
use crate::invitation::InvitationToken;
use crate::lineage::Lineage;

/// The longest message, in bytes. It has room for the longest records of as many members as a cluster can have.
pub const CONTROL_BYTES_MAX: usize = 256 * 1024;

/// A member's description of itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemberInfo {
    /// The member's line in the directory.
    pub record: MemberRecord,
    /// The cluster that it belongs to; none before it has bootstrapped or joined one.
    pub cluster: Option<String>,
    /// The records of the initial members of that cluster.
    pub initial_members: Vec<MemberRecord>,
    /// The level of that cluster's first state. Before there is a cluster: up to which level the member knows the
    /// machine's rules. Versions that do not say so know the oldest one.
    pub level: u16,
}

/// A message of the members' port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Control {
    /// Asks the receiver who it is.
    Who,
    /// Answers [`Control::Who`].
    MemberInfo(MemberInfo),
    /// Opens a link, and accepts one.
    Hello(PeerHello),
    /// Opens a connection that carries one snapshot. The step that announces it is the next frame. Members that
    /// know level 2 send snapshots over links instead.
    Snapshot(PeerHello, SnapshotId),
    /// Answers [`Control::Snapshot`] with the number of bytes that are already here.
    Have(u64),
    /// The snapshot arrived whole.
    Done,
    /// Asks for what the receiver's event archive has of the revisions from the first one on, before the second one.
    Archive(PeerHello, Revision, Revision),
    /// Answers [`Control::Archive`]: the next frame has what is known of the revisions before this one.
    Archived(PeerHello, Revision),
    /// Asks to be added to the cluster, or says that a member's record has changed.
    Join(Join),
    /// Answers [`Control::Join`]: the sender is a member now.
    Joined {
        /// The cluster.
        lineage: Lineage,
        /// The level of the rules that the cluster applies.
        level: u16,
        /// The directory.
        directory: Vec<MemberRecord>,
    },
    /// Another member leads: ask at this address.
    Elsewhere(String),
    /// The sender's id was removed from the cluster and is never used again.
    Retired,
    /// The sender has no invitation that admits it, for this reason.
    Uninvited(String),
    /// The leader refuses the request for this reason, and asking again does not help: the name is taken, for example.
    Rejected(String),
    /// The request is refused for now, for this reason.
    Refused(String),
}

/// The two ends of a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PeerHello {
    /// The cluster that the sender belongs to.
    pub lineage: Lineage,
    /// The sender.
    pub from: MemberId,
    /// The member that the sender means to reach.
    pub to: MemberId,
    /// The newest level of the machine's rules that the sender knows.
    pub level: u16,
}

/// A request to be a member.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Join {
    /// The sender's record.
    pub record: MemberRecord,
    /// The newest level of the machine's rules that the sender knows.
    pub level: u16,
    /// The cluster that the sender belongs to, if any.
    pub lineage: Option<Lineage>,
    /// The invitation that an operator gave to the sender. A member of the cluster needs none.
    pub invitation: Option<InvitationToken>,
}

impl Control {
    /// Encodes the message.
    pub fn encode(&self) -> Vec<u8> {
        let lines = match self {
            Control::Who => vec![line("who", 1)],
            Control::MemberInfo(me) => {
                let mut lines = vec![line("i-am", &me.record), line("level", me.level)];
                lines.extend(me.cluster.as_ref().map(|cluster| line("cluster", cluster)));
                lines.extend(me.initial_members.iter().map(|record| line("card", record)));
                lines
            }
            Control::Hello(hello) => [vec![line("hello", 1)], hello.lines()].concat(),
            Control::Snapshot(hello, id) => {
                let mut lines = [vec![line("snapshot", 1)], hello.lines()].concat();
                lines.push(line("index", id.point.index));
                lines.push(line("term", id.point.term));
                lines.push(line("bytes", id.bytes));
                lines.push(line("checksum", id.checksum));
                lines
            }
            Control::Have(bytes) => vec![line("have", bytes)],
            Control::Done => vec![line("done", 1)],
            Control::Archive(hello, first, before) => {
                let mut lines = [vec![line("archive", 1)], hello.lines()].concat();
                lines.extend([line("first", first), line("before", before)]);
                lines
            }
            Control::Archived(hello, before) => {
                let mut lines = [vec![line("archived", 1)], hello.lines()].concat();
                lines.push(line("before", before));
                lines
            }
            Control::Join(join) => {
                let mut lines = vec![line("join", &join.record), line("level", join.level)];
                lines.extend(join.lineage.iter().flat_map(Lineage::lines));
                lines.extend(join.invitation.as_ref().map(|token| line("invitation", token)));
                lines
            }
            Control::Joined { lineage, level, directory } => {
                let mut lines = vec![line("joined", 1), line("level", level)];
                lines.extend(lineage.lines());
                lines.extend(directory.iter().map(|record| line("card", record)));
                lines
            }
            Control::Elsewhere(address) => vec![line("elsewhere", address)],
            // Older members know only the refusal and compare its words.
            Control::Retired => vec![line("refused", RejectReason::Retired), line("retired", 1)],
            Control::Uninvited(why) => {
                vec![line("refused", one_line(why)), line("uninvited", 1)]
            }
            Control::Rejected(why) => vec![line("refused", one_line(why)), line("rejected", 1)],
            Control::Refused(why) => vec![line("refused", one_line(why))],
        };
        lines.join("\n").into_bytes()
    }

    /// Decodes a message. No bytes make it panic.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        if bytes.len() > CONTROL_BYTES_MAX {
            return None;
        }
        let text = str::from_utf8(bytes).ok()?;
        let (what, value) = text.lines().next()?.split_once(' ')?;
        let mut records = Vec::new();
        let mut fields = BTreeMap::new();
        for line in text.lines().skip(1) {
            match line.split_once(' ')? {
                ("card", record) => records.push(MemberRecord::parse(record)?),
                (name, value) => drop(fields.insert(name, value)),
            }
        }
        let number = |name: &str| fields.get(name)?.parse::<u64>().ok();
        Some(match what {
            "who" => Control::Who,
            "i-am" => {
                let cluster = fields.get("cluster").map(|&cluster| cluster.to_owned());
                let level = match fields.get("level") {
                    Some(level) => level.parse().ok().filter(|level| *level >= LEVEL_MIN)?,
                    None => LEVEL_MIN,
                };
                Control::MemberInfo(MemberInfo {
                    record: MemberRecord::parse(value)?,
                    cluster,
                    initial_members: records,
                    level,
                })
            }
            "hello" => Control::Hello(PeerHello::from(&fields)?),
            "snapshot" => {
                let point = LogId { index: number("index")?, term: number("term")? };
                let checksum = u32::try_from(number("checksum")?).ok()?;
                let id = SnapshotId { point, bytes: number("bytes")?, checksum };
                Control::Snapshot(PeerHello::from(&fields)?, id)
            }
            "have" => Control::Have(value.parse().ok()?),
            "done" => Control::Done,
            "archive" => {
                let [first, before] = [number("first")?, number("before")?].map(Revision);
                Control::Archive(PeerHello::from(&fields)?, first, before)
            }
            "archived" => Control::Archived(PeerHello::from(&fields)?, Revision(number("before")?)),
            "join" => {
                let level = u16::try_from(number("level")?).ok()?;
                let lineage = match fields.contains_key("cluster") {
                    true => Some(Lineage::parse(|name| fields.get(name).copied())?),
                    false => None,
                };
                let invitation = match fields.get("invitation") {
                    Some(text) => Some(InvitationToken::parse(text)?),
                    None => None,
                };
                let record = MemberRecord::parse(value)?;
                Control::Join(Join { record, level, lineage, invitation })
            }
            "joined" => {
                let lineage = Lineage::parse(|name| fields.get(name).copied())?;
                let level = u16::try_from(number("level")?).ok()?;
                Control::Joined { lineage, level, directory: records }
            }
            "elsewhere" => Control::Elsewhere(value.to_owned()),
            "refused" if fields.contains_key("retired") => Control::Retired,
            "refused" if fields.contains_key("uninvited") => Control::Uninvited(value.to_owned()),
            "refused" if fields.contains_key("rejected") => Control::Rejected(value.to_owned()),
            "refused" => Control::Refused(value.to_owned()),
            _ => return None,
        })
    }
}

impl PeerHello {
    fn lines(&self) -> Vec<String> {
        let mut lines = self.lineage.lines().to_vec();
        lines.extend([line("from", self.from), line("to", self.to), line("level", self.level)]);
        lines
    }

    fn from(fields: &BTreeMap<&str, &str>) -> Option<Self> {
        Some(Self {
            lineage: Lineage::parse(|name| fields.get(name).copied())?,
            from: directory::parse_id(fields.get("from")?)?,
            to: directory::parse_id(fields.get("to")?)?,
            level: fields.get("level")?.parse().ok()?,
        })
    }

    /// Why the member `me` must refuse a connection that begins so; `None` if it may go on.
    pub fn objection(&self, ours: &Lineage, me: MemberId) -> Option<String> {
        if let Some(why) = ours.objection(&self.lineage) {
            return Some(why);
        }
        if self.from == me {
            return Some("a member has no link to itself".to_owned());
        }
        (self.to != me).then(|| format!("this is member {me}, not {}", self.to))
    }
}

impl MemberInfo {
    /// A member that belongs to no cluster yet and knows the rules up to this level.
    pub fn new(id: MemberId, names: MemberNames, level: u16) -> Self {
        Self {
            record: MemberRecord { id, names },
            cluster: None,
            initial_members: Vec::new(),
            level,
        }
    }
}

fn one_line(text: &str) -> String {
    text.replace(['\n', '\r'], " ")
}

fn line(name: &str, value: impl Display) -> String {
    format!("{name} {value}")
}

#[cfg(test)]
mod tests {
    use tenure_types::Epoch;

    use super::*;
    use crate::directory::Preference;
    use crate::lineage::Incarnation;

    fn examples() -> Vec<Control> {
        let id = |number| MemberId::new(number).unwrap();
        let names = MemberNames {
            name: "a".into(),
            members: "h:1".into(),
            clients: "h:2".into(),
            preference: Preference::default(),
        };
        let record = MemberRecord { id: id(0xfe), names };
        let (epoch, incarnation) = (Epoch::new(3).unwrap(), Incarnation(9));
        let lineage = Lineage { cluster: "c".into(), epoch, incarnation };
        let hello = PeerHello { lineage: lineage.clone(), from: id(1), to: id(2), level: 4 };
        let join = Join { record: record.clone(), level: 4, lineage: None, invitation: None };
        let invitation = Some(InvitationToken::new([0x1f; crate::invitation::TOKEN_BYTES]));
        let point = LogId { index: 9, term: 2 };
        let initial_members = vec![record.clone()];
        vec![
            Control::Who,
            Control::MemberInfo(MemberInfo {
                record: record.clone(),
                cluster: None,
                initial_members: vec![],
                level: 2,
            }),
            Control::MemberInfo(MemberInfo {
                record: record.clone(),
                cluster: Some("c".into()),
                initial_members,
                level: 1,
            }),
            Control::Hello(hello.clone()),
            Control::Archive(hello.clone(), Revision(7), Revision(9)),
            Control::Archived(hello.clone(), Revision(8)),
            Control::Snapshot(hello, SnapshotId { point, bytes: 77, checksum: 5 }),
            Control::Have(12),
            Control::Done,
            Control::Join(join.clone()),
            Control::Join(Join { lineage: Some(lineage.clone()), ..join.clone() }),
            Control::Join(Join { invitation, ..join }),
            Control::Joined { lineage, level: 2, directory: vec![record] },
            Control::Elsewhere("h:3".into()),
            Control::Retired,
            Control::Uninvited("no such invitation".into()),
            Control::Rejected("the name is taken".into()),
            Control::Refused("no room for you".into()),
        ]
    }

    #[test]
    fn every_message_reads_back() {
        for said in examples() {
            assert_eq!(Control::decode(&said.encode()), Some(said));
        }
        assert_eq!(Control::decode(b"GET / HTTP/1.1"), None);
    }

    #[test]
    fn no_part_and_no_flipped_bit_makes_reading_panic() {
        for said in examples() {
            let bytes = said.encode();
            for end in 0..bytes.len() {
                let _ = Control::decode(&bytes[..end]);
            }
            for bit in 0..bytes.len() * 8 {
                let mut flipped = bytes.clone();
                flipped[bit / 8] ^= 1 << (bit % 8);
                let _ = Control::decode(&flipped);
            }
        }
    }

    #[test]
    fn a_refusal_cannot_pretend_to_be_another_answer() {
        for text in ["no\nretired 1", "no\r\nretired 1", "no\nuninvited 1"] {
            let said = Control::Refused(text.into());
            assert!(matches!(Control::decode(&said.encode()), Some(Control::Refused(_))));
        }
    }

    #[test]
    fn an_older_member_reads_a_retirement_as_the_refusal_that_it_knows() {
        let text = String::from_utf8(Control::Retired.encode()).unwrap();
        let first = text.lines().next().unwrap();
        assert_eq!(first, format!("refused {}", RejectReason::Retired));
    }

    #[test]
    fn a_member_that_does_not_say_its_level_knows_the_oldest_one() {
        let level = |text: &str| match Control::decode(text.as_bytes()) {
            Some(Control::MemberInfo(me)) => Some(me.level),
            _ => None,
        };
        assert_eq!(level("i-am 1 a h:1 h:2"), Some(1));
        assert_eq!(level("i-am 1 a h:1 h:2\nlevel 2"), Some(2));
        for bad in ["0", "-1", "65536", "x"] {
            assert_eq!(level(&format!("i-am 1 a h:1 h:2\nlevel {bad}")), None, "{bad}");
        }
    }

    #[test]
    fn fields_of_later_versions_are_ignored() {
        let later = [&Control::Who.encode()[..], b"\ncolour blue"].concat();
        assert_eq!(Control::decode(&later), Some(Control::Who));
    }

    #[test]
    fn a_connection_to_another_member_or_cluster_is_refused() {
        let Control::Hello(hello) = examples().remove(3) else { panic!() };
        let (ours, id) = (hello.lineage.clone(), |number| MemberId::new(number).unwrap());
        assert_eq!(hello.objection(&ours, id(2)), None);
        assert!(hello.objection(&ours, id(3)).unwrap().contains("this is member 3"));
        assert!(hello.objection(&ours, id(1)).unwrap().contains("itself"));
        let other = Lineage { cluster: "d".into(), ..ours };
        assert!(hello.objection(&other, id(2)).unwrap().contains("cluster"));
    }
}
