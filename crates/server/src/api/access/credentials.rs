//! Creates, rotates and revokes API keys; sets certificate rules and issuers.

use tenure_core::access::{
    Access, AccessChange, CREDENTIALS_PER_PRINCIPAL, Credential, IssuerKeys, NewCertificateRule,
    NewCredential, NewIssuer,
};
use tenure_core::request::RequestId;
use tenure_types::Refusal;
use tenure_wire::v1;

use super::{AccessAnswer, AccessCall, check, view};
use crate::os;

/// The claim of bearer tokens that names the principal unless the issuer has another.
const CLAIM: &str = "sub";

/// An API key that is to be added.
struct Added<'a> {
    principal: &'a str,
    id: &'a str,
    name: &'a str,
    hash: [u8; 32],
    expires_ms: Option<u64>,
}

impl AccessCall<'_> {
    /// Gives a principal an API key.
    pub(crate) async fn create_api_key(
        &self,
        it: v1::CreateApiKeyRequest,
    ) -> AccessAnswer<v1::CreateApiKeyResponse> {
        let now_ms = os::wall_ms();
        let added = Added {
            principal: &it.principal,
            id: &it.key,
            name: &it.name,
            hash: check::hash(&it.hash)?,
            expires_ms: check::expiry("expires_in_ms", it.expires_in_ms, now_ms)?,
        };
        let (header, key) = self.add(added, now_ms).await?;
        Ok(v1::CreateApiKeyResponse { header: Some(header), key: Some(key) })
    }

    /// Gives the principal of an API key another one, and lets the first expire after the overlap. If the call is
    /// repeated, the new key stays, and the old one does not live longer.
    pub(crate) async fn rotate_api_key(
        &self,
        it: v1::RotateApiKeyRequest,
    ) -> AccessAnswer<v1::RotateApiKeyResponse> {
        let now_ms = os::wall_ms();
        let old_ends_ms = check::expiry("overlap_ms", Some(it.overlap_ms), now_ms)?;
        if it.old_key == it.key {
            return Err(check::wrong("key", "is the id of the old key").into());
        }
        let id = it.old_key.clone();
        let found = self
            .prepare(move |access| {
                access.find_credential(&id).map(|(name, key)| (name.clone(), key.clone()))
            })
            .await?;
        let unknown =
            || check::wrong("old_key", format!("is `{}`; no key has this id", it.old_key));
        let (principal, old) = found.ok_or_else(unknown)?;
        let added = Added {
            principal: &principal,
            id: &it.key,
            name: if it.name.is_empty() { &old.name } else { &it.name },
            hash: check::hash(&it.hash)?,
            expires_ms: check::expiry("expires_in_ms", it.expires_in_ms, now_ms)?,
        };
        // The new key first: if anything fails in between, the principal still has a key.
        let (_, key) = self.add(added, now_ms).await?;
        let expires_ms = old.expires_ms.into_iter().chain(old_ends_ms).min();
        let old = Credential { expires_ms, ..old };
        let header = match expires_ms {
            Some(expires_ms) if expires_ms <= now_ms => {
                let gone = AccessChange::DeleteCredential { id: &it.old_key };
                self.change_as(RequestId::None, gone).await?
            }
            _ => {
                let ending = AccessChange::PutCredential(NewCredential {
                    principal: &principal,
                    id: &old.id,
                    name: &old.name,
                    hash: old.hash,
                    expires_ms,
                });
                self.change_as(RequestId::None, ending).await.map_err(|mut error| {
                    let done = format!("key {} was created; the old key stays: ", key.key);
                    error.message.insert_str(0, &done);
                    error
                })?
            }
        };
        let old_key = Some(view::key(&principal, &old, now_ms));
        Ok(v1::RotateApiKeyResponse { header: Some(header), key: Some(key), old_key })
    }

    /// Deletes an API key.
    pub(crate) async fn revoke_api_key(
        &self,
        it: v1::RevokeApiKeyRequest,
    ) -> AccessAnswer<v1::RevokeApiKeyResponse> {
        check::key("key", &it.key)?;
        let id = it.key.clone();
        let deleted = self.prepare(move |access| access.find_credential(&id).is_some()).await?;
        let header = self.change(AccessChange::DeleteCredential { id: &it.key }).await?;
        Ok(v1::RevokeApiKeyResponse { header: Some(header), deleted })
    }

    /// Adds an API key. The same key may be added again; another key under an id that is in use is refused.
    async fn add(&self, added: Added<'_>, now_ms: u64) -> AccessAnswer<(v1::Header, v1::ApiKey)> {
        check::key("key", added.id)?;
        check::text("name", added.name, true)?;
        let (principal, id) = (added.principal.to_owned(), added.id.to_owned());
        let ask = move |access: &Access| {
            let keys = access.principal(&principal).map(|record| record.credentials.clone());
            let known = access.find_credential(&id);
            (keys, known.map(|(principal, key)| (principal.clone(), key.clone())))
        };
        let (keys, known) = self.prepare(ask).await?;
        let keys = keys.ok_or(&Refusal::PrincipalNotFound)?;
        if let Some((principal, key)) = known {
            if &*principal != added.principal || key.hash != added.hash {
                return Err(check::wrong("key", "is the id of another key; draw another id").into());
            }
            // A repetition. The first answer was lost, or the key was made to expire meanwhile.
            let (header, ()) = self.read(|_| ()).await?;
            return Ok((header, view::key(&principal, &key, now_ms)));
        }
        // Keys that have expired are of no use, and would keep the principal from getting another.
        if keys.len() >= CREDENTIALS_PER_PRINCIPAL {
            let expired = |key: &&Credential| key.expires_ms.is_some_and(|at_ms| at_ms <= now_ms);
            for key in keys.iter().filter(expired) {
                let gone = AccessChange::DeleteCredential { id: &key.id };
                self.change_as(RequestId::None, gone).await?;
            }
        }
        let Added { principal, id, name, hash, expires_ms } = added;
        let new = NewCredential { principal, id, name, hash, expires_ms };
        let header = self.change_as(RequestId::None, AccessChange::PutCredential(new)).await?;
        let key = v1::ApiKey {
            key: id.to_owned(),
            principal: principal.to_owned(),
            name: name.to_owned(),
            expires_ms,
            expired: false,
        };
        Ok((header, key))
    }

    /// Creates or replaces a certificate rule.
    pub(crate) async fn put_certificate_rule(
        &self,
        it: v1::PutCertificateRuleRequest,
    ) -> AccessAnswer<v1::PutCertificateRuleResponse> {
        let rule = it.rule.ok_or_else(|| check::missing("rule"))?;
        check::name("rule", &rule.rule)?;
        check::pattern(&rule.pattern)?;
        check::principal("principal", &rule.principal)?;
        self.prepare(|_| ()).await?;
        let change = AccessChange::PutCertificateRule(NewCertificateRule {
            name: &rule.rule,
            pattern: &rule.pattern,
            principal: &rule.principal,
        });
        let header = self.change(change).await?;
        Ok(v1::PutCertificateRuleResponse { header: Some(header) })
    }

    /// Deletes a certificate rule.
    pub(crate) async fn delete_certificate_rule(
        &self,
        it: v1::DeleteCertificateRuleRequest,
    ) -> AccessAnswer<v1::DeleteCertificateRuleResponse> {
        let name = it.rule.clone();
        let found =
            move |access: &Access| access.certificate_rules().any(|(rule, _)| **rule == *name);
        let deleted = self.prepare(found).await?;
        let header = self.change(AccessChange::DeleteCertificateRule { name: &it.rule }).await?;
        Ok(v1::DeleteCertificateRuleResponse { header: Some(header), deleted })
    }

    /// Trusts an issuer.
    pub(crate) async fn put_issuer(
        &self,
        it: v1::PutIssuerRequest,
    ) -> AccessAnswer<v1::PutIssuerResponse> {
        let issuer = it.issuer.ok_or_else(|| check::missing("issuer"))?;
        check::name("issuer", &issuer.issuer)?;
        check::text("audience", &issuer.audience, false)?;
        check::text("claim", &issuer.claim, true)?;
        check::text("prefix", &issuer.prefix, true)?;
        check::issuer_keys(&issuer)?;
        self.prepare(|_| ()).await?;
        let keys = match issuer.jwks_url.as_str() {
            "" => IssuerKeys::Jwks(&issuer.jwks),
            url => IssuerKeys::Url(url),
        };
        let claim = if issuer.claim.is_empty() { CLAIM } else { &issuer.claim };
        let change = AccessChange::PutIssuer(NewIssuer {
            issuer: &issuer.issuer,
            audience: &issuer.audience,
            keys,
            claim,
            prefix: &issuer.prefix,
        });
        let header = self.change(change).await?;
        Ok(v1::PutIssuerResponse { header: Some(header) })
    }

    /// Trusts an issuer no more.
    pub(crate) async fn delete_issuer(
        &self,
        it: v1::DeleteIssuerRequest,
    ) -> AccessAnswer<v1::DeleteIssuerResponse> {
        let name = it.issuer.clone();
        let found = move |access: &Access| access.issuers().any(|(issuer, _)| **issuer == *name);
        let deleted = self.prepare(found).await?;
        let header = self.change(AccessChange::DeleteIssuer { issuer: &it.issuer }).await?;
        Ok(v1::DeleteIssuerResponse { header: Some(header), deleted })
    }
}
