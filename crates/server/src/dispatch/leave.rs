//! Leaves queues on behalf of a client whose credentials have ended.

use tenure_core::Machine;
use tenure_core::request::{Command, LeaseRef, RequestId};
use tenure_types::{Handle, PlaceNumber};
use tokio::task::JoinSet;

use super::{Caller, Dispatch, Principal, WITHIN};

/// The most of these commands in flight at a time. The admission reserve allows a connection four times as many.
const AT_A_TIME: usize = 64;

impl Dispatch {
    /// Leaves the queues of these locks. A lock that a lease has acquired by now stays with the lease, because its
    /// client may have been told of the grant over another connection.
    pub(crate) fn leave_queues(&self, who: Principal, queues: Vec<(LeaseRef, String)>) {
        let dispatch = self.clone();
        drop(self.spawn_for_caller(async move { dispatch.leave_all(&who, queues).await }));
    }

    /// Leaves the queues in which these places wait.
    pub(crate) fn leave_places(&self, who: Principal, places: Vec<(Handle, PlaceNumber)>) {
        let dispatch = self.clone();
        let leaving = async move {
            let owner = who.clone();
            let locks = move |machine: &Machine| {
                let lock = |(lease, place): &(Handle, PlaceNumber)| {
                    let lease = LeaseRef::Handle(*lease);
                    let waits = machine.lease_seen_by(owner.name(), lease)?.waits;
                    let lock = waits.into_iter().find(|(at, _)| at == place)?.1;
                    Some((lease, lock.as_str().to_owned()))
                };
                places.iter().filter_map(lock).collect()
            };
            if let Ok((_, queues)) = dispatch.read_welcome(&who, locks).await {
                dispatch.leave_all(&who, queues).await;
            }
        };
        drop(self.spawn_for_caller(leaving));
    }

    async fn leave_all(&self, who: &Principal, queues: Vec<(LeaseRef, String)>) {
        let mut left = queues.into_iter().peekable();
        while left.peek().is_some() {
            let mut calls = JoinSet::new();
            for (lease, lock) in left.by_ref().take(AT_A_TIME) {
                let (dispatch, who) = (self.clone(), who.clone());
                let call = async move {
                    let leave = Command::Leave { lease, lock: &lock };
                    // If the command fails, the place ends at the latest when its lease ends.
                    let _ = dispatch.call(&who, RequestId::None, leave, WITHIN).await;
                };
                match Caller::current() {
                    Some(caller) => calls.spawn(caller.run(call)),
                    None => calls.spawn(call),
                };
            }
            calls.join_all().await;
        }
    }
}
