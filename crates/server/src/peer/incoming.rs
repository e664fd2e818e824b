//! Reads the messages of other members on the event loop, without a thread in between.
//!
//! Only connections without TLS: decryption stays off the event loop, on the thread of the link.

use std::io;
use std::net::TcpStream;
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags};
use rustix::net::{RecvFlags, recv};
use tenure_node::{Input, LinkId, PeerMessage};

use super::frame::FrameAssembler;
use super::link::LinkHandle;

/// The most bytes that one turn reads from one connection. The rest stays in the socket, and TCP slows the sender down.
const READ_BYTES: usize = 256 * 1024;

/// One connection whose messages the event loop reads.
pub(crate) struct IncomingLink {
    link: Arc<LinkHandle>,
    id: LinkId,
    socket: TcpStream,
    assembler: FrameAssembler,
}

/// The connections whose messages the event loop reads.
pub(crate) struct IncomingLinks {
    links: Vec<IncomingLink>,
    buffer: Box<[u8]>,
}

impl Default for IncomingLinks {
    fn default() -> Self {
        Self { links: Vec::new(), buffer: vec![0; READ_BYTES].into() }
    }
}

impl IncomingLink {
    pub(super) fn new(link: Arc<LinkHandle>, id: LinkId, socket: TcpStream) -> Self {
        Self { link, id, socket, assembler: FrameAssembler::default() }
    }

    /// Reads once and passes on the messages that are complete. An error is the end of the connection.
    fn read(&mut self, buffer: &mut [u8], handle: &mut impl FnMut(Input)) -> io::Result<()> {
        let read = match recv(&self.socket, &mut *buffer, RecvFlags::DONTWAIT) {
            Ok((0, _)) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok((read, _)) => read,
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let (from, link) = (self.link.id, self.id);
        self.assembler.take(&buffer[..read], |bytes| {
            let message =
                PeerMessage::decode(&bytes).ok_or(io::Error::from(io::ErrorKind::InvalidData))?;
            handle(Input::Peer { from, link, message });
            Ok(())
        })
    }
}

impl IncomingLinks {
    pub(crate) fn add(&mut self, link: IncomingLink) {
        self.links.push(link);
    }

    /// The descriptors to wait for, in the order of the links.
    pub(crate) fn fds(&self) -> Vec<PollFd<'_>> {
        // With room for the one of the inbox.
        let mut fds = Vec::with_capacity(self.links.len() + 1);
        fds.extend(self.links.iter().map(|link| PollFd::new(&link.socket, PollFlags::IN)));
        fds
    }

    /// Reads the connections that are marked as ready, and passes on their messages. Closes those that have ended.
    pub(crate) fn read(&mut self, ready: &[bool], handle: &mut impl FnMut(Input)) {
        let mut ready = ready.iter();
        self.links.retain_mut(|link| {
            if !ready.next().is_some_and(|is_ready| *is_ready) {
                return true;
            }
            let is_open = link.read(&mut self.buffer, handle).is_ok();
            if !is_open {
                link.link.detach(link.id.0);
            }
            is_open
        });
    }
}
