//! Runs the commands of the driver protocol with the Rust client.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tenure::{Client, Error, Guard, LockAsk, Token};
use tenure_server::os;

use super::convert::{cause, failure, failure_within, loss, time};
use super::fence::PlayedFence;
use super::{Answer, Made, holds, inspect, streams, text, unknown_name};

/// How often blocking work looks whether it has to stop.
const STEP: Duration = Duration::from_millis(2);

/// Runs one command to its end.
pub(super) async fn run(made: &Arc<Made>, command: &Value) -> Answer {
    match command["do"].as_str().unwrap_or_default() {
        "hello" => Ok(
            json!({ "language": "rust", "version": env!("CARGO_PKG_VERSION"), "features": ["rust"] }),
        ),
        "open" => open(made, command).await,
        "close" => close(made, command).await,
        "lock" => lock(made, command).await,
        "cancel" => cancel(made, command),
        "check" => check(made, command),
        "await_lost" => await_lost(made, command).await,
        "work" => work(made, command).await,
        "run" => run_under(made, command).await,
        "reenter" => reenter(made, command),
        "release" => release(made, command).await,
        "upgrade" => holds::upgrade(made, command).await,
        "downgrade" => holds::downgrade(made, command).await,
        "hand_on" => holds::hand_on(made, command).await,
        "progress" => holds::progress(made, command).await,
        "cycles" => cycles(made, command).await,
        // Memory is freed at once here.
        "collect" => Ok(json!({})),
        "lease_grant" => lease_grant(made, command).await,
        "lease_release" => lease_release(made, command).await,
        "campaign" => campaign(made, command).await,
        "proclaim" => proclaim(made, command).await,
        "resign" => resign(made, command).await,
        "observe" => streams::observe(made, command).await,
        "watch" => streams::watch(made, command).await,
        "put" => put(made, command).await,
        "get" => get(made, command).await,
        "delete" => delete(made, command).await,
        "show" => inspect::show(made, command).await,
        "explain" => inspect::explain(made, command).await,
        "locks" => inspect::locks(made, command).await,
        "history" => inspect::history(made, command).await,
        "force" => force(made, command).await,
        "revoke" => inspect::revoke(made, command).await,
        "resize" => holds::resize(made, command).await,
        "drain" => holds::drain(made, command).await,
        "undrain" => holds::undrain(made, command).await,
        "drains" => holds::drains(made, command).await,
        "exit" => Ok(json!({})),
        _ => Err(json!({ "kind": "unsupported", "message": "no such command" })),
    }
}

async fn open(made: &Made, command: &Value) -> Answer {
    let addresses = command["addrs"].as_array().cloned().unwrap_or_default();
    let addresses: Vec<&str> = addresses.iter().filter_map(Value::as_str).collect();
    let mut builder = Client::builder().addresses(&addresses.join(","));
    if let Some(name) = command["name"].as_str() {
        builder = builder.name(name);
    }
    if let Some(key) = command["api_key"].as_str() {
        builder = builder.api_key(key);
    }
    if let Some(ca) = command["ca_file"].as_str() {
        builder = builder.ca(ca);
    }
    if let Some(timeout) = time(command, "timeout_ms") {
        builder = builder.timeout(timeout);
    }
    let client = builder.connect().await.map_err(|error| failure(&error))?;
    made.clients.lock().unwrap().insert(text(command, "handle"), client);
    Ok(json!({}))
}

/// Releases everything of the client, whose work has stopped, and closes it.
async fn close(made: &Made, command: &Value) -> Answer {
    let client = made.client(command)?;
    let handle = text(command, "handle");
    made.guards.lock().unwrap().retain(|_, (of, _)| *of != handle);
    made.leaders.lock().unwrap().retain(|_, (of, _)| *of != handle);
    made.leases.lock().unwrap().retain(|_, (of, _)| *of != handle);
    made.streams.lock().unwrap().retain(|(of, task)| {
        if *of == handle {
            task.abort();
        }
        *of != handle
    });
    let within = time(command, "deadline_ms").unwrap_or(Duration::from_secs(10));
    client.close(within).await.map_err(|error| failure(&error))?;
    Ok(json!({}))
}

fn lock_ask(made: &Made, command: &Value) -> Result<LockAsk, Value> {
    let client = made.client(command)?;
    let lease = match command["lease"].as_str() {
        Some(name) => {
            let leases = made.leases.lock().unwrap();
            Some(
                leases
                    .get(name)
                    .map(|(_, it)| it.clone())
                    .ok_or_else(|| unknown_name("lease", name))?,
            )
        }
        None => None,
    };
    let any = command["any"] == true;
    let several = command["locks"].as_array().map(|all| all.iter().filter_map(Value::as_str));
    let mut ask = match (&lease, several) {
        (_, None) if command["pool"].is_string() => client.pool(text(command, "pool")),
        (None, None) => client.lock(text(command, "lock")),
        (Some(lease), None) => lease.lock(text(command, "lock")),
        (None, Some(locks)) if any => client.lock_any(locks),
        (Some(lease), Some(locks)) if any => lease.lock_any(locks),
        (None, Some(locks)) => client.lock_all(locks),
        (Some(lease), Some(locks)) => lease.lock_all(locks),
    };
    ask = match command["wait_ms"].as_u64() {
        Some(0) => ask.no_wait(),
        Some(_) => ask.wait(time(command, "wait_ms").unwrap_or_default()),
        None => ask,
    };
    if let Some(ttl) = time(command, "ttl_ms") {
        ask = ask.ttl(ttl);
    }
    if command["mode"] == "shared" {
        ask = ask.shared();
    }
    if let Some(slots) = command["slots"].as_u64() {
        ask = ask.slots(u32::try_from(slots).unwrap_or(u32::MAX));
    }
    if let Some(take) = command["take"].as_u64() {
        ask = ask.take(u32::try_from(take).unwrap_or(u32::MAX));
    }
    if let Some(priority) = command["priority"].as_u64() {
        ask = ask.priority(u8::try_from(priority).unwrap_or(u8::MAX));
    }
    if let Some(group) = command["supersede"].as_str() {
        ask = ask.supersede(group);
    }
    if let Some(min_hold) = time(command, "min_hold_ms") {
        ask = ask.min_hold(min_hold);
    }
    if let Some(within) = time(command, "progress_within_ms") {
        ask = ask.progress_within(within);
    }
    if let Some(metadata) = command["metadata"].as_str() {
        ask = ask.metadata(metadata.to_owned());
    }
    if let Some(max_hold) = time(command, "max_hold_ms") {
        ask = ask.max_hold(max_hold);
    }
    if let Some(delay) = time(command, "lock_delay_ms") {
        ask = ask.lock_delay(delay);
    }
    if let Some(limit) = time(command, "limit_ms") {
        ask = ask.timeout(limit);
    }
    Ok(ask)
}

async fn lock(made: &Made, command: &Value) -> Answer {
    let limited = command["limit_ms"].is_u64();
    let (mut ask, raised) = (lock_ask(made, command)?, Arc::new(Mutex::new(None)));
    if let Some(does) = command["fence"].as_str() {
        ask = ask.fence(PlayedFence { does: does.to_owned(), raised: raised.clone() });
    }
    let guard = ask.await.map_err(|error| failure_within(&error, limited))?;
    let tokens: serde_json::Map<String, Value> =
        guard.locks().map(|it| (it.name.clone(), json!(it.token.to_string()))).collect();
    let mut fields = json!({
        "lock": guard.name(),
        "token": guard.token().to_string(),
        "tokens": tokens,
        "lease": guard.lease().to_string(),
    });
    if let Some(slot) = guard.slot() {
        fields["slot"] = json!(slot);
        let taken = guard
            .locks()
            .map(|it| (it.slot.unwrap_or_default().to_string(), json!(it.token.to_string())));
        fields["taken"] = Value::Object(taken.collect());
    }
    let raised: Option<Token> = *raised.lock().unwrap();
    if let Some(token) = raised {
        fields["raised"] = json!(token.to_string());
    }
    made.guards.lock().unwrap().insert(text(command, "guard"), (text(command, "handle"), guard));
    Ok(fields)
}

fn cancel(made: &Made, command: &Value) -> Answer {
    let of = command["of"].as_u64().unwrap_or(0);
    let running = made.running.lock().unwrap().get(&of).cloned();
    if let Some(running) = running {
        running.notify_one();
    }
    Ok(json!({}))
}

fn check(made: &Made, command: &Value) -> Answer {
    let guards = made.guards.lock().unwrap();
    let name = text(command, "guard");
    let Some((_, guard)) = guards.get(&name) else {
        return Err(json!({ "kind": "lost", "cause": "released", "message": "it was released" }));
    };
    guard.check().map_err(|error| failure(&error))?;
    let state = if guard.standing() == tenure::Standing::Valid { "valid" } else { "overdue" };
    Ok(json!({ "state": state }))
}

async fn await_lost(made: &Made, command: &Value) -> Answer {
    let cancellation = {
        let guards = made.guards.lock().unwrap();
        let name = text(command, "guard");
        guards.get(&name).ok_or_else(|| unknown_name("guard", &name))?.1.cancellation()
    };
    Ok(cause(&cancellation.cancelled().await))
}

async fn work(made: &Made, command: &Value) -> Answer {
    let guard = made.guard(command)?;
    let length = time(command, "ms").unwrap_or_default();
    let done = if command["mode"] == "thread" {
        let linger = time(command, "linger_ms").unwrap_or_default();
        guard.run_blocking(move |guard| blocking_work(guard, length, linger)).await
    } else {
        guard.run(tokio::time::sleep(length)).await
    };
    done.map_err(|lost| loss(lost.lost()))?;
    Ok(json!({ "finished": true }))
}

/// Work on a thread, which looks whether it has to stop. After that it needs some time to stop.
fn blocking_work(guard: &Guard, length: Duration, linger: Duration) {
    let until_us = os::now_us() + os::micros(length);
    while os::now_us() < until_us {
        if guard.check().is_err() {
            std::thread::sleep(linger);
            return;
        }
        std::thread::sleep(STEP);
    }
}

async fn run_under(made: &Made, command: &Value) -> Answer {
    let length = time(command, "ms").unwrap_or_default();
    let ask = lock_ask(made, command)?;
    let done: Result<(), Error> = ask
        .run_send(move |_| async move {
            tokio::time::sleep(length).await;
            Ok(())
        })
        .await;
    done.map_err(|error| failure(&error))?;
    Ok(json!({ "finished": true }))
}

fn reenter(made: &Made, command: &Value) -> Answer {
    let guard = made.guard(command)?;
    let token = guard.token().to_string();
    let mut guards = made.guards.lock().unwrap();
    let of = guards.get(&text(command, "guard")).map(|(of, _)| of.clone()).unwrap_or_default();
    guards.insert(text(command, "as"), (of, guard));
    Ok(json!({ "token": token }))
}

async fn release(made: &Made, command: &Value) -> Answer {
    let name = text(command, "guard");
    let found = made.guards.lock().unwrap().remove(&name);
    let (_, guard) = found.ok_or_else(|| unknown_name("guard", &name))?;
    guard.release().await.map_err(|error| failure(&error))?;
    Ok(json!({}))
}

async fn lease_grant(made: &Made, command: &Value) -> Answer {
    let client = made.client(command)?;
    let ttl = time(command, "ttl_ms").unwrap_or(Duration::from_secs(15));
    let lease = client.lease(ttl).await.map_err(|error| failure(&error))?;
    let id = lease.id().to_string();
    let made_by = (text(command, "handle"), Arc::new(lease));
    made.leases.lock().unwrap().insert(text(command, "lease"), made_by);
    Ok(json!({ "lease": id }))
}

/// Lets workers take and release locks of their own under one lease for a while.
async fn cycles(made: &Made, command: &Value) -> Answer {
    let lease = made.client(command)?.lease(Duration::from_secs(15)).await;
    let lease = Arc::new(lease.map_err(|error| failure(&error))?);
    let end_us = os::now_us() + command["ms"].as_u64().unwrap_or_default() * 1_000;
    let mut workers = tokio::task::JoinSet::new();
    for worker in 0..command["workers"].as_u64().unwrap_or(1) {
        let (lease, lock) = (lease.clone(), format!("cycles/{worker}"));
        workers.spawn(async move {
            let mut count = 0_u64;
            while os::now_us() < end_us {
                lease.lock(&*lock).await?.release().await?;
                count += 1;
            }
            Ok::<u64, Error>(count)
        });
    }
    let mut count = 0;
    while let Some(done) = workers.join_next().await {
        count += done.expect("a worker does not panic").map_err(|error| failure(&error))?;
    }
    if let Some(lease) = Arc::into_inner(lease) {
        lease.revoke().await.map_err(|error| failure(&error))?;
    }
    Ok(json!({ "cycles": count }))
}

async fn lease_release(made: &Made, command: &Value) -> Answer {
    let name = text(command, "lease");
    let found = made.leases.lock().unwrap().remove(&name);
    let (_, lease) = found.ok_or_else(|| unknown_name("lease", &name))?;
    let lease = Arc::into_inner(lease).ok_or_else(|| unknown_name("idle lease", &name))?;
    lease.revoke().await.map_err(|error| failure(&error))?;
    Ok(json!({}))
}

async fn campaign(made: &Made, command: &Value) -> Answer {
    let client = made.client(command)?;
    let election = client.election(text(command, "election"));
    let (wait, ttl) = (command["wait_ms"].as_u64(), time(command, "ttl_ms"));
    let with = move |ask: LockAsk| {
        let ask = match wait {
            Some(0) => ask.no_wait(),
            Some(wait) => ask.wait(Duration::from_millis(wait)),
            None => ask,
        };
        match ttl {
            Some(ttl) => ask.ttl(ttl),
            None => ask,
        }
    };
    let lead = election.campaign_with(text(command, "value"), with).await;
    let lead = lead.map_err(|error| failure(&error))?;
    let token = lead.token().to_string();
    let name = text(command, "leader");
    // Its guard can be checked and awaited like any other, under the same name.
    if let Ok(guard) = lead.guard().reenter() {
        made.guards.lock().unwrap().insert(name.clone(), (text(command, "handle"), guard));
    }
    made.leaders.lock().unwrap().insert(name, (text(command, "handle"), Arc::new(lead)));
    Ok(json!({ "token": token }))
}

async fn proclaim(made: &Made, command: &Value) -> Answer {
    let name = text(command, "leader");
    let found = made.leaders.lock().unwrap().get(&name).map(|(_, lead)| lead.clone());
    let lead = found.ok_or_else(|| unknown_name("leader", &name))?;
    lead.proclaim(text(command, "value")).await.map_err(|error| failure(&error))?;
    Ok(json!({}))
}

async fn resign(made: &Made, command: &Value) -> Answer {
    let name = text(command, "leader");
    made.guards.lock().unwrap().remove(&name);
    let found = made.leaders.lock().unwrap().remove(&name);
    let (_, lead) = found.ok_or_else(|| unknown_name("leader", &name))?;
    let lead = Arc::into_inner(lead).ok_or_else(|| unknown_name("idle leader", &name))?;
    lead.resign().await.map_err(|error| failure(&error))?;
    Ok(json!({}))
}

async fn put(made: &Made, command: &Value) -> Answer {
    let client = made.client(command)?;
    let name = text(command, "key");
    let mut key = client.key(&name);
    if command["expect_absent"] == true {
        key = key.if_absent();
    }
    if let Some(version) = command["expect_version"].as_u64() {
        let found = client.key(&name).get().await.map_err(|error| failure(&error))?;
        let Some(found) = found.filter(|found| found.version == version) else {
            return Err(json!({ "kind": "refused", "reason": "COMPARE_FAILED", "effect": "none" }));
        };
        key = key.if_modified(found.modified);
    }
    if let Some(guard) = command["guard"].as_str() {
        let guards = made.guards.lock().unwrap();
        key = key.guarded_by(&guards.get(guard).ok_or_else(|| unknown_name("guard", guard))?.1);
    }
    if let Some(lease) = command["lease"].as_str() {
        let leases = made.leases.lock().unwrap();
        key = key.with_lease(&leases.get(lease).ok_or_else(|| unknown_name("lease", lease))?.1);
    }
    key.put(text(command, "value")).await.map_err(|error| failure(&error))?;
    let found = client.key(&name).get().await.map_err(|error| failure(&error))?;
    Ok(json!({ "version": found.map(|found| found.version) }))
}

async fn get(made: &Made, command: &Value) -> Answer {
    let client = made.client(command)?;
    let found = client.key(text(command, "key")).get().await.map_err(|error| failure(&error))?;
    Ok(match found {
        Some(found) => {
            json!({ "version": found.version, "value": String::from_utf8_lossy(&found.value) })
        }
        None => json!({}),
    })
}

async fn delete(made: &Made, command: &Value) -> Answer {
    let mut key = made.client(command)?.key(text(command, "key"));
    if let Some(guard) = command["guard"].as_str() {
        let guards = made.guards.lock().unwrap();
        key = key.guarded_by(&guards.get(guard).ok_or_else(|| unknown_name("guard", guard))?.1);
    }
    let existed = key.delete().await.map_err(|error| failure(&error))?;
    Ok(json!({ "existed": existed }))
}

async fn force(made: &Made, command: &Value) -> Answer {
    let token = text(command, "token").parse::<u64>().ok().and_then(Token::from_u64);
    let token = token.ok_or_else(|| unknown_name("token", &text(command, "token")))?;
    let urgency = inspect::urgency(command);
    let client = made.client(command)?;
    let reason = text(command, "reason");
    let mut ask = client.force(text(command, "lock"), token, &reason, urgency);
    if let Some(by) = command["by"].as_str() {
        ask = ask.by(by);
    }
    ask.await.map_err(|error| failure(&error))?;
    Ok(json!({}))
}
