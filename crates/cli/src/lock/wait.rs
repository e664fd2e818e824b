//! Shows the state of a wait for a lock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::json;
use tenure::LeaseId;
use tenure_wire::json::lock::Explained;
use tenure_wire::v1;
use tenure_wire::v1::ExplainResponse as Explanation;
use tokio::sync::Notify;
use v1::answer::Result as Answer;
use v1::request::Command;

use crate::connection_args::ConnectedCluster;
use crate::duration;
use crate::exit::Exit;
use crate::failure::{CliError, quoted};
use crate::output::{self, OutputFormat};
use crate::terminal;
use crate::waiting::{block, drain_json, drained_at, facts, holder, holder_json, line};

/// How often the block on a terminal is redrawn; without a terminal, how often to check for a change.
const REFRESH: Duration = Duration::from_secs(1);

/// A wait that is shown.
pub(crate) struct WaitDisplay<'a> {
    cluster: &'a ConnectedCluster,
    lock: &'a str,
    lease: LeaseId,
    queued: Arc<Notify>,
    /// How many waiters were ahead when the cluster last reported it.
    ahead: Arc<Mutex<Option<u64>>>,
    /// The lines on the terminal that the next drawing replaces.
    drawn: AtomicU64,
}

impl<'a> WaitDisplay<'a> {
    pub(crate) fn new(cluster: &'a ConnectedCluster, lock: &'a str, lease: LeaseId) -> Self {
        let (queued, ahead) = (Arc::new(Notify::new()), Arc::default());
        Self { cluster, lock, lease, queued, ahead, drawn: AtomicU64::new(0) }
    }

    /// How many waiters were ahead, if the cluster reported it.
    pub(crate) fn ahead(&self) -> Option<u64> {
        *self.ahead.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The callback for a request that has to queue.
    pub(crate) fn teller(&self) -> impl Fn(u64) + Send + Sync + 'static {
        let (queued, told) = (self.queued.clone(), self.ahead.clone());
        move |ahead| {
            *told.lock().unwrap_or_else(PoisonError::into_inner) = Some(ahead);
            queued.notify_one();
        }
    }

    /// Shows a request that does not report whether it queues: after this time it counts as queued.
    pub(crate) async fn show_after(&self, silent: Duration) {
        tokio::time::sleep(silent).await;
        self.queued.notify_one();
        self.show().await;
    }

    /// Shows the state of the wait for ever, once the request queues.
    pub(crate) async fn show(&self) {
        self.queued.notified().await;
        let mut last = None;
        loop {
            let explained = explain(self.cluster, self.lock, Some(self.lease)).await;
            if let Some(explained) = explained.ok().filter(|it| it.own.is_some()) {
                let place = explained.own.as_ref().map(|own| own.ahead);
                *self.ahead.lock().unwrap_or_else(PoisonError::into_inner) = place;
                let state = state(&explained);
                let changed = last.as_ref() != Some(&state);
                last = Some(state);
                match self.cluster.output {
                    OutputFormat::Json if changed => self.tell_json(&explained),
                    OutputFormat::Json => {}
                    OutputFormat::Text if self.cluster.quiet => {}
                    OutputFormat::Text if output::watched() => {
                        self.draw(&block(self.lock, ahead(&explained), &explained));
                    }
                    OutputFormat::Text if changed => {
                        let line = line(self.lock, ahead(&explained), &explained);
                        output::tell(&format!("{line}\n"));
                    }
                    OutputFormat::Text => {}
                }
            }
            tokio::time::sleep(REFRESH).await;
        }
    }

    fn tell_json(&self, explained: &Explanation) {
        let revision = explained.header.as_ref().map_or(0, |header| header.revision);
        let mut said = json!({
            "event": "queued", "lock": self.lock, "revision": revision.to_string(),
            "ahead": ahead(explained),
        });
        if let Some(quiet_ms) = explained.quiet_ms {
            said["quiet_ms"] = quiet_ms.into();
        }
        if let Some(drain) = &explained.drained {
            said["drained"] = drain_json(drain);
        }
        if let Some(holder) = holder_json(explained) {
            said["holder"] = holder;
        }
        output::object(&said);
    }

    fn draw(&self, lines: &[String]) {
        self.clear();
        let fitted: Vec<String> = lines.iter().map(|line| terminal::fitted(line)).collect();
        output::tell(&format!("{}\n", fitted.join("\n")));
        self.drawn.store(lines.len() as u64, Ordering::Relaxed);
    }

    /// Removes the block from the terminal.
    pub(crate) fn clear(&self) {
        let lines = self.drawn.swap(0, Ordering::Relaxed);
        if lines > 0 {
            // Return to the first column too: the terminal echoes Ctrl-C and moves the cursor.
            output::tell(&format!("\r\x1b[{lines}A\x1b[J"));
        }
    }
}

/// How many waiters are ahead of the own place.
fn ahead(explained: &Explanation) -> u64 {
    explained.own.as_ref().map_or(0, |own| own.ahead)
}

/// What counts as a change: another holder, another place, or a drain that began or ended.
fn state(explained: &Explanation) -> (Option<u64>, Option<u64>, Option<i64>) {
    let token = holder(explained).map(|it| it.token);
    let place = explained.own.as_ref().map(|own| own.ahead);
    (token, place, drained_at(explained))
}

/// Asks who has a lock; with a lease, who is ahead of it.
pub(crate) async fn explain(
    cluster: &ConnectedCluster,
    lock: &str,
    lease: Option<LeaseId>,
) -> Result<Explanation, CliError> {
    let lease = lease.map_or(0, tenure_wire::convert::lease);
    let ask = v1::ExplainRequest { lock: lock.to_owned(), lease, ..Default::default() };
    match cluster.client.ask(Command::Explain(ask), None).await? {
        (Answer::Explained(explained), _) => Ok(*explained),
        _ => Err(strange()),
    }
}

/// The failure for an answer that does not belong to its question.
pub(crate) fn strange() -> CliError {
    let message = "the member answered something else than was asked".to_owned();
    tenure::Error::Failed { reason: "STRANGE_ANSWER".to_owned(), message }.into()
}

/// A failure that names the holders of the lock, if the cluster still answers.
pub(crate) async fn explained(
    cluster: &ConnectedCluster,
    lock: &str,
    wait: Option<Duration>,
    failure: CliError,
) -> CliError {
    // A drained lock, and a request that was replaced, are not for want of the holder.
    let by_holder = !matches!(failure.reason.as_str(), "DRAINING" | "SUPERSEDED");
    if failure.exit != Exit::NotAcquired || !by_holder {
        return failure;
    }
    let Ok(explained) = explain(cluster, lock, None).await else { return failure };
    if explained.lock.is_none() {
        return failure;
    }
    let text = match failure.reason.as_str() {
        "WAIT_TIMEOUT" => {
            let after = wait.map_or(String::new(), |it| format!(" after {}", duration::shown(it)));
            format!("timed out{after} waiting for lock `{lock}`")
        }
        _ => format!("lock `{lock}` is held"),
    };
    let mut told = CliError::new(failure.exit, &failure.reason, text);
    told.more = facts(lock, &explained);
    told.details = failure.details;
    let told = fields(told, lock, explained);
    told.next(format!("tenure lock {} --wait 60s", quoted(lock)))
}

/// Adds the same as fields for programs: holders and waiters as `tenure explain --output json` shows them.
fn fields(failure: CliError, lock: &str, explained: Explanation) -> CliError {
    let free = explained.freed.as_ref().map(|freed| (freed.in_ms, freed.at_latest));
    let shown = Explained::from(explained);
    let holders = shown.lock.map(|lock| (lock.holders, lock.waiting)).unwrap_or_default();
    let failure = failure
        .field("lock", lock)
        .field("holder", json!(holders.0.first()))
        .field("holders", json!(holders.0))
        .field("ahead", holders.1)
        .field("waiters", json!(shown.ahead));
    match free {
        Some((ms, true)) => failure.field("free_at_latest_ms", ms),
        Some((ms, false)) => failure.field("free_if_silent_ms", ms),
        None => failure,
    }
}
