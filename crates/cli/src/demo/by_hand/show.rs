//! Formats the state machine's answers and views as text.

use tenure_core::event::{Batch, Cause, Subject};
use tenure_core::outcome::{Answer, Grants, Notice};
use tenure_core::view::LockView;
use tenure_core::{Freed, Machine};
use tenure_types::{Handle, HolderState};

/// A duration in a short, readable form.
pub(crate) fn time(ms: u64) -> String {
    match ms {
        0..10_000 if !ms.is_multiple_of(1_000) => format!("{ms}ms"),
        0..120_000 => format!("{}s", ms / 1_000),
        120_000..7_200_000 => format!("{}m{:02}s", ms / 60_000, ms / 1_000 % 60),
        _ => format!("{}h{:02}m", ms / 3_600_000, ms / 60_000 % 60),
    }
}

pub(crate) fn answer(answer: &Answer) -> String {
    match answer {
        Answer::Acquired(acquired) => format!("acquired {}", grants(&acquired.grants)),
        Answer::Queued(queued) => format!("queued, {} ahead", queued.ahead),
        Answer::Released => "released".to_owned(),
        Answer::Left => "left the queue".to_owned(),
        Answer::AlreadyHeld(held) => format!("too late to leave: {} is held", grants(held)),
        Answer::Forced { left_ms: 0 } => "taken away; it has gone on".to_owned(),
        Answer::Forced { left_ms } => {
            format!("taken away; revoking until the holder confirms, at most {}", time(*left_ms))
        }
        Answer::Stopped => "confirmed; the lock goes on".to_owned(),
        other => format!("{other:?}"),
    }
}

pub(crate) fn notice(notice: &Notice, name: &dyn Fn(Handle) -> String) -> String {
    match notice {
        Notice::Granted { lease, grants: granted, .. } => {
            format!("{} is told: acquired {}", name(*lease), grants(granted))
        }
        Notice::Lost { lease, lock, token, cause, .. } => {
            format!("{} is told: lost `{lock}`, token {token}: {}", name(*lease), word(*cause))
        }
        Notice::WaitEnded { lease, .. } => format!("{} is told: timed out", name(*lease)),
        Notice::LeaseEnded { lease, cause, .. } => {
            format!("{}'s lease has ended: {}", name(*lease), word(*cause))
        }
    }
}

fn word(cause: Option<Cause>) -> &'static str {
    cause.map_or("cause not known", Cause::word)
}

fn grants(grants: &Grants) -> String {
    let shown = grants.as_slice().iter().map(|grant| match grant.slot {
        Some(slot) => format!("`{}`, slot {slot}, token {}", grant.lock, grant.token),
        None => format!("`{}`, token {}", grant.lock, grant.token),
    });
    shown.collect::<Vec<_>>().join("; ")
}

pub(crate) fn locks(machine: &Machine) -> String {
    let sorted = machine.sorted_locks(usize::MAX).expect("without a bound all are sorted");
    let locks = sorted.locks("", None, 50);
    if locks.is_empty() {
        return "no client holds or awaits a lock".to_owned();
    }
    let lines: Vec<String> =
        locks.iter().map(|lock| format!("{}  {}", lock.lock, state(lock))).collect();
    lines.join("\n")
}

fn state(lock: &LockView) -> String {
    let Some(holder) = lock.holders.first() else { return "awaited".to_owned() };
    let more = match lock.holders.len() {
        1 => String::new(),
        n => format!(" +{}", n - 1),
    };
    let kept = match holder.state {
        HolderState::Held => {
            format!("held by {}{more} for {}", holder.client, time(holder.held_ms))
        }
        HolderState::Cooling { left_ms } => format!("revoking, {} left", time(left_ms)),
        HolderState::Delayed { left_ms } => format!("delayed, {} left", time(left_ms)),
        HolderState::Resting { left_ms } => format!("resting, {} left", time(left_ms)),
    };
    format!("{kept}, token {}, {} waiting", holder.token, lock.waiting)
}

pub(crate) fn explain(machine: &Machine, lock: &str) -> String {
    let Some(explained) = machine.explain(None, lock, 10) else {
        return format!("lock `{lock}` is free");
    };
    let mut lines = vec![format!("lock `{lock}`, {}", state(&explained.lock))];
    for waiter in &explained.ahead {
        lines.push(format!(
            "  {}. {}, waiting {}",
            waiter.ahead + 1,
            waiter.client,
            time(waiter.waiting_ms)
        ));
    }
    if explained.chain.steps.len() > 1 {
        let steps =
            explained.chain.steps.iter().map(|step| format!("{} → {}", step.lock, step.client));
        lines.push(format!("  chain  {}", steps.collect::<Vec<_>>().join(" → ")));
    }
    lines.push(match explained.freed {
        Freed::Now => "  free   now".to_owned(),
        Freed::IfSilentMs(ms) => {
            format!("  free   when released, or in {} if its holder stops renewing now", time(ms))
        }
        Freed::AtLatestMs(ms) => format!("  free   in {} at the latest", time(ms)),
    });
    lines.join("\n")
}

pub(crate) fn batch(batch: &Batch) -> String {
    let events = batch.events.iter().map(|event| {
        let subject = match &event.subject {
            Subject::Lock(lock) => format!("`{lock}`"),
            Subject::Key(key) => format!("key `{key}`"),
            Subject::Lease(lease) => format!("lease {lease}"),
            Subject::Settings => "settings".to_owned(),
        };
        let client = event.client.as_ref().map(|client| format!(" {client}")).unwrap_or_default();
        let token = event.token.map(|token| format!(" token {token}")).unwrap_or_default();
        format!("{subject} {}{client}{token}", event.cause.word())
    });
    format!("{:>6}  {}", batch.revision, events.collect::<Vec<_>>().join(", "))
}
