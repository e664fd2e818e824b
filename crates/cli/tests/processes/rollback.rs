//! Tests that a member whose disk went back stops and says so, and that no acknowledged write is lost.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use tenure_server::os;

use crate::common::client::number;
use crate::common::http::Connection;
use crate::common::proxy::Road;
use crate::common::waiting::wait_within;
use crate::common::{Cluster, field, wait, words};
use crate::stage::Transport;

/// How many writes reach the log of a leader that is cut off.
const GHOSTS: usize = 200;
/// How many writes the others then acknowledge. Each is a separate entry, and so is the new leader's first.
const WRITES: u64 = 10;
/// How many entries must be in the log of the cut-off leader, so that the others' entries end within them.
const GHOST_ENTRIES_MIN: u64 = 2 * (WRITES + 1);
/// How long a member whose disk went back may take to notice.
const NOTICE: Duration = Duration::from_secs(10);
/// How long one read may take.
const READ: Duration = Duration::from_millis(500);
/// How often a scenario is set up again if its timing did not work out.
const TRIES: usize = 5;

/// Copies a directory. A member that runs may delete a file during the copy, which is then repeated.
fn copy(from: &PathBuf, to: &PathBuf) {
    wait("the copy is complete", || {
        let _ = std::fs::remove_dir_all(to);
        Command::new("cp").arg("-a").args([from, to]).status().unwrap().success().then_some(())
    });
}

/// Restores a member's directory from a copy.
fn put_back(cluster: &Cluster, at: usize, copied: &PathBuf) {
    copy(copied, &cluster.data(at));
}

fn status_number(cluster: &Cluster, at: usize, name: &str) -> u64 {
    wait("it tells", || Some(number(&cluster.ask(at, "status")?, name)))
}

/// Makes a member lead.
fn lead(cluster: &Cluster, at: usize) {
    let id = cluster.id(at);
    wait("it leads", || {
        let leader = cluster.leader();
        if leader != at {
            cluster.ask(leader, &format!("transfer {id}"));
        }
        (leader == at).then_some(())
    });
}

/// Waits until the leader knows that a member has all its entries.
fn acknowledged_all(cluster: &Cluster, at: usize) {
    let id = cluster.id(at);
    wait("it has acknowledged everything", || {
        let members = cluster.ask(cluster.leader(), "members")?;
        let shown = members.split('[').find(|shown| shown.starts_with(&id))?;
        (field(shown.split(']').next()?, "behind")? == "0").then_some(())
    });
}

/// Waits until a member whose disk went back has stopped. Fails if it returns writes that never happened.
fn assert_stops(cluster: &mut Cluster, at: usize) {
    let code = wait_within(NOTICE, "it stops, because its disk went back", || {
        let ended = cluster.members[at].process.as_mut().unwrap().try_ended();
        if ended.is_none() {
            assert_reads_what_was(cluster, at);
        }
        Some(ended?.code())
    });
    let process = cluster.members[at].process.take().unwrap();
    let said = process.words();
    // Another thread writes the log, so a line of it may follow the error.
    let error = said.lines().rfind(|line| line.starts_with("error: ")).unwrap_or_default();
    assert_eq!(code, Some(1), "{said}");
    let expected = ["went back", "forgot", "acknowledged"];
    assert!(expected.iter().any(|words| error.contains(words)), "{said}");
}

/// Linearizable reads, if the member answers them at all, must return what happened.
fn assert_reads_what_was(cluster: &Cluster, at: usize) {
    for number in 0..WRITES {
        if let Some(read) = cluster.ask_within(READ, at, &format!("get real/{number}/"))
            && read.starts_with("ok")
        {
            assert_eq!(
                field(&read, "value"),
                Some(number.to_string()),
                "an acknowledged write: {read}"
            );
        }
        let read = cluster.ask_within(READ, at, &format!("get ghost/{number}/"));
        if let Some(read) = read.filter(|read| read.starts_with("ok")) {
            assert!(read.starts_with("ok absent"), "a write that never was: {read}");
        }
    }
}

/// The members that are up have every acknowledged write, and no other.
fn assert_nothing_lost(cluster: &Cluster, members: &[usize]) {
    cluster.ok("put after value");
    cluster.agree(members);
    for at in members {
        for number in 0..WRITES {
            let read = wait("it reads", || {
                cluster
                    .ask(*at, &format!("get real/{number}/"))
                    .filter(|read| read.starts_with("ok"))
            });
            let value = field(&read, "value");
            assert_eq!(value, Some(number.to_string()), "real/{number}/ at m{at}: {read}");
        }
        assert_reads_what_was(cluster, *at);
    }
}

fn write_acknowledged(cluster: &Cluster) {
    for number in 0..WRITES {
        cluster.ok(&format!("put real/{number}/ {number}"));
    }
}

/// A member whose disk has entries of a term in which it led alone, at the indexes that the others then fill.
struct Diverged {
    cluster: Cluster,
    at: usize,
    others: [usize; 2],
    copied: PathBuf,
}

fn diverged(transport: Transport) -> Diverged {
    for _ in 0..TRIES {
        if let Some(diverged) = try_diverged(transport) {
            return diverged;
        }
    }
    panic!("in {TRIES} tries no leader that was cut off wrote more entries than the others");
}

fn try_diverged(transport: Transport) -> Option<Diverged> {
    let mut cluster = transport.three();
    cluster.put_behind_proxies();
    let mut cluster = cluster.founded();
    cluster.ok("put before value");
    let at = cluster.leader();
    let others = [(at + 1) % 3, (at + 2) % 3];
    let before = status_number(&cluster, at, "last");
    // Connect first, because a leader that is cut off notices after 300 ms.
    let address = cluster.address(at);
    let trust = cluster.trust.as_ref();
    let open = |_| Connection::open(address, trust, Duration::from_secs(5)).unwrap();
    let connections: Vec<Connection> = (0..GHOSTS).map(open).collect();
    cluster.proxies.as_ref().unwrap().around(at, Road::Cut);
    let begun_us = os::now_us();
    let sent: Vec<_> = connections
        .into_iter()
        .enumerate()
        .map(|(number, mut connection)| {
            // A millisecond apart, so that they become several entries: the distance is the input of this scenario,
            // and stands for no condition. They are never answered while this one leads.
            let due_us = begun_us + number as u64 * 1_000;
            std::thread::sleep(os::until(due_us));
            let call = words::call(&format!("put ghost/{number}/ value"), Duration::from_secs(2));
            std::thread::spawn(move || connection.call(&call))
        })
        .collect();
    wait("it gives up", || (!cluster.leads(at)).then_some(()));
    let last = status_number(&cluster, at, "last");
    cluster.kill(at);
    for answer in sent.into_iter().filter_map(|sent| sent.join().unwrap().ok()) {
        assert!(!(200..300).contains(&answer.status), "acknowledged without a majority");
    }
    let copied = cluster.dir.path().join("copy");
    copy(&cluster.data(at), &copied);
    if last < before + GHOST_ENTRIES_MIN {
        return None;
    }
    cluster.leader_of(&others);
    write_acknowledged(&cluster);
    if status_number(&cluster, cluster.leader(), "last") >= last {
        return None;
    }
    cluster.proxies.as_ref().unwrap().heal();
    cluster.start(at, &[]);
    acknowledged_all(&cluster, at);
    cluster.kill(at);
    Some(Diverged { cluster, at, others, copied })
}

#[test]
fn a_follower_whose_disk_went_back_to_a_longer_log_of_an_older_term_stops() {
    follower_stops(Transport::Plain);
}

#[test]
fn a_follower_whose_disk_went_back_stops_under_tls_too() {
    follower_stops(Transport::Tls);
}

fn follower_stops(transport: Transport) {
    let Diverged { mut cluster, at, others, copied } = diverged(transport);
    put_back(&cluster, at, &copied);
    cluster.start(at, &[]);
    assert_stops(&mut cluster, at);
    assert_nothing_lost(&cluster, &others);
}

#[test]
fn a_follower_whose_disk_went_back_stops_after_a_change_of_leader_too() {
    let Diverged { mut cluster, at, others, copied } = diverged(Transport::Plain);
    let old = cluster.leader();
    let new = *others.iter().find(|other| **other != old).unwrap();
    lead(&cluster, new);
    put_back(&cluster, at, &copied);
    cluster.start(at, &[]);
    assert_stops(&mut cluster, at);
    assert_nothing_lost(&cluster, &others);
}

/// A leader and one follower that have acknowledged writes; the leader is stopped, and its disk is as it was before
/// them.
struct RolledBack {
    cluster: Cluster,
    leader: usize,
    follower: usize,
    down: usize,
}

fn rolled_back(transport: Transport) -> RolledBack {
    let mut tries = (0..TRIES).filter_map(|_| try_rolled_back(transport));
    tries.next().expect("a leader leads for a second or two")
}

/// `None` if another member led meanwhile, as happens on a busy machine.
fn try_rolled_back(transport: Transport) -> Option<RolledBack> {
    let mut cluster = transport.three().founded();
    cluster.ok("put before value");
    cluster.agree(&[0, 1, 2]);
    let leader = cluster.leader();
    let (follower, down) = ((leader + 1) % 3, (leader + 2) % 3);
    // It has led since the cluster was bootstrapped, so it never acknowledged anything to another leader. Nothing is
    // written meanwhile: the copy is what a machine would find after a power loss.
    let copied = cluster.dir.path().join("copy");
    let term = status_number(&cluster, leader, "term");
    copy(&cluster.data(leader), &copied);
    cluster.kill(down);
    write_acknowledged(&cluster);
    cluster.agree(&[leader, follower]);
    if status_number(&cluster, leader, "term") != term {
        return None;
    }
    cluster.kill(leader);
    put_back(&cluster, leader, &copied);
    Some(RolledBack { cluster, leader, follower, down })
}

#[test]
fn a_leader_whose_disk_went_back_stops_if_a_follower_is_up() {
    leader_stops(Transport::Plain);
}

#[test]
fn a_leader_whose_disk_went_back_stops_under_tls_too() {
    leader_stops(Transport::Tls);
}

fn leader_stops(transport: Transport) {
    let RolledBack { mut cluster, leader, follower, down } = rolled_back(transport);
    cluster.start(leader, &[]);
    cluster.start(down, &[]);
    assert_stops(&mut cluster, leader);
    assert_nothing_lost(&cluster, &[follower, down]);
}

#[test]
fn a_leader_whose_disk_went_back_stops_if_it_starts_before_the_follower_that_remembers() {
    let RolledBack { mut cluster, leader, follower, down } = rolled_back(Transport::Plain);
    // The follower has restarted, so that it remembers only what is on its disk. It is stopped until the others have
    // begun to start, so it answers them from the beginning without having run before them.
    cluster.kill(follower);
    cluster.start(follower, &[]);
    wait("the follower answers", || cluster.ask_within(READ, follower, "status"));
    let signal = |cluster: &Cluster, signal: &str| {
        cluster.members[follower].process.as_ref().unwrap().signal(signal);
    };
    signal(&cluster, "-STOP");
    cluster.start(leader, &[]);
    cluster.start(down, &[]);
    signal(&cluster, "-CONT");
    assert_stops(&mut cluster, leader);
    assert_nothing_lost(&cluster, &[follower, down]);
}
