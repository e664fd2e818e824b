//! Shows and repairs the floor of a proxy that is stopped.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;

use tenure_fence::http::{FloorFile, Keep as _};
use tenure_fence::{Floor, LockSlot};

use crate::listen::StartError;
use crate::repair::{FloorRepair, RepairRequest};

/// The file of the floor, and that of the records, one line of JSON each.
pub(super) const FLOOR: &str = "floor";
const REPAIRS: &str = "repairs.jsonl";

/// Sets the floor, also to a lower token than before, and records who did so and why. Both are durable when this
/// returns, the record first. The proxy must be stopped.
pub fn repair_floor(data: &Path, ask: &RepairRequest<'_>) -> Result<FloorRepair, StartError> {
    if ask.reason.trim().is_empty() {
        return Err(StartError::Setting("--reason is empty".to_owned()));
    }
    let mut file = existing(data, ask.at)?;
    let disk = |source| StartError::Disk { what: data.display().to_string(), source };
    let (after, record) = ask.apply(file.load().map_err(disk)?);
    append(&data.join(REPAIRS), &record).map_err(disk)?;
    file.keep(after).map_err(disk)?;
    Ok(record)
}

/// Returns the floor. The proxy must be stopped.
pub fn floor(data: &Path, at: LockSlot<'_>) -> Result<Floor, StartError> {
    let disk = |source| StartError::Disk { what: data.display().to_string(), source };
    existing(data, at)?.load().map_err(disk)
}

/// Returns the repairs that were made, oldest first. A repair that was cut off may be recorded without effect.
pub fn repairs(data: &Path) -> Result<Vec<FloorRepair>, StartError> {
    let path = data.join(REPAIRS);
    let what = path.display().to_string();
    let text = match fs::read_to_string(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        read => read.map_err(|source| StartError::Disk { what: what.clone(), source })?,
    };
    let parse = |line| serde_json::from_str(line);
    let records: Result<Vec<FloorRepair>, _> = text.lines().map(parse).collect();
    records.map_err(|error| StartError::Unreadable { what, why: error.to_string() })
}

fn existing(data: &Path, at: LockSlot<'_>) -> Result<FloorFile, StartError> {
    let disk = |source| StartError::Disk { what: data.display().to_string(), source };
    if !data.join(FLOOR).is_file() {
        return Err(disk(io::Error::new(io::ErrorKind::NotFound, "there is no floor")));
    }
    FloorFile::open(data.join(FLOOR), at).map_err(disk)
}

fn append(path: &Path, record: &FloorRepair) -> io::Result<()> {
    let mut line = serde_json::to_string(record)?;
    line.push('\n');
    let mut file = File::options().create(true).append(true).open(path)?;
    file.write_all(line.as_bytes())?;
    file.sync_all()?;
    path.parent().map_or(Ok(()), |dir| File::open(dir)?.sync_all())
}
