//! Measures one member: disk, syncs, commits and lost locks. Readers never stop the event loop.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::{Registry, Unit};
use tenure_core::event::Cause;
use tenure_core::outcome::Notice;

use crate::log::Limiter;
use crate::metrics::{ConnectionMeters, Histogram, Scale};
use crate::peer::PeerCertificates;
use crate::tls::ServerTls;
use crate::traces::Traces;

/// The number of recent syncs over which percentiles are computed.
const SYNCS_KEPT: usize = 512;

/// A member's measurements of itself. Sizes are from the last look at the disk, at most about a second ago.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeMetrics {
    /// Bytes free on the disk.
    pub disk_free_bytes: u64,
    /// Whether so few bytes are free that the state may not grow.
    pub disk_short: bool,
    /// Bytes of the log, the snapshots and the reserve.
    pub data_bytes: u64,
    /// Bytes of the log.
    pub log_bytes: u64,
    /// The number of log syncs since the member started.
    pub syncs: u64,
    /// The duration of the last sync.
    pub sync_last_us: u64,
    /// The 99th percentile of the durations of recent syncs.
    pub sync_p99_us: u64,
}

/// The causes for which a holder can lose a lock.
pub(crate) const LOSSES: [Cause; 5] =
    [Cause::Expired, Cause::Revoked, Cause::Forced, Cause::MaxHold, Cause::NoProgress];

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct LossLabels {
    cause: &'static str,
}

/// The metrics that the event loop writes and any thread may read.
pub(crate) struct NodeMeters {
    /// The connections of clients.
    pub(crate) connections: Arc<ConnectionMeters>,
    /// The traced requests, of which the event loop records the steps.
    pub(crate) traces: Arc<Traces>,
    /// The certificates of connected members.
    pub(crate) peer_certificates: PeerCertificates,
    /// The certificates whose expiry is shown.
    certificates: OnceLock<Arc<ServerTls>>,
    /// Events put into the inbox of the event loop, and those that the loop took.
    events_sent: AtomicU64,
    events_taken: AtomicU64,
    /// Commits that take at least this long are logged; `None` logs none.
    slow: OnceLock<Option<Duration>>,
    slow_commits: Counter,
    slow_lines: Limiter,
    /// When the event loop last began a turn, by the clock of the process; 0 until its first turn.
    turned_at_us: AtomicU64,
    /// The machine's clock, and when it was first seen there.
    clock_ms: AtomicU64,
    clock_moved_us: AtomicU64,
    /// When it was last seen to move while this member knew a leader; 0 if it was not yet.
    led_us: AtomicU64,
    disk_free_bytes: AtomicU64,
    disk_short: AtomicBool,
    data_bytes: AtomicU64,
    log_bytes: AtomicU64,
    syncs: AtomicU64,
    sync_last_us: AtomicU64,
    sync_p99_us: AtomicU64,
    /// Commands that the leader accepted since its last sync.
    unsynced_commands: AtomicU64,
    syncs_took: Histogram,
    commands_per_sync: Histogram,
    commits_took: Histogram,
    ended_late: Histogram,
    renewals: Counter,
    losses: Family<LossLabels, Counter>,
    losses_by: [Counter; LOSSES.len()],
}

impl Default for NodeMeters {
    fn default() -> Self {
        let losses = Family::default();
        let cell = |cause: Cause| losses.get_or_create_owned(&LossLabels { cause: cause.word() });
        Self {
            connections: Arc::default(),
            traces: Arc::default(),
            peer_certificates: PeerCertificates::default(),
            certificates: OnceLock::new(),
            events_sent: AtomicU64::default(),
            events_taken: AtomicU64::default(),
            slow: OnceLock::new(),
            slow_commits: Counter::default(),
            slow_lines: Limiter::default(),
            turned_at_us: AtomicU64::default(),
            clock_ms: AtomicU64::default(),
            clock_moved_us: AtomicU64::default(),
            led_us: AtomicU64::default(),
            disk_free_bytes: AtomicU64::default(),
            disk_short: AtomicBool::default(),
            data_bytes: AtomicU64::default(),
            log_bytes: AtomicU64::default(),
            syncs: AtomicU64::default(),
            sync_last_us: AtomicU64::default(),
            sync_p99_us: AtomicU64::default(),
            unsynced_commands: AtomicU64::default(),
            syncs_took: Histogram::new(Scale::QUICK),
            commands_per_sync: Histogram::new(Scale::NUMBERS),
            commits_took: Histogram::new(Scale::QUICK),
            ended_late: Histogram::new(Scale::QUICK),
            renewals: Counter::default(),
            losses_by: LOSSES.map(cell),
            losses,
        }
    }
}

/// The durations of recent syncs.
#[derive(Debug, Default)]
pub(crate) struct Syncs {
    recent_us: VecDeque<u64>,
}

/// The space in use and free on the disk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DiskSpace {
    pub(crate) disk_free_bytes: u64,
    pub(crate) data_bytes: u64,
    pub(crate) log_bytes: u64,
}

impl NodeMeters {
    /// Reads all metrics. Each value is correct; together they may mix values from before and after a look at the disk.
    pub(crate) fn read(&self) -> NodeMetrics {
        let read = |meter: &AtomicU64| meter.load(Ordering::Relaxed);
        NodeMetrics {
            disk_free_bytes: read(&self.disk_free_bytes),
            disk_short: self.disk_short.load(Ordering::Relaxed),
            data_bytes: read(&self.data_bytes),
            log_bytes: read(&self.log_bytes),
            syncs: read(&self.syncs),
            sync_last_us: read(&self.sync_last_us),
            sync_p99_us: read(&self.sync_p99_us),
        }
    }

    /// Counts events that are put into the inbox.
    pub(crate) fn sent(&self, events: u64) {
        self.events_sent.fetch_add(events, Ordering::Relaxed);
    }

    /// Counts events that left the inbox.
    pub(crate) fn taken(&self, events: u64) {
        self.events_taken.fetch_add(events, Ordering::Relaxed);
    }

    /// The number of events that wait for the event loop. Senders that wait for room count.
    pub(crate) fn inbox_len(&self) -> u64 {
        let taken = self.events_taken.load(Ordering::Relaxed);
        self.events_sent.load(Ordering::Relaxed).saturating_sub(taken)
    }

    /// Shows the expiry of these certificates from now on.
    pub(crate) fn show_certificates(&self, tls: Arc<ServerTls>) {
        let _ = self.certificates.set(tls);
    }

    pub(crate) fn certificates(&self) -> Option<&ServerTls> {
        self.certificates.get().map(|tls| &**tls)
    }

    /// Logs commits that take at least this long from now on.
    pub(crate) fn log_slow(&self, slow: Option<Duration>) {
        let _ = self.slow.set(slow);
    }

    /// Logs a slow batch of commands with where its time went: until it was proposed (in the inbox, and waiting for a
    /// leader), and from then until it was applied (replication and the disk).
    pub(crate) fn timed(&self, asked_at_us: u64, proposed_at_us: u64, applied_at_us: u64) {
        let Some(slow) = self.slow.get().copied().flatten() else { return };
        let took_us = applied_at_us.saturating_sub(asked_at_us);
        if took_us < micros(slow) {
            return;
        }
        self.slow_commits.inc();
        let queue_us = proposed_at_us.saturating_sub(asked_at_us);
        let commit_us = applied_at_us.saturating_sub(proposed_at_us);
        let (message, where_to) =
            ("slow commit", if queue_us > commit_us { "queue" } else { "commit" });
        if let Some(pass) = self.slow_lines.pass(message, "", where_to) {
            let sync_ms = self.sync_last_us.load(Ordering::Relaxed) / 1_000;
            let (took_ms, queue_ms, commit_ms) =
                (took_us / 1_000, queue_us / 1_000, commit_us / 1_000);
            let suppressed = pass.suppressed;
            tracing::warn!(took_ms, queue_ms, commit_ms, sync_ms, suppressed, "{message}");
        }
    }

    /// Records that the event loop begins, or begins a turn.
    pub(crate) fn turned(&self, now_us: u64) {
        self.turned_at_us.store(now_us, Ordering::Relaxed);
    }

    /// How long ago the event loop began its last turn; `None` before it began, and for a member inside a test, whose
    /// loop is not a thread.
    pub(crate) fn since_turn(&self, now_us: u64) -> Option<Duration> {
        let at_us = self.turned_at_us.load(Ordering::Relaxed);
        (at_us > 0).then(|| Duration::from_micros(now_us.saturating_sub(at_us)))
    }

    /// The number of log syncs since the member started.
    pub(crate) fn syncs(&self) -> u64 {
        self.syncs.load(Ordering::Relaxed)
    }

    /// Records where the machine's clock is after a turn, and whether this member knows a leader.
    pub(crate) fn clock_at(&self, clock_ms: u64, now_us: u64, knows_leader: bool) {
        if self.clock_ms.swap(clock_ms, Ordering::Relaxed) != clock_ms {
            self.clock_moved_us.store(now_us, Ordering::Relaxed);
            if knows_leader {
                self.led_us.store(now_us, Ordering::Relaxed);
            }
        }
    }

    /// How long ago this member applied an entry while it knew a leader; none if it has not since it started.
    pub(crate) fn state_age_ms(&self, now_us: u64) -> Option<u64> {
        let at_us = self.led_us.load(Ordering::Relaxed);
        (at_us > 0).then(|| now_us.saturating_sub(at_us) / 1_000)
    }

    /// How long the machine's clock has been where it is, at most the time between two checkpoints: while no member
    /// leads it stands still.
    pub(crate) fn clock_age_ms(&self, now_us: u64) -> u64 {
        match self.clock_moved_us.load(Ordering::Relaxed) {
            // A member inside a test goes by virtual time.
            0 => 0,
            at_us => now_us.saturating_sub(at_us).min(tenure_raft::CHECKPOINT_US) / 1_000,
        }
    }

    pub(crate) fn synced(&self, took: Duration) {
        self.syncs.fetch_add(1, Ordering::Relaxed);
        self.sync_last_us.store(micros(took), Ordering::Relaxed);
        self.syncs_took.observe(micros(took));
        let commands = self.unsynced_commands.swap(0, Ordering::Relaxed);
        if commands > 0 {
            self.commands_per_sync.observe(commands);
        }
    }

    /// Counts commands that the leader accepted and that its next sync makes durable.
    pub(crate) fn took(&self, commands: usize) {
        self.unsynced_commands.fetch_add(commands as u64, Ordering::Relaxed);
    }

    /// Records the time from the arrival of commands to their response.
    pub(crate) fn committed(&self, took_us: u64) {
        self.commits_took.observe(took_us);
    }

    /// Records how long after its deadline the clock ended something.
    pub(crate) fn ended_late(&self, late_ms: u64) {
        self.ended_late.observe(late_ms.saturating_mul(1_000));
    }

    pub(crate) fn renewed(&self, leases: u64) {
        self.renewals.inc_by(leases);
    }

    /// Counts the lost locks among the notices.
    pub(crate) fn count_notices(&self, notices: &[Notice]) {
        for notice in notices {
            if let Notice::Lost { cause: Some(cause), .. } = notice
                && let Some(at) = LOSSES.iter().position(|it| it == cause)
            {
                self.losses_by[at].inc();
            }
        }
    }

    /// Registers the metrics that no other part of the server registers.
    pub(crate) fn register(&self, to: &mut Registry) {
        let help = "How long it took to make the log durable";
        to.register_with_unit("fsync", help, Unit::Seconds, self.syncs_took.clone());
        let help = "Commands that one sync of the leader's log made durable";
        to.register("commands_per_fsync", help, self.commands_per_sync.clone());
        let help = "On the leader, from the arrival of commands to their answer";
        to.register_with_unit("commit", help, Unit::Seconds, self.commits_took.clone());
        let help = "On the leader, how much later than due something ended by the clock";
        to.register_with_unit("expiry_lag", help, Unit::Seconds, self.ended_late.clone());
        to.register("renewals", "Leases renewed, on the leader", self.renewals.clone());
        let help = "Locks that their holders lost without having asked for it";
        to.register("losses", help, self.losses.clone());
        self.connections.register(to);
        self.traces.register(to);
        let help =
            "Batches of commands that took longer to commit than is logged as slow, on the leader";
        to.register("slow_commits", help, self.slow_commits.clone());
        let help = "Log lines that this process dropped because stderr did not take them";
        to.register("log_lines_dropped", help, crate::log::dropped_lines());
    }

    pub(crate) fn set_disk(&self, sizes: DiskSpace, syncs: &Syncs) {
        self.disk_free_bytes.store(sizes.disk_free_bytes, Ordering::Relaxed);
        self.data_bytes.store(sizes.data_bytes, Ordering::Relaxed);
        self.log_bytes.store(sizes.log_bytes, Ordering::Relaxed);
        self.sync_p99_us.store(syncs.p99_us(), Ordering::Relaxed);
    }

    pub(crate) fn short(&self, short: bool) {
        self.disk_short.store(short, Ordering::Relaxed);
    }
}

impl Syncs {
    pub(crate) fn add(&mut self, took: Duration) {
        if self.recent_us.len() == SYNCS_KEPT {
            self.recent_us.pop_front();
        }
        self.recent_us.push_back(micros(took));
    }

    fn p99_us(&self) -> u64 {
        let mut sorted: Vec<u64> = self.recent_us.iter().copied().collect();
        sorted.sort_unstable();
        let rank = (sorted.len() * 99).div_ceil(100);
        rank.checked_sub(1).and_then(|at| sorted.get(at)).copied().unwrap_or(0)
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_of_a_hundred_is_left_out_and_the_old_are_forgotten() {
        let mut syncs = Syncs::default();
        assert_eq!(syncs.p99_us(), 0);
        (1..=100).for_each(|us| syncs.add(Duration::from_micros(us)));
        assert_eq!(syncs.p99_us(), 99);
        (0..SYNCS_KEPT).for_each(|_| syncs.add(Duration::from_micros(7)));
        assert_eq!(syncs.p99_us(), 7);
    }
}
