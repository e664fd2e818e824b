//! Serves a profile of the process by thread: who uses the processors, and who waits for one.

use std::fmt::Write as _;
use std::time::Duration;

use axum::extract::Query;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use tenure_wire::Failure;

use super::answer::{HttpError, HttpResult, json_with};
use super::duration::DurationParameter;
use crate::metrics::{ThreadSnapshot, ThreadUse};
use crate::os;

/// How long to measure, unless the caller says otherwise.
const USUAL: Duration = Duration::from_secs(5);
const LONGEST: Duration = Duration::from_secs(60);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ThreadsQuery {
    #[serde(rename = "for")]
    duration: Option<DurationParameter>,
    format: Option<ThreadsFormat>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ThreadsFormat {
    Json,
    Text,
}

#[derive(Serialize)]
struct ThreadsBody {
    seconds: f64,
    threads: Vec<ThreadUse>,
}

/// Measures for some seconds what each thread of the process does.
pub(super) async fn show(
    query: Result<Query<ThreadsQuery>, axum::extract::rejection::QueryRejection>,
) -> HttpResult {
    let malformed = |what: String| HttpError::from(Failure::Malformed { what });
    let Query(query) = query.map_err(|rejection| malformed(rejection.body_text()))?;
    let duration = query.duration.map_or(USUAL, |it| it.0);
    if duration.is_zero() || duration > LONGEST {
        return Err(malformed("`for` is at least 1ms and at most 60s".to_owned()));
    }
    let (before, begun_us) = (ThreadSnapshot::read(), os::now_us());
    tokio::time::sleep(duration).await;
    let (after, ended_us) = (ThreadSnapshot::read(), os::now_us());
    let elapsed_us = ended_us.saturating_sub(begun_us);
    let body =
        ThreadsBody { seconds: elapsed_us as f64 / 1e6, threads: after.since(&before, elapsed_us) };
    Ok(match query.format.unwrap_or(ThreadsFormat::Json) {
        ThreadsFormat::Json => json_with(StatusCode::OK, &body),
        ThreadsFormat::Text => table(&body),
    })
}

fn table(body: &ThreadsBody) -> Response {
    let mut text = String::from("THREAD             CPU  DELAYED    SWITCHES        ID\n");
    for it in &body.threads {
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{:<15} {:>5.1}%   {:>5.1}%  {:>10}  {:>8}",
            it.name, it.cpu_percent, it.delayed_percent, it.switches, it.id
        );
    }
    text.into_response()
}
