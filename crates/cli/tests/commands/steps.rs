//! Reads the commands of a page, and compares what they print with the page.
//!
//! In a block ` ```console `, a line that begins with `$ ` is a command and one that begins with `> ` continues it. The
//! suffix ` # exit N` is the exit code that it must have. All other lines are lines of its output, in which `…` stands
//! for anything; output that is not shown may come too. Blocks of other kinds are not run.

use crate::stage::Ran;

/// A command of a page, the exit code that it must have, and the lines that it must print.
pub(crate) struct Step {
    pub(crate) command: String,
    code: String,
    output: Vec<String>,
}

/// The commands of a page.
pub(crate) fn steps(page: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut inside = false;
    for line in page.lines() {
        if let Some(kind) = line.strip_prefix("```") {
            inside = kind == "console";
        } else if !inside {
        } else if let Some(command) = line.strip_prefix("$ ") {
            let (command, code) = command.rsplit_once(" # exit ").unwrap_or((command, "0"));
            let (command, code) = (command.to_owned(), code.to_owned());
            steps.push(Step { command, code, output: Vec::new() });
        } else if let Some(more) = line.strip_prefix("> ") {
            let command = &mut steps.last_mut().unwrap().command;
            *command = format!("{command}\n{more}");
        } else {
            steps.last_mut().unwrap().output.push(line.to_owned());
        }
    }
    steps
}

/// The command whose exit code says whether the cluster is healthy.
const STATUS: &str = "tenure cluster status";

/// A script that runs the commands one after the other. Behind the output of each it prints a line with its exit code.
pub(crate) fn script(steps: &[Step]) -> String {
    let mut script = String::new();
    for step in steps {
        // Members that have just started may elect another leader before they settle.
        if step.command.starts_with(STATUS) && step.code == "0" {
            let quiet = format!("{} > /dev/null 2>&1", step.command);
            script
                .push_str(&format!("for i in $(seq 100); do {quiet} && break; sleep 0.1; done\n"));
        }
        script.push_str(&format!("{{ {}\n}} 2>&1\nprintf '\\n@@ %s\\n' $?\n", step.command));
    }
    script
}

/// Compares what the script printed with what the page says.
pub(crate) fn compare(name: &str, steps: Vec<Step>, ran: &Ran) {
    let mut lines = ran.out.lines();
    for Step { command, code, output } in steps {
        let mut said = Vec::new();
        let ended = loop {
            let line = lines.next().unwrap_or_else(|| panic!("{name}: {command}: {ran:?}"));
            match line.strip_prefix("@@ ") {
                Some(code) => break code,
                None => said.push(line),
            }
        };
        assert_eq!(ended, code, "{name}: {command}: {said:#?}");
        for expected in output {
            let is_said = said.iter().any(|line| means(&expected, line));
            assert!(is_said, "{name}: {command}: {expected:?} is not in {said:#?}");
        }
    }
}

/// Whether a line of a page stands for a line of output.
fn means(expected: &str, line: &str) -> bool {
    let mut parts = expected.split('…');
    let Some(mut rest) = line.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.is_empty() || expected.ends_with('…')
}
