//! Reads what the last run left, and decides how much of it can be trusted.
//!
//! Recovery reads the stream from the oldest segment on. The stream ends at the last whole batch that chains to the one
//! before. What follows is either a torn tail, which the member never acknowledged and which recovery cuts, or damage
//! to something durable, which must never be cut because others may rely on it. The durable marks distinguish the two.
//! A mark of this segment beyond the end of the stream proves that the unreadable part was durable. So does any record
//! in a later segment, because a segment is sealed and synced before the next is written.
//!
//! No mark follows the newest batch, so no mark distinguishes damage to it from a torn write: recovery cuts it, and
//! [`Cut`] says which entries it held and what its bytes look like. [`Log::mark`] closes that gap when the log is
//! quiet.
//!
//! Before recovery returns the log, it makes the tail durable. It writes the bytes after the last mark again and syncs
//! them (and a seal that nothing follows), because after a failed sync the kernel may show data that never reached the
//! disk. It fills everything after that with zeros, so that no part of an old tail can ever continue a new one.

use std::{
    collections::VecDeque,
    io,
    sync::{Arc, atomic::AtomicBool},
};

use bytes::Bytes;

use super::{
    Log, LogOptions, Presence, Tail,
    cut::Cut,
    prepare::mix,
    record::{ALIGN, LogRecord, Placed, RecordHeader},
    segment::{self, BadSegment, DIR, FIRST_RECORD, Segment, TEMPORARY_SUFFIX},
    view::{EntrySlot, LogView},
};
use crate::{
    Damage, HardState, LogId, OpenError,
    disk::{Disk, write_zeros},
};

/// The content of a log when it was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovered {
    /// The hard state.
    pub hard_state: HardState,
    /// The point after which the log starts.
    pub base: LogId,
    /// The last entry, or the base.
    pub last: LogId,
    /// The number of segments read.
    pub segments: usize,
    /// The number of records kept.
    pub records: u64,
    /// The part cut from the end, if any.
    pub cut: Option<Cut>,
}

/// The stream as far as it has been read.
struct RecordStream {
    view: LogView,
    /// The checksum of the last record; `None` before the first segment, whose predecessor is gone.
    previous: Option<u32>,
    records: u64,
}

/// The place and state in which the reading of one segment ended.
struct SegmentEnd {
    offset: u32,
    /// The highest durable mark of the records read.
    durable: u32,
    marked: u32,
    started: bool,
    sealed: bool,
}

/// The segments by their role.
struct FoundSegments {
    /// The full segments, oldest first, and the content of the newest of them.
    sealed: VecDeque<Segment>,
    last_sealed: Option<(Vec<u8>, SegmentEnd)>,
    /// The segment in which the stream ends.
    active: Segment,
    image: Vec<u8>,
    end: SegmentEnd,
    /// The segment prepared ahead, if any.
    next: Option<(Segment, Vec<u8>)>,
}

pub(super) fn open(
    disk: Arc<dyn Disk>,
    options: LogOptions,
) -> Result<(Log, Recovered), OpenError> {
    options.check()?;
    prepare_dir(&*disk)?;
    let mut numbers = segment_numbers(&*disk)?;
    if numbers.is_empty() {
        if options.presence == Presence::MustExist {
            return Err(OpenError::Absent);
        }
        create_first(&*disk, &options).map_err(failed("create the first segment in", DIR))?;
        numbers.push(1);
    }
    let mut stream =
        RecordStream { view: LogView::new(options.cache_bytes), previous: None, records: 0 };
    let found = stream.read_all(&*disk, &numbers)?;
    if !stream.view.is_complete() {
        return Err(stream.corrupt(numbers[0], FIRST_RECORD, Damage::Gap));
    }
    found.settle()?;
    let cut = Cut::find(&found.active, &found.image, found.end.offset, stream.view.last_index());
    let cut = if mutant!("cut_batch_not_said") { None } else { cut };
    let FoundSegments { sealed: mut segments, active, end, next, .. } = found;
    let next = settle_next(&*disk, next, options.segment_bytes)?;
    disk.sync_dir(DIR).map_err(failed("sync", DIR))?;
    segments.push_back(active);
    let tail = Tail {
        end: end.offset,
        durable: end.offset,
        marked: end.marked,
        previous: stream.previous.unwrap_or(0),
        started: end.started,
    };
    let recovered = Recovered {
        hard_state: stream.view.hard_state,
        base: stream.view.base,
        last: stream.view.last(),
        segments: segments.len(),
        records: stream.records,
        cut,
    };
    let log = Log {
        disk,
        options,
        view: stream.view,
        segments,
        tail,
        next,
        spares_named: 0,
        buffer: Vec::new(),
        stopped: Arc::new(AtomicBool::new(false)),
    };
    Ok((log, recovered))
}

fn failed<'a>(doing: &'static str, name: &'a str) -> impl FnOnce(io::Error) -> OpenError + 'a {
    move |source| OpenError::Io { doing, name: name.into(), source }
}

fn prepare_dir(disk: &dyn Disk) -> Result<(), OpenError> {
    disk.make_dir(DIR).and_then(|()| disk.sync_dir("")).map_err(failed("make directory", DIR))
}

/// The numbers of all segments in order, without holes. Removes files that never became a segment.
fn segment_numbers(disk: &dyn Disk) -> Result<Vec<u64>, OpenError> {
    let corrupt = |segment, damage| OpenError::Corrupt { segment, offset: 0, index: 0, damage };
    let mut numbers = Vec::new();
    for name in disk.list(DIR).map_err(failed("list", DIR))? {
        if name.ends_with(TEMPORARY_SUFFIX) {
            let name = format!("{DIR}/{name}");
            disk.remove(&name).map_err(failed("remove", &name))?;
        }
        match segment::number(&name) {
            // Zero is never assigned, and the last number would have no successor.
            Some(Ok(number)) if number > 0 && number < u64::MAX => numbers.push(number),
            Some(_) => return Err(corrupt(0, Damage::Name)),
            None => {}
        }
    }
    numbers.sort_unstable();
    for pair in numbers.windows(2) {
        if pair[1] != pair[0] + 1 {
            return Err(corrupt(pair[0] + 1, Damage::Missing));
        }
    }
    Ok(numbers)
}

fn create_first(disk: &dyn Disk, options: &LogOptions) -> io::Result<()> {
    let temporary = format!("{DIR}/first{TEMPORARY_SUFFIX}");
    segment::create(disk, &temporary, 1, mix(options.salt, 1), options.segment_bytes)?;
    disk.rename(&temporary, &segment::name(1))?;
    disk.sync_dir(DIR)
}

impl RecordStream {
    fn corrupt(&self, segment: u64, offset: u32, damage: Damage) -> OpenError {
        let index = self.view.last_index().saturating_add(1);
        OpenError::Corrupt { segment, offset: u64::from(offset), index, damage }
    }

    fn bad(&self, number: u64, bad: BadSegment) -> OpenError {
        let damage = match bad {
            BadSegment::Io(source) => {
                return OpenError::Io { doing: "open", name: segment::name(number), source };
            }
            BadSegment::Format(found) => return OpenError::Format { segment: number, found },
            BadSegment::Header => Damage::Header,
            BadSegment::Size => Damage::Size,
            BadSegment::Number(other) => Damage::Copy(other),
        };
        self.corrupt(number, 0, damage)
    }

    /// Reads the stream through all segments and decides whether its end may be trusted.
    fn read_all(&mut self, disk: &dyn Disk, numbers: &[u64]) -> Result<FoundSegments, OpenError> {
        let mut sealed = VecDeque::with_capacity(numbers.len());
        let mut last_sealed = None;
        let mut tail: Option<(Segment, Vec<u8>, SegmentEnd)> = None;
        let mut next = None;
        for number in numbers {
            let segment = segment::open(disk, *number).map_err(|bad| self.bad(*number, bad))?;
            let image = segment.read().map_err(failed("read", &segment::name(*number)))?;
            if let Some((active, _, end)) = &tail {
                // At most one segment is prepared ahead, and it holds no record. Otherwise the stream continued here,
                // and whatever made it end earlier is damage.
                if next.is_some() || search(&image, &segment, FIRST_RECORD, 0).is_some() {
                    return Err(self.corrupt(active.number, end.offset, Damage::Record));
                }
                next = Some((segment, image));
                continue;
            }
            let end = self.read(&segment, &image)?;
            if end.sealed {
                sealed.push_back(segment);
                last_sealed = Some((image, end));
                continue;
            }
            if search(&image, &segment, end.offset, end.offset).is_some()
                && !mutant!("log_truncated_in_the_middle")
            {
                return Err(self.corrupt(*number, end.offset, Damage::Record));
            }
            tail = Some((segment, image, end));
        }
        let Some((active, image, end)) = tail else {
            let missing = numbers.last().map_or(1, |last| last + 1);
            return Err(self.corrupt(missing, 0, Damage::Missing));
        };
        if !end.started && sealed.is_empty() && active.number != 1 {
            // Segments are dropped only when a later one has durably taken over their content.
            return Err(self.corrupt(active.number, FIRST_RECORD, Damage::Record));
        }
        Ok(FoundSegments { sealed, last_sealed, active, image, end, next })
    }

    /// Reads one segment up to the end of its last whole batch.
    fn read(&mut self, segment: &Segment, image: &[u8]) -> Result<SegmentEnd, OpenError> {
        let mut end = SegmentEnd {
            offset: FIRST_RECORD,
            durable: FIRST_RECORD,
            marked: FIRST_RECORD,
            started: false,
            sealed: false,
        };
        let mut offset = FIRST_RECORD;
        let mut previous = self.previous;
        let mut batch: Vec<(u32, LogRecord<'_>)> = Vec::new();
        let mut marked = FIRST_RECORD;
        while !end.sealed {
            let Some(header) = RecordHeader::read(image, offset, segment.seed) else { break };
            // Only the first segment left may begin with a record whose predecessor is unknown.
            if previous.is_some_and(|previous| previous != header.previous) {
                break;
            }
            let Some((record, after)) = header.record(image, offset) else { break };
            batch.push((offset, record));
            marked = marked.max(header.durable);
            previous = Some(header.checksum);
            offset = after;
            if header.ends_batch {
                for (at, record) in batch.drain(..) {
                    self.apply(segment, at, after, &record, &mut end).map_err(|Impossible| {
                        self.corrupt(segment.number, at, Damage::Impossible)
                    })?;
                    self.records += 1;
                }
                end.offset = offset;
                end.durable = marked;
                end.marked = header.durable;
                self.previous = previous;
            }
        }
        // No record may claim that more is durable than was written before it.
        if end.durable > end.offset {
            return Err(self.corrupt(segment.number, end.offset, Damage::Record));
        }
        Ok(end)
    }

    fn apply(
        &mut self,
        segment: &Segment,
        offset: u32,
        batch_end: u32,
        record: &LogRecord<'_>,
        end: &mut SegmentEnd,
    ) -> Result<(), Impossible> {
        let is_start = matches!(record, LogRecord::Start { .. });
        // A segment begins with exactly one start record.
        if is_start == end.started {
            return Err(Impossible);
        }
        let view = &mut self.view;
        match *record {
            LogRecord::Start { base, last, hard_state } => {
                end.started = true;
                if self.previous.is_none() {
                    view.begin(base, last, hard_state)?;
                } else if (view.base, view.last_index(), view.hard_state)
                    != (base, last.index, hard_state)
                {
                    return Err(Impossible);
                }
            }
            LogRecord::Entry { index, term, kind, payload } => {
                // The payload lies between the record's offset and the end of its batch, so this does not truncate.
                let length = u32::try_from(payload.len()).map_err(|_| Impossible)?;
                let length = length.checked_add(super::HEADER_BYTES).ok_or(Impossible)?;
                let placed = Placed { offset, length };
                let payload = Some(Bytes::copy_from_slice(payload));
                view.append(
                    index,
                    EntrySlot { term, kind, segment: segment.number, placed, payload },
                )?;
            }
            LogRecord::HardState(state) => view.set_hard_state(state)?,
            LogRecord::Snapshot(point) => view.reset(point)?,
            LogRecord::Compact(point) => {
                if view.term(point.index).is_some_and(|term| term != point.term) {
                    return Err(Impossible);
                }
                view.compact(point)?;
            }
            LogRecord::Durable { .. } => {}
            LogRecord::Notes(notes) => view.notes = notes.to_vec(),
            LogRecord::Seal { next } => {
                if next != segment.number + 1 || batch_end > segment.bytes {
                    return Err(Impossible);
                }
                end.sealed = true;
            }
        }
        Ok(())
    }
}

impl FoundSegments {
    /// Makes what was read durable on the disk.
    fn settle(&self) -> Result<(), OpenError> {
        if let (false, Some((image, end)), Some(segment)) =
            (self.end.started, &self.last_sealed, self.sealed.back())
        {
            // Nothing after the seal proves that it was synced.
            settle(segment, image, end.durable, end.offset)?;
        }
        settle(&self.active, &self.image, self.end.durable, self.end.offset)
    }
}

/// A readable record that this program would not have written at that place.
struct Impossible;

impl From<crate::Rejection> for Impossible {
    fn from(_: crate::Rejection) -> Self {
        Self
    }
}

/// Searches from an offset on for a record whose durable mark is above a limit.
fn search(image: &[u8], segment: &Segment, from: u32, above: u32) -> Option<u32> {
    let mut offset = from.next_multiple_of(ALIGN);
    while offset < segment.bytes {
        if RecordHeader::read(image, offset, segment.seed)
            .is_some_and(|header| header.durable > above)
        {
            return Some(offset);
        }
        offset += ALIGN;
    }
    None
}

/// Makes the last segment hold the stream up to its end, durably, and zeros after it.
fn settle(segment: &Segment, image: &[u8], durable: u32, end: u32) -> Result<(), OpenError> {
    let name = segment::name(segment.number);
    let failed = || failed("settle", &name);
    if durable < end {
        let bytes = &image[durable as usize..end as usize];
        segment.file.write_at(u64::from(durable), bytes).map_err(failed())?;
    }
    let rest = &image[end as usize..];
    let length = rest.iter().rposition(|byte| *byte != 0).map_or(0, |last| last as u64 + 1);
    if length > 0 {
        write_zeros(&*segment.file, u64::from(end), length).map_err(failed())?;
    }
    segment.file.sync().map_err(failed())?;
    Ok(())
}

/// Keeps a segment prepared by an earlier run if it is of the size wanted now.
fn settle_next(
    disk: &dyn Disk,
    next: Option<(Segment, Vec<u8>)>,
    wanted: u32,
) -> Result<Option<Segment>, OpenError> {
    let Some((segment, image)) = next else { return Ok(None) };
    if segment.bytes != wanted {
        let name = segment::name(segment.number);
        disk.remove(&name).map_err(failed("remove", &name))?;
        return Ok(None);
    }
    settle(&segment, &image, FIRST_RECORD, FIRST_RECORD)?;
    Ok(Some(segment))
}
