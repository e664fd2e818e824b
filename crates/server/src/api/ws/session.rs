//! Serves a session in JSON over a WebSocket.
//!
//! It is the same session as over gRPC: messages are converted to that form and back. JSON names leases by their ids,
//! so this file maps handles to leases.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::{Stream, StreamExt, stream};
use tenure_types::Handle;
use tenure_wire::json::session::{
    Answer, Asked, ClientMessage, Granted, LeaseEnded, Lost, ServerMessage, WaitEnded,
};
use tenure_wire::json::{Decimal, strict};
use tenure_wire::{Failure, convert, v1};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio_stream::wrappers::ReceiverStream;

use super::{IdentifiedSocket, LiveSocket, Unidentified};
use crate::api::ConnectionPermit;
use crate::api::session::{LeaseNames, SessionHandler, Unread};
use crate::dispatch::Dispatch;
use crate::metrics::Api;

/// The number of consecutive unreadable messages after which the connection is closed.
const NONSENSE_MAX: u32 = 2;
/// The most messages read and not yet taken by the session.
const READ_AHEAD: usize = 4;

/// Details of requests, by request id, until they are answered.
type AskedFor = BTreeMap<u64, Asked>;

/// Serves one client until it goes away.
pub(super) async fn serve(socket: LiveSocket, dispatch: Dispatch, mut permit: ConnectionPermit) {
    match super::identify(socket, &dispatch, &mut permit, authorization).await {
        Ok(mut client) => {
            let caller = permit.caller().identified(Some(client.identity.clone()));
            client.socket.belongs_to(&caller);
            caller.run(serve_identified(client, dispatch)).await;
        }
        Err(Unidentified::Gone) => {}
        Err(Unidentified::Refused(mut socket, failure)) => {
            dispatch.request_metrics().refused(Api::Ws, failure.reason());
            let error = v1::Error::from(&failure);
            let closing = Some(error.clone().into());
            let said = ServerMessage { closing, ..Default::default() };
            if socket.send_text(text(&said)).await.is_some() {
                (*socket).close(&error).await;
            }
        }
    }
}

/// The credentials in a message.
fn authorization(heard: &str) -> Option<String> {
    strict::from_str::<ClientMessage>(heard).ok()?.hello?.authorization
}

async fn serve_identified(client: IdentifiedSocket, dispatch: Dispatch) {
    let IdentifiedSocket { mut socket, identity, first } = client;
    let counted = dispatch.request_metrics().clone();
    let mut handler = match SessionHandler::new(dispatch, identity, Api::Ws) {
        Ok(handler) => handler,
        Err(failure) => return socket.close(&(&failure).into()).await,
    };
    handler.remember_names();
    let (to, from) = channel::<v1::SessionRequest>(READ_AHEAD);
    let asked = Arc::new(Mutex::new(AskedFor::new()));
    let mut answers = pin!(answers(handler, from, asked.clone()));
    // The session answers a hello with a welcome. A client may omit the hello; then one is sent on its behalf.
    let mut greeted = false;
    let mut nonsense_left = NONSENSE_MAX;
    let mut first = first.map(Ok);
    // Credentials are taken from the first message, if the upgrade had none.
    let mut may_identify = first.is_some();
    loop {
        let heard = async {
            match first.take() {
                Some(first) => Some(first),
                None => socket.next().await,
            }
        };
        let said = tokio::select! {
            biased;
            said = answers.next() => {
                let Some(said) = said else { return };
                Some(said)
            }
            heard = heard, if to.capacity() > 0 => match heard {
                None => return,
                Some(Err(failure)) => return socket.close(&(&failure).into()).await,
                Some(Ok(heard)) => {
                    let late = !std::mem::take(&mut may_identify) && authorization(&heard).is_some();
                    let said = match late {
                        true => Some(nonsense(&already_identified(), 0)),
                        false => take(&heard, &to, &asked, &mut greeted, &mut nonsense_left).await,
                    };
                    // Unreadable messages do not reach the session, so they are counted here.
                    said.inspect(|said| reasons(said).for_each(|it| counted.refused(Api::Ws, it)))
                }
            },
        };
        let Some(said) = said else { continue };
        if socket.send_text(text(&said)).await.is_none() {
            return;
        }
        if let Some(closing) = said.closing {
            let error = v1::Error { reason: closing.reason, ..Default::default() };
            return socket.close(&error).await;
        }
    }
}

/// The messages of the session. It is a stream of its own, because a session's `next` must not be cancelled half-way.
fn answers(
    handler: SessionHandler,
    from: Receiver<v1::SessionRequest>,
    asked: Arc<Mutex<AskedFor>>,
) -> impl Stream<Item = ServerMessage> {
    let from = ReceiverStream::new(from).map(Ok::<_, Unread>);
    stream::unfold((handler, from, asked), |(mut handler, mut from, asked)| async move {
        let said = handler.next(&mut from).await?;
        let said = {
            let mut asked = asked.lock().unwrap_or_else(PoisonError::into_inner);
            shown(said, handler.names(), &mut asked)
        };
        Some((said, (handler, from, asked)))
    })
}

/// Takes a message; one that cannot be read is answered at once.
async fn take(
    heard: &str,
    to: &Sender<v1::SessionRequest>,
    asked: &Mutex<AskedFor>,
    greeted: &mut bool,
    nonsense_left: &mut u32,
) -> Option<ServerMessage> {
    let message: ClientMessage = match strict::from_str(heard) {
        Ok(message) => message,
        Err(error) => {
            *nonsense_left -= 1;
            return Some(nonsense(&Failure::Malformed { what: error.to_string() }, *nonsense_left));
        }
    };
    *nonsense_left = NONSENSE_MAX;
    let hello = match (message.hello, message.resume, *greeted) {
        (None, None, true) => None,
        (hello, resume, _) => Some(greeting(hello, resume)),
    };
    *greeted = true;
    let (mut requests, mut answers) = (Vec::new(), Vec::new());
    for request in message.requests {
        let about = about(&request);
        let id = request.id;
        match v1::Request::try_from(request) {
            Ok(request) => {
                asked.lock().unwrap_or_else(PoisonError::into_inner).insert(id, about);
                requests.push(request);
            }
            Err(failure) => {
                let result = Some(v1::answer::Result::Error(Box::new((&failure).into())));
                answers.push(Answer::new(v1::Answer { id, revision: 0, result }, &about));
            }
        }
    }
    if !requests.is_empty() || hello.is_some() {
        // There is room: the loop reads the socket only if the channel has capacity.
        let _ = to.send(v1::SessionRequest { hello, requests }).await;
    }
    (!answers.is_empty()).then(|| ServerMessage { answers, ..Default::default() })
}

/// The reasons of the refusals in a message.
fn reasons(said: &ServerMessage) -> impl Iterator<Item = &str> {
    let errors = said.answers.iter().filter_map(|answer| answer.error.as_ref());
    errors.chain(&said.closing).map(|error| error.reason.as_str())
}

/// The failure for credentials that come too late.
fn already_identified() -> Failure {
    let problem = "belongs into the first message, if the upgrade had no credentials".to_owned();
    Failure::InvalidField { field: "hello.authorization", problem }
}

/// The response to an unreadable message: an error without a request, or the end of the session.
fn nonsense(failure: &Failure, nonsense_left: u32) -> ServerMessage {
    let error = v1::Error::from(failure);
    if nonsense_left == 0 {
        return ServerMessage { closing: Some(error.into()), ..Default::default() };
    }
    let result = Some(v1::answer::Result::Error(Box::new(error)));
    let answer = v1::Answer { id: 0, revision: 0, result };
    let answers = vec![Answer::new(answer, &Asked::default())];
    ServerMessage { answers, ..Default::default() }
}

fn greeting(
    hello: Option<tenure_wire::json::session::Hello>,
    resume: Option<tenure_wire::json::session::Resume>,
) -> v1::Hello {
    let hello = hello.unwrap_or_default();
    let number = |it: Option<Decimal>| it.map_or(0, |Decimal(number)| number);
    let name = |Decimal(lease): Decimal| v1::LeaseName {
        lease: i64::try_from(lease).unwrap_or_default(),
        ..Default::default()
    };
    v1::Hello {
        client: hello.client.unwrap_or_default(),
        leases: resume.map(|it| it.leases.into_iter().map(name).collect()).unwrap_or_default(),
        cluster_id: number(hello.cluster_id),
        epoch: hello.epoch.unwrap_or_default(),
        incarnation: number(hello.incarnation),
        software: String::new(),
    }
}

/// The details of a request that its answer does not repeat.
fn about(request: &tenure_wire::json::session::Request) -> Asked {
    let leases = request.renew.as_ref().map(|renew| renew.leases.clone()).unwrap_or_default();
    let name = (request.acquire.as_ref().and_then(|it| it.lock.clone()))
        .or_else(|| request.force.as_ref().map(|it| it.lock.clone()))
        .or_else(|| request.put.as_ref().map(|it| it.key.clone()))
        .or_else(|| request.delete.as_ref().map(|it| it.key.clone()));
    Asked { name, leases }
}

fn shown(said: v1::SessionResponse, names: &LeaseNames, asked: &mut AskedFor) -> ServerMessage {
    let lease = |slot: u32, generation: u64| {
        let handle = Handle { slot, generation };
        names.get(&handle).map(|id| Decimal(id.get()))
    };
    let answer = |answer: v1::Answer| {
        let about = asked.remove(&answer.id).unwrap_or_default();
        Answer::new(answer, &about)
    };
    ServerMessage {
        welcome: said.welcome.map(Into::into),
        revision: convert::revision_from(said.revision)
            .filter(|revision| revision.0 > 0)
            .map(|revision| Decimal(revision.0)),
        answers: said.answers.into_iter().map(answer).collect(),
        grants: said
            .grants
            .into_iter()
            .map(|it| {
                let lease = lease(it.lease_slot, it.lease_generation);
                Granted::new(it, lease)
            })
            .collect(),
        losses: said
            .losses
            .into_iter()
            .map(|it| {
                let lease = lease(it.lease_slot, it.lease_generation);
                Lost::new(it, lease)
            })
            .collect(),
        waits_ended: said
            .waits_ended
            .iter()
            .map(|it| WaitEnded::new(it, lease(it.lease_slot, it.lease_generation)))
            .collect(),
        leases_ended: said
            .leases_ended
            .into_iter()
            .filter_map(|it| {
                lease(it.lease_slot, it.lease_generation).map(|lease| LeaseEnded::new(it, lease))
            })
            .collect(),
        leader: said.leader.map(Into::into),
        closing: said.closing.map(Into::into),
    }
}

fn text(message: &ServerMessage) -> String {
    serde_json::to_string(message).expect("messages have only names that JSON can have")
}
