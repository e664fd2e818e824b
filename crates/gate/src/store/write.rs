//! Implements `POST /write`, for clients that know only this one call.
//!
//! The body `{"clientID":…,"fencingToken":{"key":…,"value":…},"data":…}` is answered with `{"success":true}`, or with
//! `{"success":false}` and a status that says why: 409 if the token is stale. Each write becomes one line of JSON at
//! the end of the key that has the lock's name. Where tickets are required, the `value` is a ticket, and the client
//! must be the holder of the lock.

use axum::extract::{Request, State};
use axum::response::Response;
use bytes::Bytes;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use tenure_fence::LockSlot;

use crate::answer::{ErrorAnswer, json};
use crate::reason::{Fence, Reason};

use super::http::StoreApi;
use super::request::{StoreAction, StoreRequest};

/// The body of the call.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct WriteRequest {
    #[serde(rename = "clientID")]
    client: String,
    fencing_token: FencingToken,
    data: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FencingToken {
    key: String,
    value: Value,
}

/// An integer; or its digits, for languages in which large numbers are not exact; or a ticket.
#[derive(Deserialize)]
#[serde(untagged)]
enum Value {
    Number(u64),
    Text(String),
}

/// The line that is stored for a write.
#[derive(Serialize)]
struct WriteRecord<'a> {
    #[serde(rename = "clientID")]
    client: &'a str,
    token: String,
    data: &'a str,
}

pub(super) async fn write(State(shop): State<StoreApi>, request: Request) -> Response {
    match try_write(&shop, request).await {
        Ok(()) => json(StatusCode::OK, r#"{"success":true}"#),
        Err(said) => {
            // Clients of this call expect 409 for a stale token.
            let stale = said.row == Fence::StaleToken.row();
            let status = if stale { StatusCode::CONFLICT } else { said.status() };
            said.with(status, r#"{"success":false}"#.into())
        }
    }
}

async fn try_write(shop: &StoreApi, request: Request) -> Result<(), ErrorAnswer> {
    let body = shop.body(request.into_body()).await?;
    let WriteRequest { client, fencing_token: FencingToken { key, value }, data } = read(&body)?;
    let at = LockSlot::from(key.as_str());
    let text = match value {
        Value::Number(number) => number.to_string(),
        Value::Text(text) => text,
    };
    let claim = shop.claim(&text, at, Some(&client)).await?;
    let line = WriteRecord { client: &client, token: claim.token.get().to_string(), data: &data };
    let mut line = serde_json::to_vec(&line).expect("texts are always JSON");
    line.push(b'\n');
    let act = StoreAction::Append { key: key.clone(), value: Bytes::from(line), at: None };
    shop.ask(StoreRequest { lock: key, slot: None, claim, act }).await.map(drop)
}

/// Parses a body, and checks that its key is a valid lock name.
pub(super) fn read(body: &[u8]) -> Result<WriteRequest, ErrorAnswer> {
    let write: WriteRequest = serde_json::from_slice(body)
        .map_err(|error| ErrorAnswer::new(Reason::Malformed, error.to_string()))?;
    let named = LockSlot::from(write.fencing_token.key.as_str()).check();
    named.map_err(|invalid| ErrorAnswer::new(Reason::InvalidName, invalid.to_string()))?;
    Ok(write)
}
