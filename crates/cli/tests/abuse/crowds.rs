//! Tests that thousands of well-behaved clients at a time do not disturb others.

use std::io::{Read, Write};
use std::net::TcpStream;

use tenure_server::os;

use crate::common::{ask, wait};
use crate::raw::pour;
use crate::victim::Victim;

/// How many connections send nothing.
const IDLE: usize = 5_000;
/// How many clients wait for a lock, and how many watch.
const WAITING: usize = 2_000;
/// After this many dials the test checks how many connections the member holds.
const CHECKED_EVERY: usize = 100;
/// What one connection may cost: buffers, a task, a place in a queue.
const ONE_KB: u64 = 64;

/// The wanted number of connections, limited to what the system lets this process open.
fn possible(wanted: usize) -> usize {
    let files = os::raise_open_files().and_then(|files| usize::try_from(files).ok());
    wanted.min(files.unwrap_or(usize::MAX).saturating_sub(512) / 2)
}

#[test]
fn five_thousand_idle_connections_are_held_and_then_closed() {
    let victim = Victim::start();
    let number = possible(IDLE);
    let files = victim.files();
    victim.withstand(number as u64 * ONE_KB, || {
        // On a busy machine the member closes the first connections before the last ones are open.
        let (mut idle, mut most) = (Vec::<TcpStream>::new(), 0);
        for dialled in 0..number {
            idle.push(victim.dial());
            if dialled % CHECKED_EVERY == 0 {
                most = victim.files().max(most);
            }
        }
        wait("they are let in", || {
            most = victim.files().max(most);
            (most >= files + number / 5).then_some(())
        });
        for stream in &mut idle {
            assert_eq!(stream.read(&mut [0; 1]).unwrap_or(0), 0, "it hangs up without a word");
        }
        wait("all are gone", || (victim.files() < files + 64).then_some(()));
    });
}

#[test]
fn thousands_wait_for_locks_and_watch() {
    let victim = Victim::start();
    let address = victim.address();
    let number = possible(2 * WAITING) / 2;
    let port = address.port();
    let files = victim.files();
    assert!(ask(port, "lease 900000 3600000 holder").unwrap().starts_with("ok"));
    assert!(ask(port, "lock 900000 wanted").unwrap().starts_with("ok"));
    victim.withstand(2 * number as u64 * ONE_KB, || {
        let body = r#"{"new_lease":{"ttl_ms":600000}}"#;
        let head = "Content-Type: application/json\r\n";
        let wait_for = format!(
            "POST /v1/locks/wanted?wait=60s HTTP/1.1\r\nHost: {address}\r\n{head}Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let watch = format!("GET /v1/watch?prefix=nothing HTTP/1.1\r\nHost: {address}\r\n\r\n");
        let mut crowd = Vec::new();
        for _ in 0..number {
            for asked in [&wait_for, &watch] {
                let mut stream = victim.dial();
                pour(&mut stream, asked.as_bytes()).unwrap();
                crowd.push(stream);
            }
        }
        let waiting = format!("waiting={number}");
        wait("all wait", || {
            let locks = ask(port, "locks wanted")?;
            locks.contains(&waiting).then_some(())
        });
        // A watch has begun to answer.
        let mut answer = [0; 15];
        crowd[1].read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"HTTP/1.1 200 OK");
        for stream in &mut crowd {
            let _ = stream.flush();
        }
        drop(crowd);
        wait("all are gone", || (victim.files() < files + 64).then_some(()));
    });
    wait("no client waits any more", || {
        (!ask(port, "locks wanted")?.contains("waiting=1")).then_some(())
    });
}
