//! What is a held lease, and how does everyone who relies on it learn of its loss?

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tenure_types::{Handle, LeaseId, Refusal, Revision, Token};
use tenure_wire::{convert, v1};
use tokio::sync::{Semaphore, watch};
use v1::answer::Result as Answer;
use v1::request::Command;

use crate::ask::{Ask, LockAsk};
use crate::clock;
use crate::error::{Error, strange};
use crate::life::{Asking, Cause, Farewell, Life, Moment, Pace, Reading, Standing};
use crate::shared::{Doubt, Identity, OnLine, Shared};
use crate::signal::Signal;

/// Requests of one lease that may be unanswered: some less than the cluster allows.
const WINDOW: usize = 200;

/// Locks that are remembered although nobody has or awaits them.
const IDLE_TURNS: usize = 64;

/// A client's standing in the cluster, kept alive until it and all its guards are dropped.
///
/// Several locks can be held under one lease; they are lost together. Cloning it is cheap.
///
/// ```no_run
/// # async fn example(client: tenure::Client) -> Result<(), tenure::Error> {
/// use std::time::Duration;
/// let lease = client.lease(Duration::from_secs(15)).await?;
/// let reader = lease.lock("cache").shared().await?;
/// let permit = lease.lock("workers").slots(8).await?;
/// println!("worker {:?} with token {}", permit.slot(), permit.token());
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Lease {
    pub(crate) held: Arc<Held>,
}

/// The lease itself. The last one to let go of it revokes it.
pub(crate) struct Held {
    pub(crate) shared: Arc<Shared>,
    pub(crate) id: LeaseId,
    pub(crate) created: Revision,
    pub(crate) handle: Handle,
    life: Mutex<Lived>,
    standing: watch::Sender<Standing>,
    /// From when on it counts as lost, if nothing newer is acknowledged.
    until: watch::Sender<Moment>,
    /// Who waits to hear that a grant is lost.
    signals: Mutex<BTreeMap<Token, Arc<Signal>>>,
    seqs: Mutex<Seqs>,
    room: Semaphore,
    /// Locks asked for or held here: a second ask waits inside the process.
    busy: Mutex<BTreeMap<String, Arc<Semaphore>>>,
    revoked: AtomicBool,
}

/// Its life, and what was last told of it.
struct Lived {
    life: Life,
    standing: Standing,
    until: Moment,
}

/// Numbers of requests, and which of them are not answered for good.
#[derive(Default)]
struct Seqs {
    newest: u64,
    /// In order, because they are given in order.
    open: VecDeque<u64>,
}

/// A request's number. It counts as unanswered until this is dropped.
pub(crate) struct Seq {
    held: Arc<Held>,
    number: u64,
}

impl Lease {
    /// Asks for a lock under this lease; awaiting it waits for its turn.
    ///
    /// ```no_run
    /// # async fn example(lease: tenure::Lease) -> Result<(), tenure::Error> {
    /// let guard = lease.lock("deploy").await?;
    /// # guard.release().await }
    /// ```
    pub fn lock(&self, lock: impl Into<String>) -> LockAsk {
        LockAsk::on(self.held.clone(), vec![lock.into()])
    }

    /// Asks for several locks, all or none. The guard stands for all of them.
    ///
    /// ```no_run
    /// # async fn example(lease: tenure::Lease) -> Result<(), tenure::Error> {
    /// let both = lease.lock_all(["accounts/7", "accounts/9"]).await?;
    /// assert_eq!(both.locks().count(), 2);
    /// # both.release().await }
    /// ```
    pub fn lock_all<I>(&self, locks: I) -> LockAsk
    where
        I: IntoIterator,
        I::Item: Into<String>,
    {
        LockAsk::on(self.held.clone(), locks.into_iter().map(Into::into).collect())
    }

    /// The lease's id.
    ///
    /// ```no_run
    /// # fn example(lease: tenure::Lease) { println!("lease {}", lease.id()); }
    /// ```
    pub fn id(&self) -> LeaseId {
        self.held.id
    }

    /// How it stands at this moment.
    ///
    /// ```no_run
    /// # fn example(lease: tenure::Lease) {
    /// if lease.standing() == tenure::Standing::Doubtful { println!("hurry") }
    /// # }
    /// ```
    pub fn standing(&self) -> Standing {
        let now = clock::read();
        self.held.with(|life| life.standing(now))
    }

    /// Whether it can be relied on at this moment.
    ///
    /// ```no_run
    /// # fn example(lease: tenure::Lease) -> Result<(), tenure::Error> {
    /// lease.check()?;
    /// # Ok(()) }
    /// ```
    pub fn check(&self) -> Result<(), Error> {
        let now = clock::read();
        self.held.with(|life| life.check(now)).map_err(Error::Lost)
    }

    /// Waits until it stands otherwise than before; the first call answers at once.
    ///
    /// ```no_run
    /// # async fn example(lease: tenure::Lease) {
    /// let mut standings = lease.standings();
    /// while standings.changed().await.is_ok() {
    ///     println!("{:?}", *standings.borrow_and_update());
    /// }
    /// # }
    /// ```
    pub fn standings(&self) -> watch::Receiver<Standing> {
        self.held.standing.subscribe()
    }

    /// Ends the lease now. Its guards must be gone, because the work under it must have stopped: while there are any
    /// this fails with `LEASE_IN_USE`.
    ///
    /// ```no_run
    /// # async fn example(lease: tenure::Lease) -> Result<(), tenure::Error> {
    /// lease.revoke().await
    /// # }
    /// ```
    pub async fn revoke(self) -> Result<(), Error> {
        if !self.held.with(|life| life.is_idle()) {
            return Err(Error::Failed {
                reason: "LEASE_IN_USE".to_owned(),
                message: "the lease has guards".to_owned(),
            });
        }
        self.held.revoke().await
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease").field("id", &self.held.id).finish_non_exhaustive()
    }
}

impl Held {
    /// A lease that was granted in answer to an ask that was first sent when `asking` says.
    pub(crate) fn new(shared: Arc<Shared>, granted: &v1::Lease, life: Life) -> Option<Arc<Self>> {
        let held = Arc::new(Self {
            shared: shared.clone(),
            id: convert::lease_from(granted.lease)?,
            created: convert::revision_from(granted.created)?,
            handle: convert::handle_from(granted.lease_slot, granted.lease_generation)?,
            standing: watch::Sender::new(Standing::Valid),
            until: watch::Sender::new(life.lost_at()),
            life: Mutex::new(Lived { standing: Standing::Valid, until: life.lost_at(), life }),
            signals: Mutex::default(),
            seqs: Mutex::default(),
            room: Semaphore::new(WINDOW),
            busy: Mutex::default(),
            revoked: AtomicBool::new(false),
        });
        shared.register(&held);
        Some(held)
    }

    /// Grants a lease.
    pub(crate) async fn grant(shared: &Arc<Shared>, pace: Pace) -> Result<Arc<Self>, Error> {
        let mut asking = Asking::new(pace);
        let new = new_lease(shared, &pace);
        let id = new.lease;
        // Granting by id is harmless to repeat: whoever repeats it counts from the first time.
        asking.sent(clock::read());
        let within = shared.settings.timeout.min(pace.window());
        let command = Command::GrantLease(new);
        let answer = shared.call_within(command, Identity::Harmless, within).await;
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
            Ok(life) => Self::new(shared.clone(), &granted, life).ok_or_else(strange),
            Err(late) => {
                give_back(shared, id);
                Err(Error::Lost(Cause::Unreachable { silent: late.after }.into()))
            }
        }
    }

    /// All of its names.
    pub(crate) fn name(&self) -> v1::LeaseName {
        v1::LeaseName {
            lease: convert::lease(self.id),
            created: convert::revision(self.created),
            lease_slot: self.handle.slot,
            lease_generation: self.handle.generation,
        }
    }

    /// Does something with its life; everyone who relies on what is lost by it is told.
    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut Life) -> T) -> T {
        self.with_at(clock::read(), act)
    }

    /// The same for whoever has just read the clock.
    pub(crate) fn with_at<T>(&self, now: Reading, act: impl FnOnce(&mut Life) -> T) -> T {
        let (changed, done, losses);
        {
            let mut lived = self.life.lock().unwrap_or_else(PoisonError::into_inner);
            done = act(&mut lived.life);
            let (standing, until) = (lived.life.standing(now), lived.life.lost_at());
            let news = (standing, until) != (lived.standing, lived.until);
            (lived.standing, lived.until) = (standing, until);
            changed = (news && self.publish(standing, until)).then_some(standing);
            losses = lived.life.losses().collect::<Vec<_>>();
        }
        if let Some(standing) = changed {
            tracing::debug!(lease = %self.id, ?standing, "a lease stands otherwise");
        }
        if !losses.is_empty() {
            let signals = self.signals.lock().unwrap_or_else(PoisonError::into_inner);
            for (token, lost) in losses {
                if let Some(signal) = signals.get(&token) {
                    signal.fire(lost);
                }
            }
        }
        done
    }

    /// Tells whoever follows how it stands, and whether that is new. Its life is locked meanwhile, so that nobody is
    /// told in another order.
    fn publish(&self, standing: Standing, until: Moment) -> bool {
        self.until.send_if_modified(|known| {
            let later = until > *known;
            *known = until.max(*known);
            later
        });
        self.standing.send_if_modified(|known| {
            // Whoever read the clock before the loss was seen must not undo it.
            let changed = *known != standing && !matches!(known, Standing::Lost(_));
            if changed {
                *known = standing;
            }
            changed
        })
    }

    pub(crate) fn standing(&self) -> watch::Receiver<Standing> {
        self.standing.subscribe()
    }

    pub(crate) fn until(&self) -> watch::Receiver<Moment> {
        self.until.subscribe()
    }

    /// Somebody wants to hear of the loss of a grant, which is not known to the lease's life yet.
    pub(crate) fn listen(&self, token: Token, signal: Arc<Signal>) {
        self.signals.lock().unwrap_or_else(PoisonError::into_inner).insert(token, signal);
    }

    /// A held lock goes on under another token; whoever listened to the old one hears of the new one.
    pub(crate) fn regranted(&self, old: Token, new: Token, at: Revision) {
        {
            let mut signals = self.signals.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(signal) = signals.remove(&old) {
                signals.insert(new, signal);
            }
        }
        self.with(|life| life.regranted(old, new, at));
    }

    pub(crate) fn unlisten(&self, token: Token) {
        self.signals.lock().unwrap_or_else(PoisonError::into_inner).remove(&token);
    }

    /// The permit to ask for a lock here; held until the lock is given back.
    pub(crate) fn turn(&self, lock: &str) -> Arc<Semaphore> {
        let mut busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(turn) = busy.get(lock) {
            return turn.clone();
        }
        // Whoever holds or awaits a permit has a reference of its own. The same locks are taken again and again: only
        // many of them are worth a look.
        if busy.len() >= IDLE_TURNS {
            busy.retain(|_, turn| Arc::strong_count(turn) > 1);
        }
        busy.entry(lock.to_owned()).or_insert_with(|| Arc::new(Semaphore::new(1))).clone()
    }

    /// The next number for a request, once there is room for it.
    pub(crate) async fn seq(self: &Arc<Self>) -> Seq {
        self.room.acquire().await.expect("the semaphore is never closed").forget();
        self.next_seq()
    }

    /// The next number for a request, if there is room for it now.
    pub(crate) fn seq_now(self: &Arc<Self>) -> Option<Seq> {
        self.room.try_acquire().ok()?.forget();
        Some(self.next_seq())
    }

    /// Room was made for it; the number gives it back.
    fn next_seq(self: &Arc<Self>) -> Seq {
        let mut seqs = self.seqs.lock().unwrap_or_else(PoisonError::into_inner);
        seqs.newest += 1;
        let number = seqs.newest;
        seqs.open.push_back(number);
        drop(seqs);
        Seq { held: self.clone(), number }
    }

    /// Says what may be said of grants whose work has stopped.
    pub(crate) async fn farewell(self: &Arc<Self>, tokens: &[Token]) -> Result<(), Error> {
        let now = clock::read();
        let (lost, farewells) = self.with_at(now, |life| {
            let lost = life.check(now);
            tokens.iter().for_each(|token| life.stopped(*token));
            (lost, life.farewells())
        });
        let mut outcome = Ok(());
        for (token, lock, farewell) in farewells {
            // A lease that is lost is revoked as a whole.
            if lost.is_err() && farewell == Farewell::Release {
                continue;
            }
            let said = match farewell {
                Farewell::Release => self.release(lock, token).await,
                Farewell::Confirm => Box::pin(self.confirm(lock, token)).await,
            };
            outcome = outcome.and(said);
        }
        tokens.iter().for_each(|token| self.unlisten(*token));
        // With the last of its work stopped, nobody has to wait until a lost lease runs out.
        if lost.is_err() {
            outcome = outcome.and(Box::pin(self.revoke()).await);
        }
        outcome
    }

    /// The token says which grant is meant, so it needs no number: doing it twice is doing it once.
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

    /// The same for what may have been asked already.
    pub(crate) async fn release_asked(
        &self,
        lock: String,
        token: Token,
        asked: Option<OnLine>,
    ) -> Result<(), Error> {
        match self.shared.call_twice(self.release_request(lock, token), asked).await {
            (Ok(Answer::Released(_)), _) => Ok(()),
            (Ok(_), _) => Err(strange()),
            // Perhaps by the one that was not answered.
            (Err(Error::Refused(Refusal::NotHolder { .. })), Doubt::Yes) => Ok(()),
            (Err(error), _) => Err(error),
        }
    }

    async fn confirm(&self, lock: String, token: Token) -> Result<(), Error> {
        let command = Command::Stopped(v1::StoppedRequest {
            lock,
            lease: convert::lease(self.id),
            lease_created: convert::revision(self.created),
            token: token.get(),
        });
        match self.shared.call(command, Identity::Harmless).await {
            // Nothing cools any more: the lock has gone on.
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

    /// Ends the lease, if no work goes on under it.
    pub(crate) async fn revoke(&self) -> Result<(), Error> {
        if !self.with(|life| life.is_idle()) || self.revoked.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        revoke(&self.shared, convert::lease(self.id), self.handle).await
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.shared.forget(self.handle);
        let idle = self.life.get_mut().unwrap_or_else(PoisonError::into_inner).life.is_idle();
        if idle && !*self.revoked.get_mut() {
            let (shared, id, handle) = (self.shared.clone(), convert::lease(self.id), self.handle);
            self.shared.runtime.spawn(async move {
                if let Err(error) = revoke(&shared, id, handle).await {
                    tracing::debug!(lease = id, %error, "a lease was not revoked; it will run out");
                }
            });
        }
    }
}

impl Seq {
    pub(crate) fn identity(&self) -> Identity {
        let seqs = self.held.seqs.lock().unwrap_or_else(PoisonError::into_inner);
        let done = seqs.open.front().map_or(seqs.newest, |oldest| oldest - 1);
        Identity::Seq { seq: self.number, done }
    }
}

impl Drop for Seq {
    fn drop(&mut self) {
        // Answered, or given up for ever: every later request says so.
        let mut seqs = self.held.seqs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Ok(at) = seqs.open.binary_search(&self.number) {
            seqs.open.remove(at);
        }
        drop(seqs);
        self.held.room.add_permits(1);
    }
}

/// A lease to be granted, under an id drawn here so that the request can be repeated.
pub(crate) fn new_lease(shared: &Shared, pace: &Pace) -> v1::NewLease {
    let id = i64::try_from(clock::random() >> 1).unwrap_or(1).max(1);
    v1::NewLease {
        ttl_ms: u64::try_from(pace.ttl().as_millis()).unwrap_or(u64::MAX),
        lease: id,
        client: shared.settings.name.clone(),
        metadata: Default::default(),
    }
}

/// Has a lease revoked in the background that may have been granted and that nobody relies on.
pub(crate) fn give_back(shared: &Arc<Shared>, id: i64) {
    let task = shared.clone();
    shared.runtime.spawn(async move {
        let it = v1::RevokeRequest { lease: id, ..Default::default() };
        // If it cannot be said, the lease runs out by itself.
        let _ = task.call(Command::Revoke(it), Identity::Harmless).await;
    });
}

async fn revoke(shared: &Arc<Shared>, id: i64, handle: Handle) -> Result<(), Error> {
    let it = v1::RevokeRequest {
        lease_slot: handle.slot,
        lease_generation: handle.generation,
        lease: id,
        ..Default::default()
    };
    match shared.call(Command::Revoke(it), Identity::Harmless).await {
        Ok(_) | Err(Error::Refused(Refusal::LeaseNotFound)) => Ok(()),
        Err(error) => Err(error),
    }
}

/// A new lease's times, as a client's settings and an ask say.
pub(crate) fn pace(shared: &Shared, ask: &Ask) -> Result<Pace, Error> {
    let pace = Pace::new(ask.ttl.unwrap_or(shared.settings.ttl))?;
    let pace = match ask.window.or(shared.settings.window) {
        Some(window) => pace.with_window(window)?,
        None => pace,
    };
    Ok(pace.stop_within(ask.grace.unwrap_or(shared.settings.grace))?)
}
