//! Tests that twenty clients of one lock never overlap and never starve, while clients and members are killed at
//! random, and that the archives of the members show no broken promise afterwards.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use serde_json::Value;
use tenure_server::os;

use crate::common::{TENURE, wait};
use crate::job::{self, Role};
use crate::world::World;

const WORKERS: usize = 20;
/// How long the exclusive work takes.
const WORK: Duration = Duration::from_millis(20);
const STEP: Duration = Duration::from_millis(5);
const MOST: Duration = Duration::from_millis(1_200);

/// The work: checks with the file system that it runs alone.
pub(crate) fn alone(dir: &Path) {
    let path = dir.join("inside");
    let file = match File::create_new(&path) {
        Ok(file) => file,
        // Another process was killed inside, or is still there: a live one holds a lock on the file.
        Err(error) if error.kind() == ErrorKind::AlreadyExists => File::open(&path).unwrap(),
        Err(error) => panic!("{error}"),
    };
    if file.try_lock().is_err() {
        fs::write(dir.join(format!("met-{}", std::process::id())), "two at once").unwrap();
    }
    std::thread::sleep(WORK);
    let _ = fs::remove_file(&path);
}

/// How long the storm lasts: as long as a campaign sets, or a few seconds.
fn seconds() -> u64 {
    let seconds = std::env::var("TENURE_STORM_SECONDS").ok();
    seconds.map_or(10, |seconds| seconds.parse().expect("TENURE_STORM_SECONDS is a number"))
}

/// A client that asks for the lock again and again.
#[derive(Default)]
struct Worker {
    now: Mutex<Option<Child>>,
    done: AtomicU64,
    lost: AtomicU64,
    /// When it last had its turn, and the longest time between two turns.
    last_us: AtomicU64,
    longest_us: AtomicU64,
}

impl Worker {
    fn work(&self, number: usize, addresses: &str, dir: &Path, over: &AtomicBool) {
        self.last_us.store(os::now_us(), Ordering::Relaxed);
        while !over.load(Ordering::Acquire) {
            let mut command = Command::new(TENURE);
            let name = format!("w{number}");
            command.args(["run", "storm", "--ttl", "2s", "--addr", addresses, "--client", &name]);
            command.arg("--").args(job::program()).envs(job::environment(Role::Alone, dir));
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            *self.now.lock().unwrap() = Some(command.spawn().unwrap());
            let code = loop {
                let mut now = self.now.lock().unwrap();
                if let Some(status) = now.as_mut().unwrap().try_wait().unwrap() {
                    *now = None;
                    break status.code();
                }
                drop(now);
                std::thread::sleep(STEP);
            };
            match code {
                Some(0) => self.served(),
                Some(76) => drop(self.lost.fetch_add(1, Ordering::Relaxed)),
                // It was killed, or no member led for a while: it asks again.
                None | Some(69 | 74 | 75) => {}
                Some(other) => panic!("worker {number} ended with {other}"),
            }
        }
    }

    fn served(&self) {
        let now_us = os::now_us();
        let took_us = now_us - self.last_us.swap(now_us, Ordering::Relaxed);
        self.longest_us.fetch_max(took_us, Ordering::Relaxed);
        self.done.fetch_add(1, Ordering::Relaxed);
    }

    /// Kills it as `kill -9` does. Returns whether there was a process.
    fn kill(&self) -> bool {
        self.now.lock().unwrap().as_mut().is_some_and(|child| child.kill().is_ok())
    }
}

/// A client that takes a lock of its own again and again and falls silent each time, so that its leases run out.
fn fall_silent(addresses: &str, over: &AtomicBool) {
    let tenure = |arguments: &[&str]| {
        let mut command = Command::new(TENURE);
        command.args(arguments).args(["--addr", addresses, "--output", "json"]);
        command.stdin(Stdio::null()).stderr(Stdio::null()).output().unwrap()
    };
    while !over.load(Ordering::Acquire) {
        let granted = tenure(&["lease", "grant", "--ttl", "1s", "--client", "silent"]);
        let granted: Value = serde_json::from_slice(&granted.stdout).unwrap_or_default();
        let Some(lease) = granted["lease"].as_str() else { continue };
        // Refused while the lease before has not run out, and while no member leads.
        tenure(&["try", "silent", "--lease", lease]);
    }
}

/// Checks the archives of all members together, as a user would. Returns its last line.
fn verify(world: &mut World) -> Value {
    let mut command = Command::new(TENURE);
    command.args(["history", "--output", "json", "--verify"]);
    for at in 0..3 {
        // Nothing is written while the archives are read.
        world.cluster.kill(at);
        command.arg(world.cluster.data(at));
    }
    let checked = command.stdin(Stdio::null()).output().unwrap();
    let text = String::from_utf8(checked.stdout).unwrap();
    let broken: Vec<&str> = text.lines().filter(|line| line.contains("\"detail\"")).collect();
    assert_eq!(checked.status.code(), Some(0), "{broken:#?}");
    serde_json::from_str(text.lines().last().unwrap()).unwrap()
}

fn random(below: u64) -> u64 {
    os::random() % below
}

#[test]
fn twenty_who_want_one_lock_never_meet_and_none_starves() {
    let seconds = seconds();
    let mut world = World::new(3);
    let (dir, addresses) = (crate::world::scratch(), world.addresses());
    let workers: Vec<Worker> = (0..WORKERS).map(|_| Worker::default()).collect();
    let over = AtomicBool::new(false);
    let (mut clients, mut members) = (0, 0);
    std::thread::scope(|scope| {
        for (number, worker) in workers.iter().enumerate() {
            let (addresses, dir, over) = (&addresses, dir.path(), &over);
            scope.spawn(move || worker.work(number, addresses, dir, over));
        }
        scope.spawn(|| fall_silent(&addresses, &over));
        let began_us = os::now_us();
        let mut down: Option<(usize, u64)> = None;
        let bar = indicatif::ProgressBar::new(seconds);
        while os::now_us() < began_us + seconds * 1_000_000 {
            let pause = random(u64::try_from(MOST.as_millis()).unwrap());
            std::thread::sleep(Duration::from_millis(pause));
            bar.set_position((os::now_us() - began_us) / 1_000_000);
            let victim = usize::try_from(random(WORKERS as u64)).unwrap();
            clients += u64::from(workers[victim].kill());
            down = match down {
                Some((at, until_us)) if os::now_us() > until_us => {
                    world.cluster.start(at, &[]);
                    None
                }
                None if random(4) == 0 => {
                    let at = usize::try_from(random(3)).unwrap();
                    world.cluster.kill(at);
                    members += 1;
                    Some((at, os::now_us() + 1_000_000))
                }
                as_it_is => as_it_is,
            };
        }
        if let Some((at, _)) = down {
            world.cluster.start(at, &[]);
        }
        bar.finish_and_clear();
        // Every client that has not had a turn since the storm ended gets one.
        let before: Vec<u64> = workers.iter().map(|it| it.done.load(Ordering::Relaxed)).collect();
        wait("every client has a turn", || {
            let turn =
                |(worker, before): (&Worker, &u64)| worker.done.load(Ordering::Relaxed) > *before;
            workers.iter().zip(&before).all(turn).then_some(())
        });
        over.store(true, Ordering::Release);
    });
    let count = |what: fn(&Worker) -> &AtomicU64| -> Vec<u64> {
        workers.iter().map(|it| what(it).load(Ordering::Relaxed)).collect()
    };
    let done = count(|it| &it.done);
    let lost: u64 = count(|it| &it.lost).iter().sum();
    let longest_ms = count(|it| &it.longest_us).iter().max().unwrap() / 1_000;
    let met = fs::read_dir(dir.path()).unwrap().flatten();
    let met = met.filter(|it| it.file_name().to_string_lossy().starts_with("met-")).count();
    let archives = verify(&mut world);
    println!(
        "storm seconds={seconds} runs={} least={} most={} longest_ms={longest_ms} lost={lost} \
         clients_killed={clients} members_killed={members} violations={met} archived={} broken={} margins={} \
         margin_p50_ms={} margin_p99_ms={} margin_min_ms={}",
        done.iter().sum::<u64>(),
        done.iter().min().unwrap(),
        done.iter().max().unwrap(),
        archives["revisions"],
        archives["broken"],
        archives["margins"],
        archives["margin_p50_ms"],
        archives["margin_p99_ms"],
        archives["smallest_margin_ms"],
    );
    assert_eq!(met, 0, "two were at work at once");
    assert_eq!(archives["broken"], 0, "{archives}");
    assert!(archives["margins"].as_u64().unwrap() > 0, "leases ran out: {archives}");
    assert!(archives["smallest_margin_ms"].as_i64().unwrap() >= 0, "{archives}");
    assert!(clients > 0, "a client was killed");
}
