//! Tests that a more urgent request stands in the queue as if it had come earlier, and that no request waits for ever.

use tenure_core::Machine;
use tenure_core::codec::{encode_request, seal_entry};
use tenure_core::outcome::{Effects, Notice};
use tenure_core::request::{
    Acquire, Ask, AskLease, AskWait, Asks, Command, Hold, LeaseRef, NewLease, PRIORITY_MAX,
    PRIORITY_STEP_MS, Purpose, Request, RequestId,
};
use tenure_types::{Epoch, LeaseId, Mode, PlaceNumber, Term, Token};

use crate::script::check;

#[test]
fn a_more_urgent_request_passes_those_of_the_last_half_minute_for_each_step() {
    check(
        "
         0s  level 8                 raised
         0s  A lease 1h              granted
         0s  B lease 1h              granted
         0s  C lease 1h              granted
         0s  D lease 1h              granted
         0s  A lock web              held token=1
         1s  B lock web              queued ahead=0
        20s  C lock web priority=1   queued ahead=0
        40s  D lock web priority=1   queued ahead=2
        41s  queue web               C ahead=0 waits 20s priority=1, B ahead=1 waits 39s,
             .. D ahead=2 waits 0s priority=1
        42s  events web from 7       7 web queued B; 8 web queued C priority=1; 9 web queued D priority=1
        43s  A unlock web            released; C held token=2
        44s  C unlock web            released; B held token=3
        45s  B unlock web            released; D held token=4
    ",
    );
}

#[test]
fn of_equal_ranks_the_one_that_asked_first_is_first() {
    check(
        "
         0s  level 8                 raised
         0s  A lease 1h              granted
         0s  B lease 1h              granted
         0s  C lease 1h              granted
         0s  A lock web              held token=1
         5s  B lock web              queued ahead=0
        35s  C lock web priority=1   queued ahead=1
    ",
    );
}

#[test]
fn a_request_that_passes_all_that_wait_is_granted_at_once_if_the_holders_admit_it() {
    check(
        "
         0s  level 8                          raised
         0s  A lease 1h                       granted
         0s  B lease 1h                       granted
         0s  C lease 1h                       granted
         0s  D lease 1h                       granted
         0s  A lock data shared               held token=1
         1s  B lock data                      queued ahead=0
         2s  C lock data shared priority=1    held token=2
         3s  D lock data shared               queued ahead=1
    ",
    );
}

#[test]
fn a_request_that_does_not_wait_passes_nobody() {
    check(
        "
         0s  level 8                             raised
         0s  A lease 1h                          granted
         0s  B lease 1h                          granted
         0s  C lease 1h                          granted
         0s  A lock data shared                  held token=1
         1s  B lock data                         queued ahead=0
         2s  C lock data shared try priority=9   refused held (data by A token=1 for 2s, 1 ahead)
         3s  C lock free try priority=9          held token=2
    ",
    );
}

#[test]
fn nobody_passes_a_request_that_has_waited_long_enough() {
    check(
        "
           0s  level 8                 raised
           0s  A lease 1h              granted
           0s  B lease 1h              granted
           0s  C lease 1h              granted
           0s  D lease 1h              granted
           0s  A lock web              held token=1
           1s  B lock web              queued ahead=0
        270s  C lock web priority=9    queued ahead=0
        271s  D lock web priority=9    queued ahead=2
        272s  queue web                C ahead=0 waits 1s priority=9, B ahead=1 waits 270s,
             .. D ahead=2 waits 0s priority=9
    ",
    );
}

#[test]
fn a_request_that_is_passed_gets_its_turn_when_the_other_one_leaves() {
    check(
        "
         0s  level 8                    raised
         0s  A lease 1h                 granted
         0s  B lease 1h                 granted
         0s  C lease 1h                 granted
         0s  A lock a                   held token=1
         0s  A lock data shared         held token=2
         1s  C lock a data priority=5   queued ahead=0
         2s  B lock data shared         queued ahead=1
         3s  C leave a                  left; B held token=3
    ",
    );
}

#[test]
fn a_request_for_several_locks_has_one_rank_in_all_queues() {
    check(
        "
         0s  level 8                   raised
         0s  A lease 1h                granted
         0s  B lease 1h                granted
         0s  C lease 1h                granted
         0s  D lease 1h                granted
         0s  A lock a b                held a token=1, b token=2
         1s  B lock a                  queued ahead=0
         2s  C lock b                  queued ahead=0
         3s  D lock a b priority=9     queued ahead=0
         4s  A unlock a                released
         5s  A unlock b                released; D held a token=3, b token=4
    ",
    );
}

#[test]
fn passing_others_can_close_a_ring_and_is_refused_then() {
    check(
        "
         0s  level 8                              raised
         0s  A lease 1h                           granted
         0s  B lease 1h                           granted
         0s  N lease 1h                           granted
         0s  H lease 1h                           granted
         0s  H lock a                             held token=1
         0s  B lock b                             held token=2
         0s  A lock c                             held token=3
         1s  A lock a                             queued ahead=0
         2s  B lock c                             queued ahead=0
         3s  N lock a b priority=9 independent    refused deadlock: N b, B c, A a
         3s  show a                               H token=1 | A
    ",
    );
}

#[test]
fn who_is_passed_must_not_wait_for_a_lease_that_waits_for_it() {
    // L would have the lock `a` before B, which holds `z`, for which L waits already.
    check(
        "
         0s  level 8                    raised
         0s  B lease 1h                 granted
         0s  H lease 1h                 granted
         0s  L lease 1h                 granted
         0s  H lock b                   held token=1
         0s  B lock z                   held token=2
         1s  L lock z                   queued ahead=0
         2s  B lock a b                 queued ahead=0
         3s  L lock a priority=9        refused deadlock: L z, B a
         3s  show a                     nobody | B
         4s  H unlock b                 released; B held a token=3, b token=4
    ",
    );
}

#[test]
fn who_is_passed_by_a_writer_must_not_wait_for_readers_that_wait_for_it() {
    // B did not wait for the reader R, but the writer that would pass it does.
    check(
        "
         0s  level 8                    raised
         0s  B lease 1h                 granted
         0s  H lease 1h                 granted
         0s  R lease 1h                 granted
         0s  N lease 1h                 granted
         0s  R lock a shared            held token=1
         0s  H lock b                   held token=2
         0s  B lock z                   held token=3
         1s  B lock a:shared b:shared   queued ahead=0
         2s  R lock z                   queued ahead=0
         3s  N lock a priority=9        refused deadlock: N a, R z, B a
    ",
    );
}

#[test]
fn a_refused_request_leaves_no_lease_behind() {
    check(
        "
         0s  level 8                              raised
         0s  A lease 1h                           granted
         0s  B lease 1h                           granted
         0s  H lease 1h                           granted
         0s  H lock a                             held token=1
         0s  B lock b                             held token=2
         0s  A lock c                             held token=3
         1s  A lock a                             queued ahead=0
         2s  B lock c                             queued ahead=0
         3s  N lock a b priority=9 lease=1h       refused deadlock: N b, B c, A a
         3s  leases                               A, B, H
    ",
    );
}

#[test]
fn asking_again_keeps_the_place_and_its_priority() {
    check(
        "
         0s  level 8                 raised
         0s  A lease 1h              granted
         0s  B lease 1h              granted
         0s  C lease 1h              granted
         0s  A lock web              held token=1
         1s  B lock web              queued ahead=0
         2s  C lock web              queued ahead=1
         3s  C lock web priority=9   queued ahead=1
    ",
    );
}

#[test]
fn a_priority_needs_the_right_to_take_the_lock_away() {
    check(
        "
         0s  level 8                        raised
         0s  role user acquire@                    done
         0s  role chief acquire,force@jobs/        done
         0s  role root administer@                 done
         0s  principal ana user                    done
         0s  principal eva chief                   done
         0s  principal olga root                   done
         0s  identity on as=olga                   done
         0s  A lease 60s as=ana                    granted
         0s  B lease 60s as=eva                    granted
         0s  A lock jobs/1 priority=1 as=ana       refused forbidden: force
         0s  A lock jobs/1 as=ana                  held token=1
         0s  B lock jobs/1 priority=1 as=eva       queued ahead=0
         0s  B lock web priority=1 as=eva          refused forbidden: acquire
    ",
    );
}

#[test]
fn below_level_8_there_are_no_priorities() {
    check(
        "
         0s  level 7                 raised
         0s  A lease 60s             granted
         0s  A lock web priority=1   refused malformed
         0s  A lock web              held token=1
    ",
    );
}

/// A machine and what the load has learned of it.
struct Load {
    machine: Machine,
    clock_ms: u64,
    leases: u64,
    /// The holder: its lease, token and place.
    holder: Option<(LeaseId, Token, PlaceNumber)>,
    /// When each place asked, its priority and its lease.
    asked: std::collections::BTreeMap<PlaceNumber, (u64, u8, LeaseId)>,
}

impl Load {
    fn apply(&mut self, command: Command<'_>) -> Effects {
        let (mut bytes, mut effects) = (Vec::new(), Effects::default());
        encode_request(&Request { principal: "", id: RequestId::None, command }, &mut bytes);
        let payload = seal_entry(Term(1), self.clock_ms, [bytes.as_slice()]);
        self.machine.apply(Term(1), Some(&payload), &mut effects);
        for notice in &effects.notices {
            if let Notice::Granted { place, grants, .. } = notice {
                let (_, _, lease) = self.asked[place];
                self.holder = Some((lease, grants.as_slice()[0].token, *place));
            }
        }
        effects
    }

    fn ask(&mut self, priority: u8) -> PlaceNumber {
        use tenure_core::outcome::Answer;
        self.leases += 1;
        let id = LeaseId::new(self.leases).unwrap();
        let new = NewLease { id, ttl_ms: 3_600_000, client: "load", metadata: b"" };
        let acquire = Acquire {
            lease: AskLease::New(new),
            locks: Asks::One(Ask { lock: "busy", mode: Mode::Exclusive }),
            any: false,
            wait: AskWait::Unlimited,
            metadata: b"",
            lock_delay_ms: 0,
            max_hold_ms: None,
            min_hold_ms: 0,
            supersede: None,
            resume: false,
            progress_within_ms: 0,
            priority,
            purpose: Purpose::Lock,
            independent: false,
        };
        let effects = self.apply(Command::Acquire(acquire));
        let place = match &effects.outcomes[0].result {
            Ok(Answer::Queued(queued)) => queued.place,
            Ok(Answer::Acquired(acquired)) => {
                self.holder = Some((id, acquired.grants.as_slice()[0].token, acquired.place));
                acquired.place
            }
            other => panic!("{other:?}"),
        };
        self.asked.insert(place, (self.clock_ms, priority, id));
        place
    }

    /// Gives the lock back; the next one has it then.
    fn release(&mut self) -> Option<PlaceNumber> {
        let (lease, token, _) = self.holder.take()?;
        let hold = Hold { lease: LeaseRef::Id(lease), lock: "busy", token };
        self.apply(Command::Release(hold));
        self.holder.map(|(_, _, place)| place)
    }
}

#[test]
fn under_constant_load_nobody_is_passed_by_what_came_later_than_the_bound() {
    let mut load = Load {
        machine: Machine::new(Epoch::default()),
        clock_ms: 0,
        leases: 0,
        holder: None,
        asked: std::collections::BTreeMap::new(),
    };
    load.apply(Command::RaiseLevel { level: 8 });
    // Twice as many requests as the lock serves, most of them of the highest priority, for a quarter of an hour: one
    // second is as long as one hold.
    let (mut served, mut patient) = (Vec::new(), Vec::new());
    for second in 0..900_u64 {
        load.clock_ms = second * 1_000;
        load.ask(PRIORITY_MAX);
        let priority = if second % 10 == 3 { 0 } else { u8::try_from(second % 9 + 1).unwrap() };
        let place = load.ask(priority);
        if priority == 0 {
            patient.push(place);
        }
        served.extend(load.release());
    }
    // Then the load ends, and every waiter is served.
    while let Some(place) = load.release() {
        served.push(place);
    }
    assert_eq!(served.len(), 1_799, "all but the first one waited, and all were served");
    let step = |from: u8, to: u8| u64::from(to.saturating_sub(from)) * PRIORITY_STEP_MS;
    let mut passed_most = 0;
    for (at, place) in served.iter().enumerate() {
        let (asked_ms, priority, _) = load.asked[place];
        for earlier in &served[..at] {
            let (other_ms, other, _) = load.asked[earlier];
            // A request that is served first asked first, or was more urgent and came within the bound.
            assert!(other_ms <= asked_ms + step(priority, other), "{earlier:?} passed {place:?}");
            passed_most = passed_most.max(other_ms.saturating_sub(asked_ms));
        }
    }
    // The bound is reached: without it the patient ones would not have been served before the load ended.
    assert!(passed_most > 8 * PRIORITY_STEP_MS, "{passed_most}");
    let first = patient[0];
    let waited = served.iter().position(|place| *place == first).unwrap();
    assert!(waited < 900, "served while the load lasted: {waited}");
}
