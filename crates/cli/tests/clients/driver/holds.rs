//! Runs the commands that change a hold, and those that change how locks are granted.

use serde_json::{Value, json};
use tenure::{Guard, LeaseId, StillHeld};

use super::convert::{failure, time};
use super::{Answer, Made, text, unknown_name};

/// Turns a shared hold into an exclusive one.
pub(super) async fn upgrade(made: &Made, command: &Value) -> Answer {
    let wait = time(command, "wait_ms").unwrap_or_default();
    let (handle, guard) = taken(made, command)?;
    match guard.upgrade(wait).await {
        Ok(guard) => {
            let token = guard.token().to_string();
            put_back(made, command, handle, guard);
            Ok(json!({ "token": token }))
        }
        Err(still) => Err(refused(made, command, handle, still)),
    }
}

/// Turns an exclusive hold into a shared one.
pub(super) async fn downgrade(made: &Made, command: &Value) -> Answer {
    let (handle, mut guard) = taken(made, command)?;
    let done = guard.downgrade().await;
    let token = guard.token().to_string();
    put_back(made, command, handle, guard);
    done.map_err(|error| failure(&error))?;
    Ok(json!({ "token": token }))
}

/// Gives a hold to a lease that waits for the lock.
pub(super) async fn hand_on(made: &Made, command: &Value) -> Answer {
    let to = text(command, "to").parse::<i64>().ok();
    let to = to.and_then(tenure_wire::convert::lease_from);
    let to: LeaseId = to.ok_or_else(|| unknown_name("lease id", &text(command, "to")))?;
    let (handle, guard) = taken(made, command)?;
    match guard.hand_on(to).await {
        Ok(token) => Ok(json!({ "token": token.to_string() })),
        Err(still) => Err(refused(made, command, handle, still)),
    }
}

/// Reports how far the work has come.
pub(super) async fn progress(made: &Made, command: &Value) -> Answer {
    let guard = made.guard(command)?;
    let number = command["number"].as_u64().unwrap_or_default();
    let left = guard.progress(number).await.map_err(|error| failure(&error))?;
    Ok(match left {
        Some(left) => json!({ "left_ms": left.as_millis() }),
        None => json!({}),
    })
}

/// Sets how many slots a semaphore has.
pub(super) async fn resize(made: &Made, command: &Value) -> Answer {
    let slots = command["slots"].as_u64().map(|slots| u32::try_from(slots).unwrap_or(u32::MAX));
    let resized = made.client(command)?.resize(text(command, "lock"), slots).await;
    resized.map_err(|error| failure(&error))?;
    Ok(json!({}))
}

/// Closes a prefix to new grants.
pub(super) async fn drain(made: &Made, command: &Value) -> Answer {
    let (prefix, reason) = (text(command, "prefix"), text(command, "reason"));
    let drained = made.client(command)?.drain(prefix, &reason).await;
    drained.map_err(|error| failure(&error))?;
    Ok(json!({}))
}

/// Opens a prefix.
pub(super) async fn undrain(made: &Made, command: &Value) -> Answer {
    let opened = made.client(command)?.undrain(text(command, "prefix")).await;
    Ok(json!({ "existed": opened.map_err(|error| failure(&error))? }))
}

/// Shows whether a prefix is closed, and how many holders are left below it.
pub(super) async fn drains(made: &Made, command: &Value) -> Answer {
    let drains = made.client(command)?.drains().await.map_err(|error| failure(&error))?;
    let prefix = text(command, "prefix");
    Ok(match drains.into_iter().find(|it| it.prefix == prefix) {
        Some(it) => json!({ "reason": it.reason, "by": it.by, "holders": it.holders }),
        None => json!({}),
    })
}

/// Takes a guard for a call that consumes it.
fn taken(made: &Made, command: &Value) -> Result<(String, Guard), Value> {
    let name = text(command, "guard");
    let found = made.guards.lock().unwrap().remove(&name);
    found.ok_or_else(|| unknown_name("guard", &name))
}

fn put_back(made: &Made, command: &Value, handle: String, guard: Guard) {
    made.guards.lock().unwrap().insert(text(command, "guard"), (handle, guard));
}

/// The error of a change that was not made. The guard is kept, if it still stands for a hold.
fn refused(made: &Made, command: &Value, handle: String, still: StillHeld) -> Value {
    if let Some(guard) = still.guard {
        put_back(made, command, handle, guard);
    }
    failure(&still.error)
}
