//! Tests sessions over gRPC.

use tenure_wire::v1;
use tenure_wire::v1::request::Command;
use tenure_wire::v1::session_service_client::SessionServiceClient;
use tokio::sync::mpsc::{Sender, channel};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use tonic::transport::Channel;
use v1::answer::Result as Answered;

use crate::common::{Members, soon};
use crate::{name, nothing};

/// A session, and the messages that were received and not yet taken.
struct Session {
    to: Sender<v1::SessionRequest>,
    from: Streaming<v1::SessionResponse>,
    answers: Vec<v1::Answer>,
    grants: Vec<v1::Granted>,
    losses: Vec<v1::Lost>,
}

impl Session {
    async fn open(channel: Channel, leases: Vec<v1::LeaseName>) -> (Self, v1::Welcome) {
        let (to, requests) = channel_of();
        let hello = v1::Hello { client: "s".into(), leases, ..nothing() };
        to.send(v1::SessionRequest { hello: Some(hello), ..nothing() }).await.unwrap();
        let mut client = SessionServiceClient::new(channel);
        let mut from = client.open(ReceiverStream::new(requests)).await.unwrap().into_inner();
        let welcome = soon(from.message()).await.unwrap().unwrap().welcome.unwrap();
        let (answers, grants, losses) = nothing();
        (Self { to, from, answers, grants, losses }, welcome)
    }

    async fn send(&self, requests: Vec<(u64, Command)>) {
        let request = |(id, command)| v1::Request { id, command: Some(command), ..nothing() };
        let requests = requests.into_iter().map(request).collect();
        self.to.send(v1::SessionRequest { hello: None, requests }).await.unwrap();
    }

    async fn read(&mut self) {
        let message = soon(self.from.message()).await.unwrap().expect("the session goes on");
        self.answers.extend(message.answers);
        self.grants.extend(message.grants);
        self.losses.extend(message.losses);
    }

    async fn answer(&mut self, id: u64) -> Answered {
        loop {
            if let Some(at) = self.answers.iter().position(|answer| answer.id == id) {
                return self.answers.remove(at).result.unwrap();
            }
            self.read().await;
        }
    }

    async fn granted(&mut self) -> v1::Granted {
        while self.grants.is_empty() {
            self.read().await;
        }
        self.grants.remove(0)
    }

    async fn lease(&mut self, id: u64) -> v1::Lease {
        let new = v1::NewLease { ttl_ms: 60_000, ..nothing() };
        self.send(vec![(id, Command::GrantLease(new))]).await;
        match self.answer(id).await {
            Answered::LeaseGranted(lease) => lease,
            other => panic!("{other:?}"),
        }
    }
}

fn channel_of() -> (Sender<v1::SessionRequest>, tokio::sync::mpsc::Receiver<v1::SessionRequest>) {
    channel(16)
}

fn acquire(lock: &str, lease: &v1::Lease) -> Command {
    Command::Acquire(v1::AcquireRequest {
        lock: lock.into(),
        lease_slot: lease.lease_slot,
        lease_generation: lease.lease_generation,
        ..nothing()
    })
}

fn release(lock: &str, lease: &v1::Lease, token: u64) -> Command {
    Command::Release(v1::ReleaseRequest {
        lock: lock.into(),
        lease: lease.lease,
        token,
        ..nothing()
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_place_outlives_its_session_and_is_found_again_at_another_member() {
    let members = Members::found(3);
    let (leader, follower) = (members.leader(), members.follower());
    let (mut session, welcome) = Session::open(members.connect(follower), Vec::new()).await;
    assert_eq!(welcome.header.unwrap().member_id, members.id(follower));
    assert_eq!(welcome.leader.unwrap().member_id, members.id(leader));
    let (holder, waiter) = (session.lease(1).await, session.lease(2).await);
    let (first, second) = (name("session"), name("session"));

    // Several requests at once: answers carry the ids of their requests, and a grant to a waiter arrives unasked.
    let wave = vec![
        (10, acquire(&first, &holder)),
        (11, acquire(&second, &holder)),
        (12, acquire(&first, &waiter)),
        (13, acquire(&second, &waiter)),
    ];
    session.send(wave).await;
    let mut tokens = Vec::new();
    for id in [10, 11] {
        match session.answer(id).await {
            Answered::Acquired(acquired) => tokens.push(acquired.token),
            other => panic!("{other:?}"),
        }
    }
    let mut places = Vec::new();
    for id in [12, 13] {
        match session.answer(id).await {
            Answered::Queued(queued) => places.push(queued.place),
            other => panic!("{other:?}"),
        }
    }
    session.send(vec![(20, release(&first, &holder, tokens[0]))]).await;
    assert!(matches!(session.answer(20).await, Answered::Released(_)));
    let granted = session.granted().await;
    assert_eq!((granted.id, &granted.lock, granted.place), (12, &first, places[0]));
    assert!(granted.token > tokens[0]);

    // The connection is gone; at another member the same request finds the same place.
    drop(session);
    let named = v1::LeaseName { lease: waiter.lease, ..nothing() };
    let (mut session, welcome) = Session::open(members.connect(leader), vec![named]).await;
    assert_eq!(welcome.leases, [waiter]);
    session.send(vec![(1, acquire(&second, &waiter)), (2, acquire(&first, &waiter))]).await;
    match session.answer(1).await {
        Answered::Queued(queued) => assert_eq!(queued.place, places[1]),
        other => panic!("{other:?}"),
    }
    match session.answer(2).await {
        Answered::Acquired(acquired) => assert_eq!(acquired.token, granted.token),
        other => panic!("{other:?}"),
    }
    session.send(vec![(3, release(&second, &holder, tokens[1]))]).await;
    let granted = session.granted().await;
    assert_eq!((&granted.lock, granted.place), (&second, places[1]));

    // The session reports a lock that was taken away.
    let force = v1::ForceRequest {
        lock: second.clone(),
        token: granted.token,
        reason: "test".into(),
        now: true,
        by: "ops@host".into(),
    };
    session.send(vec![(4, Command::Force(force))]).await;
    assert!(matches!(session.answer(4).await, Answered::Forced(_)));
    while session.losses.is_empty() {
        session.read().await;
    }
    let lost = &session.losses[0];
    assert_eq!((&lost.lock, lost.token, lost.cause()), (&second, granted.token, v1::Cause::Forced));
    assert_eq!((&*lost.by, &*lost.reason), ("ops@host", "test"));
}
