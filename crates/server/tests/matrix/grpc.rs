//! Builds a request for every gRPC method and sends it.

use bytes::{Buf as _, BufMut as _, Bytes};
use prost::Message;
use tenure_wire::status::REASON;
use tenure_wire::v1;
use tokio_stream::StreamExt as _;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::transport::Channel;
use tonic::{Request, Status};

use super::outcome::{Outcome, TTL_0};
use super::stage::{HIDDEN, Row};

/// The variants in which a method is called, beside the plain one.
pub(super) fn variants(method: &str) -> &'static [&'static str] {
    match method {
        "LeaseService/Revoke" => &["", "reason"],
        "KeyService/Put" => &["", "lease", "guard"],
        _ => &[""],
    }
}

/// Whether the client goes on sending: the member ends such a stream as soon as the client does.
fn stays_open(method: &str) -> bool {
    ["LockService/LeaseKeepAlive", "LockService/Watch", "SessionService/Open"].contains(&method)
}

/// A valid request of a method; `None` if the matrix does not have it.
pub(super) fn request(method: &str, variant: &str, row: &Row) -> Option<Vec<u8>> {
    let (service, name) = method.split_once('/')?;
    match service {
        "AccessService" => access(name, row),
        "ClusterService" | "MaintenanceService" | "TicketService" => operations(method, row),
        "ElectionService" | "KeyService" | "SessionService" => names(method, variant, row),
        "LeaseService" | "LockService" => leases(method, variant, row),
        "LockAdminService" => locks(name, row),
        _ => None,
    }
}

fn access(name: &str, row: &Row) -> Option<Vec<u8>> {
    let (spare, hash) = (row.spare(), Bytes::from(vec![0xab; 32]));
    Some(match name {
        "Can" => {
            let (principal, verb) = ("owner".to_owned(), "read".to_owned());
            v1::CanRequest { principal, verb, name: row.name("free"), priority: 0 }.encode_to_vec()
        }
        "CreateApiKey" => {
            let (principal, key) = (spare, row.new_key());
            v1::CreateApiKeyRequest { principal, key, hash, ..Default::default() }.encode_to_vec()
        }
        "DeleteCertificateRule" => v1::DeleteCertificateRuleRequest { rule: spare }.encode_to_vec(),
        "DeleteIssuer" => v1::DeleteIssuerRequest { issuer: spare }.encode_to_vec(),
        "DeletePrincipal" => v1::DeletePrincipalRequest { principal: spare }.encode_to_vec(),
        "DeleteRole" => v1::DeleteRoleRequest { role: spare }.encode_to_vec(),
        "EnablePrincipal" => {
            v1::EnablePrincipalRequest { principal: spare, enabled: false }.encode_to_vec()
        }
        "GetPrincipal" => v1::GetPrincipalRequest { principal: spare }.encode_to_vec(),
        "ListApiKeys"
        | "ListCertificateRules"
        | "ListIssuers"
        | "ListPrincipals"
        | "ListRoles"
        | "SetDefaultQuotas"
        | "Status" => Vec::new(),
        "PutCertificateRule" => {
            let (pattern, principal) = (format!("cn:{spare}"), spare.clone());
            let rule = v1::CertificateRule { rule: spare, pattern, principal };
            v1::PutCertificateRuleRequest { rule: Some(rule) }.encode_to_vec()
        }
        "PutIssuer" => {
            let issuer = v1::Issuer {
                issuer: spare.clone(),
                audience: "tenure".into(),
                jwks_url: "http://127.0.0.1:9/jwks".into(),
                prefix: spare,
                ..Default::default()
            };
            v1::PutIssuerRequest { issuer: Some(issuer) }.encode_to_vec()
        }
        "PutPrincipal" => {
            v1::PutPrincipalRequest { principal: spare, ..Default::default() }.encode_to_vec()
        }
        "PutRole" => {
            let rule =
                v1::AccessRule { verbs: vec!["read".into()], prefix: "spare/".into(), priority: 0 };
            let role = v1::AccessRole { role: spare, rules: vec![rule], ..Default::default() };
            v1::PutRoleRequest { role: Some(role), ..Default::default() }.encode_to_vec()
        }
        "RevokeApiKey" => v1::RevokeApiKeyRequest { key: row.key.clone() }.encode_to_vec(),
        "RotateApiKey" => {
            let (old_key, key) = (row.key.clone(), row.new_key());
            let overlap_ms = 1_000;
            let rotate =
                v1::RotateApiKeyRequest { old_key, key, hash, overlap_ms, ..Default::default() };
            rotate.encode_to_vec()
        }
        "SetIdentity" => v1::SetIdentityRequest { enabled: true }.encode_to_vec(),
        _ => return None,
    })
}

fn operations(method: &str, row: &Row) -> Option<Vec<u8>> {
    Some(match method {
        "ClusterService/Add" => {
            let add = v1::AddMemberRequest {
                member_id: 77,
                name: "m77".into(),
                member_address: "127.0.0.1:9".into(),
                client_address: "127.0.0.1:9".into(),
                hops: 0,
            };
            add.encode_to_vec()
        }
        "ClusterService/CancelInvitation" => {
            v1::CancelInvitationRequest { id: "00".repeat(8) }.encode_to_vec()
        }
        "ClusterService/Invite"
        | "ClusterService/ListInvitations"
        | "ClusterService/Leave"
        | "ClusterService/Members"
        | "ClusterService/Status"
        | "MaintenanceService/Audit"
        | "MaintenanceService/Backup"
        | "MaintenanceService/Hash"
        | "TicketService/Keys"
        | "TicketService/RotateKey" => Vec::new(),
        "ClusterService/Promote" => v1::PromoteMemberRequest { member_id: 97 }.encode_to_vec(),
        "ClusterService/Remove" => v1::RemoveMemberRequest { member_id: 77 }.encode_to_vec(),
        "ClusterService/TransferLeadership" => {
            v1::TransferLeadershipRequest { member_id: 97 }.encode_to_vec()
        }
        "MaintenanceService/Compact" => v1::CompactRequest { keep: 1 }.encode_to_vec(),
        "MaintenanceService/RaiseLevel" => {
            v1::RaiseLevelRequest { level: row.level }.encode_to_vec()
        }
        "MaintenanceService/SetLimits" => {
            let (limit, value) = row.limit.clone();
            let limits = vec![v1::LimitValue { limit, value }];
            v1::SetLimitsRequest { limits }.encode_to_vec()
        }
        "TicketService/Sign" => {
            let (lock, lease, token) = (row.name("lock"), row.lease, row.token);
            v1::SignTicketRequest { lock, lease, token, ..Default::default() }.encode_to_vec()
        }
        _ => return None,
    })
}

fn names(method: &str, variant: &str, row: &Row) -> Option<Vec<u8>> {
    let (lease, token, value) = (row.lease, row.leadership, b"value".to_vec());
    let (name, key) = (row.name("election"), row.name("key"));
    Some(match method {
        "ElectionService/Campaign" => {
            let (name, wait_ms) = (row.name("free"), Some(0));
            v1::CampaignRequest { name, lease, value: value.into(), wait_ms }.encode_to_vec()
        }
        "ElectionService/Leader" | "ElectionService/Observe" => {
            v1::LeaderRequest { name, stale: false }.encode_to_vec()
        }
        "ElectionService/Proclaim" => {
            v1::ProclaimRequest { name, lease, token, value: value.into() }.encode_to_vec()
        }
        "ElectionService/Resign" => v1::ResignRequest { name, lease, token }.encode_to_vec(),
        "KeyService/Delete" => v1::DeleteRequest { key, ..Default::default() }.encode_to_vec(),
        "KeyService/Get" => v1::GetKeyRequest { key, stale: false }.encode_to_vec(),
        "KeyService/List" => Vec::new(),
        "KeyService/Put" => {
            let lease = if variant == "lease" { lease } else { 0 };
            let held = v1::Guard { lock: row.name("lock"), token: row.token };
            let guard = (variant == "guard").then_some(held);
            v1::PutRequest { key, value: value.into(), lease, guard, ..Default::default() }
                .encode_to_vec()
        }
        "SessionService/Open" => {
            let leases = vec![v1::LeaseName { lease, created: row.created, ..Default::default() }];
            let hello = v1::Hello { client: "matrix".into(), leases, ..Default::default() };
            v1::SessionRequest { hello: Some(hello), requests: Vec::new() }.encode_to_vec()
        }
        _ => return None,
    })
}

fn leases(method: &str, variant: &str, row: &Row) -> Option<Vec<u8>> {
    let (lease, lease_id, name) = (row.lease, row.lease, row.name("free"));
    Some(match method {
        "LeaseService/Get" => v1::GetLeaseRequest { lease, ..Default::default() }.encode_to_vec(),
        "LeaseService/List" => Vec::new(),
        "LeaseService/Revoke" if variant == "reason" => {
            let reason = "stuck".to_owned();
            v1::RevokeRequest { lease, by_other: true, reason, ..Default::default() }
                .encode_to_vec()
        }
        "LeaseService/Revoke" => v1::RevokeRequest { lease, ..Default::default() }.encode_to_vec(),
        "LockService/LeaseGrant" => {
            v1::LeaseGrantRequest { ttl: 60, ..Default::default() }.encode_to_vec()
        }
        "LockService/LeaseKeepAlive" => v1::LeaseKeepAliveRequest { id: lease }.encode_to_vec(),
        "LockService/LeaseRevoke" => v1::LeaseRevokeRequest { id: lease }.encode_to_vec(),
        "LockService/Lock" => {
            let timeout_ms = Some(0);
            v1::LockRequest { name, lease_id, timeout_ms, ..Default::default() }.encode_to_vec()
        }
        "LockService/TryLock" => {
            v1::TryLockRequest { name, lease_id, ..Default::default() }.encode_to_vec()
        }
        "LockService/Unlock" => {
            let (name, token) = (row.name("lock"), row.token);
            v1::UnlockRequest { name, lease_id, token }.encode_to_vec()
        }
        "LockService/Watch" => {
            let key = format!("own/{}/", row.number);
            v1::WatchRequest { key, prefix: true, watch_id: 1, ..Default::default() }
                .encode_to_vec()
        }
        _ => return None,
    })
}

fn locks(name: &str, row: &Row) -> Option<Vec<u8>> {
    let (lock, lease, token) = (row.name("lock"), row.lease, row.token);
    Some(match name {
        "Acquire" => {
            let (lock, wait_ms) = (row.name("free"), Some(0));
            v1::AcquireRequest { lock, lease, wait_ms, ..Default::default() }.encode_to_vec()
        }
        "Downgrade" => {
            v1::DowngradeRequest { lock, lease, token, ..Default::default() }.encode_to_vec()
        }
        "HandOn" => v1::HandOnRequest { lock, lease, token, to: lease, ..Default::default() }
            .encode_to_vec(),
        "Progress" => v1::ProgressRequest { lock, lease, token, number: 1, ..Default::default() }
            .encode_to_vec(),
        "Drain" => {
            let (prefix, reason) = (Some(row.name("spare")), "new disks".to_owned());
            v1::DrainRequest { prefix, reason, by: String::new() }.encode_to_vec()
        }
        "Undrain" => {
            let prefix = Some(row.name("spare"));
            v1::UndrainRequest { prefix, by: String::new() }.encode_to_vec()
        }
        "Resize" => {
            let lock = row.name("spare");
            v1::ResizeRequest { lock, slots: 3, by: String::new() }.encode_to_vec()
        }
        "ListDrains" => Vec::new(),
        "Explain" => v1::ExplainRequest { lock, lease, ..Default::default() }.encode_to_vec(),
        "Force" => {
            let reason = "it is needed elsewhere".to_owned();
            v1::ForceRequest { lock, token, reason, ..Default::default() }.encode_to_vec()
        }
        "Get" => v1::GetLockRequest { lock, stale: false }.encode_to_vec(),
        "History" => v1::HistoryRequest { lock, ..Default::default() }.encode_to_vec(),
        "Leave" => {
            let lock = row.name("queue");
            v1::LeaveRequest { lock, lease, ..Default::default() }.encode_to_vec()
        }
        "List" => Vec::new(),
        "Queue" => v1::QueueRequest { lock, ..Default::default() }.encode_to_vec(),
        "Release" => {
            v1::ReleaseRequest { lock, lease, token, ..Default::default() }.encode_to_vec()
        }
        "Stopped" => {
            v1::StoppedRequest { lock, lease, lease_created: row.created, token }.encode_to_vec()
        }
        "Update" => {
            let metadata = b"new".to_vec().into();
            v1::UpdateRequest { lock, lease, token, metadata, ..Default::default() }.encode_to_vec()
        }
        _ => return None,
    })
}

/// Sends a request and reads the first message of the answer.
pub(super) async fn ask(
    channel: Channel,
    bearer: Option<&str>,
    method: &str,
    message: &[u8],
) -> Outcome {
    let mut client = tonic::client::Grpc::new(channel);
    client.ready().await.unwrap();
    let first = tokio_stream::once(Bytes::copy_from_slice(message));
    let rest: Box<dyn tokio_stream::Stream<Item = Bytes> + Send + Unpin> = if stays_open(method) {
        Box::new(tokio_stream::pending())
    } else {
        Box::new(tokio_stream::empty())
    };
    let mut request = Request::new(first.chain(rest));
    if let Some(bearer) = bearer {
        request.metadata_mut().insert("authorization", bearer.parse().unwrap());
    }
    let path = format!("/tenure.v1.{method}").parse().unwrap();
    let answer = async {
        let mut answer = client.streaming(request, path, RawCodec).await?.into_inner();
        answer.message().await
    };
    let answer = tokio::time::timeout(crate::bounded::DEADLINE, answer).await;
    match answer.unwrap_or_else(|_| panic!("no answer in time: {method}")) {
        Err(status) => refused(&status),
        Ok(None) => Outcome::word("no message", Vec::new()),
        Ok(Some(message)) => answered(method, &message),
    }
}

pub(super) fn refused(status: &Status) -> Outcome {
    let reason = status.metadata().get(REASON).map(|it| it.to_str().unwrap().to_owned());
    let reason = reason.unwrap_or_else(|| format!("{:?}", status.code()));
    Outcome::refused(&reason, status.message(), status.details().to_vec())
}

/// Some methods answer a refusal as a message.
fn answered(method: &str, message: &Bytes) -> Outcome {
    let mut body = message.to_vec();
    let error = match method {
        "LockService/Watch" => v1::WatchResponse::decode(&**message).unwrap().into_fields().error,
        "SessionService/Open" => {
            let opened = v1::SessionResponse::decode(&**message).unwrap();
            // A session with the owner's lease would be told what becomes of it.
            if opened.welcome.is_some_and(|it| !it.leases.is_empty()) {
                body.extend_from_slice(HIDDEN.as_bytes());
            }
            opened.closing
        }
        "LockService/LeaseKeepAlive" => {
            let kept = v1::LeaseKeepAliveResponse::decode(&**message).unwrap();
            return if kept.ttl_ms > 0 { Outcome::ok(body) } else { Outcome::word(TTL_0, body) };
        }
        "LockService/Lock" | "LockService/TryLock" => {
            let held = v1::LockResponse::decode(&**message).unwrap();
            return if held.acquired {
                Outcome::ok(body)
            } else {
                Outcome::refused(&held.reason, "", body)
            };
        }
        _ => None,
    };
    match error {
        Some(error) => Outcome::error(&error, body),
        None => Outcome::ok(body),
    }
}

/// Sends and receives messages as bytes, so that one function serves every method.
#[derive(Clone, Copy)]
struct RawCodec;

impl Codec for RawCodec {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        *self
    }

    fn decoder(&mut self) -> Self {
        *self
    }
}

impl Encoder for RawCodec {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.put(item);
        Ok(())
    }
}

impl Decoder for RawCodec {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining())))
    }
}
