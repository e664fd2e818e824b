//! Lists roles, principals, API keys, certificate rules and issuers.

use tenure_core::access::Access;
use tenure_types::{Name, Refusal};
use tenure_wire::v1;

use super::{AccessAnswer, AccessCall, view};
use crate::os;

/// The records in a page if the request does not say, and at most.
const PAGE: u32 = 100;
const PAGE_MAX: u32 = 1_000;

impl AccessCall<'_> {
    pub(crate) async fn list_roles(
        &self,
        it: v1::ListRolesRequest,
    ) -> AccessAnswer<v1::ListRolesResponse> {
        let ask = move |access: &Access| page(access.roles(), it.limit, &it.after, view::role);
        let (header, (roles, next)) = self.read(ask).await?;
        Ok(v1::ListRolesResponse { header: Some(header), roles, next })
    }

    pub(crate) async fn list_principals(
        &self,
        it: v1::ListPrincipalsRequest,
    ) -> AccessAnswer<v1::ListPrincipalsResponse> {
        let now_ms = os::wall_ms();
        let ask = move |access: &Access| {
            let shown = |name: &str, record: &_| view::principal(name, record, now_ms);
            page(access.principals(), it.limit, &it.after, shown)
        };
        let (header, (principals, next)) = self.read(ask).await?;
        Ok(v1::ListPrincipalsResponse { header: Some(header), principals, next })
    }

    pub(crate) async fn get_principal(
        &self,
        it: v1::GetPrincipalRequest,
    ) -> AccessAnswer<v1::GetPrincipalResponse> {
        let (header, principal) = self.principal(&it.principal).await?;
        let principal = Some(principal.ok_or(&Refusal::PrincipalNotFound)?);
        Ok(v1::GetPrincipalResponse { header: Some(header), principal })
    }

    pub(crate) async fn list_api_keys(
        &self,
        it: v1::ListApiKeysRequest,
    ) -> AccessAnswer<v1::ListApiKeysResponse> {
        if !it.principal.is_empty() {
            let (header, principal) = self.principal(&it.principal).await?;
            let principal = principal.ok_or(&Refusal::PrincipalNotFound)?;
            let (keys, next) = (principal.keys, String::new());
            return Ok(v1::ListApiKeysResponse { header: Some(header), keys, next });
        }
        let now_ms = os::wall_ms();
        let ask = move |access: &Access| {
            let with_keys = access.principals().filter(|(_, it)| !it.credentials.is_empty());
            let shown = |name: &str, record: &_| view::principal(name, record, now_ms).keys;
            page(with_keys, it.limit, &it.after, shown)
        };
        let (header, (keys, next)) = self.read(ask).await?;
        let keys = keys.into_iter().flatten().collect();
        Ok(v1::ListApiKeysResponse { header: Some(header), keys, next })
    }

    pub(crate) async fn list_certificate_rules(
        &self,
    ) -> AccessAnswer<v1::ListCertificateRulesResponse> {
        let ask = |access: &Access| {
            let rules = access.certificate_rules();
            rules.map(|(name, rule)| view::certificate_rule(name, rule)).collect()
        };
        let (header, rules) = self.read(ask).await?;
        Ok(v1::ListCertificateRulesResponse { header: Some(header), rules })
    }

    pub(crate) async fn list_issuers(&self) -> AccessAnswer<v1::ListIssuersResponse> {
        let ask = |access: &Access| {
            access.issuers().map(|(name, issuer)| view::issuer(name, issuer)).collect()
        };
        let (header, issuers) = self.read(ask).await?;
        Ok(v1::ListIssuersResponse { header: Some(header), issuers })
    }
}

/// The records after a name, and the name to go on after; empty if these were the last.
fn page<'a, R, T>(
    records: impl Iterator<Item = (&'a Name, R)>,
    limit: u32,
    after: &str,
    shown: impl Fn(&str, R) -> T,
) -> (Vec<T>, String) {
    let limit = if limit == 0 { PAGE } else { limit.min(PAGE_MAX) } as usize;
    let mut records = records.skip_while(|(name, _)| &***name <= after).peekable();
    let (mut found, mut last): (_, &str) = (Vec::new(), "");
    while found.len() < limit {
        let Some((name, record)) = records.next() else { break };
        found.push(shown(name, record));
        last = name;
    }
    let next = if records.peek().is_some() { last.to_owned() } else { String::new() };
    (found, next)
}
