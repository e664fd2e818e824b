//! Bounds what the event loop leaves for the router of a member.
//!
//! The router runs on a thread of its own. If it stands still, answers and notices pile up behind it, while the loop
//! goes on: an answered command is in flight no more, so the budget for commands does not bound its answer. When too
//! much waits, the answers and notices are dropped and every session ends. Its client comes back and asks what became
//! of its asks, as it does when a snapshot has jumped over notices.

/// How many outcomes and notices wait for the router of a shipping member, at most. One turn leaves far fewer; a router
/// that is this far behind does not run.
pub const BACKLOG_MAX: usize = 262_144;

/// Deliveries that wait for the router, in order.
#[derive(Debug)]
pub struct Backlog<T> {
    items: Vec<(T, usize)>,
    /// Outcomes and notices in them.
    mail: usize,
    max: usize,
    lost: bool,
}

/// What a router finds in its backlog.
#[derive(Debug, PartialEq, Eq)]
pub struct Taken<T> {
    /// The deliveries, in order.
    pub items: Vec<T>,
    /// Whether answers or notices were dropped. Every session must end after the deliveries, those that they open too.
    pub lost: bool,
}

impl<T> Default for Backlog<T> {
    fn default() -> Self {
        Self::new(BACKLOG_MAX)
    }
}

impl<T> Backlog<T> {
    /// A backlog of at most so many outcomes and notices.
    pub fn new(max: usize) -> Self {
        Self { items: Vec::new(), mail: 0, max, lost: false }
    }

    /// Adds a delivery with so many outcomes or notices: none if it says which session wants what. Those are kept in
    /// any case: connections bound them.
    pub fn put(&mut self, item: T, mail: usize) {
        if mail > 0 && (self.lost || self.mail.saturating_add(mail) > self.max) {
            self.lost = true;
            self.mail = 0;
            self.items.retain(|(_, mail)| *mail == 0);
            return;
        }
        self.mail += mail;
        self.items.push((item, mail));
    }

    /// Takes everything.
    pub fn take(&mut self) -> Taken<T> {
        self.mail = 0;
        let items = std::mem::take(&mut self.items).into_iter().map(|(item, _)| item).collect();
        Taken { items, lost: std::mem::take(&mut self.lost) }
    }

    /// Whether there is nothing to take.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty() && !self.lost
    }

    /// Outcomes and notices that wait.
    pub fn mail(&self) -> usize {
        self.mail
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backlog_that_is_full_drops_its_mail_and_keeps_who_wants_what() {
        let mut backlog = Backlog::new(3);
        backlog.put("open", 0);
        backlog.put("answer", 2);
        backlog.put("notice", 1);
        assert_eq!(backlog.mail(), 3);
        backlog.put("attach", 0);
        assert_eq!(backlog.mail(), 3, "what is no mail always fits");
        backlog.put("notice", 1);
        backlog.put("notice", 1);
        backlog.put("close", 0);
        assert_eq!(
            backlog.mail(),
            0,
            "after a loss mail is dropped until the router has taken note"
        );
        let items = vec!["open", "attach", "close"];
        assert_eq!(backlog.take(), Taken { items, lost: true });
        assert!(backlog.is_empty());
        backlog.put("answer", 3);
        assert_eq!(backlog.take(), Taken { items: vec!["answer"], lost: false });
    }

    #[test]
    fn a_loss_alone_is_something_to_take() {
        let mut backlog = Backlog::new(1);
        backlog.put("answer", 2);
        assert!(!backlog.is_empty());
        assert_eq!(backlog.take(), Taken { items: vec![], lost: true });
    }
}
