//! How does an HTTP service refuse stale tokens?
//!
//! A tower layer in front of it. Requests name their token in the header `Fencing-Token`:
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
//! | has a stale one | 412 `STALE_TOKEN`, with the floor in `Fencing-Floor` and in the body |
//! | has one that may write once and has | 412 `TOKEN_USED` |
//! | has one that is not proven, or of another incarnation | 403 `FORGED_TOKEN`, 403 `OTHER_INCARNATION` |
//! | has something else there | 400 `NOT_A_TOKEN` |
//! | must wait for too long | 503 `FENCE_BUSY`: nothing was done, the floor has risen |
//! | cannot be let in because the floor cannot be kept | 503 `FENCE_FAILED`: nothing was done |
//!
//! A service has no transaction that floor and work could share. So the floor rises first, durably; then whoever
//! raised it waits until every request that was let in with a lower token has ended, body included; then it is let in
//! itself. A request ends when its response has been sent or dropped. **Not covered:** work that goes on after that,
//! in a task of its own, behind an upgraded connection, or in an upstream that does not notice that its connection was
//! cut.
//!
//! `PUT /.well-known/tenure-fence` with a token raises the floor and does nothing else (fence-on-acquire); once it has
//! answered 204, nothing older runs any more. `GET` of the same shows the floor.

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
