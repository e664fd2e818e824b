//! Runs test programs side by side, each with a time limit.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::clock::Stopwatch;
use crate::output::{self, Tests};
use crate::repo::Repo;

use super::log::LayerLog;
use super::retry::{FailedTest, RetryMarkers, failures};

/// How many programs run side by side: most of them wait for disks, elections and deadlines.
const TOGETHER: usize = 3;

/// The time limit of a program: the slowest needs a third of it on two cores.
const LIMIT: Duration = Duration::from_secs(480);

/// How often the running programs are polled.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The slowest programs, which start first, so that none of them runs alone at the end. Programs that use the whole
/// processor are not next to each other in this list.
const SLOW: &[&str] = &[
    "cli-sdk",
    "server-http",
    "server-server",
    "backends-stores",
    "cli-run",
    "client-alone",
    "cli-members",
    "cli-commands",
    "fence-fences",
    "cli-abuse",
    "sim-clusters",
    "testkit-verbs",
    "store-store",
    "sim-lib",
    "server-lib",
];

/// One program with tests.
#[derive(Debug, PartialEq)]
pub(crate) struct Binary {
    /// The crate and program: `server-grpc`, `core-lib`.
    pub(crate) name: String,
    /// The directory of the crate: `server`, `core`.
    pub(crate) krate: String,
    /// Whether it is an integration test, with a file of its own.
    pub(crate) is_integration: bool,
    program: PathBuf,
    /// The working directory of the tests: the directory of the crate.
    dir: PathBuf,
}

impl Binary {
    /// Runs it from its directory, and shows what its tests print.
    pub(crate) fn with_output(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.current_dir(&self.dir).env("CARGO_MANIFEST_DIR", &self.dir);
        command.args(["--nocapture"]);
        command
    }
}

/// What became of one program.
pub(crate) struct FinishedBinary {
    pub(crate) tests: Tests,
    /// Why it did not pass, if it did not.
    pub(crate) problem: Option<String>,
    /// The failed tests with their output.
    pub(crate) failures: Vec<FailedTest>,
    binary: Binary,
}

struct RunningBinary {
    binary: Binary,
    child: Child,
    watch: Stopwatch,
    said: PathBuf,
}

/// The test programs that cargo built, from its JSON messages, the slow ones first.
pub(crate) fn built<'a>(lines: impl IntoIterator<Item = &'a str>) -> Vec<Binary> {
    let mut all: Vec<Binary> = lines.into_iter().filter_map(binary).collect();
    all.sort_by_key(|each| {
        let rank = SLOW.iter().position(|slow| *slow == each.name).unwrap_or(SLOW.len());
        (rank, each.name.clone())
    });
    all
}

fn binary(line: &str) -> Option<Binary> {
    let message: Value = output::is_message(line).then(|| serde_json::from_str(line).ok())??;
    if message["profile"]["test"] != true {
        return None;
    }
    let program = PathBuf::from(message["executable"].as_str()?);
    let dir = PathBuf::from(message["manifest_path"].as_str()?).parent()?.to_owned();
    let krate = dir.file_name()?.to_str()?;
    let kind = message["target"]["kind"][0].as_str()?;
    let part = if kind == "test" { message["target"]["name"].as_str()? } else { kind };
    Some(Binary {
        name: format!("{krate}-{part}"),
        krate: krate.to_owned(),
        is_integration: kind == "test",
        program,
        dir,
    })
}

/// Runs all programs and reports each as it ends. Failed tests with a marker run once more at the end.
pub(crate) fn run(
    repo: &Repo,
    log: &mut LayerLog,
    binaries: Vec<Binary>,
    markers: &RetryMarkers,
) -> Result<Vec<FinishedBinary>> {
    let mut waiting = binaries.into_iter();
    let (mut running, mut ended): (Vec<RunningBinary>, Vec<FinishedBinary>) =
        (Vec::new(), Vec::new());
    loop {
        while running.len() < TOGETHER {
            let Some(next) = waiting.next() else { break };
            running.push(start(repo, next, &[])?);
        }
        if running.is_empty() {
            return retried(repo, log, ended, markers);
        }
        thread::sleep(POLL_INTERVAL);
        log.show_progress();
        let mut still = Vec::new();
        for mut each in running {
            match poll(&mut each)? {
                Some(problem) => ended.push(closed(log, each, problem)?),
                None => still.push(each),
            }
        }
        running = still;
    }
}

/// Runs failed tests once more, alone, if all that failed in their program have a marker.
fn retried(
    repo: &Repo,
    log: &mut LayerLog,
    ended: Vec<FinishedBinary>,
    markers: &RetryMarkers,
) -> Result<Vec<FinishedBinary>> {
    let mut all = Vec::new();
    for mut each in ended {
        if each.problem.is_some() && each.may_run_again(markers) {
            let names: Vec<String> = each.failures.iter().map(|it| it.test.clone()).collect();
            log.told(&format!("  {}: again, alone: {}", each.binary.name, names.join(" ")));
            let mut running = start(repo, each.binary, &names)?;
            let problem = loop {
                match poll(&mut running)? {
                    Some(problem) => break problem,
                    None => thread::sleep(POLL_INTERVAL),
                }
            };
            let again = closed(log, running, problem)?;
            each.tests.retried = names.len() as u64;
            if again.problem.is_none() && again.tests.passed == names.len() as u64 {
                each.tests.passed += again.tests.passed;
                each.tests.failed = 0;
                each.problem = None;
            }
            each.binary = again.binary;
        }
        all.push(each);
    }
    Ok(all)
}

impl FinishedBinary {
    fn may_run_again(&self, markers: &RetryMarkers) -> bool {
        let Binary { krate, is_integration, .. } = &self.binary;
        *is_integration && markers.allow(krate, &self.failures, self.tests.failed)
    }

    /// Whether the program passed only with the second run.
    pub(crate) fn is_unsteady(&self) -> bool {
        self.problem.is_none() && !self.failures.is_empty()
    }

    /// The failed tests, with the first lines of their output.
    pub(crate) fn words(&self) -> Vec<String> {
        let each = self.failures.iter().flat_map(|it| {
            let head = format!("{} {}", self.binary.name, it.test);
            std::iter::once(head).chain(it.short().into_iter().map(|line| format!("    {line}")))
        });
        each.collect()
    }
}

fn start(repo: &Repo, binary: Binary, only: &[String]) -> Result<RunningBinary> {
    // A file instead of a pipe: processes that the program leaves behind would keep a pipe open.
    let turn = if only.is_empty() { "" } else { "-again" };
    let said = repo.path(&format!("target/xtask/unit-{}{turn}.log", binary.name));
    let out = File::create(&said).with_context(|| format!("cannot write {}", said.display()))?;
    let err = out.try_clone().context("cannot share the file of a test program")?;
    let mut command = Command::new(&binary.program);
    command.current_dir(&binary.dir).env("CARGO_MANIFEST_DIR", &binary.dir);
    command.stdin(Stdio::null()).stdout(out).stderr(err);
    if !only.is_empty() {
        command.arg("--exact").args(only);
    }
    let child = command.spawn().with_context(|| format!("cannot start {}", binary.name))?;
    Ok(RunningBinary { binary, child, watch: Stopwatch::start(), said })
}

/// Polls a program: `None` while it runs, then its problem, if it has one.
fn poll(running: &mut RunningBinary) -> Result<Option<Option<String>>> {
    let name = &running.binary.name;
    if let Some(status) = running.child.try_wait().context("cannot wait for a child")? {
        return Ok(Some((!status.success()).then(|| format!("{name}: {status}"))));
    }
    if running.watch.elapsed() < LIMIT {
        return Ok(None);
    }
    running.child.kill().with_context(|| format!("cannot end {name}"))?;
    running.child.wait().context("cannot wait for a child")?;
    Ok(Some(Some(format!("{name} did not end within {}s", LIMIT.as_secs()))))
}

fn closed(
    log: &mut LayerLog,
    running: RunningBinary,
    problem: Option<String>,
) -> Result<FinishedBinary> {
    let RunningBinary { binary, watch, said, .. } = running;
    let bytes = std::fs::read(&said).with_context(|| format!("cannot read {}", said.display()))?;
    let text = String::from_utf8_lossy(&bytes);
    log.line(&format!("$ {}", binary.name))?;
    for line in text.lines() {
        log.line(line)?;
    }
    let tests = output::tests(text.lines());
    let seconds = watch.elapsed().as_secs();
    log.told(&format!(
        "  {}: {} passed, {} failed, in {seconds}s",
        binary.name, tests.passed, tests.failed
    ));
    let failures = if problem.is_some() { failures(&text) } else { Vec::new() };
    Ok(FinishedBinary { tests, problem, failures, binary })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MESSAGE: &str = concat!(
        r#"{"reason":"compiler-artifact","manifest_path":"/top/crates/server/Cargo.toml","#,
        r#""target":{"kind":["test"],"name":"grpc"},"profile":{"test":true},"#,
        r#""executable":"/top/target/debug/deps/grpc-1"}"#
    );

    fn sample(name: &str, program: PathBuf, dir: PathBuf) -> Binary {
        let krate = name.split('-').next().unwrap().to_owned();
        Binary { name: name.to_owned(), krate, is_integration: true, program, dir }
    }

    #[test]
    fn programs_are_named_by_crate_and_test() {
        let built = built([MESSAGE, "   Compiling tenure-core"]);
        let expected = Binary {
            name: "server-grpc".to_owned(),
            krate: "server".to_owned(),
            is_integration: true,
            program: "/top/target/debug/deps/grpc-1".into(),
            dir: "/top/crates/server".into(),
        };
        assert_eq!(built, [expected]);
    }

    #[test]
    fn a_marked_test_that_failed_has_one_more_try() {
        let repo = Repo::find().unwrap();
        let mut log =
            LayerLog::create(&repo, "selftest-again", super::super::log::Verbosity::Progress)
                .unwrap();
        let dir = repo.path("target/xtask");
        let program = |name: &str, second: &str| {
            // The script fails without arguments, as a test runner does. Asked for one test, it runs `second`.
            let test =
                if name.starts_with("server") || name.starts_with("cli") { "m::t" } else { "u" };
            let words = format!(
                "failures:\\n\\n---- {test} stdout ----\\nthread t panicked at x\\nlate\\n"
            );
            let text = format!(
                "#!/bin/sh\nif [ $# -gt 0 ]; then {second}; exit; fi\n\
                 printf '\\n{words}\\nfailures:\\n    {test}\\n\\n'\n\
                 echo 'test result: FAILED. 2 passed; 1 failed;'\nexit 101\n"
            );
            let path = dir.join(format!("selftest-{name}.sh"));
            std::fs::write(&path, text).unwrap();
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
            std::fs::set_permissions(&path, mode).unwrap();
            sample(name, path, dir.clone())
        };
        let steady = "echo 'test result: ok. 1 passed; 0 failed;'";
        let all = vec![
            program("server-selftest", steady),
            program("core-selftest", steady),
            program("cli-selftest", "exit 101"),
        ];
        let mut markers = RetryMarkers::default();
        for module in ["cli::selftest::m", "server::selftest::m"] {
            markers.add(module, "// Retry once: a reason\nfn t() {\n");
        }
        let mut ended = run(&repo, &mut log, all, &markers).unwrap();
        ended.sort_by_key(|each| each.binary.name.clone());
        let passed: Vec<_> =
            ended.iter().map(|it| (it.problem.is_none(), it.is_unsteady())).collect();
        assert_eq!(passed, [(false, false), (false, false), (true, true)], "cli, core, server");
        assert_eq!(ended[2].tests, Tests { passed: 3, failed: 0, retried: 1 });
        assert_eq!(ended[2].words()[0], "server-selftest m::t");
    }

    #[test]
    fn what_is_no_test_is_no_program() {
        let library = MESSAGE.replace("\"test\":true", "\"test\":false");
        assert_eq!(built([library.as_str()]), []);
    }

    #[test]
    fn a_program_that_fails_is_told_with_its_name() {
        let repo = Repo::find().unwrap();
        let mut log =
            LayerLog::create(&repo, "selftest-binaries", super::super::log::Verbosity::Progress)
                .unwrap();
        let binary =
            |name: &str, program: &str| sample(name, program.into(), repo.root().to_owned());
        let all =
            vec![binary("selftest-true", "/bin/true"), binary("selftest-false", "/bin/false")];
        let mut ended = run(&repo, &mut log, all, &RetryMarkers::default()).unwrap();
        ended.sort_by_key(|each| each.problem.is_some());
        assert_eq!(ended[0].problem, None);
        assert!(ended[1].problem.as_ref().unwrap().starts_with("selftest-false: "));
    }
}
