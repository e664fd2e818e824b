//! One member of a cluster above the replicated log, as one deterministic machine.
//!
//! A [`Node`] decides everything that one member decides: which commands it proposes, forwards or holds back,
//! what is tried again, who is told what became of a command, whose messages count, who shall lead. It has no
//! thread, clock, socket, file or randomness of its own. A driver hands it inputs, ends its turn with the time,
//! and does what the outputs say:
//!
//! ```text
//! loop {
//!     sleep until an input is there or `wake_at` is reached
//!     node.handle(input)                       for every input that waits, up to a bound
//!     now = monotonic clock                    after the last input was taken, never before
//!     wake_at = node.turn(now, &mut outputs, &mut observer)
//!     for each output, in order: do it
//! }
//! ```
//!
//! The server drives it with threads and sockets, the simulator and the testkit with none: all three run the
//! same node.
//!
//! A [`Router`] is the second machine of a member: it routes answers and notices to sessions, on the thread that
//! serves them.
//!
//! Start reading at [`Node::handle`] and [`Node::turn`].

#[macro_use]
mod plant;

mod admin;
mod admission;
mod bootstrap;
mod control;
pub mod directory;
mod failure;
mod forward;
mod in_flight;
mod io;
mod join;
mod level;
mod lineage;
mod missed;
mod node;
mod peer;
pub mod preference;
mod principal;
mod reads;
mod router;
mod timers;
pub mod transfer;

pub use admission::{Admission, Permit, Weight, weight};
pub use bootstrap::{Ask, Bootstrap, Founded, Refused, other_cluster};
pub use control::{CONTROL_BYTES_MAX, Control, Hello, Join, Me};
pub use failure::{Effect, Failure};
pub use io::*;
pub use join::admit::PeerName;
pub use join::{Entered, Entering, Identity, NotEntered, undiallable};
pub use lineage::{Incarnation, Lineage};
pub use node::{Config, Node, PATIENCE_US};
pub use peer::PeerMessage;
pub use principal::{Principal, authorise};
pub use router::{Mail, Router};

#[cfg(mutants)]
pub mod mutants {
    //! Planted bugs, to show that the checks would find them.
    pub use crate::plant::{ALL, SHOWN_BY_TESTS, select, select_by_name};
}
