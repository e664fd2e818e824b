//! Tests the port for health, metrics and diagnostics.

#[path = "support/alone.rs"]
mod alone;
#[path = "support/bounded.rs"]
mod bounded;
#[allow(dead_code, reason = "this test uses a part of the client")]
#[path = "http/client.rs"]
mod client;

use std::net::SocketAddr;
use std::sync::mpsc::channel;

use alone::{Alone, settings};
use bounded::wait;
use client::Client;
use tenure_server::{HealthListen, ServerSettings, StartError, start};

/// A member with a health listener on a free port.
fn member() -> (Alone, Client) {
    let dir = tempfile::tempdir().unwrap();
    let health = HealthListen::At("127.0.0.1:0".into());
    let settings = ServerSettings { health, ..settings(dir.path()) };
    let member = Alone::run(dir, settings);
    let at = member.running.health.unwrap();
    (member, Client::new(at, "health"))
}

#[test]
fn health_readiness_and_metrics_are_served_and_nothing_else() {
    let (_member, at) = member();
    assert_eq!(at.get("/healthz").status, 200);
    wait("it is ready", || (at.get("/readyz").status == 200).then_some(()));
    let metrics = String::from_utf8(at.get("/metrics").body).unwrap();
    assert!(metrics.contains("\ntenure_fsyncs_total "), "{metrics}");
    at.get("/v1/locks").refused(404, "UNKNOWN_OPERATION");
    at.ask("POST", "/healthz", &[], b"").refused(405, "UNKNOWN_VERB");
    at.ask("GET", "/metrics", &[("Host", "evil.example")], b"").refused(403, "HOST_NOT_ALLOWED");
}

#[test]
fn a_loop_that_hangs_is_not_healthy_and_one_that_goes_on_is() {
    let (member, at) = member();
    let handle = member.running.member.clone();
    let ((hangs, hanging), (go_on, gate)) = (channel(), channel::<()>());
    std::thread::scope(|scope| {
        scope.spawn(move || {
            handle.read_stale(move |_| {
                hangs.send(()).unwrap();
                let _ = gate.recv();
            })
        });
        hanging.recv().unwrap();
        let clients = Client::new(member.running.clients, "clients");
        let reply = wait("it is reported", || {
            let reply = at.get("/healthz");
            (reply.status == 503).then_some(reply)
        });
        assert!(String::from_utf8(reply.body).unwrap().contains("has not turned for"));
        assert_eq!(clients.get("/healthz").status, 503, "the clients' port reports it as well");
        drop(go_on);
        wait("it goes on", || (at.get("/healthz").status == 200).then_some(()));
    });
}

#[test]
fn a_taken_port_stops_the_start_only_if_the_operator_chose_it() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let with = |health| {
        let dir = tempfile::tempdir().unwrap();
        let settings = ServerSettings { health, ..settings(dir.path()) };
        (start(settings), dir)
    };
    let (refused, _dir) = with(HealthListen::At(address.clone()));
    assert!(matches!(refused.err(), Some(StartError::Listen { flag: "--health", .. })));
    let (started, _dir) = with(HealthListen::IfFree(address));
    let started = started.unwrap();
    assert_eq!(started.health, None::<SocketAddr>);
    started.stop();
}
