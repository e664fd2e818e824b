//! Tests `tenure run` without faults, and its messages and exit codes for refusals.

use std::process::{Command, Stdio};

use crate::common::{TENURE, free_port, wait};
use crate::job::Role;
use crate::shell::Shell;
use crate::world::{World, is_alive};

#[test]
fn the_command_is_told_what_it_holds() {
    crate::job::act();
    let world = World::new(1);
    let script = "echo $TENURE_LOCK $TENURE_TOKEN $TENURE_LEASE $TENURE_ADDR";
    let first = world.run("told", &[], &["sh", "-c", script]);
    let second = world.run("told", &[], &["sh", "-c", script]);
    let [first, second] = [first, second].map(|ran| {
        assert_eq!(ran.code, Some(0), "{}", ran.err);
        assert_eq!(ran.err, "", "without a terminal it is quiet when all is well");
        let words: Vec<String> = ran.out.split_whitespace().map(str::to_owned).collect();
        assert_eq!((&*words[0], &words[3]), ("told", &world.addresses()));
        words[1].parse::<u64>().unwrap()
    });
    assert!(second > first, "tokens grow");
}

#[test]
fn the_exit_code_is_the_commands_own() {
    let world = World::new(1);
    let code = |command: &[&str]| world.run("codes", &[], command).code;
    assert_eq!(code(&["true"]), Some(0));
    assert_eq!(code(&["sh", "-c", "exit 7"]), Some(7));
    assert_eq!(code(&["sh", "-c", "kill -TERM $$"]), Some(143));
    assert_eq!(code(&["no-such-command-anywhere"]), Some(127));
    assert_eq!(code(&["/etc/passwd"]), Some(126));
}

#[test]
fn a_lock_that_another_client_holds_is_code_75_and_names_the_holder() {
    let world = World::new(1);
    let held = world.hold("busy", &["--client", "ana", "--metadata", "release 5.2"], Role::Plain);
    let ran = world.run("busy", &["--wait", "0"], &["true"]);
    assert_eq!(ran.code, Some(75));
    assert!(ran.err.starts_with("error: lock `busy` is held\n  held by  ana for "), "{}", ran.err);
    assert!(ran.err.contains("token 1, renewed "), "{}", ran.err);
    assert!(ran.err.contains(" ago: \"release 5.2\"\n"), "{}", ran.err);
    assert!(ran.err.contains("if ana stops renewing now"), "{}", ran.err);
    let ran = world.run("busy", &["--wait", "1s", "--held-code", "9"], &["true"]);
    assert_eq!(ran.code, Some(9));
    let waits = "tenure: waiting for lock `busy`, you are next, held by ana for ";
    assert!(ran.err.contains(waits), "{}", ran.err);
    // A run that can be skipped leaves no output, so that cron sends no mail.
    for more in [&["--wait", "0"][..], &["--wait", "500ms", "-q"]] {
        let ran = world.run("busy", &[more, &["--held-code", "0"]].concat(), &["echo", "ran"]);
        assert_eq!((ran.code, &*ran.out, &*ran.err), (Some(0), "", ""));
    }
    let skipped = ["--wait", "0", "--held-code", "0", "--output", "json"];
    let ran = world.run("busy", &skipped, &["true"]);
    let last: serde_json::Value = serde_json::from_str(ran.err.lines().last().unwrap()).unwrap();
    assert_eq!((&last["outcome"], &last["exit_code"]), (&"held".into(), &0.into()));
    assert_eq!(last["message"], "lock `busy` is held by ana");
    let ran = world.run("busy", &["--wait", "0", "--output", "json"], &["true"]);
    let events: Vec<serde_json::Value> =
        ran.err.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(events[0]["holder"]["client"], "ana");
    let last = events.last().unwrap();
    assert_eq!((&last["outcome"], &last["exit_code"]), (&"held".into(), &75.into()));
    drop(held);
}

#[test]
fn a_command_that_runs_once_per_period_is_skipped_after_its_first_start() {
    let world = World::new(1);
    let once = |more: &[&str]| {
        world.run("hourly", &[&["--once-per", "1h"], more].concat(), &["echo", "ran"])
    };
    let (first, second) = (once(&["--client", "ana"]), once(&[]));
    assert_eq!((first.code, &*first.out), (Some(0), "ran\n"), "{}", first.err);
    assert_eq!((second.code, &*second.out, &*second.err), (Some(0), "", ""));
    let told = once(&["--output", "json"]);
    let last: serde_json::Value = serde_json::from_str(told.err.lines().last().unwrap()).unwrap();
    assert_eq!((&last["outcome"], &last["exit_code"]), (&"skipped".into(), &0.into()));
    // With `--wait` the command waits for the next period, and `tenure` says until when.
    let waits = once(&["--wait", "1s"]);
    assert_eq!(waits.code, Some(75), "{}", waits.err);
    assert!(waits.err.contains("no client; ana started "), "{}", waits.err);
    assert!(waits.err.contains(" ago, at most once per 54m, "), "{}", waits.err);
}

#[test]
fn a_run_that_takes_longer_than_its_period_is_reported_by_the_next_one() {
    let world = World::new(1);
    let held = world.hold("slow", &["--once-per", "1s"], Role::Plain);
    wait("the period is over", || {
        let ran = world.run("slow", &["--once-per", "1s"], &["true"]);
        match ran.code {
            Some(75) => Some(()),
            code => {
                assert_eq!(code, Some(0), "skipped for nine tenths of a second: {}", ran.err);
                None
            }
        }
    });
    drop(held);
}

#[test]
fn shared_holders_and_slots_run_together() {
    let world = World::new(1);
    let _readers = [(); 2].map(|()| world.hold("cache", &["--shared"], Role::Plain));
    assert_eq!(world.run("cache", &["--wait", "0"], &["true"]).code, Some(75));
    let _workers = [(); 2].map(|()| world.hold("workers", &["--slots", "3"], Role::Plain));
    assert_eq!(world.run("workers", &["--slots", "3", "--wait", "0"], &["true"]).code, Some(0));
}

#[test]
fn what_the_command_leaves_behind_ends_before_the_lock_is_given_back() {
    let world = World::new(1);
    let mut held = world.hold("left", &[], Role::Family);
    held.runs(3);
    let main = i32::try_from(held.event("started")["pid"].as_u64().unwrap()).unwrap();
    let main = rustix::process::Pid::from_raw(main).unwrap();
    rustix::process::kill_process(main, rustix::process::Signal::KILL).unwrap();
    let _guard = world.next("left");
    assert!(!held.record().pids.iter().any(|pid| is_alive(*pid)));
    assert_eq!(held.ended().code(), Some(137), "the command's own end counts");
    assert_eq!(held.events("lost").len(), 0);
    assert_eq!(held.event("released")["lock"], "left");
}

#[test]
fn an_unreachable_cluster_is_code_69_and_nothing_happened() {
    let address = format!("127.0.0.1:{}", free_port());
    let mut command = Command::new(TENURE);
    command.args(["run", "x", "--addr", &address, "--connect-timeout", "300ms", "--", "true"]);
    let ran = command.output().unwrap();
    let said = String::from_utf8(ran.stderr).unwrap();
    assert_eq!(ran.status.code(), Some(69), "{said}");
    assert!(said.contains(&address) && said.contains("the command did not start"), "{said}");
}

#[test]
fn without_a_quorum_it_is_code_69_and_the_command_does_not_start() {
    let mut world = World::new(3);
    let leader = world.cluster.leader();
    // The leader still accepts requests.
    (0..3).filter(|at| *at != leader).for_each(|at| world.cluster.kill(at));
    let addresses = world.addresses();
    let mut command = Command::new(TENURE);
    command.args([
        "run",
        "x",
        "--addr",
        &addresses,
        "--connect-timeout",
        "2s",
        "--",
        "echo",
        "ran",
    ]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    wait("it gives up", || child.try_wait().unwrap());
    let ran = child.wait_with_output().unwrap();
    let said = String::from_utf8(ran.stderr).unwrap();
    assert_eq!(ran.status.code(), Some(69), "{said}");
    assert!(said.contains("the command did not start"), "{said}");
    assert!(ran.stdout.is_empty(), "it ran");
}

#[test]
fn a_member_without_a_quorum_is_known_at_once() {
    let mut world = World::new(3);
    let leader = world.cluster.leader();
    (0..3).filter(|at| *at != leader).for_each(|at| world.cluster.kill(at));
    wait("it has stepped down", || (!world.cluster.leads(leader)).then_some(()));
    let address = world.cluster.address(leader).to_string();
    // Longer than the test waits.
    let long = ["--connect-timeout", "10m", "--addr", &address];
    for command in [&["run", "x", "--", "echo", "ran"][..], &["locks"], &["key", "put", "a", "b"]] {
        let mut tenure = Command::new(TENURE);
        tenure.args(long).args(command).stdin(Stdio::null());
        let mut child = tenure.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        wait("it gives up", || child.try_wait().unwrap());
        let ran = child.wait_with_output().unwrap();
        let said = String::from_utf8(ran.stderr).unwrap();
        assert_eq!((ran.status.code(), ran.stdout.len()), (Some(69), 0), "{said}");
        let first = "error: the cluster has no quorum: 1 of 3 members answers, and 2 must\n";
        assert!(said.starts_with(first), "{said}");
        assert!(said.contains("  effect   none: ") && said.contains(" cluster status"), "{said}");
    }
}

#[test]
fn times_that_do_not_fit_are_refused_before_anything_is_asked() {
    let run = |flags: &[&str]| {
        let mut command = Command::new(TENURE);
        let ran = command.args(["run", "x"]).args(flags).args(["--", "true"]).output().unwrap();
        assert_eq!(ran.status.code(), Some(2));
        String::from_utf8(ran.stderr).unwrap()
    };
    let said = run(&["--grace", "9s"]);
    assert_eq!(said, "error: grace 9s does not fit ttl 15s (at most 7s); try --ttl 20s\n");
    assert!(run(&["--ttl", "500ms"]).contains("not between 1s and 1h"));
    assert!(run(&["--wait", "5 s"]).contains("`5 s` is not a time"));
    assert!(run(&["--shared", "--slots", "3"]).contains("cannot be used with"));
}

#[test]
fn help_teaches_by_example() {
    let ran = Command::new(TENURE).args(["run", "--help"]).output().unwrap();
    let said = String::from_utf8(ran.stdout).unwrap();
    let first: Vec<&str> = said.lines().take(3).collect();
    assert_eq!(first[0], "Run a command while holding a lock");
    assert!(first[2].starts_with("  tenure run deploy -- ./migrate.sh"), "{said}");
    assert!(said.contains("75 if not acquired, 76 if lost"), "{said}");
}

#[test]
fn those_who_wait_are_served_in_order() {
    let world = World::new(1);
    let mut held = world.hold("order", &[], Role::Plain);
    let addresses = world.addresses();
    let mut next = crate::world::Held::begin(&addresses, "order", &["--client", "b"], Role::Plain);
    wait("it waits", || (world.waiting("order") == 1).then_some(()));
    let queued = next.event("queued");
    assert_eq!((&queued["ahead"], &queued["holder"]["token"]), (&0.into(), &"1".into()));
    held.signal(rustix::process::Signal::TERM);
    assert_eq!(held.ended().code(), Some(143));
    next.runs(1);
    assert_eq!(next.event("acquired")["token"], "2");
    next.signal(rustix::process::Signal::TERM);
    assert_eq!(next.ended().code(), Some(143));
}

#[test]
fn the_command_has_the_terminal_and_gives_it_back() {
    let world = World::new(1);
    let dir = crate::world::scratch();
    let addresses = world.addresses();
    // A script without job control: afterwards it must be able to read again.
    let inner =
        format!("{TENURE} run tty -- sh -c 'read a; echo first $a'; read b; echo second $b");
    let outer = dir.path().join("outer");
    std::fs::write(&outer, inner).unwrap();
    let mut shell = Shell::of(&format!("sh {}", outer.display()), &addresses);
    shell.shows("tenure: lock `tty` acquired, token 1");
    shell.types("one\n");
    shell.shows("first one");
    shell.shows("tenure: lock `tty` released after");
    shell.types("two\n");
    shell.shows("second two");
    assert_eq!(shell.ends(), Some(0));
}
