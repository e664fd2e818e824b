//! Grants, renews, revokes and shows leases from a shell.

use std::convert::Infallible;
use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::json;
use tenure_types::LeaseId;
use tenure_wire::json::lease::LeaseShown;
use tenure_wire::{convert, v1};
use v1::answer::Result as Answer;
use v1::lease_service_client::LeaseServiceClient;
use v1::request::Command;

use crate::client_name::granted_name;
use crate::connection_args::{ConnectedCluster, ConnectionArgs, actor_name, request_id};
use crate::duration;
use crate::exit::Exit;
use crate::failure::CliError;
use crate::lease_keep::{self, KeepArgs};
use crate::listing::Listing;
use crate::lock::millis;
use crate::lock::wait::strange;
use crate::output::{self, OutputFormat, Side};
use crate::print_args::{ListArgs, QuietArgs};
use crate::suggest::suggested;

/// The fewest digits that may identify a lease: fewer are more likely a typing error.
const DIGITS_MIN: usize = 6;

/// How many digits of a lease id people are shown.
const SHORT: usize = 8;

/// The renewals per ttl, as in the SDK: one that fails can be repeated.
pub(crate) const RENEWED_IN: u32 = 3;

/// What can be done with leases.
#[derive(Subcommand)]
pub(crate) enum LeaseCommand {
    /// Grant a lease that you renew yourself
    ///
    ///   LEASE=$(tenure lease grant --ttl 60s)    its id is all that is printed
    ///   TOKEN=$(tenure try deploy --lease $LEASE)
    ///   tenure lease renew $LEASE                within the ttl, again and again; or: tenure lease keep $LEASE &
    ///   tenure lease revoke $LEASE --stopped     your work has stopped: ends it and gives everything back
    #[command(verbatim_doc_comment)]
    #[command(mut_arg("quiet", |arg| arg.help("Print only the id, also on a terminal")))]
    Grant(GrantArgs),
    /// Renew leases, once
    ///
    ///   tenure lease renew 68629145
    ///
    /// Ends with 1 if one of them is unknown or has ended: stop its work then. The others are renewed all the same.
    #[command(verbatim_doc_comment)]
    Renew(RenewArgs),
    /// Keep a lease alive while a command runs
    ///
    ///   tenure lease keep $LEASE -- ./report     ends with its code; the lease goes on for its ttl
    ///   tenure lease keep $LEASE &               until a signal
    ///
    /// Ends with 76 if the lease is lost, and tells the command to stop. `tenure run` does that in time for every
    /// process of the command, also if `tenure` itself is killed: prefer it where you can.
    #[command(verbatim_doc_comment)]
    #[command(mut_arg("quiet", |arg| arg.help("Print only errors and the loss of the lease")))]
    Keep(KeepArgs),
    /// End a lease, and take away everything it holds
    ///
    ///   tenure lease revoke 68629145 --reason "runner 7 was deleted"
    ///   tenure lease revoke 68629145 --stopped    yours, and its work has stopped: the next holder does not wait
    ///
    /// Its holder is told to stop. Its locks are revoking until the holder confirms that it has stopped, at the longest
    /// until the lease would have ended by itself; only then do others get them.
    #[command(verbatim_doc_comment)]
    Revoke(LeaseRevokeArgs),
    /// List leases
    ///
    ///   tenure lease list
    ///   tenure lease list --quiet | wc -l        how many there are
    #[command(verbatim_doc_comment)]
    List(LeaseListArgs),
    /// Show a lease and what is bound to it
    ///
    ///   tenure lease show 68629145
    #[command(verbatim_doc_comment)]
    Show(LeaseShowArgs),
}

/// Flags of `tenure lease grant`.
#[derive(Args)]
pub(crate) struct GrantArgs {
    /// How long it lives after a renewal: 1s to 1h
    #[arg(long, value_name = "TIME", value_parser = duration::parse, default_value = "60s")]
    ttl: Duration,
    /// Have this id; a repeated grant of the same id is one lease
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i64).range(1..))]
    id: Option<i64>,
    /// Description shown when the lease is inspected
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    metadata: String,
    #[command(flatten)]
    pub(crate) connection: QuietArgs,
}

/// Flags of `tenure lease renew`.
#[derive(Args)]
pub(crate) struct RenewArgs {
    /// Which; their first digits will do
    #[arg(required = true, value_name = "LEASE")]
    leases: Vec<String>,
    #[command(flatten)]
    pub(crate) connection: QuietArgs,
}

/// Flags of `tenure lease revoke`.
#[derive(Args)]
pub(crate) struct LeaseRevokeArgs {
    /// Which; its first digits will do
    lease: String,
    /// Why; told to the holder
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// The work under it has stopped, which you know: its locks go on at once
    #[arg(long, conflicts_with_all = ["reason", "now"])]
    stopped: bool,
    /// Do not let the holder stop first: only a fence protects the resource then
    #[arg(long, requires = "reason")]
    now: bool,
    #[command(flatten)]
    pub(crate) connection: QuietArgs,
}

/// Flags of `tenure lease list`.
#[derive(Args)]
pub(crate) struct LeaseListArgs {
    #[command(flatten)]
    pub(crate) connection: ListArgs,
}

/// Flags of `tenure lease show`.
#[derive(Args)]
pub(crate) struct LeaseShowArgs {
    /// Which; its first digits will do
    lease: String,
    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,
}

impl LeaseCommand {
    pub(crate) fn output(&self) -> OutputFormat {
        match self {
            Self::Grant(it) => it.connection.output,
            Self::Renew(it) => it.connection.output,
            Self::Keep(it) => it.connection.output,
            Self::Revoke(it) => it.connection.output,
            Self::List(it) => it.connection.output,
            Self::Show(it) => it.connection.output,
        }
    }
}

/// Runs one of these subcommands.
pub(crate) fn run(command: &LeaseCommand) -> Result<Exit, CliError> {
    match command {
        LeaseCommand::Grant(flags) => {
            flags.connection.with(async |cluster| grant(cluster, flags).await)
        }
        LeaseCommand::Renew(flags) => {
            flags.connection.with(async |cluster| renew(cluster, flags).await)
        }
        LeaseCommand::Keep(flags) => lease_keep::keep(flags),
        LeaseCommand::Revoke(flags) => {
            flags.connection.with(async |cluster| revoke(cluster, flags).await)
        }
        LeaseCommand::List(flags) => flags.connection.with(list),
        LeaseCommand::Show(flags) => {
            flags.connection.with(async |cluster| show(cluster, flags).await)
        }
    }
}

async fn grant(cluster: &ConnectedCluster, flags: &GrantArgs) -> Result<Exit, CliError> {
    let drawn = i64::try_from(tenure_server::os::random() >> 1).unwrap_or(1).max(1);
    let command = Command::GrantLease(v1::NewLease {
        ttl_ms: millis(flags.ttl),
        lease: flags.id.unwrap_or(drawn),
        client: granted_name(cluster.client.name()),
        metadata: flags.metadata.clone().into(),
    });
    let (Answer::LeaseGranted(lease), _) = cluster.client.ask(command, None).await? else {
        return Err(strange());
    };
    match cluster.output {
        OutputFormat::Json => {
            output::object(&tenure_wire::json::lease::LeaseGranted::from(lease));
        }
        OutputFormat::Text => {
            output::out(&format!("{}\n", lease.lease));
            if output::watched() && !cluster.quiet {
                let (ttl, short) = (duration::ms(lease.ttl_ms), short(lease.lease));
                let renew = suggested(&format!("tenure lease renew {short}"));
                output::tell(&format!("tenure: it ends in {ttl} unless you renew it: {renew}\n"));
            }
        }
    }
    Ok(Exit::Done)
}

async fn renew(cluster: &ConnectedCluster, flags: &RenewArgs) -> Result<Exit, CliError> {
    let mut leases = Vec::new();
    for given in &flags.leases {
        leases.push(find(cluster, given).await?);
    }
    let command = Command::Renew(v1::RenewRequest { leases: leases.clone(), ..Default::default() });
    let (Answer::Renewed(renewed), _) = cluster.client.ask(command, None).await? else {
        return Err(strange());
    };
    let mut gone = None;
    for (lease, ttl_ms) in leases.iter().zip(&renewed.ttl_ms) {
        match (cluster.output, ttl_ms) {
            (OutputFormat::Json, ttl_ms) => {
                output::object(&json!({ "lease": lease.to_string(), "ttl_ms": ttl_ms }));
            }
            (OutputFormat::Text, 0) => {}
            (OutputFormat::Text, _) if cluster.quiet => {}
            (OutputFormat::Text, ttl_ms) => {
                let ttl = duration::ms(*ttl_ms);
                output::out(&format!("lease {} lives for another {ttl}\n", short(*lease)));
            }
        }
        if *ttl_ms == 0 {
            gone = Some(*lease);
        }
    }
    gone.map_or(Ok(Exit::Done), |lease| Err(ended(&lease.to_string())))
}

async fn revoke(cluster: &ConnectedCluster, flags: &LeaseRevokeArgs) -> Result<Exit, CliError> {
    let lease = find(cluster, &flags.lease).await?;
    // Read the lease first: after the end the cluster no longer knows what it held.
    let view = get(cluster, lease).await?.ok_or_else(|| ended(&flags.lease))?;
    let command = Command::Revoke(v1::RevokeRequest {
        lease,
        by_other: !flags.stopped,
        reason: flags.reason.clone().unwrap_or_default(),
        now: flags.now,
        // The holder itself needs no name.
        by: if flags.stopped { String::new() } else { actor_name(&cluster.client) },
        ..Default::default()
    });
    let id = (!flags.stopped).then(|| request_id(None));
    let (answer, revision) = cluster.client.ask(command, id.as_ref()).await?;
    let Answer::Revoked(_) = answer else { return Err(strange()) };
    match cluster.output {
        OutputFormat::Json => output::object(&json!({
            "event": "revoked", "lease": lease.to_string(), "revision": revision.to_string(),
        })),
        OutputFormat::Text if cluster.quiet => {}
        OutputFormat::Text => {
            let after = afterwards(flags, &view);
            let lease = short(lease);
            output::tell(&format!("lease {lease} revoked at revision {revision}{after}\n"));
        }
    }
    Ok(Exit::Done)
}

/// What becomes of the locks of a revoked lease.
fn afterwards(flags: &LeaseRevokeArgs, view: &v1::LeaseView) -> String {
    if flags.stopped || view.holds.is_empty() {
        return String::new();
    }
    let client = output::clean(&view.client);
    let locks = few(view.holds.iter().map(|it| output::clean(&it.lock)).collect());
    if flags.now {
        return format!("; {locks}: not held any more, while {client} may still work under it");
    }
    let left = duration::ms(view.left_ms);
    format!("; {locks}: revoking until {client} confirms that it has stopped, at most {left}")
}

async fn list(cluster: &ConnectedCluster) -> Result<Exit, CliError> {
    let head = [
        ("LEASE", Side::Left),
        ("CLIENT", Side::Left),
        ("TTL", Side::Left),
        ("LEFT", Side::Left),
        ("HOLDS", Side::Left),
        ("WAITS FOR", Side::Left),
    ];
    let mut listing = Listing::new(cluster, &head);
    for view in all(cluster).await? {
        let lease = view.lease.unwrap_or_default();
        let cells = || {
            let holds = view.holds.iter().map(|it| it.lock.clone());
            let waits = view.waits.iter().map(|it| it.lock.clone());
            [
                short(lease.lease),
                view.client.clone(),
                duration::ms(lease.ttl_ms),
                duration::ms(view.left_ms),
                few(holds.collect()),
                few(waits.collect()),
            ]
        };
        let (id, object) = (lease.lease.to_string(), || LeaseShown::from(view.clone()));
        listing.item(&id, |table| table.row(cells()), object);
    }
    listing.print_or(&suggested("there is no lease; take one: tenure lease grant --ttl 60s"));
    Ok(Exit::Done)
}

/// The first two names, and the number of further ones.
fn few(names: Vec<String>) -> String {
    match &names[..] {
        [] => "-".to_owned(),
        [one] => one.clone(),
        [one, two] => format!("{one}, {two}"),
        [one, two, more @ ..] => format!("{one}, {two} +{}", more.len()),
    }
}

async fn show(cluster: &ConnectedCluster, flags: &LeaseShowArgs) -> Result<Exit, CliError> {
    let lease = find(cluster, &flags.lease).await?;
    let view = get(cluster, lease).await?.ok_or_else(|| ended(&flags.lease))?;
    if cluster.output == OutputFormat::Json {
        output::object(&LeaseShown::from(view));
        return Ok(Exit::Done);
    }
    let known = view.lease.unwrap_or_default();
    let (ttl, left) = (duration::ms(known.ttl_ms), duration::ms(view.left_ms));
    let client = output::clean(&view.client);
    let lease = short(lease);
    let mut text = format!("lease {lease} of {client}, ttl {ttl}, {left} left if not renewed\n");
    for hold in &view.holds {
        let (lock, token) = (output::clean(&hold.lock), hold.token);
        text.push_str(&format!("holds    {lock}, token {token}\n"));
    }
    for wait in &view.waits {
        text.push_str(&format!("waits    {}\n", output::clean(&wait.lock)));
    }
    for key in &view.keys {
        text.push_str(&format!("key      {}\n", output::clean(key)));
    }
    if !view.metadata.is_empty() {
        text.push_str(&format!("says     {:?}\n", output::bytes(&view.metadata)));
    }

    let next = suggested(&format!("tenure lease renew {lease} · tenure lease revoke {lease}"));
    text.push_str(&format!("next     {next}\n"));
    output::out(&text);
    Ok(Exit::Done)
}

/// Renews a lease for as long as the caller polls this, beginning after `moment`: no other process renews it while the
/// caller waits under it.
pub(crate) async fn keep(cluster: &ConnectedCluster, lease: i64, moment: Duration) -> Infallible {
    let mut pause = moment;
    loop {
        tokio::time::sleep(pause).await;
        let renewal = v1::RenewRequest { leases: vec![lease], ..Default::default() };
        let renewed = match cluster.client.ask(Command::Renew(renewal), None).await {
            Ok((Answer::Renewed(renewed), _)) => renewed.ttl_ms.first().copied(),
            // No member took the renewal: the next try comes soon enough, or every try would be too late.
            _ => None,
        };
        pause = match renewed {
            // The lease has ended, and with it the place in the queue: the waiting request gets that answer.
            Some(0) => std::future::pending().await,
            Some(ttl_ms) => Duration::from_millis(ttl_ms) / RENEWED_IN,
            None => moment,
        };
    }
}

/// The lease that the user means: by its id, or by first digits that only one lease has.
pub(crate) async fn find(cluster: &ConnectedCluster, given: &str) -> Result<i64, CliError> {
    let digits = !given.is_empty() && given.chars().all(|c| c.is_ascii_digit());
    if !digits {
        let text = format!("`{given}` is no lease: those are numbers");
        return Err(CliError::arguments(text).next("tenure lease list"));
    }
    let exact = given.parse::<i64>().ok().filter(|id| *id > 0);
    if let Some(id) = exact
        && get(cluster, id).await?.is_some()
    {
        return Ok(id);
    }
    if given.len() < DIGITS_MIN {
        let text =
            format!("lease prefix `{given}` is too short; give at least {DIGITS_MIN} digits");
        return Err(CliError::arguments(text).next("tenure lease list"));
    }
    let ids = all(cluster).await?.into_iter().filter_map(|it| Some(it.lease?.lease));
    let found: Vec<i64> = ids.filter(|id| id.to_string().starts_with(given)).collect();
    match &found[..] {
        [one] => Ok(*one),
        [] => Err(ended(given)),
        several => {
            let text = format!("{} leases begin with {given}", several.len());
            Err(CliError::arguments(text).next("more digits: tenure lease list"))
        }
    }
}

fn ended(lease: &str) -> CliError {
    let text = format!("lease {lease} is unknown or has ended");
    CliError::new(Exit::Refused, "LEASE_NOT_FOUND", text)
        .with("effect", "none")
        .next("stop the work, then: tenure lease grant --ttl 60s")
}

/// The digits that people are shown.
pub(crate) fn short(lease: i64) -> String {
    let mut digits = lease.to_string();
    digits.truncate(SHORT);
    digits
}

async fn get(cluster: &ConnectedCluster, lease: i64) -> Result<Option<v1::LeaseView>, CliError> {
    let known: Option<LeaseId> = convert::lease_from(lease);
    let lease = known.map_or(0, convert::lease);
    let command = Command::GetLease(v1::GetLeaseRequest { lease, ..Default::default() });
    match cluster.client.ask(command, None).await {
        Ok((Answer::Lease(it), _)) => Ok(it.lease),
        Ok(_) => Err(strange()),
        Err(tenure::Error::Refused(tenure::Refusal::LeaseNotFound)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

async fn all(cluster: &ConnectedCluster) -> Result<Vec<v1::LeaseView>, CliError> {
    let (mut leases, mut after) = (Vec::new(), 0);
    loop {
        let ask = v1::ListLeasesRequest { limit: 0, after, stale: false };
        let asked = async |channel| LeaseServiceClient::new(channel).list(ask).await;
        let page = cluster.client.question(asked).await?;
        leases.extend(page.leases);
        after = page.next;
        if after == 0 {
            return Ok(leases);
        }
    }
}
