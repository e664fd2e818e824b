//! Forwards a request to the service, and its response back.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::header::{self, HOST};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Uri, Version};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::time::{Instant, timeout_at};
use tower::Service;

use crate::answer::ErrorAnswer;
use crate::deadline::Deadline;
use crate::listen::StartError;
use crate::reason::Reason;

/// The maximum time to connect to the service.
const CONNECT: Duration = Duration::from_secs(5);
/// The maximum number of idle connections, and how long they stay open: shorter than services usually keep them.
const IDLE_MAX: usize = 32;
const IDLE: Duration = Duration::from_secs(10);

/// The headers that belong to the connection and not to the request.
const OF_THE_CONNECTION: [HeaderName; 8] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRANSFER_ENCODING,
    // An upgraded connection would continue after its request has ended.
    header::UPGRADE,
];

/// Forwards requests. Cheap to clone.
#[derive(Clone)]
pub(super) struct Forward {
    client: Client<HttpConnector, Deadline<Incoming>>,
    to: Authority,
    host: HeaderValue,
    /// The prefix of the path of every request.
    base: String,
    timeout: Duration,
}

impl Forward {
    pub(super) fn new(upstream: &str, timeout: Duration) -> Result<Self, StartError> {
        let unusable = |why: &str| StartError::Setting(format!("--upstream {upstream}: {why}"));
        let uri: Uri = upstream.parse().map_err(|_| unusable("this is no URL"))?;
        if uri.scheme() != Some(&Scheme::HTTP) {
            return Err(unusable(
                "only http:// is spoken to a service, which belongs right behind its proxy",
            ));
        }
        let to = uri.authority().filter(|to| !to.as_str().contains('@')).cloned();
        let to = to.ok_or_else(|| unusable("there is no host in it, or a user"))?;
        if uri.query().is_some() {
            return Err(unusable("there is a query in it"));
        }
        let host = HeaderValue::from_str(to.as_str()).map_err(|_| unusable("this is no host"))?;
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(CONNECT));
        connector.set_nodelay(true);
        let mut client = Client::builder(TokioExecutor::new());
        client
            .pool_max_idle_per_host(IDLE_MAX)
            .pool_idle_timeout(IDLE)
            .pool_timer(TokioTimer::new());
        let base = uri.path().trim_end_matches('/').to_owned();
        Ok(Self { client: client.build(connector), to, host, base, timeout })
    }

    async fn send(&self, request: Request<Incoming>) -> Result<Response, ErrorAnswer> {
        let until = Instant::now() + self.timeout;
        let (mut parts, body) = request.into_parts();
        parts.uri = self.uri(&parts.uri)?;
        parts.version = Version::HTTP_11;
        let came_for = parts.headers.get(HOST).cloned();
        strip(&mut parts.headers);
        if let Some(host) = came_for {
            parts.headers.insert(HeaderName::from_static("x-forwarded-host"), host);
        }
        parts.headers.insert(HOST, self.host.clone());
        let request = Request::from_parts(parts, Deadline::new(body, until));
        let late = |_| {
            ErrorAnswer::new(
                Reason::UpstreamTimeout,
                format!("the service took longer than {:?}", self.timeout),
            )
        };
        let response = timeout_at(until, self.client.request(request)).await.map_err(late)?;
        let response = response.map_err(|error| {
            if error.is_connect() {
                let message = format!("the service at {} cannot be reached", self.to);
                return ErrorAnswer::new(Reason::UpstreamUnreachable, message);
            }
            ErrorAnswer::new(
                Reason::UpstreamBrokeOff,
                format!("the service at {} gave no answer", self.to),
            )
        })?;
        let mut response = response.map(|body| Body::new(Deadline::new(body, until)));
        strip(response.headers_mut());
        Ok(response)
    }

    /// Returns the URI of the same path and query at the service.
    fn uri(&self, asked: &Uri) -> Result<Uri, ErrorAnswer> {
        let path = asked.path_and_query().map_or("/", PathAndQuery::as_str);
        // `OPTIONS *` has no path.
        let path = if path.starts_with('/') { path } else { "/" };
        let uri = Uri::builder().scheme(Scheme::HTTP).authority(self.to.clone());
        let uri = uri.path_and_query(format!("{}{path}", self.base)).build();
        uri.map_err(|_| ErrorAnswer::new(Reason::Malformed, "the path cannot be sent on"))
    }
}

impl Service<Request<Incoming>> for Forward {
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Incoming>) -> Self::Future {
        let this = self.clone();
        Box::pin(
            async move { Ok(this.send(request).await.unwrap_or_else(IntoResponse::into_response)) },
        )
    }
}

/// Removes the headers that belong to the connection, and those that `Connection` names.
fn strip(headers: &mut HeaderMap) {
    let named = headers.get_all(header::CONNECTION).into_iter();
    let named = named.filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(','));
    let named: Vec<HeaderName> = named.filter_map(|name| name.trim().parse().ok()).collect();
    for name in named.iter().chain(&OF_THE_CONNECTION) {
        headers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forward(upstream: &str) -> Result<Forward, StartError> {
        Forward::new(upstream, Duration::from_secs(1))
    }

    #[tokio::test]
    async fn paths_go_below_the_one_of_the_service() {
        for (upstream, asked, expected) in [
            ("http://a:1", "/x?y=z", "http://a:1/x?y=z"),
            ("http://a:1/", "/", "http://a:1/"),
            ("http://a/base/", "/x%2Fy", "http://a/base/x%2Fy"),
            ("http://[::1]:9/b", "http://proxy:1/x", "http://[::1]:9/b/x"),
        ] {
            let uri = forward(upstream).unwrap().uri(&asked.parse().unwrap()).unwrap();
            assert_eq!(uri, expected.parse::<Uri>().unwrap(), "{upstream} {asked}");
        }
        for bad in ["", "a:1", "https://a", "http://u:p@a", "http://a/?q", "ftp://a"] {
            assert!(forward(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_belongs_to_the_connection_does_not_go_on() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("connection", "X-Private, close"),
            ("x-private", "1"),
            ("upgrade", "websocket"),
            ("accept", "*/*"),
        ] {
            headers.append(name, value.parse().unwrap());
        }
        strip(&mut headers);
        assert_eq!(headers.keys().map(HeaderName::as_str).collect::<Vec<_>>(), ["accept"]);
    }
}
