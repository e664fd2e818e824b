//! Tests that a change of access that ends the caller's own credentials is answered with its outcome.

use serde_json::json;
use tenure_wire::v1;
use tenure_wire::v1::access_service_client::AccessServiceClient;

use super::callers::Credentials;
use super::stage::{Column, MatrixMember, key};

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_that_ends_its_own_credentials_is_told_that_it_has() {
    let stage = MatrixMember::new(Credentials::Keys);
    let handle = &stage.member.running.member;
    let (id, bearer) = key(handle, "owner");
    let headers = [("Authorization", &*bearer)];
    let path = format!("/v1/access/keys/{id}");
    assert_eq!(stage.http.ask("DELETE", &path, &headers, b"").ok()["deleted"], true);
    stage.http.ask("DELETE", &path, &headers, b"").refused(401, "UNAUTHENTICATED");

    let (id, bearer) = key(handle, "owner");
    let mut call = tonic::Request::new(v1::RevokeApiKeyRequest { key: id });
    call.metadata_mut().insert("authorization", bearer.parse().unwrap());
    let revoked = AccessServiceClient::new(stage.channel(Column::Right)).revoke_api_key(call).await;
    assert!(revoked.unwrap().into_inner().deleted);
    // Without an overlap a rotation ends the old key as well.
    let (old, bearer) = key(handle, "owner");
    let headers = [("Authorization", &*bearer)];
    let rotate = json!({"key": "feed000000000001", "hash": "ab".repeat(32), "overlap_ms": 0});
    let path = format!("/v1/access/keys/{old}/rotate");
    stage.http.json("POST", &path, &headers, &rotate).ok();

    let (_, bearer) = key(handle, "twin");
    let headers = [("Authorization", &*bearer)];
    let disable = json!({"enabled": false});
    let disabled = stage.http.json("PATCH", "/v1/access/principals/twin", &headers, &disable);
    assert_eq!(disabled.ok()["enabled"], false);
    stage.http.ask("GET", "/v1/limits", &headers, b"").refused(401, "UNAUTHENTICATED");
}
