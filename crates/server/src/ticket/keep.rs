//! Keeps a member's private signing key in a file that only its owner can read.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::SigningKey;
use tenure_node::Lineage;

/// The directory of the key, below the data directory. Only its owner has access.
const DIR: &str = "tickets";
const NAME: &str = "key";
const FORMAT: &str = "tenure ticket key 1";
/// The most bytes of a key file: ours has a few lines, so a longer file is not ours.
const BYTES_MAX: u64 = 4_096;

/// The signing key of this member, for one incarnation of its cluster.
#[derive(Debug)]
pub(crate) struct SigningKeys {
    /// The directory; none inside a test without a disk.
    dir: Option<PathBuf>,
    incarnation: Lineage,
    current: Mutex<Arc<SigningKey>>,
}

impl SigningKeys {
    /// Reads the member's key, or draws a new one: if there is none yet, if the cluster was restored since, or if other
    /// users could read the old one.
    pub(crate) fn open(data: &Path, incarnation: &Lineage) -> io::Result<Self> {
        let dir = data.join(DIR);
        DirBuilder::new().recursive(true).mode(0o700).create(&dir)?;
        let key = match read(&dir.join(NAME), incarnation)? {
            Some(key) => key,
            None => drawn(&dir, incarnation)?,
        };
        Ok(Self {
            dir: Some(dir),
            incarnation: incarnation.clone(),
            current: Mutex::new(Arc::new(key)),
        })
    }

    /// A key that exists in memory only.
    #[cfg(feature = "virtual-time")]
    pub(crate) fn unkept(incarnation: &Lineage) -> Self {
        let current = Mutex::new(Arc::new(SigningKey::draw()));
        Self { dir: None, incarnation: incarnation.clone(), current }
    }

    pub(crate) fn current(&self) -> Arc<SigningKey> {
        Arc::clone(&self.current.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Draws a new key and drops the old one. The new key is on disk when this returns.
    pub(crate) fn renew(&self) -> io::Result<Arc<SigningKey>> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        *current = Arc::new(match &self.dir {
            Some(dir) => drawn(dir, &self.incarnation)?,
            None => SigningKey::draw(),
        });
        Ok(Arc::clone(&current))
    }
}

fn read(path: &Path, incarnation: &Lineage) -> io::Result<Option<SigningKey>> {
    let found = match fs::metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mode = found.mode() & 0o777;
    let why = if mode & 0o077 != 0 {
        format!("other users could read it: its mode was {mode:o}")
    } else if found.len() > BYTES_MAX {
        "it is too long".to_owned()
    } else {
        match parse(&fs::read_to_string(path)?, incarnation) {
            Some(key) => return Ok(Some(key)),
            None => "it is damaged, or the cluster was restored".to_owned(),
        }
    };
    tracing::warn!(cause = why, "ticket signing key replaced");
    Ok(None)
}

fn parse(text: &str, incarnation: &Lineage) -> Option<SigningKey> {
    let mut lines = text.lines();
    let whose = head(incarnation);
    if !whose.iter().all(|line| lines.next() == Some(line)) {
        return None;
    }
    let mut field = |name| lines.next().and_then(|line| line.strip_prefix(name));
    SigningKey::parse(field("secret ")?, field("public ")?)
}

fn head(incarnation: &Lineage) -> Vec<String> {
    [FORMAT.to_owned()].into_iter().chain(incarnation.lines()).collect()
}

fn drawn(dir: &Path, incarnation: &Lineage) -> io::Result<SigningKey> {
    let key = SigningKey::draw();
    let head = head(incarnation).join("\n");
    let text = format!("{head}\nsecret {}\npublic {}\n", key.secret(), key.public());
    let next = dir.join("key.next");
    match fs::remove_file(&next) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    // Only the owner has access from the first byte on, whatever the umask of the process is.
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&next)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&next, dir.join(NAME))?;
    File::open(dir)?.sync_all()?;
    Ok(key)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use tenure_types::Epoch;

    use super::*;
    use tenure_node::Incarnation;

    fn incarnation(incarnation: u64) -> Lineage {
        let epoch = Epoch::new(2).unwrap();
        Lineage { cluster: "c".into(), epoch, incarnation: Incarnation(incarnation) }
    }

    #[test]
    fn a_key_stays_until_it_is_renewed_and_is_for_its_owner_alone() {
        let data = tempfile::tempdir().unwrap();
        let open = |incarnation: &Lineage| SigningKeys::open(data.path(), incarnation).unwrap();
        let id = |keys: &SigningKeys| keys.current().id().clone();
        let first = id(&open(&incarnation(7)));
        let keys = open(&incarnation(7));
        assert_eq!(id(&keys), first);
        let file = data.path().join("tickets/key");
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
        let renewed = keys.renew().unwrap().id().clone();
        assert_ne!(renewed, first);
        assert_eq!(id(&open(&incarnation(7))), renewed);
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
        let other = id(&open(&incarnation(8)));
        assert_ne!(other, renewed, "another life has another key");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        let safe = id(&open(&incarnation(8)));
        assert_ne!(safe, other, "a key that others could read is replaced");
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
        fs::write(&file, fs::read_to_string(&file).unwrap().replace("secret ", "secret A"))
            .unwrap();
        assert_ne!(id(&open(&incarnation(8))), safe, "a damaged key is replaced");
    }
}
