//! Authorises commands and admits them against the member's budget.
//!
//! Every command of every API passes [`Dispatch::admitted`] or [`Dispatch::admit`]. They check first that the caller
//! may run the command, then that the budget has room for it. An admitted command counts towards the budget at once.

use bytes::Bytes;
use tenure_core::request::{Command, RequestId};
use tenure_node::{Permit, Principal, PrincipalAction, authorise, weight};

use super::{Dispatch, Failure, RETRY_AFTER_MS, WITHIN, encode};

impl Dispatch {
    /// Authorises an action that is not a command.
    pub(super) fn may(&self, who: &Principal, action: PrincipalAction<'_>) -> Result<(), Failure> {
        authorise(who.name(), action).map_err(|failure| self.failure(failure, WITHIN))
    }

    /// Authorises and admits a command that takes `bytes` bytes in its log encoding.
    pub(crate) fn admit(
        &self,
        who: &Principal,
        command: &Command<'_>,
        bytes: usize,
    ) -> Result<Permit, Failure> {
        authorise(who.name(), command).map_err(|_| Failure::PermissionDenied { verb: "admin" })?;
        let permit = self.member().admission().admit(weight(command), bytes as u64);
        permit.ok_or(Failure::Overloaded { retry_after_ms: RETRY_AFTER_MS })
    }

    /// Encodes a command for the log, then authorises and admits it.
    pub(super) fn admitted(
        &self,
        who: &Principal,
        id: RequestId<'_>,
        command: Command<'_>,
    ) -> Result<(Bytes, Permit), Failure> {
        let request = encode(who, id, command.clone());
        let permit = self.admit(who, &command, request.len())?;
        Ok((request, permit))
    }
}
