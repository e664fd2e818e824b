//! Adds, promotes and removes members, and transfers leadership.

use std::io::{BufRead, IsTerminal};
use std::time::Duration;

use clap::Args;
use serde_json::json;
use tenure_wire::json::cluster::Member;
use tenure_wire::v1;
use tokio::time::Instant;
use v1::cluster_service_client::ClusterServiceClient;
use v1::maintenance_service_client::MaintenanceServiceClient;

use super::status::list;
use super::{invite, member_id};
use crate::connection_args::{ConnectedCluster, request_id};
use crate::duration;
use crate::exit::Exit;
use crate::failure::{CliError, quoted};
use crate::output::{self, OutputFormat};
use crate::print_args::QuietArgs;
use crate::suggest::suggested;

/// How long the cluster may take to agree on a change: longer than members wait for each other.
pub(super) const AGREE: Duration = Duration::from_secs(40);
/// How often `add --wait` checks whether the member has joined or caught up.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Flags of `tenure cluster add`.
#[derive(Args)]
pub(crate) struct AddArgs {
    /// What people will call the member
    #[arg(value_parser = output::name)]
    name: String,
    /// Wait at most this long for it to come and catch up, then give it a vote
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    wait: Option<Duration>,
    #[command(flatten)]
    pub(crate) connection: QuietArgs,
}

/// Flags of `tenure cluster promote`.
#[derive(Args)]
pub(crate) struct PromoteArgs {
    /// Which member, by its name or id, or by the first digits of its id, at least four
    member: String,
    #[command(flatten)]
    pub(crate) connection: QuietArgs,
}

/// Flags of `tenure cluster remove`.
#[derive(Args)]
pub(crate) struct RemoveArgs {
    /// Which member, by its name or id, or by the first digits of its id, at least four
    member: String,
    /// Do not ask
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    pub(crate) connection: QuietArgs,
}

/// Flags of `tenure cluster transfer`.
#[derive(Args)]
pub(crate) struct TransferArgs {
    /// To which member, by its name or id [default: the leader chooses]
    member: Option<String>,
    #[command(flatten)]
    pub(crate) connection: QuietArgs,
}

/// Flags of `tenure cluster raise-level`.
#[derive(Args)]
pub(crate) struct RaiseLevelArgs {
    /// The new feature level, which every member must know
    level: u16,
    #[command(flatten)]
    pub(crate) connection: QuietArgs,
}

/// Makes an invitation and prints the command that adds a member with it. With `--wait`, it waits for the member and
/// promotes it.
pub(super) async fn add(cluster: &ConnectedCluster, flags: &AddArgs) -> Result<Exit, CliError> {
    let members = list(cluster).await?.members;
    let same = members.iter().find(|it| it.name == flags.name);
    let known = same.is_some();
    if let Some(same) = same
        && flags.wait.is_none()
    {
        let (text, name) = (format!("member {} is there already", flags.name), quoted(&flags.name));
        let next = match same.role() {
            v1::Role::Learner => format!("tenure cluster promote {name}"),
            _ => format!("tenure cluster remove {name} first, if that one is gone for ever"),
        };
        return Err(CliError::new(Exit::Refused, "MEMBER_EXISTS", text).next(next));
    }
    if !known {
        invite::check_listens(&members)?;
        let invitation = invite::order(cluster, None, None).await?.invitation;
        print_next_steps(cluster, flags, &members, &invitation);
    }
    let Some(wait) = flags.wait else { return Ok(Exit::Done) };
    let until = Instant::now() + wait;
    loop {
        let found = list(cluster).await?.members.into_iter().find(|it| it.name == flags.name);
        if let Some(member) = found.filter(|it| it.role() != v1::Role::Outside) {
            if member.role() != v1::Role::Learner {
                return done(cluster, "promoted", &member);
            }
            match order_promotion(cluster, member.member_id).await {
                Ok(()) => return done(cluster, "promoted", &member),
                Err(failure) if failure.reason == "NOT_CAUGHT_UP" => {}
                Err(failure) if failure.reason == "MEMBERSHIP_CHANGING" => {}
                Err(failure) => return Err(failure),
            }
        }
        if Instant::now() >= until {
            let text = format!(
                "member {} did not come and catch up within {}",
                flags.name,
                duration::shown(wait)
            );
            return Err(CliError::refused(text).next("tenure cluster status"));
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

fn print_next_steps(
    cluster: &ConnectedCluster,
    flags: &AddArgs,
    members: &[v1::Member],
    invitation: &str,
) {
    let join: Vec<&str> = members.iter().map(|it| it.member_address.as_str()).collect();
    let (name, join) = (quoted(&flags.name), join.join(","));
    // A cluster whose clients use TLS has members that do.
    let tls = match cluster.place.tls {
        Some(_) => " --tls-cert CERT --tls-key KEY --tls-member-ca CA",
        None => "",
    };
    let line = format!(
        "tenure serve --name {name} --data DIR --clients HOST:7450 --members HOST:7451{tls} --join {join} \
         --invitation {invitation}"
    );
    match cluster.output {
        OutputFormat::Json => output::object(&json!({ "name": flags.name, "command": line })),
        OutputFormat::Text => output::out(&format!("{line}\n")),
    }
    if cluster.output == OutputFormat::Text && !cluster.quiet && flags.wait.is_none() {
        let then = suggested(&format!("tenure cluster promote {name}"));
        let files =
            if tls.is_empty() { "" } else { " and the certificate and key of that machine" };
        output::tell(&format!(
            "type this on its machine within an hour, with an empty DIR{files}; then: {then}\n"
        ));
    }
}

/// Gives a member a vote.
pub(super) async fn promote(
    cluster: &ConnectedCluster,
    flags: &PromoteArgs,
) -> Result<Exit, CliError> {
    let member = find(cluster, &flags.member).await?;
    order_promotion(cluster, member.member_id).await?;
    done(cluster, "promoted", &member)
}

async fn order_promotion(cluster: &ConnectedCluster, member_id: u64) -> Result<(), CliError> {
    let ask = v1::PromoteMemberRequest { member_id };
    let asked = async |channel| ClusterServiceClient::new(channel).promote(ask).await;
    cluster.client.order(&request_id(None), Some(AGREE), asked).await.map_err(changed)?;
    Ok(())
}

pub(super) async fn remove(
    cluster: &ConnectedCluster,
    flags: &RemoveArgs,
) -> Result<Exit, CliError> {
    let members = list(cluster).await?.members;
    let member = member_id::pick(members.clone(), &flags.member)?;
    confirm(flags, &member)?;
    let ask = v1::RemoveMemberRequest { member_id: member.member_id };
    let asked = async |channel| ClusterServiceClient::new(channel).remove(ask).await;
    cluster.client.order(&request_id(None), Some(AGREE), asked).await.map_err(changed)?;
    let votes = |it: &&v1::Member| matches!(it.role(), v1::Role::Follower | v1::Role::Leader);
    let before = members.iter().filter(votes).count();
    let left = before - usize::from(votes(&&member));
    match cluster.output {
        OutputFormat::Json => output::object(&json!({
            "event": "removed", "member": Member::from(member),
            "voters": left, "survives": survived(left),
        })),
        OutputFormat::Text if cluster.quiet => {}
        OutputFormat::Text => output::out(&removed_text(&member.name, before, left)),
    }
    Ok(Exit::Done)
}

/// How many voters may fail while the others have a majority.
fn survived(voters: usize) -> usize {
    voters.saturating_sub(1) / 2
}

/// What is left after a member was removed, and the next step if a failure would stop the cluster that survived one.
fn removed_text(name: &str, before: usize, left: usize) -> String {
    let (voters, are, survive) = match left {
        1 => ("voter", "is", "survives"),
        _ => ("voters", "are", "survive"),
    };
    let failures = if survived(left) == 1 { "failure" } else { "failures" };
    let mut text = format!(
        "{} removed: {left} {voters} {are} left, which {survive} {} {failures}\n",
        output::clean(name),
        survived(left)
    );
    if before >= 3 && left < 3 {
        text.push_str(&format!("next    {}\n", suggested("tenure cluster add NAME")));
    }
    text
}

fn confirm(flags: &RemoveArgs, member: &v1::Member) -> Result<(), CliError> {
    if flags.yes {
        return Ok(());
    }
    if !std::io::stdin().is_terminal() {
        let failure = CliError::arguments("there is no terminal to ask on; nothing was done");
        return Err(failure.next("the same with --yes"));
    }
    let name = &member.name;
    output::tell(&format!(
        "{name} is removed for ever: it comes back only with an empty directory and a new id.\n\
         To go on, type `{name}`: "
    ));
    let mut line = String::new();
    let read = std::io::stdin().lock().read_line(&mut line);
    if read.is_err() || line.trim_end() != name {
        return Err(CliError::refused("that is not the member's name; nothing was done"));
    }
    Ok(())
}

/// Transfers leadership to another member.
pub(super) async fn transfer(
    cluster: &ConnectedCluster,
    flags: &TransferArgs,
) -> Result<Exit, CliError> {
    let member = match &flags.member {
        Some(given) => Some(find(cluster, given).await?),
        None => None,
    };
    let member_id = member.as_ref().map_or(0, |it| it.member_id);
    let ask = v1::TransferLeadershipRequest { member_id };
    let asked = async |channel| ClusterServiceClient::new(channel).transfer_leadership(ask).await;
    let led = cluster.client.order(&request_id(None), Some(AGREE), asked).await.map_err(changed)?;
    let leader = led.leader.unwrap_or_default();
    match cluster.output {
        OutputFormat::Json => output::object(&json!({
            "event": "transferred", "leader": leader.name, "member_id": leader.member_id.to_string(),
        })),
        OutputFormat::Text if cluster.quiet => {}
        OutputFormat::Text => output::out(&format!("{} leads\n", output::clean(&leader.name))),
    }
    Ok(Exit::Done)
}

/// Raises the feature level of the cluster.
pub(super) async fn raise_level(
    cluster: &ConnectedCluster,
    flags: &RaiseLevelArgs,
) -> Result<Exit, CliError> {
    let level = flags.level;
    let ask = v1::RaiseLevelRequest { level: level.into() };
    let asked = async |channel| MaintenanceServiceClient::new(channel).raise_level(ask).await;
    let raised = cluster.client.order(&request_id(None), Some(AGREE), asked).await;
    raised.map_err(repeatable)?;
    match cluster.output {
        OutputFormat::Json => output::object(&json!({ "event": "level_raised", "level": level })),
        OutputFormat::Text if cluster.quiet => {}
        OutputFormat::Text => output::out(&format!("the cluster is at feature level {level}\n")),
    }
    Ok(Exit::Done)
}

/// The member with this name or id.
pub(super) async fn find(cluster: &ConnectedCluster, given: &str) -> Result<v1::Member, CliError> {
    member_id::pick(list(cluster).await?.members, given)
}

fn done(cluster: &ConnectedCluster, event: &str, member: &v1::Member) -> Result<Exit, CliError> {
    match cluster.output {
        OutputFormat::Json => output::object(&json!({
            "event": event, "member": Member::from(member.clone()),
        })),
        OutputFormat::Text if cluster.quiet => {}
        OutputFormat::Text => output::out(&format!("{} {event}\n", output::clean(&member.name))),
    }
    Ok(Exit::Done)
}

/// Converts the error of a membership change. Its request has no request id, so the user cannot safely repeat it if the
/// outcome is unknown. The member list shows whether the change took effect.
pub(super) fn changed(error: tenure::Error) -> CliError {
    let failure = CliError::from(error);
    if failure.exit == Exit::Unknown { failure.next("tenure cluster members") } else { failure }
}

/// A failure of a command that has no further effect if it is repeated.
pub(super) fn repeatable(error: tenure::Error) -> CliError {
    let failure = CliError::from(error);
    if failure.exit == Exit::Unknown { failure.next("the same again") } else { failure }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_removal_says_what_the_members_that_are_left_survive() {
        let four = removed_text("d", 4, 3);
        assert_eq!(four, "d removed: 3 voters are left, which survive 1 failure\n");
        let three = removed_text("b", 3, 2);
        let next = "next    tenure cluster add NAME\n";
        let text = "b removed: 2 voters are left, which survive 0 failures\n";
        assert_eq!(three, format!("{text}{next}"));
        // Two were never enough, and a cluster that becomes one member on purpose is not told to grow.
        let two = removed_text("b", 2, 1);
        assert_eq!(two, "b removed: 1 voter is left, which survives 0 failures\n");
    }
}
