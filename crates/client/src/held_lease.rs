//! Keeps a granted lease, and notifies everything that relies on it when it is lost.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tenure_types::{Handle, LeaseId, Refusal, Revision, Token};
use tenure_wire::{convert, v1};
use tokio::sync::{Semaphore, watch};
use v1::answer::Result as Answer;
use v1::request::Command;

use crate::ask::AcquireOptions;
use crate::clock;
use crate::error::{Error, strange};
use crate::guard::Lock;
use crate::lease_state::{
    Cause, ClockReading, EndMessage, GrantLoss, LeaseState, LeaseTiming, Moment, PendingGrant,
    Standing,
};
use crate::shared::{ClientShared, Doubt, RequestIdentity, SentRequest};
use crate::signal::{Signal, publish};

/// The maximum number of unanswered requests of one lease: somewhat less than the cluster allows.
const WINDOW: usize = 200;

/// The number of locks whose local queues are remembered before unused ones are removed.
const IDLE_QUEUES: usize = 64;

/// The lease itself. Dropping the last reference revokes it.
pub(crate) struct HeldLease {
    pub(crate) shared: Arc<ClientShared>,
    pub(crate) id: LeaseId,
    pub(crate) created: Revision,
    pub(crate) handle: Handle,
    state: Mutex<LeaseStatus>,
    standing: watch::Sender<Standing>,
    /// The instant from which the lease counts as lost if nothing newer is acknowledged.
    until: watch::Sender<Moment>,
    /// The subscribers to the loss of each grant.
    signals: Mutex<BTreeMap<Token, Arc<Signal>>>,
    /// Signals the loss of the lease itself.
    lost: Arc<Signal>,
    seqs: Mutex<Seqs>,
    room: Semaphore,
    /// The local queue of each lock that this process requests or holds under the lease: a second request waits inside
    /// the process.
    busy: Mutex<BTreeMap<String, Arc<Semaphore>>>,
    revoked: AtomicBool,
}

/// The lease state, and what was last published of it.
struct LeaseStatus {
    state: LeaseState,
    standing: Standing,
    until: Moment,
}

/// Request numbers, and which of them are not finally answered.
#[derive(Default)]
struct Seqs {
    newest: u64,
    /// Sorted, because numbers are assigned in order.
    open: VecDeque<u64>,
}

/// A request's number. The request counts as unanswered until this is dropped.
pub(crate) struct Seq {
    held: Arc<HeldLease>,
    number: u64,
}

impl HeldLease {
    /// Creates the lease from the cluster's answer and the lease state that began with the request.
    pub(crate) fn new(
        shared: Arc<ClientShared>,
        granted: &v1::Lease,
        state: LeaseState,
    ) -> Option<Arc<Self>> {
        let held = Arc::new(Self {
            shared: shared.clone(),
            id: convert::lease_from(granted.lease)?,
            created: convert::revision_from(granted.created)?,
            handle: convert::handle_from(granted.lease_slot, granted.lease_generation)?,
            standing: watch::Sender::new(Standing::Valid),
            until: watch::Sender::new(state.lost_at()),
            state: Mutex::new(LeaseStatus {
                standing: Standing::Valid,
                until: state.lost_at(),
                state,
            }),
            signals: Mutex::default(),
            lost: Arc::default(),
            seqs: Mutex::default(),
            room: Semaphore::new(WINDOW),
            busy: Mutex::default(),
            revoked: AtomicBool::new(false),
        });
        shared.register(&held);
        Some(held)
    }

    /// Requests a lease from the cluster.
    pub(crate) async fn grant(
        shared: &Arc<ClientShared>,
        timing: LeaseTiming,
    ) -> Result<Arc<Self>, Error> {
        let mut asking = PendingGrant::new(timing);
        let new = new_lease(shared, &timing);
        let id = new.lease;
        // Granting by id is harmless to repeat; the lease time counts from the first send.
        asking.sent(clock::read());
        let within = shared.settings.timeout.min(timing.window());
        let command = Command::GrantLease(new);
        let answer = shared.call_within(command, RequestIdentity::Harmless, within).await;
        let granted = match answer {
            Ok((Answer::LeaseGranted(granted), _)) => granted,
            Ok(_) => return Err(strange()),
            Err(error) => {
                if matches!(error, Error::Unknown { .. }) {
                    give_back(shared, id);
                }
                return Err(error);
            }
        };
        match asking.granted(clock::read()) {
            Ok(state) => Self::new(shared.clone(), &granted, state).ok_or_else(strange),
            Err(late) => {
                give_back(shared, id);
                Err(Error::Lost(Cause::Unreachable { silent: late.after }.into()))
            }
        }
    }

    /// Returns every name of the lease: id, creation revision and handle.
    pub(crate) fn name(&self) -> v1::LeaseName {
        v1::LeaseName {
            lease: convert::lease(self.id),
            created: convert::revision(self.created),
            lease_slot: self.handle.slot,
            lease_generation: self.handle.generation,
        }
    }

    /// Changes the lease state, and notifies everything that relies on what the change loses.
    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut LeaseState) -> T) -> T {
        self.with_at(clock::read(), act)
    }

    /// Does the same for a caller that has just read the clock.
    pub(crate) fn with_at<T>(
        &self,
        now: ClockReading,
        act: impl FnOnce(&mut LeaseState) -> T,
    ) -> T {
        let (changed, done, losses, lease_lost);
        {
            let mut lived = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            done = act(&mut lived.state);
            let (standing, until) = (lived.state.standing(now), lived.state.lost_at());
            let news = (standing, until) != (lived.standing, lived.until);
            (lived.standing, lived.until) = (standing, until);
            changed = (news && self.publish(standing, until)).then_some(standing);
            losses = lived.state.losses().collect::<Vec<_>>();
            lease_lost = lived.state.loss().filter(|_| changed.is_some()).cloned();
        }
        // Signals call functions of the caller, so none fires under the lock.
        if let Some(lost) = lease_lost {
            self.lost.fire(lost);
        }
        if let Some(standing) = changed {
            tracing::debug!(lease = %self.id, ?standing, "the standing of a lease changed");
        }
        for loss in losses {
            self.report(loss);
        }
        self.shared.cleanups.report();
        done
    }

    /// Reads the lease state, and reports nothing.
    pub(crate) fn with_quietly<T>(&self, read: impl FnOnce(&LeaseState) -> T) -> T {
        read(&self.state.lock().unwrap_or_else(PoisonError::into_inner).state)
    }

    /// Revokes the lease in the background, if no work runs under it.
    pub(crate) fn revoke_in_background(&self) {
        let may_end =
            !self.revoked.load(Ordering::Acquire) && self.with_quietly(LeaseState::is_idle);
        // The lease ends here before the cluster hears of it: an acquire that is under way may be granted and taken
        // back by the revocation, so its answer must not become a guard.
        if may_end && self.with(LeaseState::end_if_idle) {
            self.send_revoke();
        }
    }

    fn send_revoke(&self) {
        if !self.revoked.swap(true, Ordering::AcqRel) {
            let (shared, id, handle) = (self.shared.clone(), convert::lease(self.id), self.handle);
            self.shared.clean_up(vec![revoke_request(id, handle)], async move {
                // If the revoke fails, the lease expires.
                let _ = revoke(&shared, id, handle).await;
            });
        }
    }

    /// Notifies everything that relies on a lost grant.
    fn report(&self, loss: GrantLoss) {
        let signal = {
            let signals = self.signals.lock().unwrap_or_else(PoisonError::into_inner);
            signals.get(&loss.token).cloned()
        };
        // After the work has stopped, the loss has no effect.
        if signal.is_some_and(|signal| signal.fire(loss.lost.clone())) && !loss.stopped {
            let (lock, token, cause) = (&loss.lock, loss.token, loss.lost.word());
            let lease = self.id;
            tracing::warn!(lock, %token, %lease, cause, "lost lock `{lock}`: {}", loss.lost);
        }
    }

    /// Publishes the standing and the deadline, and returns whether the standing is new. The caller holds the lock of
    /// the lease state, so that subscribers see changes in order.
    fn publish(&self, standing: Standing, until: Moment) -> bool {
        self.until.send_if_modified(|known| {
            let later = until > *known;
            *known = until.max(*known);
            later
        });
        let changed = publish(&self.standing, standing);
        if changed {
            let signals = self.signals.lock().unwrap_or_else(PoisonError::into_inner);
            signals.values().for_each(|signal| signal.stands(standing));
        }
        changed
    }

    /// Subscribes to the standing of a guard.
    pub(crate) fn guard_standings(
        &self,
        signal: &Signal,
        locks: &[Lock],
    ) -> watch::Receiver<Standing> {
        let now = clock::read();
        // The lock of the state keeps the standing from changing between the reading and the subscription.
        let mut lived = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let lost = locks.iter().find_map(|it| lived.state.check_grant(it.token, now).err());
        let standing = match lost {
            Some(lost) => Standing::Lost(lost.cause()),
            None => lived.state.standing(now),
        };
        signal.standings(standing)
    }

    /// Returns the signal that fires when the lease is lost.
    pub(crate) fn lost(&self) -> &Arc<Signal> {
        &self.lost
    }

    pub(crate) fn standing(&self) -> watch::Receiver<Standing> {
        self.standing.subscribe()
    }

    #[cfg(feature = "internals")]
    pub(crate) fn until(&self) -> watch::Receiver<Moment> {
        self.until.subscribe()
    }

    /// Subscribes to the loss of a grant that is not yet recorded in the lease state.
    pub(crate) fn listen(&self, token: Token, signal: Arc<Signal>) {
        self.signals.lock().unwrap_or_else(PoisonError::into_inner).insert(token, signal);
    }

    /// Moves a held lock to another token, together with the subscription to its loss.
    pub(crate) fn regranted(&self, old: Token, new: Token, at: Revision) {
        {
            let mut signals = self.signals.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(signal) = signals.remove(&old) {
                signals.insert(new, signal);
            }
        }
        self.with(|state| state.regranted(old, new, at));
    }

    /// Ends the subscriptions to a grant that was released.
    pub(crate) fn unlisten(&self, token: Token) {
        let mut signals = self.signals.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(signal) = signals.remove(&token) {
            signal.close();
        }
    }

    /// Returns the commands that end these grants, whose work has stopped, and the lease if it exists for them alone.
    /// All of them are harmless to repeat.
    pub(crate) fn end_commands(&self, tokens: &[Token], own: bool) -> Vec<Command> {
        let ends = self.with(|state| {
            tokens.iter().filter_map(|it| Some((*it, state.ending(*it)?))).collect::<Vec<_>>()
        });
        let mut commands = Vec::with_capacity(1);
        for (token, (lock, end)) in ends {
            match end {
                EndMessage::Confirm => commands.push(self.confirm_request(lock, token)),
                EndMessage::Release if own => {}
                EndMessage::Release => commands.push(self.release_request(lock, token)),
            }
        }
        if own {
            commands.push(revoke_request(convert::lease(self.id), self.handle));
        }
        commands
    }

    /// Returns the semaphore for the local queue of a lock: one permit, held until the lock is released.
    pub(crate) fn local_queue(&self, lock: &str) -> Arc<Semaphore> {
        let mut busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(queue) = busy.get(lock) {
            return queue.clone();
        }
        // A task that holds or awaits the permit has a reference of its own. Programs use the same locks again and
        // again, so unused entries are only removed once there are many.
        if busy.len() >= IDLE_QUEUES {
            busy.retain(|_, queue| Arc::strong_count(queue) > 1);
        }
        busy.entry(lock.to_owned()).or_insert_with(|| Arc::new(Semaphore::new(1))).clone()
    }

    /// Returns the next request number, once the window has room.
    pub(crate) async fn seq(self: &Arc<Self>) -> Seq {
        self.room.acquire().await.expect("the semaphore is never closed").forget();
        self.next_seq()
    }

    /// Returns the next request number, if the window has room now.
    pub(crate) fn seq_now(self: &Arc<Self>) -> Option<Seq> {
        self.room.try_acquire().ok()?.forget();
        Some(self.next_seq())
    }

    /// Assigns the next number. The caller has acquired a place in the window; dropping the number returns it.
    fn next_seq(self: &Arc<Self>) -> Seq {
        let mut seqs = self.seqs.lock().unwrap_or_else(PoisonError::into_inner);
        seqs.newest += 1;
        let number = seqs.newest;
        seqs.open.push_back(number);
        drop(seqs);
        Seq { held: self.clone(), number }
    }

    /// Tells the cluster what it may know about grants whose work has stopped.
    pub(crate) async fn farewell(self: &Arc<Self>, tokens: &[Token]) -> Result<(), Error> {
        let now = clock::read();
        let (lost, farewells) = self.with_at(now, |state| {
            let lost = state.check(now);
            tokens.iter().for_each(|token| state.stopped(*token));
            (lost, state.farewells())
        });
        let mut outcome = Ok(());
        for (token, lock, farewell) in farewells {
            // A lost lease is revoked as a whole.
            if lost.is_err() && farewell == EndMessage::Release {
                continue;
            }
            let said = match farewell {
                EndMessage::Release => self.release(lock, token).await,
                EndMessage::Confirm => Box::pin(self.confirm(lock, token)).await,
            };
            outcome = outcome.and(said);
        }
        tokens.iter().for_each(|token| self.unlisten(*token));
        // The last work under the lost lease has stopped: revoke it, so that other clients do not wait until it runs
        // out.
        if lost.is_err() {
            outcome = outcome.and(Box::pin(self.revoke()).await);
        }
        outcome
    }

    /// Builds a release. The token identifies the grant, so the request needs no number: doing it twice is doing it
    /// once.
    pub(crate) fn release_request(&self, lock: String, token: Token) -> Command {
        Command::Release(v1::ReleaseRequest {
            lock,
            lease_slot: self.handle.slot,
            lease_generation: self.handle.generation,
            token: token.get(),
            ..Default::default()
        })
    }

    pub(crate) async fn release(self: &Arc<Self>, lock: String, token: Token) -> Result<(), Error> {
        self.release_asked(lock, token, None).await
    }

    /// Releases a lock whose release may have been sent already.
    pub(crate) async fn release_asked(
        &self,
        lock: String,
        token: Token,
        asked: Option<SentRequest>,
    ) -> Result<(), Error> {
        match self.shared.call_twice(self.release_request(lock, token), asked).await {
            (Ok(Answer::Released(_)), _) => Ok(()),
            (Ok(_), _) => Err(strange()),
            // An earlier, unanswered attempt may have released the lock.
            (Err(Error::Refused(Refusal::NotHolder { .. })), Doubt::Yes) => Ok(()),
            // The lock was lost, and the notice of that has not arrived.
            (
                Err(Error::Refused(Refusal::NotHolder { .. } | Refusal::LeaseNotFound)),
                Doubt::No,
            ) => Err(Error::Lost(Cause::Gone.into())),
            (Err(error), _) => Err(error),
        }
    }

    fn confirm_request(&self, lock: String, token: Token) -> Command {
        Command::Stopped(v1::StoppedRequest {
            lock,
            lease: convert::lease(self.id),
            lease_created: convert::revision(self.created),
            token: token.get(),
        })
    }

    async fn confirm(&self, lock: String, token: Token) -> Result<(), Error> {
        let command = self.confirm_request(lock, token);
        match self.shared.call(command, RequestIdentity::Harmless).await {
            // Not cooling: the lock has already gone to the next holder, so there is nothing to confirm.
            Ok(_) | Err(Error::Refused(Refusal::NotCooling { .. })) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Sends a command under the lease, exactly once.
    pub(crate) async fn numbered(self: &Arc<Self>, command: Command) -> Result<Answer, Error> {
        let seq = self.seq().await;
        let (answer, _) = self.shared.call(command, seq.identity()).await?;
        Ok(answer)
    }

    /// Revokes the lease, if no work runs under it.
    pub(crate) async fn revoke(&self) -> Result<(), Error> {
        if !self.with(LeaseState::end_if_idle) || self.revoked.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        revoke(&self.shared, convert::lease(self.id), self.handle).await
    }
}

impl Drop for HeldLease {
    fn drop(&mut self) {
        self.shared.forget(self.handle);
        // No reference is left, so no acquire is under way.
        if self.with_quietly(LeaseState::is_idle) {
            self.send_revoke();
        }
        self.shared.cleanups.report();
    }
}

impl Seq {
    pub(crate) fn identity(&self) -> RequestIdentity {
        let seqs = self.held.seqs.lock().unwrap_or_else(PoisonError::into_inner);
        let done = seqs.open.front().map_or(seqs.newest, |oldest| oldest - 1);
        RequestIdentity::Seq { seq: self.number, done }
    }
}

impl Drop for Seq {
    fn drop(&mut self) {
        // The request is answered or abandoned; every later request reports this to the cluster.
        let mut seqs = self.held.seqs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Ok(at) = seqs.open.binary_search(&self.number) {
            seqs.open.remove(at);
        }
        drop(seqs);
        self.held.room.add_permits(1);
    }
}

/// Builds a request for a new lease, under an id chosen here so that the request can be repeated.
pub(crate) fn new_lease(shared: &ClientShared, timing: &LeaseTiming) -> v1::NewLease {
    let id = i64::try_from(clock::random() >> 1).unwrap_or(1).max(1);
    v1::NewLease {
        ttl_ms: u64::try_from(timing.ttl().as_millis()).unwrap_or(u64::MAX),
        lease: id,
        client: shared.settings.name.clone(),
        metadata: Default::default(),
    }
}

/// Revokes a lease in the background that may have been granted and that no caller uses.
pub(crate) fn give_back(shared: &Arc<ClientShared>, id: i64) {
    let task = shared.clone();
    let command = Command::Revoke(v1::RevokeRequest { lease: id, ..Default::default() });
    shared.clean_up(vec![command.clone()], async move {
        // If the revoke fails, the lease expires.
        let _ = task.call(command, RequestIdentity::Harmless).await;
    });
}

fn revoke_request(id: i64, handle: Handle) -> Command {
    Command::Revoke(v1::RevokeRequest {
        lease_slot: handle.slot,
        lease_generation: handle.generation,
        lease: id,
        ..Default::default()
    })
}

/// Revokes a lease. If it had ended before, which the client was not told, returns the loss.
async fn revoke(shared: &Arc<ClientShared>, id: i64, handle: Handle) -> Result<(), Error> {
    match shared.call_twice(revoke_request(id, handle), None).await {
        (Ok(_), _) | (Err(Error::Refused(Refusal::LeaseNotFound)), Doubt::Yes) => Ok(()),
        (Err(Error::Refused(Refusal::LeaseNotFound)), Doubt::No) => {
            Err(Error::Lost(Cause::Gone.into()))
        }
        (Err(error), _) => Err(error),
    }
}

/// Computes the timing of a new lease from the client's settings and the request's options.
pub(crate) fn timing_of(shared: &ClientShared, ask: &AcquireOptions) -> Result<LeaseTiming, Error> {
    let timing = LeaseTiming::new(ask.ttl.unwrap_or(shared.settings.ttl))?;
    let timing = match ask.window.or(shared.settings.window) {
        Some(window) => timing.with_window(window)?,
        None => timing,
    };
    Ok(timing.stop_within(ask.grace.unwrap_or(shared.settings.grace))?)
}
