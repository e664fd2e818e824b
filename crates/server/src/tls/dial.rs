//! Connects to a member's APIs with blocking I/O, in plain text or over TLS.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use rustls::pki_types::{InvalidDnsNameError, ServerName};
use rustls::{ClientConnection, StreamOwned};

use super::DialTrust;

/// How long connecting may take.
const CONNECT: Duration = Duration::from_secs(5);

/// A connection to a member, in plain text or over TLS.
pub struct Dialled(DialTransport);

enum DialTransport {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Dialled {
    /// Connects to `host:port`. Each read and write may take at most `answer`. The member's certificate must name the
    /// host.
    pub fn dial(address: &str, trust: Option<&DialTrust>, answer: Duration) -> io::Result<Self> {
        let stream = connect(address, answer)?;
        let Some(trust) = trust else { return Ok(Self(DialTransport::Plain(stream))) };
        let name =
            host_of(address).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let state = ClientConnection::new(trust.config(), name).map_err(io::Error::other)?;
        Ok(Self(DialTransport::Tls(Box::new(StreamOwned::new(state, stream)))))
    }
}

impl Read for Dialled {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        match &mut self.0 {
            DialTransport::Plain(stream) => stream.read(to),
            DialTransport::Tls(stream) => stream.read(to),
        }
    }
}

impl Write for Dialled {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.0 {
            DialTransport::Plain(stream) => stream.write(bytes),
            DialTransport::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.0 {
            DialTransport::Plain(stream) => stream.flush(),
            DialTransport::Tls(stream) => stream.flush(),
        }
    }
}

/// The name that the certificate at `host:port` must contain.
pub(crate) fn host_of(address: &str) -> Result<ServerName<'static>, InvalidDnsNameError> {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    ServerName::try_from(host.trim_start_matches('[').trim_end_matches(']').to_owned())
}

fn connect(address: &str, answer: Duration) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, CONNECT.min(answer)) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(answer))?;
                stream.set_write_timeout(Some(answer))?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}
