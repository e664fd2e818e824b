//! Holds disk space in reserve for the time when the disk is full.
//!
//! A file of zeros holds space that no other process can take. When the disk is full, the member gives the space back.
//! The log can then still create the segment in which leases are renewed, locks released and old entries dropped, while
//! the member refuses requests that make the state grow.

use std::{
    io::{self, ErrorKind},
    sync::Arc,
};

use crate::disk::{Disk, is_full};

/// The default size of the reserve: one segment of the default size.
pub const RESERVE_BYTES_DEFAULT: u64 = 64 * 1024 * 1024;

/// The member takes the reserve again only when this many times its size is free, so that a disk near full does not
/// have it taken and given back again and again.
const FREE_BEFORE_RESTORE: u64 = 2;

const NAME: &str = "reserve";
const TEMPORARY: &str = "reserve.tmp";

/// Space held back for a full disk.
#[derive(Debug)]
pub struct Reserve {
    disk: Arc<dyn Disk>,
    bytes: u64,
    held: bool,
}

impl Reserve {
    /// Checks whether the reserve exists with this size; gives back one of another size.
    pub fn open(disk: Arc<dyn Disk>, bytes: u64) -> io::Result<Self> {
        remove(&*disk, TEMPORARY)?;
        let held = match disk.open(NAME) {
            Ok(file) => file.size()? == bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => false,
            Err(error) => return Err(error),
        };
        if !held {
            remove(&*disk, NAME)?;
        }
        Ok(Self { disk, bytes, held })
    }

    /// Whether the space is held.
    pub fn is_held(&self) -> bool {
        self.held
    }

    /// The size of the reserve, held or not.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Gives the space back. Does nothing if it is not held.
    pub fn release(&mut self) -> io::Result<()> {
        remove(&*self.disk, NAME)?;
        self.held = false;
        self.disk.sync_dir("")
    }

    /// Whether the reserve is not held and could be, given this many free bytes.
    pub fn is_due(&self, free_bytes: u64) -> bool {
        !self.held && free_bytes >= self.bytes.saturating_mul(FREE_BEFORE_RESTORE)
    }

    /// Takes the space if there is room for it, and returns whether it is held.
    pub fn restore(&mut self) -> io::Result<bool> {
        if self.held || !self.is_due(self.disk.free_bytes()?) {
            return Ok(self.held);
        }
        remove(&*self.disk, TEMPORARY)?;
        match self.fill() {
            Ok(()) => self.held = true,
            Err(error) => {
                remove(&*self.disk, TEMPORARY)?;
                if !is_full(&error) {
                    return Err(error);
                }
            }
        }
        Ok(self.held)
    }

    fn fill(&self) -> io::Result<()> {
        let file = self.disk.create(TEMPORARY)?;
        file.fill_with_zeros(self.bytes)?;
        file.sync()?;
        self.disk.rename(TEMPORARY, NAME)?;
        self.disk.sync_dir("")
    }
}

fn remove(disk: &dyn Disk, name: &str) -> io::Result<()> {
    match disk.remove(name) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::{Restart, SimDisk};

    #[test]
    fn the_reserve_is_taken_given_back_and_taken_again_when_there_is_room() {
        let disk = SimDisk::new(1);
        disk.set_capacity(Some(10_000));
        let mut reserve = Reserve::open(Arc::new(disk.clone()), 4000).unwrap();
        assert!(!reserve.is_held());
        assert!(reserve.restore().unwrap());
        disk.restart(Restart::PowerLostAll);
        let mut reserve = Reserve::open(Arc::new(disk.clone()), 4000).unwrap();
        assert!(reserve.is_held(), "the reserve lasts");

        disk.create("other").unwrap().fill_with_zeros(6000).unwrap();
        assert_eq!(disk.free_bytes().unwrap(), 0);
        reserve.release().unwrap();
        assert_eq!(disk.free_bytes().unwrap(), 4000);
        assert!(!reserve.restore().unwrap(), "half of what is needed is free");
        disk.remove("other").unwrap();
        assert!(reserve.restore().unwrap());

        let smaller = Reserve::open(Arc::new(disk.clone()), 1000).unwrap();
        assert!(!smaller.is_held(), "a reserve of another size is given back");
    }
}
