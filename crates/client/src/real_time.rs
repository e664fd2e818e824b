//! Surrounds a client with the machine that it runs on: its clocks, a thread for the watchdog, sockets.
//!
//! This is what ships. [`virtual_time`](crate) has the same items for tests that move the clock, behind the feature
//! `virtual-time`; `lib.rs` chooses between the two, and nothing else in the client knows of the choice.

use tonic::transport::{Channel, Endpoint};

use crate::lease_state::{ClockReading, Moment};

/// No other clock than the machine's.
pub(crate) const fn read() -> Option<ClockReading> {
    None
}

/// Connects over a socket.
pub(crate) async fn connect(
    endpoint: &Endpoint,
    _: &str,
) -> Result<Channel, tonic::transport::Error> {
    endpoint.connect().await
}

/// A client is never paused but by its machine.
#[derive(Default)]
pub(crate) struct Pause;

impl Pause {
    pub(crate) const fn is_on(&self) -> bool {
        false
    }

    pub(crate) async fn over(&self) {}
}

/// Nothing but its timer wakes the watchdog's thread.
#[derive(Default)]
pub(crate) struct Bell;

impl Bell {
    pub(crate) const fn ring(&self) {}
}

/// Returns the check, so that the watchdog calls it from a thread.
pub(crate) const fn run_as_task<L: FnMut() -> Option<Option<Moment>>>(
    _: &Bell,
    check: L,
) -> Option<L> {
    Some(check)
}
