//! Formats one record of the audit log.

use std::net::IpAddr;

use serde_json::{Map, Value};
use tenure_core::Recorded;
use tenure_core::access::MEMBER;
use tenure_core::event::{Cause, Event, Subject, TimeLabel};
use tenure_core::request::OWN_KEYS;
use tenure_node::invitation;
use tenure_types::Revision;

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
    pub(crate) fn principal(self, name: &str) -> Self {
        self.with("principal", name)
    }

    /// The address that the call came from.
    pub(crate) fn from(self, address: Option<IpAddr>) -> Self {
        match address {
            Some(address) => self.with("from", address.to_string()),
            None => self,
        }
    }

    /// What the act was about.
    pub(crate) fn target(self, name: &str) -> Self {
        self.with("target", name)
    }

    pub(crate) fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        let value = value.into();
        if value.as_str() != Some("") {
            self.fields.insert(name.to_owned(), value);
        }
        self
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
        Subject::Lock(name) | Subject::Key(name) => name.as_str().to_owned(),
        Subject::Lease(lease) => lease.get().to_string(),
        // What the change of access was about, or the prefix.
        Subject::Settings => {
            String::from_utf8_lossy(event.value.as_deref().unwrap_or_default()).into_owned()
        }
    };
    let act = match (event.cause, &event.subject) {
        (Cause::Forced | Cause::Cooled | Cause::MinHoldOver, _) => "force",
        (Cause::Revoked, Subject::Lease(_)) if is_operator => "revoke",
        (Cause::LimitsSet, _) => "set_limits",
        (Cause::LevelRaised, _) => "raise_level",
        (Cause::AccessChanged, _) => "set_access",
        (Cause::Drained, _) => "drain",
        (Cause::Undrained, _) => "undrain",
        (Cause::Resized, _) => "resize",
        (Cause::KeyPut, _) if name.starts_with(MEMBERS) => "member_written",
        (Cause::KeyDeleted, _) if name.starts_with(MEMBERS) => "member_removed",
        (Cause::KeyPut, _) if name.starts_with(INVITATIONS) && event.previous.is_none() => {
            "member_invited"
        }
        (Cause::KeyPut, _) if name.starts_with(INVITATIONS) => "invitation_used",
        (Cause::KeyDeleted, _) if name.starts_with(INVITATIONS) => {
            // The members delete what has expired by themselves.
            let is_member = event.principal.as_ref().is_none_or(|by| by.as_str() == MEMBER);
            if is_member { "invitation_expired" } else { "invitation_cancelled" }
        }
        (Cause::KeyPut | Cause::KeyDeleted, _) if name.starts_with(TICKET_KEYS) => "ticket_key",
        (Cause::KeyPut, _) => "own_key_written",
        (Cause::KeyDeleted, _) => "own_key_deleted",
        _ => return None,
    };
    let mut record =
        AuditRecord::new(act, AuditOutcome::Done).target(&name).with("revision", revision.0);
    if let Some(by) = &event.by {
        record = record.who(by.as_str());
    }
    // The event of a change of access has its principal as the name.
    let principal = match event.cause {
        Cause::AccessChanged => event.by.as_ref(),
        _ => event.principal.as_ref(),
    };
    if let Some(principal) = principal {
        record = record.principal(principal.as_str());
    }
    let written = event.value.as_deref().or(event.previous.as_ref().map(|it| &*it.value));
    if let Some(invitation) = written.and_then(|value| invitation::view(&name, value)) {
        let member = invitation.used_by.or(invitation.member);
        record = record.with("member", member.map_or(String::new(), |id| id.get().to_string()));
    }
    if let Some(reason) = &event.reason {
        record = record.with("why", &**reason);
    }
    if let (Some(lease), Cause::Forced) = (event.lease, event.cause) {
        record = record.with("lease", lease.get().to_string());
    }
    if let Some(token) = event.token {
        record = record.with("token", token.get());
    }
    Some(record)
}
