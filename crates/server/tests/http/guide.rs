//! Tests that the quick start of the guide works as written.

use std::fmt::Write as _;
use std::process::{Command, Stdio};

use crate::members::Members;

const GUIDE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guides/http.md");
const MARK: &str = "==== the next command ====";

/// A command of the guide, and the output it shows.
struct Step {
    command: String,
    prints: String,
}

fn steps(page: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut inside = false;
    for line in page.lines() {
        if line.starts_with("```") {
            inside = line == "```console";
        } else if let Some(command) = line.strip_prefix("$ ").filter(|_| inside) {
            steps.push(Step { command: command.to_owned(), prints: String::new() });
        } else if let Some(step) = steps.last_mut().filter(|_| inside) {
            step.prints += line;
            step.prints.push('\n');
        }
    }
    steps
}

/// Whether a text matches the shown one, where `…` stands for anything.
fn is_as_shown(text: &str, shown: &str) -> bool {
    let mut rest = text;
    for (at, part) in shown.split('…').enumerate() {
        let found = if at == 0 { rest.starts_with(part).then_some(0) } else { rest.find(part) };
        let Some(found) = found else { return false };
        rest = &rest[found + part.len()..];
    }
    true
}

#[test]
fn the_quick_start_works_as_it_is_written() {
    let members = Members::start(1);
    let at = members.client(0, "guide").at.to_string();
    let page = std::fs::read_to_string(GUIDE).unwrap();
    let steps = steps(&page);
    assert!(steps.len() > 10, "the guide has lost its commands");
    let mut script = String::from("exec 2>&1\n");
    for step in &steps {
        let command = step.command.replace("127.0.0.1:7450", &at);
        writeln!(script, "{command}\nprintf '\\n%s\\n' '{MARK}'").unwrap();
    }
    let dir = tempfile::tempdir().unwrap();
    let ran = Command::new("bash")
        .args(["-c", &script])
        .current_dir(dir.path())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let printed = String::from_utf8(ran.stdout).unwrap();
    let mark = format!("\n{MARK}\n");
    let mut outputs = printed.split(&mark);
    for Step { command, prints } in &steps {
        let output = outputs.next().unwrap_or_default();
        let shown = prints.trim_end();
        assert!(is_as_shown(output, shown), "$ {command}\nprints\n{output}\nnot\n{shown}");
    }
}
