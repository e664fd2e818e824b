//! Tests that snapshots are whole, found, kept, and received in pieces.

#![allow(clippy::cast_possible_truncation, reason = "the numbers of these tests are small")]

use std::sync::Arc;

use crate::support::{check_snapshots, checks, write_snapshot};
use tenure_store::{
    LogId, RawSnapshot, SnapshotError, SnapshotId, SnapshotReceiver, Snapshots,
    sim::{Restart, Rng, SimDisk, UnreadableRange},
};

fn point(index: u64) -> LogId {
    LogId { index, term: 2 }
}

fn snapshots(disk: &SimDisk) -> Snapshots {
    Snapshots::open(Arc::new(disk.clone())).unwrap()
}

fn read(snapshots: &Snapshots, id: SnapshotId) -> Result<Vec<u8>, SnapshotError> {
    let mut reader = snapshots.read(id)?;
    let mut data = Vec::new();
    while let Some(chunk) = reader.next_chunk()? {
        data.extend_from_slice(&chunk);
    }
    assert_eq!(data.len() as u64, reader.data_bytes());
    Ok(data)
}

/// A sender's snapshot with several chunks.
fn large(disk: &SimDisk) -> (Vec<u8>, RawSnapshot) {
    let snapshots = snapshots(disk);
    let mut rng = Rng::new(9);
    let data: Vec<u8> = (0..2_700_000 / 8).flat_map(|_| rng.next().to_le_bytes()).collect();
    let mut writer = snapshots.write(point(70), b"members").unwrap();
    for part in data.chunks(100_000) {
        writer.append(part).unwrap();
    }
    let id = writer.finish().unwrap();
    (data, snapshots.raw(id).unwrap())
}

#[test]
fn a_large_snapshot_is_synced_in_parts_and_says_how_long_the_disk_was_busy() {
    let disk = SimDisk::new(1);
    let mut writer = snapshots(&disk).write(point(3), b"members").unwrap();
    let part = vec![7; 1_000_000];
    let busy = (0..20).filter(|_| !writer.append(&part).unwrap().is_zero());
    assert_eq!(busy.count(), 4, "every four megabytes");
    writer.finish().unwrap();
}

#[test]
fn the_newest_two_are_kept_and_a_damaged_one_is_passed_over() {
    let disk = SimDisk::new(1);
    let snapshots = snapshots(&disk);
    assert_eq!(snapshots.latest().unwrap(), None);
    for index in [3, 9, 12] {
        write_snapshot(&snapshots, point(index)).unwrap();
    }
    let kept = snapshots.complete().unwrap();
    assert_eq!(kept.iter().map(|id| id.point.index).collect::<Vec<_>>(), [12, 9]);
    assert_eq!(snapshots.covering(point(12)).unwrap(), Some(kept[0]));

    let newest = disk.files().pop().unwrap();
    disk.flip_bit(&newest, 20, 1);
    assert_eq!(snapshots.latest().unwrap(), Some(kept[1]));
    let error = snapshots.covering(point(12)).unwrap_err();
    assert_eq!(error.to_string(), "no snapshot reaches index 12, where the log starts");
    write_snapshot(&snapshots, point(15)).unwrap();
    write_snapshot(&snapshots, point(16)).unwrap();
    assert_eq!(disk.files().len(), 2, "the damaged one is gone with its generation");
    check_snapshots(&disk, point(16));
}

#[test]
fn a_running_member_takes_and_gives_snapshots_although_the_format_of_an_older_one_is_damaged() {
    let (disk, sender) = (SimDisk::new(1), SimDisk::new(2));
    let here = snapshots(&disk);
    write_snapshot(&here, point(3)).unwrap();
    let older = disk.files().pop().unwrap();
    write_snapshot(&here, point(9)).unwrap();
    disk.flip_bit(&older, 8, 7);
    assert_eq!(here.complete().unwrap().len(), 1, "the newer one can be sent");
    let at_its_start = here.covering(point(9)).unwrap_err();
    assert!(matches!(at_its_start, SnapshotError::Format { .. }), "{at_its_start:?}");
    let (_, raw) = large(&sender);
    let mut incoming = here.receive(raw.id()).unwrap();
    incoming.append(0, &raw.read_at(0, usize::try_from(raw.id().bytes).unwrap()).unwrap()).unwrap();
    assert_eq!(incoming.finish().unwrap(), raw.id());
    assert_eq!(here.latest().unwrap(), Some(raw.id()));
}

#[test]
fn a_snapshot_that_is_not_finished_never_was() {
    let disk = SimDisk::new(1);
    let open = snapshots(&disk);
    let mut writer = open.write(point(4), b"").unwrap();
    writer.append(b"half").unwrap();
    drop(writer);
    assert!(disk.files().is_empty());
    let mut writer = open.write(point(4), b"").unwrap();
    writer.append(b"half").unwrap();
    std::mem::forget(writer);
    assert_eq!(disk.files().len(), 1, "a killed process cleans nothing");
    disk.restart(Restart::ProcessKilled);
    assert_eq!(snapshots(&disk).latest().unwrap(), None);
    assert!(disk.files().is_empty());
}

#[test]
fn an_empty_snapshot_is_a_snapshot() {
    let disk = SimDisk::new(1);
    let snapshots = snapshots(&disk);
    let id = snapshots.write(point(1), b"").unwrap().finish().unwrap();
    assert_eq!(read(&snapshots, id).unwrap(), b"");
}

#[test]
fn a_flipped_bit_in_any_byte_of_a_snapshot_is_noticed() {
    let disk = SimDisk::new(1);
    write_snapshot(&snapshots(&disk), point(8)).unwrap();
    let id = snapshots(&disk).latest().unwrap().unwrap();
    let name = disk.files().pop().unwrap();
    for offset in 0..id.bytes {
        let damaged = disk.fork(1);
        damaged.flip_bit(&name, offset, (offset % 8) as u8);
        let error = read(&snapshots(&damaged), id).expect_err("a flipped bit is noticed");
        assert!(
            matches!(error, SnapshotError::Corrupt { .. } | SnapshotError::Format { .. }),
            "byte {offset}: {error:?}"
        );
    }
    println!("{} bytes of a snapshot flipped, all noticed", id.bytes);
}

#[test]
fn any_bytes_in_the_place_of_a_snapshot_are_refused_without_harm() {
    let mut rng = Rng::new(3);
    let good = SimDisk::new(1);
    write_snapshot(&snapshots(&good), point(8)).unwrap();
    let id = snapshots(&good).latest().unwrap().unwrap();
    let name = good.files().pop().unwrap();
    let bytes = good.contents(&name).unwrap();
    for _ in 0..2000 {
        let mut hostile = bytes.clone();
        for _ in 0..=rng.below(6) {
            let at = rng.below(hostile.len() as u64) as usize;
            hostile[at] = [0, 1, 0x7f, 0xff, rng.next() as u8][rng.below(5) as usize];
        }
        hostile.truncate(rng.below(hostile.len() as u64 * 2) as usize);
        let disk = SimDisk::new(1);
        disk.plant(&name, &hostile);
        let snapshots = snapshots(&disk);
        let _ = snapshots.complete();
        if hostile != bytes {
            assert!(read(&snapshots, id).is_err());
        }
    }
}

#[test]
fn a_stream_that_breaks_and_a_process_that_dies_go_on_where_they_were() {
    let sender = SimDisk::new(1);
    let (data, raw) = large(&sender);
    let id = raw.id();
    let disk = SimDisk::new(2);
    let mut rng = Rng::new(4);
    let (mut attempts, mut resumed) = (0, 0);
    loop {
        attempts += 1;
        let receiver = snapshots(&disk).receive(id).unwrap();
        resumed += u64::from(receiver.have() > 0);
        if let Some(done) = feed(receiver, &raw, &mut rng) {
            assert_eq!(done, id);
            break;
        }
        // Only a power loss can remove what was received.
        disk.restart([Restart::ProcessKilled, Restart::PowerLostSome][rng.below(2) as usize]);
        assert_eq!(snapshots(&disk).latest().unwrap(), None, "half a snapshot is none");
    }
    println!("received in {attempts} attempts, {resumed} of them resumed");
    assert!(attempts > 1 && resumed > 0);
    disk.restart(Restart::PowerLostAll);
    assert_eq!(snapshots(&disk).latest().unwrap(), Some(id));
    assert_eq!(read(&snapshots(&disk), id).unwrap(), data);
}

/// Receives until the snapshot is complete or the stream breaks.
fn feed(mut receiver: SnapshotReceiver, raw: &RawSnapshot, rng: &mut Rng) -> Option<SnapshotId> {
    while receiver.have() < raw.id().bytes {
        if rng.below(8) == 0 {
            return None;
        }
        let bytes = raw.read_at(receiver.have(), 150_000).unwrap();
        receiver.append(receiver.have(), &bytes).unwrap();
    }
    Some(receiver.finish().unwrap())
}

#[test]
fn what_does_not_belong_to_a_snapshot_is_refused_by_its_receiver() {
    let sender = SimDisk::new(1);
    write_snapshot(&snapshots(&sender), point(8)).unwrap();
    let id = snapshots(&sender).latest().unwrap().unwrap();
    let raw = snapshots(&sender).raw(id).unwrap();
    let bytes = raw.read_at(0, usize::MAX).unwrap();
    let disk = SimDisk::new(2);
    let mut receiver = snapshots(&disk).receive(id).unwrap();
    let error = receiver.append(1, &bytes).unwrap_err();
    assert!(matches!(error, SnapshotError::Offset { expected: 0, found: 1 }));
    receiver.append(0, &bytes[..50]).unwrap();
    assert!(matches!(receiver.append(50, &bytes), Err(SnapshotError::Length { .. })));
    assert!(matches!(receiver.finish(), Err(SnapshotError::Length { found: 50, .. })));

    let mut spoiled = bytes.to_vec();
    spoiled[200] ^= 4;
    let mut receiver = snapshots(&disk).receive(id).unwrap();
    receiver.append(receiver.have(), &spoiled[receiver.have() as usize..]).unwrap();
    assert!(matches!(receiver.finish(), Err(SnapshotError::Corrupt { .. })));
    assert!(disk.files().is_empty(), "what cannot become a snapshot is removed");
    let receiver = snapshots(&disk).receive(id).unwrap();
    assert_eq!(receiver.have(), 0);
    receiver.discard().unwrap();
    assert!(disk.files().is_empty());
}

#[test]
fn a_damaged_snapshot_is_noticed_when_it_is_sent_and_set_aside() {
    checks::a_damaged_snapshot_is_noticed_when_it_is_sent_and_set_aside();
}

#[test]
fn repeated_and_misplaced_chunks_change_nothing() {
    checks::repeated_and_misplaced_chunks_change_nothing();
}

#[test]
fn a_transfer_that_crashes_goes_on_from_what_verifies() {
    checks::a_transfer_that_crashes_goes_on_from_what_verifies();
}

#[test]
fn a_part_that_never_reached_the_disk_is_written_again() {
    checks::a_part_that_never_reached_the_disk_is_written_again();
}

#[test]
fn a_snapshot_is_read_in_any_order_and_step() {
    let disk = SimDisk::new(1);
    let (file, id) = checks::large_snapshot(&disk, 70);
    let raw = snapshots(&disk).raw(id).unwrap();
    let mut rng = Rng::new(3);
    for _ in 0..60 {
        let (offset, max) = (rng.below(id.bytes + 10), rng.below(2_000_000));
        let end = (offset + max).min(id.bytes).max(offset);
        let expected = file.get(offset as usize..end as usize).unwrap_or_default();
        assert_eq!(raw.read_at(offset, max as usize).unwrap(), expected);
    }
}

#[test]
fn a_snapshot_that_cannot_be_read_for_a_moment_is_not_set_aside() {
    let disk = SimDisk::new(1);
    let (file, id) = checks::large_snapshot(&disk, 70);
    let name = disk.files().pop().unwrap();
    let raw = snapshots(&disk).raw(id).unwrap();
    disk.make_unreadable(&name, 1_500_000..1_500_001, UnreadableRange::Once);
    assert!(matches!(raw.read_at(1_400_000, 200_000), Err(SnapshotError::Io { .. })));
    assert_eq!(raw.read_at(1_400_000, 200_000).unwrap(), file[1_400_000..1_600_000]);
    assert_eq!(snapshots(&disk).latest().unwrap(), Some(id));
}

#[test]
fn another_snapshot_at_the_same_point_is_not_set_aside_in_the_place_of_a_damaged_one() {
    let disk = SimDisk::new(1);
    let (_, id) = checks::large_snapshot(&disk, 70);
    let raw = snapshots(&disk).raw(id).unwrap();
    disk.flip_bit(&disk.files().pop().unwrap(), 1_000_000, 1);
    write_snapshot(&snapshots(&disk), id.point).unwrap();
    assert!(matches!(raw.read_at(900_000, 200_000), Err(SnapshotError::Corrupt { .. })));
    assert_eq!(snapshots(&disk).damaged().unwrap(), []);
    check_snapshots(&disk, id.point);
}
