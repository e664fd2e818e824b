//! Stores the public keys that verify tickets, as a replicated key of the cluster.
//!
//! All public keys are lines of one replicated value, so that a change of several is one write. A writer states the
//! revision it has read: of two concurrent writers, the second reads again.

use std::fmt::Write as _;

use bytes::Bytes;
use tenure_core::Machine;
use tenure_core::request::{Command, Expect, Put, RequestId};
use tenure_raft::MemberId;
use tenure_types::{Epoch, Revision};

use super::key::{KeyId, TicketPublicKey};
use crate::dispatch::{Principal, encode};
use tenure_node::directory;
use tenure_node::{Incarnation, Lineage};

/// The name of the replicated key.
const KEY: &str = "tenure/ticket-keys";
/// More keys than the members can have; further lines are ignored.
const KEYS_MAX: usize = 1_024;
/// The most retiring keys of one member.
const RETIRING_MAX: usize = 4;

/// One public key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct TicketKeyRecord {
    /// The member that signs with it.
    pub(crate) member: MemberId,
    /// The epoch and the incarnation of the cluster.
    epoch: Epoch,
    incarnation: Incarnation,
    /// The public key.
    pub(crate) public: TicketPublicKey,
    /// When the key is removed, by the machine's clock; none while it is in use.
    pub(crate) retires_ms: Option<u64>,
}

/// A member and one of its public keys.
pub(crate) type RecordKey = (MemberId, TicketPublicKey);

/// All records, and the revision at which they were written.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct KeyRecords {
    all: Vec<TicketKeyRecord>,
    written: Option<Revision>,
}

/// The member already has the most retiring keys allowed.
#[derive(Debug)]
pub(crate) struct TooMany;

impl TicketKeyRecord {
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let mut next = || words.next();
        let member = directory::parse_id(next()?)?;
        let epoch = Epoch::new(next()?.parse().ok()?)?;
        let incarnation = Incarnation::parse(next()?)?;
        let public = TicketPublicKey::parse(next()?)?;
        let retires_ms = match next()? {
            "-" => None,
            word => Some(word.parse().ok()?),
        };
        words.next().is_none().then_some(Self { member, epoch, incarnation, public, retires_ms })
    }

    pub(crate) fn id(&self) -> KeyId {
        self.public.id()
    }

    pub(crate) fn key(&self) -> RecordKey {
        (self.member, self.public)
    }

    fn is_of(&self, incarnation: &Lineage) -> bool {
        self.epoch == incarnation.epoch && self.incarnation == incarnation.incarnation
    }

    fn is_due(&self, clock_ms: u64) -> bool {
        self.retires_ms.is_some_and(|retires_ms| retires_ms <= clock_ms)
    }

    /// Retires the key at this time, unless it retires sooner already.
    fn retire(&mut self, at_ms: u64) {
        self.retires_ms = Some(self.retires_ms.map_or(at_ms, |known| known.min(at_ms)));
    }
}

/// Whether a line is a valid record.
pub(crate) fn is_record(line: &str) -> bool {
    TicketKeyRecord::parse(line).is_some()
}

impl KeyRecords {
    /// Reads the records from the machine.
    pub(crate) fn read(machine: &Machine) -> Self {
        let Some(key) = machine.key(KEY) else { return Self::default() };
        let text = str::from_utf8(&key.value).unwrap_or_default();
        let all = text.lines().filter_map(TicketKeyRecord::parse).take(KEYS_MAX).collect();
        Self { all, written: Some(key.modified) }
    }

    /// The records whose keys verify tickets of this incarnation of the cluster.
    pub(crate) fn good(
        &self,
        incarnation: &Lineage,
        clock_ms: u64,
    ) -> impl Iterator<Item = &TicketKeyRecord> {
        self.all.iter().filter(move |record| record.is_of(incarnation) && !record.is_due(clock_ms))
    }

    /// Whether a member may sign with a key.
    pub(crate) fn signs(&self, incarnation: &Lineage, (member, public): RecordKey) -> bool {
        let current =
            |record: &TicketKeyRecord| record.retires_ms.is_none() && record.is_of(incarnation);
        self.all.iter().any(|record| record.key() == (member, public) && current(record))
    }

    /// The records with a key that its member signs with from now on; the member's other keys retire at `retires_ms`.
    pub(crate) fn with(
        mut self,
        incarnation: &Lineage,
        (member, public): RecordKey,
        retires_ms: u64,
        clock_ms: u64,
    ) -> Result<Self, TooMany> {
        self.all.retain(|record| record.is_of(incarnation) && record.key() != (member, public));
        for record in self.all.iter_mut().filter(|record| record.member == member) {
            record.retire(retires_ms);
        }
        self.all.retain(|record| !record.is_due(clock_ms));
        if self.all.iter().filter(|record| record.member == member).count() > RETIRING_MAX {
            return Err(TooMany);
        }
        let (epoch, incarnation) = (incarnation.epoch, incarnation.incarnation);
        self.all.push(TicketKeyRecord { member, epoch, incarnation, public, retires_ms: None });
        Ok(self)
    }

    /// The records without those that are over, and with the keys of removed members retiring; none if nothing changes.
    pub(crate) fn tended(
        &self,
        incarnation: &Lineage,
        is_member: impl Fn(MemberId) -> bool,
        retires_ms: u64,
        is_over: impl Fn(&TicketKeyRecord) -> bool,
    ) -> Option<Self> {
        let mut all: Vec<TicketKeyRecord> =
            self.all.iter().filter(|it| it.is_of(incarnation) && !is_over(it)).cloned().collect();
        for record in all.iter_mut().filter(|it| it.retires_ms.is_none() && !is_member(it.member)) {
            record.retire(retires_ms);
        }
        (all != self.all).then_some(Self { all, written: self.written })
    }

    /// The command that writes the records, unless another writer has written since they were read.
    pub(crate) fn write(&self) -> Bytes {
        let mut text = String::new();
        for TicketKeyRecord { member, epoch, incarnation, public, retires_ms } in &self.all {
            let retires = retires_ms.map_or("-".to_owned(), |at_ms| at_ms.to_string());
            let epoch = epoch.get();
            let member = member.get();
            let _ = writeln!(text, "{member:016x} {epoch} {incarnation} {public} {retires}");
        }
        let expect = self.written.map_or(Expect::Absent, Expect::Modified);
        let put = Put { key: KEY, value: text.as_bytes(), lease: None, expect, guard: None };
        encode(&Principal::member(), RequestId::None, Command::Put(put))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn incarnation(epoch: u16) -> Lineage {
        let epoch = Epoch::new(epoch).unwrap();
        Lineage { cluster: "c".into(), epoch, incarnation: Incarnation(7) }
    }

    fn key(member: u64, byte: u8) -> RecordKey {
        (MemberId::new(member).unwrap(), TicketPublicKey([byte; 32]))
    }

    fn ids(records: &KeyRecords, incarnation: &Lineage, clock_ms: u64) -> Vec<(u64, u8)> {
        records.good(incarnation, clock_ms).map(|it| (it.member.get(), it.public.0[0])).collect()
    }

    #[test]
    fn a_key_takes_the_place_of_the_others_of_its_member_after_an_overlap() {
        let records = KeyRecords::default().with(&incarnation(1), key(1, 1), 0, 0).unwrap();
        let records = records.with(&incarnation(1), key(2, 2), 0, 0).unwrap();
        let records = records.with(&incarnation(1), key(1, 3), 1_000, 100).unwrap();
        assert_eq!(ids(&records, &incarnation(1), 999), [(1, 1), (2, 2), (1, 3)]);
        assert_eq!(ids(&records, &incarnation(1), 1_000), [(2, 2), (1, 3)]);
        assert!(
            records.signs(&incarnation(1), key(1, 3)) && records.signs(&incarnation(1), key(2, 2))
        );
        assert!(
            !records.signs(&incarnation(1), key(1, 1)),
            "a key that retires signs nothing more"
        );
        // A retirement can be moved forward, not back.
        let later = records.clone().with(&incarnation(1), key(1, 4), 5_000, 100).unwrap();
        assert_eq!(ids(&later, &incarnation(1), 1_000), [(2, 2), (1, 3), (1, 4)]);
        let now = records.with(&incarnation(1), key(1, 4), 100, 100).unwrap();
        assert_eq!(ids(&now, &incarnation(1), 100), [(2, 2), (1, 4)]);
    }

    #[test]
    fn another_life_knows_none_of_the_keys() {
        let records = KeyRecords::default().with(&incarnation(1), key(1, 1), 0, 0).unwrap();
        assert_eq!(ids(&records, &incarnation(2), 0), []);
        assert!(!records.signs(&incarnation(2), key(1, 1)));
        let tended = records.tended(&incarnation(2), |_| true, 0, |_| false).unwrap();
        assert_eq!(tended.all, []);
    }

    #[test]
    fn keys_being_retired_are_bounded() {
        let mut records = KeyRecords::default();
        for byte in 0..=4 {
            records = records.with(&incarnation(1), key(1, byte), 1_000, 0).unwrap();
        }
        assert!(records.clone().with(&incarnation(1), key(1, 9), 1_000, 0).is_err());
        assert!(records.clone().with(&incarnation(1), key(2, 9), 1_000, 0).is_ok());
        assert!(records.with(&incarnation(1), key(1, 9), 0, 0).is_ok());
    }

    #[test]
    fn keys_of_members_that_are_gone_are_retired_and_then_taken_out() {
        let records = KeyRecords::default().with(&incarnation(1), key(1, 1), 0, 0).unwrap();
        let stays = |_: &TicketKeyRecord| false;
        assert_eq!(records.tended(&incarnation(1), |_| true, 500, stays), None);
        let retiring = records.tended(&incarnation(1), |_| false, 500, stays).unwrap();
        assert_eq!(ids(&retiring, &incarnation(1), 499), [(1, 1)]);
        assert_eq!(retiring.tended(&incarnation(1), |_| false, 900, stays), None, "once is enough");
        let out = retiring.tended(&incarnation(1), |_| false, 900, |it| it.is_due(500)).unwrap();
        assert_eq!(out.all, []);
    }

    #[test]
    fn a_line_reads_back_and_nonsense_does_not() {
        let record =
            KeyRecords::default().with(&incarnation(1), key(0xab, 1), 0, 0).unwrap().all[0].clone();
        let line = format!("00000000000000ab 1 0000000000000007 {} -", record.public);
        assert_eq!(TicketKeyRecord::parse(&line), Some(record));
        for bad in ["", "1", &line[..20], &format!("{line} -"), &line.replace(" -", " x")] {
            assert_eq!(TicketKeyRecord::parse(bad), None, "{bad:?}");
        }
    }
}
