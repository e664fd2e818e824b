//! Runs honest clients: some take and release locks, others keep many leases alive.
//!
//! Each has an address of its own, as attackers have. A member gives every address the same share, and clients that
//! shared one would get the share of one client.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use tenure_server::os;

use crate::common::client::{Client, ClientReply, field};

/// How many leases one renewal names.
const BATCH: u64 = 250;
/// How many connections renew leases: one for each renewal of 10,000, so that none waits for another.
const RENEWERS: u64 = 40;
/// How many connections grant leases at the start.
const GRANTERS: u64 = 16;
/// How long a client waits for an answer.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How often a renewal is tried before it counts as failed: for a minute, at the least.
const ATTEMPTS: u32 = 3_000;
/// How often a client sends an acquire with a key, and sends it again as if its answer had been lost. Each leaves a
/// record for ten minutes, and a campaign takes that long.
const RETRY_EVERY: Duration = Duration::from_secs(2);
/// How long a client that was refused waits before it asks again.
const PAUSE: Duration = Duration::from_millis(20);
/// The networks of the clients that take locks, that keep leases alive, and that grant these leases.
const WORKERS_FROM: u8 = 0;
const RENEWERS_FROM: u8 = 1;
const GRANTERS_FROM: u8 = 2;
/// The first id of the leases that are only kept alive. Ids below it belong to the clients with locks.
const KEPT: u64 = 100_000;

/// How many clients and leases there are, and how long leases live.
#[derive(Clone, Copy)]
pub(crate) struct Crowd {
    pub(crate) clients: u64,
    pub(crate) leases: u64,
    pub(crate) ttl: Duration,
}

/// The results of the clients so far.
#[derive(Default)]
pub(crate) struct HonestResults {
    stop: AtomicBool,
    cycles: AtomicU64,
    refused: AtomicU64,
    lost: AtomicU64,
    late: AtomicU64,
    wrong: Mutex<Vec<String>>,
    renewals_us: Mutex<Vec<u64>>,
}

impl HonestResults {
    /// How many cycles of acquire, renew and release are done.
    pub(crate) fn cycles(&self) -> u64 {
        self.cycles.load(Ordering::Relaxed)
    }

    /// How many leases have ended before their clients wanted it.
    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// How many leases were not renewed for half of their ttl, after which a client must stop its work.
    pub(crate) fn late(&self) -> u64 {
        self.late.load(Ordering::Relaxed)
    }

    /// How many requests were refused for now.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// How long each renewal since the last call took from its first attempt, sorted.
    pub(crate) fn take_renewals_us(&self) -> Vec<u64> {
        let mut all = std::mem::take(&mut *self.renewals_us.lock().unwrap());
        all.sort_unstable();
        all
    }

    /// The answers that no client may get.
    pub(crate) fn wrong(&self) -> Vec<String> {
        self.wrong.lock().unwrap().clone()
    }

    fn complain(&self, what: String) {
        let mut wrong = self.wrong.lock().unwrap();
        if wrong.len() < 20 {
            wrong.push(what);
        }
    }

    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }
}

/// Running clients.
pub(crate) struct Honest {
    pub(crate) results: Arc<HonestResults>,
    threads: Vec<JoinHandle<()>>,
}

impl Honest {
    /// Grants all leases, then starts the clients.
    pub(crate) fn start(members: &[SocketAddr], crowd: Crowd) -> Self {
        Self::start_as(None, members, crowd)
    }

    /// Does the same with these credentials.
    pub(crate) fn start_as(bearer: Option<&str>, members: &[SocketAddr], crowd: Crowd) -> Self {
        let results = Arc::new(HonestResults::default());
        let client = |members: &[SocketAddr], network, number| {
            client(members, network, number).with_bearer(bearer.map(str::to_owned))
        };
        grant(|granter| client(members, GRANTERS_FROM, granter), crowd);
        let mut threads = Vec::new();
        for number in 0..crowd.clients {
            let (client, results) = (client(members, WORKERS_FROM, number), results.clone());
            let work = move || Worker { client, number, results }.work(crowd.ttl);
            threads.push(std::thread::spawn(work));
        }
        let batches = crowd.leases.div_ceil(BATCH);
        for renewer in 0..RENEWERS.min(batches) {
            let (mut client, results) = (client(members, RENEWERS_FROM, renewer), results.clone());
            let mine: Vec<Batch> = (renewer..batches)
                .step_by(usize::try_from(RENEWERS).unwrap())
                .map(|at| Batch::new(at * BATCH, ((at + 1) * BATCH).min(crowd.leases)))
                .collect();
            threads.push(std::thread::spawn(move || keep(&mut client, mine, crowd.ttl, &results)));
        }
        Self { results, threads }
    }

    /// Stops all clients and returns their results.
    pub(crate) fn stop(self) -> Arc<HonestResults> {
        self.results.stop.store(true, Ordering::Release);
        for thread in self.threads {
            thread.join().unwrap();
        }
        self.results
    }
}

/// A client that connects from an address of its own, which no attacker has.
fn client(members: &[SocketAddr], network: u8, number: u64) -> Client {
    let from = Ipv4Addr::new(127, 1, network, u8::try_from(number + 1).unwrap());
    let client = Client::new(members.to_vec(), TIMEOUT).from(from);
    client.prefer(usize::try_from(number).unwrap())
}

/// Sets a limit of the cluster.
pub(crate) fn set_limit(members: &[SocketAddr], name: &str, value: u64) {
    let set = client(members, GRANTERS_FROM, 0).insist(&format!("limit {name} {value}"), || false);
    assert!(matches!(set, Some(Ok(_))), "{set:?}");
}

fn grant(client: impl Fn(u64) -> Client, crowd: Crowd) {
    std::thread::scope(|scope| {
        for granter in 0..GRANTERS {
            let mut client = client(granter);
            scope.spawn(move || {
                for number in (granter..crowd.leases).step_by(usize::try_from(GRANTERS).unwrap()) {
                    let (id, ttl_ms) = (KEPT + number, crowd.ttl.as_millis());
                    let granted = client
                        .insist(&format!("once kept-{id} lease {id} {ttl_ms} kept"), || false);
                    assert!(matches!(granted, Some(Ok(_))), "{granted:?}");
                }
            });
        }
    });
}

/// A client that takes and releases a lock again and again.
struct Worker {
    client: Client,
    number: u64,
    results: Arc<HonestResults>,
}

impl Worker {
    fn work(mut self, ttl: Duration) {
        let (lease, lock) = (self.number + 1, format!("honest/{}", self.number));
        let grant = format!("once honest-{lease} lease {lease} {} honest-{lease}", ttl.as_millis());
        if self.say(&grant).is_none() {
            return;
        }
        let mut retry_us = 0;
        while !self.results.is_over() {
            let mut ask = format!("lock {lease} {lock}");
            let now_us = os::now_us();
            let retried = now_us >= retry_us;
            if retried {
                retry_us = now_us + os::micros(RETRY_EVERY);
                ask = format!("once retried-{lease}-{now_us} {ask}");
            }
            let Some(answer) = self.say(&ask) else { continue };
            let Some(token) = field(&answer, "token") else {
                self.results.complain(format!("no client but its own wants {lock}: {answer}"));
                continue;
            };
            if retried {
                self.retry(&ask, &format!("token={token} "));
            }
            let renewed = self.say(&format!("renew {lease}"));
            if renewed.is_some_and(|answer| answer.starts_with("ended")) {
                self.results.lost.fetch_add(1, Ordering::Relaxed);
                self.results.complain(format!("the lease of {lock} has ended"));
                return;
            }
            let unlocked = self.say(&format!("unlock {lease} {lock} {token}"));
            if retried && unlocked.is_some() {
                self.retry(&ask, "REQUEST_STALE");
            }
            self.results.cycles.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Sends an acquire once more that was answered. Its answer must say what became of it: that it holds under the
    /// same token, or that it is over.
    fn retry(&mut self, ask: &str, expected: &str) {
        loop {
            match self.client.say(ask) {
                ClientReply::Ok(answer) | ClientReply::Refused(answer) => {
                    if is_for_now(&answer) {
                        std::thread::sleep(PAUSE);
                    } else if format!("{answer} ").contains(expected) {
                        return;
                    } else {
                        let what = format!("a retry was not recognised: {ask}: {answer}");
                        return self.results.complain(what);
                    }
                }
                ClientReply::NotDone(_) | ClientReply::Unknown => std::thread::sleep(PAUSE),
            }
            if self.results.is_over() {
                return;
            }
        }
    }

    /// Repeats a command until it is done. None once the clients are told to stop, or if a rule refused the command.
    fn say(&mut self, line: &str) -> Option<String> {
        let mut repeated = false;
        while !self.results.is_over() {
            match self.client.say(line) {
                ClientReply::Ok(answer) => return Some(answer),
                // An attempt before this one may have released the lock.
                ClientReply::Refused(why) if repeated && why.starts_with("NOT_HOLDER") => {
                    return Some(why);
                }
                ClientReply::Refused(why) if is_for_now(&why) => {}
                ClientReply::Refused(why) => {
                    if why.starts_with("LEASE_NOT_FOUND") || why.starts_with("NOT_HOLDER") {
                        self.results.lost.fetch_add(1, Ordering::Relaxed);
                    }
                    self.results.complain(format!("{line}: {why}"));
                    return None;
                }
                ClientReply::NotDone(_) | ClientReply::Unknown => repeated = true,
            }
            self.results.refused.fetch_add(1, Ordering::Relaxed);
            std::thread::sleep(PAUSE);
        }
        None
    }
}

/// Whether a refusal is about room that other clients have taken. The memory of requests with a key is not such room:
/// a client has a share of it.
fn is_for_now(why: &str) -> bool {
    ["NO_SPACE", "QUOTA", "OVERLOADED"].iter().any(|it| why.starts_with(it))
}

/// Some leases that are renewed together.
struct Batch {
    line: String,
    leases: u64,
    renewed_us: u64,
    ended: u64,
}

impl Batch {
    fn new(from: u64, to: u64) -> Self {
        let ids = (from..to).map(|number| format!(" {}", KEPT + number));
        let line = format!("renew{}", ids.collect::<String>());
        Self { line, leases: to - from, renewed_us: os::now_us(), ended: 0 }
    }

    /// Repeats a renewal until it is done. A member that answers no more is the failure of another check.
    fn renew(&mut self, client: &mut Client, ttl_us: u64, results: &HonestResults) {
        let (mut was_late, first_us) = (false, os::now_us());
        for _ in 0..ATTEMPTS {
            // The ttl counts from before the request, as a client counts it.
            let asked_us = os::now_us();
            let reply = client.say(&self.line);
            let now_us = os::now_us();
            if !was_late && now_us - self.renewed_us > ttl_us / 2 {
                was_late = true;
                results.late.fetch_add(self.leases, Ordering::Relaxed);
            }
            match reply {
                ClientReply::Ok(answer) => {
                    let ended = answer.split(' ').filter(|word| *word == "ended").count() as u64;
                    results.lost.fetch_add(ended.saturating_sub(self.ended), Ordering::Relaxed);
                    (self.ended, self.renewed_us) = (ended, asked_us);
                    results.renewals_us.lock().unwrap().push(now_us - first_us);
                    return;
                }
                ClientReply::Refused(why) => results.complain(format!("a renewal: {why}")),
                ClientReply::NotDone(_) | ClientReply::Unknown => {}
            }
            results.refused.fetch_add(1, Ordering::Relaxed);
            std::thread::sleep(PAUSE);
        }
        results.complain(format!("{} leases cannot be renewed", self.leases));
    }
}

/// Renews every batch each third of the ttl, and all of them once more at the end.
fn keep(client: &mut Client, mut batches: Vec<Batch>, ttl: Duration, results: &HonestResults) {
    let ttl_us = os::micros(ttl);
    let step_us = ttl_us / 3 / batches.len() as u64;
    let mut due_us = os::now_us();
    while !results.is_over() {
        for batch in &mut batches {
            due_us += step_us;
            while os::now_us() < due_us && !results.is_over() {
                std::thread::sleep(os::until(due_us).min(PAUSE));
            }
            if results.is_over() {
                break;
            }
            batch.renew(client, ttl_us, results);
        }
        // After a delay renew at once, and then continue at the usual interval.
        due_us = due_us.max(os::now_us().saturating_sub(ttl_us / 3));
    }
    for batch in &mut batches {
        batch.renew(client, ttl_us, results);
    }
}
