//! Gives every system its turn, again and again, and collects the samples.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use tempfile::TempDir;
use tenure_server::os;

use super::command::PeersArguments;
use super::results::{PeerResults, PeerSample, SampleOutcome};
use super::servers::PeerServers;
use super::system::AnyPeer;
use super::tables;
use super::usage::QUIET_MAX;
use super::workload::{MeasurePlan, PeerWorkload};

/// What every system does before its first measurement: a server that compiles as it runs is not measured cold.
const WARM_UP: PeerWorkload = PeerWorkload::Cycles { clients: 64, connections: 16 };
const WARM_UP_TIME: Duration = Duration::from_secs(3);
/// How long a workload may take in all, beyond its parts that have limits of their own.
const SPARE: Duration = Duration::from_secs(60);

/// A runtime with one thread for all clients.
pub(crate) fn runtime() -> Result<tokio::runtime::Runtime> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let builder = builder.worker_threads(1).thread_name("bench-clients").enable_all();
    builder.build().context("starting a thread for the clients")
}

/// Runs everything that the arguments ask for.
pub(crate) fn run(
    arguments: &PeersArguments,
    systems: Vec<Box<dyn AnyPeer>>,
) -> Result<PeerResults> {
    ensure!(arguments.seconds > 0.0 && arguments.repetitions > 0, "there is nothing to measure");
    let mut results = PeerResults {
        machine: machine(),
        command: command(),
        repetitions: if arguments.smoke { 1 } else { arguments.repetitions },
        seconds: arguments.seconds,
        ..PeerResults::default()
    };
    let systems = installed(systems, &mut results);
    ensure!(!systems.is_empty(), "no system could be installed");
    let _limit = tenure_server::os::raise_open_files();
    let small = |it: PeerWorkload| if arguments.smoke { it.small() } else { it };
    let mut workloads: Vec<PeerWorkload> = arguments.workloads()?.into_iter().map(small).collect();
    workloads.dedup();
    let mut turns = PeerTurns::new(arguments, workloads, systems.len(), results)?;
    let runtime = runtime()?;
    let (from_us, mut done) = (os::now_us(), 0);
    for repetition in 0..turns.results.repetitions {
        for system in &systems {
            runtime.block_on(turns.turn(&**system, repetition));
        }
        done += 1;
        let minutes = (os::now_us() - from_us) as f64 / 60e6;
        let each = (minutes - turns.once_us as f64 / 60e6) / done as f64;
        let is_late = minutes + each > arguments.minutes && !arguments.full;
        if is_late && done < turns.results.repetitions {
            eprintln!("WARNING: ONLY {done} REPETITIONS: another would take {each:.0} minutes");
            break;
        }
    }
    turns.results.repetitions = done;
    turns.progress.finish_and_clear();
    Ok(turns.results)
}

/// Leaves out the systems that cannot be installed, and says so.
fn installed(systems: Vec<Box<dyn AnyPeer>>, results: &mut PeerResults) -> Vec<Box<dyn AnyPeer>> {
    let mut there = Vec::new();
    for mut system in systems {
        match system.install() {
            Ok(description) => {
                eprintln!("{}: {}", system.name(), description.version);
                description.settings.iter().for_each(|it| eprintln!("  {it}"));
                results.systems.push((system.name().to_owned(), description));
                there.push(system);
            }
            Err(error) => {
                eprintln!(
                    "WARNING: {} IS NOT COMPARED, it cannot be installed: {error:#}",
                    system.name()
                );
                results.missing.push(format!("{}: {error:#}", system.name()));
            }
        }
    }
    there
}

/// The state of a run.
struct PeerTurns {
    plan: MeasurePlan,
    workloads: Vec<PeerWorkload>,
    is_smoke: bool,
    is_full: bool,
    /// Where the data of all systems is, one after another: on one disk.
    data: TempDir,
    results: PeerResults,
    progress: ProgressBar,
    /// The time of workloads that are not repeated.
    once_us: u64,
}

impl PeerTurns {
    fn new(
        arguments: &PeersArguments,
        workloads: Vec<PeerWorkload>,
        systems: usize,
        results: PeerResults,
    ) -> Result<Self> {
        let program = std::env::current_exe().context("finding this program")?;
        // Beside the program, which is on a disk; the system's temporary directory may be in memory.
        let near = program.parent().context("the program is in a directory")?;
        let data = tempfile::Builder::new().prefix("peers-data-").tempdir_in(near);
        let data = data.context("making a directory for the servers' data")?;
        let steps = workloads.len() * systems * results.repetitions;
        let progress = ProgressBar::new(steps as u64);
        let style = ProgressStyle::with_template("[{elapsed_precise}] {bar:30} {pos}/{len} {msg}");
        progress.set_style(style.context("the style of the progress bar")?);
        let (is_smoke, is_full) = (arguments.smoke, arguments.full);
        let plan = plan(arguments, data.path());
        Ok(Self { plan, workloads, is_smoke, is_full, data, results, progress, once_us: 0 })
    }

    /// One system runs all of its workloads once.
    async fn turn(&mut self, system: &dyn AnyPeer, repetition: usize) {
        let mut servers = None;
        for workload in self.workloads.clone() {
            self.progress.set_message(format!("{} {workload}", system.name()));
            let wanted = match system.cannot(workload) {
                Some(why) if repetition == 0 => Err(SampleOutcome::No(why.to_owned())),
                Some(_) => Ok(false),
                None => Ok(repetition == 0 || self.is_repeated(system.name(), workload)),
            };
            let from_us = os::now_us();
            let outcome = match wanted {
                Ok(true) => Some(self.measure(system, &mut servers, workload).await),
                Ok(false) => None,
                Err(no) => Some(no),
            };
            if !self.is_repeated(system.name(), workload) {
                self.once_us += os::now_us() - from_us;
            }
            if let Some(outcome) = outcome {
                self.keep(PeerSample {
                    system: system.name().to_owned(),
                    workload: workload.to_string(),
                    repetition,
                    outcome,
                });
            }
            self.progress.inc(1);
        }
    }

    /// Whether a workload is part of every repetition. Long workloads of other systems are not: they take minutes, and
    /// are not close to any goal.
    fn is_repeated(&self, system: &str, workload: PeerWorkload) -> bool {
        self.is_full || system == "tenure" || !workload.is_heavy()
    }

    /// Runs one workload on servers that are up; on new ones, if it or the one before leaves much behind.
    async fn measure(
        &self,
        system: &dyn AnyPeer,
        servers: &mut Option<PeerServers>,
        workload: PeerWorkload,
    ) -> SampleOutcome {
        if workload.is_heavy() && !self.is_smoke {
            *servers = None;
        }
        let limit = self.plan.prepare_max + self.plan.queue_max + self.plan.renewals * 2 + SPARE;
        let measured = async {
            if servers.is_none() {
                *servers = Some(self.start(system, workload).await?);
            }
            let running = servers.as_mut().context("the servers were started")?;
            system.measure(running, workload, &self.plan).await
        };
        let measured = tokio::time::timeout(limit, measured).await;
        let outcome = match measured {
            Ok(Ok(metrics)) => SampleOutcome::Measured(metrics),
            Ok(Err(error)) => SampleOutcome::Failed(format!("{error:#}")),
            Err(_) => SampleOutcome::Failed(format!("not done within {limit:?}")),
        };
        let failed = matches!(outcome, SampleOutcome::Failed(_));
        // One of the servers may be gone.
        let killed = workload == PeerWorkload::LeaderKilled;
        if failed || killed || workload.is_heavy() && !self.is_smoke {
            *servers = None;
        }
        outcome
    }

    /// Starts the servers with no data, and warms them up.
    async fn start(&self, system: &dyn AnyPeer, workload: PeerWorkload) -> Result<PeerServers> {
        let dir = self.data.path().join(system.name());
        if dir.exists() {
            std::fs::remove_dir_all(&dir).context("removing the data of the turn before")?;
        }
        std::fs::create_dir_all(&dir)?;
        let mut servers = system.start(&dir).await.context("starting the servers")?;
        if !self.is_smoke && !workload.is_heavy() {
            let plan = MeasurePlan { window: WARM_UP_TIME, ..self.plan.clone() };
            system.measure(&mut servers, WARM_UP, &plan).await.context("warming up")?;
        }
        Ok(servers)
    }

    /// Keeps a sample and says what it is.
    fn keep(&mut self, sample: PeerSample) {
        let line = tables::line(&sample);
        let busy = match &sample.outcome {
            SampleOutcome::Measured(metrics) => metrics.other_cores.filter(|it| *it > QUIET_MAX),
            _ => None,
        };
        let busy = busy.map(|it| format!("  NOT QUIET: others used {it:.2} cores"));
        let line = format!("{line}{}", busy.unwrap_or_default());
        // Without a terminal the bar prints nothing.
        match self.progress.is_hidden() {
            true => eprintln!("{line}"),
            false => self.progress.println(line),
        }
        self.results.samples.push(sample);
    }
}

fn plan(arguments: &PeersArguments, data: &Path) -> MeasurePlan {
    let ms = Duration::from_millis;
    if arguments.smoke {
        return MeasurePlan {
            warm_up: ms(50),
            window: ms(150),
            renewals: ms(200),
            lease_ttl: Duration::from_secs(15),
            queue_max: Duration::from_secs(20),
            prepare_max: Duration::from_secs(20),
            writes: 2,
            data: data.to_owned(),
        };
    }
    MeasurePlan {
        warm_up: ms(300),
        window: Duration::from_secs_f64(arguments.seconds),
        renewals: Duration::from_secs(5),
        lease_ttl: Duration::from_secs(15),
        queue_max: Duration::from_secs(60),
        prepare_max: Duration::from_secs(60),
        writes: 5,
        data: data.to_owned(),
    }
}

/// The machine, in words.
fn machine() -> Vec<String> {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let cpu = read("/proc/cpuinfo");
    let model = cpu.lines().find_map(|it| it.strip_prefix("model name")?.split_once(": "));
    let model = model.map_or("unknown processor", |(_, model)| model);
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let memory = read("/proc/meminfo");
    let memory =
        memory.lines().find_map(|it| it.strip_prefix("MemTotal:")?.split_whitespace().next());
    let gib = memory.and_then(|kib| kib.parse::<f64>().ok()).unwrap_or(0.0) / 1_048_576.0;
    vec![
        format!(
            "{cores} cores ({model}), which servers and clients share, and {gib:.0} GiB of memory"
        ),
        format!("Linux {}", read("/proc/sys/kernel/osrelease").trim()),
        "one disk for the data of all servers".to_owned(),
    ]
}

/// The command as a person types it.
fn command() -> String {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let mut words = words.join(" ");
    // What xtask adds is not typed.
    if let Some((before, _)) = words.split_once(" --tenure ") {
        words.truncate(before.len());
    }
    format!("cargo xtask bench {words}")
}
