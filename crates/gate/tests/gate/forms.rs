//! Tests that every form of a request does what it says, and every malformed one does nothing.

use crate::calls::{Connection, call};
use crate::store::started;

/// Runs requests and compares their answers, line by line: `VERB path [token] [< body] => status [reason] [body]`. An
/// answer may be on a line of its own.
fn check(script: &str) {
    let dir = tempfile::tempdir().unwrap();
    let store = started(dir.path(), |_| ());
    let mut whole: Vec<String> = Vec::new();
    for line in script.lines().map(str::trim) {
        match whole.last_mut() {
            Some(last) if line.starts_with("=> ") => last.extend([" ", line]),
            _ => whole.push(line.to_owned()),
        }
    }
    for line in whole.iter().filter(|line| !line.is_empty()) {
        let (asked, expected) = line.split_once(" => ").unwrap();
        let (asked, body) = asked.split_once(" < ").unwrap_or((asked, ""));
        let mut words = asked.split_whitespace();
        let (verb, path) = (words.next().unwrap(), words.next().unwrap());
        let headers: Vec<(&str, &str)> = words.map(|token| ("fencing-token", token)).collect();
        let mut connection = Connection::open(store.address).unwrap();
        let said = connection.call(verb, path, &headers, body.as_bytes()).unwrap();
        let shown = match (said.reason(), path) {
            ("", _) => format!("{} {}", said.status, said.text()),
            (reason, "/write") if verb == "POST" => {
                format!("{} {reason} {}", said.status, said.text())
            }
            (reason, _) => format!("{} {reason}", said.status),
        };
        assert_eq!(shown.trim(), expected.trim(), "{line}");
    }
}

#[test]
fn the_forms_of_rest() {
    check(
        r#"
        GET /v1/data/a => 404 KEY_NOT_FOUND
        PUT /v1/data/a?lock=l 5 < one => 200 {"bytes":3}
        GET /v1/data/a => 200 one
        PUT /v1/data/a?lock=l 5 < three => 200 {"bytes":5}
        POST /v1/data/a?lock=l 6 < +1 => 200 {"at":5,"bytes":7}
        GET /v1/data/a => 200 three+1
        POST /v1/data/a?lock=l&at=5 6 < +1 => 412 COMPARE_FAILED
        POST /v1/data/a?lock=l&at=7 6 < +2 => 200 {"at":7,"bytes":9}
        PUT /v1/data/a?lock=l 5 < late => 412 STALE_TOKEN
        POST /v1/data/a?lock=l 5 < late => 412 STALE_TOKEN
        DELETE /v1/data/a?lock=l 5 => 412 STALE_TOKEN
        GET /v1/data/a => 200 three+1+2
        GET /v1/floors/l => 200 {"lock":"l","slot":null,"exclusive":"6","shared":"0","used":"6"}

        PUT /v1/data/a?lock=m 9 < x => 409 OTHER_LOCK
        PUT /v1/data/a?lock=l&slot=0 9 < x => 409 OTHER_LOCK
        GET /v1/data/a?lock=m 9 => 409 OTHER_LOCK
        GET /v1/floors/m => 200 {"lock":"m","slot":null,"exclusive":"0","shared":"0","used":"0"}

        GET /v1/data/a?lock=l 7 => 200 three+1+2
        PUT /v1/data/a?lock=l 6 < late => 412 STALE_TOKEN
        PUT /v1/floors/l 8 => 204
        PUT /v1/floors/l 7 => 412 STALE_TOKEN
        PUT /v1/data/a?lock=l 7 < late => 412 STALE_TOKEN
        GET /v1/data/a?lock=l 7 => 412 STALE_TOKEN
        GET /v1/data/none?lock=l 9 => 404 KEY_NOT_FOUND
        GET /v1/floors/l => 200 {"lock":"l","slot":null,"exclusive":"9","shared":"0","used":"6"}

        PUT /v1/data/s0?lock=pool&slot=0 3 < x => 200 {"bytes":1}
        PUT /v1/data/s1?lock=pool&slot=1 2 < y => 200 {"bytes":1}
        GET /v1/floors/pool?slot=1 => 200 {"lock":"pool","slot":1,"exclusive":"2","shared":"0","used":"2"}
        PUT /v1/data/once?lock=job&once=true 4 < x => 200 {"bytes":1}
        PUT /v1/data/once?lock=job&once=true 4 < y => 412 TOKEN_USED
        GET /v1/data/once => 200 x

        PUT /v1/data/dir/b%20c?lock=l/m 1 < x => 200 {"bytes":1}
        GET /v1/data/dir/b%20c => 200 x
        GET /v1/floors/l/m => 200 {"lock":"l/m","slot":null,"exclusive":"1","shared":"0","used":"1"}
        GET /v1/data?prefix=dir/
            => 200 {"keys":[{"key":"dir/b c","lock":"l/m","slot":null,"token":"1","bytes":1}],"more":false}
        GET /v1/data?prefix=s&limit=1
            => 200 {"keys":[{"key":"s0","lock":"pool","slot":0,"token":"3","bytes":1}],"more":true}
        GET /v1/data?prefix=s&after=s0
            => 200 {"keys":[{"key":"s1","lock":"pool","slot":1,"token":"2","bytes":1}],"more":false}

        DELETE /v1/data/a?lock=l 9 => 200 {"deleted":true}
        DELETE /v1/data/a?lock=l 9 => 200 {"deleted":false}
        GET /v1/data/a => 404 KEY_NOT_FOUND
        PUT /v1/data/a?lock=l 8 < late => 412 STALE_TOKEN
        PUT /v1/data/a?lock=m 1 < free => 200 {"bytes":4}
        GET /healthz => 200 ok
        "#,
    );
}

#[test]
fn the_one_call_of_those_who_know_no_other() {
    check(
        r#"
        POST /write < {"clientID":"c1","fencingToken":{"key":"l1","value":33},"data":"hi"} => 200 {"success":true}
        POST /write < {"clientID":"c1","fencingToken":{"key":"l1","value":33},"data":"hi again"}
            => 200 {"success":true}
        POST /write < {"clientID":"c2","fencingToken":{"key":"l1","value":34},"data":"\"\n"} => 200 {"success":true}
        POST /write < {"clientID":"c1","fencingToken":{"key":"l1","value":33},"data":"late"}
            => 409 STALE_TOKEN {"success":false}
        POST /write < {"clientID":"c1","fencingToken":{"key":"l2","value":1},"data":"other lock"}
            => 200 {"success":true}
        POST /write < {"clientID":"c1","fencingToken":{"key":"big","value":9007199254740996},"data":""}
            => 200 {"success":true}
        POST /write < {"clientID":"c1","fencingToken":{"key":"big","value":9007199254740995},"data":""}
            => 409 STALE_TOKEN {"success":false}
        POST /write < {"clientID":"c1","fencingToken":{"key":"big","value":"9007199254740996"},"data":""}
            => 200 {"success":true}
        POST /write < {"clientID":"c1","fencingToken":{"key":"l1","value":34.0},"data":""}
            => 400 MALFORMED {"success":false}
        POST /write < {"clientID":"c1","fencingToken":{"key":"l1","value":-1},"data":""}
            => 400 MALFORMED {"success":false}
        POST /write < {"clientID":"c1","fencingToken":{"key":"l1","value":0},"data":""}
            => 400 NOT_A_TOKEN {"success":false}
        POST /write < {"clientID":"c1","fencingToken":{"key":"l1","value":9223372036854775808},"data":""}
            => 400 NOT_A_TOKEN {"success":false}
        POST /write < {"clientID":"c1","fencingToken":{"key":"","value":35},"data":""}
            => 400 INVALID_NAME {"success":false}
        POST /write < {"clientID":"c1","fencingToken":{"value":35},"data":""} => 400 MALFORMED {"success":false}
        POST /write < {"clientID":"c1","data":""} => 400 MALFORMED {"success":false}
        POST /write < {"clientID":"c1","fencingToken":{"key":"l1","value":35},"data":"","more":1}
            => 400 MALFORMED {"success":false}
        POST /write < hello => 400 MALFORMED {"success":false}
        GET /write => 405 UNKNOWN_VERB
        GET /v1/floors/l1 => 200 {"lock":"l1","slot":null,"exclusive":"34","shared":"0","used":"34"}
        GET /v1/data?prefix=l1
            => 200 {"keys":[{"key":"l1","lock":"l1","slot":null,"token":"34","bytes":137}],"more":false}
        "#,
    );
}

#[test]
fn what_is_wrong_is_refused_and_changes_nothing() {
    check(
        r#"
        PUT /v1/data/a?lock=l < x => 428 TOKEN_REQUIRED
        POST /v1/data/a?lock=l < x => 428 TOKEN_REQUIRED
        DELETE /v1/data/a?lock=l => 428 TOKEN_REQUIRED
        PUT /v1/floors/l => 428 TOKEN_REQUIRED
        PUT /v1/data/a?lock=l 1 1 < x => 400 NOT_A_TOKEN
        PUT /v1/data/a?lock=l x < x => 400 NOT_A_TOKEN
        PUT /v1/data/a?lock=l 0 < x => 400 NOT_A_TOKEN
        PUT /v1/data/a?lock=l 1.0 < x => 400 NOT_A_TOKEN
        PUT /v1/data/a?lock=l 9223372036854775808 < x => 400 NOT_A_TOKEN
        PUT /v1/data/a?lock=l 281474976710656 < x => 400 NOT_A_TOKEN
        PUT /v1/data/a 1 < x => 400 INVALID_FIELD
        PUT /v1/data/a?lock=l&lock=m 1 < x => 400 INVALID_FIELD
        PUT /v1/data/a?lock=l&slot=-1 1 < x => 400 INVALID_FIELD
        PUT /v1/data/a?lock=l&slots=1 1 < x => 400 INVALID_FIELD
        PUT /v1/data/a?lock=l&at=0 1 < x => 400 INVALID_FIELD
        PUT /v1/data/a?lock= 1 < x => 400 INVALID_NAME
        PUT /v1/data/a%00?lock=l 1 < x => 400 INVALID_NAME
        PUT /v1/data/a%ff?lock=l 1 < x => 400 INVALID_NAME
        GET /v1/data?limit=0 => 400 INVALID_FIELD
        GET /v1/data?limit=1001 => 400 INVALID_FIELD
        GET /v1/floors/l?slot=x => 400 INVALID_FIELD
        PATCH /v1/data/a?lock=l 1 => 405 UNKNOWN_VERB
        GET /v1/other => 404 UNKNOWN_OPERATION
        GET /v1/data => 200 {"keys":[],"more":false}
        GET /v1/floors/l => 200 {"lock":"l","slot":null,"exclusive":"0","shared":"0","used":"0"}
        "#,
    );
}

#[test]
fn long_values_grow_piece_by_piece_and_read_as_one() {
    let dir = tempfile::tempdir().unwrap();
    let store = started(dir.path(), |_| ());
    let mut expected = String::new();
    for at in 0..40_usize {
        let part = char::from(b'a' + u8::try_from(at % 26).unwrap()).to_string().repeat(at * 1_000);
        let said = call(
            store.address,
            "POST",
            &format!("/v1/data/log?lock=l&at={}", expected.len()),
            Some(1),
            &part,
        );
        expected.push_str(&part);
        assert_eq!(
            said.text(),
            format!(r#"{{"at":{},"bytes":{}}}"#, expected.len() - part.len(), expected.len())
        );
    }
    assert_eq!(call(store.address, "GET", "/v1/data/log", None, "").text(), expected);
    assert_eq!(call(store.address, "PUT", "/v1/data/log?lock=l", Some(1), "short").status, 200);
    assert_eq!(call(store.address, "GET", "/v1/data/log", None, "").text(), "short");
}
