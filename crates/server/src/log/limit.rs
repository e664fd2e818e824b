//! Limits how often other processes can cause the same log line.
//!
//! A member that dials every second, or a client that is refused a thousand times per second, causes a few lines per
//! window; the next line contains the number of suppressed ones.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use crate::os;

/// How long a line with the same subject and the same cause is suppressed.
const WINDOW_US: u64 = 10_000_000;
/// The most causes that are logged for one subject in one window. There are a handful, but a peer can invent some.
const CAUSES_MAX: usize = 4;
/// The most lines in one window, for all subjects together: a peer can have many addresses.
const LINES_MAX: usize = 100;
/// The most subjects that are remembered; beyond that the oldest is forgotten.
const SUBJECTS_MAX: usize = 1_000;

/// Decides which lines about other processes are logged.
#[derive(Default)]
pub(crate) struct Limiter(Mutex<LimiterState>);

#[derive(Default)]
struct LimiterState {
    subjects: BTreeMap<(&'static str, String), LineSubject>,
    began_us: u64,
    lines: usize,
    /// Suppressed lines about subjects that are forgotten.
    forgotten: u64,
}

#[derive(Default)]
struct LineSubject {
    began_us: u64,
    causes: Vec<String>,
    suppressed: u64,
}

/// A line that may be logged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Pass {
    /// The number of similar lines suppressed since the last one, if any. A field of the line.
    pub(crate) suppressed: Option<u64>,
}

impl Limiter {
    /// Whether to log `message` about `subject` (a member or an address) because of `cause` now.
    pub(crate) fn pass(
        &self,
        message: &'static str,
        subject: impl ToString,
        cause: &str,
    ) -> Option<Pass> {
        self.pass_at(os::now_us(), (message, subject.to_string()), cause)
    }

    fn pass_at(&self, now_us: u64, key: (&'static str, String), cause: &str) -> Option<Pass> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_over = |began_us: u64| now_us.saturating_sub(began_us) >= WINDOW_US;
        if is_over(state.began_us) {
            (state.began_us, state.lines) = (now_us, 0);
        }
        if !state.subjects.contains_key(&key) {
            state.make_room();
            let new = LineSubject { began_us: now_us, ..LineSubject::default() };
            state.subjects.insert(key.clone(), new);
        }
        let LimiterState { subjects, lines, forgotten, .. } = &mut *state;
        let subject = subjects.get_mut(&key)?;
        if is_over(subject.began_us) {
            subject.began_us = now_us;
            subject.causes.clear();
        }
        let known = subject.causes.iter().any(|it| it == cause);
        if known || subject.causes.len() >= CAUSES_MAX || *lines >= LINES_MAX {
            subject.suppressed += 1;
            return None;
        }
        subject.causes.push(cause.to_owned());
        *lines += 1;
        let left_out = std::mem::take(&mut subject.suppressed) + std::mem::take(forgotten);
        Some(Pass { suppressed: Some(left_out).filter(|lines| *lines > 0) })
    }
}

impl LimiterState {
    fn make_room(&mut self) {
        if self.subjects.len() < SUBJECTS_MAX {
            return;
        }
        let oldest = self.subjects.iter().min_by_key(|(_, subject)| subject.began_us);
        if let Some(key) = oldest.map(|(key, _)| key.clone())
            && let Some(subject) = self.subjects.remove(&key)
        {
            self.forgotten += subject.suppressed;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_US: u64 = 1_000_000_000;

    fn ask(limiter: &Limiter, now_us: u64, subject: &str, cause: &str) -> Option<Option<u64>> {
        limiter.pass_at(now_us, ("refused", subject.to_owned()), cause).map(|it| it.suppressed)
    }

    #[test]
    fn a_cause_is_logged_once_per_window_with_what_was_left_out() {
        let limiter = Limiter::default();
        assert_eq!(ask(&limiter, NOW_US, "a", "x"), Some(None));
        assert_eq!(ask(&limiter, NOW_US + WINDOW_US - 1, "a", "x"), None);
        assert_eq!(ask(&limiter, NOW_US + WINDOW_US - 1, "a", "y"), Some(Some(1)));
        assert_eq!(ask(&limiter, NOW_US + WINDOW_US - 1, "b", "x"), Some(None));
        assert_eq!(ask(&limiter, NOW_US + WINDOW_US, "a", "x"), Some(None));
    }

    #[test]
    fn causes_that_a_peer_invents_do_not_fill_the_log() {
        let limiter = Limiter::default();
        let logged = (0..1_000).filter(|at| ask(&limiter, NOW_US, "a", &at.to_string()).is_some());
        assert_eq!(logged.count(), CAUSES_MAX);
        let next = ask(&limiter, NOW_US + WINDOW_US, "a", "x");
        assert_eq!(next, Some(Some(1_000 - CAUSES_MAX as u64)));
    }

    #[test]
    fn subjects_that_a_peer_invents_fill_neither_the_log_nor_the_memory() {
        let limiter = Limiter::default();
        let count = 10 * SUBJECTS_MAX;
        let logged = (0..count).filter(|at| ask(&limiter, NOW_US, &at.to_string(), "x").is_some());
        assert_eq!(logged.count(), LINES_MAX);
        assert_eq!(limiter.0.lock().unwrap().subjects.len(), SUBJECTS_MAX);
        // A line about another subject is still logged once the window is over.
        assert!(matches!(ask(&limiter, NOW_US + WINDOW_US, "new", "x"), Some(Some(_))));
    }
}
