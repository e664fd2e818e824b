//! How do test programs run side by side, none of them for ever?

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::clock::Stopwatch;
use crate::repo::Repo;
use crate::said::{self, Tests};

use super::again::{Failure, Program, failures};
use super::log::Log;

/// Programs that run side by side: most of them wait, for disks, elections and deadlines.
const TOGETHER: usize = 3;

/// A program that takes longer hangs: the slowest needs a quarter of it on two cores.
const LIMIT: Duration = Duration::from_secs(300);

/// How often the running programs are looked at.
const LOOK: Duration = Duration::from_millis(50);

/// The programs that take longest start first, so that none of them is waited for alone; those that take all
/// the processor there is are kept apart.
const SLOW: &[&str] = &[
    "cli-sdk",
    "server-http",
    "backends-stores",
    "cli-hold",
    "client-alone",
    "cli-place",
    "cli-commands",
    "fence-fences",
    "cli-abuse",
];

/// One program full of tests.
#[derive(Debug, PartialEq)]
pub(crate) struct Binary {
    /// Crate and program: `server-grpc`, `core-lib`.
    pub(crate) name: String,
    program: PathBuf,
    /// Where tests expect to be started: the directory of the crate.
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
pub(crate) struct Ended {
    pub(crate) tests: Tests,
    /// Why it did not pass, if it did not.
    pub(crate) problem: Option<String>,
    /// What its failed tests said.
    pub(crate) failures: Vec<Failure>,
    binary: Binary,
}

struct Running {
    binary: Binary,
    child: Child,
    watch: Stopwatch,
    said: PathBuf,
}

/// The programs that cargo built, from its json messages, the slow ones first.
pub(crate) fn built<'a>(lines: impl IntoIterator<Item = &'a str>) -> Vec<Binary> {
    let mut all: Vec<Binary> = lines.into_iter().filter_map(binary).collect();
    all.sort_by_key(|each| {
        let rank = SLOW.iter().position(|slow| *slow == each.name).unwrap_or(SLOW.len());
        (rank, each.name.clone())
    });
    all
}

fn binary(line: &str) -> Option<Binary> {
    let message: Value = said::is_message(line).then(|| serde_json::from_str(line).ok())??;
    if message["profile"]["test"] != true {
        return None;
    }
    let program = PathBuf::from(message["executable"].as_str()?);
    let dir = PathBuf::from(message["manifest_path"].as_str()?).parent()?.to_owned();
    let krate = dir.file_name()?.to_str()?;
    let kind = message["target"]["kind"][0].as_str()?;
    let part = if kind == "test" { message["target"]["name"].as_str()? } else { kind };
    Some(Binary { name: format!("{krate}-{part}"), program, dir })
}

/// Runs them all, and tells of each as it ends.
pub(crate) fn run(repo: &Repo, log: &mut Log, binaries: Vec<Binary>) -> Result<Vec<Ended>> {
    let mut waiting = binaries.into_iter();
    let (mut running, mut ended): (Vec<Running>, Vec<Ended>) = (Vec::new(), Vec::new());
    loop {
        while running.len() < TOGETHER {
            let Some(next) = waiting.next() else { break };
            running.push(start(repo, next, &[])?);
        }
        if running.is_empty() {
            return tried_again(repo, log, ended);
        }
        thread::sleep(LOOK);
        log.show_progress();
        let mut still = Vec::new();
        for mut each in running {
            match looked_at(&mut each)? {
                Some(problem) => ended.push(closed(log, each, problem)?),
                None => still.push(each),
            }
        }
        running = still;
    }
}

/// Gives tests that failed beside others one more try by themselves.
fn tried_again(repo: &Repo, log: &mut Log, ended: Vec<Ended>) -> Result<Vec<Ended>> {
    let mut all = Vec::new();
    for mut each in ended {
        if each.problem.is_some() && each.may_try_again() {
            let names: Vec<String> = each.failures.iter().map(|it| it.test.clone()).collect();
            log.told(&format!("  {}: again, alone: {}", each.binary.name, names.join(" ")));
            let mut running = start(repo, each.binary, &names)?;
            let problem = loop {
                match looked_at(&mut running)? {
                    Some(problem) => break problem,
                    None => thread::sleep(LOOK),
                }
            };
            let again = closed(log, running, problem)?;
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

impl Ended {
    fn may_try_again(&self) -> bool {
        let counted = self.failures.len() as u64 == self.tests.failed;
        let of = Program::named(&self.binary.name);
        counted && !self.failures.is_empty() && self.failures.iter().all(|it| it.may_be_late(of))
    }

    /// Whether it passed only at the second try.
    pub(crate) fn is_unsteady(&self) -> bool {
        self.problem.is_none() && !self.failures.is_empty()
    }

    /// Its failed tests, with the first of their words.
    pub(crate) fn words(&self) -> Vec<String> {
        let each = self.failures.iter().flat_map(|it| {
            let head = format!("{} {}", self.binary.name, it.test);
            std::iter::once(head).chain(it.short().into_iter().map(|line| format!("    {line}")))
        });
        each.collect()
    }
}

fn start(repo: &Repo, binary: Binary, only: &[String]) -> Result<Running> {
    // A file and not a pipe: what a program leaves behind would hold a pipe open.
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
    Ok(Running { binary, child, watch: Stopwatch::start(), said })
}

/// Nothing while it runs; once it ended, what was wrong with that if anything was.
fn looked_at(running: &mut Running) -> Result<Option<Option<String>>> {
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

fn closed(log: &mut Log, running: Running, problem: Option<String>) -> Result<Ended> {
    let Running { binary, watch, said, .. } = running;
    let bytes = std::fs::read(&said).with_context(|| format!("cannot read {}", said.display()))?;
    let text = String::from_utf8_lossy(&bytes);
    log.line(&format!("$ {}", binary.name))?;
    for line in text.lines() {
        log.line(line)?;
    }
    let tests = said::tests(text.lines());
    let seconds = watch.elapsed().as_secs();
    log.told(&format!(
        "  {}: {} passed, {} failed, in {seconds}s",
        binary.name, tests.passed, tests.failed
    ));
    let failures = if problem.is_some() { failures(&text) } else { Vec::new() };
    Ok(Ended { tests, problem, failures, binary })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MESSAGE: &str = concat!(
        r#"{"reason":"compiler-artifact","manifest_path":"/top/crates/server/Cargo.toml","#,
        r#""target":{"kind":["test"],"name":"grpc"},"profile":{"test":true},"#,
        r#""executable":"/top/target/debug/deps/grpc-1"}"#
    );

    #[test]
    fn programs_are_named_by_crate_and_test() {
        let built = built([MESSAGE, "   Compiling tenure-core"]);
        let expected = Binary {
            name: "server-grpc".to_owned(),
            program: "/top/target/debug/deps/grpc-1".into(),
            dir: "/top/crates/server".into(),
        };
        assert_eq!(built, [expected]);
    }

    #[test]
    fn a_test_that_failed_beside_others_has_one_more_try() {
        let repo = Repo::find().unwrap();
        let mut log =
            Log::create(&repo, "selftest-again", super::super::log::Show::Progress).unwrap();
        let dir = repo.path("target/xtask");
        let program = |name: &str, second: &str| {
            // Fails without arguments, as a test runner does; asked for one test it does as told.
            let words = "failures:\\n\\n---- t stdout ----\\nthread t panicked at x\\nlate\\n";
            let text = format!(
                "#!/bin/sh\nif [ $# -gt 0 ]; then {second}; exit; fi\n\
                 printf '\\n{words}\\nfailures:\\n    t\\n\\n'\n\
                 echo 'test result: FAILED. 2 passed; 1 failed;'\nexit 101\n"
            );
            let path = dir.join(format!("selftest-{name}.sh"));
            std::fs::write(&path, text).unwrap();
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
            std::fs::set_permissions(&path, mode).unwrap();
            Binary { name: name.to_owned(), program: path, dir: dir.clone() }
        };
        let steady = "echo 'test result: ok. 1 passed; 0 failed;'";
        let all = vec![
            program("server-selftest", steady),
            program("core-selftest", steady),
            program("cli-selftest", "exit 101"),
        ];
        let mut ended = run(&repo, &mut log, all).unwrap();
        ended.sort_by_key(|each| each.binary.name.clone());
        let passed: Vec<_> =
            ended.iter().map(|it| (it.problem.is_none(), it.is_unsteady())).collect();
        assert_eq!(passed, [(false, false), (false, false), (true, true)], "cli, core, server");
        assert_eq!(ended[2].tests, Tests { passed: 3, failed: 0 });
        assert_eq!(ended[2].words()[0], "server-selftest t");
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
            Log::create(&repo, "selftest-binaries", super::super::log::Show::Progress).unwrap();
        let binary = |name: &str, program: &str| Binary {
            name: name.to_owned(),
            program: program.into(),
            dir: repo.root().to_owned(),
        };
        let all =
            vec![binary("selftest-true", "/bin/true"), binary("selftest-false", "/bin/false")];
        let mut ended = run(&repo, &mut log, all).unwrap();
        ended.sort_by_key(|each| each.problem.is_some());
        assert_eq!(ended[0].problem, None);
        assert!(ended[1].problem.as_ref().unwrap().starts_with("selftest-false: "));
    }
}
