//! How is one session with one member carried on?
//!
//! Whoever asks gets a place under the request's id before the request leaves, and keeps it until he lets go. The
//! answer and every later notice about the request come there in the order in which the member said them, so
//! a grant that follows an answer at once is never missed.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tenure_wire::v1;
use tenure_wire::v1::session_service_client::SessionServiceClient;
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;
use tonic::Streaming;
use tonic::transport::{Channel, Endpoint};

use crate::asks::{Asked, Asks, Outgoing};
use crate::clock;
use crate::life::Moment;
use crate::shared::{ClusterLife, Shared};
use crate::surroundings;

/// A connection on which nothing came for so long is asked whether it is there.
const QUIET: Duration = Duration::from_secs(2);
/// And given up if it does not say so.
const SILENT: Duration = Duration::from_secs(2);
/// Whoever owes an answer and says nothing at all for so long is not there. A member that only is slow still says
/// something to somebody, and is not left for it: that would make it slower.
const TRY: Duration = Duration::from_secs(3);
/// How often that is looked at, and who has been waiting for an answer since the last look or longer.
const LOOK: Duration = Duration::from_secs(1);
/// Whoever may wait for an answer at least so long waits without a timer at first: as long as the runtime runs, he is
/// told before that if there is none.
pub(crate) const PATIENT: Duration = Duration::from_secs(2);
/// What may be on its way to us before we have read it.
const STREAM_WINDOW: u32 = 1024 * 1024;
const CONNECTION_WINDOW: u32 = 4 * 1024 * 1024;
/// The longest message that is read.
const MESSAGE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Where a leader is.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Leader {
    /// 0 if nobody is known to lead.
    pub(crate) member: u64,
    pub(crate) address: String,
}

/// One session.
pub(crate) struct Line {
    pub(crate) address: String,
    /// The member at its other end: several addresses may lead to one.
    pub(crate) member: u64,
    pub(crate) channel: Channel,
    heard: Arc<Heard>,
}

/// What the reading half shares with those who ask.
struct Heard {
    asks: Arc<Asks>,
    /// Where the member says the leader is.
    leader: watch::Sender<Leader>,
    /// When the member last said anything, in microseconds of our clock.
    newest_us: AtomicU64,
    over: watch::Sender<bool>,
    /// The same for whoever only looks, before every request: a watch takes a lock for that.
    is_over: AtomicBool,
}

/// Held by whoever reads: however that ends, also with its runtime or in a panic, the session is over, and whoever
/// waits for an answer is told.
struct Ending(Arc<Heard>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Whatever becomes of a session that does not come about, its other half is not left waiting for requests.
struct Opening(Option<Arc<Asks>>);

impl Drop for Opening {
    fn drop(&mut self) {
        if let Some(asks) = &self.0 {
            asks.close();
        }
    }
}

impl From<v1::LeaderHint> for Leader {
    fn from(hint: v1::LeaderHint) -> Self {
        Self { member: hint.member_id, address: hint.address }
    }
}

impl Leader {
    /// Whether it can be dialled and is another member than this one.
    pub(crate) fn is_elsewhere(&self, member: u64) -> bool {
        self.member != 0 && self.member != member && !self.address.is_empty()
    }
}

impl Line {
    /// Opens a session with the member at an address.
    pub(crate) async fn open(
        address: &str,
        hello: v1::Hello,
        within: Duration,
        shared: &Weak<Shared>,
    ) -> Result<Arc<Self>, String> {
        let opening = Self::open_unbounded(address, hello, shared);
        match tokio::time::timeout(within, opening).await {
            Ok(opened) => opened,
            Err(_) => Err("timed out".to_owned()),
        }
    }

    async fn open_unbounded(
        address: &str,
        hello: v1::Hello,
        shared: &Weak<Shared>,
    ) -> Result<Arc<Self>, String> {
        let endpoint = Endpoint::from_shared(format!("http://{address}"))
            .map_err(|_| "is no address".to_owned())?
            .tcp_nodelay(true)
            .http2_keep_alive_interval(QUIET)
            .keep_alive_timeout(SILENT)
            .keep_alive_while_idle(true)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW);
        let client = shared.upgrade().ok_or("the client is gone")?;
        let connector = client.trust.as_ref().map(|trust| trust.connector(address));
        // Whoever dials does not keep the client from going.
        drop(client);
        let connected = match connector {
            None => surroundings::connect(&endpoint, address).await,
            Some(connector) => endpoint.connect_with_connector(connector).await,
        };
        let channel = connected.map_err(|error| deepest(&error))?;
        let asks = Arc::<Asks>::default();
        let mut opening = Opening(Some(asks.clone()));
        let mut client =
            SessionServiceClient::new(channel.clone()).max_decoding_message_size(MESSAGE_BYTES_MAX);
        let opened = client.open(Outgoing::new(hello, asks.clone())).await;
        let mut from = opened.map_err(|status| status.message().to_owned())?.into_inner();
        let first = from.message().await.map_err(|status| status.message().to_owned())?;
        let welcome = match first {
            Some(v1::SessionResponse { closing: Some(error), .. }) => return Err(error.message),
            Some(v1::SessionResponse { welcome: Some(welcome), .. }) => welcome,
            _ => return Err("does not speak our language".to_owned()),
        };
        let leader = welcome.leader.map(Leader::from).unwrap_or_default();
        let header = welcome.header.unwrap_or_default();
        let member = header.member_id;
        let (epoch, incarnation) = (welcome.epoch, welcome.incarnation);
        let met = ClusterLife { cluster: header.cluster_id, epoch, incarnation };
        shared.upgrade().ok_or("the client is gone")?.recognise(met)?;
        let heard = Arc::new(Heard {
            asks,
            leader: watch::Sender::new(leader),
            newest_us: AtomicU64::new(clock::boot().micros()),
            over: watch::Sender::new(false),
            is_over: AtomicBool::new(false),
        });
        tokio::spawn(read(from, Ending(heard.clone()), shared.clone()));
        let address = address.to_owned();
        opening.0 = None;
        Ok(Arc::new(Self { address, member, channel, heard }))
    }

    /// Sends a request; its id is given here.
    pub(crate) fn ask(&self, request: v1::Request) -> Option<Asked> {
        self.heard.asks.ask(request)
    }

    /// It did not answer when it should have: if it does not answer others either, nobody relies on it any more.
    pub(crate) fn suspect(&self) {
        if self.heard.is_silent() {
            self.heard.close();
        }
    }

    /// Where the member says the leader is.
    pub(crate) fn leader(&self) -> watch::Receiver<Leader> {
        self.heard.leader.subscribe()
    }

    /// Where the leader is, if it is known and not the member at the other end.
    pub(crate) fn elsewhere(&self) -> Option<Leader> {
        let leader = self.heard.leader.borrow().clone();
        leader.is_elsewhere(self.member).then_some(leader)
    }

    /// Becomes true when the session is over.
    pub(crate) fn over(&self) -> watch::Receiver<bool> {
        self.heard.over.subscribe()
    }

    pub(crate) fn is_over(&self) -> bool {
        self.heard.is_over.load(Ordering::Acquire)
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.heard.close();
    }
}

impl Heard {
    /// Whether nothing at all was heard for long.
    fn is_silent(&self) -> bool {
        let newest = Moment::from_micros(self.newest_us.load(Ordering::Relaxed));
        clock::boot().since(newest) >= TRY
    }

    /// Whether nothing was heard for long although an answer was owed all the time.
    fn is_overdue(&self) -> bool {
        self.is_silent() && self.asks.owe_for(TRY)
    }

    fn close(&self) {
        self.asks.close();
        self.is_over.store(true, Ordering::Release);
        self.over.send_replace(true);
    }
}

async fn read(mut from: Streaming<v1::SessionResponse>, ending: Ending, shared: Weak<Shared>) {
    let heard = &ending.0;
    let mut over = heard.over.subscribe();
    let mut looks = tokio::time::interval(LOOK);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut wakers = Vec::new();
    loop {
        let message = tokio::select! {
            message = from.message() => message,
            _ = over.wait_for(|over| *over) => break,
            _ = looks.tick() => {
                if heard.is_overdue() {
                    break;
                }
                heard.asks.late_after(LOOK, &mut wakers);
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
        heard.asks.tell(&mut message, &mut wakers);
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

/// The innermost reason: the outer ones only say that there is one.
fn deepest(error: &(dyn std::error::Error + 'static)) -> String {
    let mut at = error;
    while let Some(source) = at.source() {
        at = source;
    }
    match at.downcast_ref::<std::io::Error>().map(std::io::Error::kind) {
        // In a word, where everybody knows what the system means.
        Some(std::io::ErrorKind::ConnectionRefused) => "refused".to_owned(),
        Some(std::io::ErrorKind::TimedOut) => "timed out".to_owned(),
        _ => at.to_string(),
    }
}
