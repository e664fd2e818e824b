//! Draws the character of a sequence: which features it uses, and how often.
//!
//! Each sequence draws its own weights and leaves some features out. A sequence in which everything happens a little
//! never gets deep into anything: queues stay short when every second command is a revocation.

use fastrand::Rng;

/// A kind of command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the names are those of the commands")]
pub(super) enum CommandKind {
    GrantLease,
    Renew,
    Revoke,
    Acquire,
    Release,
    Leave,
    Downgrade,
    Update,
    Force,
    Stopped,
    Put,
    Delete,
    SetLimits,
    Compact,
    RaiseLevel,
    Abandon,
    SetAccess,
    Drain,
    Undrain,
    Progress,
    Upgrade,
    HandOn,
    Resize,
    /// A repetition of an earlier request.
    Retry,
    /// A request that no client would send.
    Absurd,
    /// Arbitrary bytes.
    Raw,
}

const KINDS: [(CommandKind, u32); 21] = [
    (CommandKind::GrantLease, 12),
    (CommandKind::Renew, 12),
    (CommandKind::Revoke, 4),
    (CommandKind::Acquire, 45),
    (CommandKind::Release, 15),
    (CommandKind::Leave, 6),
    (CommandKind::Downgrade, 6),
    (CommandKind::Update, 5),
    (CommandKind::Force, 8),
    (CommandKind::Stopped, 8),
    (CommandKind::Put, 10),
    (CommandKind::Delete, 5),
    (CommandKind::SetLimits, 3),
    (CommandKind::Compact, 2),
    (CommandKind::RaiseLevel, 1),
    (CommandKind::Abandon, 12),
    (CommandKind::Drain, 3),
    (CommandKind::Undrain, 6),
    (CommandKind::Retry, 10),
    (CommandKind::Absurd, 4),
    (CommandKind::Raw, 2),
];

/// The character of one sequence.
#[derive(Clone, Debug)]
pub(super) struct Swarm {
    weights: Vec<(CommandKind, u32)>,
    total: u32,
    /// The number of clients.
    pub clients: usize,
    /// The locks, each with its usual number of slots.
    pub locks: Vec<(String, Option<u32>)>,
    /// The keys.
    pub keys: Vec<String>,
    /// The percentage of asks for several locks.
    pub multi: u32,
    /// The percentage of asks in shared mode.
    pub shared: u32,
    /// The percentage of asks that do not wait.
    pub tries: u32,
    /// The percentage of waits with a limit.
    pub limited: u32,
    /// The percentage of independent asks.
    pub independent: u32,
    /// The percentage of asks that are candidacies.
    pub elections: u32,
    /// The percentage of asks with a `max_hold`.
    pub max_hold: u32,
    /// The percentage of asks with a lock-delay.
    pub delay: u32,
    /// The percentage of asks with a min hold.
    pub min_hold: u32,
    /// The percentage of asks that supersede older ones of their group.
    pub supersede: u32,
    /// The percentage of asks that bring their own lease.
    pub new_lease: u32,
    /// The percentage of lease references by handle.
    pub handles: u32,
    /// The percentage of requests with an id.
    pub ids: u32,
    /// The percentage of guarded writes.
    pub guards: u32,
    /// The percentage of leases and tokens taken from the past.
    pub stale: u32,
    /// The percentage of entries that move the clock far.
    pub leaps: u32,
    /// The percentage of entries that move the clock to the edge of something due.
    pub edges: u32,
    /// The number of leader changes in 1,000 steps.
    pub leaders: u32,
    /// The number of snapshots in 1,000 steps.
    pub snapshots: u32,
    /// The number of restores in 1,000 steps.
    pub restores: u32,
    /// The most commands in one entry.
    pub batch: usize,
    /// Whether the first entry sets limits that are soon reached.
    pub tight: bool,
    /// Whether the cluster is raised to the newest level at its beginning.
    pub newest: bool,
    /// Whether requests have principals, and access rules are set at the beginning.
    pub access: bool,
    /// Whether a count may be the largest possible, after which the clock never advances.
    pub end_of_time: bool,
    /// Whether long silences occur, after which the machine forgets request keys.
    pub silences: bool,
    /// The percentage of asks with a priority.
    pub priority: u32,
    /// The percentage of asks that promise progress.
    pub progress: u32,
    /// Whether leases last for minutes and time passes fast, so that waiters grow old.
    pub patient: bool,
    /// The percentage of asks for slots that take several.
    pub shares: u32,
    /// The percentage of asks for several locks of which one is enough.
    pub choices: u32,
    /// The percentage of these that ask for any slot of a pool.
    pub pools: u32,
    /// The `ends_per_entry` that the first entry sets, so that queues are reopened over several entries.
    pub slices: Option<u64>,
}

/// Names with common prefixes, one of them too long to be kept inline.
const LOCKS: [&str; 7] = [
    "a",
    "a/b",
    "a/bc",
    "db/primary/shard-0123456789-abcdefghijkl",
    "db/primary",
    "job",
    "\u{3c9}",
];

impl Swarm {
    /// Draws the character of a sequence.
    pub(super) fn draw(rng: &mut Rng) -> Self {
        let mut weights: Vec<(CommandKind, u32)> = Vec::with_capacity(KINDS.len());
        for (kind, weight) in KINDS {
            // Without leases and asks nothing happens at all.
            let needed = matches!(kind, CommandKind::Acquire | CommandKind::GrantLease);
            if needed || rng.u32(..100) < 70 {
                weights.push((kind, weight * rng.u32(1..=4)));
            }
        }
        // Sometimes a sequence uses two or three commands only.
        if rng.u32(..8) == 0 {
            let needed =
                |kind: CommandKind| matches!(kind, CommandKind::Acquire | CommandKind::GrantLease);
            let mut others: Vec<(CommandKind, u32)> =
                weights.iter().copied().filter(|(kind, _)| !needed(*kind)).collect();
            rng.shuffle(&mut others);
            others.truncate(3);
            weights.retain(|(kind, _)| needed(*kind));
            weights.extend(others);
        }
        let mut names: Vec<&str> = LOCKS.to_vec();
        rng.shuffle(&mut names);
        names.truncate(rng.usize(3..=6));
        if !names.iter().any(|name| name.len() > 30) {
            names[0] = LOCKS[3];
        }
        let semaphores = often(rng, 50);
        let locks: Vec<(String, Option<u32>)> = names
            .iter()
            .map(|name| {
                let slots = (rng.u32(..100) < semaphores).then(|| rng.u32(1..=3));
                ((*name).to_owned(), slots)
            })
            .collect();
        // A key may have the name of a lock: a watch by name sees both.
        let mut keys = vec!["k".to_owned(), "k/1".to_owned()];
        keys.push(locks[0].0.clone());
        Self {
            total: weights.iter().map(|(_, weight)| weight).sum(),
            weights,
            clients: rng.usize(2..=5),
            locks,
            keys,
            multi: often(rng, 60),
            shared: often(rng, 70),
            tries: often(rng, 40),
            limited: often(rng, 60),
            independent: often(rng, 40),
            elections: often(rng, 60),
            max_hold: often(rng, 40),
            delay: often(rng, 60),
            min_hold: often(rng, 30),
            supersede: often(rng, 60),
            new_lease: often(rng, 30),
            handles: often(rng, 60),
            ids: often(rng, 60),
            guards: often(rng, 60),
            stale: often(rng, 20),
            leaps: often(rng, 15),
            edges: often(rng, 50),
            leaders: often(rng, 60),
            snapshots: often(rng, 40),
            restores: if rng.u32(..3) == 0 { rng.u32(5..40) } else { 0 },
            batch: rng.usize(1..=4),
            tight: rng.u32(..3) == 0,
            newest: rng.u32(..4) > 0,
            access: false,
            end_of_time: rng.u32(..60) == 0,
            silences: rng.u32(..6) == 0,
            priority: 0,
            progress: 0,
            patient: false,
            shares: 0,
            choices: 0,
            pools: 0,
            slices: None,
        }
    }

    /// Gives the requests of the sequence principals, and adds changes of the access rules.
    pub(super) fn with_access(mut self) -> Self {
        let weight = self.total.div_ceil(30);
        self.weights.push((CommandKind::SetAccess, weight));
        self.total += weight;
        self.access = true;
        self
    }

    /// Gives some requests of the sequence priorities. In every second such sequence waiters grow old.
    pub(super) fn with_priorities(mut self, seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        self.priority = rng.u32(10..=70);
        self.patient = rng.bool();
        self
    }

    /// Makes some requests of the sequence promise progress, and adds reports.
    pub(super) fn with_progress(mut self, seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        self.progress = rng.u32(20..=80);
        let weight = self.total.div_ceil(rng.u32(4..=16));
        self.weights.push((CommandKind::Progress, weight));
        self.total += weight;
        self
    }

    /// Adds upgrades of shared holds, and holds that are handed on.
    pub(super) fn with_hand_on(mut self, seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        self.shared = self.shared.max(rng.u32(20..=70));
        // Both need holders and waiters that stay.
        (self.tries, self.multi) = (self.tries.min(10), self.multi.min(20));
        (self.patient, self.newest) = (rng.bool(), rng.u32(..10) > 0);
        for kind in [CommandKind::Upgrade, CommandKind::HandOn] {
            let weight = self.total.div_ceil(rng.u32(4..=16));
            self.weights.push((kind, weight));
            self.total += weight;
        }
        self
    }

    /// Makes some requests of the sequence take several slots, and sets the sizes of semaphores now and then.
    pub(super) fn with_shares(mut self, seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        self.shares = rng.u32(20..=80);
        for (_, slots) in &mut self.locks {
            if rng.u32(..3) > 0 {
                *slots = Some(rng.u32(1..=5));
            }
        }
        let weight = self.total.div_ceil(rng.u32(6..=30));
        self.weights.push((CommandKind::Resize, weight));
        self.total += weight;
        self
    }

    /// Makes some requests of the sequence ask for any of several locks.
    pub(super) fn with_choices(mut self, seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        self.choices = rng.u32(30..=90);
        self.multi = self.multi.max(rng.u32(30..=90));
        (self.tries, self.newest) = (self.tries.min(20), rng.u32(..10) > 0);
        if rng.bool() {
            // Pools: semaphores whose sizes are set.
            self.pools = rng.u32(20..=80);
            self.locks.iter_mut().for_each(|(_, slots)| *slots = Some(rng.u32(1..=2)));
            let weight = self.total.div_ceil(rng.u32(4..=16));
            self.weights.push((CommandKind::Resize, weight));
            self.total += weight;
        }
        self
    }

    /// Makes the sequence one of drained prefixes: many leases wait below them, and entries open several of them.
    pub(super) fn with_reopenings(mut self, seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        (self.slices, self.newest) = (Some(rng.u64(1..=3)), true);
        (self.tries, self.limited) = (self.tries.min(5), self.limited.min(20));
        self.clients = rng.usize(5..=9);
        self.batch = rng.usize(2..=5);
        let share = self.total.div_ceil(4);
        for (kind, weight) in [
            (CommandKind::GrantLease, share),
            (CommandKind::Acquire, 2 * share),
            (CommandKind::Drain, share),
            (CommandKind::Undrain, share),
        ] {
            self.weights.push((kind, weight));
            self.total += weight;
        }
        self
    }

    /// Draws a kind of command by the weights.
    pub(super) fn kind(&self, rng: &mut Rng) -> CommandKind {
        let mut left = rng.u32(..self.total.max(1));
        for (kind, weight) in &self.weights {
            if left < *weight {
                return *kind;
            }
            left -= weight;
        }
        CommandKind::Acquire
    }
}

/// A percentage up to `most`, and zero in every third sequence.
fn often(rng: &mut Rng, most: u32) -> u32 {
    if rng.u32(..3) == 0 { 0 } else { rng.u32(1..=most) }
}
