//! Does many things at a time, but not all at once.

use std::collections::VecDeque;
use std::future::Future;

use anyhow::{Context, Result};
use tokio::task::JoinSet;

/// How many connections or leases are opened at a time.
pub const AT_ONCE: usize = 128;

/// Starts `count` tasks, at most [`AT_ONCE`] at a time, and returns their results in order.
pub async fn together<T, F>(count: usize, mut task: impl FnMut(usize) -> F) -> Result<Vec<T>>
where
    T: Send + 'static,
    F: Future<Output = Result<T>> + Send + 'static,
{
    let mut running = JoinSet::new();
    let mut waiting: VecDeque<usize> = (0..count).collect();
    let mut done: Vec<Option<T>> = (0..count).map(|_| None).collect();
    loop {
        while running.len() < AT_ONCE
            && let Some(at) = waiting.pop_front()
        {
            let task = task(at);
            running.spawn(async move { anyhow::Ok((at, task.await?)) });
        }
        let Some(ended) = running.join_next().await else { break };
        let (at, value) = ended.context("a task ended early")??;
        done[at] = Some(value);
    }
    done.into_iter().collect::<Option<_>>().context("a task has no result")
}
