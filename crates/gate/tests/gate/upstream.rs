//! Provides a service that ignores tokens, for the tests of the proxy.
//!
//! It keeps one text. It notices when a connection was closed before it began to work on the request that came through
//! it.
#![allow(dead_code, reason = "two test binaries use parts of this")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};

/// The service, on a port of its own. Its threads end with the process.
#[derive(Clone)]
pub(crate) struct Upstream {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    text: String,
    /// Which requests began and ended, in order, under the content of the token header, which the service ignores.
    log: Vec<String>,
    /// The number of requests to `/slow` that may end.
    may_end: usize,
    heads: Vec<String>,
}

impl Upstream {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let upstream = Self { address: listener.local_addr().unwrap(), shared: Arc::default() };
        let shared = upstream.shared.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = shared.clone();
                std::thread::spawn(move || while serve(&shared, &stream).is_some() {});
            }
        });
        upstream
    }

    pub(crate) fn text(&self) -> String {
        self.shared.state.lock().unwrap().text.clone()
    }

    pub(crate) fn log(&self) -> Vec<String> {
        self.shared.state.lock().unwrap().log.clone()
    }

    /// Returns the heads of all requests.
    pub(crate) fn heads(&self) -> Vec<String> {
        self.shared.state.lock().unwrap().heads.clone()
    }

    /// Waits until the log has this line.
    pub(crate) fn wait_for(&self, line: &str) {
        let mut state = self.shared.state.lock().unwrap();
        while !state.log.iter().any(|each| each == line) {
            state = self.shared.changed.wait(state).unwrap();
        }
    }

    /// Lets one more request to `/slow` end.
    pub(crate) fn let_one_end(&self) {
        self.shared.state.lock().unwrap().may_end += 1;
        self.shared.changed.notify_all();
    }
}

/// Serves one request on a connection. Returns `None` when the connection is over.
fn serve(shared: &Shared, stream: &TcpStream) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let header = |name: &str| {
        let mut lines = head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(each, _)| each.eq_ignore_ascii_case(name)).map(|(_, value)| value.to_owned())
    };
    let length = header("content-length").map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let body = String::from_utf8(body).unwrap();
    let mut words = head.split(' ');
    let (verb, path) = (words.next()?.to_owned(), words.next()?.to_owned());
    let token = header("fencing-token").unwrap_or("-".to_owned());
    let mut state = shared.state.lock().unwrap();
    if is_cut(stream) {
        return None;
    }
    state.heads.push(head.clone());
    let answer = match (verb.as_str(), path.as_str()) {
        ("PUT", "/text") => {
            state.text = body;
            state.log.push(token);
            "done".to_owned()
        }
        ("POST", "/text") => {
            state.text.push_str(&body);
            state.log.push(token);
            "done".to_owned()
        }
        ("POST", "/slow") => {
            state.log.push(format!("begin {token}"));
            shared.changed.notify_all();
            while state.may_end == 0 {
                state = shared.changed.wait(state).unwrap();
            }
            state.may_end -= 1;
            state.log.push(format!("end {token}"));
            "slow".to_owned()
        }
        ("POST", "/cut") => return None,
        _ => state.text.clone(),
    };
    drop(state);
    shared.changed.notify_all();
    let answer = format!(
        "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nkeep-alive: timeout=5\r\n\r\n{answer}",
        answer.len()
    );
    let mut to: &TcpStream = stream;
    to.write_all(answer.as_bytes()).ok()
}

/// Whether the peer has closed the connection.
fn is_cut(stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    let peeked = stream.peek(&mut [0]);
    stream.set_nonblocking(false).unwrap();
    match peeked {
        Ok(read) => read == 0,
        Err(error) => error.kind() != std::io::ErrorKind::WouldBlock,
    }
}
