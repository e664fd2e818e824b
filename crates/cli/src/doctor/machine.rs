//! Checks this machine's clocks and scheduling, and the sync latency of its disk.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use rustix::time::{ClockId, Timespec, clock_gettime};
use tenure_server::os;

use super::Finding;
use crate::duration;

/// How long the two clocks are compared.
const COMPARE: Duration = Duration::from_millis(300);
/// The rate difference that the SDK allows for, and the one from which the doctor warns.
const ALLOWED_PPM: f64 = 10_000.0;
const ODD_PPM: f64 = 600.0;
/// The number and length of measured naps, and how late one may end.
const NAPS: u32 = 20;
const NAP: Duration = Duration::from_millis(2);
const LATE: Duration = Duration::from_millis(100);
/// The number of measured syncs, and the bytes written before each.
const SYNCS: usize = 50;
const SYNC_BYTES: usize = 4_096;
/// A sync above the first bound delays every client; one above the second provokes elections.
const SLOW_US: u64 = 20_000;
const TOO_SLOW_US: u64 = 250_000;

/// Checks that clocks run evenly and that the scheduler wakes this process in time.
pub(super) fn clocks() -> Vec<Finding> {
    vec![rate(), stalls(), source()]
}

fn rate() -> Finding {
    let read = || {
        (seconds(clock_gettime(ClockId::Boottime)), seconds(clock_gettime(ClockId::MonotonicRaw)))
    };
    let (boot, raw) = read();
    std::thread::sleep(COMPARE);
    let (boot_after, raw_after) = read();
    let (boot, raw) = (boot_after - boot, raw_after - raw);
    let ppm = if raw > 0.0 { ((boot - raw) / raw * 1e6).abs() } else { f64::INFINITY };
    let detail = format!("the clock runs within {ppm:.0} ppm of the hardware's");
    if ppm > ALLOWED_PPM {
        let next =
            "let one time service alone set this machine's clock; no lease is safe here before";
        Finding::bad("clock", detail, next)
    } else if ppm > ODD_PPM {
        let next = "look at the time service; up to 10000 ppm are allowed for";
        Finding::warn("clock", detail, next)
    } else {
        Finding::ok("clock", detail)
    }
}

fn stalls() -> Finding {
    let mut worst = Duration::ZERO;
    for _ in 0..NAPS {
        let before_us = os::now_us();
        std::thread::sleep(NAP);
        let took = Duration::from_micros(os::now_us().saturating_sub(before_us));
        worst = worst.max(took.saturating_sub(NAP));
    }
    let detail = format!("woken at most {} late", duration::shown(worst));
    if worst > LATE {
        Finding::warn("stalls", detail, "give this machine more processor, or leases a longer ttl")
    } else {
        Finding::ok("stalls", detail)
    }
}

fn source() -> Finding {
    let path = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    match fs::read_to_string(path) {
        Ok(name) if matches!(name.trim(), "jiffies" | "refined-jiffies" | "acpi_pm") => {
            Finding::warn(
                "source",
                format!("clock source {}", name.trim()),
                "it is slow and coarse; let the kernel use tsc or the hypervisor's clock",
            )
        }
        Ok(name) => Finding::ok("source", format!("clock source {}", name.trim())),
        Err(_) => Finding::ok("source", "the kernel does not say which clock it uses"),
    }
}

/// Measures how long syncs take on a disk.
pub(super) fn disk(dir: &Path) -> Finding {
    match syncs(dir) {
        Err(error) => Finding::bad(
            "disk",
            format!("cannot write in {}: {error}", dir.display()),
            "another directory, or the rights to write there",
        ),
        Ok(mut times) => {
            times.sort_unstable();
            let (median, worst) = (times[times.len() / 2], times[times.len() - 1]);
            let shown = |us| duration::shown(Duration::from_micros(us));
            let detail = format!(
                "a sync takes {}, {} at most of {SYNCS}, in {}",
                shown(median),
                shown(worst),
                dir.display()
            );
            if worst > TOO_SLOW_US {
                Finding::bad("disk", detail, "a disk of its own for the data: elections are near")
            } else if worst > SLOW_US {
                Finding::warn("disk", detail, "a faster disk, or one that no other program uses")
            } else {
                Finding::ok("disk", detail)
            }
        }
    }
}

fn syncs(dir: &Path) -> std::io::Result<Vec<u64>> {
    let path = dir.join(format!(".tenure-doctor-{:016x}", os::random()));
    let file = OpenOptions::new().write(true).create_new(true).open(&path)?;
    let measured = measure(file);
    fs::remove_file(&path)?;
    measured
}

fn measure(mut file: File) -> std::io::Result<Vec<u64>> {
    // Allocate the file first: the log, too, writes into an allocated file.
    file.write_all(&vec![0; SYNCS * SYNC_BYTES])?;
    file.sync_all()?;
    std::io::Seek::rewind(&mut file)?;
    let mut times = Vec::new();
    for _ in 0..SYNCS {
        file.write_all(&[7; SYNC_BYTES])?;
        let before_us = os::now_us();
        file.sync_data()?;
        times.push(os::now_us().saturating_sub(before_us));
    }
    Ok(times)
}

fn seconds(time: Timespec) -> f64 {
    let nanos = Duration::from_nanos(u64::try_from(time.tv_nsec).unwrap_or(0));
    Duration::from_secs(u64::try_from(time.tv_sec).unwrap_or(0)).as_secs_f64() + nanos.as_secs_f64()
}
