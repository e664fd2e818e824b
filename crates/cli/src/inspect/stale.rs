//! Marks answers that a member gave from its own state, which can be old.

use clap::Args;
use serde_json::{Value, json};
use tenure_wire::v1;
use v1::cluster_service_client::ClusterServiceClient;

use crate::connection_args::{ConnectedCluster, ConnectionArgs};
use crate::duration;
use crate::failure::CliError;
use crate::output;

/// The flag of commands that can do without a leader.
#[derive(Args, Clone, Copy, Debug, Default)]
pub(crate) struct StaleArgs {
    /// Let the member that is asked answer from its own state, which can be old: works without a leader and without a
    /// majority. The answer says how old it is
    #[arg(long, id = "stale")]
    pub(crate) stale: bool,
}

/// The member that answered from its own state, and how old that state is.
#[derive(Debug)]
pub(super) struct StaleMark {
    member: String,
    revision: i64,
    age_ms: Option<u64>,
}

impl StaleArgs {
    /// Connects and runs `work`: with `--stale` to any member, otherwise to a cluster that has a leader.
    pub(super) fn with<T>(
        self,
        connection: &ConnectionArgs,
        work: impl AsyncFnOnce(&ConnectedCluster) -> Result<T, CliError>,
    ) -> Result<T, CliError> {
        if self.stale { connection.with_any(work) } else { connection.with(work) }
    }

    /// The mark of an answer that was given just now; none for one that is not stale.
    pub(super) async fn mark(
        self,
        cluster: &ConnectedCluster,
    ) -> Result<Option<StaleMark>, CliError> {
        if !self.stale {
            return Ok(None);
        }
        let asked =
            async |channel| ClusterServiceClient::new(channel).status(v1::StatusRequest {}).await;
        let status = cluster.client.question(asked).await?;
        let header = status.header.unwrap_or_default();
        let members = status.members.into_iter().filter_map(|it| it.member);
        let mut own = members.filter(|member| member.member_id == header.member_id);
        let member = own.next().map_or_else(|| header.member_id.to_string(), |it| it.name);
        let (revision, age_ms) = (header.revision, status.state_age_ms);
        Ok(Some(StaleMark { member, revision, age_ms }))
    }
}

impl StaleMark {
    /// The mark in words.
    pub(super) fn words(&self) -> String {
        let (member, revision) = (output::clean(&self.member), self.revision);
        let age = match self.age_ms {
            Some(age_ms) => format!("{} ago", duration::ms(age_ms)),
            None => "before it started".to_owned(),
        };
        format!("member {member} answered from its own state: revision {revision}, last led {age}")
    }

    /// The mark for programs.
    pub(super) fn json(&self) -> Value {
        json!({
            "member": self.member,
            "revision": self.revision.to_string(),
            "age_ms": self.age_ms,
        })
    }
}
