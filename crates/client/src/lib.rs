//! How does a program hold a lock and stop in time?
//!
//! ```no_run
//! # async fn migrate(token: tenure::Token) {}
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), tenure::Error> {
//! let client = tenure::Client::from_env().await?;     // TENURE_ADDR, else loopback
//! client.run("deploy", async |guard| migrate(guard.token()).await).await?;
//! # Ok(()) }
//! ```
//!
//! A [`Guard`] stands for a held lock. Its lease is renewed as long as it exists; if that fails, the guard is *lost*
//! before the cluster can give the lock to anyone else: [`Guard::run`] drops the work, [`Guard::check`] says no, and
//! [`Guard::cancellation`] fires, from a thread of its own. What no client can cover, a machine frozen from outside or
//! a write already on its way, the [fencing token](Guard::token) covers where it is checked.

#[macro_use]
mod plant;
mod admin;
mod alarm;
mod ask;
mod asks;
pub mod blocking;
mod client;
mod clock;
mod contract;
mod election;
pub mod engine;
mod error;
mod fence;
mod guard;
mod keeper;
mod key;
mod lease;
mod life;
mod line;
mod post;
#[cfg(not(feature = "virtual-time"))]
mod real_time;
mod renew;
mod shared;
mod signal;
mod ticket;
mod tls;
mod turns;
#[cfg(feature = "virtual-time")]
pub mod virtual_time;
mod wait;
mod watch;
mod watchdog;

// The one place that knows whether a client may be on virtual time.
#[cfg(not(feature = "virtual-time"))]
use real_time as surroundings;
#[cfg(feature = "virtual-time")]
use virtual_time as surroundings;

pub use admin::{Explanation, LockView, Status, Urgency};
pub use ask::LockAsk;
pub use client::{Builder, Client, Tried};
pub use election::{Change, Election, Leader, Leadership, Observer};
pub use error::{Error, RequestId};
pub use fence::{Fence, FenceError};
pub use guard::{Cancellation, Guard, Lock};
pub use key::{Key, KeyValue};
pub use lease::Lease;
pub use life::{Cause, Lost, Moment, Pace, PaceError, Standing};
pub use tenure_types::{Held, LeaseId, Mode, Refusal, Revision, Token};
pub use watch::{Batch, Event, Watch, WatchAsk};
