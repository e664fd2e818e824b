//! Sends one HTTP request to a member or a store, in plain text or under TLS.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::HOST;
use http::uri::PathAndQuery;
use http::{HeaderName, Method, Request, Response, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1;
use hyper::rt::{Read, Write};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;

use crate::key_source::KeySourceTls;

/// Why there is no response.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct CallError {
    pub(crate) why: String,
    /// Whether the request may have been carried out.
    pub(crate) sent: bool,
}

impl From<String> for CallError {
    fn from(why: String) -> Self {
        Self { why, sent: false }
    }
}

impl From<CallError> for String {
    fn from(error: CallError) -> Self {
        error.why
    }
}

/// A request, and the bounds of its response.
pub(crate) struct OutgoingCall<'a> {
    pub(crate) method: Method,
    pub(crate) headers: &'a [(HeaderName, String)],
    pub(crate) body: Bytes,
    /// The longest body of a response.
    pub(crate) most: usize,
    /// How long everything may take.
    pub(crate) within: Duration,
}

/// Sends a request and reads the whole response. It keeps no connection, because requests are rare and runtimes come
/// and go.
pub(crate) async fn call(
    uri: &Uri,
    tls: Option<&KeySourceTls>,
    call: OutgoingCall<'_>,
) -> Result<Response<Bytes>, CallError> {
    let OutgoingCall { method, headers, body, most, within } = call;
    let deadline = Instant::now() + within;
    let late = |sent| CallError { why: format!("no answer within {within:?}"), sent };
    let host = uri.host().unwrap_or_default();
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let port = uri.port_u16().unwrap_or(if tls.is_some() { 443 } else { 80 });
    let stream = timeout_at(deadline, TcpStream::connect((host, port))).await;
    let stream = stream.map_err(|_| late(false))?;
    let stream = stream.map_err(|_| "no server answers there".to_owned())?;
    let path = uri.path_and_query().map_or("/", PathAndQuery::as_str);
    let to = uri.authority().map_or("", |to| to.as_str());
    let mut request = Request::builder().method(method).uri(path).header(HOST, to);
    for (name, value) in headers {
        request = request.header(name, value);
    }
    let request = request.body(Full::new(body)).map_err(|error| error.to_string())?;
    let Some(tls) = tls else {
        let answered = timeout_at(deadline, ask(request, TokioIo::new(stream), most)).await;
        return answered.unwrap_or_else(|_| Err(late(true)));
    };
    let name = ServerName::try_from(host.to_owned()).map_err(|error| error.to_string())?;
    let connector = TlsConnector::from(Arc::new(configure(tls)?));
    let stream = timeout_at(deadline, connector.connect(name, stream)).await;
    let stream = stream.map_err(|_| late(false))?;
    let stream = stream.map_err(|error| format!("its certificate is not trusted: {error}"))?;
    let answered = timeout_at(deadline, ask(request, TokioIo::new(stream), most)).await;
    answered.unwrap_or_else(|_| Err(late(true)))
}

async fn ask(
    request: Request<Full<Bytes>>,
    io: impl Read + Write + Unpin + Send + 'static,
    most: usize,
) -> Result<Response<Bytes>, CallError> {
    let (mut sender, connection) = http1::handshake(io).await.map_err(|error| error.to_string())?;
    let driver = tokio::spawn(connection);
    let answered = async {
        let response = sender.send_request(request).await.map_err(|error| error.to_string())?;
        let (head, body) = response.into_parts();
        let body = Limited::new(body, most).collect().await.map_err(|error| error.to_string())?;
        Ok(Response::from_parts(head, body.to_bytes()))
    };
    let answered = answered.await;
    driver.abort();
    answered.map_err(|why| CallError { why, sent: true })
}

pub(crate) fn configure(tls: &KeySourceTls) -> Result<ClientConfig, String> {
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
