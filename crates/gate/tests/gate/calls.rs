//! Calls a store or a proxy from tests.
#![allow(dead_code, reason = "two test binaries use parts of this")]

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// How long a call may take.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(each, _)| each == name).map(|(_, value)| value.as_str())
    }

    /// The reason code; empty if the response has none.
    pub(crate) fn reason(&self) -> &str {
        self.header("tenure-reason").unwrap_or_default()
    }

    /// The status and the reason code.
    pub(crate) fn refusal(&self) -> (u16, &str) {
        (self.status, self.reason())
    }
}

/// A connection that stays open between calls. After an error it cannot be used again.
pub(crate) struct Connection(BufReader<TcpStream>);

impl Connection {
    pub(crate) fn open(to: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&to, TIMEOUT)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_nodelay(true)?;
        Ok(Self(BufReader::new(stream)))
    }

    pub(crate) fn call(
        &mut self,
        verb: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> io::Result<Answer> {
        let mut request = format!("{verb} {path} HTTP/1.1\r\ncontent-length: {}\r\n", body.len());
        if !headers.iter().any(|(name, _)| *name == "host") {
            request.push_str(&format!("host: {}\r\n", self.0.get_ref().peer_addr()?));
        }
        for (name, value) in headers {
            request.push_str(&format!("{name}: {value}\r\n"));
        }
        request.push_str("\r\n");
        let mut request = request.into_bytes();
        request.extend_from_slice(body);
        self.0.get_mut().write_all(&request)?;
        self.answer()
    }

    pub(crate) fn answer(&mut self) -> io::Result<Answer> {
        let bad = |line: &str| io::Error::new(io::ErrorKind::InvalidData, line.to_owned());
        let first = self.line()?;
        let status = first.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status: u16 = status.ok_or_else(|| bad(&first))?;
        let mut headers = Vec::new();
        loop {
            let line = self.line()?;
            if line.is_empty() {
                break;
            }
            let (name, value) = line.split_once(": ").ok_or_else(|| bad(&line))?;
            headers.push((name.to_ascii_lowercase(), value.to_owned()));
        }
        let length = headers.iter().find(|(name, _)| name == "content-length");
        let length = length.and_then(|(_, length)| length.parse().ok());
        let none = status == 204;
        let mut body =
            vec![0; length.or(none.then_some(0)).ok_or_else(|| bad("no content-length"))?];
        self.0.read_exact(&mut body)?;
        Ok(Answer { status, headers, body })
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.0.read_line(&mut line)?;
        line.strip_suffix("\r\n")
            .map(str::to_owned)
            .ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }
}

/// Sends one call on a connection of its own.
pub(crate) fn call(
    to: SocketAddr,
    verb: &str,
    path: &str,
    token: Option<u64>,
    body: &str,
) -> Answer {
    let token = token.map(|token| token.to_string());
    let headers: Vec<(&str, &str)> =
        token.iter().map(|token| ("fencing-token", token.as_str())).collect();
    Connection::open(to).unwrap().call(verb, path, &headers, body.as_bytes()).unwrap()
}

/// Sends `POST /write`, the only call that a minimal client uses.
pub(crate) fn write(to: SocketAddr, client: &str, lock: &str, token: u64, data: &str) -> Answer {
    let body = format!(
        r#"{{"clientID":"{client}","fencingToken":{{"key":"{lock}","value":{token}}},"data":"{data}"}}"#
    );
    let headers = [("content-type", "application/json")];
    Connection::open(to).unwrap().call("POST", "/write", &headers, body.as_bytes()).unwrap()
}
