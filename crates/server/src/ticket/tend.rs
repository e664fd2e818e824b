//! Removes retired keys from the set, on the leader.
//!
//! The leader removes the keys whose overlap is over, and starts the overlap for the keys of removed members.

use std::collections::BTreeMap;
use std::time::Duration;

use tenure_raft::Replica;

use super::{KeyRecords, OVERLAP_MS, RecordKey, TicketKeyRecord, read_after_moving, retires_ms};
use crate::dispatch::{Dispatch, Principal, WITHIN};

/// The time between two checks.
const PAUSE: Duration = Duration::from_secs(1);

/// Tends the keys as long as the member runs.
pub(crate) async fn tend(dispatch: Dispatch) {
    // The machine's clock stands still while nothing is written, so the time is counted here as well.
    let mut over_us: BTreeMap<RecordKey, u64> = BTreeMap::new();
    while dispatch.member().ended().is_none() {
        tokio::time::sleep(PAUSE).await;
        if dispatch.lead().by != Some(dispatch.member().id()) {
            over_us.clear();
            continue;
        }
        let read = |replica: &Replica| {
            let machine = replica.machine();
            (KeyRecords::read(machine), machine.clock_ms(), replica.members().clone())
        };
        let Ok((records, clock_ms, members)) = dispatch.inspect(read).await else { continue };
        let (incarnation, now_us) = (dispatch.member().lineage(), dispatch.now_us());
        let left_ms = |record: &TicketKeyRecord| {
            record.retires_ms.map(|at_ms| at_ms.saturating_sub(clock_ms))
        };
        let counted = records.good(incarnation, clock_ms);
        let counted = counted.filter_map(|it| Some((it.key(), left_ms(it)?)));
        over_us = counted
            .map(|(key, left_ms)| {
                let over = now_us.saturating_add(left_ms.saturating_mul(1_000));
                (key, over_us.get(&key).map_or(over, |known| over.min(*known)))
            })
            .collect();
        let is_over = |record: &TicketKeyRecord| {
            let counted = over_us.get(&record.key()).is_some_and(|over| *over <= now_us);
            left_ms(record) == Some(0) || (record.retires_ms.is_some() && counted)
        };
        let is_member = |id| members.contains(id);
        let starts = records.tended(incarnation, is_member, clock_ms, |_| false).is_some();
        let clock_ms = match starts {
            // Keys start their overlap: it counts from now, not from the last write.
            true => {
                let moved = async { dispatch.move_clock(WITHIN).await.map_err(drop) };
                let read = |replica: &Replica| replica.machine().clock_ms();
                let read = async { dispatch.inspect(read).await.map_err(drop) };
                let Ok(clock_ms) = read_after_moving(moved, read).await else { continue };
                clock_ms
            }
            false => clock_ms,
        };
        let until_ms = retires_ms(clock_ms, OVERLAP_MS);
        let Some(tended) = records.tended(incarnation, is_member, until_ms, is_over) else {
            continue;
        };
        // Another member may have written or may lead now; then the next round tries again.
        if dispatch.write_keys(&Principal::member(), &tended, WITHIN).await.is_ok() {
            let count = tended.good(incarnation, clock_ms).count();
            tracing::info!(keys = count, "ticket signing keys retired or removed");
        }
    }
}
