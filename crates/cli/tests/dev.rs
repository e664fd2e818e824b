//! Tests that `tenure dev` keeps its data and reports what prevents its start.

use std::fs;

use crate::common::{Process, ask, field, free_port, tenure, wait};

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

    let backup = dir.path().join("backup");
    let (backup, addr) = (backup.to_str().unwrap(), format!("127.0.0.1:{port}"));
    let saved = tenure(&["backup", backup, "--addr", &addr]);
    assert_eq!(saved.code, Some(0), "{}", saved.err);
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
    // The advice in the message works.
    let advice = "in ~/data; try moving it away; then tenure restore BACKUP --data ~/data";
    fails(data, free_port(), 1, advice);
    fs::rename(data, dir.path().join("away")).unwrap();
    let restored = tenure(&["restore", backup, "--data", data, "--waive-quiet"]);
    assert_eq!(restored.code, Some(0), "{}", restored.err);
    let mut process = dev(dir.path(), port);
    ready(port);
    let got = tenure(&["key", "get", "key", "--addr", &addr]);
    assert_eq!(got.out, "a-value-to-find-again", "{}", got.err);
    process.signal("-TERM");
    assert!(process.ended().success(), "{}", process.words());
    let identity = dir.path().join("data/identity.toml");
    fs::write(&identity, "format = 9\n").unwrap();
    fails(data, free_port(), 78, "format 9");
    fs::write(&identity, "member = 7\n").unwrap();
    fails(
        data,
        free_port(),
        1,
        "CORRUPT: `identity.toml` line 1: not in quotes, in ~/data; try moving",
    );
}

/// The first of this many consecutive ports.
fn ports_in_a_row(count: u16) -> u16 {
    loop {
        let first = free_port();
        if (1..count).all(|next| free_port() == first + next) {
            return first;
        }
    }
}

#[test]
fn several_in_one_process_go_on_without_one_that_is_removed() {
    let dir = tempfile::tempdir().unwrap();
    let port = ports_in_a_row(6);
    let (addr, data) = (format!("127.0.0.1:{port}"), dir.path().join("data"));
    let data = data.to_str().unwrap();
    let clients = ["--data", data, "--clients", &addr];
    let start = |log: &str, members: &str| {
        let arguments = [&["dev", "--size", members], &clients[..]].concat();
        Process::start(&dir.path().join(log), &arguments)
    };
    let ready = |process: &Process, words: &str| {
        wait("it is ready", || process.words().contains("ready in").then_some(()));
        assert!(process.words().contains(words), "{}", process.words());
    };
    let mut process = start("first", "3");
    ready(&process, ": 3 members in one process");
    let put = tenure(&["key", "put", "before", "v", "--addr", &addr]);
    assert_eq!(put.code, Some(0), "{}", put.err);
    // The hardest case: the member leads, and gets the request itself.
    let led = tenure(&["cluster", "transfer", "dev-3", "--addr", &addr]);
    assert_eq!(led.code, Some(0), "{}", led.err);
    let third = format!("127.0.0.1:{}", port + 2);
    let removed = tenure(&["cluster", "remove", "dev-3", "--yes", "--addr", &third]);
    assert_eq!(removed.code, Some(0), "{}", removed.err);
    let line = "member dev-3 was removed from the cluster and stopped; dev-1 and dev-2 go on\n";
    wait("it says so", || process.words().contains(line).then_some(()));
    wait("its port is closed", || ask(port + 2, "status").is_none().then_some(()));
    let put = tenure(&["key", "put", "after", "v", "--addr", &addr]);
    assert_eq!(put.code, Some(0), "{}", put.err);
    process.signal("-TERM");
    assert!(process.ended().success(), "{}", process.words());
    assert!(!process.words().contains("error:"), "{}", process.words());

    // Also where clients find them at other addresses.
    let addr = format!("127.0.0.1:{}", ports_in_a_row(3));
    let clients = ["--data", data, "--clients", &addr];
    // The former name of --size still works.
    let arguments = [&["dev", "--members", "3"], &clients[..]].concat();
    let mut process = Process::start(&dir.path().join("second"), &arguments);
    ready(&process, ": 2 of 3 members in one process, the others were removed");
    let got = tenure(&["key", "get", "after", "--addr", &addr]);
    assert_eq!((got.code, got.out.as_str()), (Some(0), "v"), "{}", got.err);
    process.signal("-TERM");
    assert!(process.ended().success(), "{}", process.words());

    // The command refuses to start another number of members in the directory.
    let refused = |log: &str, arguments: &[&str], says: &str| {
        let mut process = Process::start(&dir.path().join(log), arguments);
        assert_eq!(process.ended().code(), Some(78), "{}", process.words());
        let words = process.words();
        assert!(words.starts_with("error: ") && words.contains(says), "{words}");
        assert_eq!(words.lines().count(), 1, "{words}");
    };
    let says = "~/data holds a cluster of 3 members, not of 1; try --size 3, or another directory";
    refused("one", &[&["dev"], &clients[..]].concat(), says);
    let says = "~/data holds a cluster of 3 members, not of 5; try --size 3, or another directory";
    refused("five", &[&["dev", "--size", "5"], &clients[..]].concat(), says);
}

#[test]
fn port_0_gives_every_member_a_free_port() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let flags = ["--data", data.to_str().unwrap(), "--clients", "127.0.0.1:0"];
    let start = |log: &str| {
        let arguments = [&["dev", "--size", "3"], &flags[..]].concat();
        let process = Process::start(&dir.path().join(log), &arguments);
        let ready = || process.words().contains("ready in").then(|| process.words());
        let words = wait("it is ready", ready);
        let clients = words.lines().filter_map(|line| line.trim().strip_prefix("listening on "));
        let clients = clients.filter_map(|line| Some(line.split_once(' ')?.0.to_owned()));
        (process, clients.collect::<Vec<String>>())
    };
    let (mut process, clients) = start("first");
    let ports: std::collections::BTreeSet<u16> =
        clients.iter().map(|it| it.rsplit_once(':').unwrap().1.parse().unwrap()).collect();
    assert_eq!(ports.len(), 3, "{clients:?}");
    assert!(ports.iter().all(|port| *port >= 1_024), "{clients:?}");
    for at in &clients {
        let put = tenure(&["key", "put", "found", "v", "--addr", at]);
        assert_eq!(put.code, Some(0), "{at}: {}", put.err);
    }
    process.signal("-TERM");
    assert!(process.ended().success(), "{}", process.words());
    // The members find each other again, although clients find them at other ports.
    let (_process, clients) = start("second");
    let got = tenure(&["key", "get", "found", "--addr", &clients[2]]);
    assert_eq!((got.code, got.out.as_str()), (Some(0), "v"), "{}", got.err);
}

#[test]
fn where_one_member_lives_several_are_not_started() {
    let dir = tempfile::tempdir().unwrap();
    let port = free_port();
    let mut process = dev(dir.path(), port);
    ready(port);
    process.signal("-TERM");
    assert!(process.ended().success(), "{}", process.words());
    let (addr, data) = (format!("127.0.0.1:{port}"), dir.path().join("data"));
    let arguments = ["dev", "--size", "3", "--data", data.to_str().unwrap(), "--clients", &addr];
    let mut several = Process::start(&dir.path().join("several"), &arguments);
    assert_eq!(several.ended().code(), Some(78));
    let says = "error: ~/data holds one member, not 3; try without --size, or another directory";
    assert!(several.words().starts_with(says), "{}", several.words());
    assert!(!data.join("dev-1").exists(), "nothing was made");
}
