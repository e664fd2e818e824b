//! Runs a client on virtual time, for tests that control the clock.
//!
//! A paused Tokio runtime runs on one thread, and so does everything in such a test. While [`enter`] is in force on
//! that thread, the client's clock is the runtime's, and its watchdog is a task. Time passes when the test advances it,
//! or when no task has anything to do before the next timer. For `tenure-testkit`; nothing here is part of the SDK's
//! interface.
#![doc(hidden)]

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use tokio::io::DuplexStream;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tonic::transport::{Channel, Endpoint};

use crate::lease_state::{ClockReading, Moment};

/// The start of virtual time. It is not zero, so that instants before the start exist.
const BEGIN_US: u64 = 1_000_000_000;

/// Opens a pipe to the member at an address that the dialler knows, if the member is there.
type Dialler = Rc<dyn Fn(&str) -> Option<DuplexStream>>;

thread_local! {
    static DIALLERS: RefCell<Vec<(String, Dialler)>> = const { RefCell::new(Vec::new()) };
    static BEGAN: Cell<Option<Instant>> = const { Cell::new(None) };
    static ENTERED: Cell<u32> = const { Cell::new(0) };
}

/// While this exists, clients on this thread use the time of the Tokio runtime.
pub struct VirtualTimeScope {
    // Not `Send`: the value belongs to the thread that entered.
    _here: std::marker::PhantomData<*const ()>,
}

/// Connects through `dial` to all addresses that end in `suffix`, from now on.
pub fn add_dialler(suffix: &str, dial: impl Fn(&str) -> Option<DuplexStream> + 'static) {
    DIALLERS.with_borrow_mut(|all| all.push((suffix.to_owned(), Rc::new(dial))));
}

/// Undoes [`add_dialler`].
pub fn remove_dialler(suffix: &str) {
    DIALLERS.with_borrow_mut(|all| all.retain(|(it, _)| it != suffix));
}

fn dialler(address: &str) -> Option<Dialler> {
    let known = |(suffix, _): &&(String, Dialler)| address.ends_with(suffix.as_str());
    DIALLERS.with_borrow(|all| all.iter().find(known).map(|(_, dial)| dial.clone()))
}

/// Connects through a pipe if there is one to this address, otherwise over a socket.
pub(crate) async fn connect(
    endpoint: &Endpoint,
    address: &str,
) -> Result<Channel, tonic::transport::Error> {
    if dialler(address).is_none() {
        return endpoint.connect().await;
    }
    let address = address.to_owned();
    let connector = tower::service_fn(move |_| {
        let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
        let stream = dialler(&address).and_then(|dial| dial(&address)).ok_or_else(refused);
        async move { stream.map(TokioIo::new) }
    });
    endpoint.connect_with_connector(connector).await
}

/// Whether a client is paused, like a stopped process.
#[derive(Default)]
pub(crate) struct Pause {
    on: watch::Sender<bool>,
}

impl Pause {
    pub(crate) fn set(&self, on: bool) {
        self.on.send_replace(on);
    }

    pub(crate) fn is_on(&self) -> bool {
        *self.on.borrow()
    }

    /// Waits until the pause is over.
    pub(crate) async fn over(&self) {
        // The sender lives in `self`, so this does not fail.
        let _ = self.on.subscribe().wait_for(|on| !on).await;
    }
}

/// Makes this thread's clients use the time of its Tokio runtime.
pub fn enter() -> VirtualTimeScope {
    if ENTERED.replace(ENTERED.get() + 1) == 0 {
        BEGAN.set(Some(Instant::now()));
    }
    VirtualTimeScope { _here: std::marker::PhantomData }
}

impl Drop for VirtualTimeScope {
    fn drop(&mut self) {
        ENTERED.set(ENTERED.get() - 1);
        if ENTERED.get() == 0 {
            BEGAN.set(None);
        }
    }
}

/// Reads the clock of this thread's runtime, if virtual time is in force. Virtual time has no suspend.
pub(crate) fn read() -> Option<ClockReading> {
    let passed = Instant::now().saturating_duration_since(BEGAN.get()?);
    let now = Moment::from_micros(BEGIN_US) + passed;
    Some(ClockReading { boot: now, awake: now })
}

/// What wakes the watchdog where it is a task.
#[derive(Default)]
pub(crate) struct Bell(Arc<Notify>);

impl Bell {
    pub(crate) fn ring(&self) {
        self.0.notify_one();
    }
}

/// Calls the check of the watchdog from a task, if the clients of this thread use the time of its runtime. Otherwise
/// returns the check.
pub(crate) fn run_as_task<L>(bell: &Bell, mut check: L) -> Option<L>
where
    L: FnMut() -> Option<Option<Moment>> + Send + 'static,
{
    if read().is_none() {
        return Some(check);
    }
    let bell = bell.0.clone();
    tokio::spawn(async move {
        let far = Duration::from_secs(3_600);
        while let Some(next) = check() {
            let now = read().map_or(Moment::from_micros(0), |reading| reading.boot);
            let sleep = next.map_or(far, |next| next.since(now));
            tokio::select! {
                () = bell.notified() => {}
                () = tokio::time::sleep(sleep) => {}
            }
        }
    });
    None
}

impl crate::Client {
    /// For tests of what happens when this process does not run: nothing is read, renewed or told while this is so.
    #[doc(hidden)]
    pub fn pause(&self, pause: bool) {
        self.shared.pause.set(pause);
        // Its own clock is what a process that runs again can read first.
        self.shared.check_leases();
        self.shared.watchdog.wake();
        self.shared.renew.notify_one();
    }
}
