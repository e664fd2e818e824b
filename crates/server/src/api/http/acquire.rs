//! Acquires locks over HTTP and waits in their queues.

use std::time::Duration;

use axum::response::Response;
use http::StatusCode;
use serde::Deserialize;
use tenure_core::outcome::{Answer, Outcome};
use tenure_core::request::{AskLease, Command};
use tenure_types::Refusal;
use tenure_wire::json::Header;
use tenure_wire::json::lock::Acquired;
use tenure_wire::{Failure, v1};
use utoipa::IntoParams;

use super::Http;
use super::answer::{HttpError, json_with};
use super::call::{request_id, within};
use super::duration::DurationParameter;
use crate::api::encode::AnswerForm;
use crate::api::{decode, encode};
use crate::dispatch::{AcquireTerms, PlaceFate, ReadConsistency, ReadScope};
use crate::os;

const CLIENT: &str = "http";

/// How long to wait for the turn, and what then.
#[derive(Clone, Copy, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct WaitParameters {
    /// Wait in the queue so long at most; without it, or with 0: not at all. A wait renews nothing: one that the
    /// lease would not outlive is refused with `WAIT_TOO_LONG` and the number to use.
    #[param(
        value_type = Option<String>, example = "30s",
        pattern = r"^([0-9]+(\.[0-9]+)?|([0-9]+(\.[0-9]+)?(us|ms|s|m|h|d))+)$"
    )]
    pub(super) wait: Option<DurationParameter>,
    /// Keep the queue position when the wait times out or the caller goes away; asking again resumes it.
    pub(super) keep: Option<bool>,
    /// How long to wait for the outcome, the time in the queue not counted: 1ms to 5m, else 10 s.
    #[param(
        value_type = Option<String>, example = "10s",
        pattern = r"^([0-9]+(\.[0-9]+)?|([0-9]+(\.[0-9]+)?(us|ms|s|m|h|d))+)$"
    )]
    pub(super) timeout: Option<DurationParameter>,
}

/// The result of an acquire.
pub(super) enum AcquireResult {
    Held(v1::AcquireResponse),
    Waits(v1::Queued),
}

impl WaitParameters {
    fn wait(self) -> Duration {
        self.wait.map_or(Duration::ZERO, |DurationParameter(wait)| wait)
    }

    fn keep(self) -> bool {
        self.keep.unwrap_or(false)
    }

    /// The wait that the machine gets: a place that is kept has no limit of its own.
    fn wait_ms(self) -> Option<u64> {
        (!self.keep()).then(|| self.wait.map_or(0, DurationParameter::ms))
    }
}

impl Http {
    /// Requests locks and waits until they are granted.
    pub(super) async fn acquire(
        &self,
        key: Option<&String>,
        ask: v1::AcquireRequest,
        waiting: WaitParameters,
    ) -> Result<(Header, AcquireResult), HttpError> {
        let within = within(waiting.timeout)?;
        let form = AnswerForm::of(&ask);
        let mut ask = v1::AcquireRequest { wait_ms: waiting.wait_ms(), ..ask };
        if let (Some(new), Some(key)) = (&mut ask.new_lease, key) {
            decode::number_lease(new, self.who().name(), key);
        }
        let ask = decode::ask(&ask, CLIENT)?;
        self.outlives(&ask, waiting.wait(), within).await?;
        let terms = AcquireTerms {
            within_us: os::micros(within),
            wait_us: os::micros(waiting.wait()),
            place: if waiting.keep() { PlaceFate::Kept } else { PlaceFate::GivenUp },
        };
        let outcome = self.dispatch.acquire(&self.who(), request_id(key), ask, terms).await;
        let outcome = outcome.map_err(HttpError::from)?;
        let header = self.header(outcome.revision);
        became(&outcome, form).map(|became| (header, became))
    }

    /// Checks that the wait is not longer than the lease lives: waiting renews nothing.
    async fn outlives(
        &self,
        ask: &Command<'_>,
        wait: Duration,
        within: Duration,
    ) -> Result<(), HttpError> {
        if wait.is_zero() {
            return Ok(());
        }
        let lease = match ask {
            Command::Acquire(acquire) => acquire.lease,
            Command::Upgrade(upgrade) => AskLease::Existing(upgrade.lease),
            _ => return Ok(()),
        };
        let left_ms = match lease {
            AskLease::New(new) => new.ttl_ms,
            AskLease::Existing(lease) => {
                let who = self.who();
                let left = move |machine: &tenure_core::Machine| {
                    let seen = machine.lease_seen_by(who.name(), lease);
                    seen.map(|view| view.left_ms.min(view.ttl_ms))
                };
                let (_, left_ms) = self
                    .read(ReadScope::Known, ReadConsistency::Linearizable, within, left)
                    .await?;
                left_ms.ok_or(&Refusal::LeaseNotFound)?
            }
        };
        if wait > Duration::from_millis(left_ms) {
            return Err(Failure::WaitTooLong { left_ms }.into());
        }
        Ok(())
    }
}

fn became(outcome: &Outcome, form: AnswerForm) -> Result<AcquireResult, HttpError> {
    use v1::answer::Result as Wire;
    if let Err(refusal) = &outcome.result {
        return Err(HttpError::from(refusal).next("HELD", "add ?wait=30s to queue"));
    }
    if let Ok(Answer::Ended) = &outcome.result {
        // The acquire with this request id is over, and repeating it would not bring it back.
        return Err((&Refusal::RequestStale).into());
    }
    match encode::answer(outcome, form) {
        Wire::Acquired(acquired) => Ok(AcquireResult::Held(acquired)),
        Wire::Queued(queued) => Ok(AcquireResult::Waits(queued)),
        _ => Err(Failure::Internal.into()),
    }
}

/// The response to an acquire. `lock` is the requested lock, unless there are several.
pub(super) fn answer(lock: Option<String>, header: Header, became: AcquireResult) -> Response {
    match became {
        AcquireResult::Held(held) => {
            let held = Acquired { header: Some(header), ..Acquired::held(lock, held) };
            json_with(StatusCode::OK, &held)
        }
        AcquireResult::Waits(queued) => {
            json_with(StatusCode::ACCEPTED, &Acquired::queued(lock, queued, Some(header)))
        }
    }
}
