//! Shows locks, rates and members on a live screen, or prints them.

mod gaps;
mod model;
mod view;

use std::time::Duration;

use clap::Args;
use serde_json::json;
use tokio::time::Instant;

use crate::connection_args::{ConnectedCluster, ConnectionArgs};
use crate::duration;
use crate::exit::Exit;
use crate::failure::CliError;
use crate::inspect;
use crate::lock::wait;
use crate::output::{self, OutputFormat};
use crate::signals;
use crate::terminal::{self, KeyPress, Screen};
use model::{Sort, TopModel};

/// The shortest time between two drawings, unless a key is pressed or the interval is over.
const FRAME: Duration = Duration::from_millis(100);

/// Flags of `tenure top`.
#[derive(Args)]
pub(crate) struct TopArgs {
    /// Only locks whose names begin with this text
    #[arg(default_value = "", hide_default_value = true)]
    prefix: String,
    /// Look again after this long
    #[arg(long, value_name = "TIME", value_parser = duration::parse, default_value = "1s")]
    interval: Duration,
    /// Print one look and end
    #[arg(long, conflicts_with = "limit")]
    once: bool,
    /// Print so many looks, one after each interval, and end; 0 for no end [default: 1 where it prints]
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,
}

/// What the screen shows.
enum TopPage {
    Locks,
    /// The user types a filter.
    Filter,
    /// Lines about one lock.
    About(LockDetail),
}

/// What is shown of one lock, read again whenever the screen is.
struct LockDetail {
    lock: String,
    what: DetailSubject,
    lines: Vec<String>,
}

/// Shows the screen until the user ends it, or prints the requested number of looks.
pub(crate) fn top(flags: &TopArgs) -> Result<Exit, CliError> {
    flags.connection.with_any(async |cluster| {
        let prints = flags.once || flags.limit.is_some();
        if prints || cluster.output == OutputFormat::Json || !terminal::there() {
            return print(cluster, flags).await;
        }
        live(cluster, flags).await
    })
}

/// Prints the requested number of looks: lines for people, or one object for each.
async fn print(cluster: &ConnectedCluster, flags: &TopArgs) -> Result<Exit, CliError> {
    let mut asked = signals::listen()?;
    let mut model = TopModel::new(flags.prefix.clone());
    let mut watch = cluster.client.watch_prefix(&flags.prefix).await?;
    let mut left = flags.limit.unwrap_or(1);
    loop {
        let until = Instant::now() + flags.interval;
        loop {
            tokio::select! {
                batch = watch.next_raw() => match batch? {
                    Some(batch) => model.apply_batch(&batch),
                    None => break,
                },
                () = tokio::time::sleep_until(until) => break,
                signal = asked.signal() => return Ok(Exit::Signal(signal)),
            }
        }
        model.fetch(cluster).await?;
        match cluster.output {
            OutputFormat::Json => output::object(&object(&model)),
            OutputFormat::Text => {
                let between = if left == flags.limit.unwrap_or(1) { "" } else { "\n" };
                let lines = view::printed(&model).join("\n");
                output::out(&format!("{between}{lines}\n"));
            }
        }
        // A limit of 0 wraps around and never ends.
        left = left.wrapping_sub(1);
        if left == 0 {
            return Ok(Exit::Done);
        }
    }
}

fn object(model: &TopModel) -> serde_json::Value {
    let locks = model.rows().into_iter().map(|row| {
        json!({
            "lock": row.view.lock, "waiting": row.view.waiting, "grants_per_s": row.grants_per_s,
            "gap_p50_us": row.gap.map(|gap| u64::try_from(gap.as_micros()).unwrap_or(u64::MAX)),
            "holders": row.view.holders.iter().map(|it| json!({
                "client": it.client, "token": it.token.to_string(), "held_ms": it.held_ms,
            })).collect::<Vec<_>>(),
        })
    });
    let locks: Vec<_> = locks.collect();
    json!({
        "revision": model.revision().to_string(), "grants_per_s": model.grants_per_s(),
        "leases": model.leases(), "members_up": model.up(), "members": model.members().len(),
        "leader": model.leader(), "locks": locks,
    })
}

/// Runs the live screen, with keys.
async fn live(cluster: &ConnectedCluster, flags: &TopArgs) -> Result<Exit, CliError> {
    let mut asked = signals::listen()?;
    let mut model = TopModel::new(flags.prefix.clone());
    model.fetch(cluster).await?;
    let mut watch = cluster.client.watch_prefix(&flags.prefix).await?;
    let (screen, mut keys) = (Screen::open()?, terminal::keys());
    let mut page = TopPage::Locks;
    let mut tick = tokio::time::interval(flags.interval.max(Duration::from_millis(50)));
    let mut drawn_at = Instant::now();
    // When to draw next; `None` while the screen is up to date.
    let mut due = Some(drawn_at);
    loop {
        // Limit the drawing rate: a thousand events per second must not mean a thousand drawings, which block the
        // loop.
        if due.is_some_and(|at| at <= Instant::now()) {
            match &page {
                TopPage::About(detail) => {
                    screen.draw(&view::about(&detail.lines, screen.size()));
                }
                TopPage::Locks => screen.draw(&view::lines(&model, screen.size(), None)),
                TopPage::Filter => {
                    screen.draw(&view::lines(&model, screen.size(), Some(&model.filter)));
                }
            }
            drawn_at = Instant::now();
            due = None;
        }
        tokio::select! {
            batch = watch.next_raw() => match batch {
                Ok(Some(batch)) => {
                    model.apply_batch(&batch);
                    due = due.or(Some(drawn_at + FRAME));
                }
                // The watch cannot continue where it was: start a new one from now on.
                Ok(None) | Err(_) => watch = cluster.client.watch_prefix(&flags.prefix).await?,
            },
            // Draws the last of many events too, when none follows.
            () = tokio::time::sleep_until(due.unwrap_or(drawn_at)), if due.is_some() => {}
            _ = tick.tick() => {
                due = Some(Instant::now());
                if let Err(failure) = model.fetch(cluster).await {
                    model.trouble(&failure.text);
                }
                if let TopPage::About(detail) = &mut page {
                    detail.lines = detail_lines(cluster, &detail.lock, detail.what).await;
                }
            }
            signal = asked.signal() => { let _ = signal; return Ok(Exit::Done) },
            key = keys.recv() => {
                let Some(key) = key else { return Ok(Exit::Done) };
                due = Some(Instant::now());
                let (next, done) = press(cluster, &mut model, page, key).await;
                if done {
                    return Ok(Exit::Done);
                }
                page = next;
            }
        }
    }
}

/// Handles a key. Returns the next page, and whether to end.
async fn press(
    cluster: &ConnectedCluster,
    model: &mut TopModel,
    page: TopPage,
    key: KeyPress,
) -> (TopPage, bool) {
    match (page, key) {
        (TopPage::Filter, KeyPress::Enter) => (TopPage::Locks, false),
        (TopPage::Filter, KeyPress::Escape) => {
            model.filter.clear();
            (TopPage::Locks, false)
        }
        (TopPage::Filter, KeyPress::Backspace) => {
            model.filter.pop();
            (TopPage::Filter, false)
        }
        (TopPage::Filter, KeyPress::Letter(letter)) => {
            model.filter.push(letter);
            (TopPage::Filter, false)
        }
        (page @ TopPage::Filter, KeyPress::Up | KeyPress::Down) => (page, false),
        (TopPage::About(_), KeyPress::Letter('q') | KeyPress::Escape | KeyPress::Enter) => {
            (TopPage::Locks, false)
        }
        (page @ TopPage::About(_), _) => (page, false),
        (TopPage::Locks, KeyPress::Letter('q') | KeyPress::Escape) => (TopPage::Locks, true),
        (TopPage::Locks, KeyPress::Letter('/')) => (TopPage::Filter, false),
        (TopPage::Locks, KeyPress::Letter('s')) => {
            model.sort = match model.sort {
                Sort::Waiting => Sort::Rate,
                Sort::Rate => Sort::Name,
                Sort::Name => Sort::Waiting,
            };
            (TopPage::Locks, false)
        }
        (TopPage::Locks, KeyPress::Up | KeyPress::Letter('k')) => {
            model.move_up();
            (TopPage::Locks, false)
        }
        (TopPage::Locks, KeyPress::Down | KeyPress::Letter('j')) => {
            model.move_down();
            (TopPage::Locks, false)
        }
        (TopPage::Locks, KeyPress::Enter) => {
            (about(cluster, model, DetailSubject::Explain).await, false)
        }
        (TopPage::Locks, KeyPress::Letter('h')) => {
            (about(cluster, model, DetailSubject::History).await, false)
        }
        (TopPage::Locks, _) => (TopPage::Locks, false),
    }
}

#[derive(Clone, Copy)]
enum DetailSubject {
    Explain,
    History,
}

async fn about(cluster: &ConnectedCluster, model: &TopModel, what: DetailSubject) -> TopPage {
    let Some(lock) = model.chosen() else { return TopPage::Locks };
    let lines = detail_lines(cluster, &lock, what).await;
    TopPage::About(LockDetail { lock, what, lines })
}

async fn detail_lines(cluster: &ConnectedCluster, lock: &str, what: DetailSubject) -> Vec<String> {
    let text = match what {
        DetailSubject::Explain => wait::explain(cluster, lock, None)
            .await
            .map(|explained| inspect::explain_text(lock, &explained, cluster.client.name())),
        DetailSubject::History => inspect::history_text(cluster, lock).await,
    };
    let text = text.unwrap_or_else(|failure| failure.text);
    text.lines().map(str::to_owned).collect()
}
