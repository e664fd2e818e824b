//! Decodes every format that a member reads from untrusted sources, for the fuzz targets.
//!
//! There is one function per format. Each does what an API does with the bytes before it knows whether they are valid,
//! and nothing more.

use std::hint::black_box;

use bytes::Bytes;
use serde::de::DeserializeOwned;
use tenure_core::codec::encode_request;
use tenure_core::request::{Command, Request, RequestId};
use tenure_node::PeerMessage;
use tenure_wire::json::cluster::{AddMember, ChangeMember, Invite};
use tenure_wire::json::election::{Campaign, Proclaim};
use tenure_wire::json::lease::GrantLease;
use tenure_wire::json::lock::{Acquire, Drain, Force, Patch};
use tenure_wire::json::session::ClientMessage;
use tenure_wire::json::ticket::{AskTicket, RotateKey};
use tenure_wire::{Failure, v1};

use crate::api::http::SetLimits;
use crate::api::{decode, http, ws};
use crate::{peer, restore, ticket};
use tenure_node::directory;

/// Decodes a gRPC message of the kind that the first byte selects, and encodes its command as in the log.
pub fn grpc(bytes: &[u8]) {
    let Some((kind, bytes)) = bytes.split_first() else { return };
    match kind % 16 {
        0 => read(bytes, |it: &v1::SessionRequest| it.requests.iter().for_each(request)),
        1 => read(bytes, |it: &v1::AcquireRequest| {
            command(decode::ask(it, "client"));
        }),
        2 => read(bytes, |it: &v1::PutRequest| command(decode::put(it).map(Command::Put))),
        3 => read(bytes, |it: &v1::DeleteRequest| command(decode::delete(it))),
        4 => read(bytes, |it: &v1::RenewRequest| command(decode::renew(it).map(Command::Renew))),
        5 => read(bytes, |it: &v1::RevokeRequest| command(decode::revoke(it))),
        6 => read(bytes, |it: &v1::ForceRequest| command(decode::force(it))),
        7 => read(bytes, |it: &v1::StoppedRequest| command(decode::stopped(it))),
        8 => read(bytes, |it: &v1::ReleaseRequest| {
            command(decode::release(it).map(Command::Release));
        }),
        9 => read(bytes, |it: &v1::DowngradeRequest| {
            command(decode::downgrade(it).map(Command::Downgrade));
        }),
        10 => read(bytes, |it: &v1::UpdateRequest| command(decode::update(it))),
        11 => read(bytes, |it: &v1::LeaveRequest| command(decode::leave(it))),
        12 => read(bytes, |it: &v1::WatchRequest| drop(black_box(it.clone()))),
        13 => read(bytes, |it: &v1::LockRequest| drop(black_box(it.clone()))),
        14 => read(bytes, |it: &v1::SetLimitsRequest| drop(black_box(it.clone()))),
        _ => read(bytes, |it: &v1::CampaignRequest| drop(black_box(it.clone()))),
    }
}

/// Decodes an HTTP body as each path that takes a body does.
pub fn json(bytes: &[u8]) {
    if let Some(body) = body::<Acquire>(bytes)
        && let Ok(ask) = v1::AcquireRequest::try_from(body)
    {
        command(decode::ask(&ask, "client"));
    }
    if let Some(body) = body::<GrantLease>(bytes)
        && let Ok(new) = v1::NewLease::try_from(body)
    {
        command(decode::new_lease(&new, "client").map(Command::GrantLease));
    }
    if let Some(body) = body::<Drain>(bytes) {
        command(decode::drain(&body.into()));
    }
    if let Some(body) = body::<Force>(bytes) {
        command(decode::force(&body.into()));
    }
    body::<Campaign>(bytes).map(|body| black_box(body.to_wire("name".to_owned(), None)));
    body::<Proclaim>(bytes).map(|body| black_box(body.to_wire("name".to_owned())));
    body::<Patch>(bytes);
    body::<AddMember>(bytes).map(|body| black_box(v1::AddMemberRequest::from(body)));
    body::<ChangeMember>(bytes);
    body::<Invite>(bytes);
    body::<SetLimits>(bytes);
    body::<AskTicket>(bytes);
    body::<RotateKey>(bytes);
}

/// Decodes a message of the JSON session.
pub fn socket(text: &str) {
    let Ok(message) = serde_json::from_str::<ClientMessage>(text) else { return };
    for one in message.requests {
        if let Ok(one) = v1::Request::try_from(one) {
            request(&one);
        }
    }
}

/// Decodes a message of the plain lock protocol.
pub fn plain(text: &str) {
    let _ = black_box(ws::plain::read(text));
}

/// Decodes the path and the query of a URI.
pub fn query(text: &str) {
    if let Ok(uri) = text.parse() {
        http::read_queries(uri);
    }
}

/// Decodes a frame with commands, admin requests or responses from another member.
pub fn forwarded(bytes: &[u8]) {
    let bytes = Bytes::copy_from_slice(bytes);
    if let Some(read) = PeerMessage::decode(&bytes) {
        assert_eq!(read.encode(), bytes, "a message has one form");
    }
}

/// Decodes the first message of a connection to the members' port, and every other control message.
pub fn control(bytes: &[u8]) {
    let Ok(read) = peer::read_control(&mut &*bytes) else { return };
    assert!(tenure_node::Control::decode(&read.encode()).is_some(), "what is written can be read");
}

/// Parses a line that members store: member directory entries, signing keys, and the epochs of restores.
pub fn line(text: &str) {
    black_box((
        directory::MemberRecord::parse(text),
        ticket::is_record(text),
        restore::is_ledger_line(text),
    ));
}

fn request(request: &v1::Request) {
    let Ok(read) = decode::command(request, "client") else { return };
    if let Ok(id) = decode::request_id(request, &read) {
        write(id, read);
    }
}

fn command(read: Result<Command<'_>, Failure>) {
    if let Ok(read) = read {
        write(RequestId::None, read);
    }
}

/// Encodes a decoded command as in the log.
fn write(id: RequestId<'_>, command: Command<'_>) {
    let mut bytes = Vec::new();
    encode_request(&Request { principal: "", id, command }, &mut bytes);
    black_box(bytes);
}

fn body<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    black_box(serde_json::from_slice(bytes).ok())
}

fn read<T: prost::Message + Default>(bytes: &[u8], then: impl FnOnce(&T)) {
    if let Ok(message) = T::decode(bytes) {
        then(&message);
    }
}
