//! Finds events in the archive, the newest first.

use std::io;
use std::sync::Arc;

use tenure_core::event::{Batch, Cause};
use tenure_core::{Filter, Recorded, RevisionRecord};
use tenure_types::Revision;

use super::Archive;
use super::frame::{ArchiveFrame, RevisionRange};
use super::segment::{ArchiveSegment, OTHERS, prefix_of};

/// The most bytes that one search reads: some tens of milliseconds of one thread.
const SEARCH_BYTES: u64 = 64 * 1024 * 1024;

/// The locks that are searched for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum ArchiveSubject {
    /// The lock of this name.
    Lock(String),
    /// Every lock whose name begins so.
    Prefix(String),
}

/// What to find.
#[derive(Clone, Debug)]
pub(crate) struct ArchiveQuery {
    pub(crate) subject: ArchiveSubject,
    /// Not before this time of the label.
    pub(crate) since_ms: Option<u64>,
    /// Not after this time of the label.
    pub(crate) until_ms: Option<u64>,
    /// Only events of clients whose names begin with this text.
    pub(crate) client: Option<String>,
    /// Only involuntary ends.
    pub(crate) lost: bool,
    /// Only events of this cause.
    pub(crate) cause: Option<Cause>,
    /// Only revisions before this one.
    pub(crate) before: Revision,
    /// The most revisions.
    pub(crate) max: usize,
}

/// What was found in a part of the past.
#[derive(Clone, Default, Debug)]
pub(crate) struct FoundPart {
    /// The newest first.
    pub(crate) batches: Vec<Batch>,
    /// There may be more before this revision.
    pub(crate) more_before: Option<Revision>,
    /// The first revision that the archive stands for, for these names; none if there is no archive.
    pub(crate) begins: Option<Revision>,
    /// The time of the first label from there on.
    pub(crate) begins_ms: Option<u64>,
    /// Revisions in the searched range that this member could not record.
    pub(crate) holes: Vec<RevisionRange>,
}

impl ArchiveQuery {
    /// The name or prefix that is searched for.
    pub(crate) fn name(&self) -> &str {
        match &self.subject {
            ArchiveSubject::Lock(name) | ArchiveSubject::Prefix(name) => name,
        }
    }

    /// The events of a record that were asked for.
    pub(crate) fn matching(&self, record: RevisionRecord<'_>) -> Option<Batch> {
        let label = record.label();
        let at_ms = label.map(|label| label.wall.unix_ms);
        let early = self.since_ms.is_some_and(|since| at_ms.is_none_or(|at| at < since));
        let late = self.until_ms.is_some_and(|until| at_ms.is_none_or(|at| at > until));
        if early || late {
            return None;
        }
        let events: Vec<_> =
            record.events().filter(|it| self.admits(it)).map(|it| it.to_event()).collect();
        (!events.is_empty()).then_some(Batch { revision: record.revision, label, events })
    }

    fn admits(&self, event: &Recorded<'_>) -> bool {
        let filter = match &self.subject {
            ArchiveSubject::Lock(name) => Filter::Exact(name),
            ArchiveSubject::Prefix(prefix) => Filter::Prefix(prefix),
        };
        let of_client =
            |client: &String| event.client().is_some_and(|it| it.starts_with(client.as_bytes()));
        // A key may have the same name; its events do not belong here.
        event.lock().is_some()
            && event.is_admitted(filter)
            && (!self.lost || is_loss(event))
            && self.cause.is_none_or(|cause| event.cause() == cause)
            && self.client.as_ref().is_none_or(of_client)
    }

    /// Whether a segment may have something of what was asked for.
    fn may_be_in(&self, segment: &ArchiveSegment) -> bool {
        let (since, until) = (self.since_ms.unwrap_or(0), self.until_ms.unwrap_or(u64::MAX));
        let timed = self.since_ms.is_some() || self.until_ms.is_some();
        let in_time = match segment.labels {
            Some((oldest, newest)) => oldest <= until && newest >= since,
            None => !timed,
        };
        in_time && segment.range.from < self.before && segment.may_have(self.name())
    }
}

/// Whether a holder lost a lock without asking for it.
fn is_loss(event: &Recorded<'_>) -> bool {
    let ends = matches!(
        event.cause(),
        Cause::Expired | Cause::Revoked | Cause::Forced | Cause::MaxHold | Cause::NoProgress
    );
    // Waiters have no token.
    ends && event.token().is_some()
}

impl Archive {
    /// The revision up to which everything is in the archive and durable; none if there is no archive.
    pub(crate) fn durable_before(&self) -> Option<Revision> {
        self.segments().last().map(|last| last.range.next)
    }

    /// Says where the archive begins for the names asked for.
    pub(crate) fn begin(&self, query: &ArchiveQuery, found: &mut FoundPart) {
        begin(&self.segments(), query, found);
    }

    /// Searches the archive from the newest revision asked for backwards. Reads files: not for the event loop.
    pub(crate) fn search(&self, query: &ArchiveQuery) -> io::Result<FoundPart> {
        let segments = self.segments();
        let mut found = FoundPart::default();
        begin(&segments, query, &mut found);
        let mut read = 0;
        for segment in segments.iter().rev() {
            if segment.range.from >= query.before {
                continue;
            }
            let is_past = query.since_ms.is_some_and(|since| {
                // Clocks jump: what is hours older than asked for has nothing of it, nor has anything before it.
                const SLACK_MS: u64 = 24 * 3_600_000;
                segment.labels.is_some_and(|(_, newest)| newest.saturating_add(SLACK_MS) < since)
            });
            if is_past {
                return Ok(found);
            }
            found.holes.extend(segment.holes.iter().rev());
            if !query.may_be_in(segment) {
                continue;
            }
            if read >= SEARCH_BYTES || found.batches.len() >= query.max {
                found.more_before = Some(segment.range.next.min(query.before));
                return Ok(found);
            }
            read += segment.len;
            if !search_one(segment, query, &mut found)? {
                return Ok(found);
            }
        }
        Ok(found)
    }
}

/// Searches one segment. Returns whether the search goes on before it.
fn search_one(
    segment: &ArchiveSegment,
    query: &ArchiveQuery,
    found: &mut FoundPart,
) -> io::Result<bool> {
    let frames = match segment.frames() {
        Ok(frames) => frames,
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            found.holes.push(segment.range);
            return Ok(true);
        }
        Err(error) => return Err(error),
    };
    let mut here = Vec::new();
    for frame in &frames {
        let ArchiveFrame::Records { records, .. } = frame else { continue };
        let before = records.iter().take_while(|record| record.revision < query.before);
        here.extend(before.filter_map(|record| query.matching(record)));
    }
    let room = query.max - found.batches.len();
    found.batches.extend(here.iter().rev().take(room).cloned());
    if here.len() > room {
        found.more_before = found.batches.last().map(|last| last.revision);
        return Ok(false);
    }
    Ok(true)
}

/// Says where the archive begins for the names asked for.
fn begin(segments: &[Arc<ArchiveSegment>], query: &ArchiveQuery, found: &mut FoundPart) {
    let Some(first) = segments.first() else { return };
    let prefix = prefix_of(query.name());
    let cuts = segments.iter().flat_map(|segment| &segment.cuts);
    let concerned = cuts
        .filter(|(cut, _)| ***cut == *prefix || ***cut == *OTHERS || cut.starts_with(query.name()));
    let begins = concerned.map(|(_, upto)| *upto).fold(first.range.from, Revision::max);
    found.begins = Some(begins);
    let from_there = segments.iter().filter(|segment| segment.range.next > begins);
    found.begins_ms = from_there.filter_map(|segment| segment.labels).map(|it| it.0).min();
}
