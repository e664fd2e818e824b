//! Tests watches over gRPC: from now, from the past, and several on one stream.

use tenure_wire::shared::WatchFields;
use tenure_wire::v1;
use tokio::sync::mpsc::{Sender, channel};
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Streaming};

use crate::common::{Members, soon};
use crate::{Clients, heads, name, nothing, told};

/// A stream of watches.
struct Stream {
    to: Sender<v1::WatchRequest>,
    from: Streaming<v1::WatchResponse>,
}

impl Stream {
    async fn open(clients: &mut Clients) -> Self {
        let (to, requests) = channel(16);
        let from = clients.lock.watch(ReceiverStream::new(requests)).await.unwrap().into_inner();
        Self { to, from }
    }

    async fn send(&self, request: v1::WatchRequest) {
        self.to.send(request).await.unwrap();
    }

    async fn next(&mut self) -> (i64, WatchFields) {
        let message = soon(self.from.next()).await.unwrap().unwrap();
        (message.watch_id, message.into_fields())
    }
}

fn watch(watch_id: i64, key: &str) -> v1::WatchRequest {
    v1::WatchRequest { key: key.into(), watch_id, ..nothing() }
}

fn causes(fields: &WatchFields) -> Vec<v1::Cause> {
    fields.events.iter().map(v1::Event::cause).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn events_come_in_order_from_now_or_from_the_past() {
    let members = Members::found(3);
    for at in [members.leader(), members.follower()] {
        let mut clients = Clients::new(&members.connect(at));
        let mut stream = Stream::open(&mut clients).await;
        let lock = name("seen");
        stream.send(watch(7, &lock)).await;
        let (id, created) = stream.next().await;
        assert!(id == 7 && created.created && created.events.is_empty());
        let before = heads(created.header.as_ref(), members.id(at));

        let lease = clients.lease("w").await;
        let token = clients.take(&lock, lease).await;
        let unlock = v1::UnlockRequest { name: lock.clone(), lease_id: lease, token };
        clients.lock.unlock(unlock).await.unwrap();
        let (id, granted) = stream.next().await;
        assert_eq!((id, causes(&granted)), (7, vec![v1::Cause::Granted]));
        let event = &granted.events[0];
        assert_eq!((event.token, &*event.client, event.r#type()), (token, "w", v1::EventType::Put));
        assert_eq!(event.kv.as_ref().unwrap().key, lock);
        assert_eq!(heads(granted.header.as_ref(), members.id(at)), granted.revision);
        assert!(granted.revision > before);
        let (_, released) = stream.next().await;
        assert_eq!(causes(&released), [v1::Cause::Released]);
        assert_eq!(released.events[0].r#type(), v1::EventType::Delete);

        // The same again from the past, on the same stream, for the whole prefix.
        let past = v1::WatchRequest { prefix: true, start_revision: before, ..watch(8, &lock) };
        stream.send(past).await;
        let (id, created) = stream.next().await;
        assert!(id == 8 && created.created);
        let (id, again) = stream.next().await;
        assert_eq!((id, &again.events), (8, &granted.events));
        assert_eq!(stream.next().await.1.events, released.events);

        // Request the progress.
        stream.send(v1::WatchRequest { watch_id: 8, progress: true, ..nothing() }).await;
        let (id, mark) = stream.next().await;
        assert!(id == 8 && mark.progress && mark.revision >= released.revision, "{mark:?}");

        // One watch ends, the other goes on.
        stream.send(v1::WatchRequest { watch_id: 8, cancel: true, ..nothing() }).await;
        let (id, canceled) = stream.next().await;
        assert!(id == 8 && canceled.canceled && canceled.error.is_none());
        clients.take(&lock, lease).await;
        let (id, granted) = stream.next().await;
        assert_eq!((id, causes(&granted)), (7, vec![v1::Cause::Granted]));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_there_before_comes_if_asked_for() {
    let members = Members::found(1);
    let mut clients = Clients::new(&members.connect(0));
    let mut stream = Stream::open(&mut clients).await;
    let key = name("previous");
    stream.send(v1::WatchRequest { prev_kv: true, ..watch(1, &key) }).await;
    stream.send(watch(2, &key)).await;
    assert!(stream.next().await.1.created && stream.next().await.1.created);
    for value in ["old", "new"] {
        let put = v1::PutRequest { key: key.clone(), value: value.into(), ..nothing() };
        clients.keys.put(put).await.unwrap();
    }
    let mut previous = std::collections::BTreeMap::<i64, Vec<_>>::new();
    for _ in 0..4 {
        let (id, mut fields) = stream.next().await;
        let event = fields.events.remove(0);
        previous.entry(id).or_default().push(event.prev_kv.map(|kv| kv.value));
    }
    assert_eq!(previous[&1], [None, Some("old".into())]);
    assert_eq!(previous[&2], [None, None]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_older_than_the_history_is_told_where_it_begins() {
    let members = Members::found(1);
    let mut clients = Clients::new(&members.connect(0));
    let key = name("old");
    // A compaction keeps many revisions; the limit makes the history shorter than that.
    let limit = v1::LimitValue { limit: "history_revisions".to_owned(), value: 1 };
    clients.care.set_limits(v1::SetLimitsRequest { limits: vec![limit] }).await.unwrap();
    let mut newest = 0;
    for _ in 0..5 {
        let put = v1::PutRequest { key: key.clone(), ..nothing() };
        newest = clients.keys.put(put).await.unwrap().into_inner().header.unwrap().revision;
    }
    let floor = newest;
    let mut stream = Stream::open(&mut clients).await;
    stream.send(v1::WatchRequest { start_revision: 1, ..watch(3, &key) }).await;
    assert!(stream.next().await.1.created);
    let (id, over) = stream.next().await;
    assert!(id == 3 && over.canceled && over.compact_revision == floor, "{over:?}");
    assert_eq!(over.error.unwrap().reason, "COMPACTED");
    // The stream goes on, and the id may be used again.
    stream.send(v1::WatchRequest { start_revision: floor, ..watch(3, &key) }).await;
    assert!(stream.next().await.1.created);
    assert_eq!(stream.next().await.1.revision, newest);
}

#[tokio::test(flavor = "multi_thread")]
async fn watches_that_cannot_be_end_the_stream_with_a_reason() {
    let members = Members::found(1);
    let mut clients = Clients::new(&members.connect(0));
    let negative = v1::WatchRequest { start_revision: -1, ..watch(1, "a") };
    let cancel = v1::WatchRequest { cancel: true, ..watch(9, "") };
    for bad in [watch(1, ""), negative, cancel] {
        let mut stream = Stream::open(&mut clients).await;
        stream.send(bad).await;
        let status = soon(stream.from.next()).await.unwrap().unwrap_err();
        told(&status, Code::InvalidArgument, "INVALID_FIELD");
    }
    let mut stream = Stream::open(&mut clients).await;
    stream.send(watch(1, "a")).await;
    assert!(stream.next().await.1.created);
    stream.send(watch(1, "b")).await;
    let status = soon(stream.from.next()).await.unwrap().unwrap_err();
    told(&status, Code::InvalidArgument, "INVALID_FIELD");
}
