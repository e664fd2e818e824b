//! How are figures shown, to a person and to a machine?

use std::fmt::Write;

/// Figures of one run, in the order in which they were taken.
#[derive(Default)]
pub(crate) struct Figures(Vec<Figure>);

struct Figure {
    name: String,
    value: f64,
    /// What the figure means, with its unit and the value to reach, if there is one.
    meaning: String,
}

impl Figures {
    pub(crate) fn add(&mut self, name: impl Into<String>, value: f64, meaning: impl Into<String>) {
        let (name, meaning) = (name.into(), meaning.into());
        eprintln!("  {name}={}  {meaning}", shown(value));
        self.0.push(Figure { name, value, meaning });
    }

    pub(crate) fn as_text(&self) -> String {
        let width = self.0.iter().map(|figure| figure.name.len() + 1).max().unwrap_or(0);
        let mut text = String::new();
        for Figure { name, value, meaning } in &self.0 {
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
            .map(|figure| format!("\"{}\":{}", figure.name, shown(figure.value)))
            .collect();
        format!("{{{}}}", fields.join(","))
    }
}

/// Whole numbers from a hundred on, two places below.
fn shown(value: f64) -> String {
    if value >= 100.0 { format!("{value:.0}") } else { format!("{value:.2}") }
}
