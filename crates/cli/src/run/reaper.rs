//! Reaps the processes that end or stop below the watchdog.
//!
//! A separate thread does this. Reaping an ended process can take the kernel half a second while other processes scan
//! `/proc`; the watchdog must not wait that long.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, channel};

use rustix::io::Errno;
use rustix::process::{Pid, WaitOptions, WaitStatus, wait};

/// What the thread reports.
#[derive(Clone, Copy, Debug)]
pub(super) enum ChildChange {
    /// A child stopped, was continued or ended.
    Child(Pid, WaitStatus),
    /// There are no children left: no process is below the watchdog, whatever its origin.
    None,
}

/// The watchdog's handle to the thread.
pub(super) struct Reaper {
    changes: Receiver<ChildChange>,
    bell: UnixStream,
}

impl Reaper {
    /// Starts the thread. At least one child exists: the command.
    pub(super) fn start() -> io::Result<Self> {
        let (bell, ringing) = UnixStream::pair()?;
        bell.set_nonblocking(true)?;
        let (tell, changes) = channel();
        let work = move || reap(&tell, ringing);
        std::thread::Builder::new().name("reaper".to_owned()).spawn(work)?;
        Ok(Self { changes, bell })
    }

    /// Becomes readable when something changed.
    pub(super) fn bell(&self) -> &UnixStream {
        &self.bell
    }

    /// All changes since the last call.
    pub(super) fn changes(&self) -> Vec<ChildChange> {
        let mut bytes = [0; 64];
        while matches!((&self.bell).read(&mut bytes), Ok(1..)) {}
        self.changes.try_iter().collect()
    }
}

fn reap(tell: &Sender<ChildChange>, mut bell: UnixStream) {
    loop {
        let change = match wait(WaitOptions::UNTRACED | WaitOptions::CONTINUED) {
            Ok(Some((pid, status))) => ChildChange::Child(pid, status),
            Ok(None) | Err(Errno::INTR) => continue,
            Err(_) => ChildChange::None,
        };
        if tell.send(change).is_err() || bell.write_all(&[0]).is_err() {
            return;
        }
        if matches!(change, ChildChange::None) {
            return;
        }
    }
}
