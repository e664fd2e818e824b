//! Who knocks at the members' port, and what do they get?

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use tenure_store::Snapshots;

use super::control::{Control, Join, Me, bound};
use super::net::Net;
use crate::pen::spawn;
use crate::say;

/// Connections at once: links, snapshots and questions of every member that could be.
const CONNECTIONS_MAX: usize = 1_024;

/// Answers those who want to belong to the cluster.
pub(crate) type Joiner = Box<dyn Fn(&Join) -> Control + Send + Sync>;

/// The members' port. It answers who this member is from the first moment; everything else once the
/// member runs.
pub(crate) struct Door {
    me: Mutex<Me>,
    inside: OnceLock<Inside>,
    address: SocketAddr,
    connections: AtomicUsize,
    closed: AtomicBool,
}

struct Inside {
    net: Arc<Net>,
    snapshots: Snapshots,
    joiner: Joiner,
}

impl Door {
    /// Begins to answer.
    pub(crate) fn open(listener: TcpListener, me: Me) -> io::Result<Arc<Self>> {
        let door = Arc::new(Self {
            me: Mutex::new(me),
            inside: OnceLock::new(),
            address: listener.local_addr()?,
            connections: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
        });
        let kept = door.clone();
        spawn("tenure-members", move || kept.listen(&listener));
        Ok(door)
    }

    /// Changes what is told to whoever asks who this is.
    pub(crate) fn introduce(&self, me: Me) {
        *self.me.lock().unwrap_or_else(PoisonError::into_inner) = me;
    }

    /// Lets others in: the member runs.
    pub(crate) fn admit(&self, net: Arc<Net>, snapshots: Snapshots, joiner: Joiner) {
        let _ = self.inside.set(Inside { net, snapshots, joiner });
    }

    /// Stops listening.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        // Wakes the thread that listens.
        let _ = TcpStream::connect_timeout(&self.address, Duration::from_millis(100));
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
            let door = self.clone();
            let answers = spawn("tenure-link-in", move || {
                // Whoever knocked knows that it failed; here it is not worth a line.
                let _ = door.answer(stream);
                door.connections.fetch_sub(1, Ordering::AcqRel);
            });
            if !answers {
                self.connections.fetch_sub(1, Ordering::AcqRel);
            }
        }
    }

    fn answer(&self, mut stream: TcpStream) -> io::Result<()> {
        bound(&stream)?;
        let asked = Control::read(&mut stream)?;
        if asked == Control::Who {
            let me = self.me.lock().unwrap_or_else(PoisonError::into_inner).clone();
            return Control::IAm(me).write(&mut stream);
        }
        let Some(inside) = self.inside.get() else {
            return Control::Refused("this member is starting".into()).write(&mut stream);
        };
        if inside.net.is_closed() {
            return Control::Refused("this member is stopping".into()).write(&mut stream);
        }
        match asked {
            Control::Hello(hello) => match inside.net.objection(&hello) {
                Some(why) => Control::Refused(why).write(&mut stream),
                None => {
                    Control::Hello(inside.net.hello(hello.from)).write(&mut stream)?;
                    inside.net.accept(&hello, stream)
                }
            },
            Control::Snapshot(hello, id) => match inside.net.objection(&hello) {
                Some(why) => Control::Refused(why).write(&mut stream),
                None => inside.net.receive_snapshot(&hello, id, &inside.snapshots, &mut stream),
            },
            Control::Join(join) => {
                let answer = (inside.joiner)(&join);
                if let Control::Refused(why) = &answer {
                    say::warn("a member was not added", &[("card", &join.card), ("why", why)]);
                }
                answer.write(&mut stream)
            }
            _ => Control::Refused("this is an answer, not a question".into()).write(&mut stream),
        }
    }
}
