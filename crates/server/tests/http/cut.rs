//! Forwards HTTP/1.1 to a member and ends responses that are endless streams after their first event, so that a program
//! which reads whole responses can check streams too.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// A proxy that runs until the test ends.
pub(crate) struct StreamCutter {
    pub(crate) at: SocketAddr,
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Counts {
    /// Streams that were ended.
    cut: AtomicUsize,
    /// Responses with status 200.
    done: AtomicUsize,
}

impl StreamCutter {
    pub(crate) fn start(to: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (at, counts) = (listener.local_addr().unwrap(), Arc::<Counts>::default());
        let counted = counts.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let counts = counted.clone();
                std::thread::spawn(move || {
                    forward(&client, to, &counts);
                    // The thread that reads requests has a copy of the connection.
                    let _ = client.shutdown(std::net::Shutdown::Both);
                });
            }
        });
        Self { at, counts }
    }

    /// The number of streams that were ended.
    pub(crate) fn cut(&self) -> usize {
        self.counts.cut.load(Ordering::Relaxed)
    }

    /// The number of responses with status 200.
    pub(crate) fn done(&self) -> usize {
        self.counts.done.load(Ordering::Relaxed)
    }
}

/// Forwards a connection. Requests are passed on as they are; responses are parsed.
fn forward(mut client: &TcpStream, to: SocketAddr, counts: &Counts) -> Option<()> {
    let server = TcpStream::connect(to).ok()?;
    // A head and its body are written apart: otherwise every response would wait for a delayed acknowledgement.
    client.set_nodelay(true).ok()?;
    server.set_nodelay(true).ok()?;
    let (mut from_client, mut to_server) = (client.try_clone().ok()?, server.try_clone().ok()?);
    // The response to a HEAD request names the length of a body that does not follow.
    let is_head = Arc::<AtomicBool>::default();
    let asks_head = is_head.clone();
    std::thread::spawn(move || {
        let mut bytes = [0; 64 * 1024];
        // A client that waits for each response begins each request with a read of its own.
        while let Ok(read @ 1..) = from_client.read(&mut bytes) {
            if bytes[..read].windows(9).any(|it| it == b" HTTP/1.1") {
                asks_head.store(bytes.starts_with(b"HEAD "), Ordering::Relaxed);
            }
            if to_server.write_all(&bytes[..read]).is_err() {
                break;
            }
        }
        let _ = to_server.shutdown(std::net::Shutdown::Write);
    });
    let mut server = BufReader::new(server);
    loop {
        let head = head(&mut server)?;
        client.write_all(head.as_bytes()).ok()?;
        if is_head.load(Ordering::Relaxed) {
            continue;
        }
        let head = head.to_ascii_lowercase();
        counts.done.fetch_add(usize::from(head.starts_with("http/1.1 200")), Ordering::Relaxed);
        let is_stream = head.contains("content-type: text/event-stream");
        if head.contains("transfer-encoding: chunked") {
            while let Some(chunk) = chunk(&mut server) {
                client.write_all(&chunk).ok()?;
                let is_last = chunk.starts_with(b"0\r\n");
                if is_stream && !is_last {
                    counts.cut.fetch_add(1, Ordering::Relaxed);
                    return client.write_all(b"0\r\n\r\n").ok();
                }
                if is_last {
                    break;
                }
            }
            continue;
        }
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let length = length.map_or(0, |it| it.trim().parse().unwrap());
        std::io::copy(&mut server.by_ref().take(length), &mut client).ok()?;
    }
}

/// The status line and the headers of a response.
fn head(server: &mut impl BufRead) -> Option<String> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if server.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    Some(head)
}

/// A chunk with its length.
fn chunk(server: &mut impl BufRead) -> Option<Vec<u8>> {
    let mut line = String::new();
    server.read_line(&mut line).ok()?;
    let length = usize::from_str_radix(line.trim().split(';').next()?, 16).ok()?;
    let mut chunk = line.into_bytes();
    let begin = chunk.len();
    chunk.resize(begin + length + 2, 0);
    server.read_exact(&mut chunk[begin..]).ok()?;
    Some(chunk)
}
