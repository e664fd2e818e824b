//! May this caller do this, now?
//!
//! Every command of every door passes [`Edge::admit`]: first whether the caller is allowed to, then
//! whether there is room for it.

use tenure_core::request::Command;

use super::load::{RETRY_AFTER_MS, Weight};
use super::{Edge, Failure};
use crate::book;

/// Who asks, as the door knows them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Principal {
    name: String,
}

impl Principal {
    /// Somebody without credentials.
    pub(crate) fn anyone() -> Self {
        Self::default()
    }

    /// Its name; empty for somebody without credentials.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }
}

impl Edge {
    /// Whether a command may go on its way.
    pub(crate) fn admit(&self, who: &Principal, command: &Command<'_>) -> Result<(), Failure> {
        authorise(who, command)?;
        self.charge(command)
    }

    /// Whether there is room for a command.
    fn charge(&self, command: &Command<'_>) -> Result<(), Failure> {
        if self.inner.load.has_room(weight(command)) {
            return Ok(());
        }
        Err(Failure::Overloaded { retry_after_ms: RETRY_AFTER_MS })
    }
}

/// Whether a caller may do something. Without credentials everybody may do everything, but for what is
/// the cluster's own.
fn authorise(_who: &Principal, command: &Command<'_>) -> Result<(), Failure> {
    let key = match command {
        Command::Put(put) => put.key,
        Command::Delete { key, .. } => key,
        _ => return Ok(()),
    };
    if key.starts_with(book::RESERVED) {
        let why = format!("keys below `{}` are the cluster's own", book::RESERVED);
        return Err(Failure::Forbidden { why });
    }
    Ok(())
}

fn weight(command: &Command<'_>) -> Weight {
    match command {
        Command::Renew(_)
        | Command::Revoke { .. }
        | Command::Release(_)
        | Command::Leave { .. }
        | Command::Downgrade(_)
        | Command::Stopped { .. }
        | Command::Delete { .. } => Weight::Keeps,
        _ => Weight::Asks,
    }
}
