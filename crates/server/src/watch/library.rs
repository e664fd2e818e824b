//! Reads the history and the newest revision from the machine for all watches, without delaying the event loop.
//!
//! One task asks for all watches: watches that want the same part share an answer, and only a few parts of the history
//! are in flight at a time. The task never waits for a watch, so a watch that is not polled holds nothing that others
//! need.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::{Compacted, Machine, Most, RevisionRecords};
use tenure_node::{NodeFailure, Principal, ReadConsistency};
use tenure_types::Revision;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::sleep;

use crate::inbox::ReadTurn;
use crate::member::{LoopEvent, MemberEnded, MemberHandle, ReadCall, TrySubmitError};

/// The most that is read from the history at once: the event loop copies it in some tens of microseconds.
const PART: Most = Most { revisions: 1_024, bytes: 256 * 1024 };

/// The most parts in flight at the same time, and so the most that are copied in one turn.
const PARTS: usize = 4;

/// How long a quorum may take to confirm the leader before a watch asks again.
const WITHIN: Duration = Duration::from_secs(2);
/// The pause before the next attempt when the inbox is full.
const FULL: Duration = Duration::from_millis(1);

/// A query of a watch. A watch has at most one in flight.
pub(super) enum HistoryQuestion {
    /// A part of the history, from a revision on.
    Part(Revision, oneshot::Sender<HistoryPart>),
    /// The newest revision, no older than now. Stays unanswered if no quorum confirms it.
    Now(oneshot::Sender<Revision>),
}

/// A part of the history, shared by all watches that asked for it.
pub(super) type HistoryPart = Result<Arc<RevisionRecords>, Compacted>;

/// Queries not yet passed on.
#[derive(Default)]
struct WantedHistory {
    parts: BTreeMap<Revision, Vec<oneshot::Sender<HistoryPart>>>,
    now: Vec<oneshot::Sender<Revision>>,
    /// The revision of the next part to read. Parts are taken upwards from here and then from the oldest again, so that
    /// each has its turn.
    at: Revision,
}

/// Asks for all watches until none is left or the member ends.
pub(super) async fn run(member: MemberHandle, mut asks: UnboundedReceiver<HistoryQuestion>) {
    let under_way = Arc::new(Semaphore::new(PARTS));
    let mut wanted = WantedHistory::default();
    loop {
        if wanted.parts.is_empty() {
            let Some(ask) = asks.recv().await else { return };
            wanted.add(ask);
        }
        while let Ok(ask) = asks.try_recv() {
            wanted.add(ask);
        }
        let now = std::mem::take(&mut wanted.now);
        if !now.is_empty() && ask_now(&member, now).await.is_err() {
            return;
        }
        if let Some((from, to)) = wanted.part()
            && ask_part(&member, &under_way, from, to).await.is_err()
        {
            return;
        }
    }
}

impl WantedHistory {
    fn add(&mut self, ask: HistoryQuestion) {
        match ask {
            HistoryQuestion::Part(from, to) => self.parts.entry(from).or_default().push(to),
            HistoryQuestion::Now(to) => self.now.push(to),
        }
    }

    fn part(&mut self) -> Option<(Revision, Vec<oneshot::Sender<HistoryPart>>)> {
        let above = self.parts.range(self.at..).next();
        let from = *above.or_else(|| self.parts.first_key_value())?.0;
        self.at = from.next();
        self.parts.remove_entry(&from)
    }
}

async fn ask_now(
    member: &MemberHandle,
    to: Vec<oneshot::Sender<Revision>>,
) -> Result<(), MemberEnded> {
    // One read serves all watches, each of which was authorised when it began. A read that fails drops the senders,
    // and each watch asks again.
    let question = Box::new(move |machine: Result<&Machine, NodeFailure>| {
        if let Ok(machine) = machine {
            let revision = machine.revision();
            for to in to {
                let _ = to.send(revision);
            }
        }
    });
    let (principal, deadline_us) = (Principal::member(), member.deadline_us(WITHIN));
    let (fresh, turn) = (ReadConsistency::Linearizable, ReadTurn::default());
    let read = ReadCall { question, principal, fresh, deadline_us, turn };
    tell(member, LoopEvent::Read(Box::new(read))).await
}

async fn ask_part(
    member: &MemberHandle,
    under_way: &Arc<Semaphore>,
    from: Revision,
    mut to: Vec<oneshot::Sender<HistoryPart>>,
) -> Result<(), MemberEnded> {
    to.retain(|to| !to.is_closed());
    if to.is_empty() {
        return Ok(());
    }
    let turn = under_way.clone().acquire_owned().await.map_err(|_| MemberEnded)?;
    let answer = move |machine: &Machine| {
        let part = machine.records(from, PART).map(Arc::new);
        to.into_iter().for_each(|to| drop(to.send(part.clone())));
        drop(turn);
    };
    tell(member, LoopEvent::inspect(|node| answer(node.machine()))).await
}

async fn tell(member: &MemberHandle, mut event: LoopEvent) -> Result<(), MemberEnded> {
    loop {
        match member.try_tell(event) {
            Ok(()) => return Ok(()),
            Err(TrySubmitError::Ended(_)) => return Err(MemberEnded),
            Err(TrySubmitError::Full(back)) => event = *back,
        }
        sleep(FULL).await;
    }
}
