//! How is a ticket that was verified recognised when it comes again?
//!
//! By its whole text. What is asked for stays: there are two generations, and when the young one is full it becomes
//! the old one, whose rest is forgotten.

use std::collections::BTreeMap;
use std::mem;
use std::sync::Arc;

use super::Ticket;

/// Tickets in one generation. Two of them with the longest tickets take some 20 MiB, with usual ones 3 MiB.
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
