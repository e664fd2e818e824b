//! Tests every call of every API with every kind of caller, and writes the outcomes as a page.

mod callers;
mod follower;
mod grpc;
mod http;
mod methods;
mod outcome;
mod own_end;
mod session;
mod stage;

use std::fmt::Write as _;

use self::callers::Credentials;
use self::outcome::{Outcome, is_expected, names_a_lease};
use self::stage::{Column, HIDDEN, MatrixMember, Row};

/// The APIs, as the reference names them. A request of a session is sent over gRPC and over a WebSocket.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Api {
    Grpc,
    Http,
    SessionGrpc,
    SessionWs,
    LockSocket,
}

/// Calls with which a follower of several members would leave its cluster.
const LEAVES: [&str; 1] = ["ClusterService/Leave"];

/// The routes that a WebSocket client upgrades.
const SOCKETS: [&str; 2] = ["GET /v1/ws", "GET /v1/lock-socket"];

const INTRODUCTION: &str = "# Permission matrix

<!-- Written by a test: TENURE_FIX=1 cargo test -p tenure-server --test server matrix -->

What a member with identity enabled answers to each call of [the table of permissions](permissions.md). The leases,
locks, keys and elections that a call names belong to one principal, the owner, and their names begin with `own/`.

- *No identity*: no credentials. *Wrong identity*: an unknown key, and a revoked key of the right caller.
- Callers prove who they are by API keys. The outcomes are the same for callers with tokens of an issuer (*wrong
  identity*: a token of an unknown key, and one that has expired) and for callers with client certificates (one that no
  rule knows, and one of a disabled principal). A caller without a certificate gets `UNAUTHENTICATED` from every call
  where the port requires certificates.
- *No role*: a known principal without any role. *Wrong prefix*: one that has every verb, below `other/` only.
- *Other's lease*: a principal that has all roles of the owner and names the owner's lease, for calls that use one.
- *Right*: the owner, with the verbs for names below `own/`, and with `operate` and `administer` for the cluster. A
  refusal in this column is not about permission.
- A word after the call names the form of the request: `guard` for a write under a lock, `reason` for a revocation by
  another than the holder, and so on.
- `ttl 0` is the answer to the renewal of a lease that does not exist, `NOT_COOLING` to a stop under a lock that was not
  lost. *No effect*: the message has no answer and changes nothing. *Left out*: the session begins without the lease.
- An `OK` of another caller than the right one has no value, metadata or client of the owner.
";

/// The calls of the reference: API, name and requirement.
fn calls() -> Vec<(Api, String, String)> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/permissions.md");
    let page = std::fs::read_to_string(path).unwrap();
    let (mut calls, mut title) = (Vec::new(), "");
    for line in page.lines() {
        if let Some(next) = line.strip_prefix("## ") {
            title = next;
        }
        let Some((call, requires)) = line.strip_prefix("| `").and_then(|it| it.split_once("` | "))
        else {
            continue;
        };
        let apis: &[Api] = match title {
            "gRPC" => &[Api::Grpc],
            "HTTP" => &[Api::Http],
            "Sessions, over gRPC and WebSockets" => &[Api::SessionGrpc, Api::SessionWs],
            "The lock socket" => &[Api::LockSocket],
            other => panic!("the matrix has no API `{other}`"),
        };
        let requires = requires.trim_end_matches(" |");
        calls.extend(apis.iter().map(|api| (*api, call.to_owned(), requires.to_owned())));
    }
    calls.sort_by_key(|call| call.0);
    calls
}

fn variants(api: Api, call: &str) -> &'static [&'static str] {
    match api {
        Api::Grpc => grpc::variants(call),
        Api::Http => http::variants(call),
        Api::SessionGrpc | Api::SessionWs => session::variants(call),
        Api::LockSocket => &[""],
    }
}

/// Makes a call; `None` if the matrix does not have it.
async fn ask(
    stage: &MatrixMember,
    api: Api,
    call: &str,
    variant: &str,
    row: &Row,
    column: Column,
) -> Option<Outcome> {
    let (bearer, at) = (stage.bearer(column), stage.at(column));
    Some(match api {
        Api::Grpc => {
            let message = grpc::request(call, variant, row)?;
            grpc::ask(stage.channel(column), bearer, call, &message).await
        }
        Api::Http if SOCKETS.contains(&call) => {
            session::ask_upgrade(stage, column, call.trim_start_matches("GET ")).await
        }
        Api::Http => http::ask(stage, column, &http::request(call, variant, row)?),
        Api::SessionGrpc => {
            let request = session::request(call, variant, row)?;
            session::ask_grpc(stage.channel(column), bearer, &request).await
        }
        Api::SessionWs => session::ask_ws(at, bearer, &session::request(call, variant, row)?).await,
        Api::LockSocket => session::ask_lock_socket(stage, column, call, row).await?,
    })
}

#[derive(Default)]
struct Totals {
    rows: usize,
    cells: usize,
    shown: usize,
    unexpected: Vec<String>,
}

/// Makes one call with every caller, and returns the words of the columns of the page.
async fn cells(
    stage: &MatrixMember,
    (api, call, requires): &(Api, String, String),
    variant: &str,
    totals: &mut Totals,
) -> Vec<String> {
    let label = if variant.is_empty() { call.clone() } else { format!("{call} {variant}") };
    let row = stage.row(totals.rows, &label);
    totals.rows += 1;
    let mut words = Vec::new();
    for column in Column::ALL {
        // On the lock socket every caller has a lease of its own.
        let lease = *api != Api::LockSocket && names_a_lease(requires, variant);
        if column == Column::OthersLease && !lease {
            words.push("–".to_owned());
            continue;
        }
        let outcome = ask(stage, *api, call, variant, &row, column).await;
        let outcome = outcome.unwrap_or_else(|| panic!("{api:?} `{call}` is not in the matrix"));
        totals.cells += 1;
        // A port that requires certificates answers callers without one before it looks at the call.
        let is_uncertified = column == Column::NoIdentity
            && stage.credentials == Credentials::Certificates
            && outcome.word == "UNAUTHENTICATED";
        if !is_uncertified && !is_expected(&label, requires, column, &outcome) {
            let body = String::from_utf8_lossy(&outcome.body);
            let cell = format!("{api:?} {label} ({requires}) {column:?}: {}", outcome.word);
            totals.unexpected.push(format!("{cell}: {}", body.escape_debug()));
        }
        totals.shown += usize::from(column == Column::Right && outcome.shows(HIDDEN));
        words.push(outcome.word);
    }
    // Both kinds of wrong identity share a column.
    let revoked = words.remove(2);
    if revoked != words[1] {
        words[1] = format!("{} / {revoked}", words[1]);
    }
    words
}

/// Makes every call with every caller. Returns the page.
async fn page(stage: &MatrixMember) -> String {
    let credentials = stage.credentials;
    let (mut page, mut totals) = (INTRODUCTION.to_owned(), Totals::default());
    let mut last = None;
    let calls = calls();
    for call in &calls {
        if last != Some(call.0) {
            last = Some(call.0);
            let title = match call.0 {
                Api::Grpc => "gRPC",
                Api::Http => "HTTP",
                Api::SessionGrpc => "Sessions over gRPC",
                Api::SessionWs => "Sessions over WebSockets",
                Api::LockSocket => "The lock socket",
            };
            let columns =
                ["no identity", "wrong identity", "no role", "wrong prefix", "other's lease"];
            let _ = write!(page, "\n## {title}\n\n| call | {} | right |\n", columns.join(" | "));
            page += "|---|---|---|---|---|---|---|\n";
        }
        for variant in variants(call.0, &call.1) {
            if !stage.is_alone() && LEAVES.contains(&&*call.1) {
                continue;
            }
            let words = cells(stage, call, variant, &mut totals).await;
            let label = [&*call.1, variant].join(" ");
            let _ = writeln!(page, "| `{}` | {} |", label.trim_end(), words.join(" | "));
        }
    }
    let Totals { rows, cells, shown, unexpected } = totals;
    let (calls, wrong) = (calls.len(), unexpected.len());
    println!("matrix {credentials:?} calls={calls} rows={rows} cells={cells} unexpected={wrong}");
    assert!(unexpected.is_empty(), "{}", unexpected.join("\n"));
    // The marker is one: the right caller sees it.
    assert!(shown > 20, "only {shown} answers have what is hidden");
    page
}

const PATH: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/permission-matrix.md");

#[tokio::test(flavor = "multi_thread")]
async fn every_call_of_every_api_answers_each_kind_of_caller_as_the_reference_says() {
    let page = page(&MatrixMember::new(Credentials::Keys)).await;
    if std::env::var_os("TENURE_FIX").is_some() {
        std::fs::write(PATH, &page).unwrap();
    }
    let kept = std::fs::read_to_string(PATH).unwrap_or_default();
    assert!(kept == page, "docs/reference/permission-matrix.md is old: run with TENURE_FIX=1");
}

/// Compares the outcomes with those of callers that have API keys, without the column of callers without credentials.
async fn is_like_with_keys(stage: &MatrixMember) {
    let page = page(stage).await;
    let kept = std::fs::read_to_string(PATH).unwrap_or_default();
    let rows = |page: &str| -> Vec<String> {
        let rows = page.lines().filter(|line| line.starts_with("| `"));
        let is_left_out = |row: &&str| LEAVES.iter().any(|call| row.contains(call));
        let rows = rows.filter(|row| stage.is_alone() || !is_left_out(row));
        let known = |row: &str| {
            let mut cells: Vec<&str> = row.split(" | ").collect();
            cells.remove(1);
            cells.join(" | ")
        };
        rows.map(known).collect()
    };
    let (found, expected) = (rows(&page), rows(&kept));
    assert_eq!(found.len(), expected.len());
    let differ: Vec<_> = found.iter().zip(&expected).filter(|(a, b)| a != b).collect();
    assert!(differ.is_empty(), "{differ:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn callers_with_tokens_are_answered_like_those_with_keys() {
    is_like_with_keys(&MatrixMember::new(Credentials::Tokens)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn callers_with_certificates_are_answered_like_those_with_keys() {
    is_like_with_keys(&MatrixMember::new(Credentials::Certificates)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_answers_like_a_leader() {
    is_like_with_keys(&tokio::task::block_in_place(MatrixMember::follower)).await;
}
