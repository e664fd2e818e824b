//! Offers writes to a member in many sessions: as many at a time, or as many in a second.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use tenure_server::os;
use tenure_wire::v1::{self, answer, request::Command};

use crate::hostile::cpu;
use crate::hostile::session::{Grpc, commands, hello, response};
use crate::hostile::stage::dial;

/// How many sessions there are. A member reads no further than 1,024 unanswered requests of one, and admits 12,288
/// writes in sum: with this many sessions it is the member's budget that refuses.
const SESSIONS: u64 = 32;
/// How many threads drive them.
pub(super) const THREADS: u64 = 2;
/// How many requests are in one message, at the most.
const MESSAGE: u64 = 50;
/// More than the bytes of one write.
const WRITE: u64 = 128;
/// How many keys one session writes.
const KEYS: u64 = 500;
/// How many refusals are looked at.
const REFUSALS: usize = 10_000;
/// The pause of a thread that has nothing to do.
const IDLE: Duration = Duration::from_micros(300);

/// How much is offered.
#[derive(Clone, Copy)]
pub(super) enum OfferedLoad {
    /// So many writes are on their way at a time.
    InFlight(u64),
    /// So many are sent in a second, whatever becomes of them.
    PerSecond(u64),
}

/// What became of the writes.
#[derive(Default)]
pub(super) struct Offered {
    pub(super) sent: u64,
    /// Those that were due, but that the member did not read.
    pub(super) held_back: u64,
    pub(super) done: u64,
    pub(super) refused: u64,
    /// Refusals for another reason than lack of room.
    pub(super) wrong: Vec<String>,
    /// When to try again, as some of the refusals said.
    pub(super) retry_after_ms: Vec<u64>,
    /// The processor time of the generator.
    pub(super) cpu_us: u64,
    pub(super) time_us: u64,
}

impl Offered {
    pub(super) fn done_per_second(&self) -> u64 {
        self.done * 1_000_000 / self.time_us.max(1)
    }

    pub(super) fn sent_per_second(&self) -> u64 {
        self.sent * 1_000_000 / self.time_us.max(1)
    }

    fn add(mut self, other: Offered) -> Self {
        self.sent += other.sent;
        self.held_back += other.held_back;
        self.done += other.done;
        self.refused += other.refused;
        self.wrong.extend(other.wrong);
        self.retry_after_ms.extend(other.retry_after_ms);
        self.cpu_us += other.cpu_us;
        self.time_us = self.time_us.max(other.time_us);
        self
    }
}

struct Session {
    grpc: Grpc,
    stream: u32,
    next: u64,
    unanswered: u64,
}

impl Session {
    fn new(from: Ipv4Addr, to: SocketAddr) -> Option<Self> {
        let mut grpc = Grpc::new(dial(from, to).ok()?, &to.to_string());
        let stream = grpc.open_session();
        grpc.data(stream, &hello());
        Some(Self { grpc, stream, next: 1, unanswered: 0 })
    }

    /// Sends so many writes, if the member reads; whether it does.
    fn send(&mut self, number: u64, count: u64) -> bool {
        // Look first: encoding what is not sent would only use up the processor.
        if !self.grpc.has_room(self.stream, usize::try_from(count * WRITE).unwrap()) {
            return false;
        }
        let put = |at: u64| v1::PutRequest {
            key: format!("load/{number}/{}", at % KEYS),
            value: vec![b'x'; 64].into(),
            ..Default::default()
        };
        let puts = (self.next..self.next + count).map(|at| Command::Put(put(at)));
        self.grpc.data(self.stream, &commands(self.next, puts));
        self.next += count;
        self.unanswered += count;
        true
    }

    /// Writes and reads without waiting, and notes the answers; whether anything moved.
    fn turn(&mut self, offered: &mut Offered) -> std::io::Result<bool> {
        let moved = self.grpc.turn()?;
        if !self.grpc.is_open(self.stream) {
            return Err(std::io::Error::other("the member has ended the stream"));
        }
        for (_, message) in self.grpc.messages() {
            let Some(response) = response(&message) else { continue };
            for answer in response.answers {
                self.unanswered = self.unanswered.saturating_sub(1);
                match answer.result {
                    Some(answer::Result::Error(error)) => note(offered, *error),
                    _ => offered.done += 1,
                }
            }
        }
        Ok(moved)
    }
}

fn note(offered: &mut Offered, error: v1::Error) {
    offered.refused += 1;
    if error.reason != "OVERLOADED" {
        if offered.wrong.len() < 5 {
            offered.wrong.push(format!("{}: {}", error.reason, error.message));
        }
    } else if offered.retry_after_ms.len() < REFUSALS {
        offered.retry_after_ms.push(error.retry_after_ms);
    }
}

/// Offers writes for a time.
pub(super) fn offer(to: SocketAddr, load: OfferedLoad, time: Duration) -> Offered {
    let drivers = (0..THREADS).map(|thread| {
        let load = match load {
            OfferedLoad::InFlight(writes) => OfferedLoad::InFlight((writes / SESSIONS).max(1)),
            OfferedLoad::PerSecond(writes) => OfferedLoad::PerSecond(writes / THREADS),
        };
        std::thread::spawn(move || drive(thread, to, load, time))
    });
    let drivers: Vec<_> = drivers.collect();
    drivers.into_iter().fold(Offered::default(), |sum, it| sum.add(it.join().unwrap()))
}

fn drive(thread: u64, to: SocketAddr, load: OfferedLoad, time: Duration) -> Offered {
    let from = Ipv4Addr::new(127, 0, 1, u8::try_from(thread + 1).unwrap());
    let numbers = (0..SESSIONS / THREADS).map(|at| thread * SESSIONS / THREADS + at);
    let mut sessions: Vec<(u64, Session)> =
        numbers.filter_map(|number| Some((number, Session::new(from, to)?))).collect();
    let mut offered = Offered::default();
    let (began_us, before_us, time_us) = (os::now_us(), cpu::thread_us(), os::micros(time));
    let mut turn = 0;
    loop {
        let elapsed_us = os::now_us() - began_us;
        if elapsed_us >= time_us {
            break;
        }
        let mut moved = false;
        match load {
            OfferedLoad::InFlight(each) => {
                for (number, session) in &mut sessions {
                    let count = each.saturating_sub(session.unanswered).min(MESSAGE);
                    if count > 0 && session.send(*number, count) {
                        offered.sent += count;
                        moved = true;
                    }
                }
            }
            OfferedLoad::PerSecond(rate) => {
                let due = rate.saturating_mul(elapsed_us) / 1_000_000;
                let mut open = due.saturating_sub(offered.sent + offered.held_back);
                while open > 0 && !sessions.is_empty() {
                    let count = open.min(MESSAGE);
                    turn = (turn + 1) % sessions.len();
                    let (number, session) = &mut sessions[turn];
                    match session.send(*number, count) {
                        true => offered.sent += count,
                        false => offered.held_back += count,
                    }
                    open -= count;
                    moved = true;
                }
            }
        }
        sessions.retain_mut(|(_, session)| match session.turn(&mut offered) {
            Ok(some) => {
                moved |= some;
                true
            }
            Err(error) => {
                offered.wrong.push(format!("a session has ended: {error}"));
                false
            }
        });
        if !moved {
            std::thread::sleep(IDLE);
        }
    }
    offered.time_us = os::now_us() - began_us;
    offered.cpu_us = cpu::thread_us() - before_us;
    offered
}
