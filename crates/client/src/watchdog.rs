//! Runs a thread that stops work when the runtime is too busy to notice a loss.
//!
//! The thread sleeps on a timer of the clock that counts suspend. When the time of a lease is over, it marks the lease
//! lost and notifies everything that relies on it, even if no task of the runtime runs.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::alarm::Alarm;
use crate::lease_state::Moment;
use crate::surroundings;

/// An instant in the past.
const NOW: Moment = Moment::from_micros(1);

/// The handle of the thread's timer. Setting the timer is how other tasks wake the thread.
pub(crate) struct WatchdogTimer {
    timer: Arc<Timer>,
}

struct Timer {
    alarm: Alarm,
    /// How often the thread was asked to check.
    wakes: AtomicU64,
    /// When the thread checks next, in microseconds; `u64::MAX` while it does not know.
    next_us: AtomicU64,
    /// In virtual time there is no thread: what would wake it wakes a task.
    bell: surroundings::Bell,
}

impl WatchdogTimer {
    pub(crate) fn new() -> io::Result<Self> {
        let timer = Timer {
            alarm: Alarm::new()?,
            wakes: AtomicU64::new(0),
            next_us: AtomicU64::new(u64::MAX),
            bell: Default::default(),
        };
        Ok(Self { timer: Arc::new(timer) })
    }

    /// Starts the thread. Whenever it wakes it calls `check`, which returns when to check again, or that nothing is
    /// left to watch.
    pub(crate) fn start(
        &self,
        check: impl FnMut() -> Option<Option<Moment>> + Send + 'static,
    ) -> io::Result<()> {
        #[cfg(test)]
        if mutant!("timer_on_runtime") {
            on_the_runtime(check);
            return Ok(());
        }
        let Some(mut check) = surroundings::run_as_task(&self.timer.bell, check) else {
            return Ok(());
        };
        let timer = self.timer.clone();
        let work = move || {
            loop {
                timer.alarm.wait();
                let before = timer.wakes.load(Ordering::SeqCst);
                timer.next_us.store(u64::MAX, Ordering::SeqCst);
                let Some(next) = check() else { return };
                if let Some(next) = next {
                    timer.alarm.set(next);
                    timer.next_us.store(next.micros(), Ordering::SeqCst);
                }
                // A task that woke the thread meanwhile may have set the timer before the thread did. Its wake-up must
                // not be lost.
                if timer.wakes.load(Ordering::SeqCst) != before {
                    timer.alarm.set(NOW);
                }
            }
        };
        std::thread::Builder::new().name("tenure-watchdog".into()).spawn(work)?;
        Ok(())
    }

    /// Makes the thread check at once.
    pub(crate) fn wake(&self) {
        self.timer.wakes.fetch_add(1, Ordering::SeqCst);
        self.timer.alarm.set(NOW);
        self.timer.bell.ring();
    }

    /// Makes the thread check at once, if it would otherwise check after this instant or does not know when.
    pub(crate) fn wake_before(&self, at: Moment) {
        if at.micros() < self.timer.next_us.load(Ordering::SeqCst) {
            self.wake();
        }
    }
}

impl Drop for WatchdogTimer {
    fn drop(&mut self) {
        self.wake();
    }
}

/// The planted bug of a client whose only timer runs on the runtime that the work may block.
#[cfg(test)]
fn on_the_runtime(mut check: impl FnMut() -> Option<Option<Moment>> + Send + 'static) {
    tokio::spawn(async move {
        while check().is_some() {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    });
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tenure_types::{Revision, Token};
    use tenure_wire::v1;

    use crate::clock;
    use crate::guard::{Guard, Lock};
    use crate::held_lease::HeldLease;
    use crate::lease_state::{LeaseTiming, PendingGrant};
    use crate::local_queue::LocalPermits;
    use crate::plant;
    use crate::shared::{ClientSettings, ClientShared};

    const TTL: Duration = Duration::from_millis(400);

    /// Whether a guard's cancellation fires while the only thread of the runtime is blocked.
    fn told_while_blocked() -> bool {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let settings = ClientSettings {
                addresses: vec!["127.0.0.1:1".to_owned()],
                name: "test".to_owned(),
                retry_refused: None,
                timeout: TTL,
                ttl: TTL,
                window: None,
                grace: Duration::ZERO,
                tls: Default::default(),
                trace: None,
                credentials: Default::default(),
            };
            let shared = ClientShared::start(settings, runtime.handle().clone()).unwrap();
            let mut asking = PendingGrant::new(LeaseTiming::new(TTL).unwrap());
            asking.sent(clock::read());
            let state = asking.granted(clock::read()).unwrap();
            let granted = v1::Lease {
                lease: 7,
                created: 1,
                lease_slot: 1,
                lease_generation: 1,
                ..Default::default()
            };
            let held = HeldLease::new(shared, &granted, state).unwrap();
            let token = Token::from_u64(1).unwrap();
            let lock = Lock { name: "deploy".to_owned(), token, slot: None };
            let guard = Guard::new(held, false, (vec![lock], Revision(1)), LocalPermits::default())
                .unwrap();
            let stop = guard.cancellation();
            // Let every task of the runtime start.
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            let give_up_at = clock::boot() + TTL * 5;
            while !stop.is_cancelled() && clock::boot() < give_up_at {
                std::thread::sleep(Duration::from_millis(1));
            }
            stop.is_cancelled()
        })
    }

    #[test]
    fn the_loss_is_told_while_the_runtime_is_blocked_and_a_timer_of_the_runtime_alone_is_caught() {
        plant::select(None);
        assert!(told_while_blocked(), "the watchdog is a thread of its own");
        plant::select(Some("timer_on_runtime"));
        assert!(!told_while_blocked(), "the planted bug is there");
        plant::select(None);
    }
}
