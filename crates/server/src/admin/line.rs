//! What does a line ask for?

use tenure_core::request::Wait;
use tenure_raft::MemberId;
use tenure_types::{LeaseId, Token};

use crate::book;

/// What a line asks for, borrowed from it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Line<'a> {
    Lease {
        id: LeaseId,
        ttl_ms: u64,
        client: &'a str,
    },
    Renew(Vec<LeaseId>),
    Revoke(LeaseId),
    Lock {
        id: LeaseId,
        lock: &'a str,
        wait: Wait,
    },
    /// As an unlimited wait, but the answer tells the place and does not wait for the turn.
    Queue {
        id: LeaseId,
        lock: &'a str,
    },
    Unlock {
        id: LeaseId,
        lock: &'a str,
        token: Token,
    },
    Put {
        key: &'a str,
        value: &'a str,
    },
    Ask(Question, Freshness),
    Status,
    Members,
    Hash,
    Add {
        id: MemberId,
        address: &'a str,
    },
    Promote(MemberId),
    Remove(MemberId),
    Transfer(MemberId),
    Level {
        level: u16,
    },
    Help,
}

/// What can be asked without changing anything.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Question {
    Get { key: String },
    Locks { prefix: String },
    Explain { lock: String },
}

/// How old an answer may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Freshness {
    /// Not older than the question.
    Now,
    /// As this member knows it, with the revision of that.
    Stale,
}

pub(crate) const HELP: &str = "[once KEY] lease ID TTL_MS CLIENT | renew ID... | revoke ID | \
     lock ID LOCK [try | queue | wait MS] | unlock ID LOCK TOKEN | put KEY VALUE | \
     [stale] get KEY | [stale] locks [PREFIX] | [stale] explain LOCK | \
     status | members | hash | add ID ADDR | promote ID | remove ID | transfer ID | level N | backup";

const NONSENSE: &str = "cannot make sense of it; try help";

/// The key under which a line takes effect at most once, if it begins with one, and the line.
pub(crate) fn once(line: &str) -> (Option<&str>, &str) {
    let keyed = line.strip_prefix("once ").and_then(|rest| rest.split_once(' '));
    keyed.map_or((None, line), |(key, rest)| (Some(key), rest))
}

/// Reads a line; what is wrong with it otherwise.
pub(crate) fn parse(line: &str) -> Result<Line<'_>, String> {
    // A value is the rest of its line, spaces and all.
    if let Some(("put", rest)) = line.split_once(' ') {
        let (key, value) = rest.split_once(' ').ok_or("put needs a key and a value")?;
        return Ok(Line::Put { key, value });
    }
    let words: Vec<&str> = line.split_whitespace().collect();
    Ok(match words[..] {
        ["lease", id, ttl_ms, client] => {
            Line::Lease { id: lease(id)?, ttl_ms: number(ttl_ms)?, client }
        }
        ["renew", ref ids @ ..] if !ids.is_empty() => {
            Line::Renew(ids.iter().map(|id| lease(id)).collect::<Result<_, _>>()?)
        }
        ["revoke", id] => Line::Revoke(lease(id)?),
        ["lock", id, lock] => Line::Lock { id: lease(id)?, lock, wait: Wait::Unlimited },
        ["lock", id, lock, "try"] => Line::Lock { id: lease(id)?, lock, wait: Wait::No },
        ["lock", id, lock, "queue"] => Line::Queue { id: lease(id)?, lock },
        ["lock", id, lock, "wait", ms] => {
            Line::Lock { id: lease(id)?, lock, wait: Wait::Limit { ms: number(ms)? } }
        }
        ["unlock", id, lock, token] => {
            let token = Token::from_u64(number(token)?).ok_or("a token is above 0")?;
            Line::Unlock { id: lease(id)?, lock, token }
        }
        ["stale", ref asked @ ..] => Line::Ask(question(asked)?, Freshness::Stale),
        ["get" | "locks" | "explain", ..] => Line::Ask(question(&words)?, Freshness::Now),
        ["status"] => Line::Status,
        ["members"] => Line::Members,
        ["hash"] => Line::Hash,
        ["add", id, address] => Line::Add { id: member(id)?, address },
        ["promote", id] => Line::Promote(member(id)?),
        ["remove", id] => Line::Remove(member(id)?),
        ["transfer", id] => Line::Transfer(member(id)?),
        ["level", level] => {
            let level = number(level)?;
            Line::Level { level: u16::try_from(level).map_err(|_| "no such level")? }
        }
        ["help"] => Line::Help,
        _ => return Err(NONSENSE.into()),
    })
}

fn question(words: &[&str]) -> Result<Question, String> {
    Ok(match *words {
        ["get", key] => Question::Get { key: key.to_owned() },
        ["locks"] => Question::Locks { prefix: String::new() },
        ["locks", prefix] => Question::Locks { prefix: prefix.to_owned() },
        ["explain", lock] => Question::Explain { lock: lock.to_owned() },
        _ => return Err(NONSENSE.into()),
    })
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("`{text}` is no number"))
}

fn lease(text: &str) -> Result<LeaseId, String> {
    LeaseId::new(number(text)?).ok_or_else(|| format!("`{text}` is no lease id"))
}

fn member(text: &str) -> Result<MemberId, String> {
    book::parse_id(text).ok_or_else(|| format!("`{text}` is no member id"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_and_nonsense_is_not() {
        let id = LeaseId::new(7).unwrap();
        let wait = Wait::Limit { ms: 50 };
        assert_eq!(parse("lock 7 deploy wait 50"), Ok(Line::Lock { id, lock: "deploy", wait }));
        assert_eq!(parse("put k a  b "), Ok(Line::Put { key: "k", value: "a  b " }));
        assert_eq!(once("once k put a b"), (Some("k"), "put a b"));
        assert_eq!(once("put once b"), (None, "put once b"));
        assert_eq!(parse("renew 7 7"), Ok(Line::Renew(vec![id, id])));
        let question = Question::Explain { lock: "deploy".into() };
        let stale = Line::Ask(question.clone(), Freshness::Stale);
        assert_eq!(parse("stale explain deploy"), Ok(stale));
        assert_eq!(parse("explain deploy"), Ok(Line::Ask(question, Freshness::Now)));
        for bad in ["stale", "stale put k v", "stale status", "get", "explain a b"] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
        for bad in ["", "renew", "lock 0 a", "lock 7", "unlock 7 a 0", "put k", "promote xyz"] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
    }
}
