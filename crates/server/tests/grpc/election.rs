//! Tests elections over gRPC: campaigns, values and vacancies.

use tenure_wire::v1;
use tokio_stream::StreamExt as _;
use tonic::{Code, Streaming};

use crate::common::{Members, soon, wait_for};
use crate::{Clients, heads, name, nothing, refused};

async fn seen(observer: &mut Streaming<v1::LeaderResponse>) -> Option<(String, String)> {
    let leader = soon(observer.next()).await.unwrap().unwrap().leader?;
    Some((leader.client, String::from_utf8(leader.value.to_vec()).unwrap()))
}

fn so(client: &str, value: &str) -> Option<(String, String)> {
    Some((client.to_owned(), value.to_owned()))
}

#[tokio::test(flavor = "multi_thread")]
async fn an_observer_sees_every_leader_every_value_and_every_vacancy() {
    let members = Members::found(3);
    for at in [members.leader(), members.follower()] {
        let mut clients = Clients::new(&members.connect(at));
        let id = members.id(at);
        let election = name("election");
        let who = v1::LeaderRequest { name: election.clone(), ..nothing() };
        let mut observer = clients.elections.observe(who.clone()).await.unwrap().into_inner();
        assert_eq!(seen(&mut observer).await, None, "vacant, and said so");

        let (a, b) = (clients.lease("a").await, clients.lease("b").await);
        let campaign = |lease, value: &str| v1::CampaignRequest {
            name: election.clone(),
            lease,
            value: value.to_owned().into(),
            ..nothing()
        };
        let won = clients.elections.campaign(campaign(a, "1")).await.unwrap().into_inner();
        heads(won.header.as_ref(), id);
        let leader = won.leader.unwrap();
        assert_eq!((&*leader.client, &leader.value[..], leader.lease), ("a", &b"1"[..], a));
        assert_eq!(seen(&mut observer).await, so("a", "1"));
        let shown = clients.elections.leader(who.clone()).await.unwrap().into_inner();
        assert_eq!(shown.leader.unwrap().token, leader.token);

        let hasty = v1::CampaignRequest { wait_ms: Some(0), ..campaign(b, "2") };
        refused(clients.elections.campaign(hasty).await, Code::FailedPrecondition, "HELD");
        let mut other = clients.clone();
        let asked = campaign(b, "2");
        let waits = tokio::spawn(async move { other.elections.campaign(asked).await });
        wait_for("b waits", async || (clients.waiting(&election).await == 1).then_some(())).await;

        let proclaim = v1::ProclaimRequest {
            name: election.clone(),
            lease: a,
            token: leader.token,
            value: "3".into(),
        };
        let done = clients.elections.proclaim(proclaim.clone()).await.unwrap().into_inner();
        heads(done.header.as_ref(), id);
        assert_eq!(seen(&mut observer).await, so("a", "3"));
        let resign = v1::ResignRequest { name: election.clone(), lease: a, token: leader.token };
        let done = clients.elections.resign(resign.clone()).await.unwrap().into_inner();
        heads(done.header.as_ref(), id);
        assert_eq!(seen(&mut observer).await, so("b", "2"), "no gap between the two");
        let next = soon(waits).await.unwrap().unwrap().into_inner().leader.unwrap();
        assert!(next.token > leader.token && next.lease == b);
        refused(clients.elections.resign(resign).await, Code::FailedPrecondition, "NOT_HOLDER");
        let late = clients.elections.proclaim(proclaim).await;
        refused(late, Code::FailedPrecondition, "NOT_HOLDER");

        clients.lock.lease_revoke(v1::LeaseRevokeRequest { id: b }).await.unwrap();
        assert_eq!(seen(&mut observer).await, None);
        let vacant = clients.elections.leader(who).await.unwrap().into_inner();
        assert!(vacant.leader.is_none());
        heads(vacant.header.as_ref(), id);
        let nameless = clients.elections.leader(nothing::<v1::LeaderRequest>()).await;
        refused(nameless, Code::InvalidArgument, "INVALID_FIELD");
        let nameless = clients.elections.observe(nothing::<v1::LeaderRequest>()).await;
        refused(nameless.map(|_| tonic::Response::new(())), Code::InvalidArgument, "INVALID_FIELD");
    }
}
