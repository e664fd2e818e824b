//! Tests that every response matches the OpenAPI description, whatever is sent.
//!
//! Schemathesis generates valid and invalid requests from the description, and checks every response against it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use crate::bounded::output;
use crate::cut::StreamCutter;
use crate::members::Members;

const VERSION: &str = "schemathesis==4.32.5";
/// A validator and a generator of clients, both made by others.
const TOOLS: [&str; 2] = ["openapi-spec-validator==0.9.0", "openapi-python-client==0.29.1"];
/// The environment of those, beside that of schemathesis, whose dependencies have other versions.
const TOOLS_VENV: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/../openapi-tools");
/// The environment is beside the test builds; it is created once and kept until the target directory is cleaned.
const VENV: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/../schemathesis");
/// The examples per operation, besides those that each boundary of the description gives.
const EXAMPLES: &str = "30";
const CHECKS: &str = "status_code_conformance,content_type_conformance,\
                      response_schema_conformance,response_headers_conformance";

/// How long a program may take, on two busy cores.
const PROGRAM: Duration = Duration::from_secs(400);

/// The directory with the programs of these packages, installed if they are missing; none if they cannot be.
fn installed(venv: &str, packages: &[&str]) -> Option<PathBuf> {
    let programs = Path::new(venv).join("bin");
    let mark = Path::new(venv).join(packages.concat());
    if mark.exists() {
        return Some(programs);
    }
    let runs =
        |command: &mut Command| output(command, PROGRAM).is_ok_and(|ran| ran.status.success());
    let made = runs(Command::new("python3").args(["-m", "venv", venv]))
        && runs(
            Command::new(programs.join("pip"))
                .args(["install", "-q", "--no-compile", "--timeout", "15"])
                .args(packages),
        );
    made.then(|| std::fs::write(mark, "").unwrap()).map(|()| programs)
}

/// Reports that a test proves nothing here. In continuous integration that is a failure.
fn skipped(packages: &[&str]) {
    assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "{packages:?} cannot be installed");
    eprintln!("SKIPPED: {packages:?} cannot be installed: nothing was held to the description");
}

/// Runs a program that must succeed, and returns its output.
fn succeeds(command: &mut Command) -> String {
    let ran = output(command, PROGRAM).unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let (out, err) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success(), "{command:?}: {out}{err}");
    format!("{out}{err}")
}

/// The description with short waits and with names that often repeat: refusals of unknown names alone would show
/// little. Members that it names do not exist, because removing the only one would end the test, and new ones are on
/// loopback.
fn tamed(mut described: Value, leases: &[String]) -> Value {
    let paths = described["paths"].as_object_mut().unwrap();
    let lease = json!({"type": "string", "enum": leases});
    for (path, item) in paths {
        for (verb, operation) in item.as_object_mut().unwrap() {
            let parameters = operation.get_mut("parameters").and_then(Value::as_array_mut);
            let Some(parameters) = parameters else { continue };
            for parameter in parameters {
                match parameter["name"].as_str().unwrap() {
                    "wait" => {
                        parameter["schema"] =
                            json!({"type": "string", "pattern": "^[0-9]{1,2}ms$"});
                    }
                    "lease" if verb != "delete" || !path.contains("leases") => {
                        parameter["schema"] = lease.clone();
                    }
                    "lock" | "key" | "name" => {
                        parameter["schema"] =
                            json!({"type": "string", "enum": ["a", "b/c", "ü d"]});
                    }
                    "from" | "Last-Event-ID" => {
                        parameter["schema"] = json!({"type": "string", "enum": ["0", "1", "7"]});
                    }
                    "member" => {
                        parameter["schema"] = json!({"type": "string", "enum": ["nobody", "404"]});
                    }
                    _ => {}
                }
            }
        }
    }
    let schemas = described["components"]["schemas"].as_object_mut().unwrap();
    for asks in ["Acquire", "Campaign", "Proclaim", "Patch"] {
        schemas[asks]["properties"]["lease"] = lease.clone();
    }
    for address in ["member_address", "client_address"] {
        schemas["AddMember"]["properties"][address] =
            json!({"type": "string", "enum": ["127.0.0.1:1", "127.0.0.1:2"]});
    }
    described
}

/// Checks a member against a description. Returns whether it matches, and the output.
fn held_to(
    program: &Path,
    (at, bearer): (SocketAddr, &str),
    described: &Value,
    more: &[&str],
) -> (bool, String) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("openapi.json");
    std::fs::write(&file, described.to_string()).unwrap();
    let url = format!("http://{at}");
    let mut command = Command::new(program);
    command
        .arg("run")
        .arg(&file)
        .args(["--header", &format!("Authorization: {bearer}")])
        .args(["--url", &url, "--checks", CHECKS, "--phases", "examples,coverage,fuzzing"])
        .args(["--seed", "7", "--generation-database", "none", "--no-color"])
        .args(["--suppress-health-check", "all", "--request-timeout", "30"])
        .args(more)
        .current_dir(dir.path());
    let ran = output(&mut command, PROGRAM).unwrap_or_else(|error| panic!("{program:?}: {error}"));
    let (out, err) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    (ran.status.success(), format!("{out}\n{err}"))
}

#[test]
fn every_answer_is_as_described() {
    let Some(programs) = installed(VENV, &[VERSION]) else { return skipped(&[VERSION]) };
    let program = programs.join("st");
    let members = Members::start(1);
    let at = members.client(0, "schema");
    let leases = [at.lease(3_600_000), at.lease(3_600_000), "7".to_owned()];
    let described = tamed(at.get("/openapi.json").ok(), &leases);
    let streams = StreamCutter::start(at.at);
    let bearer = members.administrator(0);
    let to = (streams.at, &*bearer);

    // The program detects a response without a promised field, and an undescribed status.
    let only = ["--include-path", "/v1/limits", "--max-examples", "2"];
    let mut wrong = described.clone();
    wrong["components"]["schemas"]["Limits"]["required"] = json!(["limits", "header", "nothing"]);
    assert!(!held_to(&program, to, &wrong, &only).0, "a missing field went unnoticed");
    let mut wrong = described.clone();
    wrong["paths"]["/v1/limits"]["patch"]["responses"].as_object_mut().unwrap().remove("400");
    assert!(!held_to(&program, to, &wrong, &only).0, "a status went unnoticed");

    // The default quotas come last: one that is low has all later requests refused.
    let quotas = "/v1/access/quotas";
    let all = ["--max-examples", EXAMPLES, "--exclude-path", quotas];
    let (kept, said) = held_to(&program, to, &described, &all);
    assert!(kept, "{said}");
    let last = ["--max-examples", EXAMPLES, "--include-path", quotas];
    let (kept, said_last) = held_to(&program, to, &described, &last);
    assert!(kept, "{said_last}");
    let tried = said.lines().find(|line| line.contains(" generated, "));
    let tried = tried.expect("nothing was tried").trim();
    eprintln!("schemathesis: {tried}, {} done, {} streams", streams.done(), streams.cut());
    assert!(streams.cut() > 5, "few streams were checked");
    assert!(streams.done() > 400, "{} requests were done: the others were refused", streams.done());
    let ready = at.get("/readyz");
    assert_eq!(
        ready.status,
        200,
        "the member has suffered: {}",
        String::from_utf8_lossy(&ready.body)
    );
}

#[test]
fn the_description_is_valid_and_a_client_generated_from_it_acquires_shows_and_releases() {
    let Some(programs) = installed(TOOLS_VENV, &TOOLS) else { return skipped(&TOOLS) };
    let members = Members::start(1);
    let at = members.client(0, "generated");
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("openapi.json");
    let described: Value = at.get("/openapi.json").ok();
    std::fs::write(&file, described.to_string()).unwrap();
    let python = programs.join("python");
    succeeds(Command::new(&python).args(["-m", "openapi_spec_validator"]).arg(&file));

    // The validator detects two operations of the same name.
    let mut wrong = described.clone();
    wrong["paths"]["/v1/keys"]["get"]["operationId"] = json!("list_locks");
    let bad = dir.path().join("wrong.json");
    std::fs::write(&bad, wrong.to_string()).unwrap();
    let mut validate = Command::new(&python);
    validate.args(["-m", "openapi_spec_validator"]).arg(&bad);
    assert!(!output(&mut validate, PROGRAM).unwrap().status.success(), "it finds nothing wrong");

    let path = std::env::join_paths(
        [programs.clone()]
            .into_iter()
            .chain(std::env::split_paths(&std::env::var_os("PATH").unwrap())),
    );
    let mut generate = Command::new(programs.join("openapi-python-client"));
    generate.args(["generate", "--meta", "none", "--path"]).arg(&file);
    generate.arg("--output-path").arg(dir.path().join("generated")).env("PATH", path.unwrap());
    let said = succeeds(&mut generate);
    // The generator knows no metrics; everything else must be in the client.
    let omitted = said.lines().filter(|line| line.contains("WARNING") || line.contains("ERROR"));
    let omitted: Vec<_> = omitted.filter(|line| !line.contains("GET /metrics ")).collect();
    assert!(omitted.is_empty(), "{said}");

    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/python/openapi.py");
    let mut run = Command::new(&python);
    run.arg(script).arg(dir.path()).arg(format!("http://{}", at.at));
    assert_eq!(succeeds(&mut run), "ok\n");
}
