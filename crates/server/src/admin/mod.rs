//! How can somebody propose, read and administer with nothing but a line of text?
//!
//! One line in, one line out, over TCP. An answer begins with `ok`, `refused REASON` (a rule said no)
//! or `error EFFECT` (something went wrong; `none` or `unknown` says whether it may have happened).

mod answer;
mod line;
mod show;

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::member::Member;
use crate::pen::spawn;

/// The longest line.
const LINE_BYTES_MAX: u64 = 64 * 1024;
/// Connections at once; each has a thread.
const CONNECTIONS_MAX: usize = 1_024;
/// How long an answer may take to be taken.
const WRITE: Duration = Duration::from_secs(10);

/// Those who speak in lines.
pub(crate) struct Lines {
    member: Member,
    connections: AtomicUsize,
}

impl Lines {
    pub(crate) fn new(member: Member) -> Arc<Self> {
        Arc::new(Self { member, connections: AtomicUsize::new(0) })
    }

    /// Serves a connection on a thread of its own.
    pub(crate) fn serve(self: &Arc<Self>, mut stream: TcpStream) {
        if self.connections.fetch_add(1, Ordering::AcqRel) >= CONNECTIONS_MAX {
            self.connections.fetch_sub(1, Ordering::AcqRel);
            let _ = stream.write_all(b"error none too-many-connections\n");
            return;
        }
        let lines = self.clone();
        let answers = spawn("tenure-line", move || {
            // A client that goes away is no event.
            let _ = lines.converse(stream);
            lines.connections.fetch_sub(1, Ordering::AcqRel);
        });
        if !answers {
            self.connections.fetch_sub(1, Ordering::AcqRel);
        }
    }

    fn converse(&self, mut stream: TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(WRITE))?;
        let mut from = BufReader::new(stream.try_clone()?);
        let mut bytes = Vec::new();
        loop {
            bytes.clear();
            from.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut bytes)?;
            if bytes.is_empty() {
                return Ok(());
            }
            if bytes.last() != Some(&b'\n') {
                return stream.write_all(b"error none line-too-long\n");
            }
            let answer = match str::from_utf8(&bytes) {
                Ok(text) => answer::answer(&self.member, text.trim_end_matches(['\r', '\n'])),
                Err(_) => "error none not-utf-8".to_owned(),
            };
            stream.write_all(format!("{answer}\n").as_bytes())?;
        }
    }
}
