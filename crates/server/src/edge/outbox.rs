//! How does what the loop has for sessions reach them?
//!
//! The loop and the links put deliveries into one box, in the order in which things became true, and
//! ring once per turn. One task empties the box and spreads its content: it alone knows which session
//! wants to hear of which lease. So a lease is attached by the very answer that names it, before any
//! later notice can come.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tenure_core::outcome::{Acquired, Answer, Notice, Outcome, Queued};
use tenure_core::request::LeaseRef;
use tenure_types::Handle;
use tokio::sync::Notify;

use crate::member::{Event, Member, Undone};

/// How much of a reason is told with a loss, in bytes; all of it is in the history. Thousands may be told at once.
const REASON_MAX: usize = 256;
/// A session that has more than this waiting to be taken is not reading, and is closed.
const MAIL_MAX: usize = 65_536;
/// Routes are swept of leases that have ended when so many were added since the last time, at least.
const SWEEP_MIN: usize = 1_024;
/// Leases looked at on the loop in one go.
const SWEEP_PART: usize = 4_096;

/// Which session.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Key(u64);

/// What became of the commands of one batch, in order.
pub(crate) type Fates = Vec<Result<Outcome, Undone>>;

/// Something for a session, or about which session wants what.
pub(crate) enum Delivery {
    Answers { session: Key, batch: u64, fates: Fates },
    Notices(Vec<Notice>),
    Open { session: Key, mailbox: Arc<Mailbox> },
    Attach { session: Key, leases: Vec<Handle> },
    Ended(Vec<Handle>),
    Close(Key),
}

/// What a session finds in its mailbox.
pub(crate) enum Mail {
    Answers {
        batch: u64,
        fates: Fates,
    },
    Notice(Notice),
    /// It did not read, or the member ends. Nothing follows.
    Closed,
}

/// Deliveries on their way.
#[derive(Default)]
pub(crate) struct Outbox {
    items: Mutex<Vec<Delivery>>,
    filled: AtomicBool,
    bell: Notify,
    /// Whether anybody empties it.
    attended: AtomicBool,
    newest: AtomicU64,
}

impl Outbox {
    /// Adds a delivery; it leaves when the bell is rung.
    pub(crate) fn put(&self, delivery: Delivery) {
        if self.attended.load(Ordering::Acquire) {
            self.items.lock().unwrap_or_else(PoisonError::into_inner).push(delivery);
            self.filled.store(true, Ordering::Release);
        }
    }

    /// Lets go what was put in.
    pub(crate) fn ring(&self) {
        if self.filled.swap(false, Ordering::AcqRel) {
            self.bell.notify_one();
        }
    }

    /// Adds a delivery that cannot wait for the end of a turn.
    pub(crate) fn send(&self, delivery: Delivery) {
        self.put(delivery);
        self.ring();
    }

    /// Begins a session.
    pub(crate) fn open(&self) -> (Key, Arc<Mailbox>) {
        let session = Key(self.newest.fetch_add(1, Ordering::Relaxed));
        let mailbox = Arc::new(Mailbox::default());
        self.send(Delivery::Open { session, mailbox: mailbox.clone() });
        (session, mailbox)
    }

    /// From now on somebody runs [`spread`].
    pub(crate) fn attend(&self) {
        self.attended.store(true, Ordering::Release);
    }
}

/// Where one session finds what is for it.
#[derive(Default)]
pub(crate) struct Mailbox {
    mail: Mutex<Vec<Mail>>,
    bell: Notify,
}

impl Mailbox {
    /// Waits until there is something and takes all of it. Safe to cancel.
    pub(crate) async fn take(&self) -> Vec<Mail> {
        loop {
            let mail = std::mem::take(&mut *self.lock());
            if !mail.is_empty() {
                return mail;
            }
            self.bell.notified().await;
        }
    }

    /// Adds mail; tells how much waits.
    fn put(&self, mail: Mail) -> usize {
        let mut box_ = self.lock();
        box_.push(mail);
        let waiting = box_.len();
        drop(box_);
        if waiting == 1 {
            self.bell.notify_one();
        }
        waiting
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Mail>> {
        self.mail.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Leaves of a long reason what a message of thousands has room for.
fn shorten(notice: &mut Notice) {
    let (Notice::Lost { word: Some(word), .. } | Notice::LeaseEnded { word: Some(word), .. }) =
        notice
    else {
        return;
    };
    if let Some(reason) = &mut word.reason
        && reason.len() > REASON_MAX
    {
        let most = REASON_MAX - "…".len();
        let end = (0..=most).rev().find(|at| reason.is_char_boundary(*at)).unwrap_or(0);
        *reason = format!("{}…", &reason[..end]).into();
    }
}

/// Empties the outbox for as long as the member runs.
pub(crate) async fn spread(outbox: Arc<Outbox>, member: Member) {
    let mut routes = Routes::default();
    loop {
        outbox.bell.notified().await;
        let items =
            std::mem::take(&mut *outbox.items.lock().unwrap_or_else(PoisonError::into_inner));
        for item in items {
            routes.deliver(item);
        }
        routes.sweep(&member, &outbox);
        if member.over().is() {
            return routes.close();
        }
    }
}

/// Which session wants to hear of which lease.
#[derive(Default)]
struct Routes {
    sessions: BTreeMap<Key, Reader>,
    leases: BTreeMap<Handle, Vec<Key>>,
    added: usize,
}

struct Reader {
    mailbox: Arc<Mailbox>,
    leases: BTreeSet<Handle>,
}

impl Routes {
    fn deliver(&mut self, item: Delivery) {
        match item {
            Delivery::Answers { session, batch, fates } => {
                for fate in &fates {
                    if let Some(lease) = lease_of(fate) {
                        self.attach(session, lease);
                    }
                }
                self.put(session, Mail::Answers { batch, fates });
            }
            Delivery::Notices(notices) => notices.into_iter().for_each(|it| self.notify(it)),
            Delivery::Open { session, mailbox } => {
                self.sessions.insert(session, Reader { mailbox, leases: BTreeSet::new() });
            }
            Delivery::Attach { session, leases } => {
                leases.into_iter().for_each(|lease| self.attach(session, lease));
            }
            Delivery::Ended(leases) => leases.iter().for_each(|lease| self.forget(*lease)),
            Delivery::Close(session) => self.remove(session),
        }
    }

    fn attach(&mut self, session: Key, lease: Handle) {
        let Some(reader) = self.sessions.get_mut(&session) else { return };
        let listening = self.leases.entry(lease).or_default();
        if !listening.contains(&session) {
            listening.push(session);
            reader.leases.insert(lease);
            self.added += 1;
        }
    }

    fn notify(&mut self, mut notice: Notice) {
        shorten(&mut notice);
        let (lease, last) = match &notice {
            Notice::Granted { lease, .. }
            | Notice::Lost { lease, .. }
            | Notice::WaitEnded { lease, .. } => (*lease, false),
            Notice::LeaseEnded { lease, .. } => (*lease, true),
        };
        let Some(listening) = self.leases.get(&lease) else { return };
        match &listening[..] {
            [one] => self.put(*one, Mail::Notice(notice)),
            several => {
                let several = several.to_vec();
                several.iter().for_each(|to| self.put(*to, Mail::Notice(notice.clone())));
            }
        }
        if last {
            self.forget(lease);
        }
    }

    fn put(&mut self, session: Key, mail: Mail) {
        let Some(reader) = self.sessions.get(&session) else { return };
        if reader.mailbox.put(mail) > MAIL_MAX {
            reader.mailbox.put(Mail::Closed);
            self.remove(session);
        }
    }

    fn remove(&mut self, session: Key) {
        let Some(reader) = self.sessions.remove(&session) else { return };
        for lease in reader.leases {
            if let Some(listening) = self.leases.get_mut(&lease) {
                listening.retain(|other| *other != session);
                if listening.is_empty() {
                    self.leases.remove(&lease);
                }
            }
        }
    }

    fn forget(&mut self, lease: Handle) {
        for session in self.leases.remove(&lease).into_iter().flatten() {
            if let Some(reader) = self.sessions.get_mut(&session) {
                reader.leases.remove(&lease);
            }
        }
    }

    /// Leases that their own clients revoke end without a notice: asks the loop which are gone.
    fn sweep(&mut self, member: &Member, outbox: &Arc<Outbox>) {
        if self.added < SWEEP_MIN.max(self.leases.len() / 2) {
            return;
        }
        self.added = 0;
        let all: Vec<Handle> = self.leases.keys().copied().collect();
        for part in all.chunks(SWEEP_PART) {
            let (part, outbox) = (part.to_vec(), outbox.clone());
            // If the loop has no time for it now, the next sweep will do.
            let _ = member.try_tell(Event::Look(Box::new(move |replica| {
                let machine = replica.machine();
                let gone = |lease: &Handle| !machine.has_lease(LeaseRef::Handle(*lease));
                outbox.put(Delivery::Ended(part.into_iter().filter(gone).collect()));
            })));
        }
    }

    fn close(self) {
        for reader in self.sessions.into_values() {
            reader.mailbox.put(Mail::Closed);
        }
    }
}

fn lease_of(fate: &Result<Outcome, Undone>) -> Option<Handle> {
    match fate.as_ref().ok()?.result.as_ref().ok()? {
        Answer::LeaseGranted(lease)
        | Answer::Acquired(Acquired { lease, .. })
        | Answer::Queued(Queued { lease, .. }) => Some(lease.handle),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use tenure_core::event::Cause;
    use tenure_core::outcome::Word;
    use tenure_types::Revision;

    use super::*;

    #[test]
    fn a_long_reason_is_told_in_part() {
        let lost = |reason: &str| {
            let word = Some(Box::new(Word { by: None, reason: Some(reason.into()) }));
            let lease = Handle { slot: 1, generation: 1 };
            let mut notice =
                Notice::LeaseEnded { lease, revision: Revision(1), cause: Cause::Revoked, word };
            shorten(&mut notice);
            let Notice::LeaseEnded { word: Some(word), .. } = notice else { unreachable!() };
            word.reason.unwrap().into_string()
        };
        assert_eq!(lost("stuck"), "stuck");
        let told = lost(&"é".repeat(4_000));
        assert!(told.len() <= REASON_MAX && told.ends_with("é…"), "{told}");
    }
}
