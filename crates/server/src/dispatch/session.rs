//! Gives the APIs one client's stream of commands, answers and notices.

use std::sync::Arc;

use bytes::Bytes;
use tenure_node::{CommandBatch, Input, Permit, ReplyTo, SessionId, SessionMessage};
use tenure_types::{Handle, Quota};

use super::outbox::{Delivery, Mailbox};
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

    /// Opens a session of the present caller, if its quota allows one more.
    pub(crate) fn session_of_client(&self) -> Result<ClientSession, Failure> {
        let count = Caller::count(self.member().identity(), Quota::Sessions)?;
        Ok(self.open_session(count))
    }
}

impl ClientSession {
    /// Where the answers of a batch with this number go.
    pub(crate) fn reply_to(&self, batch: u64) -> ReplyTo {
        ReplyTo::Session { session: self.session, batch }
    }

    /// Submits admitted commands. Their answers arrive in order, in one [`SessionMessage::Answers`] with the number of
    /// the batch.
    pub(crate) fn submit(&self, batch: u64, commands: CommandBatch<()>) {
        let commands = Box::new(commands.reply_to(self.reply_to(batch)));
        self.dispatch.member().try_submit(LoopEvent::Input(Input::Submit(commands)));
    }

    /// Submits one command, in its log encoding, that does not wait for others.
    pub(crate) fn submit_one(&self, batch: u64, request: Bytes, deadline_us: u64, permit: Permit) {
        let (requests, asked_at_us) = ([request].into(), self.dispatch.now_us());
        let (linger_us, reply) = (0, ());
        let one = CommandBatch { requests, linger_us, asked_at_us, deadline_us, reply, permit };
        self.submit(batch, one);
    }

    /// Subscribes the session to notices of these leases, which its principal must see. An answer that names a lease
    /// attaches that lease by itself.
    pub(crate) fn attach(&self, leases: Vec<Handle>) {
        let session = self.session;
        self.dispatch.member().outbox().send(Delivery::Attach { session, leases });
    }

    /// Waits for a message and takes all that are there. Safe to cancel.
    pub(crate) async fn mail(&self) -> Vec<SessionMessage> {
        self.mailbox.take().await
    }
}

impl Drop for ClientSession {
    fn drop(&mut self) {
        self.dispatch.member().outbox().send(Delivery::Close(self.session));
    }
}
