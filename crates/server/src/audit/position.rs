//! Remembers up to which revision the audit log is written, across restarts.
//!
//! The number is in a small file in the data directory. The file is written after the records, so it may be behind by
//! the records of a crash. The end of the audit file itself then says which records need not be written again.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde_json::Value;
use tenure_node::Lineage;
use tenure_types::Revision;

use super::target::REPEATED;

/// The name of the file.
const NAME: &str = "audit.position";
/// The bytes at the end of an audit file that are searched: many more records than can be lost by a crash.
const TAIL_BYTES: u64 = 256 * 1024;

/// Where the audit log continues.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct AuditResume {
    /// The first revision whose acts may be missing in the audit log.
    pub(super) next: Revision,
    /// How many records of that revision are written already.
    pub(super) written: usize,
}

impl Default for AuditResume {
    /// From the first revision on.
    fn default() -> Self {
        Self { next: Revision(1), written: 0 }
    }
}

/// The file with the position.
#[derive(Debug)]
pub(super) struct PositionFile {
    path: PathBuf,
    /// The state that the revisions belong to: a restored cluster counts anew.
    lineage: String,
}

impl PositionFile {
    pub(super) fn new(data: &Path, lineage: &Lineage) -> Self {
        let lineage = format!("{} {}", lineage.cluster, lineage.incarnation);
        Self { path: data.join(NAME), lineage }
    }

    /// Where to continue, by this file and by the end of the audit file, if there is one.
    pub(super) fn resume(&self, audit: Option<&Path>) -> io::Result<AuditResume> {
        let saved = match fs::read_to_string(&self.path) {
            Ok(text) => self.parse(&text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let next = saved.map_or(AuditResume::default().next, Revision::next);
        let last = match audit {
            Some(path) => self.last_written(&tail(path)?),
            None => None,
        };
        Ok(match last {
            Some((last, written)) if last >= next => AuditResume { next: last, written },
            _ => AuditResume { next, written: 0 },
        })
    }

    /// Records that all acts up to this revision are written.
    pub(super) fn save(&self, reached: Revision) -> io::Result<()> {
        let new = self.path.with_extension("new");
        let mut file = File::create(&new)?;
        file.write_all(format!("{} {}\n", self.lineage, reached.0).as_bytes())?;
        file.sync_all()?;
        fs::rename(new, &self.path)
    }

    fn parse(&self, text: &str) -> Option<Revision> {
        let number = text.trim_end().strip_prefix(&self.lineage)?.strip_prefix(' ')?;
        number.parse().ok().map(Revision)
    }

    /// The newest revision among the records of this state, and the number of its records.
    fn last_written(&self, tail: &str) -> Option<(Revision, usize)> {
        let mut last: Option<(Revision, usize)> = None;
        let mut is_ours = true;
        for line in tail.lines() {
            // The first line may be cut, and so may one that a crash left behind.
            let Ok(record) = serde_json::from_str::<Value>(line) else { continue };
            let text = |name: &str| record[name].as_str().unwrap_or_default();
            if text("act") == "start" {
                is_ours = self.lineage == format!("{} {}", text("target"), text("incarnation"));
                last = last.filter(|_| is_ours);
            }
            if text("act") == REPEATED {
                // The disk may have lost what is before. What is not repeated is before the saved position.
                last = None;
            }
            // A backup is not in the history.
            if !is_ours || text("act") == "backup" {
                continue;
            }
            let newest = last.map_or(0, |(newest, _)| newest.0);
            if let Some(to) = record["to_revision"].as_u64().filter(|to| *to >= newest) {
                // Of the revision after a gap nothing is written yet.
                last = Some((Revision(to).next(), 0));
            }
            last = match record["revision"].as_u64() {
                Some(at) if at > newest => Some((Revision(at), 1)),
                Some(at) if at == newest => last.map(|(newest, count)| (newest, count + 1)),
                _ => last,
            };
        }
        last
    }
}

/// The end of a file; empty if it does not exist.
fn tail(path: &Path) -> io::Result<String> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(String::new()),
        Err(error) => return Err(error),
    };
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
    let mut bytes = Vec::new();
    file.take(TAIL_BYTES).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use tenure_node::Incarnation;
    use tenure_types::Epoch;

    use super::*;

    fn position(dir: &Path) -> PositionFile {
        let (epoch, incarnation) = (Epoch::default(), Incarnation::default());
        PositionFile::new(dir, &Lineage { cluster: "c1".to_owned(), epoch, incarnation })
    }

    fn resume(next: u64, written: usize) -> AuditResume {
        AuditResume { next: Revision(next), written }
    }

    #[test]
    fn a_saved_position_is_read_again_and_that_of_another_state_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let position = position(dir.path());
        assert_eq!(position.resume(None).unwrap(), AuditResume::default());
        position.save(Revision(7)).unwrap();
        assert_eq!(position.resume(None).unwrap(), resume(8, 0));
        let other = PositionFile { lineage: "c2 0".to_owned(), path: position.path.clone() };
        assert_eq!(other.resume(None).unwrap(), AuditResume::default());
    }

    #[test]
    fn the_end_of_the_file_says_what_a_crash_had_written_beyond_the_position() {
        let dir = tempfile::tempdir().unwrap();
        let position = position(dir.path());
        let (_, incarnation) = position.lineage.split_once(' ').unwrap();
        let audit = dir.path().join("audit");
        let start = |cluster: &str| {
            format!(
                "{{\"act\":\"start\",\"target\":\"{cluster}\",\"incarnation\":\"{incarnation}\"}}\n"
            )
        };
        let act = |revision| format!("{{\"act\":\"force\",\"revision\":{revision}}}\n");
        let gap = "{\"act\":\"gap\",\"from_revision\":3,\"to_revision\":20}\n";
        let resumed = |text: String| {
            std::fs::write(&audit, text).unwrap();
            position.resume(Some(&audit)).unwrap()
        };
        assert_eq!(resumed(String::new()), AuditResume::default());
        let records =
            start("c1") + &act(8) + &act(9) + "{\"act\":\"backup\",\"revision\":50}\n" + &act(9);
        assert_eq!(resumed(records.clone() + "{\"act\":\"for"), resume(9, 2), "a cut line");
        assert_eq!(resumed(start("c0") + &act(99) + &records), resume(9, 2), "another state");
        assert_eq!(resumed(records.clone() + gap), resume(21, 0));
        let repeated = records.clone() + "{\"act\":\"repeated\"}\n";
        assert_eq!(resumed(repeated.clone()), AuditResume::default(), "nothing is sure");
        assert_eq!(resumed(repeated + &act(8) + &act(9)), resume(9, 1), "each is counted once");
        assert_eq!(resumed(records.clone() + gap + &act(21)), resume(21, 1));
        position.save(Revision(30)).unwrap();
        assert_eq!(resumed(records), resume(31, 0), "the position is newer");
    }
}
