//! Runs the calls that administer access, for the gRPC and the HTTP API.
//!
//! A call takes and returns the messages of `access.proto`. It reads the access rules, checks what the machine does not
//! check (the form of API keys, the names of roles, whether an administrator is left), and submits one
//! `Command::SetAccess` for each change. Puts and deletes can be repeated, so a retry needs no request id.

mod can;
mod check;
mod credentials;
mod first_quotas;
mod list;
mod version;
mod view;

use std::time::Duration;

use tenure_core::Machine;
use tenure_core::access::{Access, AccessChange, NewPrincipal, PrincipalRecord, Rule};
use tenure_core::request::{Command, LEVEL_ACCESS, LEVEL_RECORDS, RequestId};
use tenure_types::{Quotas, Refusal, Verb};
use tenure_wire::{Failure, v1};

use crate::dispatch::{Caller, Dispatch, Principal, ReadConsistency, ReadScope};
use crate::os;

/// How often a change is prepared at most: each time another one was faster.
const ATTEMPTS_MAX: u64 = 32;

type AccessAnswer<T> = Result<T, v1::Error>;

/// One call of one caller.
pub(super) struct AccessCall<'a> {
    pub(super) dispatch: &'a Dispatch,
    pub(super) who: Principal,
    pub(super) id: RequestId<'a>,
    pub(super) within: Duration,
}

impl AccessCall<'_> {
    /// Whether identity is enabled, who the caller is and, to an administrator, how much there is.
    pub(super) async fn status(&self) -> AccessAnswer<v1::AccessStatusResponse> {
        let (who, now_ms) = (self.who.name().to_owned(), os::wall_ms());
        let ask = move |machine: &Machine| {
            let administers = machine.may(&who, Verb::Administer, "");
            view::status(machine.access(), machine.level(), &who, administers.then_some(now_ms))
        };
        let (header, mut status) = self.read_machine(ReadScope::Known, ask).await?;
        status.header = Some(header);
        Ok(status)
    }

    /// Switches the checks of identity on or off.
    pub(super) async fn set_identity(
        &self,
        it: v1::SetIdentityRequest,
    ) -> AccessAnswer<v1::SetIdentityResponse> {
        let now_ms = os::wall_ms();
        let ask = move |access: &Access| {
            let has_no_quotas =
                !access.is_enabled() && *access.default_quotas() == Quotas::default();
            (check::administrable(access, now_ms), has_no_quotas)
        };
        let (level, (administrable, has_no_quotas)) = self.prepare_at(LEVEL_ACCESS, ask).await?;
        if it.enabled && !administrable {
            return Err(Failure::NoAdministrator.into());
        }
        // Two commands: another administrator may set quotas in between, and an outcome may stay unknown. The call can
        // be repeated, and administrators see both changes in the audit log.
        if it.enabled && has_no_quotas {
            let quotas = AccessChange::SetDefaultQuotas(first_quotas::at(level));
            self.change_as(RequestId::None, quotas).await?;
        }
        let header = self.change(AccessChange::SetIdentity { enabled: it.enabled }).await?;
        Ok(v1::SetIdentityResponse { header: Some(header) })
    }

    /// Sets the default quotas.
    pub(super) async fn set_default_quotas(
        &self,
        it: v1::SetDefaultQuotasRequest,
    ) -> AccessAnswer<v1::SetDefaultQuotasResponse> {
        let quotas = check::quotas(&it.quotas)?;
        let change = AccessChange::SetDefaultQuotas(quotas);
        self.prepare_at(change.level(), |_| ()).await?;
        let header = self.change(change).await?;
        Ok(v1::SetDefaultQuotasResponse { header: Some(header) })
    }

    /// Creates or replaces a role.
    pub(super) async fn put_role(
        &self,
        it: v1::PutRoleRequest,
    ) -> AccessAnswer<v1::PutRoleResponse> {
        let role = it.role.ok_or_else(|| check::missing("role"))?;
        let rules = check::rules(&role.rules)?;
        check::name("role", &role.role)?;
        let name = role.role.clone();
        let (level, old) = self
            .prepare_at(LEVEL_ACCESS, move |access| access.role(&name).map(<[Rule]>::to_vec))
            .await?;
        let seen = version::role(&role.role, old.as_deref());
        let put = AccessChange::PutRole { name: &role.role, rules };
        let header = self.replace(level, it.if_version.as_deref(), seen, put).await?;
        Ok(v1::PutRoleResponse { header: Some(header) })
    }

    /// Deletes a role.
    pub(super) async fn delete_role(
        &self,
        it: v1::DeleteRoleRequest,
    ) -> AccessAnswer<v1::DeleteRoleResponse> {
        let name = it.role.clone();
        let deleted = self.prepare(move |access| access.role(&name).is_some()).await?;
        let header = self.change(AccessChange::DeleteRole { name: &it.role }).await?;
        Ok(v1::DeleteRoleResponse { header: Some(header), deleted })
    }

    /// Creates or replaces a principal.
    pub(super) async fn put_principal(
        &self,
        it: v1::PutPrincipalRequest,
    ) -> AccessAnswer<v1::PutPrincipalResponse> {
        check::principal("principal", &it.principal)?;
        let quotas = check::quotas(&it.quotas)?;
        let (name, roles) = (it.principal.clone(), it.roles.clone());
        let needed = if quotas.counts_at_members() { LEVEL_RECORDS } else { LEVEL_ACCESS };
        let ask = move |access: &Access| {
            let unknown = roles.into_iter().find(|role| access.role(role).is_none());
            (unknown, access.principal(&name).cloned())
        };
        for attempt in 1.. {
            let (level, (unknown, old)) = self.prepare_at(needed, ask.clone()).await?;
            if let Some(role) = unknown {
                let problem = format!("has `{role}`, and there is no such role");
                return Err(check::wrong("roles", problem).into());
            }
            let was = old.as_ref().map(|record| record.enabled);
            let seen = version::principal(&it.principal, old.as_ref());
            let put = AccessChange::PutPrincipal(NewPrincipal {
                name: &it.principal,
                enabled: it.enabled.or(was).unwrap_or(true),
                roles: it.roles.iter().map(String::as_str).collect(),
                quotas,
            });
            // A principal that is disabled meanwhile must not be enabled again by what was read before.
            let read = it.enabled.is_none().then(|| version::of(&seen));
            let expected = it.if_version.clone().or(read);
            let made = self.replace(level, expected.as_deref(), seen, put).await;
            if it.if_version.is_some() || !is_to_repeat(&made, attempt).await {
                made?;
                break;
            }
        }
        let (header, principal) = self.changed(&it.principal).await?;
        Ok(v1::PutPrincipalResponse { header: Some(header), principal })
    }

    /// Enables or disables a principal. All else about it stays as it is.
    pub(super) async fn enable_principal(
        &self,
        it: v1::EnablePrincipalRequest,
    ) -> AccessAnswer<v1::EnablePrincipalResponse> {
        for attempt in 1.. {
            let name = it.principal.clone();
            let ask = move |access: &Access| access.principal(&name).cloned();
            let (level, record) = self.prepare_at(LEVEL_ACCESS, ask).await?;
            let record = record.ok_or(&Refusal::PrincipalNotFound)?;
            let seen = version::principal(&it.principal, Some(&record));
            let changed = PrincipalRecord { enabled: it.enabled, ..record.clone() };
            let put = version::principal(&it.principal, Some(&changed));
            let made = self.replace(level, Some(&version::of(&seen)), seen, put).await;
            if !is_to_repeat(&made, attempt).await {
                made?;
                break;
            }
        }
        let (header, principal) = self.changed(&it.principal).await?;
        Ok(v1::EnablePrincipalResponse { header: Some(header), principal })
    }

    /// Deletes a principal.
    pub(super) async fn delete_principal(
        &self,
        it: v1::DeletePrincipalRequest,
    ) -> AccessAnswer<v1::DeletePrincipalResponse> {
        let name = it.principal.clone();
        let deleted = self.prepare(move |access| access.principal(&name).is_some()).await?;
        let header = self.change(AccessChange::DeletePrincipal { name: &it.principal }).await?;
        Ok(v1::DeletePrincipalResponse { header: Some(header), deleted })
    }

    /// A principal that this call has changed. The caller may have taken its own permission away, so the member reads.
    async fn changed(&self, name: &str) -> AccessAnswer<(v1::Header, Option<v1::PrincipalView>)> {
        let who = Principal::member();
        AccessCall { who, id: RequestId::None, ..*self }.principal(name).await
    }

    /// A principal as it is now.
    async fn principal(&self, name: &str) -> AccessAnswer<(v1::Header, Option<v1::PrincipalView>)> {
        let (name, now_ms) = (name.to_owned(), os::wall_ms());
        let ask = move |access: &Access| {
            access.principal(&name).map(|record| view::principal(&name, record, now_ms))
        };
        self.read(ask).await
    }

    /// Reads the access rules as they are now, for a caller that may administer them.
    async fn read<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&Access) -> T + Send + 'static,
    ) -> AccessAnswer<(v1::Header, T)> {
        self.read_machine(administer(), |machine| ask(machine.access())).await
    }

    /// Reads the access rules for a change: checks also that the cluster has the level for it.
    async fn prepare<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&Access) -> T + Send + 'static,
    ) -> AccessAnswer<T> {
        self.prepare_at(LEVEL_ACCESS, ask).await.map(|(_, found)| found)
    }

    /// Reads the access rules for a change that needs this level and depends on what they are. Also returns the level
    /// of the cluster.
    async fn prepare_at<T: Send + 'static>(
        &self,
        needed: u16,
        ask: impl FnOnce(&Access) -> T + Send + 'static,
    ) -> AccessAnswer<(u16, T)> {
        let ask = |machine: &Machine| (machine.level(), ask(machine.access()));
        let (_, (level, found)) = self.read_machine(administer(), ask).await?;
        if level < needed {
            return Err(Failure::LevelTooLow { level, needed }.into());
        }
        Ok((level, found))
    }

    /// Makes a change of a role or principal that was read as `seen`, if it has the expected version.
    async fn replace(
        &self,
        level: u16,
        expected: Option<&str>,
        seen: AccessChange<'_>,
        change: AccessChange<'_>,
    ) -> AccessAnswer<v1::Header> {
        // A condition makes a repetition harmless, and a repetition may have another one.
        let id = if expected.is_some() { RequestId::None } else { self.id };
        let change = version::conditional(level, expected, seen, change);
        self.change_as(id, change.map_err(|refusal| v1::Error::from(&refusal))?).await
    }

    /// Reads the machine as it is now, for a caller that has this permission.
    async fn read_machine<T: Send + 'static>(
        &self,
        scope: ReadScope,
        ask: impl FnOnce(&Machine) -> T + Send + 'static,
    ) -> AccessAnswer<(v1::Header, T)> {
        let (who, fresh, within) = (&self.who, ReadConsistency::Linearizable, self.within);
        // A quota that is too low must not keep out who would raise it.
        let (revision, found) = if self.dispatch.may_administer(who).is_ok() {
            self.dispatch.read_next_page(who, scope, fresh, within, ask).await?
        } else {
            self.dispatch.read_page(who, scope, fresh, within, ask).await?
        };
        Ok((self.dispatch.header(revision), found))
    }

    /// Makes a change.
    async fn change(&self, change: AccessChange<'_>) -> AccessAnswer<v1::Header> {
        self.change_as(self.id, change).await
    }

    /// Makes a change under another request id than that of the call, which may need several changes.
    async fn change_as(
        &self,
        id: RequestId<'_>,
        change: AccessChange<'_>,
    ) -> AccessAnswer<v1::Header> {
        let command = Command::SetAccess(change);
        Caller::changing_access();
        let outcome = self.dispatch.call(&self.who, id, command, self.within).await?;
        outcome.result.map_err(|refusal| v1::Error::from(&refusal))?;
        Ok(self.dispatch.header(outcome.revision))
    }
}

/// Whether a change is to be prepared anew, because another call has changed the same object in between. Waits a while
/// before, longer after each attempt, so that calls that disturb each other come apart.
async fn is_to_repeat<T>(made: &AccessAnswer<T>, attempt: u64) -> bool {
    let changed = Refusal::AccessChanged.reason();
    if attempt >= ATTEMPTS_MAX || made.as_ref().map_or_else(|it| it.reason != changed, |_| true) {
        return false;
    }
    tokio::time::sleep(Duration::from_millis(os::random() % (4 * attempt))).await;
    true
}

/// What every call needs but those about the caller itself.
fn administer() -> ReadScope {
    ReadScope::Name(Verb::Administer, String::new())
}
