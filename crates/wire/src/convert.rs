//! Converts the domain's types to their wire forms and back.

use tenure_types::{Handle, Holder, HolderState, LeaseId, Mode, Name, Revision, RingLink, Token};

use crate::v1;

/// Encodes a revision. Epochs have 15 bits, so every revision fits into an `i64` and none is clamped.
pub fn revision(revision: Revision) -> i64 {
    i64::try_from(revision.0).unwrap_or(i64::MAX)
}

/// Decodes a revision; `None` for a negative number.
pub fn revision_from(number: i64) -> Option<Revision> {
    u64::try_from(number).ok().map(Revision)
}

/// Encodes a lease id.
pub fn lease(lease: LeaseId) -> i64 {
    i64::try_from(lease.get()).unwrap_or(i64::MAX)
}

/// Decodes a lease id; `None` for 0 and negative numbers.
pub fn lease_from(number: i64) -> Option<LeaseId> {
    u64::try_from(number).ok().and_then(LeaseId::new)
}

/// Decodes a handle; a generation of 0 means that there is none.
pub fn handle_from(slot: u32, generation: u64) -> Option<Handle> {
    (generation != 0).then_some(Handle { slot, generation })
}

/// Encodes a mode as the enum value and the number of slots.
pub fn mode(mode: Mode) -> (v1::Mode, u32) {
    match mode {
        Mode::Exclusive => (v1::Mode::Exclusive, 0),
        Mode::Shared => (v1::Mode::Shared, 0),
        Mode::Slot { of, .. } => (v1::Mode::Slot, of),
    }
}

/// Encodes how many slots are requested: 0 for one.
pub fn take(mode: Mode) -> u32 {
    match mode {
        Mode::Slot { take, .. } if take != 1 => take,
        _ => 0,
    }
}

/// Decodes a mode. Slots with a mode other than `MODE_SLOT` are an error, not ignored.
pub fn mode_from(mode: i32, slots: u32, take: u32) -> Option<Mode> {
    match (v1::Mode::try_from(mode).ok()?, slots, take) {
        (v1::Mode::Exclusive, 0, 0) => Some(Mode::Exclusive),
        (v1::Mode::Shared, 0, 0) => Some(Mode::Shared),
        (v1::Mode::Slot, of @ 1.., take) => Some(Mode::Slot { of, take: take.max(1) }),
        _ => None,
    }
}

/// Encodes a holder's state as the enum value and the remaining time.
pub fn holder_state(state: HolderState) -> (v1::HolderState, u64) {
    match state {
        HolderState::Held => (v1::HolderState::Held, 0),
        HolderState::Cooling { left_ms } => (v1::HolderState::Cooling, left_ms),
        HolderState::Delayed { left_ms } => (v1::HolderState::Delayed, left_ms),
        HolderState::Resting { left_ms } => (v1::HolderState::Resting, left_ms),
    }
}

/// Decodes a holder's state.
pub fn holder_state_from(state: i32, left_ms: u64) -> Option<HolderState> {
    Some(match v1::HolderState::try_from(state).ok()? {
        v1::HolderState::Held => HolderState::Held,
        v1::HolderState::Cooling => HolderState::Cooling { left_ms },
        v1::HolderState::Delayed => HolderState::Delayed { left_ms },
        v1::HolderState::Resting => HolderState::Resting { left_ms },
    })
}

impl From<&Holder> for v1::Holder {
    fn from(holder: &Holder) -> Self {
        let (state, left_ms) = holder_state(holder.state);
        Self {
            client: holder.client.to_string(),
            token: holder.token.get(),
            held_ms: holder.held_ms,
            lease: lease(holder.lease),
            state: state.into(),
            left_ms,
        }
    }
}

/// Decodes a holder; `None` if it is invalid.
pub fn holder_from(holder: &v1::Holder) -> Option<Holder> {
    Some(Holder {
        lease: lease_from(holder.lease)?,
        client: Name::new(&holder.client).ok()?,
        token: Token::from_u64(holder.token)?,
        held_ms: holder.held_ms,
        state: holder_state_from(holder.state, holder.left_ms)?,
    })
}

impl From<&RingLink> for v1::RingLink {
    fn from(link: &RingLink) -> Self {
        Self {
            lease: lease(link.lease),
            client: link.client.to_string(),
            lock: link.lock.to_string(),
        }
    }
}

/// Decodes one link of a deadlock cycle; `None` if it is invalid.
pub fn ring_link_from(link: &v1::RingLink) -> Option<RingLink> {
    Some(RingLink {
        lease: lease_from(link.lease)?,
        client: Name::new(&link.client).ok()?,
        lock: Name::new(&link.lock).ok()?,
    })
}

/// The name of a cause in events, notices, logs and metrics.
pub fn cause_word(cause: v1::Cause) -> &'static str {
    match cause {
        v1::Cause::Unspecified => "unspecified",
        v1::Cause::Granted => "granted",
        v1::Cause::Released => "released",
        v1::Cause::Expired => "expired",
        v1::Cause::Revoked => "revoked",
        v1::Cause::Forced => "forced",
        v1::Cause::MaxHold => "max_hold",
        v1::Cause::Cooled => "cooled",
        v1::Cause::DelayOver => "delay_over",
        v1::Cause::MinHoldOver => "min_hold_over",
        v1::Cause::Drained => "drained",
        v1::Cause::Undrained => "undrained",
        v1::Cause::Superseded => "superseded",
        v1::Cause::NoProgress => "no_progress",
        v1::Cause::Upgraded => "upgraded",
        v1::Cause::HandedOn => "handed_on",
        v1::Cause::Resized => "resized",
        v1::Cause::TooManySlots => "too_many_slots",
        v1::Cause::GrantedElsewhere => "granted_elsewhere",
        v1::Cause::Downgraded => "downgraded",
        v1::Cause::Updated => "updated",
        v1::Cause::Queued => "queued",
        v1::Cause::Left => "left",
        v1::Cause::WaitTimeout => "wait_timeout",
        v1::Cause::Vacant => "vacant",
        v1::Cause::KeyPut => "key_put",
        v1::Cause::KeyDeleted => "key_deleted",
        v1::Cause::LeaseGranted => "lease_granted",
        v1::Cause::LimitsSet => "limits_set",
        v1::Cause::LevelRaised => "level_raised",
        v1::Cause::HistoryCompacted => "history_compacted",
        v1::Cause::AccessChanged => "access_changed",
        v1::Cause::Deadlock => "deadlock",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_go_there_and_back_and_slots_belong_to_one_of_them() {
        let several = Mode::Slot { of: 8, take: 3 };
        for of in [Mode::Exclusive, Mode::Shared, Mode::slot(8), several] {
            let (word, slots) = mode(of);
            assert_eq!(mode_from(word.into(), slots, take(of)), Some(of));
        }
        assert_eq!(mode_from(v1::Mode::Exclusive.into(), 3, 0), None);
        assert_eq!(mode_from(v1::Mode::Shared.into(), 0, 2), None);
        assert_eq!(mode_from(v1::Mode::Slot.into(), 0, 0), None);
        assert_eq!(mode_from(v1::Mode::Slot.into(), 8, 1), Some(Mode::slot(8)));
        assert_eq!(mode_from(99, 0, 0), None);
    }

    #[test]
    fn a_generation_of_zero_is_no_handle_and_a_negative_number_no_id() {
        assert_eq!(handle_from(7, 0), None);
        assert_eq!(handle_from(7, 1), Some(Handle { slot: 7, generation: 1 }));
        assert_eq!(lease_from(-1), None);
        assert_eq!(lease_from(0), None);
        assert_eq!(revision_from(-1), None);
    }

    #[test]
    fn cause_words_are_the_names_of_the_wire_in_lower_case() {
        for number in 0..=32 {
            let cause = v1::Cause::try_from(number).unwrap();
            let name = cause.as_str_name().strip_prefix("CAUSE_").unwrap();
            assert_eq!(cause_word(cause), name.to_lowercase());
        }
        assert!(v1::Cause::try_from(33).is_err(), "a new cause needs a word above");
    }
}
