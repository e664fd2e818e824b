//! Tests that tickets from before a restore are refused.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;

use tenure_fence::ticket::{BadSet, Resource, Tickets};
use tenure_server::backup::take;
use tenure_server::restore::{RestoreOptions, RestoreOrigin, restore};
use tenure_server::{RunningServer, ServerSettings, StartMode, start};

use crate::client::Client;
use crate::{Grant, set};

const DEADLINE: Duration = Duration::from_secs(60);
const SEGMENT_BYTES: u32 = 256 * 1024;

fn run(data: &Path) -> (RunningServer, Client) {
    let running = start(ServerSettings {
        clients: "127.0.0.1:0".into(),
        entrance: StartMode::Alone,
        segment_bytes: SEGMENT_BYTES,
        reserve_bytes: 64 * 1024,
        ..ServerSettings::new("a", data)
    });
    let running = running.unwrap();
    running.member.read(DEADLINE, |_| ()).unwrap();
    let client = Client::new(running.clients, "ana");
    (running, client)
}

#[test]
fn a_restore_makes_every_ticket_of_before_worthless() {
    let dir = tempfile::tempdir().unwrap();
    let first = dir.path().join("first");
    let (running, client) = run(&first);
    let secret = first.join("tickets/key");
    assert_eq!(std::fs::metadata(&secret).unwrap().mode() & 0o777, 0o600, "for its owner alone");
    let old = Grant::take(&client, "ledger").ticket(&client);
    let resource = Resource::new("ledger");
    let verifier = Tickets::new(set(&client));
    verifier.check(&old, &resource).unwrap();
    let mut backup = Vec::new();
    take(&running.member, DEADLINE).unwrap().write(&mut backup).unwrap();
    let secret = std::fs::read_to_string(secret).unwrap();
    let secret = secret.lines().find_map(|line| line.strip_prefix("secret ")).unwrap();
    let leaked = |bytes: &[u8]| bytes.windows(secret.len()).any(|it| it == secret.as_bytes());
    assert!(!leaked(&backup), "the secret is in no backup");
    let file = dir.path().join("backup");
    std::fs::write(&file, backup).unwrap();
    running.stop();

    let lives = ["second", "other"].map(|name| {
        let data = dir.path().join(name);
        let restored = restore(&RestoreOptions {
            from: RestoreOrigin::Backup(file.clone()),
            data: data.clone(),
            cluster: None,
            epoch: tenure_types::Epoch::new(1),
            above: None,
            // Each with a ledger of its own, as if neither restore knew of the other.
            ledger: Some(dir.path().join(format!("{name}.ledger"))),
            stopped: tenure_server::restore::StoppedFor::ForGood,
            names: None,
            segment_bytes: SEGMENT_BYTES,
        });
        restored.unwrap();
        run(&data)
    });
    let (_, client) = &lives[0];
    verifier.update(set(client)).unwrap();
    assert_eq!(verifier.check(&old, &resource).unwrap_err().reason(), "TICKET_OLD_EPOCH");
    let new = Grant::take(client, "ledger").ticket(client);
    verifier.check(&new, &resource).unwrap();
    // The same backup restored twice: one epoch, two incarnations.
    let (_, other) = &lives[1];
    let theirs = Grant::take(other, "ledger").ticket(other);
    let refused = verifier.check(&theirs, &resource).unwrap_err();
    assert_eq!(refused.reason(), "TICKET_OTHER_INCARNATION");
    assert!(matches!(verifier.update(set(other)), Err(BadSet::OtherIncarnation { .. })));
    lives.iter().for_each(|(running, _)| running.stop());
}
