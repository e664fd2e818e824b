//! Checks the promises of a cluster against the archives of its members.

use std::path::{Path, PathBuf};

use serde_json::json;
use tenure_server::archive::ARCHIVE_DIR;
use tenure_server::archive::verify::{Handover, HandoverKind, Promise, VerifyReport, verify_dir};

use crate::exit::Exit;
use crate::failure::CliError;
use crate::output::{self, OutputFormat};

const PROMISES: [Promise; 4] =
    [Promise::OneHolder, Promise::TokensGrow, Promise::FirstCome, Promise::NotEarly];

const KINDS: [(HandoverKind, &str); 4] = [
    (HandoverKind::GivenBack, "given_back"),
    (HandoverKind::Expired, "expired"),
    (HandoverKind::TakenAway, "taken_away"),
    (HandoverKind::Unprotected, "unprotected"),
];

/// Checks each archive. Ends with 1 if a promise was broken.
pub(super) fn verify(dirs: &[PathBuf], format: OutputFormat) -> Result<Exit, CliError> {
    let mut exit = Exit::Done;
    for dir in dirs {
        let below = dir.join(ARCHIVE_DIR);
        let dir = if below.is_dir() { below } else { dir.clone() };
        let report = verify_dir(&dir).map_err(|error| {
            CliError::config(format!("cannot read the archive {}: {error}", dir.display()))
        })?;
        match format {
            OutputFormat::Json => show_json(&dir, &report),
            OutputFormat::Text => output::out(&text(&dir, &report)),
        }
        if !report.broken.is_empty() {
            exit = Exit::Refused;
        }
    }
    Ok(exit)
}

fn word(kind: HandoverKind) -> &'static str {
    KINDS.iter().find(|(it, _)| *it == kind).map_or("", |(_, word)| word)
}

/// The hand-over with the smallest margin that the cluster promises.
fn smallest(report: &VerifyReport) -> Option<(&str, &Handover)> {
    let promised = report.handovers.iter().filter(|(_, it)| it.promised_margin_ms().is_some());
    promised.min_by_key(|(_, it)| it.margin_ms).map(|(lock, it)| (&**lock, it))
}

fn text(dir: &Path, report: &VerifyReport) -> String {
    let mut text = format!("archive {}\n", dir.display());
    if let Some((first, last)) = report.range {
        let (revisions, grants) = (report.revisions, report.grants);
        text.push_str(&format!(
            "revisions {first} to {last}: {revisions} checked, {grants} grants\n"
        ));
    }
    for hole in &report.holes {
        let to = hole.next.0.saturating_sub(1);
        text.push_str(&format!("incomplete in revisions {} to {to}\n", hole.from));
    }
    for promise in PROMISES {
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
    if let Some((lock, it)) = smallest(report) {
        let (lock, revision) = (output::clean(lock), it.revision);
        text.push_str(&format!(
            "smallest margin {} ms, at revision {revision}, lock `{lock}`\n",
            it.margin_ms
        ));
    }
    text
}

fn show_json(dir: &Path, report: &VerifyReport) {
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
    let holes: Vec<_> = report
        .holes
        .iter()
        .map(|it| json!({ "from": it.from.to_string(), "next": it.next.to_string() }))
        .collect();
    output::object(&json!({
        "archive": dir.display().to_string(),
        "revisions": report.revisions,
        "grants": report.grants,
        "from_revision": report.range.map(|(first, _)| first.to_string()),
        "to_revision": report.range.map(|(_, last)| last.to_string()),
        "handovers": report.handovers.len(),
        "smallest_margin_ms": smallest(report).map(|(_, it)| it.margin_ms),
        "broken": report.broken.len(),
        "holes": holes,
    }));
}
