//! Generates the OpenAPI description of the HTTP API.

use std::sync::OnceLock;

use axum::response::Response;
use http::StatusCode;
use tenure_wire::json::error::ErrorBody;
use tenure_wire::json::lock::{Explained, History, LockAnswer, Queue};
use utoipa::openapi::path::{Operation, PathItem};
use utoipa::openapi::{ContentBuilder, Ref, RefOr, ResponseBuilder};
use utoipa::{Modify, OpenApi};

use super::answer::json_with;
use super::{
    access, audit, cluster, console, drains, elections, health, history, keys, leases, level,
    limits, locks, member, metrics, overview, semaphores, tickets, usage, watch,
};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Tenure",
        description = "Locks and leases over HTTP. Tokens, revisions and ids are decimal strings; times end in `_ms`.",
    ),
    paths(
        leases::list, leases::grant, leases::show, leases::revoke, leases::renew, leases::renew_all,
        locks::list, locks::acquire_all, locks::show, locks::acquire, locks::change, locks::release, locks::force,
        drains::list, drains::drain, drains::undrain,
        semaphores::resize, semaphores::unset,
        elections::show, elections::campaign, elections::proclaim, elections::resign,
        keys::list, keys::show, keys::put, keys::delete,
        tickets::sign, tickets::keys, tickets::rotate,
        watch::start, history::search, overview::show,
        console::show, console::sign_in, console::sign_out,
        cluster::status, cluster::members, cluster::add, cluster::change, cluster::remove,
        cluster::invite, cluster::invitations, cluster::cancel_invitation,
        level::raise, member::show, limits::show, limits::set, audit::show,
        access::status, access::set_identity, access::set_quotas, access::can,
        access::roles, access::put_role, access::delete_role,
        access::principals, access::principal, access::put_principal, access::enable_principal,
        access::delete_principal,
        access::keys, access::create_key, access::rotate_key, access::revoke_key,
        access::certificate_rules, access::put_certificate_rule, access::delete_certificate_rule,
        access::issuers, access::put_issuer, access::delete_issuer, usage::show,
        health::alive, health::ready, metrics::show, show,
    ),
    components(schemas(ErrorBody, LockAnswer, Queue, Explained, History)),
    modifiers(&Refusals),
)]
struct Described;

/// This description.
#[utoipa::path(
    get, path = "/openapi.json", tag = "health", operation_id = "show_openapi",
    responses((status = 200, description = "An OpenAPI document.", content_type = "application/json", body = Object)),
)]
pub(super) async fn show() -> Response {
    json_with(StatusCode::OK, described())
}

/// The description, generated once.
pub(super) fn described() -> &'static utoipa::openapi::OpenApi {
    static DESCRIBED: OnceLock<utoipa::openapi::OpenApi> = OnceLock::new();
    DESCRIBED.get_or_init(Described::openapi)
}

/// The errors that every query can return, and those that commands can return in addition.
pub(super) const QUESTION: &[(&str, &str)] = &[
    ("400", "The request is malformed, or a field has an invalid value."),
    ("401", "Credentials are missing, wrong, revoked or expired."),
    ("403", "The caller lacks a permission, or the host or origin is not allowed."),
    ("404", "No such object exists."),
    ("429", "A limit or a quota of the caller is reached."),
    ("503", "Nothing happened: no leader, no quorum, or overload."),
];
pub(super) const COMMAND: &[(&str, &str)] = &[
    ("408", "The request arrived too slowly."),
    ("409", "The present state does not allow it."),
    ("412", "A condition of the request does not hold."),
    ("413", "The request is too large."),
    ("415", "The body has an unsupported type or encoding."),
    ("423", "Another client holds the lock."),
    ("504", "No outcome came in time: the request may have taken effect."),
    ("507", "The state or the disk is full."),
];
/// The errors of a request outside of `/v1` that needs a permission.
const CREDENTIALS: &[(&str, &str)] = &[
    ("401", "Credentials are missing, wrong, revoked or expired."),
    ("403", "The caller lacks a permission, or the host or origin is not allowed."),
];
/// The error for a revision that is older than the history.
const HISTORY: &[(&str, &str)] = &[("410", "The history does not reach back so far.")];

struct Refusals;

impl Modify for Refusals {
    fn modify(&self, openapi: &mut utoipa::openapi::OpenApi) {
        for (path, item) in &mut openapi.paths.paths {
            let history = path == "/v1/watch" || path == "/v1/locks/{lock}";
            let PathItem { get, put, post, delete, patch, .. } = item;
            let is_read = path.starts_with("/v1/") || path == "/.well-known/jwks.json";
            if let Some(question) = get.as_mut().filter(|_| is_read) {
                add(question, QUESTION);
                add(question, if history { HISTORY } else { &[] });
            }
            if let Some(metrics) = get.as_mut().filter(|_| path == "/metrics") {
                add(metrics, CREDENTIALS);
            }
            for command in [put, post, delete, patch].into_iter().flatten() {
                add(command, QUESTION);
                add(command, COMMAND);
            }
        }
    }
}

fn add(operation: &mut Operation, refusals: &[(&str, &str)]) {
    let body = || ContentBuilder::new().schema(Some(Ref::from_schema_name("ErrorBody"))).build();
    for (status, meaning) in refusals {
        let response =
            ResponseBuilder::new().description(*meaning).content("application/json", body());
        let responses = &mut operation.responses.responses;
        responses.entry((*status).to_owned()).or_insert(RefOr::T(response.build()));
    }
}

/// Every described route with its method, as `GET /v1/locks`.
#[cfg(test)]
pub(in crate::api) fn described_routes() -> std::collections::BTreeSet<String> {
    let paths = described().paths.paths.iter();
    let routes = |(path, item): (&String, &PathItem)| {
        verbs(item).into_iter().map(|verb| format!("{verb} {path}")).collect::<Vec<_>>()
    };
    paths.flat_map(routes).collect()
}

#[cfg(test)]
fn verbs(item: &PathItem) -> Vec<&'static str> {
    let PathItem { get, put, post, delete, patch, .. } = item;
    [("GET", get), ("PUT", put), ("POST", post), ("DELETE", delete), ("PATCH", patch)]
        .into_iter()
        .filter_map(|(verb, operation)| operation.as_ref().map(|_| verb))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_route_is_described_and_nothing_else() {
        let described = described();
        let table = super::super::table();
        let paths: Vec<_> = table.iter().map(|(path, _)| path.replace("{*", "{")).collect();
        for (path, item) in &described.paths.paths {
            assert!(paths.contains(path), "{path} is described, and there is no such route");
            assert!(!verbs(item).is_empty(), "{path}");
        }
        for (path, (_, routed)) in paths.iter().zip(&table) {
            let item = described.paths.paths.get(path);
            let item = item.unwrap_or_else(|| panic!("{path} is not described"));
            // A router shows its methods only in its debug output.
            let shown = format!("{routed:?}");
            for (verb, field) in [
                ("GET", " get: "),
                ("PUT", " put: "),
                ("POST", " post: "),
                ("DELETE", " delete: "),
                ("PATCH", " patch: "),
            ] {
                let at = shown.find(field).unwrap_or_else(|| panic!("{shown}")) + field.len();
                let routed = !shown[at..].starts_with("None");
                assert_eq!(routed, verbs(item).contains(&verb), "{verb} {path}: {shown}");
            }
        }
    }

    #[test]
    fn every_operation_has_a_name_of_its_own() {
        let mut names = std::collections::BTreeSet::new();
        for (path, item) in &described().paths.paths {
            let PathItem { get, put, post, delete, patch, .. } = item;
            for operation in [get, put, post, delete, patch].into_iter().flatten() {
                let name = operation.operation_id.clone().unwrap_or_default();
                assert!(!name.is_empty(), "{path} has an operation without a name");
                assert!(names.insert(name.clone()), "{path}: {name} is the name of two operations");
            }
        }
    }

    #[test]
    fn the_reference_is_this_description() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/openapi.json");
        let text = format!("{}\n", described().to_pretty_json().unwrap());
        if std::env::var_os("TENURE_FIX").is_some() {
            std::fs::write(path, &text).unwrap();
        }
        let kept = std::fs::read_to_string(path).unwrap_or_default();
        assert!(kept == text, "docs/reference/openapi.json is old: run with TENURE_FIX=1");
    }
}
