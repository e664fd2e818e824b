//! Tests what the client logs when a lock is lost and while no member can be reached.

use std::fmt::{Debug, Write as _};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure::{Client, Urgency};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use super::Alone;
use crate::wire::{Wire, WireState};

/// Keeps every line of the client.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<(Level, String)>>>);

struct Fields(String);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, "{field}={value:?} ").unwrap();
    }
}

impl Subscriber for Lines {
    fn enabled(&self, about: &Metadata<'_>) -> bool {
        about.target().starts_with("tenure")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields(String::new());
        event.record(&mut fields);
        self.0.lock().unwrap().push((*event.metadata().level(), fields.0));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

impl Lines {
    fn warnings(&self) -> Vec<String> {
        let lines = self.0.lock().unwrap();
        let warnings = lines.iter().filter(|(level, _)| *level == Level::WARN);
        warnings.map(|(_, line)| line.clone()).collect()
    }
}

#[tokio::test]
async fn a_loss_is_one_warning_that_names_lock_and_cause() {
    let lines = Lines::default();
    let _here = tracing::subscriber::set_default(lines.clone());
    let member = Alone::start();
    let (a, b) = (member.client("a").await, member.client("b").await);
    let guard = a.lock("deploy").await.unwrap();
    b.force("deploy", guard.token(), "a test", Urgency::StopFirst).await.unwrap();
    guard.lost().await;
    let _ = guard.release().await;
    let warnings = lines.warnings();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    for part in ["lock=\"deploy\"", "cause=\"forced\"", "lost lock `deploy`: forced by b: a test"] {
        assert!(warnings[0].contains(part), "{part}: {warnings:?}");
    }
    // A lock that its holder released is not lost.
    a.lock("quiet").await.unwrap().release().await.unwrap();
    assert_eq!(lines.warnings().len(), 1);
}

#[tokio::test]
async fn an_outage_is_logged_once_however_often_the_client_dials() {
    let lines = Lines::default();
    let _here = tracing::subscriber::set_default(lines.clone());
    let member = Alone::start();
    let wire = Wire::to(member.running.clients);
    let builder = Client::builder().address(wire.address()).ttl(Duration::from_secs(4));
    let client = builder.connect().await.unwrap();
    let guard = client.lock("deploy").await.unwrap();
    // Another test may have registered the log line while this one's subscriber was being set.
    tracing::callsite::rebuild_interest_cache();
    wire.set(WireState::Cut);
    // By then the client has dialled many times.
    guard.lost().await;
    let outages = || lines.warnings().iter().filter(|it| it.contains("no member can be")).count();
    crate::until("the outage is logged", async || outages() > 0).await;
    assert_eq!(outages(), 1, "{:?}", lines.warnings());
    let all = lines.0.lock().unwrap().clone();
    let dialled = all.iter().filter(|(_, line)| line.contains("dialled")).count();
    assert!(dialled <= 6, "{dialled} lines: {all:?}");
}
