//! Is the driver of the Rust client: reads commands from stdin, and writes answers and events to stdout.

mod commands;
mod convert;
mod fence;
mod holds;
mod inspect;
mod streams;

use std::collections::BTreeMap;
use std::io::{BufRead, Write};
use std::process::ExitCode;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tenure::{Client, Guard, Leadership, Lease};
use tenure_server::os;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use convert::failure;

/// What an answer says: the fields of `ok`, or of `error`.
type Answer = Result<Value, Value>;

/// Everything that commands have made, by name.
#[derive(Default)]
pub(crate) struct Made {
    clients: Mutex<BTreeMap<String, Client>>,
    /// Each guard with the client that it belongs to.
    guards: Mutex<BTreeMap<String, (String, Guard)>>,
    leases: Mutex<BTreeMap<String, (String, Arc<Lease>)>>,
    leaders: Mutex<BTreeMap<String, (String, Arc<Leadership>)>>,
    /// The tasks that report events, each with the client that it belongs to.
    streams: Mutex<Vec<(String, AbortHandle)>>,
    /// How to cancel a command, by its id.
    running: Mutex<BTreeMap<u64, Arc<Notify>>>,
}

/// Serves until stdin ends.
pub(crate) fn serve() -> ExitCode {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a runtime can be built");
    let made = Arc::new(Made::default());
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        let Ok(command) = serde_json::from_str::<Value>(&line) else {
            eprintln!("no JSON: {line}");
            continue;
        };
        let id = command["id"].as_u64().unwrap_or(0);
        let cancel = Arc::new(Notify::new());
        made.running.lock().unwrap().insert(id, cancel.clone());
        let made = made.clone();
        runtime.spawn(async move {
            let is_exit = command["do"] == "exit";
            let answer = tokio::select! {
                answer = commands::run(&made, &command) => answer,
                () = cancel.notified() => Err(json!({ "kind": "cancelled", "message": "cancelled" })),
            };
            made.running.lock().unwrap().remove(&id);
            tell_answer(id, answer);
            if is_exit {
                std::process::exit(0);
            }
        });
    }
    ExitCode::SUCCESS
}

fn tell_answer(id: u64, answer: Answer) {
    let at_us = os::now_us();
    tell(&match answer {
        Ok(ok) => json!({ "id": id, "ok": ok, "at_us": at_us }),
        Err(error) => json!({ "id": id, "error": error, "at_us": at_us }),
    });
}

/// Writes one line.
pub(crate) fn tell(line: &Value) {
    let mut out = std::io::stdout().lock();
    // The runner has ended if this fails, and the driver ends with it.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

impl Made {
    fn client(&self, command: &Value) -> Result<Client, Value> {
        let name = text(command, "handle");
        let found = self.clients.lock().unwrap().get(&name).cloned();
        found.ok_or_else(|| unknown_name("client", &name))
    }

    /// Another guard of a held lock, which keeps it as long as the command needs it.
    fn guard(&self, command: &Value) -> Result<Guard, Value> {
        let name = text(command, "guard");
        let guards = self.guards.lock().unwrap();
        let (_, guard) = guards.get(&name).ok_or_else(|| unknown_name("guard", &name))?;
        guard.reenter().map_err(|error| failure(&error))
    }
}

fn unknown_name(what: &str, name: &str) -> Value {
    json!({ "kind": "invalid", "effect": "none", "message": format!("there is no {what} `{name}`") })
}

/// A field as text; empty if it is absent.
fn text(command: &Value, field: &str) -> String {
    command[field].as_str().unwrap_or_default().to_owned()
}
