//! How is data guarded whose keeper knows nothing of tokens?
//!
//! Two guards that refuse whoever lost its lock and does not know it yet. The [`store`] keeps data itself: floor and
//! data change in one transaction. The [`proxy`] stands before a service that knows nothing of tokens, on the layer of
//! `tenure_fence::http`. The guides are `docs/guides/store.md` and `docs/guides/proxy.md`.

mod answer;
mod believe;
mod deadline;
mod hosts;
mod keys;
mod listen;
mod place;
pub mod proxy;
pub mod reason;
pub mod store;

pub use answer::{REASON, TICKET};
pub use believe::{Believe, Tell};
pub use listen::{Running, StartError};
pub use place::Tls;
