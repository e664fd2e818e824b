//! Tests that shared reason codes mean the same as in the cluster, and that every code occurs.

use std::collections::BTreeSet;
use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use tenure_fence::http::{Unproven, Verify};
use tenure_fence::{Claim, Incarnation, LockSlot, parse_token};
use tenure_gate::TokenPolicy;
use tenure_gate::reason::{Fence, Reason, Row};
use tenure_gate::store::StoreLimits;

use crate::calls::{Answer, Connection, call};
use crate::upstream::Upstream;
use crate::{proxy, states, store};

/// Reasons that cannot be provoked from outside: why not, and the file and test that provoke them inside.
const INSIDE: &[(Reason, &str, &str, &str)] = &[
    (
        Reason::TooSlow,
        "a body has 30 s",
        include_str!("../../src/store/http.rs"),
        "a_body_that_does_not_come_is_not_waited_for",
    ),
    (
        Reason::Overloaded,
        "1,024 writes have to wait at one moment",
        include_str!("../../src/store/writer.rs"),
        "no_caller_waits_for_a_writer_that_cannot_keep_up_or_has_stopped",
    ),
    (
        Reason::ShuttingDown,
        "said between the failure of the disk and the end of the process",
        include_str!("../../src/store/writer.rs"),
        "no_caller_waits_for_a_writer_that_cannot_keep_up_or_has_stopped",
    ),
    (
        Reason::Internal,
        "the disk has to fail in the middle of a write",
        include_str!("../../src/store/writer.rs"),
        "no_caller_waits_for_a_writer_that_cannot_keep_up_or_has_stopped",
    ),
];

#[test]
fn reasons_of_the_cluster_have_its_status_and_effect() {
    let mut shared = 0;
    for ours in Reason::ALL.iter().map(|it| it.row()) {
        let Some(theirs) = tenure_wire::reason::row(ours.reason) else { continue };
        shared += 1;
        assert_eq!(ours.status, theirs.http, "{}", ours.reason);
        let effect = tenure_wire::reason::effect_word(theirs.effect);
        assert_eq!(ours.effect.word(), effect, "{}", ours.reason);
    }
    assert!(shared >= 12, "{shared} of {} are shared", Reason::ALL.len());
}

/// The rows that occurred in a response.
#[derive(Default)]
struct CoveredReasons(BTreeSet<&'static str>);

impl CoveredReasons {
    /// Compares a response with its row: the status, and in the body reason, effect and advice.
    fn check(&mut self, said: &Answer, reason: impl Into<&'static Row>) {
        let row = reason.into();
        assert_eq!(said.refusal(), (row.status, row.reason), "{said:?}");
        let body: serde_json::Value = serde_json::from_slice(&said.body).unwrap();
        let error = &body["error"];
        assert_eq!(error["reason"], row.reason);
        assert_eq!(error["effect"], row.effect.word(), "{}", row.reason);
        assert_eq!(error["next"], row.advice, "{}", row.reason);
        assert_eq!(said.status == 503, said.header("retry-after").is_some(), "{}", row.reason);
        self.0.insert(row.reason);
    }
}

/// Accepts `7` or `7 once`, with an incarnation if one is named, and refuses everything else as forged.
struct Words;

impl Verify for Words {
    fn verify(&self, text: &str, _: LockSlot<'_>) -> Result<Claim, Unproven> {
        let mut words = text.split(' ');
        let token = parse_token(words.next().unwrap_or_default());
        let mut claim = token.map(Claim::new).map_err(|_| Unproven::Malformed)?;
        for word in words {
            let said = Incarnation::parse(word).ok_or(Unproven::Forged(word.to_owned()))?;
            claim = claim.incarnation(said);
        }
        Ok(claim)
    }
}

#[test]
fn every_reason_is_said_by_the_store_or_the_proxy() {
    let mut covered = CoveredReasons::default();
    the_store_says(&mut covered);
    the_proxy_says(&mut covered);
    a_store_with_readers_says(&mut covered);
    for (said, reason) in states::refusals() {
        covered.check(&said, reason);
    }
    let inside: BTreeSet<_> = INSIDE.iter().map(|(it, ..)| it.row().reason).collect();
    for (reason, why, file, test) in INSIDE {
        assert!(file.contains(&format!("fn {test}()")), "{reason:?}: {why}");
    }
    let rows = Reason::ALL.iter().map(|it| it.row()).chain(Fence::ALL.iter().map(|it| it.row()));
    let rows: BTreeSet<_> = rows.map(|row| row.reason).collect();
    let silent: Vec<_> = rows.difference(&covered.0).filter(|it| !inside.contains(**it)).collect();
    assert!(silent.is_empty(), "no test covers {silent:?}");
    assert!(covered.0.is_disjoint(&inside), "what is said from outside is not only said inside");
    println!("reasons rows={} outside={} inside={}", rows.len(), covered.0.len(), inside.len());
}

fn a_store_with_readers_says(covered: &mut CoveredReasons) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("readers");
    std::fs::write(&file, "x".repeat(32)).unwrap();
    let store = crate::store::started(dir.path(), |settings| settings.readers = Some(file.clone()));
    covered.check(&call(store.address, "GET", "/v1/data", None, ""), Reason::Unauthenticated);
}

fn the_store_says(covered: &mut CoveredReasons) {
    let dir = tempfile::tempdir().unwrap();
    let limits = StoreLimits { body_bytes_max: 1_000, value_bytes_max: 1_500, bytes_max: 4_000 };
    let running = store::started(dir.path(), |settings| {
        settings.limits = limits;
        settings.believe = TokenPolicy::Other(Arc::new(Words));
    });
    let to = running.address;
    let put = |path: &str, token: &str, body: &str| {
        let mut connection = Connection::open(to).unwrap();
        connection.call("PUT", path, &[("fencing-token", token)], body.as_bytes()).unwrap()
    };
    let (one, two) = ("7 00000000000000a1", "7 00000000000000a2");
    assert_eq!(put("/v1/data/a?lock=l", one, "x").status, 200);
    covered.check(&call(to, "PUT", "/v1/data/a?lock=l", None, "x"), Fence::TokenRequired);
    covered.check(&put("/v1/data/a?lock=l", "seven", "x"), Fence::NotAToken);
    covered.check(&put("/v1/data/a?lock=l", "6", "x"), Fence::StaleToken);
    covered.check(&put("/v1/data/a?lock=l&once=true", "7", "x"), Fence::TokenUsed);
    covered.check(&put("/v1/data/a?lock=l", "7 stolen", "x"), Fence::ForgedToken);
    covered.check(&put("/v1/data/a?lock=l", two, "x"), Fence::OtherIncarnation);
    covered.check(&put("/v1/data/a?lock=m", "9", "x"), Reason::OtherLock);
    covered.check(&call(to, "POST", "/v1/data/a?lock=l&at=9", Some(7), "x"), Reason::CompareFailed);
    covered.check(&call(to, "GET", "/v1/data/none", None, ""), Reason::KeyNotFound);
    covered.check(&put("/v1/data/a?lock=", "7", "x"), Reason::InvalidName);
    covered.check(&put("/v1/data/a?lock=l&slot=x", "7", "x"), Reason::InvalidField);
    covered.check(&put("/v1/data/a?lock=l", "7", &"x".repeat(1_001)), Reason::TooLarge);
    let long = "x".repeat(1_000);
    assert_eq!(call(to, "POST", "/v1/data/b?lock=l", Some(7), &long).status, 200);
    covered.check(&call(to, "POST", "/v1/data/b?lock=l", Some(7), &long), Reason::ValueTooLong);
    assert_eq!(put("/v1/data/c?lock=l", "7", &long).status, 200);
    assert_eq!(put("/v1/data/d?lock=l", "7", &long).status, 200);
    covered.check(&put("/v1/data/e?lock=l", "7", &long), Reason::NoSpace);
    covered.check(&call(to, "GET", "/v1/other", None, ""), Reason::UnknownOperation);
    covered.check(&call(to, "PATCH", "/v1/data/a", None, ""), Reason::UnknownVerb);
    let mut connection = Connection::open(to).unwrap();
    let elsewhere = connection.call("GET", "/v1/data", &[("host", "evil.example")], b"").unwrap();
    covered.check(&elsewhere, Reason::HostNotAllowed);
    // `POST /write` has a response body of its own.
    let malformed = call(to, "POST", "/write", None, "hello");
    let row = Reason::Malformed.row();
    assert_eq!(malformed.refusal(), (row.status, row.reason));
    covered.0.insert(row.reason);
}

fn the_proxy_says(covered: &mut CoveredReasons) {
    let (dir, upstream) = (tempfile::tempdir().unwrap(), Upstream::start());
    let running = proxy::started(dir.path(), upstream.address, |settings| {
        settings.wait = Duration::from_millis(100);
        settings.timeout = Duration::from_secs(600);
        settings.believe = TokenPolicy::Other(Arc::new(Words));
    });
    let to = running.address;
    let put = |token: &str| {
        let mut connection = Connection::open(to).unwrap();
        connection.call("PUT", "/text", &[("fencing-token", token)], b"x").unwrap()
    };
    covered.check(&call(to, "PUT", "/text", None, "x"), Fence::TokenRequired);
    covered.check(&put("x"), Fence::NotAToken);
    covered.check(&put("1 stolen"), Fence::ForgedToken);
    covered.check(&call(to, "POST", "/cut", Some(1), ""), Reason::UpstreamBrokeOff);
    let slow = std::thread::spawn(move || call(to, "POST", "/slow", Some(1), ""));
    upstream.wait_for("begin 1");
    covered.check(&put("2"), Fence::FenceBusy);
    covered.check(&put("1"), Fence::StaleToken);
    upstream.let_one_end();
    assert_eq!(slow.join().unwrap().status, 200);
    // The disk is gone, so no higher floor can be stored.
    fs::remove_dir_all(dir.path().join("fence")).unwrap();
    covered.check(&put("3"), Fence::FenceFailed);
    let short = |address: SocketAddr, timeout| {
        let dir = tempfile::tempdir().unwrap();
        let running = proxy::started(dir.path(), address, |settings| settings.timeout = timeout);
        let said = call(running.address, "POST", "/slow", Some(1), "");
        drop(running);
        said
    };
    let late = short(upstream.address, Duration::from_millis(200));
    covered.check(&late, Reason::UpstreamTimeout);
    upstream.let_one_end();
    let unreachable = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    covered.check(&short(unreachable, Duration::from_secs(600)), Reason::UpstreamUnreachable);
}
