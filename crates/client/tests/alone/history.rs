//! Tests that the SDK reads the past of locks: by name, prefix, time, client and loss.

use std::time::{Duration, SystemTime};

use tenure::Urgency;

use crate::alone::Alone;

#[allow(
    clippy::disallowed_methods,
    reason = "searches by time of day are tested with the time of day"
)]
#[tokio::test]
async fn the_past_of_a_lock_is_read_by_name_prefix_time_client_and_loss() {
    let member = Alone::start();
    let (ana, bob) = (member.client("ana").await, member.client("bob").await);
    for client in [&ana, &bob] {
        client.lock("past/deploy").await.unwrap().release().await.unwrap();
    }
    // One hold is taken away.
    let guard = ana.lock("past/other").await.unwrap();
    bob.force("past/other", guard.token(), "a test", Urgency::Now).await.unwrap();
    let past = ana.history("past/deploy").read().await.unwrap();
    let causes = |past: &tenure::Past| -> Vec<String> {
        let events = past.batches.iter().flat_map(|batch| &batch.events);
        events.map(|event| format!("{:?}", event.cause)).collect()
    };
    assert_eq!(causes(&past), ["Granted", "Released", "Granted", "Released"]);
    assert!(past.batches.is_sorted_by_key(|batch| batch.revision), "oldest first");
    assert_eq!(past.missing, []);
    // In a task: what reads it can be sent to another thread.
    let newest = tokio::spawn(ana.history("past/deploy").limit(1).read()).await.unwrap().unwrap();
    assert_eq!(newest.batches, past.batches[3..]);
    let of_bob = ana.history("past/deploy").of_client("bob").read().await.unwrap();
    assert_eq!(of_bob.batches, past.batches[2..]);
    let hour = Duration::from_secs(3_600);
    let since = ana.history("past/deploy").since(SystemTime::now() - hour).read().await.unwrap();
    assert_eq!(since.batches, past.batches);
    let until = ana.history("past/deploy").until(SystemTime::now() - hour).read().await.unwrap();
    assert_eq!(until.batches, []);
    let lost = ana.history_prefix("past/").lost().read().await.unwrap();
    assert_eq!(causes(&lost), ["Forced"]);
    crate::until("the archive says where it begins", async || {
        let past = ana.history("past/deploy").read().await.unwrap();
        past.archive_begins.is_some() && past.archive_begins_at.is_some()
    })
    .await;
}
