//! Formats one record of the audit log.

use std::net::IpAddr;

use serde_json::{Map, Value};
use tenure_core::Recorded;
use tenure_core::access::MEMBER;
use tenure_core::event::{Cause, Event, Subject, TimeLabel};
use tenure_core::request::OWN_KEYS;
use tenure_node::invitation;
use tenure_types::{Name, Revision};

/// The prefix of the keys that list the members.
const MEMBERS: &str = tenure_node::directory::PREFIX;
/// The prefix of the keys that hold invitations.
const INVITATIONS: &str = invitation::PREFIX;
/// The prefix of the keys that hold the public keys of tickets.
const TICKET_KEYS: &str = "tenure/ticket-keys";

/// How an act ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AuditOutcome<'a> {
    Done,
    /// It was asked for, and no answer says whether it was done.
    Unknown,
    /// It was refused, for this reason of the table of errors.
    Refused(&'a str),
}

/// One record: an act or a denied call.
pub(crate) struct AuditRecord<'a> {
    act: &'a str,
    outcome: AuditOutcome<'a>,
    /// When it happened; the present time if there is no label.
    label: Option<TimeLabel>,
    fields: Map<String, Value>,
}

impl<'a> AuditRecord<'a> {
    pub(crate) fn new(act: &'a str, outcome: AuditOutcome<'a>) -> Self {
        Self { act, outcome, label: None, fields: Map::new() }
    }

    /// The label of the revision that did it. A record may be written long after the act.
    pub(super) fn at(self, label: Option<TimeLabel>) -> Self {
        Self { label, ..self }
    }

    /// The name that the caller gave, or the name of the member.
    pub(crate) fn who(self, name: &str) -> Self {
        self.with("who", name)
    }

    /// The authenticated caller.
    pub(crate) fn principal(self, name: Option<&str>) -> Self {
        self.with_some("principal", name)
    }

    /// The address that the call came from.
    pub(crate) fn from(self, address: Option<IpAddr>) -> Self {
        self.with_some("from", address.map(|it| it.to_string()))
    }

    /// What the act was about.
    pub(crate) fn target(self, name: &str) -> Self {
        self.with("target", name)
    }

    pub(crate) fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.fields.insert(name.to_owned(), value.into());
        self
    }

    /// A field that some records have.
    pub(crate) fn with_some(self, name: &str, value: Option<impl Into<Value>>) -> Self {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    pub(super) fn outcome(&self) -> AuditOutcome<'a> {
        self.outcome
    }

    /// The record as one line.
    pub(crate) fn line(&self) -> String {
        let mut line = Map::new();
        let time = self.label.map(|label| tenure_wire::wall::utc(label.wall.unix_ms));
        line.insert("time".to_owned(), time.unwrap_or_else(crate::log::wall_time).into());
        line.insert("act".to_owned(), self.act.into());
        line.extend(self.fields.clone());
        match self.outcome {
            AuditOutcome::Done => line.insert("outcome".to_owned(), "done".into()),
            AuditOutcome::Unknown => line.insert("outcome".to_owned(), "unknown".into()),
            AuditOutcome::Refused(reason) => {
                line.insert("reason".to_owned(), reason.into());
                line.insert("outcome".to_owned(), "refused".into())
            }
        };
        Value::Object(line).to_string() + "\n"
    }
}

/// The record of an event, if it belongs to an administrative act.
pub(super) fn of_recorded(
    revision: Revision,
    event: &Recorded<'_>,
) -> Option<AuditRecord<'static>> {
    is_candidate(event).then(|| of_event(revision, &event.to_event())).flatten()
}

/// Whether an event may belong to an administrative act: decides without a copy, for every event of the cluster.
fn is_candidate(event: &Recorded<'_>) -> bool {
    match event.cause() {
        // A cooling or a min hold that an operator has cut short; most of them end by themselves.
        Cause::Cooled | Cause::MinHoldOver => event.is_by_caller(),
        Cause::Forced
        | Cause::Revoked
        | Cause::LimitsSet
        | Cause::LevelRaised
        | Cause::HistoryCompacted
        | Cause::Drained
        | Cause::Undrained
        | Cause::Resized
        | Cause::AccessChanged => true,
        Cause::KeyPut | Cause::KeyDeleted => {
            event.name().is_some_and(|name| name.starts_with(OWN_KEYS))
        }
        _ => false,
    }
}

fn of_event(revision: Revision, event: &Event) -> Option<AuditRecord<'static>> {
    let is_operator = event.by.is_some() || event.reason.is_some() || event.principal.is_some();
    let name = match &event.subject {
        Subject::Lock(name) | Subject::Key(name) => Some(name.as_str().to_owned()),
        Subject::Lease(lease) => Some(lease.get().to_string()),
        // What the change of access was about, the prefix, or what was set.
        Subject::Settings => {
            event.value.as_deref().map(|value| String::from_utf8_lossy(value).into_owned())
        }
    };
    let is_key_of = |prefix| name.as_deref().is_some_and(|name| name.starts_with(prefix));
    let act = match (event.cause, &event.subject) {
        (Cause::Forced | Cause::Cooled | Cause::MinHoldOver, _) => "force",
        (Cause::Revoked, Subject::Lease(_)) if is_operator => "revoke",
        (Cause::LimitsSet, _) => "set_limits",
        (Cause::LevelRaised, _) => "raise_level",
        (Cause::HistoryCompacted, _) => "compact",
        (Cause::AccessChanged, _) => "set_access",
        (Cause::Drained, _) => "drain",
        (Cause::Undrained, _) => "undrain",
        (Cause::Resized, _) => "resize",
        (Cause::KeyPut, _) if is_key_of(MEMBERS) => "member_written",
        (Cause::KeyDeleted, _) if is_key_of(MEMBERS) => "member_removed",
        (Cause::KeyPut, _) if is_key_of(INVITATIONS) && event.previous.is_none() => {
            "member_invited"
        }
        (Cause::KeyPut, _) if is_key_of(INVITATIONS) => "invitation_used",
        (Cause::KeyDeleted, _) if is_key_of(INVITATIONS) => {
            // The members delete what has expired by themselves.
            let is_member = event.principal.as_ref().is_none_or(|by| by.as_str() == MEMBER);
            if is_member { "invitation_expired" } else { "invitation_cancelled" }
        }
        (Cause::KeyPut | Cause::KeyDeleted, _) if is_key_of(TICKET_KEYS) => "ticket_key",
        (Cause::KeyPut, _) => "own_key_written",
        (Cause::KeyDeleted, _) => "own_key_deleted",
        _ => return None,
    };
    // The event of a change of access has its principal as the name.
    let principal = match event.cause {
        Cause::AccessChanged => event.by.as_ref(),
        _ => event.principal.as_ref(),
    };
    let written = event.value.as_deref().or(event.previous.as_ref().map(|it| &*it.value));
    let key = name.as_deref().zip(written);
    let invitation = key.and_then(|(name, value)| invitation::view(name, value));
    let member = invitation.and_then(|it| it.used_by.or(it.member));
    let mut record = AuditRecord::new(act, AuditOutcome::Done)
        .with_some("target", name)
        .with("revision", revision.0)
        .with_some("who", event.by.as_ref().map(Name::as_str))
        .principal(principal.map(Name::as_str))
        .with_some("member", member.map(|id| id.get().to_string()))
        .with_some("why", event.reason.as_deref());
    if let (Some(lease), Cause::Forced) = (event.lease, event.cause) {
        record = record.with("lease", lease.get().to_string());
    }
    if let Some(token) = event.token {
        record = record.with("token", token.get());
    }
    Some(record)
}
