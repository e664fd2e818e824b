//! Waits for the lock of `tenure run`, and leaves the queue on a signal.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Signal, getpid, kill_process};
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGTTIN, SIGTTOU};
use tenure::{Client, Error, LockAsk};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::connection_args::ConnectionTarget;
use crate::duration;
use crate::failure::quoted;
use crate::waiting::{SHOWN_MAX, were_ahead};

use super::locked_command::RunLock;
use super::messages::{Messages, StopNotice};
use super::nested::OuterRun;
use super::refuse::{already_held, refuse, unconnected};
use super::signals::ReceivedSignal;
use super::terminal::JobTerminal;
use super::times::RunTimes;
use super::waiting::QueueView;
use super::{RunArgs, codes};

/// How often the queue is queried: for a terminal, and for a log.
const POLL_INTERVAL_LIVE: Duration = Duration::from_secs(1);
const POLL_INTERVAL_LOG: Duration = Duration::from_secs(5);
/// How long leaving a queue may take.
const LEAVE: Duration = Duration::from_secs(1);
/// The part of the ttl for which a process that was stopped certainly keeps its place: the lease is renewed after a
/// third of the ttl and relied on for half of it.
const KEPT_PART: u32 = 6;
const LEAVE_STEP: Duration = Duration::from_millis(20);

/// Waits for the lock. If it is not acquired, says why and returns the exit code.
pub(super) async fn acquire(
    flags: &RunArgs,
    place: &ConnectionTarget,
    times: &RunTimes,
    messages: &mut Messages,
    heard: &mut UnboundedReceiver<ReceivedSignal>,
) -> Result<(Client, RunLock), u8> {
    let until = flags.wait().map(|wait| Instant::now() + wait);
    let (ttl, notice) = (flags.ttl, messages.stop_notice());
    let client = tokio::select! {
        client = place.connect_to_leader() => client,
        signal = given_up(heard, &notice, ttl) => {
            messages.unusual("given up before a member answered");
            return Err(messages.ended("signal", codes::by_signal(signal)));
        }
    };
    let client = client.map_err(|failure| unconnected(messages, &failure))?;
    let outer = OuterRun::read();
    // Of a choice the cluster grants another lock than the one that is held already.
    let alone = !flags.shared && flags.slots.is_none() && !flags.is_choice();
    if let Some(outer) = outer.as_ref().filter(|_| alone)
        && let Some(lock) = outer.holds(&client, &flags.locks).await
    {
        return Err(already_held(messages, lock));
    }
    loop {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let (tell, ahead) = watch::channel(None);
        let tell = Arc::new(tell);
        let mut queue = LockQueue { client: &client, flags, ahead };
        let asking = async {
            let queued = |ask: LockAsk| {
                let (ask, tell) = (configured(ask, flags, times, left), tell.clone());
                ask.on_queued(move |ahead| {
                    tell.send_replace(Some(ahead));
                })
            };
            // Which slot of a pool it will be is not known before, so no deadlock with the outer run is looked for.
            let Some(outer) = outer.as_ref().filter(|_| !flags.pool) else {
                let guard = queued(match (flags.any, flags.pool) {
                    (true, _) => client.lock_any(&flags.locks),
                    (_, true) => client.pool(flags.first()),
                    _ => client.lock_all(&flags.locks),
                });
                return Ok(RunLock::Lock(guard.await?));
            };
            let lease = client.lease(flags.ttl).await?;
            let ask = || match flags.any {
                true => queued(lease.lock_any(&flags.locks)),
                false => queued(lease.lock_all(&flags.locks)),
            };
            let patient = left.is_none_or(|left| !left.is_zero());
            let guard = outer.acquire(&client, &lease, flags.first(), patient, ask).await?;
            Ok(RunLock::Nested(guard, lease))
        };
        let asked = tokio::select! {
            held = asking => held,
            signal = given_up(heard, &notice, ttl) => {
                return Err(queue.leave(signal, messages).await);
            }
            never = queue.show(messages) => match never {},
        };
        let error = match asked {
            Ok(held) => return Ok((client.clone(), held)),
            Err(error) => error,
        };
        let in_time = until.is_none_or(|until| Instant::now() < until);
        if !(in_time && matches!(error, Error::Lost { .. })) {
            // Without an answer to the request there is none to this question either.
            let view = match error {
                Error::Refused(_) => queue.query().await,
                _ => None,
            };
            return Err(refuse(messages, flags, &error, view.as_ref()));
        }
        let locks = flags.named();
        messages.unusual(&format!("queue position for {locks} {error}; asking again"));
    }
}

fn configured(ask: LockAsk, flags: &RunArgs, times: &RunTimes, wait: Option<Duration>) -> LockAsk {
    let ask = ask.ttl(flags.ttl).grace(times.grace);
    let ask = ask.metadata(flags.metadata.clone()).lock_delay(flags.lock_delay);
    let ask = ask.min_hold(flags.min_hold()).priority(flags.priority);
    let ask = ask.progress_within(flags.progress_within.unwrap_or_default());
    let ask = match &flags.supersede {
        Some(group) => ask.supersede(group),
        None => ask,
    };
    let ask = match flags.max_hold {
        Some(max_hold) => ask.max_hold(max_hold),
        None => ask,
    };
    let ask = match (flags.shared, flags.slots) {
        (true, _) => ask.shared(),
        (false, Some(slots)) => ask.slots(slots).take(flags.take),
        (false, None) => ask.take(flags.take),
    };
    match wait {
        Some(wait) => ask.wait(wait),
        None => ask,
    }
}

/// Waits for a signal that ends the wait.
pub(super) async fn given_up(
    heard: &mut UnboundedReceiver<ReceivedSignal>,
    notice: &StopNotice,
    ttl: Duration,
) -> i32 {
    loop {
        match heard.recv().await.map(|signal| signal.number) {
            // As every job; without a shell that could continue it, it goes on.
            Some(SIGTSTP | SIGTTIN | SIGTTOU)
                if JobTerminal::open().is_some_and(|terminal| terminal.is_controlled()) =>
            {
                let kept = duration::shown(ttl / KEPT_PART);
                notice.stopping(&format!(
                    "stopped: the queue position is kept for {kept}, and lost after that, unless continued: fg"
                ));
                let _ = kill_process(getpid(), Signal::STOP);
            }
            Some(SIGCONT) => notice.continued(),
            Some(signal @ (SIGHUP | SIGINT | SIGQUIT | SIGTERM)) => return signal,
            _ => {}
        }
    }
}

/// The queue in which this client has a place.
struct LockQueue<'a> {
    client: &'a Client,
    flags: &'a RunArgs,
    /// How many waiters were ahead when the cluster last reported it.
    ahead: watch::Receiver<Option<u64>>,
}

impl LockQueue<'_> {
    /// Shows the place in the queue, once the request has to wait.
    async fn show(&mut self, messages: &mut Messages) -> Infallible {
        // The sender lives as long as the request, and the request as long as this future.
        if self.ahead.wait_for(Option::is_some).await.is_err() {
            std::future::pending::<()>().await;
        }
        let every = if messages.is_live() { POLL_INTERVAL_LIVE } else { POLL_INTERVAL_LOG };
        let mut known = None;
        loop {
            if let Some(view) = self.query().await {
                let key = view.key();
                let changed = known.as_ref() != Some(&key);
                known = Some(key);
                if changed {
                    messages.event("queued", &view.event());
                }
                messages.waiting(&view, changed);
            }
            tokio::time::sleep(every).await;
        }
    }

    /// Asks the cluster about the lock; `None` without an answer.
    async fn query(&self) -> Option<QueueView> {
        if self.flags.is_choice() {
            return self.query_choice().await;
        }
        let (mut shown, ahead) = (None, self.ahead.borrow().unwrap_or(0));
        for lock in &self.locks().await? {
            let told = self.client.explain_raw(lock).await.ok()?;
            // Of several locks, the first that is held is what this client waits for.
            let held = told.lock.as_ref().is_some_and(|lock| !lock.holders.is_empty());
            if held || shown.is_none() {
                shown = Some(QueueView::new(lock, self.client.name(), ahead, told));
            }
            if held {
                break;
            }
        }
        shown
    }

    /// Asks the cluster about some of the locks of which one is enough.
    async fn query_choice(&self) -> Option<QueueView> {
        let (locks, ahead) = (self.locks().await?, self.ahead.borrow().unwrap_or(0));
        let mut told = Vec::new();
        for lock in locks.iter().take(SHOWN_MAX) {
            told.push((lock.clone(), self.client.explain_raw(lock).await.ok()?));
        }
        let first = quoted(self.flags.first());
        let look = match self.flags.pool {
            true => format!("tenure locks {first}"),
            false => format!("tenure explain {first}"),
        };
        QueueView::of_choice((self.flags.named(), look), (ahead, locks.len()), told)
    }

    /// The locks for which the request waits.
    async fn locks(&self) -> Option<Vec<String>> {
        if !self.flags.pool {
            return Some(self.flags.locks.clone());
        }
        let below = self.client.locks(self.flags.first(), None).await.ok()?;
        let slots = below.into_iter().filter(|lock| lock.sized);
        Some(slots.map(|lock| lock.name).collect())
    }

    /// After the request was dropped: waits briefly until its place is gone, and reports it.
    async fn leave(&self, signal: i32, messages: &mut Messages) -> u8 {
        let locks = self.flags.named();
        let ahead = *self.ahead.borrow();
        let gone = async {
            while self.stands().await {
                tokio::time::sleep(LEAVE_STEP).await;
            }
        };
        let left = tokio::time::timeout(LEAVE, gone).await.is_ok();
        match (left, ahead) {
            (false, _) => messages.unusual(&format!(
                "gave up {locks}; its queue position ends with its lease, within {}",
                duration::shown(self.flags.ttl)
            )),
            (true, Some(ahead)) => {
                let ahead = were_ahead(ahead);
                messages.unusual(&format!("left the queue of {locks}, {ahead}"));
            }
            (true, None) => messages.unusual(&format!("gave up {locks}")),
        }
        messages.event("left", &serde_json::json!({ "ahead": ahead }));
        messages.ended("signal", codes::by_signal(signal))
    }

    /// Whether this client still holds the lock or waits for it. Of several locks that are granted together, the first
    /// one tells; of a choice, each may be the one that is held.
    async fn stands(&self) -> bool {
        let Some(locks) = self.locks().await else { return true };
        let many = if self.flags.is_choice() { locks.len() } else { 1 };
        let own = self.client.name();
        for lock in locks.iter().take(many) {
            let Ok(told) = self.client.explain_raw(lock).await else { return true };
            let holds = told.lock.is_some_and(|it| it.holders.iter().any(|it| it.client == own));
            if holds || told.ahead.iter().any(|it| it.client == own) {
                return true;
            }
        }
        false
    }
}
