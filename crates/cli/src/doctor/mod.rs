//! Finds what is wrong with this machine and the cluster, and says what to do about it.

mod cluster;
mod machine;

use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{self, Output};
use crate::reach::{Reach, runtime};

/// Flags of `tenure doctor`.
#[derive(Args)]
pub(crate) struct Doctor {
    /// Measure how long this directory's disk takes to sync; for a member, its data directory
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) reach: Reach,
}

/// The result of a check.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Health {
    Ok,
    Warn,
    Bad,
}

/// One check with its result.
struct Finding {
    health: Health,
    check: &'static str,
    detail: String,
    /// What to do about it.
    next: Option<String>,
}

impl Finding {
    fn ok(check: &'static str, detail: impl Into<String>) -> Self {
        Self { health: Health::Ok, check, detail: detail.into(), next: None }
    }

    fn warn(check: &'static str, detail: impl Into<String>, next: impl Into<String>) -> Self {
        let (detail, next) = (detail.into(), Some(next.into()));
        Self { health: Health::Warn, check, detail, next }
    }

    fn bad(check: &'static str, detail: impl Into<String>, next: impl Into<String>) -> Self {
        let (detail, next) = (detail.into(), Some(next.into()));
        Self { health: Health::Bad, check, detail, next }
    }

    fn print(&self, output: Output) {
        let word = match self.health {
            Health::Ok => "ok",
            Health::Warn => "warn",
            Health::Bad => "bad",
        };
        match output {
            Output::Json => {
                let mut said =
                    json!({ "check": self.check, "health": word, "detail": self.detail });
                if let Some(next) = &self.next {
                    said["next"] = json!(next);
                }
                output::object(&said);
            }
            Output::Text => {
                output::out(&format!("{word:<5} {:<9} {}\n", self.check, self.detail));
                if let Some(next) = &self.next {
                    output::out(&format!("      {:<9} {next}\n", "do"));
                }
            }
        }
    }
}

/// Checks this machine and the cluster.
pub(crate) fn doctor(flags: &Doctor) -> Result<Exit, Failure> {
    let output = flags.reach.output;
    let place = flags.reach.place()?;
    let mut worst = Health::Ok;
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
        Ok::<(), Failure>(())
    })?;
    Ok(match (reached, worst) {
        (false, _) => Exit::Unreachable,
        (true, Health::Bad) => Exit::Refused,
        (true, Health::Ok | Health::Warn) => Exit::Done,
    })
}
