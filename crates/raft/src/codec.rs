//! Encodes and decodes numbers and bytes in messages between members.
//!
//! Numbers are little-endian base-128, bytes are preceded by their length. Decoding never allocates more than the size
//! of its input.

use bytes::Bytes;

/// The bytes do not follow the format.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("malformed bytes")]
pub struct Malformed;

pub(crate) trait Writer {
    fn put_u8(&mut self, byte: u8);
    fn put(&mut self, number: u64);
    fn put_bytes(&mut self, bytes: &[u8]);
}

impl Writer for Vec<u8> {
    fn put_u8(&mut self, byte: u8) {
        self.push(byte);
    }

    fn put(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.push(number.to_le_bytes()[0] | 0x80);
            number >>= 7;
        }
        self.push(number.to_le_bytes()[0]);
    }

    fn put_bytes(&mut self, bytes: &[u8]) {
        self.put(bytes.len() as u64);
        self.extend_from_slice(bytes);
    }
}

/// Decodes from the front of a buffer.
#[derive(Clone, Debug)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(crate) fn end(&self) -> Result<(), Malformed> {
        if self.is_empty() { Ok(()) } else { Err(Malformed) }
    }

    pub(crate) fn u8(&mut self) -> Result<u8, Malformed> {
        let (&byte, rest) = self.rest.split_first().ok_or(Malformed)?;
        self.rest = rest;
        Ok(byte)
    }

    pub(crate) fn flag(&mut self) -> Result<bool, Malformed> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed),
        }
    }

    pub(crate) fn number(&mut self) -> Result<u64, Malformed> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                return Err(Malformed);
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                // Each number has one encoding only: no padding.
                return if byte == 0 && shift > 0 { Err(Malformed) } else { Ok(number) };
            }
        }
        Err(Malformed)
    }

    pub(crate) fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let len = usize::try_from(self.number()?).map_err(|_| Malformed)?;
        self.raw(len)
    }

    pub(crate) fn raw(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        if len > self.rest.len() {
            return Err(Malformed);
        }
        let (bytes, rest) = self.rest.split_at(len);
        self.rest = rest;
        Ok(bytes)
    }
}

/// Returns a slice of a buffer as shared bytes, without copying.
pub(crate) fn share(buffer: &Bytes, part: &[u8]) -> Bytes {
    if part.is_empty() { Bytes::new() } else { buffer.slice_ref(part) }
}
