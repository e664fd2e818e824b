//! Tests members of several versions in one cluster: when the level may be raised, and which members stop.

use crate::bounded;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::bounded::{DEADLINE, free_port, invite, start_all, wait};
use bytes::Bytes;
use tenure_core::codec::encode_request;
use tenure_core::outcome::Answer;
use tenure_core::request::{Command, NewLease, Request, RequestId};
use tenure_raft::{AdminRequest, MembershipChange, RejectReason};
use tenure_server::{
    End, InvitationSource, NodeFailure, RunningServer, ServerSettings, StartError, StartMode, Stop,
    start,
};

/// What an old version knows, and what this version knows.
const OLD: u16 = 1;
const NEW: u16 = tenure_core::LEVEL_MAX;

type Listed = Vec<(String, String)>;

fn settings(dir: &Path, at: usize, listed: &Listed, level_known: u16) -> ServerSettings {
    let name = format!("m{at}");
    ServerSettings {
        clients: "127.0.0.1:0".into(),
        members: Some(listed[at].1.clone()),
        entrance: StartMode::Bootstrap(listed.clone()),
        segment_bytes: 256 * 1024,
        reserve_bytes: 64 * 1024,
        level_known,
        ..ServerSettings::new(&name, dir.join(&name))
    }
}

fn found(dir: &Path, levels: &[u16]) -> (Listed, Vec<RunningServer>) {
    let listed = bounded::listed(levels.len());
    let of = |(at, level): (usize, &u16)| settings(dir, at, &listed, *level);
    let running = start_all(levels.iter().enumerate().map(of).collect());
    (listed, running)
}

/// Raises the level through the leader; tries again if there was none.
fn raise(running: &[&RunningServer], level: u16) -> Result<(), RejectReason> {
    let mut bytes = Vec::new();
    let command = Command::RaiseLevel { level };
    encode_request(&Request { principal: "", id: RequestId::None, command }, &mut bytes);
    let bytes = Bytes::from(bytes);
    wait("a member decides", || {
        let leads = |one: &&&RunningServer| one.member.status().is_ok_and(|s| s.agreement.serving);
        let leader = running.iter().find(leads)?;
        match leader.member.submit(vec![bytes.clone()], Duration::ZERO, DEADLINE).pop()? {
            Ok(outcome) => {
                assert_eq!(outcome.result, Ok(Answer::LevelRaised));
                Some(Ok(()))
            }
            Err(NodeFailure::Rejected(why @ RejectReason::LevelNotKnown { .. })) => Some(Err(why)),
            Err(_) => None,
        }
    })
}

/// Requests a level from a member over HTTP. Returns the status line and the body of the response.
fn ask_for(running: &RunningServer, level: u16) -> String {
    let mut stream = TcpStream::connect(running.clients).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    let body = format!("{{\"level\":{level}}}");
    let request = format!(
        "POST /v1/cluster/level HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Listens as a member with this id that answers once who it is. Returns its address.
fn answers_as(id: u64) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let answer = format!("i-am {id:x} x {address} h:2");
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.read(&mut [0; 64]).unwrap();
        stream.write_all(&u32::try_from(answer.len()).unwrap().to_le_bytes()).unwrap();
        stream.write_all(answer.as_bytes()).unwrap();
    });
    address
}

/// Sends one frame to the members' port and reads one frame.
fn join(running: &RunningServer, text: &str) -> String {
    let mut stream = TcpStream::connect(running.members.unwrap()).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    stream.write_all(&u32::try_from(text.len()).unwrap().to_le_bytes()).unwrap();
    stream.write_all(text.as_bytes()).unwrap();
    let mut length = [0; 4];
    stream.read_exact(&mut length).unwrap();
    let mut answer = vec![0; u32::from_le_bytes(length) as usize];
    stream.read_exact(&mut answer).unwrap();
    String::from_utf8(answer).unwrap()
}

/// Grants a lease: from then on the cluster is not new, and only a command raises its level.
fn use_it(running: &[&RunningServer]) {
    let id = tenure_types::LeaseId::new(7).unwrap();
    let new = NewLease { id, ttl_ms: 60_000, client: "test", metadata: b"" };
    let mut bytes = Vec::new();
    let command = Command::GrantLease(new);
    encode_request(&Request { principal: "", id: RequestId::None, command }, &mut bytes);
    let bytes = Bytes::from(bytes);
    wait("a lease is granted", || {
        let granted = running[0].member.submit(vec![bytes.clone()], Duration::ZERO, DEADLINE);
        granted[0].as_ref().is_ok_and(|outcome| outcome.result.is_ok()).then_some(())
    });
}

fn level(running: &RunningServer) -> u16 {
    running.member.status().unwrap().level.0
}

fn outgrown(running: &RunningServer) -> Option<()> {
    let stop = Stop::Outgrown { level: NEW, known: OLD };
    (running.member.ended()? == End::Cluster(stop)).then_some(())
}

#[test]
fn a_new_cluster_begins_at_the_newest_level_that_all_initial_members_know() {
    for (levels, expected) in [([NEW, NEW, NEW], NEW), ([NEW, OLD, NEW], OLD)] {
        let dir = tempfile::tempdir().unwrap();
        let (_, running) = found(dir.path(), &levels);
        // From its first moment, before any member leads or has a link.
        assert_eq!(running.iter().map(level).collect::<Vec<_>>(), [expected; 3]);
        let all: Vec<&RunningServer> = running.iter().collect();
        use_it(&all);
        assert_eq!(running.iter().map(level).collect::<Vec<_>>(), [expected; 3]);
        running.iter().for_each(RunningServer::stop);
    }
}

#[test]
fn the_level_is_raised_once_all_know_it_and_then_an_old_version_does_not_come_back() {
    let dir = tempfile::tempdir().unwrap();
    let (listed, mut running) = found(dir.path(), &[NEW, NEW, OLD]);
    let old = running[2].member.id();
    let all: Vec<&RunningServer> = running.iter().collect();
    use_it(&all);
    // The level is not raised before the member has reported what it knows, nor while it knows less, nor beyond what
    // any member knows.
    wait("the leader has heard of it", || match raise(&all, NEW) {
        Err(RejectReason::LevelNotKnown { member, known: Some(OLD), .. }) => {
            assert_eq!(member, old);
            Some(())
        }
        Err(_) => None,
        Ok(()) => panic!("raised although a member does not know it"),
    });
    assert!(raise(&all, NEW + 1).is_err());
    // Any member reports which member prevents the change.
    let reason = format!("feature level {NEW} is not known by all: member {old} is in the way");
    for one in &running {
        wait("the leader says so", || {
            let answer = ask_for(one, NEW);
            assert!(!answer.starts_with("HTTP/1.1 200"), "{answer}");
            (answer.contains("LEVEL_NOT_KNOWN") && answer.contains(&reason)).then_some(())
        });
    }
    assert_eq!(running.iter().map(level).collect::<Vec<_>>(), [OLD, OLD, OLD]);

    // After its upgrade it no longer prevents the change.
    running[2].stop();
    running[2] = start(settings(dir.path(), 2, &listed, NEW)).unwrap();
    let all: Vec<&RunningServer> = running.iter().collect();
    wait("it says what it knows now", || raise(&all, NEW).ok());
    wait("every member is there", || running.iter().all(|one| level(one) == NEW).then_some(()));

    // After a downgrade it stops at the entry that raised the level.
    running[2].stop();
    running[2] = start(settings(dir.path(), 2, &listed, OLD)).unwrap();
    wait("it stops", || outgrown(&running[2]));
    running.iter().for_each(RunningServer::stop);
}

#[test]
fn an_old_version_starts_from_no_newer_snapshot_and_is_not_let_in() {
    let dir = tempfile::tempdir().unwrap();
    let (listed, mut running) = found(dir.path(), &[OLD]);
    use_it(&[&running[0]]);
    running[0].stop();
    running[0] = start(settings(dir.path(), 0, &listed, NEW)).unwrap();
    let running = running;
    let newcomer = |at: usize, level_known| {
        let mut listed = listed.clone();
        listed.resize_with(at + 1, || ("x".into(), format!("127.0.0.1:{}", free_port())));
        let entrance = StartMode::Join(vec![listed[0].1.clone()]);
        let invitation = Some(invite(running[0].clients));
        ServerSettings { entrance, invitation, ..settings(dir.path(), at, &listed, level_known) }
    };
    // A learner that knows less prevents the change as a voter does.
    let learner = start(newcomer(1, OLD)).unwrap();
    let alone = [&running[0]];
    assert!(raise(&alone, NEW).is_err());
    learner.stop();
    let remove = AdminRequest::Change(vec![MembershipChange::Remove(learner.member.id())]);
    running[0].member.admin(remove, DEADLINE).unwrap();
    raise(&alone, NEW).unwrap();

    let mut settings_old = newcomer(2, OLD);
    settings_old.stop.store(true, Ordering::Release);
    let refused = start(settings_old).err().unwrap();
    assert!(matches!(refused, StartError::Interrupted), "it would try again: {refused}");
    // It was not admitted, and this is the reason.
    let record = format!("9 x {} h:2", answers_as(9));
    let InvitationSource::Token(token) = invite(running[0].clients) else { panic!() };
    let why = join(&running[0], &format!("join {record}\nlevel {OLD}\ninvitation {token}"));
    assert!(why.starts_with(&format!("refused the cluster is at feature level {NEW}, ")), "{why}");
    settings_old = newcomer(2, NEW);
    let joined = start(settings_old).unwrap();
    wait("it has the state", || (level(&joined) == NEW).then_some(()));
    joined.stop();
    // It received a snapshot.
    let refused = start(newcomer(2, OLD)).err().unwrap();
    assert!(refused.is_setting() && !refused.is_corrupt(), "{refused}");
    assert!(refused.advice().contains("the version of tenure"), "{}", refused.advice());
    running[0].stop();
}
