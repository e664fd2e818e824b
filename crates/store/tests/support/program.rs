//! Runs random programs against a log on a faulty disk, and compares it with the model at every step.

use std::{collections::BTreeMap, sync::Arc};

use tenure_store::{
    Log, LogBatch, LogEntry, LogId, OpenError, ReadError, Snapshots, WriteError,
    sim::{DiskFault, Outage, Restart, Rng, SimDisk, StartedSync, UnreadableRange},
};

use super::{Run, State, open, random_batch, write, write_snapshot};

/// The kind of disk fault in one program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Class {
    /// Only crashes.
    None,
    /// Writes, syncs and reads that fail, full disks, outages: the store gets an error for each.
    Failing,
    /// Flipped bits, while the process runs and between runs.
    Rot,
    /// Damage to exactly the newest batch.
    NewestBatch,
    /// Sectors that hold their previous content.
    Stale,
    /// Writes that land at another place.
    Misdirected,
    /// Syncs that do nothing.
    Lying,
}

pub(crate) const CLASSES: [Class; 7] = [
    Class::None,
    Class::Failing,
    Class::Rot,
    Class::NewestBatch,
    Class::Stale,
    Class::Misdirected,
    Class::Lying,
];

/// The results of all programs of a class.
#[derive(Debug, Default)]
pub(crate) struct ProgramTotals {
    pub(crate) programs: u64,
    pub(crate) steps: u64,
    pub(crate) recoveries: u64,
    /// How often the log was refused as corrupt.
    pub(crate) refused: u64,
    /// How often something durable was gone and recovery reported a cut.
    pub(crate) lost_and_said: u64,
    /// How often something durable was gone without a trace: the disk returned to an older state.
    pub(crate) went_back: u64,
    pub(crate) reads_refused: u64,
    pub(crate) faults: BTreeMap<DiskFault, u64>,
}

struct Program<'t> {
    class: Class,
    seed: u64,
    disk: SimDisk,
    rng: Rng,
    run: Run,
    /// A sync that has begun, and the state that it covers.
    job: Option<(StartedSync, usize)>,
    /// Whether the disk has changed something without an error.
    tainted: bool,
    /// The number of bits that the disk has flipped.
    flips: u64,
    /// Pairs of a state and the older state that its batch proves to have been durable.
    proofs: Vec<(usize, usize)>,
    totals: &'t mut ProgramTotals,
}

/// The process must stop.
struct Stopped;

impl From<WriteError> for Stopped {
    fn from(error: WriteError) -> Self {
        if let WriteError::Rejected(why) = error {
            panic!("the model broke a rule: {why}");
        }
        Self
    }
}

impl From<tenure_store::Fatal> for Stopped {
    fn from(_: tenure_store::Fatal) -> Self {
        Self
    }
}

/// Runs one program to its end, or until the log is refused as corrupt.
pub(crate) fn run_program(class: Class, seed: u64, totals: &mut ProgramTotals) {
    let mut program = Program {
        class,
        seed,
        disk: SimDisk::new(seed),
        rng: Rng::new(seed),
        run: Run { states: vec![State::default()], durable: 0, finished: false },
        job: None,
        tainted: class == Class::Lying,
        flips: 0,
        proofs: Vec::new(),
        totals,
    };
    program.totals.programs += 1;
    for _ in 0..6 {
        let Some(log) = program.recover() else { break };
        program.life(log);
        let how = [Restart::ProcessKilled, Restart::PowerLostAll, Restart::PowerLostSome];
        program.job = None;
        program.disk.restart(how[program.rng.below(3) as usize]);
        if program.rng.below(3) == 0 {
            program.damage();
        }
    }
    for (fault, times) in program.disk.counts() {
        *program.totals.faults.entry(fault).or_default() += times;
    }
}

impl Program<'_> {
    fn life(&mut self, mut log: Log) {
        if self.rng.below(4) == 0 {
            let more = self.rng.below(60);
            self.disk.power_off_after(Some(more));
        }
        let steps = 5 + self.rng.below(25);
        for _ in 0..steps {
            self.totals.steps += 1;
            if self.step(&mut log).is_err() {
                return;
            }
        }
    }

    fn newest(&self) -> usize {
        self.run.states.len() - 1
    }

    fn step(&mut self, log: &mut Log) -> Result<(), Stopped> {
        match self.rng.below(20) {
            0..=6 => self.write(log)?,
            7..=8 if self.job.is_none() => match log.begin_sync()? {
                Some(job) => self.job = Some((self.disk.start_sync(job), self.newest())),
                None => self.run.durable = self.newest(),
            },
            7..=11 => {
                if let Some((started, covered)) = self.job.take() {
                    log.finish_sync(started.end())?;
                    self.run.durable = self.run.durable.max(covered);
                }
            }
            12 => {
                log.sync()?;
                self.run.durable = self.newest();
            }
            13 => log.prepare_next().or_else(unless_full)?,
            14 => match log.mark() {
                Ok(()) => {
                    self.run.durable = self.newest();
                    self.proofs.push((self.newest(), self.newest()));
                }
                Err(error) => unless_full(error)?,
            },
            15 => self.compact(log)?,
            16..=17 => self.read(log),
            // Damage adds up: with little of it, more programs run long enough to recover from it.
            _ if self.class == Class::Failing || self.rng.below(4) == 0 => self.fault(),
            _ => {}
        }
        Ok(())
    }

    fn write(&mut self, log: &mut Log) -> Result<(), Stopped> {
        let now = &self.run.states[self.newest()];
        let (mut entries, hard_state) = random_batch(&mut self.rng, now);
        let payloads: usize = entries.iter().map(|entry| entry.payload.len()).sum();
        if self.rng.below(6) == 0 && payloads < 1500 {
            // Large enough that a few of them fill a segment.
            let next = entries.last().map_or(now.last().index, |last| last.index) + 1;
            let term = entries.last().map_or(now.last().term, |last| last.term);
            let term = term.max(now.hard_state.term).max(1);
            entries.push(LogEntry { index: next, term, kind: 2, payload: vec![5; 1200].into() });
        }
        match write(
            log,
            &mut self.run,
            &LogBatch { entries: &entries, hard_state, ..LogBatch::default() },
        ) {
            Ok(()) => {
                // A batch that writes nothing proves nothing.
                if !entries.is_empty() || hard_state.is_some() {
                    self.proofs.push((self.newest(), self.run.durable));
                }
                Ok(())
            }
            Err(WriteError::NoSpace) => {
                self.run.states.pop();
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Takes a snapshot of what is durable and committed, and drops the entries that it covers.
    fn compact(&mut self, log: &mut Log) -> Result<(), Stopped> {
        let now = self.run.states[self.newest()].clone();
        let span = now.hard_state.commit - now.base.index;
        let index = now.base.index + self.rng.below(span + 1);
        if index == 0 || self.run.durable != self.newest() {
            return Ok(());
        }
        let snapshots = Snapshots::open(Arc::new(self.disk.clone())).map_err(|_| Stopped)?;
        let point = LogId { index, term: now.term(index) };
        write_snapshot(&snapshots, point).map_err(|_| Stopped)?;
        match super::compact(log, &mut self.run, index) {
            Err(WriteError::NoSpace) => {
                self.run.states.pop();
                Ok(())
            }
            compacted => Ok(compacted?),
        }
    }

    /// Checks that a read returns what was written, or an error.
    fn read(&mut self, log: &Log) {
        let expected = &self.run.states[self.newest()];
        let (from, to) = (log.base().index + 1, log.last().index + 1);
        match log.entries(from, to, u64::MAX) {
            Ok(_) => {}
            Err(ReadError::Corrupt { .. }) if self.tainted => {
                self.totals.reads_refused += 1;
                return;
            }
            Err(ReadError::Io { .. }) if self.class == Class::Failing => {
                self.totals.reads_refused += 1;
                return;
            }
            Err(ReadError::Fatal(_)) => return,
            Err(error) => panic!("{:?} seed {}: {error:?}", self.class, self.seed),
        }
        // The faults of this step are over; a lasting fault shows as an error above.
        if self.class != Class::Failing {
            assert_eq!(State::of(log), *expected, "{:?} seed {}", self.class, self.seed);
        }
    }

    fn segment(&mut self) -> Option<String> {
        let names: Vec<String> =
            self.disk.files().into_iter().filter(|name| name.ends_with(".seg")).collect();
        names.get(self.rng.below(names.len() as u64) as usize).cloned()
    }

    /// Injects a fault while the process runs.
    fn fault(&mut self) {
        match self.class {
            Class::None => {}
            Class::Failing => match self.rng.below(8) {
                0 => self.disk.plan(DiskFault::WriteError),
                1 => self.disk.plan(DiskFault::SyncError),
                2 => self.disk.plan(DiskFault::NoSpace),
                3 => self.disk.plan(DiskFault::ReadError),
                4 => self.disk.set_outage(Some(Outage::ReadOnly)),
                5 => self.disk.set_outage(Some(Outage::Device)),
                at => {
                    let how = if at == 6 { UnreadableRange::Once } else { UnreadableRange::Always };
                    let start = self.rng.below(4096);
                    if let Some(name) = self.segment() {
                        self.disk.make_unreadable(&name, start..start + 200, how);
                    }
                }
            },
            Class::Misdirected => {
                self.tainted = true;
                self.disk.plan(DiskFault::MisdirectedWrite);
            }
            Class::Stale if self.rng.below(2) == 0 => {
                self.tainted = true;
                self.disk.plan(DiskFault::StaleSector);
            }
            Class::Lying => {
                let lying = self.rng.below(2) == 0;
                self.disk.set_lying_syncs(lying);
            }
            Class::Rot | Class::NewestBatch | Class::Stale => self.damage(),
        }
    }

    /// Injects a fault while no process runs.
    fn damage(&mut self) {
        match self.class {
            Class::Rot => {
                if let Some(name) = self.segment() {
                    self.tainted = true;
                    self.flips += u64::from(self.disk.damage_while_running(&name).is_some());
                }
            }
            Class::NewestBatch => {
                let flipped = self.disk.damage_newest_batch("log").is_some();
                self.tainted |= flipped;
                self.flips += u64::from(flipped);
            }
            Class::Stale => {
                let Some(name) = self.segment() else { return };
                let sectors = self.disk.changed_sectors(&name);
                let at = self.rng.below(sectors.len() as u64) as usize;
                if let Some(offset) = sectors.get(at) {
                    self.tainted |= self.disk.make_stale(&name, *offset);
                }
            }
            Class::None | Class::Failing | Class::Misdirected | Class::Lying => {}
        }
    }

    /// Opens the log and compares it with the model; `None` if it was refused as corrupt.
    fn recover(&mut self) -> Option<Log> {
        let (class, seed) = (self.class, self.seed);
        let mut opened = open(&self.disk);
        if class == Class::Failing && matches!(opened, Err(OpenError::Io { .. })) {
            self.disk.set_outage(None);
            self.disk.make_readable();
            for _ in 0..8 {
                // Each attempt uses up one planned fault.
                self.disk.restart(Restart::ProcessKilled);
                opened = open(&self.disk);
                if opened.is_ok() {
                    break;
                }
            }
        }
        let (log, recovered) = match opened {
            Ok(opened) => opened,
            Err(OpenError::Corrupt { .. } | OpenError::Format { .. }) if self.tainted => {
                self.totals.refused += 1;
                return None;
            }
            Err(error) => panic!("{class:?} seed {seed}: {error:?}"),
        };
        self.totals.recoveries += 1;
        let found = match log.entries(log.base().index + 1, log.last().index + 1, u64::MAX) {
            Err(ReadError::Io { .. }) if class == Class::Failing => {
                self.disk.make_readable();
                State::of(&log)
            }
            // The fault occurred during the recovery, or in a read after it.
            Err(ReadError::Corrupt { .. }) if self.tainted => {
                self.totals.reads_refused += 1;
                return None;
            }
            _ => State::of(&log),
        };
        let states = &self.run.states;
        let durable = self.run.durable;
        let promised = states[durable..].iter().position(|state| *state == found);
        let at = promised.map(|at| durable + at).or_else(|| {
            // Damage may reach back before the last recovery: its newest batch has no mark either.
            states[..durable].iter().rposition(|state| *state == found)
        });
        let at = at.unwrap_or_else(|| panic!("{class:?} seed {seed}: {found:?} was never written"));
        if promised.is_none() {
            assert!(self.tainted, "{class:?} seed {seed}: {found:?} is older than was promised");
            let said = recovered.cut.is_some();
            let silent = matches!(class, Class::Stale | Class::Misdirected | Class::Lying);
            assert!(said || silent, "{class:?} seed {seed}: loss is not said, {found:?}");
            // Several flips may hide a batch and everything that proves it; one flip cannot.
            let durable = self.proofs.iter().filter(|(state, _)| *state <= durable);
            let proven = durable.map(|(_, proven)| *proven).max().unwrap_or(0);
            assert!(self.flips != 1 || at >= proven, "{class:?} seed {seed}: cut in the middle");
            self.totals.lost_and_said += u64::from(said);
            self.totals.went_back += u64::from(!said);
        }
        self.run.states.truncate(at + 1);
        self.proofs.retain(|(state, _)| *state <= at);
        self.run.durable = at;
        Some(log)
    }
}

/// Ignores the error of a full disk, which refuses a call and leaves the log unchanged.
fn unless_full(error: WriteError) -> Result<(), WriteError> {
    if matches!(error, WriteError::NoSpace) { Ok(()) } else { Err(error) }
}
