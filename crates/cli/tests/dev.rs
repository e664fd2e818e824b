//! Does `tenure dev` keep what it promised, and say what stands in its way?

mod common;

use std::fs;

use common::{Process, ask, field, free_port, wait};

fn dev(dir: &std::path::Path, port: u16) -> Process {
    let clients = format!("127.0.0.1:{port}");
    let data = dir.join("data");
    let arguments = ["dev", "--data", data.to_str().unwrap(), "--clients", &clients];
    Process::start(&dir.join("log"), &arguments)
}

fn ready(port: u16) {
    wait("it serves", || ask(port, "status")?.contains("serving=true").then_some(()));
}

#[test]
fn a_killed_member_keeps_its_locks() {
    let dir = tempfile::tempdir().unwrap();
    let port = free_port();
    let mut process = dev(dir.path(), port);
    ready(port);
    assert!(ask(port, "lease 7 600000 ana").unwrap().starts_with("ok lease=7"));
    let held = ask(port, "lock 7 deploy").unwrap();
    assert_eq!(field(&held, "token").as_deref(), Some("1"), "{held}");
    assert!(ask(port, "lease 8 600000 bob").unwrap().starts_with("ok"));
    assert!(ask(port, "lock 8 deploy try").unwrap().starts_with("refused HELD"));
    assert!(ask(port, "put tenure/members/1 x").unwrap().starts_with("refused PERMISSION_DENIED"));

    process.kill();
    let mut process = dev(dir.path(), port);
    ready(port);
    let locks = ask(port, "locks").unwrap();
    assert!(locks.contains("[deploy held client=ana lease=7 token=1 "), "{locks}");

    // Ctrl-C stops it gracefully, and the next run finds everything again.
    process.signal("-INT");
    assert!(process.ended().success(), "{}", process.words());
    let _process = dev(dir.path(), port);
    ready(port);
    let waiting = std::thread::spawn(move || ask(port, "lock 8 deploy wait 30000").unwrap());
    wait("bob waits", || ask(port, "explain deploy")?.contains("client=bob").then_some(()));
    assert!(ask(port, "unlock 7 deploy 1").unwrap().starts_with("ok released"));
    let handed = waiting.join().unwrap();
    assert_eq!(field(&handed, "token").as_deref(), Some("2"), "{handed}");
}

#[test]
fn what_stands_in_the_way_is_said_in_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let port = free_port();
    let mut process = dev(dir.path(), port);
    ready(port);
    assert!(ask(port, "put key a-value-to-find-again").unwrap().starts_with("ok"));

    let fails = |path: &str, port: u16, code: i32, says: &str| {
        let said = dir.path().join(format!("failed-{}", free_port()));
        let clients = format!("127.0.0.1:{port}");
        let arguments = ["dev", "--data", path, "--clients", &clients];
        let mut process = Process::start(&said, &arguments);
        let status = process.ended();
        let words = process.words();
        let last = words.lines().last().unwrap_or_default();
        assert_eq!(status.code(), Some(code), "{words}");
        assert!(last.starts_with("error: ") && last.contains(says), "{words}");
        assert!(last.contains("; try "), "{words}");
    };
    let data = dir.path().join("data");
    let data = data.to_str().unwrap();
    fails(data, free_port(), 78, "is in use by process");
    let other = dir.path().join("other");
    fails(other.to_str().unwrap(), port, 78, "cannot listen on");
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    fails(file.to_str().unwrap(), free_port(), 78, "is not a directory");

    process.signal("-TERM");
    assert!(process.ended().success(), "{}", process.words());
    let segment = fs::read_dir(dir.path().join("data/log")).unwrap();
    let mut spoiled = 0;
    for segment in segment {
        let path = segment.unwrap().path();
        let mut bytes = fs::read(&path).unwrap();
        let value = b"a-value-to-find-again";
        if let Some(at) = bytes.windows(value.len()).position(|found| found == value) {
            bytes[at] ^= 1;
            fs::write(&path, bytes).unwrap();
            spoiled += 1;
        }
    }
    assert_eq!(spoiled, 1);
    fails(data, free_port(), 1, "CORRUPT: log is corrupt at segment 1");
    let identity = dir.path().join("data/identity.toml");
    fs::write(identity, "format = 9\n").unwrap();
    fails(data, free_port(), 78, "format 9");
}
