//! Shows the history of a lock.

use std::collections::VecDeque;

use clap::Args;
use tenure_wire::convert::cause_word;
use tenure_wire::json::event::Change;
use tenure_wire::v1;
use v1::lock_admin_service_client::LockAdminServiceClient;

use crate::connection_args::{ConnectedCluster, ConnectionArgs};
use crate::duration;
use crate::exit::Exit;
use crate::failure::{CliError, quoted};
use crate::output::{self, OutputFormat};
use crate::wall_time::{self, WIDTH};

/// How many revisions one page has.
const PAGE: u32 = 1_000;
/// How many revisions a screen shows.
const SCREEN: usize = 100;

/// Flags of `tenure history`.
#[derive(Args)]
pub(crate) struct HistoryArgs {
    /// Of which lock
    #[arg(value_parser = output::name)]
    lock: String,
    /// From this revision on [default: the oldest that is kept]
    #[arg(long, value_name = "REVISION", default_value_t = 0, hide_default_value = true)]
    from: i64,
    /// Show only the newest so many revisions
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    #[command(flatten)]
    pub(crate) reach: ConnectionArgs,
}

/// The known part of a lock's history.
struct Past {
    batches: VecDeque<v1::Batch>,
    left_out: u64,
    floor: i64,
}

/// Shows a lock's history, oldest first.
pub(crate) fn history(flags: &HistoryArgs) -> Result<Exit, CliError> {
    flags.reach.with(async |cluster| {
        let past = Past::read(cluster, &flags.lock, flags.from, flags.limit as usize).await?;
        if cluster.output == OutputFormat::Json {
            past.batches.into_iter().for_each(|batch| output::object(&Change::from(batch)));
            return Ok(Exit::Done);
        }
        if past.batches.is_empty() {
            let (lock, look, floor) = (&flags.lock, quoted(&flags.lock), past.floor);
            output::tell(&format!(
                "nothing is known of lock `{lock}` since revision {floor}; look: tenure explain {look}\n"
            ));
        }
        if past.left_out > 0 {
            let older = output::count(past.left_out, "older revision");
            let are = if past.left_out == 1 { "is" } else { "are" };
            output::tell(&format!("{older} {are} not shown; --limit shows more\n"));
        }
        output::out(&past.lines());
        Ok(Exit::Done)
    })
}

/// The newest part of the history, for a screen.
pub(crate) async fn text(cluster: &ConnectedCluster, lock: &str) -> Result<String, CliError> {
    let past = Past::read(cluster, lock, 0, SCREEN).await?;
    Ok(format!("history of lock `{lock}`\n{}", past.lines()))
}

impl Past {
    async fn read(
        cluster: &ConnectedCluster,
        lock: &str,
        mut from: i64,
        limit: usize,
    ) -> Result<Self, CliError> {
        let (mut batches, mut left_out) = (VecDeque::new(), 0);
        loop {
            let ask = v1::HistoryRequest { lock: lock.to_owned(), from, limit: PAGE };
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
            if page.next <= from || page.header.is_some_and(|it| page.next > it.revision) {
                return Ok(Self { batches, left_out, floor: page.floor });
            }
            from = page.next;
        }
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

/// An event in one line, with its time and revision.
pub(crate) fn event_line(revision: impl std::fmt::Display, event: &v1::Event) -> String {
    // Events of clusters below level 4 have no time.
    let at = event.at_unix_ms.map_or_else(|| "-".to_owned(), wall_time::local);
    format!("{at:<WIDTH$}  {revision:>8}  {}\n", event_words(event))
}

/// An event in one line, without its revision.
fn event_words(event: &v1::Event) -> String {
    let name = event.kv.as_ref().map_or(String::new(), |kv| output::clean(&kv.key));
    let cause = cause_word(event.cause()).replace('_', " ");
    let mut words = format!("{} {cause:<10}", output::padded(&name, 16));
    if event.token > 0 {
        words.push_str(&format!("  token {}", event.token));
    }
    if let Some(slot) = event.slot {
        words.push_str(&format!("  slot {slot} of {}", event.slots));
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
    if let Some(reason) = event.reason.as_ref().filter(|reason| !reason.is_empty()) {
        words.push_str(&format!("  because {:?}", output::clean(reason)));
    }
    words.trim_end().to_owned()
}
