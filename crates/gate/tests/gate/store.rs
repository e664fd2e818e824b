//! Tests that the store refuses stale tokens, keeps acknowledged writes, and shares syncs of the disk.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tenure_fence::http::{Unproven, Verify};
use tenure_fence::{Claim, LockSlot, parse_token};
use tenure_gate::store::{Settings, StoreLimits, start};
use tenure_gate::{RunningService, StartError, TokenPolicy};

use crate::calls::{Connection, call, write};

pub(crate) fn settings(dir: &Path) -> Settings {
    Settings { listen: "127.0.0.1:0".parse().unwrap(), ..Settings::new(dir.join("data")) }
}

/// Starts a store, and retries while one that was just stopped still holds its file.
pub(crate) fn started(dir: &Path, change: impl Fn(&mut Settings)) -> RunningService {
    for _ in 0..1_000 {
        let mut settings = settings(dir);
        change(&mut settings);
        match start(settings) {
            Ok(store) => return store,
            Err(StartError::Disk { .. }) => std::thread::sleep(Duration::from_millis(10)),
            Err(other) => panic!("{other}"),
        }
    }
    panic!("the file was never let go");
}

fn value(to: SocketAddr, key: &str) -> String {
    call(to, "GET", &format!("/v1/data/{key}"), None, "").text().to_owned()
}

#[test]
fn a_holder_that_wakes_up_late_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let store = started(dir.path(), |_| ());
    let to = store.address;
    // A takes the lock and pauses beyond its ttl; B takes it and writes; A wakes up.
    let (a, b) = (33, 34);
    assert_eq!(write(to, "B", "ledger", b, "b").refusal(), (200, ""));
    let late = write(to, "A", "ledger", a, "a");
    assert_eq!((late.refusal(), late.text()), ((409, "STALE_TOKEN"), r#"{"success":false}"#));
    assert_eq!(late.header("fencing-floor"), Some("34"));
    assert_eq!(value(to, "ledger"), "{\"clientID\":\"B\",\"token\":\"34\",\"data\":\"b\"}\n");
    let put = |token, body| call(to, "PUT", "/v1/data/page?lock=wiki", Some(token), body);
    assert_eq!(put(b, "b").refusal(), (200, ""));
    let late = put(a, "a");
    assert_eq!(late.refusal(), (412, "STALE_TOKEN"));
    let expected = [
        r#"{"error":{"reason":"STALE_TOKEN","message":"token 33 is stale: the highest token seen is 34","#,
        r#""effect":"none","next":"stop the work; the lock is not yours","floor":"34"}}"#,
    ];
    assert_eq!(late.text(), expected.concat());
    assert_eq!(value(to, "page"), "b");
    // The control: a client that does not present the token of its grant is admitted, and overwrites what B wrote.
    let unfenced = |body| call(to, "PUT", "/v1/data/page?lock=none", Some(1), body);
    call(to, "DELETE", "/v1/data/page?lock=wiki", Some(b), "");
    assert_eq!((unfenced("b").status, unfenced("a").status), (200, 200));
    assert_eq!(value(to, "page"), "a");
}

#[test]
fn a_store_that_is_stopped_goes_on_from_where_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let store = started(dir.path(), |_| ());
    assert_eq!(call(store.address, "PUT", "/v1/data/a?lock=l", Some(7), "1").status, 200);
    assert_eq!(call(store.address, "PUT", "/v1/floors/l", Some(9), "").status, 204);
    let again = start(settings(dir.path())).unwrap_err();
    assert!(matches!(again, StartError::Disk { .. }), "only one store uses a directory: {again}");
    store.stop();
    let store = started(dir.path(), |_| ());
    assert_eq!(value(store.address, "a"), "1");
    assert_eq!(
        call(store.address, "PUT", "/v1/data/a?lock=l", Some(8), "2").refusal(),
        (412, "STALE_TOKEN")
    );
    assert_eq!(call(store.address, "PUT", "/v1/data/a?lock=l", Some(9), "3").refusal(), (200, ""));
}

#[test]
fn a_store_listens_on_loopback_only_unless_it_is_set_insecure() {
    let dir = tempfile::tempdir().unwrap();
    let everywhere = "0.0.0.0:0".parse().unwrap();
    let error = start(Settings { listen: everywhere, ..settings(dir.path()) }).unwrap_err();
    assert!(matches!(error, StartError::NotLoopback(_)) && error.is_setting(), "{error}");
    assert!(!dir.path().join("data").exists(), "nothing was begun");
    let store = started(dir.path(), |settings| {
        settings.listen = everywhere;
        settings.insecure = true;
        settings.bare_tokens = true;
    });
    let to = ([127, 0, 0, 1], store.address.port()).into();
    let mut connection = Connection::open(to).unwrap();
    let mut get =
        |headers: &[(&str, &str)]| connection.call("GET", "/v1/data", headers, b"").unwrap();
    assert_eq!(get(&[]).status, 200);
    assert_eq!(get(&[("host", "evil.example")]).refusal(), (403, "HOST_NOT_ALLOWED"));
    assert_eq!(get(&[("origin", "http://evil.example")]).refusal(), (403, "HOST_NOT_ALLOWED"));
}

#[test]
fn sizes_have_bounds() {
    let dir = tempfile::tempdir().unwrap();
    let limits = StoreLimits { body_bytes_max: 1_000, value_bytes_max: 2_500, bytes_max: 5_000 };
    let store = started(dir.path(), |settings| settings.limits = limits);
    let to = store.address;
    let body = "x".repeat(1_000);
    let put =
        |key: &str, body: &str| call(to, "PUT", &format!("/v1/data/{key}?lock=l"), Some(1), body);
    let append = |key: &str| call(to, "POST", &format!("/v1/data/{key}?lock=l"), Some(1), &body);
    assert_eq!(put("a", &format!("{body}x")).refusal(), (413, "TOO_LARGE"));
    assert_eq!(write(to, "c", "w", 1, &body).refusal(), (413, "TOO_LARGE"));
    assert_eq!([append("a").status, append("a").status], [200, 200]);
    assert_eq!(append("a").refusal(), (400, "VALUE_TOO_LONG"));
    assert_eq!(value(to, "a").len(), 2_000, "a refused write changes nothing");
    assert_eq!([put("b", &body).status, put("c", &body).status], [200, 200]);
    assert_eq!(put("d", &body).refusal(), (507, "NO_SPACE"));
    // Requests that do not grow the store still succeed: the same write again, raising an existing floor, deleting.
    assert_eq!(put("b", &body).status, 200);
    assert_eq!(call(to, "PUT", "/v1/floors/l", Some(1), "").status, 204);
    assert_eq!(call(to, "DELETE", "/v1/data/b?lock=l", Some(1), "").status, 200);
    assert_eq!(put("d", &body).status, 200);
    let long = "n".repeat(513);
    assert_eq!(put(&long, "").refusal(), (400, "INVALID_NAME"));
    assert_eq!(
        call(to, "PUT", &format!("/v1/data/a?lock={long}"), Some(1), "").refusal(),
        (400, "INVALID_NAME")
    );
    let senseless = StoreLimits { body_bytes_max: 2, value_bytes_max: 1, ..limits };
    let other = tempfile::tempdir().unwrap();
    assert!(
        start(Settings { limits: senseless, ..settings(other.path()) }).unwrap_err().is_setting()
    );
}

/// Accepts only tokens with a password, and checks which lock they were issued for.
struct PasswordVerifier;

impl Verify for PasswordVerifier {
    fn verify(&self, text: &str, at: LockSlot<'_>) -> Result<Claim, Unproven> {
        let said = text.strip_prefix(&format!("{}:", at.lock));
        let said = said.ok_or_else(|| Unproven::Forged(format!("not of {at}")))?;
        let (token, shared) = said.strip_suffix('s').map_or((said, false), |said| (said, true));
        let claim = parse_token(token).map(Claim::new).map_err(|_| Unproven::Malformed)?;
        Ok(if shared { claim.shared() } else { claim })
    }
}

#[test]
fn a_store_believes_what_its_verifier_believes() {
    let dir = tempfile::tempdir().unwrap();
    let store = started(dir.path(), |settings| {
        settings.believe = TokenPolicy::Other(Arc::new(PasswordVerifier));
    });
    let mut connection = Connection::open(store.address).unwrap();
    let mut put = |token: &str| {
        let answer =
            connection.call("PUT", "/v1/data/a?lock=l", &[("fencing-token", token)], b"1").unwrap();
        (answer.status, answer.reason().to_owned())
    };
    let (forged, stale) = ((403, "FORGED_TOKEN".to_owned()), (412, "STALE_TOKEN".to_owned()));
    assert_eq!(put("7"), forged);
    assert_eq!(put("other:7"), forged);
    assert_eq!(put("l:7s").0, 200);
    assert_eq!(put("l:6s").0, 200, "shared holders do not fence each other");
    assert_eq!(put("l:6"), stale, "an exclusive holder that came before them is late");
    assert_eq!(put("l:8").0, 200);
    assert_eq!(put("l:7s"), stale);
    let bare = write(store.address, "c", "l", 9, "x");
    assert_eq!((bare.refusal(), bare.text()), ((403, "FORGED_TOKEN"), r#"{"success":false}"#));
    let body = r#"{"clientID":"c","fencingToken":{"key":"w","value":"w:9"},"data":"x"}"#;
    assert_eq!(call(store.address, "POST", "/write", None, body).text(), r#"{"success":true}"#);
}

#[test]
fn many_writers_share_trips_to_the_disk_and_none_gets_in_late() {
    const WRITERS: u64 = 12;
    const WRITES: u64 = 40;
    let dir = tempfile::tempdir().unwrap();
    let store = started(dir.path(), |_| ());
    let (to, newest) = (store.address, AtomicU64::new(1));
    let accepted: u64 = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let newest = &newest;
                scope.spawn(move || {
                    let mut connection = Connection::open(to).unwrap();
                    let mut accepted = 0;
                    for at in 0..WRITES {
                        // Every third write raises the floor; the others use the token that was the newest a moment
                        // ago.
                        let raises = (writer + at).is_multiple_of(3);
                        let token = if raises {
                            newest.fetch_add(1, Ordering::SeqCst) + 1
                        } else {
                            newest.load(Ordering::SeqCst)
                        };
                        let line = format!("{token} {writer} {at}\n");
                        let token = token.to_string();
                        let headers = [("fencing-token", token.as_str())];
                        let said = connection
                            .call("POST", "/v1/data/log?lock=l", &headers, line.as_bytes())
                            .unwrap();
                        assert!(
                            matches!(said.refusal(), (200, "") | (412, "STALE_TOKEN")),
                            "{said:?}"
                        );
                        accepted += u64::from(said.status == 200);
                    }
                    accepted
                })
            })
            .collect();
        writers.into_iter().map(|writer| writer.join().unwrap()).sum()
    });
    let log = value(to, "log");
    let tokens: Vec<u64> =
        log.lines().map(|line| line.split(' ').next().unwrap().parse().unwrap()).collect();
    assert_eq!(
        tokens.len() as u64,
        accepted,
        "what was acknowledged is there, once, and nothing else"
    );
    assert!(tokens.is_sorted(), "no lower token after a higher");
    let metrics = call(to, "GET", "/metrics", None, "");
    let number = |name: &str| -> u64 {
        let line = metrics
            .text()
            .lines()
            .find(|line| line.starts_with(name))
            .unwrap_or_else(|| panic!("{name}"));
        line.rsplit(' ').next().unwrap().parse().unwrap()
    };
    assert_eq!(number("tenure_store_writes_total"), WRITERS * WRITES);
    assert!(number("tenure_store_commit_seconds_count") < WRITERS * WRITES, "some shared one");
    assert_eq!(
        number("tenure_store_refusals_total{reason=\"STALE_TOKEN\"}"),
        WRITERS * WRITES - accepted
    );
    assert_eq!((number("tenure_store_keys"), number("tenure_store_floors")), (1, 1));
}
