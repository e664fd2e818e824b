//! Tests that a directory of files refuses stale writers and survives killed ones.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use fastrand::Rng;
use tenure_fence::files::{Failure, FileFence};
use tenure_fence::{Claim, Error, Floor, LockSlot};

use crate::subject::{FenceReply, Subject, claim, said, token};
use crate::trials::{self, Size};

/// How often the test kills a writer. Each one is a process that has to be started.
const KILLS: u64 = 40;

/// Tells a copy of this program where to write until it is killed.
const WRITE_TO: &str = "TENURE_FENCE_TEST_WRITE_TO";
const WRITE_FROM: &str = "TENURE_FENCE_TEST_WRITE_FROM";

pub(crate) struct Dir(FileFence);

impl Subject for Dir {
    fn write(&self, at: LockSlot<'_>, claim: Claim, value: &str) -> Result<(), FenceReply> {
        said(self.0.write(at, claim, |draft| std::fs::write(draft.path().join("value"), value)))
    }

    fn raise(&self, at: LockSlot<'_>, claim: Claim) -> Result<(), FenceReply> {
        said(self.0.raise(at, claim))
    }

    fn floor(&self, at: LockSlot<'_>) -> Floor {
        self.0.floor(at).unwrap()
    }

    fn read(&self) -> Option<String> {
        loop {
            match std::fs::read_to_string(self.0.data().unwrap()?.join("value")) {
                Ok(value) => return Some(value),
                // Two newer versions were published since.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => panic!("{error}"),
            }
        }
    }

    fn write_unfenced(&self, value: &str) {
        match self.0.data().unwrap() {
            Some(data) => std::fs::write(data.join("value"), value).unwrap(),
            None => self.write("unfenced".into(), claim(1), value).unwrap(),
        }
    }
}

/// Sets up one directory and runs the scenario on it.
pub(crate) fn stand(play: &dyn Fn(&Dir)) {
    let dir = tempfile::tempdir().unwrap();
    play(&Dir(FileFence::open(dir.path()).unwrap()));
}

#[test]
fn files_refuse_the_dead() {
    let dir = tempfile::tempdir().unwrap();
    trials::all(Size { steps: 150, writes: 20 }, |name| {
        Dir(FileFence::open(dir.path().join(name)).unwrap())
    });
}

#[test]
fn a_draft_made_from_data_that_was_replaced_is_not_published() {
    let dir = tempfile::tempdir().unwrap();
    let fence = FileFence::open(dir.path()).unwrap();
    let add = |path: &Path, old: Option<&Path>| {
        let old = old.map_or(0, |old| std::fs::read_dir(old).unwrap().count());
        std::fs::write(path.join(old.to_string()), "")
    };
    fence.write("list", token(1), |draft| add(draft.path(), draft.previous())).unwrap();
    // The same holder, in two tasks at once.
    let between = fence.write("list", token(1), |draft| {
        let previous = draft.previous();
        fence.write("list", token(1), |inner| add(inner.path(), None)).unwrap();
        add(draft.path(), previous)
    });
    assert!(matches!(between, Err(Error::Store(Failure::Changed))), "{between:?}");
    let failed = fence.write("list", token(9), |_| Err(std::io::Error::other("no")));
    assert!(matches!(failed, Err(Error::Store(Failure::Draft(_)))), "{failed:?}");
    assert_eq!(fence.floor("list").unwrap().exclusive, Some(token(1)), "nothing was changed");
    assert_eq!(std::fs::read_dir(dir.path().join("drafts")).unwrap().count(), 0, "nothing is left");
}

#[test]
fn a_slow_writer_delays_no_other_writer() {
    let dir = tempfile::tempdir().unwrap();
    let fence = FileFence::open(dir.path()).unwrap();
    // A pauses in the middle of its write; B writes without waiting for it.
    let late = fence.write("ledger", token(1), |draft| {
        fence
            .write("ledger", token(2), |draft| std::fs::write(draft.path().join("value"), "B"))
            .unwrap();
        std::fs::write(draft.path().join("value"), "A, late")
    });
    assert_eq!(said(late), Err(FenceReply::Stale { floor: 2 }));
    assert_eq!(Dir(fence).read().as_deref(), Some("B"));
}

#[test]
fn a_floor_that_cannot_be_read_accepts_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let fence = FileFence::open(dir.path()).unwrap();
    fence.write("ledger", token(1), |_| Ok(())).unwrap();
    std::fs::write(dir.path().join("current/floor"), "0000").unwrap();
    let refused = fence.write("ledger", token(2), |_| Ok(()));
    assert!(matches!(refused, Err(Error::Unreadable(_))), "{refused:?}");
    std::fs::remove_file(dir.path().join("current/floor")).unwrap();
    assert!(matches!(fence.raise("ledger", token(2)), Err(Error::Unreadable(_))));
}

/// Writes with growing tokens, two files each time, and prints each token that is done.
fn write_until_killed(dir: PathBuf, from: u64) -> ! {
    let fence = FileFence::open(dir).unwrap();
    for number in from.. {
        let token = token(number);
        if number % 5 == 0 {
            fence.raise("ledger", token).unwrap();
        }
        let value = number.to_string().repeat(200);
        let write = fence.write("ledger", token, |draft| {
            std::fs::write(draft.path().join("one"), &value)?;
            std::fs::write(draft.path().join("two"), &value)
        });
        write.unwrap();
        // In one write, because the parent may kill this process in the middle.
        std::io::stdout().lock().write_all(format!("done {number}\n").as_bytes()).unwrap();
    }
    unreachable!("numbers do not end")
}

/// Kills a writing process again and again, at varying moments.
#[test]
fn killed_in_the_middle_of_writes_nothing_is_lost_or_torn() {
    if let Some(dir) = std::env::var_os(WRITE_TO) {
        let from = std::env::var(WRITE_FROM).unwrap().parse().unwrap();
        write_until_killed(dir.into(), from);
    }
    let dir = tempfile::tempdir().unwrap();
    let fence = FileFence::open(dir.path()).unwrap();
    let rng = &mut Rng::with_seed(3);
    let mut floor = 0;
    for kill in 0..KILLS {
        let name = "files::killed_in_the_middle_of_writes_nothing_is_lost_or_torn";
        let mut writer = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture"])
            .env(WRITE_TO, dir.path())
            .env(WRITE_FROM, (floor + 1).to_string())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(writer.stdout.take().unwrap()).lines();
        let mut done = lines
            .map_while(Result::ok)
            .filter_map(|line| Some(line.split_once("done ")?.1.parse().unwrap()));
        let mut acknowledged: u64 = done.next().expect("a writer writes");
        for _ in 0..rng.u64(..4) {
            acknowledged = done.next().expect("a writer goes on");
        }
        // Somewhere in the next write.
        for _ in 0..rng.u64(..200_000) {
            std::hint::spin_loop();
        }
        writer.kill().unwrap();
        writer.wait().unwrap();
        acknowledged = done.last().unwrap_or(acknowledged).max(acknowledged);

        let kept = fence.floor("ledger").unwrap();
        let data = fence.data().unwrap().unwrap();
        let files = ["one", "two"].map(|name| std::fs::read_to_string(data.join(name)).unwrap());
        let used = kept.used.unwrap().get();
        let expected = used.to_string().repeat(200);
        assert!(
            files.iter().all(|file| *file == expected),
            "kill {kill}: torn, or of another floor than {kept:?}"
        );
        assert!(
            used >= acknowledged,
            "kill {kill}: {acknowledged} was acknowledged, and the data is of {used}"
        );
        assert!(
            kept.exclusive.unwrap().get() >= floor,
            "kill {kill}: the floor fell below {floor}"
        );
        floor = kept.exclusive.unwrap().get();
        let late = fence.write("ledger", token(floor - 1), |_| Ok(()));
        assert_eq!(said(late), Err(FenceReply::Stale { floor }), "kill {kill}");
    }
    fence.write("ledger", token(floor), |_| Ok(())).unwrap();
    let left = std::fs::read_dir(dir.path().join("drafts")).unwrap().count();
    assert_eq!(left, 0, "what killed writers left was tidied up");
    assert!(std::fs::read_dir(dir.path().join("versions")).unwrap().count() <= 2);
    assert!(std::fs::read_dir(dir.path().join("data")).unwrap().count() <= 2);
}
