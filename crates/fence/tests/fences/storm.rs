//! Tests that many concurrent writers never get a lower token in after a higher one.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::ScopedJoinHandle;

use fastrand::Rng;
use tenure_fence::{LockSlot, Token};

use crate::subject::{FenceReply, Subject, claim};

const WRITERS: u64 = 6;

/// One write: the two moments between which it happened, and how it ended.
#[derive(Clone, Copy, Debug)]
struct Write {
    token: u64,
    begun: u64,
    ended: u64,
    accepted: bool,
}

pub(crate) fn no_lower_token_after_a_higher(lock: &str, data: &dyn Subject, writes: usize) {
    let at = LockSlot::from(lock);
    let (clock, done) = (AtomicU64::new(0), AtomicBool::new(false));
    let history = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|seed| {
                let (clock, history) = (&clock, &history);
                scope.spawn(move || {
                    let rng = &mut Rng::with_seed(seed);
                    for at_write in 0..writes as u64 {
                        // Around a centre that moves up, so that about half of the writes are late.
                        let token = 1 + at_write * 4 + rng.u64(..20);
                        let begun = clock.fetch_add(1, Ordering::SeqCst);
                        let said = data.write(at, claim(token), &token.to_string());
                        let ended = clock.fetch_add(1, Ordering::SeqCst);
                        assert!(matches!(said, Ok(()) | Err(FenceReply::Stale { .. })), "{said:?}");
                        history.lock().unwrap().push(Write {
                            token,
                            begun,
                            ended,
                            accepted: said.is_ok(),
                        });
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            let (mut last, mut landed) = (None, 0);
            while !done.load(Ordering::SeqCst) {
                let floor = data.floor(at).exclusive;
                assert!(floor >= last, "the floor fell from {last:?} to {floor:?}");
                last = floor;
                let value = data.read().map_or(0, |value| value.parse::<u64>().unwrap());
                assert!(value >= landed, "{value} landed after {landed}");
                landed = value;
            }
        });
        let failed = writers.into_iter().map(ScopedJoinHandle::join).filter(Result::is_err).count();
        done.store(true, Ordering::SeqCst);
        assert_eq!(failed, 0, "writers failed");
    });
    let history = history.into_inner().unwrap();
    assert_eq!(fault(&history), None);
    let highest =
        history.iter().filter(|write| write.accepted).map(|write| write.token).max().unwrap();
    assert_eq!(data.floor(at).exclusive.map(Token::get), Some(highest));
    assert_eq!(data.read(), Some(highest.to_string()), "the data is that of the highest token");
    assert!(history.iter().any(|write| !write.accepted), "no write was ever late");
}

/// Returns a fault that a history of exclusive writes shows.
fn fault(history: &[Write]) -> Option<String> {
    let accepted = || history.iter().filter(|write| write.accepted);
    for late in accepted() {
        if let Some(before) =
            accepted().find(|other| other.token > late.token && other.ended < late.begun)
        {
            return Some(format!("{late:?} was accepted after {before:?}"));
        }
    }
    let refused = history.iter().filter(|write| !write.accepted);
    for write in refused {
        // The higher write need not have been accepted: one that waits has raised the floor, and may be overtaken.
        if !history.iter().any(|other| other.token > write.token && other.begun < write.ended) {
            return Some(format!("{write:?} was refused, and no token was higher"));
        }
    }
    None
}

#[test]
fn the_checker_knows_a_fence_that_lets_the_dead_in() {
    let write = |token, begun, ended, accepted| Write { token, begun, ended, accepted };
    let good =
        [write(1, 0, 1, true), write(3, 2, 5, true), write(2, 3, 4, true), write(1, 6, 7, false)];
    assert_eq!(fault(&good), None);
    let dead = [write(3, 0, 1, true), write(2, 2, 3, true)];
    assert!(fault(&dead).unwrap().contains("accepted after"));
    let deaf = [write(3, 0, 1, true), write(3, 2, 3, false)];
    assert!(fault(&deaf).unwrap().contains("no token was higher"));
}
