//! Reads a JWKS document from its address, within bounds of time and size.

use std::fmt;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, HOST};
use http::uri::{PathAndQuery, Scheme};
use http::{Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::client::conn::http1;
use hyper::rt::{Read, Write};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::jwks::KeySet;

/// How long one attempt may take, from the lookup of the name to the last byte.
const WITHIN: Duration = Duration::from_secs(5);
/// The largest document that is read. Certificates beside the keys make some of them this long.
const BYTES_MAX: usize = 256 * 1024;
/// Where distributions keep the authorities that the machine trusts.
const SYSTEM: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// The authorities that sign the certificates of servers that a member calls: of issuers, and of a collector of traces.
/// The file is read again for every attempt.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum ServerAuthority {
    /// Those that the machine trusts.
    #[default]
    System,
    /// Those in this file, in PEM form.
    File(PathBuf),
}

/// The address of a JWKS document.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct JwksUrl {
    uri: Uri,
    host: String,
    port: u16,
    secured: bool,
}

impl JwksUrl {
    /// Parses an address: `https://`, or `http://` on the same machine. Without encryption any machine on the way could
    /// replace the keys.
    pub(crate) fn parse(text: &str) -> Result<Self, &'static str> {
        let uri: Uri = text.parse().map_err(|_| "this is no URL")?;
        let secured = match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTPS => true,
            Some(scheme) if *scheme == Scheme::HTTP => false,
            _ => return Err("the keys of an issuer are read from https://"),
        };
        if uri.authority().is_none_or(|authority| authority.as_str().contains('@')) {
            return Err("the URL has a user, or no host");
        }
        let host = uri.host().unwrap_or_default();
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let port = uri.port_u16().unwrap_or(if secured { 443 } else { 80 });
        if !secured && host != "localhost" && !is_loopback(&host) {
            return Err("the keys of an issuer are read from https://, or http:// on loopback");
        }
        Ok(Self { uri, host, port, secured })
    }

    /// Reads the keys. Redirects are not followed: they could lead to a host that the operator did not name.
    pub(crate) async fn read(&self, authority: &ServerAuthority) -> Result<KeySet, String> {
        let read = timeout(WITHIN, self.get(authority)).await;
        let bytes = read.unwrap_or_else(|_| Err(format!("no answer within {WITHIN:?}")))?;
        let text = str::from_utf8(&bytes).map_err(|_| "the answer is no text")?;
        KeySet::parse(text).map_err(str::to_owned)
    }

    async fn get(&self, authority: &ServerAuthority) -> Result<Bytes, String> {
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await;
        let stream = stream.map_err(|error| format!("cannot connect: {error}"))?;
        if !self.secured {
            let peer = stream.peer_addr().map_err(|error| error.to_string())?;
            if !peer.ip().is_loopback() {
                return Err("http:// is for loopback only".to_owned());
            }
            return self.ask(TokioIo::new(stream)).await;
        }
        let authority = authority.clone();
        let config = tokio::task::spawn_blocking(move || authority.configure()).await;
        let config = config.map_err(|error| error.to_string())??;
        let name = ServerName::try_from(self.host.clone()).map_err(|error| error.to_string())?;
        let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await;
        let stream = stream.map_err(|error| format!("no TLS connection: {error}"))?;
        self.ask(TokioIo::new(stream)).await
    }

    async fn ask(&self, io: impl Read + Write + Unpin + Send + 'static) -> Result<Bytes, String> {
        let shown = |error: hyper::Error| error.to_string();
        let (mut sender, connection) = http1::handshake(io).await.map_err(shown)?;
        let path = self.uri.path_and_query().map_or("/", PathAndQuery::as_str);
        let host = self.uri.authority().map_or("", |authority| authority.as_str());
        let request = Request::get(path).header(HOST, host).header(ACCEPT, "application/json");
        let request = request.body(Empty::<Bytes>::new()).map_err(|error| error.to_string())?;
        let answer = async {
            let response = sender.send_request(request).await.map_err(shown)?;
            if response.status() != StatusCode::OK {
                return Err(format!("the answer is {}", response.status()));
            }
            let body = Limited::new(response.into_body(), BYTES_MAX).collect().await;
            Ok(body.map_err(|error| error.to_string())?.to_bytes())
        };
        // The connection is driven here and not in a task of its own, so that it ends with the attempt.
        tokio::pin!(connection);
        tokio::pin!(answer);
        tokio::select! {
            answer = &mut answer => answer,
            ended = &mut connection => match ended {
                // The server closed after its answer, which is buffered.
                Ok(()) => answer.await,
                Err(error) => Err(error.to_string()),
            },
        }
    }
}

impl fmt::Display for JwksUrl {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.uri.fmt(to)
    }
}

impl ServerAuthority {
    /// The settings of a TLS connection to such a server. Reads the file.
    pub(crate) fn configure(&self) -> Result<ClientConfig, String> {
        let path = match self {
            Self::File(path) => path.clone(),
            Self::System => SYSTEM.iter().map(PathBuf::from).find(|path| path.is_file()).ok_or(
                "the machine has no file of authorities; name one with issuer_ca, or otlp_ca for traces",
            )?,
        };
        let bytes = fs::read(&path);
        let bytes = bytes.map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        let mut roots = RootCertStore::empty();
        // A bundle of the system may have certificates that the library cannot use.
        roots.add_parsable_certificates(CertificateDer::pem_slice_iter(&bytes).flatten());
        if roots.is_empty() {
            return Err(format!("{} has no authority in PEM form", path.display()));
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|why| why.to_string())?;
        Ok(builder.with_root_certificates(roots).with_no_client_auth())
    }
}

fn is_loopback(host: &str) -> bool {
    host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use rustls::pki_types::PrivateKeyDer;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;
    use crate::credentials::tests::{answer, document, key as key_of};

    #[test]
    fn addresses_are_encrypted_or_on_this_machine() {
        for good in [
            "https://issuer.example/keys",
            "https://issuer.example:8443/keys?x=y",
            "https://10.0.0.1/keys",
            "http://127.0.0.1:8080/keys",
            "http://[::1]:8080/keys",
            "http://localhost/keys",
        ] {
            assert!(JwksUrl::parse(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "issuer.example/keys",
            "/keys",
            "file:///etc/keys",
            "ftp://issuer.example/keys",
            "http://issuer.example/keys",
            "http://10.0.0.1/keys",
            "http://localhost.example/keys",
            "http://127.0.0.1.example/keys",
            "https://user@issuer.example/keys",
            "http://127.0.0.1@issuer.example/keys",
        ] {
            assert!(JwksUrl::parse(bad).is_err(), "{bad}");
        }
    }

    /// Serves a key set over TLS with a certificate for 127.0.0.1 that this authority signed.
    async fn serve_tls(issuer: &rcgen::Issuer<'static, rcgen::KeyPair>) -> u16 {
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        let cert = params.signed_by(&key, issuer).unwrap().der().clone();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![cert], PrivateKeyDer::try_from(key.serialize_der()).unwrap());
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config.unwrap()));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let Ok(mut stream) = acceptor.accept(stream).await else { continue };
                let _ = stream.read(&mut [0; 4_096]).await;
                let _ = stream.write_all(answer(&document(&[key_of(1, "a")])).as_bytes()).await;
                let _ = stream.shutdown().await;
            }
        });
        port
    }

    #[tokio::test]
    async fn only_a_server_that_the_authority_signed_is_believed() {
        let dir = tempfile::tempdir().unwrap();
        let authority = |name: &str| {
            let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
            params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
            params.distinguished_name.push(rcgen::DnType::CommonName, name);
            let key = rcgen::KeyPair::generate().unwrap();
            fs::write(dir.path().join(name), params.self_signed(&key).unwrap().pem()).unwrap();
            (rcgen::Issuer::new(params, key), ServerAuthority::File(dir.path().join(name)))
        };
        let ((issuer, ours), (_, theirs)) = (authority("ours"), authority("theirs"));
        let port = serve_tls(&issuer).await;
        let read = async |host: &str, authority: &ServerAuthority| {
            let url = JwksUrl::parse(&format!("https://{host}:{port}/keys")).unwrap();
            url.read(authority).await.map(drop)
        };
        assert_eq!(read("127.0.0.1", &ours).await, Ok(()));
        for (host, authority) in [("127.0.0.1", &theirs), ("localhost", &ours)] {
            let why = read(host, authority).await.unwrap_err();
            assert!(why.starts_with("no TLS connection"), "{host}: {why}");
        }
        let nowhere = ServerAuthority::File(dir.path().join("nowhere"));
        assert!(read("127.0.0.1", &nowhere).await.unwrap_err().starts_with("cannot read"));
    }
}
