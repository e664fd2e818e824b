//! Reads from addresses and settings whether sessions use TLS.

use std::path::PathBuf;

#[cfg(feature = "tls")]
pub(crate) use crate::trust::{TlsTrust, is_refused};

/// The paths of the certificate files.
#[derive(Clone, Debug, Default)]
pub(crate) struct TlsFiles {
    /// The authority that signs the members' certificates. Without it, sessions are in plain text.
    pub(crate) ca: Option<PathBuf>,
    /// The client's own certificate and its private key.
    pub(crate) identity: Option<(PathBuf, PathBuf)>,
}

/// Without the feature `tls` there is none.
#[cfg(not(feature = "tls"))]
pub(crate) enum TlsTrust {}

#[cfg(not(feature = "tls"))]
impl TlsTrust {
    pub(crate) fn load(files: &TlsFiles) -> Result<Option<Self>, String> {
        match (&files.ca, &files.identity) {
            (None, None) => Ok(None),
            _ => Err("certificates need the feature `tls` of the crate `tenure`".to_owned()),
        }
    }

    pub(crate) fn connect(
        &self,
        _: tonic::transport::Endpoint,
        _: &str,
    ) -> std::future::Ready<Result<tonic::transport::Channel, tonic::transport::Error>> {
        match *self {}
    }
}

/// Without the feature `tls` no peer refuses it.
#[cfg(not(feature = "tls"))]
pub(crate) fn is_refused(_: &(dyn std::error::Error + 'static)) -> bool {
    false
}

/// Splits an address from its scheme, and returns whether the scheme requires TLS.
pub(crate) fn split(address: &str) -> (&str, Option<bool>) {
    let (rest, tls) = match address.split_once("://") {
        Some(("https", rest)) => (rest, Some(true)),
        Some(("http", rest)) => (rest, Some(false)),
        _ => (address, None),
    };
    (rest.trim_end_matches('/'), tls)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_may_say_how_it_is_spoken_to() {
        assert_eq!(split("https://a:7450/"), ("a:7450", Some(true)));
        assert_eq!(split("http://a:7450"), ("a:7450", Some(false)));
        assert_eq!(split("[::1]:7450"), ("[::1]:7450", None));
    }
}
