//! Decides what happens to each message on the simulated network.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::sleep;

/// The kind of a message.
///
/// ```
/// # use tenure_backends::Action;
/// assert_ne!(Action::Put, Action::Swap);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Action {
    /// Put if absent.
    Put,
    /// Compare and swap: a renewal.
    Swap,
    /// Compare and delete.
    Delete,
    /// The beginning of a watch.
    Watch,
    /// An event on its way to a watch.
    Event,
}

/// A message whose delivery the script decides.
///
/// ```
/// # use tenure_backends::{Action, Call};
/// fn is_first_put_of_a(call: &Call<'_>) -> bool {
///     call.client == "a" && call.action == Action::Put && call.number == 0
/// }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Call<'a> {
    /// The client that sends or receives the message.
    pub client: &'a str,
    /// The kind of the message.
    pub action: Action,
    /// How many messages all clients together have sent before this one.
    pub number: u64,
}

/// Whether and when a message arrives, in one direction.
///
/// ```
/// # use tenure_backends::Way;
/// assert_ne!(Way::After(std::time::Duration::ZERO), Way::Never);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// The message arrives after this time.
    After(Duration),
    /// The message does not arrive, and the sender is not told.
    Never,
}

/// What happens to a request and its answer. For an event, only `there` counts.
///
/// ```
/// use tenure_backends::{Fate, Way};
/// let unanswered = Fate { back: Way::Never, ..Fate::default() };      // done, but the answer is lost
/// assert_ne!(unanswered, Fate::lost());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fate {
    /// The delivery of the request to the store.
    pub there: Way,
    /// The delivery of the answer to the client.
    pub back: Way,
}

impl Fate {
    /// Delays the request by `time`; the answer takes no time.
    ///
    /// ```
    /// # use std::time::Duration;
    /// let slow = tenure_backends::Fate::after(Duration::from_millis(20));
    /// ```
    pub fn after(time: Duration) -> Self {
        Self { there: Way::After(time), ..Self::default() }
    }

    /// Loses the request.
    ///
    /// ```
    /// assert_eq!(tenure_backends::Fate::lost().there, tenure_backends::Way::Never);
    /// ```
    pub fn lost() -> Self {
        Self { there: Way::Never, ..Self::default() }
    }
}

impl Default for Fate {
    /// Delivers the request and the answer without delay.
    fn default() -> Self {
        Self { there: Way::After(Duration::ZERO), back: Way::After(Duration::ZERO) }
    }
}

type Script = Box<dyn Fn(&Call<'_>) -> Fate + Send + Sync>;

/// The network between clients and their store.
#[derive(Default)]
pub(super) struct ScriptedNetwork {
    script: Mutex<Option<Script>>,
    cut: Mutex<BTreeSet<String>>,
    calls: AtomicU64,
}

impl ScriptedNetwork {
    pub(super) fn set_script(&self, script: Script) {
        *self.script.lock().unwrap_or_else(PoisonError::into_inner) = Some(script);
    }

    pub(super) fn cut(&self, client: &str) {
        self.cut.lock().unwrap_or_else(PoisonError::into_inner).insert(client.to_owned());
    }

    pub(super) fn heal(&self, client: &str) {
        self.cut.lock().unwrap_or_else(PoisonError::into_inner).remove(client);
    }

    pub(super) fn fate(&self, client: &str, action: Action) -> Fate {
        let number = self.calls.fetch_add(1, Ordering::Relaxed);
        let script = self.script.lock().unwrap_or_else(PoisonError::into_inner);
        let call = Call { client, action, number };
        script.as_ref().map_or_else(Fate::default, |script| script(&call))
    }

    /// Waits for a message to arrive, and returns whether it does.
    pub(super) async fn arrives(&self, client: &str, way: Way) -> bool {
        let Way::After(time) = way else { return false };
        if !time.is_zero() {
            sleep(time).await;
        }
        !self.cut.lock().unwrap_or_else(PoisonError::into_inner).contains(client)
    }
}
