//! Writes the machine's answers and notices in the words of a script.

use tenure_core::outcome::{Answer, Effects, Grants, Notice, Outcome, Renewal, TakenBy};
use tenure_types::{Handle, Holder, HolderState, Refusal};

use super::words::show_span;

/// Shows all answers of an entry, then all its notices.
pub(super) fn show(effects: &Effects, name_of: impl Fn(Handle) -> String) -> String {
    let answers: Vec<String> = effects.outcomes.iter().map(outcome).collect();
    let notices = effects.notices.iter().map(|told| notice(told, &name_of));
    let mut parts: Vec<String> = Vec::new();
    if !answers.is_empty() {
        parts.push(answers.join(" + "));
    }
    parts.extend(notices);
    if parts.is_empty() { String::from("-") } else { parts.join("; ") }
}

fn outcome(outcome: &Outcome) -> String {
    match &outcome.result {
        Ok(answer) => show_answer(answer),
        Err(refusal) => format!("refused {}", show_refusal(refusal)),
    }
}

fn show_answer(answer: &Answer) -> String {
    match answer {
        Answer::LeaseGranted(lease) => format!("granted (created={})", lease.created),
        Answer::Renewed(renewals) => {
            renewals.iter().map(|r| renewal(r.as_ref())).collect::<Vec<_>>().join(", ")
        }
        Answer::Revoked => String::from("revoked"),
        Answer::Acquired(acquired) => {
            format!("held {} (place={})", grants(&acquired.grants), acquired.place)
        }
        Answer::Queued(queued) => format!("queued ahead={} (place={})", queued.ahead, queued.place),
        Answer::Ended => String::from("ended"),
        Answer::Released => String::from("released"),
        Answer::Left => String::from("left"),
        Answer::AlreadyHeld(held) => format!("already held {}", grants(held)),
        Answer::Downgraded { token } => format!("shared token={token}"),
        Answer::Updated { version } => format!("updated version={version}"),
        Answer::Forced { left_ms: 0 } => String::from("forced"),
        Answer::Forced { left_ms } => format!("forced, free in {}", show_span(*left_ms)),
        Answer::Stopped => String::from("stopped"),
        Answer::Put(key) => format!("written version={} (created={})", key.version, key.created),
        Answer::Deleted { existed: true } => String::from("deleted"),
        Answer::Deleted { existed: false } => String::from("absent"),
        Answer::LimitsSet => String::from("set"),
        Answer::Compacted { floor } => format!("kept from {floor}"),
        Answer::LevelRaised => String::from("raised"),
        Answer::AccessSet => String::from("done"),
        Answer::Drained => String::from("drained"),
        Answer::Undrained { existed: true } => String::from("opened"),
        Answer::Undrained { existed: false } => String::from("open already"),
        Answer::Progressed { left_ms: None } => String::from("noted, nothing due"),
        Answer::Progressed { left_ms: Some(ms) } => format!("noted, due in {}", show_span(*ms)),
        Answer::HandedOn { token } => format!("handed on under token={token}"),
        Answer::Resized => String::from("resized"),
        Answer::Abandoned { released: true } => String::from("abandoned, given up"),
        Answer::Abandoned { released: false } => String::from("abandoned"),
    }
}

fn renewal(renewal: Option<&Renewal>) -> String {
    match renewal {
        None => String::from("gone"),
        Some(renewal) if renewal.changed.0 == 0 => String::from("renewed"),
        Some(renewal) => format!("renewed, lost something at {}", renewal.changed),
    }
}

fn grants(grants: &Grants) -> String {
    let one = |grant: &tenure_core::outcome::LockGrant| match grant.slot {
        Some(slot) => format!("token={} slot={slot}", grant.token),
        None => format!("token={}", grant.token),
    };
    match grants {
        Grants::One(grant) => one(grant),
        Grants::Many(grants) => grants
            .iter()
            .map(|grant| format!("{} {}", grant.lock, one(grant)))
            .collect::<Vec<_>>()
            .join(", "),
    }
}

fn notice(notice: &Notice, name_of: &impl Fn(Handle) -> String) -> String {
    match notice {
        Notice::Granted { lease, place, grants: given, .. } => {
            format!("{} held {} (place={place})", name_of(*lease), grants(given))
        }
        Notice::Lost { lease, lock, token, cause, word, .. } => {
            let name = name_of(*lease);
            let said = word.as_deref().map_or(String::new(), said);
            let why = match cause.expect("apply knows the cause").word() {
                "expired" => String::new(),
                word => format!(", {word}"),
            };
            format!("{name} lost {lock}{why}{said} (token={token})")
        }
        Notice::WaitEnded { lease, place, refusal, .. } => {
            let why = match refusal.as_deref() {
                None => String::from("wait over"),
                Some(Refusal::Superseded(by)) => format!("superseded by {}", by.client),
                Some(refusal) => format!("wait over: {}", show_refusal(refusal)),
            };
            format!("{} {why} (place={place})", name_of(*lease))
        }
        Notice::LeaseEnded { lease, cause, word, .. } => {
            let said = word.as_deref().map_or(String::new(), said);
            let cause = cause.expect("apply knows the cause");
            format!("{} {}{said}", name_of(*lease), cause.word())
        }
    }
}

/// Who took something away and why; empty if no name was given.
fn said(word: &TakenBy) -> String {
    let Some(by) = &word.by else { return String::new() };
    word.reason.as_ref().map_or(format!(" by {by}"), |reason| format!(" by {by} for {reason}"))
}

/// The stable reason in lower case, and the details of the refusal.
fn show_refusal(refusal: &Refusal) -> String {
    let reason = refusal.reason().to_lowercase().replace('_', "-");
    let details = match refusal {
        Refusal::Limit { limit, bound, asked } => {
            format!("{} is {bound}, asked {asked}", limit.name())
        }
        Refusal::InvalidLimit { limit, asked } => format!("{} to {asked}", limit.name()),
        Refusal::InvalidLevel { from, to } => format!("{from} to {to}"),
        Refusal::TooManyInCommand { max } | Refusal::DrainsFull { max } => format!("max {max}"),
        Refusal::Draining(draining) => {
            let by = draining.by.as_ref().map_or(String::new(), |by| format!(" by {by}"));
            format!("{} below {}{by}: {}", draining.lock, draining.prefix, draining.reason)
        }
        Refusal::LeaseExists { lease } => format!("lease {lease}"),
        Refusal::Held(held) => {
            let by = held.holder.as_ref().map_or_else(|| String::from("nobody"), holder);
            format!("{} by {by}, {} ahead", held.lock, held.ahead)
        }
        Refusal::PoolEmpty { pool: lock }
        | Refusal::Overlap { lock }
        | Refusal::Duplicate { lock }
        | Refusal::NotHolder { lock }
        | Refusal::NotWaiting { lock }
        | Refusal::NotExclusive { lock }
        | Refusal::NotCooling { lock }
        | Refusal::GuardFailed { lock } => lock.to_string(),
        Refusal::OtherKind { lock, slots } => match slots {
            Some(slots) => format!("{lock} has {slots} slots"),
            None => format!("{lock} has no slots"),
        },
        // The cycle is the content of this refusal, so it cannot be left out.
        Refusal::Deadlock { ring } => {
            let steps = ring.iter().map(|link| format!("{} {}", link.client, link.lock));
            return format!("{reason}: {}", steps.collect::<Vec<_>>().join(", "));
        }
        // What is missing is the content of these.
        Refusal::Forbidden { verb } => return format!("{reason}: {}", verb.name()),
        Refusal::PriorityForbidden { asked, most } => {
            return format!("{reason}: priority {asked}, at most {most}");
        }
        Refusal::Quota { quota, bound, asked, setter, .. } => {
            let by = setter.as_ref().and_then(|setter| setter.principal.as_ref());
            let by = by.map_or(String::new(), |by| format!(" by {by}"));
            return format!("{reason}: {} {bound}{by}, asked {asked}", quota.name());
        }
        Refusal::TokenOutdated { lock, holder: has } => match has {
            Some(has) => format!("{lock} by {}", holder(has)),
            None => format!("{lock} by nobody"),
        },
        Refusal::MaxHoldTooShort { ttl_ms } => format!("ttl {}", show_span(*ttl_ms)),
        Refusal::CompareFailed { modified } => match modified {
            Some(modified) => format!("modified {modified}"),
            None => String::from("no such key"),
        },
        Refusal::RequestWindow { window } => format!("{window}"),
        Refusal::Quiet { left_ms } => format!("{} left", show_span(*left_ms)),
        Refusal::FutureRevision { asked, newest } => format!("asked {asked}, newest {newest}"),
        _ => return reason,
    };
    format!("{reason} ({details})")
}

fn holder(holder: &Holder) -> String {
    let state = holder_state(holder.state);
    format!("{} token={} for {}{state}", holder.client, holder.token, show_span(holder.held_ms))
}

pub(super) fn holder_state(state: HolderState) -> String {
    match state {
        HolderState::Held => String::new(),
        HolderState::Cooling { left_ms } => format!(" cooling {}", show_span(left_ms)),
        HolderState::Delayed { left_ms } => format!(" delayed {}", show_span(left_ms)),
        HolderState::Resting { left_ms } => format!(" resting {}", show_span(left_ms)),
    }
}
