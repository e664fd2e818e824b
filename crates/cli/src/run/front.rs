//! Starts `tenure run`: checks the flags, acquires the lock, and runs the command under it.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::Path;
use std::time::Duration;

use tenure::Client;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::time::Instant;

use crate::client_name::default_name;
use crate::connection_args::ConnectionTarget;
use crate::failure::{CliError, chain};

use super::locked_command::{FAREWELL, Job, LockedCommand};
use super::messages::Messages;
use super::queue::acquire;
use super::signals::ReceivedSignal;
use super::times::RunTimes;
use super::{OnDoubt, RunArgs, codes, resolve, signals, terraform};

/// How long the end of the run waits for the cluster.
const FINISH: Duration = Duration::from_secs(1);

/// Runs the command under the lock and returns the exit code.
pub(super) fn run(flags: &RunArgs) -> Result<u8, CliError> {
    flags.check()?;
    let mut place = flags.connection.place()?;
    place
        .client
        .get_or_insert_with(|| default_name(flags.command.first().map(OsString::as_os_str)));
    let events = open_events(flags.events.as_deref())?;
    let mut messages = Messages::new(&flags.locks, &flags.connection, events);
    Ok(run_at(flags, &place, &mut messages))
}

/// Opens the file for events, if the flags name one.
pub(super) fn open_events(path: Option<&Path>) -> Result<Option<File>, CliError> {
    let Some(path) = path else { return Ok(None) };
    let failed =
        |error| format!("cannot write events to {path:?}: {error}; try another --events FILE");
    File::create(path).map(Some).map_err(|error| CliError::arguments(failed(error)))
}

fn run_at(flags: &RunArgs, place: &ConnectionTarget, messages: &mut Messages) -> u8 {
    let times = match RunTimes::new(flags.ttl, flags.grace) {
        Ok(times) => times,
        Err(text) => {
            messages.error(&text);
            return messages.ended("usage", codes::USAGE);
        }
    };
    if let Err((text, code)) = resolve::look_for(&flags.command[0]) {
        messages.error(&text);
        messages.detail("effect", "none: no lock was asked for");
        return messages.ended("not_started", code);
    }
    let (tell, mut heard) = unbounded_channel();
    let runtime = match start(tell) {
        Ok(runtime) => runtime,
        Err(error) => {
            messages.error(&format!("cannot start: {error}"));
            return messages.ended("not_started", codes::REFUSED);
        }
    };
    let code = runtime.block_on(async {
        let asked = Instant::now();
        let (client, held) = match acquire(flags, place, &times, messages, &mut heard).await {
            Ok(acquired) => acquired,
            Err(code) => return code,
        };
        let variables = match &flags.terraform {
            None => Vec::new(),
            Some(url) => match terraform::variables(url, flags.first(), held.guard()).await {
                Ok(variables) => variables,
                Err(error) => {
                    messages.error(&format!("no ticket for the state: {}", chain(&error)));
                    messages.detail("effect", "none: the command did not start");
                    // A lock that is not released in time ends with its lease.
                    let _ = tokio::time::timeout(FAREWELL, held.give_back()).await;
                    return messages.ended("not_started", codes::REFUSED);
                }
            },
        };
        let chosen: Vec<String> = match flags.is_choice() {
            true => held.guard().locks().take(1).map(|lock| lock.name.clone()).collect(),
            false => flags.locks.clone(),
        };
        messages.set_locks(&chosen);
        let job = Job {
            names: &chosen,
            client: client.clone(),
            command: &flags.command,
            freeze: flags.on_doubt == OnDoubt::Freeze,
            place,
            times,
            waited: asked.elapsed(),
            variables,
        };
        let code = LockedCommand::new(job, held, messages).run(&mut heard).await.code;
        finish(&client).await;
        code
    });
    // Tasks of the SDK that still run no longer affect the outcome.
    runtime.shutdown_background();
    code
}

/// Waits for a short time until the cluster knows that the work has stopped. A lost lock is reported in the background,
/// and the next holder waits for that report. What is not acknowledged ends with its lease.
pub(super) async fn finish(client: &Client) {
    if let Err(error) = client.close(FINISH).await {
        tracing::debug!(%error, "the cluster has not acknowledged the end of the work");
    }
}

/// Starts the thread that receives signals, and the runtime of the SDK.
pub(super) fn start(tell: UnboundedSender<ReceivedSignal>) -> io::Result<Runtime> {
    let mut signals = signals::register()?;
    let work = move || {
        for signal in signals.forever() {
            let _ = tell.send(signal.into());
        }
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(work)?;
    Builder::new_multi_thread().worker_threads(1).enable_all().build()
}
