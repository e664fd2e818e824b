//! Starts a member that most tests share, and runs the binary against it.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, OnceLock};

use serde_json::Value;

use crate::ports::free_port;
pub(crate) use crate::waiting::wait;

pub(crate) const TENURE: &str = env!("CARGO_BIN_EXE_tenure");

/// A member that ends when this process does: its stdin ends then.
pub(crate) struct Member {
    _stdin: Mutex<ChildStdin>,
    _dir: tempfile::TempDir,
    pub(crate) addr: String,
    /// Its address for other members.
    pub(crate) members: String,
    /// Its data directory.
    pub(crate) data: PathBuf,
}

/// One member that most tests share; each test uses its own names.
pub(crate) fn member() -> &'static Member {
    static SHARED: OnceLock<Member> = OnceLock::new();
    SHARED.get_or_init(|| Member::found("solo"))
}

impl Member {
    /// A cluster of one.
    pub(crate) fn found(name: &str) -> Self {
        Self::found_with(name, &[])
    }

    /// A cluster of one, with further flags.
    pub(crate) fn found_with(name: &str, more: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (clients, members) = (free_port(), free_port());
        let bootstrap = format!("{name}=127.0.0.1:{members}");
        let more = [&["--bootstrap", &bootstrap], more].concat();
        let (stdin, addr) = serve(dir.path(), name, clients, members, &more);
        let (data, members) = (dir.path().join(name), format!("127.0.0.1:{members}"));
        let member = Self { _stdin: Mutex::new(stdin), _dir: dir, addr, members, data };
        wait("the member serves", || {
            let ran = at(&member.addr, &["cluster", "status", "--connect-timeout", "5s"]);
            ran.out.contains("1 of 1 members up").then_some(())
        });
        member
    }
}

/// Starts a member; it lives as long as the returned stdin.
pub(crate) fn serve(
    dir: &Path,
    name: &str,
    clients: u16,
    members: u16,
    more: &[&str],
) -> (ChildStdin, String) {
    let (clients, members) = (format!("127.0.0.1:{clients}"), format!("127.0.0.1:{members}"));
    let health: &[&str] = if more.contains(&"--health") { &[] } else { &["--health", "none"] };
    let log = std::fs::File::create(dir.join(format!("{name}.log"))).unwrap();
    let mut child = Command::new(TENURE)
        .args(["serve", "--while-stdin", "--name", name, "--clients", &clients])
        .args(["--members", &members, "--data"])
        .arg(dir.join(name))
        .args(health)
        .args(more)
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .unwrap();
    let stdin = child.stdin.take().unwrap();
    std::thread::spawn(move || child.wait());
    (stdin, clients)
}

/// The output of a command, and its exit code.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

pub(crate) fn command(addr: &str, arguments: &[&str]) -> Command {
    // A command that hangs fails its own test with 124, instead of blocking all tests.
    let mut command = Command::new("timeout");
    command.args(["--foreground", "60", TENURE]).args(arguments);
    command.env_clear().env("TENURE_ADDR", addr);
    command.env("TENURE_CONNECT_TIMEOUT", "30s").stdin(Stdio::null());
    command
}

/// Runs a command to its end, against an address.
pub(crate) fn at(addr: &str, arguments: &[&str]) -> Ran {
    ended(&mut command(addr, arguments))
}

/// Runs a command to its end.
pub(crate) fn ended(command: &mut Command) -> Ran {
    let ran = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Ran { code: ran.status.code().unwrap_or(-1), out: text(ran.stdout), err: text(ran.stderr) }
}

/// Runs a command against the shared member.
pub(crate) fn run(arguments: &[&str]) -> Ran {
    at(&member().addr, arguments)
}

/// Runs a command against the shared member, with further variables.
pub(crate) fn run_with(variables: &[(&str, &str)], arguments: &[&str]) -> Ran {
    ended(command(&member().addr, arguments).envs(variables.iter().copied()))
}

/// Runs a command that must succeed, and returns its output.
pub(crate) fn ok(arguments: &[&str]) -> String {
    let ran = run(arguments);
    assert_eq!(ran.code, 0, "{arguments:?}: {ran:?}");
    ran.out
}

/// The history of a lock, without the last line, which describes the archive.
pub(crate) fn changes(lock: &str) -> Vec<Value> {
    let mut lines = json(&["history", lock]);
    let last = lines.pop().filter(|line| line["archive"].is_object());
    assert!(last.is_some(), "the last line tells of the archive: {lines:?}");
    lines
}

/// Runs a command that must succeed, and returns the objects that it prints.
pub(crate) fn json(arguments: &[&str]) -> Vec<Value> {
    objects(&ok(&[arguments, &["--output", "json"]].concat()))
}

/// Runs a command that must succeed, and returns the one object that it prints.
pub(crate) fn one(arguments: &[&str]) -> Value {
    let mut all = json(arguments);
    assert_eq!(all.len(), 1, "{arguments:?}: {all:?}");
    all.remove(0)
}

pub(crate) fn objects(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect(line)).collect()
}

/// Runs a command that must be refused: checks its exit code, and that text and JSON agree.
pub(crate) fn refused(code: i32, reason: &str, arguments: &[&str]) -> String {
    let ran = run(arguments);
    assert_eq!(ran.code, code, "{arguments:?}: {ran:?}");
    assert!(ran.err.lines().any(|line| line.starts_with("error: ")), "{ran:?}");
    let told = run(&[arguments, &["--output", "json"]].concat());
    assert_eq!(told.code, code, "{arguments:?}: {told:?}");
    let said = objects(&told.err);
    let last = said.last().unwrap_or_else(|| panic!("{told:?}"));
    assert_eq!(last["error"]["reason"], reason, "{last}");
    assert_eq!(last["exit_code"], code, "{last}");
    ran.err
}

/// A command that runs until the test ends it.
pub(crate) struct Live {
    child: Child,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Live {
    pub(crate) fn start(arguments: &[&str]) -> Self {
        Self::start_at(&member().addr, arguments)
    }

    pub(crate) fn start_at(addr: &str, arguments: &[&str]) -> Self {
        let mut command = Command::new(TENURE);
        command.args(arguments).env_clear().env("TENURE_ADDR", addr);
        // The test reads the pipe without waiting for its end.
        if matches!(arguments[0], "lock" | "try") && !arguments.contains(&"--lease") {
            command.arg("--hold");
        }
        command.env("TENURE_CONNECT_TIMEOUT", "30s").stdin(Stdio::null());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = Arc::new(Mutex::new(Vec::new()));
        let (out, err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        listen(out, lines.clone());
        listen(err, lines.clone());
        Self { child, lines }
    }

    /// Waits for a line that contains these words.
    pub(crate) fn says(&self, words: &str) -> String {
        wait(words, || {
            let lines = self.lines.lock().unwrap();
            lines.iter().find(|line| line.contains(words)).cloned()
        })
    }

    /// All lines that it has printed.
    pub(crate) fn said(&self) -> Vec<String> {
        self.lines.lock().unwrap().clone()
    }

    pub(crate) fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    }

    /// Waits for its end.
    pub(crate) fn ends(&mut self) -> Option<i32> {
        wait("the command ends", || self.child.try_wait().unwrap()).code()
    }

    /// Interrupts it as Ctrl-C does.
    pub(crate) fn interrupt(&mut self) -> Option<i32> {
        self.signal("-INT");
        self.ends()
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn listen(from: impl std::io::Read + Send + 'static, to: Arc<Mutex<Vec<String>>>) {
    std::thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            to.lock().unwrap().push(line);
        }
    });
}

/// Runs a command with this input on its stdin.
pub(crate) fn with_input(input: &[u8], arguments: &[&str]) -> Ran {
    let mut command = command(&member().addr, arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    let ran = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Ran { code: ran.status.code().unwrap_or(-1), out: text(ran.stdout), err: text(ran.stderr) }
}

/// A lease of an hour, so that tests need not renew it.
pub(crate) fn lease(client: &str) -> String {
    ok(&["lease", "grant", "--ttl", "1h", "--client", client]).trim().to_owned()
}
