//! Defines the fuzz targets: no input may make a decoder or `apply` panic, allocate without bound, or disagree with
//! itself.
//!
//! Each function is one target. libFuzzer runs it (`cargo xtask fuzz run TARGET`), and the tests run it over the inputs
//! kept in `fuzz/corpus`.

// The same commands that the machine's own tests run on forged states.
#[path = "../../crates/core/tests/script/exercise.rs"]
mod exercise;
pub mod measured;
#[path = "../../crates/cli/src/serve/file.rs"]
mod settings;

use std::hint::black_box;
use std::sync::Arc;

use bytes::Bytes;
use tenure_core::Machine;
use tenure_core::codec::{decode_request, encode_request, open_entry};
use tenure_core::outcome::Effects;
use tenure_fence::ticket::{Forged, KeySet, Resource, TICKET_BYTES_MAX, Tickets};
use tenure_raft::Message;
use tenure_server::{backup, untrusted};
use tenure_store::sim::SimDisk;
use tenure_store::{DirectoryIdentity, Disk, Log, LogOptions, SEGMENT_BYTES_MIN, Snapshots};
use tenure_types::{Epoch, Term};
use tenure_wire::refusal::refusal_from;
use tenure_wire::{Message as _, v1};

use exercise::exercise;
use measured::{MESSAGE, STATE, bounded};

/// A set with one key, for tickets.
const KEYS: &str = concat!(
    r#"{"cluster":"5f3a0000000000000000000000000001","epoch":2,"incarnation":"00000000000000af","keys":["#,
    r#"{"kty":"OKP","crv":"Ed25519","kid":"k","x":"6kpsY-KcUgq-9VB7Ey7F-ZVHdq6-vnuSQh7qaRRG0iw","#,
    r#""epoch":2,"incarnation":"00000000000000af"}]}"#,
);

/// Checks that a request that can be decoded is encoded to the same bytes.
pub fn request(bytes: &[u8]) {
    let read = bounded(bytes, MESSAGE, || black_box(decode_request(bytes)));
    let Ok(request) = read else { return };
    let mut again = Vec::new();
    encode_request(&request, &mut again);
    assert_eq!(again, bytes, "a request has one form");
}

/// Checks that a message of another member that can be decoded is encoded to the same bytes.
pub fn message(bytes: &[u8]) {
    let bytes = Bytes::copy_from_slice(bytes);
    let read = bounded(&bytes, MESSAGE, || black_box(Message::decode(&bytes)));
    let Ok(message) = read else { return };
    assert!(message.encode() == bytes, "a message has one form");
}

/// Checks that a snapshot that can be decoded is a consistent state, and is encoded to the same bytes.
pub fn snapshot(bytes: &[u8]) {
    // The hash at the end would reject every changed input before anything else reads it.
    let mended = mend_hash(bytes);
    for bytes in [bytes, &mended] {
        let read = bounded(bytes, STATE, || black_box(Machine::decode(bytes)));
        let Ok(mut machine) = read else { continue };
        assert!(machine.encode() == bytes, "a snapshot has one form");
        exercise(&mut machine);
        let mut effects = Effects::default();
        let tick = tenure_core::codec::seal_entry(Term(1 << 40), 1 << 50, []);
        machine.apply(Term(1 << 40), Some(&tick), &mut effects);
        check(&machine);
    }
}

/// Checks that `apply` continues and leaves a consistent state, whatever the log contains.
///
/// The input is a sequence of entries, each behind its length (two bytes) and term (one byte).
pub fn apply(bytes: &[u8]) {
    let mut machine = Machine::new(Epoch::default());
    let mut effects = Effects::default();
    let mut rest = bytes;
    while let Some((&[low, high, term], after)) = rest.split_first_chunk::<3>() {
        let len = usize::from(u16::from_le_bytes([low, high])).min(after.len());
        let (payload, after) = after.split_at(len);
        rest = after;
        let payload = (!payload.is_empty()).then_some(payload);
        machine.apply(Term(u64::from(term)), payload, &mut effects);
        let commands =
            payload.and_then(|payload| open_entry(payload).ok()).map_or(0, Iterator::count);
        assert_eq!(effects.outcomes.len(), commands, "every command is answered");
        check(&machine);
    }
}

/// Decodes a gRPC message, and the command in it.
pub fn grpc(bytes: &[u8]) {
    bounded(bytes, MESSAGE, || untrusted::grpc(bytes));
}

/// Decodes an HTTP body.
pub fn json(bytes: &[u8]) {
    bounded(bytes, MESSAGE, || untrusted::json(bytes));
}

/// Decodes a message of the JSON session.
pub fn socket(bytes: &[u8]) {
    if let Ok(text) = str::from_utf8(bytes) {
        bounded(bytes, MESSAGE, || untrusted::socket(text));
    }
}

/// Decodes a message of the plain lock protocol.
pub fn plain(bytes: &[u8]) {
    if let Ok(text) = str::from_utf8(bytes) {
        bounded(bytes, MESSAGE, || untrusted::plain(text));
    }
}

/// Decodes an HTTP path and query, with the durations and numbers in it.
pub fn query(bytes: &[u8]) {
    if let Ok(text) = str::from_utf8(bytes) {
        bounded(bytes, MESSAGE, || untrusted::query(text));
    }
}

/// Decodes the commands, admin requests and answers that members send each other.
pub fn forwarded(bytes: &[u8]) {
    bounded(bytes, MESSAGE, || untrusted::forwarded(bytes));
}

/// Decodes a length-prefixed message in lines, as sent to the members' port.
pub fn control(bytes: &[u8]) {
    bounded(bytes, MESSAGE, || untrusted::control(bytes));
}

/// Decodes the lines that members write to disk.
pub fn line(bytes: &[u8]) {
    if let Ok(text) = str::from_utf8(bytes) {
        bounded(bytes, MESSAGE, || text.lines().for_each(untrusted::line));
    }
}

/// Decodes what a member sends to its clients: messages of sessions and watches, and the errors in them.
pub fn answer(bytes: &[u8]) {
    let Some((kind, bytes)) = bytes.split_first() else { return };
    bounded(bytes, MESSAGE, || match kind % 3 {
        0 => {
            let Ok(said) = v1::SessionResponse::decode(bytes) else { return };
            for answer in said.answers {
                if let Some(v1::answer::Result::Error(error)) = answer.result {
                    black_box(refusal_from(&error));
                }
            }
        }
        1 => {
            let Ok(said) = v1::WatchResponse::decode(bytes) else { return };
            black_box(said.into_fields());
        }
        _ => {
            let Ok(error) = v1::Error::decode(bytes) else { return };
            black_box(refusal_from(&error));
        }
    });
}

/// Decodes the body of `POST /write`.
pub fn write(bytes: &[u8]) {
    bounded(bytes, MESSAGE, || black_box(tenure_gate::store::is_write(bytes)));
}

/// Opens a segment of the log, as a disk may have kept it.
pub fn segment(bytes: &[u8]) {
    bounded(bytes, STATE, || {
        let disk = SimDisk::new(1);
        // A segment has its full size from the beginning; an input may omit the zeros at its end.
        let mut whole = bytes.to_vec();
        whole.resize(bytes.len().max(SEGMENT_BYTES_MIN as usize), 0);
        disk.plant("log/0000000000000001.seg", &whole);
        let options = LogOptions { segment_bytes: SEGMENT_BYTES_MIN, ..LogOptions::default() };
        let Ok((log, found)) = Log::open(Arc::new(disk), options) else { return };
        let entries = log.entries(found.base.index + 1, found.last.index + 1, u64::MAX);
        assert_eq!(
            entries.expect("it was found").len() as u64,
            found.last.index - found.base.index
        );
    });
}

/// Reads a snapshot, and the file that identifies a directory's owner, as a disk may have kept them.
pub fn file(bytes: &[u8]) {
    bounded(bytes, STATE, || {
        let disk = SimDisk::new(1);
        disk.plant("identity.toml", bytes);
        disk.plant("snapshots/0000000000000001-0000000000000001.snap", bytes);
        let disk: Arc<dyn Disk> = Arc::new(disk);
        if let Ok(Some(identity)) = DirectoryIdentity::read(&*disk) {
            identity.write(&*disk).expect("it can be written back");
            let again = DirectoryIdentity::read(&*disk).expect("it can be read back");
            assert_eq!(again, Some(identity), "it is written as it is read");
        }
        let Ok(snapshots) = Snapshots::open(disk) else { return };
        for id in snapshots.complete().unwrap_or_default() {
            let Ok(mut reader) = snapshots.read(id) else { continue };
            while let Ok(Some(part)) = reader.next_chunk() {
                black_box(part);
            }
        }
    });
}

/// Reads the head of a backup, which says what it was taken from, and how long the file is.
pub fn backup(bytes: &[u8]) {
    let read = bounded(bytes, MESSAGE, || black_box(backup::BackupHead::read(&mut &bytes[..])));
    let Ok((head, read)) = read else { return };
    assert!(bytes.starts_with(&read) && read.len() <= 4096 + 16, "a head is short");
    black_box(head.file_bytes());
}

/// Reads a configuration file. An error names one of its lines.
pub fn config(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else { return };
    match bounded(bytes, MESSAGE, || black_box(settings::read(text))) {
        Ok(settings) => drop(black_box(settings)),
        Err(wrong) => {
            assert!(wrong.line <= text.matches('\n').count() + 1, "the line is there");
            assert!(!wrong.what.contains('\n'), "one line says it");
        }
    }
}

/// Checks that an unsigned ticket is refused, and so is an invalid set of keys.
///
/// The first line of the input is the ticket, the rest the set. The ticket is checked with that set, and with one whose
/// keys are known here, so that everything up to the signature is reached.
pub fn ticket(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else { return };
    let _ = black_box(tenure_fence::parse_token(text));
    let (ticket, set) = text.split_once('\n').unwrap_or((text, KEYS));
    for set in [set, KEYS] {
        let read = bounded(bytes, MESSAGE, || black_box(KeySet::parse(set)));
        let Ok(keys) = read else { continue };
        let tickets = Tickets::new(keys);
        let whole = Resource::new("ledger").exclusive();
        for resource in [whole, Resource::new(("ledger", 3)).holder("ana")] {
            match bounded(bytes, MESSAGE, || tickets.check(ticket, &resource)) {
                // Only tickets in the corpus were ever signed, with a key that is public.
                Ok(ticket) => assert!(ticket.lock == "ledger" && ticket.token.get() > 0),
                Err(forged) => {
                    let long = matches!(forged, Forged::TooLong);
                    assert_eq!(long, ticket.len() > TICKET_BYTES_MAX, "bounded before all else");
                    black_box(forged.to_string());
                }
            }
        }
    }
}

fn check(machine: &Machine) {
    if let Err(violation) = machine.check_invariants() {
        panic!("{violation}");
    }
}

/// Returns the same snapshot with a correct hash.
fn mend_hash(bytes: &[u8]) -> Vec<u8> {
    // The last frame is a length, a section and sixteen bytes of hash.
    const END: usize = 8 + 1 + 16;
    let Some(body) = bytes.len().checked_sub(END) else { return bytes.to_vec() };
    let mut mended = bytes.to_vec();
    let hash = tenure_core::codec::snapshot_hash(&bytes[..body]);
    mended[body + 9..].copy_from_slice(&hash.to_le_bytes());
    mended
}
