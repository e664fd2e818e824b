//! How does a program say what this crate has no words of its own for?
//!
//! For tools of ours that show and change everything the contract has. Not part of what this crate promises.

use std::time::Duration;

use tenure_types::Revision;
use tenure_wire::{convert, v1};
use tokio::time::Instant;
use tonic::transport::Channel;

use crate::client::Client;
use crate::clock;
use crate::error::{Error, Meaning, RequestId};
use crate::shared::Identity;

/// Pauses between attempts grow from the first to the second.
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(1);

impl Client {
    /// Sends a command of the contract over the session, to whoever leads, until it is answered. With an id it happens
    /// once, however often it is sent; without one it must be harmless to repeat.
    #[doc(hidden)]
    pub async fn ask(
        &self,
        command: v1::request::Command,
        id: Option<&RequestId>,
    ) -> Result<(v1::answer::Result, Revision), Error> {
        let identity = id.map_or(Identity::Harmless, |id| Identity::Key(id.to_string()));
        let (answer, revision) = self.shared.call(command, identity).await?;
        Ok((answer, convert::revision_from(revision).unwrap_or(Revision(0))))
    }

    /// Asks a question outside of the session, again while nobody can answer it.
    #[doc(hidden)]
    pub async fn question<T>(
        &self,
        ask: impl AsyncFn(Channel) -> Result<tonic::Response<T>, tonic::Status>,
    ) -> Result<T, Error> {
        let until = Instant::now() + self.shared.settings.timeout;
        let mut pause = PAUSE_MIN;
        loop {
            let line = self.shared.line(until).await.ok_or(Error::Unavailable)?;
            let asked = tokio::time::timeout_at(until, ask(line.channel.clone())).await;
            match asked.map_err(|_| Error::Unavailable)? {
                Ok(answer) => return Ok(answer.into_inner()),
                Err(status) => match meaning(&status) {
                    Meaning::No(error) => return Err(error),
                    Meaning::Again { .. } | Meaning::Doubt => {}
                },
            }
            if Instant::now() + pause >= until {
                return Err(Error::Unavailable);
            }
            tokio::time::sleep(clock::jittered(pause)).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Has something done outside of the session, or says that it may have been done. It is sent once, and may take
    /// longer than a question: as long as it is waited for.
    #[doc(hidden)]
    pub async fn order<T>(
        &self,
        id: &RequestId,
        within: Option<Duration>,
        ask: impl AsyncFnOnce(Channel) -> Result<tonic::Response<T>, tonic::Status>,
    ) -> Result<T, Error> {
        let (began, timeout) = (Instant::now(), self.shared.settings.timeout);
        let line = self.shared.line(began + timeout).await.ok_or(Error::Unavailable)?;
        let unknown = || Error::Unknown { request: id.clone(), waited: began.elapsed() };
        let asked = match within {
            Some(within) => tokio::time::timeout(within, ask(line.channel.clone())).await,
            None => Ok(ask(line.channel.clone()).await),
        };
        match asked.map_err(|_| unknown())? {
            Ok(answer) => Ok(answer.into_inner()),
            Err(status) => Err(match meaning(&status) {
                Meaning::No(error) => error,
                Meaning::Again { .. } => Error::Unavailable,
                Meaning::Doubt => unknown(),
            }),
        }
    }
}

/// What a status means; one that no member of ours wrote says nothing about what happened.
fn meaning(status: &tonic::Status) -> Meaning {
    tenure_wire::status::error_from(status).map_or(Meaning::Doubt, Meaning::of)
}
