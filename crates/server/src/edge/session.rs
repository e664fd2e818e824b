//! What does one connection's stream of commands need of the edge?

use std::sync::Arc;

use bytes::Bytes;
use tenure_types::Handle;

use super::Edge;
use super::outbox::{Delivery, Key, Mail, Mailbox};
use super::submit::{Batch, Reply};

/// One client's stream of commands, answers and notices. Dropping it ends it; its leases live on.
pub(crate) struct Session {
    edge: Edge,
    key: Key,
    mailbox: Arc<Mailbox>,
}

impl Edge {
    /// Begins a session.
    pub(crate) fn session(&self) -> Session {
        let (key, mailbox) = self.member().outbox().open();
        Session { edge: self.clone(), key, mailbox }
    }
}

impl Session {
    /// Sends commands on their way, in log form. They were admitted. Their answers come in one
    /// [`Mail::Answers`] with the number of the batch, in order.
    pub(crate) fn submit(
        &self,
        batch: u64,
        requests: Vec<Bytes>,
        patience_us: u64,
        deadline_us: u64,
    ) {
        let reply = Reply::Session { session: self.key, batch };
        self.edge.submit(Batch { requests, patience_us, deadline_us, reply });
    }

    /// Wants to hear of these leases too. Those that an answer names are attached by it.
    pub(crate) fn attach(&self, leases: Vec<Handle>) {
        self.edge.member().outbox().send(Delivery::Attach { session: self.key, leases });
    }

    /// Waits for mail and takes all of it. Safe to cancel.
    pub(crate) async fn mail(&self) -> Vec<Mail> {
        self.mailbox.take().await
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.edge.member().outbox().send(Delivery::Close(self.key));
    }
}
