//! Encodes refusals of the machine as errors and decodes them without loss.

use tenure_types::{
    Draining, Held, Limit, Name, Quota, QuotaSetter, QuotaSource, Refusal, Revision, SupersededBy,
    Verb,
};

use crate::{convert, reason, v1};

impl From<&Refusal> for v1::Error {
    fn from(refusal: &Refusal) -> Self {
        let row = reason::row(refusal.reason()).expect("every refusal's reason has a row");
        let mut error = v1::Error {
            reason: row.reason.to_owned(),
            message: refusal.to_string(),
            effect: v1::Effect::None.into(),
            next: refusal.advice().to_owned(),
            ..v1::Error::default()
        };
        details(refusal, &mut error);
        error
    }
}

fn details(refusal: &Refusal, error: &mut v1::Error) {
    match refusal {
        Refusal::InvalidLevel { from, to } => {
            error.least = u64::from(*from);
            error.bound = u64::from(*to);
        }
        Refusal::Limit { limit, bound, asked } => {
            limit.name().clone_into(&mut error.limit);
            error.bound = *bound;
            error.asked = *asked;
        }
        Refusal::InvalidLimit { limit, asked } => {
            limit.name().clone_into(&mut error.limit);
            error.least = *limit.range().start();
            error.bound = *limit.range().end();
            error.asked = *asked;
        }
        Refusal::TooManyInCommand { max } => error.bound = *max,
        Refusal::LeaseExists { lease } => error.lease = convert::lease(*lease),
        Refusal::Held(held) => {
            error.lock = held.lock.to_string();
            error.holder = held.holder.as_ref().map(|holder| Box::new(holder.into()));
            error.ahead = held.ahead;
        }
        Refusal::PoolEmpty { pool } => error.lock = pool.to_string(),
        Refusal::OtherKind { lock, slots } => {
            error.lock = lock.to_string();
            error.slots = *slots;
        }
        Refusal::Deadlock { ring } => error.ring = ring.iter().map(Into::into).collect(),
        Refusal::TokenOutdated { lock, holder } => {
            error.lock = lock.to_string();
            error.holder = holder.as_deref().map(|holder| Box::new(holder.into()));
        }
        Refusal::MaxHoldTooShort { ttl_ms } => error.least = *ttl_ms,
        Refusal::CompareFailed { modified } => error.revision = modified.map(convert::revision),
        Refusal::RequestWindow { window } => error.bound = *window,
        Refusal::Quiet { left_ms } => error.retry_after_ms = *left_ms,
        Refusal::FutureRevision { asked, newest } => {
            error.asked = asked.0;
            error.bound = newest.0;
            error.revision = Some(convert::revision(*newest));
        }
        // The verb and the quota are in fields that errors of the APIs use for the same.
        Refusal::Forbidden { verb } => verb.name().clone_into(&mut error.limit),
        Refusal::PriorityForbidden { asked, most } => forbid_priority(error, *asked, *most),
        Refusal::Quota { quota, set_by, bound, asked, setter } => {
            quota.name().clone_into(&mut error.limit);
            error.bound = *bound;
            error.asked = *asked;
            error.least = u64::from(*set_by == QuotaSource::Principal);
            put_setter(error, setter.as_deref());
        }
        Refusal::AccessFull { max } | Refusal::DrainsFull { max } => error.bound = *max,
        Refusal::Superseded(by) => {
            error.set_by = by.client.to_string();
            error.lease = convert::lease(by.lease);
        }
        Refusal::Draining(draining) => {
            error.lock = draining.lock.to_string();
            error.drained_prefix = draining.prefix.to_string();
            error.set_by = draining.by.as_ref().map(ToString::to_string).unwrap_or_default();
            error.drain_reason = draining.reason.to_string();
        }
        Refusal::Overlap { lock }
        | Refusal::Duplicate { lock }
        | Refusal::NotHolder { lock }
        | Refusal::NotWaiting { lock }
        | Refusal::NotExclusive { lock }
        | Refusal::NotCooling { lock }
        | Refusal::GuardFailed { lock } => error.lock = lock.to_string(),
        Refusal::NotLeader
        | Refusal::Malformed
        | Refusal::InvalidName
        | Refusal::LeaseNotFound
        | Refusal::WaitTimeout
        | Refusal::RequestStale
        | Refusal::RequestConflict
        | Refusal::TokensExhausted
        | Refusal::PrincipalNotFound
        | Refusal::AccessChanged => {}
    }
}

/// Decodes the refusal in an error; `None` if the error is not a refusal, or its details do not match its reason.
pub fn refusal_from(error: &v1::Error) -> Option<Refusal> {
    let lock = || Name::new(&error.lock).ok();
    let small = |number: u64| u16::try_from(number).ok();
    let holder = || error.holder.as_deref().map(convert::holder_from);
    // Some quotas have the name of a limit.
    let limit = Limit::from_name(&error.limit).filter(|_| error.reason != "QUOTA_EXCEEDED");
    if let Some(limit) = limit {
        if error.reason == "INVALID_LIMIT" {
            return Some(Refusal::InvalidLimit { limit, asked: error.asked });
        }
        let (bound, asked) = (error.bound, error.asked);
        return (error.reason == limit.reason()).then_some(Refusal::Limit { limit, bound, asked });
    }
    Some(match error.reason.as_str() {
        "NOT_LEADER" => Refusal::NotLeader,
        "MALFORMED" => Refusal::Malformed,
        "INVALID_LEVEL" => {
            Refusal::InvalidLevel { from: small(error.least)?, to: small(error.bound)? }
        }
        "INVALID_NAME" => Refusal::InvalidName,
        "TOO_MANY_IN_COMMAND" => Refusal::TooManyInCommand { max: error.bound },
        "LEASE_NOT_FOUND" => Refusal::LeaseNotFound,
        "LEASE_EXISTS" => Refusal::LeaseExists { lease: convert::lease_from(error.lease)? },
        "HELD" => {
            let holder = match holder() {
                None => None,
                Some(holder) => Some(holder?),
            };
            Refusal::Held(Box::new(Held { lock: lock()?, holder, ahead: error.ahead }))
        }
        "WAIT_TIMEOUT" => Refusal::WaitTimeout,
        "OVERLAP" => Refusal::Overlap { lock: lock()? },
        "DUPLICATE_LOCK" => Refusal::Duplicate { lock: lock()? },
        "POOL_EMPTY" => Refusal::PoolEmpty { pool: lock()? },
        "OTHER_KIND" => Refusal::OtherKind { lock: lock()?, slots: error.slots },
        "DEADLOCK" => {
            let ring = error.ring.iter().map(convert::ring_link_from).collect::<Option<_>>()?;
            Refusal::Deadlock { ring }
        }
        "NOT_HOLDER" => Refusal::NotHolder { lock: lock()? },
        "NOT_WAITING" => Refusal::NotWaiting { lock: lock()? },
        "NOT_EXCLUSIVE" => Refusal::NotExclusive { lock: lock()? },
        "TOKEN_OUTDATED" => {
            let holder = match holder() {
                None => None,
                Some(holder) => Some(Box::new(holder?)),
            };
            Refusal::TokenOutdated { lock: lock()?, holder }
        }
        "NOT_COOLING" => Refusal::NotCooling { lock: lock()? },
        "MAX_HOLD_TOO_SHORT" => Refusal::MaxHoldTooShort { ttl_ms: error.least },
        "COMPARE_FAILED" => {
            let modified = match error.revision {
                None => None,
                Some(revision) => Some(convert::revision_from(revision)?),
            };
            Refusal::CompareFailed { modified }
        }
        "GUARD_FAILED" => Refusal::GuardFailed { lock: lock()? },
        "REQUEST_STALE" => Refusal::RequestStale,
        "REQUEST_ID_CONFLICT" => Refusal::RequestConflict,
        "REQUEST_WINDOW" => Refusal::RequestWindow { window: error.bound },
        "TOKENS_EXHAUSTED" => Refusal::TokensExhausted,
        "QUIET" => Refusal::Quiet { left_ms: error.retry_after_ms },
        "FUTURE_REVISION" => Refusal::FutureRevision {
            asked: Revision(error.asked),
            newest: convert::revision_from(error.revision?)?,
        },
        // Only a refusal of a priority has a value that was asked for.
        "FORBIDDEN" if error.asked > 0 => Refusal::PriorityForbidden {
            asked: u8::try_from(error.asked).ok()?,
            most: u8::try_from(error.bound).ok()?,
        },
        "FORBIDDEN" => Refusal::Forbidden { verb: Verb::from_name(&error.limit)? },
        "QUOTA_EXCEEDED" => Refusal::Quota {
            quota: Quota::from_name(&error.limit)?,
            set_by: match error.least {
                0 => QuotaSource::Default,
                _ => QuotaSource::Principal,
            },
            bound: error.bound,
            asked: error.asked,
            setter: setter_from(error).map(Box::new),
        },
        "ACCESS_FULL" => Refusal::AccessFull { max: error.bound },
        "PRINCIPAL_NOT_FOUND" => Refusal::PrincipalNotFound,
        "ACCESS_CHANGED" => Refusal::AccessChanged,
        "DRAINING" => Refusal::Draining(Box::new(Draining {
            lock: lock()?,
            prefix: error.drained_prefix.as_str().into(),
            by: Name::new(&error.set_by).ok(),
            reason: error.drain_reason.as_str().into(),
        })),
        "DRAINS_FULL" => Refusal::DrainsFull { max: error.bound },
        "SUPERSEDED" => Refusal::Superseded(Box::new(SupersededBy {
            client: Name::new(&error.set_by).ok()?,
            lease: convert::lease_from(error.lease)?,
        })),
        _ => return None,
    })
}

/// Writes which priority is not permitted. The verb is the one with which every priority is: a client that does not
/// know the other fields shows it.
pub(crate) fn forbid_priority(error: &mut v1::Error, asked: u8, most: u8) {
    Verb::Force.name().clone_into(&mut error.limit);
    (error.asked, error.bound) = (asked.into(), most.into());
}

/// Writes who set a quota into the details of an error.
pub(crate) fn put_setter(error: &mut v1::Error, setter: Option<&QuotaSetter>) {
    let Some(setter) = setter else { return };
    if let Some(principal) = &setter.principal {
        error.set_by = principal.to_string();
    }
    error.set_at_ms = setter.unix_ms.unwrap_or(0);
}

fn setter_from(error: &v1::Error) -> Option<QuotaSetter> {
    let principal = Name::new(&error.set_by).ok();
    let unix_ms = (error.set_at_ms > 0).then_some(error.set_at_ms);
    let is_known = principal.is_some() || unix_ms.is_some();
    is_known.then_some(QuotaSetter { principal, unix_ms })
}

#[cfg(test)]
pub(crate) mod tests {
    use tenure_types::{Holder, HolderState, LeaseId, RingLink, Token};

    use super::*;

    /// One of every refusal. A new one stops `details` from compiling; add it here too.
    pub(crate) fn samples() -> Vec<Refusal> {
        let lock = || Name::new("deploy").unwrap();
        let lease = LeaseId::new(6_862_914_507_731_255_300).unwrap();
        let holder = |state| Holder {
            lease,
            client: Name::new("ci-7/4121").unwrap(),
            token: Token::from_u64(1042).unwrap(),
            held_ms: 252_000,
            state,
        };
        let held = holder(HolderState::Held);
        let cooling = holder(HolderState::Cooling { left_ms: 900 });
        let link = RingLink { lease, client: Name::new("a").unwrap(), lock: lock() };
        let mut all = vec![
            Refusal::NotLeader,
            Refusal::Malformed,
            Refusal::InvalidLevel { from: 1, to: 2 },
            Refusal::InvalidName,
            Refusal::InvalidLimit { limit: Limit::Slots, asked: 0 },
            Refusal::TooManyInCommand { max: 4_096 },
            Refusal::LeaseNotFound,
            Refusal::LeaseExists { lease },
            Refusal::Held(Box::new(Held { lock: lock(), holder: Some(held), ahead: 2 })),
            Refusal::Held(Box::new(Held { lock: lock(), holder: None, ahead: 1 })),
            Refusal::WaitTimeout,
            Refusal::Overlap { lock: lock() },
            Refusal::Duplicate { lock: lock() },
            Refusal::OtherKind { lock: lock(), slots: Some(8) },
            Refusal::OtherKind { lock: lock(), slots: None },
            Refusal::PoolEmpty { pool: lock() },
            Refusal::Deadlock { ring: vec![link.clone(), link] },
            Refusal::NotHolder { lock: lock() },
            Refusal::NotWaiting { lock: lock() },
            Refusal::NotExclusive { lock: lock() },
            Refusal::TokenOutdated { lock: lock(), holder: Some(Box::new(cooling)) },
            Refusal::TokenOutdated { lock: lock(), holder: None },
            Refusal::NotCooling { lock: lock() },
            Refusal::MaxHoldTooShort { ttl_ms: 15_000 },
            Refusal::CompareFailed { modified: Some(Revision(12)) },
            Refusal::CompareFailed { modified: None },
            Refusal::GuardFailed { lock: lock() },
            Refusal::RequestStale,
            Refusal::RequestConflict,
            Refusal::RequestWindow { window: 256 },
            Refusal::TokensExhausted,
            Refusal::Quiet { left_ms: 15_000 },
            Refusal::FutureRevision { asked: Revision(9), newest: Revision(8) },
            Refusal::AccessFull { max: 1_024 },
            Refusal::PrincipalNotFound,
            Refusal::AccessChanged,
            Refusal::DrainsFull { max: 1_000 },
            Refusal::Superseded(Box::new(SupersededBy {
                client: Name::new("ci-8/17").unwrap(),
                lease,
            })),
        ];
        let draining = |prefix: &str, by: Option<&str>, reason: &str| {
            let by = by.map(|by| Name::new(by).unwrap());
            let (prefix, reason) = (prefix.into(), reason.into());
            Refusal::Draining(Box::new(Draining { lock: lock(), prefix, by, reason }))
        };
        all.push(draining("dep", Some("ops@host"), "new disks"));
        all.push(draining("", None, ""));
        all.extend(Verb::ALL.into_iter().map(|verb| Refusal::Forbidden { verb }));
        all.extend([0, 3].map(|most| Refusal::PriorityForbidden { asked: 7, most }));
        let setter = |principal: Option<&str>, unix_ms| {
            let principal = principal.map(|name| Name::new(name).unwrap());
            Some(Box::new(QuotaSetter { principal, unix_ms }))
        };
        let setters =
            [None, setter(Some("admin"), Some(1_772_421_247_112)), setter(Some("admin"), None)];
        for (set_by, setter) in [QuotaSource::Default, QuotaSource::Principal]
            .into_iter()
            .flat_map(|set_by| setters.iter().map(move |setter| (set_by, setter)))
        {
            let quota = |quota| {
                let setter = setter.clone();
                Refusal::Quota { quota, set_by, bound: 1, asked: 2, setter }
            };
            all.extend(Quota::ALL.into_iter().map(quota));
        }
        all.extend(Limit::all().map(|limit| Refusal::Limit { limit, bound: 1, asked: 2 }));
        all
    }

    #[test]
    fn every_refusal_comes_back_whole() {
        for refusal in samples() {
            let error = v1::Error::from(&refusal);
            assert_eq!(refusal_from(&error), Some(refusal), "{error:?}");
        }
    }

    #[test]
    fn details_that_are_none_give_no_refusal() {
        let held = v1::Error { reason: "HELD".into(), ..v1::Error::default() };
        assert_eq!(refusal_from(&held), None, "a lock without a name");
        let other = v1::Error { reason: "FROM_THE_FUTURE".into(), ..v1::Error::default() };
        assert_eq!(refusal_from(&other), None);
    }
}
