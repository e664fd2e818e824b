//! Shows the history of a lock.

use std::collections::VecDeque;
use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use tenure_core::event::{ANY, UPGRADE};
use tenure_wire::json::event::Change;
use tenure_wire::json::lock::ArchiveExtent;
use tenure_wire::v1;
use v1::lock_admin_service_client::LockAdminServiceClient;

use super::stale::StaleArgs;
use super::{at_time, verify};
use crate::connection_args::{ConnectedCluster, ConnectionArgs};
use crate::duration;
use crate::exit::Exit;
use crate::failure::{CliError, quoted};
use crate::output::{self, OutputFormat};
use crate::suggest::suggested;
use crate::wall_time::{self, WIDTH};

/// How many revisions one page has.
const PAGE: u32 = 1_000;
/// How many revisions a screen shows.
const SCREEN: usize = 100;

/// Flags of `tenure history`.
#[derive(Args)]
pub(crate) struct HistoryArgs {
    /// Of which lock [default: of all locks]
    #[arg(value_parser = output::name, conflicts_with = "verify")]
    lock: Option<String>,
    /// Of all locks whose names begin with this text
    #[arg(long, value_name = "PREFIX", conflicts_with = "lock")]
    prefix: Option<String>,
    /// Who held the lock at this time, such as 03:14 or "2026-03-02 03:14", or so long ago, such as 10m, and how that
    /// ended; unknown if the events that tell it are missing
    #[arg(long, value_name = "TIME", value_parser = wall_time::parse_or_ago, requires = "lock")]
    #[arg(conflicts_with_all = ["since", "until", "lost", "from"])]
    at: Option<u64>,
    /// Only since this time, or for so long: 03:14, 2h
    #[arg(long, value_name = "TIME", value_parser = wall_time::parse_since)]
    since: Option<u64>,
    /// Only until this time, or until so long ago
    #[arg(long, value_name = "TIME", value_parser = wall_time::parse_since)]
    until: Option<u64>,
    /// Only locks that their holders lost, with the cause, by whom and why
    #[arg(long)]
    lost: bool,
    /// From this revision on, of what the cluster itself keeps [default: the newest, also from the archive]
    #[arg(long, value_name = "REVISION", requires = "lock")]
    #[arg(conflicts_with_all = ["since", "until", "lost"])]
    from: Option<i64>,
    /// Show only the newest so many revisions
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    /// Check the promises of the cluster against these archives: directories, or data directories of members
    #[arg(long, value_name = "DIRECTORY", num_args = 1..)]
    #[arg(conflicts_with_all = ["prefix", "at", "since", "until", "lost", "from", "stale"])]
    verify: Vec<PathBuf>,
    #[command(flatten)]
    stale: StaleArgs,
    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,
}

/// The known part of a lock's history.
struct PastAnswer {
    /// Oldest first.
    batches: VecDeque<v1::Batch>,
    left_out: u64,
    floor: i64,
    archive: Option<v1::ArchiveExtent>,
}

/// Shows a lock's history, oldest first.
pub(crate) fn history(flags: &HistoryArgs) -> Result<Exit, CliError> {
    flags.check_client()?;
    if !flags.verify.is_empty() {
        return verify::verify(&flags.verify, flags.connection.output);
    }
    if let (Some(lock), Some(at_ms)) = (&flags.lock, flags.at)
        && at_ms > tenure_server::os::wall_ms()
    {
        let now = suggested(&format!("tenure explain {}", quoted(lock)));
        let text = format!("{} is in the future; now: {now}", wall_time::local(at_ms));
        return Err(CliError::arguments(text));
    }
    flags.stale.with(&flags.connection, async |cluster| {
        if let (Some(lock), Some(at)) = (&flags.lock, flags.at) {
            return at_time::show(cluster, lock, at, flags.stale).await;
        }
        let limit = flags.limit as usize;
        let past = match (&flags.lock, flags.from) {
            (Some(lock), Some(from)) => {
                let ask = v1::HistoryRequest {
                    lock: lock.clone(),
                    from,
                    limit: PAGE,
                    archive: None,
                    stale: flags.stale.stale,
                };
                PastAnswer::read(cluster, ask, limit).await?
            }
            _ => PastAnswer::search(cluster, &flags.request(), limit).await?,
        };
        let mark = flags.stale.mark(cluster).await?;
        if cluster.output == OutputFormat::Json {
            past.batches.into_iter().for_each(|batch| output::object(&Change::from(batch)));
            let mut last = past.archive.map_or_else(
                || json!({}),
                |archive| json!({ "archive": ArchiveExtent::from(archive) }),
            );
            if let Some(mark) = mark {
                last["stale"] = mark.json();
            }
            if last.as_object().is_some_and(|last| !last.is_empty()) {
                output::object(&last);
            }
            return Ok(Exit::Done);
        }
        if let Some(mark) = &mark {
            output::tell(&format!("stale: {}\n", mark.words()));
        }
        if past.batches.is_empty() {
            let what = match &flags.lock {
                Some(lock) => format!("of lock `{lock}`"),
                None => "of these locks".to_owned(),
            };
            // What was selected is not there; something else may be.
            let selects = past.archive.is_some() && flags.selects();
            let text = match &flags.lock {
                Some(lock) if selects => {
                    let kind = if flags.lost { "no loss" } else { "no event" };
                    let all = suggested(&format!("tenure history {}", quoted(lock)));
                    format!("{kind} {what} matches; all of it: {all}")
                }
                None if selects && flags.lost => format!("no loss {what} matches"),
                None => format!("nothing is known {what}"),
                Some(lock) => {
                    let look = suggested(&format!("tenure explain {}", quoted(lock)));
                    let since = past.floor;
                    format!("nothing is known {what} since revision {since}; look: {look}")
                }
            };
            output::tell(&format!("{text}\n"));
        }
        if past.left_out > 0 {
            let older = output::count(past.left_out, "older revision");
            let are = if past.left_out == 1 { "is" } else { "are" };
            output::tell(&format!("{older} {are} not shown; --limit shows more\n"));
        }
        output::out(&past.lines());
        if let Some(archive) = &past.archive {
            output::tell(&extent(archive));
        }
        Ok(Exit::Done)
    })
}

impl HistoryArgs {
    /// Refuses a client where the answer would not depend on it.
    fn check_client(&self) -> Result<(), CliError> {
        let without = [
            ("--at", self.at.is_some()),
            ("--from", self.from.is_some()),
            ("--verify", !self.verify.is_empty()),
        ];
        match without.into_iter().find(|(_, given)| *given && self.connection.client.is_some()) {
            Some((flag, _)) => {
                let text =
                    format!("--client selects events of a client and does not go with {flag}");
                Err(CliError::arguments(text))
            }
            None => Ok(()),
        }
    }

    /// Whether only a part of the events is asked for.
    fn selects(&self) -> bool {
        let by_time = self.since.is_some() || self.until.is_some();
        by_time || self.lost || self.connection.client.is_some()
    }

    fn request(&self) -> v1::HistoryRequest {
        let prefix = self.lock.is_none();
        let name = self.lock.clone().or_else(|| self.prefix.clone()).unwrap_or_default();
        let search = v1::ArchiveSearch {
            since_unix_ms: self.since,
            until_unix_ms: self.until,
            // A reader needs no name of its own, so the flag names the client that is asked about.
            client: self.connection.client.clone().unwrap_or_default(),
            lost: self.lost,
            before: 0,
            prefix,
        };
        let stale = self.stale.stale;
        v1::HistoryRequest { lock: name, archive: Some(search), limit: PAGE, from: 0, stale }
    }
}

/// Says where the archive begins, and what it lacks.
pub(super) fn extent(archive: &v1::ArchiveExtent) -> String {
    let mut text = match (archive.begins, archive.begins_unix_ms) {
        (Some(begins), Some(at)) => {
            let at = wall_time::local(at);
            format!("the archive of this member begins at {at}, revision {begins}\n")
        }
        (Some(begins), None) => format!("the archive of this member begins at revision {begins}\n"),
        (None, _) => "this member has no archive: only the newest events are known\n".to_owned(),
    };
    for hole in &archive.holes {
        let (from, to) = (hole.from, hole.next - 1);
        text.push_str(&format!(
            "missing in it: revisions {from} to {to}; it asks the other members for them\n"
        ));
    }
    text
}

/// The newest part of the history, for a screen.
pub(crate) async fn text(cluster: &ConnectedCluster, lock: &str) -> Result<String, CliError> {
    let request = v1::HistoryRequest {
        lock: lock.to_owned(),
        archive: Some(v1::ArchiveSearch::default()),
        limit: PAGE,
        ..Default::default()
    };
    let past = PastAnswer::search(cluster, &request, SCREEN).await?;
    Ok(format!("history of lock `{lock}`\n{}", past.lines()))
}

impl PastAnswer {
    async fn read(
        cluster: &ConnectedCluster,
        mut ask: v1::HistoryRequest,
        limit: usize,
    ) -> Result<Self, CliError> {
        let (mut batches, mut left_out) = (VecDeque::new(), 0);
        loop {
            let asked =
                async |channel| LockAdminServiceClient::new(channel).history(ask.clone()).await;
            let page = cluster.client.question(asked).await?;
            for batch in page.batches {
                batches.push_back(batch);
                if batches.len() > limit {
                    batches.pop_front();
                    left_out += 1;
                }
            }
            if page.next <= ask.from || page.header.is_some_and(|it| page.next > it.revision) {
                return Ok(Self { batches, left_out, floor: page.floor, archive: None });
            }
            ask.from = page.next;
        }
    }

    /// Searches from the newest revision backwards, until enough is found.
    async fn search(
        cluster: &ConnectedCluster,
        request: &v1::HistoryRequest,
        limit: usize,
    ) -> Result<Self, CliError> {
        let mut pages = Pages::new(request.clone());
        let mut past = Self { batches: VecDeque::new(), left_out: 0, floor: 0, archive: None };
        while let Some(page) = pages.next(cluster).await? {
            past.floor = page.floor;
            for batch in page.batches {
                if past.batches.len() < limit {
                    past.batches.push_front(batch);
                } else {
                    past.left_out += 1;
                }
            }
            if past.left_out > 0 {
                break;
            }
        }
        past.archive = Some(pages.extent);
        Ok(past)
    }

    fn lines(&self) -> String {
        let mut text = String::new();
        for batch in &self.batches {
            for event in &batch.events {
                text.push_str(&event_line(batch.revision, event));
            }
        }
        text
    }
}

/// Pages of a search, the newest first.
pub(super) struct Pages {
    request: v1::HistoryRequest,
    is_over: bool,
    /// What all pages so far have said of the archive.
    pub(super) extent: v1::ArchiveExtent,
}

impl Pages {
    pub(super) fn new(request: v1::HistoryRequest) -> Self {
        Self { request, is_over: false, extent: v1::ArchiveExtent::default() }
    }

    /// The next page; none after the last.
    pub(super) async fn next(
        &mut self,
        cluster: &ConnectedCluster,
    ) -> Result<Option<v1::HistoryResponse>, CliError> {
        if self.is_over {
            return Ok(None);
        }
        let ask = &self.request;
        let asked = async |channel| LockAdminServiceClient::new(channel).history(ask.clone()).await;
        let mut page = cluster.client.question(asked).await?;
        if let Some(extent) = page.archive.take() {
            let known = std::mem::take(&mut self.extent.holes);
            self.extent = extent;
            let new = std::mem::take(&mut self.extent.holes);
            self.extent.holes = known;
            for hole in new {
                if !self.extent.holes.contains(&hole) {
                    self.extent.holes.push(hole);
                }
            }
        }
        match (page.before, &mut self.request.archive) {
            (Some(before), Some(search)) => search.before = before,
            _ => self.is_over = true,
        }
        Ok(Some(page))
    }
}

/// An event in one line, with its time and revision.
pub(crate) fn event_line(revision: impl std::fmt::Display, event: &v1::Event) -> String {
    // Events of clusters below level 4 have no time.
    let at = event.at_unix_ms.map_or_else(|| "-".to_owned(), wall_time::local);
    format!("{at:<WIDTH$}  {revision:>8}  {}\n", event_words(event))
}

/// What the event of a request that is queued says beside that it is queued.
fn queued_words(reason: &str) -> String {
    match reason {
        ANY => "  for any of several locks".to_owned(),
        UPGRADE => "  to hold it alone".to_owned(),
        other => format!("  because {:?}", output::clean(other)),
    }
}

/// An event in one line, without its revision.
fn event_words(event: &v1::Event) -> String {
    let name = event.kv.as_ref().map_or(String::new(), |kv| output::clean(&kv.key));
    let cause = output::cause(event.cause());
    let mut words = format!("{} {cause:<10}", output::padded(&name, 16));
    if event.token > 0 {
        words.push_str(&format!("  token {}", event.token));
    }
    if let Some(slot) = event.slot {
        words.push_str(&format!("  slot {slot} of {}", event.slots));
    } else if event.take > 1 {
        words.push_str(&format!("  {} of {} slots", event.take, event.slots));
    } else if event.cause() == v1::Cause::Resized {
        words.push_str(&match event.slots {
            0 => "  left to the requests".to_owned(),
            slots => format!("  {}", output::count(u64::from(slots), "slot")),
        });
    }
    if !event.client.is_empty() {
        words.push_str(&format!("  {}", output::clean(&event.client)));
    }
    if let Some(left) = event.left_ms {
        words.push_str(&format!("  {} left", duration::ms(left)));
    }
    let value = event.kv.as_ref().filter(|kv| !kv.value.is_empty());
    if let Some(kv) = value {
        words.push_str(&format!("  {:?}", output::bytes(&kv.value)));
    }
    if let Some(by) = &event.by {
        words.push_str(&format!("  by {}", output::clean(by)));
    }
    let reason = event.reason.as_deref().filter(|reason| !reason.is_empty());
    if let Some(reason) = reason.filter(|_| event.cause() == v1::Cause::Queued) {
        words.push_str(&queued_words(reason));
    } else if let Some(reason) = reason {
        words.push_str(&format!("  because {:?}", output::clean(reason)));
    }
    // How long before its end the lease was last renewed says why it expired.
    if let (Some(ttl), Some(renewed), Some(clock)) =
        (event.ttl_ms, event.renewed_clock_ms, event.clock_ms)
        && event.cause() == v1::Cause::Expired
    {
        let ago = duration::ms(clock.saturating_sub(renewed));
        words.push_str(&format!("  ttl {}, last renewed {ago} before", duration::ms(ttl)));
    }
    words.trim_end().to_owned()
}
