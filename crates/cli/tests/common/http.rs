//! Calls a member over HTTP.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};
use tenure_server::tls::{DialTrust, Dialled};

/// A request to a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) verb: &'static str,
    pub(crate) path: String,
    /// The idempotency key, under which the request takes effect at most once.
    pub(crate) key: Option<String>,
    /// The type of the body, and the body.
    pub(crate) body: Option<(&'static str, String)>,
}

/// The member's response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
}

/// A connection that is reused for several calls.
pub(crate) struct Connection {
    to: SocketAddr,
    stream: BufReader<Box<dyn Transport>>,
    /// The value of the header `authorization`; none for a caller without credentials.
    bearer: Option<String>,
}

/// What carries the bytes of a connection.
trait Transport: Read + Write + Send {}

impl<T: Read + Write + Send> Transport for T {}

/// Connects from an address of the loopback network. Members count connections, requests and reserves by address.
pub(crate) fn connect_from(from: Ipv4Addr, to: SocketAddr) -> io::Result<TcpStream> {
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    bind(&socket, &SocketAddrV4::new(from, 0))?;
    connect(&socket, &to)?;
    let stream = TcpStream::from(socket);
    stream.set_nodelay(true)?;
    Ok(stream)
}

impl Connection {
    /// Connects; every later operation may take up to `answer_timeout`.
    pub(crate) fn open(
        to: SocketAddr,
        trust: Option<&DialTrust>,
        answer_timeout: Duration,
    ) -> io::Result<Self> {
        let stream = Dialled::dial(&to.to_string(), trust, answer_timeout)?;
        Ok(Self { to, stream: BufReader::new(Box::new(stream)), bearer: None })
    }

    /// Connects from an address of the loopback network, in plain text.
    pub(crate) fn open_from(
        from: Ipv4Addr,
        to: SocketAddr,
        answer_timeout: Duration,
    ) -> io::Result<Self> {
        let stream = connect_from(from, to)?;
        stream.set_read_timeout(Some(answer_timeout))?;
        stream.set_write_timeout(Some(answer_timeout))?;
        Ok(Self { to, stream: BufReader::new(Box::new(stream)), bearer: None })
    }

    /// Sends these credentials with every request.
    pub(crate) fn with_bearer(self, bearer: Option<String>) -> Self {
        Self { bearer, ..self }
    }

    /// Sends one request and reads one response. After an error the connection is unusable.
    pub(crate) fn call(&mut self, call: &Call) -> io::Result<Answer> {
        self.send(call)?;
        self.answer()
    }

    /// Sends one request.
    pub(crate) fn send(&mut self, call: &Call) -> io::Result<()> {
        let Call { verb, path, key, body } = call;
        let mut request = format!("{verb} {path} HTTP/1.1\r\nHost: {}\r\n", self.to);
        if let Some(bearer) = &self.bearer {
            request.push_str(&format!("Authorization: {bearer}\r\n"));
        }
        if let Some(key) = key {
            request.push_str(&format!("Idempotency-Key: {key}\r\n"));
        }
        let (kind, body) = body.as_ref().map_or(("", ""), |(kind, body)| (*kind, body));
        if !kind.is_empty() {
            request.push_str(&format!("Content-Type: {kind}\r\n"));
        }
        request.push_str(&format!("Content-Length: {}\r\n\r\n{body}", body.len()));
        self.stream.get_mut().write_all(request.as_bytes())
    }

    fn answer(&mut self) -> io::Result<Answer> {
        let bad = |line: &str| io::Error::new(io::ErrorKind::InvalidData, line.to_owned());
        let first = self.line()?;
        let status = first.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.ok_or_else(|| bad(&first))?;
        let mut length = None;
        loop {
            let line = self.line()?;
            if line.is_empty() {
                break;
            }
            let (name, value) = line.split_once(':').ok_or_else(|| bad(&line))?;
            if name.eq_ignore_ascii_case("content-length") {
                length = value.trim().parse().ok();
            }
        }
        let mut body = vec![0; length.ok_or_else(|| bad("no content-length"))?];
        self.stream.read_exact(&mut body)?;
        Ok(Answer { status, body })
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        match line.strip_suffix("\r\n") {
            Some(line) => Ok(line.to_owned()),
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}
