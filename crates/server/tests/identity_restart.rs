//! Tests what a member with identity requires of its callers after a restart.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;

use tenure_server::start;

use crate::alone;
use crate::bounded::wait;
use crate::client::Client;
use crate::identity::{IdentityMember, Key};

#[test]
fn the_key_of_the_local_administrator_is_new_at_each_start() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("m0/admin.key");
    let read = || {
        let text = std::fs::read_to_string(&file).unwrap().trim_end().to_owned();
        Key { id: String::new(), text }
    };
    let ask = |at: SocketAddr, key: &Key| {
        let client = Client::new(at, "admin");
        client.ask("GET", "/v1/limits", &[("Authorization", &key.bearer())], b"")
    };
    let first = start(alone::settings(dir.path())).unwrap();
    let old = read();
    let mode = std::fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    wait("it answers", || (ask(first.clients, &old).status == 200).then_some(()));
    first.stop();
    drop(first);
    let second = start(alone::settings(dir.path())).unwrap();
    ask(second.clients, &old).refused(401, "UNAUTHENTICATED");
    wait("it answers", || (ask(second.clients, &read()).status == 200).then_some(()));
    second.stop();
}

#[test]
fn a_member_that_starts_again_needs_credentials_from_its_first_answer_on() {
    let dir = tempfile::tempdir().unwrap();
    let stage = IdentityMember::start(dir.path(), tempfile::tempdir().unwrap());
    stage.enable();
    let ana = stage.key("ana", None);
    drop(stage);
    assert!(dir.path().join("m0/identity-enabled").exists());
    // As a start from a snapshot of before: the rules are not there until the log is applied.
    let again = start(alone::settings(dir.path())).unwrap();
    let client = Client::new(again.clients, "again");
    client.get("/v1/locks?stale=true").refused(401, "UNAUTHENTICATED");
    wait("the key is known", || {
        client.get("/v1/locks?stale=true").refused(401, "UNAUTHENTICATED");
        let headers = [("Authorization", &*ana.bearer())];
        (client.ask("GET", "/v1/locks", &headers, b"").status == 200).then_some(())
    });
    again.stop();
}
