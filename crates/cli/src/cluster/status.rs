//! Shows the status of the cluster and of its members, and the operator's next step.

use serde_json::json;
use tenure_wire::json::cluster::{Member, Status};
use tenure_wire::v1;
use v1::cluster_service_client::ClusterServiceClient;

use super::{each, health, member_id};
use crate::connection_args::ConnectedCluster;
use crate::exit::Exit;
use crate::failure::CliError;
use crate::listing::Listing;
use crate::output::{self, OutputFormat, Side, Table};
use crate::suggest::suggested;

/// A member with more entries than this behind the leader is not healthy.
pub(crate) const BEHIND: u64 = 10_000;
/// Below this much free disk space, status and doctor mention a member.
pub(crate) const TIGHT_BYTES: u64 = 1_000_000_000;

/// Shows the status of the cluster.
pub(super) async fn status(cluster: &ConnectedCluster) -> Result<Exit, CliError> {
    let status = each::status(&cluster.client, &cluster.place).await?;
    let problems = health::problems(&status);
    match cluster.output {
        OutputFormat::Json => {
            let mut shown = json!(Status::from(status));
            shown["healthy"] = json!(problems.is_empty());
            shown["problems"] = problems.iter().map(health::Problem::json).collect();
            output::object(&shown);
        }
        OutputFormat::Text if cluster.quiet => {}
        OutputFormat::Text => output::out(&text(&status)),
    }
    Ok(if problems.is_empty() { Exit::Done } else { Exit::Refused })
}

/// Lists the members.
pub(super) async fn members(cluster: &ConnectedCluster) -> Result<Exit, CliError> {
    let head = [
        ("MEMBER", Side::Left),
        ("ROLE", Side::Left),
        ("CLIENTS", Side::Left),
        ("MEMBERS", Side::Left),
        ("ID", Side::Left),
    ];
    let mut listing = Listing::new(cluster, &head);
    for member in list(cluster).await?.members {
        let cells = || {
            [
                member.name.clone(),
                role_word(member.role()).to_owned(),
                member.client_address.clone(),
                member.member_address.clone(),
                member_id::shown(member.member_id),
            ]
        };
        let object = || Member::from(member.clone());
        listing.item(&member.name, |table| table.row(cells()), object);
    }
    listing.print();
    Ok(Exit::Done)
}

/// The members, as the member that answers knows them.
pub(super) async fn list(cluster: &ConnectedCluster) -> Result<v1::MembersResponse, CliError> {
    let ask = v1::MembersRequest {};
    let asked = async |channel| ClusterServiceClient::new(channel).members(ask).await;
    let mut members = cluster.client.question(asked).await?;
    members.members.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(members)
}

fn text(status: &v1::StatusResponse) -> String {
    let up = status.members.iter().filter(|it| it.up).count();
    let (all, survives) = (status.members.len(), spare(status));
    let more = if up < all { "more " } else { "" };
    let failures = if survives == 1 { "failure" } else { "failures" };
    let survives = match lacking(status) {
        0 => format!("survives {survives} {more}{failures}"),
        _ => "no majority: nothing is granted, renewed or written".to_owned(),
    };
    let name = match status.cluster.as_str() {
        "" => String::new(),
        name => format!(" {}", output::clean(name)),
    };
    let revision = status.header.map_or(0, |header| header.revision);
    let mut text =
        format!("cluster{name}: {up} of {all} members up, {survives}, revision {revision}\n");
    let mut table = Table::new(&[
        ("MEMBER", Side::Left),
        ("ROLE", Side::Left),
        ("ADDRESS", Side::Left),
        ("BEHIND", Side::Right),
        ("FSYNC p99", Side::Right),
        ("DISK FREE", Side::Right),
        ("STATE", Side::Left),
    ]);
    for it in &status.members {
        let member = it.member.clone().unwrap_or_default();
        let leads = member.role() == v1::Role::Leader;
        let behind = it.behind.filter(|_| !leads).map_or("-".to_owned(), |it| it.to_string());
        let fsync = it.fsync_p99_us.map_or("-".to_owned(), |us| format!("{:.1}ms", to_ms(us)));
        let disk = it.disk_free_bytes.map_or("-".to_owned(), bytes);
        let state = it.state.clone();
        let role = role_word(member.role()).to_owned();
        table.row([member.name, role, member.client_address, behind, fsync, disk, state]);
    }
    text.push_str(&table.text());
    if let Some(quiet) = quiet(status) {
        text.push_str(&format!("{quiet}\n"));
    }
    if let Some(counts) = &status.counts {
        let v1::Counts { locks, leases, waiting, keys, .. } = *counts;
        let (locks, leases) = (output::count(locks, "lock"), output::count(leases, "lease"));
        let keys = output::count(keys, "key");
        // The count includes the cluster's own keys, which no listing shows: without the remark the count looks wrong.
        let own = "the cluster's own among them";
        text.push_str(&format!("{locks}, {waiting} waiting, {leases}, {keys} ({own})\n"));
    }
    // The first line tells of a missing majority, and the quiet period has a line of its own.
    let is_new = |it: &&health::Problem| it.member.is_some() || it.word == health::NO_LEADER;
    for problem in health::problems(status).iter().filter(is_new) {
        text.push_str(&format!("wrong   {}\n", problem.detail));
    }
    if let Some(next) = next(status) {
        text.push_str(&format!("next    {}\n", suggested(&next)));
    }
    text
}

/// How many voters that are up may fail before the cluster loses its majority.
pub(crate) fn spare(status: &v1::StatusResponse) -> usize {
    let (up, majority) = votes(status);
    up.saturating_sub(majority)
}

/// How many more voters have to be up for a majority.
pub(crate) fn lacking(status: &v1::StatusResponse) -> usize {
    let (up, majority) = votes(status);
    majority.saturating_sub(up)
}

/// How many voters are up, and how many make a majority.
fn votes(status: &v1::StatusResponse) -> (usize, usize) {
    let votes = |it: &&v1::MemberStatus| {
        let role = it.member.as_ref().map(v1::Member::role);
        matches!(role, Some(v1::Role::Follower | v1::Role::Leader))
    };
    let voters = status.members.iter().filter(votes).count();
    let up = status.members.iter().filter(votes).filter(|it| it.up).count();
    (up, voters / 2 + 1)
}

/// The leader, unless the status names one that is down.
pub(crate) fn leader(status: &v1::StatusResponse) -> Option<&v1::LeaderHint> {
    let leader = status.leader.as_ref().filter(|leader| leader.member_id != 0)?;
    let id = |it: &v1::MemberStatus| it.member.as_ref().map_or(0, |member| member.member_id);
    let known = status.members.iter().find(|it| id(it) == leader.member_id);
    known.is_none_or(|it| it.up).then_some(leader)
}

/// That the cluster was restored and grants no lock yet, if it is so, with the reason.
pub(crate) fn quiet(status: &v1::StatusResponse) -> Option<String> {
    Some(format!("restored (epoch {}): {}", status.epoch, output::quiet(status.quiet_ms?)))
}

/// Those that are down, with where they should be.
pub(crate) fn down(status: &v1::StatusResponse) -> String {
    let named = status.members.iter().filter(|it| !it.up).filter_map(|it| it.member.as_ref());
    let named = named.map(|it| match it.client_address.as_str() {
        "" => output::clean(&it.name),
        address => format!("{} ({})", output::clean(&it.name), output::clean(address)),
    });
    named.collect::<Vec<_>>().join(", ")
}

/// What an operator does while there is no majority.
pub(crate) fn gather(status: &v1::StatusResponse) -> String {
    let more = match lacking(status) {
        1 => "one of them again, with its directory".to_owned(),
        more => format!("{more} of them again, with their directories"),
    };
    format!(
        "start {more}: tenure serve; if the directories are lost for ever, \
         begin anew from one that is left: tenure restore --help"
    )
}

/// The operator's most urgent next step, if there is one.
fn next(status: &v1::StatusResponse) -> Option<String> {
    if lacking(status) > 0 {
        return Some(format!("unreachable: {}; {}", down(status), gather(status)));
    }
    if leader(status).is_none() {
        let text = "no leader yet; if that lasts: tenure doctor, and the members' logs";
        return Some(text.to_owned());
    }
    let of_member = |problem: &health::Problem| problem.member.is_some();
    if let Some(problem) = health::problems(status).into_iter().find(of_member) {
        return Some(problem.next);
    }
    let name = |it: &v1::MemberStatus| {
        it.member.as_ref().map_or(String::new(), |member| output::clean(&member.name))
    };
    let tight = |it: &&v1::MemberStatus| it.disk_free_bytes.is_some_and(|free| free < TIGHT_BYTES);
    if let Some(full) = status.members.iter().find(tight) {
        let name = name(full);
        return Some(format!("free space on {name}, or replace it: tenure cluster remove {name}"));
    }
    let learns = |it: &&v1::MemberStatus| {
        it.member.as_ref().is_some_and(|it| it.role() == v1::Role::Learner)
    };
    if let Some(learner) = status.members.iter().find(learns) {
        return Some(format!("give it a vote: tenure cluster promote {}", name(learner)));
    }
    // One member alone is meant so; of two, each one that fails stops the cluster.
    let two = status.members.len() == 2;
    two.then(|| "tenure cluster add NAME: with a third member it survives a failure".to_owned())
}

/// A member's role as one word.
pub(crate) fn role_word(role: v1::Role) -> &'static str {
    match role {
        v1::Role::Outside => "outside",
        v1::Role::Learner => "learner",
        v1::Role::Follower => "follower",
        v1::Role::Leader => "leader",
    }
}

/// Microseconds as milliseconds.
pub(super) fn to_ms(us: u64) -> f64 {
    std::time::Duration::from_micros(us).as_secs_f64() * 1_000.0
}

/// A number of bytes in a short, readable form.
pub(crate) fn bytes(bytes: u64) -> String {
    let units =
        [(1_000_000_000_000, "TB"), (1_000_000_000, "GB"), (1_000_000, "MB"), (1_000, "kB")];
    let found = units.iter().find(|(size, _)| bytes >= *size);
    found.map_or(format!("{bytes} B"), |(size, unit)| match bytes / size {
        whole @ 0..10 => format!("{whole}.{} {unit}", bytes % size * 10 / size),
        whole => format!("{whole} {unit}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_short() {
        assert_eq!(bytes(900), "900 B");
        assert_eq!(bytes(41_000_000_000), "41 GB");
        assert_eq!(bytes(940_000_000), "940 MB");
        assert_eq!(bytes(1_250_000), "1.2 MB");
    }

    #[test]
    fn those_that_are_down_are_not_counted_on() {
        let member = |up| v1::MemberStatus {
            member: Some(v1::Member { role: v1::Role::Follower.into(), ..Default::default() }),
            up,
            ..Default::default()
        };
        let spare = |ups: &[bool]| {
            let members = ups.iter().map(|up| member(*up)).collect();
            spare(&v1::StatusResponse { members, ..Default::default() })
        };
        assert_eq!(spare(&[true, true, true]), 1);
        assert_eq!(spare(&[true, true, false]), 0);
        assert_eq!(spare(&[true]), 0);
        assert_eq!(spare(&[true, true, true, true, false]), 1);
    }

    #[test]
    fn a_quiet_period_after_a_restore_is_said() {
        let mut status = v1::StatusResponse { epoch: 2, ..Default::default() };
        assert!(!text(&status).contains("restored"), "{}", text(&status));
        status.quiet_ms = Some(14_000);
        let said = "restored (epoch 2): no lock is granted for 14s more, because clients of the cluster before \
                    the restore may still hold locks";
        assert!(text(&status).contains(said), "{}", text(&status));
    }

    #[test]
    fn the_next_step_is_named_for_the_worst_first() {
        let member = |id, name: &str, up| v1::MemberStatus {
            member: Some(v1::Member {
                member_id: id,
                name: name.to_owned(),
                client_address: format!("10.0.0.{id}:7450"),
                role: v1::Role::Follower.into(),
                ..Default::default()
            }),
            up,
            ..Default::default()
        };
        let mut status = v1::StatusResponse {
            members: vec![member(1, "a", true), member(2, "b", false), member(3, "c", false)],
            leader: Some(v1::LeaderHint { member_id: 3, ..Default::default() }),
            ..Default::default()
        };
        // Without a majority no member can be removed, and a leader that is down no longer leads.
        let alone = next(&status).unwrap();
        assert!(alone.starts_with("unreachable: b (10.0.0.2:7450), c (10.0.0.3:7450); start one"));
        assert!(alone.contains("tenure restore") && !alone.contains("remove"), "{alone}");
        assert!(text(&status).contains("1 of 3 members up, no majority"), "{}", text(&status));
        status.members[1].up = true;
        assert!(next(&status).unwrap().starts_with("no leader"));
        status.leader = Some(v1::LeaderHint { member_id: 1, ..Default::default() });
        assert!(next(&status).unwrap().contains("tenure cluster remove c"));
        status.members[2].up = true;
        assert_eq!(next(&status), None);
        status.members[0].disk_free_bytes = Some(5);
        assert!(next(&status).unwrap().starts_with("free space on a"));
        status.members.remove(0);
        status.leader = Some(v1::LeaderHint { member_id: 2, ..Default::default() });
        assert!(next(&status).unwrap().starts_with("tenure cluster add NAME"));
        status.members.pop();
        assert_eq!(next(&status), None);
    }
}
