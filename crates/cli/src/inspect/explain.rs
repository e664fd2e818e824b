//! Explains a lock: who has it, who is ahead, and when it can be free.

use clap::Args;
use serde::Serialize;
use serde_json::Value;
use tenure_wire::convert;
use tenure_wire::json::lock::Explained;
use tenure_wire::v1;
use tenure_wire::v1::ExplainResponse as Explanation;
use tenure_wire::v1::lock_admin_service_client::LockAdminServiceClient;
use unicode_width::UnicodeWidthStr;

use super::locks::mode_words;
use super::stale::StaleArgs;
use crate::connection_args::{ConnectedCluster, ConnectionArgs};
use crate::duration;
use crate::exit::Exit;
use crate::failure::{CliError, quoted};
use crate::lease;
use crate::lock::wait;
use crate::output::{self, OutputFormat};
use crate::suggest::suggested;
use crate::waiting;

/// Flags of `tenure explain`.
#[derive(Args)]
pub(crate) struct ExplainArgs {
    /// Which lock
    #[arg(value_parser = output::name)]
    lock: String,
    /// Show it from the queue position of this lease
    #[arg(long, value_name = "LEASE", conflicts_with = "stale")]
    lease: Option<String>,
    #[command(flatten)]
    stale: StaleArgs,
    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,
}

/// An explanation, and whether it is stale.
#[derive(Serialize)]
struct MarkedExplanation {
    #[serde(flatten)]
    explained: Explained,
    #[serde(skip_serializing_if = "Option::is_none")]
    stale: Option<Value>,
}

/// Explains a lock.
pub(crate) fn explain(flags: &ExplainArgs) -> Result<Exit, CliError> {
    flags.stale.with(&flags.connection, async |cluster| {
        let own = match &flags.lease {
            Some(given) => convert::lease_from(lease::find(cluster, given).await?),
            None => None,
        };
        let explained = match flags.stale.stale {
            true => from_own_state(cluster, &flags.lock).await?,
            false => wait::explain(cluster, &flags.lock, own).await?,
        };
        let mark = flags.stale.mark(cluster).await?;
        match cluster.output {
            OutputFormat::Json => {
                let explained = Explained::from(explained);
                let stale = mark.map(|mark| mark.json());
                output::object(&MarkedExplanation { explained, stale });
            }
            OutputFormat::Text => {
                if let Some(mark) = mark {
                    output::out(&format!("stale    {}\n", mark.words()));
                }
                output::out(&text(&flags.lock, &explained, cluster.client.name()));
            }
        }
        Ok(Exit::Done)
    })
}

/// Asks a member for what it knows itself.
async fn from_own_state(cluster: &ConnectedCluster, lock: &str) -> Result<Explanation, CliError> {
    let ask = v1::ExplainRequest { lock: lock.to_owned(), stale: true, ..Default::default() };
    let asked = async |channel| LockAdminServiceClient::new(channel).explain(ask.clone()).await;
    Ok(cluster.client.question(asked).await?)
}

/// The explanation in a few lines.
pub(crate) fn text(name: &str, explained: &Explanation, we: &str) -> String {
    let pasted = quoted(name);
    let Some(lock) = &explained.lock else {
        let quiet = quiet_line(explained) + &drain_line(explained);
        let next = suggested(&format!("tenure lock {pasted} · tenure history {pasted}"));
        return format!(
            "lock `{name}` is free: no client holds or awaits it\n{quiet}next     {next}\n"
        );
    };
    let mut text = format!("lock `{name}`, {}, at revision {}\n", mode_words(lock), lock.modified);
    for (at, holder) in lock.holders.iter().enumerate() {
        let label = if at == 0 { "held by" } else { "" };
        let lease = format!(", lease {}", lease::short(holder.lease));
        let words = waiting::holder_words_with(holder, &lease);
        text.push_str(&format!("{label:<8} {words}\n"));
        text.push_str(&progress_line(holder));
    }
    if lock.sized {
        let slots = output::count(u64::from(lock.slots.unwrap_or(0)), "slot");
        text.push_str(&format!("size     {slots}, set by an operator\n"));
    }
    let queue: Vec<_> = explained.ahead.iter().chain(&explained.own).collect();
    let width = queue.iter().map(|it| output::clean(&it.client).width()).max().unwrap_or(0);
    let own = explained.own.as_ref().map(|own| own.place);
    for (at, waiter) in queue.iter().enumerate() {
        let label = if at == 0 { "waiting" } else { "" };
        let you = if Some(waiter.place) == own || waiter.client == we { "   (you)" } else { "" };
        let (number, client) = (waiter.ahead + 1, output::clean(&waiter.client));
        let client = output::padded(&client, width);
        let waiting = duration::ms(waiter.waiting_ms);
        let group = match waiter.supersede.as_str() {
            "" => String::new(),
            group => format!("   (the newest of {})", output::shortened(group)),
        };
        let priority = match waiter.priority {
            0 => String::new(),
            priority => format!("   priority {priority}"),
        };
        let holds = lock.holders.iter().any(|holder| holder.lease == waiter.lease);
        let upgrade = if holds { "   to hold it alone, shared until then" } else { "" };
        let take = match waiter.take {
            0 | 1 => String::new(),
            take => format!("   for {take} slots"),
        };
        let choice = match waiting::choice_words(waiter) {
            Some(words) => format!("   for {words}"),
            None => String::new(),
        };
        text.push_str(&format!(
            "{label:<8} {number}. {client}  {waiting:>5}{take}{choice}{priority}{group}{upgrade}{you}\n"
        ));
    }
    text.push_str(&passed_line(explained, &queue));
    let more = lock.waiting.saturating_sub(queue.len() as u64);
    if more > 0 {
        let look = suggested(&format!("tenure queue {pasted}"));
        text.push_str(&format!("         and {more} more: {look}\n"));
    }
    if explained.chain.len() > 1 {
        let steps = explained
            .chain
            .iter()
            .map(|step| format!("{} → {}", output::clean(&step.lock), output::clean(&step.client)));
        let goes_on = if explained.chain_goes_on { " → …" } else { "" };
        let steps: Vec<String> = steps.collect();
        text.push_str(&format!("chain    {}{goes_on}\n", steps.join(" → ")));
    }
    if let Some(free) = waiting::free_slots(explained) {
        text.push_str(&format!("free     {free}\n"));
    } else if let Some(free) = waiting::free_words(explained) {
        let holder = lock.holders.first();
        let max = holder
            .and_then(|it| it.max_hold_ms)
            .map_or("no max_hold".to_owned(), |ms| format!("max_hold {}", duration::ms(ms)));
        text.push_str(&format!("free     {free}; {max}\n"));
    }
    if let Some(usually) = explained.usually_held_ms {
        let (held, of) = (duration::ms(usually), explained.usually_of);
        text.push_str(&format!("usually  held {held} (median of {of})\n"));
    }
    text.push_str(&quiet_line(explained));
    text.push_str(&drain_line(explained));
    text.push_str(&reopening_line(explained));
    text.push_str(&next(&pasted, explained));
    text
}

/// Why nothing is granted after a restore; nothing outside the quiet period.
fn quiet_line(explained: &Explanation) -> String {
    let said = explained.quiet_ms.map(output::quiet);
    said.map_or(String::new(), |said| format!("restored {said}\n"))
}

/// How far a holder has come that promised progress, and when it must have come further.
fn progress_line(holder: &v1::HolderView) -> String {
    let Some(progress) = &holder.progress else { return String::new() };
    let (still, left) = (duration::ms(progress.still_ms), duration::ms(progress.left_ms));
    let number = match progress.number {
        0 => format!("nothing reported yet, for {still}"),
        number => format!("{number}, reported {still} ago"),
    };
    format!("progress {number}; a larger number is due in {left}\n")
}

/// Until when newer requests may pass us, or the last shown waiter if we do not wait; nothing for a queue without
/// priorities. Each waiter has its own time, by its priority and its wait.
fn passed_line(explained: &Explanation, queue: &[&v1::WaiterView]) -> String {
    let urgent = queue.iter().any(|waiter| waiter.priority > 0);
    let Some(waiter) = queue.last().filter(|_| urgent) else { return String::new() };
    let who = match &explained.own {
        Some(_) => "you".to_owned(),
        None => output::clean(&waiter.client),
    };
    let always = "an upgrade or a hand-on";
    if waiter.passable_ms == 0 {
        return format!("passed   only {always} can pass {who}\n");
    }
    let left = duration::ms(waiter.passable_ms);
    let (urgent, others) = ("new requests of priority 9", "less urgent ones for less");
    format!("passed   {urgent} can pass {who} for {left}, {others}; {always} always\n")
}

/// Why nothing is granted of a drained lock, and until when; nothing for any other.
fn drain_line(explained: &Explanation) -> String {
    let Some(drain) = &explained.drained else { return String::new() };
    let (words, open) = (waiting::drain_words(drain), waiting::undrain_command(&drain.prefix));
    format!("drained  {words}; not granted until: {open}\n")
}

/// Why a lock that is free is not granted yet although its prefix was opened; nothing otherwise.
fn reopening_line(explained: &Explanation) -> String {
    let Some(since) = explained.reopening_ms.map(duration::ms) else { return String::new() };
    format!(
        "reopened {since} ago; the cluster serves the queues in turn, and this one is still to come\n"
    )
}

fn next(pasted: &str, explained: &Explanation) -> String {
    let beyond = explained
        .chain
        .get(1)
        .map_or(String::new(), |step| format!("tenure explain {} · ", quoted(&step.lock)));
    let holder = explained.lock.iter().flat_map(|lock| &lock.holders).next();
    let force = holder.map_or(String::new(), |holder| {
        let token = holder.token;
        // For a lock that was already taken away, only the wait for its former holder can be skipped.
        let now = if holder.state() == v1::HolderState::Held { "" } else { " --now" };
        format!("         tenure force {pasted} --token {token} --reason \"…\"{now}\n")
    });
    suggested(&format!("next     {beyond}tenure history {pasted}\n{force}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_free_lock_whose_turn_is_still_to_come_is_explained() {
        let mut explained = Explanation::default();
        assert_eq!(reopening_line(&explained), "");
        explained.reopening_ms = Some(2_000);
        let said = "reopened 2s ago; the cluster serves the queues in turn, and this one is still to come\n";
        assert_eq!(reopening_line(&explained), said);
    }
}
