//! Takes administrative acts from the history of applied commands, and writes each of them once.
//!
//! The history is replicated, so every member records every act. A member that was down or slow records later what it
//! missed. A full queue delays records and loses none. Only revisions that the history no longer has are lost, and a
//! record of the act `gap` names them.

use std::time::Duration;

use tenure_core::{Compacted, Most, RevisionRecords};
use tenure_types::Revision;
use tokio::sync::oneshot;

use super::AuditPut;
use super::position::AuditResume;
use super::queue::AuditKind;
use super::record::{self, AuditOutcome, AuditRecord};
use crate::member::{LoopEvent, MemberHandle, TrySubmitError};

/// The most that the event loop copies at a time. Copying it takes some tens of microseconds.
const MOST: Most = Most { revisions: 4_096, bytes: 256 * 1024 };
/// How long changes gather before they are read.
const GATHER: Duration = Duration::from_millis(50);
/// How many revisions without an act are read before the position is saved. It is far below the revisions that the
/// history keeps by default: else a restart would report a gap in which no act is missing.
const UNSAVED_MAX: u64 = 10_000;
/// The pause before another attempt when a queue is full.
const FULL: Duration = Duration::from_millis(20);

/// Writes the acts from `resume` on, until the member ends.
pub(crate) async fn follow(member: MemberHandle, resume: AuditResume) {
    let AuditResume { mut next, mut written } = resume;
    let audit = member.audit().clone();
    let (mut declared, mut has_acts) = (next, false);
    loop {
        let Some(found) = read(&member, next).await else { return };
        let records = match found {
            Ok(records) => records,
            Err(Compacted { floor }) => {
                let gap = AuditRecord::new("gap", AuditOutcome::Done).with("from_revision", next.0);
                if !put(&member, &gap.with("to_revision", floor.0.saturating_sub(1))).await {
                    return;
                }
                (next, written, has_acts) = (floor, 0, true);
                continue;
            }
        };
        for revision in records.iter() {
            for event in revision.events() {
                let Some(act) = record::of_recorded(revision.revision, &event) else { continue };
                if revision.revision == resume.next && written > 0 {
                    written -= 1;
                    continue;
                }
                let act = act.at(revision.label());
                let is_late = audit.is_from_before(revision.revision);
                if !put(&member, &if is_late { act.with("late", true) } else { act }).await {
                    return;
                }
                has_acts = true;
            }
        }
        if records.next() > next {
            next = records.next();
            // Each position is a write to the disk of the member's log.
            if has_acts || next.0 - declared.0 >= UNSAVED_MAX {
                audit.reached(Revision(next.0 - 1));
                (declared, has_acts) = (next, false);
            }
        }
        if records.is_complete() {
            audit.changed().await;
            tokio::time::sleep(GATHER).await;
        }
    }
}

/// Reads a part of the history; none if the member has ended.
async fn read(member: &MemberHandle, from: Revision) -> Option<Result<RevisionRecords, Compacted>> {
    loop {
        let (done, found) = oneshot::channel();
        let read = LoopEvent::inspect(move |node| {
            let _ = done.send(node.machine().records(from, MOST));
        });
        match member.try_tell(read) {
            Ok(()) => return found.await.ok(),
            Err(TrySubmitError::Full(_)) => tokio::time::sleep(FULL).await,
            Err(TrySubmitError::Ended(_)) => return None,
        }
    }
}

/// Records an act, and waits as long as there is no room for it. Returns whether there will ever be.
async fn put(member: &MemberHandle, act: &AuditRecord<'_>) -> bool {
    let line = act.line().into();
    loop {
        match member.audit().try_put(&line, AuditKind::Act) {
            AuditPut::Taken => return true,
            AuditPut::Full => tokio::time::sleep(FULL).await,
            AuditPut::Ended => return false,
        }
    }
}
