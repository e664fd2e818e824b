//! Tests that members in one process, over real sockets and disks, catch up and refuse strangers.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;

use bytes::Bytes;

use tenure_core::codec::{encode_request, seal_entry};
use tenure_core::request::{Command, Expect, Put, Request, RequestId};
use tenure_types::Term;

use crate::support::{catch_up, found, invite, leader, put, settings, start_all, wait};
use tenure_raft::MemberId;
use tenure_server::{End, InvitationSource, RunningServer, Stop};
use tenure_store::{DataDir, Log, LogBatch, LogEntry, LogOptions};

#[test]
fn a_member_far_behind_catches_up_by_snapshot_while_writes_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let (listed, mut running) = found(dir.path(), 3);
    catch_up(&mut running, |at| settings(dir.path(), at, &listed));
    running.iter().for_each(RunningServer::stop);
}

#[test]
fn strangers_are_refused_and_nonsense_is_cut_off() {
    let dir = tempfile::tempdir().unwrap();
    let (_, running) = found(dir.path(), 1);
    let id = running[leader(&running)].member.id();
    let port = running[0].members.unwrap();
    let incarnation = |cluster: &str, epoch: u16, incarnation: u64, to: &str| {
        let incarnation =
            format!("cluster {cluster}\nepoch {epoch}\nincarnation {incarnation:016x}");
        ask(port, format!("hello 1\n{incarnation}\nfrom 1\nto {to}\nlevel 1").as_bytes())
    };
    let (cluster, id) = (&running[0].cluster, id.to_string());
    assert!(
        incarnation("another", 0, 0, &id).starts_with("refused this member is of another cluster")
    );
    assert!(incarnation(cluster, 1, 0, &id).starts_with("refused the cluster was restored"));
    assert!(incarnation(cluster, 0, 7, &id).starts_with("refused this is another restore"));
    assert!(incarnation(cluster, 0, 0, "2").starts_with("refused this is member"));
    assert!(incarnation(cluster, 0, 0, &id).starts_with("refused 1 is no member"));
    // A join from a member of another cluster, epoch or incarnation is refused too.
    let newest = tenure_core::LEVEL_MAX;
    let InvitationSource::Token(token) = invite(running[0].clients) else { panic!() };
    let join = |level: u16, incarnation: &str| {
        let text = format!("join 9 x h:1 h:2\nlevel {level}\ninvitation {token}{incarnation}");
        ask(port, text.as_bytes())
    };
    let uninvited = ask(port, format!("join 9 x h:1 h:2\nlevel {newest}").as_bytes());
    assert!(uninvited.starts_with("refused joining needs an invitation"), "{uninvited}");
    let other = format!("\ncluster {cluster}\nepoch 0\nincarnation 0000000000000007");
    assert!(join(newest, &other).starts_with("refused this is another restore"));
    // A new member is called back where it says that it listens, if it could be added at all.
    assert!(join(1, "").starts_with("refused the cluster is at feature level"));
    assert!(join(newest, "").starts_with("refused member 9 does not answer at h:1"));
    assert!(ask(port, b"who 1").starts_with("i-am "));
    assert_eq!(ask(port, b"\xff\xfe"), "", "no answer to nonsense");
    assert_eq!(ask(port, b"done 1"), "refused this is an answer, not a question");
    // A length above the limit.
    let mut stream = TcpStream::connect(port).unwrap();
    stream.write_all(&u32::MAX.to_le_bytes()).unwrap();
    assert_eq!(stream.read(&mut [0; 1]).unwrap(), 0, "it hangs up");
    running[0].stop();
}

fn ask(port: SocketAddr, text: &[u8]) -> String {
    let mut stream = TcpStream::connect(port).unwrap();
    stream.write_all(&u32::try_from(text.len()).unwrap().to_le_bytes()).unwrap();
    stream.write_all(text).unwrap();
    let mut length = [0; 4];
    if stream.read_exact(&mut length).is_err() {
        return String::new();
    }
    let mut answer = vec![0; u32::from_le_bytes(length) as usize];
    stream.read_exact(&mut answer).unwrap();
    String::from_utf8(answer).unwrap()
}

#[test]
fn commands_of_many_threads_share_entries_and_all_are_answered() {
    let dir = tempfile::tempdir().unwrap();
    let (_, running) = found(dir.path(), 1);
    let member = &running[leader(&running)].member;
    let before = member.status().unwrap();
    std::thread::scope(|scope| {
        for thread in 0..32 {
            scope.spawn(move || {
                (0..25).for_each(|at| assert!(put(member, &format!("{thread}/{at}"))));
            });
        }
    });
    let after = member.status().unwrap();
    assert_eq!(after.revision.0 - before.revision.0, 32 * 25, "each command has its revision");
    let entries = after.agreement.applied.index - before.agreement.applied.index;
    assert!(entries < 32 * 25, "{entries} entries");
    running[0].stop();
}

/// A leader refuses to remove itself, but a member can come to lead while the entry that removes it is in its log. When
/// it commits that entry it stops, and the message that says so is the last one that the other member gets from it.
#[test]
fn a_leader_that_is_removed_tells_the_other_member_before_it_stops() {
    for round in 0..ROUNDS {
        let dir = tempfile::tempdir().unwrap();
        let (listed, running) = found(dir.path(), 2);
        leader(&running);
        running.iter().for_each(RunningServer::stop);
        let ids = [0, 1].map(|at: usize| running[at].member.id());
        drop(running);

        // The removed member has the longer log, so only it can win the election.
        let lasts = [0, 1].map(|at| log(dir.path(), at, |log| log.last()));
        let goes = usize::from((lasts[1].term, lasts[1].index) > (lasts[0].term, lasts[0].index));
        log(dir.path(), goes, |log| {
            let (index, term) = (log.last_index() + 1, log.last().term);
            let entries = &[LogEntry { index, term, kind: 1, payload: removal(ids[goes]) }];
            log.write(&LogBatch { entries, ..LogBatch::default() }).unwrap();
            log.mark().unwrap();
        });

        let again = |at| settings(dir.path(), at, &listed);
        let running = start_all((0..2).map(again).collect());
        let end = wait("the removed member stops", || running[goes].member.ended());
        assert_eq!(end, End::Cluster(Stop::Removed), "round {round}");
        let stays = &running[1 - goes].member;
        wait("the other member leads alone", || {
            let status = stays.status().ok()?;
            (status.agreement.serving && status.members.voters == [stays.id()].into()).then_some(())
        });
        assert!(put(stays, "key"));
        running.iter().for_each(RunningServer::stop);
    }
}

/// Members compare their states at each multiple of this index.
const COMPARED_AT: u64 = 1_000;

/// With two voters no majority agrees on a state, so neither serves one that may be wrong.
#[test]
fn two_voters_whose_states_differ_both_stop() {
    let dir = tempfile::tempdir().unwrap();
    let (listed, running) = found(dir.path(), 2);
    leader(&running);
    running.iter().for_each(RunningServer::stop);
    drop(running);

    // The logs agree by index and term. One command differs.
    let lasts = [0, 1].map(|at| log(dir.path(), at, |log| log.last()));
    let from = lasts[0].index.min(lasts[1].index) + 1;
    let term = lasts[0].term.max(lasts[1].term);
    for at in [0, 1] {
        let entries: Vec<LogEntry> = (from..=COMPARED_AT)
            .map(|index| {
                let value = if index == from { at } else { 2 };
                LogEntry { index, term, kind: 0, payload: write_of(term, value) }
            })
            .collect();
        log(dir.path(), at, |log| {
            for entries in entries.chunks(100) {
                log.write(&LogBatch { entries, ..LogBatch::default() }).unwrap();
            }
            log.mark().unwrap();
        });
    }

    let again = |at| settings(dir.path(), at, &listed);
    let running = start_all((0..2).map(again).collect());
    for one in &running {
        let end = wait("it stops", || one.member.ended());
        assert_eq!(end, End::Cluster(Stop::Diverged { index: COMPARED_AT }));
    }
    running.iter().for_each(RunningServer::stop);
}

/// The payload of an entry that writes a key.
fn write_of(term: u64, value: usize) -> Bytes {
    let value = value.to_string();
    let put =
        Put { key: "key", value: value.as_bytes(), lease: None, expect: Expect::Any, guard: None };
    let request = Request { principal: "", id: RequestId::None, command: Command::Put(put) };
    let mut bytes = Vec::new();
    encode_request(&request, &mut bytes);
    // The count is that of no shorter time than the leader of the term has led.
    seal_entry(Term(term), 60_000, [&bytes[..]]).into()
}

/// How often a leader is removed. The last message and the end of the link compete on two threads.
const ROUNDS: usize = 8;

/// The payload of an entry that removes a member: the kind of the change, then the id in groups of seven bits.
fn removal(member: MemberId) -> Bytes {
    let (mut payload, mut rest) = (vec![3], member.get());
    while rest >= 0x80 {
        payload.push(u8::try_from(rest & 0x7f).unwrap() | 0x80);
        rest >>= 7;
    }
    payload.push(u8::try_from(rest).unwrap());
    payload.into()
}

/// Opens the log of a stopped member.
fn log<T>(dir: &Path, at: usize, look: impl FnOnce(&mut Log) -> T) -> T {
    let settings = settings(dir, at, &[(String::new(), String::new()), Default::default()]);
    let (home, _) = DataDir::open_or_create(&settings.data).unwrap();
    let options = LogOptions { segment_bytes: settings.segment_bytes, ..LogOptions::default() };
    look(&mut Log::open(home.disk(), options).unwrap().0)
}
