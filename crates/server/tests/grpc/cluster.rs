//! Tests membership, status, limits, levels, hashes, backups, health and reflection over gRPC.

use std::io::Write as _;

use tenure_server::backup::Verified;
use tenure_wire::v1;
use tokio_stream::StreamExt as _;
use tonic::{Code, Status};
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::{HealthCheckRequest, health_check_response::ServingStatus};
use xxhash_rust::xxh3::xxh3_128;

use crate::common::{Members, soon, wait_for};
use crate::{Clients, heads, name, nothing, refused};

#[tokio::test(flavor = "multi_thread")]
async fn members_are_shown_added_promoted_and_removed_by_any_member() {
    let mut members = Members::found(3);
    let follower = members.follower();
    let mut clients = Clients::new(&members.connect(follower));
    let id = members.id(follower);
    let shown = clients.cluster.members(v1::MembersRequest {}).await.unwrap().into_inner();
    heads(shown.header.as_ref(), id);
    assert_eq!(shown.leader.unwrap().member_id, members.id(members.leader()));
    let roles: Vec<_> = shown.members.iter().map(v1::Member::role).collect();
    assert_eq!(roles.iter().filter(|role| **role == v1::Role::Leader).count(), 1);
    assert_eq!(roles.iter().filter(|role| **role == v1::Role::Follower).count(), 2);

    // A member that is added here and never starts.
    let add = v1::AddMemberRequest {
        member_id: 4_711,
        name: "ghost".into(),
        member_address: "127.0.0.1:1".into(),
        ..nothing()
    };
    let far = v1::AddMemberRequest { hops: 6, ..add.clone() };
    refused(clients.cluster.add(far).await, Code::Unavailable, "TOO_MANY_HOPS");
    let nameless = v1::AddMemberRequest { member_address: "a b".into(), ..add.clone() };
    refused(clients.cluster.add(nameless).await, Code::InvalidArgument, "INVALID_FIELD");
    for address in ["127.0.0.1", "127.0.0.1:0", "0.0.0.0:7451", "[::]:7451", "host:port"] {
        let nowhere = v1::AddMemberRequest { member_address: address.into(), ..add.clone() };
        refused(clients.cluster.add(nowhere).await, Code::InvalidArgument, "INVALID_FIELD");
    }
    let added = clients.cluster.add(add.clone()).await.unwrap().into_inner();
    heads(added.header.as_ref(), id);
    let role = async |clients: &mut Clients, id: u64| {
        let shown = clients.cluster.members(v1::MembersRequest {}).await.unwrap().into_inner();
        shown.members.iter().find(|it| it.member_id == id).map(v1::Member::role)
    };
    wait_for("it is known here", async || {
        (role(&mut clients, 4_711).await == Some(v1::Role::Learner)).then_some(())
    })
    .await;
    refused(clients.cluster.add(add.clone()).await, Code::AlreadyExists, "MEMBER_EXISTS");
    let remove = v1::RemoveMemberRequest { member_id: 4_711 };
    clients.cluster.remove(remove).await.unwrap();
    wait_for("it is gone here", async || role(&mut clients, 4_711).await.is_none().then_some(()))
        .await;
    refused(clients.cluster.remove(remove).await, Code::NotFound, "MEMBER_NOT_FOUND");
    let promote = v1::PromoteMemberRequest { member_id: 4_711 };
    refused(clients.cluster.promote(promote).await, Code::NotFound, "MEMBER_NOT_FOUND");
    refused(clients.cluster.add(add).await, Code::InvalidArgument, "INVALID_FIELD");

    // A member that joins by itself.
    let new = tokio::task::block_in_place(|| members.join());
    let promote = v1::PromoteMemberRequest { member_id: members.id(new) };
    wait_for("it is promoted", async || clients.cluster.promote(promote).await.ok()).await;
    let again = clients.cluster.promote(promote).await.unwrap().into_inner();
    heads(again.header.as_ref(), id);
    let mut theirs = Clients::new(&members.connect(new));
    wait_for("it knows", async || {
        (role(&mut theirs, promote.member_id).await == Some(v1::Role::Follower)).then_some(())
    })
    .await;

    // The leader is asked to leave: it hands leadership over first.
    let leader = members.leader();
    let mut leading = Clients::new(&members.connect(leader));
    let left = leading.cluster.leave(v1::LeaveClusterRequest {}).await.unwrap().into_inner();
    heads(left.header.as_ref(), members.id(leader));
    let gone = members.id(leader);
    let witness = (0..4).find(|at| *at != leader).unwrap();
    let mut witness = Clients::new(&members.connect(witness));
    wait_for("it has left", async || role(&mut witness, gone).await.is_none().then_some(())).await;
    witness.lease("still there").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn leadership_is_handed_over_and_the_last_voter_stays() {
    let members = Members::found(3);
    let follower = members.follower();
    let mut clients = Clients::new(&members.connect(follower));
    for to in [members.id(follower), 0] {
        let before = members.id(members.leader());
        let transfer = v1::TransferLeadershipRequest { member_id: to };
        let done = clients.cluster.transfer_leadership(transfer).await.unwrap().into_inner();
        heads(done.header.as_ref(), members.id(follower));
        let leader = done.leader.unwrap().member_id;
        assert!(leader != before && (to == 0 || leader == to));
    }
    let unknown = v1::TransferLeadershipRequest { member_id: 4_711 };
    let answer = clients.cluster.transfer_leadership(unknown).await;
    refused(answer, Code::NotFound, "MEMBER_NOT_FOUND");

    let alone = Members::found(1);
    let mut clients = Clients::new(&alone.connect(0));
    let to_nobody = v1::TransferLeadershipRequest { member_id: 0 };
    let answer = clients.cluster.transfer_leadership(to_nobody).await;
    refused(answer, Code::FailedPrecondition, "QUORUM_AT_RISK");
    let answer = clients.cluster.leave(v1::LeaveClusterRequest {}).await;
    refused(answer, Code::FailedPrecondition, "QUORUM_AT_RISK");
    let unknown = v1::RemoveMemberRequest { member_id: 0 };
    refused(clients.cluster.remove(unknown).await, Code::InvalidArgument, "INVALID_FIELD");
}

#[tokio::test(flavor = "multi_thread")]
async fn status_tells_counts_limits_and_who_is_behind() {
    let mut members = Members::found(3);
    for at in [members.leader(), members.follower()] {
        let mut clients = Clients::new(&members.connect(at));
        let lease = clients.lease("s").await;
        clients.take(&name("status"), lease).await;
        let status = wait_for("all are heard of", async || {
            let status = clients.cluster.status(v1::StatusRequest {}).await.unwrap().into_inner();
            status.members.iter().all(|member| member.up).then_some(status)
        })
        .await;
        heads(status.header.as_ref(), members.id(at));
        assert_eq!((status.survives, status.members.len(), status.insecure), (1, 3, false));
        let counts = status.counts.unwrap();
        assert!(counts.leases >= 1 && counts.locks >= 1 && counts.state_bytes > 0);
        let limit = status.limits.iter().find(|it| it.limit == "ttl_min_ms").unwrap();
        assert_eq!(limit.value, 1_000);
        let known = status.members.iter().filter(|member| member.behind.is_some()).count();
        assert_eq!(known, if at == members.leader() { 3 } else { 1 });
    }
    // A stopped member has failed already, so no other may fail.
    let down = members.follower();
    tokio::task::block_in_place(|| members.stop(down));
    let mut clients = Clients::new(&members.connect(members.leader()));
    wait_for("it is not heard of", async || {
        let status = clients.cluster.status(v1::StatusRequest {}).await.unwrap().into_inner();
        let up = status.members.iter().filter(|member| member.up).count();
        (up == 2 && status.survives == 0).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_levels_and_hashes_through_every_member() {
    let members = Members::found(3);
    for at in [members.leader(), members.follower()] {
        let mut clients = Clients::new(&members.connect(at));
        let set = |limit: &str, value| v1::SetLimitsRequest {
            limits: vec![v1::LimitValue { limit: limit.into(), value }],
        };
        let done = clients.care.set_limits(set("slots", 7)).await.unwrap().into_inner();
        heads(done.header.as_ref(), members.id(at));
        let wrong = clients.care.set_limits(set("slots", 0)).await;
        refused(wrong, Code::InvalidArgument, "INVALID_LIMIT");
        let unknown = clients.care.set_limits(set("wishes", 3)).await;
        refused(unknown, Code::InvalidArgument, "INVALID_FIELD");
        let none = clients.care.set_limits(v1::SetLimitsRequest::default()).await;
        refused(none, Code::InvalidArgument, "INVALID_FIELD");
        let future = v1::CompactRequest { keep: 1 << 40 };
        refused(clients.care.compact(future).await, Code::OutOfRange, "FUTURE_REVISION");
        let level = v1::RaiseLevelRequest { level: 9_999 };
        let unknown = clients.care.raise_level(level).await;
        refused(unknown, Code::FailedPrecondition, "LEVEL_NOT_KNOWN");
        let none = v1::RaiseLevelRequest { level: 70_000 };
        refused(clients.care.raise_level(none).await, Code::InvalidArgument, "INVALID_FIELD");
    }
    let mut clients = [0, 1, 2].map(|at| Clients::new(&members.connect(at)));
    wait_for("all hashes are the same", async || {
        let mut seen = Vec::new();
        for clients in &mut clients {
            let hash = clients.care.hash(v1::HashRequest {}).await.unwrap().into_inner();
            assert_eq!(hash.hash.len(), 16);
            seen.push((hash.hash, hash.applied));
        }
        (seen[0] == seen[1] && seen[1] == seen[2]).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_comes_whole_from_every_member() {
    let members = Members::found(3);
    for at in [members.leader(), members.follower()] {
        let mut clients = Clients::new(&members.connect(at));
        let key = name("kept");
        for number in 0..20 {
            let value = vec![b'x'; 30_000].into();
            let put = v1::PutRequest { key: format!("{key}/{number}"), value, ..nothing() };
            clients.keys.put(put).await.unwrap();
        }
        let mut stream = clients.care.backup(v1::BackupRequest {}).await.unwrap().into_inner();
        let first = soon(stream.next()).await.unwrap().unwrap();
        let revision = heads(first.header.as_ref(), members.id(at));
        let (mut bytes, mut checksum) = (Vec::new(), None);
        while let Some(piece) = soon(stream.next()).await {
            let piece = piece.unwrap();
            assert!(checksum.is_none(), "the checksum is the last");
            bytes.extend_from_slice(&piece.chunk);
            checksum = (!piece.checksum.is_empty()).then_some(piece.checksum);
        }
        assert_eq!(checksum.unwrap()[..], xxh3_128(&bytes).to_be_bytes());
        assert_eq!(first.total_bytes, Some(bytes.len() as u64));
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&bytes).unwrap();
        let backup = Verified::read(file.path(), u16::MAX).unwrap();
        assert_eq!(i64::try_from(backup.head.revision.0).unwrap(), revision);
        assert!(backup.machine.key(&format!("{key}/19")).is_some());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn health_says_whether_there_is_a_leader() {
    let mut members = Members::found(2);
    let mut health = HealthClient::new(members.connect(0));
    let mut ask = async |service: &str| -> Result<ServingStatus, Status> {
        let request = HealthCheckRequest { service: service.into() };
        Ok(health.check(request).await?.into_inner().status())
    };
    for service in ["", "tenure.v1.LockService", "tenure.v1.SessionService"] {
        assert_eq!(ask(service).await.unwrap(), ServingStatus::Serving);
    }
    assert_eq!(ask("nobody").await.unwrap_err().code(), Code::NotFound);
    tokio::task::block_in_place(|| members.stop(1));
    wait_for("it says that it does not serve", async || {
        (ask("").await.unwrap() == ServingStatus::NotServing).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reflection_lists_the_services_in_both_versions() {
    let members = Members::found(1);
    macro_rules! services {
        ($version:ident) => {{
            use tonic_reflection::pb::$version as pb;
            let ask = pb::server_reflection_request::MessageRequest::ListServices(String::new());
            let request = pb::ServerReflectionRequest { message_request: Some(ask), ..nothing() };
            let channel = members.connect(0);
            let mut client = pb::server_reflection_client::ServerReflectionClient::new(channel);
            let asked = tokio_stream::iter([request]);
            let mut answers = client.server_reflection_info(asked).await.unwrap().into_inner();
            use pb::server_reflection_response::MessageResponse::ListServicesResponse;
            match soon(answers.next()).await.unwrap().unwrap().message_response {
                Some(ListServicesResponse(list)) => {
                    list.service.into_iter().map(|it| it.name).collect::<Vec<_>>()
                }
                other => panic!("{other:?}"),
            }
        }};
    }
    let (new, old) = (services!(v1), services!(v1alpha));
    for service in
        ["Lock", "LockAdmin", "Lease", "Key", "Election", "Cluster", "Maintenance", "Session"]
    {
        let name = format!("tenure.v1.{service}Service");
        assert!(new.contains(&name) && old.contains(&name), "{name} in {new:?} and {old:?}");
    }
}
