//! Runs a command while this process leads, and campaigns again after each loss.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use tokio::sync::mpsc::unbounded_channel;
use tokio::time::Instant;

use crate::client_name::default_name;
use crate::connection_args::ConnectedCluster;
use crate::elect;
use crate::exit::Exit;
use crate::failure::CliError;
use crate::lock::TTL;
use crate::print_args::QuietArgs;

use super::front::{finish, open_events, start};
use super::locked_command::{Job, LockedCommand, RunLock, RunOutcome};
use super::messages::Messages;
use super::queue::given_up;
use super::times::RunTimes;
use super::{OnDoubt, codes, resolve};

/// A candidacy with a command, as the flags describe it.
pub(crate) struct Candidacy<'a> {
    pub(crate) name: &'a str,
    pub(crate) value: &'a str,
    pub(crate) ttl: Option<Duration>,
    pub(crate) wait: Option<Duration>,
    pub(crate) grace: Option<Duration>,
    pub(crate) on_doubt: OnDoubt,
    /// Whether the first loss ends the process.
    pub(crate) once: bool,
    pub(crate) command: &'a [OsString],
    /// The file to which events are also written.
    pub(crate) events: Option<&'a Path>,
    pub(crate) connection: &'a QuietArgs,
}

/// Campaigns, runs the command while leading, and campaigns again if leadership is lost.
pub(crate) fn lead(candidacy: &Candidacy<'_>) -> Result<Exit, CliError> {
    let mut place = candidacy.connection.place()?;
    place
        .client
        .get_or_insert_with(|| default_name(candidacy.command.first().map(OsString::as_os_str)));
    let times = RunTimes::new(candidacy.ttl.unwrap_or(TTL), candidacy.grace);
    let times = times.map_err(CliError::arguments)?;
    if let Err((text, code)) = resolve::look_for(&candidacy.command[0]) {
        let failure = CliError::new(Exit::Command(code), "NOT_STARTED", text);
        return Err(failure.with("effect", "none: this process was not a candidate"));
    }
    let names = [candidacy.name.to_owned()];
    let events = open_events(candidacy.events)?;
    let mut messages = Messages::new(&names, candidacy.connection, events);
    let (tell, mut heard) = unbounded_channel();
    let runtime =
        start(tell).map_err(|error| CliError::refused(format!("cannot start: {error}")))?;
    let done = runtime.block_on(async {
        let client = place.connect_to_leader().await?;
        let mut cluster = ConnectedCluster::new(client, candidacy.connection.output, place.clone());
        cluster.quiet = candidacy.connection.quiet;
        loop {
            let asked = Instant::now();
            elect::print_leader(&cluster, candidacy.name).await;
            let election = cluster.client.election(candidacy.name);
            let campaigning = election.campaign_with(candidacy.value.to_owned(), |ask| {
                let ask = ask.ttl(times.timing.ttl()).grace(times.grace);
                match candidacy.wait {
                    Some(wait) => ask.wait(wait),
                    None => ask,
                }
            });
            let (notice, ttl) = (messages.stop_notice(), times.timing.ttl());
            let lead = tokio::select! {
                lead = campaigning => lead.map_err(|error| elect::not_elected(candidacy.name, candidacy.ttl, error))?,
                signal = given_up(&mut heard, &notice, ttl) => {
                    elect::left(&cluster, candidacy.name).await;
                    messages.unusual(&format!("left the election of `{}`", candidacy.name));
                    return Ok(Exit::Command(messages.ended("signal", codes::by_signal(signal))));
                }
            };
            let job = Job {
                names: &names,
                client: cluster.client.clone(),
                command: candidacy.command,
                freeze: candidacy.on_doubt == OnDoubt::Freeze,
                place: &place,
                times,
                waited: asked.elapsed(),
                variables: Vec::new(),
            };
            let under = LockedCommand::new(job, RunLock::Lead(Box::new(lead)), &mut messages);
            let RunOutcome { code, lost } = under.run(&mut heard).await;
            if !lost || candidacy.once {
                finish(&cluster.client).await;
                return Ok(Exit::Command(code));
            }
            messages.unusual(&format!("campaigning for `{}` again", candidacy.name));
        }
    });
    runtime.shutdown_background();
    done
}
