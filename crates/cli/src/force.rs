//! Takes a lock away from its holder, after a preview and a confirmation.

use std::io::{BufRead, IsTerminal};
use std::time::Duration;

use clap::Args;
use serde_json::json;
use tenure_wire::v1;
use tenure_wire::v1::ExplainResponse as Explanation;
use tokio::time::Instant;
use v1::answer::Result as Answer;
use v1::request::Command;

use crate::connection_args::{self, ConnectedCluster, request_id};
use crate::duration;
use crate::exit::Exit;
use crate::failure::{CliError, quoted};
use crate::lock::wait::{self, strange};
use crate::output::{self, OutputFormat};
use crate::print_args::QuietArgs;
use crate::suggest::suggested;
use crate::waiting::holder_words;

/// How often the command checks who holds the lock next.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// How long the next holder may take to appear, beyond the cooling.
const SLACK: Duration = Duration::from_secs(1);

/// The longest wait for the next holder when stderr is not a terminal.
const UNWATCHED: Duration = Duration::from_secs(5);

/// Flags of `tenure force`.
#[derive(Args)]
pub(crate) struct ForceArgs {
    /// Which lock
    #[arg(value_parser = output::name)]
    lock: String,
    /// The token of the grant to end, as `tenure explain` shows it; without it nothing is done
    #[arg(long)]
    token: Option<u64>,
    /// Why; kept in the history
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Do not let the holder stop first: only a fence protects the resource then
    #[arg(long)]
    now: bool,
    /// Do not ask
    #[arg(long)]
    yes: bool,
    /// Repeat a request whose outcome is not known
    #[arg(long, value_name = "ID")]
    request_id: Option<String>,
    #[command(flatten)]
    pub(crate) connection: QuietArgs,
}

pub(crate) fn force(flags: &ForceArgs) -> Result<Exit, CliError> {
    flags.connection.with(async |cluster| {
        let explained = wait::explain(cluster, &flags.lock, None).await?;
        let (token, reason) = match (flags.token, &flags.reason) {
            (Some(token), Some(reason)) => (token, reason.clone()),
            _ => return Err(preview(&flags.lock, &explained)),
        };
        if !flags.yes && !std::io::stdin().is_terminal() {
            let failure = CliError::arguments("there is no terminal to ask on; nothing was done");
            return Err(failure.next("the same with --yes"));
        }
        // A user who is asked must know what about.
        if cluster.output == OutputFormat::Text && !(flags.yes && cluster.quiet) {
            output::tell(&warning(flags, &explained, token));
        }
        confirm(flags)?;
        let began = Instant::now();
        let (lock, now, by) =
            (flags.lock.clone(), flags.now, connection_args::actor_name(&cluster.client));
        let command = Command::Force(v1::ForceRequest { lock, token, reason, now, by });
        let id = request_id(flags.request_id.as_ref());
        let (answer, revision) = cluster.client.ask(command, Some(&id)).await?;
        let Answer::Forced(forced) = answer else { return Err(strange()) };
        if cluster.output == OutputFormat::Json {
            output::object(&json!({
                "event": "forced", "lock": flags.lock, "token": token.to_string(),
                "revision": revision.to_string(), "left_ms": forced.left_ms,
            }));
            return Ok(Exit::Done);
        }
        if cluster.quiet {
            return Ok(Exit::Done);
        }
        let most = if output::watched() { Duration::MAX } else { UNWATCHED };
        let cooling = Duration::from_millis(forced.left_ms).min(most);
        let until = began + cooling + SLACK;
        let next = successor(cluster, &flags.lock, token, until).await?;
        let took = duration::shown(began.elapsed());
        let next = match next {
            Next::Holder(client, token) => format!("{client} holds token {token} after {took}"),
            Next::Free => format!("lock `{}` is free after {took}", flags.lock),
            Next::Cooling => {
                let left = Duration::from_millis(forced.left_ms).saturating_sub(began.elapsed());
                let look = suggested(&format!("tenure explain {}", quoted(&flags.lock)));
                let left = duration::shown(left);
                format!("revoking: the holder has up to {left} to stop; look: {look}")
            }
        };
        output::out(&format!("forced at revision {revision}; {next}\n"));
        Ok(Exit::Done)
    })
}

/// Without a token: shows who would lose the lock, and the exact command. Nothing is done.
fn preview(lock: &str, explained: &Explanation) -> CliError {
    let pasted = quoted(lock);
    let holder = explained.lock.iter().flat_map(|lock| &lock.holders).next();
    let failure = CliError::arguments("--token and --reason say which grant to end, and why");
    match holder {
        None => failure.with("held by", "no client: there is nothing to take away"),
        Some(holder) => failure
            .with("held by", holder_words(holder))
            .with("effect", "none")
            .next(format!("tenure force {pasted} --token {} --reason \"…\"", holder.token)),
    }
}

/// Describes what is about to happen.
fn warning(flags: &ForceArgs, explained: &Explanation, token: u64) -> String {
    let lock = &flags.lock;
    let mut holders = explained.lock.iter().flat_map(|lock| &lock.holders);
    let Some(holder) = holders.find(|it| it.token == token) else { return String::new() };
    let client = output::clean(&holder.client);
    if holder.state() == v1::HolderState::Resting {
        return format!(
            "`{lock}` is resting after a run of {client} and has no holder. The rest ends at once.\n"
        );
    }
    let alive = holder.renewed_ms.map_or(String::new(), |ms| {
        format!(", which renewed {} ago: probably alive", duration::ms(ms))
    });
    let next = explained.ahead.first().map_or("is free".to_owned(), |waiter| {
        format!("goes to {}", output::clean(&waiter.client))
    });
    let first = format!("`{lock}` is held by {client}{alive}.\n");
    if flags.now {
        return format!(
            "{first}It goes on at once, while {client} may still work: only a fence protects the \
             resource then.\n"
        );
    }
    let most = explained
        .freed
        .map_or(String::new(), |freed| format!(", at most {}", duration::ms(freed.in_ms)));
    format!(
        "{first}It is told to stop. The lock is revoking until it confirms{most}, then {next}.\n"
    )
}

fn confirm(flags: &ForceArgs) -> Result<(), CliError> {
    if flags.yes {
        return Ok(());
    }
    output::tell(&format!("To go on, type `{}`: ", flags.lock));
    let mut line = String::new();
    let read = std::io::stdin().lock().read_line(&mut line);
    if read.is_err() || line.trim_end_matches(['\r', '\n']) != flags.lock {
        return Err(CliError::refused("that is not the lock's name; nothing was done"));
    }
    Ok(())
}

enum Next {
    Holder(String, u64),
    Free,
    Cooling,
}

/// The state of the lock after the forced grant.
async fn successor(
    cluster: &ConnectedCluster,
    lock: &str,
    token: u64,
    until: Instant,
) -> Result<Next, CliError> {
    loop {
        let Some(view) = cluster.client.show_raw(lock).await? else { return Ok(Next::Free) };
        let others = view.holders.iter().filter(|it| it.token != token);
        let held = |it: &&v1::HolderView| it.state() == v1::HolderState::Held;
        if let Some(holder) = others.filter(held).max_by_key(|it| it.token) {
            return Ok(Next::Holder(output::clean(&holder.client), holder.token));
        }
        let is_gone = !view.holders.iter().any(|it| it.token == token) && view.more_holders == 0;
        if is_gone && view.waiting == 0 {
            return Ok(Next::Free);
        }
        if Instant::now() >= until {
            return Ok(Next::Cooling);
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}
