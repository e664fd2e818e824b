//! Tests that hostile connections to the members' port do not disturb the members.

use crate::support;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::support::{found, leader, put, wait};
use tenure_server::RunningServer;

fn frame(bytes: &[u8]) -> Vec<u8> {
    let length = u32::try_from(bytes.len()).unwrap().to_le_bytes();
    [&length[..], bytes].concat()
}

/// Sends a text and reads one frame; none if the connection was cut off.
fn ask(stream: &mut TcpStream, text: &str) -> Option<String> {
    stream.write_all(&frame(text.as_bytes())).ok()?;
    let mut length = [0; 4];
    stream.read_exact(&mut length).ok()?;
    let mut answer = vec![0; u32::from_le_bytes(length) as usize];
    stream.read_exact(&mut answer).ok()?;
    String::from_utf8(answer).ok()
}

fn hello(running: &RunningServer, what: &str, from: u64, more: &str) -> String {
    let (cluster, to) = (&running.cluster, running.member.id());
    format!(
        "{what} 1\ncluster {cluster}\nepoch 0\nincarnation 0000000000000000\n\
         from {from:x}\nto {to}\nlevel 1{more}"
    )
}

fn is_cut_off(stream: &mut TcpStream) -> bool {
    // The member may send something before it closes.
    loop {
        match stream.read(&mut [0; 64]) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return error.kind() == ErrorKind::ConnectionReset,
        }
    }
}

fn dial(port: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(port).unwrap();
    stream.set_read_timeout(Some(support::DEADLINE)).unwrap();
    stream
}

#[test]
fn silent_and_slow_peers_are_cut_off_and_keep_no_member_out() {
    let dir = tempfile::tempdir().unwrap();
    let (_, running) = found(dir.path(), 1);
    let port = running[0].members.unwrap();
    let mut slow = dial(port);
    // A byte now and then is not enough.
    slow.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    slow.write_all(&200_u32.to_le_bytes()).unwrap();
    wait("who is slow is cut off", || {
        let alive = slow.write_all(b"x").is_ok();
        let quiet =
            matches!(slow.read(&mut [0; 1]), Err(error) if error.kind() == ErrorKind::WouldBlock);
        (!alive || !quiet).then_some(())
    });
    let mut silent: Vec<_> = (0..100).map(|_| dial(port)).collect();
    assert!(ask(&mut dial(port), "who 1").unwrap().starts_with("i-am "), "others are heard");
    assert!(silent.iter_mut().all(is_cut_off));
    assert!(put(&running[leader(&running)].member, "key"));
    running[0].stop();
}

/// Three members, one of them stopped. Returns the leader, and the id of the stopped one, which a stranger without TLS
/// can claim.
fn one_of_three_stopped(dir: &std::path::Path) -> (Vec<RunningServer>, usize, u64) {
    let (_, running) = found(dir, 3);
    let leads = leader(&running);
    let gone = (leads + 1) % 3;
    let id = running[gone].member.id().get();
    running[gone].stop();
    (running, leads, id)
}

#[test]
fn nonsense_on_a_link_ends_the_link_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let (running, leads, from) = one_of_three_stopped(dir.path());
    let port = running[leads].members.unwrap();
    let announced_too_much = (64 * 1024 * 1024 + 1_u32).to_le_bytes().to_vec();
    for nonsense in [frame(b"\xff\xff\xff"), frame(b""), announced_too_much] {
        let mut stream = dial(port);
        let answer = ask(&mut stream, &hello(&running[leads], "hello", from, "")).unwrap();
        assert!(answer.starts_with("hello"), "{answer}");
        stream.write_all(&nonsense).unwrap();
        assert!(is_cut_off(&mut stream), "{nonsense:?}");
    }
    assert!(put(&running[leader(&running)].member, "key"));
    running.iter().for_each(RunningServer::stop);
}

#[test]
fn made_up_members_get_no_links() {
    let dir = tempfile::tempdir().unwrap();
    let (_, running) = found(dir.path(), 1);
    let port = running[0].members.unwrap();
    for from in 1..100 {
        let answer = ask(&mut dial(port), &hello(&running[0], "hello", from, "")).unwrap();
        assert!(answer.starts_with("refused") && answer.contains("is no member"), "{answer}");
    }
    assert!(put(&running[leader(&running)].member, "key"));
    running[0].stop();
}

#[test]
fn a_snapshot_in_crumbs_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (running, leads, from) = one_of_three_stopped(dir.path());
    let mut stream = dial(running[leads].members.unwrap());
    let id = "\nindex 900\nterm 9\nbytes 5000000\nchecksum 1";
    let announce = hello(&running[leads], "snapshot", from, id);
    stream.write_all(&frame(announce.as_bytes())).unwrap();
    stream.write_all(&frame(&step())).unwrap();
    let mut length = [0; 4];
    stream.read_exact(&mut length).unwrap();
    let mut have = vec![0; u32::from_le_bytes(length) as usize];
    stream.read_exact(&mut have).unwrap();
    assert_eq!(have, b"have 0");
    let refused = ask(&mut stream, "").unwrap();
    assert!(refused.contains("a part of 0 bytes, 5000000 are missing"), "{refused}");
    assert!(put(&running[leader(&running)].member, "key"));
    running.iter().for_each(RunningServer::stop);
}

/// The step that announces the snapshot.
fn step() -> Vec<u8> {
    use tenure_raft::{AnnouncedSnapshot, Membership, Message, Step, StepKind};
    let point = tenure_store::LogId { index: 900, term: 9 };
    let head = AnnouncedSnapshot { point, members: Membership::default() };
    Message::Step(Box::new(Step {
        kind: StepKind::Snapshot,
        term: 9,
        log_term: 0,
        index: 0,
        commit: 0,
        commit_term: 0,
        reject: false,
        reject_hint: 0,
        context: bytes::Bytes::new(),
        durable: tenure_store::LogId::default(),
        entries: Vec::new(),
        snapshot: Some(Box::new(head)),
    }))
    .encode()
}
