//! Runs one session with one member: opens it, reads its messages and detects a silent peer.
//!
//! A request gets a response slot under its id before it is sent, and keeps the slot until the caller drops it. The
//! answer and every later notification about the request arrive there in the order in which the member sent them. A
//! grant that follows directly behind an answer is therefore never missed.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tenure_wire::v1;
use tenure_wire::v1::session_service_client::SessionServiceClient;
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;
use tonic::Streaming;
use tonic::transport::Endpoint;

use crate::clock;
use crate::credentials::MemberChannel;
use crate::lease_state::Moment;
use crate::pending::{OutgoingMessages, PendingRequests, RequestHandle};
use crate::shared::{ClientShared, ClusterIncarnation, TraceHook};
use crate::surroundings;

/// The idle time after which the client sends a keep-alive ping.
const QUIET: Duration = Duration::from_secs(2);
/// How long the peer may take to answer the ping before the connection is closed.
const SILENT: Duration = Duration::from_secs(2);
/// A member that owes an answer and sends nothing at all for this long counts as gone. A slow member still sends
/// something on the session, and the client stays with it: leaving would make it slower.
const TRY: Duration = Duration::from_secs(3);
/// How often the session checks for that, and for requests that have waited for an answer since the last check or
/// longer.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// A request that may wait at least this long waits without a timer at first: as long as the runtime runs, the
/// session's check marks it late before that.
pub(crate) const UNTIMED_MIN: Duration = Duration::from_secs(2);
/// The flow-control windows: how many bytes may be on their way to the client before it has read them.
const STREAM_WINDOW: u32 = 1024 * 1024;
const CONNECTION_WINDOW: u32 = 4 * 1024 * 1024;
/// The outcome of an attempt that was not answered in time.
const TIMED_OUT: &str = "timed out";
/// The outcome of an attempt without TLS at a port that requires it, and of one with TLS at a port that has none.
const TLS_ONLY: &str = "accepts only TLS";
const NO_TLS: &str = "does not accept TLS";
/// The longest message that the client accepts.
const MESSAGE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The member that leads, and its address.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct LeaderAddress {
    /// The leader's id; 0 if no leader is known.
    pub(crate) member: u64,
    pub(crate) address: String,
}

/// One session with one member.
pub(crate) struct Session {
    pub(crate) address: String,
    /// The id of the member at the other end. Several addresses may lead to one member.
    pub(crate) member: u64,
    pub(crate) channel: MemberChannel,
    heard: Arc<SessionShared>,
    trace: Option<TraceHook>,
}

/// What the reading half shares with the tasks that send requests.
struct SessionShared {
    pending: Arc<PendingRequests>,
    /// Where the leader is, according to the member.
    leader: watch::Sender<LeaderAddress>,
    /// When the member last sent anything, in microseconds of our clock.
    newest_us: AtomicU64,
    over: watch::Sender<bool>,
    /// The same as `over`, for the check before every request: reading the watch channel takes a lock.
    is_over: AtomicBool,
}

/// Held by the reading task. However that task ends, also with its runtime or in a panic, dropping this closes the
/// session and notifies every pending request.
struct SessionEnd(Arc<SessionShared>);

impl Drop for SessionEnd {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Closes the sending half of a session that is not established, so that it does not wait for requests forever.
struct SessionOpening(Option<Arc<PendingRequests>>);

impl Drop for SessionOpening {
    fn drop(&mut self) {
        if let Some(pending) = &self.0 {
            pending.close();
        }
    }
}

/// Why no session could be opened.
pub(crate) struct DialError {
    /// For the list of addresses that were tried.
    pub(crate) word: String,
    /// Whether the peer did not answer in time, so that it may still answer the next attempt.
    pub(crate) silent: bool,
    /// If the credentials are the reason: no other attempt will succeed with them.
    pub(crate) denied: Option<DeniedCall>,
}

/// The refusal of the client's credentials.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct DeniedCall {
    pub(crate) reason: String,
    pub(crate) message: String,
}

impl DialError {
    fn denied(message: String) -> Self {
        let reason = "UNAUTHENTICATED".to_owned();
        let denied = Some(DeniedCall { reason, message: message.clone() });
        Self { word: message, silent: false, denied }
    }

    /// The credentials stay here.
    fn unsent(why: String) -> Self {
        Self::denied(why)
    }

    fn of(status: &tonic::Status) -> Self {
        match tenure_wire::status::error_from(status) {
            Some(error) => error.into(),
            // The interceptor could not read the token.
            None if status.code() == tonic::Code::Unauthenticated => {
                Self::denied(status.message().to_owned())
            }
            None => status.message().to_owned().into(),
        }
    }
}

impl From<String> for DialError {
    fn from(word: String) -> Self {
        Self { word, silent: false, denied: None }
    }
}

impl From<v1::Error> for DialError {
    fn from(error: v1::Error) -> Self {
        let denying = ["UNAUTHENTICATED", "PERMISSION_DENIED", "FORBIDDEN"];
        let denied = denying.contains(&error.reason.as_str());
        let denied =
            denied.then(|| DeniedCall { reason: error.reason, message: error.message.clone() });
        Self { word: error.message, silent: false, denied }
    }
}

fn gone() -> DialError {
    "the client is gone".to_owned().into()
}

impl From<v1::LeaderHint> for LeaderAddress {
    fn from(hint: v1::LeaderHint) -> Self {
        Self { member: hint.member_id, address: hint.address }
    }
}

impl LeaderAddress {
    /// Whether the leader has an address and is another member than this one.
    pub(crate) fn is_elsewhere(&self, member: u64) -> bool {
        self.member != 0 && self.member != member && !self.address.is_empty()
    }
}

impl Session {
    /// Opens a session with the member at an address.
    pub(crate) async fn open(
        address: &str,
        hello: v1::Hello,
        within: Duration,
        shared: &Weak<ClientShared>,
    ) -> Result<Arc<Self>, DialError> {
        let opening = Self::open_unbounded(address, hello, shared);
        match tokio::time::timeout(within, opening).await {
            Ok(opened) => opened,
            Err(_) => Err(DialError { silent: true, ..TIMED_OUT.to_owned().into() }),
        }
    }

    async fn open_unbounded(
        address: &str,
        hello: v1::Hello,
        shared: &Weak<ClientShared>,
    ) -> Result<Arc<Self>, DialError> {
        let endpoint = Endpoint::from_shared(format!("http://{address}"))
            .map_err(|_| DialError::from("is no address".to_owned()))?
            .tcp_nodelay(true)
            .http2_keep_alive_interval(QUIET)
            .keep_alive_timeout(SILENT)
            .keep_alive_while_idle(true)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW);
        let client = shared.upgrade().ok_or_else(gone)?;
        let credentials = client.settings.credentials.clone();
        // Addresses come from other members too: each is checked before anything is sent there.
        credentials.may_go_to(address, client.trust.is_some()).map_err(DialError::unsent)?;
        let secured = client.trust.as_ref().map(|trust| trust.connect(endpoint.clone(), address));
        // A task that connects must not keep the client alive.
        drop(client);
        let connected = match secured {
            None => surroundings::connect(&endpoint, address).await,
            Some(secured) => secured.await,
        };
        let channel = credentials.over(connected.map_err(|error| dial_error(&error))?);
        let pending = Arc::<PendingRequests>::default();
        let mut opening = SessionOpening(Some(pending.clone()));
        let mut client =
            SessionServiceClient::new(channel.clone()).max_decoding_message_size(MESSAGE_BYTES_MAX);
        let opened = client.open(OutgoingMessages::new(hello, pending.clone())).await;
        let mut from = opened.map_err(|status| opening_error(&status))?.into_inner();
        let first = from.message().await.map_err(|status| DialError::of(&status))?;
        let welcome = match first {
            Some(v1::SessionResponse { closing: Some(error), .. }) => return Err(error.into()),
            Some(v1::SessionResponse { welcome: Some(welcome), .. }) => welcome,
            _ => return Err("does not speak our language".to_owned().into()),
        };
        let leader = welcome.leader.map(LeaderAddress::from).unwrap_or_default();
        let header = welcome.header.unwrap_or_default();
        let member = header.member_id;
        let (epoch, incarnation) = (welcome.epoch, welcome.incarnation);
        let met = ClusterIncarnation { cluster: header.cluster_id, epoch, incarnation };
        let client = shared.upgrade().ok_or_else(gone)?;
        client.recognise(met)?;
        let trace = client.settings.trace.clone();
        drop(client);
        let heard = Arc::new(SessionShared {
            pending,
            leader: watch::Sender::new(leader),
            newest_us: AtomicU64::new(clock::boot().micros()),
            over: watch::Sender::new(false),
            is_over: AtomicBool::new(false),
        });
        tokio::spawn(read(from, SessionEnd(heard.clone()), shared.clone()));
        let address = address.to_owned();
        opening.0 = None;
        Ok(Arc::new(Self { address, member, channel, heard, trace }))
    }

    /// Queues a request for sending and assigns its id.
    pub(crate) fn ask(&self, mut request: v1::Request) -> Option<RequestHandle> {
        if let Some(TraceHook(hook)) = &self.trace {
            request.traceparent = hook().unwrap_or_default();
        }
        self.heard.pending.ask(request)
    }

    /// Closes the session if the member, which did not answer one request in time, does not answer others either.
    pub(crate) fn suspect(&self) {
        if self.heard.is_silent() {
            self.heard.close();
        }
    }

    /// Subscribes to where the leader is, according to the member.
    pub(crate) fn leader(&self) -> watch::Receiver<LeaderAddress> {
        self.heard.leader.subscribe()
    }

    /// Returns where the leader is, if it is known and is not the member at the other end.
    pub(crate) fn elsewhere(&self) -> Option<LeaderAddress> {
        let leader = self.heard.leader.borrow().clone();
        leader.is_elsewhere(self.member).then_some(leader)
    }

    /// Subscribes to the end of the session: becomes true when it is over.
    pub(crate) fn over(&self) -> watch::Receiver<bool> {
        self.heard.over.subscribe()
    }

    pub(crate) fn is_over(&self) -> bool {
        self.heard.is_over.load(Ordering::Acquire)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.heard.close();
    }
}

impl SessionShared {
    /// Whether the member has sent nothing at all for `TRY`.
    fn is_silent(&self) -> bool {
        let newest = Moment::from_micros(self.newest_us.load(Ordering::Relaxed));
        clock::boot().since(newest) >= TRY
    }

    /// Whether the member has sent nothing for `TRY` although it owed an answer all that time.
    fn is_overdue(&self) -> bool {
        self.is_silent() && self.pending.owe_for(TRY)
    }

    fn close(&self) {
        self.pending.close();
        self.is_over.store(true, Ordering::Release);
        self.over.send_replace(true);
    }
}

async fn read(
    mut from: Streaming<v1::SessionResponse>,
    ending: SessionEnd,
    shared: Weak<ClientShared>,
) {
    let heard = &ending.0;
    let mut over = heard.over.subscribe();
    let mut checks = tokio::time::interval(POLL_INTERVAL);
    checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut wakers = Vec::new();
    loop {
        let message = tokio::select! {
            message = from.message() => message,
            _ = over.wait_for(|over| *over) => break,
            _ = checks.tick() => {
                if heard.is_overdue() {
                    break;
                }
                heard.pending.late_after(POLL_INTERVAL, &mut wakers);
                continue;
            }
        };
        let Ok(Some(mut message)) = message else { break };
        let Some(shared) = shared.upgrade() else { break };
        shared.pause.over().await;
        heard.newest_us.store(clock::boot().micros(), Ordering::Relaxed);
        if let Some(leader) = message.leader.take() {
            heard.leader.send_replace(leader.into());
        }
        heard.pending.tell(&mut message, &mut wakers);
        for lost in message.losses {
            shared.lock_lost(&lost, &message.leases_ended);
        }
        for ended in message.leases_ended {
            shared.lease_ended(&ended);
        }
        if message.closing.is_some() {
            break;
        }
    }
}

/// Why the first request on a connection failed. A member that requires TLS says so in the GOAWAY frame with which it
/// ends a connection without it.
fn opening_error(status: &tonic::Status) -> DialError {
    let mut at: Option<&dyn std::error::Error> = Some(status);
    while let Some(error) = at {
        if error.to_string().contains("INADEQUATE_SECURITY")
            || error.to_string().contains("only TLS")
        {
            return TLS_ONLY.to_owned().into();
        }
        at = error.source();
    }
    DialError::of(status)
}

/// Why no connection could be made: the innermost error, because the outer ones only say that there is one.
fn dial_error(error: &(dyn std::error::Error + 'static)) -> DialError {
    let mut at = error;
    while let Some(source) = at.source() {
        at = source;
    }
    if crate::tls::is_refused(at) {
        return NO_TLS.to_owned().into();
    }
    match at.downcast_ref::<std::io::Error>().map(std::io::Error::kind) {
        // One word for the common system errors.
        Some(std::io::ErrorKind::ConnectionRefused) => "refused".to_owned().into(),
        Some(std::io::ErrorKind::TimedOut) => {
            DialError { silent: true, ..TIMED_OUT.to_owned().into() }
        }
        _ => at.to_string().into(),
    }
}
