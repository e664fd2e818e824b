//! How does a test talk to whichever member answers?
//!
//! The only place that knows how commands and answers look on the wire: whoever gives the members
//! another door changes this file.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// What a command was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    /// It was done.
    Ok(String),
    /// A rule said no.
    Refused(String),
    /// It had no effect; somebody else may lead.
    NotDone(String),
    /// It may have happened.
    Unknown,
}

/// Somebody with one connection, to one member at a time.
pub(crate) struct Client {
    members: Vec<SocketAddr>,
    at: usize,
    patience: Duration,
    connection: Option<BufReader<TcpStream>>,
}

/// The value of `name=value` in an answer.
pub(crate) fn field(answer: &str, name: &str) -> Option<String> {
    let start = format!("{name}=");
    answer.split(' ').find_map(|word| word.strip_prefix(&start)).map(str::to_owned)
}

/// The same, as a number that must be there.
pub(crate) fn number(answer: &str, name: &str) -> u64 {
    field(answer, name).and_then(|value| value.parse().ok()).unwrap_or_else(|| {
        panic!("`{answer}` has no number `{name}`");
    })
}

impl Client {
    /// A client of these members, who gives an answer so long.
    pub(crate) fn new(members: Vec<SocketAddr>, patience: Duration) -> Self {
        Self { members, at: 0, patience, connection: None }
    }

    /// Begins with this member, and with the next if it fails.
    pub(crate) fn prefer(mut self, at: usize) -> Self {
        self.at = at % self.members.len();
        self
    }

    /// Sends a command once and takes the answer.
    pub(crate) fn say(&mut self, line: &str) -> Said {
        let Some(answer) = self.exchange(line) else {
            let sent = self.connection.is_some();
            self.turn_away();
            let not_done = || Said::NotDone("nobody answers".to_owned());
            return if sent { Said::Unknown } else { not_done() };
        };
        let (word, rest) = answer.split_once(' ').unwrap_or((&answer, ""));
        match word {
            "ok" => Said::Ok(rest.to_owned()),
            "refused" => Said::Refused(rest.to_owned()),
            _ if rest.starts_with("none ") => {
                self.follow(rest);
                Said::NotDone(rest.to_owned())
            }
            _ => Said::Unknown,
        }
    }

    /// Sends a command until somebody decides, or `stop` says that it is enough.
    ///
    /// Only for commands that are harmless to repeat, by their nature or by a key. Tells also how
    /// often it was sent.
    pub(crate) fn insist(
        &mut self,
        line: &str,
        mut stop: impl FnMut() -> bool,
    ) -> (Option<Result<String, String>>, u32) {
        let mut tries = 0;
        loop {
            tries += 1;
            match self.say(line) {
                Said::Ok(answer) => return (Some(Ok(answer)), tries),
                Said::Refused(why) => return (Some(Err(why)), tries),
                Said::NotDone(_) | Said::Unknown if stop() => return (None, tries),
                Said::NotDone(_) | Said::Unknown => std::thread::sleep(Duration::from_millis(10)),
            }
        }
    }

    /// One line there, one line back; the connection is kept if both went well.
    fn exchange(&mut self, line: &str) -> Option<String> {
        if self.connection.is_none() {
            let to = self.members[self.at];
            let stream = TcpStream::connect_timeout(&to, self.patience).ok()?;
            stream.set_nodelay(true).ok()?;
            stream.set_read_timeout(Some(self.patience)).ok()?;
            stream.set_write_timeout(Some(self.patience)).ok()?;
            self.connection = Some(BufReader::new(stream));
        }
        let connection = self.connection.as_mut()?;
        connection.get_mut().write_all(format!("{line}\n").as_bytes()).ok()?;
        let mut answer = String::new();
        connection.read_line(&mut answer).ok()?;
        answer.ends_with('\n').then(|| answer.trim_end().to_owned())
    }

    /// Goes where the answer says that the leader is, or else to the next.
    fn follow(&mut self, answer: &str) {
        let named = field(answer, "leader").and_then(|leader| leader.parse().ok());
        let at = named.and_then(|leader| self.members.iter().position(|member| *member == leader));
        match at {
            Some(at) if at != self.at => {
                self.at = at;
                self.connection = None;
            }
            _ => self.turn_away(),
        }
    }

    fn turn_away(&mut self) {
        self.connection = None;
        self.at = (self.at + 1) % self.members.len();
    }
}
