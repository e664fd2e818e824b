//! Subscribes a session to the notices of the leases that it renews.
//!
//! A renewal names leases by handles, which are small numbers that a stranger can guess. Notices name locks, tokens and
//! reasons, so a session is attached only to leases that its principal sees. The renewal does not wait for that check.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use tenure_core::Machine;
use tenure_core::request::LeaseRef;
use tenure_types::Handle;

use super::SessionHandler;
use crate::dispatch::Caller;

/// The most leases that are remembered as attached. Forgetting them costs another check, nothing else.
const REMEMBERED_MAX: usize = 65_536;

/// The leases that the session was attached to because it renews them.
#[derive(Clone, Default)]
pub(super) struct Listening(Arc<Mutex<BTreeSet<Handle>>>);

impl Listening {
    fn without_attached(&self, leases: &[LeaseRef]) -> Vec<Handle> {
        let attached = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let handles = leases.iter().filter_map(|lease| match lease {
            LeaseRef::Handle(handle) => Some(*handle),
            LeaseRef::Id(_) => None,
        });
        handles.filter(|handle| !attached.contains(handle)).collect()
    }

    fn add(&self, handles: &[Handle]) {
        let mut attached = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if attached.len() + handles.len() > REMEMBERED_MAX {
            attached.clear();
        }
        attached.extend(handles);
    }

    pub(super) fn remove(&self, handle: Handle) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&handle);
    }
}

impl SessionHandler {
    /// Subscribes to the notices of leases that the session renews, as far as its principal sees them. A lease that
    /// this member does not know yet is attached by a later renewal.
    pub(super) fn listen(&self, leases: &[LeaseRef]) {
        let handles = self.listening.without_attached(leases);
        if handles.is_empty() {
            return;
        }
        let (dispatch, who) = (self.dispatch.clone(), self.who.clone());
        let (listening, session) = (self.listening.clone(), self.session.id());
        let check = async move {
            let principal = who.clone();
            let ask = move |machine: &Machine| -> Vec<Handle> {
                let sees = |handle: &Handle| {
                    machine.sees_lease(principal.name(), LeaseRef::Handle(*handle))
                };
                handles.into_iter().filter(sees).collect()
            };
            // A check that fails is repeated by the next renewal.
            if let Ok((_, seen)) = dispatch.read_welcome(&who, ask).await {
                listening.add(&seen);
                dispatch.attach(session, seen);
            }
        };
        match Caller::current() {
            Some(caller) => self.dispatch.runtime().spawn(caller.run(check)),
            None => self.dispatch.runtime().spawn(check),
        };
    }
}
