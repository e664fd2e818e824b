//! How many durable batches does this disk take in a second, and how long is the log then opened?
//!
//! ```console
//! $ cargo run --release -p tenure-store --example measure -- /var/tmp
//! ```

// An example measures; nothing it does is decided by the clock.
#![allow(clippy::disallowed_methods)]

use std::{
    error::Error,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use tenure_store::{Batch, Entry, Log, Options, RealDisk};

const FOR: Duration = Duration::from_millis(1500);
const PAYLOAD_BYTES: usize = 64;

fn main() -> Result<(), Box<dyn Error>> {
    let above = std::env::args().nth(1).unwrap_or_else(|| ".".into());
    println!("{PAYLOAD_BYTES} byte payloads, one write and one sync for each batch");
    for per_batch in [1, 64, 1000] {
        let dir = tempfile::tempdir_in(&above)?;
        let disk = Arc::new(RealDisk::new(dir.path()));
        let (mut log, _) = Log::open(disk.clone(), Options::default())?;
        let payload: bytes::Bytes = vec![7; PAYLOAD_BYTES].into();
        let mut took = Vec::new();
        let mut preparing: Option<thread::JoinHandle<_>> = None;
        let began = Instant::now();
        while began.elapsed() < FOR {
            // The next segment is made beside, as a server would.
            if preparing.as_ref().is_some_and(thread::JoinHandle::is_finished) {
                let prepared = preparing.take().map(thread::JoinHandle::join);
                if let Some(Ok(Ok(prepared))) = prepared {
                    log.adopt(prepared)?;
                }
            } else if preparing.is_none()
                && let Some(preparation) = log.preparation()
            {
                preparing = Some(thread::spawn(move || preparation.run()));
            }
            let first = log.last_index() + 1;
            let entries: Vec<_> = (first..first + per_batch)
                .map(|index| Entry { index, term: 1, kind: 0, payload: payload.clone() })
                .collect();
            let start = Instant::now();
            log.write(&Batch { entries: &entries, ..Batch::default() })?;
            log.sync()?;
            took.push(start.elapsed());
        }
        let per_second = took.len() as f64 / began.elapsed().as_secs_f64();
        took.sort_unstable();
        let (p50, p99) = (took[took.len() / 2], took[took.len() * 99 / 100]);
        print!("{per_batch:>5} entries: {per_second:>7.0} batches/s, p50 {p50:?}, p99 {p99:?}");
        drop((preparing.map(thread::JoinHandle::join), log));
        let start = Instant::now();
        let (log, found) = Log::open(disk, Options::default())?;
        let (entries, took) = (log.last_index(), start.elapsed());
        println!("; {entries} entries in {} segments opened in {took:?}", found.segments);
    }
    Ok(())
}
