//! Compares Tenure with other lock systems, and finds percentiles; the other benchmarks are in the program.
//!
//! It is a library because two programs use it. `tenure-bench` compares Tenure with Redis, whose client the workspace
//! compiles anyway. The package `peers` at the top of the repository adds etcd and ZooKeeper, whose clients are used
//! nowhere else.

pub mod peers;
mod percentile;

pub use percentile::percentile;
