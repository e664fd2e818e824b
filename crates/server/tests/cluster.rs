//! Tests that members in one process, over real sockets and disks, catch up and refuse strangers.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use crate::support::{catch_up, found, invite, leader, put, settings};
use tenure_server::{InvitationSource, RunningServer};

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
