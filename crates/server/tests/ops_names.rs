//! Tests that the dashboard and the alert rules name only metrics that a member shows.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::alone::{Alone, settings};
use crate::authority::Authority;
use crate::bounded::wait;
use crate::client::Client;
use serde_json::{Value, json};
use tenure_server::tls::{ServerTls, ServerTlsFiles};
use tenure_server::{HealthListen, ServerSettings};

const RULES: &str = include_str!("../../../ops/alerts.yaml");
const DASHBOARD: &str = include_str!("../../../ops/dashboard.json");

/// Every name in a text that begins like our metrics.
fn names(text: &str) -> BTreeSet<String> {
    let in_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = text.split(|c| !in_name(c));
    words.filter(|word| word.starts_with("tenure_")).map(str::to_owned).collect()
}

/// The expressions of the rules: the text behind `expr:`. The rest of a rule is for people.
fn rule_expressions() -> String {
    let lines = RULES.lines().filter_map(|line| line.trim().strip_prefix("expr: "));
    lines.collect::<Vec<_>>().join("\n")
}

fn dashboard_expressions(value: &Value, out: &mut String) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match (name.as_str(), value) {
                    ("expr" | "query", Value::String(text)) => *out += &format!("{text}\n"),
                    _ => dashboard_expressions(value, out),
                }
            }
        }
        Value::Array(all) => all.iter().for_each(|value| dashboard_expressions(value, out)),
        _ => {}
    }
}

/// The names of all series that a member with certificates shows after a lock was handed over.
fn shown() -> BTreeSet<String> {
    let dir = tempfile::tempdir().unwrap();
    let cert_files = Authority::new(dir.path(), "ours").sign("m0");
    let files = ServerTlsFiles {
        cert: cert_files.cert.clone(),
        key: cert_files.key.clone(),
        client_ca: Some(cert_files.ca.clone()),
        member_ca: None,
    };
    let with_tls = ServerSettings {
        health: HealthListen::At("127.0.0.1:0".into()),
        tls: Some(Arc::new(ServerTls::load(files).unwrap())),
        ..settings(dir.path())
    };
    let series = |settings: ServerSettings, dir, happen: fn(&Alone)| {
        let member = Alone::run(dir, settings);
        let at = Client::new(member.running.health.unwrap(), "names");
        wait("it is ready", || (at.get("/readyz").status == 200).then_some(()));
        happen(&member);
        let text = wait("all of it was counted", || {
            let text = String::from_utf8(at.get("/metrics").body).unwrap();
            text.contains("tenure_revision").then_some(text)
        });
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let name = |line: &str| line.split(['{', ' ']).next().unwrap_or_default().to_owned();
        lines.map(name).collect::<BTreeSet<String>>()
    };
    let mut all = series(with_tls, dir, |_| {});
    // The members' metrics by prefix need a lock; without certificates it is simple to take one.
    let dir = tempfile::tempdir().unwrap();
    let health = HealthListen::At("127.0.0.1:0".into());
    let plain = ServerSettings { health, ..settings(dir.path()) };
    all.extend(series(plain, dir, |member| {
        let at = Client::new(member.running.clients, "names");
        let (lease, waiter) = (at.lease(60_000), at.lease(60_000));
        let token = at.lock("names/a", &lease);
        let ask = json!({ "lease": waiter });
        at.post("/v1/locks/names/a", &ask).refused(423, "HELD");
        at.post("/v1/locks/names/a?wait=1ms&keep=true", &ask);
        at.delete(&format!("/v1/locks/names/a?lease={lease}&token={token}")).ok();
        at.post("/v1/locks/names/a?wait=1ms&keep=true", &json!({ "lease": lease }));
    }));
    all
}

#[test]
fn every_name_in_the_dashboard_and_the_rules_is_one_that_a_member_shows() {
    let mut dashboard = String::new();
    dashboard_expressions(&serde_json::from_str(DASHBOARD).unwrap(), &mut dashboard);
    let (dashboard, rules) = (names(&dashboard), names(&rule_expressions()));
    assert!(dashboard.len() > 30 && rules.len() > 12, "{dashboard:?} {rules:?}");
    let shown = shown();
    // A single member has no other one that could be behind.
    let others = BTreeSet::from(["tenure_member_lag_entries".to_owned()]);
    let known: BTreeSet<String> = shown.union(&others).cloned().collect();
    let unknown: Vec<_> = dashboard.union(&rules).filter(|name| !known.contains(*name)).collect();
    assert!(unknown.is_empty(), "no member shows {unknown:?}; it shows {shown:?}");
    // Names in the texts for people are checked as well, by the family.
    let family = |name: &str| shown.iter().any(|it| it.starts_with(name));
    let wrong: Vec<_> = names(RULES).into_iter().filter(|name| !family(name)).collect();
    assert!(wrong.iter().all(|name| others.contains(name)), "{wrong:?}");
}
