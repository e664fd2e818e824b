//! Offers a member ten times the writes that it can do, while honest clients keep leases and take locks.
//!
//! In the test this takes a few seconds, and only safety counts: no lease is lost, and every refusal says when to try
//! again. With `TENURE_OVERLOAD_SECONDS` it is a campaign with an overload of that length. The generator shares the
//! machine with the member. So the goodput is compared with the most that the member does afterwards, while threads of
//! this process burn as much processor time as the generator needed.

mod generator;

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use tenure_server::os;

use crate::hostile::honest::{Crowd, Honest};
use crate::hostile::stage::AttackedCluster;
use crate::hostile::{BUDGET_KB, BURNT, cpu};
use generator::{Offered, OfferedLoad, THREADS, offer};

/// How many writes are on their way at a time when the capacity is measured; the best counts.
const LEVELS: [u64; 5] = [64, 256, 1_024, 4_096, 8_192];
/// How much more than its capacity the member is offered.
const TIMES: u64 = 10;
/// The part of its peak that the member keeps, in percent.
const GOODPUT: u64 = 90;
/// How soon after the overload a write is as quick as it was before.
const RECOVERY_MS: u64 = 1_000;
/// How quick a write is when the member has recovered, and how many in a row must be so.
const QUICK: Duration = Duration::from_millis(50);
const QUICK_WRITES: u32 = 10;
/// How long a probe waits for its answer.
const PROBE: Duration = Duration::from_secs(10);
/// How many refusals say for sure whether they differ, and into how many values they must differ then.
const ENOUGH: usize = 100;
const VALUES: usize = 10;
const TTL: Duration = Duration::from_secs(15);

/// The answer to one write over HTTP.
struct Probed {
    status: u16,
    retry_after: Option<u64>,
    took_us: u64,
}

/// Writes a key over a connection of its own.
fn probe(to: SocketAddr) -> Option<Probed> {
    let asked_us = os::now_us();
    let mut stream = TcpStream::connect(to).ok()?;
    stream.set_read_timeout(Some(PROBE)).ok()?;
    let put = format!(
        "PUT /v1/keys/probe HTTP/1.1\r\nHost: {to}\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx"
    );
    stream.write_all(put.as_bytes()).ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    let status = text.split(' ').nth(1)?.parse().ok()?;
    let head = text.split("\r\n\r\n").next()?.to_lowercase();
    let value = head.lines().find_map(|line| line.strip_prefix("retry-after:"));
    let retry_after = value.and_then(|value| value.trim().parse().ok());
    Some(Probed { status, retry_after, took_us: os::now_us() - asked_us })
}

/// How long after now writes are quick again, if they are within a minute.
fn recovery_ms(to: SocketAddr) -> Option<u64> {
    let began_us = os::now_us();
    let (mut row, mut first_us) = (0, began_us);
    while os::now_us() < began_us + 60_000_000 {
        let asked_us = os::now_us();
        let is_quick =
            probe(to).is_some_and(|it| it.status == 200 && it.took_us < os::micros(QUICK));
        if !is_quick {
            row = 0;
            continue;
        }
        if row == 0 {
            first_us = asked_us;
        }
        row += 1;
        if row == QUICK_WRITES {
            return Some((first_us - began_us) / 1_000);
        }
    }
    None
}

/// Asks over HTTP from time to time, and returns the refusals that do not say when to try again.
fn refusals_over_http(to: SocketAddr, time: Duration) -> Vec<String> {
    let until_us = os::now_us() + os::micros(time);
    let mut bad = Vec::new();
    while os::now_us() < until_us {
        let refused = probe(to).filter(|it| it.status == 503);
        if refused.is_some_and(|it| it.retry_after.is_none_or(|seconds| seconds == 0)) {
            bad.push("503 without Retry-After".to_owned());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    bad
}

/// The most writes in a second while a given processor time is burnt beside them, and which part of it was, in percent.
fn peak(to: SocketAddr, in_flight: u64, burnt_us_per_s: u64, time: Duration) -> (Offered, u64) {
    std::thread::scope(|scope| {
        let all_us = burnt_us_per_s.saturating_mul(os::micros(time)) / 1_000_000;
        let burner = scope.spawn(move || cpu::burn(all_us, THREADS, time));
        let offered = offer(to, OfferedLoad::InFlight(in_flight), time);
        let burnt_us = burner.join().unwrap();
        (offered, (burnt_us * 100).checked_div(all_us).unwrap_or(100))
    })
}

/// What is wrong with the times that refusals gave.
fn bad_retries(retry_after_ms: &[u64]) -> Vec<String> {
    let mut bad = Vec::new();
    if let Some(useless) = retry_after_ms.iter().find(|it| !(1..=60_000).contains(*it)) {
        bad.push(format!("a refusal says to try again after {useless} ms"));
    }
    let values: BTreeSet<&u64> = retry_after_ms.iter().collect();
    if retry_after_ms.len() >= ENOUGH && values.len() < VALUES {
        bad.push(format!("{} refusals have {} values", retry_after_ms.len(), values.len()));
    }
    bad
}

#[test]
fn a_member_that_is_offered_ten_times_its_capacity_keeps_all_leases() {
    os::raise_open_files();
    let seconds = std::env::var("TENURE_OVERLOAD_SECONDS").ok();
    let seconds: Option<u64> = seconds.map(|it| it.parse().expect("a number of seconds"));
    let (clients, leases) = if seconds.is_some() { (8, 10_000) } else { (2, 200) };
    let mut stage = AttackedCluster::start(1);
    let crowd = Crowd { clients, leases, ttl: TTL };
    let honest = Honest::start(&stage.addresses(), crowd);
    let to = stage.target().leader;
    let (level_time, time) = match seconds {
        Some(seconds) => (Duration::from_secs(4), Duration::from_secs(seconds)),
        None => (Duration::from_millis(300), Duration::from_secs(2)),
    };
    let mut best = (0, 0, 0);
    for in_flight in LEVELS {
        let offered = offer(to, OfferedLoad::InFlight(in_flight), level_time);
        best = best.max((offered.done_per_second(), in_flight, offered.cpu_us));
    }
    let (capacity, in_flight, closed_us) = best;
    let rate = (capacity * TIMES).max(1_000);
    honest.results.take_renewals_us();
    let (overload, mut bad) = std::thread::scope(|scope| {
        let http = scope.spawn(move || refusals_over_http(to, time));
        let overload = offer(to, OfferedLoad::PerSecond(rate), time);
        (overload, http.join().unwrap())
    });
    let recovery_ms = recovery_ms(to);
    let renewals_us = honest.results.take_renewals_us();
    let renewal_p99_us = renewals_us.get(renewals_us.len() * 99 / 100).copied().unwrap_or(0);
    // What the generator needs more in an overload than when it measures the peak.
    let open_us_per_s = overload.cpu_us * 1_000_000 / overload.time_us.max(1);
    let closed_us_per_s = closed_us * 1_000_000 / os::micros(level_time);
    let burnt_us = open_us_per_s.saturating_sub(closed_us_per_s);
    let (control, burnt_pct) = peak(to, in_flight, burnt_us, level_time * 2);
    let control = control.done_per_second();
    let told = honest.stop();
    bad.extend(bad_retries(&overload.retry_after_ms));
    bad.extend(overload.wrong.iter().cloned());
    bad.extend(told.wrong());
    bad.extend(stage.complaints());
    if stage.grown_kb() > BUDGET_KB {
        bad.push(format!("the member needs {} KiB more", stage.grown_kb()));
    }
    let goodput = overload.done_per_second();
    let percent = goodput * 100 / control.max(1);
    if seconds.is_some() {
        if percent < GOODPUT {
            bad.push(format!("the goodput is {percent} % of the peak"));
        }
        if burnt_pct < BURNT {
            bad.push(format!("the control burnt only {burnt_pct} %"));
        }
        if u128::from(renewal_p99_us) > (TTL / 6).as_micros() || told.late() > 0 {
            bad.push(format!("renewals take {renewal_p99_us} us, {} are late", told.late()));
        }
        if recovery_ms.is_none_or(|it| it > RECOVERY_MS) {
            bad.push(format!("recovered after {recovery_ms:?} ms"));
        }
    }
    let lost = told.lost();
    let violations = bad.len() as u64 + lost;
    // What the member read of it: it stops reading sessions with many unanswered requests, and the rest stays with the
    // generator.
    let sent_pct = overload.sent_per_second() * 100 / capacity.max(1);
    println!(
        "overload seconds={} capacity_per_s={capacity} offered_per_s={rate} sent={} sent_pct={sent_pct} held_back={} \
         refused={} goodput_per_s={goodput} control_per_s={control} goodput_pct={percent} burnt_pct={burnt_pct} \
         renewal_p99_us={renewal_p99_us} leases={leases} lost={lost} recovery_ms={} memory_mb={} \
         violations={violations}",
        time.as_secs(),
        overload.sent,
        overload.held_back,
        overload.refused,
        recovery_ms.unwrap_or(u64::MAX),
        stage.memory_kb() / 1024,
    );
    assert!(violations == 0, "{bad:#?}\n{}", stage.logs());
}
