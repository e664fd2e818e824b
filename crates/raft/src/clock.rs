//! Counts the time that a leader may add to the machine's clock.
//!
//! Between any two entries of the log the machine's clock advances by at most the real time between their sealing. A
//! slow clock is always safe, so the leader does not count doubtful time: lateness of its own event loop, and time
//! without a quorum. A credit bounds the uncounted time, so that leases of dead clients end nevertheless.

use tenure_types::Term;

use crate::config::{CHECKPOINT_US, CREDIT_US, FRESH_US, GRACE_US, TICK_US};

/// One part in this many of the counted time is returned to the credit.
const CREDIT_PER_COUNTED: u64 = 8;

/// The count of this member's leadership, while it leads.
#[derive(Debug, Default)]
pub(crate) struct LeaseClock {
    led: Option<Led>,
}

/// The count of one term.
#[derive(Debug)]
struct Led {
    term: Term,
    count_us: u64,
    /// The count in the newest sealed entry.
    stamped_us: u64,
    credit_us: u64,
    /// Set once an entry of this term was applied here.
    counting: Option<Counting>,
}

#[derive(Debug, Clone, Copy)]
struct Counting {
    /// The machine's clock when counting began.
    base_ms: u64,
    last_us: u64,
    wake_by_us: u64,
}

/// The inputs of the clock at the end of a turn.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Checkpoint {
    pub(crate) now_us: u64,
    pub(crate) quorum_at_us: u64,
    /// The machine's next deadline, by its own clock.
    pub(crate) due_ms: Option<u64>,
    /// Whether an entry that this leader sealed is not applied yet.
    pub(crate) in_flight: bool,
}

impl LeaseClock {
    /// Must be called before every use while this member leads. Keyed by the term and not by observing the role change:
    /// leadership that is lost and regained may show no change at all.
    pub(crate) fn lead(&mut self, term: Term) {
        if self.led.as_ref().is_some_and(|led| led.term == term) {
            return;
        }
        let mut fresh =
            Led { term, count_us: 0, stamped_us: 0, credit_us: CREDIT_US, counting: None };
        if mutant!("count_kept_over_election")
            && let Some(old) = &self.led
        {
            fresh.count_us = old.count_us;
        }
        self.led = Some(fresh);
    }

    /// Starts counting: an entry of this term was applied here.
    pub(crate) fn start(&mut self, term: Term, base_ms: u64, now_us: u64) {
        if let Some(led) = &mut self.led
            && led.term == term
            && led.counting.is_none()
        {
            let wake_by_us = now_us.saturating_add(TICK_US);
            led.counting = Some(Counting { base_ms, last_us: now_us, wake_by_us });
        }
    }

    /// Whether this member has applied an entry of the term it leads.
    pub(crate) fn started(&self, term: Term) -> bool {
        self.led.as_ref().is_some_and(|led| led.term == term && led.counting.is_some())
    }

    /// The count for an entry that is sealed now; [`LeaseClock::stamp`] follows if the engine takes it.
    pub(crate) fn count_ms(&mut self, now_us: u64, quorum_at_us: u64) -> u64 {
        self.charge(now_us, quorum_at_us);
        self.led.as_ref().map_or(0, |led| led.count_us / 1000)
    }

    /// Records that the entry with the present count is in the log.
    pub(crate) fn stamp(&mut self) {
        if let Some(led) = &mut self.led {
            led.stamped_us = led.count_us;
        }
    }

    /// Ends a turn. Returns whether an empty entry must be sealed now.
    pub(crate) fn checkpoint(&mut self, at: Checkpoint) -> bool {
        self.charge(at.now_us, at.quorum_at_us);
        let Some(led) = &mut self.led else { return false };
        let Some(counting) = &mut led.counting else { return false };
        let reached_ms = counting.base_ms.saturating_add(led.count_us / 1000);
        let stamped_ms = counting.base_ms.saturating_add(led.stamped_us / 1000);
        let mut wake_by_us = at.now_us.saturating_add(TICK_US);
        let Some(due_ms) = at.due_ms else {
            counting.wake_by_us = wake_by_us;
            return false;
        };
        let is_due = due_ms <= reached_ms;
        if !is_due {
            let at_us = due_ms.saturating_sub(counting.base_ms).saturating_mul(1000);
            let in_us = at_us.saturating_sub(led.count_us);
            wake_by_us = wake_by_us.min(at.now_us.saturating_add(in_us));
        }
        counting.wake_by_us = wake_by_us;
        let checkpoint =
            led.count_us - led.stamped_us >= CHECKPOINT_US && !mutant!("no_checkpoint");
        is_due && (stamped_ms < due_ms || !at.in_flight) || checkpoint
    }

    /// The latest time of the next turn, while this member counts.
    pub(crate) fn wake_by_us(&self) -> Option<u64> {
        self.led.as_ref()?.counting.map(|counting| counting.wake_by_us)
    }

    /// Counts the time since the last call, as far as it may be counted.
    fn charge(&mut self, now_us: u64, quorum_at_us: u64) {
        let Some(led) = &mut self.led else { return };
        let Some(counting) = &mut led.counting else { return };
        let elapsed = now_us.saturating_sub(counting.last_us);
        // Requested sleep counts, lateness does not.
        let asked = counting.wake_by_us.saturating_sub(counting.last_us);
        let mut on_time = elapsed.min(asked.saturating_add(GRACE_US));
        let fresh_until = quorum_at_us.saturating_add(FRESH_US);
        if now_us > fresh_until {
            // Time without a quorum does not count either.
            on_time = on_time.min(fresh_until.saturating_sub(counting.last_us));
        }
        if mutant!("stall_is_charged") {
            on_time = elapsed;
        }
        let forgiven = (elapsed - on_time).min(led.credit_us);
        let counted = elapsed - forgiven;
        led.credit_us = CREDIT_US.min(led.credit_us - forgiven + counted / CREDIT_PER_COUNTED);
        led.count_us += counted;
        counting.last_us = counting.last_us.max(now_us);
    }
}

#[cfg(test)]
mod tests {
    use tenure_core::codec::{encode_request, seal_entry};
    use tenure_core::outcome::Effects;
    use tenure_core::request::{Command, LeaseRef, NewLease, Request, RequestId};
    use tenure_core::{LEVEL_MAX, Machine};
    use tenure_types::{Epoch, LeaseId};

    use super::*;

    const MS: u64 = 1000;
    const S: u64 = 1000 * MS;

    fn counting() -> LeaseClock {
        let mut clock = LeaseClock::default();
        clock.lead(Term(3));
        clock.start(Term(3), 500, S);
        clock
    }

    impl LeaseClock {
        fn seal(&mut self, now_us: u64, quorum_at_us: u64) -> u64 {
            let count_ms = self.count_ms(now_us, quorum_at_us);
            self.stamp();
            count_ms
        }
    }

    fn checkpoint_at(now_us: u64, due_ms: Option<u64>) -> Checkpoint {
        Checkpoint { now_us, quorum_at_us: now_us, due_ms, in_flight: false }
    }

    #[test]
    fn nothing_counts_before_an_entry_of_the_term_is_applied() {
        let mut clock = LeaseClock::default();
        clock.lead(Term(3));
        assert_eq!(clock.seal(5 * S, 5 * S), 0);
        assert!(!clock.checkpoint(checkpoint_at(9 * S, Some(0))));
        clock.start(Term(3), 0, 9 * S);
        assert_eq!(clock.seal(9 * S + 80 * MS, 9 * S + 80 * MS), 80);
    }

    #[test]
    fn sleep_that_was_asked_for_counts_and_lateness_does_not() {
        let mut clock = counting();
        assert!(!clock.checkpoint(checkpoint_at(S + 10 * MS, None)));
        assert_eq!(clock.seal(S + 60 * MS, S + 60 * MS), 60);
        assert!(!clock.checkpoint(checkpoint_at(S + 60 * MS, None)));
        let late = S + 60 * MS + 3 * S;
        assert_eq!(clock.seal(late, late), 60 + 50 + 50);
    }

    #[test]
    fn time_without_a_quorum_does_not_count() {
        let mut clock = counting();
        let quorum_at_us = S;
        let mut now_us = S;
        for _ in 0..20 {
            now_us += 50 * MS;
            clock.checkpoint(Checkpoint { now_us, quorum_at_us, due_ms: None, in_flight: false });
        }
        assert_eq!(clock.seal(now_us, quorum_at_us), FRESH_US / MS);
    }

    #[test]
    fn mercy_ends_with_the_credit_and_comes_back_slowly() {
        let mut clock = counting();
        let late = S + CREDIT_US + 10 * S;
        let counted = clock.seal(late, late);
        assert_eq!(counted, 10_000, "all the credit was used, which on-time sleep does not change");
        assert!(!clock.checkpoint(checkpoint_at(late, None)));
        let credit_us = 10 * S / CREDIT_PER_COUNTED;
        let again = late + 5 * S;
        assert_eq!(clock.seal(again, again) - counted, (5 * S - credit_us) / MS);
    }

    #[test]
    fn a_new_term_counts_from_zero_even_if_no_change_of_role_was_seen() {
        let mut clock = counting();
        assert_eq!(clock.seal(S + 70 * MS, S + 70 * MS), 70);
        clock.lead(Term(5));
        assert_eq!(clock.seal(9 * S, 9 * S), 0);
        assert!(!clock.started(Term(5)));
    }

    #[test]
    fn an_idle_leader_wakes_at_the_deadline_and_seals_once() {
        let mut clock = counting();
        assert!(!clock.checkpoint(checkpoint_at(S, Some(520))));
        assert_eq!(clock.wake_by_us(), Some(S + 20 * MS));
        let due = Checkpoint { in_flight: false, ..checkpoint_at(S + 20 * MS, Some(520)) };
        assert!(clock.checkpoint(due));
        assert_eq!(clock.seal(due.now_us, due.now_us), 20);
        assert!(!clock.checkpoint(Checkpoint { in_flight: true, ..due }), "one is on its way");
        assert!(clock.checkpoint(due), "it was applied and more is due");
    }

    #[test]
    fn a_stamp_is_sealed_once_a_second_while_something_is_pending() {
        let mut clock = counting();
        let mut sealed = 0;
        for turn in 1..=100 {
            let now_us = S + turn * 50 * MS;
            if clock.checkpoint(checkpoint_at(now_us, Some(1_000_000))) {
                clock.seal(now_us, now_us);
                sealed += 1;
            }
        }
        assert_eq!(sealed, 5);
        for turn in 101..=200 {
            assert!(
                !clock.checkpoint(checkpoint_at(S + turn * 50 * MS, None)),
                "nothing is pending"
            );
        }
    }

    /// Creates a machine at the newest level, at the clock of count 0.
    fn newest() -> Machine {
        let mut machine = Machine::new(Epoch::default());
        apply(&mut machine, 0, Some(Command::RaiseLevel { level: LEVEL_MAX }));
        machine
    }

    fn apply(machine: &mut Machine, count_ms: u64, command: Option<Command<'_>>) {
        let mut request = Vec::new();
        let id = RequestId::None;
        let command = command.map(|command| Request { principal: "", id, command });
        let requests = command.map(|it| encode_request(&it, &mut request)).map(|()| &request[..]);
        let payload = seal_entry(Term(3), count_ms, requests);
        let mut effects = Effects::default();
        machine.apply(Term(3), Some(&payload), &mut effects);
        assert!(effects.outcomes.iter().all(|outcome| outcome.result.is_ok()), "{effects:?}");
    }

    #[test]
    fn no_lease_ends_before_its_ttl_has_passed_however_counts_are_rounded() {
        let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
        let mut below = |bound: u64| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed % bound
        };
        let id = LeaseId::new(1).unwrap();
        for _ in 0..2_000 {
            let ttl_ms = 1_000 + below(200);
            let granted_us = S + below(5_000);
            let end_us = granted_us + ttl_ms * MS;
            let looks_us = [end_us - 1 - below(MS), end_us - 1, end_us + 2 * MS];
            let (mut machine, mut clock) = (newest(), counting());
            let mut now_us = S;
            let mut sleep_until = |clock: &mut LeaseClock, until_us: u64, now_us: &mut u64| {
                while *now_us < until_us {
                    *now_us = until_us.min(*now_us + 1 + below(TICK_US));
                    clock.checkpoint(checkpoint_at(*now_us, None));
                }
            };
            sleep_until(&mut clock, granted_us, &mut now_us);
            let new = NewLease { id, ttl_ms, client: "a", metadata: b"" };
            apply(&mut machine, clock.seal(now_us, now_us), Some(Command::GrantLease(new)));
            for look_us in looks_us {
                sleep_until(&mut clock, look_us, &mut now_us);
                apply(&mut machine, clock.seal(now_us, now_us), None);
                let live = machine.lease(LeaseRef::Id(id)).is_some();
                let passed_us = look_us - granted_us;
                assert_eq!(live, look_us < end_us, "{ttl_ms} ms of ttl, {passed_us} µs passed");
            }
        }
    }

    #[test]
    fn a_clock_that_goes_back_counts_nothing() {
        let mut clock = counting();
        assert_eq!(clock.seal(S + 40 * MS, S), 40);
        assert_eq!(clock.seal(S, S), 40);
        assert_eq!(clock.seal(S + 50 * MS, S), 50);
    }
}
