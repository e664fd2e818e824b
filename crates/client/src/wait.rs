//! Turns a lock request into a guard, across as many sessions as it takes.
//!
//! A request queues in the cluster, not on a session. When a session ends, the client repeats the request on the next
//! one, under the same number or the same lease, and the cluster answers with its current state. A notification saves a
//! query; only the answer is authoritative.

mod leave;
mod upgrade;

use std::sync::Arc;
use std::time::Duration;

use tenure_types::Refusal;
use tenure_wire::v1;
use tokio::sync::watch;
use tokio::time::Instant;
use v1::answer::Result as Answer;
use v1::request::Command;

use crate::ask::{AcquireOptions, WaitLimit, millis};
use crate::ask_update::{AcquireUpdate, GrantedAt, at, locks, update_of};
use crate::clock;
use crate::error::{Error, strange};
use crate::guard::Guard;
use crate::held_lease::{HeldLease, Seq, give_back, new_lease, timing_of};
use crate::lease_state::{Cause, PendingGrant, Standing};
use crate::local_queue::{self, LocalPermits};
use crate::response_slot::Response;
use crate::session::UNTIMED_MIN;
use crate::shared::{ClientShared, RequestIdentity, SentRequest};

use leave::leave;
pub(crate) use upgrade::upgrade;

/// The pause after a session ended or a member could not serve.
const PAUSE: Duration = Duration::from_millis(20);
/// How long members must refuse the credentials before a request that waits is given up.
const DENIED: Duration = Duration::from_secs(1);
/// The bound up to which repeated pauses grow.
const PAUSE_MAX: Duration = Duration::from_millis(500);
/// The cluster ends a wait by itself. The client waits this much longer for the cluster's word, and then ends it.
const SLACK: Duration = Duration::from_millis(50);
/// How long a request that does not queue waits for its answer: longer than a change of leader takes.
const AT_ONCE: Duration = Duration::from_secs(3);
/// The substitute for an unlimited wait.
pub(crate) const FAR: Duration = Duration::from_secs(86_400 * 365);

/// Acquires under an existing lease.
pub(crate) async fn under(held: Arc<HeldLease>, ask: Box<AcquireOptions>) -> Result<Guard, Error> {
    if held.shared.cleanups.is_closing() {
        return Err(Error::Closed);
    }
    let until = deadline(&held.shared, &ask);
    let permits = match local_queue::now(&held, &ask.locks) {
        Some(permits) => permits,
        None => Box::pin(local_queue::wait(&held, &ask, until)).await?,
    };
    let mut leaving = PlaceCleanup { held, ask: Some(ask), permits, sent: None };
    // Most requests are answered at once: the fast path needs no timer and no subscription to the lease.
    let mut asked = leaving.ask_now(until);
    if let Some((_, on)) = &mut asked
        && let Some(said) = on.soon().await
    {
        match leaving.granted(said) {
            Ok(granted) => return leaving.guard(granted),
            Err(said) => on.put_back(said),
        }
    }
    match Box::pin(leaving.stand(until, asked)).await {
        Ok(granted) => leaving.guard(granted),
        Err(NotGranted { error, place }) => {
            if place == PlaceLeft::None {
                leaving.ask = None;
            }
            Err(error)
        }
    }
}

/// Acquires with a new lease, which the same command grants.
pub(crate) async fn own(shared: Arc<ClientShared>, ask: AcquireOptions) -> Result<Guard, Error> {
    let until = deadline(&shared, &ask);
    let began = Instant::now();
    let connect_by = began + shared.settings.timeout;
    let connect_by = until.map_or(connect_by, |until| connect_by.min(until + SLACK));
    let mut attempts = Attempts::default();
    for turn in 0_u32.. {
        match own_once(&shared, &ask, until, connect_by, &mut attempts).await {
            // This attempt was not sent, but an earlier one was.
            Some(Err(Error::Unavailable)) if turn > 0 => return Err(attempts.failed(began)),
            Some(done) => return done,
            None => {}
        }
        // The first answer came too late to be of use: start again with a new lease, within the time of any other
        // request.
        if Instant::now() >= connect_by || !shared.spend() {
            break;
        }
    }
    Err(attempts.failed(began))
}

/// What is known of the attempts to send a request.
#[derive(Default)]
struct Attempts {
    /// Whether the newest one has no answer.
    pending: bool,
    /// Whether one of them may have taken effect.
    doubt: bool,
    /// Why the newest one was refused, where the refusal says why.
    refused: Option<Error>,
}

impl Attempts {
    fn send(&mut self) {
        self.pending = true;
    }

    /// The newest one had no effect, and is to be sent again.
    fn refuse(&mut self, why: Option<Error>) {
        self.pending = false;
        self.refused = why.or(self.refused.take());
    }

    /// The newest one may have taken effect.
    fn doubt(&mut self) {
        self.doubt = true;
    }

    /// The refusal of all of them, if none can have taken effect.
    fn refusal(&self) -> Option<Error> {
        self.refused.clone().filter(|_| !self.pending && !self.doubt)
    }

    /// The error of a request that is given up. If it is not certain that it had no effect, whatever it may still bring
    /// is released.
    fn failed(&self, began: Instant) -> Error {
        let unknown = || Error::Unknown { request: None, waited: began.elapsed() };
        self.refusal().unwrap_or_else(unknown)
    }
}

async fn own_once(
    shared: &Arc<ClientShared>,
    ask: &AcquireOptions,
    until: Option<Instant>,
    connect_by: Instant,
    attempts: &mut Attempts,
) -> Option<Result<Guard, Error>> {
    let timing = match timing_of(shared, ask) {
        Ok(timing) => timing,
        Err(error) => return Some(Err(error)),
    };
    let (began, mut asking) = (Instant::now(), PendingGrant::new(timing));
    // An answer after this leaves too little of the window to be of use.
    let worthless = began + timing.window() * 3 / 4;
    let new = new_lease(shared, &timing);
    let mut orphan = OrphanLease { shared: shared.clone(), id: new.lease, sent: false };
    let mut request = ask.request(left_ms(ask, until));
    request.new_lease = Some(Box::new(new));
    // A repetition of a request that was replaced by a newer one of its group must not replace that one.
    let identity = match ask.supersede {
        Some(_) => RequestIdentity::key(),
        None => RequestIdentity::Harmless,
    };
    loop {
        if shared.cleanups.is_closing() {
            return Some(Err(Error::Closed));
        }
        let session = match ask.wait {
            WaitLimit::No => shared.session_at_once(connect_by).await,
            WaitLimit::For(_) | WaitLimit::Unlimited => shared.session(connect_by).await,
        };
        let Some(session) = session else {
            let refusal = || attempts.refusal().unwrap_or_else(|| shared.no_session());
            return Some(Err(if orphan.sent { attempts.failed(began) } else { refusal() }));
        };
        if Instant::now() >= worthless.min(connect_by) {
            return None;
        }
        // Read the clock before the send; a repetition under the same lease also counts from here.
        asking.sent(clock::read());
        let command = Command::Acquire(request.clone());
        let Some(mut asked) = session.ask(identity.request(command)) else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        orphan.sent = true;
        attempts.send();
        let Ok(said) = tokio::time::timeout_at(worthless.min(connect_by), asked.next()).await
        else {
            attempts.doubt();
            session.suspect();
            return None;
        };
        let (lease, granted) = match update_of(said, ask) {
            AcquireUpdate::Granted(Some(lease), granted) => (lease, Some(granted)),
            AcquireUpdate::Queued(Some(lease), ahead) => {
                tell(ask, ahead);
                (lease, None)
            }
            AcquireUpdate::No(error) => {
                orphan.sent = false;
                return Some(Err(error));
            }
            AcquireUpdate::Again(after, error) => {
                attempts.refuse(error);
                nap(clock::jittered(PAUSE).max(after), Some(connect_by)).await;
                continue;
            }
            AcquireUpdate::Doubt => {
                attempts.doubt();
                nap(clock::jittered(PAUSE), Some(connect_by)).await;
                continue;
            }
            AcquireUpdate::Over if ask.supersede.is_some() => {
                return Some(Err(Error::Lost(Cause::Gone.into())));
            }
            AcquireUpdate::Granted(None, _)
            | AcquireUpdate::Queued(None, _)
            | AcquireUpdate::Over => {
                return Some(Err(strange()));
            }
        };
        let Ok(state) = asking.granted(clock::read()) else { return None };
        let held = HeldLease::new(shared.clone(), &lease, state);
        orphan.sent = false;
        let Some(held) = held else { return Some(Err(strange())) };
        let granted = match granted {
            Some(granted) => Ok(granted),
            None => {
                let stand =
                    StandingAcquire { held: &held, ask, numbers: None, until, queued: true };
                // Whatever is left of the request ends with its lease.
                stand.run(Some((session, asked))).await.map_err(|it| it.error)
            }
        };
        return Some(
            granted.and_then(|granted| Guard::new(held, true, granted, LocalPermits::default())),
        );
    }
}

/// A lease that may have been granted although its caller no longer waits. Dropping it revokes the lease.
struct OrphanLease {
    shared: Arc<ClientShared>,
    id: i64,
    sent: bool,
}

impl Drop for OrphanLease {
    fn drop(&mut self) {
        if self.sent {
            give_back(&self.shared, self.id);
        }
    }
}

/// A request that leaves the queue in the background if its caller no longer waits.
struct PlaceCleanup {
    held: Arc<HeldLease>,
    ask: Option<Box<AcquireOptions>>,
    permits: LocalPermits,
    sent: Option<NumberedRequest>,
}

impl PlaceCleanup {
    fn ask(&self) -> &AcquireOptions {
        self.ask.as_ref().expect("it is there until it is over")
    }

    /// Sends the request on the current session, if there is enough time to wait for the answer without a timer.
    fn ask_now(&mut self, until: Option<Instant>) -> Option<SentRequest> {
        let ask = self.ask.as_ref()?;
        let left = |until: Instant| until.saturating_duration_since(Instant::now());
        if until.map_or(FAR, left) < UNTIMED_MIN {
            return None;
        }
        let session = self.held.shared.session_now()?;
        let seq = self.held.seq_now()?;
        let wait_ms = left_ms(ask, until);
        let identity = seq.identity();
        self.sent = Some(NumberedRequest { seq, wait_ms });
        let on = session.ask(request(&self.held, ask, identity, wait_ms, false))?;
        Some((session, on))
    }

    /// Returns what was granted, if the message is a grant.
    fn granted(&self, said: Response) -> Result<GrantedAt, Response> {
        if let Response::Answer(answer) = &said
            && let Some(Answer::Acquired(it)) = &answer.result
            && let Some(locks) = locks(self.ask().first(), it.token, it.slot, &it.locks)
        {
            return Ok((locks, at(answer.revision)));
        }
        Err(said)
    }

    async fn stand(
        &mut self,
        until: Option<Instant>,
        asked: Option<SentRequest>,
    ) -> Result<GrantedAt, NotGranted> {
        let ask = self.ask.as_ref().expect("it is there until it is over");
        let numbers = Some(&mut self.sent);
        StandingAcquire { held: &self.held, ask, numbers, until, queued: false }.run(asked).await
    }

    fn guard(mut self, granted: GrantedAt) -> Result<Guard, Error> {
        let mut permits = std::mem::take(&mut self.permits);
        if let Some(ask) = self.ask.take().filter(|ask| ask.any) {
            permits.keep(&ask.locks, granted.0.iter().map(|lock| lock.name.as_str()));
        }
        Guard::new(self.held.clone(), false, granted, permits)
    }
}

/// The number of a request that may have been sent, and the wait that it asked for.
struct NumberedRequest {
    seq: Seq,
    wait_ms: Option<u64>,
}

impl Drop for PlaceCleanup {
    fn drop(&mut self) {
        // Drop the number first: what is sent from here on tells the cluster that the request was abandoned, if it
        // still arrives.
        self.sent = None;
        if let Some(ask) = self.ask.take() {
            let (held, permits) = (self.held.clone(), std::mem::take(&mut self.permits));
            // If the leave fails, or the runtime ends first, the place in the queue ends with its lease.
            self.held.shared.clean_up(Vec::new(), async move {
                let _ = leave(&held, &ask).await;
                drop(permits);
            });
        }
    }
}

/// A request that stands in the cluster.
struct StandingAcquire<'a> {
    held: &'a Arc<HeldLease>,
    ask: &'a AcquireOptions,
    /// Keeps the number of the request that was sent. Without this, requests are not numbered: a lease that is given up
    /// together with its request needs no numbers.
    numbers: Option<&'a mut Option<NumberedRequest>>,
    until: Option<Instant>,
    /// Whether the cluster has said that the request is queued.
    queued: bool,
}

/// A request that was not granted.
struct NotGranted {
    error: Error,
    place: PlaceLeft,
}

/// Whether a request that was not granted may still stand in the cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum PlaceLeft {
    None,
    Perhaps,
}

impl From<Error> for NotGranted {
    fn from(error: Error) -> Self {
        // A refused request is over; after any other error it may still stand in the cluster.
        let over = matches!(error, Error::Refused(_) | Error::Unavailable);
        let place = if over { PlaceLeft::None } else { PlaceLeft::Perhaps };
        Self { error, place }
    }
}

impl StandingAcquire<'_> {
    /// Runs until the request is granted, refused or given up. `asked` is a session on which it was already sent or
    /// queued.
    async fn run(mut self, mut asked: Option<SentRequest>) -> Result<GrantedAt, NotGranted> {
        let (held, ask, began) = (self.held, self.ask, Instant::now());
        let mut standing = held.standing();
        let limit = self.until.map(|until| until + SLACK);
        let (mut sent, mut pause) = (asked.is_some(), PAUSE);
        let mut attempts = Attempts { pending: sent, ..Attempts::default() };
        if ask.wait == WaitLimit::No && !sent {
            let connect_by = limit.unwrap_or_else(|| began + AT_ONCE);
            if held.shared.session_at_once(connect_by).await.is_none() {
                return Err(held.shared.no_session().into());
            }
        }
        let mut denied_since = None;
        loop {
            let step = async {
                let (session, mut on) = match asked.take() {
                    Some(asked) => asked,
                    None => {
                        let session = held.shared.session(Instant::now() + FAR).await?;
                        let request = self.request().await;
                        let on = session.ask(request)?;
                        sent = true;
                        attempts.send();
                        (session, on)
                    }
                };
                let said = on.next().await;
                Some((update_of(said, ask), session, on))
            };
            let (heard, session, on) = tokio::select! {
                // Closing the client also ends the lease, so it is looked at first. The last one is always ready
                // while there is no session.
                biased;
                () = held.shared.cleanups.closing() => return Err(Error::Closed.into()),
                () = lost(&mut standing) => return Err(gone(held).into()),
                () = at_last(limit) => {
                    let attempts = sent.then_some(&attempts);
                    return Err(self.out_of_time(attempts, began));
                }
                step = step => match step {
                    Some(step) => step,
                    None => {
                        // Credentials that are being replaced may be right a moment later.
                        let denied = held.shared.no_session();
                        let since = match denied {
                            Error::Failed { .. } => *denied_since.get_or_insert_with(Instant::now),
                            _ => Instant::now(),
                        };
                        if since.elapsed() >= DENIED {
                            return Err(denied.into());
                        }
                        nap(PAUSE, limit).await;
                        continue;
                    }
                },
            };
            denied_since = None;
            match heard {
                AcquireUpdate::Granted(_, granted) => return Ok(granted),
                AcquireUpdate::Queued(_, ahead) => {
                    tell(ask, ahead);
                    // The request is answered. Drop its number: keeping it for the whole wait would block all later
                    // ones. A repetition under another number keeps the place in the queue.
                    if let Some(sent) = &mut self.numbers {
                        **sent = None;
                    }
                    pause = PAUSE;
                    self.queued = true;
                    asked = Some((session, on));
                }
                AcquireUpdate::No(error) => return Err(error.into()),
                AcquireUpdate::Over if self.until.is_none() => {
                    return Err(Error::Lost(Cause::Gone.into()).into());
                }
                AcquireUpdate::Over => return Err(Error::Refused(Refusal::WaitTimeout).into()),
                AcquireUpdate::Again(after, error) => {
                    attempts.refuse(error);
                    nap(clock::jittered(pause).max(after), limit).await;
                    pause = (pause * 2).min(PAUSE_MAX);
                }
                AcquireUpdate::Doubt => {
                    attempts.doubt();
                    nap(clock::jittered(pause), limit).await;
                    pause = (pause * 2).min(PAUSE_MAX);
                }
            }
        }
    }

    async fn request(&mut self) -> v1::Request {
        let left_ms = left_ms(self.ask, self.until);
        let (identity, wait_ms) = match &mut self.numbers {
            None => (RequestIdentity::Harmless, left_ms),
            Some(sent) => {
                if sent.is_none() {
                    let seq = self.held.seq().await;
                    **sent = Some(NumberedRequest { seq, wait_ms: left_ms });
                }
                // A repetition under the same number must be identical.
                let sent = sent.as_ref().expect("it was put in above");
                (sent.seq.identity(), sent.wait_ms)
            }
        };
        // A request that was queued and replaced by a newer one of its group must not replace that one.
        let resume = self.queued && self.ask.supersede.is_some();
        request(self.held, self.ask, identity, wait_ms, resume)
    }

    /// The wait is over by the client's own clock. The client leaves the queue in the background, and releases what may
    /// have been granted meanwhile.
    fn out_of_time(&mut self, attempts: Option<&Attempts>, began: Instant) -> NotGranted {
        let Some(attempts) = attempts else { return self.held.shared.no_session().into() };
        if let Some(error) = attempts.refusal().filter(|_| !self.queued) {
            return NotGranted { error, place: PlaceLeft::None };
        }
        // Abandoned: if it still arrives, the cluster rejects it.
        if let Some(sent) = &mut self.numbers {
            **sent = None;
        }
        let timeout = Error::Refused(Refusal::WaitTimeout);
        let error = if self.queued { timeout } else { attempts.failed(began) };
        NotGranted { error, place: PlaceLeft::Perhaps }
    }
}

fn tell(ask: &AcquireOptions, ahead: u64) {
    tracing::debug!(ahead, "queued");
    if let Some(tell) = &ask.on_queued {
        tell(ahead);
    }
}

/// The wait to request from the cluster: what is left until the deadline.
fn left_ms(ask: &AcquireOptions, until: Option<Instant>) -> Option<u64> {
    let left = until.map(|until| until.saturating_duration_since(Instant::now()));
    match (ask.wait, left) {
        (WaitLimit::No, _) => Some(0),
        (_, Some(left)) => Some(millis(left).max(1)),
        (_, None) => None,
    }
}

fn request(
    held: &HeldLease,
    ask: &AcquireOptions,
    identity: RequestIdentity,
    wait_ms: Option<u64>,
    resume: bool,
) -> v1::Request {
    let mut request = ask.request(wait_ms);
    request.lease_slot = held.handle.slot;
    request.lease_generation = held.handle.generation;
    request.resume = resume;
    identity.request(Command::Acquire(request))
}

/// When the caller wants its answer at the latest.
fn deadline(shared: &ClientShared, ask: &AcquireOptions) -> Option<Instant> {
    let wait = match ask.wait {
        WaitLimit::For(time) => Some(time),
        WaitLimit::No if ask.timeout.is_none() => Some(AT_ONCE.min(shared.settings.timeout)),
        WaitLimit::No | WaitLimit::Unlimited => None,
    };
    let time = wait.into_iter().chain(ask.timeout).min()?;
    Some(Instant::now() + time.min(FAR))
}

/// Sleeps, but not beyond the limit.
async fn nap(time: Duration, limit: Option<Instant>) {
    let until = Instant::now() + time;
    tokio::time::sleep_until(limit.map_or(until, |limit| until.min(limit))).await;
}

/// Waits until the limit, if there is one; an unlimited wait needs no timer.
async fn at_last(limit: Option<Instant>) {
    match limit {
        Some(limit) => tokio::time::sleep_until(limit).await,
        None => std::future::pending().await,
    }
}

/// Waits until the lease is lost.
pub(crate) async fn lost(standing: &mut watch::Receiver<Standing>) {
    let lost = standing.wait_for(|it| matches!(it, Standing::Lost(_))).await.is_ok();
    // The caller holds the lease, so the channel reports the loss before it closes.
    if !lost {
        std::future::pending::<()>().await;
    }
}

/// Returns why a lost lease was lost.
pub(crate) fn gone(held: &HeldLease) -> Error {
    let now = clock::read();
    Error::Lost(held.with(|state| state.check(now)).err().unwrap_or_else(|| Cause::Gone.into()))
}
