//! Gives a test ports that no other test uses.
//!
//! A test needs a port again after the member that had it was killed, so the port must stay free in between. Processes
//! share out blocks of ports by locks on files, which the system releases when the processes end.

use std::fs::{File, Permissions};
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::sync::Mutex;

/// Below the ports that the system assigns to connections.
const FIRST: u16 = 10_000;
const BLOCK: u16 = 64;
const BLOCKS: u16 = 320;

/// The current block, how much of it is used, and the locks of it and of earlier blocks.
struct Taken {
    block: u16,
    used: u16,
    locks: Vec<File>,
}

/// A port that no other test uses while this process lives.
pub(crate) fn free_port() -> u16 {
    static TAKEN: Mutex<Taken> = Mutex::new(Taken { block: 0, used: BLOCK, locks: Vec::new() });
    let mut taken = TAKEN.lock().unwrap();
    loop {
        if taken.used == BLOCK {
            let (block, lock) = lock_block();
            taken.block = block;
            taken.used = 0;
            taken.locks.push(lock);
        }
        let port = FIRST + taken.block * BLOCK + taken.used;
        taken.used += 1;
        // A program that ignores the locks may use the port. Check by connecting, not by listening: a process that
        // another thread starts at this moment inherits our sockets until it execs its program.
        if TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            return port;
        }
    }
}

fn lock_block() -> (u16, File) {
    let dir = std::env::temp_dir().join("tenure-test-ports");
    std::fs::create_dir_all(&dir).unwrap();
    // Other users test on this machine too.
    let _ = std::fs::set_permissions(&dir, Permissions::from_mode(0o1777));
    // Begin at different blocks, so that a port that was just used stays idle for a while.
    let start = u16::try_from(std::process::id() % u32::from(BLOCKS)).unwrap();
    let blocks = (0..BLOCKS).map(|next| (start + next) % BLOCKS);
    let mut open = blocks.filter_map(|block| {
        let path = dir.join(block.to_string());
        let made = File::options().create(true).append(true).open(&path);
        let file = made.or_else(|_| File::open(&path)).ok()?;
        file.try_lock().ok().map(|()| (block, file))
    });
    open.next().expect("fewer tests than blocks of ports run at once")
}
