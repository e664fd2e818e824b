//! Tests `tenure run` in every situation that a terminal can be in: what holds the lock, what is printed, and the exit
//! code.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::common::{TENURE, wait};
use crate::job::Role;
use crate::shell::Shell;
use crate::world::{Held, World, scratch};

const CTRL_C: &str = "\x03";
const CTRL_BACKSLASH: &str = "\x1c";
const CTRL_Z: &str = "\x1a";

impl World {
    fn shell(&self) -> Shell {
        Shell::open(&self.addresses())
    }

    /// The name of the client that holds a lock.
    fn holder(&self, lock: &str) -> Option<String> {
        let shown = self.runtime.block_on(self.client.show(lock)).unwrap();
        shown.and_then(|it| it.holders.first().map(|holder| holder.client.clone()))
    }

    fn waits_until_free(&self, lock: &str) {
        wait("it is free", || self.holder(lock).is_none().then_some(()));
    }
}

/// Waits until the command was continued this many times.
fn wait_continued(events: &Path, times: usize) {
    wait("it is continued", || {
        let text = fs::read_to_string(events).unwrap_or_default();
        (text.matches("\"continued\"").count() == times).then_some(())
    });
}

#[test]
fn a_command_at_the_end_of_a_pipeline_reads_the_terminal() {
    let world = World::new(1);
    let mut shell = world.shell();
    shell.types(
        "seq 100000 | $T run pipe -- sh -c 'head -n 2; read a </dev/tty; echo k\"\"ey $a'\n",
    );
    shell.shows("tenure: lock `pipe` acquired, token 1");
    shell.shows("\n2");
    assert!(world.holder("pipe").is_some());
    shell.types("one\n");
    shell.shows("key one");
    shell.shows("tenure: lock `pipe` released after");
    shell.code(0);
    world.waits_until_free("pipe");
}

#[test]
fn a_command_at_the_beginning_of_a_pipeline_reads_the_terminal() {
    let world = World::new(1);
    let mut shell = world.shell();
    shell.types(
        "$T run pipe -- sh -c 'echo u\"\"p >/dev/tty; read a </dev/tty; echo $a' | sed s/^/got-/\n",
    );
    shell.shows("up");
    assert!(world.holder("pipe").is_some());
    shell.types("one\n");
    // The two ends of the pipeline print their last lines in either order.
    shell.shows_both("got-one", "tenure: lock `pipe` released after");
    // The other end of the pipeline may use the terminal, too.
    shell.types("$T run pipe -- echo fed | sh -c 'cat; read b </dev/tty; echo th\"\"en $b'\n");
    shell.shows("fed");
    shell.shows("released after");
    shell.types("two\n");
    shell.shows("then two");
    shell.code(0);
}

#[test]
fn a_pager_works_at_the_end_of_a_pipeline() {
    if !Command::new("less").arg("-V").stdout(Stdio::null()).status().is_ok_and(|it| it.success()) {
        eprintln!("SKIPPED: there is no less");
        return;
    }
    let world = World::new(1);
    let mut shell = world.shell();
    shell.types("seq 100000 | $T run less -- less -d\n");
    shell.shows("acquired");
    shell.shows("2");
    assert!(world.holder("less").is_some());
    shell.types("q");
    shell.shows("tenure: lock `less` released after");
    shell.code(0);
}

#[test]
fn ctrl_c_reaches_the_command_once_and_is_its_own_to_handle() {
    let world = World::new(1);
    let dir = scratch();
    let go = dir.path().join("go");
    let mut shell = world.shell();
    let script = format!(
        "trap \"n=\\$((n+1)); echo INT=\\$n\" INT; echo u\"\"p; while [ ! -e {} ]; do sleep 0.05; done; exit 4",
        go.display()
    );
    shell.types(&format!("$T run int -- sh -c '{script}'\n"));
    shell.shows("\nup");
    shell.types(CTRL_C);
    shell.shows("INT=1");
    assert!(world.holder("int").is_some());
    shell.types(CTRL_C);
    shell.shows("INT=2");
    fs::write(&go, "").unwrap();
    shell.shows("tenure: lock `int` released after");
    shell.code(4);
    assert!(!shell.text().contains("INT=3"), "{}", shell.text());
}

#[test]
fn ctrl_c_and_ctrl_backslash_end_the_command_and_release_the_lock() {
    let world = World::new(1);
    let mut shell = world.shell();
    for (key, name, code) in [(CTRL_C, "SIGINT", 130), (CTRL_BACKSLASH, "SIGQUIT", 131)] {
        shell.types("$T run keys -- sh -c 'echo u\"\"p; exec sleep 600'\n");
        shell.shows("\nup");
        shell.types(key);
        shell.shows(&format!("tenure: sh ended by {name}, lock `keys` released after"));
        shell.code(code);
        world.waits_until_free("keys");
    }
}

#[test]
fn ctrl_z_warns_before_it_stops_and_fg_goes_on_under_the_same_lock() {
    let world = World::new(1);
    let mut shell = world.shell();
    let dir = scratch();
    let events = dir.path().join("events");
    let flags = format!("--ttl 1h --events {}", events.display());
    shell.types(&format!("$T run stop {flags} -- sh -c 'echo u\"\"p; exec sleep 600'\n"));
    shell.shows("\nup");
    for times in 1..=10 {
        shell.types(CTRL_Z);
        // The warning stands before the shell's own line, every time.
        shell.shows(
            "tenure: sh stopped by SIGTSTP: lock `stop` is lost and the command killed in 29m",
        );
        shell.shows(", unless continued: fg");
        shell.shows("Stopped");
        assert!(world.holder("stop").is_some());
        shell.types("fg\n");
        wait_continued(&events, times);
    }
    assert!(world.holder("stop").is_some());
    shell.types(CTRL_C);
    shell.shows("tenure: sh ended by SIGINT, lock `stop` released after");
    shell.code(130);
}

#[test]
fn a_waiter_that_ctrl_z_stops_keeps_its_place_for_a_while_and_is_drawn_anew() {
    let world = World::new(1);
    let first = world.next("wait");
    let mut shell = world.shell();
    shell.types("$T run wait --ttl 1h -- sh -c 'echo m\"\"ine'\n");
    shell.shows("waiting for lock `wait`");
    for _ in 0..3 {
        shell.types(CTRL_Z);
        shell.shows("tenure: stopped: the queue position is kept for 10m, and lost after that, unless continued: fg");
        shell.shows("Stopped");
        shell.types("echo bet''ween\n");
        shell.shows("between");
        assert_eq!(world.waiting("wait"), 1, "it is still in the queue");
        shell.types("fg\n");
        // What the shell has written since stays: the block is not drawn over it.
        let seen = shell.seen();
        shell.shows("waiting for lock `wait`");
        let drawn = shell.shown_since(seen);
        assert!(!drawn.contains("\x1b[J"), "{drawn:?}");
    }
    world.runtime.block_on(first.release()).unwrap();
    shell.shows("mine");
    shell.code(0);
}

#[test]
fn a_waiter_that_stays_stopped_loses_its_place_and_asks_again() {
    let world = World::new(1);
    let first = world.next("again");
    let mut shell = world.shell();
    shell.types("$T run again --ttl 2s -- sh -c 'echo m\"\"ine'\n");
    shell.shows("waiting for lock `again`");
    shell.types(CTRL_Z);
    shell.shows("Stopped");
    wait("its place is gone", || (world.waiting("again") == 0).then_some(()));
    shell.types("fg\n");
    shell.shows("asking again");
    wait("it is queued again", || (world.waiting("again") == 1).then_some(()));
    world.runtime.block_on(first.release()).unwrap();
    shell.shows("mine");
    shell.code(0);
}

#[test]
fn a_waiter_in_the_background_writes_lines_and_no_block() {
    let world = World::new(1);
    let first = world.next("behind");
    let mut shell = world.shell();
    shell.types("$T run behind --ttl 1h -- sh -c 'echo m\"\"ine' & \n");
    shell.shows("waiting for lock `behind`");
    let next = world.client.lock("behind");
    let second = world.runtime.spawn(next.into_future());
    wait("another one waits", || (world.waiting("behind") == 2).then_some(()));
    world.runtime.block_on(first.release()).unwrap();
    shell.shows("mine");
    assert!(!shell.text().contains("\x1b[J"), "{:?}", shell.text());
    drop(world.runtime.block_on(second).unwrap().unwrap());
}

#[test]
fn a_waiter_leaves_the_queue_when_its_terminal_is_closed_but_not_under_nohup() {
    let world = World::new(1);
    let first = world.next("hangup");
    let dir = scratch();
    let out = dir.path().join("out");
    let mut shell = world.shell();
    shell.types("$T run hangup --ttl 1h -- true &\n");
    wait("one waits", || (world.waiting("hangup") == 1).then_some(()));
    shell.types(&format!(
        "nohup $T run hangup --ttl 1h -- echo survived >{} 2>&1 &\n",
        out.display()
    ));
    wait("both wait", || (world.waiting("hangup") == 2).then_some(()));
    // A shell that is hung up hangs up its jobs.
    shell.types("kill -HUP $$\n");
    shell.ends();
    wait("only the one under nohup waits", || (world.waiting("hangup") == 1).then_some(()));
    world.runtime.block_on(first.release()).unwrap();
    wait("it runs", || fs::read_to_string(&out).unwrap().contains("survived").then_some(()));
}

#[test]
fn a_job_that_stays_stopped_loses_its_lock() {
    let world = World::new(1);
    let mut shell = world.shell();
    shell.types("$T run stay --ttl 2s -- sh -c 'echo u\"\"p; exec sleep 600'\n");
    shell.shows("\nup");
    shell.types(CTRL_Z);
    shell.shows("unless continued: fg");
    let _guard = world.next("stay");
    shell.types("fg\n");
    shell.shows("tenure: lock `stay` lost: ");
    shell.shows("SIGKILL to 1 process in the stopped state");
    shell.code(76);
}

#[test]
fn a_background_job_that_reads_the_terminal_is_stopped_with_a_message_and_loses_its_lock() {
    let world = World::new(1);
    let mut shell = world.shell();
    shell.types("$T run reader --ttl 2s -- cat &\n");
    shell.shows(
        "tenure: cat stopped by SIGTTIN, because it reads from the terminal in the background: ",
    );
    shell.shows("lock `reader` is lost and the command killed in ");
    let _guard = world.next("reader");
    shell.types("jobs\n");
    shell.shows("Stopped");
    shell.types("fg\n");
    shell.shows("tenure: lock `reader` lost: ");
    shell.code(76);
}

#[test]
fn a_background_job_that_is_brought_to_the_foreground_reads_the_terminal() {
    let world = World::new(1);
    let mut shell = world.shell();
    let dir = scratch();
    let events = dir.path().join("events");
    let flags = format!("--ttl 1h --events {}", events.display());
    shell.types(&format!("$T run front {flags} -- sh -c 'read a; echo got-$a' &\n"));
    shell.shows("stopped by SIGTTIN");
    // `tenure` stops itself after the message. A shell that is told `fg` in between continues nothing.
    shell.types("until jobs -s | grep -q run; do sleep 0.1; done; fg\n");
    wait_continued(&events, 1);
    shell.types("one\n");
    shell.shows("got-one");
    shell.shows("tenure: lock `front` released after");
    shell.code(0);
}

#[test]
fn a_background_job_that_changes_the_terminal_is_stopped_with_a_message() {
    let world = World::new(1);
    let mut shell = world.shell();
    shell.types("$T run modes --ttl 1h -- stty echo &\n");
    shell.shows(
        "tenure: stty stopped by SIGTTOU, because it writes to the terminal in the background",
    );
    // A shell that continues a job before it has stopped sees it stop afterwards.
    shell.types("until jobs | grep -q Stopped; do sleep 0.1; done; fg\n");
    shell.shows("tenure: lock `modes` released after");
    shell.code(0);
}

#[test]
fn a_background_job_that_needs_no_terminal_runs_to_its_end() {
    let world = World::new(1);
    let mut shell = world.shell();
    shell.types("$T run quiet -- sh -c 'echo r\"\"an; exit 5' & wait $!\n");
    shell.shows("ran");
    shell.shows("tenure: lock `quiet` released after");
    shell.code(5);
    world.waits_until_free("quiet");
}

#[test]
fn an_interactive_shell_under_the_lock_has_jobs_of_its_own() {
    let world = World::new(1);
    let mut shell = world.shell();
    shell.types("$T run inner -- bash --norc --noprofile --noediting -i\n");
    shell.shows("acquired");
    shell.shows("ready>");
    shell.types("sh -c 'echo sl\"\"eeps; exec sleep 600'\n");
    shell.shows("\nsleeps");
    shell.types(CTRL_Z);
    shell.shows("Stopped");
    assert!(world.holder("inner").is_some(), "only a job of the inner shell stopped");
    shell.types("disown -a; exit 3\n");
    shell.shows("tenure: lock `inner` released after");
    shell.code(3);
}

#[test]
fn a_command_that_was_killed_leaves_a_usable_terminal() {
    let world = World::new(1);
    let mut shell = world.shell();
    shell.types("$T run modes -- sh -c 'stty -echo; echo u\"\"p; exec sleep 600'\n");
    shell.shows("\nup");
    let shown = world.runtime.block_on(world.client.show("modes")).unwrap().unwrap();
    let force =
        world.client.force("modes", shown.holders[0].token, "a test", tenure::Urgency::StopFirst);
    world.runtime.block_on(force.into_future()).unwrap();
    shell.shows("tenure: lock `modes` lost: forced by next: a test");
    shell.code(76);
    shell.types("stty -a | grep -o ' echo '; echo l\"\"ook\n");
    shell.shows(" echo ");
    shell.shows("look");
}

/// `ssh -t` and containers with a terminal: the session begins with `tenure`, and no shell could continue it.
#[test]
fn ctrl_z_has_no_effect_where_nothing_could_continue_the_job() {
    let world = World::new(1);
    let command = "exec $T run remote -- sh -c 'echo up; read a; echo got-$a; exit 6'";
    let mut shell = Shell::of(command, &world.addresses());
    shell.shows("up");
    shell.types(CTRL_Z);
    shell.shows("tenure: Ctrl-Z has no effect: there is no shell that could continue the command");
    shell.types("one\n");
    shell.shows("got-one");
    shell.shows("tenure: lock `remote` released after");
    assert_eq!(shell.ends(), Some(6));
}

#[test]
fn ctrl_c_ends_a_command_that_is_the_session() {
    let world = World::new(1);
    let command = "exec $T run remote -- sh -c 'echo up; exec sleep 600'";
    let mut shell = Shell::of(command, &world.addresses());
    shell.shows("up");
    shell.types(CTRL_C);
    shell.shows("sh ended by SIGINT, lock `remote` released after");
    assert_eq!(shell.ends(), Some(130));
}

#[test]
fn under_nohup_the_command_outlives_its_terminal() {
    let world = World::new(1);
    let dir = scratch();
    let (go, out) = (dir.path().join("go"), dir.path().join("out"));
    let mut shell = world.shell();
    shell.types(&format!(
        "nohup $T run hup -- sh -c 'while [ ! -e {} ]; do sleep 0.05; done; echo survived' >{} 2>&1 &\n",
        go.display(),
        out.display()
    ));
    wait("it holds the lock", || world.holder("hup"));
    shell.types("exit\n");
    shell.ends();
    assert!(world.holder("hup").is_some());
    fs::write(&go, "").unwrap();
    wait("it ends", || fs::read_to_string(&out).unwrap().contains("survived").then_some(()));
    world.waits_until_free("hup");
}

/// As under cron and systemd.
#[test]
fn without_a_terminal_a_stopped_command_is_reported_and_keeps_its_lock() {
    let world = World::new(1);
    let addresses = world.addresses();
    let dir = scratch();
    let mut command = Command::new("setsid");
    command.args(["--wait", TENURE, "run", "cron", "--addr", &addresses, "--events"]);
    command.arg(dir.path().join("events")).arg("--").args(crate::job::program());
    let mut held = Held::spawn(command, dir, Role::Plain);
    held.runs(1);
    let pid = Pid::from_raw(i32::try_from(held.record().pids[0]).unwrap()).unwrap();
    kill_process(pid, Signal::STOP).unwrap();
    let said =
        format!("stopped by SIGSTOP: lock `cron` stays held until it goes on: kill -CONT {pid}\n");
    wait("it is said", || held.said().contains(&said).then_some(()));
    assert_eq!(held.event("suspended")["signal"], "SIGSTOP");
    assert!(world.holder("cron").is_some());
    kill_process(pid, Signal::CONT).unwrap();
    held.event("continued");
    kill_process(pid, Signal::TERM).unwrap();
    assert_eq!(held.ended().code(), Some(143));
}

/// The command that starts another one in a PID namespace of its own.
const IN_NAMESPACE: &str = "unshare --pid --fork --mount-proc --kill-child";

fn container() -> Option<Command> {
    let unshare = || {
        let mut words = IN_NAMESPACE.split(' ');
        let mut command = Command::new(words.next().unwrap());
        command.args(words);
        command
    };
    let tried = unshare().arg("true").stderr(Stdio::null()).status();
    if !tried.is_ok_and(|it| it.success()) {
        eprintln!("SKIPPED: there are no privileges for a namespace");
        return None;
    }
    Some(unshare())
}

#[test]
fn the_session_of_an_ancestor_may_be_outside_of_the_namespace() {
    let Some(mut script) = container() else { return };
    let world = World::new(1);
    script.arg("script");
    let command = "exec $T run entered -- echo up";
    let mut shell = Shell::under(script, command, &world.addresses());
    shell.shows("up");
    shell.shows("lock `entered` released after");
    assert_eq!(shell.ends(), Some(0));
}

#[test]
fn its_own_session_may_be_outside_of_the_namespace() {
    if container().is_none() {
        return;
    }
    let world = World::new(1);
    let command = format!("exec {IN_NAMESPACE} $T run entered -- echo up");
    let mut shell = Shell::of(&command, &world.addresses());
    shell.shows("up");
    shell.shows("lock `entered` released after");
    assert_eq!(shell.ends(), Some(0));
}

#[test]
fn as_the_first_process_of_a_container_it_passes_signals_on_and_reaps() {
    let Some(mut command) = container() else { return };
    let world = World::new(1);
    let dir = scratch();
    let up = dir.path().join("up");
    let script = format!(
        "trap 'exit 9' TERM; (sleep 0.01 &); sleep 0.1; ps -o stat= ax >{up}.states; mv {up}.states {up}; \
         while :; do sleep 0.05; done",
        up = up.display()
    );
    command.args([TENURE, "run", "one", "--addr", &world.addresses(), "--", "sh", "-c", &script]);
    let mut held = Held::spawn(command, scratch(), Role::Plain);
    wait("it runs", || up.exists().then_some(()));
    let states = fs::read_to_string(&up).unwrap();
    assert!(!states.lines().any(|state| state.starts_with('Z')), "{states}");
    // Its child, which is the first process in the namespace.
    let children = format!("/proc/{0}/task/{0}/children", held.child.id());
    let first = fs::read_to_string(children).unwrap().trim().parse().unwrap();
    kill_process(Pid::from_raw(first).unwrap(), Signal::TERM).unwrap();
    assert_eq!(held.ended().code(), Some(9));
    world.waits_until_free("one");
}

#[test]
fn a_run_that_is_skipped_says_who_holds_the_lock_in_one_line() {
    let world = World::new(1);
    let held = world.hold("skip", &["--client", "ana"], Role::Plain);
    let mut shell = world.shell();
    shell.types("$T run skip --wait 0 --held-code 0 -- true\n");
    shell.shows("tenure: skipped: lock `skip` is held by ana");
    shell.code(0);
    assert!(!shell.text().contains("error:"), "{}", shell.text());
    drop(held);
}
