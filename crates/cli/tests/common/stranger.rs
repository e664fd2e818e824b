//! Speaks the members' protocol as a program that is no member, and so can send anything.
//!
//! Control messages are written out as text, so that a message the server would never write can be sent too. Raft
//! messages are `tenure_raft::Message`.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use tenure_core::codec::encode_request;
use tenure_core::request::{Command, Expect, Put, Request, RequestId};
use tenure_raft::{Message, Step, StepKind};
use tenure_server::os;
use tenure_server::tls::{DialTrust, Dialled};

use crate::authority::CertificateFiles;

/// How long a read of a connection waits before it looks at its own deadline.
const PIECE: Duration = Duration::from_millis(100);
/// How long a member may take to accept a connection and to answer the first message.
const ANSWER: Duration = Duration::from_secs(10);
/// How long the sender of a forged message waits for a reaction to it.
const REACTION: Duration = Duration::from_millis(500);
/// The first bytes of frames that carry commands, their answers, and admin requests.
const COMMANDS: u8 = 0xc0;
const ANSWERS: u8 = 0xc1;
const ADMIN: u8 = 0xc2;

/// The cluster that a message claims to belong to.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    pub(crate) cluster: String,
    pub(crate) epoch: String,
    pub(crate) incarnation: String,
}

/// A program that reaches the members' ports, in plaintext or with a certificate.
pub(crate) struct Stranger {
    trust: Option<DialTrust>,
}

/// A connection that a member took for a link.
pub(crate) struct Link {
    wire: Wire,
    newest: u64,
}

/// Frames over one connection.
struct Wire {
    stream: Dialled,
    unread: Vec<u8>,
    /// What goes out with the next message, in one write.
    held_back: Vec<u8>,
}

impl Claim {
    /// The claim as lines of a control message.
    pub(crate) fn lines(&self) -> String {
        let Self { cluster, epoch, incarnation } = self;
        format!("cluster {cluster}\nepoch {epoch}\nincarnation {incarnation}")
    }
}

impl Stranger {
    pub(crate) fn plain() -> Self {
        Self { trust: None }
    }

    pub(crate) fn with(cert_files: &CertificateFiles) -> Self {
        let CertificateFiles { cert, key, ca } = cert_files;
        Self { trust: Some(DialTrust::load(ca, Some((cert, key))).unwrap()) }
    }

    /// Sends one control message and returns the answer; an error where the member gives none.
    pub(crate) fn ask(&self, port: u16, text: &str) -> io::Result<String> {
        let mut wire = self.dial(port)?;
        wire.write(text.as_bytes())?;
        wire.answer()
    }

    /// Asks for a link under a member id. An error says why there is none.
    pub(crate) fn hello(
        &self,
        port: u16,
        claim: &Claim,
        from: u64,
        to: u64,
    ) -> Result<Link, String> {
        let mut wire = self.dial(port).map_err(|error| error.to_string())?;
        let text = greeting(claim, from, to);
        let answer = wire.write(text.as_bytes()).and_then(|()| wire.answer());
        match answer {
            Ok(answer) if answer.starts_with("hello ") => Ok(Link { wire, newest: 0 }),
            Ok(answer) => Err(answer),
            Err(error) => Err(error.to_string()),
        }
    }

    /// A connection that goes on as if the member had given it a link: the first message leaves together with the
    /// request for one, before the member can refuse.
    pub(crate) fn unanswered(
        &self,
        port: u16,
        claim: &Claim,
        from: u64,
        to: u64,
    ) -> io::Result<Link> {
        let mut wire = self.dial(port)?;
        wire.held_back = framed(greeting(claim, from, to).as_bytes());
        Ok(Link { wire, newest: 0 })
    }

    /// Offers a snapshot that a step announces, and returns the answer.
    pub(crate) fn offer_snapshot(
        &self,
        port: u16,
        claim: &Claim,
        (from, to): (u64, u64),
        step: Step,
    ) -> io::Result<String> {
        let Some(head) = &step.snapshot else { return Err(ErrorKind::InvalidInput.into()) };
        let (claim, level, point) = (claim.lines(), tenure_core::LEVEL_MAX, head.point);
        let text = format!(
            "snapshot 1\n{claim}\nfrom {from:x}\nto {to:x}\nlevel {level}\nindex {}\nterm {}\nbytes 1000\n\
             checksum 1",
            point.index, point.term
        );
        let mut wire = self.dial(port)?;
        wire.write(text.as_bytes())?;
        // A member that refuses at once has closed the connection by now, and its answer is there to read.
        let _ = wire.write(&Message::Step(Box::new(step)).encode());
        wire.answer()
    }

    fn dial(&self, port: u16) -> io::Result<Wire> {
        let to = SocketAddr::from((Ipv4Addr::LOCALHOST, port)).to_string();
        let stream = Dialled::dial(&to, self.trust.as_ref(), PIECE)?;
        Ok(Wire { stream, unread: Vec::new(), held_back: Vec::new() })
    }
}

impl Link {
    /// Sends commands as a follower forwards them, and returns whether the member carried them out; an error if they
    /// could not be sent.
    pub(crate) fn command(&mut self, requests: &[Vec<u8>]) -> io::Result<bool> {
        self.newest += 1;
        let mut frame = vec![COMMANDS];
        frame.extend(self.newest.to_le_bytes());
        // Microseconds that the leader may wait for more commands.
        frame.extend(0_u64.to_le_bytes());
        frame.extend(u32::try_from(requests.len()).unwrap().to_le_bytes());
        for request in requests {
            frame.extend(u32::try_from(request.len()).unwrap().to_le_bytes());
            frame.extend(request);
        }
        // An answer of the kind "outcome" means that the command went through the log.
        let number = self.newest.to_le_bytes();
        let done =
            |frame: &Bytes| frame.first() == Some(&ANSWERS) && frame.get(1..9) == Some(&number);
        self.frame(&frame)?;
        let answer = self.wire.frame_where(REACTION, done);
        Ok(answer.is_ok_and(|answer| answer.get(13) == Some(&0)))
    }

    /// Asks to remove a member, as a follower forwards an operator's request; an error if that could not be sent.
    pub(crate) fn remove(&mut self, member: u64) -> io::Result<()> {
        self.newest += 1;
        let mut frame = vec![ADMIN];
        frame.extend(self.newest.to_le_bytes());
        frame.extend([1, 3]);
        frame.extend(member.to_le_bytes());
        self.frame(&frame)?;
        self.settle();
        Ok(())
    }

    /// Sends a Raft message, and waits a moment for a reaction; an error if it could not be sent.
    pub(crate) fn say(&mut self, message: &Message) -> io::Result<()> {
        self.send(message)?;
        self.settle();
        Ok(())
    }

    /// Sends a Raft message; an error if the member has closed the link.
    pub(crate) fn send(&mut self, message: &Message) -> io::Result<()> {
        self.frame(&message.encode())
    }

    /// Whether the member has closed the link within the time.
    pub(crate) fn is_closed_within(&mut self, time: Duration) -> bool {
        self.wire
            .frame_where(time, |_| false)
            .is_err_and(|error| error.kind() != ErrorKind::TimedOut)
    }

    /// Waits until the member has closed the link, or for as long as a reaction may take.
    fn settle(&mut self) {
        self.is_closed_within(REACTION);
    }

    fn frame(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.wire.write(bytes)
    }
}

impl Wire {
    fn write(&mut self, message: &[u8]) -> io::Result<()> {
        let mut bytes = std::mem::take(&mut self.held_back);
        bytes.extend(framed(message));
        let until_us = until_us(ANSWER);
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            // A handshake that takes longer than one read or write timeout goes on with the next try.
            match self.stream.write(rest) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => rest = &rest[written..],
                Err(error) if is_late(&error) && os::now_us() < until_us => {}
                Err(error) => return Err(error),
            }
        }
        self.stream.flush()
    }

    /// The answer to a control message.
    fn answer(&mut self) -> io::Result<String> {
        let frame = self.frame_where(ANSWER, |_| true)?;
        Ok(String::from_utf8_lossy(&frame).into_owned())
    }

    /// The next frame of a kind. `TimedOut` if there is none in time; another error if the connection is closed.
    fn frame_where(
        &mut self,
        time: Duration,
        wanted: impl Fn(&Bytes) -> bool,
    ) -> io::Result<Bytes> {
        let until_us = until_us(time);
        let mut piece = [0; 64 * 1024];
        loop {
            while let Some(frame) = self.take_frame() {
                if wanted(&frame) {
                    return Ok(frame);
                }
            }
            if os::now_us() >= until_us {
                return Err(ErrorKind::TimedOut.into());
            }
            match self.stream.read(&mut piece) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(read) => self.unread.extend(&piece[..read]),
                Err(error) if is_late(&error) => {}
                // The system reports a lost connection as `TimedOut`, which here means that the time is over: report
                // it as a reset.
                Err(error) if error.kind() == ErrorKind::TimedOut => {
                    return Err(ErrorKind::ConnectionReset.into());
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn take_frame(&mut self) -> Option<Bytes> {
        let length = u32::from_le_bytes(self.unread.get(..4)?.try_into().ok()?) as usize;
        let end = 4 + length;
        (self.unread.len() >= end).then(|| {
            let frame = Bytes::copy_from_slice(&self.unread[4..end]);
            self.unread.drain(..end);
            frame
        })
    }
}

/// The request for a link.
fn greeting(claim: &Claim, from: u64, to: u64) -> String {
    let level = tenure_core::LEVEL_MAX;
    format!("hello 1\n{}\nfrom {from:x}\nto {to:x}\nlevel {level}", claim.lines())
}

fn framed(message: &[u8]) -> Vec<u8> {
    let mut bytes = u32::try_from(message.len()).unwrap().to_le_bytes().to_vec();
    bytes.extend(message);
    bytes
}

fn until_us(time: Duration) -> u64 {
    os::now_us() + u64::try_from(time.as_micros()).unwrap()
}

fn is_late(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

/// The command that writes a key, encoded as in the log.
pub(crate) fn put(key: &str, value: &str) -> Vec<u8> {
    let value = value.as_bytes();
    let put = Put { key, value, lease: None, expect: Expect::Any, guard: None };
    let mut bytes = Vec::new();
    let command = Command::Put(put);
    encode_request(&Request { principal: "", id: RequestId::None, command }, &mut bytes);
    bytes
}

/// A step with every field zero but its kind and its term.
pub(crate) fn step(kind: StepKind, term: u64) -> Step {
    Step {
        kind,
        term,
        log_term: 0,
        index: 0,
        commit: 0,
        commit_term: 0,
        durable: tenure_store::LogId::default(),
        reject: false,
        reject_hint: 0,
        context: Bytes::new(),
        entries: Vec::new(),
        snapshot: None,
    }
}

/// A claim about what a member once had: entries of this term up to this index, committed.
pub(crate) fn remembered(term: u64, index: u64) -> tenure_raft::Observed {
    let entry = tenure_store::LogId { index, term };
    tenure_raft::Observed { term, vote: None, held_in: term, held: entry, committed: entry }
}
