//! Tests what errors say, and what a program can learn from them.

use std::error::Error as _;

use tenure::{Error, Refusal, Urgency};

use super::Alone;

#[tokio::test]
async fn an_error_says_what_was_refused_and_why_a_lock_was_lost() {
    let member = Alone::start();
    let (a, b) = (member.client("a").await, member.client("b").await);
    let guard = a.lock("deploy").await.unwrap();
    let held = b.lock("deploy").no_wait().await.unwrap_err();
    assert!(held.to_string().starts_with("lock `deploy` is held by a for "), "{held}");
    assert!(held.is_retryable() && held.clone().source().is_some());
    b.force("deploy", guard.token(), "a test", Urgency::StopFirst).await.unwrap();
    guard.lost().await;
    let lost = guard.check().unwrap_err();
    assert_eq!(lost.to_string(), "lost: forced by b: a test");
    assert_eq!(lost.source().unwrap().downcast_ref::<tenure::Lost>().unwrap().by(), Some("b"));
    assert!(!lost.is_retryable());
}

#[tokio::test]
async fn an_invalid_name_is_refused_as_one_before_anything_is_sent() {
    let member = Alone::start();
    let client = member.client("a").await;
    let long = "x".repeat(513);
    for name in ["", "a\nb", &long] {
        let refused = client.lock(name).await;
        assert!(matches!(refused, Err(Error::Refused(Refusal::InvalidName))), "{refused:?}");
    }
    let none = client.lock_all(Vec::<String>::new()).await;
    assert!(none.is_err());
}

#[test]
fn an_unknown_outcome_names_an_id_only_if_there_is_one() {
    let waited = std::time::Duration::from_secs(1);
    let with = Error::Unknown { request: Some("job-7".to_owned().into()), waited };
    assert_eq!(with.to_string(), "no outcome of request job-7 within 1.0s; it may have happened");
    let without = Error::Unknown { request: None, waited };
    assert_eq!(without.to_string(), "no outcome within 1.0s; it may have happened");
}
