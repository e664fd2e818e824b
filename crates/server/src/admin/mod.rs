//! How can somebody propose, read and administer with nothing but a line of text?
//!
//! One line in, one line out, over TCP; under TLS where the member has certificates. An answer begins with
//! `ok`, `refused REASON` (a rule said no) or `error EFFECT` (something went wrong; `none` or `unknown` says
//! whether it may have happened). `backup` alone is answered with more: after the line come the bytes of the
//! file, and the end.

mod answer;
mod dial;
pub(crate) mod line;
mod show;

use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::backup;
use crate::edge::Edge;
use crate::member::Member;
use crate::pen::spawn;
use crate::tls::Trust;

pub use dial::Dialled;

/// The longest line.
const LINE_BYTES_MAX: u64 = 64 * 1024;
/// Connections at once; each has a thread.
const CONNECTIONS_MAX: usize = 1_024;
/// How long a quorum may take to confirm that a backup is of the newest state.
const CONFIRM: Duration = Duration::from_secs(10);
/// How long whoever asks for one waits for each part of it: a pass over the whole state comes before the
/// first.
const ANSWER: Duration = Duration::from_secs(60);

/// Those who speak in lines.
pub(crate) struct Lines {
    edge: Edge,
    connections: AtomicUsize,
}

impl Lines {
    pub(crate) fn new(edge: Edge) -> Arc<Self> {
        Arc::new(Self { edge, connections: AtomicUsize::new(0) })
    }

    /// Serves a connection on a thread of its own.
    pub(crate) fn serve(self: &Arc<Self>, mut stream: impl Read + Write + Send + 'static) {
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

    fn converse(&self, stream: impl Read + Write) -> io::Result<()> {
        let mut from = BufReader::new(stream);
        let mut bytes = Vec::new();
        loop {
            bytes.clear();
            from.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut bytes)?;
            if bytes.is_empty() {
                return Ok(());
            }
            if bytes.last() != Some(&b'\n') {
                return from.get_mut().write_all(b"error none line-too-long\n");
            }
            if bytes.trim_ascii() == b"backup" {
                return send_backup(self.edge.member(), from.get_mut());
            }
            let answer = match str::from_utf8(&bytes) {
                Ok(text) => answer::answer(&self.edge, text.trim_end_matches(['\r', '\n'])),
                Err(_) => "error none not-utf-8".to_owned(),
            };
            from.get_mut().write_all(format!("{answer}\n").as_bytes())?;
        }
    }
}

/// The whole state, after a line that says so. A backup that ends early reads as damaged.
fn send_backup(member: &Member, stream: &mut impl Write) -> io::Result<()> {
    match backup::take(member, CONFIRM) {
        Ok(backup) => {
            stream.write_all(format!("ok bytes={}\n", backup.bytes()).as_bytes())?;
            backup.write(&mut BufWriter::with_capacity(256 * 1024, stream))
        }
        Err(error) => stream.write_all(format!("error none no-backup {error}\n").as_bytes()),
    }
}

/// Asks a member for a backup: a stream of its bytes, or why there is none. The other half of
/// [`send_backup`].
pub fn request_backup(address: &str, trust: Option<&Trust>) -> io::Result<impl Read + use<>> {
    let mut to = Dialled::dial(address, trust, ANSWER)?;
    to.write_all(b"backup\n")?;
    let mut from = BufReader::with_capacity(256 * 1024, to);
    let mut line = String::new();
    from.by_ref().take(LINE_BYTES_MAX).read_line(&mut line)?;
    match line.trim_end() {
        said if said.starts_with("ok ") => Ok(from),
        "" => Err(io::ErrorKind::UnexpectedEof.into()),
        said => Err(io::Error::other(said.trim_start_matches("error none no-backup ").to_owned())),
    }
}
