//! Disturbs the bytes between two members.
//!
//! One proxy stands before each member's port; the other members know only the proxy. It learns from the system which
//! member dialled: the one whose process has the socket at the other end. So it need not parse the bytes, and each
//! direction between two members can be disturbed by itself.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::net::sockopt::set_socket_linger;

use super::free_port;

/// How soon a change takes effect.
const TICK: Duration = Duration::from_millis(10);

/// What happens to bytes from one member to another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Road {
    Open,
    /// Open connections are reset; new ones are reset as soon as they are accepted.
    Cut,
    /// Connections stay open, and bytes are lost. A connection that lost some is reset when the direction opens.
    Hole,
    /// Connections stay open, and bytes arrive when the direction opens.
    Held,
    /// Bytes arrive late.
    Slow(Duration),
}

/// The proxies of a cluster.
pub(crate) struct Proxies {
    ports: Vec<u16>,
    shared: Arc<Shared>,
}

struct Shared {
    /// The state of each direction: from row to column.
    roads: Mutex<Vec<Vec<Road>>>,
    /// The process of each member.
    pids: Mutex<Vec<Option<u32>>>,
    /// How many connections each dialler has open.
    open: Mutex<Vec<usize>>,
    closed: AtomicBool,
}

/// One connection through a proxy.
struct Through {
    shared: Arc<Shared>,
    broken: AtomicBool,
    dialler: TcpStream,
    member: TcpStream,
}

impl Proxies {
    /// Starts one proxy before each of these ports.
    pub(crate) fn new(members: &[u16]) -> Self {
        Self::with_diallers(members, 0)
    }

    /// Starts one proxy before each of these ports, for this many further diallers, which are numbered after the
    /// members.
    pub(crate) fn with_diallers(members: &[u16], diallers: usize) -> Self {
        let known = members.len() + diallers;
        let roads = vec![vec![Road::Open; known]; known];
        let shared = Arc::new(Shared {
            roads: Mutex::new(roads),
            pids: Mutex::new(vec![None; known]),
            open: Mutex::new(vec![0; known]),
            closed: AtomicBool::new(false),
        });
        let ports = members.iter().enumerate().map(|(to, behind)| {
            let (port, behind) = (free_port(), *behind);
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
            let shared = shared.clone();
            std::thread::spawn(move || listen(&shared, &listener, to, behind));
            port
        });
        Self { ports: ports.collect(), shared }
    }

    pub(crate) fn port(&self, at: usize) -> u16 {
        self.ports[at]
    }

    /// Registers the process of a member or dialler.
    pub(crate) fn know(&self, at: usize, pid: u32) {
        self.shared.pids.lock().unwrap()[at] = Some(pid);
    }

    /// How many connections a member or dialler has open. After a cut it takes a moment until there is none.
    pub(crate) fn open_connections(&self, of: usize) -> usize {
        self.shared.open.lock().unwrap()[of]
    }

    /// Changes one direction.
    pub(crate) fn set(&self, from: usize, to: usize, road: Road) {
        self.shared.roads.lock().unwrap()[from][to] = road;
    }

    /// Changes both directions.
    pub(crate) fn between(&self, one: usize, other: usize, road: Road) {
        self.set(one, other, road);
        self.set(other, one, road);
    }

    /// Changes everything from and to a member or dialler.
    pub(crate) fn around(&self, at: usize, road: Road) {
        let known = self.shared.roads.lock().unwrap().len();
        (0..known).filter(|other| *other != at).for_each(|other| {
            self.between(at, other, road);
        });
    }

    /// Opens every road.
    pub(crate) fn heal(&self) {
        for row in &mut *self.shared.roads.lock().unwrap() {
            row.fill(Road::Open);
        }
    }
}

impl Drop for Proxies {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::Release);
        for port in &self.ports {
            // Wake the thread that listens.
            drop(TcpStream::connect((Ipv4Addr::LOCALHOST, *port)));
        }
    }
}

impl Shared {
    fn road(&self, from: Option<usize>, to: Option<usize>) -> Road {
        match (from, to) {
            (Some(from), Some(to)) => self.roads.lock().unwrap()[from][to],
            _ => Road::Open,
        }
    }

    fn count(&self, of: Option<usize>, change: impl Fn(usize) -> usize) {
        if let Some(of) = of {
            let open = &mut self.open.lock().unwrap()[of];
            *open = change(*open);
        }
    }

    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// The member or dialler that has the other end of a connection.
    fn whose(&self, stream: &TcpStream) -> Option<usize> {
        let inode = inode_at(stream.peer_addr().ok()?.port(), stream.local_addr().ok()?.port())?;
        let pids = self.pids.lock().unwrap().clone();
        pids.iter().position(|pid| pid.is_some_and(|pid| has_socket(pid, &inode)))
    }
}

/// The inode of the socket at a local port of loopback that is connected to another port. Other sockets may have the
/// same local port, connected elsewhere. Some programs, those in Java for example, use sockets of IPv6 for addresses of
/// IPv4.
fn inode_at(port: u16, to: u16) -> Option<String> {
    inode_in("/proc/net/tcp", "0100007F", port, to)
        .or_else(|| inode_in("/proc/net/tcp6", "0000000000000000FFFF00000100007F", port, to))
}

fn inode_in(table: &str, host: &str, port: u16, to: u16) -> Option<String> {
    let table = fs::read_to_string(table).ok()?;
    let [local, remote] = [port, to].map(|port| format!("{host}:{port:04X}"));
    table.lines().skip(1).find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let connected = words.get(3).is_some_and(|state| *state == "01");
        let found = words.get(1..3).is_some_and(|ends| ends == [&*local, &*remote]) && connected;
        words.get(9).filter(|_| found).map(|inode| (*inode).to_owned())
    })
}

fn has_socket(pid: u32, inode: &str) -> bool {
    let Ok(files) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    let wanted = format!("socket:[{inode}]");
    files.flatten().any(|file| {
        fs::read_link(file.path()).is_ok_and(|link| link.to_str() == Some(wanted.as_str()))
    })
}

fn listen(shared: &Arc<Shared>, listener: &TcpListener, to: usize, behind: u16) {
    for stream in listener.incoming() {
        if shared.is_closed() {
            return;
        }
        let Ok(dialler) = stream else { continue };
        let shared = shared.clone();
        std::thread::spawn(move || carry(&shared, dialler, to, behind));
    }
}

/// Carries one connection in both directions until it breaks.
fn carry(shared: &Arc<Shared>, dialler: TcpStream, to: usize, behind: u16) {
    let from = shared.whose(&dialler);
    let to = Some(to);
    let cut = [shared.road(from, to), shared.road(to, from)].contains(&Road::Cut);
    let member = (!cut).then(|| TcpStream::connect((Ipv4Addr::LOCALHOST, behind)).ok()).flatten();
    let Some(member) = member else {
        reset(&dialler);
        return;
    };
    let through = Arc::new(Through {
        shared: shared.clone(),
        broken: AtomicBool::new(false),
        dialler,
        member,
    });
    shared.count(from, |open| open + 1);
    let back = through.clone();
    let backward = std::thread::spawn(move || {
        let _ = back.forward(&back.member, &back.dialler, to, from);
        back.break_off();
    });
    let _ = through.forward(&through.dialler, &through.member, from, to);
    through.break_off();
    let _ = backward.join();
    shared.count(from, |open| open - 1);
}

impl Through {
    fn forward(
        &self,
        mut source: &TcpStream,
        mut sink: &TcpStream,
        from: Option<usize>,
        to: Option<usize>,
    ) -> std::io::Result<()> {
        source.set_read_timeout(Some(TICK))?;
        source.set_nodelay(true)?;
        let mut bytes = vec![0; 64 * 1024];
        let mut lost = false;
        loop {
            let taken = match source.read(&mut bytes) {
                Ok(0) => return Ok(()),
                Ok(taken) => taken,
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
                {
                    0
                }
                Err(error) => return Err(error),
            };
            let road = loop {
                let road = self.shared.road(from, to);
                if self.broken.load(Ordering::Acquire) || self.shared.is_closed() {
                    return Ok(());
                }
                if road != Road::Held {
                    break road;
                }
                std::thread::sleep(TICK);
            };
            match road {
                Road::Cut => return Ok(()),
                Road::Hole => lost |= taken > 0,
                _ if lost => return Ok(()),
                Road::Slow(late) if taken > 0 => std::thread::sleep(late),
                _ => {}
            }
            if road != Road::Hole && taken > 0 {
                sink.write_all(&bytes[..taken])?;
            }
        }
    }

    fn break_off(&self) {
        if !self.broken.swap(true, Ordering::AcqRel) {
            reset(&self.dialler);
            reset(&self.member);
        }
    }
}

/// Resets a connection.
fn reset(stream: &TcpStream) {
    // Closing a socket with zero linger sends a reset, once the last handle is gone.
    let _ = set_socket_linger(stream, Some(Duration::ZERO));
}
