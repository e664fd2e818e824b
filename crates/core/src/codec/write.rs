//! Encodes numbers, texts and lists.

use alloc::vec::Vec;
use tenure_types::{Mode, Name};

/// Appends values to a buffer.
pub(crate) trait Writer {
    fn put_u8(&mut self, value: u8);
    fn put_raw(&mut self, bytes: &[u8]);

    /// Appends a number in groups of seven bits, the lowest first. Every byte but the last has its highest bit set.
    fn put(&mut self, value: u64);

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

    #[inline]
    fn put(&mut self, value: u64) {
        if value < 0x80 {
            self.push((value & 0x7f) as u8);
        } else {
            put_longer(self, value);
        }
    }
}

/// Appends a number of two bytes or more. Up to four bytes have a length that the compiler knows: most tokens, places
/// and lengths have no more.
#[inline(never)]
fn put_longer(out: &mut Vec<u8>, value: u64) {
    let group = |number: u32| (value >> (7 * number) & 0x7f) as u8;
    if value < 1 << 14 {
        out.extend_from_slice(&[group(0) | 0x80, group(1)]);
    } else if value < 1 << 21 {
        out.extend_from_slice(&[group(0) | 0x80, group(1) | 0x80, group(2)]);
    } else if value < 1 << 28 {
        let bytes = [group(0) | 0x80, group(1) | 0x80, group(2) | 0x80, group(3)];
        out.extend_from_slice(&bytes);
    } else {
        put_long(out, value);
    }
}

/// Appends a number of two bytes or more. Its first eight groups are written at once: byte by byte, each write would
/// wait for the length that the one before it stored, and most bytes of an event are those of ids and tokens.
fn put_long(out: &mut Vec<u8>, value: u64) {
    let groups = (u64::BITS - value.leading_zeros()).div_ceil(7) as usize;
    let follows = if groups > 8 { u64::MAX } else { (1 << (8 * (groups - 1))) - 1 };
    let first = spread(value) | (follows & 0x8080_8080_8080_8080);
    out.extend_from_slice(&first.to_le_bytes());
    if groups < 8 {
        out.truncate(out.len() - (8 - groups));
    } else if groups > 8 {
        // The last eight bits of the number: one byte, or two if the highest bit is set.
        let last = (value >> 56) as u8;
        if groups == 9 {
            out.push(last);
        } else {
            out.extend_from_slice(&[last | 0x80, 1]);
        }
    }
}

/// Puts the lowest 56 bits of a number into the lower seven bits of eight bytes.
fn spread(value: u64) -> u64 {
    let halves = (value & 0x0fff_ffff) | ((value & 0x00ff_ffff_f000_0000) << 4);
    let quarters = (halves & 0x0000_3fff_0000_3fff) | ((halves & 0x0fff_c000_0fff_c000) << 2);
    (quarters & 0x007f_007f_007f_007f) | ((quarters & 0x3f80_3f80_3f80_3f80) << 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same, byte by byte.
    fn plain(mut value: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        while value >= 0x80 {
            bytes.push((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        bytes.push((value & 0x7f) as u8);
        bytes
    }

    #[test]
    fn numbers_of_every_length_are_written_in_groups_of_seven_bits() {
        let mut random = 7_u64;
        for bits in 0..=u64::BITS {
            for _ in 0..200 {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let (low, high) = (random.checked_shr(u64::BITS - bits), 1_u64.checked_shl(bits));
                let high = high.unwrap_or(0);
                for value in [low.unwrap_or(0), high, high.wrapping_sub(1)] {
                    let mut bytes = Vec::from([9]);
                    bytes.put(value);
                    assert_eq!(bytes[1..], plain(value), "{value:#x}");
                }
            }
        }
    }
}
