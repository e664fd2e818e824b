//! Tests that members survive stops, rollbacks, restarts, catching up and transfers without loss.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::common::client::number;
use crate::common::http::{Call, Connection};
use crate::common::load::Load;
use crate::common::proxy::Road;
use crate::common::{Cluster, field, wait};

const TIMEOUT: Duration = Duration::from_secs(10);

fn applied(cluster: &Cluster, at: usize) -> u64 {
    wait("it tells", || Some(number(&cluster.ask(at, "status")?, "applied")))
}

#[test]
fn a_leader_that_stands_still_is_replaced_and_follows_when_it_goes_on() {
    let mut cluster = Cluster::found(3);
    let load = Load::begin(&cluster.addresses(), 4);
    load.goes_on(50);
    for round in 0..2 {
        let old = cluster.leader();
        let stopped = cluster.members[old].process.take().unwrap();
        stopped.signal("-STOP");
        let new = cluster.leader();
        assert_ne!(old, new);
        cluster.ok(&format!("put while {round}"));
        load.goes_on(40);
        stopped.signal("-CONT");
        cluster.members[old].process = Some(stopped);
        // The old leader has not noticed its successor yet. It must not act as a leader.
        let answer = cluster.ask(old, "put old leader").unwrap();
        assert!(!answer.starts_with("refused"), "{answer}");
        wait("it follows", || cluster.ask(old, "status")?.contains("role=follower").then_some(()));
        let read = cluster.ask(old, "get while").unwrap();
        assert_eq!(field(&read, "value"), Some(round.to_string()), "{read}");
    }
    load.judge(&cluster, &[0, 1, 2]);
}

#[test]
fn a_member_whose_disk_went_back_notices_and_refuses() {
    let mut cluster = Cluster::found(3);
    let load = Load::begin(&cluster.addresses(), 3);
    load.goes_on(50);
    let leader = cluster.leader();
    let victim = (leader + 1) % 3;
    cluster.kill(victim);
    let (data, copy) = (cluster.data(victim), cluster.dir.path().join("copy"));
    let copied = Command::new("cp").arg("-a").args([&data, &copy]).status().unwrap();
    assert!(copied.success());

    cluster.start(victim, &[]);
    // Wait until the leader knows that the member has more than the copy.
    let copied = number(&cluster.ask(cluster.leader(), "status").unwrap(), "last");
    let id = cluster.id(victim);
    wait("it has acknowledged more", || {
        let leader = cluster.leader();
        let last = number(&cluster.ask(leader, "status")?, "last");
        let members = cluster.ask(leader, "members")?;
        let shown = members.split('[').find(|shown| shown.starts_with(&id))?;
        let behind: u64 = field(shown.split(']').next()?, "behind")?.parse().ok()?;
        (last.saturating_sub(behind) > copied).then_some(())
    });
    cluster.kill(victim);
    std::fs::remove_dir_all(&data).unwrap();
    std::fs::rename(&copy, &data).unwrap();
    cluster.start(victim, &[]);
    let process = cluster.members[victim].process.as_mut().unwrap();
    assert_eq!(process.ended().code(), Some(1), "{}", process.words());
    let words = process.words();
    let last = words.lines().last().unwrap_or_default();
    assert!(last.contains("the disk went back") && last.contains("--join"), "{words}");
    cluster.members[victim].process = None;
    load.goes_on(50);
    let others: Vec<usize> = (0..3).filter(|at| *at != victim).collect();
    load.judge(&cluster, &others);
}

#[test]
fn a_rolling_restart_loses_nothing() {
    let mut cluster = Cluster::found(3);
    let load = Load::begin(&cluster.addresses(), 4);
    for at in 0..3 {
        load.goes_on(40);
        let process = cluster.members[at].process.as_mut().unwrap();
        process.signal("-TERM");
        assert!(process.ended().success(), "{}", process.words());
        cluster.members[at].process = None;
        load.goes_on(40);
        cluster.start(at, &[]);
        let applied = number(&cluster.ask(cluster.leader(), "status").unwrap(), "applied");
        wait("it is back", || {
            (number(&cluster.ask(at, "status")?, "applied") >= applied).then_some(())
        });
    }
    load.judge(&cluster, &[0, 1, 2]);
}

#[test]
fn a_member_far_behind_catches_up_by_snapshot_while_writes_go_on() {
    let mut cluster = Cluster::found_with_snapshots(100);
    let load = Load::begin(&cluster.addresses(), 4);
    load.goes_on(50);
    let behind = (cluster.leader() + 1) % 3;
    cluster.kill(behind);
    let last = std::fs::read_to_string(cluster.dir.path().join(format!("m{behind}.log"))).unwrap();
    let stopped_at = applied(&cluster, cluster.leader());
    wait("the others have forgotten what it lacks", || {
        let base = number(&cluster.ask(cluster.leader(), "status")?, "base");
        (base > stopped_at).then_some(())
    });
    cluster.start(behind, &[]);
    wait("a snapshot reaches it", || {
        let process = cluster.members[behind].process.as_ref().unwrap();
        process.words()[last.len()..].contains("snapshot received").then_some(())
    });
    load.goes_on(50);
    load.judge(&cluster, &[0, 1, 2]);
}

#[test]
fn a_follower_that_stands_still_catches_up() {
    let mut cluster = Cluster::found_with_snapshots(100);
    let load = Load::begin(&cluster.addresses(), 4);
    load.goes_on(50);
    let slow = (cluster.leader() + 1) % 3;
    let stopped = cluster.members[slow].process.take().unwrap();
    stopped.signal("-STOP");
    let stopped_at = applied(&cluster, cluster.leader());
    wait("the others have forgotten what it lacks", || {
        let base = number(&cluster.ask(cluster.leader(), "status")?, "base");
        (base > stopped_at).then_some(())
    });
    stopped.signal("-CONT");
    cluster.members[slow].process = Some(stopped);
    load.goes_on(50);
    load.judge(&cluster, &[0, 1, 2]);
}

#[test]
fn a_member_that_is_killed_while_it_catches_up_catches_up() {
    let mut cluster = Cluster::found_with_snapshots(60);
    let load = Load::begin(&cluster.addresses(), 4);
    load.goes_on(50);
    let behind = (cluster.leader() + 1) % 3;
    for round in 0..4 {
        cluster.kill(behind);
        let stopped_at = applied(&cluster, cluster.leader());
        wait("the others have forgotten what it lacks", || {
            let base = number(&cluster.ask(cluster.leader(), "status")?, "base");
            (base > stopped_at).then_some(())
        });
        cluster.start(behind, &[]);
        // Each round kills it later: before it has a link, while a snapshot arrives, after the snapshot.
        wait("it answers", || cluster.ask(behind, "status"));
        std::thread::sleep(std::time::Duration::from_millis(20 * round));
    }
    load.goes_on(50);
    load.judge(&cluster, &[0, 1, 2]);
}

#[test]
fn a_request_that_was_forwarded_by_a_member_that_is_then_killed_happens_once() {
    let mut cluster = Cluster::found_behind_proxies();
    let call = Call {
        verb: "PUT",
        path: "/v1/keys/forwarded".to_owned(),
        key: Some("forwarded-once".to_owned()),
        body: Some(("application/octet-stream", "value".to_owned())),
    };
    // A member that has heard no leader for a while forwards nothing, and says so: then it is tried again.
    let (caller, through) = loop {
        let leader = cluster.leader();
        let through = (leader + 1) % 3;
        wait("the member follows the leader", || {
            (!cluster.ask(through, "status")?.contains("leader=none")).then_some(())
        });
        // The leader hears the follower, and none of its answers arrives.
        cluster.proxies.as_ref().unwrap().set(leader, through, Road::Held);
        let (to, first) = (cluster.address(through), call.clone());
        let caller = std::thread::spawn(move || Connection::open(to, None, TIMEOUT)?.call(&first));
        let is_done = wait("the request has taken effect, or is answered", || {
            let is_answered = caller.is_finished();
            let read = cluster.ask(leader, "get forwarded");
            let is_done = read.is_some_and(|it| it.contains("value=value"));
            (is_done || is_answered).then_some(is_done)
        });
        if is_done {
            break (caller, through);
        }
        cluster.proxies.as_ref().unwrap().heal();
    };
    cluster.kill(through);
    let answered = caller.join().unwrap();
    assert!(!answered.as_ref().is_ok_and(|it| it.status == 200), "it was killed: {answered:?}");
    cluster.proxies.as_ref().unwrap().heal();
    cluster.start(through, &[]);
    // The caller repeats it at the same member, which has forgotten that it forwarded it.
    wait("the repetition is answered", || {
        let answer = Connection::open(cluster.address(through), None, TIMEOUT).ok()?.call(&call);
        let answer = answer.ok()?;
        assert!([200, 503, 504].contains(&answer.status), "{answer:?}");
        (answer.status == 200).then_some(())
    });
    let read = cluster.ok("get forwarded");
    assert_eq!(field(&read, "version").as_deref(), Some("1"), "it happened once: {read}");
}

/// The bytes of the snapshot that a member is receiving.
fn part_bytes(cluster: &Cluster, at: usize) -> u64 {
    let is_part = |path: &Path| path.extension().is_some_and(|it| it == "part");
    let files = |dir: &Path| {
        let entries = std::fs::read_dir(dir).into_iter().flatten();
        entries.map(|entry| entry.unwrap().path()).collect::<Vec<_>>()
    };
    let data = files(&cluster.data(at));
    let below = data.iter().flat_map(|path| files(path));
    let parts = data.iter().cloned().chain(below).filter(|path| is_part(path));
    parts.filter_map(|path| path.metadata().ok()).map(|part| part.len()).sum()
}

#[test]
fn a_snapshot_that_a_kill_interrupts_goes_on_where_it_stopped() {
    // Some seconds of the slow road, and more entries than the log keeps.
    const KEYS: u32 = 220;
    let mut cluster = Cluster::new();
    cluster.more = vec!["--snapshot-entries".to_owned(), "100".to_owned()];
    for _ in 0..3 {
        cluster.add();
    }
    cluster.put_behind_proxies();
    let mut cluster = cluster.founded();
    let behind = (cluster.leader() + 1) % 3;
    cluster.kill(behind);
    let stopped_at = applied(&cluster, cluster.leader());
    let value = "v".repeat(30_000);
    for key in 0..KEYS {
        let path = format!("/v1/keys/large-{key}");
        wait("it is written", || {
            let to = cluster.address(cluster.leader());
            let body = Some(("application/octet-stream", value.clone()));
            let call = Call { verb: "PUT", path: path.clone(), key: None, body };
            let answer = Connection::open(to, None, TIMEOUT).ok()?.call(&call).ok()?;
            assert!([200, 503, 504].contains(&answer.status), "{answer:?}");
            (answer.status == 200).then_some(())
        });
    }
    wait("the others have forgotten what it lacks", || {
        let base = number(&cluster.ask(cluster.leader(), "status")?, "base");
        (base > stopped_at).then_some(())
    });
    let slow = Road::Slow(Duration::from_millis(40));
    cluster.proxies.as_ref().unwrap().around(behind, slow);
    cluster.start(behind, &[]);
    wait("a part has arrived", || (part_bytes(&cluster, behind) > 1 << 20).then_some(()));
    cluster.kill(behind);
    let log = cluster.dir.path().join(format!("m{behind}.log"));
    let said = std::fs::read_to_string(&log).unwrap();
    assert!(!said.contains("snapshot received"), "it was interrupted: {said}");
    assert!(part_bytes(&cluster, behind) > 1 << 20, "the part is still there");
    cluster.proxies.as_ref().unwrap().heal();
    cluster.start(behind, &[]);
    let words = wait("a snapshot reaches it", || {
        let words = cluster.members[behind].process.as_ref().unwrap().words();
        words.contains("snapshot received").then_some(words)
    });
    assert!(words.contains("receiving the rest of a snapshot"), "it began again: {words}");
    let newest = applied(&cluster, cluster.leader());
    wait("it has caught up", || {
        (number(&cluster.ask(behind, "status")?, "applied") >= newest).then_some(())
    });
    let read = cluster.ask(behind, &format!("get large-{}", KEYS - 1)).unwrap();
    assert_eq!(field(&read, "value").as_deref(), Some(&*value), "the whole state has arrived");
}

#[test]
fn a_leader_whose_disk_went_back_takes_nothing_with_it() {
    let mut cluster = Cluster::found(3);
    let load = Load::begin(&cluster.addresses(), 3);
    load.goes_on(50);
    let victim = cluster.leader();
    cluster.kill(victim);
    let (data, copy) = (cluster.data(victim), cluster.dir.path().join("copy"));
    assert!(Command::new("cp").arg("-a").args([&data, &copy]).status().unwrap().success());
    cluster.start(victim, &[]);
    // It leads again, so the other members have no record of acknowledgements from it.
    let id = cluster.id(victim);
    wait("it leads again", || {
        let leader = cluster.leader();
        if leader != victim {
            cluster.ask(leader, &format!("transfer {id}"));
        }
        (leader == victim).then_some(())
    });
    load.goes_on(50);
    cluster.kill(victim);
    std::fs::remove_dir_all(&data).unwrap();
    std::fs::rename(&copy, &data).unwrap();
    let others: Vec<usize> = (0..3).filter(|at| *at != victim).collect();
    load.goes_on(20);
    cluster.start(victim, &[]);
    load.goes_on(50);
    load.judge(&cluster, &others);
}

#[test]
fn leadership_handed_around_under_load_loses_nothing() {
    let cluster = Cluster::found(3);
    let load = Load::begin(&cluster.addresses(), 4);
    for to in [1, 2, 0, 2, 1, 0] {
        load.goes_on(30);
        let id = cluster.id(to);
        wait("it leads", || {
            let leader = cluster.leader();
            if leader != to {
                cluster.ask(leader, &format!("transfer {id}"));
            }
            (leader == to).then_some(())
        });
    }
    load.goes_on(30);
    load.judge(&cluster, &[0, 1, 2]);
}
