//! Defines the JSON words for lock modes and holder states.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Failure, v1};

/// How a lock is asked for and held.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum LockMode {
    /// One holder alone.
    #[default]
    Exclusive,
    /// Together with other shared holders.
    Shared,
    /// One of several numbered slots; `slots` beside it says of how many.
    Slot,
}

/// Whether a grant is still its holder's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// The lease has the lock.
    #[default]
    Held,
    /// The lock was taken away; others wait for the holder to stop.
    Cooling,
    /// The lock-delay after an end the holder did not ask for.
    Delayed,
    /// No lease has the lock, and its min hold since the grant is not over.
    Resting,
}

impl LockMode {
    /// Converts to the mode and slots of the wire messages. `slots` alone implies `slot`.
    pub(super) fn to_wire(mode: Option<Self>, slots: Option<u32>) -> Result<(i32, u32), Failure> {
        let mode = match (mode, slots) {
            (None | Some(Self::Slot), Some(_)) => v1::Mode::Slot,
            (None | Some(Self::Exclusive), None) => v1::Mode::Exclusive,
            (Some(Self::Shared), None) => v1::Mode::Shared,
            (Some(Self::Slot), None) | (Some(_), Some(_)) => {
                let problem = "belongs to mode `slot`, and to no other".to_owned();
                return Err(Failure::InvalidField { field: "slots", problem });
            }
        };
        Ok((mode.into(), slots.unwrap_or(0)))
    }

    pub(super) fn from_wire(mode: i32) -> Self {
        match v1::Mode::try_from(mode) {
            Ok(v1::Mode::Shared) => Self::Shared,
            Ok(v1::Mode::Slot) => Self::Slot,
            Ok(v1::Mode::Exclusive) | Err(_) => Self::Exclusive,
        }
    }
}

impl Standing {
    pub(super) fn from_wire(state: i32) -> Self {
        match v1::HolderState::try_from(state) {
            Ok(v1::HolderState::Cooling) => Self::Cooling,
            Ok(v1::HolderState::Delayed) => Self::Delayed,
            Ok(v1::HolderState::Resting) => Self::Resting,
            Ok(v1::HolderState::Held) | Err(_) => Self::Held,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_alone_mean_a_slot_and_never_stand_beside_another_mode() {
        let slot = (v1::Mode::Slot.into(), 8);
        assert_eq!(LockMode::to_wire(None, Some(8)).unwrap(), slot);
        assert_eq!(LockMode::to_wire(Some(LockMode::Slot), Some(8)).unwrap(), slot);
        assert_eq!(LockMode::to_wire(None, None).unwrap(), (0, 0));
        assert!(LockMode::to_wire(Some(LockMode::Slot), None).is_err());
        assert!(LockMode::to_wire(Some(LockMode::Shared), Some(8)).is_err());
    }
}
