//! How do programs that speak plain HTTP use a member?
//!
//! JSON under `/v1`, one file per resource; `/openapi.json` describes it and is made from the same code.
//! Every path stands once, in [`table`]: the router is built from it, and a test holds the description to it.

mod acquire;
mod answer;
mod call;
mod cluster;
mod elections;
mod guard;
mod health;
mod keys;
mod leases;
mod level;
mod limits;
mod locks;
mod member;
mod metrics;
mod openapi;
mod page;
mod span;
mod stream;
mod tickets;
mod watch;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, post};
use tenure_core::outcome::Answer;
use tenure_core::request::{Command, RequestId};
use tenure_types::Revision;
use tenure_wire::Failure;
use tenure_wire::json::Header;

use crate::door::grpc;
use crate::door::principal;
use crate::edge::{Edge, Fresh, Principal};
use crate::meter::Door;

use answer::Refused;
pub(crate) use guard::Hosts;
pub(crate) use limits::SetLimits;
use metrics::Metrics;

/// What every path needs. Cheap to clone.
#[derive(Clone)]
struct Http {
    edge: Edge,
    hosts: Arc<Hosts>,
    metrics: Arc<Metrics>,
}

/// Every path, as routes of the one port, and sockets that a browser could open as well.
pub(super) fn routes(edge: &Edge, hosts: Hosts, sockets: Router) -> Router {
    let http =
        Http { edge: edge.clone(), hosts: Arc::new(hosts), metrics: Arc::new(Metrics::new(edge)) };
    let mut router = Router::new();
    for (path, verbs) in table() {
        router = router.route(path, verbs);
    }
    router
        .fallback(unknown_path)
        .method_not_allowed_fallback(unknown_verb)
        .with_state(http.clone())
        .merge(sockets)
        .layer(middleware::from_fn_with_state(http, enter))
}

/// Every path and its verbs. Where a name may have slashes, the rest of the path is the name.
fn table() -> Vec<(&'static str, MethodRouter<Http>)> {
    vec![
        ("/v1/leases", get(leases::list).post(leases::grant)),
        ("/v1/leases/{lease}", get(leases::show).delete(leases::revoke)),
        ("/v1/leases/renew", post(leases::renew_all)),
        ("/v1/leases/{lease}/renew", post(leases::renew)),
        ("/v1/locks", get(locks::list).post(locks::acquire_all)),
        (
            "/v1/locks/{*lock}",
            get(locks::show).post(locks::acquire).patch(locks::change).delete(locks::release),
        ),
        ("/v1/force", post(locks::force)),
        ("/v1/tickets", post(tickets::sign)),
        (
            "/v1/elections/{*name}",
            get(elections::show)
                .post(elections::campaign)
                .put(elections::proclaim)
                .delete(elections::resign),
        ),
        ("/v1/keys", get(keys::list)),
        ("/v1/keys/{*key}", get(keys::show).put(keys::put).delete(keys::delete)),
        ("/v1/watch", get(watch::start)),
        ("/v1/cluster", get(cluster::status)),
        ("/v1/cluster/members", get(cluster::members).post(cluster::add)),
        ("/v1/cluster/members/{member}", post(cluster::change).delete(cluster::remove)),
        ("/v1/cluster/level", post(level::raise)),
        ("/v1/cluster/keys/rotate", post(tickets::rotate)),
        ("/v1/member", get(member::show)),
        ("/v1/limits", get(limits::show).patch(limits::set)),
        ("/healthz", get(health::alive)),
        ("/readyz", get(health::ready)),
        ("/metrics", get(metrics::show)),
        ("/openapi.json", get(openapi::show)),
        ("/.well-known/jwks.json", get(tickets::keys)),
    ]
}

/// What every request passes first: is it for us, and how long did it take?
async fn enter(State(http): State<Http>, request: Request, next: Next) -> Response {
    let began_us = http.edge.now_us();
    let class = metrics::class(request.method(), request.uri().path());
    let response = if http.hosts.admit(&request) {
        next.run(request).await
    } else {
        Refused::from(Failure::HostNotAllowed).into_response()
    };
    let asked = http.edge.asked();
    asked.served(Door::Http, class, http.edge.now_us().saturating_sub(began_us));
    if let Some(answer::Reason(reason)) = response.extensions().get() {
        asked.refused(Door::Http, reason);
    }
    response
}

async fn unknown_path(request: Request) -> Response {
    let json = || Refused::from(Failure::UnknownOperation).into_response();
    grpc::unknown(&request).unwrap_or_else(json)
}

/// Answers a verb that a path does not take.
pub(super) async fn unknown_verb(request: Request) -> Response {
    let verb = request.method().as_str().to_owned();
    Refused::from(Failure::UnknownVerb { verb }).into_response()
}

/// A failure as an answer.
pub(super) fn refused(failure: Failure) -> Response {
    Refused::from(failure).into_response()
}

/// Reads what stands behind a question mark as every path would.
pub(crate) fn read_queries(uri: http::Uri) {
    let mut request = Request::new(axum::body::Body::empty());
    *request.uri_mut() = uri;
    let call = call::Call::from(request);
    macro_rules! read {
        ($($query:ty),+ $(,)?) => {$( let _ = call.query::<$query>(); )+};
    }
    read!(
        leases::Timeout,
        leases::List,
        leases::Show,
        leases::Revoke,
        page::Named,
        locks::Show,
        locks::Release,
        acquire::Patience,
        keys::Show,
        keys::Write,
        keys::Delete,
        elections::Show,
        elections::Resign,
        watch::Query,
        limits::Nothing,
    );
    let _ = call.name("/");
    let _ = call.lease("/", "/renew");
    let _ = call.query::<leases::Timeout>().and_then(|query| call::within(query.timeout));
}

impl Http {
    /// Who asks.
    fn who(&self) -> Principal {
        principal()
    }

    /// Who answers, and when.
    fn header(&self, revision: Revision) -> Header {
        self.edge.header(revision).into()
    }

    /// Runs a command.
    async fn run(
        &self,
        id: RequestId<'_>,
        command: Command<'_>,
        within: Duration,
    ) -> Result<(Header, Answer), Refused> {
        let outcome = self.edge.call(&self.who(), id, command, within).await;
        let outcome = outcome.map_err(answer::Refused::from)?;
        let done = outcome.result.map_err(|refusal| Refused::from(&refusal))?;
        Ok((self.header(outcome.revision), done))
    }

    /// Asks the machine something.
    async fn read<T: Send + 'static>(
        &self,
        fresh: Fresh,
        within: Duration,
        ask: impl Fn(&tenure_core::Machine) -> T + Send + Sync + 'static,
    ) -> Result<(Header, T), Refused> {
        let read = self.edge.read(&self.who(), fresh, within, ask).await;
        let (revision, found) = read.map_err(answer::Refused::from)?;
        Ok((self.header(revision), found))
    }
}
