//! Tests what a program does when it loses a lock, with a real cluster on virtual time.
//!
//! The testkit runs the real SDK against three members inside your test. They elect, commit and count leases with the
//! code that ships. The clock jumps to the next timer whenever no task has anything to do, so a lease of fifteen
//! seconds expires in milliseconds.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), tenure_testkit::Error> {
//! use tenure_testkit::Cluster;
//!
//! let cluster = Cluster::start().await?;
//! let (a, b) = (cluster.client("a").await?, cluster.client("b").await?);
//! let guard = a.lock("deploy").await?;
//!
//! cluster.expire_now(&guard).await?;
//! assert_eq!(guard.lost().await, tenure::Cause::Expired);
//! let next = b.lock("deploy").await?;           // the lock has passed to b
//! assert!(next.token() > guard.token());
//! # Ok(()) }
//! ```
//!
//! Tests need a paused runtime, which has one thread: `#[tokio::test(start_paused = true)]`. On a runtime that is not
//! paused, everything runs in real time.

mod cluster;

pub use cluster::{Cluster, Dropped, Error, Paused};
