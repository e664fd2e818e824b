//! Sends HTTP/1.1 requests, one per connection.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

/// How long anything may take here before the test fails.
const DEADLINE: Duration = Duration::from_secs(60);

/// A client of one member. Its names are its own.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    pub(crate) at: SocketAddr,
    name: &'static str,
    /// The value of `authorization` in requests that have none of their own; empty for none.
    bearer: String,
}

/// A response.
pub(crate) struct Reply {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

/// A stream of server-sent events.
pub(crate) struct Events {
    from: BufReader<TcpStream>,
    left: usize,
}

/// One event.
#[derive(Debug)]
pub(crate) struct Sent {
    pub(crate) event: String,
    pub(crate) id: String,
    pub(crate) data: Value,
}

/// The header of the local administrator of the member whose data is in this directory.
pub(crate) fn local_bearer(data: &std::path::Path) -> String {
    let key = std::fs::read_to_string(data.join("admin.key")).unwrap();
    format!("Bearer {}", key.trim())
}

impl Client {
    pub(crate) fn new(at: SocketAddr, name: &'static str) -> Self {
        Self { at, name, bearer: String::new() }
    }

    /// A client with the key of the local administrator of the member whose data is in this directory.
    #[allow(dead_code, reason = "each test binary uses a part of the client")]
    pub(crate) fn administrator(
        at: SocketAddr,
        name: &'static str,
        data: &std::path::Path,
    ) -> Self {
        Self { at, name, bearer: local_bearer(data) }
    }

    /// A name that no other client uses.
    pub(crate) fn own(&self, name: &str) -> String {
        format!("{}/{name}", self.name)
    }

    pub(crate) fn get(&self, path: &str) -> Reply {
        self.ask("GET", path, &[], b"")
    }

    pub(crate) fn delete(&self, path: &str) -> Reply {
        self.ask("DELETE", path, &[], b"")
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Reply {
        self.json("POST", path, &[], body)
    }

    pub(crate) fn json(
        &self,
        verb: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &Value,
    ) -> Reply {
        let mut all = vec![("Content-Type", "application/json")];
        all.extend(headers);
        self.ask(verb, path, &all, body.to_string().as_bytes())
    }

    pub(crate) fn ask(
        &self,
        verb: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Reply {
        let mut stream = BufReader::new(self.send(verb, path, headers, body));
        let (status, headers) = head(&mut stream);
        let mut body = Vec::new();
        stream.read_to_end(&mut body).unwrap();
        Reply { status, headers, body }
    }

    /// Sends a request and returns the stream without reading the response.
    pub(crate) fn send(
        &self,
        verb: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> TcpStream {
        let mut stream = TcpStream::connect(self.at).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        let mut head = format!("{verb} {path} HTTP/1.1\r\nConnection: close\r\n");
        if !headers.iter().any(|(name, _)| *name == "Host") {
            head += &format!("Host: {}\r\n", self.at);
        }
        let own = ("Authorization", &*self.bearer);
        let default = (!headers.iter().any(|(name, _)| *name == own.0)).then_some(&own);
        for (name, value) in headers.iter().chain(default).filter(|(_, value)| !value.is_empty()) {
            head += &format!("{name}: {value}\r\n");
        }
        head += &format!("Content-Length: {}\r\n\r\n", body.len());
        stream.write_all(head.as_bytes()).unwrap();
        // A member that has refused the head may have closed already.
        let _ = stream.write_all(body);
        stream
    }

    /// Starts a stream of events.
    pub(crate) fn events(&self, path: &str, headers: &[(&str, &str)]) -> Events {
        let mut from = BufReader::new(self.send("GET", path, headers, b""));
        let (status, headers) = head(&mut from);
        assert_eq!(status, 200, "{path}");
        let kind = headers.iter().find(|(name, _)| name == "content-type").unwrap();
        assert_eq!(kind.1, "text/event-stream");
        Events { from, left: 0 }
    }

    /// Grants a lease of its own.
    pub(crate) fn lease(&self, ttl_ms: u64) -> String {
        let body = serde_json::json!({ "ttl_ms": ttl_ms, "client": self.name });
        self.post("/v1/leases", &body).ok()["lease"].as_str().unwrap().to_owned()
    }

    /// Acquires a lock; returns the token.
    pub(crate) fn lock(&self, lock: &str, lease: &str) -> String {
        let body = serde_json::json!({ "lease": lease });
        let held = self.post(&format!("/v1/locks/{lock}"), &body).ok();
        held["token"].as_str().unwrap_or_else(|| panic!("{held}")).to_owned()
    }
}

fn head(stream: &mut BufReader<TcpStream>) -> (u16, Vec<(String, String)>) {
    let mut line = String::new();
    stream.read_line(&mut line).unwrap();
    let status = line.split(' ').nth(1).unwrap_or_else(|| panic!("no status: {line:?}"));
    let status = status.parse().unwrap();
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).unwrap();
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        headers.push((name.to_lowercase(), value.to_owned()));
    }
    (status, headers)
}

impl Reply {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(it, _)| it == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn value(&self) -> Value {
        let text = String::from_utf8_lossy(&self.body);
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("{}: {text}", self.status))
    }

    /// The body of a successful response.
    pub(crate) fn ok(&self) -> Value {
        let value = self.value();
        assert_eq!(self.status, 200, "{value}");
        value
    }

    /// The error of a refusal that had no effect.
    pub(crate) fn refused(&self, status: u16, reason: &str) -> Value {
        let error = self.value()["error"].clone();
        assert_eq!((self.status, error["reason"].as_str()), (status, Some(reason)), "{error}");
        assert_eq!(error["effect"], "none", "{error}");
        assert!(!error["message"].as_str().unwrap_or_default().is_empty(), "{error}");
        error
    }
}

impl Events {
    /// The next event other than progress.
    pub(crate) fn next(&mut self) -> Sent {
        loop {
            let sent = self.any();
            if sent.event != "progress" {
                return sent;
            }
        }
    }

    /// The next event.
    pub(crate) fn any(&mut self) -> Sent {
        let mut sent = Sent { event: String::new(), id: String::new(), data: Value::Null };
        loop {
            let line = self.line();
            let Some((field, value)) = line.split_once(": ") else {
                assert_eq!(line, "");
                return sent;
            };
            match field {
                "event" => value.clone_into(&mut sent.event),
                "id" => value.clone_into(&mut sent.id),
                "data" => sent.data = serde_json::from_str(value).unwrap(),
                other => panic!("{other}"),
            }
        }
    }

    /// Reads a line of the chunked body.
    fn line(&mut self) -> String {
        let mut line = Vec::new();
        loop {
            if self.left == 0 {
                let mut size = String::new();
                self.from.read_line(&mut size).unwrap();
                self.left = usize::from_str_radix(size.trim_end(), 16)
                    .unwrap_or_else(|_| panic!("no chunk: {size:?}"));
                assert_ne!(self.left, 0, "the stream is over");
            }
            let mut byte = [0];
            self.from.read_exact(&mut byte).unwrap();
            self.left -= 1;
            if self.left == 0 {
                self.from.read_exact(&mut [0; 2]).unwrap();
            }
            if byte[0] == b'\n' {
                return String::from_utf8(line).unwrap();
            }
            line.push(byte[0]);
        }
    }
}
