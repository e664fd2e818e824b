//! Holds what a client, its leases and its tasks share, and sends requests until they are answered.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tenure_types::{Handle, RENEW_MAX, Token};
use tenure_wire::{convert, v1};
use tokio::runtime;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use v1::answer::Result as Answer;
use v1::request::Command;

use crate::cleanup::Cleanups;
use crate::clock;
use crate::connection_manager::{ConnectionManager, CurrentSessions};
use crate::credentials::Credentials;
use crate::error::{Error, Meaning, RequestId};
use crate::held_lease::HeldLease;
use crate::lease_state::{Cause, Lost, Moment};
use crate::pending::RequestHandle;
use crate::renew;
use crate::response_slot::Response;
use crate::session::{Session, UNTIMED_MIN};
use crate::surroundings;
use crate::tls::{TlsFiles, TlsTrust};
use crate::watchdog::WatchdogTimer;

/// How long a member may look for a leader before it reports that it knows none.
const MEMBER: Duration = Duration::from_secs(9);
/// The pause between attempts grows from the first value to the second.
const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_millis(500);
/// The retry budget, in tenths of a retry. Each answer earns one tenth back, so that retries add at most a tenth to the
/// load of a cluster in trouble.
const BUDGET: i64 = 1_000;
const RETRY_COST: i64 = 10;

/// The settings of a client.
#[derive(Clone, Debug)]
pub(crate) struct ClientSettings {
    pub(crate) addresses: Vec<String>,
    pub(crate) name: String,
    /// How long to keep trying to reach a member, and how long a request may take.
    pub(crate) timeout: Duration,
    /// How long to keep trying while every address refuses; `None` for as long as `timeout`.
    pub(crate) retry_refused: Option<Duration>,
    pub(crate) ttl: Duration,
    pub(crate) window: Option<Duration>,
    pub(crate) grace: Duration,
    pub(crate) tls: TlsFiles,
    /// Names the caller's span for each request.
    pub(crate) trace: Option<TraceHook>,
    pub(crate) credentials: Credentials,
}

/// Returns the W3C `traceparent` of the caller, if it is in a trace.
#[derive(Clone)]
pub(crate) struct TraceHook(pub(crate) Arc<dyn Fn() -> Option<String> + Send + Sync>);

impl std::fmt::Debug for TraceHook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TraceHook")
    }
}

/// Identifies one history of one cluster. Another one knows nothing of our leases, even if its numbers look the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ClusterIncarnation {
    pub(crate) cluster: u64,
    pub(crate) epoch: u32,
    pub(crate) incarnation: u64,
}

pub(crate) struct ClientShared {
    pub(crate) settings: ClientSettings,
    pub(crate) runtime: runtime::Handle,
    pub(crate) trust: Option<TlsTrust>,
    pub(crate) sessions: watch::Receiver<CurrentSessions>,
    leases: Mutex<BTreeMap<Handle, Weak<HeldLease>>>,
    pub(crate) renew: Notify,
    /// When leases are checked for renewal next, in microseconds of our clock; `u64::MAX` while that is not known.
    pub(crate) next_beat_us: AtomicU64,
    pub(crate) watchdog: WatchdogTimer,
    budget: AtomicI64,
    pub(crate) cleanups: Cleanups,
    /// Whether the client is on the machine's clock and sockets, and not on those of a test.
    pub(crate) on_machine: bool,
    /// The cluster that the client belongs to, from the first welcome on.
    state: Mutex<Option<ClusterIncarnation>>,
    /// For tests: renewals are not sent.
    pub(crate) mute: AtomicBool,
    /// Pauses the whole client, for tests.
    pub(crate) pause: surroundings::Pause,
}

/// How the cluster recognises a request that is sent again.
#[derive(Clone, Debug)]
pub(crate) enum RequestIdentity {
    /// Not recognised: applying it twice has the effect of applying it once.
    Harmless,
    /// Recognised by a key that the cluster remembers.
    Key(String),
    /// Recognised by its number under its lease.
    Seq { seq: u64, done: u64 },
}

/// A request that was sent, with a reference to its session: a session without references is closed.
pub(crate) type SentRequest = (Arc<Session>, RequestHandle);

/// Whether an unanswered request may have taken effect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Doubt {
    No,
    Yes,
}

impl RequestIdentity {
    /// Creates a new random key.
    pub(crate) fn key() -> Self {
        Self::Key(format!("{:016x}{:016x}", clock::random(), clock::random()))
    }

    pub(crate) fn request(&self, command: Command) -> v1::Request {
        let mut request = v1::Request { command: Some(command), ..Default::default() };
        match self {
            Self::Harmless => {}
            Self::Key(key) => request.idempotency_key.clone_from(key),
            Self::Seq { seq, done } => (request.seq, request.done) = (*seq, *done),
        }
        request
    }

    /// The id under which the caller can repeat the request.
    pub(crate) fn id(&self) -> Option<RequestId> {
        match self {
            Self::Harmless | Self::Seq { .. } => None,
            Self::Key(key) => Some(RequestId::from(key.clone())),
        }
    }
}

impl ClientShared {
    pub(crate) fn start(
        settings: ClientSettings,
        runtime: runtime::Handle,
    ) -> Result<Arc<Self>, Error> {
        let setup = |error: std::io::Error| Error::Setup(error.to_string());
        let watchdog = WatchdogTimer::new().map_err(setup)?;
        let trust = TlsTrust::load(&settings.tls).map_err(Error::Setup)?;
        let publish = watch::Sender::new(CurrentSessions::default());
        let shared = Arc::new(Self {
            settings,
            runtime,
            trust,
            sessions: publish.subscribe(),
            leases: Mutex::default(),
            renew: Notify::new(),
            next_beat_us: AtomicU64::new(u64::MAX),
            watchdog,
            budget: AtomicI64::new(BUDGET),
            cleanups: Cleanups::default(),
            on_machine: surroundings::read().is_none(),
            state: Mutex::default(),
            mute: AtomicBool::new(false),
            pause: Default::default(),
        });
        let weak = Arc::downgrade(&shared);
        let checked = weak.clone();
        let check = move || Some(checked.upgrade()?.check_leases());
        shared.watchdog.start(check).map_err(setup)?;
        let known = shared.settings.addresses.clone();
        shared.runtime.spawn(ConnectionManager::new(weak.clone(), known, publish).run());
        shared.runtime.spawn(renew::run(weak));
        Ok(shared)
    }

    /// Builds the hello: the client's identity, and the leases that it wants notifications about.
    pub(crate) fn hello(&self) -> v1::Hello {
        let leases = self.held();
        let state = *self.state.lock().unwrap_or_else(PoisonError::into_inner);
        v1::Hello {
            cluster_id: state.map_or(0, |state| state.cluster),
            epoch: state.map_or(0, |state| state.epoch),
            incarnation: state.map_or(0, |state| state.incarnation),
            client: self.settings.name.clone(),
            leases: leases.iter().take(RENEW_MAX).map(|lease| lease.name()).collect(),
            software: concat!("tenure-rust ", env!("CARGO_PKG_VERSION")).to_owned(),
        }
    }

    /// Checks that a member belongs to our cluster. A cluster that was restored since has ended all of our leases.
    pub(crate) fn recognise(&self, met: ClusterIncarnation) -> Result<(), String> {
        let known = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            match *state {
                Some(known) if known.cluster != met.cluster => {
                    return Err("belongs to another cluster".to_owned());
                }
                Some(known) if known.epoch > met.epoch => {
                    return Err(
                        "belongs to the cluster as it was before it was restored".to_owned()
                    );
                }
                known => {
                    *state = Some(met);
                    known
                }
            }
        };
        if known.is_some_and(|known| known != met) {
            for lease in self.held() {
                let now = clock::read();
                lease.with(|state| state.ended(Cause::Gone, now));
            }
        }
        Ok(())
    }

    /// Returns the current session, if there is one.
    pub(crate) fn session_now(&self) -> Option<Arc<Session>> {
        self.sessions.borrow().first.clone().filter(|session| !session.is_over())
    }

    /// Returns a session, as soon as there is one. Returns `None` at the deadline, or when members refuse the
    /// credentials.
    pub(crate) async fn session(&self, until: Instant) -> Option<Arc<Session>> {
        // A member that refuses the credentials will refuse them again, so nothing is gained by waiting.
        let there = |sessions: &CurrentSessions| {
            sessions.denied.is_some()
                || sessions.first.as_ref().is_some_and(|session| !session.is_over())
        };
        if let Some(session) = self.session_now() {
            return Some(session);
        }
        let mut sessions = self.sessions.clone();
        let waited = tokio::time::timeout_at(until, sessions.wait_for(there)).await;
        waited.ok()?.ok()?.first.clone()
    }

    /// Waits until every address refuses a session, but at least until `from`.
    pub(crate) async fn refused(&self, from: Instant) {
        let mut sessions = self.sessions.clone();
        tokio::time::sleep_until(from).await;
        if sessions.wait_for(|sessions| sessions.refused).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Waits until the member of the first session knows a leader.
    pub(crate) async fn led(&self) {
        while self.session_now().is_none_or(|session| session.leader().borrow().member == 0) {
            tokio::time::sleep(PAUSE_MIN).await;
        }
    }

    /// Does the same for a caller that does not want to wait: also returns `None` once no member could be connected to
    /// in a whole round of attempts.
    pub(crate) async fn session_at_once(&self, until: Instant) -> Option<Arc<Session>> {
        if let Some(session) = self.session_now() {
            return Some(session);
        }
        let mut sessions = self.sessions.clone();
        let before = sessions.borrow().failed_rounds;
        let decided = |sessions: &CurrentSessions| {
            sessions.denied.is_some()
                || sessions.failed_rounds != before
                || sessions.first.as_ref().is_some_and(|session| !session.is_over())
        };
        let waited = tokio::time::timeout_at(until, sessions.wait_for(decided)).await;
        waited.ok()?.ok()?.first.clone().filter(|session| !session.is_over())
    }

    /// The error of a request for which there is no session.
    pub(crate) fn no_session(&self) -> Error {
        match self.sessions.borrow().denied.as_ref() {
            Some(denied) => {
                Error::Failed { reason: denied.reason.clone(), message: denied.message.clone() }
            }
            None => Error::Unavailable,
        }
    }

    /// Sends a request until it is answered, or until it is known that no answer will come.
    pub(crate) async fn call(
        &self,
        command: Command,
        identity: RequestIdentity,
    ) -> Result<(Answer, i64), Error> {
        self.call_within(command, identity, self.settings.timeout).await
    }

    pub(crate) async fn call_within(
        &self,
        command: Command,
        identity: RequestIdentity,
        within: Duration,
    ) -> Result<(Answer, i64), Error> {
        self.call_doubting(command, identity, within, None, &mut Doubt::No).await
    }

    /// Does the same for a request that is harmless to repeat and may have been sent already. Also returns whether it
    /// may have taken effect more than once.
    pub(crate) async fn call_twice(
        &self,
        command: Command,
        asked: Option<SentRequest>,
    ) -> (Result<Answer, Error>, Doubt) {
        let (mut doubt, within) = (Doubt::No, self.settings.timeout);
        let answer =
            self.call_doubting(command, RequestIdentity::Harmless, within, asked, &mut doubt).await;
        (answer.map(|(answer, _)| answer), doubt)
    }

    /// Sends a harmless request on the current session, if there is enough time to wait for the answer without a timer.
    /// If it is not answered, [`call_twice`](Self::call_twice) continues with it.
    pub(crate) fn ask_now(&self, command: Command) -> Option<SentRequest> {
        let within = self.settings.timeout;
        if within < UNTIMED_MIN {
            return None;
        }
        let mut request = RequestIdentity::Harmless.request(command);
        request.deadline_ms = ms(within.min(MEMBER));
        let session = self.session_now()?;
        let asked = session.ask(request)?;
        Some((session, asked))
    }

    async fn call_doubting(
        &self,
        command: Command,
        identity: RequestIdentity,
        within: Duration,
        mut asked: Option<SentRequest>,
        doubt: &mut Doubt,
    ) -> Result<(Answer, i64), Error> {
        let began = Instant::now();
        // Time that was already waited counts.
        let ago = asked.as_ref().map_or(Duration::ZERO, |(_, on)| on.ago());
        let until = began + within.saturating_sub(ago);
        let unknown = || Error::Unknown { request: identity.id(), waited: ago + began.elapsed() };
        // An unanswered query changed nothing, however often it was sent.
        let question = matches!(
            command,
            Command::GetLease(_) | Command::GetLock(_) | Command::GetKey(_) | Command::Explain(_)
        );
        let request = identity.request(command);
        let (mut pause, mut tries) = (PAUSE_MIN, 0_u32);
        let mut newest = None;
        loop {
            tries += 1;
            let given_up = |doubt, newest: Option<Error>| match doubt {
                Doubt::Yes if !question => unknown(),
                Doubt::Yes | Doubt::No => newest.unwrap_or_else(|| self.no_session()),
            };
            let on = match asked.take() {
                Some(asked) => Some(asked),
                None => {
                    let session = self.session(until).await;
                    let Some(session) = session else { return Err(given_up(*doubt, newest)) };
                    let mut request = request.clone();
                    let left = until.saturating_duration_since(Instant::now());
                    request.deadline_ms = ms(left.min(MEMBER));
                    session.ask(request).map(|on| (session, on))
                }
            };
            let Some((_line, mut on)) = on else {
                if Instant::now() >= until {
                    return Err(given_up(*doubt, newest));
                }
                tokio::time::sleep(PAUSE_MIN).await;
                continue;
            };
            let mut after = Duration::ZERO;
            match tokio::time::timeout_at(until, on.next()).await {
                Ok(Response::Answer(answer)) => match answer.result {
                    Some(Answer::Error(error)) => match Meaning::of(*error) {
                        Meaning::No(error) => {
                            self.earn();
                            return Err(error);
                        }
                        Meaning::Again { after: at_least, error } => {
                            after = at_least;
                            newest = error;
                        }
                        Meaning::Doubt => *doubt = Doubt::Yes,
                    },
                    Some(result) => {
                        self.earn();
                        return Ok((result, answer.revision));
                    }
                    None => return Err(crate::error::strange()),
                },
                Ok(Response::Gone) => *doubt = Doubt::Yes,
                Ok(_) => return Err(crate::error::strange()),
                Err(_) => *doubt = Doubt::Yes,
            }
            // Every request here may be sent again: the cluster recognises it, or it is harmless to repeat. The first
            // retry is free, because a change of leader needs it. Further ones draw on the budget.
            let wait = clock::jittered(pause).max(after);
            if Instant::now() + wait >= until || tries > 1 && !self.spend() {
                return Err(given_up(*doubt, newest));
            }
            tokio::time::sleep(wait).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    pub(crate) fn earn(&self) {
        if self.budget.load(Ordering::Relaxed) < BUDGET {
            self.budget.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Takes one retry from the budget, if any is left.
    pub(crate) fn spend(&self) -> bool {
        let left = self.budget.fetch_sub(RETRY_COST, Ordering::Relaxed);
        if left < RETRY_COST {
            self.budget.fetch_add(RETRY_COST, Ordering::Relaxed);
        }
        left >= RETRY_COST
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Handle, Weak<HeldLease>>> {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the leases that are held.
    pub(crate) fn held(&self) -> Vec<Arc<HeldLease>> {
        // Upgrade outside of the lock: dropping the last reference takes the lock to remove the entry.
        let leases: Vec<Weak<HeldLease>> = self.lock().values().cloned().collect();
        leases.iter().filter_map(Weak::upgrade).collect()
    }

    pub(crate) fn register(&self, lease: &Arc<HeldLease>) {
        self.lock().insert(lease.handle, Arc::downgrade(lease));
        let (due, lost_at) = lease.with(|state| (state.due(), state.lost_at()));
        // Wake the watchdog and the renewal task only if they would check too late; with thousands of leases that is
        // rare.
        self.watchdog.wake_before(lost_at);
        if due.micros() < self.next_beat_us.load(Ordering::SeqCst) {
            self.renew.notify_one();
        }
    }

    pub(crate) fn forget(&self, handle: Handle) {
        self.lock().remove(&handle);
    }

    fn find(&self, slot: u32, generation: u64) -> Option<Arc<HeldLease>> {
        let handle = convert::handle_from(slot, generation)?;
        let found = self.lock().get(&handle).cloned();
        found?.upgrade()
    }

    /// Records the loss of a lock that the client did not release. `with` are the leases that ended at the same time.
    pub(crate) fn lock_lost(&self, lost: &v1::Lost, with: &[v1::LeaseEnded]) {
        let found = self.find(lost.lease_slot, lost.lease_generation);
        let (Some(lease), Some(token)) = (found, Token::from_u64(lost.token)) else { return };
        // The cluster sends the reason of a revoke once, with the lease, and not with each of its locks.
        let of = |it: &&v1::LeaseEnded| {
            (it.lease_slot, it.lease_generation) == (lost.lease_slot, lost.lease_generation)
        };
        let whole = with.iter().find(of).filter(|_| lost.reason.is_empty());
        let reason = whole.map_or(&lost.reason, |it| &it.reason);
        let loss = Lost::on_word(cause(lost.cause()), &lost.by, reason);
        lease.with(|state| state.taken(token, loss));
    }

    /// Records the end of a lease.
    pub(crate) fn lease_ended(&self, ended: &v1::LeaseEnded) {
        if let Some(lease) = self.find(ended.lease_slot, ended.lease_generation) {
            let now = clock::read();
            let loss = Lost::on_word(cause(ended.cause()), &ended.by, &ended.reason);
            lease.with(|state| state.ended(loss, now));
        }
    }

    /// Checks whether any lease is over, and returns when to check again.
    pub(crate) fn check_leases(&self) -> Option<Moment> {
        if self.pause.is_on() {
            return None;
        }
        let mut next = None;
        for lease in self.held() {
            let now = clock::read();
            let alive = lease.with(|state| state.check(now).is_ok().then(|| state.lost_at()));
            next = next.into_iter().chain(alive).min();
        }
        next
    }
}

/// Converts the cause of a loss from the wire. Every cause is listed, so that the author of a new one has to decide.
pub(crate) fn cause(cause: v1::Cause) -> Cause {
    use v1::Cause as Wire;
    match cause {
        Wire::Expired => Cause::Expired,
        Wire::Revoked => Cause::Revoked,
        Wire::Forced => Cause::Forced,
        Wire::MaxHold => Cause::MaxHold,
        Wire::NoProgress => Cause::NoProgress,
        // The cluster does not know the cause, or is newer than this client.
        Wire::Unspecified
        // The client itself gave the lock back, in another process or task.
        | Wire::Released
        | Wire::HandedOn
        // These end no hold.
        | Wire::Granted
        | Wire::Upgraded
        | Wire::Downgraded
        | Wire::Updated
        | Wire::Cooled
        | Wire::DelayOver
        | Wire::MinHoldOver
        | Wire::Vacant
        | Wire::Queued
        | Wire::Left
        | Wire::WaitTimeout
        | Wire::Superseded
        | Wire::TooManySlots
        | Wire::GrantedElsewhere
        | Wire::Deadlock
        | Wire::LeaseGranted
        | Wire::KeyPut
        | Wire::KeyDeleted
        | Wire::LimitsSet
        | Wire::LevelRaised
        | Wire::HistoryCompacted
        | Wire::AccessChanged
        | Wire::Drained
        | Wire::Undrained
        | Wire::Resized => Cause::Gone,
    }
}

pub(crate) fn ms(time: Duration) -> u32 {
    u32::try_from(time.as_millis()).unwrap_or(u32::MAX).max(1)
}
