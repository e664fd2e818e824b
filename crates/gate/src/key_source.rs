//! Reads a set of keys from one source: a member over HTTP, in plain text or under TLS, or a file.

use std::fmt;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use http::uri::{PathAndQuery, Scheme};
use http::{Method, Uri};
use tokio::time::timeout;

use crate::call::{self, OutgoingCall};

/// The path at which members serve the set.
const PATH: &str = "/.well-known/jwks.json";
/// How long one source may take.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The maximum size of a set. A real one has some hundred bytes per member.
const BYTES_MAX: usize = 1024 * 1024;

/// The certificate files for members that use TLS. They are read again whenever keys are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeySourceTls {
    /// The authority that signed the members' certificates.
    pub ca: PathBuf,
    /// A certificate to present to members, and its private key.
    pub own: Option<(PathBuf, PathBuf)>,
}

/// One source.
#[derive(Clone)]
pub(crate) enum KeySource {
    Member(Uri),
    Secured(Uri, KeySourceTls),
    File(PathBuf),
}

impl fmt::Display for KeySource {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Member(uri) | Self::Secured(uri, _) => uri.fmt(to),
            Self::File(path) => path.display().fmt(to),
        }
    }
}

impl KeySource {
    pub(crate) fn parse(text: &str, tls: Option<&KeySourceTls>) -> Result<Self, String> {
        if !text.contains("://") {
            return Ok(Self::File(text.into()));
        }
        let uri: Uri = text.parse().map_err(|_| format!("{text}: this is no URL"))?;
        let mut parts = uri.into_parts();
        let secured = match &parts.scheme {
            Some(scheme) if *scheme == Scheme::HTTP => false,
            Some(scheme) if *scheme == Scheme::HTTPS => true,
            _ => {
                return Err(format!(
                    "{text}: keys are read over http:// or https://, or from a file"
                ));
            }
        };
        if parts.authority.as_ref().is_none_or(|to| to.as_str().contains('@')) {
            return Err(format!("{text}: there is no host in it, or a user"));
        }
        if parts.path_and_query.as_ref().is_none_or(|path| path.as_str() == "/") {
            parts.path_and_query = Some(PathAndQuery::from_static(PATH));
        }
        let uri = Uri::from_parts(parts).map_err(|_| format!("{text}: this is no URL"))?;
        if !secured {
            return Ok(Self::Member(uri));
        }
        let tls = tls.ok_or_else(|| {
            format!("{text}: who signed the certificate there? name that authority with --tls-ca")
        })?;
        call::configure(tls)?;
        Ok(Self::Secured(uri, tls.clone()))
    }

    /// Returns the text of the source.
    pub(crate) async fn read(&self) -> Result<String, String> {
        let read = async {
            match self {
                Self::File(path) => {
                    let from = path.clone();
                    let read = tokio::task::spawn_blocking(move || fs::read(from)).await;
                    let read = read.unwrap_or_else(|error| Err(io::Error::other(error)));
                    read.map_err(|error| error.to_string())
                }
                Self::Member(uri) => within(get(uri, None)).await,
                Self::Secured(uri, tls) => within(get(uri, Some(tls))).await,
            }
        };
        let bytes = read.await.map_err(|why| format!("{self}: {why}"))?;
        String::from_utf8(bytes).map_err(|_| format!("{self}: this is no text"))
    }
}

/// Reads the set from a member.
async fn get(uri: &Uri, tls: Option<&KeySourceTls>) -> Result<Vec<u8>, String> {
    let get = OutgoingCall {
        method: Method::GET,
        headers: &[],
        body: Bytes::new(),
        most: BYTES_MAX,
        within: TIMEOUT,
    };
    let response = call::call(uri, tls, get).await?;
    if !response.status().is_success() {
        return Err(format!("it answers {}", response.status()));
    }
    Ok(response.into_body().to_vec())
}

async fn within<T>(get: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    let got = timeout(TIMEOUT, get).await;
    got.unwrap_or_else(|_| Err(format!("no answer within {TIMEOUT:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_members_urls_and_files() {
        for (said, read) in [
            ("http://127.0.0.1:7450", "http://127.0.0.1:7450/.well-known/jwks.json"),
            ("http://a:1/", "http://a:1/.well-known/jwks.json"),
            ("http://a/other?x=y", "http://a/other?x=y"),
        ] {
            let Ok(KeySource::Member(uri)) = KeySource::parse(said, None) else { panic!("{said}") };
            assert_eq!(uri.to_string(), read);
        }
        assert!(matches!(KeySource::parse("/etc/keys.json", None), Ok(KeySource::File(_))));
        for bad in ["ftp://a", "http://u@a:1", "https://u@a:1"] {
            assert!(KeySource::parse(bad, None).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_tls_key_source_needs_a_readable_authority() {
        let why = |tls: Option<&KeySourceTls>| KeySource::parse("https://a:1", tls).err().unwrap();
        assert!(why(None).contains("--tls-ca"));
        let dir = tempfile::tempdir().unwrap();
        let ca = dir.path().join("ca.pem");
        let tls = KeySourceTls { ca: ca.clone(), own: None };
        assert!(why(Some(&tls)).contains("cannot read"));
        fs::write(&ca, "nothing").unwrap();
        assert!(why(Some(&tls)).contains("no certificate"));
    }
}
