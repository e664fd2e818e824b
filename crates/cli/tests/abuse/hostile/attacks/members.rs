//! Attacks the members' port, and the log of a member.

use std::io::Write;

use crate::hostile::flood::{Reads, Round, flood};
use crate::raw::pour;

/// An id that no member has.
const STRANGER: u64 = 7;

/// A frame of the members' port.
fn frame(bytes: &[u8]) -> Vec<u8> {
    [&u32::try_from(bytes.len()).unwrap().to_le_bytes()[..], bytes].concat()
}

fn pour_frames(round: &Round<'_>, text: &str, more: &[u8]) {
    let bytes = [frame(text.as_bytes()), frame(more)].concat();
    flood(round, round.target.members, 8, Reads::All, &bytes, |_| Vec::new());
}

/// Asks to join as new members, and under addresses at which no member listens.
pub(super) fn joins(round: &Round<'_>) {
    let level = tenure_core::LEVEL_MAX;
    let mut number = 0;
    while !round.is_over() {
        number += 1;
        let text = format!(
            "join {:x} stranger{number} 127.0.0.1:1 127.0.0.1:1\nlevel {level}",
            STRANGER + number
        );
        if let Some(mut stream) = round.dial(round.target.members) {
            let _ = pour(&mut stream, &frame(text.as_bytes()));
            round.idle();
        }
    }
}

/// Claims to be a member and sends commands and messages of the log behind the hello.
pub(super) fn forged_frames(round: &Round<'_>) {
    let (claim, level) = (&round.target.cluster, tenure_core::LEVEL_MAX);
    let hello = format!("hello 1\n{claim}\nfrom {STRANGER:x}\nto 1\nlevel {level}");
    let forged = [&[0xc0][..], &[1; 400]].concat();
    pour_frames(round, &hello, &forged);
}

/// Begins frames of the greatest length and does not end them.
pub(super) fn endless_frames(round: &Round<'_>) {
    let begin = [&u32::MAX.to_le_bytes()[..], &[b'x'; 4096]].concat();
    let also = [&1_000_000_u32.to_le_bytes()[..], b"hello"].concat();
    let mut turn = 0_u32;
    while !round.is_over() {
        let mut open = Vec::new();
        for _ in 0..80 {
            turn += 1;
            let bytes = if turn.is_multiple_of(2) { &begin } else { &also };
            if let Some(mut stream) = round.dial(round.target.members) {
                let _ = stream.write_all(bytes);
                open.push(stream);
            }
        }
        round.idle();
    }
}

/// Provokes log lines while the reader of the members' logs is stopped.
pub(super) fn stuck_log(round: &Round<'_>) {
    round.stage.stick_logs(true);
    joins(round);
    round.stage.stick_logs(false);
}
