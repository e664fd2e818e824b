//! Keeps the states of Terraform and OpenTofu, with their old versions and the locks that guard them.
//!
//! `docs/guides/terraform.md` is the guide. The calls are in [`http`]; [`ledger`] decides.

mod access;
pub(crate) mod client;
mod cluster;
mod document;
mod files;
mod forms;
mod http;
mod ledger;
mod locking;
mod lookup;
mod row;
mod state_mutexes;
mod transfer;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tenure_fence::Claim;

use crate::answer::ErrorAnswer;
use crate::listen::{RunningService, StartError};
use crate::reason::{Fence, Reason};
use crate::store::engine::{Engine, EngineError};
use crate::trust::Tell;

use self::cluster::{KeptFor, LockTasks};
use self::files::{FoundFiles, StateFiles};
use self::ledger::{Decided, StateRefusal, StateTransaction};
use self::lookup::KnownStates;
use self::row::StateRow;
use self::state_mutexes::StateMutexes;
use super::OnEnd;

pub(super) use self::access::StateAccess;
pub use self::cluster::{LockRefused, StateCluster, StateFuture, StateHold};
pub(super) use self::http::{StatesApi, call, routes};

/// The size limits of states.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StateLimits {
    /// The longest state.
    pub bytes_max: usize,
    /// How many versions of a state are kept, the newest among them.
    pub versions_max: u64,
    /// The size of all versions of all states together.
    pub total_bytes_max: u64,
}

impl Default for StateLimits {
    fn default() -> Self {
        // States of some thousand resources have a few megabytes.
        Self {
            bytes_max: 64 * 1024 * 1024,
            versions_max: 100,
            total_bytes_max: 16 * 1024 * 1024 * 1024,
        }
    }
}

/// Ends the store, once, when the disk has failed.
pub(super) type EndOnce = Arc<Mutex<Option<OnEnd>>>;

/// Calls `end` with the error, unless that was done before.
pub(super) fn end_once(end: &EndOnce, error: &(dyn std::error::Error + 'static)) {
    let end = end.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(end) = end {
        end(error);
    }
}

/// The states of a store.
pub(super) struct States {
    engine: Arc<Engine>,
    files: StateFiles,
    /// Whether the engine has recorded that files may exist.
    is_used: AtomicBool,
    limits: StateLimits,
    cluster: Option<Arc<dyn StateCluster>>,
    lock_tasks: LockTasks,
    mutexes: StateMutexes,
    tell: Tell,
    end: EndOnce,
}

/// The states whose locks the store held at a cluster when it ended.
pub(super) struct HeldStates(Vec<(String, StateRow)>);

/// What the states of a store need.
pub(super) struct StateParts {
    pub(super) engine: Arc<Engine>,
    pub(super) limits: StateLimits,
    pub(super) cluster: Option<Arc<dyn StateCluster>>,
    pub(super) tell: Tell,
    pub(super) end: EndOnce,
}

impl States {
    /// Opens the states in a directory. Returns those whose locks the store held when it ended.
    pub(super) fn open(
        data: &Path,
        parts: StateParts,
    ) -> Result<(Arc<Self>, HeldStates), StartError> {
        let StateParts { engine, limits, cluster, tell, end } = parts;
        let read = lookup::open(&engine).map_err(|error| StartError::Unreadable {
            what: data.display().to_string(),
            why: error.to_string(),
        });
        let KnownStates { files: named, is_used, held } = read?;
        let disk = |source| StartError::Disk { what: data.display().to_string(), source };
        let files = match StateFiles::open(data, &named, is_used).map_err(disk)? {
            FoundFiles::Files { files, moved } => {
                if let Some((count, to)) = moved {
                    let to = to.display();
                    tell(&format!(
                        "{count} files that no version of a state names are now in {to}"
                    ));
                }
                files
            }
            FoundFiles::Orphans { dir, files } => {
                return Err(StartError::Orphans { dir: dir.display().to_string(), files });
            }
        };
        let (lock_tasks, mutexes) = (LockTasks::default(), StateMutexes::default());
        let is_used = AtomicBool::new(is_used);
        let states =
            Self { engine, files, is_used, limits, cluster, lock_tasks, mutexes, tell, end };
        Ok((Arc::new(states), HeldStates(held)))
    }

    /// Acquires the locks again that the store held when it ended.
    pub(super) fn resume(self: &Arc<Self>, held: HeldStates, running: &RunningService) {
        let HeldStates(held) = held;
        if self.cluster.is_none() {
            for (name, row) in &held {
                let lock = &row.lock;
                self.tell(&format!(
                    "state `{name}` is held under lock `{lock}` of a cluster; start with --addr to hold that again"
                ));
            }
            return;
        }
        let states = Arc::clone(self);
        running.beside(async move {
            for (name, StateRow { lock, held, .. }) in held {
                let Some(held) = held else { continue };
                let note = locking::note(&name, &held.about());
                states.lock_tasks.start(&states, KeptFor { name, lock, id: held.id, note }, None);
            }
        });
    }

    /// Writes the content of a version. Once this returns, the file and its name are durable.
    fn write_file(&self, content: &[u8]) -> Result<u64, StateError> {
        // The engine must know that there are files before there are any, so that a start can tell whether the engine's
        // file belongs to them.
        if !self.is_used.load(Ordering::Acquire) {
            ledger::mark_used(&self.engine).map_err(StateError::Engine)?;
            self.is_used.store(true, Ordering::Release);
        }
        self.files.write(content).map_err(|error| StateError::Disk(error.to_string()))
    }

    fn cluster(&self) -> Option<&Arc<dyn StateCluster>> {
        self.cluster.as_ref()
    }

    fn tell(&self, what: &str) {
        (self.tell)(what);
    }

    /// Runs a transaction, on a thread that may wait for the disk.
    async fn change<T: Send + 'static>(
        self: &Arc<Self>,
        act: impl FnOnce(&mut StateTransaction<'_>, &StateLimits) -> Decided<T> + Send + 'static,
    ) -> Result<T, StateError> {
        let limits = self.limits;
        self.blocking(move |states| {
            ledger::change(&states.engine, |transaction| act(transaction, &limits))
                .map_err(StateError::Engine)?
                .map_err(StateError::Refused)
        })
        .await
    }

    /// Reads, on a thread that may wait for the disk.
    async fn read<T: Send + 'static>(
        self: &Arc<Self>,
        read: impl FnOnce(&Engine) -> Result<T, EngineError> + Send + 'static,
    ) -> Result<T, StateError> {
        self.blocking(move |states| read(&states.engine).map_err(StateError::Engine)).await
    }

    async fn blocking<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Self) -> Result<T, StateError> + Send + 'static,
    ) -> Result<T, StateError> {
        let states = Arc::clone(self);
        let done = tokio::task::spawn_blocking(move || work(&states)).await;
        let done = done.unwrap_or_else(|error| Err(StateError::Disk(error.to_string())));
        if let Err(StateError::Engine(error)) = &done {
            // A transaction may have been committed or not, and the engine takes no more of them.
            end_once(&self.end, error);
        }
        done
    }
}

/// Why a call was not successful.
#[derive(Debug)]
enum StateError {
    Refused(StateRefusal),
    Engine(EngineError),
    /// A file could not be read or written. Nothing has changed.
    Disk(String),
    /// The content is no state.
    Malformed(String),
    /// The content does not have the sum that the client sent.
    OtherSum,
}

impl From<StateRefusal> for ErrorAnswer {
    fn from(no: StateRefusal) -> Self {
        match no {
            StateRefusal::Locked(held) => {
                let who = held.who();
                let who = if who.is_empty() { String::new() } else { format!(" by {who}") };
                Self::new(Reason::StateLocked, format!("the state is locked{who}, id {}", held.id))
            }
            StateRefusal::LockLost => Self::new(
                Reason::StateLockLost,
                "the state is not locked under this id: it was unlocked, or its lock had another holder since",
            ),
            StateRefusal::TokenRequired { lock } => Self::new(
                Fence::TokenRequired,
                format!(
                    "lock `{lock}` of a cluster guards the state: lock the state first, or show a token of that lock"
                ),
            ),
            StateRefusal::Refused(refused) => refused.into(),
            StateRefusal::OtherLock { lock } => {
                Self::new(Reason::OtherLock, format!("the state is guarded by lock `{lock}`"))
            }
            StateRefusal::Stale { serial, newest } => Self::new(
                Reason::StaleState,
                format!("serial {serial} does not follow serial {newest}, which is stored"),
            ),
            StateRefusal::OtherLineage { lineage } => Self::new(
                Reason::OtherLineage,
                format!("the state that is stored has lineage `{lineage}`"),
            ),
            StateRefusal::NotFound => Self::new(Reason::StateNotFound, "there is no such state"),
            StateRefusal::Full { most } => Self::new(
                Reason::NoSpace,
                format!(
                    "all states together may have {most} bytes, and older versions of this one do not make room enough"
                ),
            ),
        }
    }
}

impl From<StateError> for ErrorAnswer {
    fn from(error: StateError) -> Self {
        match error {
            StateError::Refused(no) => no.into(),
            StateError::Engine(error) => {
                Self::new(Reason::Internal, format!("the disk failed: {error}"))
            }
            StateError::Disk(why) => {
                Self::new(Reason::FileFailed, format!("the disk failed: {why}"))
            }
            StateError::Malformed(why) => Self::new(Reason::Malformed, why),
            StateError::OtherSum => Self::new(
                Reason::DigestMismatch,
                "the body does not have the sum that Content-MD5 says",
            ),
        }
    }
}

/// The claim of a lock that the store holds at the cluster.
fn claim_of(hold: &dyn StateHold) -> Claim {
    Claim::new(hold.token())
}
