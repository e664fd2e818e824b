//! Tracks the state of one lease from its request to its loss.

use std::collections::BTreeMap;
use std::time::Duration;

use tenure_types::{Revision, Token};

use super::{Cause, ClockReading, LeaseTiming, Lost, Moment, Standing};

/// A smaller difference between the clocks is not a suspend but the time between their two readings.
const SLEEP_MIN: Duration = Duration::from_millis(50);

/// A lease that was requested and is not granted yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PendingGrant {
    timing: LeaseTiming,
    first: Option<Moment>,
}

/// The answer to the grant came after the time for which the lease could be relied on. The lease must be revoked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TooLate {
    /// How long the answer took.
    pub(crate) after: Duration,
}

/// The state of a granted lease.
#[derive(Debug)]
pub(crate) struct LeaseState {
    timing: LeaseTiming,
    /// When the newest acknowledged request was sent for the first time.
    since: Moment,
    lost: Option<Lost>,
    tries: Vec<RenewalAttempt>,
    newest: u64,
    next_try: Moment,
    /// The revision up to which the client knows of all involuntary losses.
    known: Revision,
    /// An acknowledgement that counts only after the holdings were read.
    proof: Option<RenewalProof>,
    grants: BTreeMap<Token, HeldGrant>,
    wake: Wake,
    /// Whether members refused the client's credentials since the newest acknowledged renewal.
    refused: bool,
}

/// A renewal that was sent.
#[derive(Clone, Copy, Debug)]
struct RenewalAttempt {
    number: u64,
    sent: Moment,
}

#[derive(Clone, Copy, Debug)]
struct RenewalProof {
    sent: Moment,
    changed: Revision,
}

#[derive(Debug)]
struct HeldGrant {
    lock: String,
    /// A revision at which the lock was surely held.
    at: Revision,
    lost: Option<Lost>,
    /// Whether the work under the lock has stopped.
    stopped: bool,
    /// Whether the cluster was told that the work has stopped.
    told: bool,
}

/// A grant that is lost.
#[derive(Clone, Debug)]
pub(crate) struct GrantLoss {
    pub(crate) token: Token,
    pub(crate) lock: String,
    pub(crate) lost: Lost,
    /// Whether the work under it had stopped.
    pub(crate) stopped: bool,
}

/// What is known about why nothing was acknowledged.
#[derive(Debug)]
struct Wake {
    /// When the lease asked to be polled next.
    due: Moment,
    slept: Duration,
    late: Duration,
    napped: Duration,
    /// Attempts that were not answered in time while the process was awake.
    failed: u32,
}

/// What the caller has to do after an acknowledgement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AckEffect {
    /// Nothing to do.
    Nothing,
    /// Read what the lease holds, and pass it to [`LeaseState::holdings`].
    ReadHoldings,
}

/// What the client tells the cluster once the work under a lock has stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum EndMessage {
    /// Release the lock.
    Release,
    /// Confirm that the work under a lock that was taken away has stopped, so that the next grant need not wait longer.
    Confirm,
}

impl PendingGrant {
    pub(crate) fn new(timing: LeaseTiming) -> Self {
        Self { timing, first: None }
    }

    /// Records that the request is about to be sent, for the first time or again under the same id.
    pub(crate) fn sent(&mut self, now: ClockReading) {
        // The answer to a repetition may be the recorded one, so only the first send counts.
        if self.first.is_none() || mutant!("count_from_resend") {
            self.first = Some(now.now());
        }
    }

    /// Records the grant.
    pub(crate) fn granted(&self, now: ClockReading) -> Result<LeaseState, TooLate> {
        let (at, timing) = (now.now(), self.timing);
        let since = self.first.unwrap_or(at);
        let since = if mutant!("count_from_reply") { at } else { since };
        if at >= since + timing.window() && !mutant!("late_grant_is_held") {
            return Err(TooLate { after: at.since(since) });
        }
        let since = if mutant!("late_grant_is_held") { at } else { since };
        Ok(LeaseState {
            timing,
            since,
            lost: None,
            tries: Vec::new(),
            newest: 0,
            next_try: since + timing.renew_after(),
            known: Revision(0),
            proof: None,
            grants: BTreeMap::new(),
            wake: Wake {
                due: since + timing.renew_after(),
                slept: now.slept(),
                late: Duration::ZERO,
                napped: Duration::ZERO,
                failed: 0,
            },
            refused: false,
        })
    }
}

impl LeaseState {
    pub(crate) fn timing(&self) -> &LeaseTiming {
        &self.timing
    }

    /// The instant from which the lease counts as lost, unless something newer is acknowledged.
    pub(crate) fn lost_at(&self) -> Moment {
        self.since + self.timing.window()
    }

    /// When to poll the lease next.
    pub(crate) fn due(&self) -> Moment {
        let doubtful = self.since + self.timing.doubtful_after();
        let doubtful = if self.wake.due >= doubtful { self.lost_at() } else { doubtful };
        self.next_try.min(doubtful).min(self.lost_at())
    }

    /// Checks the clock, and returns whether to send a renewal now.
    pub(crate) fn poll(&mut self, now: ClockReading) -> bool {
        let at = now.now();
        let late = at.since(self.wake.due);
        if late > self.timing.retry() {
            self.wake.late = self.wake.late.max(late);
        }
        let slept = now.slept().saturating_sub(self.wake.slept);
        self.wake.slept = now.slept();
        if slept > SLEEP_MIN {
            self.wake.napped += slept;
        }
        self.expire(at);
        let retry = self.timing.retry();
        let overdue = self.tries.iter().filter(|it| it.sent + retry <= at).count();
        if late <= retry && slept <= SLEEP_MIN {
            self.wake.failed = self.wake.failed.max(u32::try_from(overdue).unwrap_or(u32::MAX));
        }
        self.wake.due = at;
        let renew = self.lost.is_none() && at >= self.next_try;
        self.wake.due = if renew { at + retry } else { self.due().max(at) };
        renew
    }

    /// Whether a renewal is due, or will be within a quarter of the renewal interval. Leases that are renewed together
    /// stay together.
    pub(crate) fn is_soon(&self, now: ClockReading) -> bool {
        self.lost.is_none() && now.now() + self.timing.renew_after() / 4 >= self.next_try
    }

    /// Whether a renewal is still unanswered, or has failed.
    pub(crate) fn is_retrying(&self) -> bool {
        self.lost.is_none() && (self.wake.failed > 0 || !self.tries.is_empty())
    }

    /// Records that a renewal is about to be sent, and returns its number, which comes back with the answer.
    pub(crate) fn renewing(&mut self, now: ClockReading) -> u64 {
        let (sent, window) = (now.now(), self.timing.window());
        // A renewal that was sent a window ago proves nothing any more.
        self.tries.retain(|it| it.sent + window > sent);
        self.newest += 1;
        self.tries.push(RenewalAttempt { number: self.newest, sent });
        self.next_try = sent + self.timing.retry();
        self.newest
    }

    /// Records an acknowledged renewal: the lease has `ttl` again, or no longer exists if `ttl` is 0.
    pub(crate) fn renewed(
        &mut self,
        number: u64,
        ttl: Duration,
        changed: Revision,
        now: ClockReading,
    ) -> AckEffect {
        let at = now.now();
        self.expire(at);
        let Some(found) = self.tries.iter().position(|it| it.number == number) else {
            return AckEffect::Nothing;
        };
        let sent = self.tries.swap_remove(found).sent;
        let sent = if mutant!("count_from_reply") { at } else { sent };
        if self.lost.is_some() {
            #[cfg(test)]
            if mutant!("late_answer_revives") {
                self.revive(sent);
            }
            return AckEffect::Nothing;
        }
        if ttl.is_zero() {
            // The lease could not have expired by our own clock yet (T1): it was ended, and the client was not told.
            self.lose(Cause::Gone.into());
            return AckEffect::Nothing;
        }
        if changed > self.known && !mutant!("ignore_changed") {
            let sent = self.proof.map_or(sent, |proof| proof.sent.max(sent));
            self.proof = Some(RenewalProof { sent, changed });
            if mutant!("holdings_after_moving") {
                self.acknowledged(sent);
                self.proof = None;
                self.known = changed;
            }
            return AckEffect::ReadHoldings;
        }
        self.acknowledged(sent);
        AckEffect::Nothing
    }

    /// Records that a renewal failed or was not answered in time.
    pub(crate) fn not_renewed(&mut self, number: u64) {
        self.tries.retain(|it| it.number != number);
        self.wake.failed += 1;
    }

    /// Records what the lease held at `revision`; `changed` is the newest loss up to then.
    pub(crate) fn holdings(
        &mut self,
        revision: Revision,
        changed: Revision,
        holds: &[Token],
        now: ClockReading,
    ) {
        self.expire(now.now());
        for (token, grant) in &mut self.grants {
            // A lock that was granted after the reading is rightly missing in it.
            if grant.at <= revision && !holds.contains(token) && grant.lost.is_none() {
                grant.lost = Some(Cause::Gone.into());
            }
        }
        self.known = self.known.max(changed);
        if let Some(proof) = self.proof
            && proof.changed <= self.known
        {
            self.proof = None;
            if self.lost.is_none() {
                self.acknowledged(proof.sent);
            }
        }
    }

    /// Records that the lease has ended or is unknown.
    pub(crate) fn ended(&mut self, lost: impl Into<Lost>, now: ClockReading) {
        // If renewals stopped for local reasons, the local clock knows the cause better than the cluster.
        self.expire(now.now());
        self.lose(lost.into());
    }

    /// Records a granted lock. It becomes a guard only if the lease can be relied on now.
    pub(crate) fn granted(
        &mut self,
        lock: &str,
        token: Token,
        at: Revision,
        now: ClockReading,
    ) -> Result<(), Lost> {
        self.check(now)?;
        // A member that was behind may report a grant after the lease has lost something newer. That loss may be the
        // loss of this very grant, and acknowledged renewals have moved the local deadline beyond it since.
        if at < self.known {
            return Err(Cause::Gone.into());
        }
        let lock = lock.to_owned();
        self.grants.insert(token, HeldGrant { lock, at, lost: None, stopped: false, told: false });
        Ok(())
    }

    /// Moves a held lock to another token.
    pub(crate) fn regranted(&mut self, old: Token, new: Token, at: Revision) {
        if let Some(grant) = self.grants.remove(&old) {
            self.grants.insert(new, HeldGrant { at, ..grant });
        }
    }

    /// Records the loss of a lock that this client did not release.
    pub(crate) fn taken(&mut self, token: Token, lost: impl Into<Lost>) {
        if let Some(grant) = self.grants.get_mut(&token)
            && grant.lost.is_none()
        {
            grant.lost = Some(lost.into());
        }
    }

    /// Checks that the lease can be relied on at this moment.
    pub(crate) fn check(&mut self, now: ClockReading) -> Result<(), Lost> {
        if !mutant!("check_without_clock") {
            self.expire(now.now());
        }
        self.lost.clone().map_or(Ok(()), Err)
    }

    /// Checks that a lock can be relied on at this moment.
    pub(crate) fn check_grant(&mut self, token: Token, now: ClockReading) -> Result<(), Lost> {
        self.check(now)?;
        match self.grants.get(&token) {
            None => Err(Cause::Released.into()),
            Some(grant) => grant.lost.clone().map_or(Ok(()), Err),
        }
    }

    /// Returns the standing at this moment.
    pub(crate) fn standing(&mut self, now: ClockReading) -> Standing {
        match self.check(now) {
            Err(lost) => Standing::Lost(lost.cause()),
            Ok(()) if now.now() >= self.since + self.timing.doubtful_after() => Standing::Doubtful,
            Ok(()) => Standing::Valid,
        }
    }

    /// Returns the loss of the lease itself, if it is lost.
    pub(crate) fn loss(&self) -> Option<&Lost> {
        self.lost.as_ref()
    }

    /// Returns the lost locks with their causes.
    pub(crate) fn losses(&self) -> impl Iterator<Item = GrantLoss> {
        self.grants.iter().filter_map(move |(token, it)| {
            let lost = it.lost.as_ref().or(self.lost.as_ref())?.clone();
            Some(GrantLoss { token: *token, lock: it.lock.clone(), lost, stopped: it.stopped })
        })
    }

    /// Returns each lock that the lease knows of, and why it is lost.
    #[cfg(test)]
    pub(crate) fn locks(&self) -> Vec<(Token, Option<Lost>)> {
        let lost = |grant: &HeldGrant| grant.lost.as_ref().or(self.lost.as_ref()).cloned();
        self.grants.iter().map(|(token, grant)| (*token, lost(grant))).collect()
    }

    /// Returns the names of the locks whose work has not stopped.
    pub(crate) fn in_use(&self) -> impl Iterator<Item = &str> {
        self.grants.values().filter(|it| !it.stopped).map(|it| it.lock.as_str())
    }

    /// Returns the name of a lock, and what to tell the cluster once its work has stopped.
    pub(crate) fn ending(&self, token: Token) -> Option<(String, EndMessage)> {
        let grant = self.grants.get(&token)?;
        let end = if grant.lost.is_some() { EndMessage::Confirm } else { EndMessage::Release };
        Some((grant.lock.clone(), end))
    }

    /// Records that the work under a lock has stopped, so that the cluster may be told.
    pub(crate) fn stopped(&mut self, token: Token) {
        if let Some(grant) = self.grants.get_mut(&token) {
            grant.stopped = true;
        }
    }

    /// Removes a lock whose work has stopped while it could be relied on, and returns its name for the release. Returns
    /// `None` if the lock was lost; then [`stopped`](Self::stopped) and [`farewells`](Self::farewells) determine what
    /// to tell the cluster.
    pub(crate) fn given_back(&mut self, token: Token, now: ClockReading) -> Option<String> {
        self.check_grant(token, now).ok()?;
        if mutant!("held_when_given_back") {
            return self.grants.get(&token).map(|grant| grant.lock.clone());
        }
        self.grants.remove(&token).map(|grant| grant.lock)
    }

    /// Returns what to tell the cluster now, each item once. A lock is never released before its work has stopped.
    pub(crate) fn farewells(&mut self) -> Vec<(Token, String, EndMessage)> {
        let lease = self.lost.is_some();
        let early = mutant!("release_before_stop");
        let mut farewells = Vec::new();
        for (token, grant) in &mut self.grants {
            let over = grant.stopped || early && (grant.lost.is_some() || lease);
            if grant.told || !over {
                continue;
            }
            grant.told = true;
            let farewell =
                if grant.lost.is_some() { EndMessage::Confirm } else { EndMessage::Release };
            farewells.push((*token, grant.lock.clone(), farewell));
        }
        if mutant!("held_after_farewell") {
            return farewells;
        }
        self.grants.retain(|_, it| !(it.told && it.stopped) || mutant!("late_answer_revives"));
        farewells
    }

    /// Whether no work runs under the lease, so that it may be revoked.
    pub(crate) fn is_idle(&self) -> bool {
        self.grants.values().all(|grant| grant.stopped)
    }

    /// Ends the lease if no work runs under it, and returns whether it has ended. From then on no grant becomes a
    /// guard, so the lease may be revoked.
    pub(crate) fn end_if_idle(&mut self) -> bool {
        let idle = self.is_idle();
        if idle {
            self.lose(Cause::Released.into());
        }
        idle
    }

    /// Members refuse the client's credentials: that is the cause if no renewal is acknowledged before the deadline.
    pub(crate) fn credentials_refused(&mut self) {
        self.refused = true;
    }

    fn acknowledged(&mut self, sent: Moment) {
        self.since = self.since.max(sent);
        // Renewals that were sent before this one prove nothing more.
        let since = self.since;
        self.tries.retain(|it| it.sent > since || mutant!("late_answer_revives"));
        self.next_try = self.since + self.timing.renew_after();
        self.refused = false;
        self.wake.failed = 0;
        self.wake.late = Duration::ZERO;
        self.wake.napped = Duration::ZERO;
        self.wake.due = self.wake.due.min(self.due());
    }

    fn expire(&mut self, at: Moment) {
        if self.lost.is_some() || at < self.lost_at() {
            return;
        }
        let (late, slept) = (self.wake.late.max(at.since(self.wake.due)), self.wake.napped);
        let cause = if self.refused {
            Cause::CredentialsRefused { silent: at.since(self.since) }
        } else if self.wake.failed > 0 {
            Cause::Unreachable { silent: at.since(self.since) }
        } else if slept > SLEEP_MIN {
            Cause::Suspended { slept }
        } else if late > self.timing.retry() {
            Cause::Stalled { late }
        } else {
            Cause::Unreachable { silent: at.since(self.since) }
        };
        self.lose(cause.into());
    }

    fn lose(&mut self, lost: Lost) {
        if self.lost.is_none() {
            self.lost = Some(lost);
            self.tries.retain(|_| mutant!("late_answer_revives"));
        }
    }

    /// The planted bug of a client that accepts an answer no matter how late it comes.
    #[cfg(test)]
    fn revive(&mut self, sent: Moment) {
        self.lost = None;
        for grant in self.grants.values_mut() {
            grant.stopped = false;
        }
        self.acknowledged(sent);
    }
}
