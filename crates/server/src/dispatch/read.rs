//! Reads the machine on behalf of an API, and inspects the member itself.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::{Machine, SortedLocks};
use tenure_node::{ClusterView, Node, Principal, PrincipalAction, ReadConsistency, Weight};
use tenure_raft::Replica;
use tenure_types::{Quota, Revision};
use tokio::sync::{Semaphore, oneshot};

use super::{ANSWER_GRACE, Caller, Dispatch, Failure, ReadScope, WATCHES_MAX, WITHIN};
use crate::inbox::ReadTurn;
use crate::member::{LoopEvent, ReadCall};
use crate::watch::{OwnedFilter, Start, WatchOptions, WatchReader};

type NodeFailure = tenure_node::NodeFailure;

/// The most names that one turn of the event loop sorts for a list: a few milliseconds.
const SORTED_MAX: usize = 4_096;

/// The most watches of a member. Each takes about a kilobyte while nothing waits for it.
const MEMBER_WATCHES_MAX: usize = 65_536;
/// The most inspections of the member itself at a time, for status, health and metrics.
const INSPECTIONS_MAX: usize = 256;

/// What a read costs the event loop.
#[derive(Clone, Copy)]
pub(crate) enum ReadCost {
    /// It finds one record.
    Record,
    /// It finds the leases of a session that begins. A client needs the session to renew them, so this is admitted like
    /// a renewal.
    Welcome,
    /// It walks over many records.
    Page,
}

/// Bounds how many inspections of the member wait for the event loop. Further ones wait outside of it.
pub(super) struct ReadSlots {
    inspections: Arc<Semaphore>,
}

impl Default for ReadSlots {
    fn default() -> Self {
        Self { inspections: Arc::new(Semaphore::new(INSPECTIONS_MAX)) }
    }
}

impl Dispatch {
    /// Reads the machine at the given freshness. Returns the result with the revision that it was read at.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        who: &Principal,
        scope: ReadScope,
        fresh: ReadConsistency,
        within: Duration,
        ask: impl FnOnce(&Machine) -> T + Send + 'static,
    ) -> Result<(Revision, T), Failure> {
        self.count_read(who)?;
        let read = self.ask(who, scope, fresh, within, ReadCost::Record, ask).await;
        read.map_err(|failure| self.failure_to(who, failure, within))
    }

    /// Counts a read of this principal against the quota of the present caller. What the member reads for itself, such
    /// as the address of the leader, is not the caller's.
    fn count_read(&self, who: &Principal) -> Result<(), Failure> {
        if *who == Principal::member() { Ok(()) } else { self.count_request(Weight::Asks) }
    }

    /// Reads what a session begins with, from this member's state as it is.
    pub(crate) async fn read_welcome<T: Send + 'static>(
        &self,
        who: &Principal,
        ask: impl FnOnce(&Machine) -> T + Send + 'static,
    ) -> Result<(Revision, T), Failure> {
        let (scope, cost) = (ReadScope::Known, ReadCost::Welcome);
        let read = self.ask(who, scope, ReadConsistency::Stale, WITHIN, cost, ask).await;
        read.map_err(|failure| self.failure_to(who, failure, WITHIN))
    }

    /// Reads many records of the machine, a bounded number of which `ask` walks over.
    pub(crate) async fn read_page<T: Send + 'static>(
        &self,
        who: &Principal,
        scope: ReadScope,
        fresh: ReadConsistency,
        within: Duration,
        ask: impl FnOnce(&Machine) -> T + Send + 'static,
    ) -> Result<(Revision, T), Failure> {
        self.count_read(who)?;
        self.read_next_page(who, scope, fresh, within, ask).await
    }

    /// Does the same for a further part of an answer, which does not count as a request.
    pub(crate) async fn read_next_page<T: Send + 'static>(
        &self,
        who: &Principal,
        scope: ReadScope,
        fresh: ReadConsistency,
        within: Duration,
        ask: impl FnOnce(&Machine) -> T + Send + 'static,
    ) -> Result<(Revision, T), Failure> {
        let deadline_us = self.deadline_us(within);
        let failure = |failure| self.failure_to(who, failure, within);
        if !matches!(fresh, ReadConsistency::Stale) {
            // First wait until this member's state is fresh enough, from which it never goes back.
            let known = ReadScope::Known;
            self.ask(who, known, fresh, within, ReadCost::Record, |_| ()).await.map_err(failure)?;
        }
        let left = self.until(deadline_us);
        self.ask(who, scope, ReadConsistency::Stale, left, ReadCost::Page, ask)
            .await
            .map_err(failure)
    }

    /// Reads the machine with the names of its locks in order, as lists need them. Names that are not sorted yet are
    /// sorted first, a bounded number in each turn of the event loop.
    pub(crate) async fn read_sorted<T: Send + 'static>(
        &self,
        who: &Principal,
        scope: ReadScope,
        fresh: ReadConsistency,
        within: Duration,
        ask: impl Fn(SortedLocks<'_>) -> T + Clone + Send + 'static,
    ) -> Result<(Revision, T), Failure> {
        self.count_read(who)?;
        let deadline_us = self.deadline_us(within);
        loop {
            let ask = ask.clone();
            let sorted = move |machine: &Machine| sort(machine).map(ask);
            let left = self.member().until(deadline_us);
            if let (revision, Some(listed)) =
                self.read_next_page(who, scope.clone(), fresh, left, sorted).await?
            {
                return Ok((revision, listed));
            }
            let is_sorted = |machine: &Machine| sort(machine).is_some();
            let left = || self.member().until(deadline_us);
            let scope = || scope.clone();
            while !self
                .read_next_page(who, scope(), ReadConsistency::Stale, left(), is_sorted)
                .await?
                .1
            {}
        }
    }

    async fn ask<T: Send + 'static>(
        &self,
        who: &Principal,
        scope: ReadScope,
        fresh: ReadConsistency,
        within: Duration,
        cost: ReadCost,
        ask: impl FnOnce(&Machine) -> T + Send + 'static,
    ) -> Result<(Revision, T), NodeFailure> {
        self.member().identity().check_known(who)?;
        // A read counts against the budget like a command, from when it is taken until the event loop has answered it.
        let admission = self.member().admission();
        let weight = match cost {
            ReadCost::Record | ReadCost::Page => Weight::Asks,
            ReadCost::Welcome => Weight::Keeps,
        };
        let permit = Caller::with_share(|share| admission.admit_from(weight, 0, share));
        let permit = permit.ok_or(NodeFailure::Overloaded)?;
        let turn = match cost {
            ReadCost::Record | ReadCost::Welcome => ReadTurn::record(&permit),
            ReadCost::Page => ReadTurn::page(&permit),
        };
        let until_taken = turn.answered();
        let (principal, deadline_us) = (who.clone(), self.deadline_us(within));
        let (done, answer) = oneshot::channel();
        let who = who.clone();
        let memory = Caller::present_memory();
        let question = Box::new(move |machine: Result<&Machine, NodeFailure>| {
            let answer = machine.and_then(|machine| {
                // The connection is being closed because of answers that it does not read.
                if memory.is_over() {
                    return Err(NodeFailure::Overloaded);
                }
                scope.check(machine, &who)?;
                Ok((machine.revision(), ask(machine)))
            });
            let _ = done.send(answer);
            drop(permit);
        });
        let read = ReadCall { question, principal, fresh, deadline_us, turn };
        let event = LoopEvent::Read(Box::new(read));
        self.member().try_tell(event).map_err(|not_taken| not_taken.back().1)?;
        let answer = tokio::time::timeout(within + ANSWER_GRACE, answer).await;
        if until_taken.is_some() {
            drop(until_taken);
            self.member().wake();
        }
        match answer {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(NodeFailure::Stopping),
            // The event loop is blocked, most likely by its disk.
            Err(_) => Err(NodeFailure::Expired),
        }
    }

    /// Inspects this member's replica as it is now, without authorisation: for the member's own use.
    pub(crate) async fn inspect<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&Replica) -> T + Send + 'static,
    ) -> Result<T, Failure> {
        self.inspect_node(|node| ask(node.replica())).await
    }

    /// Inspects this member's node as it is now, without authorisation: for the member's own use.
    pub(crate) async fn inspect_node<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&Node) -> T + Send + 'static,
    ) -> Result<T, Failure> {
        self.run_in_loop(ask).await.map_err(|failure| self.failure(failure, WITHIN))
    }

    async fn run_in_loop<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&Node) -> T + Send + 'static,
    ) -> Result<T, NodeFailure> {
        let waiting = self.inner.read_slots.inspections.clone().acquire_owned();
        let slot = match tokio::time::timeout(WITHIN, waiting).await {
            Ok(slot) => slot.map_err(|_| NodeFailure::Stopping)?,
            Err(_) => return Err(NodeFailure::Expired),
        };
        let (done, answer) = oneshot::channel();
        let ask = Box::new(move |node: &Node| {
            let _ = done.send(ask(node));
            drop(slot);
        });
        let event = LoopEvent::Inspect { ask, source: Caller::source() };
        self.member().try_tell(event).map_err(|not_taken| not_taken.back().1)?;
        match tokio::time::timeout(WITHIN, answer).await {
            Ok(answer) => answer.map_err(|_| NodeFailure::Stopping),
            // The event loop is blocked, most likely by its disk.
            Err(_) => Err(NodeFailure::Expired),
        }
    }

    /// The cluster as this member knows it, which may be old.
    pub(crate) async fn view(&self, who: &Principal) -> Result<ClusterView, Failure> {
        let view = self.cluster_at(who, ReadConsistency::Stale, WITHIN).await;
        view.map_err(|failure| self.failure_to(who, failure, WITHIN))
    }

    /// The cluster, not older than the call.
    pub(crate) async fn view_now(
        &self,
        who: &Principal,
        within: Duration,
    ) -> Result<ClusterView, Failure> {
        let view = self.cluster_at(who, ReadConsistency::Linearizable, within).await;
        view.map_err(|failure| self.failure_to(who, failure, within))
    }

    /// The cluster at the given freshness.
    pub(super) async fn cluster_at(
        &self,
        who: &Principal,
        fresh: ReadConsistency,
        within: Duration,
    ) -> Result<ClusterView, NodeFailure> {
        match fresh {
            ReadConsistency::Stale => {
                self.member().identity().authorise(who, PrincipalAction::Enter)?;
            }
            ReadConsistency::Linearizable | ReadConsistency::AtLeast(_) => {
                let (scope, cost) = (ReadScope::Known, ReadCost::Record);
                self.ask(who, scope, fresh, within, cost, |_| ()).await?;
            }
        }
        self.run_in_loop(ClusterView::of).await
    }

    /// Starts a watch.
    pub(crate) fn watch(
        &self,
        who: &Principal,
        filter: OwnedFilter,
        start: Start,
        options: WatchOptions,
    ) -> Result<WatchReader, Failure> {
        self.may(who, filter.action())?;
        let quota =
            |limit, bound: usize| Failure::Quota { limit, bound: bound as u64, retry_after_ms: 0 };
        if self.member().feed().watches() >= MEMBER_WATCHES_MAX {
            return Err(quota("watches", MEMBER_WATCHES_MAX));
        }
        self.count_read(who)?;
        let count = Caller::watch().ok_or_else(|| quota("watches_per_connection", WATCHES_MAX))?;
        let count = count.with(Caller::count(self.member().identity(), Quota::Watches)?);
        Ok(self.hub().watch(filter, start, options).counted(count).seen_by(who.clone()))
    }
}

/// Sorts as many names of locks as one turn of the event loop has time for, and returns the lists once all are sorted.
fn sort(machine: &Machine) -> Option<SortedLocks<'_>> {
    machine.sorted_locks(SORTED_MAX)
}

#[cfg(test)]
mod tests {
    use tenure_core::codec::{encode_request, seal_entry};
    use tenure_core::outcome::Effects;
    use tenure_core::request::{
        Acquire, Ask, AskLease, AskWait, Asks, Command, LeaseRef, NewLease, Purpose, Request,
        RequestId,
    };
    use tenure_types::{Epoch, LeaseId, Limit, Mode, Term};

    use super::*;

    /// A machine with this many locks, none of whose names was sorted yet.
    fn machine(locks: usize) -> Machine {
        let id = LeaseId::new(1).unwrap();
        let lease = NewLease { id, ttl_ms: 60_000, client: "c", metadata: b"" };
        let names: Vec<String> = (0..locks).map(|at| format!("lock/{}", at * 7_919)).collect();
        let acquire = |lock| {
            Command::Acquire(Acquire {
                lease: AskLease::Existing(LeaseRef::Id(id)),
                locks: Asks::One(Ask { lock, mode: Mode::Exclusive }),
                any: false,
                wait: AskWait::No,
                metadata: &[],
                lock_delay_ms: 0,
                max_hold_ms: None,
                min_hold_ms: 0,
                progress_within_ms: 0,
                supersede: None,
                resume: false,
                priority: 0,
                purpose: Purpose::Lock,
                independent: false,
            })
        };
        let mut commands = vec![
            Command::SetLimits(vec![(Limit::LocksPerLease, 1_000_000)]),
            Command::GrantLease(lease),
        ];
        commands.extend(names.iter().map(|name| acquire(name)));
        let encoded: Vec<Vec<u8>> = commands
            .into_iter()
            .map(|command| {
                let mut bytes = Vec::new();
                let request = Request { principal: "", id: RequestId::None, command };
                encode_request(&request, &mut bytes);
                bytes
            })
            .collect();
        let mut machine = Machine::new(Epoch::default());
        for some in encoded.chunks(256) {
            let entry = seal_entry(Term(1), 0, some.iter().map(Vec::as_slice));
            machine.apply(Term(1), Some(&entry), &mut Effects::default());
        }
        machine
    }

    #[test]
    fn one_turn_of_the_event_loop_sorts_a_bounded_number_of_names() {
        let machine = machine(2 * SORTED_MAX + 1);
        assert!(sort(&machine).is_none(), "the first turn sorts a part");
        assert!(sort(&machine).is_none(), "so does the second");
        let sorted = sort(&machine).expect("one name was left for the third");
        assert_eq!(sorted.locks("", None, usize::MAX).len(), 2 * SORTED_MAX + 1);
    }
}
