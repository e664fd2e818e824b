//! Tests that the audit log has every administrative act once, across restarts, and names what it misses.

use std::path::Path;
use std::time::Duration;

use crate::alone::settings;
use crate::bounded::wait;
use serde_json::Value;
use tenure_core::codec::encode_request;
use tenure_core::outcome::Answer;
use tenure_core::request::{
    Acquire, Ask, AskLease, AskWait, Asks, Command, Hold, LeaseRef, NewLease, Purpose, Request,
    RequestId, Urgency,
};
use tenure_server::{AuditTo, RunningServer, ServerSettings, start};
use tenure_types::{LeaseId, Limit, Mode, Revision};

const TIMEOUT: Duration = Duration::from_secs(60);

/// Runs a member on this directory, and stops it when the work is done.
fn run<T>(dir: &Path, audit: AuditTo, work: impl FnOnce(&RunningServer) -> T) -> T {
    let running = start(ServerSettings { audit, ..settings(dir) }).unwrap();
    running.member.read(TIMEOUT, |_| ()).unwrap();
    let done = work(&running);
    running.stop();
    done
}

fn submit(running: &RunningServer, principal: &str, command: Command<'_>) -> Answer {
    let mut bytes = Vec::new();
    encode_request(&Request { principal, id: RequestId::None, command }, &mut bytes);
    let mut outcomes = running.member.submit(vec![bytes.into()], Duration::ZERO, TIMEOUT);
    outcomes.remove(0).unwrap().result.unwrap()
}

fn set_limit(running: &RunningServer, principal: &str, value: u64) {
    submit(running, principal, Command::SetLimits(vec![(Limit::MetadataBytes, value)]));
}

fn revision(running: &RunningServer) -> u64 {
    running.member.read_stale(|machine| machine.revision().0).unwrap()
}

/// The records of these acts in a file.
fn records(file: &Path, act: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let all = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    all.filter(|record| record["act"] == act).collect()
}

/// Waits until the audit log has reached the newest revision.
fn reached(dir: &Path, running: &RunningServer) {
    let newest = revision(running);
    wait("the position is saved", || {
        let text = std::fs::read_to_string(dir.join("m0/audit.position")).ok()?;
        let saved: u64 = text.trim_end().rsplit_once(' ')?.1.parse().ok()?;
        (saved >= newest).then_some(())
    });
}

#[test]
fn acts_from_before_a_restart_are_written_once() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("audit");
    // Nothing is written to the file while the member keeps records in memory.
    run(dir.path(), AuditTo::Memory, |running| {
        set_limit(running, "ann", 1_000);
        set_limit(running, "", 1_001);
    });
    let stopped = tenure_wire::wall::utc(tenure_server::os::wall_ms());
    for _ in 0..2 {
        run(dir.path(), AuditTo::File(file.clone()), |running| {
            wait("they are written", || (records(&file, "set_limits").len() == 2).then_some(()));
            reached(dir.path(), running);
        });
    }
    let acts = records(&file, "set_limits");
    assert_eq!(acts.len(), 2, "{acts:?}");
    assert_eq!(acts[0]["late"], true);
    assert_eq!(acts[0]["target"], "metadata_bytes=1000");
    // Times of one form compare as texts.
    assert!(acts[0]["time"].as_str().unwrap() <= stopped.as_str(), "{acts:?} after {stopped}");
    assert!(records(&file, "gap").is_empty());

    // The position is lost, or behind by a crash: the end of the file says what is written.
    std::fs::remove_file(dir.path().join("m0/audit.position")).unwrap();
    run(dir.path(), AuditTo::File(file.clone()), |running| {
        set_limit(running, "ben", 1_002);
        wait("the new act is written", || (records(&file, "set_limits").len() >= 3).then_some(()));
        reached(dir.path(), running);
    });
    let acts = records(&file, "set_limits");
    assert_eq!(acts.len(), 3, "{acts:?}");
    assert_eq!(acts[2]["late"], Value::Null);
}

#[test]
fn revisions_that_the_history_no_longer_has_are_marked_as_a_gap() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("audit");
    let first = run(dir.path(), AuditTo::File(file.clone()), |running| {
        set_limit(running, "ann", 1_000);
        wait("it is written", || (records(&file, "set_limits").len() == 1).then_some(()));
        reached(dir.path(), running);
        revision(running)
    });
    let kept = run(dir.path(), AuditTo::Memory, |running| {
        set_limit(running, "ann", 1_001);
        let kept = revision(running) + 1;
        // A compaction would keep the act.
        for revisions in [1, Limit::HistoryRevisions.default_value()] {
            let limits = vec![(Limit::HistoryRevisions, revisions)];
            submit(running, "", Command::SetLimits(limits));
        }
        set_limit(running, "ann", 1_002);
        kept
    });
    run(dir.path(), AuditTo::File(file.clone()), |running| {
        wait("it is written", || (records(&file, "set_limits").len() == 4).then_some(()));
        reached(dir.path(), running);
    });
    let gaps = records(&file, "gap");
    assert_eq!(gaps.len(), 1, "{gaps:?}");
    let from = gaps[0]["from_revision"].as_u64().unwrap();
    assert!(from > first && from < kept, "{from}: after {first}");
    assert_eq!(gaps[0]["to_revision"], kept - 1);
    assert_eq!(records(&file, "set_limits")[1]["revision"], kept);

    // Nothing is written twice after the gap either.
    run(dir.path(), AuditTo::File(file.clone()), |running| reached(dir.path(), running));
    assert_eq!((records(&file, "gap").len(), records(&file, "set_limits").len()), (1, 4));
}

#[test]
fn a_compaction_is_an_act_and_erases_no_act_that_is_not_written_yet() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("audit");
    let at = run(dir.path(), AuditTo::Memory, |running| {
        set_limit(running, "ann", 1_000);
        let at = revision(running);
        submit(running, "mallory", Command::Compact { keep: Revision(at + 1) });
        at
    });
    run(dir.path(), AuditTo::File(file.clone()), |running| reached(dir.path(), running));
    let acts = records(&file, "set_limits");
    assert_eq!(acts.len(), 1, "{acts:?}");
    assert_eq!(acts[0]["revision"], at);
    let compactions = records(&file, "compact");
    assert_eq!(compactions.len(), 1, "{compactions:?}");
    let compaction = &compactions[0];
    assert_eq!((&compaction["principal"], &compaction["target"]), (&"mallory".into(), &"1".into()));
    assert_eq!(compaction["revision"], at + 1);
    assert!(records(&file, "gap").is_empty());
}

#[test]
fn a_min_hold_that_an_operator_ends_is_an_act() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("audit");
    run(dir.path(), AuditTo::File(file.clone()), |running| {
        let id = LeaseId::new(7).unwrap();
        let answer = submit(
            running,
            "",
            Command::Acquire(Acquire {
                lease: AskLease::New(NewLease { id, ttl_ms: 60_000, client: "c", metadata: b"" }),
                locks: Asks::One(Ask { lock: "nightly", mode: Mode::Exclusive }),
                any: false,
                wait: AskWait::No,
                metadata: b"",
                lock_delay_ms: 0,
                max_hold_ms: None,
                min_hold_ms: 3_600_000,
                progress_within_ms: 0,
                supersede: None,
                resume: false,
                priority: 0,
                purpose: Purpose::Lock,
                independent: false,
            }),
        );
        let Answer::Acquired(acquired) = answer else { panic!("{answer:?}") };
        let token = acquired.grants.as_slice()[0].token;
        let lease = LeaseRef::Id(id);
        submit(running, "", Command::Release(Hold { lease, lock: "nightly", token }));
        let (by, reason, urgency) = ("ops", "the file came late", Urgency::Cooling);
        submit(running, "", Command::Force { lock: "nightly", token, by, reason, urgency });
        let forced = || (!records(&file, "force").is_empty()).then_some(());
        wait("the act is written", forced);
    });
    let acts = records(&file, "force");
    assert_eq!(acts.len(), 1, "{acts:?}");
    assert_eq!((&acts[0]["target"], &acts[0]["who"]), (&"nightly".into(), &"ops".into()));
    assert_eq!(acts[0]["why"], "the file came late");
}
