//! Runs a member under attack, and an honest client beside it.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::common::{Process, ask, field, free_port, wait};

/// How much memory any attack may cost the process at its peak, beyond its own estimate.
pub(crate) const MARGIN_KB: u64 = 96 * 1024;

/// A member alone, in a separate process.
pub(crate) struct Victim {
    process: Process,
    port: u16,
    before_kb: u64,
    _dir: tempfile::TempDir,
}

impl Victim {
    pub(crate) fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let port = free_port();
        let clients = format!("127.0.0.1:{port}");
        let data = dir.path().join("data");
        let arguments = ["dev", "--data", data.to_str().unwrap(), "--clients", &clients];
        let process = Process::start(&dir.path().join("said"), &arguments);
        wait("it serves", || ask(port, "status")?.contains("serving=true").then_some(()));
        let mut victim = Self { process, port, before_kb: 0, _dir: dir };
        victim.cycle(0);
        victim.before_kb = victim.memory_kb("VmRSS:");
        victim
    }

    pub(crate) fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    pub(crate) fn dial(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream.set_write_timeout(Some(Duration::from_secs(60))).unwrap();
        stream.set_nodelay(true).unwrap();
        stream
    }

    /// Does what an honest client does: gets a lease and a lock, and gives both back.
    pub(crate) fn cycle(&self, number: u64) {
        let say = |line: String| {
            let answer =
                ask(self.port, &line).unwrap_or_else(|| panic!("no member answers `{line}`"));
            assert!(answer.starts_with("ok"), "{line}: {answer}");
            answer
        };
        let (lease, lock) = (number + 1, format!("lock/{number}"));
        say(format!("lease {lease} 60000 honest"));
        let token = field(&say(format!("lock {lease} {lock}")), "token").unwrap();
        say(format!("unlock {lease} {lock} {token}"));
        say(format!("revoke {lease}"));
    }

    /// Runs an attack while an honest client goes on, and lets the client go on once more afterwards. The process may
    /// need `cost_kb` more memory at its peak, plus the margin.
    pub(crate) fn withstand(&self, cost_kb: u64, attack: impl FnOnce()) {
        let over = AtomicBool::new(false);
        let cycles = std::thread::scope(|scope| {
            let honest = scope.spawn(|| {
                let mut cycles = 0;
                loop {
                    cycles += 1;
                    self.cycle(cycles);
                    if over.load(Ordering::Acquire) {
                        return cycles;
                    }
                }
            });
            let ended = Ends(&over);
            attack();
            drop(ended);
            honest.join().unwrap()
        });
        self.cycle(cycles + 1);
        let grown_kb = self.memory_kb("VmHWM:").saturating_sub(self.before_kb);
        println!("{cycles} cycles meanwhile, {grown_kb} KiB more at the most");
        assert!(grown_kb < cost_kb + MARGIN_KB, "{grown_kb} KiB more");
    }

    /// Whether the member has logged this.
    pub(crate) fn says(&self, words: &str) -> bool {
        self.process.words().contains(words)
    }

    /// The open connections and files of the process.
    pub(crate) fn files(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.process.pid())).unwrap().count()
    }

    fn memory_kb(&self, what: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.pid()));
        let status = status.unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(what)).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }
}

/// Marks the attack as over, also if it failed.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Whether a read or write shows that the other end has closed the connection.
pub(crate) fn is_closed<T>(result: &std::io::Result<T>) -> bool {
    result.as_ref().is_err_and(|error| {
        !matches!(
            error.kind(),
            ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
        )
    })
}
