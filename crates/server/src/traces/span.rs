//! Follows one traced request from its arrival to its answer.

use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::Either;
use tenure_wire::reason;

use super::message::{self, FLAG_SAMPLED, FLAGS_REMOTE_PARENT, KIND_SERVER, SpanEvent, Status};
use super::{TraceContext, Traces};
use crate::os;

/// The most steps of one request: some commands, each with three steps.
const STEPS_MAX: usize = 32;

tokio::task_local! {
    static PRESENT: Arc<SpanSteps>;
}

/// A step of a request on its way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SpanStep {
    /// A command was admitted and put into the inbox of the event loop.
    Submitted,
    /// The leader's event loop took the command and proposed it.
    Proposed,
    /// A majority has the command on disk, and this member has applied it.
    Applied,
}

impl SpanStep {
    fn name(self) -> &'static str {
        match self {
            Self::Submitted => "submitted",
            Self::Proposed => "proposed",
            Self::Applied => "applied",
        }
    }
}

/// The steps of one request, with their times by the member's clock.
#[derive(Default, Debug)]
pub(crate) struct SpanSteps(Mutex<Vec<(SpanStep, u64)>>);

impl SpanSteps {
    pub(super) fn add(&self, step: SpanStep, at_us: u64) {
        let mut steps = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if steps.len() < STEPS_MAX {
            steps.push((step, at_us));
        }
    }

    fn take(&self) -> Vec<(SpanStep, u64)> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Runs a future as work for a span, if there is one.
pub(crate) fn within<F: Future>(
    span: Option<&RequestSpan>,
    work: F,
) -> impl Future<Output = F::Output> {
    match span {
        None => Either::Left(work),
        Some(span) => Either::Right(PRESENT.scope(span.steps.clone(), work)),
    }
}

/// The steps of the request that is being served.
pub(crate) fn present() -> Option<Arc<SpanSteps>> {
    PRESENT.try_with(Clone::clone).ok()
}

/// Runs a future as a part of the request that is being served, also in another task.
pub(crate) fn as_present<F: Future>(work: F) -> impl Future<Output = F::Output> {
    match present() {
        None => Either::Left(work),
        Some(steps) => Either::Right(PRESENT.scope(steps, work)),
    }
}

/// One sampled request. If it is dropped before [`RequestSpan::finish`], its caller went away.
#[derive(Debug)]
pub(crate) struct RequestSpan {
    traces: Arc<Traces>,
    trace_id: [u8; 16],
    span_id: u64,
    parent: Option<TraceContext>,
    api: &'static str,
    command: &'static str,
    began_us: u64,
    began_ns: u64,
    steps: Arc<SpanSteps>,
    is_finished: bool,
}

impl RequestSpan {
    pub(super) fn new(
        traces: Arc<Traces>,
        trace_id: [u8; 16],
        parent: Option<TraceContext>,
        (api, command): (&'static str, &'static str),
    ) -> Self {
        Self {
            traces,
            trace_id,
            // An id of zeros is none.
            span_id: os::random().max(1),
            parent,
            api,
            command,
            began_us: os::now_us(),
            began_ns: wall_ns(),
            steps: Arc::default(),
            is_finished: false,
        }
    }

    /// Where its steps are recorded.
    pub(crate) fn steps(&self) -> Arc<SpanSteps> {
        self.steps.clone()
    }

    /// Ends the span with the reason of the answer, if that was not success.
    pub(crate) fn finish(mut self, reason: Option<&str>) {
        self.end(reason);
    }

    fn end(&mut self, reason: Option<&str>) {
        self.is_finished = true;
        let after = |at_us: u64| self.began_ns + at_us.saturating_sub(self.began_us) * 1_000;
        let steps = self.steps.take();
        let events = steps.iter().map(|(step, at_us)| SpanEvent {
            time_unix_nano: after(*at_us),
            name: step.name().to_owned(),
        });
        let mut attributes = vec![
            message::text("tenure.api", self.api),
            message::text("tenure.command", self.command),
        ];
        // The same two times as in the log of slow commits.
        let first = |wanted| steps.iter().find(|(step, _)| *step == wanted).map(|(_, at)| *at);
        let proposed_us = first(SpanStep::Proposed);
        let mut add = |name, from: Option<u64>, to: Option<u64>| {
            if let (Some(from), Some(to)) = (from, to) {
                attributes.push(message::number(name, to.saturating_sub(from)));
            }
        };
        add("tenure.queue_us", first(SpanStep::Submitted), proposed_us);
        add("tenure.commit_us", proposed_us, first(SpanStep::Applied));
        if let Some(reason) = reason {
            attributes.push(message::text("tenure.reason", reason));
        }
        let is_failure = |reason: &&str| reason::row(reason).is_none_or(|row| row.http >= 500);
        let status = reason
            .filter(is_failure)
            .map(|reason| Status { message: reason.to_owned(), code: message::STATUS_ERROR });
        let parent = self.parent.as_ref();
        self.traces.put(message::Span {
            trace_id: self.trace_id.to_vec(),
            span_id: self.span_id.to_be_bytes().to_vec(),
            trace_state: parent.map(|parent| parent.state.clone()).unwrap_or_default(),
            parent_span_id: parent.map(|parent| parent.span_id.to_vec()).unwrap_or_default(),
            name: format!("tenure {}", self.command),
            kind: KIND_SERVER,
            start_time_unix_nano: self.began_ns,
            end_time_unix_nano: after(os::now_us()),
            attributes,
            events: events.collect(),
            status,
            flags: FLAG_SAMPLED | parent.map_or(0, |_| FLAGS_REMOTE_PARENT),
        });
    }
}

impl Drop for RequestSpan {
    fn drop(&mut self) {
        if !self.is_finished {
            self.end(Some("CALLER_GONE"));
        }
    }
}

/// The wall clock, in nanoseconds since 1970.
fn wall_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(now.tv_nsec).unwrap_or(0))
}
