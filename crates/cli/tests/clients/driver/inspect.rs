//! Runs the commands of operators: what locks, their queues and their past show, and the end of another client's
//! lease.

use serde_json::{Value, json};
use tenure::{Event, EventCause, LeaseId, LockView, Urgency};

use super::convert::failure;
use super::{Answer, Made, streams, text, unknown_name};

/// Shows a lock.
pub(super) async fn show(made: &Made, command: &Value) -> Answer {
    let shown = made.client(command)?.show(text(command, "lock")).await;
    Ok(lock(shown.map_err(|error| failure(&error))?.as_ref()))
}

/// Explains a lock: the same, with its first waiter and the closed prefix that it is below.
pub(super) async fn explain(made: &Made, command: &Value) -> Answer {
    let explained = made.client(command)?.explain(text(command, "lock")).await;
    let explained = explained.map_err(|error| failure(&error))?;
    let mut fields = lock(explained.lock.as_ref());
    fields["ahead"] = json!(explained.ahead.len());
    if let Some(first) = explained.ahead.first() {
        fields["first"] = json!({
            "client": first.client,
            "lease": first.lease.to_string(),
            "priority": first.priority,
        });
    }
    if let Some(drained) = explained.drained {
        fields["drained"] = json!(drained.reason);
    }
    Ok(fields)
}

/// Lists the locks below a prefix.
pub(super) async fn locks(made: &Made, command: &Value) -> Answer {
    let (client, prefix) = (made.client(command)?, text(command, "prefix"));
    let found = client.locks(&prefix, None).await.map_err(|error| failure(&error))?;
    let names: Vec<&str> = found.iter().map(|lock| lock.name.as_str()).collect();
    Ok(json!({ "count": names.len(), "first": names.first(), "last": names.last() }))
}

/// Reads the past of a lock, or of all locks below a prefix.
pub(super) async fn history(made: &Made, command: &Value) -> Answer {
    let (client, name) = (made.client(command)?, text(command, "lock"));
    let mut ask =
        if command["prefix"] == true { client.history_prefix(name) } else { client.history(name) };
    if command["lost"] == true {
        ask = ask.lost();
    }
    let past = ask.read().await.map_err(|error| failure(&error))?;
    let events = past.batches.iter().flat_map(|batch| &batch.events);
    // Whether a request has to queue depends on when the release before it arrives.
    let events: Vec<&Event> = events.filter(|event| event.cause != EventCause::Queued).collect();
    let causes: Vec<&str> = events.iter().map(|event| streams::word(event.cause)).collect();
    let mut fields = json!({ "causes": causes.join(",") });
    if let Some(last) = events.last() {
        fields["last"] = json!({ "name": last.name, "client": last.client, "by": last.by, "reason": last.reason });
        if let Some(token) = last.token {
            fields["last"]["token"] = json!(token.to_string());
        }
    }
    Ok(fields)
}

/// Ends the lease of another client.
pub(super) async fn revoke(made: &Made, command: &Value) -> Answer {
    let target = text(command, "target");
    let lease = target.parse::<i64>().ok().and_then(tenure_wire::convert::lease_from);
    let lease: LeaseId = lease.ok_or_else(|| unknown_name("lease id", &target))?;
    let reason = text(command, "reason");
    let mut ask = made.client(command)?.revoke(lease, &reason, urgency(command));
    if let Some(by) = command["by"].as_str() {
        ask = ask.by(by);
    }
    ask.await.map_err(|error| failure(&error))?;
    Ok(json!({}))
}

/// Whether the holder may stop first.
pub(super) fn urgency(command: &Value) -> Urgency {
    if command["now"] == true { Urgency::Now } else { Urgency::StopFirst }
}

fn lock(shown: Option<&LockView>) -> Value {
    let mut fields = json!({ "waiting": shown.map_or(0, |lock| lock.waiting) });
    if let Some(holder) = shown.and_then(|lock| lock.holders.first()) {
        fields["holder"] = json!({ "client": holder.client, "token": holder.token.to_string() });
    }
    fields
}
