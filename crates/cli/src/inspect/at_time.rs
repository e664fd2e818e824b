//! Says who held a lock at a time of the wall clock, and how that ended.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tenure_wire::json::lock::ArchiveExtent;
use tenure_wire::{v1, wall};

use super::history::{Pages, extent};
use crate::connection_args::ConnectedCluster;
use crate::duration;
use crate::exit::Exit;
use crate::failure::CliError;
use crate::output::{self, OutputFormat};
use crate::wall_time;

/// How many revisions one page has, and how many pages are read in each direction.
const PAGE: u32 = 1_000;
const PAGES: usize = 20;

/// One grant of the lock, as far as it is known.
#[derive(Clone, Debug, Default)]
struct HeldAt {
    client: String,
    lease: i64,
    since_ms: Option<u64>,
    slot: Option<u32>,
    /// The end: of the hold itself, then of what keeps others out after it.
    end: Option<v1::Event>,
    gone: bool,
}

/// The lock as it was.
#[derive(Default)]
struct StandingAt {
    /// The grants, by token.
    grants: BTreeMap<u64, HeldAt>,
    /// The clients of waiters, by place.
    queue: BTreeMap<u64, String>,
    /// Whether an event before that time was found.
    known: bool,
}

/// Shows who held the lock then.
pub(super) async fn show(
    cluster: &ConnectedCluster,
    lock: &str,
    at_ms: u64,
) -> Result<Exit, CliError> {
    let search = v1::ArchiveSearch { until_unix_ms: Some(at_ms), ..Default::default() };
    let (before, found) = read(cluster, lock, search, true).await?;
    let mut standing = StandingAt::default();
    before.iter().for_each(|event| standing.add(event));
    let search = v1::ArchiveSearch { since_unix_ms: Some(at_ms + 1), ..Default::default() };
    let (after, _) = read(cluster, lock, search, false).await?;
    let held: Vec<(u64, HeldAt)> = standing
        .grants
        .iter()
        .filter(|(_, it)| !it.gone)
        .map(|(token, it)| (*token, it.clone()))
        .collect();
    let end_of =
        |token: u64, held: &HeldAt| held.end.clone().or_else(|| end_after(token, held, &after));
    if cluster.output == OutputFormat::Json {
        let holders: Vec<Value> =
            held.iter().map(|(token, it)| holder_json(*token, it, end_of(*token, it))).collect();
        output::object(&json!({
            "lock": lock,
            "at": wall::utc(at_ms),
            "known": standing.known,
            "holders": holders,
            "waiting": standing.queue.values().collect::<Vec<_>>(),
            "archive": ArchiveExtent::from(found),
        }));
        return Ok(Exit::Done);
    }
    let mut text = format!("lock `{lock}` at {}\n", wall_time::local(at_ms));
    if held.is_empty() && standing.known {
        text.push_str("held by  no client: it was free\n");
    } else if held.is_empty() {
        text.push_str("held by  unknown: nothing is known of this lock at or before that time\n");
    }
    if held.is_empty() {
        text.push_str(&neighbours(&standing, &after));
    }
    for (token, it) in &held {
        text.push_str(&holder_text(*token, it, at_ms, end_of(*token, it)));
    }
    for client in standing.queue.values() {
        text.push_str(&format!("waiting  {}\n", output::clean(client)));
    }
    output::out(&text);
    output::tell(&extent(&found));
    Ok(Exit::Done)
}

/// The end of a hold among later events. Upgrades and downgrades give it other tokens.
fn end_after(mut token: u64, held: &HeldAt, after: &[v1::Event]) -> Option<v1::Event> {
    let ends = |event: &&v1::Event| {
        let moves = matches!(event.cause(), v1::Cause::Upgraded | v1::Cause::Downgraded);
        if moves && event.lease == held.lease {
            token = event.token;
        }
        event.token == token && is_end(event.cause())
    };
    after.iter().find(ends).cloned()
}

/// The holds before and after a time at which no client held the lock.
fn neighbours(standing: &StandingAt, after: &[v1::Event]) -> String {
    let mut text = String::new();
    let last =
        standing.grants.iter().rev().find_map(|(token, it)| Some((token, it, it.end.as_ref()?)));
    if let Some((token, held, end)) = last {
        let at = end.at_unix_ms.map_or_else(|| "-".to_owned(), wall_time::local);
        let (client, cause) = (output::clean(&held.client), output::cause(end.cause()));
        text.push_str(&format!("before   {client}  token {token}, until {at}, {cause}\n"));
    }
    // If more happened since than was read, the first of it is not known.
    let is_whole = after.len() < PAGES * PAGE as usize;
    let next = after.iter().find(|event| event.cause() == v1::Cause::Granted);
    if let Some(next) = next.filter(|_| is_whole) {
        let at = next.at_unix_ms.map_or_else(|| "-".to_owned(), wall_time::local);
        let (client, token) = (output::clean(&next.client), next.token);
        text.push_str(&format!("after    {client}  token {token}, from {at}\n"));
    }
    text
}

/// Reads events of the lock, oldest first. `back`: only until it is known who held it.
async fn read(
    cluster: &ConnectedCluster,
    lock: &str,
    search: v1::ArchiveSearch,
    back: bool,
) -> Result<(Vec<v1::Event>, v1::ArchiveExtent), CliError> {
    let (lock, archive) = (lock.to_owned(), Some(search));
    let mut pages = Pages::new(v1::HistoryRequest { lock, archive, limit: PAGE, from: 0 });
    let mut events = Vec::new();
    for _ in 0..PAGES {
        let Some(page) = pages.next(cluster).await? else { break };
        for batch in page.batches {
            events.extend(batch.events.into_iter().rev());
        }
        // An exclusive lock is told by its newest grant.
        let exclusive = |event: &v1::Event| {
            event.cause() == v1::Cause::Granted && event.mode == Some(v1::Mode::Exclusive.into())
        };
        if back && events.iter().any(exclusive) {
            break;
        }
    }
    events.reverse();
    Ok((events, pages.extent))
}

impl StandingAt {
    fn add(&mut self, event: &v1::Event) {
        self.known = true;
        match (event.cause(), event.token, event.place) {
            (v1::Cause::Granted, token, place) => {
                self.queue.remove(&place);
                let (client, lease) = (event.client.clone(), event.lease);
                let (since_ms, slot) = (event.at_unix_ms, event.slot);
                let held = HeldAt { client, lease, since_ms, slot, end: None, gone: false };
                self.grants.insert(token, held);
            }
            // The same hold goes on under another token.
            (v1::Cause::Downgraded | v1::Cause::Upgraded, token, place) => {
                self.queue.remove(&place);
                let old = self.grants.iter().find(|(_, it)| it.lease == event.lease && !it.gone);
                let old = old.map(|(token, _)| *token);
                let held = old.and_then(|old| self.grants.remove(&old)).unwrap_or_else(|| HeldAt {
                    client: event.client.clone(),
                    lease: event.lease,
                    ..HeldAt::default()
                });
                self.grants.insert(token, held);
            }
            (v1::Cause::Queued, _, place) => {
                self.queue.insert(place, event.client.clone());
            }
            (_, 0, place) => {
                self.queue.remove(&place);
            }
            (cause, token, _) if is_end(cause) || is_over(cause) => {
                let held = self.grants.entry(token).or_insert_with(|| HeldAt {
                    client: event.client.clone(),
                    lease: event.lease,
                    ..HeldAt::default()
                });
                if is_end(cause) {
                    held.end = Some(event.clone());
                }
                held.gone = event.left_ms.is_none();
            }
            _ => {}
        }
    }
}

fn is_end(cause: v1::Cause) -> bool {
    use v1::Cause::{Expired, Forced, HandedOn, MaxHold, NoProgress, Released, Revoked};
    matches!(cause, Released | Expired | Revoked | Forced | MaxHold | NoProgress | HandedOn)
}

fn is_over(cause: v1::Cause) -> bool {
    matches!(cause, v1::Cause::Cooled | v1::Cause::DelayOver | v1::Cause::MinHoldOver)
}

fn holder_text(token: u64, held: &HeldAt, at_ms: u64, end: Option<v1::Event>) -> String {
    let client = output::clean(&held.client);
    let mut text = format!("held by  {client}  token {token}");
    if let Some(slot) = held.slot {
        text.push_str(&format!("  slot {slot}"));
    }
    text.push('\n');
    if let Some(since_ms) = held.since_ms {
        let since = wall_time::local(since_ms);
        let held_for = duration::ms(at_ms.saturating_sub(since_ms));
        text.push_str(&format!("since    {since}, {held_for} before\n"));
    }
    match end {
        None => text.push_str("until    it still holds it, as far as is known\n"),
        Some(end) => {
            let at = end.at_unix_ms.map_or_else(|| "-".to_owned(), wall_time::local);
            let cause = output::cause(end.cause());
            let by =
                end.by.as_ref().map_or(String::new(), |by| format!(" by {}", output::clean(by)));
            let why = end.reason.as_ref().filter(|it| !it.is_empty());
            let why =
                why.map_or(String::new(), |why| format!(", because {:?}", output::clean(why)));
            text.push_str(&format!("until    {at}, {cause}{by}{why}\n"));
            if let (Some(ttl), Some(renewed), Some(clock)) =
                (end.ttl_ms, end.renewed_clock_ms, end.clock_ms)
            {
                let ago = duration::ms(clock.saturating_sub(renewed));
                text.push_str(&format!(
                    "lease    {}, ttl {}, last renewed {ago} before the end\n",
                    crate::lease::short(held.lease),
                    duration::ms(ttl)
                ));
            }
        }
    }
    text
}

fn holder_json(token: u64, held: &HeldAt, end: Option<v1::Event>) -> Value {
    json!({
        "client": held.client,
        "lease": held.lease.to_string(),
        "token": token.to_string(),
        "slot": held.slot,
        "since": held.since_ms.map(wall::utc),
        "end": end.map(tenure_wire::json::event::Event::from),
    })
}
