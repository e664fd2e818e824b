//! How does `tenure run` end?

/// Refused for another reason; nothing changed.
pub(super) const REFUSED: u8 = 1;
/// Wrong arguments; nothing sent.
pub(super) const USAGE: u8 = 2;
/// Unreachable; nothing happened.
pub(super) const UNREACHABLE: u8 = 69;
/// It may have happened.
pub(super) const UNKNOWN: u8 = 74;
/// Somebody else has the lock.
pub(super) const NOT_ACQUIRED: u8 = 75;
/// The command was stopped.
pub(super) const LOST: u8 = 76;
/// As a shell says it.
pub(super) const NOT_EXECUTABLE: u8 = 126;
pub(super) const NOT_FOUND: u8 = 127;

/// As a shell says it.
pub(super) fn by_signal(signal: i32) -> u8 {
    u8::try_from(128 + signal).unwrap_or(u8::MAX)
}
