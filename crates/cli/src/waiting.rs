//! Describes the state of a wait for a lock: the place, the holders, the waiters ahead, and when the lock can be free.

use serde_json::{Value, json};
use tenure_wire::v1;
use tenure_wire::v1::ExplainResponse as Explanation;

use crate::client_name::GRANTED_SUFFIX;
use crate::duration;
use crate::failure::quoted;
use crate::output;
use crate::suggest::suggested;

/// How many holders and waiters are listed.
pub(crate) const SHOWN_MAX: usize = 3;

/// The holder that is shown where there is room for one.
pub(crate) fn holder(explained: &Explanation) -> Option<&v1::HolderView> {
    explained.lock.as_ref()?.holders.first()
}

/// The same holder for programs.
pub(crate) fn holder_json(explained: &Explanation) -> Option<Value> {
    holder(explained).map(|it| {
        json!({
            "client": it.client, "token": it.token.to_string(), "held_ms": it.held_ms,
            "lease": it.lease.to_string(),
        })
    })
}

/// The state in one line, for a log.
pub(crate) fn line(lock: &str, ahead: u64, explained: &Explanation) -> String {
    let held = holder(explained)
        .map_or(String::new(), |holder| format!(", held by {}", holder_words(holder)));
    line_about(&format!("{}{held}", headline(&lock_words(lock), ahead)), explained)
}

/// A line for a log, with what hinders every grant.
pub(crate) fn line_about(line: &str, explained: &Explanation) -> String {
    let quiet = explained
        .quiet_ms
        .map_or(String::new(), |ms| format!("; the cluster was restored: {}", output::quiet(ms)));
    let drained = explained
        .drained
        .as_ref()
        .map_or(String::new(), |drain| format!("; {}", drain_words(drain)));
    format!("{line}{quiet}{drained}")
}

/// The state as a block, for a terminal.
pub(crate) fn block(lock: &str, ahead: u64, explained: &Explanation) -> Vec<String> {
    block_of(headline(&lock_words(lock), ahead), facts(lock, explained))
}

/// A block of a headline and labelled lines.
pub(crate) fn block_of(headline: String, facts: Vec<(&'static str, String)>) -> Vec<String> {
    let facts = facts.into_iter().map(|(label, it)| labelled(label, &it));
    [headline].into_iter().chain(facts).collect()
}

fn lock_words(lock: &str) -> String {
    format!("lock `{lock}`")
}

/// What a client waits for, and behind how many others.
pub(crate) fn headline(what: &str, ahead: u64) -> String {
    match ahead {
        0 => format!("tenure: waiting for {what}, you are next"),
        _ => format!("tenure: waiting for {what}, {ahead} ahead of you"),
    }
}

/// How many waiters were ahead of one that left.
pub(crate) fn were_ahead(ahead: u64) -> String {
    match ahead {
        0 => "no client was ahead".to_owned(),
        1 => "1 was ahead".to_owned(),
        more => format!("{more} were ahead"),
    }
}

/// What a waiter waits for if one of several locks is enough: `any of a, b`, or `any slot of pool gpu/`.
pub(crate) fn choice_words(waiter: &v1::WaiterView) -> Option<String> {
    if !waiter.pool.is_empty() {
        return Some(format!("any slot of pool {}", output::shortened(&waiter.pool)));
    }
    if !waiter.any {
        return None;
    }
    let mut names: Vec<String> =
        waiter.locks.iter().take(SHOWN_MAX).map(|lock| output::shortened(lock)).collect();
    if waiter.locks.len() > SHOWN_MAX {
        names.push(format!("and {} more", waiter.locks.len() - SHOWN_MAX));
    }
    Some(format!("any of {}", names.join(", ")))
}

/// A labelled line: `  held by  ci-7/4121`.
pub(crate) fn labelled(label: &str, text: &str) -> String {
    format!("  {label:<8} {text}")
}

/// Who holds, who is ahead, when the lock can be free, and what to type.
pub(crate) fn facts(lock: &str, explained: &Explanation) -> Vec<(&'static str, String)> {
    let mut facts = Vec::new();
    for holder in explained.lock.iter().flat_map(|lock| &lock.holders).take(SHOWN_MAX) {
        facts.push(("held by", holder_words(holder)));
    }
    for waiter in explained.ahead.iter().take(SHOWN_MAX) {
        let waiting = duration::ms(waiter.waiting_ms);
        facts.push(("ahead", format!("{}, waiting {waiting}", output::clean(&waiter.client))));
    }
    facts.extend(hindering_facts(explained));
    if let Some(free) = free_words(explained) {
        facts.push(("free", free));
    }
    facts.push(("look", suggested(&format!("tenure explain {}", quoted(lock)))));
    facts
}

/// The same for a client for which any of several locks is enough. At most [`SHOWN_MAX`] of the `all` locks are
/// explained.
pub(crate) fn facts_of_choice(
    explained: &[(String, Explanation)],
    all: usize,
    look: &str,
) -> Vec<(&'static str, String)> {
    let mut facts = Vec::new();
    for (lock, told) in explained {
        if let Some(holder) = holder(told) {
            let lock = output::shortened(lock);
            facts.push(("held by", format!("{lock}: {}", holder_words(holder))));
        }
    }
    if all > explained.len() {
        facts.push(("", format!("and {} more", all - explained.len())));
    }
    facts.extend(explained.first().map(|(_, told)| hindering_facts(told)).unwrap_or_default());
    facts.push(("free", "when the first of them is released".to_owned()));
    facts.push(("look", suggested(look)));
    facts
}

/// What keeps every request from being granted: the wait after a restore, a drained prefix.
fn hindering_facts(explained: &Explanation) -> Vec<(&'static str, String)> {
    let quiet = explained.quiet_ms.map(|quiet_ms| ("restored", output::quiet(quiet_ms)));
    let drained = explained.drained.as_ref().map(|drain| ("drained", drain_words(drain)));
    quiet.into_iter().chain(drained).collect()
}

/// The revision at which the prefix of the lock was drained, if it is.
pub(crate) fn drained_at(explained: &Explanation) -> Option<i64> {
    explained.drained.as_ref().map(|drain| drain.created)
}

/// A drained prefix for programs, without the holders, which an explanation does not count.
pub(crate) fn drain_json(drain: &v1::DrainView) -> Value {
    json!({
        "prefix": drain.prefix, "drained_ms": drain.drained_ms, "by": drain.by,
        "principal": drain.principal, "reason": drain.reason,
    })
}

/// The command that opens a drained prefix.
pub(crate) fn undrain_command(prefix: &str) -> String {
    match prefix {
        "" => suggested("tenure undrain --all"),
        prefix => suggested(&format!("tenure undrain {}", quoted(prefix))),
    }
}

/// A drained prefix in a few words: since when, by whom and why nothing below it is granted.
pub(crate) fn drain_words(drain: &v1::DrainView) -> String {
    let what = match drain.prefix.as_str() {
        "" => "the cluster".to_owned(),
        prefix => format!("`{}`", output::shortened(prefix)),
    };
    let by = match (drain.by.as_str(), drain.principal.as_str()) {
        ("", "") => String::new(),
        (by, "") => format!(" by {}", output::clean(by)),
        ("", principal) => format!(" by {}", output::clean(principal)),
        (by, principal) => format!(" by {} ({})", output::clean(by), output::clean(principal)),
    };
    let why = match drain.reason.as_str() {
        "" => String::new(),
        reason => format!(": {}", output::clean(reason)),
    };
    format!("{what} is drained for {}{by}{why}", duration::ms(drain.drained_ms))
}

/// A holder in a few words.
pub(crate) fn holder_words(holder: &v1::HolderView) -> String {
    holder_words_with(holder, "")
}

/// A holder in a few words, with more after its token.
pub(crate) fn holder_words_with(holder: &v1::HolderView, more: &str) -> String {
    let (client, token) = (client_words(&holder.client), holder.token);
    let mut words = match holder.state() {
        v1::HolderState::Held => {
            format!("{client} for {}, token {token}", duration::ms(holder.held_ms))
        }
        v1::HolderState::Cooling => {
            format!(
                "{client} until now, token {token}, revoking for {} at most",
                duration::ms(holder.left_ms)
            )
        }
        v1::HolderState::Delayed => {
            format!(
                "no client; {client} stopped renewing, lock-delay {} more",
                duration::ms(holder.left_ms)
            )
        }
        v1::HolderState::Resting => {
            format!(
                "no client; {client} started {} ago, at most once per {}, {} more",
                duration::ms(holder.held_ms),
                duration::ms(holder.min_hold_ms),
                duration::ms(holder.left_ms)
            )
        }
    };
    if let Some(slot) = holder.slot {
        words.push_str(&format!(", slot {slot}"));
    }
    words.push_str(more);
    if let Some(renewed) = holder.renewed_ms {
        words.push_str(&format!(", renewed {} ago", duration::ms(renewed)));
    }
    if !holder.metadata.is_empty() {
        words.push_str(&format!(": {:?}", output::bytes(&holder.metadata)));
    }
    words
}

/// A client as it is shown: its name. The process that ran `tenure lease grant` has usually ended by now, and is not
/// the one that works under the lease.
pub(crate) fn client_words(client: &str) -> String {
    let client = output::clean(client);
    match client.strip_suffix(GRANTED_SUFFIX) {
        Some(process) => format!("a lease granted by {process}, which may have ended,"),
        None => client,
    }
}

/// How many slots of a semaphore are free; `None` if none is, or for another lock.
pub(crate) fn free_slots(explained: &Explanation) -> Option<String> {
    let lock = explained.lock.as_ref()?;
    let (slots, held) = (u64::from(lock.slots?), lock.holders.len() as u64 + lock.more_holders);
    let granted = explained.quiet_ms.is_none() && explained.drained.is_none();
    let free = slots.checked_sub(held).filter(|free| *free > 0 && granted)?;
    // No request passes the first in the queue, so free slots are free for that request only.
    let first = explained.ahead.first().or(explained.own.as_ref()).filter(|it| it.take > 1);
    if let Some(first) = first.filter(|first| u64::from(first.take) > free) {
        return Some(format!(
            "{free} of {slots} slots, kept for the first, who wants {}",
            first.take
        ));
    }
    let are = if free == 1 { "is" } else { "are" };
    Some(format!("now: {free} of {slots} slots {are} free"))
}

/// When the lock can be free.
pub(crate) fn free_words(explained: &Explanation) -> Option<String> {
    if let Some(free) = free_slots(explained) {
        return Some(free);
    }
    let freed = explained.freed.as_ref()?;
    let (time, holders) = (duration::ms(freed.in_ms), explained.lock.as_ref()?.holders.len());
    let who = match holder(explained) {
        Some(holder) if holders == 1 => output::clean(&holder.client),
        _ => "its holders".to_owned(),
    };
    let stops = if holders == 1 { "stops" } else { "stop" };
    let state = holder(explained).map(tenure_wire::v1::HolderView::state);
    if state == Some(v1::HolderState::Resting) && holders == 1 {
        return Some(format!("in {time}, or when it is forced"));
    }
    let taken = state == Some(v1::HolderState::Cooling);
    Some(if taken && holders == 1 {
        format!("when {who} confirms that it has stopped, or in {time} at the latest")
    } else if freed.at_latest {
        format!("when released, or in {time} at the latest")
    } else {
        format!("when released, or in {time} if {who} {stops} renewing now")
    })
}
