//! Tests that a lease lives as long as it should, and no longer, while leaders are killed.
//!
//! Some clients renew, and no answer may say that their lease has ended. Others fall silent. Their lease must not end
//! before its ttl, by their clock and by the state machine's. It must have ended after the ttl, the leaderless time,
//! and one checkpoint for every change of leader.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tenure_server::os;

use crate::common::client::{Client, ClientReply, number};
use crate::common::watch::{ObservedLease, Watch};
use crate::common::{Cluster, kills, progress, wait};

const TTL_MS: u64 = 3_000;
/// How many leases each renewing client has.
const RENEWED: u64 = 8;
/// How many clients renew, and how many fall silent.
const RENEWERS: u64 = 3;
const SILENT: u64 = 8;
/// The kills outside a campaign: enough to see that it works.
const KILLS: usize = 3;
/// The bound on the median that a campaign checks, from this many kills on.
const FAILOVER_MEDIAN_MS: u64 = 1_000;
const FAILOVERS_MIN: usize = 20;

/// The counters of a run.
#[derive(Default)]
struct Counts {
    stop: AtomicBool,
    renewals: AtomicU64,
    /// Leases that ended before their time.
    early: AtomicU64,
}

#[test]
fn leases_live_their_time_while_leaders_are_killed() {
    let kills = kills(KILLS);
    let mut cluster = Cluster::found(3);
    let members = cluster.addresses();
    let watch = Watch::begin(&members);
    let counts = Arc::new(Counts::default());
    let renewers: Vec<_> = (0..RENEWERS)
        .map(|number| {
            let (members, counts) = (members.clone(), counts.clone());
            std::thread::spawn(move || keep_renewing(members, number, &counts))
        })
        .collect();
    let silent: Vec<_> = (0..SILENT)
        .map(|number| {
            let (members, counts) = (members.clone(), counts.clone());
            std::thread::spawn(move || fall_silent(&members, number, &counts))
        })
        .collect();

    let mut failovers_us = kill_leaders(&mut cluster, kills);
    counts.stop.store(true, Ordering::Release);
    renewers.into_iter().for_each(|renewer| renewer.join().unwrap());
    let leases: Vec<ObservedLease> =
        silent.into_iter().flat_map(|one| one.join().unwrap()).collect();
    cluster.agree(&[0, 1, 2]);

    let judged = watch.end().judge(&leases, TTL_MS);
    let early = counts.early.load(Ordering::Acquire) + judged.early;
    failovers_us.sort_unstable();
    let median_ms = failovers_us[failovers_us.len() / 2] / 1_000;
    let p99_ms = failovers_us[failovers_us.len() * 99 / 100] / 1_000;
    let renewals = counts.renewals.load(Ordering::Acquire);
    let slow = failovers_us.len() >= FAILOVERS_MIN && median_ms >= FAILOVER_MEDIAN_MS;
    let violations = early + judged.late + u64::from(slow);
    println!(
        "kills kills={kills} renewed={} renewals={renewals} silent={} early={early} late={} \
         stretch_ms={} overshoot_ms={} leaderless_ms={} failover_median_ms={median_ms} failover_p99_ms={p99_ms} \
         violations={violations}",
        RENEWERS * RENEWED,
        leases.len(),
        judged.late,
        judged.stretch_ms,
        judged.overshoot_ms,
        judged.leaderless_ms,
    );
    assert!(renewals > 0 && leases.len() >= kills, "{renewals} renewals, {} leases", leases.len());
    assert_eq!(violations, 0, "{:#?}", judged.said);
}

/// Kills one leader after another. Returns how long each time passed until the next one had committed a write.
fn kill_leaders(cluster: &mut Cluster, kills: usize) -> Vec<u64> {
    let bar = progress(kills);
    let mut took_us = Vec::new();
    for kill in 0..kills {
        let leader = cluster.leader();
        let applied = number(&cluster.ask(leader, "status").unwrap_or_default(), "applied");
        wait("all members are there", || {
            (0..3)
                .all(|at| {
                    let status = cluster.ask(at, "status");
                    status.is_some_and(|status| number(&status, "applied") >= applied)
                })
                .then_some(())
        });
        // Kill at a random time, so that leases are in every phase of their life.
        std::thread::sleep(Duration::from_millis(os::random() % 1_500));
        let leader = cluster.leader();
        let others: Vec<SocketAddr> =
            (0..3).filter(|at| *at != leader).map(|at| cluster.address(at)).collect();
        let killed_us = os::now_us();
        cluster.kill(leader);
        let mut client = Client::new(others, Duration::from_secs(2));
        wait("another leads", || {
            matches!(client.say(&format!("put kill {kill}")), ClientReply::Ok(_)).then_some(())
        });
        took_us.push(os::now_us() - killed_us);
        cluster.start(leader, &[]);
        bar.inc(1);
    }
    bar.finish_and_clear();
    took_us
}

/// Renews leases until the run stops; none of them may end.
fn keep_renewing(members: Vec<SocketAddr>, number: u64, counts: &Counts) {
    let mut client = Client::new(members, Duration::from_secs(1));
    let ids = (1..=RENEWED).map(|lease| (number + 1) * 100 + lease);
    let ids: Vec<u64> = ids.collect();
    // When the last renewal that is known to be done began, for all of these leases.
    let mut since_us = u64::MAX;
    for id in &ids {
        let line = format!("lease {id} {TTL_MS} renewer-{number}");
        since_us = since_us.min(os::now_us());
        let granted = client.insist(&line, || false);
        granted.expect("it insists").expect("a lease is granted");
    }
    let words: Vec<String> = ids.iter().map(ToString::to_string).collect();
    let line = format!("renew {}", words.join(" "));
    while !counts.stop.load(Ordering::Acquire) {
        let asked_us = os::now_us();
        match client.say(&line) {
            ClientReply::Ok(answer) if answer.contains("ended") => {
                // A lease that was not renewed for longer than the ttl may have ended.
                assert!(os::now_us() < since_us + TTL_MS * 1_000, "no renewal got through in time");
                counts.early.fetch_add(1, Ordering::AcqRel);
                return;
            }
            ClientReply::Ok(_) => {
                since_us = asked_us;
                counts.renewals.fetch_add(RENEWED, Ordering::AcqRel);
                std::thread::sleep(Duration::from_millis(TTL_MS / 6));
            }
            ClientReply::Refused(why) => panic!("{line}: refused {why}"),
            ClientReply::NotDone(_) | ClientReply::Unknown => {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }
}

/// Takes leases and lets them expire, again and again.
fn fall_silent(members: &[SocketAddr], number: u64, counts: &Counts) -> Vec<ObservedLease> {
    let mut client = Client::new(members.to_vec(), Duration::from_secs(1));
    // A deposed leader waits for an answer that never comes: ask the next member soon.
    let mut reader = Client::new(members.to_vec(), Duration::from_millis(250));
    let mut observed = Vec::new();
    for turn in 0.. {
        if counts.stop.load(Ordering::Acquire) {
            break;
        }
        let lease = 10_000 + turn * 100 + number;
        let lock = format!("silent/{lease}");
        let lines = [
            format!("lease {lease} {TTL_MS} silent-{number}"),
            format!("lock {lease} {lock} queue"),
        ];
        let decided: Vec<_> = lines.iter().map(|line| client.insist(line, || false)).collect();
        if decided.iter().any(|decided| !matches!(decided, Some(Ok(_)))) {
            // The lease ended before it held anything, which only a long search for a leader explains.
            continue;
        }
        std::thread::sleep(Duration::from_millis(os::random() % 500));
        let Some((asked_us, told_us)) = renew_once(&mut client, lease) else { continue };
        let (gone_us, revision) = loop {
            if let ClientReply::Ok(answer) = reader.say(&format!("locks {lock}"))
                && answer.starts_with("count=0")
            {
                break (os::now_us(), crate::common::client::number(&answer, "revision"));
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        observed.push(ObservedLease { lease, asked_us, told_us, gone_us, revision });
    }
    observed
}

/// Renews a lease for the last time. Returns when the renewal was first requested, and when it was known to be done.
fn renew_once(client: &mut Client, lease: u64) -> Option<(u64, u64)> {
    loop {
        let asked_us = os::now_us();
        match client.say(&format!("renew {lease}")) {
            ClientReply::Ok(answer) if answer.starts_with("ended") => return None,
            ClientReply::Ok(_) => return Some((asked_us, os::now_us())),
            ClientReply::Refused(why) => panic!("renew {lease}: refused {why}"),
            ClientReply::NotDone(_) | ClientReply::Unknown => {
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }
}
