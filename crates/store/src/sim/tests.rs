//! Tests that each fault of the simulated disk has the effect it documents.

use super::*;

fn written(disk: &SimDisk) -> Arc<dyn File> {
    let file = disk.create("a").unwrap();
    file.write_at(0, &[1; 2048]).unwrap();
    file
}

#[test]
fn a_synced_file_without_a_synced_name_is_lost() {
    let disk = SimDisk::new(1);
    written(&disk).sync().unwrap();
    disk.restart(Restart::PowerLostAll);
    assert!(disk.files().is_empty());
    assert_eq!(disk.counts()[&DiskFault::LostDirectoryChange], 1);
}

#[test]
fn what_was_synced_survives_and_the_rest_is_torn_at_sectors() {
    let disk = SimDisk::new(2);
    let file = written(&disk);
    file.sync().unwrap();
    disk.sync_dir("").unwrap();
    file.write_at(100, &[2; 1900]).unwrap();
    disk.restart(Restart::PowerLostSome);
    assert!(file.sync().is_err(), "a file of an earlier run no longer works");
    let found = disk.contents("a").unwrap();
    assert_eq!(found[..100], [1; 100]);
    for sector in found[512..1536].chunks(SECTOR_BYTES) {
        assert!(sector.iter().all(|byte| *byte == sector[0]), "a sector is whole");
    }
}

#[test]
fn a_failed_sync_leaves_pages_that_look_fine_until_the_power_fails() {
    let disk = SimDisk::new(3);
    let file = written(&disk);
    disk.sync_dir("").unwrap();
    disk.plan(DiskFault::SyncError);
    assert!(file.sync().is_err());
    assert!(file.sync().is_ok(), "the second sync lies");
    assert_eq!(disk.contents("a").unwrap(), [1; 2048]);
    disk.restart(Restart::PowerLostAll);
    assert!(disk.contents("a").unwrap().is_empty());
}

#[test]
fn a_full_disk_takes_what_fits_and_says_so() {
    let disk = SimDisk::new(4);
    disk.set_capacity(Some(1000));
    let file = disk.create("a").unwrap();
    let error = file.write_at(0, &[1; 2048]).unwrap_err();
    assert!(crate::disk::is_full(&error));
    assert_eq!((file.size().unwrap(), disk.free_bytes().unwrap()), (1000, 0));
    disk.remove("a").unwrap();
    assert_eq!(disk.free_bytes().unwrap(), 1000);
}

#[test]
fn the_same_seed_and_calls_end_in_the_same_bytes() {
    let run = || {
        let disk = SimDisk::new(5);
        disk.set_rates(FaultRates { slow_sync: 0.5, ..FaultRates::default() });
        let file = written(&disk);
        disk.sync_dir("").unwrap();
        let took: Vec<_> = (0..8).map(|_| file.sync().unwrap()).collect();
        file.write_at(0, &[7; 2048]).unwrap();
        disk.restart(Restart::PowerLostSome);
        (took, disk.contents("a"), disk.counts())
    };
    assert_eq!(run(), run());
}

/// A durable file of four sectors, each filled with its own number, all written twice.
fn durable(seed: u64) -> (SimDisk, Arc<dyn File>) {
    let disk = SimDisk::new(seed);
    let file = disk.create("a").unwrap();
    disk.sync_dir("").unwrap();
    for round in [0x10, 0x20] {
        for sector in 0..4_u8 {
            file.write_at(u64::from(sector) * 512, &[round + sector; SECTOR_BYTES]).unwrap();
        }
        file.sync().unwrap();
    }
    (disk, file)
}

fn count(disk: &SimDisk, fault: DiskFault) -> u64 {
    disk.counts().get(&fault).copied().unwrap_or(0)
}

#[test]
fn an_unreadable_range_fails_once_or_always_and_only_there() {
    let (disk, file) = durable(1);
    let mut sector = [0; SECTOR_BYTES];
    disk.make_unreadable("a", 600..601, UnreadableRange::Once);
    file.read_at(0, &mut sector).unwrap();
    assert!(file.read_at(512, &mut sector).is_err());
    file.read_at(512, &mut sector).unwrap();
    disk.make_unreadable("a", 600..601, UnreadableRange::Always);
    assert!((0..3).all(|_| file.read_at(512, &mut sector).is_err()));
    assert_eq!(count(&disk, DiskFault::ReadError), 4);
    disk.make_readable();
    disk.plan(DiskFault::ReadError);
    assert!(file.read_at(0, &mut sector).is_err());
    file.read_at(0, &mut sector).unwrap();
}

#[test]
fn a_misdirected_write_leaves_its_place_as_it_was_and_spoils_another() {
    let mut misdirected = 0;
    for seed in 0..40 {
        let (disk, file) = durable(seed);
        disk.plant("b", &[7; 2048]);
        disk.plan(DiskFault::MisdirectedWrite);
        file.write_at(512, &[9; SECTOR_BYTES]).unwrap();
        file.sync().unwrap();
        disk.restart(Restart::PowerLostAll);
        let nines =
            |name| disk.contents(name).unwrap().chunks(512).filter(|sector| sector[0] == 9).count();
        assert_eq!(nines("a") + nines("b"), 1, "one sector holds it");
        let there = disk.contents("a").unwrap()[512] == 9;
        assert_eq!(
            there,
            count(&disk, DiskFault::MisdirectedWrite) == 0,
            "counted if it had an effect"
        );
        misdirected += u64::from(!there);
    }
    assert!(misdirected > 20);
}

#[test]
fn a_stale_sector_holds_what_it_held_before_its_last_durable_write() {
    let (disk, file) = durable(1);
    assert_eq!(disk.changed_sectors("a"), [0, 512, 1024, 1536]);
    assert!(disk.make_stale("a", 600));
    assert!(!disk.make_stale("a", 600), "there is nothing older");
    let bytes = disk.contents("a").unwrap();
    assert_eq!((bytes[0], bytes[512], bytes[1024]), (0x20, 0x11, 0x22));
    assert_eq!(count(&disk, DiskFault::StaleSector), 1);

    disk.plan(DiskFault::StaleSector);
    file.write_at(0, &[9; SECTOR_BYTES]).unwrap();
    file.sync().unwrap();
    assert_eq!(disk.contents("a").unwrap()[0], 9, "memory still shows it");
    disk.restart(Restart::PowerLostAll);
    assert_eq!(disk.contents("a").unwrap()[0], 0x20);
    assert_eq!(count(&disk, DiskFault::StaleSector), 2);
}

#[test]
fn damage_while_running_is_durable_and_counted() {
    let (disk, file) = durable(1);
    let good = disk.contents("a").unwrap();
    disk.plan(DiskFault::DamageWhileRunning);
    let mut sector = [0; SECTOR_BYTES];
    file.read_at(0, &mut sector).unwrap();
    assert!(disk.damage_while_running("a").is_some());
    disk.restart(Restart::PowerLostAll);
    let pairs = good.iter().zip(disk.contents("a").unwrap());
    let flipped: u32 = pairs.map(|(good, found)| (good ^ found).count_ones()).sum();
    assert_eq!((flipped, count(&disk, DiskFault::DamageWhileRunning)), (2, 2));
}

#[test]
fn the_newest_batch_is_the_last_write_that_was_synced() {
    let (disk, file) = durable(1);
    file.write_at(100, &[3; 50]).unwrap();
    file.sync().unwrap();
    file.write_at(1000, &[4; 50]).unwrap();
    assert_eq!(disk.newest_batch(""), Some(("a".into(), 100..150)));
    let (name, offset) = disk.damage_newest_batch("").unwrap();
    assert!(name == "a" && (100..150).contains(&offset));
    assert_eq!(disk.newest_batch("log"), None);
    assert_eq!(count(&disk, DiskFault::DamagedNewestBatch), 1);
}

#[test]
fn a_lying_sync_makes_nothing_durable_until_it_is_told_to_stop() {
    let (disk, file) = durable(1);
    disk.set_lying_syncs(true);
    file.write_at(0, &[9; SECTOR_BYTES]).unwrap();
    file.sync().unwrap();
    drop(disk.create("b").unwrap());
    disk.sync_dir("").unwrap();
    let honest = disk.fork(1);
    disk.restart(Restart::PowerLostAll);
    assert_eq!((disk.contents("a").unwrap()[0], disk.files().len()), (0x20, 1));
    assert_eq!(count(&disk, DiskFault::LyingSync), 2);

    honest.set_lying_syncs(false);
    honest.open("a").unwrap().sync().unwrap();
    honest.restart(Restart::PowerLostAll);
    assert_eq!(honest.contents("a").unwrap()[0], 9);
}

#[test]
fn an_outage_fails_changes_or_everything_until_it_ends() {
    let (disk, file) = durable(1);
    let mut sector = [0; SECTOR_BYTES];
    disk.set_outage(Some(Outage::ReadOnly));
    assert_eq!(file.write_at(0, &[1]).unwrap_err().kind(), ErrorKind::ReadOnlyFilesystem);
    assert!(file.sync().is_err() && disk.remove("a").is_err() && disk.create("b").is_err());
    file.read_at(0, &mut sector).unwrap();
    disk.set_outage(Some(Outage::Device));
    assert!(file.read_at(0, &mut sector).is_err() && file.sync().is_err());
    assert!(disk.list("").is_err() && disk.open("a").is_err());
    assert_eq!((count(&disk, DiskFault::ReadOnly), count(&disk, DiskFault::DeviceError)), (4, 4));
    disk.set_outage(None);
    file.sync().unwrap();
}
