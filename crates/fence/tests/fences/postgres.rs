//! Tests that PostgreSQL refuses stale writers.

use std::sync::Mutex;

use tenure_fence::postgres::{self, MIGRATION, PASS};
use tenure_fence::{Claim, Floor, LockSlot};
use tokio::runtime::Runtime;
use tokio_postgres::{Client, NoTls};

use crate::planted::{self, Planted};
use crate::server;
use crate::subject::{FenceReply, Subject, claim, said, token};
use crate::trials::{self, Size};

/// A database, and its idle connections.
struct Database {
    runtime: Runtime,
    port: u16,
    idle: Mutex<Vec<Client>>,
}

/// A table of its own with one row.
pub(crate) struct Table<'a> {
    database: &'a Database,
    name: String,
}

const PLANTED: &[Planted] = &[
    ("if a_token < lowest then", "if a_token + 1 < lowest then"),
    ("if a_token < lowest then", "if a_token <= lowest then"),
    ("if a_token < lowest then", "if a_token::float8 < lowest::float8 then"),
    ("if a_token < lowest then", "if a_token::text < lowest::text then"),
    ("(newest >> 48 << 48) | 1", "f.shared"),
    ("(newest >> 48 << 48) | 1", "0"),
    ("| 1) else newest end", "| 1) else f.exclusive end"),
    ("a_token <= f.used", "a_token < f.used"),
    (
        "used = case when a_write then greatest(o.used, a_token) else o.used end",
        "used = greatest(o.used, a_token)",
    ),
    ("then greatest(o.shared, a_token)", "then a_token"),
    ("and f.incarnation <> a_incarnation", "and false"),
    ("else coalesce(a_incarnation, o.incarnation)", "else a_incarnation"),
    ("then a_incarnation\n", "then coalesce(a_incarnation, o.incarnation)\n"),
    ("where o.lock = a_lock and o.slot = a_slot;", "where o.lock = a_lock;"),
];

impl Database {
    fn connect(&self) -> Client {
        self.connect_as("postgres")
    }

    fn connect_as(&self, user: &str) -> Client {
        let settings = format!("host=127.0.0.1 port={} user={user} dbname=postgres", self.port);
        self.runtime.block_on(async {
            // The port is open before the server has started up.
            let (client, connection) = loop {
                match tokio_postgres::connect(&settings, NoTls).await {
                    Ok(connected) => break connected,
                    Err(error) if error.code().is_some_and(|code| code.code() == "57P03") => {
                        tokio::task::yield_now().await;
                    }
                    Err(error) => panic!("{error:?}"),
                }
            };
            tokio::spawn(connection);
            client
        })
    }

    fn with<T>(&self, work: impl AsyncFnOnce(&mut Client) -> T) -> T {
        let idle = self.idle.lock().unwrap().pop();
        let mut client = idle.unwrap_or_else(|| self.connect());
        let done = self.runtime.block_on(work(&mut client));
        self.idle.lock().unwrap().push(client);
        done
    }

    fn run(&self, sql: &str) {
        self.with(async |client| client.batch_execute(sql).await.unwrap());
    }

    /// Returns the error code of SQL that has to fail.
    fn refused(&self, sql: &str) -> String {
        self.with(async |client| {
            let error = client.batch_execute(sql).await.expect_err(sql);
            let code = error.code().unwrap().code().to_owned();
            client.batch_execute("rollback").await.unwrap();
            code
        })
    }
}

impl<'a> Table<'a> {
    fn make(database: &'a Database, name: &str) -> Self {
        database
            .run(&format!("create table {name} (value text); insert into {name} values (null)"));
        Self { database, name: name.to_owned() }
    }

    fn update(&self) -> String {
        format!("update {} set value = $1", self.name)
    }
}

impl Subject for Table<'_> {
    fn write(&self, at: LockSlot<'_>, claim: Claim, value: &str) -> Result<(), FenceReply> {
        let written = self.database.with(async |client| {
            let tx = client.transaction().await.unwrap();
            postgres::check(&tx, at, claim).await?;
            tx.execute(&self.update(), &[&value]).await.unwrap();
            tx.commit().await.map_err(tenure_fence::Error::Store)
        });
        said(written)
    }

    fn raise(&self, at: LockSlot<'_>, claim: Claim) -> Result<(), FenceReply> {
        said(self.database.with(async |client| postgres::raise(client, at, claim).await))
    }

    fn floor(&self, at: LockSlot<'_>) -> Floor {
        self.database.with(async |client| postgres::floor(client, at).await.unwrap())
    }

    fn read(&self) -> Option<String> {
        let select = format!("select value from {}", self.name);
        self.database.with(async |client| client.query_one(&select, &[]).await.unwrap().get(0))
    }

    fn write_unfenced(&self, value: &str) {
        self.database.with(async |client| client.execute(&self.update(), &[&value]).await.unwrap());
    }
}

/// Sets up one table and runs the scenario on it.
pub(crate) fn stand(play: &dyn Fn(&Table<'_>)) {
    let Some(server) = server::or_skip("PostgreSQL", server::postgres()) else { return };
    let runtime = Runtime::new().unwrap();
    let database = &Database { runtime, port: server.port, idle: Mutex::default() };
    database.run(MIGRATION);
    play(&Table::make(database, "ledger"));
}

#[test]
fn postgres_refuses_the_dead() {
    let Some(server) = server::or_skip("PostgreSQL", server::postgres()) else { return };
    let runtime = Runtime::new().unwrap();
    let database = &Database { runtime, port: server.port, idle: Mutex::default() };
    database.run(MIGRATION);
    trials::all(Size { steps: 300, writes: 40 }, |name| Table::make(database, name));
    planted::every_one_is_found(MIGRATION, PLANTED, |lock, spoilt| {
        database.run(spoilt);
        Table::make(database, lock)
    });
    database.run(MIGRATION);
    assert!(
        database
            .with(async |client| postgres::floor(client, "scenario").await.unwrap())
            .exclusive
            .is_some(),
        "migrating again keeps the floors"
    );
    a_protected_table_refuses_sql_written_by_hand(database);
    a_transaction_with_another_token_waits_for_the_current_one(database);
    no_user_can_edit_a_floor_by_hand(database);
    others_run_the_statement_themselves(database);
    so_do_users_of_sqlx(database);
}

fn a_protected_table_refuses_sql_written_by_hand(database: &Database) {
    database.run(
        "create table ledger (id int primary key, paid bool); insert into ledger values (7, false)",
    );
    database.run("select tenure_fence.protect('ledger', 'by hand')");
    let changes = [
        "update ledger set paid = true where id = 7",
        "insert into ledger values (8, true)",
        "delete from ledger",
        "truncate ledger",
        "with gone as (delete from ledger returning id) select * from gone",
    ];
    for change in changes {
        assert_eq!(database.refused(change), "TF428", "{change}");
        assert_eq!(database.refused(&format!("begin; {change}; commit")), "TF428", "{change}");
    }
    let passing = |token: u64, rest: &str| {
        format!("begin; select tenure_fence.pass('by hand', {token}); {rest}; commit")
    };
    for change in changes {
        database.run(&passing(5, change));
        database.run(&passing(5, "insert into ledger values (7, false)  on conflict do nothing"));
    }
    // A pass is valid for its own transaction and its own lock, and only until it is removed.
    assert_eq!(database.refused(changes[0]), "TF428");
    assert_eq!(
        database.refused(&format!("begin; select tenure_fence.pass('other', 9); {}", changes[0])),
        "TF428"
    );
    let undone =
        "savepoint s; select tenure_fence.pass('by hand', 6); rollback to s; delete from ledger";
    assert_eq!(database.refused(&format!("begin; {undone}")), "TF428");
    let raised = "begin; select tenure_fence.raise_floor('by hand', 6)";
    assert_eq!(database.refused(&format!("{raised}; delete from ledger")), "TF428");
    database.run(&format!("{raised}; commit"));
    assert_eq!(database.refused(&passing(5, changes[0])), "TF412");
    for bad in ["0", "-1", "null", "281474976710656"] {
        assert_eq!(
            database.refused(&format!("select tenure_fence.pass('by hand', {bad})")),
            "TF400"
        );
    }
    assert_eq!(database.refused("select tenure_fence.pass('by hand', 9, mode => 'both')"), "22023");
    database.run("select tenure_fence.unprotect('ledger'); delete from ledger");
}

fn a_transaction_with_another_token_waits_for_the_current_one(database: &Database) {
    database.run("create table slow (value int); insert into slow values (0)");
    let (mut a, mut b) = (database.connect(), database.connect());
    let waiting = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'";
    database.runtime.block_on(async {
        let tx = a.transaction().await.unwrap();
        postgres::check(&tx, "slow", token(1)).await.unwrap();
        let second = tokio::spawn(async move {
            let tx = b.transaction().await.unwrap();
            postgres::check(&tx, "slow", token(2)).await.unwrap();
            let seen: i32 = tx.query_one("select value from slow", &[]).await.unwrap().get(0);
            tx.commit().await.unwrap();
            seen
        });
        let watcher = database.connect_inside().await;
        while watcher.query_one(waiting, &[]).await.unwrap().get::<_, i64>(0) == 0 {
            assert!(!second.is_finished(), "the second transaction did not wait");
        }
        tx.execute("update slow set value = 1", &[]).await.unwrap();
        tx.commit().await.unwrap();
        assert_eq!(second.await.unwrap(), 1, "what came before is done before");
        let tx = a.transaction().await.unwrap();
        let late = postgres::check(&tx, "slow", token(1)).await.unwrap_err();
        assert_eq!(
            late.refused().unwrap().to_string(),
            "token 1 is stale: the highest token seen is 2"
        );
    });
}

fn no_user_can_edit_a_floor_by_hand(database: &Database) {
    database
        .run("create role clerk login; create table desk (value int); grant all on desk to clerk");
    database.run("select tenure_fence.protect('desk', 'desk')");
    let clerk = database.connect_as("clerk");
    database.runtime.block_on(async {
        clerk
            .batch_execute(
                "begin; select tenure_fence.pass('desk', 3); insert into desk values (1); commit",
            )
            .await
            .unwrap();
        for change in
            ["update tenure_fence.floor set exclusive = 1", "delete from tenure_fence.floor"]
        {
            let error = clerk.batch_execute(change).await.unwrap_err();
            assert_eq!(error.code().unwrap().code(), "42501", "{change}: insufficient privilege");
        }
    });
}

/// What users of other libraries do, with parameters of inferred types.
fn others_run_the_statement_themselves(database: &Database) {
    database.with(async |client| {
        let pass = client.prepare(PASS).await.unwrap();
        let row: &[&(dyn tokio_postgres::types::ToSql + Sync)] =
            &[&"sqlx", &4i64, &-1i64, &"exclusive", &false, &None::<String>];
        client.execute(&pass, row).await.unwrap();
        let floor = postgres::floor(client, "sqlx").await.unwrap();
        assert_eq!(floor.used, Some(token(4)));
        let tx = client.transaction().await.unwrap();
        let bad = postgres::check(&tx, "", claim(5)).await.unwrap_err();
        assert!(matches!(bad, tenure_fence::Error::Name(_)), "{bad:?}");
    });
}

/// The example of `docs/fences/postgresql.md`, word for word: A pauses, B takes the lock and writes, A wakes up.
fn so_do_users_of_sqlx(database: &Database) {
    #[rustfmt::skip]
    async fn pay(pool: &sqlx::PgPool, token: tenure_fence::Token) -> Result<(), sqlx::Error> {
        let mut tx = pool.begin().await?;
        sqlx::query(tenure_fence::postgres::PASS)
            .bind("ledger").bind(token.get() as i64).bind(-1i64).bind("exclusive").bind(false).bind(None::<String>)
            .execute(&mut *tx).await?;
        sqlx::query("update ledger set paid = true where id = $1").bind(7).execute(&mut *tx).await?;
        tx.commit().await?;
        Ok(())
    }
    let guide = include_str!("../../../../docs/fences/postgresql.md");
    let text = include_str!("postgres.rs");
    let example =
        guide.split("with `sqlx`:\n\n```rust\n").nth(1).unwrap().split("```").next().unwrap();
    for line in example.lines() {
        assert!(text.contains(line.trim()), "the guide says what is not run here: {line}");
    }
    database.run("delete from ledger; insert into ledger values (7, false)");
    let url = format!("postgres://postgres@127.0.0.1:{}/postgres", database.port);
    let paid = || {
        let select = "select paid from ledger where id = 7";
        database.with(async |client| client.query_one(select, &[]).await.unwrap().get::<_, bool>(0))
    };
    database.runtime.block_on(async {
        let pool = sqlx::PgPool::connect(&url).await.unwrap();
        pay(&pool, token(34)).await.unwrap();
        pool.close().await;
    });
    assert!(paid());
    database.run("update ledger set paid = false");
    database.runtime.block_on(async {
        let pool = sqlx::PgPool::connect(&url).await.unwrap();
        let late = pay(&pool, token(33)).await.unwrap_err();
        let code = late.as_database_error().unwrap().code().unwrap().into_owned();
        assert_eq!(code, "TF412", "{late}");
        pay(&pool, token(34)).await.unwrap();
        pool.close().await;
    });
    let floor = database.with(async |client| postgres::floor(client, "ledger").await.unwrap());
    assert_eq!((paid(), floor.used), (true, Some(token(34))));
}

impl Database {
    async fn connect_inside(&self) -> Client {
        let settings = format!("host=127.0.0.1 port={} user=postgres dbname=postgres", self.port);
        let (client, connection) = tokio_postgres::connect(&settings, NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    }
}
