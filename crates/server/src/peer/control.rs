//! Reads and writes the text protocol of the members' port: one frame for each message.

use std::io::{self, Read, Write};

use tenure_node::{CONTROL_BYTES_MAX, Control};

use super::frame;

/// Writes one message.
pub(crate) fn write(to: &mut impl Write, control: &Control) -> io::Result<()> {
    frame::write(to, &control.encode())
}

/// Reads one message.
pub(crate) fn read(from: &mut impl Read) -> io::Result<Control> {
    let bytes = frame::read(from, CONTROL_BYTES_MAX)?;
    let unknown = || io::Error::new(io::ErrorKind::InvalidData, "not the members' protocol");
    Control::decode(&bytes).ok_or_else(unknown)
}
