//! Checks that the cluster answers, agrees and has room.

use std::net::IpAddr;
use std::time::Duration;

use tenure::Client;
use tenure_server::os;
use tenure_wire::v1;

use super::Finding;
use crate::cluster::{TIGHT_BYTES, bytes, down, each, gather, health, lacking, leader, spare};
use crate::connection_args::ConnectionTarget;
use crate::duration;

/// The number of timed reads.
const QUESTIONS: usize = 10;
/// Answers that take longer than this make short leases risky.
const SLOW_US: u64 = 200_000;
/// Thresholds for the p99 of a member's syncs.
const FSYNC_SLOW_US: u64 = 20_000;
const FSYNC_BAD_US: u64 = 250_000;
/// Below this much free space, a member's disk counts as full.
const FULL_BYTES: u64 = 128_000_000;

/// The finding for a cluster of which no member answered.
pub(super) fn unreachable(text: &str, tried: &str, tls: bool) -> Finding {
    let next = if tls {
        "if ports are open: --tls-ca must have signed the members' certificates, which name their addresses"
    } else {
        "if ports are open: members that have certificates speak TLS only; try --tls-ca FILE"
    };
    Finding::bad("answers", format!("{text}{tried}"), next)
}

/// Checks the connection and everything that members report about themselves.
pub(super) async fn check(client: &Client, place: &ConnectionTarget) -> Vec<Finding> {
    let (read, status) = tokio::join!(ask_read(client), each::status(client, place));
    let mut found = vec![tls(place), read];
    match status {
        Ok(status) => found.extend(members(&status)),
        Err(error) => {
            let next = "start the members that are down; a majority must be up";
            found.push(Finding::bad("quorum", error.text, next));
        }
    }
    found
}

fn tls(place: &ConnectionTarget) -> Finding {
    match &place.tls {
        Some(_) => Finding::ok("tls", "the members' certificates are good"),
        None if place.addresses.iter().all(|address| is_loopback(address)) => {
            Finding::ok("tls", "none, which is fine on this machine")
        }
        None => Finding::warn(
            "tls",
            "none, over a network",
            "make certificates (tenure help certificates), then --tls-ca FILE",
        ),
    }
}

/// Whether an address, with its port, is of this machine.
fn is_loopback(address: &str) -> bool {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let bare = host.strip_prefix('[').and_then(|it| it.strip_suffix(']')).unwrap_or(host);
    host == "localhost" || bare.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
}

async fn ask_read(client: &Client) -> Finding {
    let mut times = Vec::new();
    for _ in 0..QUESTIONS {
        let began_us = os::now_us();
        // A linearizable read: the leader confirms that it leads.
        if let Err(error) = client.show("tenure-doctor").await {
            let next = "a majority of the members must be up, and reach each other: see below";
            let detail = format!("a question that needs a majority was not answered: {error}");
            return Finding::bad("answers", detail, next);
        }
        times.push(os::now_us().saturating_sub(began_us));
    }
    times.sort_unstable();
    let (median, worst) = (times[times.len() / 2], times[times.len() - 1]);
    let shown = |us| duration::shown(Duration::from_micros(us));
    let detail = format!("an answer takes {}, {} at most", shown(median), shown(worst));
    if worst > SLOW_US {
        let next = format!("tenure plan --rtt {}", shown(worst));
        Finding::warn("answers", detail, next)
    } else {
        Finding::ok("answers", detail)
    }
}

fn members(status: &v1::StatusResponse) -> Vec<Finding> {
    let mut found = vec![quorum(status)];
    for problem in health::problems(status) {
        let check = match (&problem.member, problem.word) {
            (Some(_), _) => "member",
            (None, "quiet") => "restored",
            (None, _) => continue,
        };
        found.push(Finding::bad(check, problem.detail, problem.next));
    }
    for it in status.members.iter().filter(|it| it.up) {
        let member = it.member.clone().unwrap_or_default();
        let name = crate::output::clean(&member.name);
        found.push(room(&name, it.disk_free_bytes));
        found.push(sync(&name, it.fsync_p99_us));
    }
    let mut versions: Vec<&str> = status.members.iter().map(|it| it.software.as_str()).collect();
    versions.retain(|version| !version.is_empty());
    versions.sort_unstable();
    versions.dedup();
    if versions.len() > 1 {
        let detail = format!("members run {}", versions.join(" and "));
        found.push(Finding::warn("version", detail, "upgrade the others, one by one"));
    }
    if status.insecure {
        let next = "make certificates: tenure help certificates";
        found.push(Finding::warn(
            "open",
            "the cluster accepts every caller, and connections without TLS",
            next,
        ));
    }
    found
}

fn quorum(status: &v1::StatusResponse) -> Finding {
    let up = status.members.iter().filter(|it| it.up).count();
    let (all, survives) = (status.members.len(), spare(status));
    let failures = if survives == 1 { "failure" } else { "failures" };
    let detail = format!("{up} of {all} members up, survives {survives} more {failures}");
    if lacking(status) > 0 {
        let detail = format!(
            "{up} of {all} members up, no majority: nothing is granted, renewed or written; unreachable: {}",
            down(status)
        );
        return Finding::bad("quorum", detail, gather(status));
    }
    match (leader(status), survives) {
        (Some(leader), 1..) => {
            Finding::ok("quorum", format!("{detail}; {} leads", crate::output::clean(&leader.name)))
        }
        (Some(_), _) if all == 1 => Finding::ok(
            "quorum",
            "one member alone: nothing survives its failure, which is fine for development",
        ),
        (Some(_), _) => Finding::warn(
            "quorum",
            detail,
            "one more failure stops everything: bring members back first",
        ),
        (None, _) => Finding::bad(
            "quorum",
            format!("{detail}; no leader"),
            "wait a few seconds; if it lasts, the members do not reach each other: look at their logs and --members",
        ),
    }
}

fn room(name: &str, free: Option<u64>) -> Finding {
    match free {
        None => Finding::ok("disk", format!("{name} does not say how much room it has")),
        Some(free) if free < FULL_BYTES => Finding::bad(
            "disk",
            format!("{name} has {} left", bytes(free)),
            format!(
                "free space on {name} now: a full disk takes nothing that makes the state grow"
            ),
        ),
        Some(free) if free < TIGHT_BYTES => {
            let detail = format!("{name} has {} left", bytes(free));
            Finding::warn("disk", detail, format!("free space on {name}"))
        }
        Some(free) => Finding::ok("disk", format!("{name} has {} left", bytes(free))),
    }
}

fn sync(name: &str, p99_us: Option<u64>) -> Finding {
    let us = match p99_us {
        Some(0) => return Finding::ok("sync", format!("{name} has not written enough to tell")),
        Some(us) => us,
        None => {
            return Finding::ok("sync", format!("{name} does not say how long its disk takes"));
        }
    };
    let detail = format!(
        "{name}: 99 of 100 syncs take at most {}",
        duration::shown(Duration::from_micros(us))
    );
    let next =
        "a faster disk, or one that no other program uses; measure: tenure doctor --data DIR there";
    match us {
        FSYNC_BAD_US.. => Finding::bad("sync", detail, next),
        FSYNC_SLOW_US.. => Finding::warn("sync", detail, next),
        _ => Finding::ok("sync", detail),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_begins_like_a_loopback_address_is_none() {
        for own in ["127.0.0.1:7450", "127.9.9.9:1", "[::1]:7450", "localhost:7450"] {
            assert!(is_loopback(own), "{own}");
        }
        for foreign in ["127.example.org:7450", "127.0.0.1.example:1", "10.0.0.1:1", "[::2]:1"] {
            assert!(!is_loopback(foreign), "{foreign}");
        }
    }
}
