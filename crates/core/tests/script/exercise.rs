//! Checks that a state from any source accepts every command about everything it shows.

use tenure_core::Machine;
use tenure_core::codec::{encode_request, seal_entry};
use tenure_core::outcome::Effects;
use tenure_core::request::{
    Abandon, Acquire, Ask, AskId, AskLease, AskWait, Asks, Command, Expect, Hold, LEVEL_MIN_HOLD,
    LEVEL_POLICY, LEVEL_PRIORITY, LEVEL_PROGRESS, LEVEL_SHARES, LeaseRef, Purpose, Put, Request,
    RequestId, Revoker, Urgency, WriteGuard,
};
use tenure_types::{LeaseId, Limit, Mode, Name, PlaceNumber, Revision, Term, Token};

/// The most leases and locks of a state that are used: all of them in a small one.
const SHOWN_MAX: usize = 8;

/// A holder as a view shows it: token, lease, and the revision that created the lease.
type Shown = (Token, LeaseId, Revision);

/// Applies every command to every lease, lock and token that the machine shows, without advancing the clock, and checks
/// the state after each.
pub(crate) fn exercise(machine: &mut Machine) {
    let mut locks: Vec<(Name, Vec<Shown>)> = Vec::new();
    for lock in machine.sorted_locks(usize::MAX).unwrap().locks("", None, SHOWN_MAX) {
        let holders = lock.holders.iter();
        let holders = holders.map(|holder| (holder.token, holder.lease, holder.lease_created));
        locks.push((lock.lock.clone(), holders.collect()));
    }
    let leases: Vec<LeaseRef> = machine
        .leases(None, SHOWN_MAX)
        .iter()
        .flat_map(|lease| [LeaseRef::Handle(lease.handle), LeaseRef::Id(lease.id)])
        .collect();
    run(machine, Command::SetLimits(vec![(Limit::Slots, 5)]));
    run(machine, Command::Renew(leases.clone()));
    run(machine, Command::Drain { prefix: "exercise", by: "ops", reason: "exercise" });
    run(machine, Command::Undrain { prefix: "exercise", by: "" });
    for drain in machine.drains() {
        run(machine, Command::Undrain { prefix: &drain.prefix, by: "" });
    }
    if machine.level() >= LEVEL_SHARES {
        for (lock, _) in &locks {
            for slots in [Some(3), Some(1), None, Some(2)] {
                run(machine, Command::Resize { lock, slots, by: "ops" });
            }
        }
    }
    for &lease in &leases {
        for (lock, holders) in &locks {
            about_lock(machine, lease, lock, holders);
        }
        let key = |guard| Put {
            key: "exercise",
            value: b"value",
            lease: Some(lease),
            expect: Expect::Any,
            guard,
        };
        run(machine, Command::Put(key(None)));
        let guard = locks
            .iter()
            .find_map(|(lock, holders)| Some(WriteGuard { lock, token: holders.first()?.0 }));
        run(machine, Command::Put(key(guard)));
        run(machine, Command::Delete { key: "exercise", expect: Expect::Any, guard: None });
    }
    for (number, &lease) in leases.iter().enumerate() {
        let by = match number % 3 {
            0 => Revoker::Holder,
            1 => Revoker::Other { name: "", reason: "exercise", urgency: Urgency::Cooling },
            _ => Revoker::Other { name: "", reason: "", urgency: Urgency::Now },
        };
        run(machine, Command::Revoke { lease, by });
    }
    let keep = machine.revision();
    run(machine, Command::Compact { keep });
}

fn about_lock(machine: &mut Machine, lease: LeaseRef, lock: &str, holders: &[Shown]) {
    let pair = Mode::Slot { of: 2, take: 2 };
    let mut modes = vec![Mode::Exclusive, Mode::Shared, Mode::slot(2)];
    modes.extend((machine.level() >= LEVEL_SHARES).then_some(pair));
    for mode in modes {
        for wait in [AskWait::No, AskWait::Limit { ms: 5_000 }, AskWait::Unlimited] {
            run(
                machine,
                Command::Acquire(Acquire {
                    lease: AskLease::Existing(lease),
                    locks: Asks::One(Ask { lock, mode }),
                    any: false,
                    wait,
                    metadata: b"exercise",
                    lock_delay_ms: 10,
                    max_hold_ms: Some(60_000),
                    // Below the level of min holds such a request cannot be made at all.
                    min_hold_ms: if machine.level() >= LEVEL_MIN_HOLD { 1_000 } else { 0 },
                    supersede: (machine.level() >= LEVEL_POLICY).then_some("exercise"),
                    resume: false,
                    progress_within_ms: if machine.level() >= LEVEL_PROGRESS { 5_000 } else { 0 },
                    priority: if machine.level() >= LEVEL_PRIORITY { 3 } else { 0 },
                    purpose: Purpose::Election,
                    independent: false,
                }),
            );
        }
    }
    for &(token, holder, created) in holders {
        let hold = Hold { lease, lock, token };
        run(machine, Command::Update { hold, metadata: b"new" });
        if machine.level() >= LEVEL_PROGRESS {
            run(machine, Command::Progress { hold, number: 7 });
        }
        run(machine, Command::Downgrade(hold));
        run(machine, Command::Release(hold));
        for urgency in [Urgency::Cooling, Urgency::Now] {
            run(
                machine,
                Command::Force { lock, token, by: "exercise", reason: "exercise", urgency },
            );
        }
        run(machine, Command::Stopped { lease: holder, created, lock, token });
    }
    for place in 0..4 {
        let place = PlaceNumber(place);
        let ask = AskId::Seq { lease, seq: place.0 };
        run(machine, Command::Abandon(Abandon { ask, lease, place }));
    }
    run(machine, Command::Leave { lease, lock });
}

fn run(machine: &mut Machine, command: Command<'_>) {
    let mut bytes = Vec::new();
    encode_request(&Request { principal: "", id: RequestId::None, command }, &mut bytes);
    // A new term, so that its count of 0 leaves the clock unchanged.
    let term = Term(machine.clock_term().0.saturating_add(1));
    let payload = seal_entry(term, 0, [bytes.as_slice()]);
    machine.apply(term, Some(&payload), &mut Effects::default());
    if let Err(violation) = machine.check_invariants() {
        panic!("{violation}");
    }
}
