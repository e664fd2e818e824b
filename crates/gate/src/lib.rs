//! Guards data whose store does not check fencing tokens.
//!
//! There are two guards, and both refuse clients that lost their lock and do not know it yet. The [`store`] keeps the
//! data itself and changes floor and data in one transaction. The [`proxy`] stands in front of a service that ignores
//! tokens, and is built on the layer of `tenure_fence::http`. The guides are `docs/guides/store.md` and
//! `docs/guides/proxy.md`.

mod answer;
mod call;
mod deadline;
mod hosts;
mod key_source;
mod keys;
mod listen;
pub mod proxy;
mod readers;
pub mod reason;
mod repair;
pub mod store;
mod tls;
mod trust;

pub use answer::{REASON, TICKET};
pub use key_source::KeySourceTls;
pub use listen::{RunningService, StartError};
pub use repair::{FloorRepair, RepairRequest};
pub use tenure_fence::LockSlot;
pub use tls::ServeTls;
pub use trust::{Tell, TokenPolicy};
