//! Authorises commands and admits them against the member's budget.
//!
//! Every command of every API passes [`Dispatch::admitted`] or [`Dispatch::admit`]: first whether the caller may run
//! it, then whether there is room for it. What is admitted is counted at that moment.

use bytes::Bytes;
use tenure_core::request::{Command, RequestId};
use tenure_node::{Action, Permit, Principal, authorise, weight};

use super::{Dispatch, Failure, RETRY_AFTER_MS, WITHIN, encode};

impl Dispatch {
    /// Authorises what is no command.
    pub(super) fn may(&self, who: &Principal, action: Action<'_>) -> Result<(), Failure> {
        authorise(who.name(), action).map_err(|failure| self.failure(failure, WITHIN))
    }

    /// Admits a command that takes so many bytes in the form of the log.
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

    /// A command in the form of the log, admitted.
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
