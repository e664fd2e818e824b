//! Tests that SQLite refuses stale writers.

use std::path::PathBuf;
use std::time::Duration;

use rusqlite::{Connection, TransactionBehavior};
use tenure_fence::sqlite::{self, MIGRATION};
use tenure_fence::{Claim, Error, Floor, LockSlot};

use crate::planted::{self, Planted};
use crate::subject::{FenceReply, Subject, claim, said, token};
use crate::trials::{self, Size};

/// A database file of its own; every access is a connection of its own, as if from another process.
pub(crate) struct File(PathBuf);

const PLANTED: &[Planted] = &[
    ("new.token < case new.mode", "new.token + 1 < case new.mode"),
    ("new.token < case new.mode", "new.token <= case new.mode"),
    ("new.token < case new.mode", "cast(new.token as real) < case new.mode"),
    ("((max(f.exclusive, f.shared) >> 48) << 48) | 1", "f.shared"),
    ("((max(f.exclusive, f.shared) >> 48) << 48) | 1", "0"),
    ("else max(f.exclusive, f.shared) end;", "else f.exclusive end;"),
    ("and new.token <= f.used", "and new.token < f.used"),
    ("case new.touch when 'write' then max(used, new.token) else used end", "max(used, new.token)"),
    ("then max(shared, new.token)", "then new.token"),
    ("and f.incarnation <> new.incarnation", "and 0"),
    ("else coalesce(new.incarnation, incarnation)", "else new.incarnation"),
    (
        "then new.incarnation else coalesce",
        "then coalesce(new.incarnation, incarnation) else coalesce",
    ),
    ("where lock = new.lock and slot = new.slot;", "where lock = new.lock;"),
];

impl File {
    fn make(path: PathBuf) -> Self {
        Self::with(path, MIGRATION)
    }

    fn with(path: PathBuf, migration: &str) -> Self {
        let file = Self(path);
        let db = file.connect();
        db.pragma_update(None, "journal_mode", "wal").unwrap();
        db.execute_batch(migration).unwrap();
        db.execute_batch("create table ledger (value text); insert into ledger values (null)")
            .unwrap();
        file
    }

    fn connect(&self) -> Connection {
        let db = Connection::open(&self.0).unwrap();
        db.busy_timeout(Duration::from_secs(60)).unwrap();
        // These tests are about which writes are accepted, not about the disk.
        db.pragma_update(None, "synchronous", "off").unwrap();
        db
    }
}

impl Subject for File {
    fn write(&self, at: LockSlot<'_>, claim: Claim, value: &str) -> Result<(), FenceReply> {
        let mut db = self.connect();
        let tx = db.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
        said(sqlite::check(&tx, at, claim))?;
        tx.execute("update ledger set value = ?1", [value]).unwrap();
        said(sqlite::commit(tx))
    }

    fn raise(&self, at: LockSlot<'_>, claim: Claim) -> Result<(), FenceReply> {
        said(sqlite::raise(&mut self.connect(), at, claim))
    }

    fn floor(&self, at: LockSlot<'_>) -> Floor {
        sqlite::floor(&self.connect(), at).unwrap()
    }

    fn read(&self) -> Option<String> {
        self.connect().query_row("select value from ledger", [], |row| row.get(0)).unwrap()
    }

    fn write_unfenced(&self, value: &str) {
        self.connect().execute("update ledger set value = ?1", [value]).unwrap();
    }
}

/// Sets up one database and runs the scenario on it.
pub(crate) fn stand(play: &dyn Fn(&File)) {
    let dir = tempfile::tempdir().unwrap();
    play(&File::make(dir.path().join("ledger")));
}

#[test]
fn sqlite_refuses_the_dead() {
    let dir = tempfile::tempdir().unwrap();
    trials::all(Size { steps: 300, writes: 40 }, |name| File::make(dir.path().join(name)));
}

#[test]
fn a_spoilt_rule_would_be_noticed() {
    let dir = tempfile::tempdir().unwrap();
    planted::every_one_is_found(MIGRATION, PLANTED, |lock, spoilt| {
        File::with(dir.path().join(lock), spoilt)
    });
}

fn message(result: rusqlite::Result<()>) -> String {
    result.unwrap_err().to_string()
}

#[test]
fn a_protected_table_refuses_sql_written_by_hand() {
    let dir = tempfile::tempdir().unwrap();
    let file = File::make(dir.path().join("db"));
    let db = file.connect();
    db.execute_batch("create table \"it's\" (id integer primary key, paid integer)").unwrap();
    for _ in 0..2 {
        sqlite::protect(&db, "it's", "by 'hand'").unwrap();
    }
    let changes = [
        "insert into \"it's\" values (7, 0)",
        "insert or replace into \"it's\" values (7, 1)",
        "update \"it's\" set paid = 1",
        "update or ignore \"it's\" set paid = 1",
        "delete from \"it's\"",
    ];
    let pass = |token: &str| {
        format!(
            "begin immediate; insert or ignore into tenure_fence_pass (lock, token) values ('by ''hand''', {token})"
        )
    };
    let (end, undo) = ("delete from tenure_fence_pass; commit", "rollback");
    for change in changes {
        assert_eq!(message(db.execute_batch(change)), "TENURE_FENCE_NO_PASS", "{change}");
        db.execute_batch(&format!("{}; {change}; {end}", pass("5"))).unwrap();
    }
    // A pass does not outlive its transaction, and is no longer valid once it was removed.
    assert!(message(db.execute_batch(&format!("{}; commit", pass("5")))).contains("FOREIGN KEY"));
    db.execute_batch(undo).unwrap();
    let after = format!("{}; delete from tenure_fence_pass; {}", pass("5"), changes[0]);
    assert_eq!(message(db.execute_batch(&after)), "TENURE_FENCE_NO_PASS");
    db.execute_batch(undo).unwrap();
    assert_eq!(message(db.execute_batch(&pass("4"))), "TENURE_FENCE_STALE");
    db.execute_batch(undo).unwrap();
    for bad in ["0", "-1", "281474976710656"] {
        assert_eq!(message(db.execute_batch(&pass(bad))), "TENURE_FENCE_IMPOSSIBLE", "{bad}");
        db.execute_batch(undo).unwrap();
    }
    assert!(message(db.execute_batch(&pass("'x'"))).contains("cannot store TEXT"));
    db.execute_batch(undo).unwrap();
    let edits = [
        "update tenure_fence_floor set exclusive = 1",
        "delete from tenure_fence_floor",
        "insert or replace into tenure_fence_floor (lock) values ('by ''hand''')",
    ];
    for edit in edits {
        assert_eq!(message(db.execute_batch(edit)), "TENURE_FENCE_FLOOR_NEVER_FALLS", "{edit}");
    }
    let edit = format!("{}; update tenure_fence_pass set lock = 'other'", pass("5"));
    assert_eq!(message(db.execute_batch(&edit)), "TENURE_FENCE_PASS_IS_NOT_CHANGED");
    db.execute_batch(undo).unwrap();
    // Without foreign keys the commit would not check whether the pass was removed.
    db.pragma_update(None, "foreign_keys", "off").unwrap();
    assert_eq!(message(db.execute_batch(&pass("6"))), "TENURE_FENCE_FOREIGN_KEYS_OFF");
}

#[test]
fn a_transaction_that_passed_ends_with_the_fences_commit() {
    let dir = tempfile::tempdir().unwrap();
    let file = File::make(dir.path().join("db"));
    let mut db = file.connect();
    let tx = db.transaction().unwrap();
    sqlite::check(&tx, "ledger", token(2)).unwrap();
    tx.execute("update ledger set value = 'B'", []).unwrap();
    assert!(message(tx.commit()).contains("FOREIGN KEY"), "the pass was not given back");
    // Neither data nor floor was changed.
    assert_eq!((file.read(), file.floor("ledger".into())), (None, Floor::default()));
    let tx = db.transaction().unwrap();
    assert!(matches!(sqlite::check(&tx, "no\nname", claim(1)), Err(Error::Name(_))));
    drop(tx);
    db.execute_batch(MIGRATION).unwrap();
}
