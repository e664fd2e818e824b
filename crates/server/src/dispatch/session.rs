//! Gives the APIs one client's stream of commands, answers and notices.

use std::sync::Arc;

use bytes::Bytes;
use tenure_node::{CommandBatch, Input, Permit, ReplyTo, SessionId};
use tenure_types::{Handle, Quota};

use super::outbox::{Delivery, Mailbox, MailboxMessage};
use super::quota::QuotaCount;
use super::{Caller, Dispatch, Failure};
use crate::member::LoopEvent;

/// One session. Dropping it ends the session; the leases that it is attached to live on.
pub(crate) struct ClientSession {
    dispatch: Dispatch,
    session: SessionId,
    mailbox: Arc<Mailbox>,
    _count: Option<QuotaCount>,
}

impl Dispatch {
    /// Opens a session that no client sees.
    pub(crate) fn session(&self) -> ClientSession {
        self.open_session(None)
    }

    fn open_session(&self, count: Option<QuotaCount>) -> ClientSession {
        let (session, mailbox) = self.member().outbox().open();
        ClientSession { dispatch: self.clone(), session, mailbox, _count: count }
    }

    /// Subscribes a session to notices of these leases, which its principal must see.
    pub(crate) fn attach(&self, session: SessionId, leases: Vec<Handle>) {
        self.member().outbox().send(Delivery::Attach { session, leases });
    }

    /// Opens a session of the present caller, if its quota allows one more.
    pub(crate) fn session_of_client(&self) -> Result<ClientSession, Failure> {
        let count = Caller::count(self.member().identity(), Quota::Sessions)?;
        Ok(self.open_session(count))
    }
}

impl ClientSession {
    pub(crate) fn id(&self) -> SessionId {
        self.session
    }

    /// Where the answers of a batch with this number go.
    pub(crate) fn reply_to(&self, batch: u64) -> ReplyTo {
        ReplyTo::Session { session: self.session, batch }
    }

    /// Submits commands in their log encoding, which were admitted under `permit`. Their answers arrive in order, in
    /// one [`MailboxMessage::Answers`] with the number of the batch.
    pub(crate) fn submit(
        &self,
        batch: u64,
        requests: Vec<Bytes>,
        linger_us: u64,
        deadline_us: u64,
        permit: Permit,
    ) {
        let member = self.dispatch.member();
        let reply = self.reply_to(batch);
        let asked_at_us = member.now_us();
        let batch = CommandBatch { requests, linger_us, asked_at_us, deadline_us, reply, permit };
        member.try_submit(LoopEvent::Input(Input::Submit(batch)));
    }

    /// Subscribes the session to notices of these leases. An answer that names a lease attaches that lease by itself.
    pub(crate) fn attach(&self, leases: Vec<Handle>) {
        self.dispatch.attach(self.session, leases);
    }

    /// Waits for a message and takes all that are there. Safe to cancel.
    pub(crate) async fn mail(&self) -> Vec<MailboxMessage> {
        self.mailbox.take().await
    }
}

impl Drop for ClientSession {
    fn drop(&mut self) {
        self.dispatch.member().outbox().send(Delivery::Close(self.session));
    }
}
