//! Starts the watchdog, exchanges messages with it, and takes over if it is stopped or killed.

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, ErrorKind};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::time::Duration;

use rustix::net::sockopt::socket_peercred;
use rustix::process::{
    Pid, Signal, WaitOptions, getpid, kill_process, set_child_subreaper, waitpid,
};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::protocol::{WatchdogOrder, WatchdogReport};
use super::times::now_us;
use super::tree::{self, ProcessInfo};
use super::watchdog::Task;
use super::{SELF, WATCHDOG};

/// How long the watchdog may take to connect.
const START: Duration = Duration::from_secs(5);
const STEP: Duration = Duration::from_millis(1);

/// The watchdog, as `tenure run` sees it.
pub(super) struct WatchdogLink {
    stream: UnixStream,
    watchdog: Pid,
    /// The processes below this one before the start. `exec` keeps children, and those must not be killed.
    others: Vec<ProcessInfo>,
}

impl WatchdogLink {
    /// Starts the watchdog with these variables in its environment, and so in the command's. The reports end when the
    /// watchdog does.
    pub(super) fn start(
        task: &Task,
        environment: &[(&str, OsString)],
    ) -> io::Result<(Self, UnboundedReceiver<WatchdogReport>)> {
        let others = tree::below(getpid());
        // If the watchdog is killed, its descendants become children of this process.
        set_child_subreaper(Some(getpid()))?;
        let address = SocketAddr::from_abstract_name(&task.socket)?;
        let listener = UnixListener::bind_addr(&address)?;
        listener.set_nonblocking(true)?;
        let mut command = Command::new(SELF);
        // The name differs from `tenure`: a user who signals `tenure` by name means this process, not the watchdog.
        command.arg0("watchdog").arg(WATCHDOG).args(task.arguments());
        command.envs(environment.iter().map(|(name, value)| (name, value)));
        let mut child = command.process_group(0).spawn()?;
        let watchdog = Pid::from_child(&child);
        let stream = accept(&listener, &mut child)?;
        let reading = stream.try_clone()?;
        let (tell, reports) = unbounded_channel();
        std::thread::spawn(move || {
            for line in BufReader::new(reading).lines().map_while(Result::ok) {
                if let Some(report) = WatchdogReport::parse(&line) {
                    let _ = tell.send(report);
                }
            }
        });
        Ok((Self { stream, watchdog, others }, reports))
    }

    /// Sends an order to the watchdog. If the watchdog is gone, the end of the reports says so.
    pub(super) fn order(&self, order: WatchdogOrder) {
        let _ = order.send(&self.stream);
    }

    /// Continues the watchdog if it was stopped.
    pub(super) fn keep_awake(&self) {
        let how = WaitOptions::NOHANG | WaitOptions::UNTRACED;
        while let Ok(Some((_, status))) = waitpid(Some(self.watchdog), how) {
            if !status.stopped() {
                break;
            }
            let _ = kill_process(self.watchdog, Signal::CONT);
        }
        // The first process of a container is the parent of all that lost theirs. The watchdog's end is told by its
        // socket.
        if getpid() == Pid::INIT {
            while let Ok(Some(_)) = waitpid(None, WaitOptions::NOHANG) {}
        }
    }

    /// Kills every process below this one except the watchdog and earlier children. Returns how many were signalled.
    pub(super) fn kill_all(&self) -> usize {
        let others = self
            .others
            .iter()
            .flat_map(|it| tree::below(it.pid))
            .chain(self.others.iter().copied());
        let others: Vec<Pid> = others.map(|it| it.pid).collect();
        let mut all = tree::living(getpid());
        all.retain(|it| it.pid != self.watchdog && !others.contains(&it.pid));
        tree::signal(&all, Signal::KILL)
    }
}

/// Waits until the watchdog has connected.
fn accept(listener: &UnixListener, child: &mut Child) -> io::Result<UnixStream> {
    let pid = Pid::from_child(child);
    let connected = || match listener.accept() {
        // The socket's name is no secret: other processes may connect.
        Ok((stream, _)) if is_from(&stream, pid) => {
            stream.set_nonblocking(false)?;
            Ok(Some(stream))
        }
        Ok(_) => Ok(None),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    };
    let accepted = first(now_us() + super::times::us(START), connected, || child.try_wait());
    if matches!(&accepted, Err(error) if error.kind() == ErrorKind::TimedOut) {
        let _ = child.kill();
        let _ = child.wait();
    }
    accepted
}

/// Returns the first connection, unless the process ended without one.
///
/// If the lock is lost while the watchdog starts, as on an overloaded machine, the watchdog connects, reports the loss
/// and ends at once. So the end of the process is asked for before the connection: a process that had ended by then has
/// connected by then.
fn first<T, S: std::fmt::Display>(
    until_us: u64,
    mut connected: impl FnMut() -> io::Result<Option<T>>,
    mut ended: impl FnMut() -> io::Result<Option<S>>,
) -> io::Result<T> {
    loop {
        let status = ended()?;
        if let Some(connection) = connected()? {
            return Ok(connection);
        }
        if let Some(status) = status {
            return Err(io::Error::other(format!("it ended: {status}")));
        }
        if now_us() > until_us {
            return Err(io::Error::new(ErrorKind::TimedOut, "it did not come"));
        }
        std::thread::sleep(STEP);
    }
}

fn is_from(stream: &UnixStream, pid: Pid) -> bool {
    socket_peercred(stream).is_ok_and(|peer| peer.pid == pid)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_watchdog_that_connects_and_ends_between_two_looks_is_heard() {
        let polls = Cell::new(0);
        let connected = || {
            polls.set(polls.get() + 1);
            Ok((polls.get() > 1).then_some("reports"))
        };
        // It connects and ends right after the first look at the socket.
        let ended = || Ok((polls.get() > 0).then_some("exit status: 0"));
        assert_eq!(first(u64::MAX, connected, ended).unwrap(), "reports");
    }

    #[test]
    fn one_that_ends_without_connecting_and_one_that_is_late_are_errors() {
        let ended = first(u64::MAX, || Ok(None::<()>), || Ok(Some("signal: 9"))).unwrap_err();
        assert_eq!(ended.to_string(), "it ended: signal: 9");
        let late = first(0, || Ok(None::<()>), || Ok(None::<&str>)).unwrap_err();
        assert_eq!(late.kind(), ErrorKind::TimedOut);
    }
}
