//! Holds distributed locks for a program, and stops its work in time when a lock is lost.
//!
//! ```no_run
//! # async fn migrate(token: tenure::Token) -> Result<(), tenure::Error> { Ok(()) }
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), tenure::Error> {
//! let client = tenure::Client::from_env().await?;     // TENURE_ADDR, else loopback
//! client.run("deploy", async |guard| migrate(guard.token()).await).await?;
//! # Ok(()) }
//! ```
//!
//! A [`Guard`] stands for a held lock. While it exists, the client renews its lease. If renewals fail, the guard is
//! *lost* before the cluster can give the lock to another client: [`Guard::run`] drops the work, [`Guard::check`]
//! returns an error, and [`Guard::cancellation`] fires from a thread of its own. No client can stop its work on a
//! machine that is frozen from outside, or recall a write that is already on its way. The [fencing token](Guard::token)
//! covers these cases, at resources that check it.

#![cfg_attr(
    not(feature = "internals"),
    allow(
        dead_code,
        unreachable_pub,
        reason = "some items are public with the feature `internals` only"
    )
)]

#[macro_use]
mod plant;
mod admin;
mod alarm;
mod ask;
mod ask_update;
pub mod blocking;
mod cancellation;
mod cleanup;
mod client;
mod clock;
mod connection_manager;
#[cfg(feature = "internals")]
mod contract;
mod credentials;
mod drain;
mod election;
#[cfg(feature = "internals")]
pub mod engine;
mod error;
mod event;
mod fence;
mod force;
mod guard;
mod hand_on;
mod held_lease;
mod history;
mod key;
mod lease;
mod lease_state;
mod local_queue;
mod pending;
mod query;
#[cfg(not(feature = "virtual-time"))]
mod real_time;
mod release;
mod renew;
mod resize;
mod response_slot;
mod session;
mod shared;
mod signal;
mod ticket;
mod tls;
#[cfg(feature = "tls")]
mod trust;
mod view;
#[cfg(feature = "virtual-time")]
pub mod virtual_time;
mod wait;
mod watch;
mod watchdog;
mod work;

// The only place that chooses between real and virtual time.
#[cfg(not(feature = "virtual-time"))]
use real_time as surroundings;
#[cfg(feature = "virtual-time")]
use virtual_time as surroundings;

pub use ask::LockAsk;
pub use cancellation::Cancellation;
pub use client::{Builder, Client, Tried};
#[cfg(feature = "internals")]
#[doc(hidden)]
pub use credentials::{Credentials, MemberChannel};
pub use drain::DrainView;
pub use election::{Change, Election, Leader, Leadership, Observer};
pub use error::{Error, RequestId};
#[cfg(feature = "internals")]
#[doc(hidden)]
pub use event::RawBatch;
pub use event::{Batch, Event, EventCause, Subject};
pub use fence::{Fence, FenceError};
pub use force::{ForceAsk, RevokeAsk, Urgency};
pub use guard::{Guard, Lock};
pub use hand_on::StillHeld;
pub use history::{HistoryAsk, Past};
pub use key::{Key, KeyValue};
pub use lease::Lease;
pub use lease_state::{Cause, LeaseTimingError, Lost, Standing};
#[cfg(feature = "internals")]
#[doc(hidden)]
pub use lease_state::{LeaseTiming, Moment};
pub use tenure_types::{
    Draining, Held, Holder, LeaseId, Limit, Name, Quota, QuotaSetter, QuotaSource, Refusal,
    Revision, RingLink, SupersededBy, Token, Verb,
};
pub use view::{
    ChainStep, Explanation, Freed, HolderState, HolderView, LockView, MemberView, Mode,
    ProgressView, Status, WaiterView,
};
pub use watch::{Watch, WatchAsk};
pub use work::LostWork;
