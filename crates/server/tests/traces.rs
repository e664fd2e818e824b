//! Tests the traces of requests: which trace each request belongs to, its steps, and a collector that does not answer.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use crate::alone::{Alone, settings};
use crate::authority::{Authority, CertificateFiles};
use crate::bounded::wait;
use crate::client::Client;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::json;
use tenure_server::{ServerAuthority, ServerSettings, TraceSettings, os};
use tenure_wire::v1;
use tenure_wire::v1::lock_service_client::LockServiceClient;
use tenure_wire::v1::session_service_client::SessionServiceClient;
use tokio::runtime::Runtime;
use tonic::body::Body;
use tonic::server::{Grpc, NamedService, UnaryService};
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;
use tower::Service;

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const UNSAMPLED: &str = "00-1af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";

/// The messages of OTLP, as far as the tests read them. They are declared apart from those of the server, so that a
/// wrong field number does not go unnoticed.
mod otlp {
    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct Export {
        #[prost(message, repeated, tag = "1")]
        pub(crate) resources: Vec<Resources>,
    }
    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct Exported {}
    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct Resources {
        #[prost(message, repeated, tag = "2")]
        pub(crate) scopes: Vec<Scopes>,
    }
    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct Scopes {
        #[prost(message, repeated, tag = "2")]
        pub(crate) spans: Vec<Span>,
    }
    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct Span {
        #[prost(bytes = "vec", tag = "1")]
        pub(crate) trace_id: Vec<u8>,
        #[prost(bytes = "vec", tag = "4")]
        pub(crate) parent_span_id: Vec<u8>,
        #[prost(string, tag = "5")]
        pub(crate) name: String,
        #[prost(fixed64, tag = "7")]
        pub(crate) start_ns: u64,
        #[prost(fixed64, tag = "8")]
        pub(crate) end_ns: u64,
        #[prost(message, repeated, tag = "9")]
        pub(crate) attributes: Vec<Attribute>,
        #[prost(message, repeated, tag = "11")]
        pub(crate) events: Vec<Event>,
    }
    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct Event {
        #[prost(fixed64, tag = "1")]
        pub(crate) at_ns: u64,
        #[prost(string, tag = "2")]
        pub(crate) name: String,
    }
    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct Attribute {
        #[prost(string, tag = "1")]
        pub(crate) key: String,
        #[prost(message, optional, tag = "2")]
        pub(crate) value: Option<Value>,
    }
    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct Value {
        #[prost(string, tag = "1")]
        pub(crate) text: String,
    }
}

impl otlp::Span {
    fn trace(&self) -> String {
        self.trace_id.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn attribute(&self, key: &str) -> Option<&str> {
        let attribute = self.attributes.iter().find(|it| it.key == key)?;
        Some(&attribute.value.as_ref()?.text)
    }

    fn steps(&self) -> Vec<&str> {
        self.events.iter().map(|event| event.name.as_str()).collect()
    }
}

/// A collector on loopback, which keeps the spans that it gets.
#[derive(Clone, Default)]
struct Collector {
    spans: Arc<Mutex<Vec<otlp::Span>>>,
}

impl NamedService for Collector {
    const NAME: &'static str = "opentelemetry.proto.collector.trace.v1.TraceService";
}

impl UnaryService<otlp::Export> for Collector {
    type Response = otlp::Exported;
    type Future = std::future::Ready<Result<Response<otlp::Exported>, Status>>;

    fn call(&mut self, request: Request<otlp::Export>) -> Self::Future {
        let resources = request.into_inner().resources.into_iter();
        let spans = resources.flat_map(|it| it.scopes).flat_map(|it| it.spans);
        self.spans.lock().unwrap().extend(spans);
        std::future::ready(Ok(Response::new(otlp::Exported {})))
    }
}

impl Service<http::Request<Body>> for Collector {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let collector = self.clone();
        assert!(request.uri().path().ends_with("/Export"), "{}", request.uri());
        Box::pin(async move {
            let mut grpc = Grpc::new(ProstCodec::<otlp::Exported, otlp::Export>::default());
            Ok(grpc.unary(collector, request).await)
        })
    }
}

impl Collector {
    /// Starts it, and returns its address.
    fn start(&self, runtime: &Runtime) -> SocketAddr {
        let _inside = runtime.enter();
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let at = port.local_addr().unwrap();
        port.set_nonblocking(true).unwrap();
        let port = tokio::net::TcpListener::from_std(port).unwrap();
        let incoming = tokio_stream::wrappers::TcpListenerStream::new(port);
        let serving = tonic::transport::Server::builder()
            .add_service(self.clone())
            .serve_with_incoming(incoming);
        runtime.spawn(serving);
        at
    }

    /// The first span for which this holds.
    fn find(&self, what: &str, is: impl Fn(&otlp::Span) -> bool) -> otlp::Span {
        wait(what, || self.spans.lock().unwrap().iter().find(|span| is(span)).cloned())
    }
}

fn member(collector: SocketAddr, ratio: f64) -> (Alone, Client) {
    traced(format!("http://{collector}"), ServerAuthority::System, ratio)
}

fn traced(endpoint: String, authority: ServerAuthority, ratio: f64) -> (Alone, Client) {
    let dir = tempfile::tempdir().unwrap();
    let traces = Some(TraceSettings { endpoint, authority, ratio });
    let settings = ServerSettings { traces, ..settings(dir.path()) };
    let member = Alone::run(dir, settings);
    member.running.member.read(Duration::from_secs(60), |_| ()).unwrap();
    let at = Client::new(member.running.clients, "traced");
    (member, at)
}

/// Opens a port that decrypts what it passes on to the collector.
fn behind_tls(
    runtime: &Runtime,
    cert_files: &CertificateFiles,
    collector: SocketAddr,
) -> SocketAddr {
    let _inside = runtime.enter();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let at = port.local_addr().unwrap();
    port.set_nonblocking(true).unwrap();
    let port = tokio::net::TcpListener::from_std(port).unwrap();
    let cert = CertificateDer::from_pem_file(&cert_files.cert).unwrap();
    let key = PrivateKeyDer::from_pem_file(&cert_files.key).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![cert], key);
    let mut config = config.unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    runtime.spawn(async move {
        while let Ok((stream, _)) = port.accept().await {
            // A client that does not trust the certificate aborts the handshake.
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            let mut plain = tokio::net::TcpStream::connect(collector).await.unwrap();
            tokio::spawn(async move {
                let _ = tokio::io::copy_bidirectional(&mut stream, &mut plain).await;
            });
        }
    });
    at
}

#[test]
fn a_collector_under_tls_gets_spans_only_if_its_certificate_is_trusted() {
    let runtime = Runtime::new().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let ours = Authority::new(dir.path(), "collectors");
    let other = Authority::new(dir.path(), "others");
    let collector = Collector::default();
    let plain = collector.start(&runtime);
    let port = behind_tls(&runtime, &ours.sign("collector"), plain).port();
    let endpoint = format!("https://127.0.0.1:{port}");

    let stranger = traced(endpoint.clone(), ServerAuthority::File(other.ca().into()), 1.0);
    stranger.1.lease(60_000);
    let dropped = "tenure_trace_spans_dropped_total{cause=\"collector\"} ";
    wait("the spans are dropped", || {
        let metrics = String::from_utf8(stranger.1.get("/metrics").body).unwrap();
        let line = metrics.lines().find_map(|line| line.strip_prefix(dropped));
        line.and_then(|count| count.parse::<u64>().ok()).filter(|count| *count > 0)
    });
    assert!(
        collector.spans.lock().unwrap().is_empty(),
        "it got spans of a member that distrusts it"
    );

    let trusting = traced(endpoint, ServerAuthority::File(ours.ca().into()), 1.0);
    trusting.1.lease(60_000);
    collector.find("the grant", |span| span.name == "tenure grant");
}

#[test]
fn an_acquire_with_a_traceparent_is_a_span_of_the_callers_trace() {
    let runtime = Runtime::new().unwrap();
    let collector = Collector::default();
    let (member, at) = member(collector.start(&runtime), 0.0);
    let lease = at.lease(60_000);
    let body = json!({ "lease": lease }).to_string();
    let json = ("content-type", "application/json");
    let ask = |parent| {
        at.ask("POST", "/v1/locks/traced", &[json, ("traceparent", parent)], body.as_bytes())
    };
    ask(UNSAMPLED).ok();
    ask(PARENT).ok();

    let span = collector.find("the acquire over HTTP", |span| span.name == "tenure acquire");
    assert_eq!(span.trace(), TRACE);
    assert_eq!(span.parent_span_id[..2], [0xb7, 0xad]);
    assert_eq!(span.attribute("tenure.api"), Some("http"));
    assert_eq!(span.steps(), ["submitted", "proposed", "applied"]);
    let mut times = vec![span.start_ns];
    times.extend(span.events.iter().map(|event| event.at_ns));
    times.push(span.end_ns);
    assert!(times.is_sorted(), "{times:?}");

    // The same over a single gRPC call.
    let address = format!("http://{}", member.running.clients);
    runtime.block_on(async {
        let mut locks = LockServiceClient::connect(address.clone()).await.unwrap();
        let mut ask = Request::new(v1::LeaseGrantRequest { ttl: 60, ..Default::default() });
        ask.metadata_mut().insert("traceparent", PARENT.parse().unwrap());
        locks.lease_grant(ask).await.unwrap();
    });
    let span = collector.find("the call over gRPC", |span| span.name == "tenure grant");
    assert_eq!((span.trace().as_str(), span.attribute("tenure.api")), (TRACE, Some("grpc")));

    // The same over a session, where each request carries its own `traceparent`.
    runtime.block_on(async {
        let mut sessions = SessionServiceClient::connect(address).await.unwrap();
        let put = |id: u64, traceparent: &str| v1::Request {
            id,
            traceparent: traceparent.to_owned(),
            command: Some(v1::request::Command::Put(v1::PutRequest {
                key: "traced".to_owned(),
                ..Default::default()
            })),
            ..Default::default()
        };
        let requests = vec![put(1, UNSAMPLED), put(2, PARENT), put(3, "nonsense")];
        let message = v1::SessionRequest { hello: None, requests };
        let (to, from) = tokio::sync::mpsc::channel(1);
        to.send(message).await.unwrap();
        let stream = tokio_stream::wrappers::ReceiverStream::new(from);
        let mut answers = sessions.open(stream).await.unwrap().into_inner();
        assert!(!answers.message().await.unwrap().unwrap().answers.is_empty());
    });
    let span = collector.find("the request on a session", |span| span.name == "tenure put");
    assert_eq!((span.trace().as_str(), span.attribute("tenure.api")), (TRACE, Some("session")));
    assert_eq!(span.steps(), ["submitted", "proposed", "applied"]);

    let spans = collector.spans.lock().unwrap();
    assert_eq!(spans.len(), 3, "requests that are not sampled have no span: {spans:?}");
}

#[test]
fn requests_without_a_parent_are_sampled_by_the_ratio() {
    let runtime = Runtime::new().unwrap();
    let collector = Collector::default();
    let (_member, at) = member(collector.start(&runtime), 1.0);
    at.get("/v1/locks/nothing");
    let span = collector.find("a read", |span| span.name == "tenure read");
    assert!(span.parent_span_id.is_empty());
    assert_ne!(span.trace(), "0".repeat(32));
    assert!(span.steps().is_empty(), "a read proposes nothing");
    let shown = || String::from_utf8(at.get("/metrics").body).unwrap();
    wait("the exported spans are counted", || {
        let shown = shown();
        let line = shown.lines().find(|it| it.starts_with("tenure_trace_spans_exported_total "))?;
        (line.rsplit_once(' ')?.1 != "0").then_some(())
    });
}

#[test]
fn a_collector_that_does_not_answer_delays_no_request_and_drops_are_counted() {
    // It accepts connections and never reads or answers.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let (_member, at) = member(silent.local_addr().unwrap(), 1.0);
    let dropped = || {
        let text = String::from_utf8(at.get("/metrics").body).unwrap();
        let of = |line: &&str| line.starts_with("tenure_trace_spans_dropped_total{");
        let counts = text.lines().filter(of).map(|line| line.rsplit_once(' ').unwrap().1);
        counts.map(|count| count.parse::<f64>().unwrap()).sum::<f64>()
    };
    let mut slowest = Duration::ZERO;
    for _ in 0..200 {
        let began_us = os::now_us();
        at.get("/v1/locks/nothing");
        slowest = slowest.max(Duration::from_micros(os::now_us() - began_us));
    }
    // Less than the time that the exporter waits for an answer.
    assert!(slowest < Duration::from_secs(3), "{slowest:?}");
    wait("the spans are counted as dropped", || (dropped() >= 1.0).then_some(()));
}
