//! Tests the rule against a model, and that the model notices a wrong rule.
//!
//! The model remembers every accepted claim and searches all of them; the rule keeps four numbers.

use fastrand::Rng;
use tenure_types::{Epoch, Token};

use crate::claim::{Claim, Incarnation, LockSlot, Mode, Times};
use crate::error::Error;
use crate::floors::Floors;
use crate::plant;
use crate::rule::{Refused, Touch};

/// How many sequences the correct rule must survive, and within which every planted bug must show.
const SEQUENCES: u64 = 1_000;
const STEPS: usize = 60;

/// Every claim that was accepted for one lock and slot.
#[derive(Default)]
struct AcceptedTokens(Vec<(Claim, Touch)>);

/// The kinds of answers, without their numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ModelAnswer {
    Accepted,
    Stale,
    Used,
    OtherIncarnation,
    Impossible,
}

impl AcceptedTokens {
    fn answer(&mut self, claim: Claim, touch: Touch) -> ModelAnswer {
        let Some(epoch) = claim.token.epoch() else { return ModelAnswer::Impossible };
        if claim.token.get() & Token::COUNTER_MAX == 0 {
            return ModelAnswer::Impossible;
        }
        let fenced = self.0.iter().any(|(seen, _)| {
            let sharing = (claim.mode, seen.mode) == (Mode::Shared, Mode::Shared);
            let older_incarnation = seen.token.epoch() > Some(epoch);
            older_incarnation || (!sharing && seen.token > claim.token)
        });
        if fenced {
            return ModelAnswer::Stale;
        }
        let others = self.0.iter().filter(|(seen, _)| seen.token.epoch() == Some(epoch));
        let mut lives = others.filter_map(|(seen, _)| seen.incarnation);
        if let Some(said) = claim.incarnation
            && lives.any(|known| known != said)
        {
            return ModelAnswer::OtherIncarnation;
        }
        let wrote =
            |(seen, how): &(Claim, Touch)| *how == Touch::Write && seen.token >= claim.token;
        if touch == Touch::Write && claim.times == Times::Once && self.0.iter().any(wrote) {
            return ModelAnswer::Used;
        }
        self.0.push((claim, touch));
        ModelAnswer::Accepted
    }
}

fn answer_of(result: Result<(), Error<std::fmt::Error>>) -> ModelAnswer {
    match result {
        Ok(()) => ModelAnswer::Accepted,
        Err(Error::Refused(Refused::Stale { .. })) => ModelAnswer::Stale,
        Err(Error::Refused(Refused::Used { .. })) => ModelAnswer::Used,
        Err(Error::Refused(Refused::OtherIncarnation { .. })) => ModelAnswer::OtherIncarnation,
        Err(Error::Refused(Refused::Impossible { .. })) => ModelAnswer::Impossible,
        Err(error) => panic!("{error:?}"),
    }
}

/// Tokens close to each other, around values where a careless comparison goes wrong.
fn some_claim(rng: &mut Rng) -> Claim {
    // 9, 10 and 11 differ in length; from epoch 32 on, neighbours are equal as doubles.
    let epoch = [0, 0, 1, 40, 40, 41][rng.usize(..6)];
    let counter = [1, 2, 9, 10, 11, Token::COUNTER_MAX][rng.usize(..6)];
    let token = Token::new(Epoch::new(epoch).unwrap(), counter).unwrap();
    let odd = [u64::MAX, 1 << 63, 3 << 48][rng.usize(..3)];
    let token = if rng.u8(..50) == 0 { Token::from_u64(odd).unwrap() } else { token };
    let mut claim = Claim::new(token);
    if rng.u8(..3) == 0 {
        claim = claim.shared();
    }
    if rng.u8(..4) == 0 {
        claim = claim.once();
    }
    match rng.u8(..8) {
        0 => claim.incarnation(Incarnation(1)),
        1 => claim.incarnation(Incarnation(2)),
        _ => claim,
    }
}

/// Runs a sequence against rule and model, and returns their first disagreement.
fn disagreement(seed: u64) -> Option<String> {
    let rng = &mut Rng::with_seed(seed);
    let places = [LockSlot::from("a"), LockSlot::from(("a", 0)), LockSlot::from(("a", 1))];
    let mut histories: [AcceptedTokens; 3] = Default::default();
    let mut floors = Floors::default();
    // Some sequences stay within one epoch; otherwise all of them would soon reach the last one.
    let shift = |claim: Claim| match seed % 3 {
        0 => claim,
        _ if claim.token.epoch().is_none() => claim,
        _ => {
            let epoch = Epoch::new(if seed % 3 == 1 { 40 } else { 0 }).unwrap();
            let counter = (claim.token.get() & Token::COUNTER_MAX).max(1);
            Claim { token: Token::new(epoch, counter).unwrap(), ..claim }
        }
    };
    for step in 0..STEPS {
        let which = rng.usize(..3);
        let claim = shift(some_claim(rng));
        let touch = if rng.u8(..4) == 0 { Touch::Raise } else { Touch::Write };
        let before = floors.clone();
        let expected = histories[which].answer(claim, touch);
        let said = answer_of(floors.admit(places[which], claim, touch));
        if said != expected {
            return Some(format!(
                "seed {seed} step {step}: {claim:?} {touch:?}: {said:?}, not {expected:?}"
            ));
        }
        if said != ModelAnswer::Accepted && floors != before {
            return Some(format!("seed {seed} step {step}: a refusal changed the floor"));
        }
        let (old, new) = (before.get(places[which]), floors.get(places[which]));
        if new.exclusive < old.exclusive || new.shared < old.shared || new.used < old.used {
            return Some(format!("seed {seed} step {step}: a floor fell from {old:?} to {new:?}"));
        }
        if Floors::parse(&floors.to_text()) != Some(floors.clone()) {
            return Some(format!("seed {seed} step {step}: the floors do not read back"));
        }
    }
    None
}

#[test]
fn the_rule_agrees_with_its_model() {
    let mut seeds = 0..SEQUENCES;
    assert_eq!(seeds.find_map(disagreement), None);
}

#[test]
fn every_planted_bug_is_found() {
    for name in plant::ALL {
        plant::select(Some(name));
        let found = (0..SEQUENCES).find_map(disagreement);
        plant::select(None);
        assert!(found.is_some(), "the planted bug `{name}` was not found");
    }
}

#[test]
fn the_seeds_reach_every_answer() {
    let rng = &mut Rng::with_seed(1);
    let mut history = AcceptedTokens::default();
    let mut seen = Vec::new();
    for _ in 0..10_000 {
        if rng.u8(..20) == 0 {
            history = AcceptedTokens::default();
        }
        let answer = history.answer(some_claim(rng), Touch::Write);
        if !seen.contains(&answer) {
            seen.push(answer);
        }
    }
    assert_eq!(seen.len(), 5, "{seen:?}");
}
