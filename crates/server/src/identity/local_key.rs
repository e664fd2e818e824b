//! Writes the API key of the local administrator to a file that only the owner of the data directory can read.
//!
//! The first administrator of a cluster comes from the machine of a member. A user that can read the file can read and
//! change the member's data as well, so the key gives that user nothing new.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use super::api_key::NewApiKey;

/// The file, in the data directory.
pub(crate) const FILE: &str = "admin.key";
/// The id of every such key. No key in the state can have it in effect: the member compares its own first.
pub(crate) const ID: &str = "0000000000000000";

/// Draws a new key, replaces the file, and returns the hash of the key.
pub(crate) fn write(data: &Path) -> io::Result<[u8; 32]> {
    let key = NewApiKey::with_id(ID.to_owned());
    let (new, file) = (data.join("admin.key.new"), data.join(FILE));
    // A file that a stopped member left behind may have another mode: it is not written to.
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut opened = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    opened.write_all(format!("{}\n", key.text).as_bytes())?;
    opened.sync_all()?;
    fs::rename(&new, &file)?;
    File::open(data)?.sync_all()?;
    Ok(key.hash)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::super::api_key::PresentedKey;
    use super::*;

    #[test]
    fn each_start_replaces_the_key_and_only_the_owner_can_read_it() {
        let dir = tempfile::tempdir().unwrap();
        let read = || {
            let text = fs::read_to_string(dir.path().join(FILE)).unwrap();
            PresentedKey::parse(text.trim_end()).unwrap()
        };
        fs::write(dir.path().join("admin.key.new"), "left behind").unwrap();
        let first = write(dir.path()).unwrap();
        assert!(&*read().id == ID && read().matches(&first));
        let mode = fs::metadata(dir.path().join(FILE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let second = write(dir.path()).unwrap();
        assert!(read().matches(&second) && !read().matches(&first));
    }
}
