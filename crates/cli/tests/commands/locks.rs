//! Tests that locks are acquired, waited for, shown, released and forced.

use crate::stage::{Live, changes, json, lease, ok, one, refused, run, wait};

#[test]
fn a_no_says_who_and_since_when_to_programs_too() {
    let (id, other) = (lease("holder"), lease("other"));
    let token = ok(&["try", "no/l", "--lease", &id, "--metadata", "release 5.2"]);
    for arguments in [
        &["try", "no/l"][..],
        &["try", "no/l", "--lease", &other],
        &["lock", "no/l", "--wait", "0"],
        &["lock", "no/l", "--wait", "500ms"],
    ] {
        let ran = run(&[arguments, &["--output", "json"]].concat());
        assert_eq!(ran.code, 75, "{ran:?}");
        let said = crate::stage::objects(&ran.err);
        let error = &said.last().unwrap()["error"];
        let holder = &error["holder"];
        assert_eq!((&error["lock"], &holder["client"]), (&"no/l".into(), &"holder".into()));
        assert_eq!(
            (&holder["lease"], &holder["token"]),
            (&id.as_str().into(), &token.trim().into())
        );
        assert!(holder["held_ms"].is_u64() && holder["renewed_ms"].is_u64(), "{error}");
        assert_eq!(holder["metadata"], "release 5.2", "{error}");
        assert!(error["ahead"].is_u64() && error["free_if_silent_ms"].is_u64(), "{error}");
    }
    // A refused election carries the fields of the wire error.
    let taken = run(&["elect", "no/l", "--value", "v", "--wait", "0", "--output", "json"]);
    let said = crate::stage::objects(&taken.err);
    let error = &said.last().unwrap()["error"];
    assert_eq!(
        (&error["holder"]["client"], &error["holder"]["token"]),
        (&"holder".into(), &token.trim().into())
    );
}

#[test]
fn the_history_of_a_lock_is_not_that_of_the_key_of_its_name() {
    let id = lease("guarding");
    let token = ok(&["try", "past/l", "--lease", &id]);
    ok(&["key", "put", "past/l", "paid", "--lock", "past/l", "--token", token.trim()]);
    ok(&["unlock", "past/l", "--lease", &id, "--token", token.trim()]);
    let text = ok(&["history", "past/l"]);
    assert!(text.contains("granted") && text.contains("released"), "{text}");
    assert!(!text.contains("key"), "{text}");
    let causes: Vec<String> = changes("past/l")
        .iter()
        .flat_map(|it| it["events"].as_array().unwrap().clone())
        .map(|it| it["cause"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(causes, ["granted", "released"]);
}

#[test]
fn a_lock_in_the_foreground_is_held_until_ctrl_c() {
    let mut ana = Live::start(&["lock", "fore", "--client", "ana", "--metadata", "release 5.2"]);
    let token = wait("the token", || ana.said().first().cloned());
    assert!(token.parse::<u64>().is_ok_and(|token| token > 0), "{token}");
    let mut bob = Live::start(&["lock", "fore", "--client", "bob", "--output", "json"]);
    let queued: serde_json::Value = serde_json::from_str(&bob.says("queued")).unwrap();
    assert_eq!(queued["ahead"], 0);
    assert_eq!(queued["holder"]["client"], "ana");
    assert_eq!(queued["holder"]["token"], token.as_str());
    let mut eve = Live::start(&["lock", "fore", "--client", "eve"]);
    let told = eve.says("waiting for lock `fore`, 1 ahead of you, held by ana for");
    assert!(told.contains("\"release 5.2\""), "{told}");

    // Text and JSON output show the same.
    let table = ok(&["locks", "fore"]);
    let row = table.lines().nth(1).unwrap();
    let cells: Vec<&str> = row.split_whitespace().collect();
    assert_eq!(
        (cells[0], cells[1], cells[2], cells[5]),
        ("fore", "exclusive", "ana", "2"),
        "{table}"
    );
    let shown = one(&["locks", "fore"]);
    assert_eq!(shown["waiting"], 2);
    assert_eq!(shown["holders"][0]["token"], token.as_str());
    let queue = ok(&["queue", "fore"]);
    let order: Vec<&str> =
        queue.lines().skip(1).filter_map(|it| it.split_whitespace().nth(1)).collect();
    assert_eq!(order, ["bob", "eve"], "{queue}");
    let queue = json(&["queue", "fore"]);
    assert_eq!((&queue[0]["client"], &queue[1]["ahead"]), (&"bob".into(), &1.into()));
    let text = ok(&["explain", "fore"]);
    for words in [
        "held by  ana for",
        "1. bob",
        "2. eve",
        "stops renewing now; no max_hold",
        "tenure force fore --token",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    let own = queue[1]["lease"].as_str().unwrap();
    let seen = ok(&["explain", "fore", "--lease", own]);
    assert!(seen.contains("2. eve") && seen.contains("(you)"), "{seen}");
    assert_eq!(one(&["explain", "fore"])["ahead"][0]["client"], "bob");

    // Leave the queue, hand the lock over, release it.
    assert_eq!(eve.interrupt(), Some(130));
    eve.says("left the queue of lock `fore`, 1 was ahead");
    assert_eq!(ana.interrupt(), Some(0));
    bob.says("acquired");
    assert_eq!(bob.interrupt(), Some(0));
    bob.says("released");
    wait("no client holds it", || ok(&["locks", "fore"]).is_empty().then_some(()));
    assert!(ok(&["explain", "fore"]).contains("lock `fore` is free"));
    let history = ok(&["history", "fore"]);
    let expected = [("granted", "ana"), ("queued", "bob"), ("queued", "eve"), ("granted", "bob")];
    for (cause, client) in expected {
        let found = history.lines().any(|line| line.contains(cause) && line.contains(client));
        assert!(found, "{cause} {client}: {history}");
    }
    let first = changes("fore").remove(0);
    assert_eq!(first["events"][0]["cause"], "granted");
    let from = first["revision"].as_str().unwrap().parse::<u64>().unwrap() + 1;
    let later = json(&["history", "fore", "--from", &from.to_string()]);
    assert_eq!(later[0]["events"][0]["cause"], "queued");
    assert_eq!(json(&["history", "fore", "--limit", "1"]).len(), 2, "and where the archive begins");
}

#[test]
fn under_a_lease_a_lock_is_taken_and_given_back_at_once() {
    let lease_id = lease("script");
    let token = ok(&["try", "under", "--lease", &lease_id]).trim().to_owned();
    assert!(token.parse::<u64>().is_ok(), "{token}");
    let said = refused(75, "HELD", &["try", "under", "--hold"]);
    for words in ["lock `under` is held", "held by  script for", "tenure explain under"] {
        assert!(said.contains(words), "{words}: {said}");
    }
    let said = refused(75, "WAIT_TIMEOUT", &["lock", "under", "--wait", "200ms", "--hold"]);
    assert!(said.contains("timed out after 0.2s waiting for lock `under`"), "{said}");
    assert!(said.contains("held by  script for"), "{said}");
    // A wait is visible, and Ctrl-C ends it.
    let other = lease("other");
    let mut waiting = Live::start(&["lock", "under", "--lease", &other]);
    waiting.says("waiting for lock `under`, you are next, held by script for");
    assert_eq!(waiting.interrupt(), Some(130));
    assert!(json(&["queue", "under"]).is_empty(), "the place is given up, the lease lives on");
    ok(&["lease", "show", &other]);
    // A wrong token releases nothing, and the error names the holder.
    let said =
        refused(1, "NOT_HOLDER", &["unlock", "under", "--lease", &lease_id, "--token", "999999"]);
    assert!(
        said.contains("held by  script for") && said.contains("tenure history under"),
        "{said}"
    );
    let first = &lease_id[..10];
    let ran = run(&["unlock", "under", "--lease", first, "--token", &token]);
    assert_eq!((ran.code, ran.out.as_str()), (0, ""), "{ran:?}");
    assert!(ran.err.contains("lock `under` released at revision"), "{ran:?}");
    // The same with variables, as `tenure run` sets them, and with JSON output.
    let granted = one(&["lock", "under", "--lease", &lease_id]);
    assert_eq!(
        (&granted["event"], &granted["lease"]),
        (&"acquired".into(), &lease_id.clone().into())
    );
    let token = granted["token"].as_str().unwrap();
    let variables = [("TENURE_LEASE", lease_id.as_str()), ("TENURE_TOKEN", token)];
    let ran = crate::stage::run_with(&variables, &["unlock", "under", "--output", "json"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(crate::stage::objects(&ran.out)[0]["event"], "released");
}

#[test]
fn a_lease_lives_on_while_a_waiter_uses_it() {
    const TTL_MS: u64 = 4_000;
    let holder = lease("first");
    let token = ok(&["try", "patient", "--lease", &holder]).trim().to_owned();
    let mine = ok(&["lease", "grant", "--ttl", "4s", "--client", "second"]).trim().to_owned();
    let waiting = Live::start(&["lock", "patient", "--lease", &mine]);
    // A place in the queue ends with its lease: only a renewed lease can wait for longer than the ttl.
    wait("it waits for longer than its lease would live", || {
        let queue = json(&["queue", "patient"]);
        let waited = queue.first().map_or(0, |it| it["waiting_ms"].as_u64().unwrap());
        (waited > 2 * TTL_MS).then_some(())
    });
    ok(&["unlock", "patient", "--lease", &holder, "--token", &token]);
    let next = wait("the token", || waiting.said().iter().find_map(|it| it.parse::<u64>().ok()));
    assert!(next > token.parse().unwrap(), "{next} {token}");
    // From here on only the owner renews the lease.
    wait("it ends", || (run(&["lease", "show", &mine]).code == 1).then_some(()));
}

#[test]
fn modes_slots_and_words_for_others_are_as_asked() {
    let leases = [lease("r1"), lease("r2"), lease("w1")];
    for lease in &leases[..2] {
        ok(&["try", "modes/cache", "--shared", "--lease", lease]);
        ok(&["lock", "modes/work", "--slots", "2", "--lease", lease]);
    }
    let table = ok(&["locks", "modes/"]);
    assert!(
        table.contains("shared") && table.contains("slots 2/2") && table.contains("r1 +1"),
        "{table}"
    );
    let said = refused(75, "HELD", &["try", "modes/work", "--slots", "2", "--lease", &leases[2]]);
    assert!(said.contains("slot 0") && said.contains("slot 1"), "{said}");
    refused(1, "OTHER_KIND", &["try", "modes/work", "--slots", "3", "--lease", &leases[2]]);
    ok(&["try", "modes/told", "--metadata", "by cron", "--max-hold", "2h", "--lease", &leases[2]]);
    let text = ok(&["explain", "modes/told"]);
    assert!(text.contains("\"by cron\"") && text.contains("max_hold 2h"), "{text}");
    let again = run(&["try", "modes/none", "--shared", "--slots", "2"]);
    assert_eq!(again.code, 2, "{again:?}");
}

#[test]
fn a_lock_is_taken_away_only_by_name_token_and_reason() {
    let (holder, next) = (lease("runner-7"), lease("runner-8"));
    let token = ok(&["try", "taken", "--lease", &holder]).trim().to_owned();
    let said = refused(2, "ARGUMENTS", &["force", "taken"]);
    assert!(said.contains("held by  runner-7 for"), "{said}");
    assert!(said.contains(&format!("tenure force taken --token {token} --reason")), "{said}");
    let said = refused(2, "ARGUMENTS", &["force", "taken", "--token", &token, "--reason", "gone"]);
    assert!(said.contains("--yes"), "{said}");
    let wrong = ["force", "taken", "--token", "424242", "--reason", "gone", "--yes"];
    let said = refused(1, "TOKEN_OUTDATED", &wrong);
    assert!(said.contains("held by  runner-7 for"), "{said}");
    let waiting = Live::start(&["lock", "taken", "--lease", &next]);
    wait("runner-8 waits", || (json(&["queue", "taken"]).len() == 1).then_some(()));
    let forced =
        run(&["force", "taken", "--token", &token, "--reason", "it was deleted", "--now", "--yes"]);
    assert_eq!(forced.code, 0, "{forced:?}");
    assert!(forced.err.contains("only a fence protects"), "{forced:?}");
    assert!(forced.out.contains("runner-8 holds token"), "{forced:?}");
    wait("it has it", || waiting.said().iter().find_map(|line| line.parse::<u64>().ok()));
    assert!(ok(&["history", "taken"]).contains("because \"it was deleted\""));
    // Without --now the lock cools: its holder may stop first.
    let token = one(&["locks", "taken"])["holders"][0]["token"].as_str().unwrap().to_owned();
    let id = format!("{:032x}", 7);
    let command =
        ["force", "taken", "--token", &token, "--reason", "again", "--yes", "--request-id", &id];
    let cooling = one(&command);
    assert!(cooling["left_ms"].as_u64().unwrap() > 0, "{cooling}");
    // As advised for an unknown outcome: another process repeats the request, and it takes effect once.
    assert_eq!(one(&command)["revision"], cooling["revision"]);
    assert!(ok(&["locks", "taken"]).contains("revoking"));
}

#[test]
fn a_semaphore_with_a_free_slot_is_free_now() {
    let (one, two) = (lease("one"), lease("two"));
    ok(&["try", "half/full", "--slots", "2", "--lease", &one]);
    let text = ok(&["explain", "half/full"]);
    assert!(text.contains("free     now: 1 of 2 slots is free\n"), "{text}");
    ok(&["try", "half/full", "--slots", "2", "--lease", &two]);
    let text = ok(&["explain", "half/full"]);
    assert!(text.contains("free     when released, or in "), "{text}");
}

#[test]
fn a_lease_granted_from_a_shell_is_not_called_a_process_that_holds() {
    let granted = ok(&["lease", "grant", "--ttl", "1h"]);
    ok(&["try", "granted", "--lease", granted.trim()]);
    let text = ok(&["explain", "granted"]);
    let holder = text.lines().find(|line| line.starts_with("held by")).unwrap();
    assert!(holder.contains("a lease granted by ") && holder.contains("may have ended"), "{text}");
    // A name that the user gives is the holder's.
    let named = lease("nightly");
    ok(&["try", "named-lease", "--lease", &named]);
    assert!(ok(&["explain", "named-lease"]).contains("held by  nightly for "));
}
