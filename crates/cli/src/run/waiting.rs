//! Keeps what the cluster said about a lock to a client that waits for it.

use serde_json::{Value, json};
use tenure_wire::v1::ExplainResponse as Explanation;

use crate::output;
use crate::waiting;

/// The state of a waiting request.
#[derive(Clone, Debug)]
pub(super) struct QueueView {
    /// The lock that has to become free; of a choice, the first of those that are explained.
    lock: String,
    ahead: u64,
    told: Explanation,
    choice: Option<Choice>,
}

/// Several locks of which one is enough.
#[derive(Clone, Debug)]
struct Choice {
    /// What is waited for, in words.
    what: String,
    /// How many locks there are.
    all: usize,
    /// The first of them that are held, with their explanations.
    told: Vec<(String, Explanation)>,
    /// The command that shows all of them.
    look: String,
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
        Self { lock: lock.to_owned(), ahead, told, choice: None }
    }

    /// Builds the view of a request for any of `all` locks, from the explanations of some; `None` if there are none.
    pub(super) fn of_choice(
        (what, look): (String, String),
        (ahead, all): (u64, usize),
        told: Vec<(String, Explanation)>,
    ) -> Option<Self> {
        let (lock, first) = told.first().cloned()?;
        Some(Self { lock, ahead, told: first, choice: Some(Choice { what, all, told, look }) })
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
    pub(super) fn key(&self) -> (u64, Vec<u64>, Option<i64>) {
        let token = |told: &Explanation| waiting::holder(told).map(|it| it.token);
        let tokens = match &self.choice {
            Some(choice) => choice.told.iter().filter_map(|(_, told)| token(told)).collect(),
            None => token(&self.told).into_iter().collect(),
        };
        (self.ahead, tokens, waiting::drained_at(&self.told))
    }

    /// The wait in one line, for a log.
    pub(super) fn line(&self) -> String {
        match &self.choice {
            Some(choice) => {
                waiting::line_about(&waiting::headline(&choice.what, self.ahead), &self.told)
            }
            None => waiting::line(&self.lock, self.ahead, &self.told),
        }
    }

    /// The lines that show the wait.
    pub(super) fn lines(&self) -> Vec<String> {
        match &self.choice {
            Some(choice) => {
                waiting::block_of(waiting::headline(&choice.what, self.ahead), self.facts())
            }
            None => waiting::block(&self.lock, self.ahead, &self.told),
        }
    }

    /// Who holds the lock, who is ahead, and when the lock can become free.
    pub(super) fn facts(&self) -> Vec<(&'static str, String)> {
        match &self.choice {
            Some(Choice { all, told, look, .. }) => waiting::facts_of_choice(told, *all, look),
            None => waiting::facts(&self.lock, &self.told),
        }
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
