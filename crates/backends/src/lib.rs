//! Provides the SDK's lock handle over stores other than Tenure.
//!
//! A [`Backend`] has four operations on a key: put it if it is absent, swap it if it is still ours, delete it if it is
//! still ours, and watch it. [`Locks`] builds locks on that, with the handle of the SDK: a [`Guard`] that is lost
//! before the store can give the lock to another client. The SDK's own lease state decides when a guard is lost.
//!
//! ```
//! use tenure_backends::{Locks, Memory};
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), tenure_backends::Error> {
//! let locks = Locks::new(Memory::new())?;
//! let guard = locks.lock("deploy").await?;      // watches, tries, waits for the event
//! guard.run(async { /* dropped if the lock is lost */ }).await?;
//! println!("done under token {}", guard.token());
//! guard.release().await?;
//! # Ok(()) }
//! ```
//!
//! [`LockService`] is one interface over these stores and [Tenure](tenure) itself: a program written against it runs
//! over each of them.
//!
//! Not every store can promise the same. The type of a store states what it promises: [`Fenced`] stores give every
//! grant a token larger than all before it, and [`EfficiencyOnly`] stores cannot. A program that needs a token does not
//! compile with an [`EfficiencyOnly`] store:
//!
//! ```compile_fail,E0599
//! # async fn example(locks: tenure_backends::Locks<tenure_backends::Redis>) -> Result<(), tenure_backends::Error> {
//! let guard = locks.lock("deploy").await?;
//! let token = guard.token();       // `Redis` is for efficiency only
//! # Ok(()) }
//! ```
//!
//! | store | promise | one holder as long as |
//! |---|---|---|
//! | [Tenure](tenure) itself | fenced, queued in order | a quorum of disks is not lost |
//! | [`Etcd`] | fenced | a quorum of disks is not lost |
//! | [`Redlock`] | efficiency only | most servers keep their memory and their clocks |
//! | [`Redis`] | efficiency only | that server keeps its memory |
//! | [`Memory`] | fenced | the process lives |

#[macro_use]
mod plant;
mod acquire;
mod backend;
mod error;
#[cfg(feature = "etcd")]
mod etcd;
mod guard;
mod locks;
mod memory;
#[cfg(feature = "redis")]
mod redis;
#[cfg(test)]
mod schedules;
mod service;

pub use backend::{
    Backend, EfficiencyOnly, Fenced, NoToken, Owner, Promise, Put, StoreError, Watch,
};
pub use error::Error;
#[cfg(feature = "etcd")]
pub use etcd::{Etcd, EtcdTls, EtcdWatch};
pub use guard::Guard;
pub use locks::{Builder, LockAsk, Locks};
pub use memory::{Action, Call, Fate, Memory, MemoryWatch, Way};
#[cfg(feature = "redis")]
pub use redis::{Redis, RedisWatch, Redlock, RedlockWatch};
pub use service::{HeldLock, LockService, Wait};
pub use tenure::{Cancellation, Cause, LeaseTimingError, Lost, LostWork, Standing, Token};
