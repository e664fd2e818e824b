//! Parses a line typed into `tenure demo --by-hand`.

use tenure_core::request::{AskWait, Urgency};
use tenure_types::Mode;

/// The meaning of a typed line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Typed {
    Nothing,
    Help,
    Quit,
    Line(DemoLine),
}

/// A line that the state machine answers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum DemoLine {
    Lock { client: String, lock: String, mode: Mode, wait: AskWait },
    Unlock { client: String, lock: String },
    Leave { client: String, lock: String },
    Renew { client: String },
    Stopped { client: String, lock: String },
    Force { lock: String, urgency: Urgency },
    Wait { ms: u64 },
    Locks,
    Explain { lock: String },
    History,
}

/// Parses a line, or explains why it has no meaning.
pub(crate) fn parse(line: &str) -> Result<Typed, String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let own = |text: &&str| (*text).to_owned();
    Ok(Typed::Line(match words.as_slice() {
        [] => return Ok(Typed::Nothing),
        ["help" | "?"] => return Ok(Typed::Help),
        ["quit" | "exit"] => return Ok(Typed::Quit),
        ["locks"] => DemoLine::Locks,
        ["history"] => DemoLine::History,
        ["explain", lock] => DemoLine::Explain { lock: own(lock) },
        ["wait", time] => DemoLine::Wait { ms: milliseconds(time)? },
        ["force", lock] => DemoLine::Force { lock: own(lock), urgency: Urgency::Cooling },
        ["force", lock, "now"] => DemoLine::Force { lock: own(lock), urgency: Urgency::Now },
        [client, "lock", lock, rest @ ..] => {
            let (mode, wait) = options(rest)?;
            DemoLine::Lock { client: own(client), lock: own(lock), mode, wait }
        }
        [client, "unlock", lock] => DemoLine::Unlock { client: own(client), lock: own(lock) },
        [client, "leave", lock] => DemoLine::Leave { client: own(client), lock: own(lock) },
        [client, "stopped", lock] => DemoLine::Stopped { client: own(client), lock: own(lock) },
        [client, "renew"] => DemoLine::Renew { client: own(client) },
        _ => return Err(format!("cannot make sense of `{}`", line.trim())),
    }))
}

fn options(mut words: &[&str]) -> Result<(Mode, AskWait), String> {
    let (mut mode, mut wait) = (Mode::Exclusive, AskWait::Unlimited);
    while !words.is_empty() {
        words = match words {
            ["shared", rest @ ..] => {
                mode = Mode::Shared;
                rest
            }
            ["slots", of, rest @ ..] => {
                let of = of.parse().map_err(|_| format!("`{of}` is no number of slots"))?;
                mode = Mode::slot(of);
                rest
            }
            ["try", rest @ ..] => {
                wait = AskWait::No;
                rest
            }
            ["limit", time, rest @ ..] => {
                wait = AskWait::Limit { ms: milliseconds(time)? };
                rest
            }
            [other, ..] => return Err(format!("`{other}` is no option of lock")),
            [] => break,
        };
    }
    Ok((mode, wait))
}

/// A time like `20s`, `500ms` or `2m`.
fn milliseconds(text: &str) -> Result<u64, String> {
    let time = crate::duration::parse(text)?;
    u64::try_from(time.as_millis()).map_err(|_| format!("`{text}` is too long"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_in_flags() {
        assert_eq!(milliseconds("20s"), Ok(20_000));
        assert_eq!(milliseconds("500ms"), Ok(500));
        assert_eq!(milliseconds("20"), Ok(20_000), "a number alone is seconds");
        assert!(milliseconds("s").is_err());
        assert!(milliseconds("99999999999999999999h").is_err());
        assert!(milliseconds("9999999999999999999h").is_err());
    }

    #[test]
    fn lines_that_make_no_sense_are_said_to() {
        assert_eq!(parse("  "), Ok(Typed::Nothing));
        assert!(parse("ana hold deploy").is_err());
        assert!(parse("ana lock deploy slots many").is_err());
    }
}
