//! Compares the machine with the model, and names the invariant that a difference violates.
//!
//! The model knows all rules, so every difference is a violation. The invariant in the report helps the reader: in most
//! cases the kind of difference determines it.

use tenure_core::event::{Batch, Cause, Event, Subject};
use tenure_core::outcome::{Answer, Effects, LeaseGrant, Notice, Outcome};
use tenure_core::request::{Request, RequestId};
use tenure_core::view::{LeaseView, LockView, WaiterView};
use tenure_types::{Handle, HolderState, Limit, Refusal, Revision};

use crate::invariant::{CheckResult, InvariantViolation};
use crate::observe::ObservedState;

/// The handle that the model shows in place of every handle.
const NO_HANDLE: Handle = Handle { slot: 0, generation: 0 };

/// Compares the answers of both, without the machine's handles.
pub fn outcomes(
    requests: &[Option<Request<'_>>],
    machine: &Effects,
    model: &Effects,
    before: Revision,
) -> CheckResult {
    if machine.outcomes.len() != model.outcomes.len() {
        let (left, right) = (machine.outcomes.len(), model.outcomes.len());
        return differ("model", "number of outcomes", &left, &right);
    }
    let mut last = before;
    for (index, (left, right)) in machine.outcomes.iter().zip(&model.outcomes).enumerate() {
        let plain = without_handles(left);
        if plain != *right {
            let request = requests.get(index).and_then(Option::as_ref);
            let invariant = outcome_invariant(request, &plain, right, last);
            return differ(invariant, &format!("outcome {index}"), &plain, right);
        }
        last = right.revision;
    }
    Ok(())
}

/// Compares the refusals that one rule alone explains. This comes before the events, which such a refusal changes too.
pub fn refusals(machine: &Effects, model: &Effects) -> CheckResult {
    let invariant = |outcome: &Outcome| match outcome.result {
        Err(Refusal::Forbidden { .. } | Refusal::PriorityForbidden { .. }) => Some("A1"),
        Err(Refusal::Quota { .. }) => Some("A4"),
        Err(Refusal::Deadlock { .. }) => Some("Q4"),
        Err(Refusal::Limit { limit: Limit::Requests | Limit::RequestBytes, .. }) => Some("S7"),
        _ => None,
    };
    for (left, right) in machine.outcomes.iter().zip(&model.outcomes) {
        if let Some(invariant) = invariant(left).or(invariant(right))
            && left.result != right.result
        {
            return differ(invariant, "refusal", left, right);
        }
    }
    Ok(())
}

/// Compares the notices of both.
pub fn notices(machine: &Effects, model: &Effects) -> CheckResult {
    let same = machine.notices.len() == model.notices.len()
        && machine
            .notices
            .iter()
            .zip(&model.notices)
            .all(|(left, right)| notice_without_handle(left) == *right);
    if same {
        return Ok(());
    }
    // An upgrade that ends with its hold is told so.
    let of_hold = |notice: &Notice| match notice {
        Notice::WaitEnded { refusal, .. } => {
            matches!(refusal.as_deref(), Some(Refusal::NotHolder { .. }))
        }
        _ => false,
    };
    let mut pairs = machine.notices.iter().zip(&model.notices);
    let first = pairs.find(|(left, right)| notice_without_handle(left) != **right);
    let invariant = match first {
        Some((left, right)) if of_hold(left) != of_hold(right) => "Q8",
        _ => "model",
    };
    differ(invariant, "notices", &machine.notices, &model.notices)
}

/// Compares the new events of both.
pub fn events(machine: &[Batch], model: &[Batch]) -> CheckResult {
    if machine == model {
        return Ok(());
    }
    for (left, right) in machine.iter().zip(model) {
        if left.revision != right.revision {
            return differ("W3", "revision of a batch", &left.revision, &right.revision);
        }
        if left.events == right.events {
            // The label has the clock of the machine.
            same("T1", "label of a batch", &left.label, &right.label)?;
            continue;
        }
        let same = left.events.iter().zip(&right.events).take_while(|(a, b)| a == b).count();
        let (a, b) = (left.events.get(same), right.events.get(same));
        return differ(event_invariant(a, b), &format!("event at {}", left.revision), &a, &b);
    }
    let shorter = machine.len().min(model.len());
    let (left, right) = (machine.get(shorter), model.get(shorter));
    let first = |batch: Option<&Batch>| batch.and_then(|batch| batch.events.first()).cloned();
    let invariant = event_invariant(first(left).as_ref(), first(right).as_ref());
    differ(invariant, "batches", &left, &right)
}

/// Compares everything in the views.
pub fn views(machine: &ObservedState, model: &ObservedState) -> CheckResult {
    same("T1", "clock", &machine.clock, &model.clock)?;
    same("model", "level", &machine.level, &model.level)?;
    locks(machine, model)?;
    leases(&machine.leases, &model.leases)?;
    same("model", "keys", &machine.keys, &model.keys)?;
    same("model", "drains", &machine.drains, &model.drains)?;
    same("Q2", "reopening", &machine.reopening, &model.reopening)?;
    same("model", "limits", &machine.limits, &model.limits)?;
    same("W3", "revision", &machine.revision, &model.revision)?;
    same("W3", "floor", &machine.floor, &model.floor)?;
    same("T1", "next due", &machine.next_due, &model.next_due)?;
    same("S18", "state bytes", &machine.state_bytes, &model.state_bytes)
}

fn locks(machine: &ObservedState, model: &ObservedState) -> CheckResult {
    for (left, right) in machine.locks.iter().zip(&model.locks) {
        if left != right {
            return differ(lock_invariant(left, right), "lock", left, right);
        }
    }
    if machine.locks.len() != model.locks.len() {
        return differ("model", "locks", &machine.locks, &model.locks);
    }
    for (left, right) in machine.queues.iter().zip(&model.queues) {
        if left != right {
            return differ(queue_invariant(left, right), "queue", left, right);
        }
    }
    Ok(())
}

fn leases(machine: &[LeaseView], model: &[LeaseView]) -> CheckResult {
    for (left, right) in machine.iter().zip(model) {
        let mut plain = left.clone();
        plain.handle = NO_HANDLE;
        if plain == *right {
            continue;
        }
        let invariant = if plain.id != right.id || plain.left_ms != right.left_ms {
            "T1"
        } else if plain.created != right.created {
            "S5"
        } else {
            "model"
        };
        return differ(invariant, "lease", &plain, right);
    }
    same("T1", "number of leases", &machine.len(), &model.len())
}

fn outcome_invariant(
    request: Option<&Request<'_>>,
    machine: &Outcome,
    model: &Outcome,
    before: Revision,
) -> &'static str {
    let repeated = request.is_some_and(|request| request.id != RequestId::None);
    let once = [Refusal::RequestConflict, Refusal::RequestStale];
    let conflict =
        |outcome: &Outcome| outcome.result.as_ref().is_err_and(|refusal| once.contains(refusal));
    let ran_again = machine.revision > model.revision && model.revision <= before;
    if repeated && (ran_again || conflict(machine) || conflict(model)) {
        return "S7";
    }
    match (&machine.result, &model.result) {
        (Err(Refusal::Forbidden { .. } | Refusal::PriorityForbidden { .. }), _)
        | (_, Err(Refusal::Forbidden { .. } | Refusal::PriorityForbidden { .. })) => "A1",
        (Err(Refusal::Quota { .. }), _) | (_, Err(Refusal::Quota { .. })) => "A4",
        (Err(Refusal::Deadlock { .. }), _) | (_, Err(Refusal::Deadlock { .. })) => "Q4",
        // One of them considers a lease live that the other considers ended.
        (Err(Refusal::LeaseNotFound), _) | (_, Err(Refusal::LeaseNotFound)) => "S5",
        (Ok(Answer::Acquired(left)), Ok(Answer::Acquired(right)))
            if left.grants != right.grants =>
        {
            "S2"
        }
        (Ok(Answer::Downgraded { .. }), Ok(Answer::Downgraded { .. })) => "S2",
        // What is held now, or what was held when the request was first answered.
        (Ok(Answer::AlreadyHeld(_)), Ok(Answer::AlreadyHeld(_) | Answer::Left)) => "S7",
        (_, Ok(Answer::Undrained { .. })) => "S15",
        (Ok(Answer::HandedOn { .. }), _) | (_, Ok(Answer::HandedOn { .. })) => "S16",
        (Ok(Answer::Queued(left)), Ok(Answer::Queued(right))) if left.place != right.place => "Q3",
        (Ok(Answer::Queued(_)), Ok(Answer::Queued(_))) => "Q1",
        (Ok(Answer::Acquired(_)), Err(Refusal::Held(held))) => match held.holder {
            Some(ref holder) if holder.state == HolderState::Held => "S1",
            Some(_) => "T2",
            None => "Q1",
        },
        (Ok(Answer::Acquired(_)), Ok(Answer::Queued(_))) => "Q1",
        (Ok(Answer::Queued(_)) | Err(Refusal::Held(_)), Ok(Answer::Acquired(_))) => "Q2",
        (Ok(Answer::Forced { .. }), Ok(Answer::Forced { .. })) => "T2",
        (Ok(Answer::Progressed { .. }), Ok(Answer::Progressed { .. })) => "T6",
        (Ok(Answer::Renewed(_)), Ok(Answer::Renewed(_))) => "T1",
        (Ok(Answer::Compacted { .. }), Ok(Answer::Compacted { .. })) => "W3",
        // They see different asks of the lease, or only one of them sees one.
        (Err(Refusal::Overlap { .. }), _) | (_, Err(Refusal::Overlap { .. })) => "Q3",
        // The machine continued, to an answer or to a later refusal, although the token did not match.
        (
            _,
            Err(
                Refusal::NotHolder { .. }
                | Refusal::TokenOutdated { .. }
                | Refusal::GuardFailed { .. }
                | Refusal::NotCooling { .. },
            ),
        ) => "S4",
        _ => "model",
    }
}

fn event_invariant(machine: Option<&Event>, model: Option<&Event>) -> &'static str {
    let same_place = |left: &Event, right: &Event| {
        left.cause == right.cause && left.subject == right.subject && left.lease == right.lease
    };
    match (machine, model) {
        (Some(left), Some(right)) if same_place(left, right) => {
            if left.token != right.token {
                "S2"
            } else if left.place != right.place {
                "Q3"
            } else if left.left_ms != right.left_ms {
                if left.cause == Cause::Released { "T5" } else { "T2" }
            } else if left.cause == Cause::Granted && left.value != right.value {
                "S18"
            } else if left.cause == Cause::HistoryCompacted {
                "W3"
            } else {
                "model"
            }
        }
        (Some(left), Some(right)) if left.cause == Cause::Granted && right.cause == left.cause => {
            "Q1"
        }
        (_, Some(right)) if right.cause == Cause::NoProgress => "T6",
        (_, Some(right)) if right.cause == Cause::Granted => "Q2",
        (Some(left), _) if left.cause == Cause::Granted => "Q1",
        // A wait whose limit has passed must be over before anything else happens.
        (_, Some(right)) if right.cause == Cause::WaitTimeout => "Q2",
        (left, right) => left.or(right).map_or("model", cause_invariant),
    }
}

fn cause_invariant(event: &Event) -> &'static str {
    match (event.cause, &event.subject) {
        (Cause::Cooled | Cause::DelayOver, _) => "T2",
        (Cause::MinHoldOver, _) => "T5",
        (Cause::NoProgress, _) => "T6",
        (Cause::Expired, _) => "T1",
        (Cause::Released | Cause::Forced, _) => "S4",
        (Cause::Queued, Subject::Lock(_)) => "Q3",
        (Cause::WaitTimeout | Cause::Left, _) => "Q2",
        (Cause::Superseded, _) => "Q6",
        (Cause::Upgraded, _) => "Q8",
        (Cause::HandedOn, _) => "S16",
        (Cause::TooManySlots, _) => "Q9",
        (Cause::GrantedElsewhere, _) => "S19",
        (Cause::HistoryCompacted, _) => "W3",
        _ => "model",
    }
}

fn lock_invariant(machine: &LockView, model: &LockView) -> &'static str {
    if machine.lock != model.lock {
        return "model";
    }
    let (left, right) = (&machine.holders, &model.holders);
    if left.len() > right.len() {
        return if right.is_empty() { "Q1" } else { "S1" };
    }
    if left.len() < right.len() {
        return "Q2";
    }
    for (left, right) in left.iter().zip(right) {
        if left.lease != right.lease {
            return "Q1";
        }
        if left.token != right.token {
            return "S2";
        }
        if left.state != right.state {
            return "T2";
        }
        if left.progress != right.progress {
            return "T6";
        }
        if left.min_hold_ms != right.min_hold_ms {
            return "T5";
        }
    }
    if machine.waiting != model.waiting { "Q3" } else { "model" }
}

fn queue_invariant(machine: &[WaiterView], model: &[WaiterView]) -> &'static str {
    let places = |queue: &[WaiterView]| queue.iter().map(|waiter| waiter.place).collect::<Vec<_>>();
    let (mut left, mut right) = (places(machine), places(model));
    if left == right {
        return "model";
    }
    left.sort_unstable();
    right.sort_unstable();
    let urgent = machine.iter().any(|waiter| waiter.priority > 0);
    match left == right {
        true if urgent => "Q7",
        true => "Q1",
        false => "Q3",
    }
}

fn without_handles(outcome: &Outcome) -> Outcome {
    let mut plain = outcome.clone();
    let hide = |lease: &mut LeaseGrant| lease.handle = NO_HANDLE;
    match &mut plain.result {
        Ok(Answer::LeaseGranted(lease)) => hide(lease),
        Ok(Answer::Acquired(acquired)) => hide(&mut acquired.lease),
        Ok(Answer::Queued(queued)) => hide(&mut queued.lease),
        _ => {}
    }
    plain
}

fn notice_without_handle(notice: &Notice) -> Notice {
    let mut plain = notice.clone();
    match &mut plain {
        Notice::Granted { lease, .. }
        | Notice::Lost { lease, .. }
        | Notice::WaitEnded { lease, .. }
        | Notice::LeaseEnded { lease, .. } => *lease = NO_HANDLE,
    }
    plain
}

fn same<T: PartialEq + std::fmt::Debug>(
    invariant: &str,
    what: &str,
    machine: &T,
    model: &T,
) -> CheckResult {
    if machine == model { Ok(()) } else { differ(invariant, what, machine, model) }
}

fn differ<T: std::fmt::Debug>(invariant: &str, what: &str, machine: &T, model: &T) -> CheckResult {
    let detail = format!("{what} differs: machine {machine:?}, model {model:?}");
    Err(InvariantViolation::new(invariant, detail))
}
