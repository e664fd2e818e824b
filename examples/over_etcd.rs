//! How does a program that has etcd already hold the same kind of lock?
//!
//! ```console
//! $ etcd &
//! $ cargo run --package tenure-backends --example over_etcd
//! $ ETCD_ADDR=http://10.0.0.11:2379,http://10.0.0.12:2379 cargo run --package tenure-backends --example over_etcd
//! ```
//!
//! Start it twice: one works, the other waits. Stop the first, and the second goes on with a larger token.

use std::time::Duration;

use tenure_backends::{Backend, Error, Etcd, Fenced, Guard, Locks};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let etcd = std::env::var("ETCD_ADDR").unwrap_or_else(|_| "http://127.0.0.1:2379".to_owned());
    let locks = Locks::builder(Etcd::new(&etcd)?).ttl(Duration::from_secs(10)).start()?;
    println!("waiting for the lock");
    let guard = locks.lock("nightly-report").await?;
    println!("working under token {}", guard.token());
    match guard.run(report(&guard)).await {
        Ok(pages) => println!("done: {pages} pages"),
        // The work was dropped at its await, before anybody else could start.
        Err(error) => println!("stopped: {error}"),
    }
    guard.release().await
}

/// Works with every store whose grants have tokens; with Redis this does not compile.
async fn report<B: Backend<Promise = Fenced>>(guard: &Guard<B>) -> u32 {
    for page in 1..=20 {
        tokio::time::sleep(Duration::from_millis(500)).await;
        println!("page {page}, written under token {}", guard.token());
    }
    20
}
