//! Tests that a store and a proxy that are killed during writes lose nothing and accept no late write.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::Guardian;
use crate::calls::{Connection, call};
use crate::common::{kills, progress, wait};
use crate::upstream::Upstream;

const WRITERS: u64 = 4;
/// How many writes are acknowledged between two kills.
const BETWEEN: u64 = 12;

/// The result of a write, as its writer knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum WriteResult {
    Done,
    Refused,
    Nothing,
}

/// Writers that append numbered lines, some with a larger token than ever before.
#[derive(Default)]
struct Load {
    /// The newest token, as an offset.
    newest: AtomicU64,
    /// The largest token under which a write was acknowledged.
    highest: AtomicU64,
    acknowledged: AtomicU64,
    stop: AtomicBool,
    /// The results, by number.
    results: Mutex<BTreeMap<u64, WriteResult>>,
}

impl Load {
    fn write(&self, writer: u64, to: SocketAddr, path: &str) {
        let mut connection = None;
        for at in 0.. {
            if self.stop.load(Ordering::SeqCst) {
                return;
            }
            // Every fourth write raises the floor; some are late; the others use the token that was the newest a
            // moment ago.
            let raise = u64::from((writer + at).is_multiple_of(4));
            let late = u64::from((writer + at) % 8 == 5);
            let token = 2 + self.newest.fetch_add(raise, Ordering::SeqCst) + raise - late;
            let number = at * WRITERS + writer;
            let result = self.write_one(&mut connection, to, path, token, number);
            if result == WriteResult::Nothing {
                connection = None;
            }
            self.results.lock().unwrap().insert(number, result);
        }
    }

    fn write_one(
        &self,
        connection: &mut Option<Connection>,
        to: SocketAddr,
        path: &str,
        token: u64,
        number: u64,
    ) -> WriteResult {
        if connection.is_none() {
            *connection = Connection::open(to).ok();
        }
        let Some(connection) = connection else {
            std::thread::yield_now();
            return WriteResult::Nothing;
        };
        let (line, text) = (format!("{token} {number}\n"), token.to_string());
        let headers = [("fencing-token", text.as_str())];
        match connection.call("POST", path, &headers, line.as_bytes()) {
            Ok(said) if said.status == 200 => {
                self.highest.fetch_max(token, Ordering::SeqCst);
                self.acknowledged.fetch_add(1, Ordering::SeqCst);
                WriteResult::Done
            }
            Ok(said) if said.status == 412 => WriteResult::Refused,
            Ok(said) if said.status == 503 => WriteResult::Nothing,
            Ok(said) => panic!("{said:?}"),
            Err(_) => WriteResult::Nothing,
        }
    }

    /// The first contradiction between the lines that were written and the writers' results.
    fn fault(&self, lines: &str) -> Option<String> {
        let results = self.results.lock().unwrap();
        let mut seen = BTreeMap::new();
        let mut last = 0;
        for line in lines.lines() {
            let (token, number) = line.split_once(' ')?;
            let (token, number): (u64, u64) = (token.parse().ok()?, number.parse().ok()?);
            if token < last {
                return Some(format!("token {token} came after {last}"));
            }
            last = token;
            if seen.insert(number, token).is_some() {
                return Some(format!("{number} is there twice"));
            }
            if results.get(&number) == Some(&WriteResult::Refused) {
                return Some(format!("{number} was refused, and is there"));
            }
        }
        let lost = results
            .iter()
            .find(|(number, result)| **result == WriteResult::Done && !seen.contains_key(number));
        lost.map(|(number, _)| format!("{number} was acknowledged, and is lost"))
    }
}

/// Kills a store or proxy again and again while others write through it.
fn kill_under_load(
    guardian: &mut Guardian,
    kills: usize,
    path: &str,
    floor_path: &str,
    load: &Load,
) {
    let to = guardian.address;
    let floor = || {
        let said = call(to, "GET", floor_path, None, "");
        said.header("fencing-floor").map_or(0, |floor| floor.parse::<u64>().unwrap())
    };
    let bar = progress(kills);
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            scope.spawn(move || load.write(writer, to, path));
        }
        // Writers end also if something here fails.
        let killed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let mut last = 0;
            for _ in 0..kills {
                let until = load.acknowledged.load(Ordering::SeqCst) + BETWEEN;
                wait("writes go on", || {
                    (load.acknowledged.load(Ordering::SeqCst) >= until).then_some(())
                });
                guardian.kill();
                let acknowledged = load.highest.load(Ordering::SeqCst);
                guardian.again();
                let now = floor();
                assert!(
                    now >= acknowledged,
                    "the floor is {now}, and {acknowledged} was acknowledged"
                );
                assert!(now >= last, "the floor fell from {last} to {now}");
                last = now;
                bar.inc(1);
            }
            let until = load.acknowledged.load(Ordering::SeqCst) + BETWEEN;
            wait("writes go on", || {
                (load.acknowledged.load(Ordering::SeqCst) >= until).then_some(())
            });
        }));
        load.stop.store(true, Ordering::SeqCst);
        if let Err(panic) = killed {
            std::panic::resume_unwind(panic);
        }
    });
    bar.finish_and_clear();
}

fn report(word: &str, kills: usize, load: &Load) {
    let results = load.results.lock().unwrap();
    let count = |which| results.values().filter(|result| **result == which).count();
    let (done, refused) = (count(WriteResult::Done), count(WriteResult::Refused));
    assert!(refused > 0, "no write was ever late");
    println!("{word} kills={kills} acknowledged={done} refused={refused} violations=0");
}

#[test]
fn a_store_killed_in_the_middle_of_writes_loses_nothing() {
    let kills = kills(5);
    let dir = tempfile::tempdir().unwrap();
    let mut store = Guardian::store(dir.path());
    let load = Load::default();
    kill_under_load(&mut store, kills, "/v1/data/log?lock=l", "/v1/floors/l", &load);
    let lines = call(store.address, "GET", "/v1/data/log", None, "");
    assert_eq!(load.fault(lines.text()), None);
    report("store", kills, &load);
}

#[test]
fn a_proxy_killed_in_the_middle_of_writes_lets_no_late_write_in() {
    let kills = kills(5);
    let (dir, upstream) = (tempfile::tempdir().unwrap(), Upstream::start());
    let mut proxy = Guardian::proxy(dir.path(), upstream.address);
    let load = Load::default();
    kill_under_load(&mut proxy, kills, "/text", "/.well-known/tenure-fence", &load);
    assert_eq!(load.fault(&upstream.text()), None);
    report("proxy", kills, &load);
}

#[test]
fn the_checker_knows_what_must_not_be() {
    let load = Load::default();
    load.results.lock().unwrap().extend([
        (1, WriteResult::Done),
        (2, WriteResult::Refused),
        (3, WriteResult::Nothing),
    ]);
    assert_eq!(load.fault("5 1\n"), None);
    assert_eq!(load.fault("5 1\n5 3\n"), None);
    for (lines, why) in [
        ("5 3\n", "lost"),
        ("5 1\n5 1\n", "twice"),
        ("5 1\n6 2\n", "was refused"),
        ("5 1\n4 3\n", "came after"),
    ] {
        assert!(load.fault(lines).unwrap().contains(why), "{lines}");
    }
}
