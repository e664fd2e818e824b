//! Names the states that a member's status reports.

/// It has every entry that the leader has.
pub const UP_TO_DATE: &str = "up to date";
/// It lacks entries that the leader has.
pub const BEHIND: &str = "behind";
/// The member that answers has no contact with it.
pub const NOT_HEARD_OF: &str = "not heard of";
/// It takes nothing that makes the state grow, because its disk is full. Only the member itself reports this.
pub const OUT_OF_SPACE: &str = "out of space";
