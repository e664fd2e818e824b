//! Starts and stops real servers for the tests.

use std::fmt::Write as _;
use std::io::Write as _;
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::fs::{MetadataExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::ports::free_port;

/// How long a server may take to answer, on a machine that is busy with other tests.
const START_TRIES: u32 = 3_000;
const BETWEEN_TRIES: Duration = Duration::from_millis(20);

/// The package that serves S3. Another version uses another directory.
const MOTO: &str = "moto[s3,server]==5.2.5";

/// A server in a directory of its own. It ends with this value, or with the thread that started it.
pub(crate) struct Server {
    pub(crate) port: u16,
    child: Child,
    end: End,
    _dir: TempDir,
}

/// The signal that ends a server even if clients are still connected.
#[derive(Clone, Copy)]
enum End {
    Interrupt,
    Terminate,
}

impl End {
    fn signal(self) -> Signal {
        match self {
            End::Interrupt => Signal::INT,
            End::Terminate => Signal::TERM,
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Gracefully at first: a killed server leaves shared memory behind.
        let _ = kill_process(Pid::from_child(&self.child), self.end.signal());
        for _ in 0..START_TRIES {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(BETWEEN_TRIES);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the server. If it is not available, reports why, and fails in continuous integration.
pub(crate) fn or_skip(what: &str, server: Result<Server, String>) -> Option<Server> {
    match server {
        Ok(server) => Some(server),
        Err(why) => {
            assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "no {what}: {why}");
            // Write past the output capture, so that a skipped test is not taken for a passed one.
            let _ = writeln!(std::io::stderr(), "\nNOT TESTED: the fence in {what}. {why}\n");
            None
        }
    }
}

/// PostgreSQL with one user, `postgres`, that needs no password.
pub(crate) fn postgres() -> Result<Server, String> {
    let programs = installed("postgresql", || {
        let found = std::fs::read_dir("/usr/lib/postgresql").map_err(|error| error.to_string())?;
        let versions = found.filter_map(|it| Some(it.ok()?.path().join("bin")));
        versions.filter(|bin| bin.join("initdb").exists()).max().ok_or("no initdb".to_owned())
    })?;
    let dir = tempfile::tempdir().map_err(|error| error.to_string())?;
    let data = dir.path().join("data");
    let (initdb, program) = (programs.join("initdb"), programs.join("postgres"));
    // PostgreSQL refuses to run as root.
    let user = user_of(&dir, "postgres")?;
    let mut init = as_user(&user, &initdb, End::Interrupt);
    run(init
        .args(["-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C", "--no-sync", "-D"])
        .arg(&data))?;
    let port = free_port();
    let mut serve = as_user(&user, &program, End::Interrupt);
    serve.arg("-D").arg(&data).arg("-k").arg(dir.path());
    // No power loss is simulated here; the tests are about which writes are accepted.
    serve
        .args(["-h", "127.0.0.1", "-c", "fsync=off", "-c", "max_connections=60", "-p"])
        .arg(port.to_string());
    start(serve, port, End::Interrupt, dir)
}

pub(crate) fn redis() -> Result<Server, String> {
    installed("redis-server", || run(Command::new("redis-server").arg("--version")).map(drop))?;
    let dir = tempfile::tempdir().map_err(|error| error.to_string())?;
    let port = free_port();
    let mut serve = as_user(&None, Path::new("redis-server"), End::Terminate);
    serve.args([
        "--bind",
        "127.0.0.1",
        "--save",
        "",
        "--appendonly",
        "yes",
        "--appendfsync",
        "always",
    ]);
    serve.args(["--port", &port.to_string(), "--dir"]).arg(dir.path());
    start(serve, port, End::Terminate, dir)
}

/// A server that implements S3.
pub(crate) fn moto() -> Result<Server, String> {
    let python = python()?;
    let dir = tempfile::tempdir().map_err(|error| error.to_string())?;
    let port = free_port();
    let mut serve = as_user(&None, &python, End::Terminate);
    serve.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fences/s3.py"));
    serve.arg(port.to_string()).env("PYTHONDONTWRITEBYTECODE", "1");
    start(serve, port, End::Terminate, dir)
}

/// A Python environment with the S3 server.
fn python() -> Result<PathBuf, String> {
    let name: String = MOTO.chars().filter(char::is_ascii_alphanumeric).collect();
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/python").join(name);
    let (python, whole) = (dir.join("bin/python"), dir.join("whole"));
    // One thread creates it, and the others of this process wait.
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    if whole.exists() {
        return Ok(python);
    }
    run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&dir))?;
    let pip = "-m pip install -q --no-compile --disable-pip-version-check --timeout 15";
    run(Command::new(&python).args(pip.split(' ')).arg(MOTO))?;
    std::fs::write(whole, "").map_err(|error| error.to_string())?;
    Ok(python)
}

fn start(mut command: Command, port: u16, end: End, dir: TempDir) -> Result<Server, String> {
    let log = dir.path().join("log");
    let out = std::fs::File::create(&log).map_err(|error| error.to_string())?;
    let err = out.try_clone().map_err(|error| error.to_string())?;
    let child = command.stdin(Stdio::null()).stdout(out).stderr(err).spawn();
    let child = child.map_err(|error| format!("{command:?}: {error}"))?;
    let mut server = Server { port, child, end, _dir: dir };
    for _ in 0..START_TRIES {
        if TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(server);
        }
        if let Ok(Some(status)) = server.child.try_wait() {
            let said = std::fs::read_to_string(&log).unwrap_or_default();
            return Err(format!("{command:?} ended with {status}: {said}"));
        }
        std::thread::sleep(BETWEEN_TRIES);
    }
    let mut why = format!("{command:?} does not answer");
    let _ = write!(why, ": {}", std::fs::read_to_string(&log).unwrap_or_default());
    Err(why)
}

/// The user that runs the server if the test is root: the one that the package created. The directory becomes that
/// user's.
fn user_of(dir: &TempDir, name: &str) -> Result<Option<String>, String> {
    let ours = dir.path().metadata().map_err(|error| error.to_string())?.uid();
    if ours != 0 {
        return Ok(None);
    }
    let users = std::fs::read_to_string("/etc/passwd").map_err(|error| error.to_string())?;
    let mut ids = users
        .lines()
        .filter_map(|line| line.strip_prefix(&format!("{name}:x:"))?.split(':').next());
    let id = ids.next().and_then(|id| id.parse().ok()).ok_or(format!("no user {name}"))?;
    chown(dir.path(), Some(id), None).map_err(|error| error.to_string())?;
    Ok(Some(name.to_owned()))
}

/// A command that ends with this process, run as another user if root may not run it.
fn as_user(user: &Option<String>, program: &Path, end: End) -> Command {
    let mut command = Command::new("setpriv");
    if let Some(user) = user {
        command.args([&format!("--reuid={user}"), &format!("--regid={user}"), "--clear-groups"]);
        command.current_dir("/");
    }
    let signal = match end {
        End::Interrupt => "INT",
        End::Terminate => "TERM",
    };
    command.args(["--pdeathsig", signal, "--"]).arg(program);
    command
}

/// Makes sure that a Debian package is installed.
fn installed<T>(package: &str, look: impl Fn() -> Result<T, String>) -> Result<T, String> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    look().or_else(|_| {
        let _one = ONE_AT_A_TIME.lock().map_err(|error| error.to_string())?;
        // Another process may be installing at the same time, and the package lists may never have been fetched.
        let apt = |words: &[&str]| {
            let mut apt = Command::new("apt-get");
            apt.args(["-o", "DPkg::Lock::Timeout=120", "-q"]).args(words);
            run(apt.env("DEBIAN_FRONTEND", "noninteractive"))
        };
        let install = ["-y", "--no-install-recommends", "install", package];
        apt(&install).or_else(|_| apt(&["update"]).and_then(|_| apt(&install)))?;
        look()
    })
}

fn run(command: &mut Command) -> Result<String, String> {
    let Output { status, stdout, stderr } =
        command.output().map_err(|error| format!("{command:?}: {error}"))?;
    let said = String::from_utf8_lossy(&stdout).into_owned();
    if status.success() {
        return Ok(said);
    }
    Err(format!("{command:?}: {said}{}", String::from_utf8_lossy(&stderr)))
}
