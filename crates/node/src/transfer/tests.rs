//! Tests the rules of a transfer one by one. `tests/transfer.rs` drives both ends from seeds.

use bytes::Bytes;
use tenure_raft::{AnnouncedSnapshot, MemberId, Membership, Step, StepKind};
use tenure_store::{LogId, SnapshotId};

use super::*;

const SECOND: u64 = 1_000_000;
const CHUNK: &[u8] = &[1; 256 * 1024];
const VIEW: ReplicaView = ReplicaView { term: 5, applied: 3 };

fn member(number: u64) -> MemberId {
    MemberId::new(number).unwrap()
}

fn snapshot(index: u64) -> SnapshotId {
    SnapshotId { point: LogId { index, term: 2 }, bytes: 3 * CHUNK_BYTES, checksum: 7 }
}

fn step(term: u64, id: SnapshotId) -> Step {
    let head = AnnouncedSnapshot { point: id.point, members: Membership::default() };
    Step {
        kind: StepKind::Snapshot,
        term,
        log_term: 0,
        index: 0,
        commit: 0,
        commit_term: 0,
        durable: LogId::default(),
        reject: false,
        reject_hint: 0,
        context: Bytes::new(),
        entries: vec![],
        snapshot: Some(Box::new(head)),
    }
}

fn offer(attempt: u64, term: u64, id: SnapshotId) -> TransferMessage {
    TransferMessage::Offer { attempt, id, step: Box::new(step(term, id)) }
}

fn chunk(id: SnapshotId, number: u64) -> TransferMessage {
    TransferMessage::chunk(id, number * CHUNK_BYTES, Bytes::from_static(CHUNK))
}

fn have(attempt: u64, id: SnapshotId, offset: u64) -> TransferMessage {
    TransferMessage::Have { attempt, id, offset }
}

fn receive(
    incoming: &mut IncomingTransfer,
    from: u64,
    message: TransferMessage,
) -> Vec<TransferAction> {
    let mut out = Vec::new();
    incoming.handle(member(from), message, VIEW, 0, &mut out);
    out
}

fn written(incoming: &mut IncomingTransfer, number: u64, have: u64) -> Vec<TransferAction> {
    let mut out = Vec::new();
    incoming.written(number, have, &mut out);
    out
}

fn refused(to: u64, attempt: u64, id: SnapshotId, reason: TransferRefusal) -> TransferAction {
    TransferAction::Send {
        to: member(to),
        message: TransferMessage::Refused { attempt, id, reason },
    }
}

/// A receiver of snapshot 9 from member 1, with one chunk written.
fn receiver() -> IncomingTransfer {
    let mut incoming = IncomingTransfer::default();
    let id = snapshot(9);
    assert_eq!(
        receive(&mut incoming, 1, offer(1, 5, id)),
        [TransferAction::Open { number: 1, id }]
    );
    assert_eq!(receive(&mut incoming, 1, offer(1, 5, id)), [], "the file is not open yet");
    let told = |offset| TransferAction::Send { to: member(1), message: have(1, id, offset) };
    assert_eq!(written(&mut incoming, 1, 0), [told(0)]);
    assert!(matches!(
        receive(&mut incoming, 1, chunk(id, 0))[..],
        [TransferAction::Write { offset: 0, .. }]
    ));
    assert_eq!(written(&mut incoming, 1, CHUNK_BYTES), [told(CHUNK_BYTES)]);
    incoming
}

#[test]
fn a_stale_leaders_offer_is_refused() {
    let mut incoming = IncomingTransfer::default();
    let id = snapshot(9);
    assert_eq!(
        receive(&mut incoming, 1, offer(1, 4, id)),
        [refused(1, 1, id, TransferRefusal::Stale)]
    );
    let mut incoming = receiver();
    receive(&mut incoming, 2, offer(1, 6, snapshot(9)));
    let late = receive(&mut incoming, 1, offer(2, 5, snapshot(10)));
    assert_eq!(late, [refused(1, 2, snapshot(10), TransferRefusal::Stale)]);
}

#[test]
fn a_state_that_is_there_already_is_not_sent() {
    let mut incoming = IncomingTransfer::default();
    let done =
        TransferAction::Send { to: member(1), message: TransferMessage::Done { id: snapshot(3) } };
    assert_eq!(receive(&mut incoming, 1, offer(1, 5, snapshot(3))), [done]);
}

#[test]
fn doubled_reordered_and_damaged_chunks_change_nothing() {
    let (mut incoming, id) = (receiver(), snapshot(9));
    assert_eq!(receive(&mut incoming, 1, chunk(id, 0)), [], "doubled");
    assert_eq!(receive(&mut incoming, 1, chunk(id, 2)), [], "too early");
    assert_eq!(receive(&mut incoming, 2, chunk(id, 1)), [], "of another sender");
    assert_eq!(receive(&mut incoming, 1, chunk(snapshot(8), 1)), [], "of another snapshot");
    let TransferMessage::Chunk { offset, bytes, checksum, .. } = chunk(id, 1) else {
        unreachable!()
    };
    let damaged = TransferMessage::Chunk { id, offset, bytes, checksum: checksum ^ 1 };
    assert_eq!(receive(&mut incoming, 1, damaged), []);
    assert!(matches!(receive(&mut incoming, 1, chunk(id, 1))[..], [TransferAction::Write { .. }]));
    assert_eq!(receive(&mut incoming, 1, chunk(id, 1)), [], "it is on its way to the disk");
}

#[test]
fn one_snapshot_arrives_at_a_time_and_a_newer_leaders_takes_its_place() {
    let mut incoming = receiver();
    let (old, new) = (snapshot(9), snapshot(12));
    assert_eq!(
        receive(&mut incoming, 2, offer(1, 5, new)),
        [refused(2, 1, new, TransferRefusal::Busy)]
    );
    let taken = receive(&mut incoming, 2, offer(1, 6, new));
    let open = TransferAction::Open { number: 2, id: new };
    assert_eq!(taken, [refused(1, 1, old, TransferRefusal::Stale), open]);
    assert_eq!(written(&mut incoming, 1, 2 * CHUNK_BYTES), [], "a late report of the older one");
}

#[test]
fn a_newer_leader_with_the_same_snapshot_goes_on_where_the_older_one_was() {
    let (mut incoming, id) = (receiver(), snapshot(9));
    let told = TransferAction::Send { to: member(2), message: have(4, id, CHUNK_BYTES) };
    assert_eq!(receive(&mut incoming, 2, offer(4, 6, id)), [told]);
}

#[test]
fn the_whole_is_verified_once_and_then_it_is_done() {
    let (mut incoming, id) = (receiver(), snapshot(9));
    for number in 1..3 {
        receive(&mut incoming, 1, chunk(id, number));
    }
    written(&mut incoming, 1, 2 * CHUNK_BYTES);
    let finish = written(&mut incoming, 1, id.bytes);
    assert!(matches!(
        finish[..],
        [TransferAction::Send { .. }, TransferAction::Finish { number: 1, .. }]
    ));
    let busy = receive(&mut incoming, 2, offer(1, 6, snapshot(12)));
    assert_eq!(busy, [refused(2, 1, snapshot(12), TransferRefusal::Busy)]);
    let told = TransferAction::Send { to: member(1), message: have(2, id, id.bytes) };
    assert_eq!(receive(&mut incoming, 1, offer(2, 5, id)), [told], "it is being verified");
    let mut out = Vec::new();
    incoming.received(id, 10, &mut out);
    assert_eq!(
        out,
        [TransferAction::Send { to: member(1), message: TransferMessage::Done { id } }]
    );
    assert_eq!(
        receive(&mut incoming, 1, offer(3, 5, id)),
        [],
        "the replica is about to install it"
    );
}

#[test]
fn a_failure_is_told_with_its_reason() {
    let (mut incoming, id) = (receiver(), snapshot(9));
    let mut out = Vec::new();
    incoming.failed(1, TransferRefusal::Disk, &mut out);
    incoming.failed(1, TransferRefusal::Disk, &mut out);
    assert_eq!(out, [refused(1, 1, id, TransferRefusal::Disk)]);
}

/// A sender of snapshot 9 to member 2 that got the receiver's offset.
fn sender(offset: u64) -> (OutgoingTransfers, Vec<TransferAction>) {
    let (mut outgoing, mut out, id) = (OutgoingTransfers::default(), Vec::new(), snapshot(9));
    outgoing.start(member(2), step(5, id), 0, &mut out);
    assert_eq!(out, [TransferAction::Find { to: member(2), point: id.point }]);
    out.clear();
    outgoing.found(member(2), id.point, Some(id), 0, &mut out);
    assert_eq!(out, [TransferAction::Send { to: member(2), message: offer(1, 5, id) }]);
    out.clear();
    outgoing.handle(member(2), &have(1, id, offset), 0, &mut out);
    (outgoing, out)
}

fn report(ending: TransferEnd) -> TransferAction {
    TransferAction::Report { to: member(2), point: snapshot(9).point, ending }
}

#[test]
fn a_transfer_goes_on_where_the_receiver_is() {
    let (_, reads) = sender(CHUNK_BYTES + 5);
    let offsets: Vec<_> = reads
        .iter()
        .map(|action| match action {
            TransferAction::Read { offset, len, .. } => (*offset, *len),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(offsets, [(CHUNK_BYTES + 5, CHUNK_BYTES), (2 * CHUNK_BYTES + 5, CHUNK_BYTES - 5)]);
}

#[test]
fn after_a_reconnect_the_receiver_is_asked_again_where_it_is() {
    let (mut outgoing, _) = sender(0);
    let (mut out, id) = (Vec::new(), snapshot(9));
    outgoing.unlinked(member(2));
    outgoing.turn(5 * SECOND, &mut out);
    assert_eq!(out, [], "nothing is sent without a link");
    outgoing.linked(member(2), 6 * SECOND, &mut out);
    assert_eq!(out, [TransferAction::Send { to: member(2), message: offer(2, 5, id) }]);
    out.clear();
    let bytes = Ok(Bytes::from_static(CHUNK));
    outgoing.read(member(2), id, 0, bytes, &mut out);
    outgoing.handle(member(2), &have(1, id, CHUNK_BYTES), 6 * SECOND, &mut out);
    assert_eq!(out, [], "what belongs to the attempt before does not count");
    outgoing.handle(member(2), &have(2, id, 2 * CHUNK_BYTES), 6 * SECOND, &mut out);
    assert!(matches!(out[..], [TransferAction::Read { offset, .. }] if offset == 2 * CHUNK_BYTES));
}

#[test]
fn a_receiver_that_is_silent_or_stands_still_ends_the_transfer_with_one_report() {
    let (mut outgoing, _) = sender(0);
    let mut out = Vec::new();
    outgoing.unlinked(member(2));
    outgoing.turn(29 * SECOND, &mut out);
    assert_eq!(out, []);
    outgoing.turn(30 * SECOND, &mut out);
    outgoing.turn(300 * SECOND, &mut out);
    assert_eq!(out, [report(TransferEnd::Silent)]);
    assert_eq!(outgoing.wake_us(), u64::MAX);
    let (mut outgoing, _) = sender(snapshot(9).bytes);
    let (mut now_us, mut offers, mut ended) = (0, 0, Vec::new());
    while ended.is_empty() {
        now_us = outgoing.wake_us();
        let mut out = Vec::new();
        outgoing.turn(now_us, &mut out);
        for action in out {
            match action {
                TransferAction::Send {
                    message: TransferMessage::Offer { attempt, id, .. },
                    ..
                } => {
                    offers += 1;
                    let told = have(attempt, id, id.bytes);
                    outgoing.handle(member(2), &told, now_us, &mut Vec::new());
                }
                other => ended.push(other),
            }
        }
    }
    assert_eq!(ended, [report(TransferEnd::Stalled)]);
    assert_eq!(now_us, 120 * SECOND, "it has so long to verify the whole");
    assert!((10..30).contains(&offers), "{offers} offers");
}

#[test]
fn a_damaged_or_missing_snapshot_ends_the_transfer_and_asks_for_another() {
    for gone in [true, false] {
        let (mut outgoing, mut out, id) = (OutgoingTransfers::default(), Vec::new(), snapshot(9));
        if gone {
            outgoing.start(member(2), step(5, id), 0, &mut Vec::new());
            outgoing.found(member(2), id.point, None, 0, &mut out);
        } else {
            (outgoing, _) = sender(0);
            outgoing.read(member(2), id, 0, Err(SnapshotUnreadable::Damaged), &mut out);
        }
        assert_eq!(out, [report(TransferEnd::Damaged)]);
        assert!(TransferEnd::Damaged.is_damage() && !outgoing.is_sending(member(2)));
    }
    assert!(TransferEnd::Refused(TransferRefusal::Damaged).is_damage());
    assert!(
        !TransferEnd::Refused(TransferRefusal::Disk).is_damage()
            && !TransferEnd::Unreadable.is_damage()
    );
}

#[test]
fn a_leader_that_was_replaced_stops_sending() {
    let (mut outgoing, _) = sender(0);
    let mut out = Vec::new();
    outgoing.end_others(Some(5), &mut out);
    assert_eq!(out, []);
    outgoing.end_others(None, &mut out);
    assert_eq!(out, [report(TransferEnd::NotLeading)]);
}

#[test]
fn a_newer_request_takes_the_place_of_the_older_one() {
    let (mut outgoing, _) = sender(0);
    let mut out = Vec::new();
    outgoing.start(member(2), step(6, snapshot(9)), 0, &mut out);
    assert_eq!(out, [TransferAction::Send { to: member(2), message: offer(2, 6, snapshot(9)) }]);
    out.clear();
    outgoing.start(member(2), step(6, snapshot(12)), 0, &mut out);
    assert_eq!(out, [TransferAction::Find { to: member(2), point: snapshot(12).point }]);
    out.clear();
    outgoing.handle(member(2), &TransferMessage::Done { id: snapshot(9) }, 0, &mut out);
    assert_eq!(out, [], "the report is that of the newer");
}

#[test]
fn no_more_than_the_window_is_on_its_way() {
    let (mut outgoing, mut out) = (OutgoingTransfers::default(), Vec::new());
    let id = SnapshotId { bytes: 100 * CHUNK_BYTES, ..snapshot(9) };
    outgoing.start(member(2), step(5, id), 0, &mut Vec::new());
    outgoing.found(member(2), id.point, Some(id), 0, &mut Vec::new());
    outgoing.handle(member(2), &have(1, id, 0), 0, &mut out);
    assert_eq!(out.len() as u64, WINDOW_BYTES / CHUNK_BYTES);
    out.clear();
    outgoing.handle(member(2), &have(1, id, CHUNK_BYTES), 0, &mut out);
    assert_eq!(out.len(), 1);
}
