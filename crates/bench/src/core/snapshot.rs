//! Measures how long the machine stops for a snapshot, and how long writing and reading one takes.

use tenure_core::request::AskWait;
use tenure_core::{Machine, SnapshotReader};

use super::load::{Load, acquire, encoded};
use crate::clock::timed;
use crate::run_results::RunResults;

pub(crate) fn measure(scale: u64, results: &mut RunResults) {
    let locks = 1_000_000 / scale;
    let mut load = Load::new();
    let leases = load.leases(1_000, 3_600_000);
    let names: Vec<String> = (0..locks).map(|lock| format!("jobs/import/{lock:08}")).collect();
    let asks: Vec<Vec<u8>> = names
        .iter()
        .zip(leases.iter().cycle())
        .map(|(name, &lease)| encoded(acquire(lease, name, AskWait::No)))
        .collect();
    load.apply_all(&asks);
    let (frozen, stop) = timed(|| load.machine.freeze());
    results.add(
        "freeze_ms",
        stop.as_secs_f64() * 1e3,
        format!("ms the machine stops, {locks} held locks"),
    );
    let mut pieces: Vec<Vec<u8>> = Vec::new();
    let (hash, writing) = timed(|| frozen.write(&mut |piece| pieces.push(piece.to_vec())));
    results.add(
        "snapshot_write_ms",
        writing.as_secs_f64() * 1e3,
        "ms to write it, beside the machine",
    );
    let bytes: usize = pieces.iter().map(Vec::len).sum();
    results.add("snapshot_mib", bytes as f64 / f64::from(1 << 20), "MiB, history included");
    let (machine, reading) = timed(|| read(&pieces));
    assert_eq!(machine.full_hash(), hash, "the snapshot reads back");
    results.add("snapshot_read_ms", reading.as_secs_f64() * 1e3, "ms to read and check it");
}

fn read(pieces: &[Vec<u8>]) -> Machine {
    let mut reader = SnapshotReader::default();
    for piece in pieces {
        reader.push(piece).expect("a snapshot just written is well-formed");
    }
    reader.finish().expect("a snapshot just written is consistent")
}
