//! Names the caller of a request and decides what it may do.

use std::sync::Arc;

use tenure_core::request::Command;

use crate::directory;
use crate::failure::Failure;

/// The caller, as the API or the link that took the request knows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Principal {
    name: Arc<str>,
}

/// The name of the members themselves. No client can have it.
const MEMBER: &str = "tenure/member";

impl Principal {
    /// A caller without credentials.
    pub fn anyone() -> Self {
        Self { name: "".into() }
    }

    /// A member of the cluster, for what it does by itself.
    pub fn member() -> Self {
        Self { name: MEMBER.into() }
    }

    /// Its name; empty for a caller without credentials.
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// Decides whether the principal of this name may run a command. Callers without credentials may do everything
/// but write the cluster's own keys.
pub fn authorise(principal: &str, command: &Command<'_>) -> Result<(), Failure> {
    let key = match command {
        Command::Put(put) => put.key,
        Command::Delete { key, .. } => key,
        _ => return Ok(()),
    };
    if key.starts_with(directory::RESERVED) && principal != MEMBER {
        return Err(Failure::Forbidden);
    }
    Ok(())
}
