//! Defines the exit codes of `tenure run`.

use crate::exit::Exit;

pub(super) const REFUSED: u8 = Exit::Refused.code();
pub(super) const USAGE: u8 = Exit::Arguments.code();
pub(super) const NOT_ACQUIRED: u8 = Exit::NotAcquired.code();
pub(super) const LOST: u8 = Exit::Lost.code();
/// The codes that a shell uses.
pub(super) const NOT_EXECUTABLE: u8 = 126;
pub(super) const NOT_FOUND: u8 = 127;

/// The code that a shell uses for a command that a signal ended.
pub(super) fn by_signal(signal: i32) -> u8 {
    u8::try_from(128 + signal).unwrap_or(u8::MAX)
}
