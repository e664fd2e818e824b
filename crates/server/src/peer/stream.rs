//! Carries bytes between two members over a socket, with or without TLS.
//!
//! A link reads on one thread and writes on another. Without TLS the threads share nothing. With TLS both need the
//! session, and neither holds its lock while it waits for the network.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use rustls::Connection;
use tenure_node::PeerName;

use crate::os;
use crate::tls;

/// The most bytes read from a socket, or encrypted for it, at once.
const PIECE_BYTES: usize = 256 * 1024;
/// How long a refused peer has to read the reason before the socket is closed.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(200);

/// One connection to another member.
pub(crate) struct PeerStream {
    way: Transport,
    until_us: Option<u64>,
    /// The names in the other end's certificate; none without TLS.
    names: Option<Vec<String>>,
    /// When the other end's certificate expires, in seconds since 1970; none without TLS.
    certificate_expires_s: Option<u64>,
}

enum Transport {
    Plain(TcpStream),
    Tls(Arc<TlsSession>, ReadBuffer),
}

/// The write half of a connection, for another thread.
pub(crate) enum WriteHalf {
    Plain(TcpStream),
    Tls(Arc<TlsSession>),
}

/// A TLS session and the socket under it.
pub(crate) struct TlsSession {
    socket: TcpStream,
    state: Mutex<Connection>,
    /// Encrypted bytes. Locked before `state`, and held until the socket has the bytes, so that records leave in the
    /// order in which they were encrypted.
    out: Mutex<Vec<u8>>,
}

/// Bytes that were read from the socket and decrypted but not yet taken by the reader.
struct ReadBuffer {
    raw: Box<[u8]>,
    plain: Vec<u8>,
    taken: usize,
}

impl PeerStream {
    pub(crate) fn plain(socket: TcpStream) -> Self {
        let way = Transport::Plain(socket);
        Self { way, until_us: None, names: None, certificate_expires_s: None }
    }

    /// Performs the TLS handshake, which must be complete before the given moment.
    pub(crate) fn handshake(
        socket: TcpStream,
        mut state: Connection,
        until_us: u64,
    ) -> io::Result<Self> {
        state.set_buffer_limit(None);
        let session =
            Arc::new(TlsSession { socket, state: Mutex::new(state), out: Mutex::default() });
        let incoming = ReadBuffer { raw: vec![0; PIECE_BYTES].into(), plain: Vec::new(), taken: 0 };
        let way = Transport::Tls(session.clone(), incoming);
        let (until_us, names) = (Some(until_us), Some(Vec::new()));
        let mut stream = Self { way, until_us, names, certificate_expires_s: None };
        while session.state().is_handshaking() {
            stream.bound_write()?;
            session.send_all(&[])?;
            if !session.state().is_handshaking() {
                break;
            }
            stream.receive()?;
        }
        stream.bound_write()?;
        session.send_all(&[])?;
        let state = session.state();
        let certificate = state.peer_certificates().and_then(|chain| chain.first());
        stream.names = Some(certificate.map(tls::dns_names).unwrap_or_default());
        let validity = certificate.and_then(tls::Validity::of);
        stream.certificate_expires_s = validity.and_then(|valid| valid.until.try_into().ok());
        Ok(stream)
    }

    /// When the other end's certificate expires, in seconds since 1970; none without TLS.
    pub(crate) fn certificate_expires_s(&self) -> Option<u64> {
        self.certificate_expires_s
    }

    /// Limits all reads and writes to end before this moment; removes the limit if none is given.
    pub(crate) fn limit(&mut self, until_us: Option<u64>) -> io::Result<()> {
        self.until_us = until_us;
        if until_us.is_none() {
            self.socket().set_read_timeout(None)?;
        }
        Ok(())
    }

    /// What the connection proves about the name of its other end.
    pub(crate) fn peer_name(&self) -> PeerName {
        self.names.clone().map_or(PeerName::Plain, PeerName::Certified)
    }

    /// Why the other end cannot be the member of this name; none if it can. Without TLS any peer can.
    pub(crate) fn objection(&self, name: &str) -> Option<String> {
        let names = self.names.as_ref()?;
        let named = tls::listed(names);
        (!tls::is_named(names, name))
            .then(|| format!("its certificate names {named}, not the member `{name}`"))
    }

    pub(crate) fn socket(&self) -> &TcpStream {
        match &self.way {
            Transport::Plain(socket) => socket,
            Transport::Tls(session, _) => &session.socket,
        }
    }

    /// The write half, for another thread.
    pub(crate) fn outgoing(&self) -> io::Result<WriteHalf> {
        Ok(match &self.way {
            Transport::Plain(socket) => WriteHalf::Plain(socket.try_clone()?),
            Transport::Tls(session, _) => WriteHalf::Tls(session.clone()),
        })
    }

    /// Reads once from the socket under TLS.
    fn receive(&mut self) -> io::Result<usize> {
        self.bound_read()?;
        let Transport::Tls(session, incoming) = &mut self.way else { return Ok(0) };
        let read = (&session.socket).read(&mut incoming.raw).map_err(late)?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let ReadBuffer { raw, plain, .. } = incoming;
        if let Err(error) = session.take_in(&raw[..read], plain) {
            session.send_alert();
            return Err(io::Error::new(io::ErrorKind::InvalidData, error));
        }
        Ok(read)
    }

    fn bound_read(&self) -> io::Result<()> {
        let Some(until_us) = self.until_us else { return Ok(()) };
        self.socket().set_read_timeout(Some(left(until_us)?))
    }

    fn bound_write(&self) -> io::Result<()> {
        let Some(until_us) = self.until_us else { return Ok(()) };
        self.socket().set_write_timeout(Some(left(until_us)?))
    }
}

impl Read for PeerStream {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        self.bound_read()?;
        loop {
            match &mut self.way {
                Transport::Plain(socket) => return socket.read(to).map_err(late),
                Transport::Tls(_, incoming) => {
                    let taken = incoming.take(to);
                    if taken > 0 || to.is_empty() {
                        return Ok(taken);
                    }
                }
            }
            match self.receive() {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
                Err(error) => return Err(error),
            }
        }
    }
}

impl Write for PeerStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bound_write()?;
        match &mut self.way {
            Transport::Plain(socket) => socket.write(bytes),
            Transport::Tls(session, _) => session.send(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Write for WriteHalf {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            WriteHalf::Plain(socket) => socket.write(bytes),
            WriteHalf::Tls(session) => session.send(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl ReadBuffer {
    fn take(&mut self, to: &mut [u8]) -> usize {
        let there = &self.plain[self.taken..];
        let taken = there.len().min(to.len());
        to[..taken].copy_from_slice(&there[..taken]);
        self.taken += taken;
        if self.taken == self.plain.len() {
            self.plain.clear();
            self.taken = 0;
        }
        taken
    }
}

impl TlsSession {
    /// Decrypts what has arrived.
    fn take_in(
        &self,
        mut raw: &[u8],
        plain: &mut Vec<u8>,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let mut state = self.state();
        while !raw.is_empty() {
            if state.read_tls(&mut raw)? == 0 {
                break;
            }
            let ready = state.process_new_packets()?.plaintext_bytes_to_read();
            let old = plain.len();
            plain.resize(old + ready, 0);
            state.reader().read_exact(&mut plain[old..])?;
        }
        let answers = state.wants_write() && !state.is_handshaking();
        drop(state);
        if answers {
            // A key update, perhaps. If the writer holds the lock now, its next write sends this too. Waiting for the
            // lock here could make both ends wait for each other.
            match self.out.try_lock() {
                Ok(out) => self.encrypt_and_write(out, &[]).map(drop)?,
                Err(TryLockError::Poisoned(_) | TryLockError::WouldBlock) => {}
            }
        }
        Ok(())
    }

    /// Encrypts and writes at most one piece, and returns its length.
    fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        let piece = &bytes[..bytes.len().min(PIECE_BYTES)];
        self.send_all(piece)?;
        Ok(piece.len())
    }

    fn send_all(&self, piece: &[u8]) -> io::Result<()> {
        let out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        self.encrypt_and_write(out, piece)
    }

    fn encrypt_and_write(&self, mut out: MutexGuard<'_, Vec<u8>>, piece: &[u8]) -> io::Result<()> {
        let mut state = self.state();
        if !piece.is_empty() {
            state.writer().write_all(piece)?;
        }
        while state.wants_write() {
            state.write_tls(&mut *out)?;
        }
        drop(state);
        let written = (&self.socket).write_all(&out);
        out.clear();
        written
    }

    /// Sends the other end the TLS alert that says why its handshake failed, and gives it a moment to read it. Closing
    /// a socket with unread bytes discards what was written.
    fn send_alert(&self) {
        let _ = self.socket.set_write_timeout(Some(CLOSE_TIMEOUT));
        let _ = self.send_all(&[]);
        let _ = self.socket.shutdown(Shutdown::Write);
        let _ = self.socket.set_read_timeout(Some(CLOSE_TIMEOUT));
        let _ = (&self.socket).read(&mut [0; 1024]);
    }

    fn state(&self) -> MutexGuard<'_, Connection> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Replaces the operating system's error for a passed limit, which does not mention time, with a clear one.
fn late(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock => io::Error::new(io::ErrorKind::TimedOut, "silent for too long"),
        _ => error,
    }
}

fn left(until_us: u64) -> io::Result<Duration> {
    let left = os::until(until_us);
    if left.is_zero() { Err(late(io::ErrorKind::WouldBlock.into())) } else { Ok(left) }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::net::TcpListener;

    use rcgen::{CertificateParams, KeyPair};

    use super::super::wire::Wire;
    use super::*;
    use crate::tls::{ServerTls, ServerTlsFiles};

    /// Two connected ends that trust the same certificate.
    fn pair() -> (PeerStream, PeerStream) {
        let dir = tempfile::tempdir().unwrap();
        let key = KeyPair::generate().unwrap();
        let cert = CertificateParams::new(vec!["m0".into()]).unwrap().self_signed(&key).unwrap();
        let [cert_at, key_at] = ["cert", "key"].map(|name| dir.path().join(name));
        fs::write(&cert_at, cert.pem()).unwrap();
        fs::write(&key_at, key.serialize_pem()).unwrap();
        let member_ca = Some(cert_at.clone());
        let files = ServerTlsFiles { cert: cert_at, key: key_at, client_ca: None, member_ca };
        let wire = Wire::new(Some(Arc::new(ServerTls::load(files).unwrap())));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let dialled = wire.clone();
        let dialled = std::thread::spawn(move || dialled.dial(&address, Some("m0")).unwrap());
        let accepted = wire.accept(listener.accept().unwrap().0).unwrap();
        (dialled.join().unwrap(), accepted)
    }

    #[test]
    fn both_ends_read_and_write_at_once_and_change_their_keys_meanwhile() {
        const ROUNDS: u32 = 200;
        let (one, other) = pair();
        assert_eq!(one.objection("M0"), None);
        assert!(one.objection("m1").unwrap().contains("names `m0`, not the member `m1`"));
        // Neither end closes before both have read everything.
        let ends: Vec<PeerStream> = std::thread::scope(|scope| {
            let read = [one, other].map(|mut end| {
                end.limit(None).unwrap();
                let mut out = end.outgoing().unwrap();
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        // Longer than one piece.
                        let bytes = vec![round.to_le_bytes()[0]; 3 * PIECE_BYTES / 2];
                        out.write_all(&bytes).unwrap();
                        if let WriteHalf::Tls(session) = &out {
                            session.state().refresh_traffic_keys().unwrap();
                        }
                    }
                });
                scope.spawn(move || {
                    let mut bytes = vec![0; 3 * PIECE_BYTES / 2];
                    for round in 0..ROUNDS {
                        end.read_exact(&mut bytes).unwrap();
                        assert!(bytes.iter().all(|byte| *byte == round.to_le_bytes()[0]));
                    }
                    end
                })
            });
            read.map(|reader| reader.join().unwrap()).into()
        });
        drop(ends);
    }
}
