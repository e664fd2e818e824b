//! A service of a stranger's making, written by the guide to the SDK alone: it prints a line for each thing it did.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tenure::{Cause, Change, Client, Error as LockError, Standing, Urgency};

type Outcome = Result<(), Box<dyn Error + Send + Sync>>;

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[tokio::main]
async fn main() -> Outcome {
    let client = Client::from_env().await?;
    migration(&client).await?;
    long_work(&client).await?;
    blocking_work(&client).await?;
    pool(&client).await?;
    election(&client).await?;
    keys_and_watch(&client).await?;
    contention(&client).await?;
    lost(&client).await?;
    client.close(secs(5)).await?;
    println!("closed");
    tokio::task::spawn_blocking(without_async).await??;
    Ok(())
}

/// `client.run`: one result, and an error of the work comes through as it is.
async fn migration(client: &Client) -> Outcome {
    let applied = client
        .run("deploy", async |guard| {
            let token: u64 = guard.token().get();
            Ok::<u64, Box<dyn Error + Send + Sync>>(token)
        })
        .await?;
    assert!(applied > 0);
    let failed = client
        .run("deploy", async |_| Err::<(), Box<dyn Error + Send + Sync>>("no such table".into()))
        .await;
    println!("migration: {}", failed.unwrap_err());
    Ok(())
}

/// Work that goes step by step, under a guard.
async fn long_work(client: &Client) -> Outcome {
    let guard = client.lock("import").ttl(secs(5)).grace(secs(1)).await?;
    for _ in 0..3 {
        guard.check()?;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let again = guard.reenter()?;
    drop(again);
    assert!(matches!(guard.standing(), Standing::Valid), "it is renewed");
    guard.release().await?;
    println!("long work: released");
    Ok(())
}

/// Work that blocks its thread.
async fn blocking_work(client: &Client) -> Outcome {
    let rows = client
        .lock("report")
        .run_blocking(|guard| {
            std::thread::sleep(Duration::from_millis(50));
            guard.check()?;
            Ok::<usize, Box<dyn Error + Send + Sync>>(7)
        })
        .await?;
    println!("blocking work: {rows} rows");
    Ok(())
}

/// Eight workers, three slots.
async fn pool(client: &Client) -> Outcome {
    let (at_once, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let mut workers = Vec::new();
    for _ in 0..8 {
        let (client, at_once, most) = (client.clone(), at_once.clone(), most.clone());
        workers.push(tokio::spawn(async move {
            let guard = client.lock("pool").slots(3).await?;
            most.fetch_max(at_once.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(30)).await;
            at_once.fetch_sub(1, Ordering::SeqCst);
            guard.release().await
        }));
    }
    for worker in workers {
        worker.await??;
    }
    let most = most.load(Ordering::SeqCst);
    assert!((1..=3).contains(&most), "{most} at once");
    println!("pool: never more than three");
    Ok(())
}

async fn election(client: &Client) -> Outcome {
    let mut seen = client.election("billing").observe().await?;
    let lead = client.election("billing").campaign("10.0.0.5:9000").await?;
    lead.proclaim("10.0.0.5:9001").await?;
    while let Some(change) = seen.next().await? {
        if let Change::Leader(leader) = change
            && leader.value == b"10.0.0.5:9001"[..]
        {
            break;
        }
    }
    lead.check()?;
    lead.resign().await?;
    println!("election: led, and was seen to");
    Ok(())
}

async fn keys_and_watch(client: &Client) -> Outcome {
    let mut watch = client.watch_prefix("config").await?;
    let guard = client.lock("ledger").await?;
    client.key("config").if_absent().put("v1").await?;
    client.key("ledger").guarded_by(&guard).put("paid").await?;
    let first = watch.next().await?.expect("the watch goes on");
    assert!(first.events.iter().any(|event| event.name == "config"), "{first:?}");
    guard.release().await?;
    println!("keys: written, and seen");
    Ok(())
}

/// Limits that the caller gives are hard.
async fn contention(client: &Client) -> Outcome {
    let guard = client.lock("contended").await?;
    assert!(client.try_lock("contended").await?.is_none());
    let refused = client.lock("contended").wait(Duration::from_millis(100)).await;
    assert!(matches!(refused, Err(LockError::Refused(_))), "{refused:?}");
    guard.release().await?;
    println!("contention: {}", refused.unwrap_err());
    Ok(())
}

/// An operator takes the lock away: the work is dropped, and answered with the loss.
async fn lost(client: &Client) -> Outcome {
    let guard = client.lock("taken").ttl(secs(5)).await?;
    let (token, operator) = (guard.token(), client.clone());
    let force = async move {
        operator.force("taken", token, "stuck", Urgency::StopFirst).await.expect("it is held");
    };
    let (work, ()) = tokio::join!(guard.run(std::future::pending::<()>()), force);
    let lost = work.expect_err("the lock is gone");
    assert_eq!(lost.lost().cause(), Cause::Forced);
    println!("{lost}");
    Ok(())
}

fn without_async() -> Outcome {
    let client = tenure::blocking::Client::from_env()?;
    let guard = client.lock("deploy").with(|ask| ask.wait(secs(5))).acquire()?;
    guard.check()?;
    guard.release()?;
    println!("without async: released");
    Ok(())
}
