//! Finishes what guards and leases leave behind: in the background, or from a thread if the runtime ends first.
//!
//! Dropping a guard cannot wait for the cluster, so a task sends the release. If the runtime ends before the task does,
//! as at the end of `main`, the task's destructor sends the release from a thread with a runtime of its own, and waits
//! for it for a short time.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::task::{Context, Poll};
use std::time::Duration;

use tenure_wire::v1;
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use v1::answer::Result as Answer;
use v1::request::Command;

use crate::clock;
use crate::error::Meaning;
use crate::lease_state::Moment;
use crate::response_slot::Response;
use crate::session::Session;
use crate::shared::{ClientShared, RequestIdentity};

/// How long all destructors of one client together wait for the cluster when their runtime ends.
const EXIT: Duration = Duration::from_secs(1);
/// How long the thread waits for the next destructor.
const IDLE: Duration = Duration::from_millis(200);
/// The pause before the thread asks another member.
const PAUSE: Duration = Duration::from_millis(20);

/// The clean-ups of one client.
#[derive(Default)]
pub(crate) struct Cleanups {
    open: AtomicUsize,
    /// Whether the client was closed: it takes no new requests for locks.
    closing: AtomicBool,
    /// Notified, while the client closes, whenever something may have ended.
    changed: Notify,
    exit: Mutex<ExitState>,
}

/// The state of the thread that sends for a runtime that has ended.
#[derive(Default)]
struct ExitState {
    until: Option<Moment>,
    thread: Option<UnboundedSender<LastCommands>>,
}

/// Commands of one destructor. Dropping this tells the destructor that they are done.
struct LastCommands {
    commands: Vec<Command>,
    _done: mpsc::Sender<()>,
}

impl Cleanups {
    pub(crate) fn close(&self) {
        self.closing.store(true, Ordering::SeqCst);
        self.changed.notify_waiters();
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Relaxed)
    }

    /// Reports that something has ended, which a caller that closes the client may wait for.
    pub(crate) fn report(&self) {
        if self.is_closing() {
            self.changed.notify_waiters();
        }
    }

    /// How many clean-ups are not finished.
    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }

    /// Waits until the client closes.
    pub(crate) async fn closing(&self) {
        self.changes(|| self.is_closing()).await;
    }

    /// Waits until the condition holds; checks it after each report.
    pub(crate) async fn changes(&self, mut is_so: impl FnMut() -> bool) {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            // Subscribe before the check, so that a report in between is not missed.
            changed.as_mut().enable();
            if is_so() {
                return;
            }
            changed.await;
        }
    }
}

/// A clean-up that runs as a task.
struct Cleanup {
    rest: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    last: Vec<Command>,
    shared: Arc<ClientShared>,
}

impl Future for Cleanup {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let done = self.rest.as_mut().map_or(Poll::Ready(()), |rest| rest.as_mut().poll(context));
        if done.is_ready() {
            self.rest = None;
        }
        done
    }
}

impl Drop for Cleanup {
    fn drop(&mut self) {
        // A task is dropped unfinished only when its runtime ends.
        if self.rest.take().is_some() {
            self.shared.send_last(std::mem::take(&mut self.last));
        }
        self.shared.cleanups.open.fetch_sub(1, Ordering::SeqCst);
        self.shared.cleanups.report();
    }
}

impl ClientShared {
    /// Runs a clean-up in the background. `last` has the same effect; it is sent if the runtime ends first. All of it
    /// must be harmless to repeat.
    pub(crate) fn clean_up(
        self: &Arc<Self>,
        last: Vec<Command>,
        rest: impl Future<Output = ()> + Send + 'static,
    ) {
        self.cleanups.open.fetch_add(1, Ordering::SeqCst);
        self.runtime.spawn(Cleanup { rest: Some(Box::pin(rest)), last, shared: self.clone() });
    }

    /// Sends commands although the runtime has ended, and waits until they are answered or the time is over.
    fn send_last(self: &Arc<Self>, commands: Vec<Command>) {
        if commands.is_empty() || !self.on_machine {
            return;
        }
        let (done, answered) = mpsc::channel();
        let mut unsent = Some(LastCommands { commands, _done: done });
        let left = {
            let mut exit = self.cleanups.exit.lock().unwrap_or_else(PoisonError::into_inner);
            let now = clock::boot();
            let left = exit.until.get_or_insert(now + EXIT).since(now);
            if left.is_zero() {
                return;
            }
            if let Some(thread) = &exit.thread
                && let Some(last) = unsent.take()
            {
                unsent = thread.send(last).err().map(|error| error.0);
            }
            if let Some(last) = unsent {
                let (to, from) = unbounded_channel();
                // The receiver is in use below, so this does not fail.
                let _ = to.send(last);
                let shared = self.clone();
                let thread = std::thread::Builder::new().name("tenure-exit".to_owned());
                if let Err(error) = thread.spawn(move || send_all(&shared, from, left)) {
                    tracing::warn!(%error, "cannot release locks at exit: their leases run out");
                    return;
                }
                exit.thread = Some(to);
            }
            left
        };
        // An error in either form means that there is nothing more to wait for.
        let _ = answered.recv_timeout(left);
    }
}

/// Sends what destructors hand over, on a runtime of its own, until none comes any more.
fn send_all(shared: &Arc<ClientShared>, mut from: UnboundedReceiver<LastCommands>, left: Duration) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let Ok(runtime) = runtime else { return };
    let sending = async {
        let mut session = None;
        while let Ok(Some(last)) = tokio::time::timeout(IDLE, from.recv()).await {
            deliver(shared, &mut session, &last.commands).await;
        }
    };
    runtime.block_on(async {
        // At the end of the time, what is not answered ends with its lease.
        let _ = tokio::time::timeout(left, sending).await;
    });
}

/// Sends commands to one member after the other, until one has answered all of them.
async fn deliver(
    shared: &Arc<ClientShared>,
    session: &mut Option<Arc<Session>>,
    commands: &[Command],
) {
    let newest = shared.sessions.borrow().first.as_ref().map(|it| it.address.clone());
    let all = newest.into_iter().chain(shared.settings.addresses.iter().cloned());
    for address in all.collect::<Vec<_>>().iter().cycle() {
        let open = match session.take().filter(|session| !session.is_over()) {
            Some(open) => Some(open),
            None => {
                let weak = Arc::downgrade(shared);
                Session::open(address, shared.hello(), EXIT, &weak).await.ok()
            }
        };
        if let Some(open) = open
            && answers(&open, commands).await
        {
            *session = Some(open);
            return;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Sends commands on a session, and returns whether the cluster has decided all of them.
async fn answers(session: &Session, commands: &[Command]) -> bool {
    let mut sent = Vec::with_capacity(commands.len());
    for command in commands {
        match session.ask(RequestIdentity::Harmless.request(command.clone())) {
            Some(asked) => sent.push(asked),
            None => return false,
        }
    }
    for asked in &mut sent {
        let Response::Answer(answer) = asked.next().await else { return false };
        if let Some(Answer::Error(error)) = answer.result
            && !matches!(Meaning::of(*error), Meaning::No(_))
        {
            return false;
        }
    }
    true
}
