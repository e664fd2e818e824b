//! Tests that every fence refuses a holder that was paused beyond its ttl.
//!
//! The test uses real locks. A takes the lock and pauses until its lease has ended; B takes it and writes; A wakes up
//! and writes without a check. The control is the same write past the fence, which overwrites what B wrote. The cluster
//! was restored from a backup before that, and every fence also refuses a token from before the restore.

use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::time::Duration;

use tenure::{Client, Guard, Token};
use tenure_fence::LockSlot;
use tenure_server::backup::take;
use tenure_server::restore::{RestoreOptions, RestoreOrigin, restore};
use tenure_server::{RunningServer, ServerSettings, StartMode, start};
use tokio::runtime::{Builder, Runtime};

use crate::subject::{FenceReply, Subject};
use crate::{files, gates, http, object, postgres, redis, sqlite};

/// A fence: sets up data behind it, and runs the scenario on that once.
type Fence = fn(&RestoredMember, &dyn Fn(&dyn Resource));

/// Every fence. A new one is added here and to `docs/fencing.md`.
const EVERY: [(&str, Fence); 9] = [
    ("PostgreSQL", |_, play| postgres::stand(&|data| play(data))),
    ("SQLite", |_, play| sqlite::stand(&|data| play(data))),
    ("Redis", |_, play| redis::stand(&|data| play(data))),
    ("Object stores", |_, play| object::stand(&|data| play(data))),
    ("Files", |_, play| files::stand(&|data| play(data))),
    ("HTTP", |_, play| http::stand(&|data| play(data))),
    ("A proxy", |_, play| gates::proxy(&|data| play(data))),
    ("A store", |_, play| gates::store(&|data| play(data))),
    ("Guarded keys", |stage, play| gates::keys(stage.running.clients, &|data| play(data))),
];

/// A must be able to write once before it pauses, on a machine that is busy with other tests.
const TTL: Duration = Duration::from_secs(8);
const DEADLINE: Duration = Duration::from_secs(120);
const SEGMENT_BYTES: u32 = 256 * 1024;

/// What the scenario needs of a fence.
pub(crate) trait Resource: Sync {
    /// Returns whether the write was accepted; panics if it was neither accepted nor stale.
    fn write(&self, lock: &str, token: Token, value: &str) -> bool;
    fn read(&self) -> Option<String>;
    /// The same write, past the fence.
    fn write_unfenced(&self, value: &str);
    /// Whether the resource remembers nothing from before the restore, because it is the restored cluster itself.
    fn forgets(&self) -> bool {
        false
    }
}

impl<S: Subject> Resource for S {
    fn write(&self, lock: &str, token: Token, value: &str) -> bool {
        match Subject::write(self, LockSlot::from(lock), token.into(), value) {
            Ok(()) => true,
            Err(FenceReply::Stale { floor }) => {
                assert!(floor > token.get(), "the floor {floor} is no reason");
                false
            }
            Err(other) => panic!("{other:?}"),
        }
    }

    fn read(&self) -> Option<String> {
        Subject::read(self)
    }

    fn write_unfenced(&self, value: &str) {
        Subject::write_unfenced(self, value);
    }
}

/// A member whose cluster was restored once, and the last token of each lock before that.
struct RestoredMember {
    running: RunningServer,
    before: Vec<Token>,
    _dir: tempfile::TempDir,
}

impl Drop for RestoredMember {
    fn drop(&mut self) {
        self.running.stop();
    }
}

impl RestoredMember {
    fn set() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let running = run(&dir.path().join("first"));
        let runtime = Runtime::new().unwrap();
        let before = runtime.block_on(async {
            let client = connect(&running, "before").await;
            let mut tokens = Vec::new();
            for (name, _) in EVERY {
                tokens.push(client.lock(name).await.unwrap().token());
            }
            tokens
        });
        drop(runtime);
        let file = dir.path().join("backup");
        let mut backup = Vec::new();
        take(&running.member, DEADLINE).unwrap().write(&mut backup).unwrap();
        std::fs::write(&file, backup).unwrap();
        running.stop();
        Self { running: run(&restored(dir.path(), file)), before, _dir: dir }
    }
}

fn run(data: &Path) -> RunningServer {
    let running = start(ServerSettings {
        clients: "127.0.0.1:0".into(),
        entrance: StartMode::Alone,
        segment_bytes: SEGMENT_BYTES,
        reserve_bytes: 64 * 1024,
        ..ServerSettings::new("a", data)
    });
    let running = running.unwrap();
    running.member.read(DEADLINE, |_| ()).unwrap();
    running
}

fn restored(dir: &Path, backup: PathBuf) -> PathBuf {
    let data = dir.join("second");
    let wanted = RestoreOptions {
        from: RestoreOrigin::Backup(backup),
        data: data.clone(),
        cluster: None,
        epoch: None,
        above: None,
        ledger: Some(dir.join("ledger")),
        stopped: tenure_server::restore::StoppedFor::ForGood,
        names: None,
        segment_bytes: SEGMENT_BYTES,
    };
    restore(&wanted).unwrap();
    data
}

async fn connect(running: &RunningServer, name: &str) -> Client {
    let builder = Client::builder().address(running.clients.to_string()).name(name);
    builder.timeout(DEADLINE).connect().await.unwrap()
}

async fn hold(stage: &RestoredMember, name: &str, lock: &str) -> (Client, Guard) {
    let client = connect(&stage.running, name).await;
    let guard = client.lock(lock).ttl(TTL).wait(DEADLINE).await.unwrap();
    (client, guard)
}

#[test]
fn a_holder_that_was_paused_beyond_its_ttl_is_refused_at_every_fence() {
    let stage = &RestoredMember::set();
    std::thread::scope(|scope| {
        for ((name, fence), before) in EVERY.into_iter().zip(&stage.before) {
            scope.spawn(move || {
                fence(stage, &|data| play(stage, name, *before, data));
            });
        }
    });
}

fn play(stage: &RestoredMember, lock: &str, before: Token, data: &dyn Resource) {
    let written = data.write(lock, before, "before the restore");
    assert_eq!(written, !data.forgets(), "{lock}: no newer holder was here yet");
    let (paused, is_paused) = channel();
    let (wake, woken) = channel();
    std::thread::scope(|scope| {
        // A's tasks run on A's thread, and pause with it.
        scope.spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build().unwrap();
            let (_client, guard) = runtime.block_on(hold(stage, "A", lock));
            let token = guard.token();
            assert!(token.epoch() > before.epoch(), "{lock}: a restore begins another epoch");
            assert!(data.write(lock, token, "A, in time"), "{lock}");
            assert!(
                !data.write(lock, before, "from another life"),
                "{lock}: of before the restore"
            );
            assert_eq!(data.read().as_deref(), Some("A, in time"), "{lock}");
            paused.send(token).unwrap();
            let newer: Token = woken.recv_timeout(DEADLINE).unwrap();
            assert!(token < newer);
            assert!(!data.write(lock, token, "A, late"), "{lock}: A woke up and wrote");
            assert_eq!(data.read().as_deref(), Some("B"), "{lock}");
            // A check would have told A.
            assert!(guard.check().is_err(), "{lock}: B has it");
            data.write_unfenced("A, late");
            assert_eq!(data.read().as_deref(), Some("A, late"), "{lock}: nothing else stops it");
            runtime.block_on(async { drop(guard) });
        });
        let token = is_paused.recv_timeout(DEADLINE).unwrap();
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (_client, guard) = runtime.block_on(hold(stage, "B", lock));
        assert!(guard.token() > token, "{lock}");
        assert!(data.write(lock, guard.token(), "B"), "{lock}");
        wake.send(guard.token()).unwrap();
        runtime.block_on(async { drop(guard) });
    });
}

/// The list above matches the one in the guide.
#[test]
fn the_guide_has_every_fence() {
    let guide = include_str!("../../../../docs/fencing.md");
    let fences = guide.split("\n## The fences\n").nth(1).unwrap();
    let fences = fences.split("\n## ").next().unwrap();
    let titles = fences.lines().filter_map(|line| line.strip_prefix("| [")?.split(']').next());
    let mut ours: Vec<&str> = EVERY.iter().map(|(name, _)| *name).collect();
    let mut theirs: Vec<&str> = titles.collect();
    ours.sort_unstable();
    theirs.sort_unstable();
    assert_eq!(ours, theirs);
}
