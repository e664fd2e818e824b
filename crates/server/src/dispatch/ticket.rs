//! Signs tickets, and publishes and rotates this member's signing key.

use std::time::Duration;

use tenure_core::Machine;
use tenure_core::request::{Command, Expect, Hold, LeaseRef};
use tenure_types::{Refusal, Revision, Token, Verb};
use tenure_wire::{Failure, v1};

use super::{Dispatch, Permit, Principal, ReadConsistency, ReadScope};
use crate::ticket::{
    self, KeyRecords, OVERLAP_MS, OVERLAP_MS_MAX, RecordKey, SigningKey, SigningKeys,
};

/// How long a request for the keys waits for a quorum before it gets the keys that this member knows.
const KEYS_WITHIN: Duration = Duration::from_secs(2);

/// A key of the cluster's own that is never written.
const CLOCK: &str = "tenure/clock";

/// A ticket, the id of the key that signed it, and the revision at which the grant was confirmed.
pub(crate) struct Signed {
    pub(crate) ticket: String,
    pub(crate) key: String,
    pub(crate) revision: Revision,
}

impl Dispatch {
    fn keys(&self) -> &SigningKeys {
        &self.inner.keys
    }

    fn record_key(&self, key: &SigningKey) -> RecordKey {
        (self.member().id(), key.public())
    }

    /// Signs a ticket for a grant that is in force. The caller must name its lease and token.
    pub(crate) async fn ticket(
        &self,
        who: &Principal,
        lease: LeaseRef,
        lock: &str,
        token: Token,
        within: Duration,
    ) -> Result<Signed, v1::Error> {
        let until_us = self.deadline_us(within);
        let incarnation = self.member().lineage().clone();
        loop {
            let key = self.keys().current();
            let (name, record, of) = (lock.to_owned(), self.record_key(&key), incarnation.clone());
            let principal = who.clone();
            let ask = move |machine: &Machine| {
                // A ticket is signed for the principal of the lease alone.
                let held =
                    machine.holding_of(principal.name(), &Hold { lease, lock: &name, token });
                (held, KeyRecords::read(machine).signs(&of, record))
            };
            let scope = ReadScope::Name(Verb::Sign, lock.to_owned());
            let read = self
                .read(who, scope, ReadConsistency::Linearizable, self.until(until_us), ask)
                .await;
            let (revision, (held, known)) = read?;
            let grant = held.map_err(|refusal| v1::Error::from(&refusal))?;
            if known {
                let ticket = ticket::sign(&key, &incarnation, lock, &grant);
                return Ok(Signed { ticket, key: key.id().to_string(), revision });
            }
            // A resource could not verify the ticket before the key is published.
            self.publish(&Principal::member(), &key, OVERLAP_MS, until_us).await?;
        }
    }

    /// The public keys of all members, including this one's. Without a quorum, the keys that this member knows. They
    /// are public: resources that verify tickets need no credentials.
    pub(crate) async fn ticket_keys(
        &self,
        within: Duration,
    ) -> Result<v1::TicketKeysResponse, v1::Error> {
        let until_us = self.deadline_us(within.min(KEYS_WITHIN));
        let own = self.record_key(&self.keys().current());
        let incarnation = self.member().lineage();
        let mut seen = self.records(ReadConsistency::Linearizable, self.until(until_us)).await;
        let missing =
            |(_, records, _): &(Revision, KeyRecords, u64)| !records.signs(incarnation, own);
        if seen.as_ref().is_ok_and(missing)
            && self
                .publish(&Principal::member(), &self.keys().current(), OVERLAP_MS, until_us)
                .await
                .is_ok()
        {
            seen = self.records(ReadConsistency::Linearizable, self.until(until_us)).await;
        }
        let (revision, records, clock_ms) = match seen {
            Ok(seen) => seen,
            Err(_) => self.records(ReadConsistency::Stale, within).await?,
        };
        let key = |record: &ticket::TicketKeyRecord| v1::TicketKey {
            key: record.id().to_string(),
            member_id: record.member.get(),
            public: bytes::Bytes::copy_from_slice(&record.public.0),
            retires_in_ms: record.retires_ms.map(|at_ms| at_ms.saturating_sub(clock_ms)),
        };
        Ok(v1::TicketKeysResponse {
            header: Some(self.header(revision)),
            cluster: incarnation.cluster.clone(),
            epoch: incarnation.epoch.get().into(),
            incarnation: incarnation.incarnation.0,
            keys: records.good(incarnation, clock_ms).map(key).collect(),
        })
    }

    /// Gives this member a new key. Tickets signed with the old key stay valid for the overlap.
    pub(crate) async fn rotate_key(
        &self,
        who: &Principal,
        overlap_ms: Option<u64>,
        within: Duration,
    ) -> Result<(Revision, String), v1::Error> {
        self.may_operate(who)?;
        let until_us = self.deadline_us(within);
        let overlap_ms = overlap_ms.unwrap_or(OVERLAP_MS);
        if overlap_ms > OVERLAP_MS_MAX {
            let problem = format!("is at most {OVERLAP_MS_MAX}: 30 days");
            return Err(Failure::InvalidField { field: "overlap_ms", problem }.into());
        }
        // Check first that a new key could be published. If it could not, the member keeps the old key.
        let drawn = SigningKey::draw();
        let (_, records, clock_ms) = self.records_by_a_moved_clock(until_us).await?;
        let retires_ms = ticket::retires_ms(clock_ms, overlap_ms);
        let (incarnation, trial) = (self.member().lineage(), self.record_key(&drawn));
        records.with(incarnation, trial, retires_ms, clock_ms).map_err(|_| too_many())?;
        let dispatch = self.clone();
        let renewed = self.runtime().spawn_blocking(move || dispatch.keys().renew()).await;
        let key = match renewed {
            Ok(Ok(key)) => key,
            Ok(Err(error)) if error.kind() == std::io::ErrorKind::StorageFull => {
                return Err(Failure::DiskFull.into());
            }
            Ok(Err(_)) | Err(_) => return Err(Failure::Internal.into()),
        };
        let revision = self.publish(who, &key, overlap_ms, until_us).await?;
        Ok((revision, key.id().to_string()))
    }

    /// Publishes this member's key, for a caller or by itself, and retires the keys that it had before.
    async fn publish(
        &self,
        who: &Principal,
        key: &SigningKey,
        overlap_ms: u64,
        until_us: u64,
    ) -> Result<Revision, v1::Error> {
        let (incarnation, own) = (self.member().lineage(), self.record_key(key));
        loop {
            let (revision, records, clock_ms) = self.records_by_a_moved_clock(until_us).await?;
            if records.signs(incarnation, own) {
                return Ok(revision);
            }
            let retires_ms = ticket::retires_ms(clock_ms, overlap_ms);
            let records =
                records.with(incarnation, own, retires_ms, clock_ms).map_err(|_| too_many())?;
            match self.write_keys(who, &records, self.until(until_us)).await {
                // Another member has written: read again.
                Err(error) if error.reason == "COMPARE_FAILED" && self.now_us() < until_us => {}
                written => return written,
            }
        }
    }

    /// Moves the machine's clock up to the leader's: it stands still while no entry is written.
    pub(crate) async fn move_clock(&self, within: Duration) -> Result<(), v1::Error> {
        // A delete of a key that never exists changes nothing, but its entry carries the leader's clock. The command
        // must be one that a member may run: the leader authorises what it gets from others.
        let delete = Command::Delete { key: CLOCK, expect: Expect::Any, guard: None };
        let outcome = self.run_own(delete, within).await?;
        outcome.result.map(drop).map_err(|refusal| v1::Error::from(&refusal))
    }

    /// Reads the keys, and the machine's clock after it was moved, so that an overlap is counted from now.
    async fn records_by_a_moved_clock(
        &self,
        until_us: u64,
    ) -> Result<(Revision, KeyRecords, u64), v1::Error> {
        let read = async {
            let read = self.records(ReadConsistency::Linearizable, self.until(until_us)).await;
            read.map_err(v1::Error::from)
        };
        ticket::read_after_moving(self.move_clock(self.until(until_us)), read).await
    }

    async fn records(
        &self,
        fresh: ReadConsistency,
        within: Duration,
    ) -> Result<(Revision, KeyRecords, u64), Failure> {
        let ask = |machine: &Machine| (KeyRecords::read(machine), machine.clock_ms());
        let (revision, (records, clock_ms)) =
            self.read(&Principal::member(), ReadScope::Known, fresh, within, ask).await?;
        Ok((revision, records, clock_ms))
    }

    /// Writes the keys, if they have not changed since they were read.
    pub(crate) async fn write_keys(
        &self,
        who: &Principal,
        records: &KeyRecords,
        within: Duration,
    ) -> Result<Revision, v1::Error> {
        let request = self.written_for(who, records.write()).await;
        let outcome = self.run(request, Permit::default(), 0, within).await?;
        outcome.result.map_err(|refusal: Refusal| v1::Error::from(&refusal))?;
        Ok(outcome.revision)
    }
}

fn too_many() -> v1::Error {
    let problem = "is too long: as many keys of this member are being retired as may be".to_owned();
    Failure::InvalidField { field: "overlap_ms", problem }.into()
}
