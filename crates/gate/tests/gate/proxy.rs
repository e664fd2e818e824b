//! Tests that the proxy fences a service that ignores tokens.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::time::Duration;

use tenure_fence::http::Reads;
use tenure_gate::proxy::{Settings, start};
use tenure_gate::{RunningService, StartError};

use crate::calls::{Connection, call};
use crate::upstream::Upstream;

fn settings(dir: &Path, upstream: SocketAddr) -> Settings {
    let settings = Settings::new(format!("http://{upstream}"), "ledger", dir.join("fence"));
    Settings { listen: "127.0.0.1:0".parse().unwrap(), ..settings }
}

pub(crate) fn started(
    dir: &Path,
    upstream: SocketAddr,
    change: impl Fn(&mut Settings),
) -> RunningService {
    for _ in 0..1_000 {
        let mut settings = settings(dir, upstream);
        change(&mut settings);
        match start(settings) {
            Ok(proxy) => return proxy,
            Err(StartError::Disk { .. }) => std::thread::sleep(Duration::from_millis(10)),
            Err(other) => panic!("{other}"),
        }
    }
    panic!("the floor was never let go");
}

#[test]
fn a_holder_that_wakes_up_late_does_not_reach_the_service() {
    let (dir, upstream) = (tempfile::tempdir().unwrap(), Upstream::start());
    let proxy = started(dir.path(), upstream.address, |_| ());
    let put = |to, token, body| call(to, "PUT", "/text", token, body);
    // A takes the lock and pauses; B takes it and writes; A wakes up.
    assert_eq!(put(proxy.address, Some(34), "b").text(), "done");
    let late = put(proxy.address, Some(33), "a");
    assert_eq!((late.status, late.header("fencing-floor")), (412, Some("34")));
    assert!(late.text().contains(r#""reason":"STALE_TOKEN""#), "{}", late.text());
    assert_eq!(put(proxy.address, None, "a").status, 428);
    assert_eq!(upstream.text(), "b");
    // The control: around the proxy, A overwrites what B wrote.
    assert_eq!(put(upstream.address, None, "a").status, 200);
    assert_eq!(upstream.text(), "a");
    // Only one instance can use the directory, and a restart continues from the floor.
    let again = start(settings(dir.path(), upstream.address)).unwrap_err();
    assert!(matches!(again, StartError::Disk { .. }), "{again}");
    proxy.stop();
    let proxy = started(dir.path(), upstream.address, |_| ());
    assert_eq!(put(proxy.address, Some(33), "a").status, 412);
    assert_eq!(call(proxy.address, "PUT", "/.well-known/tenure-fence", Some(40), "").status, 204);
    assert_eq!(put(proxy.address, Some(39), "a").status, 412);
    assert_eq!(put(proxy.address, Some(40), "c").status, 200);
    assert_eq!(upstream.text(), "c");
}

#[test]
fn a_request_that_raises_the_floor_waits_for_those_let_in_before() {
    let (dir, upstream) = (tempfile::tempdir().unwrap(), Upstream::start());
    let wait = Duration::from_millis(300);
    let proxy = started(dir.path(), upstream.address, |settings| settings.wait = wait);
    let to = proxy.address;
    let slow = |token| std::thread::spawn(move || call(to, "POST", "/slow", Some(token), ""));
    let first = slow(1);
    upstream.wait_for("begin 1");
    let busy = call(to, "PUT", "/text", Some(2), "early");
    assert_eq!(busy.status, 503);
    assert!(busy.text().contains("FENCE_BUSY"), "{}", busy.text());
    assert_eq!(
        call(to, "PUT", "/text", Some(1), "late").status,
        412,
        "the floor has risen all the same"
    );
    assert_eq!(upstream.text(), "");
    upstream.let_one_end();
    assert_eq!(first.join().unwrap().text(), "slow");
    assert_eq!(call(to, "PUT", "/text", Some(2), "now").status, 200);
    assert_eq!(upstream.log(), ["begin 1", "end 1", "2"]);
}

#[test]
fn requests_go_on_as_they_came_and_answers_back() {
    let (dir, upstream) = (tempfile::tempdir().unwrap(), Upstream::start());
    let proxy = started(dir.path(), upstream.address, |settings| {
        settings.reads = Reads::Open;
        settings.upstream.push_str("/base/");
    });
    let mut connection = Connection::open(proxy.address).unwrap();
    let headers = [
        ("connection", "x-private"),
        ("x-private", "1"),
        ("x-mine", "2"),
        ("upgrade", "websocket"),
    ];
    let said = connection.call("GET", "/a%2Fb?c=d", &headers, b"").unwrap();
    assert_eq!((said.status, said.header("keep-alive")), (200, None));
    let head = upstream.heads().pop().unwrap().to_lowercase();
    assert!(head.starts_with("get /base/a%2fb?c=d http/1.1\r\n"), "{head}");
    assert!(
        head.contains("x-mine: 2") && !head.contains("x-private") && !head.contains("upgrade"),
        "{head}"
    );
    assert!(head.contains(&format!("\r\nhost: {}\r\n", upstream.address)), "{head}");
    assert!(head.contains(&format!("x-forwarded-host: {}\r\n", proxy.address)), "{head}");
    assert_eq!(call(proxy.address, "PUT", "/x", None, "").status, 428, "only reads are open");
    // Large bodies pass in both directions.
    let (dir, body) = (tempfile::tempdir().unwrap(), "0123456789".repeat(200_000));
    let proxy = started(dir.path(), upstream.address, |_| ());
    assert_eq!(call(proxy.address, "PUT", "/text", Some(1), &body).status, 200);
    assert_eq!(call(proxy.address, "GET", "/text", Some(1), "").body, body.into_bytes());
}

#[test]
fn a_service_that_fails_is_told_apart_from_one_that_is_not_there() {
    let (dir, upstream) = (tempfile::tempdir().unwrap(), Upstream::start());
    let timeout = Duration::from_secs(2);
    let proxy = started(dir.path(), upstream.address, |settings| settings.timeout = timeout);
    assert_eq!(
        call(proxy.address, "POST", "/cut", Some(1), "").refusal(),
        (502, "UPSTREAM_BROKE_OFF")
    );
    assert_eq!(
        call(proxy.address, "POST", "/slow", Some(1), "").refusal(),
        (504, "UPSTREAM_TIMEOUT")
    );
    // The proxy closed its connection, so the next request need not wait for it.
    assert_eq!(call(proxy.address, "PUT", "/text", Some(2), "x").status, 200);
    upstream.let_one_end();
    let unreachable = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let proxy = started(dir.path(), unreachable, |_| ());
    let said = call(proxy.address, "PUT", "/text", Some(1), "");
    assert_eq!(said.refusal(), (502, "UPSTREAM_UNREACHABLE"));
    assert!(said.text().contains(r#""effect":"none""#));
}

#[test]
fn what_cannot_be_guarded_is_not_started() {
    let (dir, upstream) = (tempfile::tempdir().unwrap(), Upstream::start());
    let refused = |change: &dyn Fn(&mut Settings)| {
        let mut settings = settings(dir.path(), upstream.address);
        change(&mut settings);
        let error = start(settings).unwrap_err();
        assert!(error.is_setting(), "{error}");
        error.to_string()
    };
    assert!(refused(&|it| it.upstream = "https://localhost".to_owned()).contains("only http://"));
    assert!(refused(&|it| it.upstream = "localhost:1".to_owned()).contains("--upstream"));
    assert!(refused(&|it| it.resource = String::new()).contains("--resource"));
    assert!(refused(&|it| it.timeout = Duration::ZERO).contains("--timeout"));
    assert!(refused(&|it| it.wait = Duration::from_secs(3_601)).contains("--wait"));
    assert!(refused(&|it| it.listen = "0.0.0.0:0".parse().unwrap()).contains("other machines"));
    assert!(!dir.path().join("fence").exists(), "nothing was begun");
}
