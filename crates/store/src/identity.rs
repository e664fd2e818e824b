//! Reads and writes the identity of a data directory.
//!
//! `identity.toml` names the cluster and the member that a data directory belongs to. The member reads it before
//! anything else and refuses the directory if it does not understand the file: it must not touch a directory of another
//! cluster or of a later version.

use std::io;

use crate::disk::{Disk, replace};

const NAME: &str = "identity.toml";
const FORMAT: u64 = 1;

/// Our own file has a few lines; anything longer is not ours.
const BYTES_MAX: u64 = 4096;

/// A cluster id is a hash in text; this leaves room for a longer one.
const CLUSTER_BYTES_MAX: usize = 128;

/// The cluster and member that a data directory belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectoryIdentity {
    /// The cluster, once the member belongs to one: letters, digits, `-` and `_`.
    pub cluster: Option<String>,
    /// The member's id, drawn at its first start and never used by another member.
    pub member: u64,
    /// How many times the member has been started.
    pub starts: u64,
    /// How many times the cluster has been restored from a backup.
    pub epoch: u64,
    /// Distinguishes the clusters restored at that epoch: the restore draws it; 0 for a cluster that was bootstrapped.
    pub incarnation: u64,
}

/// Why the identity could not be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IdentityError {
    /// The disk failed.
    #[error("cannot {doing} `identity.toml`")]
    Io {
        /// The operation that failed, for the message.
        doing: &'static str,
        /// The error of the disk.
        #[source]
        source: io::Error,
    },
    /// A line that this program does not write.
    #[error("`identity.toml` line {line}: {problem}")]
    Malformed {
        /// The number of the line, from 1; the one after the last if a line is missing.
        line: usize,
        /// The problem with the line.
        problem: &'static str,
    },
    /// A later version wrote the file.
    #[error("data directory has format {found}, this program knows format {FORMAT}")]
    Format {
        /// The version that the file names.
        found: u64,
    },
    /// The directory belongs to another cluster.
    #[error("data directory belongs to cluster `{found}`, not `{expected}`")]
    OtherCluster {
        /// The cluster that the directory belongs to.
        found: String,
        /// The cluster that it was opened for.
        expected: String,
    },
    /// The cluster id has an invalid character or length.
    #[error("cluster id `{0}` is not made of letters, digits, `-` and `_`")]
    ClusterId(String),
}

impl DirectoryIdentity {
    /// Reads the identity; `None` if the directory is new.
    pub fn read(disk: &dyn Disk) -> Result<Option<Self>, IdentityError> {
        let io = |source| IdentityError::Io { doing: "read", source };
        let file = match disk.open(NAME) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(io(error)),
        };
        let size = file.size().map_err(io)?;
        if size > BYTES_MAX {
            return Err(IdentityError::Malformed { line: 1, problem: "file is too long" });
        }
        let mut bytes = vec![0; usize::try_from(size).unwrap_or(0)];
        file.read_at(0, &mut bytes).map_err(io)?;
        let not_text = IdentityError::Malformed { line: 1, problem: "not text" };
        parse(str::from_utf8(&bytes).map_err(|_| not_text)?).map(Some)
    }

    /// Replaces the identity. A crash leaves the old one or the new one.
    pub fn write(&self, disk: &dyn Disk) -> Result<(), IdentityError> {
        if let Some(cluster) = self.cluster.as_ref().filter(|cluster| !is_cluster_id(cluster)) {
            return Err(IdentityError::ClusterId(cluster.clone()));
        }
        replace(disk, NAME, self.to_text().as_bytes())
            .map_err(|source| IdentityError::Io { doing: "write", source })
    }

    /// Refuses the directory if it belongs to another cluster.
    pub fn check_cluster(&self, expected: &str) -> Result<(), IdentityError> {
        match &self.cluster {
            Some(found) if found != expected => {
                Err(IdentityError::OtherCluster { found: found.clone(), expected: expected.into() })
            }
            _ => Ok(()),
        }
    }

    fn to_text(&self) -> String {
        let mut text = String::from("# Written by tenure. Do not edit or copy.\n");
        text += &format!("format = {FORMAT}\n");
        if let Some(cluster) = &self.cluster {
            text += &format!("cluster = \"{cluster}\"\n");
        }
        text += &format!("member = \"{:016x}\"\n", self.member);
        text += &format!("starts = {}\nepoch = {}\n", self.starts, self.epoch);
        text += &format!("incarnation = \"{:016x}\"\n", self.incarnation);
        text
    }
}

fn is_cluster_id(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    !text.is_empty() && text.len() <= CLUSTER_BYTES_MAX && text.bytes().all(allowed)
}

fn parse(text: &str) -> Result<DirectoryIdentity, IdentityError> {
    let (mut format, mut cluster, mut member) = (None, None, None);
    let (mut starts, mut epoch, mut incarnation) = (None, None, None);
    let mut lines = 0;
    for (at, line) in text.lines().enumerate() {
        let malformed = |problem| IdentityError::Malformed { line: at + 1, problem };
        lines = at + 1;
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (key, value) = line.split_once('=').ok_or(malformed("no `=`"))?;
        let (key, value) = (key.trim(), value.trim());
        let number = || value.parse::<u64>().map_err(|_| malformed("not a number"));
        let quoted = || {
            let inside = value.strip_prefix('"').and_then(|value| value.strip_suffix('"'));
            inside.ok_or(malformed("not in quotes"))
        };
        match key {
            "format" => {
                let found = number()?;
                // Check the version before anything else: later versions may have other lines.
                if found != FORMAT {
                    return Err(IdentityError::Format { found });
                }
                format = Some(found);
            }
            "cluster" if is_cluster_id(quoted()?) => cluster = Some(quoted()?.to_owned()),
            "cluster" => return Err(malformed("not a cluster id")),
            "member" => {
                let id = u64::from_str_radix(quoted()?, 16);
                member = Some(id.map_err(|_| malformed("not a member id"))?);
            }
            "incarnation" => {
                let drawn = u64::from_str_radix(quoted()?, 16);
                incarnation = Some(drawn.map_err(|_| malformed("not an incarnation"))?);
            }
            "starts" => starts = Some(number()?),
            "epoch" => epoch = Some(number()?),
            _ => return Err(malformed("unknown key")),
        }
    }
    let missing = |problem| IdentityError::Malformed { line: lines + 1, problem };
    format.ok_or(missing("`format` is missing"))?;
    Ok(DirectoryIdentity {
        cluster,
        member: member.ok_or(missing("`member` is missing"))?,
        starts: starts.ok_or(missing("`starts` is missing"))?,
        epoch: epoch.ok_or(missing("`epoch` is missing"))?,
        incarnation: incarnation.ok_or(missing("`incarnation` is missing"))?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::{Restart, SimDisk};

    fn identity(starts: u64) -> DirectoryIdentity {
        let cluster = Some("c-1".into());
        DirectoryIdentity { cluster, member: 0xab, starts, epoch: 2, incarnation: u64::MAX - 3 }
    }

    #[test]
    fn an_identity_reads_back_as_it_was_written() {
        let disk = SimDisk::new(1);
        assert_eq!(DirectoryIdentity::read(&disk).unwrap(), None);
        for identity in [identity(1), DirectoryIdentity { cluster: None, ..identity(2) }] {
            identity.write(&disk).unwrap();
            assert_eq!(DirectoryIdentity::read(&disk).unwrap(), Some(identity));
        }
        let bad = DirectoryIdentity { cluster: Some("a\"b".into()), ..identity(3) };
        assert!(matches!(bad.write(&disk), Err(IdentityError::ClusterId(_))));
    }

    #[test]
    fn a_crash_at_any_point_leaves_the_old_identity_or_the_new() {
        let before = SimDisk::new(2);
        identity(1).write(&before).unwrap();
        let mut points = 0;
        for seed in 0..20 {
            for point in 0.. {
                let disk = before.fork(seed);
                disk.power_off_after(Some(point));
                let written = identity(2).write(&disk);
                disk.restart(Restart::PowerLostSome);
                let found = DirectoryIdentity::read(&disk).unwrap().unwrap();
                if written.is_ok() {
                    assert_eq!(found, identity(2));
                    break;
                }
                assert!(found == identity(1) || found == identity(2));
                points += 1;
            }
        }
        assert!(points >= 100, "{points} crash points");
    }

    #[test]
    fn what_is_not_understood_is_refused_with_its_reason() {
        let read = |text: &str| parse(text).unwrap_err().to_string();
        assert_eq!(
            read("format = 2\nnew = 1\n"),
            "data directory has format 2, this program knows format 1"
        );
        assert_eq!(read("format = 1\nnew = 1\n"), "`identity.toml` line 2: unknown key");
        assert_eq!(read("format = 1\n"), "`identity.toml` line 2: `member` is missing");
        assert_eq!(read("member = 5\n"), "`identity.toml` line 1: not in quotes");
        assert_eq!(read("cluster = \"\"\n"), "`identity.toml` line 1: not a cluster id");
        let error = identity(1).check_cluster("c-2").unwrap_err();
        assert_eq!(error.to_string(), "data directory belongs to cluster `c-1`, not `c-2`");
        assert!(identity(1).check_cluster("c-1").is_ok());
    }
}
