//! Tests that the client port admits clients by their certificates, and that refused clients disturb no other.

use crate::alone;
use std::fs;
use std::future::Future;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::alone::Alone;
use crate::authority::{Authority, CertificateFiles};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tenure_server::tls::{DialTrust, Dialled, ServerTls, ServerTlsFiles};
use tenure_server::{ServerSettings, os};
use tenure_wire::v1;
use tenure_wire::v1::lock_service_client::LockServiceClient;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::transport::{Channel, Endpoint};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

const DEADLINE: Duration = Duration::from_secs(60);
/// A request that every client may make where no certificates are required.
const HEALTH: &str = "GET /healthz HTTP/1.1\r\nHost: m0\r\n\r\n";

/// A single member on an address that other machines reach, for clients with certificates.
struct Guarded {
    member: Alone,
    cert_files: CertificateFiles,
    theirs: CertificateFiles,
}

impl Guarded {
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let cert_files = Authority::new(dir.path(), "ours").sign("m0");
        let theirs = Authority::new(dir.path(), "clients").sign("somebody");
        let files = ServerTlsFiles {
            cert: cert_files.cert.clone(),
            key: cert_files.key.clone(),
            client_ca: Some(theirs.ca.clone()),
            member_ca: None,
        };
        let settings = ServerSettings {
            clients: "0.0.0.0:0".into(),
            hosts: vec!["m0".into()],
            tls: Some(Arc::new(ServerTls::load(files).unwrap())),
            ..alone::settings(dir.path())
        };
        // No --insecure is needed under TLS.
        Self { member: Alone::run(dir, settings), cert_files, theirs }
    }

    fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.member.running.clients.port()).into()
    }

    fn connector(&self, shown: Option<&CertificateFiles>, alpn: &[u8]) -> TlsConnector {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(&self.cert_files.ca).unwrap()).unwrap();
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match shown {
            None => builder.with_no_client_auth(),
            Some(cert_files) => {
                let cert = CertificateDer::from_pem_file(&cert_files.cert).unwrap();
                let key = PrivateKeyDer::from_pem_file(&cert_files.key).unwrap();
                builder.with_client_auth_cert(vec![cert], key).unwrap()
            }
        };
        config.alpn_protocols = vec![alpn.to_vec()];
        TlsConnector::from(Arc::new(config))
    }

    async fn dial(
        &self,
        shown: Option<&CertificateFiles>,
        alpn: &[u8],
    ) -> std::io::Result<TlsStream<TcpStream>> {
        Dial { to: self.address(), with: self.connector(shown, alpn) }.dial().await
    }

    async fn grpc(
        &self,
        shown: Option<&CertificateFiles>,
    ) -> Result<Channel, tonic::transport::Error> {
        let dial = Dial { to: self.address(), with: self.connector(shown, b"h2") };
        Endpoint::from_static("http://m0").connect_with_connector(dial).await
    }

    /// The start of the response to a health check.
    async fn http(&self, shown: Option<&CertificateFiles>) -> Option<String> {
        self.response_start(shown, HEALTH).await
    }

    /// The start of the response to an HTTP/1.1 request; none if the client is not admitted.
    async fn response_start(
        &self,
        shown: Option<&CertificateFiles>,
        request: &str,
    ) -> Option<String> {
        let mut stream = self.dial(shown, b"http/1.1").await.ok()?;
        stream.write_all(request.as_bytes()).await.ok()?;
        let mut said = [0; 15];
        stream.read_exact(&mut said).await.ok()?;
        Some(String::from_utf8_lossy(&said).into_owned())
    }
}

/// Connects under TLS.
#[derive(Clone)]
struct Dial {
    to: SocketAddr,
    with: TlsConnector,
}

impl Dial {
    async fn dial(self) -> std::io::Result<TlsStream<TcpStream>> {
        let stream = TcpStream::connect(self.to).await?;
        self.with.connect(ServerName::try_from("m0").unwrap(), stream).await
    }
}

impl tower::Service<http::Uri> for Dial {
    type Response = TokioIo<TlsStream<TcpStream>>;
    type Error = std::io::Error;
    type Future = Pin<Box<dyn Future<Output = std::io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: http::Uri) -> Self::Future {
        let dial = self.clone();
        Box::pin(async move { dial.dial().await.map(TokioIo::new) })
    }
}

/// Grants a lease, then acquires and releases a lock.
async fn cycle(channel: &Channel, lock: &str) -> Result<(), tonic::Status> {
    let mut client = LockServiceClient::new(channel.clone());
    let grant = v1::LeaseGrantRequest { ttl: 60, client_id: "c".into(), ..Default::default() };
    let lease_id = client.lease_grant(grant).await?.into_inner().id;
    let ask = v1::TryLockRequest { name: lock.into(), lease_id, ..Default::default() };
    let token = client.try_lock(ask).await?.into_inner().fencing_token;
    let unlock = v1::UnlockRequest { name: lock.into(), lease_id, token };
    client.unlock(unlock).await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_api_accepts_clients_with_a_certificate_and_no_others() {
    let member = Guarded::start();
    let channel = member.grpc(Some(&member.theirs)).await.unwrap();
    cycle(&channel, "a").await.unwrap();
    assert_eq!(member.http(Some(&member.theirs)).await.as_deref(), Some("HTTP/1.1 200 OK"));
    // A client without a certificate gets an error that names the problem; one with another certificate fails the
    // handshake.
    assert_eq!(member.http(None).await.as_deref(), Some("HTTP/1.1 401 Un"));
    let anonymous = member.grpc(None).await.unwrap();
    let unknown = cycle(&anonymous, "b").await.unwrap_err();
    assert_eq!(unknown.code(), tonic::Code::Unauthenticated);
    // The same holds for requests that concern no lock, and for one that would become a WebSocket.
    let ask = HealthCheckRequest { service: String::new() };
    HealthClient::new(channel.clone()).check(ask.clone()).await.unwrap();
    let unknown = HealthClient::new(anonymous).check(ask).await.unwrap_err();
    assert_eq!(unknown.code(), tonic::Code::Unauthenticated);
    let upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                   Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    for (path, headers, served) in [
        ("/metrics", "", "HTTP/1.1 200 OK"),
        ("/.well-known/jwks.json", "", "HTTP/1.1 200 OK"),
        ("/v1/ws", upgrade, "HTTP/1.1 101 Sw"),
        ("/v1/lock-socket", upgrade, "HTTP/1.1 101 Sw"),
    ] {
        let request = format!("GET {path} HTTP/1.1\r\nHost: m0\r\n{headers}\r\n");
        let said = member.response_start(Some(&member.theirs), &request).await;
        assert_eq!(said.as_deref(), Some(served), "{path}");
        let said = member.response_start(None, &request).await;
        assert_eq!(said.as_deref(), Some("HTTP/1.1 401 Un"), "{path}");
    }
    let stranger = Some(&member.cert_files);
    assert_eq!(member.http(stranger).await, None);
    // Under TLS 1.3 a client learns after its own handshake that it was refused.
    let refused = match member.grpc(stranger).await {
        Err(_) => true,
        Ok(channel) => cycle(&channel, "b").await.is_err(),
    };
    assert!(refused);
    // The blocking client is admitted and refused in the same way.
    let dialled = |own| {
        let trust = DialTrust::load(&member.cert_files.ca, own).unwrap();
        let mut stream = Dialled::dial(&member.address().to_string(), Some(&trust), DEADLINE)?;
        let host = member.address();
        stream.write_all(format!("GET /healthz HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes())?;
        let mut said = [0; 12];
        stream.read_exact(&mut said).map(|()| said)
    };
    let own = (&*member.theirs.cert, &*member.theirs.key);
    assert_eq!(dialled(Some(own)).unwrap(), *b"HTTP/1.1 200");
    assert_eq!(dialled(None).unwrap(), *b"HTTP/1.1 401");
    cycle(&channel, "c").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_speak_in_plain_or_stop_half_way_are_cut_off_and_disturb_no_other() {
    let member = Guarded::start();
    let channel = member.grpc(Some(&member.theirs)).await.unwrap();
    for plain in [HEALTH.as_bytes(), b"status\n", b"PRI * HTTP/2.0\r\n"] {
        let mut stream = TcpStream::connect(member.address()).await.unwrap();
        stream.write_all(plain).await.unwrap();
        let mut said = Vec::new();
        let _ = tokio::time::timeout(DEADLINE, stream.read_to_end(&mut said)).await.unwrap();
        // It is told what is wrong, in the protocol that it speaks.
        let http2 = plain.starts_with(b"PRI");
        assert_eq!(said.starts_with(b"HTTP/1.1 400 "), !http2, "{said:?}");
        let said = String::from_utf8_lossy(&said).into_owned();
        assert!(said.contains("this port accepts only TLS"), "{said:?}");
    }
    let plain = Endpoint::from_shared(format!("http://{}", member.address())).unwrap();
    let mut told = String::new();
    // The client may notice that the connection is closed before it has read the reason.
    for _ in 0..20 {
        told = match plain.connect().await {
            Err(error) => format!("{error:?}"),
            Ok(channel) => format!("{:?}", cycle(&channel, "plain").await.unwrap_err()),
        };
        if told.contains("this port accepts only TLS") {
            break;
        }
    }
    assert!(told.contains("this port accepts only TLS"), "{told}");
    // The beginning of a handshake and nothing after it, or nothing at all.
    let began_us = os::now_us();
    let mut halves = Vec::new();
    for at in 0..500 {
        let mut stream = TcpStream::connect(member.address()).await.unwrap();
        if at % 2 == 0 {
            stream.write_all(b"\x16\x03\x01\x02\x00\x01").await.unwrap();
        }
        halves.push(stream);
    }
    for at in 0..50 {
        cycle(&channel, &format!("meanwhile/{at}")).await.unwrap();
    }
    for mut stream in halves {
        let mut said = Vec::new();
        let _ = tokio::time::timeout(DEADLINE, stream.read_to_end(&mut said)).await.unwrap();
    }
    let took_us = os::now_us() - began_us;
    assert!(took_us >= 4_000_000, "they had their five seconds: {took_us}");
    cycle(&channel, "after").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn who_shows_no_certificate_is_told_so_and_does_not_stay() {
    let member = Guarded::start();
    let began_us = os::now_us();
    let mut asking = member.dial(None, b"http/1.1").await.unwrap();
    let asks = async {
        let mut said = [0; 4096];
        while asking.write_all(HEALTH.as_bytes()).await.is_ok()
            && asking.read(&mut said).await.is_ok_and(|bytes| bytes > 0)
        {
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    };
    let mut sitting = member.dial(None, b"h2").await.unwrap();
    let sits = async {
        // The preface of an HTTP/2 client, and its settings.
        let begins = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
        sitting.write_all(begins).await.unwrap();
        // The member cuts it off: the read returns an end or an error.
        let _ = sitting.read_to_end(&mut Vec::new()).await;
    };
    tokio::time::timeout(DEADLINE, async { tokio::join!(asks, sits) }).await.unwrap();
    let took_us = os::now_us() - began_us;
    // Sooner than the HTTP/2 keep-alive would have ended it.
    assert!((9_000_000..25_000_000).contains(&took_us), "{took_us}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_certificate_is_shown_to_the_next_client() {
    let member = Guarded::start();
    let channel = member.grpc(Some(&member.theirs)).await.unwrap();
    cycle(&channel, "before").await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let new = Authority::new(dir.path(), "new").sign("m0");
    fs::copy(&new.key, &member.cert_files.key).unwrap();
    fs::copy(&new.cert, &member.cert_files.cert).unwrap();
    assert_eq!(member.http(Some(&member.theirs)).await, None, "the old authority is not enough");
    fs::copy(&new.ca, &member.cert_files.ca).unwrap();
    assert_eq!(member.http(Some(&member.theirs)).await.as_deref(), Some("HTTP/1.1 200 OK"));
    cycle(&channel, "who is inside stays inside").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_with_tls_at_a_port_without_it_gets_an_alert() {
    let guarded = Guarded::start();
    let dir = tempfile::tempdir().unwrap();
    let settings = alone::settings(dir.path());
    let open = Alone::run(dir, settings);
    let dial = Dial { to: open.running.clients, with: guarded.connector(None, b"h2") };
    let refused = tokio::time::timeout(DEADLINE, dial.dial()).await.unwrap().unwrap_err();
    assert!(refused.to_string().contains("alert: HandshakeFailure"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_certificate_of_a_client_is_counted() {
    let member = Guarded::start();
    assert_eq!(member.http(Some(&member.cert_files)).await, None);
    let ask = "GET /metrics HTTP/1.1\r\nHost: m0\r\nConnection: close\r\n\r\n";
    let mut stream = member.dial(Some(&member.theirs), b"http/1.1").await.unwrap();
    stream.write_all(ask.as_bytes()).await.unwrap();
    let mut said = Vec::new();
    let _ = tokio::time::timeout(DEADLINE, stream.read_to_end(&mut said)).await.unwrap();
    let said = String::from_utf8_lossy(&said).into_owned();
    let counted = "tenure_refusals_total{reason=\"UNAUTHENTICATED\",api=\"http\"} 1";
    assert!(said.contains(counted), "{said}");
}

#[test]
fn a_certificate_that_is_not_valid_now_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    for (from, until, refused) in [
        (1990, 2000, Some("has expired")),
        (2000, 4000, None),
        (3900, 4000, Some("is not valid yet")),
    ] {
        let mut params = rcgen::CertificateParams::new(vec!["m0".to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(from, 1, 1);
        params.not_after = rcgen::date_time_ymd(until, 1, 1);
        let key = rcgen::KeyPair::generate().unwrap();
        let cert = params.self_signed(&key).unwrap();
        let (cert_path, key_path) = (dir.path().join("cert.pem"), dir.path().join("key.pem"));
        fs::write(&cert_path, cert.pem()).unwrap();
        fs::write(&key_path, key.serialize_pem()).unwrap();
        let files =
            ServerTlsFiles { cert: cert_path, key: key_path, client_ca: None, member_ca: None };
        let loaded = ServerTls::load(files).map(drop).map_err(|error| error.to_string());
        match refused {
            None => loaded.unwrap(),
            Some(why) => assert!(loaded.unwrap_err().ends_with(why), "{why}"),
        }
    }
}
