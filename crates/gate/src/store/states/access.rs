//! Authenticates the readers and writers of states.
//!
//! Terraform knows HTTP basic authentication and nothing else. Its password is a key of `--writers` or `--readers`, or
//! a ticket. A token may be in the user name, as `token-123`: beside a key, and where bare numbers are believed. There
//! it may also be the password.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use tenure_fence::http::FENCING_TOKEN;
use tenure_fence::ticket::Forged;
use tenure_fence::{Claim, LockSlot, Mode};

use crate::answer::ErrorAnswer;
use crate::readers::Readers;
use crate::reason::Reason;
use crate::trust::TokenVerifier;

/// What marks a user name as a token. Without it, a user whose name is a number would be taken for a holder.
const TOKEN: &str = "token-";

/// Who may read and write states.
pub(in crate::store) struct StateAccess {
    pub(in crate::store) readers: Option<Readers>,
    pub(in crate::store) writers: Option<Readers>,
    pub(in crate::store) judge: TokenVerifier,
}

/// What a request may do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum StateUse {
    Read,
    Write,
}

/// What a request shows.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Shown {
    key: Option<StateUse>,
    token: Option<String>,
    is_empty: bool,
}

impl StateAccess {
    /// Checks that a request may use the state of this lock. Returns the claim that it proves, if it has a token.
    pub(super) async fn check(
        &self,
        headers: &HeaderMap,
        lock: &str,
        wanted: StateUse,
    ) -> Result<Option<Claim>, ErrorAnswer> {
        let shown = self.shown(headers)?;
        let may =
            self.is_open(wanted) || shown.key == Some(StateUse::Write) || shown.key == Some(wanted);
        let Some(token) = &shown.token else {
            return if may { Ok(None) } else { Err(refused(&shown)) };
        };
        // A number that is believed proves nothing about who sent it.
        if !may && self.judge.believes_numbers() {
            return Err(refused(&shown));
        }
        let claim = self.judge.claim(token, LockSlot::from(lock), None).await?;
        if claim.mode != Mode::Exclusive {
            return Err(ErrorAnswer::forged(&Forged::Shared));
        }
        Ok(Some(claim))
    }

    /// Checks that a request may read all states.
    pub(super) fn check_list(&self, headers: &HeaderMap) -> Result<(), ErrorAnswer> {
        let shown = self.shown(headers)?;
        if self.is_open(StateUse::Read) || shown.key.is_some() {
            Ok(())
        } else {
            Err(refused(&shown))
        }
    }

    /// Whether no credentials are needed.
    fn is_open(&self, wanted: StateUse) -> bool {
        let no_readers = self.readers.is_none() || wanted == StateUse::Write;
        self.judge.believes_numbers() && self.writers.is_none() && no_readers
    }

    fn shown(&self, headers: &HeaderMap) -> Result<Shown, ErrorAnswer> {
        let fencing = one(headers, &FENCING_TOKEN)?.map(str::to_owned);
        let Some((user, password)) = one(headers, &AUTHORIZATION)?.map(credentials).transpose()?
        else {
            let is_empty = fencing.is_none();
            return Ok(Shown { key: None, token: fencing, is_empty });
        };
        let among = |keys: &Option<Readers>| keys.as_ref().is_some_and(|keys| keys.has(&password));
        let key = if among(&self.writers) {
            Some(StateUse::Write)
        } else {
            among(&self.readers).then_some(StateUse::Read)
        };
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit());
        let named = user.strip_prefix(TOKEN).filter(|it| is_number(it)).map(ToOwned::to_owned);
        let token = fencing.or(match key {
            Some(_) => named,
            None if self.judge.believes_numbers() => {
                Some(password).filter(|password| is_number(password)).or(named)
            }
            None => Some(password).filter(|password| !password.is_empty()),
        });
        Ok(Shown { key, token, is_empty: false })
    }
}

/// The value of a header that a request has once.
fn one<'a>(
    headers: &'a HeaderMap,
    name: &http::HeaderName,
) -> Result<Option<&'a str>, ErrorAnswer> {
    let mut all = headers.get_all(name).into_iter();
    let wrong = || ErrorAnswer::new(Reason::InvalidField, format!("{name}: one readable value"));
    match (all.next(), all.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => value.to_str().map(Some).map_err(|_| wrong()),
        (Some(_), Some(_)) => Err(wrong()),
    }
}

/// User name and password of a header `Authorization`.
fn credentials(header: &str) -> Result<(String, String), ErrorAnswer> {
    let wrong = || {
        let message = "Authorization is neither Basic nor Bearer in a form that can be read";
        ErrorAnswer::new(Reason::Unauthenticated, message)
    };
    let (scheme, text) = header.split_once(' ').ok_or_else(wrong)?;
    if scheme.eq_ignore_ascii_case("bearer") {
        return Ok((String::new(), text.to_owned()));
    }
    if !scheme.eq_ignore_ascii_case("basic") {
        return Err(wrong());
    }
    let text = STANDARD.decode(text).ok().and_then(|text| String::from_utf8(text).ok());
    let text = text.ok_or_else(wrong)?;
    let (user, password) = text.split_once(':').ok_or_else(wrong)?;
    Ok((user.to_owned(), password.to_owned()))
}

fn refused(shown: &Shown) -> ErrorAnswer {
    match shown {
        Shown { key: Some(StateUse::Read), .. } => {
            ErrorAnswer::new(Reason::ReadOnly, "a key of --readers does not write")
        }
        Shown { is_empty: true, .. } => ErrorAnswer::new(
            Reason::Unauthenticated,
            "a password is needed: a key of the store, or a ticket of the lock",
        ),
        _ => ErrorAnswer::new(Reason::Unauthenticated, "the password is no key of the store"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tenure_fence::http::BareTokens;

    use super::*;

    const READER: &str = "r123456789abcdef0123456789abcdef";
    const WRITER: &str = "w123456789abcdef0123456789abcdef";

    fn access(readers: bool, writers: bool, numbers: bool) -> StateAccess {
        let keys = |key: &str| Readers::of(vec![key.to_owned()]);
        let judge =
            TokenVerifier::Verify { verify: Arc::new(BareTokens), believes_numbers: numbers };
        StateAccess {
            readers: readers.then(|| keys(READER)),
            writers: writers.then(|| keys(WRITER)),
            judge,
        }
    }

    async fn check(
        access: &StateAccess,
        basic: Option<(&str, &str)>,
        wanted: StateUse,
    ) -> Result<Option<u64>, &'static str> {
        let mut headers = HeaderMap::new();
        if let Some((user, password)) = basic {
            let text = format!("Basic {}", STANDARD.encode(format!("{user}:{password}")));
            headers.insert(AUTHORIZATION, text.parse().unwrap());
        }
        let checked = access.check(&headers, "l", wanted).await;
        checked.map(|claim| claim.map(|claim| claim.token.get())).map_err(|no| no.row.reason)
    }

    #[tokio::test]
    async fn keys_and_tokens_open_what_they_are_for() {
        use StateUse::{Read, Write};
        let open = access(false, false, true);
        assert_eq!(check(&open, None, Write).await, Ok(None));
        assert_eq!(check(&open, Some(("token-7", "x.y.z")), Write).await, Ok(Some(7)));
        // A user name that is a number is the name of a user.
        for user in ["7", "token-", "token-x", "token-7x", "TOKEN-7"] {
            assert_eq!(check(&open, Some((user, "x.y.z")), Write).await, Ok(None), "{user}");
        }
        assert_eq!(check(&open, Some(("ci", "8")), Write).await, Ok(Some(8)));
        let keys = access(true, true, true);
        for (shown, read, write) in [
            (None, Err("UNAUTHENTICATED"), Err("UNAUTHENTICATED")),
            (Some(("ci", "wrong")), Err("UNAUTHENTICATED"), Err("UNAUTHENTICATED")),
            // A number says nothing about who sent it.
            (Some(("ci", "9")), Err("UNAUTHENTICATED"), Err("UNAUTHENTICATED")),
            (Some(("ci", READER)), Ok(None), Err("READ_ONLY")),
            (Some(("ci", WRITER)), Ok(None), Ok(None)),
            (Some(("9", WRITER)), Ok(None), Ok(None)),
            (Some(("token-9", WRITER)), Ok(Some(9)), Ok(Some(9))),
        ] {
            assert_eq!(check(&keys, shown, Read).await, read, "{shown:?}");
            assert_eq!(check(&keys, shown, Write).await, write, "{shown:?}");
        }
        // Readers alone: writing stays as it is for data, reading does not.
        let readers = access(true, false, true);
        assert_eq!(check(&readers, None, Write).await, Ok(None));
        assert_eq!(check(&readers, None, Read).await, Err("UNAUTHENTICATED"));
        // Where proofs are demanded, nothing is open, and a proof opens both.
        let proofs = access(false, false, false);
        assert_eq!(check(&proofs, None, Read).await, Err("UNAUTHENTICATED"));
        assert_eq!(check(&proofs, Some(("ci", "9")), Read).await, Ok(Some(9)));
        assert_eq!(check(&proofs, Some(("ci", "forged")), Write).await, Err("NOT_A_TOKEN"));
    }

    #[test]
    fn what_is_no_basic_authentication_is_refused() {
        for bad in ["Basic", "Basic %%%", "Digest abc", "Basic YWJj"] {
            assert!(credentials(bad).is_err(), "{bad}");
        }
        assert_eq!(credentials("basic YTpiOmM=").unwrap(), ("a".to_owned(), "b:c".to_owned()));
    }
}
