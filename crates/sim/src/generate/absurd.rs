//! Generates requests that no well-meaning client would send.

use tenure_core::request::{AskWait, LeaseRef, Purpose, Urgency};
use tenure_types::{Handle, LeaseId, Limit, Mode, Revision, Token};

use super::step::{
    OwnedAcquire, OwnedAskLease, OwnedCommand, OwnedExpect, OwnedId, OwnedRequest, StepCommand,
};
use super::{CommandKind, Generator, command};
use crate::observe::ObservedState;

/// Random bytes, or the bytes of a request with something broken.
pub(super) fn raw(made: &mut Generator, view: &ObservedState) -> StepCommand {
    if made.rng.bool() {
        let len = made.rng.usize(..24);
        return StepCommand::Raw((0..len).map(|_| made.rng.u8(..)).collect());
    }
    let kind = if made.rng.bool() { CommandKind::Acquire } else { CommandKind::Put };
    let mut bytes = StepCommand::Request(Box::new(command::request(made, view, kind))).bytes();
    if bytes.is_empty() {
        return StepCommand::Raw(bytes);
    }
    let at = made.rng.usize(..bytes.len());
    match made.rng.u32(..3) {
        0 => bytes.truncate(at),
        1 => bytes.push(made.rng.u8(..)),
        _ => bytes[at] ^= 1 << made.rng.u32(..8),
    }
    StepCommand::Raw(bytes)
}

/// A command with a value outside every valid range.
pub(super) fn request(made: &mut Generator, view: &ObservedState) -> OwnedRequest {
    let lease = command::lease_ref(made, view);
    let name = bad_name(made);
    let token = Token::from_u64(u64::MAX).expect("not zero");
    let command = match made.rng.u32(..18) {
        0 => {
            let ttl_ms = *[0, 1, 999, 3_600_001, u64::MAX].get(made.rng.usize(..5)).unwrap_or(&0);
            let mut new = command::new_lease(made);
            new.ttl_ms = ttl_ms;
            OwnedCommand::GrantLease(new)
        }
        1 => {
            let mut new = command::new_lease(made);
            new.client = name;
            OwnedCommand::GrantLease(new)
        }
        2 => {
            let mut new = command::new_lease(made);
            new.metadata = vec![7; 4_097];
            OwnedCommand::GrantLease(new)
        }
        3 => OwnedCommand::Acquire(ask(lease, vec![(name, Mode::Exclusive)], AskWait::No)),
        4 => {
            let many = if made.rng.bool() { 65 } else { 0 };
            let locks = (0..many).map(|n| (format!("many/{n}"), Mode::Shared)).collect();
            OwnedCommand::Acquire(ask(lease, locks, AskWait::Unlimited))
        }
        5 => {
            let of = if made.rng.bool() { 0 } else { 1_025 };
            OwnedCommand::Acquire(ask(lease, vec![("a".into(), Mode::slot(of))], AskWait::No))
        }
        6 => {
            let locks = ["b", "a", "b", "a"].map(|lock| (lock.to_owned(), Mode::Exclusive));
            OwnedCommand::Acquire(ask(lease, locks.to_vec(), AskWait::No))
        }
        7 => {
            let mut ask = ask(lease, vec![("a".into(), Mode::Exclusive)], AskWait::No);
            match made.rng.u32(..7) {
                0 => ask.wait = AskWait::Limit { ms: u64::MAX },
                1 => ask.lock_delay_ms = u64::MAX,
                2 => ask.max_hold_ms = Some(u64::MAX),
                3 => ask.max_hold_ms = Some(0),
                4 if made.swarm.progress > 0 => ask.progress_within_ms = u64::MAX,
                4 => ask.min_hold_ms = u64::MAX,
                5 => ask.supersede = Some(bad_name(made)),
                _ => ask.metadata = vec![1; 5_000],
            }
            OwnedCommand::Acquire(ask)
        }
        8 => OwnedCommand::Renew(vec![lease; if made.rng.u32(..40) == 0 { 4_097 } else { 0 }]),
        9 => OwnedCommand::Leave { lease, lock: name },
        10 => {
            // Either the name of the lock is invalid, or the name of the caller that takes it away.
            let (lock, by) = match made.rng.bool() {
                true => (name, String::new()),
                false => ("a".to_owned(), name),
            };
            let reason = "r".repeat(if made.rng.bool() { 0 } else { 4_097 });
            match made.rng.u32(..3) {
                0 => OwnedCommand::Drain { prefix: lock, by, reason },
                1 => OwnedCommand::Undrain { prefix: lock, by },
                _ => OwnedCommand::Force { lock, token, by, reason, urgency: Urgency::Now },
            }
        }
        11 => OwnedCommand::Stopped {
            lease: LeaseId::new(i64::MAX as u64).expect("within 63 bits"),
            created: Revision(u64::MAX),
            lock: if made.rng.bool() { name } else { "a".into() },
            token,
        },
        12 => OwnedCommand::Put {
            key: if made.rng.bool() { name } else { "k".into() },
            value: vec![0; if made.rng.bool() { 3 } else { 32_769 }],
            lease: Some(LeaseRef::Handle(Handle { slot: u32::MAX, generation: u64::MAX })),
            expect: OwnedExpect::Modified(Revision(u64::MAX)),
            guard: made.rng.bool().then(|| (bad_name(made), token)),
        },
        13 => OwnedCommand::Delete { key: name, expect: OwnedExpect::Absent, guard: None },
        14 => {
            let many = if made.rng.bool() { 33 } else { 1 };
            OwnedCommand::SetLimits(vec![
                (Limit::TtlMaxMs, if many == 1 { 0 } else { 5_000 });
                many
            ])
        }
        15 => OwnedCommand::Compact { keep: Revision(u64::MAX - made.rng.u64(..2)) },
        16 => OwnedCommand::RaiseLevel {
            level: *[0, tenure_core::LEVEL_MAX + 1, u16::MAX]
                .get(made.rng.usize(..3))
                .unwrap_or(&0),
        },
        _ => {
            // The reason is too long, or the name of the caller is invalid.
            let reason = "r".repeat(if name.is_empty() { 4_097 } else { 4 });
            OwnedCommand::Revoke { lease, other: Some((name, reason, Urgency::Cooling)) }
        }
    };
    let mut request = OwnedRequest::plain(command);
    match made.rng.u32(..12) {
        0 => request.id = OwnedId::Key(bad_name(made)),
        1 => {
            request.id = OwnedId::Key("x".into());
            request.principal = "p".repeat(513);
        }
        2 => request.id = OwnedId::Seq { lease, seq: u64::MAX, done: 0 },
        3 => request.id = OwnedId::Seq { lease, seq: 300, done: 0 },
        4 => request.id = OwnedId::Seq { lease, seq: 0, done: 0 },
        _ => {}
    }
    request
}

fn ask(lease: LeaseRef, locks: Vec<(String, Mode)>, wait: AskWait) -> OwnedAcquire {
    OwnedAcquire {
        lease: OwnedAskLease::Existing(lease),
        locks,
        any: false,
        pool: false,
        wait,
        metadata: Vec::new(),
        lock_delay_ms: 0,
        max_hold_ms: None,
        min_hold_ms: 0,
        progress_within_ms: 0,
        supersede: None,
        resume: false,
        priority: 0,
        purpose: Purpose::Lock,
        independent: false,
    }
}

fn bad_name(made: &mut Generator) -> String {
    match made.rng.u32(..4) {
        0 => String::new(),
        1 => "a\nb".into(),
        2 => "x".repeat(513),
        _ => "\u{85}".into(),
    }
}
