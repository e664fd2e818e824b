//! Runs the layers of tests and prints a summary.

mod binaries;
mod layer;
mod log;
mod retry;

use std::process::ExitCode;

use anyhow::{Context, Result, anyhow};
use clap::builder::PossibleValuesParser;

use crate::clock::Stopwatch;
use crate::output::Tests;
use crate::repo::Repo;
use crate::workspace::Workspace;

use self::layer::{CHECKED, Depth, LAYERS, Lane, Layer, LayerContext, LayerReport};
use self::log::{LayerLog, Verbosity};

/// How many of its last lines a failed layer shows: about a screen.
const TAIL_LINES: usize = 60;

/// What to run, and how much of it to show.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The layers to run; all of them if none is named
    #[arg(value_name = "LAYER", value_parser = PossibleValuesParser::new(layer::names()))]
    layers: Vec<String>,
    /// List the layers and run nothing
    #[arg(long)]
    list: bool,
    /// Show everything the layers print
    #[arg(long)]
    verbose: bool,
    /// Let warnings fail the lint layer, as in continuous integration
    #[arg(long)]
    strict: bool,
}

/// How much of a check to show, and whether warnings fail.
#[derive(clap::Args)]
pub(crate) struct CheckArgs {
    /// Show everything the layers print
    #[arg(long)]
    verbose: bool,
    /// Let warnings fail the lint layer, as in continuous integration
    #[arg(long)]
    strict: bool,
}

/// A layer with its result.
struct LayerResult {
    name: &'static str,
    seconds: u64,
    report: LayerReport,
}

/// Runs `cargo xtask test`.
pub(crate) fn run(repo: &Repo, args: &Args) -> Result<ExitCode> {
    if args.list {
        LAYERS.iter().for_each(|layer| println!("{:8} {}", layer.name, layer.about));
        return Ok(ExitCode::SUCCESS);
    }
    let wanted = |layer: &&Layer| {
        args.layers.is_empty() || args.layers.iter().any(|name| name == layer.name)
    };
    run_layers(repo, args, LAYERS.iter().filter(wanted), Depth::Full)
}

/// Runs `cargo xtask check`.
pub(crate) fn check(repo: &Repo, args: &CheckArgs) -> Result<ExitCode> {
    let wanted = |layer: &&Layer| CHECKED.contains(&layer.name);
    let args = Args { layers: Vec::new(), list: false, verbose: args.verbose, strict: args.strict };
    run_layers(repo, &args, LAYERS.iter().filter(wanted), Depth::Check)
}

fn run_layers(
    repo: &Repo,
    args: &Args,
    layers: impl Iterator<Item = &'static Layer>,
    depth: Depth,
) -> Result<ExitCode> {
    crate::signals::stop_ignoring()?;
    let watch = Stopwatch::start();
    let lanes = Lanes::of(layers);
    let show = if args.verbose { Verbosity::Everything } else { Verbosity::Progress };
    let quiet = if args.verbose { show } else { Verbosity::Nothing };
    // Only one lane at a time shows its progress.
    let of_beside = if lanes.has_only_beside() { show } else { quiet };
    let of_waiting = if lanes.after.is_empty() { show } else { quiet };
    let run = |layers: &[&Layer], show| run_lane(repo, args, layers, depth, show);
    let all = std::thread::scope(|scope| {
        let beside = scope.spawn(|| {
            lower_priority()?;
            run(&lanes.beside, of_beside)
        });
        let mut all = run(&lanes.before, show)?;
        let waiting: Vec<_> =
            lanes.waiting.iter().map(|layer| scope.spawn(|| run(&[layer], of_waiting))).collect();
        all.extend(run(&lanes.after, show)?);
        for lane in waiting.into_iter().chain([beside]) {
            all.extend(lane.join().map_err(|_| anyhow!("a lane of layers panicked"))??);
        }
        anyhow::Ok(all)
    })?;
    println!();
    recap(&all).iter().for_each(|line| println!("{line}"));
    let tests = closing(&all);
    let seconds = watch.elapsed().as_secs();
    let Tests { passed, failed, retried } = tests;
    println!("\n{passed} passed, {failed} failed, {retried} retried, in {seconds}s");
    let good = all.iter().all(|ran| ran.report.problem.is_none());
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Layers by when they run.
#[derive(Default)]
struct Lanes {
    before: Vec<&'static Layer>,
    waiting: Vec<&'static Layer>,
    /// Beside those that mostly wait.
    after: Vec<&'static Layer>,
    beside: Vec<&'static Layer>,
}

impl Lanes {
    fn of(layers: impl Iterator<Item = &'static Layer>) -> Self {
        let mut lanes = Self::default();
        for layer in layers {
            let lane = match layer.lane {
                Lane::Beside => &mut lanes.beside,
                Lane::Waiting => &mut lanes.waiting,
                Lane::Main if lanes.waiting.is_empty() => &mut lanes.before,
                Lane::Main => &mut lanes.after,
            };
            lane.push(layer);
        }
        lanes
    }

    fn has_only_beside(&self) -> bool {
        self.before.is_empty() && self.waiting.is_empty()
    }
}

/// Runs layers one after another. A failed layer does not keep the later ones from running.
fn run_lane(
    repo: &Repo,
    args: &Args,
    layers: &[&Layer],
    depth: Depth,
    show: Verbosity,
) -> Result<Vec<LayerResult>> {
    layers.iter().map(|layer| run_layer(repo, args, layer, depth, show)).collect()
}

/// Gives this thread, and the processes that it starts, what other processes leave of the processor.
fn lower_priority() -> Result<()> {
    const LOWEST: i32 = 19;
    rustix::process::setpriority_process(None, LOWEST).context("cannot lower the priority")
}

fn run_layer(
    repo: &Repo,
    args: &Args,
    layer: &Layer,
    depth: Depth,
    show: Verbosity,
) -> Result<LayerResult> {
    let watch = Stopwatch::start();
    let log = LayerLog::create(repo, layer.name, show)?;
    let mut stage = LayerContext { repo, log, strict: args.strict, depth };
    let report = needed(repo, layer).and_then(|()| (layer.run)(&mut stage));
    let report = report.unwrap_or_else(|error| LayerReport::failed(format!("{error:#}"))).settled();
    stage.log.clear_progress();
    if report.problem.is_some() && !args.verbose {
        stage.log.tail(TAIL_LINES).iter().for_each(|line| eprintln!("  {line}"));
        eprintln!("  (all of it is in {})", stage.log.name());
    }
    let ran = LayerResult { name: layer.name, seconds: watch.elapsed().as_secs(), report };
    println!("{}", summary(&ran));
    Ok(ran)
}

fn needed(repo: &Repo, layer: &Layer) -> Result<()> {
    let Some(package) = layer.package else { return Ok(()) };
    Workspace::load(repo)?.require(package)
}

/// The summary line of a layer.
fn summary(ran: &LayerResult) -> String {
    format!("layer {}: {}, in {}s", ran.name, ran.report.sentence(), ran.seconds)
}

/// All layers as a table, the failed ones last, where the reader looks first, and then the output of failed tests.
fn recap(all: &[LayerResult]) -> Vec<String> {
    let (good, bad): (Vec<&LayerResult>, Vec<&LayerResult>) =
        all.iter().partition(|ran| ran.report.problem.is_none());
    let row = |word: &str, ran: &LayerResult| {
        format!("{word:6}  {:8}  {:>4}s  {}", ran.name, ran.seconds, ran.report.sentence())
    };
    let good = good.iter().map(|ran| row("ok", ran));
    let words = all.iter().flat_map(|ran| &ran.report.words).map(|line| format!("  {line}"));
    good.chain(bad.iter().map(|ran| row("FAILED", ran))).chain(words).collect()
}

/// The tests of all layers that count theirs. A layer that failed without a failed test, for example because it did
/// not compile, counts as one: a failed run never reports zero failures.
fn closing(all: &[LayerResult]) -> Tests {
    let mut sum = Tests::default();
    for ran in all {
        sum += ran.report.tests;
        if ran.report.problem.is_some() && ran.report.tests.failed == 0 {
            sum.failed += 1;
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ran(name: &'static str, report: LayerReport) -> LayerResult {
        LayerResult { name, seconds: 3, report: report.settled() }
    }

    #[test]
    fn a_layer_says_what_it_did_in_one_line() {
        let line = summary(&ran("format", LayerReport::did(7, "7 files are formatted")));
        assert_eq!(line, "layer format: 7 files are formatted, in 3s");
    }

    #[test]
    fn layers_that_mostly_wait_run_beside_the_main_layers_listed_after_them() {
        let lanes = Lanes::of(LAYERS.iter());
        let names = |lane: &[&Layer]| lane.iter().map(|each| each.name).collect::<Vec<_>>();
        assert!(names(&lanes.before).contains(&"processes"));
        assert_eq!(names(&lanes.waiting), ["clients", "console"]);
        assert_eq!(names(&lanes.after), ["docs", "fuzz", "bench"]);
        assert!(!lanes.has_only_beside());
    }

    #[test]
    fn a_layer_that_did_nothing_failed() {
        let line = summary(&ran("unit", LayerReport::did(0, "ran 0 tests")));
        assert_eq!(line, "layer unit: failed: it did nothing (ran 0 tests), in 3s");
    }

    #[test]
    fn the_recap_ends_with_the_failed_layers() {
        let all = [
            ran("lint", LayerReport::failed("no".into())),
            ran("unit", LayerReport::did(1, "ran")),
        ];
        let names: Vec<bool> = recap(&all).iter().map(|row| row.starts_with("FAILED")).collect();
        assert_eq!(names, [false, true]);
    }

    #[test]
    fn a_failed_run_never_closes_with_zero_failed() {
        let counted =
            LayerReport::did(5, "ran").with_tests(Tests { passed: 5, failed: 0, retried: 1 });
        let mixed =
            LayerReport::did(5, "ran").with_tests(Tests { passed: 3, failed: 2, retried: 0 });
        let all = [
            ran("unit", counted),
            ran("fuzz", mixed.because("2 tests failed")),
            ran("lint", LayerReport::failed("did not compile".into())),
        ];
        assert_eq!(closing(&all), Tests { passed: 8, failed: 3, retried: 1 });
    }
}
