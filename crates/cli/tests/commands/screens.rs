//! Do `top` and the tour look right in a real terminal, and leave it as it was?

use std::process::{Command, Stdio};

use tenure_server::os;

use crate::stage::{Live, TENURE, lease, member, ok, wait};

/// A terminal with a shell in it.
struct Terminal {
    socket: String,
}

impl Terminal {
    /// Nothing without tmux, which is installed where that is allowed. In CI it must be there.
    fn open(columns: u16, rows: u16) -> Option<Self> {
        if !there() && !installed() {
            assert!(std::env::var_os("CI").is_none(), "tmux cannot be installed");
            eprintln!("SKIPPED: there is no tmux");
            return None;
        }
        let terminal = Self { socket: format!("tenure-{:016x}", os::random()) };
        let (columns, rows) = (columns.to_string(), rows.to_string());
        let home = std::env::temp_dir();
        terminal.tmux(
            &["-f", "/dev/null", "new-session", "-d", "-x", &columns, "-y", &rows, "-c"],
            &[home.to_str().unwrap(), "env -i TERM=screen LANG=C.UTF-8 PS1='ready> ' sh"],
        );
        terminal.shows("ready>");
        Some(terminal)
    }

    fn tmux(&self, arguments: &[&str], more: &[&str]) -> String {
        let mut command = Command::new("tmux");
        command.env("LANG", "C.UTF-8").args(["-u", "-L", &self.socket]).args(arguments).args(more);
        let ran = command.stdin(Stdio::null()).output().unwrap();
        assert!(ran.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&ran.stderr));
        String::from_utf8_lossy(&ran.stdout).into_owned()
    }

    fn types(&self, keys: &str) {
        self.tmux(&["send-keys", "-l"], &[keys]);
    }

    fn presses(&self, key: &str) {
        self.tmux(&["send-keys"], &[key]);
    }

    fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-p"], &[])
    }

    /// Waits until these words are on the screen.
    fn shows(&self, words: &str) -> String {
        let mut last = String::new();
        let seen = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            wait(words, || {
                last = self.screen();
                last.contains(words).then(|| last.clone())
            })
        }));
        seen.unwrap_or_else(|_| panic!("{words:?} is not shown:\n{last}"))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = Command::new("tmux").args(["-L", &self.socket, "kill-server"]).output();
    }
}

fn there() -> bool {
    Command::new("tmux").arg("-V").output().is_ok_and(|ran| ran.status.success())
}

fn installed() -> bool {
    let apt = |arguments: &[&str]| {
        let mut command = Command::new("apt-get");
        command.args(["-o", "DPkg::Lock::Timeout=120"]).args(arguments);
        command.env("DEBIAN_FRONTEND", "noninteractive").stdin(Stdio::null());
        command.output().is_ok_and(|ran| ran.status.success())
    };
    let install = ["install", "-q", "-y", "--no-install-recommends", "tmux"];
    (apt(&install) || (apt(&["-q", "update"]) && apt(&install))) && there()
}

#[test]
fn top_shows_locks_and_obeys_its_keys() {
    let Some(terminal) = Terminal::open(100, 30) else { return };
    let id = lease("ci-7/4121");
    let token = ok(&["try", "screen/deploy", "--lease", &id, "--metadata", "release 5.2"]);
    ok(&["try", "screen/other", "--lease", &id]);
    let _waiting = Live::start(&["lock", "screen/deploy", "--client", "ci-9/877"]);
    let addr = &member().addr;
    terminal
        .types(&format!("{TENURE} top screen/ --interval 200ms --addr {addr}; echo ended $?\n"));
    let screen = terminal.shows("■ 1");
    let lines: Vec<&str> = screen.lines().collect();
    assert!(lines[0].contains("leader solo  1/1 members  revision"), "{screen}");
    let row = lines.iter().find(|line| line.contains("screen/deploy")).unwrap();
    assert!(
        row.contains("▸") && row.contains("ci-7/4121") && row.contains(token.trim()),
        "{screen}"
    );
    assert!(lines.last().unwrap().contains("q quit"), "{screen}");
    assert!(screen.contains("MEMBER") && screen.contains("last event"), "{screen}");

    terminal.presses("Enter");
    let explained = terminal.shows("waiting  1. ci-9/877");
    assert!(explained.contains("lock `screen/deploy`, exclusive") && explained.contains("q back"));
    terminal.presses("q");
    terminal.shows("q quit");
    terminal.presses("h");
    let history = terminal.shows("history of lock `screen/deploy`");
    assert!(history.contains("granted") && history.contains("queued"), "{history}");
    terminal.presses("q");
    terminal.shows("q quit");
    terminal.types("/oth");
    let filtered = terminal.shows("/oth");
    wait("only that is shown", || {
        let screen = terminal.screen();
        (screen.contains("screen/other") && !screen.contains("screen/deploy")).then_some(())
    });
    assert!(filtered.contains("esc drops it"), "{filtered}");
    terminal.presses("Escape");
    terminal.shows("screen/deploy");
    terminal.presses("s");
    terminal.shows("s sort (rate)");
    // What happens meanwhile is seen without a key.
    ok(&["try", "screen/third", "--lease", &id]);
    terminal.shows("screen/third");
    terminal.presses("q");
    let after = terminal.shows("ended 0");
    assert!(!after.contains("MEMBER"), "the screen of before is back: {after}");
    terminal.types("echo typed\n");
    terminal.shows("typed");
}

#[test]
fn the_tour_goes_on_with_enter() {
    let Some(terminal) = Terminal::open(100, 60) else { return };
    terminal.types(&format!("{TENURE} demo; echo ended $?\n"));
    let next = [
        "[Enter] 1. two want the same lock",
        "[Enter] 2. the holder falls silent",
        "[Enter] 3. the leader crashes",
        "[Enter] 4. the dead come back",
    ];
    for prompt in next {
        terminal.shows(prompt);
        terminal.presses("Enter");
    }
    let screen = terminal.shows("ended 0");
    for words in
        ["(GUARD_FAILED)", "The ledger says \"paid by ana\"", "That was all of it", "tenure top"]
    {
        assert!(screen.contains(words), "{words}: {screen}");
    }
}

#[test]
fn a_wait_is_drawn_in_place_and_taken_away_again() {
    let Some(terminal) = Terminal::open(100, 30) else { return };
    let id = lease("ci-7/4121");
    let token = ok(&["try", "drawn", "--lease", &id, "--metadata", "release 5.2"]);
    let addr = &member().addr;
    terminal.types(&format!("{TENURE} lock drawn --client me --addr {addr}; echo ended $?\n"));
    let screen = terminal.shows("look     tenure explain drawn");
    assert!(screen.contains("tenure: waiting for lock `drawn`, 0 ahead of you"), "{screen}");
    assert!(
        screen.contains("held by  ci-7/4121 for") && screen.contains(": \"release 5.2\""),
        "{screen}"
    );
    assert!(screen.contains("free     when released, or in"), "{screen}");
    ok(&["unlock", "drawn", "--lease", &id, "--token", token.trim()]);
    let screen = terminal.shows("acquired, token");
    assert!(!screen.contains("waiting for lock"), "the block is gone: {screen}");
    terminal.presses("C-c");
    let screen = terminal.shows("ended 0");
    assert!(screen.contains("tenure: lock `drawn` released after"), "{screen}");
}
