//! Implements one member of a cluster above the replicated log, as one deterministic machine.
//!
//! A [`Node`] makes every decision of one member: which commands it proposes, forwards or holds back, which it tries
//! again, which caller gets which result, which messages it accepts, and which member should lead. It has no thread,
//! clock, socket, file or randomness of its own. A driver hands it inputs, ends its turn with the time, and executes
//! the outputs:
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
//! serves them. A [`Session`] is the third, one for each client that has a session: it decides what the client's
//! requests become, and which answers and notices the client gets.
//!
//! Start reading at [`Node::handle`] and [`Node::turn`].

#[macro_use]
mod plant;

mod acquire;
mod admin;
mod admission;
mod backlog;
mod bootstrap;
mod cluster;
mod control;
pub mod directory;
mod failure;
mod fair_queue;
mod forward;
mod hand_over;
mod in_flight;
mod inbox;
pub mod invitation;
mod io;
mod join;
mod level;
mod lineage;
mod log_queue;
mod missed;
mod node;
mod numbered;
mod peer;
pub mod preference;
mod principal;
mod rate;
mod reads;
mod reconfigure;
pub mod restore;
mod router;
mod session;
mod share;
mod timers;
pub mod transfer;
mod window;

pub use acquire::{AcquireInput, AcquireOutput, AcquireTerms, PendingAcquire, PlaceFate};
pub use admission::{Admission, Permit, Weight, weight};
pub use backlog::{BACKLOG_MAX, Backlog, Taken};
pub use bootstrap::{Bootstrap, BootstrapError, BootstrapResult, IdentifyRequest, other_cluster};
pub use cluster::ClusterView;
pub use control::{CONTROL_BYTES_MAX, Control, Join, MemberInfo, PeerHello};
pub use failure::{Effect, NodeFailure};
pub use fair_queue::{FAIR_QUANTUM, FairQueue, Served, Source};
pub use in_flight::renewal_linger_us;
pub use inbox::{
    INBOX_MAX, InboxClass, InboxQueue, MEMBERS_MAX, REST_MAX, RestLimit, STALLED_US, commands_cost,
};
pub use invitation::{InvitationToken, NewInvitation};
pub use io::*;
pub use join::admit::PeerName;
pub use join::{JoinError, Joined, Joining, MemberIdentity, undiallable};
pub use lineage::{Incarnation, Lineage};
pub use log_queue::{LogQueue, Pushed, QueuedLine};
pub use node::{LEADER_WAIT_US, Node, NodeConfig};
pub use numbered::Numbered;
pub use peer::PeerMessage;
pub use principal::{Principal, PrincipalAction, authorise};
pub use rate::{RateLimit, TooOften};
pub use reconfigure::{
    InputContext, LeadsThrough, NotReconfigured, Reconfiguration, Reconfigure, ReconfigureInput,
    ReconfigureOutput, Reconfigured,
};
pub use router::{Router, SessionMessage};
pub use session::{
    GIVE_UP_GRACE_US, Session, SessionBounds, SessionCluster, SessionCommand, SessionEnd,
    SessionOutput, TTL_MIN_MS, session_within_us,
};
pub use share::{ConnectionShare, SourceShare};
pub use window::{COMMAND_COST, PAGE_COST, Window, WindowBounds, WindowPart};

#[cfg(mutants)]
pub mod mutants {
    //! Planted bugs, to show that the checks would find them.
    pub use crate::plant::{ALL, SHOWN_BY_TESTS, select, select_by_name};
}
