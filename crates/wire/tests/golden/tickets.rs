//! Tests the bytes and JSON of tickets and of the keys that verify them.

use bytes::Bytes;
use tenure_wire::json::Decimal;
use tenure_wire::json::ticket::{AskTicket, KeySet, RotateKey, TicketSigned};
use tenure_wire::v1;

use super::check;
use super::json::{check as check_json, read, refuses};
use super::messages::{LEASE, header};

fn keys() -> v1::TicketKeysResponse {
    let key = |byte: u8, retires_in_ms| v1::TicketKey {
        key: "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k".into(),
        member_id: 0xb0b,
        public: Bytes::from(vec![byte; 32]),
        retires_in_ms,
    };
    v1::TicketKeysResponse {
        header: Some(header()),
        cluster: "5f3a0000000000000000000000000001".into(),
        epoch: 2,
        incarnation: 0xaf,
        keys: vec![key(1, None), key(2, Some(0))],
    }
}

#[test]
fn tickets_are_spoken_as_ever() {
    let token = 1043;
    let ask =
        v1::SignTicketRequest { lock: "deploy".into(), lease: LEASE, token, ..Default::default() };
    check("sign_ticket_request", &ask);
    let signed =
        v1::SignTicketResponse { header: Some(header()), ticket: "a.b.c".into(), key: "k".into() };
    check("sign_ticket_response", &signed);
    check("ticket_keys_response", &keys());
    check("rotate_ticket_key_request", &v1::RotateTicketKeyRequest { overlap_ms: Some(0) });
    let rotated = v1::RotateTicketKeyResponse { header: Some(header()), key: "k".into() };
    check("rotate_ticket_key_response", &rotated);
}

#[test]
fn tickets_are_asked_for_and_shown_in_json() {
    let signed = TicketSigned {
        lock: "deploy".into(),
        ticket: "a.b.c".into(),
        key: "k".into(),
        header: header().into(),
    };
    check_json("http_ticket", &signed);
    check_json("http_ticket_keys", &KeySet::from(keys()));
    let ask: AskTicket = read(r#"{"lock":"deploy","lease":"77","token":"1043"}"#);
    assert_eq!((ask.lease, ask.token), (Decimal(77), Decimal(1043)));
    refuses::<AskTicket>(r#"{"lock":"deploy","lease":"77","token":1043}"#);
    refuses::<AskTicket>(r#"{"lock":"deploy","lease":"77"}"#);
    refuses::<AskTicket>(r#"{"lock":"deploy","lease":"77","token":"1","ttl":1}"#);
    assert_eq!(read::<RotateKey>("{}").overlap_ms, None);
    refuses::<RotateKey>(r#"{"overlap_ms":-1}"#);
}
