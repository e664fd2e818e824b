//! Sends queries outside of the session.

use std::time::Duration;

use tokio::time::Instant;

use crate::client::Client;
use crate::clock;
use crate::credentials::MemberChannel;
use crate::error::{Error, Meaning};

/// The pause between attempts grows from the first value to the second.
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(1);

impl Client {
    /// Sends a query to a member, and retries while no member can answer it.
    // Not an `AsyncFn`: the compiler cannot prove that its future is `Send`, and callers spawn theirs.
    pub(crate) async fn query<T, F>(&self, ask: impl Fn(MemberChannel) -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<tonic::Response<T>, tonic::Status>>,
    {
        let until = Instant::now() + self.shared.settings.timeout;
        let mut pause = PAUSE_MIN;
        loop {
            let session = self.shared.session(until).await;
            let session = session.ok_or_else(|| self.shared.no_session())?;
            let asked = tokio::time::timeout_at(until, ask(session.channel.clone())).await;
            let (newest, after) = match asked.map_err(|_| Error::Unavailable)? {
                Ok(answer) => return Ok(answer.into_inner()),
                Err(status) => match meaning(&status) {
                    Meaning::No(error) => return Err(error),
                    Meaning::Again { error, after } => (error.unwrap_or(Error::Unavailable), after),
                    Meaning::Doubt => (Error::Unavailable, Duration::ZERO),
                },
            };
            let wait = clock::jittered(pause).max(after);
            if Instant::now() + wait >= until {
                return Err(newest);
            }
            tokio::time::sleep(wait).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }
}

/// Converts a status. A status without our error details says nothing about whether the command took effect.
pub(crate) fn meaning(status: &tonic::Status) -> Meaning {
    tenure_wire::status::error_from(status).map_or(Meaning::Doubt, Meaning::of)
}
