//! Migrates a database exactly once, although many instances start together.
//!
//! Each instance takes the lock. The first one migrates, and the others find that it is done. The guard is checked
//! before every step, and the version is written under the guard, so that an instance that lost the lock cannot write
//! it any more.

use tenure::{Client, Error, Guard};

const STEPS: [&str; 3] = ["create table orders", "add column paid", "create index on paid"];

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let client = Client::from_env().await?;
    println!("{} of 3 instances migrated", run(&client).await?);
    Ok(())
}

/// Starts three instances at once, and returns how many of them migrated.
pub(crate) async fn run(client: &Client) -> Result<usize, Error> {
    let instances = (0..3).map(|_| tokio::spawn(start(client.clone())));
    let mut migrated = 0;
    for instance in instances.collect::<Vec<_>>() {
        migrated += usize::from(instance.await.expect("an instance does not panic")?);
    }
    Ok(migrated)
}

/// What an instance does before it serves. Returns whether it was the one that migrated.
async fn start(client: Client) -> Result<bool, Error> {
    // Takes a lease, waits in the queue, runs, releases. If the lock is lost, the migration is dropped at its await.
    client.run("migrate/orders", async |guard| migrate(&client, guard).await).await
}

async fn migrate(client: &Client, guard: &Guard) -> Result<bool, Error> {
    if client.key("schema/orders").get().await?.is_some_and(|it| it.value == "3") {
        return Ok(false);
    }
    for step in STEPS {
        guard.check()?;
        println!("token {}: {step}", guard.token());
    }
    client.key("schema/orders").guarded_by(guard).put("3").await?;
    Ok(true)
}
