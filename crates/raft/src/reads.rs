//! Determines the index from which a linearizable read may be answered.
//!
//! A quorum confirms that the leader still leads. Everything committed before that is enough for the read. A context is
//! never reused: an answer to an older request, still in transit, would be taken for the answer to the new one.

use std::collections::VecDeque;

use crate::config::{READ_RETRY_US, READ_TRIES_MAX, READS_IN_FLIGHT_MAX, READS_WAITING_MAX};
use crate::io::{ProposalId, ReplicaOutput};
use crate::member::MemberId;

/// The length of a context: member, start and number.
pub(crate) const CONTEXT_BYTES: usize = 24;

/// Reads in progress.
#[derive(Debug)]
pub(crate) struct PendingReads {
    member: MemberId,
    boot: u64,
    counter: u64,
    /// Reads that no context covers yet.
    fresh: Vec<ProposalId>,
    asked: VecDeque<PendingRead>,
    /// Confirmed reads that wait until the machine has applied the index.
    confirmed: Vec<(u64, Vec<ProposalId>)>,
    waiting: usize,
}

#[derive(Debug)]
struct PendingRead {
    counter: u64,
    at_us: u64,
    tries: u32,
    proposals: Vec<ProposalId>,
}

impl PendingReads {
    pub(crate) fn new(member: MemberId, boot: u64) -> Self {
        Self {
            member,
            boot,
            counter: 0,
            fresh: Vec::new(),
            asked: VecDeque::new(),
            confirmed: Vec::new(),
            waiting: 0,
        }
    }

    /// Takes a read; returns `false` if too many wait.
    pub(crate) fn add(&mut self, proposal: ProposalId) -> bool {
        if self.waiting >= READS_WAITING_MAX {
            return false;
        }
        self.waiting += 1;
        self.fresh.push(proposal);
        true
    }

    /// The contexts that the engine must confirm now. One context serves every read that came before it was sent. A
    /// context that was not answered in time is replaced by a new one.
    pub(crate) fn ask(&mut self, now_us: u64, out: &mut Vec<ReplicaOutput>) -> Vec<Vec<u8>> {
        let mut contexts = Vec::new();
        for at in 0..self.asked.len() {
            if self.asked[at].at_us.saturating_add(READ_RETRY_US) > now_us {
                continue;
            }
            let counter = self.next_counter();
            let asked = &mut self.asked[at];
            asked.tries += 1;
            asked.at_us = now_us;
            asked.counter = counter;
            if asked.tries < READ_TRIES_MAX {
                contexts.push(self.context(counter));
            }
        }
        let given_up: Vec<PendingRead> = {
            let (over, on): (Vec<_>, Vec<_>) =
                self.asked.drain(..).partition(|asked| asked.tries >= READ_TRIES_MAX);
            self.asked.extend(on);
            over
        };
        given_up.into_iter().for_each(|asked| self.fail(asked.proposals, out));
        if !self.fresh.is_empty() && self.asked.len() < READS_IN_FLIGHT_MAX {
            let counter = self.next_counter();
            let proposals = std::mem::take(&mut self.fresh);
            self.asked.push_back(PendingRead { counter, at_us: now_us, tries: 0, proposals });
            contexts.push(self.context(counter));
        }
        contexts
    }

    /// Records that the engine has confirmed a context.
    pub(crate) fn confirm(&mut self, context: &[u8], index: u64) {
        let found = self.asked.iter().position(|asked| self.context(asked.counter) == context);
        // Not found if it was replaced meanwhile: this is an answer to an older request.
        if let Some(asked) = found.and_then(|at| self.asked.remove(at)) {
            self.confirmed.push((index, asked.proposals));
        }
    }

    /// Completes the reads up to the index that the machine has applied.
    pub(crate) fn applied(&mut self, index: u64, out: &mut Vec<ReplicaOutput>) {
        let mut at = 0;
        while at < self.confirmed.len() {
            if self.confirmed[at].0 > index {
                at += 1;
                continue;
            }
            let (_, proposals) = self.confirmed.remove(at);
            self.waiting -= proposals.len();
            out.extend(proposals.into_iter().map(|proposal| ReplicaOutput::ReadReady { proposal }));
        }
    }

    /// Fails all requested reads: the term has changed, and their contexts are void.
    pub(crate) fn fail_all(&mut self, out: &mut Vec<ReplicaOutput>) {
        let asked: Vec<PendingRead> = self.asked.drain(..).collect();
        asked.into_iter().for_each(|asked| self.fail(asked.proposals, out));
    }

    /// Planted bug: answers from whatever the leader has applied.
    #[cfg(mutants)]
    pub(crate) fn confirm_unasked(&mut self, index: u64) {
        let proposals = std::mem::take(&mut self.fresh);
        if !proposals.is_empty() {
            self.confirmed.push((index, proposals));
        }
    }

    /// When the next context must be requested again.
    pub(crate) fn retry_at_us(&self) -> Option<u64> {
        self.asked.iter().map(|asked| asked.at_us.saturating_add(READ_RETRY_US)).min()
    }

    fn fail(&mut self, proposals: Vec<ProposalId>, out: &mut Vec<ReplicaOutput>) {
        self.waiting -= proposals.len();
        out.extend(proposals.into_iter().map(|proposal| ReplicaOutput::ReadFailed { proposal }));
    }

    fn next_counter(&mut self) -> u64 {
        if !mutant!("read_context_reused") {
            self.counter += 1;
        }
        self.counter
    }

    fn context(&self, counter: u64) -> Vec<u8> {
        let mut context = Vec::with_capacity(CONTEXT_BYTES);
        for number in [self.member.get(), self.boot, counter] {
            context.extend_from_slice(&number.to_le_bytes());
        }
        context
    }
}
