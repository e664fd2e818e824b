//! Tests locks whose resource has a fence.

use std::sync::Arc;

use tenure::{Cause, Error, Urgency};
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
