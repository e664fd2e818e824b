//! Connects to a cluster, and finds out quickly when it cannot answer.
//!
//! A port that refuses, and a member that cannot find a majority, are known within a second. A command waits longer for
//! them only if `--wait-for-server` asks for it.

use std::time::Duration;

use tenure::{Client, Error};
use tenure_wire::v1;
use tokio::task::JoinSet;
use tokio::time::Instant;
use v1::cluster_service_client::ClusterServiceClient;

use crate::connection_args::ConnectionTarget;
use crate::exit::Exit;
use crate::failure::CliError;
use crate::output;

/// How long a member may refuse connections, or know no leader, before the command looks closer. A member that restarts
/// and a cluster that elects a leader need about as long.
const QUICK: Duration = Duration::from_millis(300);
/// How long the other members may take to answer whether they are there.
const ROLL_CALL: Duration = Duration::from_millis(400);
/// The pause between two attempts of a command that waits for the server.
const PAUSE: Duration = Duration::from_millis(200);

impl ConnectionTarget {
    /// Connects. Returns after a member has answered, also one that knows no leader.
    pub(crate) async fn connect(&self) -> Result<Client, CliError> {
        let builder = self.builder()?;
        let until = self.wait_for_server.map(|wait| Instant::now() + wait);
        loop {
            let left = until.map_or(QUICK, |until| until.saturating_duration_since(Instant::now()));
            match builder.clone().retry_refused(left).connect().await {
                // One attempt lasts no longer than an answer may take.
                Err(Error::Unreachable { .. }) if until.is_some_and(|it| Instant::now() < it) => {}
                connected => return Ok(connected?),
            }
        }
    }

    /// Connects to a cluster that has a leader. Nothing is sent to one that has none.
    pub(crate) async fn connect_to_leader(&self) -> Result<Client, CliError> {
        let client = self.connect().await?;
        let until = Instant::now() + self.wait_for_server.unwrap_or_default();
        let election = Instant::now() + self.timeout;
        while !client.has_leader(QUICK).await {
            let roll = RollCall::take(self, &client).await;
            // While a majority answers, the members elect a leader, which takes a moment.
            let electing = roll.is_majority() && Instant::now() < election;
            if !electing && Instant::now() >= until {
                return Err(roll.failure());
            }
            tokio::time::sleep(PAUSE).await;
        }
        Ok(client)
    }
}

/// Which voting members of the cluster answer.
#[derive(Debug)]
struct RollCall {
    answering: Vec<String>,
    silent: Vec<String>,
}

impl RollCall {
    /// Asks every member for a sign of life.
    async fn take(place: &ConnectionTarget, client: &Client) -> Self {
        let mut roll = Self { answering: Vec::new(), silent: Vec::new() };
        let status = tokio::time::timeout(ROLL_CALL, client.status_raw()).await;
        let Ok(Ok(v1::StatusResponse { members, header, .. })) = status else { return roll };
        let own = header.map_or(0, |header| header.member_id);
        let mut asked = JoinSet::new();
        for member in members.into_iter().filter_map(|it| it.member) {
            if member.role() == v1::Role::Learner {
                continue;
            }
            if member.member_id == own {
                roll.answering.push(member.name);
                continue;
            }
            let Ok(channel) = place.channel(&member.client_address) else { continue };
            asked.spawn(async move {
                let mut cluster = ClusterServiceClient::new(channel);
                let said = tokio::time::timeout(ROLL_CALL, cluster.status(v1::StatusRequest {}));
                (member.name, said.await.is_ok_and(|said| said.is_ok()))
            });
        }
        while let Some(said) = asked.join_next().await {
            if let Ok((name, answers)) = said {
                let list = if answers { &mut roll.answering } else { &mut roll.silent };
                list.push(name);
            }
        }
        roll.silent.sort_unstable();
        roll
    }

    fn is_majority(&self) -> bool {
        self.answering.len() > self.silent.len()
    }

    fn failure(&self) -> CliError {
        let (up, all) = (self.answering.len(), self.answering.len() + self.silent.len());
        let silent: Vec<String> = self.silent.iter().map(|name| output::clean(name)).collect();
        let failure = if self.is_majority() || all == 0 {
            CliError::new(Exit::Unreachable, "NO_LEADER", "the cluster has no leader")
        } else {
            let answer = if up == 1 { "answers" } else { "answer" };
            let text = format!(
                "the cluster has no quorum: {up} of {all} members {answer}, and {} must",
                all / 2 + 1
            );
            CliError::new(Exit::Unreachable, "NO_QUORUM", text)
                .with("silent", silent.join(", "))
                .field("silent", silent)
        };
        failure
            .with("effect", "none: nothing was asked for")
            .with("try", "tenure cluster status; or --wait-for-server 5m to keep trying")
    }
}
