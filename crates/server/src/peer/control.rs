//! What is said on the members' port before, or instead of, messages of the agreement?
//!
//! Text, one `name value` per line, the first of which says what it is. It is written rarely and read
//! by people with a packet dump as often as by members.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};

use tenure_raft::MemberId;
use tenure_store::{Point, SnapshotId};

use super::frame;
use tenure_node::Lineage;
use tenure_node::directory::{self, Card, Names};

/// Who this member is, to whoever asks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Me {
    pub(crate) card: Card,
    /// The cluster it belongs to.
    pub(crate) cluster: Option<String>,
    /// Those who founded that cluster.
    pub(crate) founders: Vec<Card>,
}

/// What can be said.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Control {
    /// Who are you?
    Who,
    /// The answer to it.
    IAm(Me),
    /// A link shall begin, or has.
    Hello(Hello),
    /// A snapshot follows; the step that announces it is in the next frame.
    Snapshot(Hello, SnapshotId),
    /// So many bytes of it are here already.
    Have(u64),
    /// All is well.
    Done,
    /// Somebody wants to belong to the cluster, or does and lives elsewhere now.
    Join(Join),
    /// It does now; these are the others, and this is the level of their rules.
    Joined { lineage: Lineage, level: u16, book: Vec<Card> },
    /// Ask this address.
    Elsewhere(String),
    /// No.
    Refused(String),
}

/// Between whom a connection is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Hello {
    pub(crate) lineage: Lineage,
    pub(crate) from: MemberId,
    pub(crate) to: MemberId,
    /// Up to which level the one who says it knows the machine's rules.
    pub(crate) level: u16,
}

/// Who wants to belong to a cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Join {
    pub(crate) card: Card,
    /// Up to which level it knows the machine's rules.
    pub(crate) level: u16,
    /// What it belongs to, if it does.
    pub(crate) lineage: Option<Lineage>,
}

impl Control {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let lines = match self {
            Control::Who => vec![line("who", 1)],
            Control::IAm(me) => {
                let mut lines = vec![line("i-am", &me.card)];
                lines.extend(me.cluster.as_ref().map(|cluster| line("cluster", cluster)));
                lines.extend(me.founders.iter().map(|card| line("card", card)));
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
            Control::Join(join) => {
                let mut lines = vec![line("join", &join.card), line("level", join.level)];
                lines.extend(join.lineage.iter().flat_map(Lineage::lines));
                lines
            }
            Control::Joined { lineage, level, book } => {
                let mut lines = vec![line("joined", 1), line("level", level)];
                lines.extend(lineage.lines());
                lines.extend(book.iter().map(|card| line("card", card)));
                lines
            }
            Control::Elsewhere(address) => vec![line("elsewhere", address)],
            Control::Refused(why) => vec![line("refused", why.replace('\n', " "))],
        };
        lines.join("\n").into_bytes()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let text = str::from_utf8(bytes).ok()?;
        let (what, value) = text.lines().next()?.split_once(' ')?;
        let mut cards = Vec::new();
        let mut fields = BTreeMap::new();
        for line in text.lines().skip(1) {
            match line.split_once(' ')? {
                ("card", card) => cards.push(Card::parse(card)?),
                (name, value) => drop(fields.insert(name, value)),
            }
        }
        let number = |name: &str| fields.get(name)?.parse::<u64>().ok();
        Some(match what {
            "who" => Control::Who,
            "i-am" => {
                let cluster = fields.get("cluster").map(|&cluster| cluster.to_owned());
                Control::IAm(Me { card: Card::parse(value)?, cluster, founders: cards })
            }
            "hello" => Control::Hello(Hello::from(&fields)?),
            "snapshot" => {
                let point = Point { index: number("index")?, term: number("term")? };
                let checksum = u32::try_from(number("checksum")?).ok()?;
                let id = SnapshotId { point, bytes: number("bytes")?, checksum };
                Control::Snapshot(Hello::from(&fields)?, id)
            }
            "have" => Control::Have(value.parse().ok()?),
            "done" => Control::Done,
            "join" => {
                let level = u16::try_from(number("level")?).ok()?;
                let lineage = match fields.contains_key("cluster") {
                    true => Some(Lineage::parse(|name| fields.get(name).copied())?),
                    false => None,
                };
                Control::Join(Join { card: Card::parse(value)?, level, lineage })
            }
            "joined" => {
                let lineage = Lineage::parse(|name| fields.get(name).copied())?;
                let level = u16::try_from(number("level")?).ok()?;
                Control::Joined { lineage, level, book: cards }
            }
            "elsewhere" => Control::Elsewhere(value.to_owned()),
            "refused" => Control::Refused(value.to_owned()),
            _ => return None,
        })
    }

    pub(crate) fn write(&self, to: &mut impl Write) -> io::Result<()> {
        frame::write(to, &self.encode())
    }

    pub(crate) fn read(from: &mut impl Read) -> io::Result<Self> {
        let bytes = frame::read(from, frame::CONTROL_BYTES_MAX)?;
        let unknown = || io::Error::new(io::ErrorKind::InvalidData, "not the members' protocol");
        Self::decode(&bytes).ok_or_else(unknown)
    }
}

impl Hello {
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

    /// Why a connection that begins so must not go on; nothing if it may.
    pub(crate) fn objection(&self, ours: &Lineage, me: MemberId) -> Option<String> {
        if let Some(why) = ours.objection(&self.lineage) {
            return Some(why);
        }
        if self.from == me {
            return Some("a member has no link to itself".to_owned());
        }
        (self.to != me).then(|| format!("this is member {me}, not {}", self.to))
    }
}

fn line(name: &str, value: impl std::fmt::Display) -> String {
    format!("{name} {value}")
}

impl Me {
    pub(crate) fn new(id: MemberId, names: Names) -> Self {
        Self { card: Card { id, names }, cluster: None, founders: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use tenure_types::Epoch;

    use super::*;
    use tenure_node::Incarnation;

    #[test]
    fn what_is_said_reads_back() {
        let id = |number| MemberId::new(number).unwrap();
        let names = Names {
            name: "a".into(),
            members: "h:1".into(),
            clients: "h:2".into(),
            preference: tenure_node::directory::Preference::default(),
        };
        let card = Card { id: id(0xfe), names };
        let (epoch, incarnation) = (Epoch::new(3).unwrap(), Incarnation(9));
        let lineage = Lineage { cluster: "c".into(), epoch, incarnation };
        let hello = Hello { lineage: lineage.clone(), from: id(1), to: id(2), level: 4 };
        let join = Join { card: card.clone(), level: 4, lineage: None };
        let point = Point { index: 9, term: 2 };
        let founders = vec![card.clone()];
        for said in [
            Control::Who,
            Control::IAm(Me { card: card.clone(), cluster: None, founders: vec![] }),
            Control::IAm(Me { card: card.clone(), cluster: Some("c".into()), founders }),
            Control::Hello(hello.clone()),
            Control::Snapshot(hello, SnapshotId { point, bytes: 77, checksum: 5 }),
            Control::Have(12),
            Control::Done,
            Control::Join(join.clone()),
            Control::Join(Join { lineage: Some(lineage.clone()), ..join }),
            Control::Joined { lineage, level: 2, book: vec![card] },
            Control::Elsewhere("h:3".into()),
            Control::Refused("no room for you".into()),
        ] {
            assert_eq!(Control::decode(&said.encode()), Some(said));
        }
        assert_eq!(Control::decode(b"GET / HTTP/1.1"), None);
    }
}
