//! Holds the client's credentials and sends them with every call.
//!
//! An API key stays as it was given. A token is read from its file again when the file changes, because those who issue
//! short-lived tokens replace the file (as Kubernetes does with projected service account tokens).

use std::fmt;
use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Channel;
use tonic::{Request, Status};

/// The metadata key of the credentials.
const AUTHORIZATION: &str = "authorization";
/// The most bytes of a token. Members refuse longer headers.
const TOKEN_MAX: usize = 8 * 1024;

/// A channel to a member that sends the client's credentials with every call.
#[doc(hidden)]
pub type MemberChannel = InterceptedService<Channel, Credentials>;

/// What the client proves its identity with, and where it may send it. Cheap to clone. Its debug output contains no
/// secret.
#[doc(hidden)]
#[derive(Clone, Default)]
pub struct Credentials {
    source: Option<Arc<CredentialSource>>,
    /// Whether they are sent to members on other machines without TLS.
    insecure: bool,
}

enum CredentialSource {
    ApiKey(MetadataValue<Ascii>),
    TokenFile { path: PathBuf, read: Mutex<Option<ReadToken>> },
}

/// A token as it was read, and what the file was then.
struct ReadToken {
    stamp: (SystemTime, u64),
    value: MetadataValue<Ascii>,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.source.as_deref() {
            None => f.write_str("none"),
            Some(CredentialSource::ApiKey(_)) => f.write_str("an API key"),
            Some(CredentialSource::TokenFile { path, .. }) => {
                write!(f, "the token in {}", path.display())
            }
        }
    }
}

impl Credentials {
    /// An API key. Returns what is wrong with its form, without the key.
    ///
    /// ```
    /// let key = format!("tenure_{}_{}", "01".repeat(8), "ab".repeat(32));
    /// let credentials = tenure::Credentials::api_key(&key).unwrap();
    /// assert_eq!(format!("{credentials:?}"), "an API key");
    /// assert!(tenure::Credentials::api_key("secret").is_err());
    /// ```
    pub fn api_key(key: &str) -> Result<Self, &'static str> {
        let key = key.trim();
        let hex = |text: &str, len: usize| {
            text.len() == len && text.bytes().all(|it| matches!(it, b'0'..=b'9' | b'a'..=b'f'))
        };
        let parts = key.strip_prefix("tenure_").and_then(|rest| rest.split_once('_'));
        if !parts.is_some_and(|(id, secret)| hex(id, 16) && hex(secret, 64)) {
            return Err(
                "it is no API key: those are `tenure_`, 16 hexadecimal digits, `_` and 64 more",
            );
        }
        let value = bearer(key).ok_or("it is no API key")?;
        Ok(Self { source: Some(Arc::new(CredentialSource::ApiKey(value))), insecure: false })
    }

    /// A bearer token in a file, which is read again when it changes.
    ///
    /// ```
    /// let credentials = tenure::Credentials::token_file("/run/secrets/token");
    /// assert_eq!(format!("{credentials:?}"), "the token in /run/secrets/token");
    /// ```
    pub fn token_file(path: impl Into<PathBuf>) -> Self {
        let source = CredentialSource::TokenFile { path: path.into(), read: Mutex::default() };
        Self { source: Some(Arc::new(source)), insecure: false }
    }

    /// The same credentials, sent in plain text to other machines too.
    #[doc(hidden)]
    #[must_use]
    pub fn insecure(mut self, insecure: bool) -> Self {
        self.insecure = insecure;
        self
    }

    /// Whether they are sent in plain text to other machines.
    #[doc(hidden)]
    pub fn is_insecure(&self) -> bool {
        self.insecure
    }

    /// Whether they may be sent to an address: under TLS, on this machine, or if the user said so.
    #[doc(hidden)]
    pub fn may_go_to(&self, address: &str, tls: bool) -> Result<(), String> {
        if self.source.is_none() || tls || self.insecure || is_loopback(address) {
            return Ok(());
        }
        Err(format!(
            "credentials are not sent to {address} in plain text: use TLS (TENURE_CA), or say --insecure-credentials"
        ))
    }

    /// A channel that sends them.
    #[doc(hidden)]
    pub fn over(&self, channel: Channel) -> MemberChannel {
        InterceptedService::new(channel, self.clone())
    }

    /// The value of the header `authorization`, if there are credentials.
    #[doc(hidden)]
    pub fn authorization(&self) -> Result<Option<MetadataValue<Ascii>>, String> {
        match self.source.as_deref() {
            None => Ok(None),
            Some(CredentialSource::ApiKey(value)) => Ok(Some(value.clone())),
            Some(CredentialSource::TokenFile { path, read }) => newest(path, read).map(Some),
        }
    }
}

impl Interceptor for Credentials {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(value) = self.authorization().map_err(Status::unauthenticated)? {
            request.metadata_mut().insert(AUTHORIZATION, value);
        }
        Ok(request)
    }
}

/// The token in a file. Looking whether the file changed costs one system call.
fn newest(path: &Path, read: &Mutex<Option<ReadToken>>) -> Result<MetadataValue<Ascii>, String> {
    let failed = |error: io::Error| format!("cannot read the token in {}: {error}", path.display());
    let about = fs::metadata(path).map_err(failed)?;
    let stamp = (about.modified().map_err(failed)?, about.len());
    let mut read = read.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = read.as_ref().filter(|known| known.stamp == stamp) {
        return Ok(known.value.clone());
    }
    let text = fs::read_to_string(path).map_err(failed)?;
    let token = text.trim();
    let value = (!token.is_empty() && token.len() <= TOKEN_MAX).then(|| bearer(token)).flatten();
    let value = value.ok_or_else(|| format!("there is no token in {}", path.display()))?;
    *read = Some(ReadToken { stamp, value: value.clone() });
    Ok(value)
}

fn bearer(secret: &str) -> Option<MetadataValue<Ascii>> {
    let plain = secret.bytes().all(|it| it.is_ascii_graphic());
    let mut value: MetadataValue<Ascii> =
        format!("Bearer {secret}").parse().ok().filter(|_| plain)?;
    // Keeps it out of the compression table of HTTP/2, and out of debug output.
    value.set_sensitive(true);
    Some(value)
}

/// Whether `host:port` is on this machine for certain.
fn is_loopback(address: &str) -> bool {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(credentials: &Credentials) -> Option<String> {
        let request = credentials.clone().call(Request::new(())).unwrap();
        let value = request.metadata().get(AUTHORIZATION)?;
        assert!(value.is_sensitive());
        Some(value.to_str().unwrap().to_owned())
    }

    #[test]
    fn an_api_key_has_one_form_and_its_error_does_not_show_it() {
        let key = format!("tenure_{}_{}", "0".repeat(16), "a".repeat(64));
        let credentials = Credentials::api_key(&format!("{key}\n")).unwrap();
        assert_eq!(sent(&credentials), Some(format!("Bearer {key}")));
        assert_eq!(format!("{credentials:?}"), "an API key");
        assert_eq!(sent(&Credentials::default()), None);
        for bad in ["", "tenure_1_2", &key.to_uppercase(), &key[1..], &format!("{key}a")] {
            assert!(Credentials::api_key(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_token_is_read_again_when_its_file_changes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        let credentials = Credentials::token_file(&path);
        let missing = credentials.clone().call(Request::new(())).unwrap_err();
        assert!(missing.message().contains("token"), "{missing}");
        fs::write(&path, "a.b.c\n").unwrap();
        assert_eq!(sent(&credentials).as_deref(), Some("Bearer a.b.c"));
        fs::write(&path, "longer.b.c\n").unwrap();
        assert_eq!(sent(&credentials).as_deref(), Some("Bearer longer.b.c"));
        fs::write(&path, "two words").unwrap();
        assert!(credentials.clone().call(Request::new(())).is_err());
    }

    #[test]
    fn credentials_leave_the_machine_only_under_tls_or_if_the_user_says_so() {
        let token = Credentials::token_file("t");
        for here in ["127.0.0.1:7450", "localhost:7450", "[::1]:7450"] {
            assert!(token.may_go_to(here, false).is_ok(), "{here}");
        }
        assert!(token.may_go_to("10.0.0.1:7450", false).is_err());
        assert!(token.may_go_to("10.0.0.1:7450", true).is_ok());
        assert!(token.clone().insecure(true).may_go_to("10.0.0.1:7450", false).is_ok());
        assert!(Credentials::default().may_go_to("10.0.0.1:7450", false).is_ok());
    }
}
