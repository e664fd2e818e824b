//! Tests that every mistake gives a helpful message and the documented exit code.

use std::process::{Command, Stdio};

use crate::stage::{
    Live, Member, TENURE, at, ended, lease, member, objects, ok, refused, run, run_with, wait,
};

#[test]
fn wrong_arguments_are_refused_before_anything_is_sent() {
    // No process listens there: a request that was sent would end with 69.
    let nowhere = |arguments: &[&str]| at("127.0.0.1:1", arguments);
    for (arguments, words) in [
        (&["lokc"][..], "similar subcommand"),
        (&["rnu", "a", "--", "true"], "similar subcommand exists: 'run'"),
        (&["dve"], "similar subcommand exists: 'dev'"),
        (&["run", "a", "--wait", "5", "s", "--", "true"], "error: is `s` a lock?\n"),
        (&["run", "a", "--ttl=30", "Sec", "--", "true"], "try      --ttl 30s\n"),
        (&["lock", "a", "--wait", "1", "hour"], "try      --wait 1h\n"),
        (&["lock", "a", "--wait", "5sec"], "`5sec` is not a time; try 5s"),
        (&["lock", "a", "--ttl", "15000"], "15000 means seconds, more than 1h; try 15000ms or 15s"),
        (&["lock", "a", "--priority", "high"], "a number from 0 to 9"),
        (&["lock", "a", "--progress-within", "0"], "`0` is no time at all; try 5m"),
        (&["run", "a ", "--", "true"], "the name begins or ends with white space; try a\n"),
        (&["explain", "a\tb"], "it has a control character, such as a tab or a line break"),
        (&["history", "a", "--at", "2999-01-01"], " is in the future; now: tenure explain a\n"),
        (&["locks", "--addr", "127.0.0.1:99999"], "port 99999 is above 65535"),
        (&["locks", "--addr", "a:1 b:1"], "put a comma between addresses: a:1,b:1"),
        (&["lock"], "<LOCK>"),
        (&["lock", "a", "--wiat", "1s"], "--wait"),
        (
            &["lock", "a", "--wait", "soon"],
            "`soon` is not a time; try 15, 15s, 500ms, 2m, 1h30m or 7d",
        ),
        (&["lock", "a", "--slots", "0"], "--slots"),
        (&["lock", "a", "./m", "b c"], "try      tenure run a -- ./m 'b c'"),
        (&["lock", "a", "--", "./m", "--fast"], "try      tenure run a -- ./m --fast"),
        (&["run", "a", "./m", "b c"], "try      tenure run a -- ./m 'b c'"),
        (&["run", "m", "m", "m"], "try      tenure run m -- m m"),
        (&["run", "--client", "m", "a", "m"], "try      tenure run --client m a -- m"),
        (&["elect", "a", "--value", "v", "./m"], "try      tenure elect a --value v -- ./m"),
        (&["plan", "--ttl", "5h"], "a ttl of 5h is not between 100ms and 1h"),
        (&["lock", "a", "--lease", "1", "--ttl", "5s"], "cannot be used with"),
        (&["force", "a", "--token", "x"], "--token"),
        (&["locks", "--output", "yaml"], "[possible values: text, json]"),
        (&["key", "cas", "a", "b"], "--old"),
        (&["watch", "--from", "0"], "--from"),
        (&["plan", "--drift", "fast"], "parts per million"),
        (&["completions", "tcsh-ish"], "possible values"),
        (&["help", "nothing"], "there is no command `nothing`"),
        (&["help", "HOLD"], "there is no reason HOLD"),
        (&["bench", "--clients", "0"], "--clients are from 1 to 10000"),
        (&["unlock", "a", "--token", "1"], "--lease is missing, and TENURE_LEASE is not set"),
    ] {
        let ran = nowhere(arguments);
        assert_eq!(ran.code, 2, "{arguments:?}: {ran:?}");
        assert!(ran.err.contains(words), "{arguments:?}: {}", ran.err);
        assert!(ran.err.starts_with("error: "), "{arguments:?}: {}", ran.err);
        assert_eq!(ran.out, "", "{arguments:?}");
    }
    // Programs get the same as one object, also from the parser.
    for arguments in [
        &["lokc", "--output", "json"][..],
        &["lock", "--output=json"],
        &["lock", "a", "--wiat", "1s", "--output", "json"],
        &["run", "a", "--output", "json"],
        &["run", "a", "--grace", "9s", "--output", "json", "--", "true"],
        &["run", "a", "--output", "json", "--", "no-such-command-anywhere"],
    ] {
        let ran = nowhere(arguments);
        let said = objects(&ran.err);
        let last = said.last().unwrap_or_else(|| panic!("{arguments:?}: {ran:?}"));
        assert_eq!(last["exit_code"], ran.code, "{ran:?}");
        let error = if last["error"].is_null() { last } else { &last["error"] };
        assert!(error["message"].as_str().is_some_and(|it| !it.is_empty()), "{last}");
        assert_eq!((said.len(), ran.out.as_str()), (1, ""), "{ran:?}");
    }
    // The output flag of the command after `--` does not concern us.
    let theirs = nowhere(&["run", "--", "x", "--output", "json"]);
    assert!(theirs.code == 2 && theirs.err.starts_with("error: "), "{theirs:?}");
    refused(2, "ARGUMENTS", &["lease", "show", "my-lease"]);
    for (address, words) in [
        ("nowhere", "--clients nowhere is no address; try 127.0.0.1:7450"),
        ("18052", "--clients 18052 is no address; try 127.0.0.1:18052"),
        (":18052", "--clients :18052 is no address; try 127.0.0.1:18052"),
        ("10.1.2.3:70000", "--clients 10.1.2.3:70000 is no address: port 70000 is above 65535"),
        ("10.1.2.3:7450", "not on 10.1.2.3:7450; try 127.0.0.1:7450, or tenure serve"),
    ] {
        let ran = nowhere(&["dev", "--fresh", "--clients", address]);
        assert!(ran.code == 2 && ran.err.contains(words), "{ran:?}");
    }
    // A wrong value in a flag is a wrong argument; one in a variable or a file is a wrong configuration.
    let member = ["serve", "--name", "a", "--data", "/nowhere/at/all"];
    for (flags, words) in [
        (["--clients", "7470"], "--clients: listen.clients is `7470`, which is no address"),
        (["--members", "7471"], "--members: listen.members is `7471`"),
        (["--bootstrap", "a"], "--bootstrap: `a` names no initial member; try name=address"),
        (["--bootstrap", "a=here"], "`here` of `a` is no address"),
        (["--join", "here"], "--join: `here` is no address"),
        (["--preference", "101"], "try a number from 0 to 100"),
    ] {
        let ran = nowhere(&[&member[..], &flags].concat());
        assert!(ran.code == 2 && ran.err.contains(words), "{ran:?}");
        let ran = nowhere(&[&member[..], &flags, &["--output", "json"]].concat());
        assert_eq!(objects(&ran.err)[0]["exit_code"], 2, "{ran:?}");
    }
    let ran = run_with(&[("TENURE_LISTEN_CLIENTS", "7470")], &member);
    assert!(ran.code == 78 && ran.err.contains("TENURE_LISTEN_CLIENTS: "), "{ran:?}");
    let proxy = ["fence", "proxy", "--resource", "a", "--data", "/nowhere", "--upstream"];
    let ran = nowhere(&[&proxy[..], &["nonsense"]].concat());
    assert!(ran.code == 2 && ran.err.contains("--upstream nonsense"), "{ran:?}");
    let ran = run(&["lock", "a", "--ttl", "0", "--hold"]);
    assert!(ran.code == 2 && ran.err.contains("a ttl of 0s is not between"), "{ran:?}");
    let said = refused(1, "INVALID_TTL", &["lease", "grant", "--ttl", "0"]);
    assert!(said.contains("a ttl of 0s is shorter") && said.contains("--ttl 1s"), "{said}");
    let bad = run(&["lock", "a", "--ttl", "3h", "--hold"]);
    assert!(bad.code == 2 && bad.err.contains("not between 100ms and 1h"), "{bad:?}");
}

#[test]
fn no_member_reached_means_nothing_happened() {
    for arguments in [
        &["locks"][..],
        &["lock", "a", "--hold"],
        &["try", "a", "--hold"],
        &["key", "put", "a", "b"],
        &["cluster", "status"],
        &["watch"],
        &["elect", "a", "--value", "v"],
        &["top", "--once"],
        &["bench", "--duration", "1s"],
    ] {
        let timeout = ["--connect-timeout", "300ms"];
        let ran = at("127.0.0.1:1", &[arguments, &timeout].concat());
        assert_eq!(ran.code, 69, "{arguments:?}: {ran:?}");
        let said = "error: cannot connect to 127.0.0.1:1: connection refused\n";
        assert!(ran.err.starts_with(said), "{}", ran.err);
        assert!(ran.err.contains("tried    127.0.0.1:1 ") && ran.err.contains("effect   none"));
        assert!(
            ran.err.contains("try      tenure dev --clients 127.0.0.1:1, which"),
            "{}",
            ran.err
        );
    }
    let json = ["locks", "--connect-timeout", "300ms", "--output", "json"];
    let said = objects(&at("127.0.0.1:1", &json).err);
    assert_eq!((&said[0]["error"]["effect"], &said[0]["exit_code"]), (&"none".into(), &69.into()));
}

#[test]
fn an_unanswered_request_may_have_happened() {
    let gone = Member::found("gone");
    let addr = gone.addr.clone();
    let lease = |client| at(&addr, &["lease", "grant", "--ttl", "1h", "--client", client]).out;
    let (holder, waiter) = (lease("holder"), lease("waiter"));
    assert_eq!(at(&addr, &["try", "l", "--lease", holder.trim()]).code, 0);
    let mut waiting = Live::start_at(&addr, &["lock", "l", "--lease", waiter.trim()]);
    waiting.says("waiting for lock `l`");
    let short = ["--connect-timeout", "2s"];
    let mut watching =
        Live::start_at(&addr, &[&["watch", "l", "--from", "1"], &short[..]].concat());
    let line = watching.says("granted");
    // The time of day stands before the revision.
    let seen: u64 = line.split_whitespace().find_map(|word| word.parse().ok()).unwrap();
    let own = [&["--ttl", "6s"], &short[..]].concat();
    let start = |words: &[&str]| Live::start_at(&addr, &[words, &own].concat());
    let mut third = start(&["lock", "l"]);
    third.says("waiting for lock `l`, 1 ahead of you");
    let program = start(&["lock", "l", "--output", "json"]);
    program.says("\"queued\"");
    let candidate =
        start(&["elect", "l", "--value", "v", "--client", "candidate", "--output", "json"]);
    wait("it waits", || at(&addr, &["queue", "l"]).out.contains("candidate").then_some(()));
    drop(gone);
    // A place in a queue is not a lock, so no held lock was lost; but the lock may have been granted unseen.
    assert_eq!(third.ends(), Some(69), "{:?}", third.said());
    third.says("error: lock `l` was not acquired: cluster unreachable for");
    third.says("effect   unknown: what was granted unseen is given back, or ends with its lease, within 6s");
    for mut asked in [program, candidate] {
        assert_eq!(asked.ends(), Some(69), "{:?}", asked.said());
        let told = objects(&asked.says("\"error\"")).remove(0);
        let error = &told["error"];
        assert_eq!((&error["reason"], &told["exit_code"]), (&"UNANSWERED".into(), &69.into()));
        assert_eq!((&error["effect"], error["next"].is_string()), (&"unknown".into(), true));
    }
    // A client that watched gets the command that continues.
    assert_eq!(watching.ends(), Some(69), "{:?}", watching.said());
    let next = watching.says("try      tenure watch l --from ");
    let next: u64 =
        next.split("--from ").nth(1).unwrap().split(',').next().unwrap().parse().unwrap();
    assert!(next > seen, "{next} {seen}");
    assert_eq!(waiting.ends(), Some(74), "{:?}", waiting.said());
    waiting.says("effect   unknown: it may have happened");
    waiting.says("--request-id");
}

#[test]
fn flags_beat_variables_which_beat_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("client.toml");
    let write =
        |addr: &str| std::fs::write(&file, format!("addr = \"{addr}\"\nclient = \"filed\"\n"));
    write(&member().addr).unwrap();
    let with = |variables: &[(&str, &str)], arguments: &[&str]| {
        let mut command = Command::new(TENURE);
        command.args(arguments).env_clear().stdin(Stdio::null());
        ended(command.envs(variables.iter().copied()))
    };
    let path = file.to_str().unwrap();
    let granted = with(&[("TENURE_CLIENT_CONFIG", path)], &["lease", "grant", "--ttl", "1m"]);
    assert_eq!(granted.code, 0, "{granted:?}");
    assert!(ok(&["lease", "show", granted.out.trim()]).contains("of filed,"));
    let beaten =
        with(&[("TENURE_CLIENT_CONFIG", path), ("TENURE_CLIENT", "said")], &["lease", "grant"]);
    assert!(ok(&["lease", "show", beaten.out.trim()]).contains("of said,"), "{beaten:?}");
    write("127.0.0.1:1").unwrap();
    let flagged = ["locks", "--client-config", path, "--addr", &member().addr];
    assert_eq!(with(&[("TENURE_ADDR", "127.0.0.1:2")], &flagged).code, 0);
    // The message names a wrong file with the line, and the exit code is that of an unusable configuration.
    std::fs::write(&file, "client = \"a\"\nadress = \"x\"\n").unwrap();
    let wrong = with(&[], &["locks", "--client-config", path]);
    assert!(wrong.code == 78 && wrong.err.contains("client.toml\" line 2: "), "{wrong:?}");
    let wrong = with(&[], &["locks", "--addr", "http://here"]);
    assert!(wrong.code == 2 && wrong.err.contains("`http://here` is not an address"), "{wrong:?}");
    let wrong = with(&[("TENURE_ADDR", "here")], &["locks"]);
    assert!(wrong.code == 78 && wrong.err.contains("`here` is not an address"), "{wrong:?}");
    let wrong = with(&[], &["locks", "--tls-cert", "c.pem"]);
    assert!(wrong.code == 2 && wrong.err.contains("--tls-ca"), "{wrong:?}");
    let wrong = run_with(&[("TENURE_CA", "/nowhere.pem")], &["locks"]);
    assert!(wrong.code == 78 && wrong.err.contains("/nowhere.pem"), "{wrong:?}");
    let gone = with(&[], &["locks", "--client-config", "/nowhere.toml"]);
    assert_eq!(gone.code, 78, "{gone:?}");
    // The default file may be missing; one that exists and cannot be read is not ignored.
    let home = dir.path().join("home");
    let variables = [("HOME", home.to_str().unwrap()), ("TENURE_ADDR", &member().addr)];
    assert_eq!(with(&variables, &["locks"]).code, 0);
    std::fs::create_dir_all(home.join(".config/tenure/client.toml")).unwrap();
    let wrong = with(&variables, &["locks"]);
    assert_eq!(wrong.code, 78, "{wrong:?}");
    assert!(wrong.err.starts_with("error: cannot read "), "{wrong:?}");
    assert!(wrong.err.contains("; try --client-config"), "{wrong:?}");
    assert_eq!(wrong.err.lines().count(), 1, "{wrong:?}");
    assert_eq!(with(&variables, &["locks", "--client-config", "/dev/null"]).code, 0);
}

#[test]
fn names_are_taken_as_they_are_or_refused_with_what_would_do() {
    for name in ["ключ/ёлка", "锁", "a b", "it's", "-x", "x".repeat(255).as_str()] {
        let id = crate::stage::lease("names");
        let token = ok(&["try", "--lease", &id, "--", name]);
        assert!(ok(&["explain", "--", name]).contains("held by  names for"), "{name}");
        let listed = objects(&ok(&["locks", "--output", "json", "--", name]));
        assert_eq!(listed[0]["lock"], name);
        ok(&["unlock", "--lease", &id, "--token", token.trim(), "--", name]);
        ok(&["lease", "revoke", &id, "--stopped"]);
    }
    let long = "x".repeat(600);
    for (name, words) in
        [(long.as_str(), "it has 600 bytes; a name has at most 512"), ("a\nb", "control character")]
    {
        for arguments in [&["try", name, "--hold"][..], &["run", name, "--", "true"]] {
            let ran = at("127.0.0.1:1", arguments);
            assert!(ran.code == 2 && ran.err.contains(words), "{ran:?}");
            assert!(ran.err.lines().all(|line| line.len() < 300), "{ran:?}");
        }
    }
    for arguments in
        [&["try", ""][..], &["explain", ""], &["key", "get", ""], &["run", "", "--", "true"]]
    {
        let ran = at("127.0.0.1:1", arguments);
        assert!(ran.code == 2 && ran.err.contains("a name has at least one letter"), "{ran:?}");
    }
}

#[test]
fn a_reader_that_goes_away_ends_the_command_quietly() {
    let mut command = Command::new("sh");
    command.args(["-c", "\"$0\" completions bash | head -1; exit ${PIPESTATUS:-0}", TENURE]);
    let ran = ended(&mut command);
    assert_eq!(ran.err, "", "no panic, no complaint: {ran:?}");
    // A member goes on, too, when nothing reads its greeting.
    let (from, to) = std::io::pipe().unwrap();
    drop(from);
    let address = format!("127.0.0.1:{}", crate::ports::free_port());
    let mut command = Command::new(TENURE);
    command.args(["dev", "--fresh", "--clients", &address]).stdin(Stdio::null()).stderr(to);
    let mut member = command.stdout(Stdio::null()).spawn().unwrap();
    wait("it serves", || {
        let ran = at(&address, &["locks", "--connect-timeout", "1s"]);
        assert_eq!(member.try_wait().unwrap(), None, "it ended: {ran:?}");
        (ran.code == 0).then_some(())
    });
    assert!(Command::new("kill").arg(member.id().to_string()).status().unwrap().success());
    assert!(member.wait().unwrap().success());
}

#[test]
fn colour_is_for_terminals_whose_owners_want_it() {
    let typed = format!("{TENURE} locks --addr 127.0.0.1:1 --connect-timeout 100ms");
    let shown = |variables: &[(&str, &str)]| {
        let mut command = Command::new("script");
        command.args(["-qec", &typed, "/dev/null"]).stdin(Stdio::null());
        command.env("TERM", "xterm").env_remove("NO_COLOR").envs(variables.iter().copied());
        ended(&mut command).out
    };
    assert!(shown(&[]).contains("\x1b["), "stderr is a terminal");
    for variables in [[("NO_COLOR", "1")], [("TERM", "dumb")]] {
        let text = shown(&variables);
        assert!(text.contains("error: cannot connect to") && !text.contains('\x1b'), "{text:?}");
    }
    assert!(!at("127.0.0.1:1", &["locks", "--connect-timeout", "100ms"]).err.contains('\x1b'));
}

#[test]
fn a_member_says_that_it_is_ready_to_programs_too() {
    let address = format!("127.0.0.1:{}", crate::ports::free_port());
    let mut dev = Live::start(&["dev", "--fresh", "--clients", &address, "--output", "json"]);
    let ready = objects(&dev.says("\"ready\"")).remove(0);
    assert_eq!((&ready["clients"][0], &ready["kept"]), (&address.clone().into(), &false.into()));
    // The message about a used port names the flag that sets another.
    let taken = at("", &["dev", "--fresh", "--clients", &address]);
    assert!(taken.code == 78 && taken.err.contains("another address with --clients"), "{taken:?}");
    // A member that runs alone cannot be joined, and no message advises it.
    let alone = at(&address, &["cluster", "add", "b"]);
    assert!(alone.code == 1 && alone.err.contains("try      tenure serve --help"), "{alone:?}");
    assert_eq!(dev.interrupt(), Some(0));
    assert!(!std::path::Path::new(ready["data"].as_str().unwrap()).exists(), "nothing is kept");
}

#[test]
fn a_member_of_a_cluster_says_what_it_does_in_the_form_that_is_wanted() {
    let dir = tempfile::tempdir().unwrap();
    let [clients, members] = [(); 2].map(|()| format!("127.0.0.1:{}", crate::ports::free_port()));
    let (data, initial_members) = (dir.path().join("a"), format!("a={members}"));
    let start = |form| {
        let names = ["serve", "--name", "a", "--data", data.to_str().unwrap(), "--output", form];
        let places =
            ["--clients", &clients, "--members", &members, "--bootstrap", &initial_members];
        Live::start(&[&names[..], &places].concat())
    };
    let mut json = start("json");
    let ready = objects(&json.says("\"ready\"")).remove(0);
    assert_eq!((&ready["name"], &ready["restart"]), (&"a".into(), &false.into()), "{ready}");
    assert_eq!(
        (&ready["clients"], &ready["members"]),
        (&clients.clone().into(), &members.clone().into())
    );
    assert_eq!(objects(&json.says("\"serving\""))[0]["level"], "info");
    assert_eq!(json.interrupt(), Some(0));
    objects(&json.said().join("\n"));
    let mut text = start("text");
    let line = text.says(" serving ");
    assert!(line.contains(" INFO ") && line.contains("name=a"), "{line}");
    assert_eq!(text.interrupt(), Some(0));
}

#[test]
fn a_suggested_command_goes_to_the_cluster_that_was_asked() {
    let addr = &member().addr;
    let holder = lease("holder");
    let token = ok(&["try", "sug/a", "--lease", &holder]);
    let token = token.trim();
    // The variable names another cluster.
    let there = |arguments: &[&str]| at("127.0.0.1:1", &[&["--addr", addr], arguments].concat());
    let ran = there(&["explain", "sug/a"]);
    for line in ["history sug/a", &format!("force sug/a --token {token} --reason \"…\"")] {
        assert!(ran.out.contains(&format!(" tenure --addr {addr} {line}\n")), "{line}: {ran:?}");
    }
    for arguments in
        [&["try", "sug/a", "--hold"][..], &["run", "sug/a", "--wait", "0", "--", "true"]]
    {
        let ran = there(arguments);
        let look = format!("  look     tenure --addr {addr} explain sug/a\n");
        assert!(ran.code == 75 && ran.err.contains(&look), "{ran:?}");
    }
    // It is what the command line takes.
    let ran = at("127.0.0.1:1", &["--addr", addr, "history", "sug/a"]);
    assert!(ran.code == 0 && ran.out.contains("granted"), "{ran:?}");
    let nowhere = "127.0.0.1:1,127.0.0.1:2";
    let said = at(nowhere, &["locks"]).err;
    assert!(said.contains("try      tenure doctor,"), "{said}");
    let said = at(addr, &["locks", "--addr", nowhere, "--output", "json"]).err;
    let next = objects(&said)[0]["error"]["next"].as_str().unwrap_or_default().to_owned();
    assert!(next.starts_with(&format!("tenure --addr {nowhere} doctor,")), "{next}");
    // A word that is no command of ours.
    let said = at(addr, &["who", "--addr", "127.0.0.1:1"]).err;
    assert!(said.contains("try      tenure --addr 127.0.0.1:1 explain LOCK"), "{said}");
}
