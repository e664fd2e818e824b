//! Collects the status that every member reports about itself, and how each one can be reached.
//!
//! Only the leader knows which members lag behind or are silent; only a member itself knows the state of its disk.

use std::io::ErrorKind;
use std::time::Duration;

use tenure::MemberChannel;
use tenure_wire::v1;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use v1::cluster_service_client::ClusterServiceClient;

use super::health;
use crate::connection_args::ConnectionTarget;
use crate::failure::CliError;

/// How long a member may take to accept a connection, and to answer, at the longest. A member that works answers within
/// milliseconds.
const TIMEOUT: Duration = Duration::from_secs(1);

/// How one member responds to this command.
#[derive(Clone, Debug)]
pub(super) enum MemberAnswer {
    /// It reports about itself.
    Given(Box<v1::MemberStatus>),
    /// It answers with an error, such as credentials that it does not accept.
    Rejected,
    /// It accepts a connection and answers nothing.
    Hung,
    /// No process listens at its address.
    Refused,
    /// Its address is unknown, or does not lead to it from here.
    Unreached,
}

/// Returns the status that the leader reports, or the connected member if no leader answers, completed with each
/// member's report about itself. The state of each member says how it is found from here.
pub(crate) async fn status(
    client: &tenure::Client,
    place: &ConnectionTarget,
) -> Result<v1::StatusResponse, CliError> {
    let first = client.status_raw().await?;
    let (mut asked, limit) = (JoinSet::new(), TIMEOUT.min(place.timeout));
    for it in first.members.iter().filter_map(|it| it.member.as_ref()) {
        if id_of(&first) != Some(it.member_id) {
            let (id, address) = (it.member_id, it.client_address.clone());
            let channel = place.channel(&address);
            asked.spawn(async move { (id, ask(&address, channel.ok(), limit).await) });
        }
    }
    let mut reports = Vec::new();
    let mut answers = Vec::new();
    while let Some(asked) = asked.join_next().await {
        let Ok((id, (answer, report))) = asked else { continue };
        answers.push((id, answer));
        reports.extend(report);
    }
    let own = own(&first);
    answers.extend(id_of(&first).zip(own.map(|own| MemberAnswer::Given(Box::new(own)))));
    reports.push(first);
    let mut status = best(reports);
    by_name(&mut status);
    for it in &mut status.members {
        let id = it.member.as_ref().map_or(0, |member| member.member_id);
        let answer = answers.iter().find(|(of, _)| *of == id).map(|(_, answer)| answer);
        let answer = answer.unwrap_or(&MemberAnswer::Unreached);
        it.state = health::state(it.up, answer, &it.state);
        if let MemberAnswer::Given(own) = answer {
            it.fsync_p99_us = it.fsync_p99_us.or(own.fsync_p99_us);
            it.disk_free_bytes = it.disk_free_bytes.or(own.disk_free_bytes);
            if it.software.is_empty() {
                it.software.clone_from(&own.software);
            }
        }
    }
    // A follower may know the leader before it records the leader's role in its member list.
    let leader = status.leader.as_ref().map_or(0, |leader| leader.member_id);
    let up = status.members.iter_mut().filter(|it| it.up);
    for member in up.filter_map(|it| it.member.as_mut()) {
        if leader != 0 && member.member_id == leader {
            member.role = v1::Role::Leader.into();
        }
    }
    Ok(status)
}

/// Sorts the members by name.
pub(crate) fn by_name(status: &mut v1::StatusResponse) {
    status.members.sort_by_cached_key(|it| it.member.as_ref().map(|member| member.name.clone()));
}

/// The report to believe: that of a member that leads, and of several that of the one with most contacts, because a
/// leader that was cut off does not know it at once. Without a leader, the last one.
fn best(mut reports: Vec<v1::StatusResponse>) -> v1::StatusResponse {
    let last = reports.len().saturating_sub(1);
    let rank = |at: usize, it: &v1::StatusResponse| {
        let leads = id_of(it).is_some() && id_of(it) == it.leader.as_ref().map(|it| it.member_id);
        let up = it.members.iter().filter(|it| it.up).count();
        (leads, if leads { up } else { 0 }, at == last)
    };
    let ranked = reports.iter().enumerate().max_by_key(|(at, it)| rank(*at, it));
    let at = ranked.map_or(0, |(at, _)| at);
    if reports.is_empty() { v1::StatusResponse::default() } else { reports.swap_remove(at) }
}

/// The member that gave a report.
fn id_of(report: &v1::StatusResponse) -> Option<u64> {
    report.header.map(|header| header.member_id)
}

/// What the member that gave a report says about itself.
fn own(report: &v1::StatusResponse) -> Option<v1::MemberStatus> {
    let id = id_of(report)?;
    let is_own = |it: &&v1::MemberStatus| it.member.as_ref().is_some_and(|it| it.member_id == id);
    report.members.iter().find(is_own).cloned()
}

/// Asks one member for its status.
async fn ask(
    address: &str,
    channel: Option<MemberChannel>,
    limit: Duration,
) -> (MemberAnswer, Option<v1::StatusResponse>) {
    // The port is tried first, because a call does not tell whether a member refuses connections or is silent.
    match tokio::time::timeout(limit, TcpStream::connect(address)).await {
        Ok(Ok(_)) => {}
        Ok(Err(error)) if error.kind() == ErrorKind::ConnectionRefused => {
            return (MemberAnswer::Refused, None);
        }
        Ok(Err(_)) | Err(_) => return (MemberAnswer::Unreached, None),
    }
    let Some(channel) = channel else { return (MemberAnswer::Unreached, None) };
    let mut cluster = ClusterServiceClient::new(channel);
    match tokio::time::timeout(limit, cluster.status(v1::StatusRequest {})).await {
        Ok(Ok(report)) => {
            let report = report.into_inner();
            let answer = own(&report)
                .map_or(MemberAnswer::Rejected, |own| MemberAnswer::Given(Box::new(own)));
            (answer, Some(report))
        }
        Ok(Err(_)) => (MemberAnswer::Rejected, None),
        Err(_) => (MemberAnswer::Hung, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(of: u64, leader: u64, ups: &[u64]) -> v1::StatusResponse {
        let member = |id| v1::MemberStatus {
            member: Some(v1::Member { member_id: id, ..Default::default() }),
            up: ups.contains(&id),
            ..Default::default()
        };
        v1::StatusResponse {
            header: Some(v1::Header { member_id: of, ..Default::default() }),
            leader: Some(v1::LeaderHint { member_id: leader, ..Default::default() }),
            members: (1..=3).map(member).collect(),
            ..Default::default()
        }
    }

    #[test]
    fn the_leader_with_most_contacts_is_believed_and_else_the_connected_member() {
        let cut_off = report(1, 1, &[1]);
        let leads = report(2, 2, &[2, 3]);
        let follows = report(3, 2, &[1, 2, 3]);
        let of = |reports: &[&v1::StatusResponse]| {
            best(reports.iter().map(|it| (*it).clone()).collect()).header.unwrap().member_id
        };
        assert_eq!(of(&[&cut_off, &leads, &follows]), 2);
        assert_eq!(of(&[&leads, &follows, &cut_off]), 2);
        let (lost, connected) = (report(2, 0, &[2, 3]), report(3, 0, &[3]));
        assert_eq!(of(&[&lost, &connected]), 3);
    }
}
