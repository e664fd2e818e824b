//! Replaces a Postgres advisory lock, and adds a fence to it.
//!
//! | Postgres | here |
//! |---|---|
//! | `select pg_advisory_lock(42)` | `client.lock("orders/42").await?` |
//! | `select pg_try_advisory_lock(42)` | `client.lock("orders/42").no_wait().await` |
//! | `set lock_timeout = '5s'` | `.wait(Duration::from_secs(5))` |
//! | `select pg_advisory_lock_shared(42)` | `.shared()` |
//! | `select pg_advisory_unlock(42)` | `guard.release().await?` |
//! | `pg_advisory_xact_lock(42)` and `commit` | `client.run("orders/42", async \|guard\| …).await?` |
//!
//! An advisory lock ends with its connection, and the work is not told: behind a pooler or after a failover, two
//! clients hold it. A guard is lost before another client can start, its lock survives failovers, and with its token
//! the database itself refuses late writers. In the same transaction as the work:
//!
//! ```sql
//! update fences set token = $1 where lock = 'orders/42' and token <= $1;  -- no row: too late, roll back
//! update orders set paid = true where id = 42;
//! ```

use std::sync::Mutex;

use tenure::{Client, Error, Refusal, Token};

/// A row of `fences` and what it protects. Stands for the database.
#[derive(Default)]
struct Orders {
    rows: Mutex<(u64, Vec<&'static str>)>,
}

impl Orders {
    /// Runs the transaction above, and returns whether it was committed.
    fn write(&self, token: Token, what: &'static str) -> bool {
        let mut rows = self.rows.lock().expect("no task panics while writing");
        if token.get() < rows.0 {
            return false;
        }
        rows.0 = token.get();
        rows.1.push(what);
        true
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let client = Client::from_env().await?;
    println!("committed: {:?}", run(&client).await?);
    Ok(())
}

/// Returns what was committed.
pub(crate) async fn run(client: &Client) -> Result<Vec<&'static str>, Error> {
    let orders = Orders::default();
    // pg_advisory_lock(42)
    let guard = client.lock("orders/42").await?;
    let token = guard.token();
    orders.write(token, "reserved");
    // pg_try_advisory_lock(42), by another client
    match client.lock("orders/42").no_wait().await {
        Err(Error::Refused(Refusal::Held(held))) => println!("not now: {held}"),
        Err(other) => return Err(other),
        Ok(_) => unreachable!("it is held"),
    }
    // pg_advisory_unlock(42)
    guard.release().await?;
    // pg_advisory_xact_lock(42)
    let paid =
        client.run("orders/42", async |guard| Ok::<_, Error>(orders.write(guard.token(), "paid")));
    assert!(paid.await?, "the newest token is accepted");
    // A write of the first holder that was on its way all the time: the database refuses it.
    assert!(!orders.write(token, "reserved again"), "a smaller token is too late");
    Ok(orders.rows.into_inner().expect("no task panics while writing").1)
}
