//! Finds what is wrong with this machine and the cluster, and says what to do about it.

mod cluster;
mod machine;
mod probe;

use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use tokio::sync::mpsc::channel;

use crate::connection_args::{ConnectionArgs, ConnectionTarget, runtime};
use crate::duration;
use crate::exit::Exit;
use crate::failure::CliError;
use crate::output::{self, OutputFormat};
use crate::suggest::suggested;

use probe::DoctorProbe;

/// Flags of `tenure doctor`.
#[derive(Args)]
pub(crate) struct DoctorArgs {
    /// Measure how long this directory's disk takes to sync; for a member, its data directory
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,
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
                    said["next"] = json!(suggested(next));
                }
                output::object(&said);
            }
            OutputFormat::Text => {
                output::out(&format!("{word:<5} {:<9} {}\n", self.check, self.detail));
                if let Some(next) = &self.next {
                    output::out(&format!("      {:<9} {}\n", "do", suggested(next)));
                }
            }
        }
    }
}

/// Checks this machine and the cluster.
pub(crate) fn doctor(flags: &DoctorArgs) -> Result<Exit, CliError> {
    let output = flags.connection.output;
    let place = flags.connection.place()?;
    let mut worst = FindingHealth::Ok;
    let mut tell = |finding: Finding| {
        worst = worst.max(finding.health);
        finding.print(output);
    };
    machine::clocks().into_iter().for_each(&mut tell);
    if let Some(data) = &flags.data {
        tell(machine::disk(data));
    }
    let (probes, checked) = runtime()?.block_on(examine(&place));
    probes.into_iter().for_each(|probe| tell(probe.finding));
    let reached = checked.is_ok();
    match checked {
        Ok(found) => found.into_iter().for_each(&mut tell),
        Err(unreachable) => tell(unreachable),
    }
    Ok(match (reached, worst) {
        (false, _) => Exit::Unreachable,
        (true, FindingHealth::Bad) => Exit::Refused,
        (true, FindingHealth::Ok | FindingHealth::Warn) => Exit::Done,
    })
}

/// Probes every address, and checks the cluster through the first member that answers. A member that hangs delays
/// neither the other probes nor that check.
async fn examine(place: &ConnectionTarget) -> (Vec<DoctorProbe>, Result<Vec<Finding>, Finding>) {
    let (answering, mut first) = channel(1);
    let through_first = async {
        let address = first.recv().await?;
        Some(
            check_cluster(ConnectionTarget { addresses: vec![address], ..place.clone() }, place)
                .await,
        )
    };
    let (probes, checked) = tokio::join!(probe::every(place, answering), through_first);
    if let Some(checked) = checked {
        return (probes, checked);
    }
    // No member answered. Those that hang would only make the search for a reason longer.
    let mut others = place.clone();
    if place.wait_for_server.is_none() {
        others
            .addresses
            .retain(|it| !probes.iter().any(|probe| probe.is_hung && probe.address == *it));
    }
    let checked = if others.addresses.is_empty() {
        let text = format!("no member answered within {}", duration::shown(place.timeout));
        Err(cluster::unreachable(&text, "", place.tls.is_some()))
    } else {
        check_cluster(others, place).await
    };
    (probes, checked)
}

/// Connects to one of these members and checks the cluster, or reports why no member could be reached.
async fn check_cluster(
    through: ConnectionTarget,
    place: &ConnectionTarget,
) -> Result<Vec<Finding>, Finding> {
    match through.connect().await {
        Ok(client) => Ok(cluster::check(&client, place).await),
        Err(failure) => {
            let tried = failure.more.iter().find(|(label, _)| *label == "tried");
            let tried = tried.map_or(String::new(), |(_, tried)| format!(": {tried}"));
            let advice = failure.more.iter().find(|(label, _)| *label == "try");
            // The advice for a cluster that cannot be reached is `tenure doctor`.
            match advice.filter(|_| failure.reason != "UNREACHABLE") {
                Some((_, advice)) => Err(Finding::bad("answers", failure.text, advice.as_str())),
                None => Err(cluster::unreachable(&failure.text, &tried, place.tls.is_some())),
            }
        }
    }
}
