//! Limits the HTTP/2 frames that carry neither a request nor a part of one.
//!
//! Settings, pings, priorities, window updates, resets and empty data cost a client almost nothing, and each one costs
//! the member as much as a part of a request. HTTP/2 bounds only how many answers to them wait. A client earns such
//! frames: by time, by requests, and by what the member writes to it, because a client that reads much returns many
//! window updates. A client that sends more than it has earned is cut off.

use std::io;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
/// The flag of the last frame of a request.
const END_STREAM: u8 = 1;
/// The bytes that begin an HTTP/2 connection, ahead of its frames.
const PREFACE: u32 = 24;
/// The frames that a new connection may send, and the most that it can have earned.
const FIRST: u64 = 512;
const MOST: u64 = 16_384;
/// The frames that a client earns in a second, by a request, and by a write of the member.
const PER_SECOND: u64 = 1_000;
const PER_REQUEST: u64 = 2;
const PER_WRITE: u64 = 2;
/// The bytes of the member that earn the client one more frame. The answer to a ping has 17.
const BYTES_PER_FRAME: u64 = 64;

/// Follows the frames of one connection.
pub(super) struct FrameLimit {
    /// The bytes until the next frame begins.
    skip: u32,
    head: [u8; 9],
    have: usize,
    earned: u64,
    /// Until when time has earned frames.
    counted_us: u64,
}

impl FrameLimit {
    /// Follows a connection whose preface is still to be read.
    pub(super) fn new(now_us: u64) -> Self {
        Self { skip: PREFACE, head: [0; 9], have: 0, earned: FIRST, counted_us: now_us }
    }

    /// Counts what the member has written to the client.
    pub(super) fn wrote(&mut self, bytes: usize) {
        self.earn(PER_WRITE + bytes as u64 / BYTES_PER_FRAME);
    }

    /// Counts the frames in bytes of the client. Fails if the client has sent more than it has earned.
    pub(super) fn read(&mut self, mut bytes: &[u8], now_us: u64) -> io::Result<()> {
        let new = now_us.saturating_sub(self.counted_us).saturating_mul(PER_SECOND) / 1_000_000;
        if new > 0 {
            self.counted_us = now_us;
            self.earn(new);
        }
        while !bytes.is_empty() {
            if self.skip > 0 {
                let skipped = bytes.len().min(self.skip as usize);
                bytes = &bytes[skipped..];
                self.skip -= u32::try_from(skipped).unwrap_or(self.skip);
                continue;
            }
            let taken = bytes.len().min(self.head.len() - self.have);
            self.head[self.have..self.have + taken].copy_from_slice(&bytes[..taken]);
            self.have += taken;
            bytes = &bytes[taken..];
            if self.have == self.head.len() {
                self.have = 0;
                self.count()?;
            }
        }
        Ok(())
    }

    fn count(&mut self) -> io::Result<()> {
        let [long, middle, short, kind, flags, ..] = self.head;
        self.skip = u32::from_be_bytes([0, long, middle, short]);
        match kind {
            HEADERS => self.earn(PER_REQUEST),
            // The library limits the length of header blocks.
            CONTINUATION => {}
            DATA if self.skip > 0 || flags & END_STREAM != 0 => {}
            _ if self.earned == 0 => {
                tracing::warn!("closes a connection that floods the member with HTTP/2 frames");
                return Err(io::Error::new(io::ErrorKind::ConnectionAborted, "too many frames"));
            }
            _ => self.earned -= 1,
        }
        Ok(())
    }

    fn earn(&mut self, frames: u64) {
        self.earned = self.earned.saturating_add(frames).min(MOST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PING: u8 = 6;
    const WINDOW_UPDATE: u8 = 8;

    fn begun() -> FrameLimit {
        let mut limit = FrameLimit::new(0);
        limit.read(&[b'p'; PREFACE as usize], 0).unwrap();
        limit
    }

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        [&length[1..], &[kind, flags, 0, 0, 0, 1], payload].concat()
    }

    /// How many such frames the client can send, up to a bound.
    fn sent(limit: &mut FrameLimit, bytes: &[u8], now_us: u64) -> u64 {
        (0..100_000).take_while(|_| limit.read(bytes, now_us).is_ok()).count() as u64
    }

    #[test]
    fn a_flood_ends_and_time_earns_more() {
        for flood in [frame(PING, 0, &[0; 8]), frame(0x77, 0, b""), frame(DATA, 0, b"")] {
            assert_eq!(sent(&mut begun(), &flood, 0), FIRST);
            assert_eq!(sent(&mut begun(), &flood, 1_000_000), FIRST + PER_SECOND);
        }
    }

    #[test]
    fn requests_and_their_data_are_not_limited() {
        let mut limit = begun();
        for part in [frame(HEADERS, 4, &[0; 50]), frame(DATA, 0, b"x"), frame(DATA, 1, b"")] {
            assert_eq!(sent(&mut limit, &part, 0), 100_000);
        }
    }

    #[test]
    fn a_client_that_reads_may_update_its_windows() {
        let mut limit = begun();
        let update = frame(WINDOW_UPDATE, 0, &[0, 0, 0, 1]).repeat(2);
        for _ in 0..100_000 {
            limit.wrote(30);
            limit.read(&update, 0).unwrap();
        }
        // The answers to pings earn less than the pings cost.
        for _ in 0..100_000 {
            limit.wrote(17 * 100);
            if limit.read(&frame(PING, 0, &[0; 8]).repeat(100), 0).is_err() {
                return;
            }
        }
        panic!("pings pay for themselves");
    }

    #[test]
    fn frames_are_found_wherever_reads_end() {
        let bytes = [frame(PING, 0, &[6; 8]), frame(DATA, 0, &[6; 300]), frame(PING, 0, &[6; 8])];
        let bytes = bytes.concat();
        for size in 1..30 {
            let mut limit = begun();
            for part in bytes.chunks(size) {
                limit.read(part, 0).unwrap();
            }
            assert_eq!(limit.earned, FIRST - 2, "{size}");
        }
    }
}
