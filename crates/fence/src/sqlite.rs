//! Fences a SQLite database: refuses transactions with stale tokens.
//!
//! Run [`migrate`] once. Then a transaction begins with [`check`] and ends with [`commit`]:
//!
//! ```
//! # let mut db = rusqlite::Connection::open_in_memory()?;
//! # tenure_fence::sqlite::migrate(&db)?;
//! # db.execute_batch("create table ledger (id integer primary key, paid integer)")?;
//! # let token = tenure_fence::Token::from_u64(7).unwrap();
//! let tx = db.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
//! tenure_fence::sqlite::check(&tx, "ledger", token)?;              // refused if stale
//! tx.execute("update ledger set paid = 1 where id = ?1", [7])?;
//! tenure_fence::sqlite::commit(tx)?;                               // floor and data, together
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! With another library, run [`PASS`] and [`END`] instead, which is all that the two functions do. [`protect`] makes
//! the database enforce the fence: from then on the table changes only in transactions that passed, also for SQL
//! written by hand.

use rusqlite::{Connection, OptionalExtension as _, Row, Transaction, params};

use crate::claim::{Claim, Incarnation, LockSlot, Mode, Times};
use crate::rule::{Floor, Touch};

/// Why a claim did not pass.
pub type Error = crate::Error<rusqlite::Error>;

/// The tables of the fence, and the triggers that implement its rule. Running it again is harmless.
pub const MIGRATION: &str = include_str!("sqlite.sql");

/// The statement that passes the fence. Parameters: lock, token, slot (-1 for none), mode (`exclusive` or `shared`),
/// once (0 or 1), incarnation (or null), touch (`write`, or `raise` to raise the floor only).
pub const PASS: &str = "insert into tenure_fence_pass (lock, token, slot, mode, once, incarnation, touch) \
                        values (?1, ?2, ?3, ?4, ?5, ?6, ?7)";

/// The statement that removes the pass. A transaction that has not run it cannot commit.
pub const END: &str = "delete from tenure_fence_pass";

const FLOOR: &str = "select exclusive, shared, used, incarnation from tenure_fence_floor where lock = ?1 and slot = ?2";

/// The prefix of every message of the rule.
const SAID: &str = "TENURE_FENCE_";

/// Creates the tables of the fence, if they do not exist.
pub fn migrate(db: &Connection) -> rusqlite::Result<()> {
    db.execute_batch(MIGRATION)
}

/// Lets the transaction write under a token, or returns why not. Needs `pragma foreign_keys = on`, which is the default
/// of the SQLite that `rusqlite` bundles.
///
/// From here on the transaction is the only writer, so no other transaction passes beside it.
pub fn check<'a>(
    tx: &Transaction<'_>,
    at: impl Into<LockSlot<'a>>,
    claim: impl Into<Claim>,
) -> Result<(), Error> {
    pass(tx, at.into(), claim.into(), Touch::Write)
}

/// Commits a transaction that passed. Any other commit fails, because a pass must not outlive its transaction.
pub fn commit(tx: Transaction<'_>) -> Result<(), Error> {
    tx.execute(END, []).map_err(Error::Store)?;
    tx.commit().map_err(Error::Store)
}

/// Raises the floor without writing. Call it right after the lock was acquired: from then on nothing older passes.
///
/// ```
/// # let mut db = rusqlite::Connection::open_in_memory()?;
/// # tenure_fence::sqlite::migrate(&db)?;
/// # let (token, older) = (tenure_fence::Token::from_u64(7).unwrap(), tenure_fence::Token::from_u64(6).unwrap());
/// tenure_fence::sqlite::raise(&mut db, "ledger", token)?;
/// assert!(tenure_fence::sqlite::check(&db.transaction()?, "ledger", older).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn raise<'a>(
    db: &mut Connection,
    at: impl Into<LockSlot<'a>>,
    claim: impl Into<Claim>,
) -> Result<(), Error> {
    let tx = db.transaction().map_err(Error::Store)?;
    pass(&tx, at.into(), claim.into(), Touch::Raise)?;
    commit(tx)
}

/// Returns the floor as the connection sees it.
pub fn floor<'a>(db: &Connection, at: impl Into<LockSlot<'a>>) -> Result<Floor, Error> {
    let at = at.into();
    let kept = db.query_row(FLOOR, params![at.lock, at.number()], |row| Ok(read(row)));
    kept.optional().map_err(Error::Store)?.unwrap_or(Ok(Floor::default()))
}

/// Lets a table change only in transactions that passed the fence of this lock, in any of its slots.
///
/// ```
/// # let db = rusqlite::Connection::open_in_memory()?;
/// # tenure_fence::sqlite::migrate(&db)?;
/// # db.execute_batch("create table ledger (id integer primary key, paid integer)")?;
/// tenure_fence::sqlite::protect(&db, "ledger", "ledger")?;
/// assert!(db.execute("insert into ledger values (1, 0)", []).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn protect(db: &Connection, table: &str, lock: &str) -> Result<(), Error> {
    LockSlot::from(lock).check()?;
    db.execute_batch(&protection(table, lock)).map_err(Error::Store)
}

/// Returns the triggers that protect a table as SQL, for programs that run migrations in another way.
pub fn protection(table: &str, lock: &str) -> String {
    let (plain, quoted, lock) = (table, quote(table, '"'), quote(lock, '\''));
    let triggers = ["insert", "update", "delete"].map(|change| {
        let name = quote(&format!("tenure_fence_{change}_{plain}"), '"');
        format!(
            "create trigger if not exists {name} before {change} on {quoted}\n\
             when not exists (select 1 from tenure_fence_pass p\n                 \
             where p.lock = {lock} and p.touch = 'write') begin\n    \
             select raise(abort, 'TENURE_FENCE_NO_PASS');\nend;\n"
        )
    });
    triggers.concat()
}

fn quote(text: &str, mark: char) -> String {
    let doubled = text.replace(mark, &format!("{mark}{mark}"));
    format!("{mark}{doubled}{mark}")
}

fn pass(tx: &Transaction<'_>, at: LockSlot<'_>, claim: Claim, touch: Touch) -> Result<(), Error> {
    at.check()?;
    // Checks that the number can be a token at all, and so fits the column.
    Floor::default().admit(claim, Touch::Raise)?;
    let token = i64::try_from(claim.token.get()).expect("a token fits a signed integer");
    let mode = match claim.mode {
        Mode::Exclusive => "exclusive",
        Mode::Shared => "shared",
    };
    let once = claim.times == Times::Once;
    let incarnation = claim.incarnation.map(|it| it.to_string());
    let what = match touch {
        Touch::Write => "write",
        Touch::Raise => "raise",
    };
    let given = params![at.lock, token, at.number(), mode, once, incarnation, what];
    match tx.execute(PASS, given) {
        Ok(_) => Ok(()),
        Err(error) => Err(explain(tx, error, at, (claim, touch))),
    }
}

/// Converts an error of the database: the refusal by the current floor, or any other failure.
fn explain(
    db: &Connection,
    error: rusqlite::Error,
    at: LockSlot<'_>,
    given: (Claim, Touch),
) -> Error {
    let said = match &error {
        rusqlite::Error::SqliteFailure(_, Some(said)) if said.starts_with(SAID) => said.clone(),
        _ => return Error::Store(error),
    };
    // Only the statement was rolled back, so the floor is still the one that the rule compared with.
    match floor(db, at).map(|floor| floor.admit(given.0, given.1)) {
        Ok(Err(refused)) => Error::Refused(refused),
        Ok(Ok(_)) => Error::Store(error),
        Err(other) => Error::Unreadable(format!("{said}, and then: {other}")),
    }
}

fn read(row: &Row<'_>) -> Result<Floor, Error> {
    let number = |column| row.get::<_, i64>(column).map_err(Error::Store);
    let numbers = [number(0)?, number(1)?, number(2)?];
    let text = row.get::<_, Option<String>>(3).map_err(Error::Store)?;
    let unreadable = || Error::Unreadable(format!("{numbers:?} {text:?}"));
    let parse = |text: &String| Incarnation::parse(text).ok_or_else(unreadable);
    let incarnation = text.as_ref().map(parse).transpose()?;
    Floor::from_numbers(numbers, incarnation).ok_or_else(unreadable)
}
