//! Drives sessions over gRPC, and tracks pending requests for all sessions.
//!
//! Every client has a session of its own. One task reads its messages and completes a request when its answer or its
//! grant arrives.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use tenure_wire::v1;
use tenure_wire::v1::session_service_client::SessionServiceClient;
use tokio::sync::{mpsc, oneshot};
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use v1::answer::Result as Wire;

use crate::request::{Answered, Api, Ask, Bad, Fault, How, Reply, Reported, What, told};

/// The pending requests, by request id.
#[derive(Clone, Default)]
pub(crate) struct Waiting(Arc<Mutex<Asked>>);

#[derive(Default)]
struct Asked {
    newest: u64,
    by_id: BTreeMap<u64, oneshot::Sender<Reply>>,
    /// The reply that ended the session.
    over: Option<Reply>,
}

impl Waiting {
    /// A new id, and the receiver of its reply.
    pub(crate) fn ask(&self) -> (u64, oneshot::Receiver<Reply>) {
        let (done, answer) = oneshot::channel();
        let mut asked = self.0.lock().unwrap();
        asked.newest += 1;
        let id = asked.newest;
        match &asked.over {
            Some(over) => drop(done.send(over.clone())),
            None => drop(asked.by_id.insert(id, done)),
        }
        (id, answer)
    }

    pub(crate) fn answer(&self, id: u64, reply: Reply) {
        if let Some(done) = self.0.lock().unwrap().by_id.remove(&id) {
            let _ = done.send(reply);
        }
    }

    /// A wait has ended without a grant, for a reason that the notice names.
    pub(crate) fn wait_refused(&self, id: u64, error: &v1::Error) {
        self.answer(id, Reply::Refused(Fault::new(error, How::Frame)));
    }

    /// A wait has ended without a grant: by its limit, or replaced by a newer request of this client.
    pub(crate) fn waited_in_vain(&self, id: u64, superseded_by: &str) {
        let (reason, message) = match superseded_by {
            "" => ("WAIT_TIMEOUT", "timed out waiting for the lock".to_owned()),
            by => ("SUPERSEDED", format!("superseded by a newer request of {by}")),
        };
        let error = v1::Error { reason: reason.into(), message, ..Default::default() };
        self.wait_refused(id, &error);
    }

    pub(crate) fn end(&self, reply: &Reply) {
        let mut asked = self.0.lock().unwrap();
        asked.over.get_or_insert_with(|| reply.clone());
        for (_, done) in std::mem::take(&mut asked.by_id) {
            let _ = done.send(reply.clone());
        }
    }
}

/// The session API of one member.
pub(crate) struct Sessions {
    channel: Channel,
    open: Mutex<BTreeMap<String, Session>>,
}

#[derive(Clone)]
struct Session {
    to: mpsc::Sender<v1::SessionRequest>,
    waiting: Waiting,
}

impl Sessions {
    pub(crate) fn new(channel: Channel) -> Self {
        Self { channel, open: Mutex::default() }
    }

    fn session(&self, who: &str) -> Session {
        let mut open = self.open.lock().unwrap();
        let hello = || v1::Hello { client: who.into(), ..Default::default() };
        let new = || Session::open(&self.channel, hello(), None);
        open.entry(who.to_owned()).or_insert_with(new).clone()
    }
}

impl Api for Sessions {
    fn ask(&self, who: &str, ask: Ask) -> Answered {
        let command = match ask.what {
            What::Command(command) => command,
            What::Bad(bad) => return bad_session(&self.channel, bad),
            _ => return Box::pin(async { Reply::NotHere }),
        };
        let session = self.session(who);
        let (id, answer) = session.waiting.ask();
        let request = v1::Request {
            id,
            command: Some(command),
            seq: ask.seq,
            deadline_ms: ask.deadline_ms.unwrap_or(0),
            idempotency_key: ask.key.unwrap_or_default(),
            ..Default::default()
        };
        let message = v1::SessionRequest { requests: vec![request], ..Default::default() };
        Box::pin(async move {
            // A session that is over has already answered every request.
            let _ = session.to.send(message).await;
            answer.await.expect("an answer")
        })
    }
}

impl Session {
    fn open(channel: &Channel, hello: v1::Hello, header: Option<&str>) -> Self {
        let (to, requests) = mpsc::channel(16);
        let waiting = Waiting::default();
        let first = v1::SessionRequest { hello: Some(hello), ..Default::default() };
        to.try_send(first).unwrap();
        let mut client = SessionServiceClient::new(channel.clone());
        let mut asked = tonic::Request::new(ReceiverStream::new(requests));
        if let Some(header) = header {
            asked.metadata_mut().insert("x-long", header.parse().unwrap());
        }
        tokio::spawn({
            let waiting = waiting.clone();
            async move {
                let mut stream = match client.open(asked).await {
                    Ok(opened) => opened.into_inner(),
                    Err(status) => {
                        return waiting.end(&Reply::Refused(*crate::grpc::fault(&status)));
                    }
                };
                while let Some(message) = stream.next().await {
                    match message {
                        Ok(message) => take(message, &waiting),
                        Err(status) if tenure_wire::status::error_from(&status).is_some() => {
                            waiting.end(&Reply::Refused(*crate::grpc::fault(&status)));
                        }
                        Err(_) => break,
                    }
                }
                let lost = v1::Error { reason: "(no reason)".into(), ..Default::default() };
                waiting.end(&Reply::Refused(Fault::new(&lost, How::Ends)));
            }
        });
        Self { to, waiting }
    }
}

fn take(message: v1::SessionResponse, waiting: &Waiting) {
    for answer in message.answers {
        match told(answer.result.expect("a result"), answer.revision) {
            None => {}
            Some(Ok(it)) => waiting.answer(answer.id, Reply::Done(it)),
            Some(Err(error)) => {
                assert!(!error.next.is_empty(), "no advice: {error:?}");
                waiting.answer(answer.id, Reply::Refused(Fault::new(&error, How::Frame)));
            }
        }
    }
    for granted in message.grants {
        let (token, slot, mut locks) = (granted.token, granted.slot, granted.locks);
        if locks.is_empty() {
            locks.push(v1::LockGrant { lock: granted.lock, token, slot });
        }
        let held = v1::AcquireResponse { token, slot, locks, ..Default::default() };
        let held = told(Wire::Acquired(held), granted.revision).expect("it is held");
        waiting.answer(granted.id, Reply::Done(held.expect("no error")));
    }
    for it in &message.waits_ended {
        match &it.error {
            Some(error) => waiting.wait_refused(it.id, error),
            None => waiting.waited_in_vain(it.id, &it.superseded_by),
        }
    }
    if let Some(error) = message.closing {
        waiting.end(&Reply::Refused(Fault::new(&error, How::Ends)));
    }
}

fn bad_session(channel: &Channel, bad: Bad) -> Answered {
    let mut hello = v1::Hello::default();
    let mut request = v1::Request { id: 1, ..Default::default() };
    let mut header = None;
    match bad {
        Bad::Headers => header = Some(&**crate::http::LONG),
        Bad::OtherCluster => hello.cluster_id = 77,
        Bad::Restored => hello.epoch = 77,
        Bad::UnknownCall => {}
        Bad::TooLarge => {
            let put = v1::PutRequest { value: vec![0; 3 << 20].into(), ..Default::default() };
            request.command = Some(v1::request::Command::Put(put));
        }
        _ => return Box::pin(async { Reply::NotHere }),
    }
    let session = Session::open(channel, hello, header);
    Box::pin(async move {
        let (id, answer) = session.waiting.ask();
        request.id = id;
        let message = v1::SessionRequest { requests: vec![request], ..Default::default() };
        let _ = session.to.send(message).await;
        answer.await.expect("an answer")
    })
}

impl From<Reported> for Reply {
    fn from(told: Reported) -> Self {
        Self::Done(told)
    }
}
