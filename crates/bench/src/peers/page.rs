//! Writes the results into the documentation: a file with all samples, the plots, and the tables between two marks.

use std::path::Path;

use anyhow::{Context, Result};

use super::results::PeerResults;
use super::tables::{self, number};
use super::{goals, plot};

/// The page, the samples, and the directory of the plots.
const PAGE: &str = "benchmarks.md";
const SAMPLES: &str = "benchmarks/samples.json";
const PLOTS: &str = "benchmarks";
/// What the generated part of the page is between.
const FROM: &str =
    "<!-- results: from here on written by `cargo xtask bench peers --page docs` -->\n";
const TO: &str = "<!-- end of the results -->\n";

/// Writes everything below `dir`.
pub(crate) fn write(results: &PeerResults, dir: &Path) -> Result<()> {
    let path = dir.join(PAGE);
    let page =
        std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    let page = replaced(&page, &generated(results))
        .with_context(|| format!("{PAGE} has the two marks"))?;
    std::fs::create_dir_all(dir.join(PLOTS)).context("making the directory of the plots")?;
    std::fs::write(&path, page).with_context(|| format!("writing {}", path.display()))?;
    let samples = serde_json::to_string(&results.to_json()).context("writing JSON")?;
    // A sample on each line: a new run can be compared with the one before.
    let samples = samples.replace("},{\"", "},\n{\"");
    std::fs::write(dir.join(SAMPLES), format!("{samples}\n")).context("writing the samples")?;
    for each in plot::PLOTS {
        if let Some((svg, _)) = plot::draw(results, each) {
            std::fs::write(dir.join(PLOTS).join(each.file), svg).context("writing a plot")?;
        }
    }
    eprintln!("{} is up to date", path.display());
    Ok(())
}

/// Puts the generated part between the marks.
fn replaced(page: &str, generated: &str) -> Option<String> {
    let (before, rest) = page.split_once(FROM)?;
    let (_, after) = rest.split_once(TO)?;
    Some(format!("{before}{FROM}\n{generated}\n{TO}{after}"))
}

fn generated(results: &PeerResults) -> String {
    let mut page = String::from("## Machine and systems\n\n");
    for line in &results.machine {
        page.push_str(&format!("- {line}\n"));
    }
    page.push_str(&format!(
        "- `{}`: {} repetitions, systems in turn, {} s for each rate\n\n",
        results.command, results.repetitions, results.seconds
    ));
    page.push_str("| system | client | how a lock is taken | servers |\n|---|---|---|---|\n");
    for (_, it) in &results.systems {
        page.push_str(&format!(
            "| {} | {} | {} | {} |\n",
            it.version,
            it.client,
            it.way,
            it.settings.join("; ")
        ));
    }
    page.push_str("\n## Goals\n\n| | reached | must | | aim | |\n|---|---|---|---|---|---|\n");
    for goal in goals::goals(results) {
        let reached =
            goal.reached.map_or("–".to_owned(), |it| format!("{}{}", number(it), goal.unit));
        let (must, aim) = (goals::word(goal.must.1), goals::word(goal.aim.1));
        page.push_str(&format!(
            "| {} | {reached} | {} | {must} | {} | {aim} |\n",
            goal.name, goal.must.0, goal.aim.0
        ));
    }
    page.push_str("\n## Results\n\nMedians, with the range of all repetitions in parentheses.\n\n");
    for each in plot::PLOTS {
        if let Some((_, described)) = plot::draw(results, each) {
            page.push_str(&format!("![{}. {described}]({PLOTS}/{})\n\n", each.title, each.file));
        }
    }
    for table in tables::tables(results) {
        page.push_str(&format!("### {}\n\n{}\n", table.title, tables::as_markdown(&table)));
    }
    page.push_str("### Notes\n\n");
    for note in tables::notes(results) {
        page.push_str(&format!("- {note}\n"));
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_between_the_marks_changes() {
        let page = format!("before\n{FROM}old\n{TO}after\n");
        let expected = format!("before\n{FROM}\nnew\n{TO}after\n");
        assert_eq!(replaced(&page, "new"), Some(expected));
        assert_eq!(replaced("without marks", "new"), None);
    }
}
