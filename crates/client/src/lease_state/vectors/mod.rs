//! Prints the traces in `clients/vectors`, which every client library replays, and compares them with the files there.
//!
//! Each trace is a list of inputs with times, and what the shipped lease state returned for them. The format is in
//! `clients/vectors/README.md`. Printed anew by `TENURE_FIX=1 cargo test -p tenure --lib vectors`.

mod cases;
mod record;
mod schedule;
mod sequence;
mod timing;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use record::Trace;

use crate::plant;

/// The fewest traces that the files together must have, and the most bytes.
const TRACES_MIN: usize = 500;
const BYTES_MAX: usize = 2_000_000;

/// Each file, and the traces in it.
fn files() -> Vec<(&'static str, Vec<Trace>)> {
    vec![
        ("timing.jsonl", timing::all()),
        ("renewals.jsonl", cases::renewals()),
        ("acknowledgements.jsonl", cases::acknowledgements()),
        ("losses.jsonl", cases::losses()),
        ("suspend.jsonl", cases::suspends()),
        ("changed.jsonl", cases::changed()),
        ("locks.jsonl", cases::locks()),
        ("schedules.jsonl", schedule::all()),
        ("sequences.jsonl", sequence::all()),
    ]
}

#[test]
fn the_vectors_of_the_other_clients_are_what_the_lease_state_does() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../clients/vectors");
    let (mut names, mut bytes) = (BTreeSet::new(), 0);
    for (file, traces) in files() {
        let text: String = traces.iter().map(|trace| format!("{}\n", trace.line())).collect();
        for trace in &traces {
            assert!(names.insert(trace.name().to_owned()), "two traces `{}`", trace.name());
        }
        bytes += text.len();
        let path = directory.join(file);
        if std::env::var_os("TENURE_FIX").is_some() {
            fs::write(&path, &text).unwrap();
        }
        let kept = fs::read_to_string(&path).unwrap();
        assert!(kept == text, "clients/vectors/{file} is old: run with TENURE_FIX=1");
    }
    println!("vectors traces={} bytes={bytes}", names.len());
    assert!(names.len() >= TRACES_MIN, "{} traces", names.len());
    assert!(bytes <= BYTES_MAX, "{bytes} bytes");
}

#[test]
fn the_vectors_have_every_outcome_often_enough() {
    let all: String = files().iter().flat_map(|(_, traces)| traces).map(Trace::line).collect();
    for (outcome, least) in [
        ("\"cause\":\"cluster_unreachable\"", 300),
        ("\"cause\":\"local_stall\"", 100),
        ("\"cause\":\"suspended\"", 100),
        ("\"cause\":\"credentials_refused\"", 50),
        ("\"cause\":\"gone\"", 50),
        ("\"cause\":\"released\"", 20),
        ("\"state\":\"overdue\"", 300),
        ("\"read_holdings\":true", 100),
        ("\"too_late\"", 10),
        ("\"say\":\"stopped\"", 40),
        ("\"say\":\"release\"", 50),
        ("\"refused\":\"window\"", 10),
        ("\"refused\":\"grace\"", 10),
        ("\"refused\":\"ttl\"", 4),
    ] {
        let found = all.matches(outcome).count();
        assert!(found >= least, "{outcome}: {found} times, expected at least {least}");
    }
}

#[test]
fn every_planted_bug_changes_a_vector() {
    let text =
        || -> String { files().iter().flat_map(|(_, traces)| traces).map(Trace::line).collect() };
    let right = text();
    let mut missed = Vec::new();
    for name in plant::ALL {
        plant::select(Some(name));
        if text() == right {
            missed.push(*name);
        }
    }
    plant::select(None);
    assert!(missed.is_empty(), "no vector shows {missed:?}");
}
