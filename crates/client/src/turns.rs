//! Whose turn is it, among those of one process who want a lock under one lease?

use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;

use crate::lease::Held;

/// The turns of one ask. Mostly it is one.
#[derive(Default)]
pub(crate) struct Turns {
    first: Option<OwnedSemaphorePermit>,
    more: Vec<OwnedSemaphorePermit>,
}

impl Turns {
    pub(crate) fn add(&mut self, turn: OwnedSemaphorePermit) {
        match &self.first {
            None => self.first = Some(turn),
            Some(_) => self.more.push(turn),
        }
    }
}

/// The turn for a single lock, if nobody here has or awaits it.
pub(crate) fn now(held: &Arc<Held>, locks: &[String]) -> Option<Turns> {
    let [only] = locks else { return None };
    let first = held.turn(only).try_acquire_owned().ok()?;
    Some(Turns { first: Some(first), more: Vec::new() })
}

/// Several locks in one order, each once, so that two asks never wait for each other.
pub(crate) fn in_order(locks: &[String]) -> Vec<&str> {
    let mut names: Vec<&str> = locks.iter().map(String::as_str).collect();
    names.sort_unstable();
    names.dedup();
    names
}
