//! How does a test talk to whichever member answers?
//!
//! It speaks in lines. `words.rs` knows what they are on the wire, `http.rs` how that is sent: whoever wants to
//! test another door changes those.

use std::net::SocketAddr;
use std::time::Duration;

use super::http::Connection;
use super::words;

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
    connection: Option<Connection>,
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
            // Any member passes commands on to the leader, unless it knows none or does not reach it: another one may.
            _ => {
                self.turn_away();
                let not_done = rest.starts_with("none ").then(|| Said::NotDone(rest.to_owned()));
                not_done.unwrap_or(Said::Unknown)
            }
        }
    }

    /// Sends a command until somebody decides, or `stop` says that it is enough.
    ///
    /// Only for commands that are harmless to repeat, by their nature or by a key.
    pub(crate) fn insist(
        &mut self,
        line: &str,
        mut stop: impl FnMut() -> bool,
    ) -> Option<Result<String, String>> {
        loop {
            match self.say(line) {
                Said::Ok(answer) => return Some(Ok(answer)),
                Said::Refused(why) => return Some(Err(why)),
                Said::NotDone(_) | Said::Unknown if stop() => return None,
                Said::NotDone(_) | Said::Unknown => std::thread::sleep(Duration::from_millis(10)),
            }
        }
    }

    /// One line there, one line back; the connection is kept if both went well.
    fn exchange(&mut self, line: &str) -> Option<String> {
        if self.connection.is_none() {
            let to = self.members[self.at];
            self.connection = Some(Connection::open(to, None, self.patience).ok()?);
        }
        let connection = self.connection.as_mut()?;
        let answer = connection.call(&words::call(line, self.patience)).ok()?;
        Some(words::told(line, &answer))
    }

    fn turn_away(&mut self) {
        self.connection = None;
        self.at = (self.at + 1) % self.members.len();
    }
}
