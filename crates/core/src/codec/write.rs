//! Encodes numbers, texts and lists.

use alloc::vec::Vec;
use tenure_types::{Mode, Name};

/// Appends values to a buffer.
pub(crate) trait Writer {
    fn put_u8(&mut self, value: u8);
    fn put_raw(&mut self, bytes: &[u8]);

    fn put(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.put_u8((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        self.put_u8((value & 0x7f) as u8);
    }

    fn put_bytes(&mut self, bytes: &[u8]) {
        self.put(bytes.len() as u64);
        self.put_raw(bytes);
    }

    fn put_name(&mut self, name: &Name) {
        self.put_bytes(name.as_bytes());
    }

    fn put_optional(&mut self, value: Option<u64>) {
        self.put_u8(u8::from(value.is_some()));
        if let Some(value) = value {
            self.put(value);
        }
    }

    fn put_mode(&mut self, mode: Mode) {
        match mode {
            Mode::Exclusive => self.put_u8(0),
            Mode::Shared => self.put_u8(1),
            Mode::Slot { of, take: 1 } => {
                self.put_u8(2);
                self.put(u64::from(of));
            }
            Mode::Slot { of, take } => {
                self.put_u8(3);
                self.put(u64::from(of));
                self.put(u64::from(take));
            }
        }
    }
}

impl Writer for Vec<u8> {
    fn put_u8(&mut self, value: u8) {
        self.push(value);
    }

    fn put_raw(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}
