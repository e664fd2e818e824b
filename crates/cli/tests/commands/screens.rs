//! Tests that `top` and the tour look right in a real terminal and restore it.

use std::process::{Command, Stdio};
use std::sync::OnceLock;

use tenure_server::os;

use crate::stage::{Live, TENURE, lease, member, ok, wait};
use crate::waiting::try_wait;

/// A terminal with a shell in it.
struct Terminal {
    socket: String,
}

impl Terminal {
    /// Opens a terminal; `None` without tmux, which the test installs where that is allowed. In CI it must be
    /// available.
    fn open(columns: u16, rows: u16) -> Option<Self> {
        static THERE: OnceLock<bool> = OnceLock::new();
        if !THERE.get_or_init(|| there() || installed()) {
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
        self.shows_all(&[words])
    }

    /// Waits until all of these are on the screen: a screen may be captured while it is drawn.
    fn shows_all(&self, all: &[&str]) -> String {
        let mut last = String::new();
        let seen = try_wait(|| {
            last = self.screen();
            all.iter().all(|words| last.contains(words)).then_some(())
        });
        assert!(seen.is_some(), "{all:?} are not shown:\n{last}");
        last
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
    let waiting = Live::start(&["lock", "screen/deploy", "--client", "ci-9/877"]);
    // Later, this would be the last event on the screen.
    waiting.says("waiting for lock `screen/deploy`");
    let addr = &member().addr;
    terminal
        .types(&format!("{TENURE} top screen/ --interval 200ms --addr {addr}; echo ended $?\n"));
    // A screen may be captured while it is drawn: wait for a complete one.
    let whole = |screen: &str| {
        let lines: Vec<&str> = screen.lines().collect();
        let row = lines.iter().find(|line| line.contains("screen/deploy"));
        lines.first().is_some_and(|line| line.contains("leader solo  1/1 members  revision"))
            && row.is_some_and(|row| {
                ["▸", "ci-7/4121", token.trim(), "■ 1"].iter().all(|words| row.contains(words))
            })
            && lines.last().is_some_and(|line| line.contains("q quit"))
            && screen.contains("MEMBER")
            && screen.contains("last event")
    };
    terminal.shows("■ 1");
    wait("a whole screen", || whole(&terminal.screen()).then_some(()));

    terminal.presses("Enter");
    terminal.shows_all(&["waiting  1. ci-9/877", "lock `screen/deploy`, exclusive", "q back"]);
    // The page about one lock follows what happens to it.
    let mut late = Live::start(&["lock", "screen/deploy", "--client", "late/1"]);
    terminal.shows("2. late/1");
    late.signal("-TERM");
    assert_eq!(late.ends(), Some(143));
    wait("it has left", || (!terminal.screen().contains("late/1")).then_some(()));
    terminal.presses("q");
    terminal.shows("q quit");
    terminal.presses("h");
    terminal.shows_all(&["history of lock `screen/deploy`", "granted", "queued"]);
    terminal.presses("q");
    terminal.shows("q quit");
    terminal.types("/oth");
    terminal.shows_all(&["/oth", "esc drops it"]);
    wait("only that is shown", || {
        let screen = terminal.screen();
        // Below the locks, the last event may name a lock that the filter hides.
        let locks = screen.split("MEMBER").next()?;
        (locks.contains("screen/other") && !locks.contains("screen/deploy")).then_some(())
    });
    terminal.presses("Escape");
    terminal.shows("screen/deploy");
    terminal.presses("s");
    terminal.shows("s sort (rate)");
    // Changes appear without a key.
    ok(&["try", "screen/third", "--lease", &id]);
    terminal.shows("screen/third");
    // The hand-over time, as the leader measured it.
    ok(&["unlock", "screen/deploy", "--lease", &id, "--token", token.trim()]);
    wait("the gap is shown", || {
        let screen = terminal.screen();
        let row = screen.lines().find(|line| line.contains("screen/deploy"))?;
        let gap = row.split_whitespace().last()?.strip_suffix("ms")?.parse::<f64>();
        (screen.contains("GAP p50") && row.contains("ci-9/877") && gap.is_ok()).then_some(())
    });
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
        "[Enter] 2. the holder stops renewing",
        "[Enter] 3. the leader crashes",
        "[Enter] 4. the dead come back",
    ];
    for prompt in next {
        terminal.shows(prompt);
        terminal.presses("Enter");
    }
    let screen = terminal.shows("ended 0");
    for words in [
        "does not hold lock `deploy`",
        "The ledger says \"paid by ana\"",
        "That was all of it",
        "tenure top",
    ] {
        assert!(screen.contains(words), "{words}: {screen}");
    }
}

#[test]
fn the_tour_ends_with_ctrl_c_at_a_prompt() {
    let Some(terminal) = Terminal::open(100, 60) else { return };
    terminal.types(&format!("{TENURE} demo; echo ended $?\n"));
    terminal.shows("[Enter] 1. two want the same lock");
    terminal.presses("C-c");
    terminal.shows("ended 130");
}

#[test]
fn a_wait_is_drawn_in_place_and_taken_away_again() {
    let Some(terminal) = Terminal::open(100, 30) else { return };
    let id = lease("ci-7/4121");
    let token = ok(&["try", "drawn", "--lease", &id, "--metadata", "release 5.2"]);
    let addr = &member().addr;
    terminal.types(&format!("{TENURE} lock drawn --client me --addr {addr}; echo ended $?\n"));
    terminal.shows_all(&[
        "tenure: waiting for lock `drawn`, you are next",
        "held by  ci-7/4121 for",
        ": \"release 5.2\"",
        "free     when released, or in",
        "look     tenure --addr ",
    ]);
    // A user who gives up sees one clean line instead of the block, whatever the terminal echoed of the key.
    for (next, command) in [("run", " -- true"), ("lock", "")] {
        terminal.presses("C-c");
        terminal.shows("ended 130");
        let left =
            |line: &str| line.trim_start_matches("^C").starts_with("tenure: left the queue of");
        let screen = terminal.screen();
        assert!(screen.lines().any(left) && !screen.contains("held by"), "{screen}");
        terminal.types("clear\n");
        wait("a clear screen", || (!terminal.screen().contains("ended")).then_some(()));
        let flags = format!("drawn --client me --addr {addr}{command}");
        terminal.types(&format!("{TENURE} {next} {flags}; echo ended $?\n"));
        terminal.shows_all(&["held by  ci-7/4121 for", "look     tenure --addr "]);
    }
    ok(&["unlock", "drawn", "--lease", &id, "--token", token.trim()]);
    let screen = terminal.shows("acquired, token");
    assert!(!screen.contains("waiting for lock"), "the block is gone: {screen}");
    terminal.presses("C-c");
    let screen = terminal.shows("ended 0");
    assert!(screen.contains("tenure: lock `drawn` released after"), "{screen}");
}

#[test]
fn a_wait_is_drawn_in_place_where_its_lines_do_not_fit() {
    let Some(terminal) = Terminal::open(40, 20) else { return };
    let id = lease("somebody-with-a-long-name/4121");
    ok(&["try", "narrow", "--lease", &id, "--metadata", "release 5.2 of everything"]);
    let addr = &member().addr;
    for (command, rest) in [("lock", ""), ("run", " -- true")] {
        terminal.types(&format!("{TENURE} {command} narrow --addr {addr}{rest}; echo ended $?\n"));
        terminal.shows("waiting for lock `narrow`");
        wait("it was drawn several times", || {
            let queue = crate::stage::json(&["queue", "narrow"]);
            (queue.first()?["waiting_ms"].as_u64()? > 3_500).then_some(())
        });
        // A screen may be captured while it is drawn; leftover lines would stay.
        wait("one block", || {
            (terminal.screen().matches("waiting for lock").count() == 1).then_some(())
        });
        terminal.presses("C-c");
        terminal.shows("ended 130");
        terminal.types("clear\n");
        wait("a clear screen", || (!terminal.screen().contains("ended")).then_some(()));
    }
}
