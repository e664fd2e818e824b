//! What does somebody see while waiting for a lock?

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::json;
use tenure::{Explanation, LeaseId};
use tenure_wire::json::lock::Explained;
use tenure_wire::v1;
use tokio::sync::Notify;
use v1::answer::Result as Answer;
use v1::request::Command;

use crate::exit::Exit;
use crate::failure::{Failure, quoted};
use crate::output::{self, Output};
use crate::reach::Cluster;
use crate::span;
use crate::terminal;

/// How often the block on a terminal is drawn again; without one, how often somebody looks for a change.
const REFRESH: Duration = Duration::from_secs(1);
/// More waiters than this are counted, not listed.
const SHOWN_MAX: usize = 3;

/// A wait that is shown.
pub(crate) struct Waiting<'a> {
    cluster: &'a Cluster,
    lock: &'a str,
    lease: LeaseId,
    queued: Arc<Notify>,
    /// How many were ahead when the cluster last said so.
    ahead: Arc<Mutex<Option<u64>>>,
    /// Lines on the terminal that are replaced next time.
    drawn: AtomicU64,
}

impl<'a> Waiting<'a> {
    pub(crate) fn new(cluster: &'a Cluster, lock: &'a str, lease: LeaseId) -> Self {
        let (queued, ahead) = (Arc::new(Notify::new()), Arc::default());
        Self { cluster, lock, lease, queued, ahead, drawn: AtomicU64::new(0) }
    }

    /// How many were ahead, if anybody said.
    pub(crate) fn ahead(&self) -> Option<u64> {
        *self.ahead.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What to call when the ask has to queue.
    pub(crate) fn teller(&self) -> impl Fn(u64) + Send + Sync + 'static {
        let (queued, told) = (self.queued.clone(), self.ahead.clone());
        move |ahead| {
            *told.lock().unwrap_or_else(PoisonError::into_inner) = Some(ahead);
            queued.notify_one();
        }
    }

    /// The same for an ask that is not told whether it queues: from this time on it does.
    pub(crate) async fn show_after(&self, silent: Duration) {
        tokio::time::sleep(silent).await;
        self.queued.notify_one();
        self.show().await;
    }

    /// Shows how the wait stands, for ever, from the moment there is one.
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
                    Output::Json if changed => self.tell_json(&explained),
                    Output::Json => {}
                    Output::Text if output::watched() => self.draw(&block(self.lock, &explained)),
                    Output::Text if changed => {
                        output::tell(&format!("{}\n", line(self.lock, &explained)));
                    }
                    Output::Text => {}
                }
            }
            tokio::time::sleep(REFRESH).await;
        }
    }

    fn tell_json(&self, explained: &Explanation) {
        let revision = explained.header.as_ref().map_or(0, |header| header.revision);
        let mut said = json!({
            "event": "queued", "lock": self.lock, "revision": revision.to_string(),
            "ahead": explained.own.as_ref().map_or(0, |own| own.ahead),
        });
        if let Some(quiet_ms) = explained.quiet_ms {
            said["quiet_ms"] = quiet_ms.into();
        }
        if let Some(holder) = holder(explained) {
            said["holder"] = json!({
                "client": holder.client, "token": holder.token.to_string(), "held_ms": holder.held_ms,
                "lease": holder.lease.to_string(),
            });
        }
        output::object(&said);
    }

    fn draw(&self, lines: &[String]) {
        self.clear();
        let fitted: Vec<String> = lines.iter().map(|line| terminal::fitted(line)).collect();
        output::tell(&format!("{}\n", fitted.join("\n")));
        self.drawn.store(lines.len() as u64, Ordering::Relaxed);
    }

    /// Takes the block away again.
    pub(crate) fn clear(&self) {
        let lines = self.drawn.swap(0, Ordering::Relaxed);
        if lines > 0 {
            // To the first column too: a Ctrl-C that was typed is shown, and moves the cursor.
            output::tell(&format!("\r\x1b[{lines}A\x1b[J"));
        }
    }
}

/// What a change is: another holder, another place.
fn state(explained: &Explanation) -> (Option<u64>, Option<u64>) {
    (holder(explained).map(|it| it.token), explained.own.as_ref().map(|own| own.ahead))
}

fn holder(explained: &Explanation) -> Option<&v1::HolderView> {
    explained.lock.as_ref()?.holders.first()
}

/// Asks who has a lock; with a lease, who is before it.
pub(crate) async fn explain(
    cluster: &Cluster,
    lock: &str,
    lease: Option<LeaseId>,
) -> Result<Explanation, Failure> {
    let lease = lease.map_or(0, tenure_wire::convert::lease);
    let ask = v1::ExplainRequest { lock: lock.to_owned(), lease, ..Default::default() };
    match cluster.client.ask(Command::Explain(ask), None).await? {
        (Answer::Explained(explained), _) => Ok(explained),
        _ => Err(strange()),
    }
}

/// An answer that does not belong to its question.
pub(crate) fn strange() -> Failure {
    let message = "the member answered something else than was asked".to_owned();
    tenure::Error::Failed { reason: "STRANGE_ANSWER".to_owned(), message }.into()
}

/// One line for a log.
fn line(lock: &str, explained: &Explanation) -> String {
    let place = place(explained);
    let held = holder(explained)
        .map_or(String::new(), |holder| format!("; held by {}", holder_words(holder)));
    let quiet = explained
        .quiet_ms
        .map_or(String::new(), |ms| format!("; the cluster was restored: {}", output::quiet(ms)));
    format!("tenure: waiting for lock `{lock}`, {place}{held}{quiet}")
}

fn place(explained: &Explanation) -> String {
    match explained.own.as_ref().map_or(0, |own| own.ahead) {
        0 => "you are next".to_owned(),
        ahead => format!("{ahead} ahead of you"),
    }
}

/// How many somebody leaves behind who was not served.
pub(crate) fn were_ahead(ahead: u64) -> String {
    match ahead {
        0 => "nobody was ahead".to_owned(),
        1 => "1 was ahead".to_owned(),
        more => format!("{more} were ahead"),
    }
}

/// The block for a terminal.
fn block(lock: &str, explained: &Explanation) -> Vec<String> {
    let place = place(explained);
    let mut lines = vec![format!("tenure: waiting for lock `{lock}`, {place}")];
    lines
        .extend(facts(lock, explained).into_iter().map(|(label, it)| format!("  {label:<8} {it}")));
    lines
}

/// Who holds, who is ahead, when it can be free, what to type.
fn facts(lock: &str, explained: &Explanation) -> Vec<(&'static str, String)> {
    let mut facts = Vec::new();
    for holder in explained.lock.iter().flat_map(|lock| &lock.holders).take(SHOWN_MAX) {
        facts.push(("held by", holder_words(holder)));
    }
    for waiter in explained.ahead.iter().take(SHOWN_MAX) {
        let waiting = span::ms(waiter.waiting_ms);
        facts.push(("ahead", format!("{}, waiting {waiting}", output::clean(&waiter.client))));
    }
    if let Some(quiet_ms) = explained.quiet_ms {
        facts.push(("restored", output::quiet(quiet_ms)));
    }
    if let Some(free) = free_words(explained) {
        facts.push(("free", free));
    }
    facts.push(("look", format!("tenure explain {}", quoted(lock))));
    facts
}

/// A holder in a few words.
pub(crate) fn holder_words(holder: &v1::HolderView) -> String {
    holder_words_with(holder, "")
}

/// The same, with more behind its token.
pub(crate) fn holder_words_with(holder: &v1::HolderView, more: &str) -> String {
    let (client, token) = (output::clean(&holder.client), holder.token);
    let mut words = match holder.state() {
        v1::HolderState::Held => {
            format!("{client} for {}, token {token}", span::ms(holder.held_ms))
        }
        v1::HolderState::Cooling => {
            format!(
                "{client} until now, token {token}, cooling {} at most",
                span::ms(holder.left_ms)
            )
        }
        v1::HolderState::Delayed => {
            format!("nobody; {client} went silent, delayed {} more", span::ms(holder.left_ms))
        }
    };
    if let Some(slot) = holder.slot {
        words.push_str(&format!(", slot {slot}"));
    }
    words.push_str(more);
    if let Some(renewed) = holder.renewed_ms {
        words.push_str(&format!(", renewed {} ago", span::ms(renewed)));
    }
    if !holder.metadata.is_empty() {
        words.push_str(&format!(": {:?}", output::bytes(&holder.metadata)));
    }
    words
}

/// When it can be free.
pub(crate) fn free_words(explained: &Explanation) -> Option<String> {
    let freed = explained.freed.as_ref()?;
    let (time, holders) = (span::ms(freed.in_ms), explained.lock.as_ref()?.holders.len());
    let who = match holder(explained) {
        Some(holder) if holders == 1 => output::clean(&holder.client),
        _ => "its holders".to_owned(),
    };
    let falls = if holders == 1 { "falls" } else { "fall" };
    let taken = holder(explained).is_some_and(|it| it.state() == v1::HolderState::Cooling);
    Some(if taken && holders == 1 {
        format!("when {who} says that it has stopped, or in {time} at the latest")
    } else if freed.at_latest {
        format!("when released, or in {time} at the latest")
    } else {
        format!("when released, or in {time} if {who} {falls} silent now")
    })
}

/// A no that says who has the lock, if the cluster still tells.
pub(crate) async fn explained(cluster: &Cluster, lock: &str, failure: Failure) -> Failure {
    if failure.exit != Exit::NotAcquired {
        return failure;
    }
    let Ok(explained) = explain(cluster, lock, None).await else { return failure };
    if explained.lock.is_none() {
        return failure;
    }
    let text = match failure.reason.as_str() {
        "WAIT_TIMEOUT" => format!("lock `{lock}` is held; the wait is over"),
        _ => format!("lock `{lock}` is held"),
    };
    let mut told = Failure::new(failure.exit, &failure.reason, text);
    told.more = facts(lock, &explained);
    told.details = failure.details;
    let told = fields(told, lock, explained);
    told.next(format!("tenure lock {} --wait 60s", quoted(lock)))
}

/// The same for programs: who holds and who waits, as `tenure explain --output json` shows them.
fn fields(failure: Failure, lock: &str, explained: Explanation) -> Failure {
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
