//! Tests that `tenure history --verify` reports an archive that is empty, has just begun, or lacks something.

use std::fs;
use std::path::{Path, PathBuf};

use crate::ports::free_port;
use crate::stage::{Member, Ran, at, objects, run, serve, wait};

/// The segments of an archive, oldest first.
fn segments(dir: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(dir).into_iter().flatten().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> =
        files.filter(|it| it.extension().is_some_and(|it| it == "events")).collect();
    files.sort();
    files
}

/// A copy of an archive.
fn copy(of: &Path) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for file in segments(of) {
        fs::copy(&file, dir.path().join(file.file_name().unwrap())).unwrap();
    }
    dir
}

fn verify(dir: &Path) -> Ran {
    run(&["history", "--verify", dir.to_str().unwrap()])
}

#[test]
fn an_archive_without_events_is_not_called_fine() {
    let dir = tempfile::tempdir().unwrap();
    let ran = verify(dir.path());
    assert_eq!(ran.code, 78, "{ran:?}");
    assert!(ran.err.contains("it has no segment"), "{ran:?}");
    fs::write(dir.path().join(format!("{:020}.events", 1)), b"TENARC\0\x01").unwrap();
    let begun = verify(dir.path());
    assert_eq!(begun.code, 78, "{begun:?}");
    assert!(begun.err.contains("nothing was checked: no event is in "), "{begun:?}");
}

#[test]
fn an_archive_that_lacks_something_is_reported_and_ends_with_1() {
    // Segments are a 64th of this.
    let member = Member::found_with("small", &["--archive-bytes", "4194304"]);
    let archive = member.data.join("archive");
    wait("the archive has five segments", || {
        let load = ["bench", "--clients", "8", "--duration", "200ms", "--warm-up", "0s"];
        assert_eq!(at(&member.addr, &load).code, 0);
        (segments(&archive).len() > 4).then_some(())
    });
    let whole = copy(&archive);
    let ran = verify(whole.path());
    assert_eq!(ran.code, 0, "{ran:?}");
    let number =
        |path: &Path| -> u64 { path.file_stem().unwrap().to_str().unwrap().parse().unwrap() };

    let lacking = copy(whole.path());
    let files = segments(lacking.path());
    let (from, last) = (number(&files[2]), number(&files[3]) - 1);
    fs::remove_file(&files[2]).unwrap();
    let ran = verify(lacking.path());
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.out.contains("nothing missing unmarked   BROKEN 1 times"), "{ran:?}");
    assert!(ran.out.contains(&format!("revisions {from} to {last} are missing in ")), "{ran:?}");
    // Another member has these events: all are checked, and the first archive is still reported.
    let dirs = [lacking.path().to_str().unwrap(), whole.path().to_str().unwrap()];
    let both = run(&["history", "--verify", dirs[0], dirs[1]]);
    assert_eq!(both.code, 1, "{both:?}");
    assert!(!both.out.contains("incomplete"), "{both:?}");

    let damaged = copy(whole.path());
    let file = &segments(damaged.path())[1];
    let mut bytes = fs::read(file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x40;
    fs::write(file, bytes).unwrap();
    let ran = verify(damaged.path());
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.out.contains(&format!("DAMAGED {}: its last ", file.display())), "{ran:?}");
    assert!(ran.out.contains("\nincomplete: no archive has all events of revisions "), "{ran:?}");
}

#[test]
fn a_hole_makes_unknown_who_held_a_lock_and_no_answer_ignores_it() {
    let dir = tempfile::tempdir().unwrap();
    let (clients, members) = (free_port(), free_port());
    let bootstrap = format!("solo=127.0.0.1:{members}");
    let more = ["--bootstrap", &bootstrap, "--archive-bytes", "4194304"];
    let archive = dir.path().join("solo/archive");
    let (stdin, addr) = serve(dir.path(), "solo", clients, members, &more);
    let serves = || {
        wait("the member serves", || {
            (at(&addr, &["history", "past/hole"]).code == 0).then_some(())
        });
    };
    serves();
    let ok = |arguments: &[&str]| {
        let ran = at(&addr, arguments);
        assert_eq!(ran.code, 0, "{arguments:?}: {ran:?}");
        ran.out
    };
    let json = |arguments: &[&str]| objects(&ok(&[arguments, &["--output", "json"]].concat()));
    let busy_until = |segments_there: usize| {
        wait("the archive grows", || {
            ok(&["bench", "--clients", "8", "--duration", "200ms", "--warm-up", "0s"]);
            (segments(&archive).len() > segments_there).then_some(())
        });
    };
    // Ana has it in the first segment, and eve in one of the middle.
    let lease = |client: &str| {
        let lease = json(&["lease", "grant", "--ttl", "10m", "--client", client]).remove(0);
        lease["lease"].as_str().unwrap().to_owned()
    };
    let last_change = || {
        let changes = json(&["history", "past/hole"]);
        changes[changes.len() - 2]["events"][0]["at"].as_str().unwrap().to_owned()
    };
    let (ana, eve) = (lease("ana"), lease("eve"));
    let token = ok(&["try", "past/hole", "--lease", &ana]);
    let of_ana = last_change();
    busy_until(2);
    ok(&["unlock", "past/hole", "--lease", &ana, "--token", token.trim()]);
    ok(&["try", "past/hole", "--lease", &eve]);
    let of_eve = last_change();
    let at_once = |at: &str| json(&["history", "past/hole", "--at", at]).remove(0);
    assert_eq!(at_once(&of_ana)["holders"][0]["client"], "ana");
    assert_eq!(at_once(&of_eve)["holders"][0]["client"], "eve");
    let there = segments(&archive).len();
    busy_until(there + 1);
    drop(stdin);
    wait("the member has ended", || {
        std::net::TcpListener::bind(("127.0.0.1", members)).ok().map(drop)
    });
    let files = segments(&archive);
    files[1..=there].iter().for_each(|file| fs::remove_file(file).unwrap());
    let (_stdin, _) = serve(dir.path(), "solo", clients, members, &more);
    serves();
    // What is missing came after ana's time: known, except how it ended.
    let known = at_once(&of_ana);
    assert_eq!((&known["known"], &known["holders"][0]["client"]), (&true.into(), &"ana".into()));
    assert_eq!(known["holders"][0]["end_known"], false, "{known}");
    let unknown = at_once(&of_eve);
    assert_eq!(unknown["known"], false, "{unknown}");
    assert_eq!(unknown["holders"], serde_json::json!([]), "{unknown}");
    assert!(unknown["unknown_because"].as_str().unwrap().contains(" are missing"), "{unknown}");
    let text = ok(&["history", "past/hole", "--at", &of_eve]);
    assert!(text.contains("\nheld by  unknown: revisions "), "{text}");
    assert!(!text.contains("ana") && !text.contains("free"), "{text}");
}

#[test]
fn a_client_is_refused_where_the_answer_would_ignore_it() {
    for flag in [&["--at", "03:14"], &["--from", "1"]] {
        let ran = run(&[&["history", "past/x", "--client", "ana"][..], flag].concat());
        assert_eq!(ran.code, 2, "{ran:?}");
        let says = format!("--client selects events of a client and does not go with {}", flag[0]);
        assert!(ran.err.contains(&says), "{ran:?}");
    }
    let ran = run(&["history", "--verify", "/nowhere", "--lost"]);
    assert_eq!(ran.code, 2, "{ran:?}");
}
