//! Tests that a watcher that goes from member to member sees everything exactly once while leaders are killed.
//!
//! A writer writes numbers into one key, with request ids, through any member that answers. Watchers read a few events
//! at one member and go on at the next, from where they were. Each sees every acknowledged revision once and in order,
//! with the acknowledged value, or is told that the history does not reach back so far: W1, W3.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use serde_json::Value;

use crate::common::http::{Call, Connection};
use crate::common::{Cluster, kills, progress, wait};

const KEY: &str = "watched";
/// How many events a watcher reads at one member before it goes on to the next.
const EVENTS_PER_STOP: usize = 7;
/// How many revisions are kept once the history is cut: fewer than a sleeping watcher misses.
const KEPT: u64 = 40;
const SLEEPS_FOR: u64 = 80;
/// How long to wait for an event before going on to the next member.
const TIMEOUT: Duration = Duration::from_millis(300);

/// What the writer and the watchers share.
struct WatchRun {
    members: Vec<SocketAddr>,
    /// The value that each revision wrote, as the writer was told.
    written: Mutex<BTreeMap<u64, String>>,
    stop: AtomicBool,
    /// The last revision, once the writer has stopped.
    last: AtomicU64,
    /// Whether the test has failed: all threads stop.
    failed: AtomicBool,
}

/// Ends all threads when the test ends, in any way.
struct Ends<'a>(&'a WatchRun);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.stop.store(true, Ordering::Release);
        self.0.failed.store(std::thread::panicking(), Ordering::Release);
    }
}

/// What one watcher has seen.
#[derive(Default)]
struct Seen {
    changes: BTreeMap<u64, String>,
    /// The reported gaps, each with its start and end.
    gaps: Vec<(u64, u64)>,
    stops: u64,
}

#[test]
fn watchers_hop_over_killed_leaders_and_see_everything_once_or_are_told() {
    let kills = kills(3);
    let mut cluster = Cluster::found(3);
    let stage = WatchRun {
        members: cluster.addresses(),
        written: Mutex::default(),
        stop: AtomicBool::new(false),
        last: AtomicU64::new(u64::MAX),
        failed: AtomicBool::new(false),
    };
    std::thread::scope(|scope| {
        let _ends = Ends(&stage);
        scope.spawn(|| stage.write());
        let first = stage.reached(1);
        let watcher = |at: usize, sleeps| {
            let stage = &stage;
            scope.spawn(move || stage.watch(at, first, sleeps))
        };
        let watchers = [watcher(0, false), watcher(1, false), watcher(2, true)];
        let bar = progress(kills);
        for kill in 0..kills {
            stage.reached(stage.newest() + 40);
            if kill == 0 {
                cut(stage.members[cluster.leader()]);
            }
            let leader = cluster.leader();
            cluster.kill(leader);
            stage.reached(stage.newest() + 40);
            cluster.start(leader, &[]);
            bar.inc(1);
        }
        stage.reached(stage.newest() + 2 * SLEEPS_FOR);
        bar.finish_and_clear();
        stage.stop.store(true, Ordering::Release);
        wait("the writer has stopped", || {
            (stage.last.load(Ordering::Acquire) < u64::MAX).then_some(())
        });
        wait("all have seen the end", || {
            watchers.iter().all(std::thread::ScopedJoinHandle::is_finished).then_some(())
        });
        let [one, other, sleeper] = watchers.map(|watcher| watcher.join().unwrap());
        assert!(!sleeper.gaps.is_empty(), "a watch that sleeps for long is told what it missed");
        let mut stops = 0;
        for seen in [&one, &other, &sleeper] {
            stage.judge(seen);
            stops += seen.stops;
        }
        let gaps = one.gaps.len() + other.gaps.len() + sleeper.gaps.len();
        let writes = stage.written.lock().unwrap().len();
        println!("watch kills={kills} writes={writes} stops={stops} gaps={gaps} violations=0");
    });
}

/// Cuts the history to the newest `KEPT` revisions.
fn cut(leader: SocketAddr) {
    let body = format!("{{\"limits\":[{{\"limit\":\"history_revisions\",\"value\":{KEPT}}}]}}");
    let body = Some(("application/json", body));
    let call = Call { verb: "PATCH", path: "/v1/limits".into(), key: None, body };
    let mut connection = Connection::open(leader, None, Duration::from_secs(30)).unwrap();
    assert_eq!(connection.call(&call).unwrap().status, 200);
}

impl WatchRun {
    fn newest(&self) -> u64 {
        self.written.lock().unwrap().keys().next_back().copied().unwrap_or(0)
    }

    /// Waits until a write reached this revision or a later one; returns the first revision of all.
    fn reached(&self, revision: u64) -> u64 {
        wait("it is written", || (self.newest() >= revision).then_some(()));
        *self.written.lock().unwrap().keys().next().unwrap()
    }

    /// Writes until it has to stop. A write without an answer is sent again, to the next member, with the same id.
    fn write(&self) {
        let mut connection = None;
        let mut turn = 0;
        for number in 0_u64.. {
            if self.stop.load(Ordering::Acquire) {
                break;
            }
            let call = Call {
                verb: "PUT",
                path: format!("/v1/keys/{KEY}?timeout=5s"),
                key: Some(format!("w{number}")),
                body: Some(("application/octet-stream", number.to_string())),
            };
            let revision = wait("it is written", || {
                if connection.is_none() {
                    turn += 1;
                    let to = self.members[turn % self.members.len()];
                    connection = Connection::open(to, None, Duration::from_secs(6)).ok();
                }
                let answer = connection.as_mut()?.call(&call).ok().filter(|it| it.status == 200);
                let Some(answer) = answer else {
                    connection = None;
                    return None;
                };
                let body: Value = serde_json::from_slice(&answer.body).unwrap();
                Some(number_of(&body["header"]["revision"]))
            });
            let before = self.written.lock().unwrap().insert(revision, number.to_string());
            assert_eq!(before, None, "two writes were told the same revision");
        }
        self.last.store(self.newest(), Ordering::Release);
    }

    fn watch(&self, at: usize, first: u64, sleeps: bool) -> Seen {
        let (mut seen, mut from) = (Seen::default(), first);
        let over = || self.last.load(Ordering::Acquire) < u64::MAX;
        for turn in at.. {
            let newest = self.newest();
            if over() && from > newest || self.failed.load(Ordering::Acquire) {
                break;
            }
            if sleeps && seen.stops > 0 {
                wait("it sleeps", || (over() || self.newest() > from + SLEEPS_FOR).then_some(()));
            }
            let to = self.members[turn % self.members.len()];
            if let Some(mut stream) = Stream::open(to, from) {
                seen.stops += 1;
                from = seen.read(&mut stream, from);
            } else {
                // The member is down, or has not reached the revision yet.
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        seen
    }

    fn judge(&self, seen: &Seen) {
        let written = self.written.lock().unwrap();
        let values: BTreeSet<_> = seen.changes.values().collect();
        assert_eq!(values.len(), seen.changes.len(), "a write was done twice, or told twice");
        for (revision, value) in written.iter() {
            match seen.changes.get(revision) {
                Some(told) => assert_eq!(told, value, "at {revision}"),
                None => {
                    let told = seen.gaps.iter().any(|(from, to)| (*from..*to).contains(revision));
                    assert!(told, "{revision} was missed and no gap was reported: {:?}", seen.gaps);
                }
            }
        }
    }
}

impl Seen {
    /// Reads a few events and returns where to go on.
    fn read(&mut self, stream: &mut Stream, mut from: u64) -> u64 {
        for _ in 0..EVENTS_PER_STOP {
            match stream.next() {
                Some(Next::Change(revision, value)) => {
                    assert!(revision >= from, "{revision} came again, or before {from}");
                    self.changes.insert(revision, value);
                    from = revision + 1;
                }
                Some(Next::Compacted(floor)) => {
                    assert!(floor > from, "told {floor} at {from}");
                    self.gaps.push((from, floor));
                    return floor;
                }
                None => break,
            }
        }
        from
    }
}

enum Next {
    Change(u64, String),
    Compacted(u64),
}

/// The server-sent events of the key at one member.
struct Stream {
    lines: BufReader<TcpStream>,
    refused: Option<u64>,
}

impl Stream {
    fn open(to: SocketAddr, from: u64) -> Option<Self> {
        let mut stream = TcpStream::connect(to).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
        let path = format!("/v1/watch?name={KEY}&from={from}");
        let head = format!("GET {path} HTTP/1.1\r\nHost: {to}\r\nConnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).ok()?;
        let mut lines = BufReader::new(stream);
        let status = line(&mut lines)?;
        let mut refused = None;
        if status.contains(" 410 ") {
            while !line(&mut lines)?.is_empty() {}
            let mut body = Vec::new();
            lines.read_to_end(&mut body).ok()?;
            let body: Value = serde_json::from_slice(&body).unwrap();
            assert_eq!(body["error"]["reason"], "COMPACTED");
            refused = Some(number_of(&body["error"]["revision"]));
        } else if !status.contains(" 200 ") {
            // A member that is behind the cursor refuses; another one may not be.
            return None;
        }
        lines.get_ref().set_read_timeout(Some(TIMEOUT)).ok()?;
        Some(Self { lines, refused })
    }

    /// The next event; `None` if none arrives soon, or the member is gone.
    fn next(&mut self) -> Option<Next> {
        if let Some(floor) = self.refused {
            return Some(Next::Compacted(floor));
        }
        loop {
            let line = line(&mut self.lines)?;
            let Some(data) = line.strip_prefix("data: ") else { continue };
            // A killed member may leave an unfinished line.
            let data: Value = serde_json::from_str(data).ok()?;
            if let Some(floor) = data.get("floor") {
                return Some(Next::Compacted(number_of(floor)));
            }
            let Some(events) = data["events"].as_array() else { continue };
            assert_eq!(events.len(), 1, "one write per revision: {data}");
            let value = events[0]["value"].as_str().unwrap().to_owned();
            return Some(Next::Change(number_of(&data["revision"]), value));
        }
    }
}

fn line(lines: &mut BufReader<TcpStream>) -> Option<String> {
    let mut line = String::new();
    match lines.read_line(&mut line) {
        Ok(read) if read > 0 && line.ends_with('\n') => Some(line.trim_end().to_owned()),
        _ => None,
    }
}

fn number_of(text: &Value) -> u64 {
    text.as_str().and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("no number: {text}"))
}
