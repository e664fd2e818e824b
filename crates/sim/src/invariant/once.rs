//! Does a request take effect at most once, however often it comes? (S7)

use std::collections::BTreeMap;

use tenure_core::request::{Request, RequestId};

use super::handle::LeaseKey;
use super::{Check, Handles, Ledger, Violation};

/// For how long a key of a request is remembered, by the rules.
const REMEMBERED_MS: u64 = 600_000;

/// Which requests have taken effect.
#[derive(Default)]
pub(super) struct Once {
    seqs: BTreeMap<(LeaseKey, u64), u64>,
    keys: BTreeMap<(String, String), u64>,
}

impl Once {
    /// Counts a command that moved the revision.
    pub(super) fn command(
        &mut self,
        ledger: &Ledger,
        handles: &Handles,
        request: &Request<'_>,
        moved: bool,
    ) -> Check {
        if !moved {
            return Ok(());
        }
        let clock = ledger.clock;
        match request.id {
            RequestId::None => Ok(()),
            RequestId::Seq { lease, seq, .. } => {
                let Some(lease) = handles.resolve(ledger, lease) else { return Ok(()) };
                match self.seqs.insert((lease, seq), clock) {
                    None => Ok(()),
                    Some(_) => {
                        Err(Violation::new("S7", format!("request {seq} of {lease:?} ran twice")))
                    }
                }
            }
            RequestId::Key(key) => {
                let name = (request.principal.to_owned(), key.to_owned());
                match self.keys.insert(name, clock) {
                    Some(first) if clock - first < REMEMBERED_MS => {
                        let detail = format!("key {key:?} of {:?} ran twice", request.principal);
                        Err(Violation::new("S7", detail))
                    }
                    _ => Ok(()),
                }
            }
        }
    }
}
