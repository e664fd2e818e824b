//! One client's stream of commands, answers and notices, as the APIs use it.

use std::sync::Arc;

use bytes::Bytes;
use tenure_node::{CommandBatch, Input, Permit, ReplyTo, SessionId};
use tenure_types::Handle;

use super::Dispatch;
use super::outbox::{Delivery, Mailbox, MailboxMessage};
use crate::member::LoopEvent;

/// One session. Dropping it ends it; its leases live on.
pub(crate) struct ClientSession {
    dispatch: Dispatch,
    session: SessionId,
    mailbox: Arc<Mailbox>,
}

impl Dispatch {
    /// Begins a session.
    pub(crate) fn session(&self) -> ClientSession {
        let (session, mailbox) = self.member().outbox().open();
        ClientSession { dispatch: self.clone(), session, mailbox }
    }
}

impl ClientSession {
    /// Sends commands on their way, in log form. They were admitted under `permit`. Their answers come in one
    /// [`MailboxMessage::Answers`] with the number of the batch, in order.
    pub(crate) fn submit(
        &self,
        batch: u64,
        requests: Vec<Bytes>,
        patience_us: u64,
        deadline_us: u64,
        permit: Permit,
    ) {
        let member = self.dispatch.member();
        let reply = ReplyTo::Session { session: self.session, batch };
        let asked_at_us = member.now_us();
        let batch = CommandBatch { requests, patience_us, asked_at_us, deadline_us, reply, permit };
        member.try_submit(LoopEvent::Input(Input::Submit(batch)));
    }

    /// Wants to hear of these leases too. Those that an answer names are attached by it.
    pub(crate) fn attach(&self, leases: Vec<Handle>) {
        let session = self.session;
        self.dispatch.member().outbox().send(Delivery::Attach { session, leases });
    }

    /// Waits for mail and takes all of it. Safe to cancel.
    pub(crate) async fn mail(&self) -> Vec<MailboxMessage> {
        self.mailbox.take().await
    }
}

impl Drop for ClientSession {
    fn drop(&mut self) {
        self.dispatch.member().outbox().send(Delivery::Close(self.session));
    }
}
