//! Predicts what a log should hold after a run, with the simplest possible model.

#![allow(clippy::cast_possible_truncation, reason = "the numbers of these tests are small")]
#![allow(dead_code, reason = "each test file uses a part of it")]

pub(crate) mod checks;
pub(crate) mod program;

use std::{collections::BTreeMap, fmt, sync::Arc};

use bytes::Bytes;
use tenure_store::{
    Disk, HardState, Log, LogBatch, LogEntry, LogId, LogOptions, OpenError, Position, Recovered,
    SnapshotError, Snapshots, WriteError, sim::Rng, sim::SimDisk,
};

/// Small enough that a short run fills several segments, and that a test can try every point of a run.
pub(crate) const SEGMENT_BYTES: u32 = 4096;

/// Small enough that most entries are read back from disk.
const CACHE_BYTES: usize = 700;

pub(crate) fn options() -> LogOptions {
    LogOptions {
        segment_bytes: SEGMENT_BYTES,
        cache_bytes: CACHE_BYTES,
        salt: 0x5eed,
        ..LogOptions::default()
    }
}

pub(crate) fn open(disk: &SimDisk) -> Result<(Log, Recovered), OpenError> {
    Log::open(Arc::new(disk.clone()), options())
}

/// Writes a log of several segments with a mark at its end, so that everything in it is known to be durable.
pub(crate) fn marked_log(seed: u64, steps: usize) -> (SimDisk, State, Position) {
    let disk = SimDisk::new(seed);
    assert!(run(&disk, seed, steps).finished);
    let (mut log, _) = open(&disk).unwrap();
    let append = |log: &mut Log, payload: Bytes| {
        let entries = [LogEntry { index: log.last().index + 1, term: 99, kind: 1, payload }];
        log.write(&LogBatch { entries: &entries, ..LogBatch::default() }).unwrap();
        log.sync().unwrap();
    };
    while log.segments() < 4 {
        append(&mut log, vec![3; 300].into());
    }
    append(&mut log, "the last one".into());
    let marked = log.durable();
    log.mark().unwrap();
    (disk, State::of(&log), marked)
}

/// The content of a log.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) base: LogId,
    pub(crate) hard_state: HardState,
    pub(crate) entries: BTreeMap<u64, (u64, u8, Bytes)>,
}

impl fmt::Debug for State {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "base {:?} {:?}, entries", self.base, self.hard_state)?;
        for (index, (term, kind, payload)) in &self.entries {
            write!(to, " {index}:t{term}k{kind}[{}x{:?}]", payload.len(), payload.first())?;
        }
        Ok(())
    }
}

impl State {
    /// Everything that can be read from a log.
    pub(crate) fn of(log: &Log) -> Self {
        let (base, last) = (log.base(), log.last());
        let found = log.entries(base.index + 1, last.index + 1, u64::MAX).expect("entries read");
        assert_eq!(log.term(last.index).unwrap(), last.term);
        let entries = found.into_iter().map(|LogEntry { index, term, kind, payload }| {
            assert_eq!(log.term(index).unwrap(), term);
            (index, (term, kind, payload))
        });
        Self { base, hard_state: log.hard_state(), entries: entries.collect() }
    }

    pub(crate) fn last(&self) -> LogId {
        let last = self.entries.last_key_value();
        last.map_or(self.base, |(index, (term, ..))| LogId { index: *index, term: *term })
    }

    fn term(&self, index: u64) -> u64 {
        self.entries.get(&index).map_or(self.base.term, |(term, ..)| *term)
    }

    fn apply(&mut self, batch: &LogBatch<'_>) {
        if let Some(point) = batch.snapshot {
            self.entries.clear();
            self.base = point;
            self.hard_state.commit = point.index;
        }
        for LogEntry { index, term, kind, payload } in batch.entries {
            self.entries.split_off(index);
            self.entries.insert(*index, (*term, *kind, payload.clone()));
        }
        if let Some(state) = batch.hard_state {
            self.hard_state = state;
        }
    }

    fn compact(&mut self, index: u64) {
        self.base = LogId { index, term: self.term(index) };
        self.entries = self.entries.split_off(&(index + 1));
    }
}

/// The progress of a run.
#[derive(Debug)]
pub(crate) struct Run {
    /// The state after each change, beginning with the empty one. The last change may have been cut short.
    pub(crate) states: Vec<State>,
    /// The index of the latest state that the log reported as durable.
    pub(crate) durable: usize,
    /// Whether the run reached its end.
    pub(crate) finished: bool,
}

enum Stopped {
    Write(WriteError),
    Snapshot(SnapshotError),
    Other,
}

impl<T: Into<WriteError>> From<T> for Stopped {
    fn from(error: T) -> Self {
        Self::Write(error.into())
    }
}

/// Executes random steps on a log until they are done or the disk fails.
pub(crate) fn run(disk: &SimDisk, seed: u64, steps: usize) -> Run {
    run_on(&(Arc::new(disk.clone()) as Arc<dyn Disk>), seed, steps)
}

pub(crate) fn run_on(disk: &Arc<dyn Disk>, seed: u64, steps: usize) -> Run {
    run_from(State::default(), disk, seed, steps)
}

/// Continues from a state that the log is known to hold.
pub(crate) fn run_from(start: State, disk: &Arc<dyn Disk>, seed: u64, steps: usize) -> Run {
    let mut run = Run { states: vec![start], durable: 0, finished: false };
    match attempt(disk, seed, steps, &mut run) {
        Ok(()) => run.finished = true,
        Err(Stopped::Write(WriteError::Rejected(why))) => panic!("the model broke a rule: {why}"),
        Err(Stopped::Snapshot(SnapshotError::Corrupt { name, .. })) => panic!("{name} is corrupt"),
        Err(_) => {}
    }
    run
}

fn attempt(disk: &Arc<dyn Disk>, seed: u64, steps: usize, run: &mut Run) -> Result<(), Stopped> {
    let mut rng = Rng::new(seed);
    let (mut log, _) = Log::open(disk.clone(), options()).map_err(|_| Stopped::Other)?;
    assert_eq!(State::of(&log), run.states[0], "the log holds what the run starts from");
    let snapshots = Snapshots::open(disk.clone()).map_err(Stopped::Snapshot)?;
    for _ in 0..steps {
        let now = run.states.last().expect("a run has a state").clone();
        match rng.below(20) {
            0..=9 => {
                let (entries, hard_state) = random_batch(&mut rng, &now);
                write(
                    &mut log,
                    run,
                    &LogBatch { entries: &entries, hard_state, ..LogBatch::default() },
                )?;
            }
            10..=14 => {
                log.sync()?;
                run.durable = run.states.len() - 1;
            }
            15 => log.prepare_next()?,
            16 => {
                log.mark()?;
                run.durable = run.states.len() - 1;
            }
            17..=18 => {
                // A snapshot of our own state. It may cover only what is durable and committed.
                let span = now.hard_state.commit - now.base.index;
                let index = now.base.index + rng.below(span + 1);
                if index > 0 && run.durable == run.states.len() - 1 {
                    let point = LogId { index, term: now.term(index) };
                    write_snapshot(&snapshots, point).map_err(Stopped::Snapshot)?;
                    compact(&mut log, run, index)?;
                }
            }
            _ => {
                // A snapshot from a leader that is ahead of this member.
                let point = LogId {
                    index: now.last().index.max(now.hard_state.commit) + rng.below(4),
                    term: now.last().term.max(now.hard_state.term).max(1),
                };
                if point.index > 0 && rng.below(3) == 0 {
                    write_snapshot(&snapshots, point).map_err(Stopped::Snapshot)?;
                    let hard_state = Some(HardState {
                        term: point.term,
                        vote: (point.term == now.hard_state.term)
                            .then_some(now.hard_state.vote)
                            .flatten(),
                        commit: point.index,
                    });
                    let batch =
                        LogBatch { snapshot: Some(point), hard_state, ..LogBatch::default() };
                    write(&mut log, run, &batch)?;
                    compact(&mut log, run, point.index)?;
                }
            }
        }
        if rng.below(4) == 0 {
            let expected = run.states.last().expect("a run has a state");
            assert_eq!(State::of(&log), *expected, "the log reads as it was written");
        }
    }
    Ok(())
}

pub(crate) fn write(log: &mut Log, run: &mut Run, batch: &LogBatch<'_>) -> Result<(), WriteError> {
    let mut state = run.states.last().expect("a run has a state").clone();
    state.apply(batch);
    run.states.push(state);
    log.write(batch).map(drop)
}

fn compact(log: &mut Log, run: &mut Run, index: u64) -> Result<(), WriteError> {
    let mut state = run.states.last().expect("a run has a state").clone();
    state.compact(index);
    run.states.push(state);
    log.compact_to(index)?;
    run.durable = run.states.len() - 1;
    Ok(())
}

/// Random entries that continue or replace the end of the log, and sometimes a hard state.
pub(crate) fn random_batch(rng: &mut Rng, now: &State) -> (Vec<LogEntry>, Option<HardState>) {
    let last = now.last();
    let mut first = last.index + 1;
    let mut term = now.hard_state.term.max(last.term).max(1);
    if rng.below(4) == 0 && last.index > now.hard_state.commit {
        first -= rng.below(last.index - now.hard_state.commit + 1);
        term += 1;
    }
    let count = rng.below(4);
    let entries: Vec<_> = (first..first + count)
        .map(|index| {
            let length = if rng.below(5) == 0 { rng.below(1000) } else { rng.below(80) };
            let byte = rng.below(256) as u8;
            let payload = Bytes::from(vec![byte; length as usize]);
            LogEntry { index, term, kind: rng.below(3) as u8, payload }
        })
        .collect();
    let end = if entries.is_empty() { last.index } else { first + count - 1 };
    let commit = now.hard_state.commit + rng.below(end - now.hard_state.commit + 1);
    let hard_state = (rng.below(3) > 0).then(|| {
        let same = term == now.hard_state.term;
        let vote = if same { now.hard_state.vote } else { None };
        HardState { term, vote: vote.or((rng.below(2) == 0).then_some(rng.below(5))), commit }
    });
    (entries, hard_state)
}

fn snapshot_data(point: LogId) -> Vec<u8> {
    format!("all there is at {} of term {};", point.index, point.term).repeat(20).into_bytes()
}

pub(crate) fn write_snapshot(snapshots: &Snapshots, point: LogId) -> Result<(), SnapshotError> {
    let mut writer = snapshots.write(point, b"meta")?;
    for part in snapshot_data(point).chunks(100) {
        writer.append(part)?;
    }
    writer.finish().map(drop)
}

/// Checks that every snapshot that looks complete is complete, and that one of them reaches the start of the log.
pub(crate) fn check_snapshots(disk: &SimDisk, base: LogId) {
    let snapshots = Snapshots::open(Arc::new(disk.clone())).expect("snapshots open");
    snapshots.covering(base).expect("a snapshot reaches the start of the log");
    for id in snapshots.complete().expect("snapshots are listed") {
        let mut reader = snapshots.read(id).expect("a snapshot opens");
        assert_eq!(reader.meta().as_ref(), b"meta");
        let mut data = Vec::new();
        while let Some(chunk) = reader.next_chunk().expect("a snapshot reads") {
            data.extend_from_slice(&chunk);
        }
        assert_eq!(data, snapshot_data(id.point));
    }
    assert!(disk.files().iter().all(|name| !name.ends_with(".tmp")), "nothing half done is left");
}
