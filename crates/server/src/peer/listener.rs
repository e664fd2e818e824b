//! Accepts connections on the members' port and answers what they begin with.

use std::collections::BTreeMap;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tenure_node::{Control, Me};
use tenure_store::Snapshots;

use super::control;
use super::net::Net;
use super::wire::{ANSWER_US, Wire};
use crate::log::Limiter;
use crate::log_writer::spawn;
use crate::os;

/// Connections at once: links, snapshots and questions of every member that could be.
const CONNECTIONS_MAX: usize = 1_024;
/// Connections at once of which nobody knows yet whose they are. One more, and the oldest of them is
/// closed: a member says who it is within milliseconds, and is not kept out by those who never do.
const UNKNOWN_MAX: usize = 64;
/// How long the port has to become free.
const CLOSE: Duration = Duration::from_secs(1);

/// The members' port. It answers who this member is from the first moment; everything else once the
/// member runs.
pub(crate) struct PeerListener {
    me: Mutex<Me>,
    inside: OnceLock<PeerListenerShared>,
    address: SocketAddr,
    wire: Wire,
    limiter: Limiter,
    connections: AtomicUsize,
    unknown: Mutex<UnidentifiedConnections>,
    closed: AtomicBool,
    /// Ends when nobody listens any more.
    listens: Mutex<Receiver<()>>,
}

/// Connections of which nobody knows yet whose they are, by the order in which they came.
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
    /// Begins to answer.
    pub(crate) fn open(listener: TcpListener, me: Me, wire: Wire) -> io::Result<Arc<Self>> {
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

    /// Changes what is told to whoever asks who this is.
    pub(crate) fn introduce(&self, me: Me) {
        *self.me.lock().unwrap_or_else(PoisonError::into_inner) = me;
    }

    /// Lets others in: the member runs.
    pub(crate) fn admit(&self, net: Arc<Net>, snapshots: Snapshots) {
        let _ = self.inside.set(PeerListenerShared { net, snapshots });
    }

    /// Stops listening. The port is free then, so that a member can be started again at once.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        // Wakes the thread that listens.
        let _ = TcpStream::connect_timeout(&self.address, Duration::from_millis(100));
        // Nothing is ever said: it ends with the thread.
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
                // Out of descriptors, most likely: give others time to close some.
                std::thread::sleep(Duration::from_millis(50));
                continue;
            };
            if self.connections.fetch_add(1, Ordering::AcqRel) >= CONNECTIONS_MAX {
                self.connections.fetch_sub(1, Ordering::AcqRel);
                continue;
            }
            let (listener, number) = (self.clone(), self.unknown().enter(&stream));
            let answers = spawn("tenure-link-in", move || {
                // Whoever knocked knows that it failed; here it is not worth a line.
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
            return control::write(&mut stream, &Control::IAm(me));
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
            Control::Join(join) => {
                let answer = match stream.objection(&join.record.names.name) {
                    Some(why) => Control::Refused(why),
                    None => inside.net.join(join.clone(), stream.peer_name()),
                };
                // The cluster may have taken its time to agree.
                stream.limit(Some(os::now_us() + ANSWER_US))?;
                let message = "a member was not added";
                if let Control::Refused(why) = &answer
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
    /// Counts a connection, and closes the oldest if there are too many.
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
