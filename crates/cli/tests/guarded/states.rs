//! Tests the states of a real store with a real member: locks of the cluster, `tenure run`, kills, and 64 MiB.

use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::Guardian;
use crate::calls::{Answer, Connection};
use crate::common::{Cluster, Ended, TENURE, tenure, wait};

/// The longest state.
const MOST: usize = 64 * 1024 * 1024;

fn send(to: SocketAddr, verb: &str, of: &str, body: &[u8]) -> Answer {
    Connection::open(to).unwrap().call(verb, &format!("/v1/states/{of}"), &[], body).unwrap()
}

fn info(id: &str) -> Vec<u8> {
    json!({ "ID": id, "Operation": "OperationTypeApply", "Who": "ana@host" }).to_string().into()
}

fn state(serial: u64, value: &str) -> Vec<u8> {
    format!(r#"{{"version":4,"serial":{serial},"lineage":"a","outputs":{{"v":"{value}"}}}}"#).into()
}

/// Runs a shell under `tenure run` with the state `prod` and waits for its end.
fn run(member: &str, store: SocketAddr, more: &[&str], script: &str) -> Ended {
    let ran = command(member, store, more, script).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Ended { code: ran.status.code(), out: text(ran.stdout), err: text(ran.stderr) }
}

fn command(member: &str, store: SocketAddr, more: &[&str], script: &str) -> Command {
    let url = format!("http://{store}/v1/states/prod");
    let mut command = Command::new(TENURE);
    command.args(["run", "deploy", "--addr", member, "--ttl", "2s", "--terraform", &url]);
    command.args(more).args(["--", "sh", "-ec", script]).stdin(Stdio::null());
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command
}

/// Calls a state as Terraform does, with its variables.
const CURL: &str = r#"
tf() { curl -sS -o answer -w '%{http_code}\n' -u "$TF_HTTP_USERNAME:$TF_HTTP_PASSWORD" "$@"; }
lock() { tf -X LOCK -d "{\"ID\":\"$1\",\"Who\":\"job-$1\"}" "$TF_HTTP_LOCK_ADDRESS"; }
unlock() { tf -X UNLOCK -d "{\"ID\":\"$1\"}" "$TF_HTTP_UNLOCK_ADDRESS"; }
post() { tf --data-binary "{\"serial\":$2,\"lineage\":\"a\"}" "$TF_HTTP_ADDRESS&ID=$1"; }
"#;

fn script(dir: &Path, lines: &str) -> String {
    format!("cd {}\n{CURL}\n{lines}", dir.display())
}

#[test]
fn a_locked_state_is_a_lock_of_the_cluster() {
    let (dir, cluster) = (tempfile::tempdir().unwrap(), Cluster::found(1));
    let member = cluster.address(0).to_string();
    let mut store = Guardian::store_with(dir.path(), &["--addr", &member]);
    let to = store.address;
    let show = || tenure(&["explain", "prod", "--addr", &member, "--output", "json"]).out;
    assert_eq!(send(to, "LOCK", "prod", &info("one")).status, 200);
    assert!(show().contains("ana@host"), "{}", show());
    let second = send(to, "LOCK", "prod", &info("two"));
    assert_eq!((second.status, &second.body), (423, &info("one")));
    assert_eq!(send(to, "POST", "prod?ID=one", &state(1, "x")).status, 200);
    assert_eq!(send(to, "POST", "prod?ID=one", &state(2, "y")).status, 200);
    assert_eq!(send(to, "UNLOCK", "prod", &info("one")).status, 200);
    // A client of the cluster that is no client of the store is named, too.
    let hold = ["run", "prod", "--addr", &member, "--wait", "60s", "--client", "ben", "--", "cat"];
    let mut ben = Command::new(TENURE).args(hold).stdin(Stdio::piped()).spawn().unwrap();
    wait("ben holds it", || show().contains("ben").then_some(()));
    let refused = send(to, "LOCK", "prod", &info("two"));
    let said: Value = serde_json::from_slice(&refused.body).unwrap();
    assert_eq!((refused.status, &said["Who"]), (423, &json!("ben")), "{said}");
    drop(ben.stdin.take());
    assert!(ben.wait().unwrap().success());
    assert_eq!(send(to, "LOCK", "prod", &info("two")).status, 200);
    versions_are_listed_shown_and_restored(to);
    // A drained lock is refused as a held one, so that `-lock-timeout` waits for the end of the maintenance.
    let drained =
        |words: &[&str]| assert_eq!(tenure(&[words, &["--addr", &member]].concat()).code, Some(0));
    drained(&["drain", "pro", "--reason", "upgrade"]);
    let refused = send(to, "LOCK", "prod", &info("three"));
    let said: Value = serde_json::from_slice(&refused.body).unwrap();
    assert_eq!(refused.status, 423, "{said}");
    assert!(said["Info"].as_str().unwrap().ends_with(": upgrade"), "{said}");
    drained(&["undrain", "pro"]);
    // A store that is stopped releases no lock, because the work under it goes on.
    assert_eq!(send(to, "LOCK", "prod", &info("three")).status, 200);
    let process = store.process.as_mut().unwrap();
    process.signal("-TERM");
    assert!(process.ended().success());
    let held = tenure(&["run", "prod", "--addr", &member, "--wait", "0s", "--", "true"]);
    assert_eq!(held.code, Some(75), "{}", held.err);
    store.again();
    // The locks of a store that is killed are known when it is back.
    store.kill();
    store.again();
    assert_eq!(send(to, "LOCK", "prod", &info("four")).body, info("three"));
    assert_eq!(send(to, "POST", "prod?ID=three", &state(4, "z")).status, 200);
    assert_eq!(send(to, "UNLOCK", "prod", &info("three")).status, 200);
}

fn versions_are_listed_shown_and_restored(to: SocketAddr) {
    let url = format!("http://{to}");
    let said = |words: &[&str]| tenure(&[&["store", "state"], words, &["--store", &url]].concat());
    let list = said(&["list"]);
    assert!(list.out.contains("prod") && list.out.contains("ana@host"), "{}", list.out);
    assert_eq!(said(&["versions", "prod", "--quiet"]).out, "1\n2\n");
    assert_eq!(said(&["show", "prod", "--version", "1"]).out.as_bytes(), state(1, "x"));
    let held = said(&["restore", "prod", "--version", "1"]);
    assert_eq!(held.code, Some(75), "{}", held.err);
    assert!(held.err.contains("locked by ana@host, id two"), "{}", held.err);
    assert_eq!(send(to, "UNLOCK", "prod", &info("two")).status, 200);
    let restored = said(&["restore", "prod", "--version", "1"]);
    assert_eq!(
        restored.out, "version 1 of `prod` is now version 3, serial 3\n",
        "{}",
        restored.err
    );
    assert_eq!(said(&["show", "prod"]).out.as_bytes(), state(3, "x"));
    let purged = said(&["purge", "prod", "--keep", "2"]);
    let removed = format!("1 version of `prod` removed, {} bytes\n", state(1, "x").len() + 2_048);
    assert_eq!(purged.out, removed, "{}", purged.err);
    assert_eq!(said(&["versions", "prod", "--quiet"]).out, "2\n3\n");
    assert_eq!(said(&["purge", "prod", "--keep", "0"]).code, Some(2));
    assert_eq!(said(&["show", "none"]).code, Some(1));
    assert_eq!(said(&["versions", "none"]).code, Some(1));
    let nowhere = tenure(&["store", "state", "list", "--store", "http://127.0.0.1:1"]);
    assert_eq!(nowhere.code, Some(69), "{}", nowhere.err);
}

#[test]
fn a_dead_job_frees_the_state_and_cannot_write_any_more() {
    let (dir, cluster) = (tempfile::tempdir().unwrap(), Cluster::found(1));
    let member = cluster.address(0).to_string();
    let keys = format!("http://{member}");
    let more = ["--addr", &member, "--require-ticket", "--keys", &keys];
    let store = Guardian::store_with(dir.path(), &more);
    let to = store.address;
    // Without a ticket or a key nothing is readable, and a number is no ticket.
    let bare = send(to, "GET", "prod?lock=deploy", b"");
    assert_eq!(bare.refusal(), (401, "UNAUTHENTICATED"));
    let first =
        run(&member, to, &[], &script(dir.path(), "lock a; post a 1; unlock a; env > first"));
    assert_eq!((first.code, first.out.as_str()), (Some(0), "200\n200\n200\n"), "{}", first.err);
    // A job locks the state and dies with its machine: nothing of it unlocks anything.
    let dead = script(dir.path(), "lock dead; env > all; mv all dead; exec sleep 600");
    let mut job = command(&member, to, &["--quiet"], &dead);
    let mut job = job.stdout(Stdio::null()).spawn().unwrap();
    wait("it is locked", || std::fs::read_to_string(dir.path().join("dead")).ok());
    job.kill().unwrap();
    job.wait().unwrap();
    let next =
        run(&member, to, &["--wait", "60s"], &script(dir.path(), "lock b; post b 2; env > next"));
    assert_eq!((next.code, next.out.as_str()), (Some(0), "200\n200\n"), "{}", next.err);
    // What the dead job left, had it only been asleep: its ticket is real, and too old.
    let late = |what: &str| {
        let lines = format!("set -a; . ./dead; PATH=$SAVED; set +a; {what}");
        let script = script(dir.path(), &lines);
        let mut shell = Command::new("sh");
        shell.args(["-ec", &script]).env("SAVED", std::env::var_os("PATH").unwrap());
        String::from_utf8(shell.output().unwrap().stdout).unwrap()
    };
    quote_variables(&dir.path().join("dead"));
    assert_eq!(late("post dead 3"), "423\n", "the next holder has not unlocked");
    let freed =
        run(&member, to, &["--wait", "60s"], &script(dir.path(), "unlock b; lock c; unlock c"));
    assert_eq!((freed.code, freed.out.as_str()), (Some(0), "200\n200\n200\n"), "{}", freed.err);
    assert_eq!(late("lock dead"), "412\n");
    assert_eq!(late(r#"tf "$TF_HTTP_ADDRESS""#), "412\n", "nor does it read any more");
    assert_eq!(late("post dead 3"), "409\n");
    assert_eq!(
        late(r#"tf --data-binary '{"serial":3,"lineage":"a"}' "$TF_HTTP_ADDRESS""#),
        "412\n"
    );
    // The lock that guards the state is the run's, and no other.
    let other = ["run", "prod", "--addr", &member, "--terraform"];
    let url = format!("http://{to}/v1/states/prod");
    let script = script(dir.path(), "lock d");
    let other = [&other[..], &[&url, "--", "sh", "-ec", &script]].concat();
    let other = Command::new(TENURE).args(other).stdin(Stdio::null()).output().unwrap();
    assert_eq!(String::from_utf8(other.stdout).unwrap(), "409\n");
}

/// Writes the output of `env` so that a shell can read it back.
fn quote_variables(path: &Path) {
    let text = std::fs::read_to_string(path).unwrap();
    let wanted = text.lines().filter(|line| line.starts_with("TF_HTTP_"));
    let lines: Vec<String> = wanted
        .filter_map(|line| line.split_once('='))
        .map(|(name, value)| format!("{name}='{value}'\n"))
        .collect();
    assert_eq!(lines.len(), 5, "{text}");
    std::fs::write(path, lines.concat()).unwrap();
}

#[test]
fn the_longest_state_is_whole_or_not_there() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = Guardian::store(dir.path());
    let to = store.address;
    assert_eq!(send(to, "POST", "s", &state(1, "small")).status, 200);
    let long = |serial: u64, bytes: usize| {
        let empty = state(serial, "").len();
        state(serial, &"x".repeat(bytes - empty))
    };
    let second = long(2, MOST);
    assert_eq!(send(to, "POST", "s", &second).status, 200);
    assert!(send(to, "GET", "s", b"").body == second, "64 MiB come back as they were");
    // One byte more is refused before it is read.
    let head =
        format!("POST /v1/states/s HTTP/1.1\r\nhost: {to}\r\ncontent-length: {}\r\n\r\n", MOST + 1);
    let mut stream = TcpStream::connect(to).unwrap();
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = [0; 12];
    std::io::Read::read_exact(&mut stream, &mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 413");
    // The store is killed while the body arrives, and at moments after it.
    for pause in [0, 5, 20, 60] {
        let third = long(3, MOST / 4);
        let head = format!(
            "POST /v1/states/s HTTP/1.1\r\nhost: {to}\r\ncontent-length: {}\r\n\r\n",
            third.len()
        );
        let mut stream = TcpStream::connect(to).unwrap();
        stream.write_all(head.as_bytes()).unwrap();
        let part = if pause == 0 { third.len() / 2 } else { third.len() };
        stream.write_all(&third[..part]).unwrap();
        std::thread::sleep(Duration::from_millis(pause));
        store.kill();
        store.again();
        let read = send(to, "GET", "s", b"").body;
        let files = std::fs::read_dir(dir.path().join("store/states")).unwrap();
        let files = files.filter(|it| it.as_ref().unwrap().file_type().unwrap().is_file()).count();
        let versions = send(to, "GET", "s?versions=true", b"");
        let versions: Value = serde_json::from_slice(&versions.body).unwrap();
        assert_eq!(versions["versions"].as_array().unwrap().len(), files, "no file is left over");
        if read == third {
            break;
        }
        assert!(read == second, "after {pause} ms there is neither the old state nor the new one");
    }
}
