//! Tests the commands that show a cluster and that add, promote and remove its members.

use std::net::TcpListener;
use std::process::ChildStdin;

use serde_json::Value;
use tenure_server::os;

use crate::ports::free_port;
use crate::stage::{Ran, at, member, objects, serve, wait};

/// A cluster of three members, to which tests add more.
struct Three {
    dir: tempfile::TempDir,
    running: Vec<(String, ChildStdin)>,
    addr: String,
    seed: String,
}

impl Three {
    fn found() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let ports: Vec<(u16, u16)> = (0..3).map(|_| (free_port(), free_port())).collect();
        let listed = ["a", "b", "c"].iter().zip(&ports);
        let listed: Vec<String> =
            listed.map(|(name, (_, members))| format!("{name}=127.0.0.1:{members}")).collect();
        let bootstrap = listed.join(",");
        let mut running = Vec::new();
        let mut addresses = Vec::new();
        for (name, (clients, members)) in ["a", "b", "c"].iter().zip(&ports) {
            let (stdin, addr) =
                serve(dir.path(), name, *clients, *members, &["--bootstrap", &bootstrap]);
            running.push(((*name).to_owned(), stdin));
            addresses.push(addr);
        }
        let seed = format!("127.0.0.1:{}", ports[0].1);
        let three = Self { dir, running, addr: addresses.join(","), seed };
        wait("three members are up", || {
            three.run(&["cluster", "status"]).out.contains("3 of 3 members up").then_some(())
        });
        three
    }

    fn run(&self, arguments: &[&str]) -> Ran {
        at(&self.addr, arguments)
    }

    fn ok(&self, arguments: &[&str]) -> String {
        let ran = self.run(arguments);
        assert_eq!(ran.code, 0, "{arguments:?}: {ran:?}");
        ran.out
    }

    fn json(&self, arguments: &[&str]) -> Vec<Value> {
        objects(&self.ok(&[arguments, &["--output", "json"]].concat()))
    }

    fn leader(&self) -> String {
        wait("a member leads", || {
            let status =
                objects(&self.run(&["cluster", "status", "--output", "json"]).out).remove(0);
            Some(status["leader"]["name"].as_str()?.to_owned())
        })
    }
}

#[test]
fn limits_are_shown_and_set_all_or_none() {
    let three = Three::found();
    let shown = three.ok(&["cluster", "limits"]);
    assert!(shown.starts_with("LIMIT ") && shown.contains("waiters_per_lock"), "{shown}");
    let set = ["cluster", "limits", "waiters_per_lock=20000", "slots=2_048"];
    let said = three.ok(&set);
    assert_eq!(said, "waiters_per_lock is 20000, was 10000\nslots is 2048, was 1024\n");
    let value = |name: &str| {
        let all = three.json(&["cluster", "limits"]);
        all.into_iter().find(|it| it["limit"] == name).unwrap()["value"].clone()
    };
    wait("the member that answers knows", || (value("slots") == 2_048).then_some(()));
    // One that is refused keeps the others from being set.
    let ran =
        three.run(&["cluster", "limits", "slots=4096", "ttl_min_ms=3600000", "ttl_max_ms=1000"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert_eq!(value("slots"), 2_048);
    assert_eq!(three.run(&["cluster", "limits", "slots=0"]).code, 2);
    assert!(three.run(&["cluster", "limits", "slot=1"]).err.contains("no limit `slot`"));
}

#[test]
fn members_are_shown_added_promoted_removed_and_asked_to_lead() {
    let mut three = Three::found();
    // The member that answers may not yet know the elected leader, or all other members.
    let status = wait("one leads", || {
        let status = three.run(&["cluster", "status"]).out;
        let leads = status.lines().filter(|line| line.contains(" leader ")).count();
        let all = leads == 1 && status.matches(" follower ").count() == 2;
        (all && status.contains("3 of 3 members up")).then_some(status)
    });
    assert!(status.contains("survives 1 failure,"), "{status}");
    assert_eq!(three.json(&["cluster", "status"])[0]["members"].as_array().unwrap().len(), 3);
    let names: Vec<String> = three
        .json(&["cluster", "members"])
        .iter()
        .map(|it| it["name"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(names.len(), 3, "{names:?}");
    assert!(three.ok(&["cluster", "members"]).contains("follower"));

    let before = three.leader();
    let other = ["a", "b", "c"].into_iter().find(|name| **name != before).unwrap();
    assert_eq!(three.ok(&["cluster", "transfer", other]), format!("{other} leads\n"));
    assert_eq!(three.leader(), other);
    let moved = three.json(&["cluster", "transfer"]).remove(0);
    assert_eq!(moved["event"], "transferred");
    assert_ne!(moved["leader"], other);

    // Ids have the form that logs use, and members are found by the first digits of their id.
    let b = three.json(&["cluster", "members"]).into_iter().find(|it| it["name"] == "b").unwrap();
    let decimal = b["member_id"].as_str().unwrap().to_owned();
    let id = format!("{:x}", decimal.parse::<u64>().unwrap());
    assert!(three.ok(&["cluster", "members"]).contains(&format!(" {id}\n")), "{id}");
    for given in [id.as_str(), &id[..8], &decimal] {
        three.ok(&["cluster", "transfer", "a"]);
        assert_eq!(three.ok(&["cluster", "transfer", given]), "b leads\n");
    }
    let unknown = three.run(&["cluster", "promote", "zoe"]);
    assert_eq!(unknown.code, 1, "{unknown:?}");
    assert!(
        unknown.err.contains("there is no member zoe") && unknown.err.contains("members  "),
        "{unknown:?}"
    );
    let how = three.ok(&["cluster", "add", "d"]);
    assert!(how.starts_with("tenure serve --name d ") && how.contains(&three.seed), "{how}");
    assert!(how.contains(" --invitation tenure-invitation_"), "{how}");
    let long = three.run(&["cluster", "invite", "--expires", "25h"]);
    assert!(long.code == 1 && long.err.contains("expires_ms"), "{long:?}");
    assert_eq!(three.run(&["cluster", "add", "a"]).code, 1);
    let spare = three.json(&["cluster", "invite", "--id", "77"]).remove(0);
    let spare = spare["id"].as_str().unwrap();
    let listed = three.ok(&["cluster", "invite", "--list"]);
    let row = listed.lines().find(|line| line.starts_with(spare)).unwrap();
    assert!(row.contains(" 77 ") && !listed.contains("tenure-invitation"), "{listed}");
    let taken = three.ok(&["cluster", "invite", "--cancel", spare]);
    assert_eq!(taken, format!("invitation {spare} is taken back\n"));
    let again = three.run(&["cluster", "invite", "--cancel", spare]);
    assert!(again.code == 1 && again.err.contains("there is no invitation"), "{again:?}");
    let (clients, members) = (free_port(), free_port());
    let invited = three.json(&["cluster", "invite", "--expires", "10m"]).remove(0);
    assert_eq!((&invited["event"], &invited["expires_ms"]), (&"invited".into(), &600_000.into()));
    let invitation = invited["invitation"].as_str().unwrap();
    let joining = ["--join", &three.seed, "--invitation", invitation];
    let (stdin, _) = serve(three.dir.path(), "d", clients, members, &joining);
    three.running.push(("d".to_owned(), stdin));
    let added = three.run(&["cluster", "add", "d", "--wait", "60s"]);
    assert_eq!(added.code, 0, "{added:?}");
    assert!(added.out.contains("d promoted"), "{added:?}");
    wait("it votes", || {
        let members = three.json(&["cluster", "members"]);
        members.iter().any(|it| it["name"] == "d" && it["role"] == "follower").then_some(())
    });

    let key = three.rotates_keys();
    let asked = three.run(&["cluster", "remove", "d"]);
    assert!(asked.code == 2 && asked.err.contains("--yes"), "{asked:?}");
    assert_eq!(
        three.ok(&["cluster", "remove", "d", "--yes"]),
        "d removed: 3 voters are left, which survive 1 failure\n"
    );
    assert_eq!(three.json(&["cluster", "members"]).len(), 3);
    wait("its key is on its way out", || three.key(&key)?["retires_in_ms"].as_u64());
    assert!(three.ok(&["cluster", "keys", "list"]).contains("believed for"));

    three.is_audited_by_every_member();
    three.is_looked_at_by_a_doctor();
    three.says_what_to_do_about_a_member_that_is_down();
    three.says_what_to_do_without_a_majority();
}

impl Three {
    /// The public key with this id, if the cluster has it.
    fn key(&self, id: &str) -> Option<Value> {
        let set = self.json(&["cluster", "keys", "list"]).remove(0);
        set["keys"].as_array().unwrap().iter().find(|key| key["kid"] == *id).cloned()
    }

    /// Rotates the keys of members, and returns the last key of member d.
    fn rotates_keys(&self) -> String {
        let rotate = |more: &[&str]| {
            let all = self.json(&[&["cluster", "keys", "rotate"][..], more].concat());
            all.iter().map(|it| it["key"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        let all = rotate(&["--all"]);
        assert_eq!(all.len(), 4, "{all:?}");
        for key in &all {
            assert!(self.key(key).unwrap()["retires_in_ms"].is_null());
        }
        // The old key stays valid for the given overlap; with an overlap of 0, it and all earlier ones are removed at
        // once.
        let old = rotate(&["d", "--overlap", "1h"]).remove(0);
        let new = rotate(&["d"]).remove(0);
        let left_ms = self.key(&old).unwrap()["retires_in_ms"].as_u64().unwrap();
        // A second more than requested, for the time between reading the clock and writing the key.
        assert!((1..=86_401_000).contains(&left_ms), "{left_ms}");
        assert!(self.ok(&["cluster", "keys", "list"]).contains(&format!("{new}  signs")));
        let last = rotate(&["d", "--overlap", "0"]).remove(0);
        assert!(self.key(&old).is_none() && self.key(&new).is_none());
        let unknown = self.run(&["cluster", "keys", "rotate", "zoe"]);
        assert!(unknown.code == 1 && unknown.err.contains("there is no member zoe"), "{unknown:?}");
        let long = self.run(&["cluster", "keys", "rotate", "d", "--overlap", "31d"]);
        assert!(long.code != 0 && long.err.contains("30 days"), "{long:?}");
        assert_eq!(self.run(&["cluster", "keys", "rotate"]).code, 2);
        last
    }

    /// Checks that every member has recorded the acts of administrators, and its own start.
    fn is_audited_by_every_member(&self) {
        let acts_of = |addr: &str| {
            let records = objects(&at(addr, &["audit", "--last", "1000", "--output", "json"]).out);
            let start = records.iter().find(|it| it["act"] == "start")?["who"].clone();
            let acts = records.into_iter().filter(|it| it["revision"].is_u64());
            let acts = acts.map(|it| format!("{} {} {}", it["revision"], it["act"], it["target"]));
            Some((start, acts.collect::<Vec<_>>()))
        };
        wait("every member has recorded the same acts", || {
            let each = self.addr.split(',').map(acts_of).collect::<Option<Vec<_>>>()?;
            let names: Vec<_> = each.iter().map(|(start, _)| start.as_str().unwrap()).collect();
            assert_eq!(names, ["a", "b", "c"]);
            let same = each.iter().all(|(_, acts)| *acts == each[0].1);
            (same && each[0].1.iter().any(|act| act.contains("member_removed"))).then_some(())
        });
        // What is not in the history is recorded by the member that was asked.
        let asked = |act: &str| {
            self.addr.split(',').any(|addr| {
                let out = at(addr, &["audit", "--last", "1000", "--output", "json"]).out;
                let is_it = |it: &Value| it["act"] == act && it["target"].is_string();
                objects(&out).iter().any(is_it)
            })
        };
        assert!(asked("member_promoted") && asked("leadership_transferred"));
    }

    fn is_looked_at_by_a_doctor(&self) {
        let dir = self.dir.path().to_str().unwrap().to_owned();
        let ran = self.run(&["doctor", "--data", &dir]);
        let healthy = [("ok", "quorum"), ("ok", "tls"), ("ok", "port")];
        for (health, check) in healthy {
            let found = ran.out.lines().any(|line| {
                let mut words = line.split_whitespace();
                (words.next(), words.next()) == (Some(health), Some(check))
            });
            assert!(found, "{health} {check}: {ran:?}");
        }
        for check in ["clock", "stalls", "source", "disk", "sync", "answers"] {
            assert!(ran.out.contains(&format!(" {check} ")), "{check}: {ran:?}");
        }
        let checks = objects(&self.run(&["doctor", "--output", "json"]).out);
        assert!(
            checks.iter().any(|it| it["check"] == "quorum" && it["health"] == "ok"),
            "{checks:?}"
        );
        let file = self.dir.path().join("backup");
        let backed_up = self.json(&["backup", file.to_str().unwrap()]);
        assert!(backed_up[0]["bytes"].as_u64().unwrap() > 0 && file.exists());
    }

    fn says_what_to_do_about_a_member_that_is_down(&mut self) {
        let leader = self.leader();
        let at = self.running.iter().position(|(name, _)| *name != leader && name != "d").unwrap();
        let (down, stdin) = self.running.remove(at);
        drop(stdin);
        let advice = format!("tenure cluster remove {down}");
        let status = wait("it is missed", || {
            let status = self.run(&["cluster", "status"]);
            assert!(matches!(status.code, 0 | 1), "{status:?}");
            (status.code == 1 && status.out.contains("2 of 3 members up")).then_some(status.out)
        });
        assert!(status.contains(&advice) && status.contains("is down"), "{status}");
        assert!(status.contains("survives 0 more failures"), "{status}");
        let ran = self.run(&["doctor"]);
        assert_eq!(ran.code, 1, "{ran:?}");
        assert!(
            ran.out.contains(&format!("{down} is down")) && ran.out.contains(&advice),
            "{ran:?}"
        );
    }

    fn says_what_to_do_without_a_majority(&mut self) {
        let leader = self.leader();
        self.running.retain(|(name, _)| *name != leader);
        let status = wait("there is no majority", || {
            let status = self.run(&["cluster", "status", "--connect-timeout", "5s"]);
            let said = status.out.contains("1 of 3 members up, no majority");
            (status.code == 1 && said).then_some(status.out)
        });
        let advice = status.lines().last().unwrap();
        assert!(
            advice.starts_with("next    unreachable: ") && advice.contains(&leader),
            "{status}"
        );
        assert!(
            advice.contains("start one of them again") && !status.contains("remove"),
            "{status}"
        );
        let ran = self.run(&["doctor", "--connect-timeout", "2s"]);
        assert_eq!(ran.code, 1, "{ran:?}");
        let quorum = ran.out.lines().find(|line| line.starts_with("bad   quorum")).unwrap();
        assert!(quorum.contains("no majority") && quorum.contains(&leader), "{ran:?}");
        assert!(
            ran.out.contains("start one of them again") && !ran.out.contains("remove"),
            "{ran:?}"
        );
        // Reads change nothing; the effect of an acquire depends on whether a member has taken it.
        let short = ["--connect-timeout", "2s"];
        for (arguments, unknown) in [
            (&["try", "majority"][..], true),
            (&["lock", "majority"], true),
            (&["elect", "majority", "--value", "v"], true),
            (&["explain", "majority"], false),
            (&["locks"], false),
        ] {
            let ran = self.run(&[arguments, &short, &["--output", "json"]].concat());
            assert_eq!(ran.code, 69, "{arguments:?}: {ran:?}");
            let told = objects(&ran.err).pop().unwrap();
            let said = |field: &str| told["error"][field].as_str().unwrap_or_default().to_owned();
            match said("reason").as_str() {
                "UNANSWERED" if unknown => assert_eq!(said("effect"), "unknown", "{ran:?}"),
                "UNAVAILABLE" | "UNREACHABLE" | "NO_QUORUM" | "NO_LEADER" => {
                    assert_eq!(said("effect"), "none", "{ran:?}");
                }
                _ => panic!("{arguments:?}: {ran:?}"),
            }
            assert!(said("next").starts_with("tenure "), "{ran:?}");
        }
        let audited = self.ok(&["audit"]);
        assert!(audited.contains(" start "), "the member that is left has its records: {audited}");
        let ran = self.run(&[&["run", "majority"], &short[..], &["--", "true"]].concat());
        assert!(ran.code == 69 && ran.err.contains("  try      tenure "), "{ran:?}");
    }
}

#[test]
fn a_doctor_says_what_is_wrong_with_a_cluster_that_is_not_there() {
    let ran = at("127.0.0.1:1", &["doctor", "--connect-timeout", "300ms"]);
    assert_eq!(ran.code, 69, "{ran:?}");
    assert!(ran.out.contains("bad   port") && ran.out.contains("tenure dev"), "{ran:?}");
    let missing =
        at("127.0.0.1:1", &["doctor", "--data", "/nowhere", "--connect-timeout", "300ms"]);
    assert!(missing.out.contains("cannot write in /nowhere"), "{missing:?}");
}

// Retry once: it requires that the command ends within 5.5 seconds.
#[test]
fn members_that_hang_delay_a_doctor_once_together() {
    const LIMIT_US: u64 = 2_000_000;
    // The time that all other checks may take on a busy machine.
    const SLACK_US: u64 = 3_500_000;
    // The kernel accepts connections to these listeners, and no program answers.
    let hung: Vec<_> = (0..4).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let mut addresses: Vec<String> =
        hung.iter().map(|it| it.local_addr().unwrap().to_string()).collect();
    let doctor = |addresses: &[String]| {
        let began_us = os::now_us();
        let ran = at(&addresses.join(","), &["doctor", "--connect-timeout", "2s"]);
        let took_us = os::now_us() - began_us;
        assert!(took_us < LIMIT_US + SLACK_US, "it took {took_us} us: {ran:?}");
        assert_eq!(ran.out.matches("is open, but does not answer within 2s").count(), 4, "{ran:?}");
        ran
    };
    let none = doctor(&addresses);
    assert_eq!(none.code, 69, "{none:?}");
    assert!(none.out.contains("bad   answers   no member answered within 2s"), "{none:?}");
    // The doctor also finds and examines a working member that is listed after them.
    addresses.push(member().addr.clone());
    let one = doctor(&addresses);
    assert_eq!(one.code, 1, "{one:?}");
    assert!(one.out.contains("ok    quorum") && one.out.contains("ok    answers"), "{one:?}");
}
