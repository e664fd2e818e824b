//! What was complained about already?

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use crate::say;

/// Complaints remembered; beyond that nothing new is said.
const SAID_MAX: usize = 1_000;

/// Says each complaint once: whoever tries again every second does not fill the log.
#[derive(Default)]
pub(crate) struct Said(Mutex<BTreeSet<String>>);

impl Said {
    pub(crate) fn once(&self, message: &str, who: say::Pair<'_>, why: &str) {
        let mut said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if said.len() < SAID_MAX && said.insert(format!("{message} {} {why}", who.1)) {
            say::warn(message, &[who, ("why", &why)]);
        }
    }
}
