//! Campaigns in an election from a shell and leads until the leadership ends.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde_json::json;
use tenure::{Leadership, Lost};
use tokio::time::Instant;

use crate::connection_args::ConnectedCluster;
use crate::duration;
use crate::exit::Exit;
use crate::failure::{CliError, quoted};
use crate::lock::{TTL, millis, unanswered};
use crate::loss;
use crate::output::{self, OutputFormat};
use crate::print_args::QuietArgs;
use crate::run::{self, Candidacy, OnDoubt};
use crate::signals::{self, StopSignals};
use crate::waiting::labelled;

/// How long withdrawing a candidacy may take, and how often to check it.
const LEAVING: Duration = Duration::from_secs(2);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Flags of `tenure elect`.
#[derive(Args)]
pub(crate) struct ElectArgs {
    /// Which election
    #[arg(value_parser = output::lock_name)]
    name: String,
    /// Value shown to others while this process leads, such as an address
    #[arg(long, value_name = "TEXT")]
    value: String,
    /// Lease TTL, 1s to 1h: how long leadership lasts after this process dies [default: 15s]
    #[arg(long, value_name = "TIME", value_parser = duration::ttl)]
    ttl: Option<Duration>,
    /// Campaign at most this long; 0 tries once [default: no limit]
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    wait: Option<Duration>,
    /// Do not campaign again after a loss: end with 76
    #[arg(long)]
    once: bool,
    /// Run this while leading; it has ended before another candidate can lead
    #[arg(value_name = "COMMAND", last = true)]
    command: Vec<OsString>,
    /// From SIGTERM to SIGKILL on loss [default: a third of ttl, at most 5s]
    #[arg(long, value_name = "TIME", value_parser = duration::parse, requires = "command")]
    grace: Option<Duration>,
    /// What happens to the command while a renewal is late
    #[arg(long, value_name = "WHAT", value_enum, default_value_t, requires = "command")]
    on_doubt: OnDoubt,
    /// Write one JSON object per event to this file
    #[arg(long, value_name = "FILE", requires = "command")]
    events: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) connection: QuietArgs,
}

/// How leading ended.
enum LeadershipEnd {
    /// A signal asked the process to end.
    Asked,
    /// The leadership is lost.
    Lost(Lost),
}

/// Campaigns and leads; after a loss it campaigns again.
pub(crate) fn elect(flags: &ElectArgs) -> Result<Exit, CliError> {
    if !flags.command.is_empty() {
        return run::lead(&Candidacy {
            name: &flags.name,
            value: &flags.value,
            ttl: flags.ttl,
            wait: flags.wait,
            grace: flags.grace,
            on_doubt: flags.on_doubt,
            once: flags.once,
            command: &flags.command,
            events: flags.events.as_deref(),
            connection: &flags.connection,
        });
    }
    flags.connection.with(async |cluster| {
        let mut asked = signals::listen()?;
        loop {
            let began = Instant::now();
            print_leader(cluster, &flags.name).await;
            let campaign = cluster.client.election(&flags.name);
            let campaigning = campaign.campaign_with(flags.value.clone(), |mut ask| {
                if let Some(ttl) = flags.ttl {
                    ask = ask.ttl(ttl);
                }
                match flags.wait {
                    Some(wait) => ask.wait(wait),
                    None => ask,
                }
            });
            let lead = tokio::select! {
                lead = campaigning => lead.map_err(|error| not_elected(&flags.name, flags.ttl, error))?,
                signal = asked.signal() => {
                    left(cluster, &flags.name).await;
                    return Ok(Exit::Signal(signal));
                }
            };
            elected(cluster, flags, &lead, began.elapsed());
            let began_to_lead = Instant::now();
            match while_leading(&lead, &mut asked).await {
                LeadershipEnd::Asked => {
                    lead.resign().await?;
                    resigned(cluster, flags);
                    return Ok(Exit::Done);
                }
                LeadershipEnd::Lost(lost) => {
                    let (from, held) = (lead.guard().revision(), began_to_lead.elapsed());
                    let held_words = loss::held_words(lead.guard(), held);
                    let mut event = loss::event_fields(lead.guard(), held, lost.word(), Some(&lost));
                    let error_fields = loss::error_fields(lead.guard(), held, &lost);
                    // No command runs under this leadership. The resignation is a courtesy, so its result does not
                    // matter.
                    let _ = lead.resign().await;
                    let why = loss::cause_words(&lost, flags.ttl.unwrap_or(TTL));
                    let text = format!("leadership of `{}` lost: {why}", flags.name);
                    if flags.once {
                        let look = format!("tenure history {} --from {from}", quoted(&flags.name));
                        return Err(CliError::new(Exit::Lost, "LOST", text)
                            .with("held", held_words)
                            .with("look", look)
                            .fields(error_fields));
                    }
                    match cluster.output {
                        OutputFormat::Json => {
                            (event["event"], event["name"]) = ("lost".into(), (*flags.name).into());
                            output::tell_object(&event);
                        }
                        OutputFormat::Text => {
                            let held = labelled("held", &held_words);
                            output::tell(&format!("tenure: {text}; campaigning again\n{held}\n"));
                        }
                    }
                }
            }
        }
    })
}

/// Waits until the candidacy is gone. The SDK withdraws it in the background.
pub(crate) async fn left(cluster: &ConnectedCluster, name: &str) {
    let until = Instant::now() + LEAVING;
    let we = cluster.client.name();
    while Instant::now() < until {
        let Ok(explained) = cluster.client.explain_raw(name).await else { return };
        let holders = explained.lock.iter().flat_map(|lock| &lock.holders);
        let there = explained.ahead.iter().any(|it| it.client == we);
        if !there && !holders.into_iter().any(|it| it.client == we) {
            return;
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Leads, without a command, until a signal or a loss.
async fn while_leading(lead: &Leadership, asked: &mut StopSignals) -> LeadershipEnd {
    tokio::select! {
        lost = lead.guard().lost() => LeadershipEnd::Lost(lost),
        _ = asked.signal() => LeadershipEnd::Asked,
    }
}

pub(crate) async fn print_leader(cluster: &ConnectedCluster, name: &str) {
    if cluster.output != OutputFormat::Text || cluster.quiet {
        return;
    }
    let Ok(Some(view)) = cluster.client.show_raw(name).await else { return };
    let Some(leader) = view.holders.first() else { return };
    let (client, value) = (output::clean(&leader.client), output::bytes(&leader.metadata));
    let (held, waiting) = (duration::ms(leader.held_ms), view.waiting);
    if !leader.election {
        let text = format!("tenure: `{name}` is held by {client} as a lock, for {held}\n");
        return output::tell(&text);
    }
    let place = match waiting {
        0 => "you are next".to_owned(),
        some => format!("{some} ahead of you"),
    };
    output::tell(&format!("tenure: `{name}` is led by {client} ({value}) for {held}; {place}\n"));
}

pub(crate) fn not_elected(name: &str, ttl: Option<Duration>, error: tenure::Error) -> CliError {
    let failure = unanswered(&format!("leadership of `{name}`"), ttl.unwrap_or(TTL), error);
    if failure.exit == Exit::NotAcquired {
        return failure.next(format!("tenure observe {}", quoted(name)));
    }
    failure
}

fn elected(cluster: &ConnectedCluster, flags: &ElectArgs, lead: &Leadership, waited: Duration) {
    let (name, token) = (&flags.name, lead.guard().token());
    match cluster.output {
        OutputFormat::Json => output::tell_object(&json!({
            "event": "elected", "name": name, "token": token.to_string(),
            "lease": lead.guard().lease().to_string(), "waited_ms": millis(waited),
        })),
        OutputFormat::Text if cluster.quiet => {}
        OutputFormat::Text => {
            output::tell(&format!("tenure: elected leader of `{name}`, token {token}\n"));
        }
    }
}

fn resigned(cluster: &ConnectedCluster, flags: &ElectArgs) {
    match cluster.output {
        OutputFormat::Json => {
            output::tell_object(&json!({ "event": "resigned", "name": flags.name }));
        }
        OutputFormat::Text if cluster.quiet => {}
        OutputFormat::Text => output::tell(&format!("tenure: resigned from `{}`\n", flags.name)),
    }
}
