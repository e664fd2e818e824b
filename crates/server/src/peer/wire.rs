//! Opens and accepts connections between members, and sets their time limits.

use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConnection, Connection, ServerConnection};

use tenure_node::Control;

use super::control;
use super::stream::PeerStream;
use crate::os;
use crate::tls::ServerTls;

/// How long a member may take to accept a connection.
const CONNECT: Duration = Duration::from_secs(2);
/// How long the whole handshake may take.
pub(crate) const HANDSHAKE_US: u64 = 5_000_000;
/// How long a member may take to answer, and to read what it is sent.
pub(crate) const ANSWER_US: u64 = 10_000_000;

/// Opens and accepts this member's connections, with TLS if the member has certificates for it.
#[derive(Clone, Default)]
pub(crate) struct Wire {
    tls: Option<Arc<ServerTls>>,
}

impl Wire {
    pub(crate) fn new(tls: Option<Arc<ServerTls>>) -> Self {
        Self { tls: tls.filter(|tls| tls.covers_members()) }
    }

    /// Opens a connection to the member of this name, or to any member if the caller knows no name.
    pub(crate) fn dial(&self, address: &str, name: Option<&str>) -> io::Result<PeerStream> {
        let socket = connect(address)?;
        let mut stream = match self.tls.as_ref().and_then(|tls| tls.members()) {
            None => PeerStream::plain(socket),
            Some(members) => {
                // The verifier ignores this server name; `objection` below checks the member's: see `tls/verify.rs`.
                let unnamed = ServerName::try_from("member.invalid").map_err(io::Error::other)?;
                let state =
                    ClientConnection::new(members.client, unnamed).map_err(io::Error::other)?;
                let until_us = os::now_us() + HANDSHAKE_US;
                PeerStream::handshake(socket, Connection::Client(state), until_us)?
            }
        };
        if let Some(why) = name.and_then(|name| stream.objection(name)) {
            return Err(io::Error::other(why));
        }
        stream.limit(Some(os::now_us() + ANSWER_US))?;
        Ok(stream)
    }

    /// Accepts a connection that another process has dialled. The handshake, and everything until the other end has
    /// identified itself, must be complete within one limit.
    pub(crate) fn accept(&self, socket: TcpStream) -> io::Result<PeerStream> {
        socket.set_nodelay(true)?;
        let until_us = os::now_us() + HANDSHAKE_US;
        match self.tls.as_ref().and_then(|tls| tls.members()) {
            None => {
                let mut stream = PeerStream::plain(socket);
                stream.limit(Some(until_us))?;
                Ok(stream)
            }
            Some(members) => {
                let state = ServerConnection::new(members.server).map_err(io::Error::other)?;
                PeerStream::handshake(socket, Connection::Server(state), until_us)
            }
        }
    }

    /// Asks one question and reads the answer.
    pub(crate) fn ask(
        &self,
        address: &str,
        name: Option<&str>,
        question: &Control,
    ) -> io::Result<Control> {
        let mut stream = self.dial(address, name)?;
        control::write(&mut stream, question)?;
        control::read(&mut stream)
    }
}

fn connect(address: &str) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, CONNECT) {
            Ok(socket) => {
                socket.set_nodelay(true)?;
                return Ok(socket);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}
