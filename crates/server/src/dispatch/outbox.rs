//! Carries answers and notices from the event loop to the mailboxes of sessions.
//!
//! The event loop puts deliveries into one outbox, in the order in which the node emits them, and rings its bell once
//! per turn. One task empties the outbox and routes its content ([`tenure_node::Router`]). Only that task knows which
//! session is attached to which lease.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use futures_util::task::AtomicWaker;
use tenure_core::outcome::{Answer, Notice, Outcome};
use tenure_node::{Backlog, NodeFailure, Outcomes, Router, SessionId, SessionMessage, Taken};
use tenure_types::Handle;
use tokio::sync::Notify;

use super::{Caller, Charge};
use crate::member::{LoopEvent, MemberHandle};

/// The bytes that an outcome or a notice counts against the memory budget of its connection.
const MAIL_BYTES: usize = 256;
/// The number of leases that the event loop looks up in one event, so that a sweep does not delay commands.
const SWEEP_PART: usize = 4_096;

/// A message for sessions, or a change of the sessions and what they are attached to.
pub(crate) enum Delivery {
    Answers {
        session: SessionId,
        batch: u64,
        outcomes: Outcomes,
    },
    Notices(Vec<Notice>),
    Open {
        session: SessionId,
        mailbox: Arc<Mailbox>,
    },
    Attach {
        session: SessionId,
        leases: Vec<Handle>,
    },
    Ended(Vec<Handle>),
    Close(SessionId),
    /// Notices were lost: every session ends, and its client reconnects and reads the state.
    CloseAll,
}

impl Delivery {
    /// The number of outcomes and notices in it.
    fn mail(&self) -> usize {
        match self {
            Delivery::Answers { outcomes, .. } => outcomes.len(),
            Delivery::Notices(notices) => notices.len(),
            _ => 0,
        }
    }
}

/// The deliveries that the routing task has not taken yet.
#[derive(Default)]
pub(crate) struct Outbox {
    items: Mutex<Backlog<Delivery>>,
    filled: AtomicBool,
    bell: Notify,
    /// Whether the routing task runs. Until it does, deliveries are dropped.
    attended: AtomicBool,
    newest: AtomicU64,
    /// The number of messages in all mailboxes.
    mail: Arc<AtomicU64>,
}

impl Outbox {
    /// Adds a delivery. The routing task takes it after the next [`Outbox::ring`].
    pub(crate) fn put(&self, delivery: Delivery) {
        if self.attended.load(Ordering::Acquire) {
            let mail = delivery.mail();
            self.items.lock().unwrap_or_else(PoisonError::into_inner).put(delivery, mail);
            self.filled.store(true, Ordering::Release);
        }
    }

    /// Wakes the routing task if a delivery was added.
    pub(crate) fn ring(&self) {
        if self.filled.swap(false, Ordering::AcqRel) {
            self.bell.notify_one();
        }
    }

    /// Adds a delivery and wakes the routing task, for callers outside the event loop's turn.
    pub(crate) fn send(&self, delivery: Delivery) {
        self.put(delivery);
        self.ring();
    }

    /// Opens a session.
    pub(crate) fn open(&self) -> (SessionId, Arc<Mailbox>) {
        let session = SessionId(self.newest.fetch_add(1, Ordering::Relaxed));
        let charge = Caller::present_memory().charge(0);
        let mail = Mutex::new((Vec::new(), charge));
        let (filled, task) = (AtomicBool::new(false), AtomicWaker::new());
        let mailbox = Arc::new(Mailbox { mail, filled, task, all: self.mail.clone() });
        self.send(Delivery::Open { session, mailbox: mailbox.clone() });
        (session, mailbox)
    }

    /// The number of outcomes and notices that wait for the routing task, and of messages in all mailboxes.
    pub(crate) fn waiting(&self) -> (u64, u64) {
        let backlog = self.items.lock().unwrap_or_else(PoisonError::into_inner).mail();
        (backlog as u64, self.mail.load(Ordering::Relaxed))
    }

    /// Declares that a task runs [`route`] from now on.
    pub(crate) fn attend(&self) {
        self.attended.store(true, Ordering::Release);
    }
}

/// The messages that wait for one session, and their charge to the memory budget of its connection. One task takes
/// them: it is polled several times for each request, and only a filled mailbox makes it take the lock.
pub(crate) struct Mailbox {
    mail: Mutex<(Vec<SessionMessage>, Charge)>,
    /// Set with the first message that waits, and unset by the task before it takes them.
    filled: AtomicBool,
    task: AtomicWaker,
    /// The messages in all mailboxes of the member, for the metrics.
    all: Arc<AtomicU64>,
}

impl Drop for Mailbox {
    fn drop(&mut self) {
        let left = self.lock().0.len() as u64;
        self.all.fetch_sub(left, Ordering::Relaxed);
    }
}

impl Mailbox {
    /// Waits for a message and takes all that are there. Safe to cancel.
    pub(crate) async fn take(&self) -> Vec<SessionMessage> {
        std::future::poll_fn(|context| {
            // Before the mark is read: a later message wakes the task.
            self.task.register(context.waker());
            if !self.filled.swap(false, Ordering::AcqRel) {
                return Poll::Pending;
            }
            let mail = self.empty();
            self.all.fetch_sub(mail.len() as u64, Ordering::Relaxed);
            Poll::Ready(mail)
        })
        .await
    }

    fn empty(&self) -> Vec<SessionMessage> {
        let mut box_ = self.lock();
        box_.1.set(0);
        std::mem::take(&mut box_.0)
    }

    /// Adds a message and returns the number of messages that wait.
    fn put(&self, mail: SessionMessage) -> usize {
        let mut box_ = self.lock();
        let bytes = match &mail {
            SessionMessage::Answers { outcomes, .. } => outcomes.iter().map(mail_bytes).sum(),
            SessionMessage::Notice(_) | SessionMessage::Closed => MAIL_BYTES,
        };
        box_.1.add(bytes);
        box_.0.push(mail);
        self.all.fetch_add(1, Ordering::Relaxed);
        let waiting = box_.0.len();
        drop(box_);
        if waiting == 1 {
            self.filled.store(true, Ordering::Release);
            self.task.wake();
        }
        waiting
    }

    fn lock(&self) -> MutexGuard<'_, (Vec<SessionMessage>, Charge)> {
        self.mail.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The bytes that an outcome in a mailbox is charged. The answer to a renewal has a record for each lease.
fn mail_bytes(outcome: &Result<Outcome, NodeFailure>) -> usize {
    match outcome {
        Ok(Outcome { result: Ok(Answer::Renewed(leases)), .. }) => {
            MAIL_BYTES + size_of_val(leases.as_slice())
        }
        _ => MAIL_BYTES,
    }
}

/// Empties the outbox for as long as the member runs.
pub(crate) async fn route(outbox: Arc<Outbox>, member: MemberHandle) {
    let mut sessions = OpenSessions::default();
    loop {
        outbox.bell.notified().await;
        let taken = outbox.items.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Taken { items, lost } = taken;
        for item in items {
            sessions.deliver(item);
        }
        if lost {
            tracing::warn!(
                "answers and notices were dropped because none were taken for long; every session ends"
            );
            sessions.deliver(Delivery::CloseAll);
        }
        sessions.sweep(&member, &outbox);
        if member.over().is() {
            return sessions.deliver(Delivery::CloseAll);
        }
    }
}

/// The open sessions of a member.
#[derive(Default)]
struct OpenSessions {
    router: Router,
    mailboxes: BTreeMap<SessionId, Arc<Mailbox>>,
}

impl OpenSessions {
    fn deliver(&mut self, item: Delivery) {
        let Self { router, mailboxes } = self;
        let mut put = |session: SessionId, mail: SessionMessage| match mail {
            SessionMessage::Closed => mailboxes.remove(&session).map_or(0, |it| it.put(mail)),
            _ => mailboxes.get(&session).map_or(0, |it| it.put(mail)),
        };
        match item {
            Delivery::Answers { session, batch, outcomes } => {
                router.answer(session, batch, outcomes, &mut put);
            }
            Delivery::Notices(notices) => {
                notices.into_iter().for_each(|notice| router.notify(notice, &mut put));
            }
            Delivery::Open { session, mailbox } => {
                router.open(session);
                mailboxes.insert(session, mailbox);
            }
            Delivery::Attach { session, leases } => {
                leases.into_iter().for_each(|lease| router.attach(session, lease));
            }
            Delivery::Ended(leases) => leases.iter().for_each(|lease| router.forget(*lease)),
            Delivery::Close(session) => {
                router.close(session);
                mailboxes.remove(&session);
            }
            Delivery::CloseAll => router.close_all(&mut put),
        }
    }

    /// Asks the event loop which leases have ended. If its inbox is full, the next sweep asks again.
    fn sweep(&mut self, member: &MemberHandle, outbox: &Arc<Outbox>) {
        for part in self.router.sweep().unwrap_or_default().chunks(SWEEP_PART) {
            let (part, outbox) = (part.to_vec(), outbox.clone());
            let _ = member.try_tell(LoopEvent::inspect(move |node| {
                outbox.put(Delivery::Ended(Router::gone(node.machine(), part)));
            }));
        }
    }
}
