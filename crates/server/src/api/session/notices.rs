//! Encodes the notices of a session: grants, losses, and the ends of waits and leases.

use tenure_core::outcome::Notice;
use tenure_types::Refusal;
use tenure_wire::{convert, v1};

use super::SessionHandler;
use crate::api::encode;

impl SessionHandler {
    /// Adds a notice to the next message. `id` is the request that made its place, or 0.
    pub(super) fn notice(&mut self, notice: Notice, id: u64, out: &mut v1::SessionResponse) {
        let at = match &notice {
            Notice::Granted { revision, .. }
            | Notice::Lost { revision, .. }
            | Notice::WaitEnded { revision, .. }
            | Notice::LeaseEnded { revision, .. } => convert::revision(*revision),
        };
        out.revision = out.revision.max(at);
        match notice {
            Notice::Granted { lease, place, grants, .. } => {
                let mut granted = v1::Granted {
                    id,
                    place: place.0,
                    lease_slot: lease.slot,
                    lease_generation: lease.generation,
                    revision: at,
                    ..Default::default()
                };
                match grants.as_slice() {
                    [one] => {
                        granted.lock = one.lock.as_str().to_owned();
                        granted.token = one.token.get();
                        granted.slot = one.slot;
                    }
                    _ => granted.locks = encode::lock_grants(&grants),
                }
                out.grants.push(granted);
            }
            Notice::Lost { lease, lock, token, cause, word, .. } => {
                let (by, reason) = encode::word(word);
                out.losses.push(v1::Lost {
                    lock: lock.as_str().to_owned(),
                    token: token.get(),
                    lease_slot: lease.slot,
                    lease_generation: lease.generation,
                    revision: at,
                    cause: cause.map_or(v1::Cause::Unspecified, encode::cause).into(),
                    by,
                    reason,
                });
            }
            Notice::WaitEnded { lease, place, refusal, .. } => {
                let (superseded_by, superseded_by_lease, error) = match refusal.as_deref() {
                    None => Default::default(),
                    Some(Refusal::Superseded(by)) => {
                        (by.client.to_string(), convert::lease(by.lease), None)
                    }
                    Some(refusal) => (String::new(), 0, Some(encode::refused(refusal))),
                };
                out.waits_ended.push(v1::WaitEnded {
                    id,
                    place: place.0,
                    lease_slot: lease.slot,
                    lease_generation: lease.generation,
                    revision: at,
                    superseded_by,
                    superseded_by_lease,
                    error,
                });
            }
            Notice::LeaseEnded { lease, cause, word, .. } => {
                self.ended.push(lease);
                let (by, reason) = encode::word(word);
                out.leases_ended.push(v1::LeaseEnded {
                    lease_slot: lease.slot,
                    lease_generation: lease.generation,
                    revision: at,
                    cause: cause.map_or(v1::Cause::Unspecified, encode::cause).into(),
                    by,
                    reason,
                });
            }
        }
    }
}
