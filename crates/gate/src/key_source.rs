//! Reads a set of keys from one source: a member over HTTP, in plain text or under TLS, or a file.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::HOST;
use http::uri::{PathAndQuery, Scheme};
use http::{Request, Uri};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::client::conn::http1;
use hyper::rt::{Read, Write};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

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
        configure(tls)?;
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

async fn within<T>(get: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    let got = timeout(TIMEOUT, get).await;
    got.unwrap_or_else(|_| Err(format!("no answer within {TIMEOUT:?}")))
}

async fn get(uri: &Uri, tls: Option<&KeySourceTls>) -> Result<Vec<u8>, String> {
    let host = uri.host().unwrap_or_default();
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let port = uri.port_u16().unwrap_or(if tls.is_some() { 443 } else { 80 });
    let stream = TcpStream::connect((host, port)).await;
    let stream = stream.map_err(|_| "no server answers there".to_owned())?;
    let Some(tls) = tls else { return ask(uri, TokioIo::new(stream)).await };
    let name = ServerName::try_from(host.to_owned()).map_err(|error| error.to_string())?;
    let connector = TlsConnector::from(Arc::new(configure(tls)?));
    let stream = connector.connect(name, stream).await;
    let stream = stream.map_err(|error| format!("its certificate is not trusted: {error}"))?;
    ask(uri, TokioIo::new(stream)).await
}

/// Sends one request. It keeps no connection, because requests are rare and runtimes come and go.
async fn ask(uri: &Uri, io: impl Read + Write + Unpin + Send + 'static) -> Result<Vec<u8>, String> {
    let (mut sender, connection) = http1::handshake(io).await.map_err(|error| error.to_string())?;
    let talk = tokio::spawn(connection);
    let answered = async {
        let path = uri.path_and_query().map_or(PATH, PathAndQuery::as_str);
        let to = uri.authority().map_or("", |to| to.as_str());
        let request = Request::get(path).header(HOST, to).body(Empty::<Bytes>::new());
        let request = request.map_err(|error| error.to_string())?;
        let response = sender.send_request(request).await.map_err(|error| error.to_string())?;
        if !response.status().is_success() {
            return Err(format!("it answers {}", response.status()));
        }
        let body = Limited::new(response.into_body(), BYTES_MAX).collect().await;
        Ok(body.map_err(|error| error.to_string())?.to_bytes().to_vec())
    };
    let answered = answered.await;
    talk.abort();
    answered
}

fn configure(tls: &KeySourceTls) -> Result<ClientConfig, String> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(&tls.ca)? {
        let no = |why| format!("{} is no authority: {why}", tls.ca.display());
        roots.add(certificate).map_err(no)?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|why| why.to_string())?
        .with_root_certificates(roots);
    let Some((cert, key)) = &tls.own else { return Ok(builder.with_no_client_auth()) };
    let none = |_| format!("{} holds no private key in PEM form", key.display());
    let private = PrivateKeyDer::from_pem_slice(&read_file(key)?).map_err(none)?;
    let own = builder.with_client_auth_cert(certificates(cert)?, private);
    own.map_err(|why| format!("{} and its key: {why}", cert.display()))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let bytes = read_file(path)?;
    let found = CertificateDer::pem_slice_iter(&bytes).collect::<Result<Vec<_>, _>>();
    let found = found.unwrap_or_default();
    if found.is_empty() {
        return Err(format!("{} holds no certificate in PEM form", path.display()));
    }
    Ok(found)
}

fn read_file(path: &Path) -> Result<Vec<u8>, String> {
    fs::read(path).map_err(|error| format!("cannot read {}: {error}", path.display()))
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
