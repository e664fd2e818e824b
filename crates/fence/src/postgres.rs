//! Fences a PostgreSQL database: refuses transactions with stale tokens.
//!
//! Run [`MIGRATION`] once. Then a transaction begins with [`check`], which costs one round trip:
//!
//! ```no_run
//! # async fn example(client: &mut tokio_postgres::Client, token: tenure_fence::Token)
//! # -> Result<(), Box<dyn std::error::Error>> {
//! let tx = client.transaction().await?;
//! tenure_fence::postgres::check(&tx, "ledger", token).await?;      // refused if stale
//! tx.execute("update ledger set paid = true where id = $1", &[&7i64]).await?;
//! tx.commit().await?;                                              // floor and data, together
//! # Ok(())
//! # }
//! ```
//!
//! With another library, run [`PASS`] with the same six parameters, as the first statement of the transaction. With
//! `sqlx`:
//!
//! ```no_run
//! # async fn example(pool: &sqlx::PgPool, token: tenure_fence::Token) -> Result<(), sqlx::Error> {
//! let mut tx = pool.begin().await?;
//! sqlx::query(tenure_fence::postgres::PASS)
//!     .bind("ledger").bind(token.get() as i64).bind(-1i64).bind("exclusive").bind(false).bind(None::<String>)
//!     .execute(&mut *tx).await?;                       // SQLSTATE TF412 if stale
//! sqlx::query("update ledger set paid = true where id = $1").bind(7).execute(&mut *tx).await?;
//! tx.commit().await
//! # }
//! ```
//!
//! `select tenure_fence.protect('ledger', 'ledger')` makes the database enforce the fence: from then on the table
//! changes only in transactions that passed, also for SQL written by hand.

use tokio_postgres::error::DbError;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{GenericClient, Row};

use crate::claim::{Claim, Incarnation, LockSlot, Mode, Times};
use crate::rule::{Floor, Touch};

/// Why a claim did not pass. After any error the transaction can only be rolled back.
pub type Error = crate::Error<tokio_postgres::Error>;

/// The schema `tenure_fence`: table, functions, and the trigger that protects tables. Running it again is harmless.
pub const MIGRATION: &str = include_str!("postgres.sql");

/// The statement that passes the fence. Parameters: lock, token, slot (-1 for none), mode (`exclusive` or `shared`),
/// once, incarnation (or null).
pub const PASS: &str = "select tenure_fence.pass($1, $2, $3, $4, $5, $6)";

/// The statement that raises the floor. Parameters: lock, token, slot (-1 for none), mode, incarnation (or null).
pub const RAISE: &str = "select tenure_fence.raise_floor($1, $2, $3, $4, $5)";

const FLOOR: &str = "select exclusive, shared, used, incarnation from tenure_fence.floor where lock = $1 and slot = $2";

/// Lets the transaction write under a token, or returns why not.
///
/// Must be called inside a transaction: outside of one it would only raise the floor. The floor's row stays locked
/// until the transaction ends, so no other transaction passes beside it. The transaction's writes are committed with
/// the floor or not at all.
pub async fn check<'a>(
    tx: &tokio_postgres::Transaction<'_>,
    at: impl Into<LockSlot<'a>>,
    claim: impl Into<Claim>,
) -> Result<(), Error> {
    let (at, claim) = (at.into(), claim.into());
    let once = claim.times == Times::Once;
    let given = ClaimColumns::new(at, claim)?;
    let [lock, token, slot, mode, incarnation] = given.parameters();
    let parameters = [lock, token, slot, mode, (&once, Type::BOOL), incarnation];
    let answer = tx.query_typed(PASS, &parameters).await;
    answer.map(drop).map_err(|error| explain(error, claim, Touch::Write))
}

/// Raises the floor without writing. Call it right after the lock was acquired: from then on nothing older passes.
///
/// ```no_run
/// # async fn example(client: &tokio_postgres::Client, token: tenure_fence::Token)
/// # -> Result<(), tenure_fence::postgres::Error> {
/// tenure_fence::postgres::raise(client, "ledger", token).await
/// # }
/// ```
pub async fn raise<'a>(
    client: &impl GenericClient,
    at: impl Into<LockSlot<'a>>,
    claim: impl Into<Claim>,
) -> Result<(), Error> {
    let (at, claim) = (at.into(), claim.into());
    let given = ClaimColumns::new(at, claim)?;
    let answer = client.query_typed(RAISE, &given.parameters()).await;
    answer.map(drop).map_err(|error| explain(error, claim, Touch::Raise))
}

/// Returns the floor as the client sees it.
pub async fn floor<'a>(
    client: &impl GenericClient,
    at: impl Into<LockSlot<'a>>,
) -> Result<Floor, Error> {
    let at = at.into();
    let slot = at.number();
    let parameters: [(&(dyn ToSql + Sync), Type); 2] =
        [(&at.lock, Type::TEXT), (&slot, Type::INT8)];
    let rows = client.query_typed(FLOOR, &parameters).await.map_err(Error::Store)?;
    rows.first().map_or(Ok(Floor::default()), read)
}

/// A claim in the types of the columns.
struct ClaimColumns<'a> {
    lock: &'a str,
    token: i64,
    slot: i64,
    mode: &'static str,
    incarnation: Option<String>,
}

impl<'a> ClaimColumns<'a> {
    fn new(at: LockSlot<'a>, claim: Claim) -> Result<Self, Error> {
        at.check()?;
        // Checks that the number can be a token at all, and so fits the column.
        Floor::default().admit(claim, Touch::Raise)?;
        let token = i64::try_from(claim.token.get()).expect("a token fits a signed integer");
        let mode = match claim.mode {
            Mode::Exclusive => "exclusive",
            Mode::Shared => "shared",
        };
        let incarnation = claim.incarnation.map(|it| it.to_string());
        Ok(Self { lock: at.lock, token, slot: at.number(), mode, incarnation })
    }

    fn parameters(&self) -> [(&(dyn ToSql + Sync), Type); 5] {
        [
            (&self.lock, Type::TEXT),
            (&self.token, Type::INT8),
            (&self.slot, Type::INT8),
            (&self.mode, Type::TEXT),
            (&self.incarnation, Type::TEXT),
        ]
    }
}

/// Converts an error of the database: the refusal by the floor that it names, or any other failure.
fn explain(error: tokio_postgres::Error, claim: Claim, touch: Touch) -> Error {
    let Some(database) = error.as_db_error() else { return Error::Store(error) };
    if !database.code().code().starts_with("TF") {
        return Error::Store(error);
    }
    match refusing_floor(database).map(|floor| floor.admit(claim, touch)) {
        Some(Err(refused)) => Error::Refused(refused),
        Some(Ok(_)) | None => Error::Unreadable(format!("{database}: {:?}", database.detail())),
    }
}

fn refusing_floor(error: &DbError) -> Option<Floor> {
    let mut parts = error.detail()?.split(' ');
    let mut number = || parts.next()?.parse().ok();
    let numbers = [number()?, number()?, number()?];
    let incarnation = match parts.next()? {
        "-" => None,
        text => Some(Incarnation::parse(text)?),
    };
    Floor::from_numbers(numbers, incarnation)
}

fn read(row: &Row) -> Result<Floor, Error> {
    let unreadable = || Error::Unreadable(format!("{row:?}"));
    let number = |column| row.try_get::<_, i64>(column).map_err(Error::Store);
    let numbers = [number(0)?, number(1)?, number(2)?];
    let text = row.try_get::<_, Option<&str>>(3).map_err(Error::Store)?;
    let incarnation =
        text.map(|text| Incarnation::parse(text).ok_or_else(unreadable)).transpose()?;
    Floor::from_numbers(numbers, incarnation).ok_or_else(unreadable)
}
