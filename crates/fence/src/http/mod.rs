//! Fences an HTTP service: a tower layer that refuses requests with stale tokens.
//!
//! Requests carry their token in the header `Fencing-Token`:
//!
//! ```
//! # let dir = tempfile::tempdir()?;
//! # let file = dir.path().join("fence");
//! # async fn pay() {}
//! use tenure_fence::http::{FenceLayer, FloorFile};
//! let floor = FloorFile::open(file, "ledger")?;                    // one instance per resource: it is locked
//! let fence = FenceLayer::new("ledger", floor)?;
//! let app: axum::Router = axum::Router::new().route("/pay", axum::routing::post(pay)).layer(fence);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | the request | answer |
//! |---|---|
//! | has no token | 428 `TOKEN_REQUIRED` |
//! | has a stale token | 412 `STALE_TOKEN`, with the floor in `Fencing-Floor` and in the body |
//! | has a token that may write once and has written | 412 `TOKEN_USED` |
//! | has a token that is not proven, or of another incarnation | 403 `FORGED_TOKEN`, 403 `OTHER_INCARNATION` |
//! | has something else in the header | 400 `NOT_A_TOKEN` |
//! | would have to wait for too long | 503 `FENCE_BUSY`: nothing was done, the floor has risen |
//! | cannot be admitted because the floor cannot be stored | 503 `FENCE_FAILED`: nothing was done |
//!
//! A service has no transaction that floor and work could share. The fence therefore raises the floor first, durably.
//! Then it waits until every request that was admitted with a lower token has ended, body included. Then it admits the
//! request. A request ends when its response has been sent or dropped. **Not covered:** work that continues after that,
//! in a task of its own, behind an upgraded connection, or in an upstream that does not notice that its connection was
//! closed.
//!
//! `PUT /.well-known/tenure-fence` with a token raises the floor and does nothing else (fence-on-acquire). Once it has
//! returned 204, nothing older runs any more. `GET` of the same path returns the floor.

mod answer;
mod body;
mod keep;
mod layer;
mod turnstile;
mod verify;

pub use answer::{FENCING_FLOOR, FENCING_TOKEN, TENURE_REASON};
pub use body::FencedBody;
pub use keep::{FloorFile, Keep};
pub use layer::{FenceLayer, FenceService, Reads, WELL_KNOWN};
pub use turnstile::{Denied, Entered, Turnstile};
pub use verify::{BareTokens, Unproven, Verify};
