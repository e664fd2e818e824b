//! Throttles failed authentication of an address.
//!
//! While an address has presented too many different wrong credentials, the member refuses its credentials without a
//! check: a check of a token takes far longer than a refusal. Credentials that were right from this address are checked
//! all the same, so clients that work are not shut out by another one behind the same address. A client that repeats
//! one wrong key guesses nothing, and counts once; it is checked a bounded number of times in a second.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure_node::RateLimit;
use tenure_wire::Failure;

use crate::os;

/// How many different wrong credentials an address may present in a second.
const FAILURES_PER_SECOND: u64 = 20;
/// How often an address may present wrong credentials again in a second, before these are refused without a check.
const REPEATS_PER_SECOND: u64 = 200;
/// How long its credentials are refused then.
const REFUSED: Duration = Duration::from_secs(1);
/// The most credentials that are remembered as right, and as wrong, for each address.
const KNOWN_MAX: usize = 64;

/// What stands for credentials. Nothing can be learnt from it about them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Fingerprint(u64);

impl Fingerprint {
    pub(crate) fn of(authorization: &[u8]) -> Self {
        static SEED: LazyLock<RandomState> = LazyLock::new(RandomState::new);
        Self(SEED.hash_one(authorization))
    }
}

/// The failed authentication of one address.
#[derive(Default, Debug)]
pub(crate) struct AuthThrottle {
    failures: RateLimit,
    repeats: RateLimit,
    refused_until_us: AtomicU64,
    seen: Mutex<SeenCredentials>,
}

/// Credentials that were checked lately, the newest last.
#[derive(Default, Debug)]
struct SeenCredentials {
    right: VecDeque<Fingerprint>,
    wrong: VecDeque<Fingerprint>,
}

/// Remembers credentials; returns whether they are new.
fn remember(in_order: &mut VecDeque<Fingerprint>, credentials: Fingerprint) -> bool {
    if in_order.contains(&credentials) {
        return false;
    }
    if in_order.len() >= KNOWN_MAX {
        in_order.pop_front();
    }
    in_order.push_back(credentials);
    true
}

impl AuthThrottle {
    /// Refuses credentials that are not to be checked now.
    pub(crate) fn check(&self, now_us: u64, credentials: Fingerprint) -> Result<(), Failure> {
        let left_us = self.refused_until_us.load(Ordering::Relaxed).saturating_sub(now_us);
        let (is_right, is_wrong) = {
            let seen = self.seen();
            (seen.right.contains(&credentials), seen.wrong.contains(&credentials))
        };
        if is_right {
            return Ok(());
        }
        if left_us == 0 {
            // They may have become right since.
            let repeats = || self.repeats.take(now_us, REPEATS_PER_SECOND);
            return match is_wrong.then(repeats) {
                Some(Err(_)) => {
                    Err(Failure::Overloaded { retry_after_ms: 500 + os::random() % 500 })
                }
                Some(Ok(_)) | None => Ok(()),
            };
        }
        let retry_after_ms = left_us.div_ceil(1_000) + os::random() % 500;
        Err(Failure::Overloaded { retry_after_ms })
    }

    /// Counts wrong credentials.
    pub(crate) fn failed(&self, now_us: u64, credentials: Fingerprint) {
        let is_new = {
            let mut seen = self.seen();
            // A revoked key was right.
            seen.right.retain(|right| *right != credentials);
            remember(&mut seen.wrong, credentials)
        };
        if is_new && self.failures.take(now_us, FAILURES_PER_SECOND).is_err() {
            self.refused_until_us.fetch_max(now_us + os::micros(REFUSED), Ordering::Relaxed);
        }
    }

    /// Remembers right credentials.
    pub(crate) fn succeeded(&self, credentials: Fingerprint) {
        let mut seen = self.seen();
        seen.wrong.retain(|wrong| *wrong != credentials);
        remember(&mut seen.right, credentials);
    }

    /// Whether a new address would be treated alike.
    pub(crate) fn is_new(&self, now_us: u64) -> bool {
        let may_present = self.refused_until_us.load(Ordering::Relaxed) <= now_us;
        let rates = [&self.failures, &self.repeats];
        may_present && rates.iter().all(|it| it.is_full(now_us)) && self.seen().right.is_empty()
    }

    fn seen(&self) -> MutexGuard<'_, SeenCredentials> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_fails_often_is_refused_for_a_while_except_for_what_was_right() {
        let (throttle, mut now_us) = (AuthThrottle::default(), 1_000_000);
        let (right, wrong) = (Fingerprint::of(b"right"), Fingerprint::of(b"wrong"));
        let guess = |number: u64| Fingerprint::of(&number.to_be_bytes());
        throttle.succeeded(right);
        for number in 0..FAILURES_PER_SECOND {
            assert!(throttle.check(now_us, guess(number)).is_ok());
            throttle.failed(now_us, guess(number));
            throttle.failed(now_us, guess(number));
        }
        assert!(throttle.check(now_us, wrong).is_ok(), "what is repeated counts once");
        throttle.failed(now_us, wrong);
        let refused = throttle.check(now_us, wrong);
        assert!(matches!(refused, Err(Failure::Overloaded { retry_after_ms: 1_000.. })));
        assert!(throttle.check(now_us, right).is_ok() && !throttle.is_new(now_us));
        now_us += os::micros(REFUSED);
        assert!(throttle.check(now_us, wrong).is_ok());
        assert!(!throttle.is_new(now_us), "what was right is remembered");
    }

    #[test]
    fn wrong_credentials_that_are_repeated_are_checked_a_bounded_number_of_times() {
        let (throttle, now_us) = (AuthThrottle::default(), 1_000_000);
        let (wrong, right) = (Fingerprint::of(b"wrong"), Fingerprint::of(b"right"));
        throttle.succeeded(right);
        throttle.failed(now_us, wrong);
        let checked = (0..10_000).filter(|_| throttle.check(now_us, wrong).is_ok()).count();
        let bound = usize::try_from(2 * REPEATS_PER_SECOND).unwrap();
        assert!((1..=bound).contains(&checked), "{checked}");
        assert!(throttle.check(now_us, right).is_ok());
        assert!(throttle.check(now_us, Fingerprint::of(b"new")).is_ok());
        assert!(throttle.check(now_us + 1_000_000, wrong).is_ok(), "they may be right by now");
        throttle.failed(now_us, right);
        let checked = (0..10_000).filter(|_| throttle.check(now_us, right).is_ok()).count();
        assert!(checked <= bound, "a revoked key is no longer right: {checked}");
    }

    #[test]
    fn a_bounded_number_of_credentials_is_remembered() {
        let throttle = AuthThrottle::default();
        for number in 0..10 * KNOWN_MAX {
            throttle.succeeded(Fingerprint::of(&number.to_be_bytes()));
        }
        assert_eq!(throttle.seen().right.len(), KNOWN_MAX);
    }
}
