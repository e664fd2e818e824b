//! How do you test what your program does when it loses a lock?
//!
//! With the real SDK against a real cluster, inside your test and on virtual time: three members that elect,
//! agree and count leases with the code that ships, and a clock that jumps to the next timer whenever nobody
//! has anything to do. A lease of fifteen seconds expires in milliseconds.
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
//! let next = b.lock("deploy").await?;           // the lock has gone on
//! assert!(next.token() > guard.token());
//! # Ok(()) }
//! ```
//!
//! Tests need a runtime that is paused, which has one thread: `#[tokio::test(start_paused = true)]`. On one that is not
//! paused everything works in real time.

mod cluster;

pub use cluster::{Cluster, Dropped, Error, Paused};
