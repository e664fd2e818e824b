//! Tests that a state is written and read back unchanged, and that no input bytes do harm.

use tenure_core::codec::{encode_request, seal_entry};
use tenure_core::outcome::{Answer, Effects};
use tenure_core::request::{Command, Request, RequestId};
use tenure_core::{BadSnapshot, Filter, Machine, SnapshotReader};
use tenure_types::{Epoch, Refusal, Revision, Term};

use crate::script::{exercise, frames, number_len, play, rehash, replace_number};

/// A small state with every kind of record in every form.
pub(crate) const EVERYTHING: &str = "
         0s  limits history_revisions=12            set
         0s  A lease 60s meta=about-A               granted
         0s  B lease 60s                            granted
         0s  C lease 60s                            granted
         0s  D lease 60s                            granted
         0s  X lease 60s                            granted
         0s  A lock plain #1/0                      held token=1
         0s  A lock bounded meta=m delay=5s max=90s  held token=2
         0s  A campaign boss value=a                held token=3
         0s  B campaign boss value=b                queued ahead=0
         0s  A lock read shared                     held token=4
         0s  B lock read shared                     held token=5
         0s  C lock read                            queued ahead=0
         0s  A lock pool slots=2                    held token=6 slot=0
         0s  B lock pool slots=2                    held token=7 slot=1
         0s  C lock pool slots=2 wait=30s           queued ahead=0
         0s  X lock cools delay=1s                  held token=8
         0s  X lock delayed delay=30s               held token=9
         0s  D lock cools delayed                   queued ahead=0
         0s  D lock plain independent #1/0          queued ahead=0
         0s  A put bound v                          written version=1
         0s  put free v once=abc as=ann             written version=1
         0s  put free w once=def                    written version=2
         0s  A unlock nothing #3/1                  refused not-holder
         0s  A lock plain #2/1                      held token=1
         0s  put gone v                             written version=1
         0s  delete gone                            deleted
         1s  force cools token=8 reason=r           forced, free in 59s; X lost cools, forced
         1s  force delayed token=9 now              forced, free in 30s; X lost delayed, forced
         2s  X revoke                               revoked
";

/// The state of a cluster that was just restored and is still in its quiet period.
const QUIET: &str = "
         0s  A lease 60s                            granted
         0s  put free v once=abc                    written version=1
         5s  restore epoch=7                        restored
         1s  B lock x y lease=60s                   queued ahead=0
         1s  C lock x lease=60s wait=9s             queued ahead=1
";

#[test]
fn a_state_with_everything_in_it_is_read_back_as_it_was() {
    for script in [EVERYTHING, QUIET, ""] {
        let machine = play(script).machine;
        let read = Machine::decode(&machine.encode()).expect("what was written can be read");
        assert_eq!(read.encode(), machine.encode());
        assert_eq!(read.full_hash(), machine.full_hash());
        assert_eq!(read.rolling_hash(), machine.rolling_hash());
        assert_eq!(read.stats().leases, machine.stats().leases);
        assert_eq!(read.stats().deadlines, machine.stats().deadlines);
    }
}

#[test]
fn the_size_of_the_pieces_in_which_a_snapshot_arrives_does_not_matter() {
    let bytes = play(EVERYTHING).machine.encode();
    for size in [1, 2, 3, 7, 64, bytes.len()] {
        let mut reader = SnapshotReader::default();
        for piece in bytes.chunks(size) {
            reader.push(piece).expect("a piece");
        }
        assert_eq!(reader.finish().expect("all pieces").encode(), bytes);
    }
}

#[test]
fn rules_that_a_build_does_not_know_are_refused_and_noticed() {
    let mut machine = Machine::new(Epoch::default());
    let raise = |machine: &mut Machine, level| {
        let mut bytes = Vec::new();
        let command = Command::RaiseLevel { level };
        encode_request(&Request { principal: "", id: RequestId::None, command }, &mut bytes);
        let entry = seal_entry(Term(1), 0, [bytes.as_slice()]);
        let mut effects = Effects::default();
        machine.apply(Term(1), Some(&entry), &mut effects);
        effects.outcomes.remove(0).result
    };
    assert!(machine.is_new());
    machine.know_level(3);
    assert_eq!(raise(&mut machine, 2), Ok(Answer::LevelRaised));
    assert_eq!((machine.level(), machine.outgrown()), (2, None));
    // Builds that know higher and lower levels answer alike.
    let lower = Err(Refusal::InvalidLevel { from: 2, to: 2 });
    assert_eq!(raise(&mut machine, 1), lower);
    machine.know_level(2);
    assert_eq!(raise(&mut machine, 1), lower);
    assert_eq!(raise(&mut machine, 3), Err(Refusal::InvalidLevel { from: 2, to: 2 }));
    assert_eq!((machine.level(), machine.outgrown()), (2, Some(3)));

    let bytes = machine.encode();
    let refused = SnapshotReader::knowing(1).push(&bytes);
    assert_eq!(refused, Err(BadSnapshot::Level { level: 2, known: 1 }));
    let mut reader = SnapshotReader::knowing(2);
    reader.push(&bytes).expect("its level is known");
    assert_eq!(reader.finish().expect("it is whole").encode(), bytes);
}

#[test]
fn a_snapshot_that_was_cut_off_is_refused_wherever_it_was_cut() {
    for script in [EVERYTHING, QUIET, ""] {
        let bytes = play(script).machine.encode();
        for len in 0..bytes.len() {
            assert!(Machine::decode(&bytes[..len]).is_err(), "cut at {len}");
        }
    }
}

#[test]
fn a_snapshot_with_something_after_its_end_is_refused() {
    let bytes = play(EVERYTHING).machine.encode();
    assert!(Machine::decode(&[bytes.as_slice(), &[0]].concat()).is_err());
    assert!(Machine::decode(&[bytes.as_slice(), bytes.as_slice()].concat()).is_err());
}

#[test]
fn a_snapshot_of_which_a_single_bit_was_flipped_is_refused() {
    for script in [EVERYTHING, QUIET, ""] {
        let mut bytes = play(script).machine.encode();
        for at in 0..bytes.len() {
            for bit in 0..8 {
                bytes[at] ^= 1 << bit;
                assert!(Machine::decode(&bytes).is_err(), "bit {bit} of byte {at}");
                bytes[at] ^= 1 << bit;
            }
        }
    }
}

#[test]
fn bytes_that_are_no_snapshot_are_refused_as_such() {
    let bytes = play(EVERYTHING).machine.encode();
    assert_eq!(Machine::decode(b"").err(), Some(BadSnapshot::Incomplete));
    assert_eq!(Machine::decode(b"something").err(), Some(BadSnapshot::Version));
    let mut other = bytes.clone();
    other[7] = 2;
    assert_eq!(Machine::decode(&other).err(), Some(BadSnapshot::Version));
    let mut hash = bytes;
    *hash.last_mut().expect("bytes") ^= 1;
    assert_eq!(Machine::decode(&hash).err(), Some(BadSnapshot::Hash));
}

#[test]
fn a_forged_snapshot_whose_hash_is_right_is_refused_or_is_a_sound_state() {
    let (mut refused, mut sound) = (0, 0_usize);
    for script in [EVERYTHING, QUIET] {
        let bytes = play(script).machine.encode();
        for at in 0..bytes.len() - 21 {
            for change in [1, 2, 4, 8, 16, 32, 64, 128, 127, 255] {
                let mut forged = bytes.clone();
                forged[at] ^= change;
                rehash(&mut forged);
                match Machine::decode(&forged) {
                    Err(_) => refused += 1,
                    Ok(machine) => {
                        sound += 1;
                        assert_sound(&machine, sound);
                        assert_goes_on(machine);
                    }
                }
            }
        }
    }
    assert!(refused > 1_000 && sound > 100, "refused {refused}, sound {sound}");
}

#[test]
fn a_forged_number_however_large_is_refused_or_part_of_a_sound_state() {
    let large = [1 << 48, (1 << 60) - 1, 1 << 62, u64::MAX];
    let numbers = [0, 1, 200, 1 << 31, u64::from(u32::MAX), (1 << 48) - 1];
    let numbers = numbers.into_iter().chain(large);
    let (mut refused, mut sound) = (0, 0_usize);
    for script in [EVERYTHING, QUIET] {
        let bytes = play(script).machine.encode();
        for (frame, end) in frames(&bytes) {
            let places = (frame + 9..end).filter(|at| at + number_len(&bytes[*at..]) <= end);
            for (at, number) in
                places.flat_map(|at| numbers.clone().map(move |number| (at, number)))
            {
                let mut forged = bytes.clone();
                replace_number(&mut forged, frame, at, number);
                match Machine::decode(&forged) {
                    Err(_) => refused += 1,
                    Ok(machine) => {
                        sound += 1;
                        assert_sound(&machine, sound);
                    }
                }
            }
        }
    }
    assert!(refused > 1_000 && sound > 100, "refused {refused}, sound {sound}");
}

/// Checks that an accepted state keeps the invariants, can be encoded, and answers every query. A sample of the states
/// also takes every command; the fuzzer does that with all.
fn assert_sound(machine: &Machine, number: usize) {
    machine.check_invariants().expect("a state that was let in keeps the invariants");
    assert_eq!(Machine::decode(&machine.encode()).map(|m| m.full_hash()), Ok(machine.full_hash()));
    for lock in machine.sorted_locks(usize::MAX).unwrap().locks("", None, 100) {
        machine.queue(&lock.lock, None, 100);
        machine.explain(None, &lock.lock, 100);
    }
    machine.leases(None, 100);
    machine.keys("", None, 100);
    machine.events(machine.floor(), Filter::All, 100).expect("the floor can be asked for");
    if number.is_multiple_of(64) {
        exercise(&mut Machine::decode(&machine.encode()).expect("what was written can be read"));
    }
}

/// Checks that everything in a state ends at its deadline, however odd the state is.
fn assert_goes_on(mut machine: Machine) {
    for count_ms in [1_000, 20_000, 40_000, 70_000, 10_000_000, u64::MAX] {
        let payload = tenure_core::codec::seal_entry(Term(2), count_ms, []);
        machine.apply(Term(2), Some(&payload), &mut Effects::default());
        machine.check_invariants().expect("time breaks no invariant");
    }
}

#[test]
fn a_frozen_state_does_not_see_what_happens_after_it() {
    let mut machine = play(EVERYTHING).machine;
    let before = machine.encode();
    let frozen = machine.freeze();
    let payload = tenure_core::codec::seal_entry(Term(1), 3_600_000, []);
    machine.apply(Term(1), Some(&payload), &mut Effects::default());
    let mut written = Vec::new();
    let hash = frozen.write(&mut |piece| written.extend_from_slice(piece));
    assert_eq!(written, before);
    assert_ne!(machine.encode(), before);
    assert_eq!(hash, Machine::decode(&before).expect("a snapshot").full_hash());
    assert!(frozen.revision() < machine.revision());
}

#[test]
fn a_new_state_is_a_state_of_any_epoch() {
    let machine = Machine::new(Epoch::MAX);
    let read = Machine::decode(&machine.encode()).expect("what was written can be read");
    assert_eq!(read.epoch(), Epoch::MAX);
    assert_eq!(read.revision(), Epoch::MAX.revision(Revision(0)));
}
