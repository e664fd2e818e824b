//! Implements what all unary gRPC calls share.
//!
//! It determines the principal, the deadline (`grpc-timeout`) and the request id (`idempotency-key`) of a call, and
//! turns outcomes and failures into responses.

use std::pin::Pin;
use std::time::Duration;

use futures_util::Stream;
use tenure_core::outcome::Outcome;
use tenure_core::request::{Command, RequestId};
use tenure_wire::{Failure, v1};
use tonic::{Request, Response, Status};
use v1::answer::Result as Wire;

use crate::api::decode;
use crate::api::encode::{self, AnswerForm};
use crate::dispatch::{AcquireTerms, Caller, Dispatch, PlaceFate, Principal, WITHIN};
use crate::os;

/// The metadata key that makes a request safe to repeat.
const KEY: &str = "idempotency-key";
/// The metadata key for how long the caller waits.
const TIMEOUT: &str = "grpc-timeout";
/// The longest time that a call without a queue takes, however long its caller is willing to wait.
const WITHIN_MAX: Duration = Duration::from_secs(600);
/// The duration of a wait without a limit: longer than any unrenewed lease and any process lives.
const UNLIMITED: Duration = Duration::from_secs(10 * 365 * 24 * 3_600);

pub(super) type Streamed<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// One call.
pub(super) struct GrpcCall {
    pub(super) dispatch: Dispatch,
    pub(super) who: Principal,
    key: Option<String>,
    deadline: Option<Duration>,
}

impl GrpcCall {
    /// Splits a request into the call and the message.
    pub(super) fn new<T>(dispatch: &Dispatch, request: Request<T>) -> Result<(Self, T), Status> {
        let metadata = request.metadata();
        let text = |name: &'static str| match metadata.get(name).map(|value| value.to_str()) {
            None => Ok(None),
            Some(Ok(text)) if !text.is_empty() => Ok(Some(text)),
            Some(_) => Err(to_status(decode::invalid(name, "is empty or not plain text"))),
        };
        let key = text(KEY)?.map(str::to_owned);
        let deadline = match text(TIMEOUT)? {
            None => None,
            Some(text) => Some(
                timeout(text)
                    .ok_or_else(|| to_status(decode::invalid(TIMEOUT, "is no duration")))?,
            ),
        };
        let call = Self { dispatch: dispatch.clone(), who: Caller::principal(), key, deadline };
        Ok((call, request.into_inner()))
    }

    /// Returns this member's own view, or a deadline error once the caller's time is over.
    pub(super) async fn own_view<T>(
        &self,
        view: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Status> {
        match tokio::time::timeout(self.within(), view).await {
            Ok(seen) => seen.map_err(to_status),
            Err(_) => Err(to_status(Failure::Deadline)),
        }
    }

    /// How long the call may take.
    pub(super) fn within(&self) -> Duration {
        self.deadline.map_or(WITHIN, |deadline| deadline.min(WITHIN_MAX))
    }

    /// The id by which the machine recognises a repeated request.
    pub(super) fn id(&self) -> RequestId<'_> {
        self.key.as_deref().map_or(RequestId::None, RequestId::Key)
    }

    /// Numbers a new lease from the request's idempotency key, so that a repeated request names the same lease.
    pub(super) fn number(&self, new: &mut v1::NewLease) {
        if let Some(key) = &self.key {
            decode::number_lease(new, self.who.name(), key);
        }
    }

    /// Runs a command; `pick` takes the response from the answer.
    pub(super) async fn run<R>(
        &self,
        command: Result<Command<'_>, Failure>,
        pick: impl FnOnce(Option<v1::Header>, Wire) -> Option<R>,
    ) -> Result<Response<R>, Status> {
        let command = command.map_err(to_status)?;
        let outcome = self.outcome(command).await?;
        self.reply(&outcome, AnswerForm::default(), pick)
    }

    /// Runs a command.
    pub(super) async fn outcome(&self, command: Command<'_>) -> Result<Outcome, Status> {
        let called = self.dispatch.call(&self.who, self.id(), command, self.within()).await;
        called.map_err(to_status)
    }

    /// Acquires locks and waits in their queues. If the caller goes away or its deadline passes, the request leaves the
    /// queue.
    pub(super) async fn acquire(
        &self,
        ask: Command<'_>,
        wait_ms: Option<u64>,
    ) -> Result<Outcome, Status> {
        let wait = wait_ms.map_or(UNLIMITED, Duration::from_millis).min(UNLIMITED);
        let deadline = self.deadline.unwrap_or(UNLIMITED);
        let terms = AcquireTerms {
            within_us: os::micros(self.within()),
            wait_us: os::micros(wait.min(deadline)),
            place: PlaceFate::GivenUp,
        };
        let acquired = self.dispatch.acquire(&self.who, self.id(), ask, terms);
        match tokio::time::timeout(deadline, acquired).await {
            Ok(outcome) => outcome.map_err(to_status),
            Err(_) => {
                let waited_ms = self.within().as_millis().try_into().unwrap_or(u64::MAX);
                Err(to_status(Failure::UnknownOutcome { waited_ms }))
            }
        }
    }

    /// An outcome as a response.
    pub(super) fn reply<R>(
        &self,
        outcome: &Outcome,
        form: AnswerForm,
        pick: impl FnOnce(Option<v1::Header>, Wire) -> Option<R>,
    ) -> Result<Response<R>, Status> {
        let header = Some(self.dispatch.header(outcome.revision));
        match encode::answer(outcome, form) {
            Wire::Error(error) => Err((*error).into()),
            answer => {
                pick(header, answer).map(Response::new).ok_or_else(|| to_status(Failure::Internal))
            }
        }
    }
}

/// A failure as a status.
pub(super) fn to_status(failure: impl Into<v1::Error>) -> Status {
    failure.into().into()
}

/// Parses a duration in gRPC's form: up to eight digits and a unit.
fn timeout(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let plain = (1..=8).contains(&digits.len()) && digits.bytes().all(|it| it.is_ascii_digit());
    let number: u64 = digits.parse().ok().filter(|_| plain)?;
    Some(match unit {
        "H" => Duration::from_secs(number * 3_600),
        "M" => Duration::from_secs(number * 60),
        "S" => Duration::from_secs(number),
        "m" => Duration::from_millis(number),
        "u" => Duration::from_micros(number),
        "n" => Duration::from_nanos(number),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_grpc_writes_them() {
        assert_eq!(timeout("2500m"), Some(Duration::from_millis(2_500)));
        assert_eq!(timeout("99999999H"), Some(Duration::from_secs(99_999_999 * 3_600)));
        assert_eq!(timeout("1S"), Some(Duration::from_secs(1)));
        for bad in ["", "S", "5", "123456789m", "+5S", "-1S", "5x", "1é"] {
            assert_eq!(timeout(bad), None, "{bad:?}");
        }
    }
}
