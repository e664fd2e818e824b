//! Orders the writes, and commits many of them with one sync of the disk.
//!
//! One thread writes. Requests that queued up during its last sync go into its next transaction, so that under load
//! many requests share the cost of making data durable.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::answer::ErrorAnswer;
use crate::reason::Reason;

use super::engine::{Engine, EngineError};
use super::metrics::StoreMetrics;
use super::request::{StoreLimits, StoreOutcome, StoreRefusal, StoreRequest};

/// The maximum number of queued writes. Further ones are rejected at once.
const QUEUE_MAX: usize = 1_024;
/// The maximum number of queued bytes.
const QUEUED_BYTES_MAX: usize = 64 * 1024 * 1024;
/// The bounds of one transaction. With larger ones, the next requests would wait too long.
const TURN_MAX: usize = 256;
const TURN_BYTES_MAX: usize = 16 * 1024 * 1024;

/// A queued request, and where to send its outcome.
struct QueuedWrite {
    ask: StoreRequest,
    answer: oneshot::Sender<Result<StoreOutcome, StoreRefusal>>,
}

/// Sends requests to the writing thread. Cheap to clone.
#[derive(Clone)]
pub(super) struct StoreWriter {
    queue: SyncSender<QueuedWrite>,
    waiting: Arc<AtomicUsize>,
    bytes: Arc<AtomicUsize>,
}

impl StoreWriter {
    /// Starts the thread. `on_end` receives the error that ends it; after that the store rejects all requests.
    pub(super) fn start(
        engine: Arc<Engine>,
        limits: StoreLimits,
        metrics: Arc<StoreMetrics>,
        on_end: impl FnOnce(&EngineError) + Send + 'static,
    ) -> std::io::Result<Self> {
        let (queue, asks) = sync_channel(QUEUE_MAX);
        let writer = Self { queue, waiting: Arc::default(), bytes: Arc::default() };
        let (waiting, bytes) = (Arc::clone(&writer.waiting), Arc::clone(&writer.bytes));
        let run = move || {
            let took = |ask: &StoreRequest| {
                waiting.fetch_sub(1, Ordering::Relaxed);
                bytes.fetch_sub(ask.weight(), Ordering::Relaxed);
            };
            if let Err(broken) = write(&engine, &limits, &metrics, &asks, took) {
                on_end(&broken);
            }
        };
        std::thread::Builder::new().name("store-writer".to_owned()).spawn(run)?;
        Ok(writer)
    }

    /// The number of queued requests.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Executes a request. If the caller goes away, the request is still executed.
    pub(super) async fn ask(&self, ask: StoreRequest) -> Result<StoreOutcome, ErrorAnswer> {
        let weight = ask.weight();
        let full = || ErrorAnswer::new(Reason::Overloaded, "more writes wait than can");
        if self.bytes.fetch_add(weight, Ordering::Relaxed) + weight > QUEUED_BYTES_MAX {
            self.bytes.fetch_sub(weight, Ordering::Relaxed);
            return Err(full());
        }
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let (answer, answered) = oneshot::channel();
        if let Err(error) = self.queue.try_send(QueuedWrite { ask, answer }) {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            self.bytes.fetch_sub(weight, Ordering::Relaxed);
            return Err(match error {
                TrySendError::Full(_) => full(),
                TrySendError::Disconnected(_) => {
                    ErrorAnswer::new(Reason::ShuttingDown, "the store has stopped writing")
                }
            });
        }
        let answer = answered.await.map_err(|_| {
            ErrorAnswer::new(Reason::Internal, "the disk failed while this was written")
        })?;
        answer.map_err(Into::into)
    }
}

/// Writes until all senders are gone, or the disk fails.
fn write(
    engine: &Engine,
    limits: &StoreLimits,
    metrics: &StoreMetrics,
    asks: &Receiver<QueuedWrite>,
    took: impl Fn(&StoreRequest),
) -> Result<(), EngineError> {
    while let Ok(first) = asks.recv() {
        let mut bytes = first.ask.weight();
        took(&first.ask);
        let (mut turn, mut answers) = (vec![first.ask], vec![first.answer]);
        while turn.len() < TURN_MAX && bytes < TURN_BYTES_MAX {
            let Ok(next) = asks.try_recv() else { break };
            took(&next.ask);
            bytes += next.ask.weight();
            turn.push(next.ask);
            answers.push(next.answer);
        }
        let began = Instant::now();
        let done = engine.turn(limits, &turn)?;
        metrics.turned(turn.len(), began.elapsed());
        for (answer, done) in answers.into_iter().zip(done) {
            // An error means that the caller has gone away.
            let _ = answer.send(done);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use tenure_fence::{Claim, Token};

    use super::super::request::StoreAction;
    use super::*;
    use crate::reason::Row;

    fn ask(bytes: usize) -> StoreRequest {
        let claim = Claim::new(Token::from_u64(1).expect("a token"));
        let value = Bytes::from(vec![0; bytes]);
        StoreRequest {
            lock: "l".into(),
            slot: None,
            claim,
            act: StoreAction::Put { key: "k".into(), value },
        }
    }

    #[tokio::test]
    async fn no_caller_waits_for_a_writer_that_cannot_keep_up_or_has_stopped() {
        let (queue, asks) = sync_channel(1);
        let writer = StoreWriter { queue, waiting: Arc::default(), bytes: Arc::default() };
        let why = async |bytes| -> &'static Row { writer.ask(ask(bytes)).await.unwrap_err().row };
        assert_eq!(why(QUEUED_BYTES_MAX + 1).await, Reason::Overloaded.row(), "too many bytes");
        let first = tokio::spawn({
            let writer = writer.clone();
            async move { writer.ask(ask(1)).await }
        });
        while writer.waiting() == 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(why(1).await, Reason::Overloaded.row(), "too many writes");
        // The disk fails: the outcome of the first request is unknown, and the next ones are rejected.
        drop(asks);
        assert_eq!(first.await.unwrap().unwrap_err().row, Reason::Internal.row());
        assert_eq!(why(1).await, Reason::ShuttingDown.row());
        assert_eq!(writer.waiting(), 1, "only the first was ever let in");
    }
}
