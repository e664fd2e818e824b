//! Tests that a cluster comes back from a backup, or from the disk of its last member.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::common::{Cluster, field, tenure, wait};

/// Long enough that nothing expires by itself, short enough to wait for the quiet period.
const TTL_MS: u64 = 4_000;

/// A field of one line of JSON.
fn json(line: &str, name: &str) -> String {
    let (_, rest) = line.split_once(&format!("\"{name}\":")).unwrap_or_else(|| panic!("{line}"));
    let end = rest.find([',', '}']).unwrap();
    rest[..end].trim_matches('"').to_owned()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn back_up(cluster: &Cluster, at: usize, file: &Path) -> String {
    let address = format!("127.0.0.1:{}", cluster.members[at].clients);
    let ended = tenure(&["backup", text(file), "--addr", &address, "--output", "json"]);
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    ended.out
}

fn restore(arguments: &[&str]) -> String {
    let ended = tenure(&[&["restore", "--output", "json"], arguments].concat());
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    ended.out
}

/// Room for members that are not initial members.
fn empty() -> Cluster {
    Cluster::new()
}

/// Makes a backup of a cluster of one, and ends the cluster.
fn past(dir: &Path) -> PathBuf {
    let mut cluster = Cluster::found(1);
    cluster.ok(&format!("lease 1 {TTL_MS} ana"));
    cluster.ok("lock 1 deploy");
    cluster.ok("put kept yes");
    let file = dir.join("backup");
    back_up(&cluster, 0, &file);
    cluster.kill(0);
    file
}

/// Adds members with --join until three vote.
fn grow_to_three(cluster: &mut Cluster) {
    let seed = format!("127.0.0.1:{}", cluster.members[0].members);
    while cluster.members.len() < 3 {
        let at = cluster.add();
        cluster.start_joining(at, &seed, &[]);
        wait("it follows", || {
            let status = cluster.ask(at, "status")?;
            status.contains("role=learner").then_some(())
        });
        let id = cluster.id(at);
        cluster.ok(&format!("promote {id}"));
    }
    cluster.agree(&[0, 1, 2]);
}

#[test]
fn what_was_acknowledged_before_a_backup_is_in_it_and_locks_are_not() {
    let mut cluster = Cluster::found(3);
    let leader = cluster.leader();
    cluster.ok(&format!("lease 1 {TTL_MS} ana"));
    cluster.ok(&format!("lease 2 {TTL_MS} bob"));
    let first = field(&cluster.ok("lock 1 deploy"), "token").unwrap();
    cluster.ok("lock 2 deploy queue");
    let file = cluster.dir.path().join("backup");

    // Writes go on before, during and after the backup; a queue exists.
    let (stop, written) = (AtomicBool::new(false), AtomicU64::new(0));
    let (before, said) = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Acquire) {
                let next = written.load(Ordering::Acquire);
                cluster.ok(&format!("put key/{next} {next}"));
                cluster.ok("renew 1 2");
                written.store(next + 1, Ordering::Release);
            }
        });
        wait("there is a load and a queue", || {
            let locks = cluster.ask(leader, "locks")?;
            let loaded = written.load(Ordering::Acquire) >= 50 && locks.contains("waiting=1");
            loaded.then_some(())
        });
        let before = written.load(Ordering::Acquire);
        // Any member can make the backup, also a follower.
        let said = back_up(&cluster, (leader + 1) % 3, &file);
        wait("writes go on", || (written.load(Ordering::Acquire) > before + 5).then_some(()));
        stop.store(true, Ordering::Release);
        cluster.ok(&format!("unlock 1 deploy {first}"));
        (before, said)
    });
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let beside: Vec<_> =
        fs::read_dir(cluster.dir.path()).unwrap().map(|f| f.unwrap().file_name()).collect();
    assert!(beside.iter().all(|name| !name.to_string_lossy().ends_with(".tmp")), "{beside:?}");
    // A grant after the backup, which does not contain it.
    let locks = cluster.ok("locks");
    let last: u64 = field(&locks, "token").unwrap().parse().unwrap();
    assert!(last > first.parse().unwrap(), "{locks}");
    let id = field(&cluster.ask(leader, "status").unwrap(), "cluster").unwrap();
    (0..3).for_each(|at| cluster.kill(at));

    let mut new = empty();
    let at = new.add();
    // The longest ttl and lock-delay that the cluster allowed, less the time for which all clients were stopped.
    let stopped = format!("{}ms", 3_660_000 - TTL_MS);
    let restored =
        restore(&[text(&file), "--data", text(&new.data(at)), "--stopped-for", &stopped]);
    assert_eq!((json(&said, "cluster"), json(&restored, "cluster")), (id.clone(), id));
    assert_eq!((json(&said, "epoch"), json(&restored, "epoch")), ("0".into(), "1".into()));
    // Each of the two is rounded up by a millisecond.
    assert_eq!(json(&restored, "quiet_ms"), (TTL_MS + 2).to_string());
    new.start(at, &[]);
    new.leader();
    let status = new.ask(at, "status").unwrap();
    assert_eq!(field(&status, "incarnation").unwrap(), json(&restored, "incarnation"));
    assert_eq!(field(&status, "epoch").unwrap(), "1");
    assert!(new.ok("locks").starts_with("ok count=0 "));
    new.ok("lease 7 60000 cleo");
    let refused = new.ask(at, "lock 7 deploy try").unwrap();
    assert!(refused.starts_with("refused QUIET"), "{refused}");
    for key in 0..before {
        let value = field(&new.ok(&format!("get key/{key}")), "value");
        assert_eq!(value, Some(key.to_string()), "key/{key} of {before}");
    }
    let granted: u64 =
        field(&new.ok("lock 7 deploy wait 20000"), "token").unwrap().parse().unwrap();
    assert!(granted > last && granted >> 48 == 1, "{granted} {last}");
}

#[test]
fn the_quiet_period_after_a_restore_is_shown_with_its_reason() {
    let dir = tempfile::tempdir().unwrap();
    let file = past(dir.path());
    let mut new = empty();
    let at = new.add();
    restore(&[text(&file), "--data", text(&new.data(at))]);
    new.start(at, &[]);
    new.leader();
    let address = format!("127.0.0.1:{}", new.members[at].clients);
    let told = |arguments: &[&str]| {
        let flags = arguments.iter().position(|it| *it == "--").unwrap_or(arguments.len());
        let (before, after) = arguments.split_at(flags);
        let ended = tenure(&[before, &["--addr", &address], after].concat());
        format!("{}{}", ended.out, ended.err)
    };
    // The longest ttl and lock-delay that the cluster allowed: a little more than an hour.
    let why = "more, because clients of the cluster before the restore may still hold locks";
    let shown: [&[&str]; 5] = [
        &["cluster", "status"],
        &["doctor"],
        &["explain", "deploy"],
        &["lock", "deploy", "--wait", "1s", "--hold"],
        &["run", "deploy", "--wait", "1s", "--", "true"],
    ];
    for arguments in shown {
        let said = told(arguments);
        assert!(said.contains("restored") && said.contains(why), "{arguments:?}: {said}");
        assert!(said.contains("no lock is granted for 1h"), "{arguments:?}: {said}");
    }
    for arguments in [&["cluster", "status"][..], &["doctor"]] {
        let ended = tenure(&[arguments, &["--addr", &address]].concat());
        assert_eq!(
            ended.code,
            Some(1),
            "a cluster that grants nothing is not healthy: {}",
            ended.out
        );
    }
    for arguments in [&["cluster", "status"][..], &["explain", "deploy"]] {
        let said = told(&[arguments, &["--output", "json"]].concat());
        let quiet_ms: u64 = json(&said, "quiet_ms").parse().unwrap();
        assert!((3_000_000..=3_660_002).contains(&quiet_ms), "{said}");
    }
    let doctor = told(&["doctor", "--output", "json"]);
    assert!(doctor.contains(why), "{doctor}");
}

#[test]
fn a_restored_member_grows_to_three_and_other_restores_are_kept_out() {
    let mut cluster = empty();
    let file = past(cluster.dir.path());
    let at = cluster.add();
    let (clients, members) = (cluster.members[at].clients, cluster.members[at].members);
    let (clients, members) = (format!("127.0.0.1:{clients}"), format!("127.0.0.1:{members}"));
    let named = ["--name", "m0", "--clients", &clients, "--members", &members, "--waive-quiet"];
    let data = cluster.data(at);
    let first = restore(&[&[text(&file), "--data", text(&data)], &named[..]].concat());
    assert_eq!(json(&first, "quiet_ms"), "null");
    cluster.start(at, &[]);
    grow_to_three(&mut cluster);
    assert_eq!(field(&cluster.ok("get kept"), "value").as_deref(), Some("yes"));
    (0..3).for_each(|at| cluster.kill(at));

    // The ledger gives the next restore another epoch.
    let aside = cluster.dir.path().join("aside");
    let second = restore(&[text(&file), "--data", text(&aside)]);
    assert_eq!((json(&first, "epoch"), json(&second, "epoch")), ("1".into(), "2".into()));
    let ledger = fs::read_to_string(cluster.dir.path().join("backup.ledger")).unwrap();
    let lines: Vec<&str> = ledger.lines().collect();
    let line = |said: &str| {
        format!("{} {} {}", json(said, "epoch"), json(said, "incarnation"), json(said, "cluster"))
    };
    assert_eq!(lines, [line(&first), line(&second)]);

    // A restore that does not know the first one gets the same epoch, but another incarnation. It takes the place and
    // address of the first; the other members of the first must not accept it.
    fs::rename(&data, cluster.dir.path().join("first")).unwrap();
    let other = cluster.dir.path().join("other.ledger");
    let third = restore(
        &[&[text(&file), "--data", text(&data), "--ledger", text(&other)], &named[..]].concat(),
    );
    assert_eq!(json(&third, "epoch"), "1");
    assert_ne!(json(&third, "incarnation"), json(&first, "incarnation"));
    cluster.start(0, &[]);
    cluster.start(1, &[]);
    let says = |at: usize, what: &str| {
        let process = cluster.members[at].process.as_ref().unwrap();
        let words = process.words();
        let line =
            words.lines().find(|line| line.contains(what) && line.contains("another restore"));
        line.map(str::to_owned)
    };
    // Whichever member dials, one reports that it refuses and the other that it was refused.
    wait("both say so", || {
        let refuses = |at| says(at, "a connection was refused").is_some();
        let refused = |at| says(at, "cannot reach a member").is_some();
        (refuses(0) && refused(1) || refuses(1) && refused(0)).then_some(())
    });
    let status = cluster.ask(1, "status").unwrap();
    assert!(status.contains("serving=false"), "{status}");
}

/// Every file below a directory, with its bytes and its time of change.
fn contents(path: &Path) -> BTreeMap<PathBuf, (Vec<u8>, std::time::SystemTime)> {
    let mut all = BTreeMap::new();
    for found in fs::read_dir(path).unwrap().map(Result::unwrap) {
        if found.file_type().unwrap().is_dir() {
            all.extend(contents(&found.path()));
        } else {
            let changed = found.metadata().unwrap().modified().unwrap();
            all.insert(found.path(), (fs::read(found.path()).unwrap(), changed));
        }
    }
    all
}

#[test]
fn the_last_member_s_disk_brings_a_cluster_back_after_a_lost_quorum() {
    let mut cluster = Cluster::found(3);
    cluster.ok(&format!("lease 1 {TTL_MS} ana"));
    let old: u64 = field(&cluster.ok("lock 1 deploy"), "token").unwrap().parse().unwrap();
    for key in 0..30 {
        cluster.ok(&format!("put key/{key} {key}"));
    }
    let kept = cluster.leader();
    let new = cluster.dir.path().join("new");
    let from = cluster.data(kept);
    let again = ["restore", "--from-data", text(&from), "--data", text(&new)];
    let refused = tenure(&again);
    assert_eq!(refused.code, Some(78), "{}", refused.err);
    assert!(refused.err.contains("is in use by process"), "{}", refused.err);

    for at in (0..3).filter(|at| *at != kept) {
        cluster.kill(at);
        fs::remove_dir_all(cluster.data(at)).unwrap();
    }
    cluster.kill(kept);
    let before = contents(&from);
    let said = restore(&["--from-data", text(&from), "--data", text(&new), "--waive-quiet"]);
    assert_eq!(contents(&from), before, "what is restored from is not changed");
    assert_eq!(json(&said, "epoch"), "1");
    assert!(!new.join("copied").exists());

    let mut restored = empty();
    let at = restored.add();
    fs::rename(&new, restored.data(at)).unwrap();
    restored.start(at, &[]);
    restored.leader();
    for key in 0..30 {
        let value = field(&restored.ok(&format!("get key/{key}")), "value");
        assert_eq!(value, Some(key.to_string()), "key/{key}");
    }
    restored.ok("lease 1 60000 ana");
    let token: u64 = field(&restored.ok("lock 1 deploy"), "token").unwrap().parse().unwrap();
    assert!(token > old);
    let members = restored.ok("members");
    assert!(members.starts_with("ok count=1 "), "{members}");
    grow_to_three(&mut restored);
}

#[test]
fn every_mistake_has_one_line_and_its_exit_code() {
    let dir = tempfile::tempdir().unwrap();
    let file = past(dir.path());
    let path = |name: &str| dir.path().join(name);
    let (fresh, given) = (path("fresh"), path("given"));
    let good = [text(&file), "--data", text(&fresh)];
    let refuse = |code: i32, arguments: &[&str], words: &str| {
        let ended = tenure(&[&["restore"], arguments].concat());
        assert_eq!(ended.code, Some(code), "{arguments:?}: {}{}", ended.out, ended.err);
        assert!(ended.err.contains(words), "{arguments:?}: {}", ended.err);
        if code != 2 {
            assert_eq!(ended.err.lines().count(), 1, "{}", ended.err);
            assert!(ended.err.starts_with("error: ") && ended.err.contains("; try "));
        }
        assert!(!fresh.join("identity.toml").exists(), "{arguments:?}");
    };
    let with = |more: &[&'static str]| -> Vec<String> {
        good.iter().chain(more).map(|&word| word.to_owned()).collect()
    };
    let refuse_with = |code, more: &[&'static str], words| {
        let arguments = with(more);
        refuse(code, &arguments.iter().map(String::as_str).collect::<Vec<_>>(), words);
    };

    // Files.
    let bytes = fs::read(&file).unwrap();
    let damage = |name: &str, bytes: &[u8]| {
        fs::write(path(name), bytes).unwrap();
        path(name)
    };
    let mut bad = bytes.clone();
    let middle = bad.len() / 2;
    bad[middle] ^= 1;
    let bad = damage("bad", &bad);
    refuse(1, &[text(&bad), "--data", text(&fresh)], "it is damaged: its checksum");
    let cut = damage("cut", &bytes[..bytes.len() - 9]);
    refuse(1, &[text(&cut), "--data", text(&fresh)], "it is damaged: its length");
    let other = damage("other", b"dear diary, today I lost a quorum");
    refuse(1, &[text(&other), "--data", text(&fresh)], "it is not a backup");
    refuse(1, &[text(&path("none")), "--data", text(&fresh)], "No such file");
    refuse_with(1, &["--cluster", "another"], "not of another");

    // Directories.
    fs::create_dir(path("full")).unwrap();
    fs::write(path("full").join("letters"), "").unwrap();
    refuse(78, &[text(&file), "--data", text(&path("full"))], "is not empty: it has \"letters\"");
    fs::create_dir(path("hollow")).unwrap();
    refuse(1, &["--from-data", text(&path("hollow")), "--data", text(&fresh)], "holds no state");
    assert_eq!(fs::read_dir(path("hollow")).unwrap().count(), 0);

    // Epochs and ledgers.
    restore(&[text(&file), "--data", text(&given), "--epoch", "3"]);
    refuse_with(1, &["--epoch", "3"], "epoch 3 was given to another restore");
    refuse_with(1, &["--epoch", "2"], "epoch 2 is too low: 4 is");
    // 7 << 48 | 1 is the first token of epoch 7.
    refuse_with(
        1,
        &["--epoch", "5", "--above", "1970324836974593"],
        "no token of epoch 5 is above",
    );
    refuse_with(1, &["--above", "9223090561878065153"], "no epoch is left");
    let nowhere = path("missing").join("ledger");
    let closed = [&good[..], &["--ledger", text(&nowhere)]].concat();
    refuse(78, &closed, "cannot write down the epoch");
    fs::write(path("strange"), "3 000000000000000a another\n").unwrap();
    refuse(
        1,
        &[&good[..], &["--ledger", text(&path("strange"))]].concat(),
        "is of cluster another",
    );

    // Arguments.
    refuse(2, &["--data", text(&fresh)], "required");
    refuse(2, &[text(&file)], "--data");
    refuse(2, &[&good[..], &["--from-data", text(&given)]].concat(), "cannot be used with");
    for more in [["--epoch", "0"], ["--epoch", "32768"], ["--above", "0"], ["--above", "x"]] {
        refuse_with(2, &more, "invalid value");
    }
    let backup = tenure(&["backup", text(&path("b")), "--addr", "127.0.0.1:1"]);
    assert_eq!(backup.code, Some(69));
    assert!(backup.err.contains("no backup from 127.0.0.1:1") && !path("b").exists());

    // A refused restore does not block the next one. Without a writable ledger, a restore needs an epoch.
    let said = tenure(&[&["restore"], &closed[..], &["--epoch", "9"]].concat());
    assert_eq!(said.code, Some(0), "{}", said.err);
    assert!(
        said.out.contains("written down NOWHERE") && said.out.contains("tenure serve"),
        "{}",
        said.out
    );
    let above =
        restore(&[text(&file), "--data", text(&path("above")), "--above", "1970324836974593"]);
    assert_eq!(json(&above, "epoch"), "8");
    let help = tenure(&["restore", "--help"]);
    assert!(help.out.contains("Examples:") && help.out.contains("--from-data"));
}
