//! Tests what the store and the proxy demand where strangers reach them: TLS, tickets, readers' tokens, host names.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use tenure_fence::http::Reads;
use tenure_gate::{ServeTls, StartError, proxy, store};

use crate::calls::{Connection, call};
use crate::upstream::Upstream;

/// An authority, and certificates that it signs, as files.
struct Authority {
    dir: PathBuf,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new(dir: &Path) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        std::fs::write(dir.join("ca.pem"), params.self_signed(&key).unwrap().pem()).unwrap();
        Self { dir: dir.to_owned(), issuer: Issuer::new(params, key) }
    }

    fn sign(&self, name: &str) -> (PathBuf, PathBuf) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let signed = params.signed_by(&key, &self.issuer).unwrap();
        let files = (self.dir.join(format!("{name}.pem")), self.dir.join(format!("{name}.key")));
        std::fs::write(&files.0, signed.pem()).unwrap();
        std::fs::write(&files.1, key.serialize_pem()).unwrap();
        files
    }

    fn ca(&self) -> PathBuf {
        self.dir.join("ca.pem")
    }

    /// Sends a request over TLS, and returns the first line of the answer.
    fn get(&self, to: SocketAddr, own: Option<&(PathBuf, PathBuf)>) -> std::io::Result<String> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(self.ca()).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let config = match own {
            None => config.with_no_client_auth(),
            Some((cert, key)) => {
                let chain = vec![CertificateDer::from_pem_file(cert).unwrap()];
                config
                    .with_client_auth_cert(chain, PrivateKeyDer::from_pem_file(key).unwrap())
                    .unwrap()
            }
        };
        let name = ServerName::try_from("localhost").unwrap();
        let connection = ClientConnection::new(Arc::new(config), name).unwrap();
        let mut stream = StreamOwned::new(connection, TcpStream::connect(to)?);
        stream
            .write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer.lines().next().unwrap_or_default().to_owned())
    }
}

#[test]
fn a_store_and_a_proxy_serve_tls_and_refuse_clients_without_the_certificate_they_demand() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new(dir.path());
    let (cert, key) = authority.sign("localhost");
    let client = authority.sign("client");
    let upstream = Upstream::start();
    for client_ca in [None, Some(authority.ca())] {
        let tls = ServeTls { cert: cert.clone(), key: key.clone(), client_ca: client_ca.clone() };
        let store = crate::store::started(dir.path(), |it| it.tls = Some(tls.clone()));
        let proxy = crate::proxy::started(dir.path(), upstream.address, |it| {
            it.tls = Some(tls.clone());
            it.reads = Reads::Open;
        });
        for to in [store.address, proxy.address] {
            assert!(authority.get(to, Some(&client)).unwrap().starts_with("HTTP/1.1 200"));
            assert_eq!(authority.get(to, None).is_ok(), client_ca.is_none(), "{client_ca:?}");
            let mut plain = Connection::open(to).unwrap();
            assert!(plain.call("GET", "/healthz", &[], b"").is_err(), "plain text is not answered");
        }
    }
}

#[test]
fn a_certificate_that_is_replaced_is_used_from_the_next_connection_on() {
    let dir = tempfile::tempdir().unwrap();
    let (old, new) = (dir.path().join("old"), dir.path().join("new"));
    for dir in [&old, &new] {
        std::fs::create_dir(dir).unwrap();
    }
    let (old, new) = (Authority::new(&old), Authority::new(&new));
    let (cert, key) = old.sign("localhost");
    let tls = ServeTls { cert: cert.clone(), key: key.clone(), client_ca: None };
    let store = crate::store::started(dir.path(), |it| it.tls = Some(tls.clone()));
    assert!(old.get(store.address, None).is_ok() && new.get(store.address, None).is_err());
    let (newer_cert, newer_key) = new.sign("localhost");
    std::fs::rename(newer_key, key).unwrap();
    std::fs::rename(newer_cert, &cert).unwrap();
    assert!(new.get(store.address, None).is_ok() && old.get(store.address, None).is_err());
    // What cannot be read does not replace it.
    std::fs::write(&cert, "no certificate").unwrap();
    assert!(new.get(store.address, None).is_ok());
}

#[test]
fn beyond_loopback_bare_tokens_are_believed_only_if_the_operator_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let everywhere: SocketAddr = "0.0.0.0:0".parse().unwrap();
    let plain = || store::Settings { listen: everywhere, ..crate::store::settings(dir.path()) };
    assert!(matches!(store::start(plain()), Err(StartError::NotLoopback(_))));
    let insecure = store::start(store::Settings { insecure: true, ..plain() });
    assert!(matches!(insecure, Err(StartError::BareTokens(_))), "{insecure:?}");
    let proxied = |bare_tokens| {
        let settings =
            proxy::Settings::new("http://127.0.0.1:1", "ledger", dir.path().join("fence"));
        proxy::start(proxy::Settings {
            listen: everywhere,
            insecure: true,
            bare_tokens,
            ..settings
        })
    };
    assert!(matches!(proxied(false), Err(StartError::BareTokens(_))));
    assert!(proxied(true).is_ok());
    store::start(store::Settings { insecure: true, bare_tokens: true, ..plain() }).unwrap().stop();
}

#[test]
fn readers_show_a_token_where_the_store_has_a_list() {
    let dir = tempfile::tempdir().unwrap();
    let (file, good) = (dir.path().join("readers"), "0123456789abcdef0123456789abcdef");
    std::fs::write(&file, good).unwrap();
    let store = crate::store::started(dir.path(), |it| it.readers = Some(file.clone()));
    let put = call(store.address, "PUT", "/v1/data/k?lock=l", Some(1), "secret");
    assert_eq!(put.status, 200, "writers show their token of the lock");
    let bearer = format!("Bearer {good}");
    let get = |path: &str, headers: &[(&str, &str)]| {
        Connection::open(store.address).unwrap().call("GET", path, headers, b"").unwrap()
    };
    for path in ["/v1/data/k", "/v1/data", "/v1/floors/l", "/metrics"] {
        assert_eq!(get(path, &[]).refusal(), (401, "UNAUTHENTICATED"), "{path}");
        assert_eq!(get(path, &[("authorization", "Bearer x")]).refusal(), (401, "UNAUTHENTICATED"));
        assert_eq!(get(path, &[("authorization", &bearer)]).status, 200, "{path}");
    }
    // A bare token is a number that anyone can send: it does not open the data.
    let fenced = get("/v1/data/k?lock=l", &[("fencing-token", "2")]);
    assert_eq!(fenced.refusal(), (401, "UNAUTHENTICATED"));
    assert_eq!(get("/healthz", &[]).status, 200);
}

#[test]
fn a_name_that_a_web_page_points_at_the_proxy_does_not_reach_the_service() {
    let (dir, upstream) = (tempfile::tempdir().unwrap(), Upstream::start());
    let proxy = crate::proxy::started(dir.path(), upstream.address, |it| {
        it.reads = Reads::Open;
        it.hosts = vec!["ledger.internal".to_owned()];
    });
    let get = |headers: &[(&str, &str)]| {
        Connection::open(proxy.address).unwrap().call("GET", "/text", headers, b"").unwrap()
    };
    assert_eq!(get(&[("host", "evil.example")]).refusal(), (403, "HOST_NOT_ALLOWED"));
    assert!(upstream.heads().is_empty(), "the service sees its own name, and would have answered");
    assert_eq!(get(&[("host", "ledger.internal:8001")]).status, 200);
    // The service judges origins itself; it is not told of a principal by anyone but the proxy.
    let forged = [("origin", "http://app.example"), ("tenure-principal", "admin")];
    assert_eq!(get(&forged).status, 200);
    let head = upstream.heads().pop().unwrap();
    assert!(
        head.contains("origin: http://app.example") && !head.contains("tenure-principal"),
        "{head}"
    );
}
