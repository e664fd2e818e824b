//! Defines the errors that are not refusals of the machine, and their reasons.

use tenure_types::{Quota, QuotaOrigin, QuotaSetter, QuotaSource, Refusal, Revision};

use crate::{convert, reason, v1};

/// An error other than a refusal. The reason's row in [`reason::TABLE`] says whether the request may have taken effect.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// This member does not lead and did not forward the request.
    #[error("this member does not lead")]
    NotLeader {
        /// The leader, if known. Never the member itself.
        leader: Option<v1::LeaderHint>,
    },
    /// The cluster has no leader at the moment.
    #[error("the cluster has no leader at the moment")]
    NoLeader,
    /// The leader gets answers from too few members to commit anything.
    #[error("too few members answer to agree on anything")]
    NoQuorum,
    /// The request was forwarded and no outcome arrived in time.
    #[error("no outcome within {waited_ms} ms; it may have happened, or may still")]
    UnknownOutcome {
        /// How long the member waited.
        waited_ms: u64,
    },
    /// The deadline passed before anything was done.
    #[error("the deadline passed before anything was done")]
    Deadline,
    /// The member has reached its limit of work in progress.
    #[error("the member has more to do than it can")]
    Overloaded {
        /// The time after which a retry makes sense.
        retry_after_ms: u64,
    },
    /// The principal exceeds one of its quotas.
    #[error("`{limit}` of this principal is limited to {bound}")]
    Quota {
        /// The name of the quota.
        limit: &'static str,
        /// The quota.
        bound: u64,
        /// When to retry; 0 if that depends on what the principal releases.
        retry_after_ms: u64,
    },
    /// The principal, or the address of a caller without one, exceeds a quota that the member counts for itself.
    #[error(
        "the quota `{}` of the {} is {bound}{}, asked for {asked}",
        quota.name(), counted_for.name(), QuotaOrigin(*set_by, setter.as_deref())
    )]
    MemberQuota {
        /// The quota.
        quota: Quota,
        /// What it is counted for.
        counted_for: CountedFor,
        /// Where its value was set.
        set_by: QuotaSource,
        /// Its value.
        bound: u64,
        /// The value that the request would have needed.
        asked: u64,
        /// Who set the value; `None` if the cluster did not record it.
        setter: Option<Box<QuotaSetter>>,
        /// When to retry; 0 if that depends on what the caller releases.
        retry_after_ms: u64,
    },
    /// The request cannot be decoded.
    #[error("the request cannot be read: {what}")]
    Malformed {
        /// The problem.
        what: String,
    },
    /// A field has an invalid value.
    #[error("`{field}` {problem}")]
    InvalidField {
        /// The field.
        field: &'static str,
        /// The problem.
        problem: String,
    },
    /// The wait would outlast its lease.
    #[error("the lease has {left_ms} ms left; a longer wait needs renewals")]
    WaitTooLong {
        /// The time left to the lease.
        left_ms: u64,
    },
    /// The message is longer than the API accepts.
    #[error("the message is longer than {bound} bytes")]
    TooLarge {
        /// The longest message that the API accepts.
        bound: u64,
    },
    /// The body has a type or encoding that the API does not accept.
    #[error("the body must be {expected}, not compressed")]
    UnsupportedMedia {
        /// The type that the API accepts.
        expected: &'static str,
    },
    /// The headers are longer than the API accepts.
    #[error("the headers are too long")]
    HeadersTooLarge,
    /// The request arrived too slowly.
    #[error("the request came too slowly")]
    TooSlow,
    /// There is no such call or path.
    #[error("there is no such call")]
    UnknownOperation,
    /// The path does not support this HTTP method.
    #[error("the path does not take {verb}")]
    UnknownVerb {
        /// The method.
        verb: String,
    },
    /// The `Host` or `Origin` of the request is not among the allowed ones.
    #[error("requests to this host name, or from this origin, are not taken")]
    HostNotAllowed,
    /// Credentials are missing or wrong.
    #[error("credentials are missing or wrong")]
    Unauthenticated,
    /// Credentials were presented and are not accepted, or no longer.
    #[error("{problem}")]
    CredentialsRejected {
        /// The problem.
        problem: &'static str,
    },
    /// The principal lacks the permission.
    #[error("not allowed: this needs the verb `{verb}`")]
    PermissionDenied {
        /// The permission that the call needs.
        verb: &'static str,
    },
    /// The principal may not use this priority.
    #[error("not allowed: {}", Refusal::PriorityForbidden { asked: *asked, most: *most })]
    PriorityDenied {
        /// The priority of the request.
        asked: u8,
        /// The greatest one that the principal may use for all locks of the request.
        most: u8,
    },
    /// The member's disk is full.
    #[error("the member's disk is full")]
    DiskFull,
    /// The member is shutting down.
    #[error("the member is about to stop")]
    ShuttingDown,
    /// The member found its state or disk damaged.
    #[error("the member found damage and serves nothing")]
    Corrupt,
    /// A bug in the program.
    #[error("the member made a mistake; its log says more")]
    Internal,
    /// The history does not reach back to the requested revision.
    #[error("the oldest retained revision is {floor}")]
    Compacted {
        /// The oldest revision that is kept.
        floor: Revision,
    },
    /// The client read a watch more slowly than events arrived.
    #[error("the watch was read too slowly; it goes on from revision {resume}")]
    SlowConsumer {
        /// The revision to resume from.
        resume: Revision,
    },
    /// The client knows another cluster than this one.
    #[error("this is cluster {cluster_id}, not the one the client knew")]
    OtherCluster {
        /// The id of this cluster.
        cluster_id: u64,
    },
    /// The cluster was restored from a backup since the client last connected.
    #[error("the cluster was restored from a backup; every lease of before is gone")]
    Restored,
    /// The key does not exist.
    #[error("key `{key}` does not exist")]
    KeyNotFound {
        /// The key.
        key: String,
    },
    /// The member does not exist.
    #[error("no member {member}")]
    MemberNotFound {
        /// The member.
        member: String,
    },
    /// A member with this id or name exists.
    #[error("member {member} exists")]
    MemberExists {
        /// The member.
        member: String,
    },
    /// The member is too far behind to become a voter.
    #[error("the member is {behind} entries behind")]
    NotCaughtUp {
        /// How many entries it is behind.
        behind: u64,
    },
    /// A member does not know the level that the cluster was to be raised to.
    #[error("feature level {level} is not known by all: member {member} is in the way")]
    LevelNotKnown {
        /// The level.
        level: u16,
        /// The first member that does not know the level.
        member: String,
    },
    /// The cluster is below the level that the call needs.
    #[error("this needs feature level {needed}, and the cluster is at {level}")]
    LevelTooLow {
        /// The level of the cluster.
        level: u16,
        /// The level that the call needs.
        needed: u16,
    },
    /// Identity cannot be enabled, because no administrator could log in afterwards.
    #[error(
        "no enabled principal that may `administer` the cluster has an API key, a certificate rule or an issuer"
    )]
    NoAdministrator,
    /// Another change of membership is not finished.
    #[error("another change of membership is not finished")]
    MembershipChanging,
    /// The remaining members could not form a quorum without this member.
    #[error("too few members would be left to agree on anything")]
    QuorumAtRisk,
    /// Members forwarded the request too often.
    #[error("the request was passed on {hops} times without finding the leader")]
    TooManyHops {
        /// How often it was forwarded.
        hops: u32,
    },
    /// The plain protocol cannot represent this token.
    #[error("the token is 2^53 or more and would be rounded")]
    TokenTooLarge,
}

/// What a quota is counted for at a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CountedFor {
    /// The principal of the caller.
    Principal,
    /// The address of a caller without one.
    Address,
}

impl CountedFor {
    fn name(self) -> &'static str {
        match self {
            Self::Principal => "principal",
            Self::Address => "address",
        }
    }
}

impl Failure {
    /// The stable word for programs, the same in every API.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NotLeader { .. } => "NOT_LEADER",
            Self::NoLeader => "NO_LEADER",
            Self::NoQuorum => "NO_QUORUM",
            Self::UnknownOutcome { .. } => "UNKNOWN_OUTCOME",
            Self::Deadline => "DEADLINE",
            Self::Overloaded { .. } => "OVERLOADED",
            Self::Quota { .. } | Self::MemberQuota { .. } => "QUOTA",
            Self::Malformed { .. } => "MALFORMED",
            Self::InvalidField { .. } => "INVALID_FIELD",
            Self::WaitTooLong { .. } => "WAIT_TOO_LONG",
            Self::TooLarge { .. } => "TOO_LARGE",
            Self::UnsupportedMedia { .. } => "UNSUPPORTED_MEDIA",
            Self::HeadersTooLarge => "HEADERS_TOO_LARGE",
            Self::TooSlow => "TOO_SLOW",
            Self::UnknownOperation => "UNKNOWN_OPERATION",
            Self::UnknownVerb { .. } => "UNKNOWN_VERB",
            Self::HostNotAllowed => "HOST_NOT_ALLOWED",
            Self::Unauthenticated | Self::CredentialsRejected { .. } => "UNAUTHENTICATED",
            Self::PermissionDenied { .. } | Self::PriorityDenied { .. } => "PERMISSION_DENIED",
            Self::DiskFull => "DISK_FULL",
            Self::ShuttingDown => "SHUTTING_DOWN",
            Self::Corrupt => "CORRUPT",
            Self::Internal => "INTERNAL",
            Self::Compacted { .. } => "COMPACTED",
            Self::SlowConsumer { .. } => "SLOW_CONSUMER",
            Self::OtherCluster { .. } => "OTHER_CLUSTER",
            Self::Restored => "RESTORED",
            Self::KeyNotFound { .. } => "KEY_NOT_FOUND",
            Self::MemberNotFound { .. } => "MEMBER_NOT_FOUND",
            Self::MemberExists { .. } => "MEMBER_EXISTS",
            Self::NotCaughtUp { .. } => "NOT_CAUGHT_UP",
            Self::LevelNotKnown { .. } => "LEVEL_NOT_KNOWN",
            Self::LevelTooLow { .. } => "LEVEL_TOO_LOW",
            Self::NoAdministrator => "NO_ADMINISTRATOR",
            Self::MembershipChanging => "MEMBERSHIP_CHANGING",
            Self::QuorumAtRisk => "QUORUM_AT_RISK",
            Self::TooManyHops { .. } => "TOO_MANY_HOPS",
            Self::TokenTooLarge => "TOKEN_TOO_LARGE",
        }
    }

    /// One failure of each kind, for tests and the reference.
    #[doc(hidden)]
    pub fn samples() -> Vec<Self> {
        let text = || "x".to_owned();
        vec![
            Self::NotLeader { leader: None },
            Self::NoLeader,
            Self::NoQuorum,
            Self::UnknownOutcome { waited_ms: 5_000 },
            Self::Deadline,
            Self::Overloaded { retry_after_ms: 50 },
            Self::Quota { limit: "watches", bound: 65_536, retry_after_ms: 0 },
            Self::MemberQuota {
                quota: Quota::RequestsPerSecond,
                counted_for: CountedFor::Principal,
                set_by: QuotaSource::Default,
                bound: 2_000,
                asked: 2_001,
                setter: None,
                retry_after_ms: 100,
            },
            Self::Malformed { what: text() },
            Self::InvalidField { field: "mode", problem: text() },
            Self::WaitTooLong { left_ms: 9_000 },
            Self::TooLarge { bound: 65_536 },
            Self::UnsupportedMedia { expected: "application/json" },
            Self::HeadersTooLarge,
            Self::TooSlow,
            Self::UnknownOperation,
            Self::UnknownVerb { verb: text() },
            Self::HostNotAllowed,
            Self::Unauthenticated,
            Self::CredentialsRejected { problem: "the API key has expired" },
            Self::PermissionDenied { verb: "acquire" },
            Self::PriorityDenied { asked: 7, most: 3 },
            Self::DiskFull,
            Self::ShuttingDown,
            Self::Corrupt,
            Self::Internal,
            Self::Compacted { floor: Revision(7) },
            Self::SlowConsumer { resume: Revision(8) },
            Self::OtherCluster { cluster_id: 1 },
            Self::Restored,
            Self::KeyNotFound { key: text() },
            Self::MemberNotFound { member: text() },
            Self::MemberExists { member: text() },
            Self::NotCaughtUp { behind: 9 },
            Self::LevelNotKnown { level: 2, member: text() },
            Self::LevelTooLow { level: 2, needed: 3 },
            Self::NoAdministrator,
            Self::MembershipChanging,
            Self::QuorumAtRisk,
            Self::TooManyHops { hops: 5 },
            Self::TokenTooLarge,
        ]
    }
}

impl From<Failure> for v1::Error {
    fn from(failure: Failure) -> Self {
        (&failure).into()
    }
}

impl From<&Failure> for v1::Error {
    fn from(failure: &Failure) -> Self {
        let row = reason::row(failure.reason()).expect("every failure's reason has a row");
        let mut error = v1::Error {
            reason: row.reason.to_owned(),
            message: failure.to_string(),
            effect: row.effect.into(),
            next: row.advice.to_owned(),
            ..v1::Error::default()
        };
        match failure {
            Failure::NotLeader { leader } => error.leader = leader.clone().map(Box::new),
            Failure::Overloaded { retry_after_ms } => error.retry_after_ms = *retry_after_ms,
            Failure::Quota { limit, bound, retry_after_ms } => {
                (*limit).clone_into(&mut error.limit);
                error.bound = *bound;
                error.retry_after_ms = *retry_after_ms;
            }
            Failure::MemberQuota {
                quota, set_by, bound, asked, setter, retry_after_ms, ..
            } => {
                quota.name().clone_into(&mut error.limit);
                error.bound = *bound;
                error.asked = *asked;
                error.least = u64::from(*set_by == QuotaSource::Principal);
                crate::refusal::put_setter(&mut error, setter.as_deref());
                error.retry_after_ms = *retry_after_ms;
            }
            Failure::PriorityDenied { asked, most } => {
                crate::refusal::forbid_priority(&mut error, *asked, *most);
                let refusal = Refusal::PriorityForbidden { asked: *asked, most: *most };
                refusal.advice().clone_into(&mut error.next);
            }
            Failure::InvalidField { field, .. } => (*field).clone_into(&mut error.limit),
            Failure::WaitTooLong { left_ms } => {
                "wait_ms".clone_into(&mut error.limit);
                error.bound = *left_ms;
            }
            Failure::LevelNotKnown { level, .. } => error.asked = u64::from(*level),
            Failure::LevelTooLow { level, needed } => {
                error.bound = u64::from(*level);
                error.asked = u64::from(*needed);
            }
            Failure::TooLarge { bound } => error.bound = *bound,
            Failure::Compacted { floor } => error.revision = Some(convert::revision(*floor)),
            Failure::SlowConsumer { resume } => error.revision = Some(convert::revision(*resume)),
            _ => {}
        }
        error
    }
}
