//! Encodes and decodes events.
//!
//! The format is `cause · subject · field bits · fields`. The events of a revision may follow its label. History keeps
//! events in this form and decodes them only when a caller reads them.

use alloc::boxed::Box;
use alloc::vec::Vec;
use tenure_types::{LeaseId, Mode, Name, PlaceNumber, Revision, Token};

use super::request::{get_lease_id, get_priority};
use super::{Malformed, Reader, Writer};
use crate::event::{Cause, Event, Previous, Subject, TimeLabel, WallClock};

/// An event that borrows its parts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EventRef<'a> {
    pub(crate) cause: Cause,
    pub(crate) subject: SubjectRef<'a>,
    pub(crate) lease: Option<LeaseId>,
    pub(crate) client: Option<&'a [u8]>,
    pub(crate) token: Option<Token>,
    pub(crate) mode: Option<Mode>,
    pub(crate) slot: Option<u32>,
    pub(crate) place: Option<PlaceNumber>,
    pub(crate) left_ms: Option<u64>,
    pub(crate) reason: Option<&'a str>,
    pub(crate) by: Option<&'a [u8]>,
    pub(crate) principal: Option<&'a [u8]>,
    pub(crate) value: Option<&'a [u8]>,
    pub(crate) previous: Option<(Revision, &'a [u8])>,
    pub(crate) ttl_ms: Option<u64>,
    pub(crate) renewed_ms: Option<u64>,
    pub(crate) priority: Option<u8>,
}

/// What an event is about.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SubjectRef<'a> {
    Lock(&'a [u8]),
    Key(&'a [u8]),
    Lease(LeaseId),
    Settings,
}

impl<'a> EventRef<'a> {
    /// Creates an event with a cause and a subject only.
    #[inline(always)]
    pub(crate) fn new(cause: Cause, subject: SubjectRef<'a>) -> Self {
        Self {
            cause,
            subject,
            lease: None,
            client: None,
            token: None,
            mode: None,
            slot: None,
            place: None,
            left_ms: None,
            reason: None,
            by: None,
            principal: None,
            value: None,
            previous: None,
            ttl_ms: None,
            renewed_ms: None,
            priority: None,
        }
    }

    /// Borrows the parts of an event.
    pub(crate) fn of(event: &'a Event) -> Self {
        let name = |name: &'a Option<Name>| name.as_ref().map(|name| name.as_str().as_bytes());
        Self {
            cause: event.cause,
            subject: match &event.subject {
                Subject::Lock(lock) => SubjectRef::Lock(lock.as_str().as_bytes()),
                Subject::Key(key) => SubjectRef::Key(key.as_str().as_bytes()),
                Subject::Lease(lease) => SubjectRef::Lease(*lease),
                Subject::Settings => SubjectRef::Settings,
            },
            lease: event.lease,
            client: name(&event.client),
            token: event.token,
            mode: event.mode,
            slot: event.slot,
            place: event.place,
            left_ms: event.left_ms,
            reason: event.reason.as_deref(),
            by: name(&event.by),
            principal: name(&event.principal),
            value: event.value.as_deref(),
            previous: event.previous.as_ref().map(|it| (it.modified, &*it.value)),
            ttl_ms: event.ttl_ms,
            renewed_ms: event.renewed_ms,
            priority: event.priority,
        }
    }

    pub(crate) fn to_owned(self) -> Result<Event, Malformed> {
        let name = |bytes: &[u8]| {
            let text = core::str::from_utf8(bytes).map_err(|_| Malformed)?;
            Name::new(text).map_err(|_| Malformed)
        };
        Ok(Event {
            cause: self.cause,
            subject: match self.subject {
                SubjectRef::Lock(lock) => Subject::Lock(name(lock)?),
                SubjectRef::Key(key) => Subject::Key(name(key)?),
                SubjectRef::Lease(lease) => Subject::Lease(lease),
                SubjectRef::Settings => Subject::Settings,
            },
            lease: self.lease,
            client: self.client.map(name).transpose()?,
            token: self.token,
            mode: self.mode,
            slot: self.slot,
            place: self.place,
            left_ms: self.left_ms,
            by: self.by.map(name).transpose()?,
            reason: self.reason.map(Box::from),
            principal: self.principal.map(name).transpose()?,
            value: self.value.map(Box::from),
            previous: self
                .previous
                .map(|(modified, value)| Previous { modified, value: Box::from(value) }),
            ttl_ms: self.ttl_ms,
            renewed_ms: self.renewed_ms,
            priority: self.priority,
        })
    }
}

/// The bits that say which fields follow.
mod field {
    pub(super) const LEASE: u16 = 1;
    pub(super) const CLIENT: u16 = 1 << 1;
    pub(super) const TOKEN: u16 = 1 << 2;
    pub(super) const MODE: u16 = 1 << 3;
    pub(super) const SLOT: u16 = 1 << 4;
    pub(super) const PLACE: u16 = 1 << 5;
    pub(super) const LEFT: u16 = 1 << 6;
    pub(super) const REASON: u16 = 1 << 7;
    pub(super) const VALUE: u16 = 1 << 8;
    pub(super) const PREVIOUS: u16 = 1 << 9;
    pub(super) const BY: u16 = 1 << 10;
    pub(super) const PRINCIPAL: u16 = 1 << 11;
    pub(super) const TTL: u16 = 1 << 13;
    pub(super) const RENEWED: u16 = 1 << 14;
    pub(super) const PRIORITY: u16 = 1 << 15;
    pub(super) const ALL: u16 = ((1 << 12) - 1) | TTL | RENEWED | PRIORITY;
}

/// Inlined, so that the compiler drops the fields that the caller leaves out. Grants, releases and waits emit millions
/// of events; most fields of each are absent.
#[inline(always)]
pub(crate) fn put_event(out: &mut Vec<u8>, event: &EventRef<'_>) {
    out.put_u8(event.cause as u8);
    match event.subject {
        SubjectRef::Lock(lock) => {
            out.put_u8(0);
            out.put_bytes(lock);
        }
        SubjectRef::Key(key) => {
            out.put_u8(1);
            out.put_bytes(key);
        }
        SubjectRef::Lease(lease) => {
            out.put_u8(2);
            out.put(lease.get());
        }
        SubjectRef::Settings => out.put_u8(3),
    }
    let bit = |there: bool, bit: u16| if there { bit } else { 0 };
    let fields = bit(event.lease.is_some(), field::LEASE)
        | bit(event.client.is_some(), field::CLIENT)
        | bit(event.token.is_some(), field::TOKEN)
        | bit(event.mode.is_some(), field::MODE)
        | bit(event.slot.is_some(), field::SLOT)
        | bit(event.place.is_some(), field::PLACE)
        | bit(event.left_ms.is_some(), field::LEFT)
        | bit(event.reason.is_some(), field::REASON)
        | bit(event.value.is_some(), field::VALUE)
        | bit(event.previous.is_some(), field::PREVIOUS)
        | bit(event.by.is_some(), field::BY)
        | bit(event.principal.is_some(), field::PRINCIPAL)
        | bit(event.ttl_ms.is_some(), field::TTL)
        | bit(event.renewed_ms.is_some(), field::RENEWED)
        | bit(event.priority.is_some(), field::PRIORITY);
    out.put(u64::from(fields));
    if let Some(lease) = event.lease {
        out.put(lease.get());
    }
    if let Some(client) = event.client {
        out.put_bytes(client);
    }
    if let Some(token) = event.token {
        out.put(token.get());
    }
    if let Some(mode) = event.mode {
        out.put_mode(mode);
    }
    if let Some(slot) = event.slot {
        out.put(u64::from(slot));
    }
    if let Some(place) = event.place {
        out.put(place.0);
    }
    if let Some(left_ms) = event.left_ms {
        out.put(left_ms);
    }
    if let Some(reason) = event.reason {
        out.put_bytes(reason.as_bytes());
    }
    if let Some(value) = event.value {
        out.put_bytes(value);
    }
    if let Some((modified, value)) = event.previous {
        out.put(modified.0);
        out.put_bytes(value);
    }
    if let Some(by) = event.by {
        out.put_bytes(by);
    }
    if let Some(principal) = event.principal {
        out.put_bytes(principal);
    }
    if let Some(ttl_ms) = event.ttl_ms {
        out.put(ttl_ms);
    }
    if let Some(renewed_ms) = event.renewed_ms {
        out.put(renewed_ms);
    }
    if let Some(priority) = event.priority {
        out.put_u8(priority);
    }
}

/// Takes the place of the cause of a first event: a label follows.
const LABEL: u8 = 0;

/// Writes the label of a revision, ahead of its events.
pub(crate) fn put_label(out: &mut Vec<u8>, label: TimeLabel) {
    out.put_u8(LABEL);
    // Of fixed width, because the number of bytes decides how much history is kept: a decision that no wall clock may
    // take part in.
    out.put_raw(&label.wall.unix_ms.to_le_bytes());
    out.put(label.clock_ms);
}

/// Reads the label of a revision, if it has one.
pub(crate) fn get_label(reader: &mut Reader<'_>) -> Result<Option<TimeLabel>, Malformed> {
    if reader.peek() != Some(LABEL) {
        return Ok(None);
    }
    reader.u8()?;
    let wall = WallClock { unix_ms: reader.u64_raw()? };
    Ok(Some(TimeLabel { wall, clock_ms: reader.number()? }))
}

pub(crate) fn get_event<'a>(reader: &mut Reader<'a>) -> Result<EventRef<'a>, Malformed> {
    let cause = Cause::from_number(reader.u8()?).ok_or(Malformed)?;
    let subject = match reader.u8()? {
        0 => SubjectRef::Lock(reader.bytes()?),
        1 => SubjectRef::Key(reader.bytes()?),
        2 => SubjectRef::Lease(get_lease_id(reader)?),
        3 => SubjectRef::Settings,
        _ => return Err(Malformed),
    };
    let fields = reader.u16()?;
    if fields & !field::ALL != 0 {
        return Err(Malformed);
    }
    let has = |bit: u16| fields & bit != 0;
    let mut event = EventRef::new(cause, subject);
    if has(field::LEASE) {
        event.lease = Some(get_lease_id(reader)?);
    }
    if has(field::CLIENT) {
        event.client = Some(reader.bytes()?);
    }
    if has(field::TOKEN) {
        event.token = Some(reader.token()?);
    }
    if has(field::MODE) {
        event.mode = Some(reader.mode()?);
    }
    if has(field::SLOT) {
        event.slot = Some(reader.u32()?);
    }
    if has(field::PLACE) {
        event.place = Some(PlaceNumber(reader.number()?));
    }
    if has(field::LEFT) {
        event.left_ms = Some(reader.number()?);
    }
    if has(field::REASON) {
        event.reason = Some(reader.text()?);
    }
    if has(field::VALUE) {
        event.value = Some(reader.bytes()?);
    }
    if has(field::PREVIOUS) {
        event.previous = Some((reader.revision()?, reader.bytes()?));
    }
    if has(field::BY) {
        event.by = Some(reader.bytes()?);
    }
    if has(field::PRINCIPAL) {
        event.principal = Some(reader.bytes()?);
    }
    if has(field::TTL) {
        event.ttl_ms = Some(reader.number()?);
    }
    if has(field::RENEWED) {
        event.renewed_ms = Some(reader.number()?);
    }
    if has(field::PRIORITY) {
        event.priority = Some(get_priority(reader)?);
    }
    Ok(event)
}
