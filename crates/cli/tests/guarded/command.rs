//! Tests the messages and exit codes of `tenure store` and `tenure fence proxy`.

use crate::Guardian;
use crate::calls::{call, write};
use crate::common::tenure;
use crate::upstream::Upstream;

#[test]
fn a_store_starts_serves_and_stops() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = Guardian::store(dir.path());
    assert_eq!(write(store.address, "client1", "l1", 34, "hi").text(), r#"{"success":true}"#);
    assert_eq!(write(store.address, "client2", "l1", 33, "late").text(), r#"{"success":false}"#);
    let data = dir.path().join("store");
    let second = tenure(&["store", "--data", data.to_str().unwrap(), "--listen", "127.0.0.1:0"]);
    assert_eq!(second.code, Some(78), "{}", second.err);
    assert!(
        second.err.contains("another store uses it") && second.err.contains("; try "),
        "{}",
        second.err
    );
    let process = store.process.as_mut().unwrap();
    process.signal("-TERM");
    assert!(process.ended().success(), "{}", process.words());
    assert!(process.words().contains("ready"), "{}", process.words());
    store.again();
    assert_eq!(write(store.address, "client2", "l1", 33, "late").status, 409);
    let expected = "{\"clientID\":\"client1\",\"token\":\"34\",\"data\":\"hi\"}\n";
    assert_eq!(call(store.address, "GET", "/v1/data/l1", None, "").text(), expected);
}

#[test]
fn what_cannot_be_is_said_in_one_line() {
    let open = tenure(&["store", "--data", "/nowhere/at/all", "--listen", "0.0.0.0:0"]);
    assert_eq!(open.code, Some(78), "{}", open.err);
    assert!(open.err.starts_with("error: other machines can reach 0.0.0.0:0"), "{}", open.err);
    assert!(open.err.contains("--insecure") && open.err.lines().count() == 1, "{}", open.err);
    let json =
        tenure(&["store", "--data", "/nowhere", "--listen", "0.0.0.0:0", "--output", "json"]);
    let said: serde_json::Value = serde_json::from_str(json.err.trim()).unwrap();
    assert_eq!(said["exit_code"], 78, "{said}");
    let plain = [
        "fence",
        "proxy",
        "--resource",
        "l",
        "--data",
        "/nowhere/at/all",
        "--listen",
        "127.0.0.1:0",
    ];
    let tls = tenure(&[&plain[..], &["--upstream", "https://localhost"]].concat());
    assert_eq!(tls.code, Some(2), "{}", tls.err);
    assert!(tls.err.contains("only http://"), "{}", tls.err);
}

#[test]
fn a_proxy_guards_a_service_and_goes_on_where_it_was() {
    let (dir, upstream) = (tempfile::tempdir().unwrap(), Upstream::start());
    let mut proxy = Guardian::proxy(dir.path(), upstream.address);
    let put = |to, token, body| call(to, "PUT", "/text", token, body).status;
    assert_eq!((put(proxy.address, Some(34), "b"), put(proxy.address, Some(33), "a")), (200, 412));
    let process = proxy.process.as_mut().unwrap();
    process.signal("-TERM");
    assert!(process.ended().success(), "{}", process.words());
    proxy.again();
    assert_eq!((put(proxy.address, Some(33), "a"), put(proxy.address, None, "a")), (412, 428));
    assert_eq!(upstream.text(), "b");
}
