//! How does a client live in a test that moves the clock?
//!
//! A paused Tokio runtime runs on one thread, and so does everything in such a test. While [`enter`] is in force on that
//! thread, the client's clock is the runtime's, and its watchdog is a task: time passes when the test says so, or when
//! nobody has anything to do before the next timer. For `tenure-testkit`; nothing here is part of the SDK's interface.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::life::{Moment, Reading};

/// Virtual time begins here, so that what a fresh clock does not have, a past, is there.
const BEGIN_US: u64 = 1_000_000_000;

thread_local! {
    static BEGAN: Cell<Option<Instant>> = const { Cell::new(None) };
    static ENTERED: Cell<u32> = const { Cell::new(0) };
}

/// While this exists, clients on this thread go by the time of the Tokio runtime.
pub struct Entered {
    // It belongs to the thread that entered.
    _here: std::marker::PhantomData<*const ()>,
}

/// Has this thread's clients go by the time of its Tokio runtime.
pub fn enter() -> Entered {
    if ENTERED.replace(ENTERED.get() + 1) == 0 {
        BEGAN.set(Some(Instant::now()));
    }
    Entered { _here: std::marker::PhantomData }
}

impl Drop for Entered {
    fn drop(&mut self) {
        ENTERED.set(ENTERED.get() - 1);
        if ENTERED.get() == 0 {
            BEGAN.set(None);
        }
    }
}

/// The clock of this thread's runtime, if that is what counts here. A virtual machine never sleeps.
pub(crate) fn read() -> Option<Reading> {
    let passed = Instant::now().saturating_duration_since(BEGAN.get()?);
    let now = Moment::from_micros(BEGIN_US) + passed;
    Some(Reading { boot: now, awake: now })
}

/// What the watchdog's thread does, as a task.
pub(crate) fn look(
    bell: Arc<Notify>,
    mut look: impl FnMut() -> Option<Option<Moment>> + Send + 'static,
) {
    tokio::spawn(async move {
        let far = Duration::from_secs(3_600);
        while let Some(next) = look() {
            let now = read().map_or(Moment::from_micros(0), |reading| reading.boot);
            let sleep = next.map_or(far, |next| next.since(now));
            tokio::select! {
                () = bell.notified() => {}
                () = tokio::time::sleep(sleep) => {}
            }
        }
    });
}
