//! Tests that twenty clients of one lock never overlap and never starve, while clients and members are killed at
//! random.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

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
    println!(
        "storm seconds={seconds} runs={} least={} most={} longest_ms={longest_ms} lost={lost} \
         clients_killed={clients} members_killed={members} violations={met}",
        done.iter().sum::<u64>(),
        done.iter().min().unwrap(),
        done.iter().max().unwrap()
    );
    assert_eq!(met, 0, "two were at work at once");
    assert!(clients > 0, "a client was killed");
}
