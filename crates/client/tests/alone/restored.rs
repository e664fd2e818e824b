//! Tests that a client goes on with a cluster that was restored from a backup.

use std::path::Path;

use tenure_server::backup::take;
use tenure_server::restore::{RestoreOptions, RestoreOrigin, StoppedFor, restore};
use tenure_server::{MemberHandle, ServerSettings, start};

use super::*;

/// Longer than any lease of the former cluster can have lived: the restored one grants at once.
const STOPPED_MS: u64 = 24 * 3_600_000;

fn back_up(member: &MemberHandle, path: &Path) {
    let mut file = Vec::new();
    take(member, DEADLINE).unwrap().write(&mut file).unwrap();
    std::fs::write(path, file).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restore_ends_the_leases_of_before_and_the_client_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let first = start(alone::settings(dir.path())).unwrap();
    let address = first.clients.to_string();
    let client = Client::builder().address(address.clone()).name("ana").connect().await.unwrap();
    let guard = client.lock("deploy").await.unwrap();
    let old = guard.token();
    let file = dir.path().join("backup");
    tokio::task::block_in_place(|| {
        back_up(&first.member, &file);
        first.stop();
    });
    let data = dir.path().join("restored");
    let restored = RestoreOptions {
        from: RestoreOrigin::Backup(file),
        data: data.clone(),
        cluster: None,
        epoch: None,
        above: None,
        ledger: None,
        stopped: StoppedFor::ForMs(STOPPED_MS),
        names: None,
        segment_bytes: alone::settings(dir.path()).segment_bytes,
    };
    tokio::task::block_in_place(|| restore(&restored).unwrap());
    let settings = ServerSettings { clients: address, data, ..alone::settings(dir.path()) };
    let second = tokio::task::block_in_place(|| start(settings).unwrap());
    until("the guard of before is lost", async || guard.check().is_err()).await;
    assert_eq!(cause(&guard.check().map(drop)), Some(Cause::Gone));
    let again = tokio::time::timeout(DEADLINE, client.lock("deploy")).await.unwrap().unwrap();
    assert!(again.token() > old, "{} after {old}", again.token());
    drop((again, guard, client));
    tokio::task::block_in_place(|| second.stop());
}
