//! Waits for the lock of `tenure run`, and leaves the queue on a signal.

use std::convert::Infallible;
use std::future::IntoFuture;
use std::time::Duration;

use rustix::process::{Signal, getpid, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP};
use tenure::{Client, Error, Guard, LockAsk};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::connection_args::ConnectionTarget;
use crate::duration;
use crate::waiting::were_ahead;

use super::messages::Messages;
use super::refuse::{refuse, unconnected};
use super::times::RunTimes;
use super::waiting::QueueView;
use super::{RunArgs, codes};

/// How often the queue is queried: for a terminal, and for a log.
const LOOK_LIVE: Duration = Duration::from_secs(1);
const LOOK_LOG: Duration = Duration::from_secs(5);
/// How long leaving a queue may take.
const LEAVE: Duration = Duration::from_secs(1);
const LEAVE_STEP: Duration = Duration::from_millis(20);

/// Waits for the lock. If it is not acquired, says why and returns the exit code.
pub(super) async fn acquire(
    flags: &RunArgs,
    place: &ConnectionTarget,
    times: &RunTimes,
    messages: &mut Messages,
    heard: &mut UnboundedReceiver<i32>,
) -> Result<Guard, u8> {
    let until = flags.wait.map(|wait| Instant::now() + wait);
    let client = tokio::select! {
        client = place.connect_to_leader() => client,
        signal = given_up(heard) => {
            messages.unusual("given up before a member answered");
            return Err(messages.ended("signal", codes::by_signal(signal)));
        }
    };
    let client = client.map_err(|failure| unconnected(messages, &failure))?;
    loop {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let (tell, ahead) = watch::channel(None);
        let ask = ask(&client, flags, times, left);
        let ask = ask.on_queued(move |ahead| {
            tell.send_replace(Some(ahead));
        });
        let mut queue = LockQueue { client: &client, flags, ahead };
        let asked = tokio::select! {
            guard = ask.into_future() => guard,
            signal = given_up(heard) => {
                return Err(queue.leave(signal, messages).await);
            }
            never = queue.show(messages) => match never {},
        };
        let error = match asked {
            Ok(guard) => return Ok(guard),
            Err(error) => error,
        };
        let in_time = until.is_none_or(|until| Instant::now() < until);
        if !(in_time && matches!(error, Error::Lost { .. })) {
            // Without an answer to the request there is none to this question either.
            let view = match error {
                Error::Refused(_) => queue.look().await,
                _ => None,
            };
            return Err(refuse(messages, flags, &error, view.as_ref()));
        }
        let lock = &flags.lock;
        messages.unusual(&format!("place in the queue of lock `{lock}` {error}; asking again"));
    }
}

fn ask(client: &Client, flags: &RunArgs, times: &RunTimes, wait: Option<Duration>) -> LockAsk {
    let ask = client.lock(&flags.lock).ttl(flags.ttl).grace(times.grace);
    let ask = ask.metadata(flags.metadata.clone());
    let ask = match (flags.shared, flags.slots) {
        (true, _) => ask.shared(),
        (false, Some(slots)) => ask.slots(slots),
        (false, None) => ask,
    };
    match wait {
        Some(wait) => ask.wait(wait),
        None => ask,
    }
}

/// Waits for a signal that ends the wait.
pub(super) async fn given_up(heard: &mut UnboundedReceiver<i32>) -> i32 {
    loop {
        match heard.recv().await {
            Some(SIGTSTP) => {
                let _ = kill_process(getpid(), Signal::STOP);
            }
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
        let every = if messages.is_live() { LOOK_LIVE } else { LOOK_LOG };
        let mut known = None;
        loop {
            if let Some(view) = self.look().await {
                let key = view.key();
                let changed = known.replace(key) != Some(key);
                if changed {
                    messages.event("queued", &view.event());
                }
                messages.waiting(&view.lines(), changed);
            }
            tokio::time::sleep(every).await;
        }
    }

    /// Asks the cluster about the lock; `None` without an answer.
    async fn look(&self) -> Option<QueueView> {
        let told = self.client.explain_raw(&self.flags.lock).await.ok()?;
        let ahead = self.ahead.borrow().unwrap_or(0);
        Some(QueueView::new(&self.flags.lock, self.client.name(), ahead, told))
    }

    /// After the request was dropped: waits briefly until its place is gone, and reports it.
    async fn leave(&self, signal: i32, messages: &mut Messages) -> u8 {
        let lock = &self.flags.lock;
        let ahead = *self.ahead.borrow();
        let gone = async {
            while self.stands().await {
                tokio::time::sleep(LEAVE_STEP).await;
            }
        };
        let left = tokio::time::timeout(LEAVE, gone).await.is_ok();
        match (left, ahead) {
            (false, _) => messages.unusual(&format!(
                "gave up lock `{lock}`; its place goes with its lease, within {}",
                duration::shown(self.flags.ttl)
            )),
            (true, Some(ahead)) => {
                let ahead = were_ahead(ahead);
                messages.unusual(&format!("left the queue of lock `{lock}`, {ahead}"));
            }
            (true, None) => messages.unusual(&format!("gave up lock `{lock}`")),
        }
        messages.event("left", &serde_json::json!({ "ahead": ahead }));
        messages.ended("signal", codes::by_signal(signal))
    }

    /// Whether this client still holds the lock or waits for it.
    async fn stands(&self) -> bool {
        let Ok(told) = self.client.explain_raw(&self.flags.lock).await else { return true };
        let own = self.client.name();
        let holds = told.lock.is_some_and(|it| it.holders.iter().any(|it| it.client == own));
        holds || told.ahead.iter().any(|it| it.client == own)
    }
}
