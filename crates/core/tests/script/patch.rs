//! Modifies a snapshot so that its hash still matches.
//!
//! Tests need this because some states take too long to reach, and some bytes no machine would write.

use tenure_core::Machine;
use tenure_types::Token;
use xxhash_rust::xxh3::xxh3_128;

/// The length of the magic bytes, and of the length and section ahead of the head.
const MAGIC: usize = 8;
const FRAME: usize = 8 + 1;

/// The last frame: length, section and hash.
const END: usize = 8 + 1 + 16;

/// Writes the hash of everything ahead of the last frame into it.
pub(crate) fn rehash(snapshot: &mut [u8]) {
    let end = snapshot.len() - END;
    let hash = xxh3_128(&snapshot[..end]);
    let at = snapshot.len() - 16;
    snapshot[at..].copy_from_slice(&hash.to_le_bytes());
}

/// The start and end of each frame but the last.
pub(crate) fn frames(snapshot: &[u8]) -> Vec<(usize, usize)> {
    let mut frames = Vec::new();
    let mut at = MAGIC;
    while at < snapshot.len() - END {
        let end = at + 8 + frame_len(snapshot, at);
        frames.push((at, end));
        at = end;
    }
    frames
}

/// Overwrites the number at `at`, in the frame that begins at `frame`.
pub(crate) fn replace_number(snapshot: &mut Vec<u8>, frame: usize, at: usize, number: u64) {
    let old = number_len(&snapshot[at..]);
    let new = write_number(number);
    let len = frame_len(snapshot, frame) + new.len() - old;
    snapshot.splice(at..at + old, new);
    let len = len as u64;
    snapshot[frame..frame + 8].copy_from_slice(&len.to_le_bytes());
    rehash(snapshot);
}

/// Returns the same state after so many grants that only `left` tokens of its epoch remain.
pub(super) fn with_tokens_left(machine: &Machine, left: u64) -> Machine {
    let mut bytes = machine.encode();
    // clock, term, base, epoch, counter
    let mut at = MAGIC + FRAME;
    for _ in 0..4 {
        at += number_len(&bytes[at..]);
    }
    replace_number(&mut bytes, MAGIC, at, Token::COUNTER_MAX - left);
    Machine::decode(&bytes).expect("only the counter has changed")
}

fn frame_len(snapshot: &[u8], at: usize) -> usize {
    let len = snapshot[at..at + 8].try_into().expect("eight bytes");
    usize::try_from(u64::from_le_bytes(len)).expect("a length")
}

/// The length of the number that begins here.
pub(crate) fn number_len(bytes: &[u8]) -> usize {
    1 + bytes.iter().take_while(|byte| **byte >= 128).count()
}

fn write_number(mut number: u64) -> Vec<u8> {
    let mut out = Vec::new();
    while number >= 128 {
        out.push(number.to_le_bytes()[0] | 128);
        number /= 128;
    }
    out.push(number.to_le_bytes()[0]);
    out
}
