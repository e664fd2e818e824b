//! Sends test commands to whichever member answers.
//!
//! Tests speak in lines. `words.rs` translates them to the wire and `http.rs` sends them: a test of another API
//! replaces those two.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use super::http::Connection;
use super::words;

/// The answer to a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ClientReply {
    /// The command was done.
    Ok(String),
    /// A rule refused the command.
    Refused(String),
    /// The command had no effect; another member may lead.
    NotDone(String),
    /// The command may have taken effect.
    Unknown,
}

/// A client with one connection, to one member at a time.
pub(crate) struct Client {
    members: Vec<SocketAddr>,
    at: usize,
    answer_timeout: Duration,
    /// The address of the loopback network to connect from, if the system is not to choose.
    from: Option<Ipv4Addr>,
    connection: Option<Connection>,
    bearer: Option<String>,
}

/// The value of `name=value` in an answer.
pub(crate) fn field(answer: &str, name: &str) -> Option<String> {
    let start = format!("{name}=");
    answer.split(' ').find_map(|word| word.strip_prefix(&start)).map(str::to_owned)
}

/// The value as a number, which must be present.
pub(crate) fn number(answer: &str, name: &str) -> u64 {
    field(answer, name).and_then(|value| value.parse().ok()).unwrap_or_else(|| {
        panic!("`{answer}` has no number `{name}`");
    })
}

impl Client {
    /// A client of these members that waits this long for an answer.
    pub(crate) fn new(members: Vec<SocketAddr>, answer_timeout: Duration) -> Self {
        Self { members, at: 0, answer_timeout, from: None, connection: None, bearer: None }
    }

    /// Sends these credentials with every command.
    pub(crate) fn with_bearer(self, bearer: Option<String>) -> Self {
        Self { bearer, ..self }
    }

    /// Begins with this member, and with the next if it fails.
    pub(crate) fn prefer(mut self, at: usize) -> Self {
        self.at = at % self.members.len();
        self
    }

    /// Connects from this address of the loopback network.
    pub(crate) fn from(mut self, from: Ipv4Addr) -> Self {
        self.from = Some(from);
        self
    }

    /// Sends a command once and takes the answer.
    pub(crate) fn say(&mut self, line: &str) -> ClientReply {
        let Some(answer) = self.exchange(line) else {
            let sent = self.connection.is_some();
            self.turn_away();
            let not_done = || ClientReply::NotDone("no member answers".to_owned());
            return if sent { ClientReply::Unknown } else { not_done() };
        };
        let (word, rest) = answer.split_once(' ').unwrap_or((&answer, ""));
        match word {
            "ok" => ClientReply::Ok(rest.to_owned()),
            "refused" => ClientReply::Refused(rest.to_owned()),
            // Any member forwards commands to the leader, unless it knows none or cannot reach it: another member may.
            _ => {
                self.turn_away();
                let not_done =
                    rest.starts_with("none ").then(|| ClientReply::NotDone(rest.to_owned()));
                not_done.unwrap_or(ClientReply::Unknown)
            }
        }
    }

    /// Sends a command until a member decides, or until `stop` returns true.
    ///
    /// Only for commands that are harmless to repeat, by their nature or by a key.
    pub(crate) fn insist(
        &mut self,
        line: &str,
        mut stop: impl FnMut() -> bool,
    ) -> Option<Result<String, String>> {
        loop {
            match self.say(line) {
                ClientReply::Ok(answer) => return Some(Ok(answer)),
                ClientReply::Refused(why) => return Some(Err(why)),
                ClientReply::NotDone(_) | ClientReply::Unknown if stop() => return None,
                ClientReply::NotDone(_) | ClientReply::Unknown => {
                    std::thread::sleep(Duration::from_millis(10));
                }
            }
        }
    }

    /// Sends one line and receives one; keeps the connection if both succeeded.
    fn exchange(&mut self, line: &str) -> Option<String> {
        if self.connection.is_none() {
            let to = self.members[self.at];
            let opened = match self.from {
                Some(from) => Connection::open_from(from, to, self.answer_timeout),
                None => Connection::open(to, None, self.answer_timeout),
            };
            self.connection = Some(opened.ok()?.with_bearer(self.bearer.clone()));
        }
        let connection = self.connection.as_mut()?;
        let answer = connection.call(&words::call(line, self.answer_timeout)).ok()?;
        Some(words::told(line, &answer))
    }

    fn turn_away(&mut self) {
        self.connection = None;
        self.at = (self.at + 1) % self.members.len();
    }
}
