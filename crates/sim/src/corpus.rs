//! Writes the inputs from which the fuzz targets start.
//!
//! The inputs are sequences of the generator in the formats that the targets read. They already reach deep, so a fuzzer
//! continues from there instead of finding the formats by chance.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use bytes::Bytes;
use tenure_core::Machine;
use tenure_core::codec::seal_entry;
use tenure_core::outcome::Effects;
use tenure_raft::{
    AnnouncedSnapshot, MemberId, Membership, Message, Observed, Step as RaftStep, StepKind,
};
use tenure_store::{LogEntry, LogId};
use tenure_types::{Epoch, Term};

use crate::generate::{Generator, SequenceStep, StepCommand};
use crate::observe::ObservedState;

/// Inputs longer than this teach a fuzzer little and cost it much.
const INPUT_BYTES_MAX: usize = 4_096;

/// Writes up to `inputs` files for each target into `folder/TARGET`.
pub fn write(folder: &Path, inputs: usize) -> Result<()> {
    let mut corpus = Corpus::default();
    for seed in 0..100 * inputs as u64 {
        if corpus.is_full(inputs) {
            break;
        }
        corpus.add(seed, inputs);
    }
    for (target, files) in [
        ("request", corpus.requests.into_values().flatten().collect()),
        ("apply", corpus.logs),
        ("snapshot", corpus.snapshots),
        ("message", messages()),
    ] {
        let folder = folder.join(target);
        fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
        for (number, bytes) in files.into_iter().take(2 * inputs).enumerate() {
            let path = folder.join(format!("{number:03}"));
            fs::write(&path, bytes).with_context(|| format!("writing {}", path.display()))?;
        }
    }
    Ok(())
}

#[derive(Default)]
struct Corpus {
    /// The requests by command name, so that no kind is missing.
    requests: BTreeMap<String, Vec<Vec<u8>>>,
    logs: Vec<Vec<u8>>,
    snapshots: Vec<Vec<u8>>,
}

impl Corpus {
    fn is_full(&self, inputs: usize) -> bool {
        self.logs.len() >= inputs && self.snapshots.len() >= inputs
    }

    /// Runs one short sequence and keeps the bytes that it wrote.
    fn add(&mut self, seed: u64, inputs: usize) {
        let mut generator = Generator::new(seed, 24);
        let mut machine = Machine::new(Epoch::default());
        let mut effects = Effects::default();
        let mut log = Vec::new();
        while let Some(step) = generator.next(&ObservedState::of_machine(&machine)) {
            let (term, payload) = match &step {
                SequenceStep::Entry { log_term, payload_term, count_ms, items } => {
                    self.keep_requests(items);
                    let bytes: Vec<Vec<u8>> = items.iter().map(StepCommand::bytes).collect();
                    let requests = bytes.iter().map(Vec::as_slice);
                    (*log_term, Some(seal_entry(Term(*payload_term), *count_ms, requests)))
                }
                SequenceStep::Empty { log_term } => (*log_term, None),
                SequenceStep::Unreadable { log_term, payload } => {
                    (*log_term, Some(payload.clone()))
                }
                SequenceStep::Snapshot => continue,
                SequenceStep::Restore { epoch, stopped } => {
                    let epoch = Epoch::new(*epoch).expect("the generator draws small epochs");
                    machine.restore(epoch, *stopped);
                    continue;
                }
            };
            machine.apply(Term(term), payload.as_deref(), &mut effects);
            generator.learn(&step, &effects, &ObservedState::of_machine(&machine));
            append(&mut log, term, payload.as_deref().unwrap_or(&[]));
        }
        let snapshot = machine.encode();
        if log.len() <= INPUT_BYTES_MAX && self.logs.len() < inputs {
            self.logs.push(log);
        }
        if snapshot.len() <= INPUT_BYTES_MAX && self.snapshots.len() < inputs {
            self.snapshots.push(snapshot);
        }
    }

    fn keep_requests(&mut self, items: &[StepCommand]) {
        for item in items {
            let StepCommand::Request(request) = item else { continue };
            let shown = format!("{:?}", request.command);
            let word = shown.split(['(', ' ', '{']).next().unwrap_or_default().to_owned();
            let bytes = item.bytes();
            let kept = self.requests.entry(word).or_default();
            if kept.len() < 4 && bytes.len() <= INPUT_BYTES_MAX && !kept.contains(&bytes) {
                kept.push(bytes);
            }
        }
    }
}

/// One message of each kind: once plain and once with everything that a message can carry.
fn messages() -> Vec<Vec<u8>> {
    let point = LogId { index: 40, term: 3 };
    let members = Membership::of_voters((1..=3).filter_map(MemberId::new));
    let kinds = (1..=12).filter_map(StepKind::from_number);
    let plain = |kind| RaftStep {
        kind,
        term: 3,
        log_term: 2,
        index: 41,
        commit: 39,
        commit_term: 2,
        reject: false,
        reject_hint: 0,
        context: Bytes::new(),
        durable: LogId { index: 40, term: 2 },
        entries: Vec::new(),
        snapshot: None,
    };
    let entry =
        |index| LogEntry { index, term: 3, kind: 0, payload: Bytes::from_static(b"payload") };
    let steps = kinds.flat_map(|kind| {
        let full = RaftStep {
            reject: true,
            reject_hint: 7,
            context: Bytes::from_static(b"context"),
            entries: (42..45).map(entry).collect(),
            snapshot: Some(Box::new(AnnouncedSnapshot { point, members: members.clone() })),
            ..plain(kind)
        };
        [plain(kind), full]
    });
    let observed = Observed {
        term: 3,
        vote: MemberId::new(2),
        held_in: 3,
        held: LogId { index: 41, term: 3 },
        committed: LogId { index: 39, term: 2 },
    };
    let others = [
        Message::Hello,
        Message::Remember(observed),
        Message::Observed(MemberId::new(2).map(|id| (id, observed)).into_iter().collect()),
        Message::Members(members.all()),
        Message::Short,
        Message::Hash { index: 1_000, hash: 7 },
    ];
    steps.map(Box::new).map(Message::Step).chain(others).map(|message| message.encode()).collect()
}

/// Adds an entry in the form of the `apply` target: length, term, payload.
fn append(log: &mut Vec<u8>, term: u64, payload: &[u8]) {
    let len = u16::try_from(payload.len()).unwrap_or(u16::MAX);
    log.extend_from_slice(&len.to_le_bytes());
    log.push(u8::try_from(term).unwrap_or(u8::MAX));
    log.extend_from_slice(&payload[..usize::from(len)]);
}
