//! Tests `plan`, `bench`, `top` without a terminal, `config check` and `demo`.

use crate::stage::{at, json, objects, ok, one, run};

#[test]
fn a_plan_says_what_follows_from_a_ttl() {
    let text = ok(&["plan", "--ttl", "15s", "--rtt", "5ms", "--drift", "200"]);
    for words in [
        "renewed   every 5s",
        "lost      7.5s after it",
        "margin    7.4s",
        "failover  10s to 15.7s",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    let plan = one(&["plan", "--ttl", "30s", "--grace", "4s", "--loss", "20%"]);
    assert_eq!((&plan["lost_after_ms"], &plan["renew_every_ms"]), (&15_000.into(), &10_000.into()));
    assert!(plan["false_loss_per_day"].as_f64().unwrap() > 0.0, "{plan}");
    for (arguments, words) in [
        (&["plan", "--ttl", "15s", "--grace", "9s"][..], "grace 9s does not fit ttl 15s"),
        (&["plan", "--ttl", "2s", "--rtt", "500ms"], "--ttl 12s or more"),
        (&["plan", "--drift", "50000"], "at most --drift 10000"),
    ] {
        let ran = run(arguments);
        assert!(ran.code == 2 && ran.err.contains(words), "{ran:?}");
    }
}

// Retry once: a disk that stalls for a second leaves a workload without a single cycle.
#[test]
fn a_bench_measures_every_workload_and_draws_it() {
    let dir = tempfile::tempdir().unwrap();
    for workload in ["cycles", "handover", "keys", "reads"] {
        let drawn = dir.path().join(format!("{workload}.svg"));
        let short = ["--clients", "1,4", "--duration", "300ms", "--warm-up", "100ms", "--plot"];
        let arguments = [&["bench", workload], &short[..], &[drawn.to_str().unwrap()]].concat();
        let rows = json(&arguments);
        assert_eq!(rows.len(), 2, "{rows:?}");
        for row in &rows {
            assert_eq!(row["workload"], workload);
            assert!(row["count"].as_u64().unwrap() > 0, "{row}");
            assert!(row["p50_us"].as_u64() <= row["p99_us"].as_u64(), "{row}");
        }
        let svg = std::fs::read_to_string(drawn).unwrap();
        assert!(svg.starts_with("<svg") && svg.matches("<polyline").count() == 2, "{svg}");
    }
    let short = ["--clients", "2", "--duration", "200ms", "--warm-up", "0"];
    let table = ok(&[&["bench"], &short[..]].concat());
    assert!(table.starts_with("cycles\nCLIENTS  PER SECOND"), "{table}");
    assert!(ok(&["locks", "bench/"]).is_empty(), "nothing is left behind");
    assert!(json(&["key", "list", "bench/"]).is_empty(), "nothing is left behind");
}

#[test]
fn top_prints_once_if_stdout_is_no_terminal() {
    let id = crate::stage::lease("seen");
    ok(&["try", "top/seen", "--lease", &id]);
    let text = ok(&["top", "top/", "--interval", "100ms"]);
    assert!(text.contains("leader solo  1/1 members") && text.contains("top/seen"), "{text}");
    assert!(text.lines().all(|line| !line.trim().is_empty()), "no free room: {text}");
    assert!(!text.contains("quit"), "no key can be pressed: {text}");
    let twice = json(&["top", "top/", "--limit", "2", "--interval", "100ms"]);
    assert_eq!(twice.len(), 2, "{twice:?}");
    one(&["top", "top/", "--interval", "100ms"]);
    let seen = one(&["top", "top/", "--once", "--interval", "100ms"]);
    assert_eq!(seen["locks"][0]["holders"][0]["client"], "seen");
    assert!(seen["locks"][0].get("gap_p50_us").is_some(), "{seen}");
}

#[test]
fn settings_are_checked_in_words_for_programs_too() {
    let arguments = ["config", "check", "--name", "x", "--data", "/tmp/x", "--output", "json"];
    let settings = objects(&at("", &arguments).out);
    let name = settings.iter().find(|it| it["setting"] == "member.name").unwrap();
    assert_eq!((&name["value"], &name["source"]), (&"x".into(), &"--name".into()));
    let missing = at("", &["config", "check", "--output", "json"]);
    assert_eq!(missing.code, 78, "{missing:?}");
    assert_eq!(objects(&missing.err)[0]["error"]["reason"], "CONFIG");
}

#[test]
fn the_tour_shows_what_it_promises_and_leaves_nothing_behind() {
    let ran = at("", &["demo", "--no-pause"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    for words in [
        "3 of 3 members up after",
        "held by  ana for",
        "waiting  1. bob",
        "His work is stopped here",
        "never two at once",
        "leads, and the first write is durable",
        "still holds `deploy`",
        "the guarding token does not hold lock `deploy`",
        "The ledger says \"paid by ana\"",
    ] {
        assert!(ran.out.contains(words), "{words}: {}", ran.out);
    }
    assert_eq!(ran.err, "");
}

#[test]
fn the_rules_can_be_tried_by_hand() {
    let lines = b"ana lock deploy\nbob lock deploy\nwait 20s\n";
    let ran = crate::stage::with_input(lines, &["demo", "--by-hand"]);
    assert!(ran.out.starts_with("acquired `deploy`, token 1"), "{ran:?}");
    assert!(ran.out.contains("bob"), "{ran:?}");
    let lines = b"ana lock deploy\nnonsense\n";
    let ran = crate::stage::with_input(lines, &["demo", "--by-hand", "--output", "json"]);
    let said = objects(&ran.out);
    assert_eq!(
        (&said[0]["typed"], &said[0]["understood"]),
        (&"ana lock deploy".into(), &true.into())
    );
    assert!(said[0]["answer"].as_str().unwrap().starts_with("acquired `deploy`"), "{said:?}");
    assert_eq!((said.len(), &said[1]["understood"]), (2, &false.into()), "{said:?}");
}

#[test]
fn the_tour_is_told_to_programs_too() {
    let ran = at("", &["demo", "--output", "json"]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{ran:?}");
    let said = objects(&ran.out);
    let events: Vec<&str> = said.iter().map(|it| it["event"].as_str().unwrap()).collect();
    let expected = [
        "ready", "scene", "acquired", "queued", "acquired", "scene", "cut_off", "lost", "acquired",
        "free", "scene", "killed", "leads", "held", "scene", "written", "refused", "read", "ended",
    ];
    assert_eq!(events, expected, "{said:?}");
    let tokens: Vec<u64> = said
        .iter()
        .filter(|it| it["event"] == "acquired")
        .map(|it| it["token"].as_str().unwrap().parse().unwrap())
        .collect();
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
    assert_eq!(said[16]["reason"], "GUARD_FAILED", "{said:?}");
}
