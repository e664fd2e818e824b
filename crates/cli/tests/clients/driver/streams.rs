//! Reports the events of elections and watches.

use serde_json::{Value, json};
use tenure::{Change, Error, Event, EventCause, Revision, Subject};
use tenure_server::os;

use super::convert::failure;
use super::{Answer, Made, tell, text};

/// Observes an election, and reports each leader.
pub(super) async fn observe(made: &Made, command: &Value) -> Answer {
    let election = made.client(command)?.election(text(command, "election"));
    let mut seen = election.observe().await.map_err(|error| failure(&error))?;
    let stream = text(command, "stream");
    let task = tokio::spawn(async move {
        loop {
            let value = match seen.next().await {
                Ok(Some(Change::Leader(leader))) => json!(String::from_utf8_lossy(&leader.value)),
                Ok(Some(_)) => Value::Null,
                Ok(None) => break,
                Err(error) if error.is_retryable() => continue,
                Err(_) => break,
            };
            tell(
                &json!({ "event": "leader", "stream": stream, "value": value, "at_us": os::now_us() }),
            );
        }
        tell(&json!({ "event": "ended", "stream": stream, "at_us": os::now_us() }));
    });
    made.streams.lock().unwrap().push((text(command, "handle"), task.abort_handle()));
    Ok(json!({}))
}

/// Watches names, and reports each change.
pub(super) async fn watch(made: &Made, command: &Value) -> Answer {
    let client = made.client(command)?;
    let is_key = command["key"].is_string();
    let name = text(command, if is_key { "key" } else { "lock" });
    let mut ask =
        if command["prefix"] == true { client.watch_prefix(name) } else { client.watch(name) };
    if let Some(from) = command["from_revision"].as_str().and_then(|from| from.parse().ok()) {
        ask = ask.from(Revision(from));
    }
    let stream = text(command, "stream");
    let mut watch = match ask.await {
        Ok(watch) => watch,
        Err(Error::Compacted { floor }) => {
            tell_compacted(&stream, floor);
            return Ok(json!({}));
        }
        Err(error) => return Err(failure(&error)),
    };
    let task = tokio::spawn(async move {
        loop {
            match watch.next().await {
                Ok(Some(batch)) => {
                    let wanted = if is_key { Subject::Key } else { Subject::Lock };
                    for event in batch.events.iter().filter(|it| it.subject == wanted) {
                        tell(&change(&stream, batch.revision, event));
                    }
                }
                Err(Error::Compacted { floor }) => return tell_compacted(&stream, floor),
                Err(error) if error.is_retryable() => {}
                Ok(None) | Err(_) => break,
            }
        }
        tell(&json!({ "event": "ended", "stream": stream, "at_us": os::now_us() }));
    });
    made.streams.lock().unwrap().push((text(command, "handle"), task.abort_handle()));
    Ok(json!({}))
}

fn tell_compacted(stream: &str, oldest: Revision) {
    let (oldest, at_us) = (oldest.to_string(), os::now_us());
    tell(&json!({ "event": "compacted", "stream": stream, "oldest": oldest, "at_us": at_us }));
    tell(&json!({ "event": "ended", "stream": stream, "at_us": at_us }));
}

fn change(stream: &str, revision: Revision, event: &Event) -> Value {
    let mut line = json!({
        "event": "change",
        "stream": stream,
        "revision": revision.to_string(),
        "cause": word(event.cause),
        "name": event.name,
        "at_us": os::now_us(),
    });
    if event.cause == EventCause::KeyPut {
        line["value"] = json!(String::from_utf8_lossy(&event.value));
    }
    if let Some(token) = event.token {
        line["token"] = json!(token.to_string());
    }
    line
}

/// The cause in the words of the JSON of `/v1/watch`.
pub(super) fn word(cause: EventCause) -> &'static str {
    match cause {
        EventCause::Granted => "granted",
        EventCause::Released => "released",
        EventCause::Expired => "expired",
        EventCause::Revoked => "revoked",
        EventCause::Forced => "forced",
        EventCause::MaxHold => "max_hold",
        EventCause::NoProgress => "no_progress",
        EventCause::Upgraded => "upgraded",
        EventCause::HandedOn => "handed_on",
        EventCause::RevokeEnded => "revoke_ended",
        EventCause::DelayEnded => "delay_ended",
        EventCause::Downgraded => "downgraded",
        EventCause::Updated => "updated",
        EventCause::Queued => "queued",
        EventCause::Left => "left",
        EventCause::WaitTimeout => "wait_timeout",
        EventCause::Deadlock => "deadlock",
        EventCause::Vacant => "vacant",
        EventCause::KeyPut => "key_put",
        EventCause::KeyDeleted => "key_deleted",
        _ => "other",
    }
}
