//! Replicates one log among several members by the Raft protocol.
//!
//! A [`Replica`] is one member's part in it: it proposes, replicates, commits, and feeds the machine. It owns the Raft
//! engine and the machine and nothing else: it has no thread, clock, socket, file or randomness of its own. One event
//! loop passes it inputs, ends its turn with the time, and processes its outputs:
//!
//! ```text
//! loop {
//!     sleep until an input is there or `wake_at` is reached
//!     replica.handle(input)                for every input waiting, up to a bound
//!     now = monotonic clock                after the last input was taken, never before
//!     wake_at = replica.turn(now, &mut outputs)
//!     for each output, in order: do it     sends before the sync, see `ReplicaOutput`
//! }
//! ```
//!
//! The engine is hidden: none of its types leaves this crate, and its own encoding is never used on bytes from the
//! network or the disk.
//!
//! Start reading at [`Replica::turn`].

#[macro_use]
mod plant;

mod clock;
mod codec;
mod config;
mod engine;
mod hashes;
mod io;
mod member;
mod message;
mod observed;
mod pending;
mod reads;
mod recent;
mod replica;
mod start;

pub use codec::Malformed;
pub use config::*;
pub use io::{
    AdminRequest, DiskLoss, Persist, ProposalFate, ProposalId, RejectReason, ReplicaInput,
    ReplicaOutput, SnapshotDelivery, Space, Stop,
};
pub use member::{MemberId, Membership, MembershipChange};
pub use message::{AnnouncedSnapshot, Message, Step, StepKind};
pub use observed::Observed;
#[cfg(mutants)]
pub mod mutants {
    //! Planted bugs, to show that the checks would find them.
    pub use crate::plant::{ALL, SHOWN_BY_TESTS, select, select_by_name};
}
pub use replica::{Boot, BootError, DroppedMessages, Replica, ReplicaStatus, keeps};
pub use start::{FIRST, LoadError, bootstrap, load, read, replay};
