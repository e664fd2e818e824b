//! Writes a member's log lines to a sink that may stall or refuse them, and checks N13: the loop goes on, and every
//! line is written or counted.
//!
//! [`LogQueue`] decides what waits and what is dropped. The writer runs on a thread of its own, so it has a schedule of
//! its own.

use tenure_node::{LogQueue, Pushed, QueuedLine};

use super::event::SimEvent;
use super::oracle::ensure;
use super::world::SimCluster;
use super::{MS, S};
use crate::invariant::{CheckResult, InvariantViolation};

/// How late a turn of the loop may be because of its log.
const LATE_US: u64 = 100 * MS;

/// The log lines of one process.
pub(super) struct SimLog {
    queue: LogQueue,
    bytes_max: usize,
    /// Lines are numbered from 1.
    made: u64,
    /// The newest line that the sink has.
    newest: u64,
    written: u64,
    /// Lines that the sink was told to be missing.
    reported: u64,
    /// What the writer has taken.
    writing: Option<QueuedLine>,
    /// Whether the writer's thread is due.
    scheduled: bool,
    stalled_until_us: u64,
    refuses_until_us: u64,
    /// Whether the loop waits for the sink, and the time at which its next turn was due.
    blocked: bool,
    due_us: Option<u64>,
}

impl SimLog {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self {
            queue: LogQueue::new(bytes_max),
            bytes_max,
            made: 0,
            newest: 0,
            written: 0,
            reported: 0,
            writing: None,
            scheduled: false,
            stalled_until_us: 0,
            refuses_until_us: 0,
            blocked: false,
            due_us: None,
        }
    }

    /// Every line is written, waits, or is counted as dropped.
    fn check_drained(&self) -> CheckResult {
        let (dropped, unreported) = (self.queue.dropped(), self.queue.unreported());
        let (made, written, reported) = (self.made, self.written, self.reported);
        let holds = made == written + dropped && dropped == reported + unreported;
        ensure(holds, "N13", || {
            format!(
                "{made} lines were logged, {written} are written, {dropped} dropped, {reported} \
                 reported as missing, {unreported} not yet"
            )
        })
    }

    /// The sink has an item.
    fn has(&mut self, item: &QueuedLine) -> CheckResult {
        self.queue.written();
        let line = match item {
            QueuedLine::Gap(lines) => {
                self.reported += lines;
                return Ok(());
            }
            QueuedLine::Line(line) => line,
        };
        self.written += 1;
        let number = line.split(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0);
        let newest = std::mem::replace(&mut self.newest, number);
        ensure(newest < number, "N13", || format!("line {number} is written after {newest}"))
    }
}

impl SimCluster {
    /// The sink of a member takes nothing for a while, or refuses what it is given.
    pub(super) fn stall_log(&mut self, member: usize) {
        let until_us = self.now_us + self.rng.u64(S..20 * S);
        let refuses = self.rng.u8(0..4) == 0;
        let Some(process) = &mut self.sim_members[member].process else { return };
        if refuses {
            process.log.refuses_until_us = until_us;
        } else {
            process.log.stalled_until_us = until_us;
            self.faults.count("log_sink_stalled");
        }
    }

    /// The loop of a member logs a line.
    pub(super) fn log(&mut self, member: usize, text: &str) -> CheckResult {
        let boot = self.sim_members[member].boot;
        let Some(process) = &mut self.sim_members[member].process else { return Ok(()) };
        let log = &mut process.log;
        log.made += 1;
        let pushed = log.queue.push(format!("{} {text}\n", log.made));
        let (bytes, most) = (log.queue.bytes(), log.bytes_max);
        ensure(bytes <= most, "N13", || format!("{bytes} bytes of lines wait, of at most {most}"))?;
        match pushed {
            Pushed::Dropped => self.faults.count("log_line_dropped"),
            Pushed::Queued => {
                if !std::mem::replace(&mut log.scheduled, true) {
                    let at_us = self.now_us + self.rng.u64(10..2 * MS);
                    self.queue.push(at_us, SimEvent::WriteLog { member, boot });
                }
            }
            #[cfg(mutants)]
            Pushed::Blocked(_) => log.blocked = true,
        }
        Ok(())
    }

    /// Runs the writer's thread.
    pub(super) fn write_log(&mut self, member: usize, boot: u64) -> CheckResult {
        let now_us = self.now_us;
        let target = &mut self.sim_members[member];
        let paused_us = target.paused_until_us;
        let Some(process) = target.process.as_mut().filter(|_| target.boot == boot) else {
            return Ok(());
        };
        let log = &mut process.log;
        let until_us = log.stalled_until_us.max(paused_us);
        if until_us > now_us {
            self.queue.push(until_us, SimEvent::WriteLog { member, boot });
            return Ok(());
        }
        if let Some(item) = log.writing.take() {
            if log.refuses_until_us > now_us {
                log.queue.refused(&item);
                self.faults.count("log_sink_failed");
            } else {
                log.has(&item)?;
                let gap = matches!(item, QueuedLine::Gap(_));
                self.faults.count_by("log_gap_reported", u64::from(gap));
            }
        }
        log.writing = log.queue.take();
        log.scheduled = log.writing.is_some();
        log.blocked = false;
        if !log.scheduled {
            return log.check_drained();
        }
        let at_us = now_us + self.rng.u64(20..2 * MS);
        self.queue.push(at_us, SimEvent::WriteLog { member, boot });
        Ok(())
    }

    /// N13: whether the loop of a member waits for its log. A turn must not be late because of it.
    pub(super) fn waits_for_log(&mut self, member: usize) -> Result<bool, InvariantViolation> {
        let now_us = self.now_us;
        let Some(process) = &mut self.sim_members[member].process else { return Ok(false) };
        let log = &mut process.log;
        let due_us = *log.due_us.get_or_insert(now_us);
        let (blocked, stalled_us) = (log.blocked, log.stalled_until_us);
        if blocked {
            self.wake(member, stalled_us.max(now_us + MS));
        } else {
            log.due_us = None;
        }
        let late_us = now_us - due_us;
        ensure(late_us <= LATE_US, "N13", || {
            format!("the loop of {member} was due {} ms ago and waits for its log", late_us / MS)
        })?;
        Ok(blocked)
    }
}
