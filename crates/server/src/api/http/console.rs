//! Tells the console how it is served, and signs browsers in and out.

use axum::extract::State;
use axum::response::Response;
use http::HeaderValue;
use http::header::SET_COOKIE;
use serde::Serialize;
use tenure_wire::json::Header;
use utoipa::ToSchema;

use super::Http;
use super::answer::{HttpResult, json};
use super::call::HttpCall;
use super::limits::NoParameters;
use crate::dispatch::{ReadConsistency, ReadScope, WITHIN};
use crate::identity::{ConsoleMode, Presented};
use crate::os;

/// How the console is served to the caller.
#[derive(Serialize, ToSchema)]
struct ConsoleShown {
    /// The program of the member that is asked.
    software: &'static str,
    /// The cluster.
    cluster: String,
    /// The name of the member that is asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    member: Option<String>,
    /// Whether the console may change nothing.
    read_only: bool,
    /// Whether callers must have an identity.
    identity: bool,
    /// Whether the caller signed in here, and can sign out.
    signed_in: bool,
    /// The principal that the caller is; absent for a caller without credentials.
    #[serde(skip_serializing_if = "Option::is_none")]
    principal: Option<String>,
    /// The wall clock of the member, in milliseconds since 1970.
    now_unix_ms: u64,
    /// The member that answers, and its revision.
    header: Header,
}

/// Shows how the console is served to the caller.
#[utoipa::path(
    get, path = "/v1/console", tag = "console", operation_id = "show_console",
    responses((status = 200, description = "How it is served.", body = ConsoleShown)),
)]
pub(super) async fn show(State(http): State<Http>, call: HttpCall) -> HttpResult {
    call.query::<NoParameters>()?;
    let signed_in = http.signed_in(&call);
    drop(call);
    shown(&http, signed_in).await
}

/// Signs a browser in: the cookie that it gets stands for the credentials of this request.
///
/// The cookie counts only in requests with the header `Tenure-Console`, of pages that this member served.
#[utoipa::path(
    post, path = "/v1/console/session", tag = "console", operation_id = "sign_in",
    responses((status = 200, description = "It is signed in.", body = ConsoleShown)),
)]
pub(super) async fn sign_in(State(http): State<Http>, call: HttpCall) -> HttpResult {
    call.query::<NoParameters>()?;
    let presented = Presented::of_request(&call.parts.headers, None)?;
    call.nothing().await?;
    // A certificate is presented with every request, so it needs no cookie.
    let is_kept = presented.bearer.is_some();
    let response = shown(&http, is_kept).await?;
    if !is_kept {
        return Ok(response);
    }
    let console = http.dispatch.member().identity().console();
    Ok(with_cookie(response, console.begin(http.who().name(), presented, os::now_us())))
}

/// Signs a browser out.
#[utoipa::path(
    delete, path = "/v1/console/session", tag = "console", operation_id = "sign_out",
    responses((status = 200, description = "It is signed out.", body = ConsoleShown)),
)]
pub(super) async fn sign_out(State(http): State<Http>, call: HttpCall) -> HttpResult {
    call.query::<NoParameters>()?;
    let headers = call.parts.headers.clone();
    call.nothing().await?;
    let response = shown(&http, false).await?;
    // Last: a call that waits after its session has ended is refused, and this is one.
    Ok(with_cookie(response, http.dispatch.member().identity().end_session(&headers)))
}

fn with_cookie(mut response: Response, cookie: HeaderValue) -> Response {
    response.headers_mut().insert(SET_COOKIE, cookie);
    response
}

impl Http {
    /// Whether a request belongs to a session of the console.
    fn signed_in(&self, call: &HttpCall) -> bool {
        let console = self.dispatch.member().identity().console();
        console.presented(&call.parts.headers, os::now_us()).is_some()
    }
}

async fn shown(http: &Http, signed_in: bool) -> HttpResult {
    let member = http.dispatch.member();
    let me = member.id();
    let ask = move |machine: &tenure_core::Machine| {
        let name = tenure_node::directory::read(machine).remove(&me).map(|names| names.name);
        (name, machine.access().is_enabled())
    };
    let (header, (name, identity)) =
        http.read(ReadScope::Known, ReadConsistency::Stale, WITHIN, ask).await?;
    let who = http.who();
    let console = member.identity().console();
    json(&ConsoleShown {
        software: concat!("tenure ", env!("CARGO_PKG_VERSION")),
        cluster: member.lineage().cluster.clone(),
        member: name,
        read_only: console.mode() == ConsoleMode::ReadOnly,
        identity,
        signed_in,
        principal: (!who.name().is_empty()).then(|| who.name().to_owned()),
        now_unix_ms: os::wall_ms(),
        header,
    })
}
