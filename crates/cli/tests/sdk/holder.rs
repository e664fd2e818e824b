//! Runs a client process that scripts stop, cut off and continue, and that records its guards.
//!
//! It acquires one lock again and again. It writes a line when it has the lock (`hold TOKEN`), when it was told to
//! keep it (`kept TOKEN`), and when that is over (`span TOKEN FROM TO HOW`). The span is the interval in which its own
//! checks succeeded, by the clock that all processes share. Both ends are read inside the interval: after the first
//! check, and before the last.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tenure::{Client, Error};
use tenure_server::os;
use tokio::sync::Notify;

use crate::runtime;

/// Marks a process of this test binary as a holder. It carries how to handle losses, the lock, the cluster's
/// addresses, and the file to write to.
const HOLDER: &str = "TENURE_SDK_HOLDER";
/// The shortest ttl that a cluster allows.
const TTL: Duration = Duration::from_secs(1);
const WAIT: Duration = Duration::from_secs(5);
/// How long it holds unless it is told to keep the lock.
const HOLD_US: u64 = 100_000;
const STEP: Duration = Duration::from_millis(2);

/// How a holder handles a loss.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ear {
    Good,
    /// Goes on as if the lock were still held.
    Deaf,
}

/// The interval in which a guard's own checks succeeded.
#[derive(Clone, Debug)]
pub(crate) struct Span {
    pub(crate) token: u64,
    pub(crate) from_us: u64,
    pub(crate) to_us: u64,
    /// `done`, or why the guard was lost.
    pub(crate) how: String,
}

/// A holder process.
pub(crate) struct Holder {
    child: Child,
    words: Option<ChildStdin>,
    file: PathBuf,
}

impl Holder {
    /// Starts a process of this test binary that runs `test`, which must begin with [`is_one`]. The process does
    /// nothing before it is told to.
    pub(crate) fn start(test: &str, ear: Ear, lock: &str, addresses: &str, file: &Path) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        let spec = format!("{ear:?} {lock} {addresses} {}", file.display());
        command.args(["--exact", test]).env(HOLDER, spec);
        let command = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let words = child.stdin.take();
        Self { child, words, file: file.to_owned() }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a word: `go`, then `keep` to keep the lock once it is held, or `free` to allow its release.
    pub(crate) fn tell(&self, word: &str) {
        writeln!(self.words.as_ref().unwrap(), "{word}").unwrap();
    }

    pub(crate) fn signal(&self, signal: &str) {
        let pid = self.pid().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    }

    fn lines(&self) -> Vec<String> {
        let text = fs::read_to_string(&self.file).unwrap_or_default();
        // A line that is being written has no newline yet.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole.lines().map(str::to_owned).collect()
    }

    /// How often it had the lock.
    pub(crate) fn holds(&self) -> usize {
        self.lines().iter().filter(|line| line.starts_with("hold ")).count()
    }

    /// Whether it has the lock, according to its file.
    pub(crate) fn has(&self) -> bool {
        self.lines().last().is_some_and(|line| !line.starts_with("span "))
    }

    /// Whether it has the lock and will keep it.
    pub(crate) fn keeps(&self) -> bool {
        self.lines().last().is_some_and(|line| line.starts_with("kept "))
    }

    /// Ends it, and returns the spans that it recorded.
    pub(crate) fn end(mut self) -> Vec<Span> {
        drop(self.words.take());
        crate::common::wait("a holder ends", || self.child.try_wait().unwrap());
        let span = |line: &String| {
            let mut words = line.strip_prefix("span ")?.split(' ');
            let mut number = || words.next()?.parse().ok();
            let (token, from_us, to_us) = (number()?, number()?, number()?);
            Some(Span { token, from_us, to_us, how: words.next()?.to_owned() })
        };
        self.lines().iter().filter_map(span).collect()
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether this process is a holder. If so, this returns after the process has done its work as one.
pub(crate) fn is_one() -> bool {
    let Ok(spec) = std::env::var(HOLDER) else { return false };
    let mut words = spec.splitn(4, ' ').map(str::to_owned);
    let mut word = || words.next().unwrap();
    let ear = if word() == "Deaf" { Ear::Deaf } else { Ear::Good };
    let (lock, addresses, file) = (word(), word(), File::create(word()).unwrap());
    let commands = Arc::new(HolderCommands::default());
    let mut lines = BufReader::new(std::io::stdin()).lines();
    // The test must register our pid before this process dials anything.
    assert_eq!(lines.next().unwrap().unwrap(), "go");
    let received = commands.clone();
    std::thread::spawn(move || {
        for line in lines.map_while(Result::ok) {
            received.keep.store(line == "keep", Ordering::Release);
        }
        received.over.store(true, Ordering::Release);
        received.bell.notify_one();
    });
    runtime().block_on(async {
        let name = format!("p{}", os::now_us());
        // A busy cluster may take longer to answer than a request may take.
        let client = loop {
            let builder = Client::builder().addresses(&addresses).name(&name).timeout(WAIT);
            if let Ok(client) = builder.connect().await {
                break client;
            }
        };
        tokio::select! {
            () = cycle(&client, &lock, ear, &commands, &file) => {}
            () = commands.bell.notified() => {}
        }
    });
    true
}

/// The commands that the holder has received.
#[derive(Default)]
struct HolderCommands {
    keep: AtomicBool,
    over: AtomicBool,
    bell: Notify,
}

async fn cycle(client: &Client, lock: &str, ear: Ear, commands: &HolderCommands, mut file: &File) {
    while !commands.over.load(Ordering::Acquire) {
        let Ok(guard) = client.lock(lock).ttl(TTL).wait(WAIT).await else { continue };
        if guard.check().is_err() {
            continue;
        }
        let (token, from_us) = (guard.token(), os::now_us());
        let (mut to_us, mut kept) = (from_us, false);
        writeln!(file, "hold {token}").unwrap();
        // `Written` records the end of the span when it is dropped, also if this future is dropped.
        let mut span = Written { file, token: token.get(), from_us, to_us, how: "done" };
        while !commands.over.load(Ordering::Acquire) {
            // Read the clock before the check, so that the recorded time is certainly not after it.
            let now_us = os::now_us();
            match guard.check() {
                Err(Error::Lost(lost)) if ear == Ear::Good => {
                    span.how = lost.word();
                    break;
                }
                _ => to_us = now_us,
            }
            span.to_us = to_us;
            let keep = commands.keep.load(Ordering::Acquire);
            if keep && !kept {
                kept = true;
                writeln!(file, "kept {token}").unwrap();
            }
            if now_us > from_us + HOLD_US && !keep {
                break;
            }
            tokio::time::sleep(STEP).await;
        }
        drop(span);
        // The work has stopped.
        let _ = guard.release().await;
    }
}

/// Records a span when it is dropped.
struct Written<'a> {
    file: &'a File,
    token: u64,
    from_us: u64,
    to_us: u64,
    how: &'static str,
}

impl Drop for Written<'_> {
    fn drop(&mut self) {
        let Self { token, from_us, to_us, how, .. } = self;
        writeln!(self.file, "span {token} {from_us} {to_us} {how}").unwrap();
    }
}
