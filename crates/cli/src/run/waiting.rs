//! Keeps what the cluster said about a lock to a client that waits for it.

use serde_json::{Value, json};
use tenure_wire::v1::ExplainResponse as Explanation;

use crate::output;
use crate::waiting;

/// The state of a waiting request.
#[derive(Clone, Debug)]
pub(super) struct QueueView {
    lock: String,
    ahead: u64,
    told: Explanation,
}

impl QueueView {
    /// Builds the view for the client `own` from the cluster's explanation of the lock.
    pub(super) fn new(lock: &str, own: &str, ahead: u64, mut told: Explanation) -> Self {
        // The explanation was requested without a place, so it lists the whole queue: cut it before this client.
        let at = told.ahead.iter().position(|it| it.client == own);
        if let Some(at) = at {
            told.ahead.truncate(at);
        }
        let ahead = at.map_or(ahead, |at| u64::try_from(at).unwrap_or(u64::MAX));
        Self { lock: lock.to_owned(), ahead, told }
    }

    /// The lock that the client waits for.
    pub(super) fn lock(&self) -> &str {
        &self.lock
    }

    /// The name of the client that holds it.
    pub(super) fn holder(&self) -> Option<String> {
        waiting::holder(&self.told).map(|it| output::clean(&it.client))
    }

    /// The values of which one has to change before a log gets another line.
    pub(super) fn key(&self) -> (u64, Option<u64>, Option<i64>) {
        let token = waiting::holder(&self.told).map(|it| it.token);
        (self.ahead, token, waiting::drained_at(&self.told))
    }

    /// The wait in one line, for a log.
    pub(super) fn line(&self) -> String {
        waiting::line(&self.lock, self.ahead, &self.told)
    }

    /// The lines that show the wait.
    pub(super) fn lines(&self) -> Vec<String> {
        waiting::block(&self.lock, self.ahead, &self.told)
    }

    /// Who holds the lock, who is ahead, and when the lock can become free.
    pub(super) fn facts(&self) -> Vec<(&'static str, String)> {
        waiting::facts(&self.lock, &self.told)
    }

    pub(super) fn event(&self) -> Value {
        let revision = self.told.header.as_ref().map_or(0, |it| it.revision).to_string();
        let holder = waiting::holder_json(&self.told);
        let mut event = json!({ "revision": revision, "ahead": self.ahead, "holder": holder });
        if let Some(quiet_ms) = self.told.quiet_ms {
            event["quiet_ms"] = quiet_ms.into();
        }
        if let Some(drain) = &self.told.drained {
            event["drained"] = waiting::drain_json(drain);
        }
        event
    }
}
