//! Prints the results, for people and for programs.

use std::fmt::Write;

/// The results of one run, in the order in which they were taken.
#[derive(Default)]
pub(crate) struct RunResults(Vec<RunResult>);

struct RunResult {
    name: String,
    value: f64,
    /// What the result means, with its unit and the target value, if there is one.
    meaning: String,
}

impl RunResults {
    pub(crate) fn add(&mut self, name: impl Into<String>, value: f64, meaning: impl Into<String>) {
        let (name, meaning) = (name.into(), meaning.into());
        eprintln!("  {name}={}  {meaning}", shown(value));
        self.0.push(RunResult { name, value, meaning });
    }

    pub(crate) fn as_text(&self) -> String {
        let width = self.0.iter().map(|result| result.name.len() + 1).max().unwrap_or(0);
        let mut text = String::new();
        for RunResult { name, value, meaning } in &self.0 {
            let named = format!("{name}=");
            writeln!(text, "{named:<width$} {:>12}  {meaning}", shown(*value))
                .expect("writing to a string succeeds");
        }
        text
    }

    pub(crate) fn as_json(&self) -> String {
        let fields: Vec<String> = self
            .0
            .iter()
            .map(|result| format!("\"{}\":{}", result.name, shown(result.value)))
            .collect();
        format!("{{{}}}", fields.join(","))
    }
}

/// Formats whole numbers from a hundred on, two decimal places below, and three for ratios and other small values.
fn shown(value: f64) -> String {
    match value {
        100.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// The value in the middle; the mean of the two in the middle if their number is even.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => f64::NAN,
        even if even % 2 == 0 => f64::midpoint(values[middle - 1], values[middle]),
        _ => values[middle],
    }
}
