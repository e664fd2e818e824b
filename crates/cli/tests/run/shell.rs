//! Provides an interactive shell under a pseudo-terminal, with job control.

use std::io::{Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use crate::common::waiting::try_wait;
use crate::common::{TENURE, wait};

/// A shell, or another command, whose terminal the test reads and types to.
pub(crate) struct Shell {
    child: Child,
    typed: ChildStdin,
    shown: Arc<Mutex<String>>,
    /// The thread that reads what is shown.
    reader: JoinHandle<()>,
    /// How much of what was shown earlier steps have seen.
    seen: usize,
}

impl Shell {
    /// An interactive shell: `$T` is the binary, and its commands reach the cluster at these addresses.
    pub(crate) fn open(addresses: &str) -> Self {
        let mut shell = Self::of("bash --norc --noprofile --noediting -i", addresses);
        shell.shows("ready>");
        shell
    }

    /// A terminal whose session begins with this command.
    pub(crate) fn of(command: &str, addresses: &str) -> Self {
        Self::under(Command::new("script"), command, addresses)
    }

    /// A terminal whose session begins with this command, opened by `script` as it is to be started.
    pub(crate) fn under(mut script: Command, command: &str, addresses: &str) -> Self {
        script.args(["-qec", command, "/dev/null"]).env_clear();
        script.env("PATH", std::env::var_os("PATH").unwrap()).env("TERM", "dumb");
        script.env("SHELL", "/bin/sh").env("PS1", "ready> ").env("T", TENURE);
        script.env("TENURE_ADDR", addresses);
        script.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = script.spawn().unwrap();
        let typed = child.stdin.take().unwrap();
        let shown = Arc::new(Mutex::new(String::new()));
        let (reading, mut from) = (shown.clone(), child.stdout.take().unwrap());
        let reader = std::thread::spawn(move || {
            let mut bytes = [0; 1024];
            while let Ok(taken @ 1..) = from.read(&mut bytes) {
                reading.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..taken]));
            }
        });
        Self { child, typed, shown, reader, seen: 0 }
    }

    /// Types text or control characters.
    pub(crate) fn types(&mut self, text: &str) {
        self.typed.write_all(text.as_bytes()).unwrap();
    }

    /// Waits until these words are shown after what earlier steps waited for.
    pub(crate) fn shows(&mut self, words: &str) {
        let (shown, seen) = (self.shown.clone(), self.seen);
        let found = try_wait(|| {
            // Nothing is added to the text after the terminal was closed.
            let closed = self.reader.is_finished();
            let found = shown.lock().unwrap()[seen..].find(words);
            (closed || found.is_some()).then_some(found)
        });
        let found =
            found.flatten().unwrap_or_else(|| panic!("{words:?} is not shown:\n{}", self.text()));
        self.seen += found + words.len();
    }

    /// Waits until both are shown, in either order, after what earlier steps waited for.
    pub(crate) fn shows_both(&mut self, one: &str, other: &str) {
        let seen = self.seen;
        self.shows(one);
        let after = std::mem::replace(&mut self.seen, seen);
        self.shows(other);
        self.seen = self.seen.max(after);
    }

    /// What was shown from there on, up to what the last step waited for.
    pub(crate) fn shown_since(&self, from: usize) -> String {
        self.shown.lock().unwrap()[from..self.seen].to_owned()
    }

    /// How much of what was shown earlier steps have seen.
    pub(crate) fn seen(&self) -> usize {
        self.seen
    }

    /// Everything that was shown.
    pub(crate) fn text(&self) -> String {
        self.shown.lock().unwrap().replace('\r', "")
    }

    /// The exit code of the last command.
    pub(crate) fn code(&mut self, expected: i32) {
        // The words differ from what is typed, which the terminal echoes.
        self.types("echo co''de $?.\n");
        self.shows(&format!("code {expected}."));
    }

    /// Waits for the end of the terminal's session.
    pub(crate) fn ends(&mut self) -> Option<i32> {
        wait("the session ends", || self.child.try_wait().unwrap()).code()
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
