//! Carries messages between this member and one other over their one connection.
//!
//! Without TLS the event loop reads the messages from the socket itself ([`super::incoming`]), and writes its frames as
//! far as the socket takes them without waiting. A thread writes the rest, all frames under TLS, and the parts of
//! snapshots. Under TLS another thread reads.

use std::collections::VecDeque;
use std::io::{self, BufReader, IoSlice, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg, sockopt};
use tenure_node::{Input, LinkId, PeerMessage};
use tenure_raft::MemberId;

use super::frame::{self, FRAME_BYTES_MAX, Frame, FrameClass};
use super::incoming::IncomingLink;
use super::net::Net;
use super::stream::{PeerStream, WriteHalf};
use crate::log_writer::spawn_for;
use crate::member::LoopEvent;
use crate::os;
use tenure_node::directory::Address;

/// The most bytes that wait for a connection. Entries beyond are dropped, and sent again later.
const QUEUE_BYTES_MAX: usize = 8 * 1024 * 1024;
/// The most bytes for messages without entries. They have a little more room, so that heartbeats pass.
const URGENT_BYTES_MAX: usize = QUEUE_BYTES_MAX + 1024 * 1024;
/// The most parts of snapshots that wait for a connection: two windows of a transfer.
const BULK_MAX: usize = 16;
/// How long the member with the larger id waits after a lost connection before it dials: the other member dials at
/// once, unless it does not know the address.
const LARGER_DIALS_US: u64 = 1_000_000;
/// How long sent bytes may stay unacknowledged before the connection breaks.
const SILENCE: Duration = Duration::from_secs(5);

/// The most frames that one system call writes. A turn has a few for each member.
const SLICES_MAX: usize = 64;

/// How long a write may wait for the operating system before the connection breaks.
const WRITE: Duration = Duration::from_secs(10);

/// The end of a connection that dialled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DialledBy {
    Here,
    There,
}

/// The link to one other member.
pub(crate) struct LinkHandle {
    pub(crate) id: MemberId,
    state: Mutex<LinkState>,
    /// Notified when the connection or the address changes, for the dialling thread.
    changed: Condvar,
    /// Notified when there are frames for the writer. Separate from `changed`, so that frames wake no other thread.
    filled: Condvar,
}

#[derive(Default)]
struct LinkState {
    address: Option<Address>,
    /// Whether the other member is known to belong to the cluster. The link dials only then.
    wanted: bool,
    connection: Option<LinkConnection>,
    /// The number of the newest connection.
    generation: u64,
    /// When the last connection was lost; 0 before the first.
    lost_at_us: u64,
    closed: bool,
}

struct LinkConnection {
    socket: TcpStream,
    /// Whether bytes go to the socket as they are.
    is_plain: bool,
    queue: VecDeque<Vec<u8>>,
    /// The bytes of the queue.
    bytes: usize,
    /// Whether the writer has frames that it took from the queue: others must not overtake them.
    is_writing: bool,
    /// Parts of snapshots. They leave one at a time, when no other frame waits.
    bulk: VecDeque<Vec<u8>>,
}

impl LinkHandle {
    /// A link without a connection. Both ends dial at first: a member that starts asks the others what it has
    /// acknowledged, and does not wait long for a member that pauses between two attempts to reach it.
    pub(crate) fn new(id: MemberId) -> Self {
        let state = Mutex::new(LinkState::default());
        Self { id, state, changed: Condvar::new(), filled: Condvar::new() }
    }

    pub(crate) fn learn(&self, address: Option<Address>, wanted: bool) {
        let mut state = self.lock();
        state.wanted = wanted;
        state.address = address.or(state.address.take());
        self.changed.notify_all();
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.lock().connection.is_some()
    }

    /// Whether the other member is known to belong to the cluster.
    pub(crate) fn is_wanted(&self) -> bool {
        self.lock().wanted
    }

    pub(crate) fn address(&self) -> Option<Address> {
        self.lock().address.clone()
    }

    /// Queues frames and returns whether all entries and urgent frames were queued.
    pub(crate) fn push(&self, frames: Vec<Frame>) -> bool {
        let mut state = self.lock();
        let Some(connection) = &mut state.connection else { return false };
        let mut all = true;
        for frame in frames {
            let max = match frame.class {
                FrameClass::Urgent => URGENT_BYTES_MAX,
                FrameClass::Entries => QUEUE_BYTES_MAX,
                FrameClass::Bulk if connection.bulk.len() < BULK_MAX => {
                    connection.bulk.push_back(frame.bytes);
                    continue;
                }
                FrameClass::Bulk => continue,
            };
            if connection.bytes + frame.bytes.len() > max && connection.bytes > 0 {
                all = false;
                if frame.class == FrameClass::Entries {
                    continue;
                }
                // Answers and votes are not sent again. The other end must know that they are lost.
                if mutant!("answer_dropped_when_the_link_overflows") {
                    continue;
                }
                let _ = connection.socket.shutdown(Shutdown::Both);
                break;
            }
            connection.bytes += frame.bytes.len();
            connection.queue.push_back(frame.bytes);
        }
        connection.write_without_waiting();
        if !connection.queue.is_empty() || !connection.bulk.is_empty() {
            self.filled.notify_all();
        }
        all
    }

    /// Waits until this end has to dial and returns the address; none once the link is closed.
    pub(crate) fn wait_to_dial(&self, me: MemberId) -> Option<Address> {
        let mut state = self.lock();
        loop {
            if state.closed {
                return None;
            }
            let idle = state.connection.is_none() && state.wanted;
            let late_us = os::now_us().saturating_sub(state.lost_at_us);
            let turn = me < self.id || late_us >= LARGER_DIALS_US;
            if let Some(address) = state.address.clone().filter(|_| idle && turn) {
                return Some(address);
            }
            let soon = Duration::from_micros(LARGER_DIALS_US / 4);
            let soon = if idle { soon } else { Duration::from_secs(60) };
            state =
                self.changed.wait_timeout(state, soon).map_or_else(|e| e.into_inner().0, |w| w.0);
        }
    }

    /// Waits before the next dial. Returns early if the other end has dialled or the link is closed.
    pub(crate) fn pause(&self, time: Duration) {
        let state = self.lock();
        let idle = |state: &mut LinkState| state.connection.is_none() && !state.closed;
        drop(self.changed.wait_timeout_while(state, time, idle));
    }

    /// Carries messages over a connection until it breaks.
    pub(crate) fn serve(
        self: &Arc<Self>,
        mut stream: PeerStream,
        dialled: DialledBy,
        level: u16,
        net: &Arc<Net>,
    ) -> io::Result<()> {
        stream.limit(None)?;
        let socket = stream.socket();
        socket.set_write_timeout(Some(WRITE))?;
        watch_over(socket)?;
        let certificate_expires_s = stream.certificate_expires_s();
        let writer = stream.outgoing()?;
        let is_plain = matches!(writer, WriteHalf::Plain(_));
        let socket = socket.try_clone()?;
        let Some(generation) = self.attach(socket, is_plain, dialled, net.member.id()) else {
            return Ok(());
        };
        // The level that the other member knows changes only with its process, and so with its connection.
        let (member, id) = (self.id, LinkId(generation));
        let certificates = &net.member.meters().peer_certificates;
        if let Some(expires_s) = certificate_expires_s {
            certificates.presented(member, generation, expires_s);
        }
        net.member.tell(LoopEvent::Input(Input::Linked { member, link: id, level }));
        let link = self.clone();
        let inbox = net.member.inbox();
        let writes = spawn_for(inbox, "tenure-link-out", move || link.write(writer, generation));
        let result = match writes {
            false => Ok(()),
            true if is_plain => self.let_the_event_loop_read(stream, id, net),
            true => self.read(stream, id, net),
        };
        certificates.closed(member, generation);
        self.detach(generation);
        net.member.tell(LoopEvent::Input(Input::Unlinked { member, link: id }));
        result
    }

    /// Lets the writer send the queued frames, except parts of snapshots, and close its half of the connection. The
    /// other end closes the connection once it has read them. There will be no other connection.
    pub(crate) fn finish(&self) {
        self.lock().closed = true;
        self.tell_all();
    }

    /// Waits until there is no connection, at most until this time.
    pub(crate) fn wait_for_end(&self, until_us: u64) {
        let time = os::until(until_us);
        let open = |state: &mut LinkState| state.connection.is_some();
        drop(self.changed.wait_timeout_while(self.lock(), time, open));
    }

    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        if let Some(connection) = state.connection.take() {
            let _ = connection.socket.shutdown(Shutdown::Both);
        }
        self.tell_all();
    }

    /// Waits until the event loop has found the end of the connection, or has ended itself.
    fn let_the_event_loop_read(
        self: &Arc<Self>,
        mut stream: PeerStream,
        link: LinkId,
        net: &Arc<Net>,
    ) -> io::Result<()> {
        let incoming = IncomingLink::new(self.clone(), link, stream.socket().try_clone()?);
        net.member.tell(LoopEvent::Incoming(Box::new(incoming)));
        let mut state = self.lock();
        while state.generation == link.0 && state.connection.is_some() && !state.closed {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let is_finishing = state.generation == link.0 && state.connection.is_some();
        drop(state);
        if is_finishing {
            // The event loop has ended. Messages are read and dropped, until the other end has read the last ones of
            // this end and closes the connection.
            io::copy(&mut stream, &mut io::sink())?;
        }
        Ok(())
    }

    fn read(&self, stream: PeerStream, link: LinkId, net: &Arc<Net>) -> io::Result<()> {
        let mut from = BufReader::with_capacity(256 * 1024, stream);
        loop {
            let bytes = frame::read(&mut from, FRAME_BYTES_MAX)?;
            let message =
                PeerMessage::decode(&bytes).ok_or(io::Error::from(io::ErrorKind::InvalidData))?;
            // After the member's end messages are read and dropped, until the other end has read the last ones of this
            // end and closes the connection.
            if net.member.over().is() {
                continue;
            }
            // Blocks while the event loop's inbox is full, which slows the sender down through TCP.
            net.member.tell(LoopEvent::Input(Input::Peer { from: self.id, link, message }));
        }
    }

    fn write(&self, mut stream: WriteHalf, generation: u64) {
        while let Some(frames) = self.wait_for_frames(generation) {
            let written = match &frames[..] {
                [one] => stream.write_all(one),
                several => stream.write_all(&several.concat()),
            };
            if written.is_err() {
                self.detach(generation);
                return;
            }
        }
    }

    fn wait_for_frames(&self, generation: u64) -> Option<Vec<Vec<u8>>> {
        let mut state = self.lock();
        loop {
            if state.generation != generation {
                return None;
            }
            let closed = state.closed;
            let connection = state.connection.as_mut()?;
            connection.is_writing = false;
            if !connection.queue.is_empty() {
                connection.is_writing = true;
                connection.bytes = 0;
                return Some(std::mem::take(&mut connection.queue).into());
            }
            if closed {
                let _ = connection.socket.shutdown(Shutdown::Write);
                return None;
            }
            if let Some(part) = connection.bulk.pop_front() {
                connection.is_writing = true;
                return Some(vec![part]);
            }
            state = self.filled.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Makes a connection the link's connection and returns its number; none if the existing one is preferred.
    fn attach(
        &self,
        socket: TcpStream,
        is_plain: bool,
        dialled: DialledBy,
        me: MemberId,
    ) -> Option<u64> {
        let mut state = self.lock();
        // Both ends follow the same rule: a connection that the smaller id dialled replaces any other, one that the
        // larger id dialled is used only if there is none.
        let by_smaller = (dialled == DialledBy::Here) == (me < self.id);
        if state.closed || state.connection.is_some() && !by_smaller {
            return None;
        }
        if let Some(old) = state.connection.take() {
            let _ = old.socket.shutdown(Shutdown::Both);
        }
        state.generation += 1;
        state.connection = Some(LinkConnection {
            socket,
            is_plain,
            queue: VecDeque::new(),
            bytes: 0,
            is_writing: false,
            bulk: VecDeque::new(),
        });
        self.tell_all();
        Some(state.generation)
    }

    /// Closes the connection of this number, unless there is a newer one.
    pub(super) fn detach(&self, generation: u64) {
        let mut state = self.lock();
        if state.generation == generation
            && let Some(connection) = state.connection.take()
        {
            let _ = connection.socket.shutdown(Shutdown::Both);
            state.lost_at_us = os::now_us();
        }
        self.tell_all();
    }

    /// Wakes all waiting threads, including a writer whose connection is no longer the newest.
    fn tell_all(&self) {
        self.changed.notify_all();
        self.filled.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, LinkState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LinkConnection {
    /// Writes queued frames as far as the socket takes them at once. What stays in the queue is the writer's.
    fn write_without_waiting(&mut self) {
        if !self.is_plain || self.is_writing {
            return;
        }
        while !self.queue.is_empty() {
            let slices: Vec<IoSlice<'_>> =
                self.queue.iter().take(SLICES_MAX).map(|frame| IoSlice::new(frame)).collect();
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            match sendmsg(&self.socket, &slices, &mut SendAncillaryBuffer::default(), flags) {
                Ok(written) => self.drop_written(written),
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => return,
                Err(_) => {
                    // The reader sees the end of the connection and detaches it.
                    let _ = self.socket.shutdown(Shutdown::Both);
                    return;
                }
            }
        }
    }

    /// Removes bytes that the socket has taken from the front of the queue.
    fn drop_written(&mut self, mut written: usize) {
        self.bytes -= written;
        while let Some(first) = self.queue.front_mut() {
            if written < first.len() {
                first.drain(..written);
                return;
            }
            written -= first.len();
            self.queue.pop_front();
        }
    }
}

/// Has the operating system detect that the other end is gone without closing the connection.
fn watch_over(stream: &TcpStream) -> io::Result<()> {
    let silence_ms = u32::try_from(SILENCE.as_millis()).unwrap_or(u32::MAX);
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, SILENCE)?;
    sockopt::set_tcp_keepintvl(stream, Duration::from_secs(1))?;
    sockopt::set_tcp_keepcnt(stream, 3)?;
    Ok(sockopt::set_tcp_user_timeout(stream, silence_ms)?)
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::{Ipv4Addr, TcpListener};

    use super::*;
    use crate::plant;

    /// How long the other end waits for the connection to close.
    const TIMEOUT: Duration = Duration::from_secs(1);

    fn frame(class: FrameClass, len: usize) -> Vec<Frame> {
        vec![Frame { class, bytes: vec![0; len] }]
    }

    /// Overflows a link that no writer drains with an answer. Returns whether the other end sees the connection close.
    fn the_other_end_learns_of_it() -> bool {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let here = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut there, _) = listener.accept().unwrap();
        let (me, other) = (MemberId::new(1).unwrap(), MemberId::new(2).unwrap());
        let link = LinkHandle::new(other);
        // As under TLS: the event loop writes nothing itself.
        assert_eq!(link.attach(here, false, DialledBy::Here, me), Some(1));
        assert!(link.push(frame(FrameClass::Entries, QUEUE_BYTES_MAX)));
        assert!(
            !link.push(frame(FrameClass::Entries, 1)),
            "entries are dropped, and sent again later"
        );
        there.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        assert!(there.read(&mut [0]).is_err(), "the connection stays");
        assert!(
            !link.push(frame(FrameClass::Urgent, 2 * 1024 * 1024)),
            "an answer that does not fit"
        );
        there.set_read_timeout(Some(TIMEOUT)).unwrap();
        matches!(there.read(&mut [0]), Ok(0))
    }

    #[test]
    fn the_event_loop_writes_what_the_socket_takes_and_the_writer_the_rest_in_order() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let here = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut there, _) = listener.accept().unwrap();
        let (me, other) = (MemberId::new(1).unwrap(), MemberId::new(2).unwrap());
        let link = LinkHandle::new(other);
        let half = WriteHalf::Plain(here.try_clone().unwrap());
        let generation = link.attach(here, true, DialledBy::Here, me).unwrap();
        let push = |class, content: u8, len| {
            assert!(link.push(vec![Frame { class, bytes: vec![content; len] }]));
        };
        let mut expected = Vec::new();
        let mut read = vec![0; 3];
        push(FrameClass::Urgent, 1, 3);
        there.read_exact(&mut read).unwrap();
        assert_eq!(read, [1; 3], "no writer runs");
        // More than the buffers of the socket take: a part of a frame stays, and what follows must not overtake it.
        for content in 2..8 {
            push(FrameClass::Entries, content, 1024 * 1024);
            expected.extend(vec![content; 1024 * 1024]);
        }
        assert!(link.lock().connection.as_ref().unwrap().bytes > 0);
        push(FrameClass::Bulk, 8, 10);
        std::thread::scope(|scope| {
            scope.spawn(|| link.write(half, generation));
            push(FrameClass::Urgent, 9, 3);
            let mut read = vec![0; expected.len() + 13];
            there.read_exact(&mut read).unwrap();
            assert!(read.starts_with(&expected));
            let mut rest = read.split_off(expected.len());
            rest.sort_unstable();
            assert_eq!(rest, [[8; 10].as_slice(), &[9; 3]].concat());
            link.finish();
        });
    }

    #[test]
    fn the_member_with_the_larger_id_dials_at_once_when_it_starts() {
        let (smaller, me) = (MemberId::new(1).unwrap(), MemberId::new(2).unwrap());
        let link = Arc::new(LinkHandle::new(smaller));
        link.learn(Some("127.0.0.1:1".to_owned()), true);
        let began_us = os::now_us();
        assert_eq!(link.wait_to_dial(me), Some("127.0.0.1:1".to_owned()));
        assert!(os::now_us() - began_us < LARGER_DIALS_US);
    }

    #[test]
    fn an_answer_that_does_not_fit_breaks_the_connection_and_the_planted_silence_is_caught() {
        assert!(the_other_end_learns_of_it());
        let planted = "answer_dropped_when_the_link_overflows";
        assert!(
            !plant::with(planted, the_other_end_learns_of_it),
            "the planted bug is not noticed"
        );
    }
}
