//! Collects the metrics of a member.
//!
//! The event loop increments plain numbers and leaves copies of the records it applied. Another task turns those into
//! metrics with labels. Nothing here decides anything, and no decision reads these metrics.
//!
//! ```text
//! event loop ─numbers──► NodeMeters                                               ─┐
//! event loop ─records──► LockMetrics: by prefix, mode, and how long                ├─► /metrics
//! APIs       ─requests─► RequestMetrics: by API and command, refusals by reason   ─┘
//! ```

mod connections;
mod histogram;
mod locks;
mod process;
mod requests;
mod threads;

pub(crate) use connections::{Closing, ConnectionMeters, OpenConnection, Port, Protocol, Refusing};
pub(crate) use histogram::{Histogram, Scale};
pub(crate) use locks::{FreedAt, LockMetrics, LockTotals, OTHER, PREFIXES_MAX, count};
pub(crate) use process::{ProcessUse, certificate_expiry};
pub(crate) use requests::{Api, RequestClass, RequestMetrics};
pub(crate) use threads::{ThreadSnapshot, ThreadUse};
