//! Tests locks whose resource has a fence.

use std::sync::Arc;
use std::time::Duration;

use tenure::{Cause, Client, Error, Refusal, Urgency};
use tenure_fence::files::FileFence;

use super::Alone;

#[tokio::test]
async fn the_floor_is_raised_before_the_guard_is_handed_out() {
    let (member, dir) = (Alone::start(), tempfile::tempdir().unwrap());
    let (a, b) = (member.client("a").await, member.client("b").await);
    let files = Arc::new(FileFence::open(dir.path().join("ledger")).unwrap());
    let raise = {
        let files = files.clone();
        move |lock: tenure::Lock| {
            let files = files.clone();
            async move { files.raise((lock.name.as_str(), lock.slot), lock.token) }
        }
    };
    let late = a.lock("ledger").fence(raise.clone()).await.unwrap();
    a.force("ledger", late.token(), "a test", Urgency::Now).await.unwrap();
    // B has written nothing yet, and A's late write is already refused.
    let guard = b.lock("ledger").fence(raise.clone()).await.unwrap();
    let written = files.write("ledger", late.token(), |_| Ok(()));
    let refused = written.unwrap_err().refused().unwrap();
    assert!(
        matches!(refused, tenure_fence::Refused::Stale { floor, .. } if floor == guard.token())
    );
    files.write("ledger", guard.token(), |_| Ok(())).unwrap();
    guard.release().await.unwrap();
    // Several locks are raised in order, and each slot has a floor of its own.
    let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
    let note = {
        let seen = seen.clone();
        move |lock: tenure::Lock| {
            seen.lock().unwrap().push(lock);
            std::future::ready(Ok::<_, std::io::Error>(()))
        }
    };
    let both = b.lock_all(["y", "x"]).fence(note.clone()).await.unwrap();
    assert!(both.locks().eq(seen.lock().unwrap().iter()));
    let slot = b.lock("workers").slots(2).fence(raise).await.unwrap();
    slot.fence(&note).await.unwrap();
    assert_eq!(seen.lock().unwrap().last().unwrap().slot, slot.slot());
}

#[tokio::test]
async fn a_client_that_the_fence_refuses_gives_the_lock_back() {
    let member = Alone::start();
    let client = member.client("a").await;
    let no = |_: tenure::Lock| std::future::ready(Err(std::io::Error::other("no disk")));
    let refused = client.lock("ledger").fence(no).await.unwrap_err();
    let Error::Fence(why) = &refused else { panic!("{refused:?}") };
    assert_eq!(why.to_string(), "no disk");
    client.lock("ledger").no_wait().await.unwrap().release().await.unwrap();
    // If the lock is lost meanwhile, the client stops waiting for the fence.
    let (raising, began) = (client.clone(), Arc::new(tokio::sync::Notify::new()));
    let for_ever = {
        let began = began.clone();
        move |_: tenure::Lock| {
            began.notify_one();
            std::future::pending::<Result<(), std::io::Error>>()
        }
    };
    let asking = tokio::spawn(async move { raising.lock("ledger").fence(for_ever).await });
    began.notified().await;
    let held = client.show("ledger").await.unwrap().unwrap();
    let token = held.holders[0].token;
    client.force("ledger", token, "a test", Urgency::Now).await.unwrap();
    let lost = asking.await.unwrap().unwrap_err();
    let Error::Lost(lost) = &lost else { panic!("{lost:?}") };
    assert_eq!(lost.cause(), Cause::Forced);
}

#[tokio::test]
async fn a_fence_has_the_time_of_the_request_or_of_any_request() {
    let member = Alone::start();
    let client = member.client("a").await;
    let for_ever = |_: tenure::Lock| std::future::pending::<Result<(), std::io::Error>>();
    let limited = client.lock("ledger").timeout(Duration::from_millis(200)).fence(for_ever).await;
    assert!(matches!(&limited, Err(Error::Refused(Refusal::WaitTimeout))), "{limited:?}");
    let address = member.running.clients.to_string();
    let hasty =
        Client::builder().address(address).timeout(Duration::from_secs(1)).connect().await.unwrap();
    let late = hasty.lock("ledger").wait(Duration::from_secs(5)).fence(for_ever).await;
    let Err(Error::Fence(why)) = &late else { panic!("{late:?}") };
    assert_eq!(why.to_string(), "no answer within 1.0s");
    client.lock("ledger").wait(Duration::from_secs(5)).await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_fence_that_fails_because_the_lock_is_lost_is_a_loss() {
    let member = Alone::start();
    let (client, other) = (member.client("a").await, member.client("b").await);
    let lose = move |lock: tenure::Lock| {
        let other = other.clone();
        async move {
            other.force("ledger", lock.token, "stuck", Urgency::Now).await.unwrap();
            other.lock("ledger").await.unwrap().release().await.unwrap();
            Err(std::io::Error::other("the connection is closed"))
        }
    };
    let lost = client.lock("ledger").fence(lose).await;
    let Err(Error::Lost(lost)) = &lost else { panic!("{lost:?}") };
    assert_eq!((lost.cause(), lost.by()), (Cause::Forced, Some("b")));
}
