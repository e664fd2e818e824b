//! Tests the port for health, metrics and diagnostics.

use std::net::SocketAddr;
use std::sync::mpsc::channel;

use crate::alone::{Alone, settings};
use crate::bounded::wait;
use crate::client::Client;
use serde_json::json;
use tenure_server::log::{Level, LineForm};
use tenure_server::{AuditTo, HealthListen, ServerSettings, StartError, start};

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
    let connections = "tenure_connections{protocol=\"http1\"} ";
    assert!(metrics.contains(connections), "{metrics}");
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

#[test]
fn the_log_level_changes_while_the_member_runs() {
    tenure_server::log::install(Some(LineForm::Json), Level::Info).unwrap();
    let (_member, at) = member();
    let level = || at.get("/debug/log-level").ok()["level"].clone();
    assert_eq!(level(), "info");
    let set = |level: &str| at.json("PUT", "/debug/log-level", &[], &json!({ "level": level }));
    set("debug").ok();
    assert_eq!(level(), "debug");
    set("loud").refused(400, "MALFORMED");
    at.ask("PUT", "/debug/log-level", &[], b"x").refused(400, "MALFORMED");
    assert_eq!(level(), "debug");
    set("info").ok();
    let audit = String::from_utf8(at.get("/debug/audit").body).unwrap();
    assert!(audit.contains("\"act\":\"log_level\""), "{audit}");
}

#[test]
fn the_threads_of_a_member_are_profiled_by_name() {
    let (_member, at) = member();
    let shown = at.get("/debug/threads?for=50ms").ok();
    assert!(shown["seconds"].as_f64().is_some_and(|it| it >= 0.05), "{shown}");
    let threads = shown["threads"].as_array().unwrap();
    let event_loop = threads.iter().find(|it| it["name"] == "tenure-loop").unwrap();
    assert!(event_loop["cpu_percent"].as_f64().is_some(), "{event_loop}");
    assert!(event_loop["id"].as_u64().is_some(), "{event_loop}");
    let text = String::from_utf8(at.get("/debug/threads?for=1ms&format=text").body).unwrap();
    assert!(text.starts_with("THREAD ") && text.contains("\ntenure-loop "), "{text}");
    for wrong in ["for=0", "for=61s", "for=x", "format=xml", "last=1"] {
        at.get(&format!("/debug/threads?{wrong}")).refused(400, "MALFORMED");
    }
}

#[test]
fn acts_of_administrators_are_recorded_in_a_file_and_readable() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("audit.jsonl");
    let health = HealthListen::At("127.0.0.1:0".into());
    let audit = AuditTo::File(file.clone());
    let settings = ServerSettings { health, audit, ..settings(dir.path()) };
    let member = Alone::run(dir, settings);
    let at = Client::new(member.running.health.unwrap(), "audit");
    let clients = Client::new(member.running.clients, "audit");
    wait("it is ready", || (at.get("/readyz").status == 200).then_some(()));

    let lease = clients.lease(60_000);
    let token = clients.lock("audit/forced", &lease);
    let force = json!({ "lock": "audit/forced", "token": token, "by": "ann", "reason": "stuck" });
    clients.post("/v1/force", &force).ok();
    let limits = json!({ "limits": [{ "limit": "state_bytes", "value": 123_456_789_u64 }] });
    clients.json("PATCH", "/v1/limits", &[], &limits).ok();
    clients
        .ask("GET", "/v1/locks", &[("Host", "evil.example")], b"")
        .refused(403, "HOST_NOT_ALLOWED");

    let acts = ["start", "force", "set_limits", "denied"];
    let records = wait("the acts are recorded", || {
        let text = std::fs::read_to_string(&file).unwrap();
        let records: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let has = |act: &&str| records.iter().any(|record| record["act"] == *act);
        acts.iter().all(has).then_some(records)
    });
    let force = records.iter().find(|record| record["act"] == "force").unwrap();
    assert_eq!((&force["who"], &force["why"]), (&json!("ann"), &json!("stuck")), "{force}");
    assert_eq!((&force["target"], &force["outcome"]), (&json!("audit/forced"), &json!("done")));
    assert!(force["revision"].is_u64(), "{force}");
    let denied = records.iter().find(|record| record["act"] == "denied").unwrap();
    assert_eq!(
        (&denied["reason"], &denied["outcome"]),
        (&json!("HOST_NOT_ALLOWED"), &json!("refused"))
    );
    let shown = String::from_utf8(at.get("/debug/audit?last=1000").body).unwrap();
    for act in acts {
        assert!(shown.contains(&format!("\"act\":\"{act}\"")), "{act}: {shown}");
    }
    at.get("/debug/audit?last=x").refused(400, "MALFORMED");
}
