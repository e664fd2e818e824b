//! Serves the web console: one page, and the files that it loads.
//!
//! The files are part of the program. They are served below a path with the hash of all of them, so that a browser may
//! keep them for ever and never mixes two versions; the modules name each other by relative paths, which stay below the
//! same hash. The page itself names that path, and is asked for again each time. Nothing here needs credentials: what
//! the page shows comes from the public HTTP API.

use std::fmt::Write as _;
use std::sync::LazyLock;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, HeaderName, IF_NONE_MATCH,
    REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use http::{HeaderMap, HeaderValue, StatusCode};
use ring::digest::{Context, SHA256};
use tenure_wire::Failure;

use super::http::refused;
use crate::dispatch::Dispatch;
use crate::identity::ConsoleMode;

/// What the path of every file begins with.
const AT: &str = "/console/";
/// The file that is the page, and the place in it of the path to the other files.
const PAGE: &str = "index.html";
const PLACE: &str = "{{files}}";

/// Scripts, styles and requests come from and go to this member alone, no page may frame the console, and no text
/// becomes markup: the browser refuses to parse it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; \
    trusted-types 'none'";

const OPENER_POLICY: HeaderName = HeaderName::from_static("cross-origin-opener-policy");
const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");

/// One file of the console.
struct ConsoleFile {
    name: &'static str,
    bytes: &'static [u8],
}

macro_rules! files {
    ($($name:literal),+ $(,)?) => {
        &[$(ConsoleFile {
            name: $name,
            bytes: include_bytes!(concat!("../../../../../console/", $name)),
        }),+]
    };
}

/// Every file that a browser loads. A test compares the list with the directory.
const FILES: &[ConsoleFile] = files![
    "index.html",
    "style.css",
    "icon.svg",
    "main.js",
    "api.js",
    "live.js",
    "streams.js",
    "leases.js",
    "router.js",
    "format.js",
    "holds.js",
    "findings.js",
    "rings.js",
    "blocking.js",
    "parts/basic.js",
    "parts/dialog.js",
    "parts/list.js",
    "parts/chart.js",
    "parts/blocking.js",
    "parts/waits.js",
    "acts.js",
    "pages/now.js",
    "pages/lock.js",
    "pages/client.js",
    "pages/timeline.js",
    "pages/stuck.js",
    "pages/members.js",
    "pages/elections.js",
    "pages/keys.js",
    "pages/access.js",
    "pages/audit.js",
    "pages/signin.js",
    "vendor/htm-preact.js",
];

/// The files as they are served.
struct Bundle {
    /// The first digits of the hash of all files.
    version: String,
    page: String,
    etag: HeaderValue,
}

static BUNDLE: LazyLock<Bundle> = LazyLock::new(|| {
    let mut hash = Context::new(&SHA256);
    for file in FILES {
        hash.update(file.name.as_bytes());
        hash.update(&(file.bytes.len() as u64).to_be_bytes());
        hash.update(file.bytes);
    }
    let digest = hash.finish();
    let version = digest.as_ref()[..8].iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    });
    let page = find(PAGE).and_then(|file| std::str::from_utf8(file.bytes).ok()).unwrap_or_default();
    let page = page.replace(PLACE, &format!("{AT}{version}"));
    let etag = HeaderValue::from_str(&format!("\"{version}\""));
    Bundle { etag: etag.unwrap_or(HeaderValue::from_static("\"\"")), version, page }
});

/// The routes of the console.
pub(super) fn routes(dispatch: &Dispatch) -> Router {
    Router::new()
        .route("/", get(page))
        .route("/console/{*file}", get(file))
        .with_state(dispatch.clone())
}

/// Whether a path is one of the console's own, which need no credentials.
pub(super) fn is_page(path: &str) -> bool {
    path == "/" || path.starts_with(AT)
}

async fn page(State(dispatch): State<Dispatch>, headers: HeaderMap) -> Response {
    if is_off(&dispatch) {
        return refused(Failure::UnknownOperation);
    }
    let known = headers.get(IF_NONE_MATCH).is_some_and(|etag| *etag == BUNDLE.etag);
    let mut response = if known {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        answer("text/html; charset=utf-8", BUNDLE.page.as_bytes())
    };
    protect(&mut response);
    let headers = response.headers_mut();
    headers.insert(ETAG, BUNDLE.etag.clone());
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

async fn file(State(dispatch): State<Dispatch>, request: Request) -> Response {
    let path = request.uri().path().strip_prefix(AT).unwrap_or_default();
    let named = path.split_once('/').filter(|(version, _)| *version == BUNDLE.version);
    let found = named.and_then(|(_, name)| find(name)).filter(|file| file.name != PAGE);
    let (Some(file), false) = (found, is_off(&dispatch)) else {
        return refused(Failure::UnknownOperation);
    };
    let mut response = answer(media_type(file.name), file.bytes);
    protect(&mut response);
    let forever = HeaderValue::from_static("public, max-age=31536000, immutable");
    response.headers_mut().insert(CACHE_CONTROL, forever);
    response
}

fn is_off(dispatch: &Dispatch) -> bool {
    dispatch.member().identity().console().mode() == ConsoleMode::Off
}

fn find(name: &str) -> Option<&'static ConsoleFile> {
    FILES.iter().find(|file| file.name == name)
}

fn media_type(name: &str) -> &'static str {
    match name.rsplit_once('.').map_or("", |(_, kind)| kind) {
        "js" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "svg" => "image/svg+xml",
        _ => "text/plain; charset=utf-8",
    }
}

fn answer(media_type: &'static str, bytes: &'static [u8]) -> Response {
    let mut response = Response::new(Body::from(bytes));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    response
}

/// Adds the headers by which a browser keeps other pages, and markup in what clients wrote, away from the console.
fn protect(response: &mut Response) {
    let headers = response.headers_mut();
    for (name, value) in [
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (X_FRAME_OPTIONS, "DENY"),
        (REFERRER_POLICY, "no-referrer"),
        (OPENER_POLICY, "same-origin"),
        (RESOURCE_POLICY, "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
}

#[cfg(test)]
mod tests;
