//! Verifies a ticket for a resource.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::cache::Cache;
use super::read::{self, SIGNATURE_BYTES};
use super::set::KEYS_MAX;
use super::{BadSet, Forged, KeySet, TICKET_BYTES_MAX, Ticket};
use crate::claim::{LockSlot, Mode};

/// Verifies tickets of one cluster, and caches those it has verified. Shared by threads behind an `Arc`.
pub struct Tickets {
    state: Mutex<VerifierState>,
}

struct VerifierState {
    keys: Arc<KeySet>,
    /// Keys that were in an earlier set of this incarnation of the cluster and are no longer in the current one.
    retired: BTreeSet<String>,
    cache: Cache,
}

/// The lock or slot that a ticket must be for, and what else it must claim.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Resource<'a> {
    at: LockSlot<'a>,
    alone: bool,
    holder: Option<&'a str>,
    principal: Option<&'a str>,
}

impl<'a> Resource<'a> {
    /// Creates a resource that this lock, or this slot of it, protects.
    ///
    /// ```
    /// use tenure_fence::ticket::Resource;
    ///
    /// assert_ne!(Resource::new("workers"), Resource::new(("workers", 3)));
    /// ```
    pub fn new(at: impl Into<LockSlot<'a>>) -> Self {
        Self { at: at.into(), alone: false, holder: None, principal: None }
    }

    /// Requires an exclusive holder.
    #[must_use]
    pub fn exclusive(self) -> Self {
        Self { alone: true, ..self }
    }

    /// Requires this client as holder, for services that know which client sends the request.
    #[must_use]
    pub fn holder(self, holder: &'a str) -> Self {
        Self { holder: Some(holder), ..self }
    }

    /// Requires that the lease belongs to this principal. A client chooses its own holder name; the cluster
    /// authenticates a principal. A ticket without a principal is refused.
    ///
    /// ```
    /// use tenure_fence::ticket::Resource;
    ///
    /// assert_ne!(Resource::new("ledger"), Resource::new("ledger").principal("payments"));
    /// ```
    #[must_use]
    pub fn principal(self, principal: &'a str) -> Self {
        Self { principal: Some(principal), ..self }
    }

    fn admits(&self, ticket: &Ticket) -> Result<(), Forged> {
        if ticket.lock != self.at.lock {
            return Err(Forged::OtherLock {
                said: ticket.lock.clone(),
                wanted: self.at.lock.to_owned(),
            });
        }
        if ticket.slot != self.at.slot {
            return Err(Forged::OtherSlot { said: ticket.slot, wanted: self.at.slot });
        }
        if self.alone && ticket.mode == Mode::Shared {
            return Err(Forged::Shared);
        }
        if let Some(wanted) = self.principal
            && ticket.principal.as_deref() != Some(wanted)
        {
            let (said, wanted) = (ticket.principal.clone(), wanted.to_owned());
            return Err(Forged::OtherPrincipal { said, wanted });
        }
        match self.holder {
            Some(wanted) if ticket.holder != wanted => {
                Err(Forged::OtherHolder { said: ticket.holder.clone(), wanted: wanted.to_owned() })
            }
            _ => Ok(()),
        }
    }
}

impl Tickets {
    /// Creates a verifier that accepts tickets signed with one of these keys.
    ///
    /// ```
    /// use tenure_fence::ticket::{Forged, KeySet, Resource, Tickets};
    ///
    /// let set = r#"{"cluster":"5f3a","epoch":0,"incarnation":"0000000000000000","keys":[]}"#;
    /// let tickets = Tickets::new(KeySet::parse(set)?);
    /// let refused = tickets.check("1043", &Resource::new("ledger")).unwrap_err();
    /// assert_eq!(refused.reason(), "NOT_A_TICKET");
    /// # Ok::<(), tenure_fence::ticket::BadSet>(())
    /// ```
    pub fn new(keys: KeySet) -> Self {
        let state = VerifierState {
            keys: Arc::new(keys),
            retired: BTreeSet::new(),
            cache: Cache::default(),
        };
        Self { state: Mutex::new(state) }
    }

    /// Replaces the set of keys with a newer one. Clears the cache; keys that are no longer in the set are retired.
    ///
    /// A set is refused if it is
    /// - of an older epoch, because the cluster was restored since;
    /// - of another incarnation of the same epoch, because it belongs to another restore of the cluster;
    /// - of a lower revision of the same incarnation, because it may contain keys that were rotated away;
    /// - of the same revision, but with a key that the present set no longer has, because it is then older than that
    ///   set;
    /// - without a revision, although the present set has one.
    pub fn update(&self, keys: KeySet) -> Result<(), BadSet> {
        let mut state = self.state();
        keys.follows(&state.keys)?;
        if keys.epoch > state.keys.epoch {
            state.retired.clear();
        } else {
            let gone: Vec<String> = state
                .keys
                .keys
                .keys()
                .filter(|key| !keys.keys.contains_key(*key))
                .cloned()
                .collect();
            state.retired.extend(gone);
            state.retired.retain(|key| !keys.keys.contains_key(key));
        }
        // Beyond the bound, retired keys are reported as unknown, which is refused just the same.
        if state.retired.len() > KEYS_MAX {
            state.retired.clear();
        }
        state.keys = Arc::new(keys);
        state.cache = Cache::default();
        Ok(())
    }

    /// Returns the ticket in this text, if its signature is good and every claim of it fits the resource.
    pub fn check(&self, text: &str, resource: &Resource<'_>) -> Result<Arc<Ticket>, Forged> {
        if text.len() > TICKET_BYTES_MAX {
            return Err(Forged::TooLong);
        }
        let (known, keys) = {
            let mut state = self.state();
            (state.cache.get(text), Arc::clone(&state.keys))
        };
        let ticket = match known {
            Some(ticket) => ticket,
            None => self.verified(text, &keys)?,
        };
        resource.admits(&ticket)?;
        Ok(ticket)
    }

    fn verified(&self, text: &str, keys: &Arc<KeySet>) -> Result<Arc<Ticket>, Forged> {
        let parts = read::read(text)?;
        // A refusal may be reported before the signature is verified; nothing is accepted before that.
        of_this_incarnation(&parts.ticket, keys)?;
        if parts.signature.is_empty() {
            return Err(Forged::Unsigned);
        }
        let id = &parts.ticket.key;
        let key = keys.keys.get(id).ok_or_else(|| self.not_known(id))?;
        let whole = parts.signature.len() == SIGNATURE_BYTES;
        if !whole || key.verify(parts.signed.as_bytes(), &parts.signature).is_err() {
            return Err(Forged::BadSignature);
        }
        let ticket = Arc::new(parts.ticket);
        let mut state = self.state();
        // The keys may have changed meanwhile; then the ticket is not cached.
        if Arc::ptr_eq(&state.keys, keys) {
            state.cache.insert(text.into(), Arc::clone(&ticket));
        }
        Ok(ticket)
    }

    fn not_known(&self, key: &str) -> Forged {
        let retired = self.state().retired.contains(key);
        let key = key.chars().take(64).collect();
        if retired { Forged::RetiredKey { key } } else { Forged::UnknownKey { key } }
    }

    fn state(&self) -> MutexGuard<'_, VerifierState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Tickets {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys = Arc::clone(&self.state().keys);
        to.debug_struct("Tickets")
            .field("cluster", &keys.cluster)
            .field("keys", &keys.len())
            .finish_non_exhaustive()
    }
}

/// Checks that a ticket names the cluster and the incarnation that these keys belong to.
fn of_this_incarnation(ticket: &Ticket, keys: &KeySet) -> Result<(), Forged> {
    if ticket.cluster != keys.cluster {
        let said = ticket.cluster.chars().take(128).collect();
        return Err(Forged::OtherCluster { said, known: keys.cluster.clone() });
    }
    let (said, known) = (ticket.epoch, keys.epoch);
    if said < known {
        return Err(Forged::OldEpoch { said, known });
    }
    if said > known {
        return Err(Forged::NewerEpoch { said, known });
    }
    let (said, known) = (ticket.incarnation, keys.incarnation);
    if said != known {
        return Err(Forged::OtherIncarnation { said, known });
    }
    Ok(())
}
