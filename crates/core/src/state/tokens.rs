//! Finds the grants of shared locks and semaphores by their tokens.

use alloc::collections::BTreeMap;
use tenure_types::Token;

use super::record::{Grant, GrantMode};
use super::slab::SlabIndex;

/// The grants that may stand beside others of their lock. An exclusive grant is the only one of its lock, so the lock
/// leads to it, and the most frequent commands keep no index.
#[derive(Default)]
pub(crate) struct GrantTokens(BTreeMap<Token, SlabIndex>);

impl GrantTokens {
    /// The grant with this token, unless it is exclusive.
    pub(crate) fn find(&self, token: Token) -> Option<SlabIndex> {
        self.0.get(&token).copied()
    }

    /// Adds a grant.
    pub(crate) fn insert(&mut self, mode: GrantMode, token: Token, slot: SlabIndex) {
        if mode != GrantMode::Exclusive {
            self.add(token, slot);
        }
    }

    #[inline(never)]
    fn add(&mut self, token: Token, slot: SlabIndex) {
        self.0.insert(token, slot);
    }

    /// Removes a grant.
    pub(crate) fn remove(&mut self, grant: &Grant) {
        if grant.mode != GrantMode::Exclusive {
            self.drop_token(grant.token);
        }
    }

    #[inline(never)]
    fn drop_token(&mut self, token: Token) {
        self.0.remove(&token);
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;
    use tenure_types::{Epoch, LeaseId, Mode, Refusal, Term, Token};

    use crate::codec::{encode_request, seal_labelled};
    use crate::outcome::{Answer, Effects};
    use crate::request::{
        Acquire, Ask, AskLease, AskWait, Asks, Command, Expect, Hold, LeaseRef, NewLease, Purpose,
        Put, Request, RequestId, Urgency, WriteGuard,
    };
    use crate::state::list::steps;
    use crate::{LEVEL_MAX, Machine};

    /// How many leases share each lock. The state is larger than those that are checked after every command.
    const HOLDERS: u64 = 200;

    fn run(machine: &mut Machine, command: Command<'_>) -> Result<Answer, Refusal> {
        let mut bytes = Vec::new();
        encode_request(&Request { principal: "", id: RequestId::None, command }, &mut bytes);
        let entry = seal_labelled(Term(1), 0, None, [bytes.as_slice()]);
        let mut effects = Effects::default();
        machine.apply(Term(1), Some(&entry), &mut effects);
        effects.outcomes.remove(0).result
    }

    fn lease(number: u64) -> LeaseId {
        LeaseId::new(number).unwrap()
    }

    fn acquire(machine: &mut Machine, by: u64, lock: &str, mode: Mode) -> Token {
        let acquire = Acquire {
            lease: AskLease::Existing(LeaseRef::Id(lease(by))),
            locks: Asks::One(Ask { lock, mode }),
            any: false,
            wait: AskWait::No,
            metadata: b"",
            lock_delay_ms: 0,
            max_hold_ms: None,
            min_hold_ms: 0,
            progress_within_ms: 0,
            supersede: None,
            resume: false,
            priority: 0,
            purpose: Purpose::Lock,
            independent: false,
        };
        match run(machine, Command::Acquire(acquire)) {
            Ok(Answer::Acquired(acquired)) => acquired.grants.as_slice()[0].token,
            other => panic!("{other:?}"),
        }
    }

    /// A machine with a lock that many leases share, and a semaphore with as many holders. The last lease also holds
    /// many other locks. Returns the tokens of the last lease.
    fn crowd() -> (Machine, Token, Token) {
        let mut machine = Machine::new(Epoch::default());
        run(&mut machine, Command::RaiseLevel { level: LEVEL_MAX }).unwrap();
        let (mut shared, mut slot) = (None, None);
        for number in 1..=HOLDERS {
            let new = NewLease { id: lease(number), ttl_ms: 60_000, client: "a", metadata: b"" };
            run(&mut machine, Command::GrantLease(new)).unwrap();
            shared = Some(acquire(&mut machine, number, "shared", Mode::Shared));
            slot = Some(acquire(&mut machine, number, "slots", Mode::slot(1_000)));
        }
        for number in 0..HOLDERS {
            let name = alloc::format!("own-{number}");
            acquire(&mut machine, HOLDERS, &name, Mode::Exclusive);
        }
        (machine, shared.unwrap(), slot.unwrap())
    }

    #[test]
    fn a_grant_that_is_named_by_its_token_is_found_without_a_walk() {
        let (machine, shared, slot) = crowd();
        let read = Machine::decode(&machine.encode()).unwrap();
        for mut machine in [machine, read] {
            for (lock, token) in [("shared", shared), ("slots", slot)] {
                let hold = Hold { lease: LeaseRef::Id(lease(HOLDERS)), lock, token };
                let guard = Some(WriteGuard { lock, token });
                let put = Put { key: "k", value: b"v", lease: None, expect: Expect::Any, guard };
                let old = Token::new(Epoch::default(), 1).unwrap();
                let force =
                    |token, urgency| Command::Force { lock, token, by: "ops", reason: "", urgency };
                let created = machine.lease(hold.lease).unwrap().created;
                let stopped = Command::Stopped { lease: lease(HOLDERS), created, lock, token };
                steps::take();
                assert_eq!(machine.holding(&hold).map(|it| it.token), Ok(token));
                let walked = steps::take();
                assert!(walked < 10, "the query walks {walked} grants of `{lock}`");
                let commands = [
                    (Command::Update { hold, metadata: b"m" }, true),
                    (Command::Put(put), true),
                    // The token of another lock, and then of this one.
                    (force(if lock == "shared" { slot } else { shared }, Urgency::Now), false),
                    (force(token, Urgency::Cooling), true),
                    (Command::Release(hold), false),
                    (stopped, true),
                    (force(token, Urgency::Now), false),
                    (Command::Release(Hold { token: old, ..hold }), false),
                ];
                for (command, succeeds) in commands {
                    steps::take();
                    let result = run(&mut machine, command.clone());
                    let walked = steps::take();
                    assert_eq!(result.is_ok(), succeeds, "{command:?}: {result:?}");
                    assert!(walked < 10, "{command:?} walks {walked} grants");
                }
                machine.check_invariants().unwrap();
            }
        }
    }
}
