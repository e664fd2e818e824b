//! Runs the trials that every fence must pass.

use fastrand::Rng;
use tenure_fence::{Claim, Error, Floors, Incarnation, LockSlot, Token, Touch};

use crate::storm;
use crate::subject::{FenceReply, Subject, claim};

/// How much to try: a server answers slower than a library.
#[derive(Clone, Copy)]
pub(crate) struct Size {
    /// The number of steps to compare with the rule.
    pub(crate) steps: usize,
    /// The number of writes of each writer in the storm.
    pub(crate) writes: usize,
}

/// How often new slots appear and, every second time, another epoch.
const STAGES: usize = 12;
/// From this slot on there are only shared holders.
const SHARED: u32 = 100;

/// Runs every trial in parallel, each with a subject of its own.
pub(crate) fn all<S: Subject + Send>(size: Size, make: impl Fn(&str) -> S + Sync) {
    let make = &make;
    std::thread::scope(|scope| {
        scope.spawn(|| the_late_writer_is_refused("scenario", &make("scenario")));
        scope.spawn(|| without_a_fence_the_late_writer_wins(&make("control")));
        scope.spawn(|| raising_keeps_older_ones_out("raised", &make("raised")));
        scope.spawn(|| answers_are_those_of_the_rule("agree", &make("agree"), size.steps));
        scope.spawn(|| storm::no_lower_token_after_a_higher("storm", &make("storm"), size.writes));
    });
}

/// A takes the lock and pauses; B takes it and writes; A wakes up and writes.
fn the_late_writer_is_refused(lock: &str, data: &dyn Subject) {
    let at = LockSlot::from(lock);
    let (a, b) = (claim(1), claim(2));
    data.write(at, a, "A, in time").unwrap();
    data.write(at, b, "B").unwrap();
    assert_eq!(data.write(at, a, "A, late"), Err(FenceReply::Stale { floor: 2 }));
    assert_eq!(data.read().as_deref(), Some("B"));
    // The holder writes as often as it likes.
    data.write(at, b, "B again").unwrap();
    assert_eq!(data.read().as_deref(), Some("B again"));
    assert_eq!(data.floor(at).exclusive, Some(b.token));
}

/// The control: nothing but the fence would have stopped A.
fn without_a_fence_the_late_writer_wins(data: &dyn Subject) {
    for value in ["A, in time", "B", "A, late"] {
        data.write_unfenced(value);
    }
    assert_eq!(data.read().as_deref(), Some("A, late"));
}

fn raising_keeps_older_ones_out(lock: &str, data: &dyn Subject) {
    let at = LockSlot::from(lock);
    data.write(at, claim(1), "A, in time").unwrap();
    data.raise(at, claim(2)).unwrap();
    assert_eq!(data.read().as_deref(), Some("A, in time"), "raising leaves the data");
    assert_eq!(data.write(at, claim(1), "A, late"), Err(FenceReply::Stale { floor: 2 }));
    assert_eq!(data.raise(at, claim(1)), Err(FenceReply::Stale { floor: 2 }));
    // Raising has not used the token up.
    data.write(at, claim(2).once(), "B").unwrap();
    assert_eq!(data.write(at, claim(2).once(), "B again"), Err(FenceReply::Used));
    assert_eq!(data.read().as_deref(), Some("B"));
    // Another slot, and another mode, have floors of their own.
    data.write((lock, 0).into(), claim(1), "slot 0").unwrap();
    assert_eq!(data.floor((lock, 1).into()).exclusive, None);
}

/// Sends random claims to the fence and to the rule, and compares the answers.
pub(crate) fn answers_are_those_of_the_rule(lock: &str, data: &dyn Subject, steps: usize) {
    let seed = 7;
    let rng = &mut Rng::with_seed(seed);
    let mut rule = Floors::default();
    let mut last = None;
    for step in 0..steps {
        // New slots appear all the time, some of them for shared holders only.
        let stage = step * STAGES / steps;
        let fresh = u32::try_from(stage).unwrap();
        let slot = [None, Some(0), Some(fresh), Some(SHARED + fresh)][rng.usize(..4)];
        let at = LockSlot { lock, slot };
        // Epochs grow with the steps; otherwise all claims would soon be in the last one. The later ones exceed what a
        // double can distinguish.
        let epoch = [0, 0, 1, 40, 41, 32_767][stage * 6 / STAGES];
        let claim = some_claim(rng, epoch);
        let claim = if slot.is_some_and(|slot| slot >= SHARED) { claim.shared() } else { claim };
        let touch = if rng.u8(..4) == 0 { Touch::Raise } else { Touch::Write };
        let value = format!("step {step}");
        let expected =
            rule.admit::<std::io::Error>(at, claim, touch).map_err(|error| match error {
                Error::Refused(refused) => FenceReply::from(refused),
                other => panic!("{other:?}"),
            });
        let said = match touch {
            Touch::Write => data.write(at, claim, &value),
            Touch::Raise => data.raise(at, claim),
            other => panic!("{other:?}"),
        };
        let what = format!("seed {seed} step {step}: {touch:?} {claim:?} at {at}");
        assert_eq!(said, expected, "{what}");
        if said.is_ok() && touch == Touch::Write {
            last = Some(value);
        }
        assert_eq!(data.floor(at), rule.get(at), "{what}");
        assert_eq!(data.read(), last, "{what}");
    }
}

fn some_claim(rng: &mut Rng, epoch: u64) -> Claim {
    let counter = [1, 2, 9, 10, 11, Token::COUNTER_MAX][rng.usize(..6)];
    // Now and then a token of the epoch before, or a number that no cluster grants.
    let number = match rng.u8(..20) {
        0 | 3 if epoch > 0 => (epoch - 1) << 48 | Token::COUNTER_MAX,
        1 => (epoch + 1) << 48,
        2 => u64::MAX,
        _ => epoch << 48 | counter,
    };
    let mut given = claim(number);
    if rng.u8(..3) == 0 {
        given = given.shared();
    }
    if rng.u8(..4) == 0 {
        given = given.once();
    }
    match rng.u8(..8) {
        0 => given.incarnation(Incarnation(1)),
        1 => given.incarnation(Incarnation(u64::MAX)),
        _ => given,
    }
}
