//! Caches verified tickets, so that a repeated one is recognised by its whole text.
//!
//! Tickets in use stay: there are two generations. When the young one is full it becomes the old one, and the previous
//! old one is dropped.

use std::collections::BTreeMap;
use std::mem;
use std::sync::Arc;

use super::Ticket;

/// The number of tickets in one generation. Two generations of the longest tickets take some 20 MiB, of usual ones 3
/// MiB.
const GENERATION: usize = 2_048;

#[derive(Default)]
pub(super) struct Cache {
    young: BTreeMap<Box<str>, Arc<Ticket>>,
    old: BTreeMap<Box<str>, Arc<Ticket>>,
}

impl Cache {
    pub(super) fn get(&mut self, text: &str) -> Option<Arc<Ticket>> {
        if let Some(ticket) = self.young.get(text) {
            return Some(Arc::clone(ticket));
        }
        let (text, ticket) = self.old.remove_entry(text)?;
        self.insert(text, Arc::clone(&ticket));
        Some(ticket)
    }

    pub(super) fn insert(&mut self, text: Box<str>, ticket: Arc<Ticket>) {
        if self.young.len() >= GENERATION {
            self.old = mem::take(&mut self.young);
        }
        self.young.insert(text, ticket);
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }

    #[cfg(test)]
    pub(super) const MAX: usize = 2 * GENERATION;
}
