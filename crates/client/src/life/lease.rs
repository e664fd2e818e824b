//! How does one lease live from its grant to its loss?

use std::collections::BTreeMap;
use std::time::Duration;

use tenure_types::{Revision, Token};

use super::{Cause, Lost, Moment, Pace, Reading, Standing};

/// Less than this is not sleep but the time between two readings.
const SLEEP_MIN: Duration = Duration::from_millis(50);

/// A lease that was asked for and is not granted yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asking {
    pace: Pace,
    first: Option<Moment>,
}

/// The grant was answered after the time for which it could be relied on. It must be given back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TooLate {
    /// How long the answer took.
    pub(crate) after: Duration,
}

/// A lease that was granted.
#[derive(Debug)]
pub(crate) struct Life {
    pace: Pace,
    /// When the newest request that was acknowledged was sent for the first time.
    since: Moment,
    lost: Option<Lost>,
    tries: Vec<Try>,
    newest: u64,
    next_try: Moment,
    /// The newest involuntary loss that we know everything about.
    known: Revision,
    /// An acknowledgement that counts once the holdings were read.
    proof: Option<Proof>,
    grants: BTreeMap<Token, Grant>,
    wake: Wake,
}

/// A renewal on its way.
#[derive(Clone, Copy, Debug)]
struct Try {
    number: u64,
    sent: Moment,
}

#[derive(Clone, Copy, Debug)]
struct Proof {
    sent: Moment,
    changed: Revision,
}

#[derive(Debug)]
struct Grant {
    lock: String,
    /// The revision at which it was surely held.
    at: Revision,
    lost: Option<Lost>,
    /// Whether its work has stopped.
    stopped: bool,
    /// Whether the cluster was told so.
    told: bool,
}

/// What is known about why nothing was acknowledged.
#[derive(Debug)]
struct Wake {
    /// When we asked to be looked at next.
    due: Moment,
    slept: Duration,
    late: Duration,
    napped: Duration,
    /// Tries that nobody answered in their time while we were awake.
    failed: u32,
}

/// What to do after an acknowledgement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Heard {
    /// Nothing.
    Nothing,
    /// Read what the lease holds, and say it to [`Life::holdings`].
    ReadHoldings,
}

/// What the cluster is told once the work under a lock has stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Farewell {
    /// The lock is given back.
    Release,
    /// Whoever took the lock away need not wait any longer.
    Confirm,
}

impl Asking {
    pub(crate) fn new(pace: Pace) -> Self {
        Self { pace, first: None }
    }

    /// The request is about to be sent; also when it is sent again under the same id.
    pub(crate) fn sent(&mut self, now: Reading) {
        // The answer to a repetition may be the recorded one: only the first sending counts.
        if self.first.is_none() || mutant!("count_from_resend") {
            self.first = Some(now.now());
        }
    }

    /// The lease was granted.
    pub(crate) fn granted(&self, now: Reading) -> Result<Life, TooLate> {
        let (at, pace) = (now.now(), self.pace);
        let since = self.first.unwrap_or(at);
        let since = if mutant!("count_from_reply") { at } else { since };
        if at >= since + pace.window() && !mutant!("late_grant_is_held") {
            return Err(TooLate { after: at.since(since) });
        }
        let since = if mutant!("late_grant_is_held") { at } else { since };
        Ok(Life {
            pace,
            since,
            lost: None,
            tries: Vec::new(),
            newest: 0,
            next_try: since + pace.renew_after(),
            known: Revision(0),
            proof: None,
            grants: BTreeMap::new(),
            wake: Wake {
                due: since + pace.renew_after(),
                slept: now.slept(),
                late: Duration::ZERO,
                napped: Duration::ZERO,
                failed: 0,
            },
        })
    }
}

impl Life {
    pub(crate) fn pace(&self) -> &Pace {
        &self.pace
    }

    /// The moment from which it counts as lost, unless something newer is acknowledged.
    pub(crate) fn lost_at(&self) -> Moment {
        self.since + self.pace.window()
    }

    /// When to look at it next.
    pub(crate) fn due(&self) -> Moment {
        let doubtful = self.since + self.pace.doubtful_after();
        let doubtful = if self.wake.due >= doubtful { self.lost_at() } else { doubtful };
        self.next_try.min(doubtful).min(self.lost_at())
    }

    /// Looks at the clock: whether a renewal shall be sent now.
    pub(crate) fn poll(&mut self, now: Reading) -> bool {
        let at = now.now();
        let late = at.since(self.wake.due);
        if late > self.pace.retry() {
            self.wake.late = self.wake.late.max(late);
        }
        let slept = now.slept().saturating_sub(self.wake.slept);
        self.wake.slept = now.slept();
        if slept > SLEEP_MIN {
            self.wake.napped += slept;
        }
        self.expire(at);
        let retry = self.pace.retry();
        let overdue = self.tries.iter().filter(|it| it.sent + retry <= at).count();
        if late <= retry && slept <= SLEEP_MIN {
            self.wake.failed = self.wake.failed.max(u32::try_from(overdue).unwrap_or(u32::MAX));
        }
        self.wake.due = at;
        let renew = self.lost.is_none() && at >= self.next_try;
        self.wake.due = if renew { at + retry } else { self.due().max(at) };
        renew
    }

    /// Whether it is due or will be within a quarter of its pace: what is renewed together stays together.
    pub(crate) fn is_soon(&self, now: Reading) -> bool {
        self.lost.is_none() && now.now() + self.pace.renew_after() / 4 >= self.next_try
    }

    /// Whether a renewal is unanswered for longer than it should be, or failed.
    pub(crate) fn is_retrying(&self) -> bool {
        self.lost.is_none() && (self.wake.failed > 0 || !self.tries.is_empty())
    }

    /// A renewal is about to be sent; its number comes back with the answer.
    pub(crate) fn renewing(&mut self, now: Reading) -> u64 {
        let (sent, window) = (now.now(), self.pace.window());
        // What was sent a window ago proves nothing any more.
        self.tries.retain(|it| it.sent + window > sent);
        self.newest += 1;
        self.tries.push(Try { number: self.newest, sent });
        self.next_try = sent + self.pace.retry();
        self.newest
    }

    /// A renewal was acknowledged: the lease lives for `ttl` again; 0 if it does not live.
    pub(crate) fn renewed(
        &mut self,
        number: u64,
        ttl: Duration,
        changed: Revision,
        now: Reading,
    ) -> Heard {
        let at = now.now();
        self.expire(at);
        let Some(found) = self.tries.iter().position(|it| it.number == number) else {
            return Heard::Nothing;
        };
        let sent = self.tries.swap_remove(found).sent;
        let sent = if mutant!("count_from_reply") { at } else { sent };
        if self.lost.is_some() {
            #[cfg(test)]
            if mutant!("late_answer_revives") {
                self.revive(sent);
            }
            return Heard::Nothing;
        }
        if ttl.is_zero() {
            // It could not have run out by our own clock yet (T1): somebody has ended it, and we were not told.
            self.lose(Cause::Gone.into());
            return Heard::Nothing;
        }
        if changed > self.known && !mutant!("ignore_changed") {
            let sent = self.proof.map_or(sent, |proof| proof.sent.max(sent));
            self.proof = Some(Proof { sent, changed });
            if mutant!("holdings_after_moving") {
                self.acknowledged(sent);
                self.proof = None;
                self.known = changed;
            }
            return Heard::ReadHoldings;
        }
        self.acknowledged(sent);
        Heard::Nothing
    }

    /// A renewal failed, or nobody answered in its time.
    pub(crate) fn not_renewed(&mut self, number: u64) {
        self.tries.retain(|it| it.number != number);
        self.wake.failed += 1;
    }

    /// What the lease held at a revision, as it was read; `changed` is the newest loss by then.
    pub(crate) fn holdings(
        &mut self,
        revision: Revision,
        changed: Revision,
        holds: &[Token],
        now: Reading,
    ) {
        self.expire(now.now());
        for (token, grant) in &mut self.grants {
            // What was granted after the reading is rightly missing in it.
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

    /// The lease has ended, or is unknown.
    pub(crate) fn ended(&mut self, lost: impl Into<Lost>, now: Reading) {
        // Whoever was not renewed for reasons of our own knows better than the cluster why.
        self.expire(now.now());
        self.lose(lost.into());
    }

    /// A lock was granted to the lease. It becomes a guard only if the lease can be relied on now.
    pub(crate) fn granted(
        &mut self,
        lock: &str,
        token: Token,
        at: Revision,
        now: Reading,
    ) -> Result<(), Lost> {
        self.check(now)?;
        let lock = lock.to_owned();
        self.grants.insert(token, Grant { lock, at, lost: None, stopped: false, told: false });
        Ok(())
    }

    /// A held lock goes on under another token.
    pub(crate) fn regranted(&mut self, old: Token, new: Token, at: Revision) {
        if let Some(grant) = self.grants.remove(&old) {
            self.grants.insert(new, Grant { at, ..grant });
        }
    }

    /// A lock was lost that nobody here gave back.
    pub(crate) fn taken(&mut self, token: Token, lost: impl Into<Lost>) {
        if let Some(grant) = self.grants.get_mut(&token)
            && grant.lost.is_none()
        {
            grant.lost = Some(lost.into());
        }
    }

    /// Whether the lease can be relied on at this moment.
    pub(crate) fn check(&mut self, now: Reading) -> Result<(), Lost> {
        if !mutant!("check_without_clock") {
            self.expire(now.now());
        }
        self.lost.clone().map_or(Ok(()), Err)
    }

    /// Whether a lock can be relied on at this moment.
    pub(crate) fn check_grant(&mut self, token: Token, now: Reading) -> Result<(), Lost> {
        self.check(now)?;
        match self.grants.get(&token) {
            None => Err(Cause::Released.into()),
            Some(grant) => grant.lost.clone().map_or(Ok(()), Err),
        }
    }

    /// How it stands, as of the last look.
    pub(crate) fn standing(&mut self, now: Reading) -> Standing {
        match self.check(now) {
            Err(lost) => Standing::Lost(lost.cause()),
            Ok(()) if now.now() >= self.since + self.pace.doubtful_after() => Standing::Doubtful,
            Ok(()) => Standing::Valid,
        }
    }

    /// Which locks are lost, with their causes.
    pub(crate) fn losses(&self) -> impl Iterator<Item = (Token, Lost)> {
        let lost = |it: &Grant| it.lost.as_ref().or(self.lost.as_ref()).cloned();
        self.grants.iter().filter_map(move |(token, it)| Some((*token, lost(it)?)))
    }

    /// The work under a lock has stopped, and what was not said of it yet may be said.
    pub(crate) fn stopped(&mut self, token: Token) {
        if let Some(grant) = self.grants.get_mut(&token) {
            grant.stopped = true;
        }
    }

    /// The work under a lock has stopped while it could be relied on: which lock is given back. Nothing if it was lost;
    /// then [`stopped`](Self::stopped) and [`farewells`](Self::farewells) tell what is to be said.
    pub(crate) fn given_back(&mut self, token: Token, now: Reading) -> Option<String> {
        self.check_grant(token, now).ok()?;
        if mutant!("held_when_given_back") {
            return self.grants.get(&token).map(|grant| grant.lock.clone());
        }
        self.grants.remove(&token).map(|grant| grant.lock)
    }

    /// What may be said to the cluster now, each once: nothing is given back before its work has stopped.
    pub(crate) fn farewells(&mut self) -> Vec<(Token, String, Farewell)> {
        let lease = self.lost.is_some();
        let early = mutant!("release_before_stop");
        let mut farewells = Vec::new();
        for (token, grant) in &mut self.grants {
            let over = grant.stopped || early && (grant.lost.is_some() || lease);
            if grant.told || !over {
                continue;
            }
            grant.told = true;
            let farewell = if grant.lost.is_some() { Farewell::Confirm } else { Farewell::Release };
            farewells.push((*token, grant.lock.clone(), farewell));
        }
        if mutant!("held_after_farewell") {
            return farewells;
        }
        self.grants.retain(|_, it| !(it.told && it.stopped) || mutant!("late_answer_revives"));
        farewells
    }

    /// Whether no work goes on under the lease, so that it may be revoked.
    pub(crate) fn is_idle(&self) -> bool {
        self.grants.values().all(|grant| grant.stopped)
    }

    fn acknowledged(&mut self, sent: Moment) {
        self.since = self.since.max(sent);
        // What was sent before it proves nothing more.
        let since = self.since;
        self.tries.retain(|it| it.sent > since || mutant!("late_answer_revives"));
        self.next_try = self.since + self.pace.renew_after();
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
        let cause = if self.wake.failed > 0 {
            Cause::Unreachable { silent: at.since(self.since) }
        } else if slept > SLEEP_MIN {
            Cause::Suspended { slept }
        } else if late > self.pace.retry() {
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

    /// The planted bug of a client that believes an answer whenever it comes.
    #[cfg(test)]
    fn revive(&mut self, sent: Moment) {
        self.lost = None;
        for grant in self.grants.values_mut() {
            grant.stopped = false;
        }
        self.acknowledged(sent);
    }
}
