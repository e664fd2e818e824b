//! Finds what is wrong with this machine and the cluster, and says what to do about it.

mod cluster;
mod machine;

use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use crate::connection_args::{ConnectionArgs, runtime};
use crate::exit::Exit;
use crate::failure::CliError;
use crate::output::{self, OutputFormat};

/// Flags of `tenure doctor`.
#[derive(Args)]
pub(crate) struct DoctorArgs {
    /// Measure how long this directory's disk takes to sync; for a member, its data directory
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) reach: ConnectionArgs,
}

/// The result of a check.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum FindingHealth {
    Ok,
    Warn,
    Bad,
}

/// One check with its result.
struct Finding {
    health: FindingHealth,
    check: &'static str,
    detail: String,
    /// What to do about it.
    next: Option<String>,
}

impl Finding {
    fn ok(check: &'static str, detail: impl Into<String>) -> Self {
        Self { health: FindingHealth::Ok, check, detail: detail.into(), next: None }
    }

    fn warn(check: &'static str, detail: impl Into<String>, next: impl Into<String>) -> Self {
        let (detail, next) = (detail.into(), Some(next.into()));
        Self { health: FindingHealth::Warn, check, detail, next }
    }

    fn bad(check: &'static str, detail: impl Into<String>, next: impl Into<String>) -> Self {
        let (detail, next) = (detail.into(), Some(next.into()));
        Self { health: FindingHealth::Bad, check, detail, next }
    }

    fn print(&self, output: OutputFormat) {
        let word = match self.health {
            FindingHealth::Ok => "ok",
            FindingHealth::Warn => "warn",
            FindingHealth::Bad => "bad",
        };
        match output {
            OutputFormat::Json => {
                let mut said =
                    json!({ "check": self.check, "health": word, "detail": self.detail });
                if let Some(next) = &self.next {
                    said["next"] = json!(next);
                }
                output::object(&said);
            }
            OutputFormat::Text => {
                output::out(&format!("{word:<5} {:<9} {}\n", self.check, self.detail));
                if let Some(next) = &self.next {
                    output::out(&format!("      {:<9} {next}\n", "do"));
                }
            }
        }
    }
}

/// Checks this machine and the cluster.
pub(crate) fn doctor(flags: &DoctorArgs) -> Result<Exit, CliError> {
    let output = flags.reach.output;
    let place = flags.reach.place()?;
    let mut worst = FindingHealth::Ok;
    let mut tell = |finding: Finding| {
        worst = worst.max(finding.health);
        finding.print(output);
    };
    machine::clocks().into_iter().for_each(&mut tell);
    if let Some(data) = &flags.data {
        tell(machine::disk(data));
    }
    let mut reached = true;
    runtime()?.block_on(async {
        for address in &place.addresses {
            tell(cluster::port(address).await);
        }
        match place.connect().await {
            Ok(client) => cluster::look(&client, &place).await.into_iter().for_each(&mut tell),
            Err(failure) => {
                reached = false;
                let tried = failure.more.iter().find(|(label, _)| *label == "tried");
                let tried = tried.map_or(String::new(), |(_, tried)| format!(": {tried}"));
                tell(cluster::unreachable(&failure.text, &tried, place.tls.is_some()));
            }
        }
        Ok::<(), CliError>(())
    })?;
    Ok(match (reached, worst) {
        (false, _) => Exit::Unreachable,
        (true, FindingHealth::Bad) => Exit::Refused,
        (true, FindingHealth::Ok | FindingHealth::Warn) => Exit::Done,
    })
}
