//! How do other threads talk to the loop?

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{
    Receiver, RecvTimeoutError, Sender, SyncSender, TrySendError, channel, sync_channel,
};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tenure_core::outcome::Outcome;
use tenure_core::{Frozen, Machine};
use tenure_raft::{Input, MemberId, Membership, Replica, Status, Stop, Why, Wish};
use tenure_store::{Point, Prepared, SyncReport};
use tenure_types::{Revision, Term};
use tokio::sync::watch;

use crate::edge::Outbox;
use crate::figures::{Figures, Meters};
use crate::lineage::Lineage;
use crate::meter::Tally;
use crate::os;
use crate::watch::Feed;

/// Inputs waiting for the loop, at most; whoever sends more waits. Two turns' worth.
pub(crate) const INBOX_MAX: usize = 16_384;

/// Between two attempts to read while nobody leads.
const READ_PAUSE: Duration = Duration::from_millis(20);

/// What the loop is told.
#[expect(clippy::large_enum_variant, reason = "nearly all of them are inputs")]
pub(crate) enum Event {
    Input(Input),
    Submit(Submission),
    Read(Question),
    Look(Box<dyn FnOnce(&Replica) + Send>),
    Freeze { done: Sender<FrozenState> },
    Wish { wish: Wish, done: WishDone },
    Prepared(Prepared),
    Synced(SyncReport),
    Leave { done: Sender<()> },
    Die(End),
}

/// Why the loop has not taken an event at once.
pub(crate) enum NotTaken {
    /// Too many wait; here it is back.
    Full(Box<Event>),
    /// The member has ended. Here it is back too: whoever waits for it is to be told.
    Ended(Box<Event>),
}

impl NotTaken {
    /// The event.
    pub(crate) fn back(self) -> Event {
        match self {
            Self::Full(event) | Self::Ended(event) => *event,
        }
    }
}

/// Commands on their way into the loop.
pub(crate) struct Submission {
    pub(crate) requests: Vec<Bytes>,
    pub(crate) patience_us: u64,
    /// When they came, by [`os::now_us`].
    pub(crate) at_us: u64,
    pub(crate) done: Done,
}

impl Submission {
    /// Commands that come now.
    pub(crate) fn new(requests: Vec<Bytes>, patience_us: u64, done: Done) -> Self {
        Self { requests, patience_us, at_us: os::now_us(), done }
    }
}

/// The state of a machine: up to which entry, at which level and revision.
pub(crate) type FrozenState = (Point, u16, Revision, Frozen);

/// Asked once the machine may be. Dropped if it may not.
pub(crate) type Question = Box<dyn FnOnce(&Machine) + Send>;

/// Told what became of each command, in order.
pub(crate) type Done = Box<dyn FnOnce(Vec<Result<Outcome, Undone>>) + Send>;

/// Told what became of a wish.
pub(crate) type WishDone = Box<dyn FnOnce(Result<(), Why>) + Send>;

/// Who leads, as this member knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Lead {
    /// In which term.
    pub term: Term,
    /// Who; nobody while there is an election.
    pub by: Option<MemberId>,
}

/// A handle to one running member.
#[derive(Clone)]
pub struct Member {
    id: MemberId,
    lineage: Arc<Lineage>,
    command_bytes_max: usize,
    inbox: SyncSender<Event>,
    over: Arc<Over>,
    lead: Arc<watch::Sender<Lead>>,
    outbox: Arc<Outbox>,
    /// Whether a backup is being taken.
    backing_up: Arc<AtomicBool>,
    feed: Arc<Feed>,
    meters: Arc<Meters>,
    tally: Arc<Tally>,
    /// Rung when something was put into the inbox; inside a test the loop is a task that listens for it.
    #[cfg(feature = "virtual-time")]
    pub(crate) bell: Arc<tokio::sync::Notify>,
}

/// Whether a member runs, and why not.
#[derive(Default)]
pub(crate) struct Over {
    ended: AtomicBool,
    why: Mutex<Option<End>>,
}

/// How a member ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum End {
    /// Because it was told to.
    #[error("stopped")]
    Told,
    /// Because the cluster says that it must.
    #[error("{0}")]
    Cluster(Stop),
    /// Because its disk failed.
    #[error("{0}")]
    Disk(String),
}

impl End {
    /// Whether the state or the disk is not what it was. Whoever asks is told so.
    pub fn is_corrupt(&self) -> bool {
        let damage = |stop: &Stop| {
            matches!(stop, Stop::Diverged { .. } | Stop::Forgot { .. } | Stop::Malformed { .. })
        };
        matches!(self, Self::Cluster(stop) if damage(stop))
    }
}

/// Why a command has no outcome.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Undone {
    /// It had no effect and never will.
    #[error("not done: {0}")]
    NotDone(Why),
    /// It had no effect: the log would not take it, here or at another member.
    #[error("not done: a command has at most {bound} bytes")]
    TooLarge {
        /// The most there may be.
        bound: u64,
    },
    /// It may have had an effect, or may still have one.
    #[error("no answer, it may have happened")]
    Unknown,
}

/// The member has ended, or could not answer in time. A question may be asked again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("no quorum confirmed the leader in time")]
pub struct Gone;

/// What a member can show of itself.
#[derive(Clone, Debug)]
pub struct MemberStatus {
    /// Who.
    pub id: MemberId,
    /// Of the agreement.
    pub agreement: Status,
    /// Who belongs to the cluster.
    pub members: Membership,
    /// Which life of which cluster.
    pub lineage: Lineage,
    /// The level of the machine's rules, and up to where they are known here.
    pub level: (u16, u16),
    /// The newest revision.
    pub revision: Revision,
    /// Hash over everything applied and answered.
    pub hash: u128,
    /// The machine's clock.
    pub clock_ms: u64,
    /// What it measures of itself.
    pub figures: Figures,
    /// Memory of the records and the history of the state, without indexes.
    pub state_bytes: u64,
}

impl Member {
    /// A member whose log takes commands of so many bytes.
    pub(crate) fn new(
        id: MemberId,
        lineage: Lineage,
        command_bytes_max: usize,
    ) -> (Self, Receiver<Event>) {
        let (inbox, events) = sync_channel(INBOX_MAX);
        let member = Self {
            id,
            lineage: Arc::new(lineage),
            command_bytes_max,
            inbox,
            over: Arc::default(),
            lead: Arc::new(watch::Sender::new(Lead::default())),
            outbox: Arc::default(),
            backing_up: Arc::default(),
            feed: Arc::default(),
            meters: Arc::default(),
            tally: Arc::default(),
            #[cfg(feature = "virtual-time")]
            bell: Arc::default(),
        };
        (member, events)
    }

    /// Who it is.
    pub fn id(&self) -> MemberId {
        self.id
    }

    /// Which life of which cluster it belongs to.
    pub fn lineage(&self) -> &Lineage {
        &self.lineage
    }

    /// Submits commands in log form and waits for what becomes of each.
    ///
    /// `patience` is how long they may wait for others before they are proposed. When `timeout`
    /// passes, what is not answered is unknown: it may still happen.
    pub fn submit(
        &self,
        requests: Vec<Bytes>,
        patience: Duration,
        timeout: Duration,
    ) -> Vec<Result<Outcome, Undone>> {
        let commands = requests.len();
        let (sender, receiver) = channel();
        let patience_us = u64::try_from(patience.as_micros()).unwrap_or(u64::MAX);
        self.submit_then(requests, patience_us, move |fates| {
            let _ = sender.send(fates);
        });
        match receiver.recv_timeout(timeout) {
            Ok(fates) => fates,
            Err(_) => vec![Err(Undone::Unknown); commands],
        }
    }

    /// Submits commands and goes on; `done` is called on the loop and must be quick.
    pub fn submit_then(
        &self,
        requests: Vec<Bytes>,
        patience_us: u64,
        done: impl FnOnce(Vec<Result<Outcome, Undone>>) + Send + 'static,
    ) {
        let bound = self.command_bytes_max;
        if requests.iter().all(|request| request.len() <= bound) {
            let done: Done = Box::new(done);
            return self.tell(Event::Submit(Submission::new(requests, patience_us, done)));
        }
        // The others go on; what is too large is told with their answers.
        let fits: Vec<bool> = requests.iter().map(|request| request.len() <= bound).collect();
        let requests = requests.into_iter().filter(|request| request.len() <= bound).collect();
        let too_large = Undone::TooLarge { bound: bound as u64 };
        let done: Done = Box::new(move |fates: Vec<Result<Outcome, Undone>>| {
            let mut fates = fates.into_iter();
            let mut next = || fates.next().unwrap_or(Err(Undone::Unknown));
            done(fits.iter().map(|fits| if *fits { next() } else { Err(too_large) }).collect());
        });
        self.tell(Event::Submit(Submission::new(requests, patience_us, done)));
    }

    /// Bytes of a command, at most. A larger one would be refused by a log, and stop its member.
    pub(crate) fn command_bytes_max(&self) -> usize {
        self.command_bytes_max
    }

    /// Asks the machine something that is not older than now, again and again until a quorum
    /// confirms the leader or `timeout` passes.
    pub fn read<T: Send + 'static>(
        &self,
        timeout: Duration,
        ask: impl Fn(&Machine) -> T + Send + Sync + 'static,
    ) -> Result<T, Gone> {
        let until_us = os::now_us().saturating_add(timeout.as_micros().try_into().unwrap_or(0));
        let ask = Arc::new(ask);
        loop {
            let (sender, receiver) = channel();
            let ask = ask.clone();
            self.tell(Event::Read(Box::new(move |machine| {
                let _ = sender.send(ask(machine));
            })));
            // A read that fails is dropped, and its sender with it.
            match receiver.recv_timeout(os::until(until_us)) {
                Ok(answer) => return Ok(answer),
                Err(RecvTimeoutError::Timeout) => return Err(Gone),
                Err(RecvTimeoutError::Disconnected) if self.over.is() => return Err(Gone),
                Err(RecvTimeoutError::Disconnected) => std::thread::sleep(READ_PAUSE),
            }
            if os::now_us() >= until_us {
                return Err(Gone);
            }
        }
    }

    /// Asks the machine as it is here, which may be old.
    pub fn read_stale<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&Machine) -> T + Send + 'static,
    ) -> Result<T, Gone> {
        self.look(move |replica| ask(replica.machine()))
    }

    /// Wants something of the leader: other members, or another leader.
    pub fn admin(&self, wish: Wish, timeout: Duration) -> Result<Result<(), Why>, Gone> {
        let (sender, receiver) = channel();
        self.wish_then(wish, move |result| {
            let _ = sender.send(result);
        });
        receiver.recv_timeout(timeout).map_err(|_| Gone)
    }

    /// Wants something of the leader and goes on; `done` is called on the loop and must be quick.
    pub(crate) fn wish_then(
        &self,
        wish: Wish,
        done: impl FnOnce(Result<(), Why>) + Send + 'static,
    ) {
        self.tell(Event::Wish { wish, done: Box::new(done) });
    }

    /// Who leads, and every change of it.
    pub fn lead(&self) -> watch::Receiver<Lead> {
        self.lead.subscribe()
    }

    pub(crate) fn set_lead(&self, lead: Lead) {
        self.lead.send_replace(lead);
    }

    /// Where the loop puts what sessions are to know.
    pub(crate) fn outbox(&self) -> &Arc<Outbox> {
        &self.outbox
    }

    /// What it can show of itself.
    pub fn status(&self) -> Result<MemberStatus, Gone> {
        let figures = self.figures();
        let lineage = self.lineage().clone();
        self.look(move |replica| {
            let stats = replica.machine().stats();
            MemberStatus {
                id: replica.id(),
                lineage,
                level: (replica.machine().level(), replica.machine().level_known()),
                agreement: replica.status(),
                members: replica.members().clone(),
                revision: replica.machine().revision(),
                hash: replica.machine().rolling_hash(),
                clock_ms: replica.machine().clock_ms(),
                figures,
                state_bytes: stats.record_bytes + stats.history_bytes,
            }
        })
    }

    /// What it measures of itself, without asking its loop.
    pub fn figures(&self) -> Figures {
        self.meters.read()
    }

    pub(crate) fn look<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&Replica) -> T + Send + 'static,
    ) -> Result<T, Gone> {
        let (sender, receiver) = channel();
        self.tell(Event::Look(Box::new(move |replica| {
            let _ = sender.send(ask(replica));
        })));
        receiver.recv().map_err(|_| Gone)
    }

    /// The state as it is here, to be written while the machine goes on.
    pub(crate) fn freeze(&self) -> Result<FrozenState, Gone> {
        let (done, receiver) = channel();
        self.tell(Event::Freeze { done });
        receiver.recv().map_err(|_| Gone)
    }

    pub(crate) fn backing_up(&self) -> &Arc<AtomicBool> {
        &self.backing_up
    }

    /// Hands leadership over if it has it, makes everything durable and ends.
    pub fn leave(&self, timeout: Duration) {
        let (done, receiver) = channel();
        self.tell(Event::Leave { done });
        let _ = receiver.recv_timeout(timeout);
    }

    /// Why it has ended; nothing while it runs.
    pub fn ended(&self) -> Option<End> {
        self.over.why()
    }

    /// Events to a member that has ended are dropped, and their senders with them.
    pub(crate) fn tell(&self, event: Event) {
        let _ = self.inbox.send(event);
        #[cfg(feature = "virtual-time")]
        self.bell.notify_one();
    }

    /// The same, for those who must not wait.
    pub(crate) fn try_tell(&self, event: Event) -> Result<(), NotTaken> {
        #[cfg(feature = "virtual-time")]
        self.bell.notify_one();
        self.inbox.try_send(event).map_err(|error| match error {
            TrySendError::Full(event) => NotTaken::Full(Box::new(event)),
            TrySendError::Disconnected(event) => NotTaken::Ended(Box::new(event)),
        })
    }

    /// Where the loop leaves what watches shall hear of.
    pub(crate) fn feed(&self) -> &Feed {
        &self.feed
    }

    pub(crate) fn inbox(&self) -> &SyncSender<Event> {
        &self.inbox
    }

    /// Where the loop writes its figures.
    pub(crate) fn meters(&self) -> &Arc<Meters> {
        &self.meters
    }

    /// Where the loop leaves what is counted of locks.
    pub(crate) fn tally(&self) -> &Arc<Tally> {
        &self.tally
    }

    pub(crate) fn over(&self) -> &Arc<Over> {
        &self.over
    }
}

impl Over {
    pub(crate) fn end(&self, why: End) {
        let mut kept = self.why.lock().unwrap_or_else(PoisonError::into_inner);
        kept.get_or_insert(why);
        self.ended.store(true, Ordering::Release);
    }

    pub(crate) fn is(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    fn why(&self) -> Option<End> {
        self.why.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
