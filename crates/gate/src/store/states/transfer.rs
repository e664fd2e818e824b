//! Bounds how many states are on their way in and out at the same time, and sums their content.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::body::Body;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use http_body_util::Full;
use md5::{Digest as _, Md5};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};

use crate::answer::ErrorAnswer;
use crate::deadline::Deadline;
use crate::reason::Reason;

/// How long a state may take on its way in or out.
pub(super) const TRANSFER: Duration = Duration::from_secs(120);
/// How many states are on their way in, and how many out, at the same time: each may be as long as a state can be.
pub(super) const TRANSFERS_MAX: usize = 4;
/// How long a request waits until there is room for its transfer.
const TRANSFER_WAIT: Duration = Duration::from_secs(30);

/// Waits for a place among the transfers.
pub(super) async fn place(places: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, ErrorAnswer> {
    let place = timeout(TRANSFER_WAIT, Arc::clone(places).acquire_owned()).await;
    let full =
        || ErrorAnswer::new(Reason::Overloaded, "too many states are being transferred; try again");
    place.ok().and_then(Result::ok).ok_or_else(full)
}

/// A body that keeps its place until it is sent.
pub(super) fn sent(content: Bytes, place: OwnedSemaphorePermit) -> Body {
    let body = PlacedBody { body: Full::new(content), _place: place };
    Body::new(Deadline::new(body, Instant::now() + TRANSFER))
}

struct PlacedBody {
    body: Full<Bytes>,
    _place: OwnedSemaphorePermit,
}

impl http_body::Body for PlacedBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The MD5 sum of a state. Terraform sends it; it detects damage, not forgery.
pub(super) struct Sum([u8; 16]);

impl Sum {
    pub(super) fn of(content: &[u8]) -> Self {
        Self(Md5::digest(content).into())
    }

    /// As in a header `Content-MD5`.
    pub(super) fn header(&self) -> String {
        STANDARD.encode(self.0)
    }

    pub(super) fn hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

#[expect(clippy::disallowed_methods, reason = "versions show the time; nothing is decided by it")]
pub(super) fn wall_clock() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_is_the_one_that_terraform_sends() {
        let sum = Sum::of(b"");
        assert_eq!(sum.hex(), "d41d8cd98f00b204e9800998ecf8427e");
        assert_eq!(sum.header(), "1B2M2Y8AsgTpgAmY7PhCfg==");
    }

    #[tokio::test(start_paused = true)]
    async fn a_place_is_free_again_once_the_body_is_gone() {
        let places = Arc::new(Semaphore::new(1));
        let body = sent(Bytes::from_static(b"x"), place(&places).await.unwrap());
        assert_eq!(place(&places).await.unwrap_err().row, Reason::Overloaded.row());
        drop(body);
        assert!(place(&places).await.is_ok());
    }
}
