//! Decodes numbers, texts and lists from untrusted bytes.

use tenure_types::{Mode, Name, Revision, Token};

/// The bytes do not follow the format.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("malformed bytes")]
pub struct Malformed;

/// Decodes values from the front of a buffer.
#[derive(Clone, Debug)]
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn remaining(&self) -> usize {
        self.0.len()
    }

    /// Fails if bytes are left over.
    pub(crate) fn end(self) -> Result<(), Malformed> {
        if self.is_empty() { Ok(()) } else { Err(Malformed) }
    }

    /// The next byte, which stays.
    pub(crate) fn peek(&self) -> Option<u8> {
        self.0.first().copied()
    }

    #[inline]
    pub(crate) fn u8(&mut self) -> Result<u8, Malformed> {
        let (&first, rest) = self.0.split_first().ok_or(Malformed)?;
        self.0 = rest;
        Ok(first)
    }

    /// Reads a number. Only its shortest encoding is accepted, so that equal values have equal bytes.
    #[inline]
    pub(crate) fn number(&mut self) -> Result<u64, Malformed> {
        // Most numbers, such as lengths and flags, have one byte.
        match self.0.split_first() {
            Some((&only, rest)) if only < 0x80 => {
                self.0 = rest;
                Ok(u64::from(only))
            }
            _ => self.long_number(),
        }
    }

    fn long_number(&mut self) -> Result<u64, Malformed> {
        if let Some((first, _)) = self.0.split_first_chunk::<8>() {
            let groups = u64::from_le_bytes(*first);
            let ends = !groups & 0x8080_8080_8080_8080;
            // At least two bytes: the caller has seen that the first is not the last.
            if ends != 0 {
                let bits = ends.trailing_zeros() + 1;
                let groups = groups & (u64::MAX >> (u64::BITS - bits));
                self.0 = &self.0[bits as usize / 8..];
                let is_shortest = groups >> (bits - 8) != 0;
                return if is_shortest { Ok(gather(groups)) } else { Err(Malformed) };
            }
        }
        self.very_long_number()
    }

    /// Reads a number byte by byte: one of more than eight bytes, or one near the end of the buffer.
    fn very_long_number(&mut self) -> Result<u64, Malformed> {
        let (mut value, mut shift) = (0, 0);
        loop {
            let byte = self.u8()?;
            let part = u64::from(byte & 0x7f);
            if shift == 63 && part > 1 {
                return Err(Malformed);
            }
            value |= part << shift;
            if byte < 0x80 {
                return if byte == 0 && shift > 0 { Err(Malformed) } else { Ok(value) };
            }
            shift += 7;
            if shift > 63 {
                return Err(Malformed);
            }
        }
    }

    /// Reads a number of fixed width.
    pub(crate) fn u64_raw(&mut self) -> Result<u64, Malformed> {
        let (first, rest) = self.0.split_first_chunk::<8>().ok_or(Malformed)?;
        self.0 = rest;
        Ok(u64::from_le_bytes(*first))
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Malformed> {
        u32::try_from(self.number()?).map_err(|_| Malformed)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, Malformed> {
        u16::try_from(self.number()?).map_err(|_| Malformed)
    }

    /// Reads how many items follow. Each has at least `item_bytes` bytes, so that a false length cannot make the reader
    /// allocate more than was sent.
    pub(crate) fn len(&mut self, item_bytes: usize) -> Result<usize, Malformed> {
        let len = usize::try_from(self.number()?).map_err(|_| Malformed)?;
        let bytes = len.checked_mul(item_bytes).ok_or(Malformed)?;
        if bytes > self.remaining() { Err(Malformed) } else { Ok(len) }
    }

    pub(crate) fn raw(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let (bytes, rest) = self.0.split_at_checked(len).ok_or(Malformed)?;
        self.0 = rest;
        Ok(bytes)
    }

    #[inline]
    pub(crate) fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let len = usize::try_from(self.number()?).map_err(|_| Malformed)?;
        self.raw(len)
    }

    pub(crate) fn text(&mut self) -> Result<&'a str, Malformed> {
        let bytes = self.bytes()?;
        // Most optional texts are absent.
        if bytes.is_empty() {
            return Ok("");
        }
        core::str::from_utf8(bytes).map_err(|_| Malformed)
    }

    /// Reads a name that may be absent, which is an empty text.
    pub(crate) fn optional_name(&mut self) -> Result<Option<Name>, Malformed> {
        match self.text()? {
            "" => Ok(None),
            text => Name::new(text).map(Some).map_err(|_| Malformed),
        }
    }

    pub(crate) fn name(&mut self) -> Result<Name, Malformed> {
        Name::new(self.text()?).map_err(|_| Malformed)
    }

    pub(crate) fn flag(&mut self) -> Result<bool, Malformed> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed),
        }
    }

    pub(crate) fn optional(&mut self) -> Result<Option<u64>, Malformed> {
        if self.flag()? { self.number().map(Some) } else { Ok(None) }
    }

    pub(crate) fn token(&mut self) -> Result<Token, Malformed> {
        Token::from_u64(self.number()?).ok_or(Malformed)
    }

    pub(crate) fn revision(&mut self) -> Result<Revision, Malformed> {
        Ok(Revision(self.number()?))
    }

    pub(crate) fn mode(&mut self) -> Result<Mode, Malformed> {
        match self.u8()? {
            0 => Ok(Mode::Exclusive),
            1 => Ok(Mode::Shared),
            2 => Ok(Mode::slot(self.u32()?)),
            // From the level on at which a request may take several slots. One slot has one form only.
            3 => match (self.u32()?, self.u32()?) {
                (_, 0 | 1) => Err(Malformed),
                (of, take) => Ok(Mode::Slot { of, take }),
            },
            _ => Err(Malformed),
        }
    }
}

/// Joins the lower seven bits of eight bytes.
fn gather(groups: u64) -> u64 {
    let pairs = (groups & 0x007f_007f_007f_007f) | ((groups & 0x7f00_7f00_7f00_7f00) >> 1);
    let halves = (pairs & 0x0000_3fff_0000_3fff) | ((pairs & 0x3fff_0000_3fff_0000) >> 2);
    (halves & 0x0fff_ffff) | ((halves & 0x0fff_ffff_0000_0000) >> 4)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::Writer;
    use alloc::vec::Vec;

    #[test]
    fn every_number_reads_back_and_has_one_form() {
        let edges = (0..u64::BITS).map(|bits| 1 << bits).chain([0, u64::MAX]);
        for value in edges.flat_map(|edge: u64| [edge.wrapping_sub(1), edge, edge | edge >> 3]) {
            let mut bytes = Vec::new();
            bytes.put(value);
            // Near the end of a buffer, numbers are read in another way.
            for rest in [&[][..], &[0x80; 9]] {
                let len = bytes.len();
                bytes.extend_from_slice(rest);
                let mut reader = Reader::new(&bytes);
                assert_eq!(reader.number(), Ok(value), "{value:#x}");
                assert_eq!(reader.remaining(), bytes.len() - len, "{value:#x}");
                bytes.truncate(len);
            }
        }
        for rest in [&[][..], &[0; 9]] {
            for groups in 1..10 {
                let mut longer = Vec::from([0x80_u8; 10]);
                longer.truncate(groups);
                longer.push(0);
                longer.extend_from_slice(rest);
                assert_eq!(Reader::new(&longer).number(), Err(Malformed), "not the shortest form");
            }
        }
        assert_eq!(Reader::new(&[0xff; 10]).number(), Err(Malformed), "above 64 bits");
    }

    #[test]
    fn a_length_beyond_what_was_sent_is_refused_before_anything_is_allocated() {
        let mut bytes = Vec::new();
        bytes.put(u64::MAX);
        assert_eq!(Reader::new(&bytes).bytes(), Err(Malformed));
        assert_eq!(Reader::new(&bytes).len(16), Err(Malformed));
    }
}
