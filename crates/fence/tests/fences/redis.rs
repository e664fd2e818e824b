//! Tests that Redis refuses stale writers.

use std::sync::Mutex;

use redis::{Client, Connection, Value};
use tenure_fence::redis::{self as fence, SCRIPT};
use tenure_fence::{Claim, Error, Floor, LockSlot, Touch, padded};

use crate::planted::{self, Planted};
use crate::server;
use crate::subject::{FenceReply, Subject, claim, said, token};
use crate::trials::{self, Size};

pub(crate) struct Key<'a> {
    client: &'a Client,
    idle: Mutex<Vec<Connection>>,
    name: String,
    script: String,
}

const PLANTED: &[Planted] = &[
    ("refused = token < newest", "refused = token < exclusive"),
    ("refused = token < newest", "refused = token <= newest"),
    ("refused = token < newest", "refused = tonumber(token) < tonumber(newest)"),
    ("token < exclusive or", "token < newest or"),
    ("(newest ~= ZERO and epoch < newest_epoch)", "false"),
    ("token <= used then", "token < used then"),
    ("if touch == 'write' then used", "if true then used"),
    ("shared = later(shared, token)", "shared = token"),
    ("known ~= incarnation then refused", "false then refused"),
    ("if incarnation == '' and same_epoch", "if incarnation == ''"),
    ("if incarnation == '' and same_epoch", "if false"),
];

impl<'a> Key<'a> {
    fn of(client: &'a Client, name: &str, script: &str) -> Self {
        let (name, script) = (format!("{{{name}}}:data"), script.to_owned());
        Self { client, idle: Mutex::default(), name, script }
    }

    fn with<T>(&self, work: impl FnOnce(&mut Connection) -> T) -> T {
        let idle = self.idle.lock().unwrap().pop();
        let mut connection = idle.unwrap_or_else(|| self.client.get_connection().unwrap());
        let done = work(&mut connection);
        self.idle.lock().unwrap().push(connection);
        done
    }

    /// Returns the same command with the script under test.
    fn spoilt(&self, command: &redis::Cmd) -> redis::Cmd {
        let mut spoilt = redis::Cmd::new();
        for word in command.args_iter() {
            let redis::Arg::Simple(word) = word else { panic!("a cursor") };
            spoilt.arg(if word == SCRIPT.as_bytes() { self.script.as_bytes() } else { word });
        }
        spoilt
    }

    fn set(&self, value: &str) -> redis::Cmd {
        redis::cmd("SET").arg(&self.name).arg(value).to_owned()
    }
}

impl Subject for Key<'_> {
    fn write(&self, at: LockSlot<'_>, claim: Claim, value: &str) -> Result<(), FenceReply> {
        let given = (claim, Touch::Write);
        let command = said(fence::command(at, given, &[&self.name], &[self.set(value)]))?;
        let written = self.with(|db| self.spoilt(&command).query(db).unwrap());
        said(fence::answer(written, given)).map(|answers| assert_eq!(answers, [Value::Okay]))
    }

    fn raise(&self, at: LockSlot<'_>, claim: Claim) -> Result<(), FenceReply> {
        let given = (claim, Touch::Raise);
        let command = said(fence::command(at, given, &[], &[]))?;
        let raised = self.with(|db| self.spoilt(&command).query(db).unwrap());
        said(fence::answer(raised, given)).map(drop)
    }

    fn floor(&self, at: LockSlot<'_>) -> Floor {
        self.with(|db| fence::floor(db, at).unwrap())
    }

    fn read(&self) -> Option<String> {
        self.with(|db| redis::cmd("GET").arg(&self.name).query(db).unwrap())
    }

    fn write_unfenced(&self, value: &str) {
        self.with(|db| self.set(value).exec(db).unwrap());
    }
}

/// Sets up one key and runs the scenario on it.
pub(crate) fn stand(play: &dyn Fn(&Key<'_>)) {
    let Some(server) = server::or_skip("Redis", server::redis()) else { return };
    let client = &Client::open(format!("redis://127.0.0.1:{}/", server.port)).unwrap();
    play(&Key::of(client, "ledger", SCRIPT));
}

#[test]
fn redis_refuses_the_dead() {
    let Some(server) = server::or_skip("Redis", server::redis()) else { return };
    let client = &Client::open(format!("redis://127.0.0.1:{}/", server.port)).unwrap();
    let make = |name: &str, script: &str| Key::of(client, name, script);
    trials::all(Size { steps: 600, writes: 80 }, |name| make(name, SCRIPT));
    planted::every_one_is_found(SCRIPT, PLANTED, make);
    let db = &mut client.get_connection().unwrap();
    the_short_forms_do_the_same(db);
    several_commands_are_one_step(db);
    a_command_that_fails_leaves_the_floor_raised(db);
    the_script_refuses_what_is_no_claim(db);
}

fn the_short_forms_do_the_same(db: &mut Connection) {
    let set = redis::cmd("SET").arg("{short}:a").arg("B").to_owned();
    fence::raise(db, "short", token(1)).unwrap();
    assert_eq!(fence::write(db, "short", token(2), &["{short}:a"], &[set]).unwrap(), [Value::Okay]);
    assert_eq!(said(fence::raise(db, "short", token(1))), Err(FenceReply::Stale { floor: 2 }));
}

fn several_commands_are_one_step(db: &mut Connection) {
    let commands = [
        redis::cmd("SET").arg("{several}:a").arg("one two").to_owned(),
        redis::cmd("RPUSH").arg("{several}:b").arg("x").arg("y").to_owned(),
        redis::cmd("GET").arg("{several}:missing").to_owned(),
        redis::cmd("GET").arg("{several}:a").to_owned(),
    ];
    let keys = ["{several}:a", "{several}:b", "{several}:missing"];
    let answers = fence::write(db, "several", token(1), &keys, &commands).unwrap();
    let text = Value::BulkString(b"one two".to_vec());
    assert_eq!(answers, [Value::Okay, Value::Int(2), Value::Nil, text]);
}

fn a_command_that_fails_leaves_the_floor_raised(db: &mut Connection) {
    redis::cmd("SET").arg("{failing}:a").arg("text").exec(db).unwrap();
    let push = redis::cmd("RPUSH").arg("{failing}:a").arg("x").to_owned();
    let failed = fence::write(db, "failing", token(2), &["{failing}:a"], &[push]).unwrap_err();
    assert!(matches!(failed, Error::Store(_)), "{failed:?}");
    assert_eq!(fence::floor(db, "failing").unwrap().exclusive, Some(token(2)));
    let late = fence::write(db, "failing", claim(1), &[], &[]).unwrap_err();
    assert_eq!(late.refused().map(FenceReply::from), Some(FenceReply::Stale { floor: 2 }));
}

/// Mistakes that callers in other languages may make.
fn the_script_refuses_what_is_no_claim(db: &mut Connection) {
    let key = fence::floor_key("bad");
    let good = [padded(token(1)), "exclusive".into(), "many".into(), "write".into(), String::new()];
    let mut eval = |words: &[String]| -> redis::RedisResult<Value> {
        redis::cmd("EVAL").arg(SCRIPT).arg(1).arg(&key).arg(words).query(db)
    };
    let bad = [
        (0, "1"),
        (0, "000000000000000001x"),
        (0, "0000000000000000000"),
        (1, "both"),
        (2, ""),
        (3, "read"),
    ];
    for (at, word) in bad {
        let mut words = good.clone();
        words[at] = word.to_owned();
        let error = eval(&words).unwrap_err().to_string();
        assert!(error.contains("FENCE"), "{word}: {error}");
    }
    assert!(eval(&good[..4]).is_err());
    eval(&good).unwrap();
}
