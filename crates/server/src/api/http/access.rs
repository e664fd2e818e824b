//! Administers access over HTTP: roles, principals, API keys, certificate rules, issuers, quotas and identity.

use axum::extract::State;
use serde::Deserialize;
use tenure_wire::json::Header;
use tenure_wire::json::access::{
    AccessChanged, AccessStatus, ApiKey, ApiKeyRotated, ApiKeys, Can, CertificateRules,
    CreateApiKey, EnablePrincipal, Issuers, Principal, Principals, PutCertificateRule, PutIssuer,
    PutPrincipal, PutRole, Quotas, Roles, RotateApiKey, SetIdentity, hash_from,
};
use tenure_wire::v1;
use utoipa::IntoParams;

use super::Http;
use super::answer::{HttpError, HttpResult, json};
use super::call::{HttpCall, request_id, within};
use super::leases::TimeoutParameter;
use super::limits::NoParameters;
use super::page::{more, page};
use crate::api::access::AccessCall;
use crate::dispatch::WITHIN;

/// Which part of a list to show.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct PageParameters {
    /// How many at most, up to 1000; else 100.
    #[param(minimum = 1)]
    pub(super) limit: Option<u32>,
    /// Go on after this name.
    pub(super) after: Option<String>,
}

/// Which API keys to show.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct KeyParameters {
    /// Only those of this principal.
    principal: Option<String>,
    /// Of how many principals at most, up to 1000; else 100.
    #[param(minimum = 1)]
    limit: Option<u32>,
    /// Go on after the principal of this name.
    after: Option<String>,
}

/// What is to be done by whom.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct CanParameters {
    /// The principal; absent for the caller itself.
    principal: Option<String>,
    /// The verb.
    verb: String,
    /// The name of a lock, key or election; absent for the cluster itself.
    name: Option<String>,
    /// With acquire or elect: the priority of the request.
    priority: Option<u32>,
}

/// Shows whether identity is enabled, who the caller is and, to administrators, how much there is.
#[utoipa::path(
    get, path = "/v1/access", tag = "access", operation_id = "access_status",
    responses((status = 200, description = "The status.", body = AccessStatus)),
)]
pub(super) async fn status(State(http): State<Http>, call: HttpCall) -> HttpResult {
    call.query::<NoParameters>()?;
    json(&AccessStatus::from(http.access().status().await?))
}

/// Switches the checks of identity on or off. Refused if no administrator could log in afterwards.
#[utoipa::path(
    put, path = "/v1/access/identity", tag = "access",
    operation_id = "set_identity", request_body = SetIdentity,
    params(TimeoutParameter),
    responses((status = 200, description = "It is switched.", body = AccessChanged)),
)]
pub(super) async fn set_identity(State(http): State<Http>, call: HttpCall) -> HttpResult {
    let (key, within) = terms(&call)?;
    let SetIdentity { enabled } = call.json().await?;
    let access = AccessCall { id: request_id(key.as_ref()), within, ..http.access() };
    done(access.set_identity(v1::SetIdentityRequest { enabled }).await?.header)
}

/// Sets the quotas of principals that have no value of their own. Replaces all of them.
#[utoipa::path(
    put, path = "/v1/access/quotas", tag = "access", operation_id = "set_default_quotas", request_body = Quotas,
    params(TimeoutParameter),
    responses((status = 200, description = "They are set.", body = AccessChanged)),
)]
pub(super) async fn set_quotas(State(http): State<Http>, call: HttpCall) -> HttpResult {
    let (key, within) = terms(&call)?;
    let quotas: Quotas = call.json().await?;
    let access = AccessCall { id: request_id(key.as_ref()), within, ..http.access() };
    let ask = v1::SetDefaultQuotasRequest { quotas: quotas.into() };
    done(access.set_default_quotas(ask).await?.header)
}

/// Tells whether a principal may do something with a name, and by which role.
#[utoipa::path(
    get, path = "/v1/access/can", tag = "access", operation_id = "check_access", params(CanParameters),
    responses((status = 200, description = "Yes or no, and why.", body = Can)),
)]
pub(super) async fn can(State(http): State<Http>, call: HttpCall) -> HttpResult {
    let CanParameters { principal, verb, name, priority } = call.query()?;
    let (principal, name) = (principal.unwrap_or_default(), name.unwrap_or_default());
    let priority = priority.unwrap_or_default();
    json(&Can::from(http.access().can(v1::CanRequest { principal, verb, name, priority }).await?))
}

/// Lists roles.
#[utoipa::path(
    get, path = "/v1/access/roles", tag = "access", operation_id = "list_roles", params(PageParameters),
    responses((status = 200, description = "The roles.", body = Roles)),
)]
pub(super) async fn roles(State(http): State<Http>, call: HttpCall) -> HttpResult {
    let PageParameters { limit, after } = call.query()?;
    let ask = v1::ListRolesRequest { limit: page(limit)?, after: after.unwrap_or_default() };
    let it = http.access().list_roles(ask).await?;
    let roles = it.roles.into_iter().map(Into::into).collect();
    json(&Roles { roles, next: more(it.next), header: header(it.header) })
}

/// Creates a role, or replaces its rules.
#[utoipa::path(
    put, path = "/v1/access/roles/{role}", tag = "access", operation_id = "put_role", request_body = PutRole,
    params(TimeoutParameter, ("role" = String, Path, description = "The role.")),
    responses((status = 200, description = "The role is as given.", body = AccessChanged)),
)]
pub(super) async fn put_role(State(http): State<Http>, call: HttpCall) -> HttpResult {
    let (key, within) = terms(&call)?;
    let role = call.name("/v1/access/roles/")?;
    let PutRole { rules, if_version } = call.json().await?;
    let rules = rules.into_iter().map(Into::into).collect();
    let access = AccessCall { id: request_id(key.as_ref()), within, ..http.access() };
    let role = v1::AccessRole { role, rules, ..Default::default() };
    let ask = v1::PutRoleRequest { role: Some(role), if_version };
    done(access.put_role(ask).await?.header)
}

/// Deletes a role. Principals that have it lose its permissions.
#[utoipa::path(
    delete, path = "/v1/access/roles/{role}", tag = "access", operation_id = "delete_role",
    params(TimeoutParameter, ("role" = String, Path, description = "The role.")),
    responses((status = 200, description = "It does not exist.", body = AccessChanged)),
)]
pub(super) async fn delete_role(State(http): State<Http>, call: HttpCall) -> HttpResult {
    let (key, within) = terms(&call)?;
    let role = call.name("/v1/access/roles/")?;
    call.nothing().await?;
    let access = AccessCall { id: request_id(key.as_ref()), within, ..http.access() };
    let it = access.delete_role(v1::DeleteRoleRequest { role }).await?;
    deleted(it.deleted, it.header)
}

/// Lists principals with their API keys, without secrets and hashes.
#[utoipa::path(
    get, path = "/v1/access/principals", tag = "access",
    operation_id = "list_principals", params(PageParameters),
    responses((status = 200, description = "The principals.", body = Principals)),
)]
pub(super) async fn principals(State(http): State<Http>, call: HttpCall) -> HttpResult {
    let PageParameters { limit, after } = call.query()?;
    let ask = v1::ListPrincipalsRequest { limit: page(limit)?, after: after.unwrap_or_default() };
    let it = http.access().list_principals(ask).await?;
    let principals = it.principals.into_iter().map(Into::into).collect();
    json(&Principals { principals, next: more(it.next), header: header(it.header) })
}

/// Shows a principal.
#[utoipa::path(
    get, path = "/v1/access/principals/{principal}", tag = "access", operation_id = "get_principal",
    params(("principal" = String, Path, description = "The principal.")),
    responses((status = 200, description = "The principal.", body = Principal)),
)]
pub(super) async fn principal(State(http): State<Http>, call: HttpCall) -> HttpResult {
    call.query::<NoParameters>()?;
    let principal = call.name("/v1/access/principals/")?;
    let it = http.access().get_principal(v1::GetPrincipalRequest { principal }).await?;
    shown(it.principal, it.header)
}

/// Creates a principal, or replaces its roles and quotas. Its API keys stay.
#[utoipa::path(
    put, path = "/v1/access/principals/{principal}", tag = "access", operation_id = "put_principal",
    request_body = PutPrincipal,
    params(TimeoutParameter, ("principal" = String, Path, description = "The principal.")),
    responses((status = 200, description = "The principal now.", body = Principal)),
)]
pub(super) async fn put_principal(State(http): State<Http>, call: HttpCall) -> HttpResult {
    let (key, within) = terms(&call)?;
    let principal = call.name("/v1/access/principals/")?;
    let PutPrincipal { roles, quotas, enabled, if_version } = call.json().await?;
    let access = AccessCall { id: request_id(key.as_ref()), within, ..http.access() };
    let quotas = quotas.into();
    let ask = v1::PutPrincipalRequest { principal, roles, quotas, enabled, if_version };
    let it = access.put_principal(ask).await?;
    shown(it.principal, it.header)
}

/// Enables or disables a principal. Disabling it ends its leases.
#[utoipa::path(
    patch, path = "/v1/access/principals/{principal}", tag = "access", operation_id = "enable_principal",
    request_body = EnablePrincipal,
    params(TimeoutParameter, ("principal" = String, Path, description = "The principal.")),
    responses((status = 200, description = "The principal now.", body = Principal)),
)]
pub(super) async fn enable_principal(State(http): State<Http>, call: HttpCall) -> HttpResult {
    let (key, within) = terms(&call)?;
    let principal = call.name("/v1/access/principals/")?;
    let EnablePrincipal { enabled } = call.json().await?;
    let access = AccessCall { id: request_id(key.as_ref()), within, ..http.access() };
    let ask = v1::EnablePrincipalRequest { principal, enabled };
    let it = access.enable_principal(ask).await?;
    shown(it.principal, it.header)
}

/// Deletes a principal and its API keys, and ends its leases.
#[utoipa::path(
    delete, path = "/v1/access/principals/{principal}", tag = "access", operation_id = "delete_principal",
    params(TimeoutParameter, ("principal" = String, Path, description = "The principal.")),
    responses((status = 200, description = "It does not exist.", body = AccessChanged)),
)]
pub(super) async fn delete_principal(State(http): State<Http>, call: HttpCall) -> HttpResult {
    let (key, within) = terms(&call)?;
    let principal = call.name("/v1/access/principals/")?;
    call.nothing().await?;
    let access = AccessCall { id: request_id(key.as_ref()), within, ..http.access() };
    let it = access.delete_principal(v1::DeletePrincipalRequest { principal }).await?;
    deleted(it.deleted, it.header)
}

/// Lists API keys, without secrets and hashes.
#[utoipa::path(
    get, path = "/v1/access/keys", tag = "access", operation_id = "list_api_keys", params(KeyParameters),
    responses((status = 200, description = "The keys.", body = ApiKeys)),
)]
pub(super) async fn keys(State(http): State<Http>, call: HttpCall) -> HttpResult {
    let KeyParameters { principal, limit, after } = call.query()?;
    let ask = v1::ListApiKeysRequest {
        principal: principal.unwrap_or_default(),
        limit: page(limit)?,
        after: after.unwrap_or_default(),
    };
    let it = http.access().list_api_keys(ask).await?;
    let keys = it.keys.into_iter().map(Into::into).collect();
    json(&ApiKeys { keys, next: more(it.next), header: header(it.header) })
}

/// Gives a principal an API key, of which the caller has drawn id and secret.
#[utoipa::path(
    put, path = "/v1/access/keys/{key}", tag = "access",
    operation_id = "create_api_key", request_body = CreateApiKey,
    params(TimeoutParameter, ("key" = String, Path, description = "The id: 16 random hexadecimal digits.")),
    responses((status = 200, description = "The key.", body = ApiKey)),
)]
pub(super) async fn create_key(State(http): State<Http>, call: HttpCall) -> HttpResult {
    let (_, within) = terms(&call)?;
    let key = call.name("/v1/access/keys/")?;
    let CreateApiKey { principal, hash, name, expires_in_ms } = call.json().await?;
    let hash = hash_from(&hash)?;
    let ask = v1::CreateApiKeyRequest { principal, key, hash, name, expires_in_ms };
    let it = AccessCall { within, ..http.access() }.create_api_key(ask).await?;
    json(&ApiKey::from(it.key.unwrap_or_default()))
}

/// Gives the principal of an API key another one, and lets the first expire after an overlap.
#[utoipa::path(
    post, path = "/v1/access/keys/{key}/rotate", tag = "access", operation_id = "rotate_api_key",
    request_body = RotateApiKey,
    params(TimeoutParameter, ("key" = String, Path, description = "The id of the key to replace.")),
    responses((status = 200, description = "Both keys.", body = ApiKeyRotated)),
)]
pub(super) async fn rotate_key(State(http): State<Http>, call: HttpCall) -> HttpResult {
    let (_, within) = terms(&call)?;
    let path = call.name("/v1/access/keys/")?;
    let old_key = path.strip_suffix("/rotate").unwrap_or(&path).to_owned();
    let RotateApiKey { key, hash, name, expires_in_ms, overlap_ms } = call.json().await?;
    let hash = hash_from(&hash)?;
    let ask = v1::RotateApiKeyRequest { old_key, key, hash, name, expires_in_ms, overlap_ms };
    let it = AccessCall { within, ..http.access() }.rotate_api_key(ask).await?;
    json(&ApiKeyRotated {
        key: it.key.unwrap_or_default().into(),
        old_key: it.old_key.unwrap_or_default().into(),
        header: header(it.header),
    })
}

/// Deletes an API key. Sessions that were opened with it end.
#[utoipa::path(
    delete, path = "/v1/access/keys/{key}", tag = "access", operation_id = "revoke_api_key",
    params(TimeoutParameter, ("key" = String, Path, description = "The id of the key.")),
    responses((status = 200, description = "It is not accepted any more.", body = AccessChanged)),
)]
pub(super) async fn revoke_key(State(http): State<Http>, call: HttpCall) -> HttpResult {
    let (id, within) = terms(&call)?;
    let key = call.name("/v1/access/keys/")?;
    call.nothing().await?;
    let access = AccessCall { id: request_id(id.as_ref()), within, ..http.access() };
    let it = access.revoke_api_key(v1::RevokeApiKeyRequest { key }).await?;
    deleted(it.deleted, it.header)
}

/// Lists the rules by which client certificates stand for principals, in the order in which they are tried.
#[utoipa::path(
    get, path = "/v1/access/certificate-rules", tag = "access", operation_id = "list_certificate_rules",
    responses((status = 200, description = "The rules.", body = CertificateRules)),
)]
pub(super) async fn certificate_rules(State(http): State<Http>, call: HttpCall) -> HttpResult {
    call.query::<NoParameters>()?;
    let it = http.access().list_certificate_rules().await?;
    let rules = it.rules.into_iter().map(Into::into).collect();
    json(&CertificateRules { rules, next: None, header: header(it.header) })
}

/// Creates or replaces a rule for client certificates.
#[utoipa::path(
    put, path = "/v1/access/certificate-rules/{rule}", tag = "access", operation_id = "put_certificate_rule",
    request_body = PutCertificateRule,
    params(TimeoutParameter, ("rule" = String, Path, description = "The rule.")),
    responses((status = 200, description = "The rule is as given.", body = AccessChanged)),
)]
pub(super) async fn put_certificate_rule(State(http): State<Http>, call: HttpCall) -> HttpResult {
    let (key, within) = terms(&call)?;
    let rule = call.name("/v1/access/certificate-rules/")?;
    let PutCertificateRule { pattern, principal } = call.json().await?;
    let access = AccessCall { id: request_id(key.as_ref()), within, ..http.access() };
    let rule = Some(v1::CertificateRule { rule, pattern, principal });
    done(access.put_certificate_rule(v1::PutCertificateRuleRequest { rule }).await?.header)
}

/// Deletes a rule for client certificates.
#[utoipa::path(
    delete, path = "/v1/access/certificate-rules/{rule}", tag = "access",
    operation_id = "delete_certificate_rule",
    params(TimeoutParameter, ("rule" = String, Path, description = "The rule.")),
    responses((status = 200, description = "It does not exist.", body = AccessChanged)),
)]
pub(super) async fn delete_certificate_rule(
    State(http): State<Http>,
    call: HttpCall,
) -> HttpResult {
    let (key, within) = terms(&call)?;
    let rule = call.name("/v1/access/certificate-rules/")?;
    call.nothing().await?;
    let access = AccessCall { id: request_id(key.as_ref()), within, ..http.access() };
    let it = access.delete_certificate_rule(v1::DeleteCertificateRuleRequest { rule }).await?;
    deleted(it.deleted, it.header)
}

/// Lists the issuers of bearer tokens that the cluster trusts.
#[utoipa::path(
    get, path = "/v1/access/issuers", tag = "access", operation_id = "list_issuers",
    responses((status = 200, description = "The issuers.", body = Issuers)),
)]
pub(super) async fn issuers(State(http): State<Http>, call: HttpCall) -> HttpResult {
    call.query::<NoParameters>()?;
    let it = http.access().list_issuers().await?;
    let issuers = it.issuers.into_iter().map(Into::into).collect();
    json(&Issuers { issuers, next: None, header: header(it.header) })
}

/// Trusts an issuer of bearer tokens, or replaces what is known of it.
#[utoipa::path(
    put, path = "/v1/access/issuers/{issuer}", tag = "access",
    operation_id = "put_issuer", request_body = PutIssuer,
    params(TimeoutParameter, ("issuer" = String, Path, description = "The issuer, as `iss` in its tokens.")),
    responses((status = 200, description = "The issuer is trusted.", body = AccessChanged)),
)]
pub(super) async fn put_issuer(State(http): State<Http>, call: HttpCall) -> HttpResult {
    let (key, within) = terms(&call)?;
    let issuer = call.name("/v1/access/issuers/")?;
    let PutIssuer { audience, jwks, jwks_url, claim, prefix } = call.json().await?;
    let access = AccessCall { id: request_id(key.as_ref()), within, ..http.access() };
    let issuer = Some(v1::Issuer { issuer, audience, jwks, jwks_url, claim, prefix });
    done(access.put_issuer(v1::PutIssuerRequest { issuer }).await?.header)
}

/// Trusts an issuer no more.
#[utoipa::path(
    delete, path = "/v1/access/issuers/{issuer}", tag = "access", operation_id = "delete_issuer",
    params(TimeoutParameter, ("issuer" = String, Path, description = "The issuer.")),
    responses((status = 200, description = "It is not trusted.", body = AccessChanged)),
)]
pub(super) async fn delete_issuer(State(http): State<Http>, call: HttpCall) -> HttpResult {
    let (key, within) = terms(&call)?;
    let issuer = call.name("/v1/access/issuers/")?;
    call.nothing().await?;
    let access = AccessCall { id: request_id(key.as_ref()), within, ..http.access() };
    let it = access.delete_issuer(v1::DeleteIssuerRequest { issuer }).await?;
    deleted(it.deleted, it.header)
}

impl Http {
    fn access(&self) -> AccessCall<'_> {
        let id = request_id(None);
        AccessCall { dispatch: &self.dispatch, who: self.who(), id, within: WITHIN }
    }
}

/// The request id of a change, and how long its caller waits.
fn terms(call: &HttpCall) -> Result<(Option<String>, std::time::Duration), HttpError> {
    let within = within(call.query::<TimeoutParameter>()?.timeout)?;
    Ok((call.id()?, within))
}

fn header(header: Option<v1::Header>) -> Header {
    header.unwrap_or_default().into()
}

fn done(it: Option<v1::Header>) -> HttpResult {
    json(&AccessChanged { deleted: None, header: header(it) })
}

fn deleted(deleted: bool, it: Option<v1::Header>) -> HttpResult {
    json(&AccessChanged { deleted: Some(deleted), header: header(it) })
}

fn shown(principal: Option<v1::PrincipalView>, it: Option<v1::Header>) -> HttpResult {
    let principal = Principal::from(principal.unwrap_or_default());
    json(&Principal { header: Some(header(it)), ..principal })
}
