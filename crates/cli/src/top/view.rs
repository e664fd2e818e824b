//! Lays out the locks and members of a cluster on a screen.

use std::time::Duration;

use tenure_wire::v1;

use super::model::{Sort, TopModel};
use crate::cluster::{bytes, role_word};
use crate::inspect::{held_for, holder_cell, mode_words};
use crate::output::{self, Side, Table};
use crate::terminal::Size;

/// The most waiters that are drawn as blocks.
const BLOCKS: u64 = 10;

/// The whole screen.
pub(super) fn lines(model: &TopModel, size: Size, filter: Option<&str>) -> Vec<String> {
    let mut lines = vec![head(model)];
    let members = members(model);
    // The title, the table's heading, the last event, the keys, and a line between locks and members.
    let room = size.rows.saturating_sub(members.len() + 5).max(1);
    lines.extend(locks(model, room, Cursor::Shown));
    while lines.len() + members.len() + 2 < size.rows {
        lines.push(String::new());
    }
    lines.extend(members);
    lines.push(format!("last event  {}", model.last));
    lines.push(match filter {
        Some(typed) => format!("/{typed}█   enter keeps the filter, esc drops it"),
        None => {
            let sort = match model.sort {
                Sort::Waiting => "waiting",
                Sort::Rate => "rate",
                Sort::Name => "name",
            };
            let filter = if model.filter.is_empty() { "" } else { &model.filter };
            format!(
                "/ filter {filter}  s sort ({sort})  ↑↓ choose  enter explain  h history  q quit"
            )
        }
    });
    lines
}

/// Whether a cursor marks one of the locks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cursor {
    Shown,
    Absent,
}

/// The printed form: all locks, no help for keys, no empty lines.
pub(super) fn printed(model: &TopModel) -> Vec<String> {
    let mut lines = vec![head(model)];
    lines.extend(locks(model, usize::MAX, Cursor::Absent));
    lines.extend(members(model));
    lines.push(format!("last event  {}", model.last));
    lines
}

/// A page about one lock.
pub(super) fn about(text: &[String], size: Size) -> Vec<String> {
    let room = size.rows.saturating_sub(2);
    let mut lines: Vec<String> = text.iter().rev().take(room).rev().cloned().collect();
    while lines.len() < room {
        lines.push(String::new());
    }
    lines.push(String::new());
    lines.push("q back".to_owned());
    lines
}

fn head(model: &TopModel) -> String {
    let (up, all) = (model.up(), model.members().len());
    let leader = model.leader().map_or("no leader".to_owned(), |name| format!("leader {name}"));
    let (revision, rate) = (model.revision(), model.grants_per_s());
    let leases = output::count(model.leases(), "lease");
    format!(
        "{}  {leader}  {up}/{all} members  revision {revision}  {rate:.1} grants/s  {leases}",
        output::clean(model.cluster())
    )
}

fn locks(model: &TopModel, room: usize, cursor: Cursor) -> Vec<String> {
    let rows = model.rows();
    if rows.is_empty() {
        let why = if model.filter.is_empty() {
            "no lock is held or awaited"
        } else {
            "no lock passes the filter"
        };
        return vec![why.to_owned()];
    }
    let at = model.at.min(rows.len() - 1);
    let chosen = |index| cursor == Cursor::Shown && index == at;
    let from = at.saturating_sub(room.saturating_sub(1));
    let mut table = Table::new(&[
        ("", Side::Left),
        ("LOCK", Side::Left),
        ("MODE", Side::Left),
        ("HELD BY", Side::Left),
        ("FOR", Side::Left),
        ("TOKEN", Side::Right),
        ("WAITING", Side::Left),
        ("GRANTS/s", Side::Right),
        ("GAP p50", Side::Right),
    ]);
    for (index, row) in rows.iter().enumerate().skip(from).take(room) {
        let token = row.view.holders.first().map_or("-".to_owned(), |it| it.token.to_string());
        table.row([
            if chosen(index) { "▸".to_owned() } else { " ".to_owned() },
            row.view.lock.clone(),
            mode_words(&row.view),
            holder_cell(&row.view),
            held_for(&row.view),
            token,
            waiting(row.view.waiting),
            format!("{:.1}", row.grants_per_s),
            row.gap.map_or("-".to_owned(), ms),
        ]);
    }
    let text = table.text();
    let line = |line: &str| match cursor {
        Cursor::Shown => line.to_owned(),
        // Remove the cursor's column, which is as wide as a cursor and the gap after it.
        Cursor::Absent => line.replacen("   ", "", 1),
    };
    text.lines().map(line).collect()
}

/// Formats a duration as `0.6ms`.
fn ms(time: Duration) -> String {
    format!("{:.1}ms", time.as_secs_f64() * 1_000.0)
}

fn waiting(count: u64) -> String {
    let blocks = "■".repeat(usize::try_from(count.min(BLOCKS)).unwrap_or(0));
    if count == 0 { "0".to_owned() } else { format!("{blocks} {count}") }
}

fn members(model: &TopModel) -> Vec<String> {
    let mut table = Table::new(&[
        ("MEMBER", Side::Left),
        ("ROLE", Side::Left),
        ("BEHIND", Side::Right),
        ("FSYNC p99", Side::Right),
        ("DISK FREE", Side::Right),
        ("STATE", Side::Left),
    ]);
    for it in model.members() {
        let member = it.member.clone().unwrap_or_default();
        let leads = member.role() == v1::Role::Leader;
        let fsync = it.fsync_p99_us.map(Duration::from_micros);
        table.row([
            member.name.clone(),
            role_word(member.role()).to_owned(),
            it.behind.filter(|_| !leads).map_or("-".to_owned(), |behind| behind.to_string()),
            fsync.map_or("-".to_owned(), ms),
            it.disk_free_bytes.map_or("-".to_owned(), bytes),
            if it.up { it.state.clone() } else { "down".to_owned() },
        ]);
    }
    table.text().lines().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(name: &str, waiting: u64) -> v1::LockView {
        let holder =
            v1::HolderView { client: "ci-7/4121".to_owned(), token: 1042, ..Default::default() };
        v1::LockView { lock: name.to_owned(), holders: vec![holder], waiting, ..Default::default() }
    }

    #[test]
    fn a_screen_has_locks_members_and_keys() {
        let model = TopModel::sample(vec![lock("deploy", 2), lock("jobs/import", 41)]);
        let lines = lines(&model, Size { columns: 100, rows: 20 }, None);
        assert_eq!(lines.len(), 20);
        assert!(lines[0].starts_with("cluster  leader b  1/1 members"), "{}", lines[0]);
        assert!(lines[2].starts_with("▸  jobs/import") && lines[2].contains("■■■■■■■■■■ 41  "));
        assert!(lines[3].contains("deploy") && lines[3].contains("■■ 2  "), "{}", lines[3]);
        assert!(lines[19].contains("q quit"), "{}", lines[19]);
    }

    #[test]
    fn on_paper_there_is_no_free_room_and_no_key_to_press() {
        let model = TopModel::sample(vec![lock("deploy", 2), lock("锁", 0)]);
        let lines = printed(&model);
        assert!(lines.iter().all(|line| !line.trim().is_empty()), "{lines:#?}");
        assert!(lines[1].starts_with("LOCK    MODE"), "{lines:#?}");
        assert!(lines[2].starts_with("deploy  exclusive"), "{lines:#?}");
        assert!(lines[3].starts_with("锁      exclusive"), "{lines:#?}");
        assert!(lines.last().unwrap().starts_with("last event"), "{lines:#?}");
    }

    #[test]
    fn a_filter_leaves_what_it_says_and_small_screens_keep_the_cursor() {
        let mut model = TopModel::sample((0..50).map(|at| lock(&format!("l{at:02}"), 0)).collect());
        model.filter = "l4".to_owned();
        assert_eq!(model.rows().len(), 10);
        model.filter.clear();
        (0..30).for_each(|_| model.move_down());
        let lines = lines(&model, Size { columns: 80, rows: 12 }, None);
        assert!(lines.len() <= 12, "{}", lines.len());
        assert!(lines.iter().any(|line| line.starts_with("▸  l30")), "{lines:#?}");
        assert_eq!(model.chosen().as_deref(), Some("l30"));
    }
}
