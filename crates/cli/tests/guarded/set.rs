//! Tests that five clients that add numbers to a set under a lock lose none, while they are paused and leaders die.
//!
//! Each client is a process. Again and again one stops itself between reading and writing, until others have gone on;
//! then it writes without checking its lock. With the store's fence no number is lost. In the control all clients send
//! the same token, which disables the fence, and some numbers are lost.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use rustix::process::{Signal, getpid, kill_process};
use tenure::{Client, Guard};
use tenure_server::os;

use crate::Guardian;
use crate::calls::{Answer, Connection, call};
use crate::common::Cluster;
use crate::common::proxy::Road;

/// Marks a process of this binary as a client, and carries its plan.
const CLIENT: &str = "TENURE_SET_CLIENT";
const FENCED: &str = "set::with_the_fence_no_number_is_lost";
const CLIENTS: usize = 5;
/// How many numbers are added during one hold of the lock.
const PER_HOLD: usize = 25;
const TTL: Duration = Duration::from_secs(1);

/// The settings of a client.
#[derive(Clone)]
struct Plan {
    cluster: String,
    store: SocketAddr,
    number: usize,
    adds: usize,
    /// How many keys the set is spread over.
    buckets: usize,
    /// After how many numbers the client stops itself once.
    pause_every: usize,
    fenced: bool,
    said: PathBuf,
}

impl Plan {
    fn to_text(&self) -> String {
        let Self { cluster, store, number, adds, buckets, pause_every, fenced, said } = self;
        format!(
            "{cluster}|{store}|{number}|{adds}|{buckets}|{pause_every}|{fenced}|{}",
            said.display()
        )
    }

    fn parse(text: &str) -> Self {
        let words: Vec<&str> = text.split('|').collect();
        let [cluster, store, number, adds, buckets, pause_every, fenced, said] = words[..] else {
            panic!("{text}")
        };
        let count = |text: &str| text.parse().unwrap();
        Self {
            cluster: cluster.to_owned(),
            store: store.parse().unwrap(),
            number: count(number),
            adds: count(adds),
            buckets: count(buckets),
            pause_every: count(pause_every),
            fenced: fenced == "true",
            said: said.into(),
        }
    }
}

/// A client that adds its numbers, one after another, and records which were acknowledged.
struct Adder {
    plan: Plan,
    said: File,
    store: Option<Connection>,
    done: usize,
    paused_at: usize,
}

impl Adder {
    fn run(plan: Plan) {
        let said = File::options().create(true).append(true).open(&plan.said).unwrap();
        let mut adder = Self { plan, said, store: None, done: 0, paused_at: 0 };
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let builder = Client::builder()
                .addresses(&adder.plan.cluster)
                .name(format!("c{}", adder.plan.number));
            let client = builder.timeout(Duration::from_secs(30)).connect().await.unwrap();
            while adder.done < adder.plan.adds {
                // After a leader was killed, no member leads for a while.
                let Ok(guard) = client.lock("set").ttl(TTL).await else { continue };
                adder.hold(&guard);
                let _ = guard.release().await;
            }
        });
    }

    /// Adds some numbers while the lock is held, as far as the guard knows.
    fn hold(&mut self, guard: &Guard) {
        let token = if self.plan.fenced { guard.token().get() } else { 1 }.to_string();
        for _ in 0..PER_HOLD {
            if self.done == self.plan.adds || guard.check().is_err() {
                return;
            }
            let number = self.plan.number + self.done * CLIENTS;
            match self.add(number, &token) {
                Some(200) => {
                    self.done += 1;
                    writeln!(self.said, "added {number}").unwrap();
                }
                Some(412) => {
                    writeln!(self.said, "refused {number}").unwrap();
                    return;
                }
                // The number may have been added; adding it again is harmless.
                None => self.store = None,
                Some(other) => panic!("the store said {other}"),
            }
        }
    }

    /// Reads, perhaps pauses, and writes. Returns the final status, if there was a response.
    fn add(&mut self, number: usize, token: &str) -> Option<u16> {
        let path = format!("/v1/data/set/{}?lock=set", number / CLIENTS % self.plan.buckets);
        let read = self.call("GET", &path, token, "")?;
        let before = match read.status {
            200 => read.text().to_owned(),
            404 => String::new(),
            other => return Some(other),
        };
        if (self.done + 1).is_multiple_of(self.plan.pause_every) && self.paused_at != self.done {
            self.paused_at = self.done;
            stand_still();
        }
        let there = before.lines().any(|line| line == number.to_string());
        let after = if there { before } else { format!("{before}{number}\n") };
        Some(self.call("PUT", &path, token, &after)?.status)
    }

    fn call(&mut self, verb: &str, path: &str, token: &str, body: &str) -> Option<Answer> {
        if self.store.is_none() {
            self.store = Some(Connection::open(self.plan.store).ok()?);
        }
        self.store.as_mut()?.call(verb, path, &[("fencing-token", token)], body.as_bytes()).ok()
    }
}

/// Stops this process until another one continues it.
fn stand_still() {
    kill_process(getpid(), Signal::STOP).unwrap();
    // On a busy machine this thread runs on for a while before the stop reaches it: detect the pause by the clock.
    let began_us = os::now_us();
    let mut before_us = began_us;
    while before_us < began_us + 10_000_000 {
        std::thread::sleep(Duration::from_millis(1));
        let now_us = os::now_us();
        if now_us > before_us + 300_000 {
            return;
        }
        before_us = now_us;
    }
}

/// The process of a client, as seen from outside.
struct Process {
    child: Child,
    said: PathBuf,
    /// How many numbers had been added when it was found stopped.
    stopped_at: Option<usize>,
    ended: bool,
}

impl Process {
    fn start(plan: &Plan) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", FENCED, "--nocapture"]).env(CLIENT, plan.to_text());
        let log = File::create(plan.said.with_extension("log")).unwrap();
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap();
        Self { child, said: plan.said.clone(), stopped_at: None, ended: false }
    }

    fn numbers(&self, word: &str) -> Vec<u64> {
        let said = fs::read_to_string(&self.said).unwrap_or_default();
        // A line without a newline is still being written.
        let whole = said.rfind('\n').map_or("", |end| &said[..end]);
        let lines = whole.lines().filter_map(|line| line.split_once(' '));
        lines.filter(|(each, _)| *each == word).map(|(_, number)| number.parse().unwrap()).collect()
    }

    fn is_stopped(&self) -> bool {
        let stat =
            fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap_or_default();
        stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('T'))
    }

    fn go_on(&mut self) {
        self.stopped_at = None;
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-CONT", &pid]).status().unwrap().success());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let log = self.said.with_extension("log");
            eprintln!("--- {}", fs::read_to_string(log).unwrap_or_default());
        }
    }
}

/// The results of a run.
#[derive(Debug, Default)]
struct Shown {
    added: usize,
    lost: usize,
    refused: usize,
    pauses: usize,
    kills: usize,
    partitions: usize,
}

/// Injects faults into the cluster while numbers are added.
struct Faults {
    cluster: Cluster,
    every: usize,
    next: usize,
    kills: usize,
    partitions: usize,
}

impl Faults {
    /// Kills the leader or cuts it off when the next fault is due, and waits for another leader.
    fn strike_if_due(&mut self, added: usize) {
        if added < self.next {
            return;
        }
        // Count from the planned point: while the last fault lasted, holders of the lock went on.
        self.next += self.every;
        let leader = self.cluster.leader();
        let others = [(leader + 1) % 3, (leader + 2) % 3];
        if self.kills > self.partitions {
            self.partitions += 1;
            self.cluster.proxies.as_ref().unwrap().around(leader, Road::Hole);
            self.cluster.leader_of(&others);
            self.cluster.proxies.as_ref().unwrap().heal();
        } else {
            self.kills += 1;
            self.cluster.kill(leader);
            self.cluster.leader_of(&others);
            self.cluster.start(leader, &[]);
        }
    }
}

fn run(dir: &Path, adds: usize, fenced: bool) -> Shown {
    let cluster = Cluster::found_behind_proxies();
    let store = Guardian::store(dir);
    let addresses: Vec<String> = cluster.addresses().iter().map(ToString::to_string).collect();
    let each = adds.div_ceil(CLIENTS);
    let plan = |number| Plan {
        cluster: addresses.join(","),
        store: store.address,
        number,
        adds: each,
        // With one key the control is sure to lose something.
        buckets: if fenced { (adds / 300).max(1) } else { 1 },
        pause_every: (each * 2 / 3).clamp(1, 200),
        fenced,
        said: dir.join(format!("client-{number}")),
    };
    let mut clients: Vec<Process> =
        (0..CLIENTS).map(|number| Process::start(&plan(number))).collect();
    // Several faults, so that it does not matter if no client notices one of them.
    let every = (adds / 5).clamp(1, 1_000);
    let mut faults = Faults { cluster, every, next: every, kills: 0, partitions: 0 };
    let style = "{bar:40} {pos}/{len} numbers, {elapsed} gone, {eta} left";
    let bar =
        ProgressBar::new(adds as u64).with_style(ProgressStyle::with_template(style).unwrap());
    let mut pauses = 0;
    while clients.iter().any(|client| !client.ended) {
        let added = continue_stopped(&mut clients, &mut pauses, &bar);
        faults.strike_if_due(added);
        std::thread::sleep(Duration::from_millis(20));
    }
    bar.finish_and_clear();
    let mut there = BTreeSet::new();
    let listed = call(store.address, "GET", "/v1/data?prefix=set/", None, "");
    for bucket in 0..plan(0).buckets {
        let value = call(store.address, "GET", &format!("/v1/data/set/{bucket}"), None, "");
        assert_eq!(value.status, 200, "{listed:?}");
        there.extend(value.text().lines().map(|line| line.parse::<u64>().unwrap()));
    }
    let added: BTreeSet<u64> = clients.iter().flat_map(|client| client.numbers("added")).collect();
    assert_eq!(added.len(), each * CLIENTS);
    Shown {
        added: added.len(),
        lost: added.difference(&there).count(),
        refused: clients.iter().map(|client| client.numbers("refused").len()).sum(),
        pauses,
        kills: faults.kills,
        partitions: faults.partitions,
    }
}

/// Continues clients that have been stopped for long enough. Returns how many numbers were added.
fn continue_stopped(clients: &mut [Process], pauses: &mut usize, bar: &ProgressBar) -> usize {
    let mut stopped = Vec::new();
    for (at, client) in clients.iter_mut().enumerate().filter(|(_, client)| !client.ended) {
        if let Some(status) = client.child.try_wait().unwrap() {
            assert!(status.success(), "a client failed");
            client.ended = true;
        } else if client.stopped_at.is_none() && client.is_stopped() {
            stopped.push(at);
        }
    }
    // Count after the stops were seen: numbers that these clients added just before do not show that others went on.
    let added = clients.iter().map(|client| client.numbers("added").len()).sum();
    bar.set_position(added as u64);
    *pauses += stopped.len();
    stopped.into_iter().for_each(|at| clients[at].stopped_at = Some(added));
    let runs = clients.iter().any(|client| !client.ended && client.stopped_at.is_none());
    for client in clients {
        // The pause outlasted the ttl, or others could not have gone on; unless no other client runs.
        let over = client.stopped_at.is_some_and(|before| added >= before + 3 || !runs);
        if over && !client.ended {
            client.go_on();
        }
    }
    added
}

/// How many numbers to add: as many as a campaign sets, or a few.
fn adds(few: usize) -> usize {
    let adds = std::env::var("TENURE_ADDS").ok();
    adds.map_or(few, |adds| adds.parse().expect("TENURE_ADDS is a number"))
}

fn report(word: &str, shown: &Shown) {
    let Shown { added, lost, refused, pauses, kills, partitions } = shown;
    let violations = if word == "set" { *lost } else { 0 };
    println!(
        "{word} adds={added} lost={lost} refused={refused} pauses={pauses} leaders_killed={kills} \
         leaders_cut_off={partitions} violations={violations}"
    );
}

#[test]
fn with_the_fence_no_number_is_lost() {
    if let Ok(plan) = std::env::var(CLIENT) {
        return Adder::run(Plan::parse(&plan));
    }
    let dir = tempfile::tempdir().unwrap();
    let shown = run(dir.path(), adds(200), true);
    report("set", &shown);
    assert_eq!(shown.lost, 0, "violation: acknowledged and gone: {shown:?}");
    assert!(shown.pauses >= CLIENTS && shown.refused > 0, "no client was ever late: {shown:?}");
    assert!(shown.kills > 0 && shown.partitions > 0, "{shown:?}");
}

#[test]
fn without_the_fence_some_are_lost() {
    let dir = tempfile::tempdir().unwrap();
    let shown = run(dir.path(), adds(200).min(1_000), false);
    report("unfenced", &shown);
    assert!(shown.lost > 0, "{shown:?}");
    assert!(shown.kills > 0 && shown.partitions > 0, "{shown:?}");
}
