//! Accepts connections on the members' port and serves the request in their first frame.

use std::collections::BTreeMap;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tenure_node::{Control, MemberInfo};
use tenure_store::Snapshots;

use super::control;
use super::net::Net;
use super::wire::{ANSWER_US, Wire};
use crate::log::Limiter;
use crate::log_writer::spawn;
use crate::metrics::Port;
use crate::os;

/// The most connections at once: room for the links, snapshots and questions of the largest cluster.
const CONNECTIONS_MAX: usize = 1_024;
/// The most connections at once whose other end has not identified itself. One more closes the oldest of them: a member
/// identifies itself within milliseconds, so connections that never do cannot keep it out.
const UNKNOWN_MAX: usize = 64;
/// How long [`PeerListener::close`] waits for the port to become free.
const CLOSE: Duration = Duration::from_secs(1);

/// The listener on the members' port. It answers from the first moment who this member is, and serves everything else
/// once the member runs.
pub(crate) struct PeerListener {
    me: Mutex<MemberInfo>,
    inside: OnceLock<PeerListenerShared>,
    address: SocketAddr,
    wire: Wire,
    limiter: Limiter,
    connections: AtomicUsize,
    unknown: Mutex<UnidentifiedConnections>,
    closed: AtomicBool,
    /// Disconnected once the listening thread has closed the port.
    listens: Mutex<Receiver<()>>,
}

/// The connections whose other end has not identified itself, in the order in which they were accepted.
#[derive(Default)]
struct UnidentifiedConnections {
    next: u64,
    sockets: BTreeMap<u64, TcpStream>,
}

struct PeerListenerShared {
    net: Arc<Net>,
    snapshots: Snapshots,
}

impl PeerListener {
    /// Starts the thread that accepts connections.
    pub(crate) fn open(listener: TcpListener, me: MemberInfo, wire: Wire) -> io::Result<Arc<Self>> {
        let (listening, listens) = channel::<()>();
        let peer_listener = Arc::new(Self {
            me: Mutex::new(me),
            inside: OnceLock::new(),
            address: listener.local_addr()?,
            wire,
            limiter: Limiter::default(),
            connections: AtomicUsize::new(0),
            unknown: Mutex::default(),
            closed: AtomicBool::new(false),
            listens: Mutex::new(listens),
        });
        let kept = peer_listener.clone();
        spawn("tenure-members", move || {
            kept.listen(&listener);
            drop(listener);
            drop(listening);
        });
        Ok(peer_listener)
    }

    /// Changes the answer to the question who this member is.
    pub(crate) fn introduce(&self, me: MemberInfo) {
        *self.me.lock().unwrap_or_else(PoisonError::into_inner) = me;
    }

    /// Serves links, snapshots and joins from now on: the member runs.
    pub(crate) fn admit(&self, net: Arc<Net>, snapshots: Snapshots) {
        let _ = self.inside.set(PeerListenerShared { net, snapshots });
    }

    /// Stops listening and waits until the port is free, so that a member can be started again at once.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        // Wakes the listening thread.
        let _ = TcpStream::connect_timeout(&self.address, Duration::from_millis(100));
        // The channel carries no message. It disconnects when the thread ends.
        let listens = self.listens.lock().unwrap_or_else(PoisonError::into_inner);
        if listens.recv_timeout(CLOSE) == Err(RecvTimeoutError::Timeout) {
            let waited = format!("{CLOSE:?}");
            tracing::warn!(address = %self.address, waited, "the members' port is not free yet");
        }
    }

    fn listen(self: &Arc<Self>, listener: &TcpListener) {
        for stream in listener.incoming() {
            if self.closed.load(Ordering::Acquire) {
                return;
            }
            let Ok(stream) = stream else {
                // Most likely no file descriptors are left: give other threads time to close some.
                std::thread::sleep(Duration::from_millis(50));
                continue;
            };
            if self.connections.fetch_add(1, Ordering::AcqRel) >= CONNECTIONS_MAX {
                self.connections.fetch_sub(1, Ordering::AcqRel);
                continue;
            }
            let (listener, number) = (self.clone(), self.unknown().enter(&stream));
            let answers = spawn("tenure-link-in", move || {
                // The other end sees that the connection failed; it is not worth a log line here.
                let _ = listener.answer(stream, number);
                listener.unknown().leave(number);
                listener.connections.fetch_sub(1, Ordering::AcqRel);
            });
            if !answers {
                self.unknown().leave(number);
                self.connections.fetch_sub(1, Ordering::AcqRel);
            }
        }
    }

    fn answer(&self, socket: TcpStream, number: u64) -> io::Result<()> {
        let from = socket.peer_addr()?.ip();
        let mut stream = self.wire.accept(socket).inspect_err(|error| {
            let (message, why) = ("a connection was refused", error.to_string());
            if let Some(inside) = self.inside.get() {
                let meters = &inside.net.member.meters().connections;
                meters.handshake_failed(Port::Members, error);
            }
            if let Some(pass) = self.limiter.pass(message, from, &why) {
                tracing::warn!(%from, why, suppressed = pass.suppressed, "{message}");
            }
        })?;
        let asked = control::read(&mut stream)?;
        self.unknown().leave(number);
        stream.limit(Some(os::now_us() + ANSWER_US))?;
        if asked == Control::Who {
            let me = self.me.lock().unwrap_or_else(PoisonError::into_inner).clone();
            if let Some(inside) = self.inside.get()
                && let Some(why) = inside.net.unnamed(&stream)
            {
                return control::write(&mut stream, &Control::Refused(why));
            }
            return control::write(&mut stream, &Control::MemberInfo(me));
        }
        let Some(inside) = self.inside.get() else {
            return control::write(
                &mut stream,
                &Control::Refused("this member is starting".into()),
            );
        };
        if inside.net.is_closed() {
            return control::write(
                &mut stream,
                &Control::Refused("this member is stopping".into()),
            );
        }
        match asked {
            Control::Hello(hello) => match inside.net.objection(&hello, &stream) {
                Some(why) => control::write(&mut stream, &Control::Refused(why)),
                None => {
                    control::write(&mut stream, &Control::Hello(inside.net.hello(hello.from)))?;
                    inside.net.accept(&hello, stream)
                }
            },
            Control::Snapshot(hello, id) => match inside.net.objection(&hello, &stream) {
                Some(why) => control::write(&mut stream, &Control::Refused(why)),
                None => inside.net.receive_snapshot(&hello, id, &inside.snapshots, &mut stream),
            },
            Control::Archive(hello, first, before) => match inside.net.objection(&hello, &stream) {
                Some(why) => control::write(&mut stream, &Control::Refused(why)),
                None => inside.net.send_archive(&hello, first, before, &mut stream),
            },
            Control::Join(join) => {
                let answer = match stream.objection(&join.record.names.name) {
                    Some(why) => Control::Refused(why),
                    None => inside.net.join(join.clone(), stream.peer_name()),
                };
                // The cluster may have used up the limit to agree, so the answer gets a new one.
                stream.limit(Some(os::now_us() + ANSWER_US))?;
                let message = "a member was not added";
                if let Control::Refused(why) | Control::Uninvited(why) | Control::Rejected(why) =
                    &answer
                    && let Some(pass) = self.limiter.pass(message, from, why)
                {
                    let (record, suppressed) = (&join.record, pass.suppressed);
                    tracing::warn!(%record, why, suppressed, "{message}");
                }
                control::write(&mut stream, &answer)
            }
            _ => control::write(
                &mut stream,
                &Control::Refused("this is an answer, not a question".into()),
            ),
        }
    }

    fn unknown(&self) -> MutexGuard<'_, UnidentifiedConnections> {
        self.unknown.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl UnidentifiedConnections {
    /// Adds a connection and returns its number. Closes the oldest if there are too many.
    fn enter(&mut self, socket: &TcpStream) -> u64 {
        self.next += 1;
        if let Ok(socket) = socket.try_clone() {
            self.sockets.insert(self.next, socket);
        }
        while self.sockets.len() > UNKNOWN_MAX
            && let Some((_, oldest)) = self.sockets.pop_first()
        {
            let _ = oldest.shutdown(Shutdown::Both);
        }
        self.next
    }

    fn leave(&mut self, number: u64) {
        self.sockets.remove(&number);
    }
}
