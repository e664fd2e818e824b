//! Tests how a member behaves on a disk that fills up.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{Process, ask, field, free_port, tenure, wait};

/// `dev` needs two segments of 8 MiB and a reserve of 16, some more segments when they fill up, and takes the reserve
/// again when twice as much is free.
const DISK_MIB: usize = 96;

/// A small file system in memory. Dropping it unmounts it.
struct SmallDisk {
    path: PathBuf,
}

impl SmallDisk {
    /// Mounts the disk; `None` if this process may not mount.
    fn mount(path: PathBuf) -> Option<Self> {
        fs::create_dir(&path).unwrap();
        let size = format!("size={DISK_MIB}m");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &size, "tenure-test"])
            .arg(&path)
            .output();
        match mounted {
            Ok(output) if output.status.success() => Some(Self { path }),
            failed => {
                assert!(
                    std::env::var_os("CI").is_none(),
                    "continuous integration must be able to mount a small disk: {failed:?}"
                );
                eprintln!("SKIPPED: a small disk cannot be mounted here: {failed:?}");
                None
            }
        }
    }

    /// Writes until only this many bytes are free.
    fn fill_up_to(&self, free_bytes: u64) {
        let path = self.path.join(format!("filler-{free_bytes}"));
        let mut filler = File::create(path).unwrap();
        let chunk = [0; 4096];
        let mut wanted = self.free_bytes().saturating_sub(free_bytes);
        while wanted >= 4096 && filler.write_all(&chunk).is_ok() {
            wanted -= 4096;
        }
    }

    fn free_bytes(&self) -> u64 {
        let output = Command::new("stat").args(["-f", "-c", "%a %S"]).arg(&self.path).output();
        let text = String::from_utf8(output.unwrap().stdout).unwrap();
        text.split_whitespace().map(|word| word.parse::<u64>().unwrap()).product()
    }

    fn make_room(&self) {
        for found in fs::read_dir(&self.path).unwrap() {
            let path = found.unwrap().path();
            if path.file_name().unwrap().to_string_lossy().starts_with("filler") {
                fs::remove_file(path).unwrap();
            }
        }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.path).status();
    }
}

fn dev(said: &Path, disk: &SmallDisk, port: u16) -> Process {
    let clients = format!("127.0.0.1:{port}");
    let data = disk.path.join("data");
    let arguments = ["dev", "--data", data.to_str().unwrap(), "--clients", &clients];
    let process = Process::start(said, &arguments);
    wait("it serves", || ask(port, "status")?.contains("serving=true").then_some(()));
    process
}

fn wait_for_disk(port: u16, word: &str) {
    wait(word, || (field(&ask(port, "status")?, "disk").as_deref() == Some(word)).then_some(()));
}

/// Renews many leases at once, which grows the log by about 30 kB, until `is_enough` returns true.
fn renew_until(port: u16, is_enough: impl Fn() -> bool + Sync) {
    let line = format!("renew 7 {}", "9007199254740991 ".repeat(3_700));
    let is_enough = &is_enough;
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..1_000 {
                    let answer = ask(port, line.trim_end()).unwrap();
                    assert!(answer.starts_with("ok ttl_ms=600000 "), "{answer:.100}");
                    if is_enough() {
                        return;
                    }
                }
                panic!("the log was not filled");
            });
        }
    });
}

#[test]
fn a_full_disk_refuses_growth_and_nothing_else_until_there_is_room() {
    let dir = tempfile::tempdir().unwrap();
    let Some(disk) = SmallDisk::mount(dir.path().join("disk")) else { return };
    let port = free_port();
    let said = dir.path().join("log");
    let mut process = dev(&said, &disk, port);
    assert!(ask(port, "lease 7 600000 ana").unwrap().starts_with("ok"));
    assert!(ask(port, "lease 8 600000 bob").unwrap().starts_with("ok"));
    assert!(ask(port, "lock 7 deploy").unwrap().starts_with("ok"));
    let reserve = disk.path.join("data/reserve");
    wait("the reserve is held", || reserve.exists().then_some(()));
    wait("the next segment is there", || {
        (fs::read_dir(disk.path.join("data/log")).ok()?.count() == 2).then_some(())
    });

    // Before the reserve is used, the member refuses what makes the state grow, without an effect.
    disk.fill_up_to(6 << 20);
    wait_for_disk(port, "short");
    let address = format!("127.0.0.1:{port}");
    for arguments in [&["cluster", "status"][..], &["doctor"]] {
        let told = tenure(&[arguments, &["--addr", &address]].concat());
        assert_eq!(told.code, Some(1), "{}", told.out);
        let says = "is out of space: it takes nothing that makes the state grow";
        assert!(told.out.contains(says), "{}", told.out);
    }
    for line in ["lease 9 600000 cleo", "lock 8 build", "put key value"] {
        let answer = ask(port, line).unwrap();
        assert!(answer.starts_with("error none disk-full "), "{line}: {answer}");
    }
    assert!(reserve.exists(), "the reserve is for what comes now");
    assert!(ask(port, "get key").unwrap().starts_with("ok absent "));
    assert!(ask(port, "renew 7 8").unwrap().starts_with("ok ttl_ms=600000 ttl_ms=600000"));

    // No byte is free, and renewals fill the log into the reserve.
    disk.fill_up_to(0);
    renew_until(port, || !reserve.exists());
    assert!(process.words().contains("released the disk reserve"), "{}", process.words());
    let token = field(&ask(port, "locks").unwrap(), "token").unwrap();
    assert!(ask(port, &format!("unlock 7 deploy {token}")).unwrap().starts_with("ok released"));
    assert!(ask(port, "lock 8 deploy").unwrap().starts_with("error none disk-full"));
    assert!(ask(port, "revoke 8").unwrap().starts_with("ok revoked"));

    // With room again, the member takes the reserve back and the state may grow; nothing was lost.
    disk.make_room();
    wait_for_disk(port, "enough");
    wait("the reserve is held again", || reserve.exists().then_some(()));
    assert!(ask(port, "lock 7 deploy").unwrap().starts_with("ok"));
    process.kill();
    let _process = dev(&said, &disk, port);
    let locks = ask(port, "locks").unwrap();
    assert!(locks.contains("[deploy held client=ana lease=7 token=2 "), "{locks}");
    assert!(ask(port, "renew 8").unwrap().starts_with("ok ended"));
}
