//! Fences data in Redis: refuses writes with stale tokens, within the limits of Redis' durability.
//!
//! A script compares the token with the floor, raises it and runs commands, as one step:
//!
//! ```no_run
//! # fn example(token: tenure_fence::Token) -> Result<(), Box<dyn std::error::Error>> {
//! let mut db = redis::Client::open("redis://127.0.0.1/")?.get_connection()?;
//! let set = redis::cmd("SET").arg("{ledger}:7").arg("paid").to_owned();
//! tenure_fence::redis::write(&mut db, "ledger", token, &["{ledger}:7"], &[set])?;  // refused if stale
//! # Ok(())
//! # }
//! ```
//!
//! **Failover.** Redis answers before its replicas have the write. A replica that takes over, or a server that restarts
//! from an older file, may have a lower floor, and then accepts a token that was refused before. Floor and data fall
//! back together, so they still belong to each other, but an acknowledged write is lost and a stale writer may succeed.
//! `WAIT` makes that rarer and does not rule it out. The guarantee holds on one server with `appendonly yes` and
//! `appendfsync always`, without failover, and with `maxmemory-policy noeviction`: an evicted floor is no floor. Where
//! that is not enough, keep the data elsewhere.
//!
//! In Redis Cluster the floor of lock `ledger` is in the hash slot of the keys that begin with `{ledger}`.

use ::redis::{Arg, Cmd, ConnectionLike, ErrorKind, RedisError, Value};

use crate::claim::{Claim, Incarnation, LockSlot, Mode, Times};
use crate::rule::{Floor, Touch};
use crate::text::padded;

/// Why the fence did not write.
///
/// If one of several commands failed, those before it took effect and the floor has risen: Redis has no rollback.
pub type Error = crate::Error<RedisError>;

/// The script, for clients in any language. Its first lines document its arguments and its answer.
pub const SCRIPT: &str = include_str!("redis.lua");

/// Returns the key of a floor.
pub fn floor_key<'a>(at: impl Into<LockSlot<'a>>) -> String {
    let at = at.into();
    format!("{{{}}}:{}:tenure-fence", at.lock, at.number())
}

/// Runs commands under a token, or returns why not. `keys` are those that the commands touch.
pub fn write<'a>(
    db: &mut impl ConnectionLike,
    at: impl Into<LockSlot<'a>>,
    claim: impl Into<Claim>,
    keys: &[&str],
    commands: &[Cmd],
) -> Result<Vec<Value>, Error> {
    let (at, claim) = (at.into(), claim.into());
    let command = command(at, (claim, Touch::Write), keys, commands)?;
    answer(command.query(db).map_err(Error::Store)?, (claim, Touch::Write))
}

/// Raises the floor without writing. Call it right after the lock was acquired: from then on nothing older is accepted.
///
/// ```no_run
/// # fn example(db: &mut redis::Connection, token: tenure_fence::Token) -> Result<(), tenure_fence::redis::Error> {
/// tenure_fence::redis::raise(db, "ledger", token)
/// # }
/// ```
pub fn raise<'a>(
    db: &mut impl ConnectionLike,
    at: impl Into<LockSlot<'a>>,
    claim: impl Into<Claim>,
) -> Result<(), Error> {
    let (at, claim) = (at.into(), claim.into());
    let command = command(at, (claim, Touch::Raise), &[], &[])?;
    answer(command.query(db).map_err(Error::Store)?, (claim, Touch::Raise)).map(drop)
}

/// Returns the current floor.
pub fn floor<'a>(
    db: &mut impl ConnectionLike,
    at: impl Into<LockSlot<'a>>,
) -> Result<Floor, Error> {
    let mut ask = ::redis::cmd("HMGET");
    ask.arg(floor_key(at)).arg(&["exclusive", "shared", "used", "incarnation"]);
    let kept: [Option<String>; 4] = ask.query(db).map_err(Error::Store)?;
    read(kept.map(Option::unwrap_or_default))
}

/// Builds the single command that does all of it, for connections that this module does not support; see [`answer`].
pub fn command(
    at: LockSlot<'_>,
    (claim, touch): (Claim, Touch),
    keys: &[&str],
    commands: &[Cmd],
) -> Result<Cmd, Error> {
    at.check()?;
    // Checks that the number can be a token at all, and so has 19 digits.
    Floor::default().admit(claim, Touch::Raise)?;
    let mut eval = ::redis::cmd("EVAL");
    eval.arg(SCRIPT).arg(keys.len() + 1).arg(floor_key(at)).arg(keys).arg(padded(claim.token));
    eval.arg(match claim.mode {
        Mode::Exclusive => "exclusive",
        Mode::Shared => "shared",
    });
    eval.arg(match claim.times {
        Times::Many => "many",
        Times::Once => "once",
    });
    eval.arg(match touch {
        Touch::Write => "write",
        Touch::Raise => "raise",
    });
    eval.arg(claim.incarnation.map_or(String::new(), |it| it.to_string()));
    for command in commands {
        eval.arg(command.args_iter().len());
        for word in command.args_iter() {
            let Arg::Simple(bytes) = word else {
                let what = "a command under the fence has no cursor";
                return Err(Error::Store(RedisError::from((ErrorKind::Client, what))));
            };
            eval.arg(bytes);
        }
    }
    Ok(eval)
}

/// Converts the answer to [`command`]: the answers of the commands, or the refusal.
pub fn answer(value: Value, (claim, touch): (Claim, Touch)) -> Result<Vec<Value>, Error> {
    let Value::Array(mut parts) = value else { return Err(Error::Store(unexpected(&value))) };
    match parts.first() {
        Some(Value::Int(1)) => Ok(parts.split_off(1)),
        Some(Value::Int(0)) => {
            let kept: (i64, String, String, String, String) =
                ::redis::from_redis_value(Value::Array(parts))
                    .map_err(|e| Error::Store(e.into()))?;
            match read([kept.1, kept.2, kept.3, kept.4])?.admit(claim, touch) {
                Err(refused) => Err(Error::Refused(refused)),
                Ok(floor) => {
                    Err(Error::Unreadable(format!("refused, though it leads to {floor:?}")))
                }
            }
        }
        _ => Err(Error::Store(unexpected(&Value::Array(parts)))),
    }
}

fn read(kept: [String; 4]) -> Result<Floor, Error> {
    let [x, s, u, incarnation] = &kept;
    let number = |text: &String| if text.is_empty() { Some(0) } else { text.parse().ok() };
    let floor = || {
        let incarnation = match incarnation.as_str() {
            "" => None,
            text => Some(Incarnation::parse(text)?),
        };
        Floor::from_numbers([number(x)?, number(s)?, number(u)?], incarnation)
    };
    floor().ok_or_else(|| Error::Unreadable(kept.join(" ")))
}

fn unexpected(value: &Value) -> RedisError {
    let what = "the script answered something else";
    RedisError::from((ErrorKind::UnexpectedReturnType, what, format!("{value:?}")))
}
