//! Runs long campaigns in chunks and records their totals.

mod abuse;
mod clients;
mod fuzz;
mod guarded;
mod processes;
mod run;
mod scenario;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;

use crate::cargo::{cargo, hand_over};
use crate::clock::Stopwatch;
use crate::output;
use crate::programs::{self, SIM};
use crate::repo::Repo;
use crate::workspace::Workspace;

/// The file with the totals, one row per campaign.
pub(crate) const RECORD: &str = "docs/campaigns.md";
/// A campaign that runs in chunks. An interrupt loses at most one chunk, which takes about as long as a layer of
/// `test`.
struct CampaignChunks {
    word: &'static str,
    unit: &'static str,
    chunk: u64,
    /// The first arguments of the simulator.
    args: &'static [&'static str],
}

const MODEL: CampaignChunks =
    CampaignChunks { word: "model", unit: "sequences", chunk: 20_000, args: &["model"] };
/// A fault that happens in no seed of a chunk may happen in another chunk, so each is a part.
const CLUSTERS: CampaignChunks =
    CampaignChunks { word: "sim", unit: "seeds", chunk: 500, args: &["cluster", "--part"] };
/// Before the kinds of faults that happened in no run of a chunk.
const NEVER: &str = "never seen: ";
const HEADER: &str = "# Campaigns

Results of the long runs. `cargo xtask campaign` adds the rows.

- `model`: random sequences of commands, run by the machine and by its model.
- `sim`: whole simulated clusters under faults.
- `kills`: kills real leaders under leases ([internals/time.md](internals/time.md) explains the fields). Then it kills
  real members under load, leaders and followers in turn: everything that was `acknowledged` must be there afterwards,
  done once, with `grants` in order and one at a time.
- `run`: `tenure run` with a command that forks, starts a session and ignores SIGTERM. The scene stops `tenure`
  (`stop`), kills it (`kill`), partitions it (`partition`), takes its lock away (`force`) or kills its watchdog
  (`watchdog`). `margin_*` is how long before the next grant of the lock the last process ran, by the times that the
  processes wrote: half of the runs, and 99 in 100, had more than that. `retried` counts further runs whose lock was
  lost before the fault; a late one of these is a violation too. [internals/run.md](internals/run.md) explains the
  other fields. `frozen`: how soon after the thaw of all processes the command died. `peer`: the same faults with other
  tools, and for how long, of two seconds, the command ran beside its successor. `successor`: how long after the last
  sign of life of one command a queued one of the same machine began, after its end by itself (`command`) or by SIGTERM
  (`term`), and after `tenure` (`kill`) or its watchdog (`watchdog`) was killed; `over_1s` counts the runs in which
  that took more than a second. A successor that runs beside its predecessor or waits for a lease to expire is a
  violation.
- `storm`: twenty `tenure run` of one job while clients and members are killed at random. `violations` counts how often
  two of them worked at once, and `longest_ms` is the longest wait of one of them for its turn. At the end
  `tenure history --verify` checks the archives of all members together: `archived` revisions, `broken` promises, and
  the margins of the hand-overs after leases that ran out.
- `processes`: every scenario of `crates/cli/tests/processes`, repeatedly, six at a time.
- `sdk`: three client processes take one lock in turns. Meanwhile leaders are killed, stopped and partitioned,
  majorities are stopped, and the holder itself is stopped, partitioned and loses its messages. Two guards that are
  valid by their own checks at once are a violation. The `controls` ignore their losses, and must overlap.
- `losses`: kills leaders one after another under leases of 15 s that clients keep alive. A lease that is `lost` is a
  violation.
- `gate`: kills a store, then a proxy, in the middle of writes. No floor may fall, no acknowledged write may be lost,
  and no lower token may be accepted after a higher one.
- `set`: five clients add numbers under a lock through the store, while they are paused and leaders are killed and
  partitioned. Then the same, faults included, without a fence, which loses some numbers.
- `terraform`: an unmodified `terraform` or `tofu` that keeps its state in a store: two at once, killed in the middle,
  unlocked by force, under a lease that ends, and without locks, where the late one must be refused.
- `abandoned`: acquires over HTTP whose caller closes the connection and repeats them at once with the same
  `Idempotency-Key`. It is a violation if a retry was told that it holds the lock and the lock was `taken` from it while
  its lease lived, or if a retry was `refused`.
- `hostile`: every attack of `crates/cli/tests/abuse/hostile/attacks`, one after the other and then all together, on
  three members, while 64 clients take and release locks and 10,000 leases of 15 s are kept alive. Every client and
  every attack has an address of its own. `goodput_pct` compares what these clients do under attack with what they do
  while other threads burn as much processor time as the attackers used, of which `burnt_pct` was; `worst_pct` is the
  lowest of one attack. Every attack has three rounds, each with its control, which begins when the leases of the
  attackers have ended. Violations: a lease that is `lost`, or `late` (not renewed for half of its ttl), an attack below
  90 %, a control that burns less than 95 %, more memory than the budget, a member that does not answer, or a wrong
  answer.
- `overload`: a member is offered ten times the writes that it can do, in 32 sessions, while 10,000 leases are kept
  alive from addresses of their own. `sent_pct` is how much of it the member read, in percent of its capacity,
  `held_back` counts the writes that it did not read, `refused` those that it refused. `goodput_pct` is what it did,
  compared with its peak while as much processor time is burnt as the generator needs. Violations: less than 90 %, a
  lease that is lost or late, renewals of which one in a hundred takes longer than a sixth of the ttl from its first
  attempt, refusals without a time to try again or with the same for all, or a member that needs longer than a second
  until writes are quick again.
- `overlap` (`cargo xtask clients --overlap`): 20 clients of all languages compete for one lock, while most faults hit
  its holder: processes are frozen, killed and cut off, their bytes are swallowed, leaders are killed and frozen.
  `overlaps` counts the pairs of clients whose checks succeeded at the same time, and grants out of the order of their
  tokens. In the control the same clients ignore their losses, and must overlap.
- `fuzz`: a decoder under libFuzzer, starting from its corpus: the number of inputs that it was given.

| campaign | commit | totals |
|---|---|---|
";

/// Which campaign, and how much of it.
#[derive(clap::Args)]
pub(crate) struct Args {
    name: CampaignName,
    /// How many sequences of commands to try
    #[arg(long, default_value_t = 2_000_000)]
    sequences: u64,
    /// How many seeds of clusters to try
    #[arg(long, default_value_t = 20_000)]
    seeds: u64,
    /// The first sequence or seed, to go on where another campaign ended
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// How many members to kill (if not said: 500 for `gate`, 100 for `losses`, otherwise 50)
    #[arg(long)]
    kills: Option<u64>,
    /// How many numbers to add
    #[arg(long, default_value_t = 20_000)]
    adds: u64,
    /// How often to run every scenario
    #[arg(long, default_value_t = 20)]
    rounds: u64,
    /// How many scripted runs of clients (200 if not said), how often to do each thing to `tenure run` (50), or to
    /// Terraform (10)
    #[arg(long)]
    runs: Option<u64>,
    /// How long a storm lasts (300 if not said), a target of the fuzzer is run (60), an overload lasts (60), or a round
    /// of an attack lasts (3)
    #[arg(long)]
    seconds: Option<u64>,
    /// How many acquires to abandon
    #[arg(long, default_value_t = 1_000)]
    acquires: u64,
    /// Which targets of the fuzzer to run; all if none is named
    #[arg(long)]
    target: Vec<String>,
}

#[derive(Clone, Copy, ValueEnum)]
enum CampaignName {
    /// The machine against its model
    Model,
    /// Whole clusters while everything fails
    Sim,
    /// Real leaders killed: how long leases live, and how soon another leads; real members killed
    /// under load
    Kills,
    /// Every scenario of real processes, again and again
    Processes,
    /// Clients that take a lock in turns while everything is done to them and to members
    Sdk,
    /// Leaders killed under leases that clients keep alive
    Losses,
    /// `tenure run` stopped, killed, cut off: what is left of its command at the next grant
    Run,
    /// Twenty `tenure run` of one job while clients and members are killed
    Storm,
    /// A store and a proxy killed in the middle of writes
    Gate,
    /// Five clients add numbers through the store while everything fails; and without a fence
    Set,
    /// An installed Terraform or OpenTofu whose states are in a store
    Terraform,
    /// Acquires that their callers give up and repeat
    Abandoned,
    /// Attacks on members while honest clients work
    Hostile,
    /// A member that is offered ten times as much as it can do
    Overload,
    /// Every decoder under the fuzzer, one after another
    Fuzz,
}

/// The existing rows, and where a campaign adds its own.
struct CampaignTable {
    path: PathBuf,
    commit: String,
    rows: String,
}

impl CampaignTable {
    fn open(repo: &Repo) -> Result<Self> {
        let path = repo.path(RECORD);
        Ok(Self { commit: repo.commit(RECORD)?, rows: read_record(&path)?, path })
    }

    /// Writes a row after the existing ones.
    fn replace(&self, campaign: &str, line: &str) -> Result<String> {
        let text = format!("{}| {campaign} | {} | {line} |\n", self.rows, self.commit);
        write_record(&self.path, &text)?;
        Ok(text)
    }

    /// Writes a row and keeps it.
    fn add(&mut self, campaign: &str, line: &str) -> Result<()> {
        self.rows = self.replace(campaign, line)?;
        Ok(())
    }
}

/// Adds a row for a run that another command made.
pub(crate) fn record(repo: &Repo, campaign: &str, line: &str) -> Result<()> {
    CampaignTable::open(repo)?.add(campaign, line)
}

/// One part of a campaign.
#[derive(Debug, PartialEq)]
struct CampaignChunk {
    from: u64,
    len: u64,
}

/// Runs `cargo xtask campaign`.
pub(crate) fn run(repo: &Repo, args: &Args) -> Result<ExitCode> {
    match args.name {
        CampaignName::Model => long(repo, &MODEL, args.from, args.sequences),
        CampaignName::Sim => long(repo, &CLUSTERS, args.from, args.seeds),
        CampaignName::Kills => processes::kills(repo, args.kills.unwrap_or(50)),
        CampaignName::Processes => processes::scenarios(repo, args.rounds),
        CampaignName::Sdk => clients::run(repo, &clients::SDK, args.runs.unwrap_or(200)),
        CampaignName::Losses => clients::run(repo, &clients::LOSSES, args.kills.unwrap_or(100)),
        CampaignName::Run => run::runs(repo, args.runs.unwrap_or(50)),
        CampaignName::Storm => run::storm(repo, args.seconds.unwrap_or(300)),
        CampaignName::Gate => guarded::kills(repo, args.kills.unwrap_or(500)),
        CampaignName::Set => guarded::set(repo, args.adds),
        CampaignName::Terraform => guarded::terraform(repo, args.runs.unwrap_or(10)),
        CampaignName::Abandoned => processes::abandoned(repo, args.acquires),
        CampaignName::Hostile => abuse::run(repo, &abuse::HOSTILE, args.seconds.unwrap_or(3)),
        CampaignName::Overload => abuse::run(repo, &abuse::OVERLOAD, args.seconds.unwrap_or(60)),
        CampaignName::Fuzz => fuzz::run(repo, &args.target, args.seconds.unwrap_or(60)),
    }
}

fn long(repo: &Repo, kind: &CampaignChunks, from: u64, len: u64) -> Result<ExitCode> {
    let CampaignChunks { word, unit, .. } = kind;
    ensure!(len > 0, "a campaign needs some {unit}");
    Workspace::load(repo)?.require(SIM)?;
    let record = CampaignTable::open(repo)?;
    // Build before the first chunk, so that cargo prints nothing between the progress lines.
    let mut build = cargo(repo, "build");
    build.args(["--profile", "sim", "--package", SIM]);
    ensure!(hand_over(build)? == ExitCode::SUCCESS, "{SIM} does not build");
    programs::keep_for_campaign(repo)?;
    let watch = Stopwatch::start();
    let mut totals = BTreeMap::new();
    let mut never: Option<BTreeSet<String>> = None;
    for chunk in chunks(kind.chunk, from, len) {
        let RanChunk { numbers, failed, unseen } = run_chunk(repo, kind, &chunk)?;
        add(&mut totals, &numbers);
        never = Some(never.map_or(unseen.clone(), |before| &before & &unseen));
        let line = totals_line(kind, from, &totals);
        // Write after every chunk: the totals then survive an interrupt without a signal handler.
        record.replace(word, &line)?;
        println!("{line}, of {len}, in {}s", watch.elapsed().as_secs());
        ensure!(!failed, "the chunk from {} found a violation; its output is above", chunk.from);
    }
    let never = Vec::from_iter(never.unwrap_or_default());
    // A short campaign is a sample.
    ensure!(never.is_empty() || len < kind.chunk, "never seen: {}", never.join(", "));
    Ok(ExitCode::SUCCESS)
}

/// The result of one chunk.
struct RanChunk {
    numbers: BTreeMap<String, u64>,
    failed: bool,
    /// The kinds of faults that did not happen in it.
    unseen: BTreeSet<String>,
}

fn run_chunk(repo: &Repo, kind: &CampaignChunks, chunk: &CampaignChunk) -> Result<RanChunk> {
    let CampaignChunks { word, unit, .. } = kind;
    let mut command = programs::campaign_program(repo);
    command.args(kind.args).args([format!("--{unit}"), chunk.len.to_string()]);
    command.args(["--from", &chunk.from.to_string()]);
    let output =
        command.stderr(Stdio::inherit()).output().with_context(|| format!("cannot start {SIM}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let numbers = text.lines().next_back().and_then(|line| output::fields(word, line));
    let unseen = unseen(&text);
    if output.status.success() {
        let numbers = numbers.with_context(|| format!("the last line is not `{word} {unit}=…`"))?;
        let violations = output::field(&numbers, "violations")?;
        return Ok(RanChunk { numbers, failed: violations > 0, unseen });
    }
    print!("{text}");
    let mut numbers = numbers.unwrap_or_default();
    // A run that broke off before its last line still counts as one violation.
    let violations = numbers.entry("violations".to_owned()).or_default();
    *violations = (*violations).max(1);
    Ok(RanChunk { numbers, failed: true, unseen })
}

fn unseen(text: &str) -> BTreeSet<String> {
    let kinds = text.lines().filter_map(|line| line.strip_prefix(NEVER));
    kinds.flat_map(|kinds| kinds.split(", ")).map(str::to_owned).collect()
}

fn chunks(most: u64, from: u64, len: u64) -> impl Iterator<Item = CampaignChunk> {
    (0..len.div_ceil(most)).map(move |index| {
        let done = index * most;
        CampaignChunk { from: from + done, len: most.min(len - done) }
    })
}

fn add(totals: &mut BTreeMap<String, u64>, numbers: &BTreeMap<String, u64>) {
    for (name, number) in numbers {
        // The start of a chunk is not added up.
        if name != "from" {
            *totals.entry(name.clone()).or_default() += number;
        }
    }
}

/// Formats the totals: `model from=0 sequences=40000 commands=9 violations=0`. The tried units come first, other
/// numbers of the program follow in order, violations come last.
fn totals_line(kind: &CampaignChunks, from: u64, totals: &BTreeMap<String, u64>) -> String {
    let CampaignChunks { word, unit, .. } = kind;
    let number = |name: &str| totals.get(name).copied().unwrap_or(0);
    let mut line = format!("{word} from={from} {unit}={}", number(unit));
    for (name, value) in totals {
        if name != unit && name != "violations" {
            line.push_str(&format!(" {name}={value}"));
        }
    }
    line.push_str(&format!(" violations={}", number("violations")));
    line
}

fn read_record(path: &Path) -> Result<String> {
    if !path.exists() {
        return Ok(HEADER.to_owned());
    }
    let text =
        fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(if text.ends_with('\n') { text } else { text + "\n" })
}

fn write_record(path: &Path, text: &str) -> Result<()> {
    // Write to a file beside it and rename, so that an interrupt leaves either the old rows or the new ones.
    let beside = path.with_extension("md.new");
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    }
    fs::write(&beside, text).with_context(|| format!("cannot write {}", beside.display()))?;
    fs::rename(&beside, path).with_context(|| format!("cannot replace {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_cover_every_sequence_once() {
        let all: Vec<CampaignChunk> = chunks(20_000, 100, 45_000).collect();
        let expected = [
            CampaignChunk { from: 100, len: 20_000 },
            CampaignChunk { from: 20_100, len: 20_000 },
            CampaignChunk { from: 40_100, len: 5_000 },
        ];
        assert_eq!(all, expected);
    }

    #[test]
    fn a_chunk_says_which_faults_it_did_not_meet() {
        let text = "drop=1 kill=0 pause=0\nnever seen: kill, pause\nsim seeds=1 violations=0";
        assert_eq!(Vec::from_iter(unseen(text)), ["kill", "pause"]);
        assert!(unseen("sim seeds=1 violations=0").is_empty());
    }

    #[test]
    fn totals_add_up_and_name_where_they_began() {
        let mut totals = BTreeMap::new();
        for line in [
            "model from=7 sequences=2 commands=10 violations=0",
            "model from=9 sequences=2 commands=11 violations=1",
        ] {
            add(&mut totals, &output::fields("model", line).unwrap());
        }
        let line = totals_line(&MODEL, 7, &totals);
        assert_eq!(line, "model from=7 sequences=4 commands=21 violations=1");
    }
}
