//! Compares the results with the goals of the project.

use super::results::PeerResults;
use super::tables::number;

/// One goal. Each bound is a text for the table and whether it holds. A ratio refers to the other system's value in the
/// same run.
pub(crate) struct PeerGoal {
    pub(crate) name: &'static str,
    /// The value that Tenure reached, if it was measured.
    pub(crate) reached: Option<f64>,
    pub(crate) unit: &'static str,
    /// The bound that it must reach: its text, and whether it holds.
    pub(crate) must: (String, Option<bool>),
    /// The bound that it aims at: its text, and whether it holds.
    pub(crate) aim: (String, Option<bool>),
}

/// Whether a larger or a smaller value is better.
#[derive(Clone, Copy)]
enum BetterWhen {
    Larger,
    Smaller,
}

use BetterWhen::{Larger, Smaller};

/// A bound: a number, or a multiple of what another system has in the same run.
#[derive(Clone, Copy)]
enum GoalBound {
    Number(f64),
    Times(f64, &'static str),
}

use GoalBound::{Number, Times};

/// A name, the workload, the metric, its unit, which values are better, and the bounds for must and aim.
type GoalForm = (
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    BetterWhen,
    &'static [GoalBound],
    &'static [GoalBound],
);

const GOALS: &[GoalForm] = &[
    (
        "cycles/s, 256 clients over 16 connections",
        "cycles-256x16",
        "per_s",
        "/s",
        Larger,
        &[Times(1.0, "redis"), Times(14.0, "etcd")],
        &[Times(20.0, "etcd")],
    ),
    (
        "cycles/s, 64 clients over 16 connections",
        "cycles-64x16",
        "per_s",
        "/s",
        Larger,
        &[Times(1.0, "redis")],
        &[Times(11.0, "etcd")],
    ),
    (
        "cycles/s, 256 clients over 256 connections",
        "cycles-256x256",
        "per_s",
        "/s",
        Larger,
        &[Times(4.0, "etcd")],
        &[Times(5.0, "etcd")],
    ),
    (
        "one client, cycle p50",
        "cycles-1x1",
        "p50_ms",
        " ms",
        Smaller,
        &[Times(0.55, "etcd")],
        &[Times(2.2, "redis")],
    ),
    (
        "hand-over gap p50, 64 clients",
        "handover-64",
        "p50_ms",
        " ms",
        Smaller,
        &[Times(0.4, "zookeeper"), Times(1.3, "redis")],
        &[Times(1.0, "redis")],
    ),
    (
        "100,000 waiters: failed",
        "queue-100000",
        "failed",
        "",
        Smaller,
        &[Number(0.0)],
        &[Number(0.0)],
    ),
    (
        "100,000 waiters queued and drained",
        "queue-100000",
        "all_s",
        " s",
        Smaller,
        &[Number(60.0)],
        &[Number(30.0)],
    ),
    (
        "100,000 waiters: memory of the largest member",
        "queue-100000",
        "largest_mib",
        " MiB",
        Smaller,
        &[Number(500.0)],
        &[Number(500.0)],
    ),
    (
        "100,000 leases kept alive, CPU of the members",
        "leases-100000",
        "servers_cpu_percent",
        " % of a core",
        Smaller,
        &[Number(25.0)],
        &[Number(10.0)],
    ),
    (
        "leader killed until the next grant",
        "leader-killed",
        "ms",
        " ms",
        Smaller,
        &[Number(350.0)],
        &[Number(250.0)],
    ),
    (
        "linearizable reads/s, 64 clients",
        "reads-64",
        "per_s",
        "/s",
        Larger,
        &[Times(5.0, "etcd")],
        &[Times(10.0, "etcd")],
    ),
    (
        "CPU of all processes per cycle, 256 clients over 16 connections",
        "cycles-256x16",
        "cpu_us",
        " µs",
        Smaller,
        &[Number(16.0)],
        &[Number(11.0)],
    ),
];

/// Every goal whose workload was run.
pub(crate) fn goals(results: &PeerResults) -> Vec<PeerGoal> {
    let was_run = |form: &&GoalForm| results.of("tenure", form.1).next().is_some();
    GOALS.iter().filter(was_run).map(|form| goal(results, form)).collect()
}

fn goal(results: &PeerResults, form: &GoalForm) -> PeerGoal {
    let (name, workload, metric, unit, better, must, aim) = *form;
    let reached = results.spread("tenure", workload, metric).map(|it| match metric {
        // A failure in any repetition counts.
        "failed" => it.max,
        _ => it.median,
    });
    let judged =
        |bounds: &[GoalBound]| judge(results, workload, metric, unit, better, bounds, reached);
    PeerGoal { name, reached, unit, must: judged(must), aim: judged(aim) }
}

/// The bounds as text, and whether all of them hold; `None` if that depends on a system that was not run.
fn judge(
    results: &PeerResults,
    workload: &str,
    metric: &str,
    unit: &str,
    better: BetterWhen,
    bounds: &[GoalBound],
    reached: Option<f64>,
) -> (String, Option<bool>) {
    let mut words = Vec::new();
    let mut holds = Some(true);
    for bound in bounds {
        let value = match *bound {
            Number(value) => Some(value),
            Times(factor, system) => results.median(system, workload, metric).map(|it| it * factor),
        };
        let shown = value.map_or("not run".to_owned(), |it| format!("{}{unit}", number(it)));
        words.push(match *bound {
            Number(_) => shown,
            Times(factor, system) => format!("{factor} × {system} ({shown})"),
        });
        let good = reached.zip(value).map(|(reached, value)| match better {
            Larger => reached >= value,
            Smaller => reached <= value,
        });
        // One bound that does not hold decides the result, even if others are unknown.
        holds = match (holds, good) {
            (Some(false), _) | (_, Some(false)) => Some(false),
            (Some(true), Some(true)) => Some(true),
            _ => None,
        };
    }
    (words.join("; "), holds)
}

/// `yes`, `no` or `not known`.
pub(crate) fn word(holds: Option<bool>) -> &'static str {
    match holds {
        Some(true) => "yes",
        Some(false) => "no",
        None => "not known",
    }
}

/// The goals for a terminal.
pub(crate) fn as_text(results: &PeerResults) -> String {
    let mut text =
        String::from("Goals: what Tenure reached, what it must reach, what it aims at\n");
    for goal in goals(results) {
        let reached =
            goal.reached.map_or("–".to_owned(), |it| format!("{}{}", number(it), goal.unit));
        text.push_str(&format!(
            "  {}: {reached}\n    must {}: {}\n    aim  {}: {}\n",
            goal.name,
            goal.must.0,
            word(goal.must.1),
            goal.aim.0,
            word(goal.aim.1)
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::results::{PeerSample, SampleMetrics, SampleOutcome};
    use super::*;

    fn with(values: &[(&str, f64)]) -> PeerResults {
        let mut results = PeerResults::default();
        for (system, value) in values {
            let mut metrics = SampleMetrics::default();
            metrics.add("per_s", *value);
            results.samples.push(PeerSample {
                system: (*system).to_owned(),
                workload: "cycles-256x16".into(),
                repetition: 0,
                outcome: SampleOutcome::Measured(metrics),
            });
        }
        results
    }

    #[test]
    fn ratios_are_of_the_same_run() {
        let results = with(&[("tenure", 150.0), ("etcd", 10.0), ("redis", 140.0)]);
        let first = &goals(&results)[0];
        assert_eq!((first.must.1, first.aim.1), (Some(true), Some(false)));
        assert_eq!(first.must.0, "1 × redis (140/s); 14 × etcd (140/s)");
    }

    #[test]
    fn a_missing_system_leaves_a_goal_open_unless_another_bound_fails() {
        let first = &goals(&with(&[("tenure", 150.0), ("redis", 140.0)]))[0];
        assert_eq!(first.must.1, None);
        let first = &goals(&with(&[("tenure", 100.0), ("redis", 140.0)]))[0];
        assert_eq!(first.must.1, Some(false));
        assert!(goals(&with(&[("redis", 1.0)])).is_empty());
    }
}
