//! Loads a cluster with clients while faults happen, and checks what they were told.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use tenure_server::os;

use super::client::{Client, ClientReply, field, number};
use super::history::{Acknowledged, Done, History, Holds, Unsure};
use super::{Cluster, wait};

/// How many locks all clients queue for.
const SHARED: u64 = 3;
/// How many of its own locks a client keeps to the end, at most.
const KEPT_MAX: u64 = 20;
/// How many keys a client writes again and again.
const KEYS: u64 = 10;
/// Long enough that no lease expires in a test.
const TTL_MS: u64 = 600_000;
/// Longer than it takes to find another leader, shorter than a test.
const TIMEOUT: Duration = Duration::from_secs(2);
/// How long a client goes on waiting for an answer after the end of the load.
const LAST_US: u64 = 40_000_000;
/// The pause between two polls of a queue, and between two rounds.
const PAUSE: Duration = Duration::from_millis(5);

/// Running clients.
pub(crate) struct Load {
    stop_at_us: Arc<AtomicU64>,
    acknowledged: Arc<AtomicU64>,
    clients: Vec<JoinHandle<History>>,
}

struct Worker {
    client: Client,
    number: u64,
    /// How many locks it has requested.
    asks: u64,
    stop_at_us: Arc<AtomicU64>,
    acknowledged: Arc<AtomicU64>,
    history: History,
}

impl Load {
    /// Starts this many clients.
    pub(crate) fn begin(members: &[SocketAddr], clients: u64) -> Self {
        let stop_at_us = Arc::new(AtomicU64::new(u64::MAX));
        let acknowledged = Arc::new(AtomicU64::new(0));
        let clients = (0..clients).map(|number| {
            let at = usize::try_from(number).unwrap();
            let client = Client::new(members.to_vec(), TIMEOUT).prefer(at);
            let (stop_at_us, acknowledged) = (stop_at_us.clone(), acknowledged.clone());
            let history = History::default();
            let worker = Worker { client, number, asks: 0, stop_at_us, acknowledged, history };
            std::thread::spawn(move || worker.work())
        });
        Self { clients: clients.collect(), stop_at_us, acknowledged }
    }

    /// Waits until this many more commands have been acknowledged.
    pub(crate) fn goes_on(&self, more: u64) {
        let until = self.acknowledged.load(Ordering::Acquire) + more;
        wait("commands are acknowledged", || {
            (self.acknowledged.load(Ordering::Acquire) >= until).then_some(())
        });
    }

    /// Lets every client finish what it began, then compares their answers with each other and with the state of these
    /// members.
    pub(crate) fn judge(self, cluster: &Cluster, members: &[usize]) -> History {
        self.stop_at_us.store(os::now_us(), Ordering::Release);
        let all = self.clients.into_iter().map(|client| client.join().unwrap());
        let history = History::join(all);
        let holds = holds(cluster, &history);
        cluster.agree(members);
        let complaints = history.complaints(&holds);
        assert!(complaints.is_empty(), "{} complaints: {complaints:#?}", complaints.len());
        assert!(history.grants() > 20, "{} grants are no load", history.grants());
        history
    }
}

impl Worker {
    fn work(mut self) -> History {
        let lease = self.number + 1;
        let granted = format!("lease {lease} {TTL_MS} client-{}", self.number);
        self.insist(&granted, |_| Done::Leased { lease });
        let mut round = 0;
        while self.stop_at_us.load(Ordering::Acquire) == u64::MAX {
            round += 1;
            self.put(round);
            self.put_once(round);
            self.take_turn(lease, round);
            if round % 8 == 0 && round / 8 <= KEPT_MAX {
                let lock = format!("kept/{}-{round}", self.number);
                self.lock(lease, &lock);
            }
            if round % 10 == 0 {
                self.insist(&format!("renew {lease}"), |_| Done::Renewed { lease });
            }
            std::thread::sleep(PAUSE);
        }
        self.history
    }

    fn put(&mut self, round: u64) {
        let me = self.number;
        let key = format!("load/{me}-{}", round % KEYS);
        let value = format!("{me}-{round}");
        let line = format!("once put-{me}-{round} put {key} {value}");
        let told = self.insist(&line, |answer| {
            let version = number(answer, "version");
            Done::Put { key: key.clone(), value: value.clone(), version }
        });
        if !told {
            self.history.unsure.push(Unsure::Put { key });
        }
    }

    /// Writes a key of its own once, whatever the result: nothing repeats the command, so its revision is exact.
    fn put_once(&mut self, round: u64) {
        let (me, asked_us) = (self.number, os::now_us());
        let (key, value) = (format!("single/{me}-{round}"), format!("{me}-{round}"));
        match self.client.say(&format!("put {key} {value}")) {
            ClientReply::Ok(answer) => {
                let version = number(&answer, "version");
                self.told(asked_us, true, &answer, Done::Put { key, value, version });
            }
            ClientReply::Refused(why) => panic!("put {key}: refused {why}"),
            ClientReply::NotDone(_) | ClientReply::Unknown => {}
        }
    }

    /// Waits for one of the shared locks, and releases it.
    fn take_turn(&mut self, lease: u64, round: u64) {
        let lock = format!("shared/{}", (self.number + round) % SHARED);
        let Some(token) = self.lock(lease, &lock) else { return };
        let asked_us = os::now_us();
        let me = self.number;
        let line = format!("unlock {lease} {lock} {token}");
        let mut doubt = false;
        // Every other time send it without a key first: then nothing repeats it, and its revision is exact.
        if round.is_multiple_of(2) {
            match self.client.say(&line) {
                ClientReply::Ok(answer) => {
                    return self.told(asked_us, true, &answer, Done::Released { lock, token });
                }
                ClientReply::Refused(why) => panic!("{line}: refused {why}"),
                ClientReply::NotDone(_) => {}
                ClientReply::Unknown => doubt = true,
            }
        }
        let line = format!("once unlock-{me}-{token} {line}");
        match self.decided(&line) {
            Some(Ok(answer)) => {
                self.told(asked_us, false, &answer, Done::Released { lock, token });
            }
            // The uncertain release has happened.
            Some(Err(why)) if doubt && why.starts_with("NOT_HOLDER") => {
                self.history.unsure.push(Unsure::Release { lock, token, asked_us });
            }
            Some(Err(why)) => panic!("{line}: refused {why}"),
            None => self.history.unsure.push(Unsure::Release { lock, token, asked_us }),
        }
    }

    /// Asks until the lock is granted. Asking again keeps the place.
    fn lock(&mut self, lease: u64, lock: &str) -> Option<u64> {
        // Use a key, so that a request that a member did not answer in time does not take a place again later.
        self.asks += 1;
        let line = format!("once lock-{}-{} lock {lease} {lock} queue", self.number, self.asks);
        let asked_us = os::now_us();
        let mut place = None;
        loop {
            match self.client.say(&line) {
                ClientReply::Ok(answer) => {
                    let at = number(&answer, "place");
                    if place.is_some_and(|place| place != at) {
                        panic!("asking again keeps the place (Q3): {place:?} became {at}");
                    }
                    let (lock, queued) = (lock.to_owned(), field(&answer, "token").is_none());
                    if queued && place.is_none() {
                        let done = Done::Queued { lock: lock.clone(), lease, place: at };
                        self.told(asked_us, false, &answer, done);
                    }
                    place = Some(at);
                    if !queued {
                        let token = number(&answer, "token");
                        let done = Done::Granted { lock, lease, place: at, token };
                        self.told(asked_us, false, &answer, done);
                        return Some(token);
                    }
                }
                ClientReply::Refused(why) => panic!("{line}: refused {why}"),
                ClientReply::NotDone(_) | ClientReply::Unknown => {}
            }
            if self.is_late() {
                return None;
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Whether the command was done, as opposed to never answered.
    fn insist(&mut self, line: &str, done: impl FnOnce(&str) -> Done) -> bool {
        let asked_us = os::now_us();
        match self.decided(line) {
            Some(Ok(answer)) => {
                let done = done(&answer);
                self.told(asked_us, false, &answer, done);
                true
            }
            Some(Err(why)) => panic!("{line}: refused {why}"),
            None => false,
        }
    }

    /// The final decision; `None` if the time was over.
    fn decided(&mut self, line: &str) -> Option<Result<String, String>> {
        let stop_at_us = self.stop_at_us.clone();
        self.client.insist(line, move || is_late(&stop_at_us))
    }

    fn told(&mut self, asked_us: u64, once: bool, answer: &str, done: Done) {
        let revision = number(answer, "revision");
        self.history.told.push(Acknowledged {
            asked_us,
            told_us: os::now_us(),
            once,
            revision,
            done,
        });
        self.acknowledged.fetch_add(1, Ordering::AcqRel);
    }

    fn is_late(&self) -> bool {
        is_late(&self.stop_at_us)
    }
}

fn is_late(stop_at_us: &AtomicU64) -> bool {
    os::now_us() > stop_at_us.load(Ordering::Acquire).saturating_add(LAST_US)
}

/// Reads back everything that the history is about.
fn holds(cluster: &Cluster, history: &History) -> Holds {
    let mut holds = Holds::default();
    let mut client = Client::new(cluster.addresses(), Duration::from_secs(15));
    let mut ok = |line: &str| {
        wait(line, || match client.say(line) {
            ClientReply::Ok(answer) => Some(answer),
            ClientReply::Refused(why) => panic!("{line}: {why}"),
            ClientReply::NotDone(_) | ClientReply::Unknown => None,
        })
    };
    for told in &history.told {
        match &told.done {
            Done::Put { key, .. } if !holds.keys.contains_key(key) => {
                let answer = ok(&format!("get {key}"));
                if let Some(value) = field(&answer, "value") {
                    holds.keys.insert(key.clone(), (value, number(&answer, "version")));
                }
            }
            Done::Leased { lease } => {
                let alive = !ok(&format!("renew {lease}")).starts_with("ended");
                holds.leases.extend(alive.then_some(*lease));
            }
            _ => {}
        }
    }
    let locks = ok("locks");
    for shown in locks.split('[').skip(1) {
        if shown.contains(" held ") {
            let lock = shown.split(' ').next().unwrap_or_default().to_owned();
            holds.locks.insert(lock, (number(shown, "lease"), number(shown, "token")));
        }
    }
    holds.revision = number(&ok("put load-ends here"), "revision");
    holds
}
