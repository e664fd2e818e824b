//! Says who held a lock at a time of the wall clock, and how that ended.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tenure_wire::json::lock::ArchiveExtent;
use tenure_wire::{v1, wall};

use super::history::{Pages, extent};
use super::stale::StaleArgs;
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
    /// The revision of the last event of this hold.
    known_at: i64,
}

/// The lock as it was.
#[derive(Default)]
struct StandingAt {
    /// The grants, by token.
    grants: BTreeMap<u64, HeldAt>,
    /// The clients of waiters, by place.
    queue: BTreeMap<u64, String>,
    /// Why it is not known who held the lock; none if it is.
    unknown: Option<Unknown>,
}

/// Shows who held the lock then.
pub(super) async fn show(
    cluster: &ConnectedCluster,
    lock: &str,
    at_ms: u64,
    stale: StaleArgs,
) -> Result<Exit, CliError> {
    let ask = |archive| v1::HistoryRequest {
        lock: lock.to_owned(),
        archive: Some(archive),
        limit: PAGE,
        from: 0,
        stale: stale.stale,
    };
    let until = v1::ArchiveSearch { until_unix_ms: Some(at_ms), ..Default::default() };
    let before = KnownPast::read(cluster, ask(until), true).await?;
    let since = v1::ArchiveSearch { since_unix_ms: Some(at_ms + 1), ..Default::default() };
    let after = KnownPast::read(cluster, ask(since), false).await?;
    let mark = stale.mark(cluster).await?;
    let later = later_than(cluster, at_ms, &before, stale).await;
    let standing = StandingAt::of(&before, &after, later);
    let held: Vec<(u64, HeldAt, HoldEnd)> = standing
        .grants
        .iter()
        .filter(|(_, it)| !it.gone)
        .map(|(token, it)| (*token, it.clone(), HoldEnd::of(*token, it, &before, &after)))
        .collect();
    if cluster.output == OutputFormat::Json {
        let holders: Vec<Value> =
            held.iter().map(|(token, it, end)| holder_json(*token, it, end)).collect();
        let mut shown = json!({
            "lock": lock,
            "at": wall::utc(at_ms),
            "known": standing.unknown.is_none(),
            "holders": holders,
            "waiting": standing.queue.values().collect::<Vec<_>>(),
            "archive": ArchiveExtent::from(before.extent),
        });
        if let Some(unknown) = &standing.unknown {
            shown["unknown_because"] = unknown.words().into();
        }
        if let Some(mark) = mark {
            shown["stale"] = mark.json();
        }
        output::object(&shown);
        return Ok(Exit::Done);
    }
    let mut text = format!("lock `{lock}` at {}\n", wall_time::local(at_ms));
    if let Some(mark) = mark {
        text.push_str(&format!("stale    {}\n", mark.words()));
    }
    match &standing.unknown {
        Some(unknown) => text.push_str(&format!("held by  unknown: {}\n", unknown.words())),
        None if held.is_empty() => text.push_str("held by  no client: it was free\n"),
        None => {}
    }
    if held.is_empty() {
        text.push_str(&neighbours(&standing, &after));
    }
    let label = if standing.unknown.is_some() { "at least" } else { "held by " };
    for (token, it, end) in &held {
        text.push_str(&format!("{label} {}", holder_text(*token, it, at_ms, end)));
    }
    for client in standing.queue.values() {
        text.push_str(&format!("waiting  {}\n", output::clean(client)));
    }
    output::out(&text);
    output::tell(&extent(&before.extent));
    Ok(Exit::Done)
}

/// Why it is not known who held a lock.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Unknown {
    /// No event of the lock is known at or before that time.
    NoEvent,
    /// Revisions are missing that may have events of the lock.
    Missing(v1::RevisionRange),
    /// The known events begin at this revision, and the holders of that moment are not among them.
    BeginsAt(i64),
    /// There are more events than one answer reads.
    TooMany,
}

impl Unknown {
    fn words(&self) -> String {
        match self {
            Self::NoEvent => "nothing is known of this lock at or before that time".to_owned(),
            Self::Missing(hole) => format!(
                "revisions {} to {} are missing; another member may have them: --addr",
                hole.from,
                hole.next - 1
            ),
            Self::BeginsAt(revision) => {
                format!("the known events begin at revision {revision}, when it may have been held")
            }
            Self::TooMany => format!("it has more than {} changes since", PAGES * PAGE as usize),
        }
    }
}

/// How a hold ended, as far as it is known.
enum HoldEnd {
    Ended(Box<v1::Event>),
    /// Revisions are missing that may have the end.
    Missing(v1::RevisionRange),
    /// No event up to now tells of an end.
    None,
}

impl HoldEnd {
    fn of(token: u64, held: &HeldAt, before: &KnownPast, after: &KnownPast) -> Self {
        if let Some(end) = held.end.clone().or_else(|| end_after(token, held, &after.events)) {
            return Self::Ended(Box::new(end));
        }
        let holes = before.extent.holes.iter().chain(&after.extent.holes);
        match holes.copied().find(|hole| hole.next > held.known_at) {
            Some(hole) => Self::Missing(hole),
            None => Self::None,
        }
    }

    fn event(&self) -> Option<&v1::Event> {
        match self {
            Self::Ended(event) => Some(event),
            Self::Missing(_) | Self::None => None,
        }
    }
}

/// The end of a hold among later events. Upgrades and downgrades give it other tokens.
fn end_after(mut token: u64, held: &HeldAt, after: &[(i64, v1::Event)]) -> Option<v1::Event> {
    let ends = |event: &&v1::Event| {
        let moves = matches!(event.cause(), v1::Cause::Upgraded | v1::Cause::Downgraded);
        if moves && event.lease == held.lease {
            token = event.token;
        }
        event.token == token && is_end(event.cause())
    };
    after.iter().map(|(_, event)| event).find(ends).cloned()
}

/// The holds before and after a time at which no client held the lock, or at which it is not known who did.
fn neighbours(standing: &StandingAt, after: &KnownPast) -> String {
    let mut text = String::new();
    let last =
        standing.grants.iter().rev().find_map(|(token, it)| Some((token, it, it.end.as_ref()?)));
    if let Some((token, held, end)) = last {
        let at = end.at_unix_ms.map_or_else(|| "-".to_owned(), wall_time::local);
        let (client, cause) = (output::clean(&held.client), output::cause(end.cause()));
        text.push_str(&format!("before   {client}  token {token}, until {at}, {cause}\n"));
    }
    // If more happened since than was read, or if something is missing, the first of it is not known.
    let mut granted = after.events.iter().filter(|it| it.1.cause() == v1::Cause::Granted);
    let next = granted.next().filter(|_| after.is_whole);
    if let Some((revision, next)) = next
        && !after.extent.holes.iter().any(|hole| hole.from < *revision)
    {
        let at = next.at_unix_ms.map_or_else(|| "-".to_owned(), wall_time::local);
        let (client, token) = (output::clean(&next.client), next.token);
        text.push_str(&format!("after    {client}  token {token}, from {at}\n"));
    }
    text
}

/// Events of a lock, and what is missing among them.
struct KnownPast {
    /// With their revisions, oldest first.
    events: Vec<(i64, v1::Event)>,
    extent: v1::ArchiveExtent,
    /// The oldest revision that the cluster itself keeps.
    floor: i64,
    /// Whether there was no more to read.
    is_whole: bool,
}

impl KnownPast {
    /// Reads events of the lock. `back`: only until it is known who held it.
    async fn read(
        cluster: &ConnectedCluster,
        ask: v1::HistoryRequest,
        back: bool,
    ) -> Result<Self, CliError> {
        let mut pages = Pages::new(ask);
        let mut events: Vec<(i64, v1::Event)> = Vec::new();
        let (mut floor, mut is_whole) = (0, false);
        for _ in 0..PAGES {
            let Some(page) = pages.next(cluster).await? else {
                is_whole = true;
                break;
            };
            floor = page.floor;
            for batch in page.batches {
                let revision = batch.revision;
                events.extend(batch.events.into_iter().rev().map(|event| (revision, event)));
            }
            if back && events.iter().any(|(_, event)| decides(event)) {
                break;
            }
        }
        events.reverse();
        Ok(Self { events, extent: pages.extent, floor, is_whole })
    }
}

/// The first missing revision after the last known event of the lock, if an event of any lock shows that it came after
/// this time: what is missing from there on does not concern it. None if that cannot be told.
async fn later_than(
    cluster: &ConnectedCluster,
    at_ms: u64,
    before: &KnownPast,
    stale: StaleArgs,
) -> Option<i64> {
    let last = before.events.last().map_or(0, |(revision, _)| *revision);
    let holes = before.extent.holes.iter().map(|hole| hole.from);
    let first = holes.filter(|from| *from > last).min()?;
    let search = v1::ArchiveSearch {
        since_unix_ms: Some(at_ms + 1),
        before: first,
        prefix: true,
        ..Default::default()
    };
    let (lock, archive, stale) = (String::new(), Some(search), stale.stale);
    let mut pages = Pages::new(v1::HistoryRequest { lock, archive, limit: 1, from: 0, stale });
    for _ in 0..PAGES {
        // Who may not read all locks gets the answer that supposes less.
        let page = pages.next(cluster).await.ok()??;
        if !page.batches.is_empty() {
            return Some(first);
        }
    }
    None
}

/// Whether an event alone tells who held the lock then: no other lease can have held it at that moment.
fn decides(event: &v1::Event) -> bool {
    let moves = matches!(event.cause(), v1::Cause::Upgraded | v1::Cause::Downgraded);
    event.token > 0 && (moves || event.mode == Some(v1::Mode::Exclusive.into()))
}

impl StandingAt {
    /// The state after the events before that time. Where revisions are missing, what was known before them is
    /// forgotten, until an event tells all of it.
    fn of(before: &KnownPast, after: &KnownPast, later: Option<i64>) -> Self {
        // A revision from which on nothing concerns that time any more.
        let next = after.events.first().map(|(revision, _)| *revision);
        let end = next.into_iter().chain(later).min().unwrap_or(i64::MAX);
        let mut holes: Vec<_> = before.extent.holes.iter().filter(|it| it.from < end).collect();
        holes.sort_unstable_by_key(|hole| hole.from);
        let mut holes = holes.into_iter().copied().peekable();
        // Without an archive, only the events are known that the cluster itself keeps.
        let begins = before.extent.begins.unwrap_or(before.floor);
        let beginning = match before.is_whole {
            true => (begins > 1).then_some(Unknown::BeginsAt(begins)),
            false => Some(Unknown::TooMany),
        };
        let mut standing = Self { unknown: beginning, ..Self::default() };
        for (revision, event) in &before.events {
            while let Some(hole) = holes.next_if(|hole| hole.from < *revision) {
                standing.forget(hole);
            }
            standing.add(*revision, event);
        }
        holes.for_each(|hole| standing.forget(hole));
        if before.events.is_empty() && !matches!(standing.unknown, Some(Unknown::Missing(_))) {
            standing.unknown = Some(Unknown::NoEvent);
        }
        standing
    }

    /// Forgets what missing revisions may have changed.
    fn forget(&mut self, hole: v1::RevisionRange) {
        *self = Self { unknown: Some(Unknown::Missing(hole)), ..Self::default() };
    }

    fn add(&mut self, revision: i64, event: &v1::Event) {
        if decides(event) {
            self.unknown = None;
        }
        match (event.cause(), event.token, event.place) {
            (v1::Cause::Granted, token, place) => {
                self.queue.remove(&place);
                let (client, lease) = (event.client.clone(), event.lease);
                let (since_ms, slot) = (event.at_unix_ms, event.slot);
                let (end, gone, known_at) = (None, false, revision);
                let held = HeldAt { client, lease, since_ms, slot, end, gone, known_at };
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
                self.grants.insert(token, HeldAt { known_at: revision, ..held });
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
                held.known_at = revision;
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

fn holder_text(token: u64, held: &HeldAt, at_ms: u64, end: &HoldEnd) -> String {
    let client = output::clean(&held.client);
    let mut text = format!("{client}  token {token}");
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
        HoldEnd::None => text.push_str("until    it still holds it, as far as is known\n"),
        HoldEnd::Missing(hole) => {
            let (from, last) = (hole.from, hole.next - 1);
            text.push_str(&format!("until    unknown: revisions {from} to {last} are missing\n"));
        }
        HoldEnd::Ended(end) => {
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

fn holder_json(token: u64, held: &HeldAt, end: &HoldEnd) -> Value {
    json!({
        "client": held.client,
        "lease": held.lease.to_string(),
        "token": token.to_string(),
        "slot": held.slot,
        "since": held.since_ms.map(wall::utc),
        "end": end.event().cloned().map(tenure_wire::json::event::Event::from),
        "end_known": !matches!(end, HoldEnd::Missing(_)),
    })
}
