//! Tests that every workload runs and prints its metrics. No speed decides anything here.

use std::process::Command;

/// Runs one workload with little work and returns what it prints.
fn quick(workload: &str) -> String {
    quick_with(workload, &[])
}

/// The same with more arguments.
fn quick_with(workload: &str, arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tenure-bench"));
    let output = command.args([workload, "--quick"]).args(arguments).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{workload}: {}\n{text}\n{errors}", output.status);
    text
}

/// The metric of this name: `apply_per_s=   1500.5  commands …`.
fn metric(text: &str, name: &str) -> f64 {
    let values =
        text.lines().filter_map(|line| line.trim_start().strip_prefix(name)?.strip_prefix('='));
    let value = values.filter_map(|rest| rest.split_whitespace().next()).next();
    let value = value.unwrap_or_else(|| panic!("no `{name}=` in\n{text}"));
    value.parse().unwrap_or_else(|_| panic!("`{name}={value}` is no number"))
}

#[test]
fn core() {
    let speed = metric(&quick("core"), "apply_per_s");
    assert!(speed > 0.0);
    println!("apply_per_s={speed:.0}");
}

#[test]
fn cluster() {
    assert!(metric(&quick("cluster"), "committed_per_s_1") > 0.0);
}

#[test]
fn apis() {
    // On a busy machine a leader may be away for all of one short measurement.
    let text = quick("apis");
    let measured = |shape| metric(&text, &format!("session_cycles_per_s_{shape}")) > 0.0;
    assert!(["1x1", "64x16", "256x16", "256x256"].into_iter().any(measured), "{text}");
    assert!(metric(&text, "storm_heard") > 0.0);
}

#[test]
fn identity() {
    let text = quick_with("identity", &["--pairs", "1", "--clients", "16"]);
    for shape in ["http_16x16", "unary_16x16", "session_16x16"] {
        assert!(metric(&text, &format!("identity_cpu_ratio_{shape}")) > 0.0);
    }
}

#[test]
fn archive() {
    let text = quick_with("archive", &["--pairs", "1", "--clients", "16"]);
    assert!(metric(&text, "archive_cpu_ratio_16x16") > 0.0);
    assert!(metric(&text, "archive_p99_ratio_16x16") > 0.0);
}

#[test]
fn sdk() {
    assert!(metric(&quick("sdk"), "sdk_share_256") > 0.0);
}

#[test]
fn fence() {
    assert!(metric(&quick("fence"), "ticket_cached_us") > 0.0);
}

/// Tenure beside Redis; the clients of the other systems are not part of the workspace.
#[test]
fn peers() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tenure-bench"));
    let output = command.args(["peers", "--smoke", "--output", "json"]).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{errors}", output.status);
    let results: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let samples = results["samples"].as_array().unwrap();
    let metric = |system: &str, workload: &str, metric: &str| {
        let mut samples =
            samples.iter().filter(|it| it["system"] == system && it["workload"] == workload);
        samples.find_map(|it| it["metrics"][metric].as_f64()).unwrap_or_else(|| {
            panic!("no {metric} of {workload} of {system} in\n{errors}");
        })
    };
    for system in ["tenure", "redis"] {
        assert!(metric(system, "cycles-1x1", "per_s") > 0.0);
        assert!(metric(system, "handover-16", "p50_ms") > 0.0);
        assert!(metric(system, "reads-16", "per_s") > 0.0);
        assert!(metric(system, "holder-killed", "ms") > 0.0);
        assert_eq!(metric(system, "queue-100", "failed"), 0.0);
        assert_eq!(metric(system, "leases-200", "lost"), 0.0);
    }
    assert!(metric("tenure", "leader-killed", "ms") > 0.0);
    assert!(metric("tenure", "watchers-50", "all_heard_ms") > 0.0);
}
