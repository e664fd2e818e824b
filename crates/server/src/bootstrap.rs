//! Brings a member with an empty directory into a cluster: bootstraps one with others, or joins one.
//!
//! The node's sans-IO machines decide. This module drives them with connections and the clock.

use std::sync::mpsc::channel;
use std::time::Duration;

use tenure_node::directory::{Address, MemberRecord};
use tenure_node::{
    Bootstrap, BootstrapError, BootstrapResult, Control, Join, JoinError, Joined, Joining,
    other_cluster,
};
use tenure_store::IdentityError;

use crate::error::StartError;
use crate::log_writer::spawn;
use crate::os;
use crate::peer::Wire;
use crate::start::StartMode;

/// How long a restarting member waits for the listed members to say which cluster they belong to.
const WHO_US: u64 = 500_000;
/// The longest sleep between two checks whether the member was told to stop.
const POLL_INTERVAL_US: u64 = 100_000;

/// Agrees with the listed members on a new cluster and its first state.
pub(crate) fn agree(
    listed: &[(String, Address)],
    me: &MemberRecord,
    level_known: u16,
    wire: &Wire,
    stopped: &dyn Fn() -> bool,
) -> Result<BootstrapResult, StartError> {
    let mut bootstrap = Bootstrap::new(listed, me.clone(), level_known)?;
    loop {
        let asks = bootstrap.turn(os::now_us());
        let asked = !asks.is_empty();
        for ask in asks {
            let answer = wire.ask(&ask.address, ask.name.as_deref(), &Control::Who);
            bootstrap.handle(&ask.address, answer.map_err(|error| error.to_string()));
        }
        if let Some(ended) = bootstrap.ended() {
            return Ok(ended.clone()?);
        }
        if let Some(missing) = bootstrap.missing(os::now_us()) {
            tracing::info!(%missing, "waiting for the other initial members");
        }
        if stopped() {
            return Err(StartError::Interrupted);
        }
        // After a round of questions, the next turn judges the answers and sets the pause before another round.
        if !asked {
            sleep_until(bootstrap.wake_us());
        }
    }
}

/// Joins the cluster that one of the seeds belongs to.
pub(crate) fn join(
    seeds: &[Address],
    join: Join,
    wire: &Wire,
    stopped: &dyn Fn() -> bool,
) -> Result<Joined, StartError> {
    let mut entering = Joining::new(seeds.to_vec(), join);
    loop {
        if let Some(ask) = entering.turn(os::now_us()) {
            let answer = wire.ask(&ask.address, ask.name.as_deref(), &entering.request());
            entering.handle(answer.map_err(|error| error.to_string()));
        }
        if let Some(ended) = entering.ended() {
            return Ok(ended.clone()?);
        }
        if stopped() {
            return Err(StartError::Interrupted);
        }
        sleep_until(entering.wake_us());
    }
}

fn sleep_until(wake_us: u64) {
    let until_us = wake_us.min(os::now_us() + POLL_INTERVAL_US);
    std::thread::sleep(os::until(until_us).max(Duration::from_millis(1)));
}

/// Refuses a data directory of one cluster when the listed members belong to another. It does not wait for members that
/// do not answer soon: if they belong to another cluster, this member refuses their messages anyway.
pub(crate) fn check_cluster(
    cluster: &str,
    entrance: &StartMode,
    me: &str,
    wire: &Wire,
) -> Result<(), StartError> {
    let listed: Vec<Address> = match entrance {
        StartMode::Bootstrap(listed) => {
            listed.iter().filter(|(name, _)| name != me).map(|(_, at)| at.clone()).collect()
        }
        StartMode::Join(seeds) => seeds.clone(),
        StartMode::Alone | StartMode::None => return Ok(()),
    };
    let (sender, answers) = channel();
    for address in listed {
        let (sender, wire) = (sender.clone(), wire.clone());
        spawn("tenure-who", move || {
            if let Ok(answer) = wire.ask(&address, None, &Control::Who) {
                let _ = sender.send(answer);
            }
        });
    }
    drop(sender);
    let until_us = os::now_us() + WHO_US;
    while let Ok(answer) = answers.recv_timeout(os::until(until_us)) {
        if let Some(expected) = other_cluster(cluster, &answer) {
            let found = cluster.to_owned();
            return Err(IdentityError::OtherCluster { found, expected }.into());
        }
    }
    Ok(())
}

impl From<BootstrapError> for StartError {
    fn from(refused: BootstrapError) -> Self {
        match refused {
            BootstrapError::NotListed { name } => StartError::NotListed { name },
            BootstrapError::OtherCluster { peer, cluster } => {
                StartError::BootstrapResult { peer, cluster }
            }
            BootstrapError::Twice { .. }
            | BootstrapError::Address { .. }
            | BootstrapError::Outgrown { .. } => {
                StartError::InitialMembers { problem: refused.to_string() }
            }
        }
    }
}

impl From<JoinError> for StartError {
    fn from(not: JoinError) -> Self {
        match not {
            JoinError::Unreachable { tried } => StartError::Unreachable { tried },
            JoinError::Uninvited { why } => StartError::Uninvited { why },
            JoinError::Rejected { why } => StartError::Rejected { why },
            JoinError::Retired => StartError::Retired,
        }
    }
}
