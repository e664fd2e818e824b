//! Keeps the member directory: the names and addresses of each member, as replicated keys.
//!
//! Each member has one key. Another key has the records of the initial members, because the cluster's id is the hash of
//! their ids.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use tenure_core::Machine;
use tenure_core::codec::{decode_request, encode_request, seal_entry};
use tenure_core::outcome::Effects;
use tenure_core::request::{Command, Expect, Put, Request, RequestId};
use tenure_raft::MemberId;
use tenure_types::{Epoch, Term};
use xxhash_rust::xxh3::xxh3_128;

use crate::principal::Principal;

/// The prefix of every key that the cluster keeps for itself.
pub const RESERVED: &str = tenure_core::request::OWN_KEYS;
/// The prefix of each member's key.
pub const PREFIX: &str = "tenure/members/";
/// The key with the records of the initial members of the cluster, one per line, then the level of the first state if
/// it is not the oldest.
pub const INITIAL_MEMBERS: &str = "tenure/founders";
/// The oldest level of the machine's rules.
pub(crate) const LEVEL_MIN: u16 = 1;
/// The word before the level in [`INITIAL_MEMBERS`]. No record begins with it.
const LEVEL: &str = "level ";

/// The most records that are read from the directory; further ones are ignored. No cluster should have as many members.
const MEMBERS_MAX: usize = 1_024;
/// The most bytes of a name or of an address.
const WORD_BYTES_MAX: usize = 256;

/// A host and a port, as text: resolved whenever it is used.
pub type Address = String;

/// The name, the addresses and the preference of a member.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemberNames {
    /// The name that people use.
    pub name: String,
    /// The address for other members.
    pub members: Address,
    /// The address for clients.
    pub clients: Address,
    /// How strongly it is preferred as leader.
    pub preference: Preference,
}

/// How strongly a member is preferred as leader: from 0 (only if no other member can lead) to 100.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Preference(u8);

impl Preference {
    /// Returns a preference; none above 100.
    pub fn new(preference: u8) -> Option<Self> {
        (preference <= 100).then_some(Self(preference))
    }

    /// The preference as a number.
    pub fn get(self) -> u8 {
        self.0
    }
}

impl Default for Preference {
    /// 50, so that an operator can prefer another member more, or less.
    fn default() -> Self {
        Self(50)
    }
}

/// A member's id and names, as one line of text in the key of the initial members and in messages.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemberRecord {
    /// The member's id.
    pub id: MemberId,
    /// The member's name, addresses and preference.
    pub names: MemberNames,
}

impl MemberNames {
    /// Reads the value of a member's key.
    pub fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let mut next = || words.next().filter(|word| is_word(word)).map(str::to_owned);
        let (name, members, clients) = (next()?, next()?, next()?);
        // The word is absent if the preference is the default.
        let preference = match words.next() {
            None => Preference::default(),
            Some(word) => word.parse().ok().and_then(Preference::new)?,
        };
        let names = Self { name, members, clients, preference };
        words.next().is_none().then_some(names)
    }
}

impl fmt::Display for MemberNames {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{} {} {}", self.name, self.members, self.clients)?;
        if self.preference == Preference::default() {
            return Ok(());
        }
        write!(to, " {}", self.preference.get())
    }
}

impl MemberRecord {
    /// Reads a line.
    pub fn parse(line: &str) -> Option<Self> {
        let (id, names) = line.split_once(' ')?;
        Some(Self { id: parse_id(id)?, names: MemberNames::parse(names)? })
    }
}

impl fmt::Display for MemberRecord {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{} {}", self.id, self.names)
    }
}

/// Parses a member id in the form in which logs show it: hexadecimal.
pub fn parse_id(text: &str) -> Option<MemberId> {
    u64::from_str_radix(text, 16).ok().and_then(MemberId::new)
}

/// Whether a name or address is valid in the directory: no spaces, no invisible characters, not too long.
pub fn is_word(text: &str) -> bool {
    let visible = |c: char| !c.is_whitespace() && !c.is_control();
    !text.is_empty() && text.len() <= WORD_BYTES_MAX && text.chars().all(visible)
}

/// The key of a member.
pub fn key(id: MemberId) -> String {
    format!("{PREFIX}{:016x}", id.get())
}

/// All members in the directory.
pub fn read(machine: &Machine) -> BTreeMap<MemberId, MemberNames> {
    let keys = machine.keys(PREFIX, None, MEMBERS_MAX);
    let record = |key: tenure_core::view::KeyView| {
        let id = parse_id(key.key.strip_prefix(PREFIX)?)?;
        Some((id, MemberNames::parse(str::from_utf8(&key.value).ok()?)?))
    };
    keys.into_iter().filter_map(record).collect()
}

/// The initial members of the cluster.
pub fn initial_members(machine: &Machine) -> Vec<MemberRecord> {
    let Some(key) = machine.key(INITIAL_MEMBERS) else { return Vec::new() };
    parse_records(str::from_utf8(&key.value).unwrap_or_default())
}

/// The level of the first state of the cluster.
pub fn first_level(machine: &Machine) -> u16 {
    let text = machine.key(INITIAL_MEMBERS).map(|key| key.value);
    let text = text.as_deref().and_then(|text| str::from_utf8(text).ok()).unwrap_or_default();
    let level = text.lines().find_map(|line| line.strip_prefix(LEVEL)?.parse().ok());
    level.unwrap_or(LEVEL_MIN)
}

/// Parses records, one per line. Skips lines that are not records.
pub fn parse_records(text: &str) -> Vec<MemberRecord> {
    text.lines().filter_map(MemberRecord::parse).take(MEMBERS_MAX).collect()
}

/// Writes records, one per line.
pub fn records_text(records: &[MemberRecord]) -> String {
    records.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// The id of the cluster that these members found: the hash of their ids, in ascending order. Clusters that exist
/// keep the id that they stored.
///
/// The hash leaves addresses out, because initial members may know different ones. See [`Bootstrap`](crate::Bootstrap)
/// for why initial members with the same cluster id begin with the same state nevertheless.
pub fn cluster_id(initial_members: &[MemberRecord]) -> String {
    let ids: BTreeSet<MemberId> = initial_members.iter().map(|record| record.id).collect();
    let bytes: Vec<u8> = ids.iter().flat_map(|id| id.get().to_le_bytes()).collect();
    format!("{:032x}", xxh3_128(&bytes))
}

/// The first state of the cluster that these members found: the same bytes on each of them, whatever version each one
/// runs. Its level is the newest one that all of them know. Panics if this build does not know that level.
pub fn first_state(initial_members: &[MemberRecord], level: u16, epoch: Epoch) -> Machine {
    let mut text = records_text(initial_members);
    if level > LEVEL_MIN {
        text = format!("{text}\n{LEVEL}{level}");
    }
    let mut puts = vec![(INITIAL_MEMBERS.to_owned(), text)];
    puts.extend(initial_members.iter().map(|record| (key(record.id), record.names.to_string())));
    // Older versions name no principal here, and the hash of the state covers these bytes, so newer ones must not name
    // one either.
    let request = |(key, value): &(String, String)| encode_for("", put_command(key, value));
    let mut requests: Vec<Vec<u8>> = puts.iter().map(request).collect();
    if level > LEVEL_MIN {
        requests.push(encode_for("", Command::RaiseLevel { level }));
    }
    let term = Term(tenure_raft::FIRST.term);
    let entry = seal_entry(term, 0, requests.iter().map(Vec::as_slice));
    let mut machine = Machine::new(epoch);
    machine.apply(term, Some(&entry), &mut Effects::default());
    assert!(machine.level() == level, "this build knows the level of the first state");
    machine
}

/// Encodes a command that writes a key, with the principal of the member itself.
pub fn put(key: &str, value: &str) -> Vec<u8> {
    encode(put_command(key, value))
}

fn put_command<'a>(key: &'a str, value: &'a str) -> Command<'a> {
    let value = value.as_bytes();
    Command::Put(Put { key, value, lease: None, expect: Expect::Any, guard: None })
}

/// Encodes a command with the principal of the member itself.
pub fn encode(command: Command<'_>) -> Vec<u8> {
    encode_for(Principal::member().name(), command)
}

/// Encodes the same request with another principal; none if it cannot be decoded.
pub fn encode_as(principal: &Principal, request: &[u8]) -> Option<Vec<u8>> {
    let request = decode_request(request).ok()?;
    let mut bytes = Vec::new();
    encode_request(&Request { principal: principal.name(), ..request }, &mut bytes);
    Some(bytes)
}

fn encode_for(principal: &str, command: Command<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_request(&Request { principal, id: RequestId::None, command }, &mut bytes);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(number: u64) -> MemberRecord {
        let name = format!("m{number}");
        let preference = Preference::default();
        let names = MemberNames { name, members: "h:1".into(), clients: "h:2".into(), preference };
        MemberRecord { id: MemberId::new(number).unwrap(), names }
    }

    #[test]
    fn the_first_state_holds_the_directory_and_is_the_same_everywhere() {
        let initial_members = [record(1), record(0xabc)];
        let level = tenure_core::LEVEL_MAX;
        let machine = first_state(&initial_members, level, Epoch::default());
        assert_eq!(super::initial_members(&machine), initial_members);
        assert_eq!((machine.level(), first_level(&machine)), (level, level));
        let directory = read(&machine);
        assert_eq!(directory.get(&initial_members[1].id), Some(&initial_members[1].names));
        assert_eq!(
            machine.encode(),
            first_state(&initial_members, level, Epoch::default()).encode()
        );
        let oldest = first_state(&initial_members, LEVEL_MIN, Epoch::default());
        assert_eq!((oldest.level(), first_level(&oldest)), (LEVEL_MIN, LEVEL_MIN));
        assert_eq!(super::initial_members(&oldest), initial_members);
        assert_ne!(cluster_id(&initial_members), cluster_id(&initial_members[..1]));
    }

    #[test]
    fn a_member_record_reads_back_and_nonsense_does_not() {
        assert_eq!(MemberRecord::parse(&record(77).to_string()), Some(record(77)));
        let mut keen = record(77);
        keen.names.preference = Preference::new(100).unwrap();
        assert_eq!(MemberRecord::parse(&keen.to_string()), Some(keen));
        for bad in
            ["", "0 a b c", "1 a b", "1 a b c d", "1 a b c 101", "1 a b c 7 8", "x a b c", "1 a  c"]
        {
            assert_eq!(MemberRecord::parse(bad), None, "{bad:?}");
        }
    }
}
