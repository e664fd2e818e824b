//! Serves thousands of watches from one task, and yields to other tasks regularly.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tenure_core::{RevisionRecord, RevisionRecords};
use tenure_types::Revision;
use tokio::task::yield_now;

use super::shared::SharedBatch;
use super::slot::{PutResult, WatchPosition, WatchSlot};
use super::{HubShared, HubState};

/// The number of watches that are served before the task yields.
const SERVED_AT_ONCE: usize = 256;

/// The most bytes of served records that are kept for watches that join a little late.
const RECENT_BYTES: usize = 1024 * 1024;

/// Serves the watches until the member ends.
pub(super) async fn serve(inner: Arc<HubShared>) {
    loop {
        let left = inner.member.feed().take().await;
        if let Some(next) = left.given_up {
            inner.stage().skip_to(next);
        }
        for part in left.parts {
            serve_part(&inner, &part).await;
        }
        if left.closed {
            let mut stage = inner.stage();
            stage.closed = true;
            stage.index.slots().for_each(|slot| slot.close());
            return;
        }
    }
}

async fn serve_part(inner: &HubShared, part: &Arc<RevisionRecords>) {
    inner.stage().keep(part);
    let mut left = SERVED_AT_ONCE;
    for record in part.iter() {
        let batches = inner.stage().begin(record);
        for (group, batch) in batches {
            serve_group(inner, group, &batch, &mut left).await;
        }
        inner.stage().served = record.revision.next();
        pause(&mut left, 1).await;
    }
}

async fn serve_group(inner: &HubShared, group: usize, batch: &Arc<SharedBatch>, left: &mut usize) {
    let mut from = 0;
    loop {
        let some = inner.stage().index.some(group, from, *left);
        let Some((slots, next)) = some else { return };
        for slot in slots {
            if slot.put(batch) == PutResult::TooSlow {
                inner.slow.fetch_add(1, Ordering::Relaxed);
            }
        }
        pause(left, next - from).await;
        from = next;
    }
}

/// Yields to other tasks once enough was done.
async fn pause(left: &mut usize, done: usize) {
    *left = left.saturating_sub(done);
    if *left == 0 {
        yield_now().await;
        *left = SERVED_AT_ONCE;
    }
}

impl HubState {
    /// Moves past this revision: from here on no watch joins at it, and the live ones are served.
    fn begin(&mut self, record: RevisionRecord<'_>) -> Vec<(usize, Arc<SharedBatch>)> {
        self.next = record.revision.next();
        self.index.split(record)
    }

    /// Adds a part to those from which late watches join.
    fn keep(&mut self, part: &Arc<RevisionRecords>) {
        self.skip_to(part.from());
        self.recent.push_back(part.clone());
        self.recent_bytes += part.bytes();
        while self.recent_bytes > RECENT_BYTES && self.recent.len() > 1 {
            let Some(oldest) = self.recent.pop_front() else { return };
            self.recent_bytes -= oldest.bytes();
        }
    }

    /// Declares that nothing before this revision will be served: a watch that needs it reads the history.
    fn skip_to(&mut self, to: Revision) {
        if to <= self.next {
            return;
        }
        self.index.slots().for_each(|slot| slot.skip(self.next, to));
        (self.next, self.served) = (to, to);
        self.recent.clear();
        self.recent_bytes = 0;
    }

    /// Lets a watch that has seen everything before `next` join the stream, if the hub has the parts in between;
    /// returns those.
    pub(super) fn join(
        &self,
        slot: &WatchSlot,
        next: Revision,
    ) -> Option<Vec<Arc<RevisionRecords>>> {
        if next >= self.next {
            slot.set(WatchPosition::Live { since: next });
            return Some(Vec::new());
        }
        let first = self.recent.front()?.from();
        if next < first {
            return None;
        }
        slot.set(WatchPosition::Live { since: self.next });
        Some(self.recent.iter().filter(|part| part.next() > next).cloned().collect())
    }
}
