//! Executes the queries of a script and writes their answers in words.

use tenure_core::event::{Event, Subject};
use tenure_core::request::{LeaseRef, Purpose};
use tenure_core::view::{DrainView, HolderView, KeyView, LeaseView, LockView, WaiterView};
use tenure_core::{Explained, Filter, Freed, Machine};
use tenure_types::{LeaseId, Mode, PlaceNumber, Revision};

use super::answer::holder_state;
use super::stage::ScriptRun;
use super::words::{Words, number, show_bytes, show_span};

/// Answers a query; `None` if the action is not one.
pub(super) fn question(machine: &Machine, stage: &ScriptRun, words: &Words) -> Option<String> {
    let max = || {
        let max = words.number("max").map(|max| usize::try_from(max).expect("a number"));
        max.unwrap_or(usize::MAX)
    };
    let lease = |name: &str| stage.lease_ref(name, words);
    let argument = words.plain.get(1).map_or("", String::as_str);
    Some(match words.at(0) {
        "show" => machine.lock(argument).map_or_else(
            || String::from("free"),
            |view| lock(&view, &machine.queue(argument, None, usize::MAX)),
        ),
        "queue" => {
            let after = words.number("after").map(PlaceNumber);
            join(machine.queue(argument, after, max()).iter().map(waiter))
        }
        "list" => {
            let sorted = machine.sorted_locks(usize::MAX).unwrap();
            let locks = sorted.locks(argument, words.option("after"), max());
            join(locks.iter().map(|lock| lock.lock.to_string()))
        }
        "show-lease" => {
            machine.lease(lease(argument)).map_or_else(|| String::from("none"), |view| show(&view))
        }
        "leases" => {
            let after = words.number("after").and_then(LeaseId::new);
            join(machine.leases(after, max()).iter().map(|lease| lease.client.to_string()))
        }
        "get" => machine.key(argument).map_or_else(|| String::from("none"), |view| key(&view)),
        "keys" => {
            let keys = machine.keys(argument, words.option("after"), max());
            join(keys.iter().map(|key| format!("{}={}", key.key, show_bytes(&key.value))))
        }
        "explain" => {
            let (asker, lock): (Option<LeaseRef>, &str) = match words.plain.get(2) {
                Some(lock) => (Some(lease(argument)), lock),
                None => (None, argument),
            };
            let explained = machine.explain(asker, lock, max());
            explained.map_or_else(|| String::from("free"), |explained| explain(&explained))
        }
        "drains" => join(machine.drains().iter().map(drain)),
        "left" => {
            let sorted = machine.sorted_locks(usize::MAX).unwrap();
            sorted.holders_left(argument, None, usize::MAX).holders.to_string()
        }
        "events" => events(machine, words, max()),
        "clock" => format!("{} (term {})", show_span(machine.clock_ms()), machine.clock_term()),
        "revision" => format!("{} (floor {})", machine.revision(), machine.floor()),
        "epoch" => machine.epoch().get().to_string(),
        "level?" => machine.level().to_string(),
        "due" => machine.next_due_ms().map_or_else(|| String::from("nothing"), show_span),
        "weight" => machine.state_bytes().to_string(),
        "limit" => {
            let limit = tenure_types::Limit::from_name(argument).expect("a limit");
            machine.limits().get(limit).to_string()
        }
        "stats" => {
            let s = machine.stats();
            format!(
                "leases={} locks={} grants={} places={} keys={} requests={} deadlines={} cut={}",
                s.leases,
                s.locks,
                s.grants,
                s.places,
                s.keys,
                s.requests,
                s.deadlines,
                s.deadlock_searches_cut
            )
        }
        _ => return None,
    })
}

fn join(parts: impl Iterator<Item = String>) -> String {
    let parts: Vec<String> = parts.collect();
    if parts.is_empty() { String::from("nothing") } else { parts.join(", ") }
}

fn lock(view: &LockView, queue: &[WaiterView]) -> String {
    let holders = join(view.holders.iter().map(holder)).replace("nothing", "nobody");
    let queue: Vec<String> =
        queue.iter().map(|w| format!("{}{}", w.client, mode(w.mode))).collect();
    let waits = if queue.is_empty() { String::new() } else { format!(" | {}", queue.join(" ")) };
    assert_eq!(view.waiting, queue.len() as u64, "the lock counts its queue");
    let (created, modified) = (view.created, view.modified);
    format!("{holders}{waits} (created={created} modified={modified} version={})", view.version)
}

fn mode(mode: Mode) -> String {
    match mode {
        Mode::Exclusive | Mode::Slot { take: 1, .. } => String::new(),
        Mode::Slot { of, take } => format!(" {take} of {of}"),
        Mode::Shared => String::from(" shared"),
    }
}

fn holder(view: &HolderView) -> String {
    let mut text = format!("{} token={}{}", view.client, view.token, mode(view.mode));
    if let Some(slot) = view.slot {
        text += &format!(" slot={slot}");
    }
    text += &holder_state(view.state);
    if view.purpose == Purpose::Election {
        text += " leads";
    }
    if !view.metadata.is_empty() {
        text += &format!(" meta={}", show_bytes(&view.metadata));
    }
    text
}

fn waiter(view: &WaiterView) -> String {
    let mut text = format!("{}{} ahead={}", view.client, mode(view.mode), view.ahead);
    text += &format!(" waits {}", show_span(view.waiting_ms));
    if let Some(left_ms) = view.left_ms {
        text += &format!(" gives up in {}", show_span(left_ms));
    }
    if view.locks.len() > 1 {
        let locks: Vec<String> = view.locks.iter().map(ToString::to_string).collect();
        text += &format!(" for {}", locks.join("&"));
    }
    if view.purpose == Purpose::Election {
        text += " candidate";
    }
    if let Some(group) = &view.group {
        text += &format!(" group={group}");
    }
    if view.priority > 0 {
        text += &format!(" priority={}", view.priority);
    }
    let behind = view.behind.map_or_else(String::new, |place| format!(" behind={place}"));
    text + &format!(" (place={}{behind})", view.place)
}

fn show(view: &LeaseView) -> String {
    let mut text = format!("{} of {} left", show_span(view.left_ms), show_span(view.ttl_ms));
    let holds: Vec<String> =
        view.holds.iter().map(|(lock, token)| format!(" {lock}={token}")).collect();
    let waits: Vec<String> = view.waits.iter().map(|(_, lock)| format!(" {lock}")).collect();
    let keys: Vec<String> = view.keys.iter().map(|key| format!(" {key}")).collect();
    for (what, list) in [("holds", holds), ("waits", waits), ("keys", keys)] {
        if !list.is_empty() {
            text += &format!(", {what}{}", list.concat());
        }
    }
    if view.changed.0 > 0 {
        text += &format!(", lost something at {}", view.changed);
    }
    if !view.metadata.is_empty() {
        text += &format!(", meta={}", show_bytes(&view.metadata));
    }
    text + &format!(" (created={})", view.created)
}

fn key(view: &KeyView) -> String {
    let lease = view.lease.map_or("", |_| " leased");
    let (created, modified) = (view.created, view.modified);
    let value = show_bytes(&view.value);
    format!("{value} version={}{lease} (created={created} modified={modified})", view.version)
}

fn explain(explained: &Explained) -> String {
    let mut parts = Vec::new();
    for holder in &explained.lock.holders {
        let state = holder_state(holder.state);
        parts.push(format!("held by {} for {}{state}", holder.client, show_span(holder.held_ms)));
    }
    if !explained.ahead.is_empty() {
        let ahead: Vec<&str> = explained.ahead.iter().map(|waiter| &*waiter.client).collect();
        parts.push(format!("ahead {}", ahead.join(" ")));
    }
    if let Some(own) = &explained.own {
        parts.push(format!("own {}", waiter(own)));
    }
    let steps = explained.chain.steps.iter().map(|step| format!("{} {}", step.client, step.lock));
    let mut chain = steps.collect::<Vec<_>>().join(", ");
    if explained.chain.goes_on {
        chain += ", ...";
    }
    if !chain.is_empty() {
        parts.push(format!("chain {chain}"));
    }
    for progress in explained.lock.holders.iter().filter_map(|holder| holder.progress) {
        let (still, left) = (show_span(progress.still_ms), show_span(progress.left_ms));
        parts.push(format!("at {} for {still}, more is due in {left}", progress.number));
    }
    parts.push(match explained.freed {
        Freed::Now => String::from("free now"),
        Freed::IfSilentMs(ms) => format!("free in {} if silent", show_span(ms)),
        Freed::AtLatestMs(ms) => format!("free in {} at the latest", show_span(ms)),
    });
    if let Some(ms) = explained.quiet_ms {
        parts.push(format!("quiet for {}", show_span(ms)));
    }
    if let Some(drained) = &explained.drained {
        parts.push(format!("drained {}", drain(drained)));
    }
    if let Some(ms) = explained.reopening_ms {
        parts.push(format!("to be served, for {}", show_span(ms)));
    }
    parts.join("; ")
}

fn drain(view: &DrainView) -> String {
    let mut text = format!("{} for {}", view.prefix, show_span(view.drained_ms));
    if let Some(by) = &view.by {
        text += &format!(" by {by}");
    }
    if let Some(principal) = &view.principal {
        text += &format!(" as {principal}");
    }
    if view.reason.is_empty() { text } else { format!("{text}: {}", view.reason) }
}

fn events(machine: &Machine, words: &Words, max: usize) -> String {
    let from = Revision(number(words.at(3)));
    let filter = match words.at(1) {
        "all" => Filter::All,
        name => match name.strip_suffix('*') {
            Some(prefix) => Filter::Prefix(prefix),
            None => Filter::Exact(name),
        },
    };
    match machine.events(from, filter, max) {
        Err(compacted) => format!("compacted, history begins at {}", compacted.floor),
        Ok(found) => {
            let lines = found.batches.iter().flat_map(|batch| {
                batch.events.iter().map(|event| format!("{} {}", batch.revision, show_event(event)))
            });
            let lines: Vec<String> = lines.collect();
            let text = if lines.is_empty() { String::from("nothing") } else { lines.join("; ") };
            format!("{text} (next {})", found.next)
        }
    }
}

fn show_event(event: &Event) -> String {
    let mut text = match &event.subject {
        Subject::Lock(lock) => lock.to_string(),
        Subject::Key(key) => format!("key {key}"),
        Subject::Lease(_) => String::from("lease"),
        Subject::Settings => String::from("settings"),
    };
    text += &format!(" {}", event.cause.word());
    if let Some(client) = &event.client {
        text += &format!(" {client}");
    }
    if let Some(token) = event.token {
        text += &format!(" token={token}");
    }
    if let Some(mode_) = event.mode {
        text += &mode(mode_);
    }
    if let Some(slot) = event.slot {
        text += &format!(" slot={slot}");
    }
    if let Some(left_ms) = event.left_ms {
        text += &format!(" left={}", show_span(left_ms));
    }
    if let Some(by) = &event.by {
        text += &format!(" by={by}");
    }
    if let Some(reason) = &event.reason {
        text += &format!(" reason={reason}");
    }
    if let Some(principal) = &event.principal {
        text += &format!(" as={principal}");
    }
    if let Some(value) = &event.value {
        text += &format!(" value={}", show_bytes(value));
    }
    if let Some(previous) = &event.previous {
        text += &format!(" was {}@{}", show_bytes(&previous.value), previous.modified);
    }
    if let Some(ttl_ms) = event.ttl_ms {
        text += &format!(" ttl={}", show_span(ttl_ms));
    }
    if let Some(renewed_ms) = event.renewed_ms {
        text += &format!(" renewed={}", show_span(renewed_ms));
    }
    if let Some(priority) = event.priority {
        text += &format!(" priority={priority}");
    }
    if let Some(place) = event.place {
        text += &format!(" (place={place})");
    }
    text
}
