//! Turns the results into tables, for a terminal and for the page.

use std::fmt::Write;

use super::results::{PeerResults, PeerSample, SampleMetrics, SampleOutcome, SampleSpread};
use super::usage::QUIET_MAX;
use super::workload::{PeerWorkload, WORKLOADS};

/// One table: a row for each workload, a column for each system.
pub(crate) struct ResultTable {
    pub(crate) title: String,
    pub(crate) head: Vec<String>,
    pub(crate) rows: Vec<Vec<String>>,
}

/// What the cells of a table show.
#[derive(Clone, Copy)]
enum CellForm {
    /// One metric with its range.
    Spread(&'static str),
    /// The medians of two metrics.
    Pair(&'static str, &'static str),
    /// The syncs of the servers, or the flushes of the disk with a mark.
    Syncs,
    /// A queue: who failed, how long it formed and drained, the memory of the largest server.
    Queue,
    /// Leases: CPU of servers and of clients in percent of a core, how many were lost.
    Leases,
}

/// A title, the kind of workloads in the rows, and the form of the cells.
type TableForm = (&'static str, &'static str, CellForm);

const TABLES: &[TableForm] = &[
    ("Uncontended: cycles of acquire and release per second", "cycles", CellForm::Spread("per_s")),
    ("Uncontended: a cycle, p50 / p99 in ms", "cycles", CellForm::Pair("p50_ms", "p99_ms")),
    ("Uncontended: CPU of all processes per cycle, µs", "cycles", CellForm::Spread("cpu_us")),
    (
        "Uncontended: CPU per cycle, servers / clients, µs",
        "cycles",
        CellForm::Pair("servers_cpu_us", "clients_cpu_us"),
    ),
    ("Uncontended: syncs of all servers per cycle", "cycles", CellForm::Syncs),
    ("Uncontended: memory of all servers, MiB", "cycles", CellForm::Spread("memory_mib")),
    ("One lock: hand-over gap p50, ms", "handover", CellForm::Spread("p50_ms")),
    ("One lock: hand-over gap p99 / p99.9, ms", "handover", CellForm::Pair("p99_ms", "p999_ms")),
    ("One lock: hand-overs per second", "handover", CellForm::Spread("per_s")),
    (
        "One lock: grants that go back to the client that released, %",
        "handover",
        CellForm::Spread("back_to_releaser_percent"),
    ),
    (
        "A queue forms and drains: failed; seconds to form + to drain; largest server, MiB",
        "queue",
        CellForm::Queue,
    ),
    (
        "Leases kept alive: CPU of servers / of clients, % of a core; lost",
        "leases",
        CellForm::Leases,
    ),
    ("Leases kept alive: memory of all servers, MiB", "leases", CellForm::Spread("memory_mib")),
    ("Linearizable reads per second", "reads", CellForm::Spread("per_s")),
    ("Leader killed: ms until the next grant", "leader", CellForm::Spread("ms")),
    ("Holder with a ttl of 2 s killed: ms until the next grant", "holder", CellForm::Spread("ms")),
    (
        "One key: ms until all watches heard of a write",
        "watchers",
        CellForm::Spread("all_heard_ms"),
    ),
    ("One key: CPU of all processes per event, µs", "watchers", CellForm::Spread("cpu_us")),
];

/// Every table that has results.
pub(crate) fn tables(results: &PeerResults) -> Vec<ResultTable> {
    let tables = TABLES.iter().map(|form| table(results, form));
    tables.filter(|it| !it.rows.is_empty()).collect()
}

fn table(results: &PeerResults, (title, kind, form): &TableForm) -> ResultTable {
    let systems: Vec<&str> = results.systems.iter().map(|(name, _)| name.as_str()).collect();
    let mut workloads: Vec<String> = Vec::new();
    for sample in &results.samples {
        let is_kind = sample.workload.split('-').next() == Some(*kind);
        if is_kind && !workloads.contains(&sample.workload) {
            workloads.push(sample.workload.clone());
        }
    }
    let row = |workload: &String| {
        let cells = systems.iter().map(|system| cell(results, system, workload, *form));
        std::iter::once(label(workload)).chain(cells).collect()
    };
    let mut head = vec![String::new()];
    head.extend(systems.iter().map(|it| (*it).to_owned()));
    ResultTable { title: (*title).to_owned(), head, rows: workloads.iter().map(row).collect() }
}

/// A workload in words.
pub(crate) fn label(workload: &str) -> String {
    let Some(known) = WORKLOADS.iter().find(|it| it.to_string() == workload) else {
        return workload.to_owned();
    };
    let many = |count: usize, noun: &str| {
        let plural = if count == 1 { "" } else { "s" };
        format!("{} {noun}{plural}", number(count as f64))
    };
    match *known {
        PeerWorkload::Cycles { clients, connections } => {
            format!("{}, {}", many(clients, "client"), many(connections, "connection"))
        }
        PeerWorkload::HandOver { clients } | PeerWorkload::Reads { clients } => {
            many(clients, "client")
        }
        PeerWorkload::Leases { leases } => many(leases, "lease"),
        PeerWorkload::Watchers { watchers } => format!("{} watches", number(watchers as f64)),
        PeerWorkload::Queue { waiters } => many(waiters, "waiter"),
        PeerWorkload::HolderKilled => "holder killed".to_owned(),
        PeerWorkload::LeaderKilled => "leader killed".to_owned(),
    }
}

fn cell(results: &PeerResults, system: &str, workload: &str, form: CellForm) -> String {
    let of = |metric: &str| results.spread(system, workload, metric);
    let shown = match form {
        CellForm::Spread(metric) => of(metric).map(spread),
        CellForm::Pair(one, other) => of(one)
            .zip(of(other))
            .map(|(one, other)| format!("{} / {}", number(one.median), number(other.median))),
        CellForm::Syncs => of("fsyncs")
            .map(spread)
            .or_else(|| of("disk_flushes").map(|it| format!("disk: {}", spread(it)))),
        CellForm::Queue => of("failed").and_then(|failed| {
            let median = |metric| of(metric).map(|it| number(it.median));
            let (queue, drain) = (median("queue_s")?, median("drain_s")?);
            Some(format!("{}; {queue} + {drain} s; {}", number(failed.max), median("largest_mib")?))
        }),
        CellForm::Leases => of("servers_cpu_percent").and_then(|servers| {
            let clients = of("clients_cpu_percent")?;
            let (servers, clients) = (number(servers.median), number(clients.median));
            Some(format!("{servers} / {clients}; {} lost", number(of("lost")?.max)))
        }),
    };
    shown.unwrap_or_else(|| missing(results, system, workload).to_owned())
}

/// Why a cell has no metric, in a word.
fn missing(results: &PeerResults, system: &str, workload: &str) -> &'static str {
    match results.of(system, workload).next().map(|it| &it.outcome) {
        Some(SampleOutcome::No(_)) => "no",
        Some(SampleOutcome::Failed(_)) => "failed",
        Some(SampleOutcome::Measured(_)) => "–",
        None => "not run",
    }
}

/// A median and its range.
fn spread(it: SampleSpread) -> String {
    match it.count {
        1 => format!("{} (once)", number(it.median)),
        _ => format!("{} ({}–{})", number(it.median), number(it.min), number(it.max)),
    }
}

/// Three significant digits below 1,000, whole numbers with separators above.
pub(crate) fn number(value: f64) -> String {
    match value.abs() {
        1_000.0.. => {
            let digits = format!("{value:.0}");
            let mut grouped = String::new();
            for (at, digit) in digits.chars().enumerate() {
                if at > 0 && (digits.len() - at).is_multiple_of(3) {
                    grouped.push(',');
                }
                grouped.push(digit);
            }
            grouped
        }
        100.0.. => format!("{value:.0}"),
        _ if value.fract() == 0.0 => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        1.0.. => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// What a reader of the tables has to know: what failed, what is not possible, and how quiet the machine was.
pub(crate) fn notes(results: &PeerResults) -> Vec<String> {
    let mut notes: Vec<String> = results
        .missing
        .iter()
        .map(|it| format!("Not compared, because it could not be installed: {it}"))
        .collect();
    let mut note = |sample: &PeerSample, word: &str, why: &str| {
        let why = why.lines().next().unwrap_or_default();
        let line = format!("{}, {}: {word}{why}", sample.system, label(&sample.workload));
        if !notes.contains(&line) {
            notes.push(line);
        }
    };
    let (mut busy, mut measured) = (0, 0);
    for sample in &results.samples {
        match &sample.outcome {
            SampleOutcome::No(why) => note(sample, "no: ", why),
            SampleOutcome::Failed(why) => note(sample, "failed: ", why),
            SampleOutcome::Measured(SampleMetrics { other_cores, note: said, .. }) => {
                said.iter().for_each(|said| note(sample, "", said));
                measured += usize::from(other_cores.is_some());
                busy += usize::from(other_cores.is_some_and(|it| it > QUIET_MAX));
            }
        }
    }
    notes.push(match busy {
        0 => format!(
            "The machine was quiet: in none of {measured} samples other processes used more than \
             {QUIET_MAX} cores."
        ),
        _ => format!(
            "The machine was NOT quiet: in {busy} of {measured} samples other processes used more \
             than {QUIET_MAX} cores."
        ),
    });
    notes
}

/// One sample in one line.
pub(crate) fn line(sample: &PeerSample) -> String {
    let head = format!("{:<10} {:<18} {}", sample.system, sample.workload, sample.repetition + 1);
    match &sample.outcome {
        SampleOutcome::No(why) => format!("{head}  no: {why}"),
        SampleOutcome::Failed(why) => format!("{head}  FAILED: {why}"),
        SampleOutcome::Measured(metrics) => {
            let shown =
                metrics.metrics.iter().map(|(name, value)| format!("{name}={}", number(*value)));
            let note = metrics.note.as_ref().map(|it| format!("  ({it})")).unwrap_or_default();
            format!("{head}  {}{note}", shown.collect::<Vec<_>>().join(" "))
        }
    }
}

/// All tables and notes, for a terminal.
pub(crate) fn as_text(results: &PeerResults) -> String {
    let mut text = String::new();
    for table in tables(results) {
        let rows: Vec<&Vec<String>> = std::iter::once(&table.head).chain(&table.rows).collect();
        let width = |at: usize| rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..table.head.len()).map(width).collect();
        text.push_str(&format!("\n{}\n", table.title));
        for row in rows {
            let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
            text.push_str(&format!("  {}\n", cells.collect::<Vec<_>>().join("  ").trim_end()));
        }
    }
    text.push('\n');
    for note in notes(results) {
        writeln!(text, "- {note}").expect("writing to a string succeeds");
    }
    text
}

/// A table in Markdown.
pub(crate) fn as_markdown(table: &ResultTable) -> String {
    let row = |cells: &Vec<String>| format!("| {} |\n", cells.join(" | "));
    let rule = format!("|{}\n", "---|".repeat(table.head.len()));
    let rows: String = table.rows.iter().map(row).collect();
    format!("{}{rule}{rows}", row(&table.head))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_that_count() {
        let shown = [1_234_567.8, 999.6, 85.25, 2.0, 1.234, 0.5].map(number);
        assert_eq!(shown, ["1,234,568", "1000", "85.2", "2", "1.23", "0.500"]);
    }

    #[test]
    fn workloads_are_named_in_words() {
        assert_eq!(label("cycles-1x1"), "1 client, 1 connection");
        assert_eq!(label("queue-100000"), "100,000 waiters");
        assert_eq!(label("cycles-3x2"), "cycles-3x2");
    }
}
