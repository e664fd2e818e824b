//! Checks the promises of a cluster against the archives of its members.

use std::path::PathBuf;

use serde_json::{Value, json};
use tenure_server::archive::ARCHIVE_DIR;
use tenure_server::archive::RevisionRange;
use tenure_server::archive::verify::{
    ArchiveSummary, DamagedSegment, Handover, HandoverKind, Promise, VerifyReport, verify_dirs,
};

use crate::exit::Exit;
use crate::failure::CliError;
use crate::output::{self, OutputFormat};

const KINDS: [(HandoverKind, &str); 4] = [
    (HandoverKind::GivenBack, "given_back"),
    (HandoverKind::Expired, "expired"),
    (HandoverKind::TakenAway, "taken_away"),
    (HandoverKind::Unprotected, "unprotected"),
];

/// Checks the archives of one or more members of a cluster together. Ends with 1 if a promise was broken, or if a file
/// is damaged.
pub(super) fn verify(dirs: &[PathBuf], format: OutputFormat) -> Result<Exit, CliError> {
    let below = |dir: &PathBuf| Some(dir.join(ARCHIVE_DIR)).filter(|below| below.is_dir());
    let dirs: Vec<_> = dirs.iter().map(|dir| below(dir).unwrap_or_else(|| dir.clone())).collect();
    let report = verify_dirs(&dirs)
        .map_err(|error| CliError::config(format!("{error}: {}", error.cause)))?;
    if report.revisions == 0 && report.damaged.is_empty() {
        let dirs: Vec<String> = dirs.iter().map(|dir| dir.display().to_string()).collect();
        let text = format!("nothing was checked: no event is in {} yet", dirs.join(" or "));
        return Err(CliError::config(text));
    }
    match format {
        OutputFormat::Json => show_json(&report),
        OutputFormat::Text => output::out(&text(&report)),
    }
    let is_sound = report.broken.is_empty() && report.damaged.is_empty();
    Ok(if is_sound { Exit::Done } else { Exit::Refused })
}

fn word(kind: HandoverKind) -> &'static str {
    KINDS.iter().find(|(it, _)| *it == kind).map_or("", |(_, word)| word)
}

/// The hand-over with the smallest margin that the cluster promises.
fn smallest(report: &VerifyReport) -> Option<(&str, &Handover)> {
    let promised = report.handovers.iter().filter(|(_, it)| it.promised_margin_ms().is_some());
    promised.min_by_key(|(_, it)| it.margin_ms).map(|(lock, it)| (&**lock, it))
}

fn text(report: &VerifyReport) -> String {
    let mut text = String::new();
    for archive in &report.archives {
        let (dir, revisions) = (archive.dir.display(), archive.revisions);
        text.push_str(&format!("archive {dir}, {revisions} revisions\n"));
        if archive.incomplete_bytes > 0 {
            let bytes = archive.incomplete_bytes;
            text.push_str(&format!(
                "not read: its last {bytes} bytes, a frame that was being written\n"
            ));
        }
    }
    for damaged in &report.damaged {
        let (path, detail) = (damaged.path.display(), &damaged.detail);
        text.push_str(&format!("DAMAGED {path}: {detail}\n"));
    }
    if let Some((first, last)) = report.range {
        let (revisions, grants) = (report.revisions, report.grants);
        text.push_str(&format!(
            "revisions {first} to {last}: {revisions} checked, {grants} grants\n"
        ));
    }
    for hole in &report.holes {
        let to = hole.next.0.saturating_sub(1);
        let from = hole.from;
        text.push_str(&format!(
            "incomplete: no archive has all events of revisions {from} to {to}\n"
        ));
    }
    for promise in Promise::ALL {
        let broken = report.broken.iter().filter(|it| it.promise == promise).count();
        let verdict = match broken {
            0 => "kept".to_owned(),
            broken => format!("BROKEN {broken} times"),
        };
        text.push_str(&format!("{:<26} {verdict}\n", promise.words()));
    }
    for broken in &report.broken {
        text.push_str(&format!(
            "revision {}: {}\n",
            broken.revision,
            output::clean(&broken.detail)
        ));
    }
    for (lock, it) in report.handovers.iter().filter(|(_, it)| it.kind != HandoverKind::GivenBack) {
        let (lock, (from, to)) = (output::clean(lock), it.tokens);
        text.push_str(&format!(
            "hand-over at revision {}: lock `{lock}`, token {from} to {to}, {}, margin {} ms\n",
            it.revision,
            word(it.kind).replace('_', " "),
            it.margin_ms
        ));
    }
    for (kind, word) in KINDS {
        let count = report.handovers.iter().filter(|(_, it)| it.kind == kind).count();
        text.push_str(&format!("hand-overs, {:<14} {count}\n", word.replace('_', " ")));
    }
    if let Some(it) = report.margins() {
        let (count, p50, p99) = (it.count, it.p50_ms, it.p99_ms);
        text.push_str(&format!("margins of {count} hand-overs: p50 {p50} ms, p99 {p99} ms\n"));
    }
    if let Some((lock, it)) = smallest(report) {
        let (lock, revision) = (output::clean(lock), it.revision);
        text.push_str(&format!(
            "smallest margin {} ms, at revision {revision}, lock `{lock}`\n",
            it.margin_ms
        ));
    }
    text
}

fn show_json(report: &VerifyReport) {
    for (lock, it) in &report.handovers {
        output::object(&json!({
            "handover": word(it.kind), "lock": lock, "revision": it.revision.to_string(),
            "from_token": it.tokens.0.to_string(), "token": it.tokens.1.to_string(),
            "margin_ms": it.margin_ms,
        }));
    }
    for broken in &report.broken {
        output::object(&json!({
            "broken": broken.promise.words(), "revision": broken.revision.to_string(),
            "detail": broken.detail,
        }));
    }
    let margins = report.margins();
    output::object(&json!({
        "archives": report.archives.iter().map(archive_json).collect::<Vec<_>>(),
        "revisions": report.revisions,
        "grants": report.grants,
        "from_revision": report.range.map(|(first, _)| first.to_string()),
        "to_revision": report.range.map(|(_, last)| last.to_string()),
        "handovers": report.handovers.len(),
        "margins": margins.map(|it| it.count),
        "margin_p50_ms": margins.map(|it| it.p50_ms),
        "margin_p99_ms": margins.map(|it| it.p99_ms),
        "smallest_margin_ms": margins.map(|it| it.min_ms),
        "broken": report.broken.len(),
        "damaged": report.damaged.iter().map(damaged_json).collect::<Vec<_>>(),
        "holes": holes_json(&report.holes),
    }));
}

fn archive_json(it: &ArchiveSummary) -> Value {
    json!({
        "directory": it.dir.display().to_string(),
        "revisions": it.revisions,
        "from_revision": it.range.map(|(first, _)| first.to_string()),
        "to_revision": it.range.map(|(_, last)| last.to_string()),
        "holes": holes_json(&it.holes),
        "incomplete_bytes": it.incomplete_bytes,
    })
}

fn damaged_json(it: &DamagedSegment) -> Value {
    json!({ "file": it.path.display().to_string(), "detail": it.detail })
}

fn holes_json(holes: &[RevisionRange]) -> Vec<Value> {
    let one =
        |it: &RevisionRange| json!({ "from": it.from.to_string(), "next": it.next.to_string() });
    holes.iter().map(one).collect()
}
