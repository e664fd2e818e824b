//! Sends bytes to a member as fast as it takes them, for the time of one round.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Mutex;
use std::time::Duration;

use tenure_server::os;

use super::stage::{AttackedCluster, Target, dial};

/// The pause of an attacker that can send nothing for now, and before it connects again.
const IDLE: Duration = Duration::from_millis(1);
pub(crate) const AGAIN: Duration = Duration::from_millis(3);
/// How much of what a member sends is read at once.
const READ: usize = 64 * 1024;

/// One round of one attack.
pub(crate) struct Round<'a> {
    pub(crate) stage: &'a AttackedCluster,
    pub(crate) target: &'a Target,
    pub(crate) until_us: u64,
    /// The address that the attack comes from.
    pub(crate) from: Ipv4Addr,
    /// What the attack found: a member did what it must not do.
    pub(crate) found: &'a Mutex<Vec<String>>,
}

/// Whether an attacker reads what the member sends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reads {
    All,
    Nothing,
}

impl Round<'_> {
    pub(crate) fn is_over(&self) -> bool {
        os::now_us() >= self.until_us
    }

    /// The leader's address in a request.
    pub(crate) fn host(&self) -> String {
        self.target.leader.to_string()
    }

    pub(crate) fn dial(&self, to: SocketAddr) -> Option<TcpStream> {
        dial(self.from, to).ok()
    }

    pub(crate) fn idle(&self) {
        std::thread::sleep(IDLE);
    }

    pub(crate) fn complain(&self, what: String) {
        self.found.lock().unwrap().push(what);
    }
}

/// A connection and what is still to be sent over it.
struct FloodConnection {
    stream: TcpStream,
    unsent: Vec<u8>,
    at: usize,
    parts: u64,
}

impl FloodConnection {
    /// Writes and reads without waiting; whether anything moved. An error means that the connection is over.
    fn turn(&mut self, reads: Reads, part: &mut dyn FnMut(u64) -> Vec<u8>) -> io::Result<bool> {
        let mut moved = false;
        if self.at == self.unsent.len() {
            (self.unsent, self.at) = (part(self.parts), 0);
            self.parts += 1;
        }
        if let Some(bytes) = now(self.stream.write(&self.unsent[self.at..]))? {
            self.at += bytes;
            moved = bytes > 0;
        }
        if reads == Reads::All {
            moved |= self.drain()?;
        }
        Ok(moved)
    }

    /// Reads all that is there; whether anything was.
    fn drain(&mut self) -> io::Result<bool> {
        let (mut moved, mut scratch) = (false, [0; READ]);
        while let Some(bytes) = now(self.stream.read(&mut scratch))? {
            if bytes == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            moved = true;
        }
        Ok(moved)
    }
}

/// The result of an operation that does not wait; none if it would have to.
pub(crate) fn now(result: io::Result<usize>) -> io::Result<Option<usize>> {
    match result {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Sends `begin` and then one part after another over some connections, and connects again when the member closes one.
/// `part` gets the number of parts that its connection has sent.
pub(crate) fn flood(
    round: &Round<'_>,
    to: SocketAddr,
    connections: usize,
    reads: Reads,
    begin: &[u8],
    mut part: impl FnMut(u64) -> Vec<u8>,
) {
    let mut open: Vec<FloodConnection> = Vec::new();
    while !round.is_over() {
        let mut moved = false;
        if open.len() < connections {
            std::thread::sleep(AGAIN);
            open.extend(round.dial(to).map(|stream| FloodConnection {
                stream,
                unsent: begin.to_vec(),
                at: 0,
                parts: 0,
            }));
        }
        open.retain_mut(|connection| match connection.turn(reads, &mut part) {
            Ok(some) => {
                moved |= some;
                true
            }
            Err(_) => false,
        });
        if !moved {
            round.idle();
        }
    }
}

/// Sends one byte after another, with pauses, over many connections that each began with `first`.
pub(crate) fn drip(round: &Round<'_>, to: SocketAddr, connections: usize, first: &[u8], byte: u8) {
    let mut streams: Vec<TcpStream> = Vec::new();
    while !round.is_over() {
        while streams.len() < connections && !round.is_over() {
            let Some(mut stream) = round.dial(to) else { break };
            if stream.write_all(first).is_ok() {
                streams.push(stream);
            }
        }
        streams.retain_mut(|stream| now(stream.write(&[byte])).is_ok());
        std::thread::sleep(Duration::from_millis(50));
    }
}
