//! Attacks with streams that a member feeds: watches of everything, and backups.

use crate::hostile::flood::{Reads, Round, flood};
use crate::hostile::session::{Grpc, message};
use crate::raw::{END_HEADERS, END_STREAM, HEADERS, SETTINGS, begin, frame, request};

const WINDOW_UPDATE: u8 = 8;
/// How many watches one connection has.
const WATCHES: u32 = 250;

/// Opens watches of nested prefixes of what honest clients change.
fn watch(round: &Round<'_>, connections: usize, reads: Reads) {
    // All windows are as large as they can be, so that only the member limits what waits for the client.
    let windows = frame(SETTINGS, 0, 0, &[0, 4, 0x7f, 0xff, 0xff, 0xff]);
    let connection = frame(WINDOW_UPDATE, 0, 0, &0x7fff_0000_u32.to_be_bytes());
    let mut first = [begin(), windows, connection].concat();
    for at in 0..WATCHES {
        let prefix = &"honest/"[..at as usize % 8];
        let ask = request("GET", &round.host(), &format!("/v1/watch?prefix={prefix}"), &[]);
        first.extend(frame(HEADERS, END_HEADERS | END_STREAM, at * 2 + 1, &ask));
    }
    flood(round, round.target.leader, connections, reads, &first, |_| Vec::new());
}

pub(super) fn nested(round: &Round<'_>) {
    watch(round, 2, Reads::All);
}

pub(super) fn unread(round: &Round<'_>) {
    watch(round, 4, Reads::Nothing);
}

/// Starts watches over gRPC and ends them at once.
pub(super) fn restarted(round: &Round<'_>) {
    let to = round.target.leader;
    while !round.is_over() {
        let Some(stream) = round.dial(to) else { continue };
        let mut grpc = Grpc::new(stream, &to.to_string());
        let id = grpc.open("/tenure.v1.LockService/Watch", &[]);
        let mut number = 0;
        while !round.is_over() {
            let both = [false, true].map(|cancel| {
                let ask = tenure_wire::v1::WatchRequest {
                    prefix: true,
                    // From the beginning: the member has to read its history.
                    start_revision: 1,
                    watch_id: number + 1,
                    cancel,
                    ..Default::default()
                };
                message(&tenure_wire::Message::encode_to_vec(&ask))
            });
            let both = both.concat();
            if grpc.has_room(id, both.len()) {
                grpc.data(id, &both);
                number += 1;
            }
            let turned = grpc.turn();
            grpc.messages();
            match turned {
                Ok(_) if !grpc.is_open(id) => break,
                Ok(true) => {}
                Ok(false) => round.idle(),
                Err(_) => break,
            }
        }
    }
}

/// Asks for backups and does not read them.
pub(super) fn unread_backups(round: &Round<'_>) {
    let mut open: Vec<Grpc> = Vec::new();
    let to = round.target.leader;
    while !round.is_over() {
        if open.len() < 8
            && let Some(stream) = round.dial(to)
        {
            let mut grpc = Grpc::new(stream, &to.to_string());
            grpc.call("/tenure.v1.MaintenanceService/Backup", &[], &message(b""));
            open.push(grpc);
        }
        open.retain_mut(|grpc| grpc.write().is_ok());
        round.idle();
    }
}
