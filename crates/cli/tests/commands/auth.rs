//! Tests `tenure auth` and credentials, from the first administrator to a revoked key.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::ports::free_port;
use crate::stage::{Member, Ran, command, ended, objects, wait};
use crate::steps::{compare, script, steps};

/// Runs a command with an API key from the environment; without one if it is empty.
fn with(member: &Member, key: &str, arguments: &[&str]) -> Ran {
    ended(command(&member.addr, arguments).env("TENURE_API_KEY", key))
}

fn ok(member: &Member, key: &str, arguments: &[&str]) -> String {
    let ran = with(member, key, arguments);
    assert_eq!(ran.code, 0, "{arguments:?}: {ran:?}");
    ran.out
}

fn one(member: &Member, key: &str, arguments: &[&str]) -> Value {
    let mut all = objects(&ok(member, key, &[arguments, &["--output", "json"]].concat()));
    assert_eq!(all.len(), 1, "{arguments:?}: {all:?}");
    all.remove(0)
}

/// The first administrator of a member.
fn init(member: &Member) -> String {
    let data = member.data.to_str().unwrap();
    let ran = with(member, "", &["auth", "init", "--data-dir", data]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(
        ran.err.contains("it is shown this once") && ran.err.contains("tenure auth enable"),
        "{ran:?}"
    );
    ran.out.trim().to_owned()
}

/// The key of the local administrator of a member.
fn local_key(member: &Member) -> String {
    std::fs::read_to_string(member.data.join("admin.key")).unwrap().trim().to_owned()
}

fn id(key: &str) -> &str {
    key.split('_').nth(1).unwrap()
}

#[test]
fn a_team_gets_its_own_key_which_is_rotated_and_revoked() {
    let member = Member::found("auth");
    let refused = with(&member, "", &["auth", "enable"]);
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(refused.err.contains("tenure auth init --data-dir DIR"), "{refused:?}");
    let admin = init(&member);
    let status = ok(&member, &admin, &["auth", "status"]);
    assert_eq!(
        status,
        "identity is disabled: every caller may do everything but change access rules\n\
         you       principal `admin`\n\
         there are 1 role, 1 principal, 1 API key, 0 certificate rules, 0 issuers\n\
         quotas    -\n\
         next      tenure auth enable\n"
    );
    let enabled = ok(&member, &admin, &["auth", "enable"]);
    assert_eq!(enabled, "identity is enabled: every caller needs credentials\n");

    let strange = with(&member, "", &["auth", "status"]);
    assert_eq!(strange.code, 77, "{strange:?}");
    assert!(strange.err.contains("TENURE_API_KEY, --api-key-file FILE"), "{strange:?}");
    let wrong = with(&member, &format!("tenure_{}_{}", "1".repeat(16), "2".repeat(64)), &["locks"]);
    assert_eq!(wrong.code, 77, "{wrong:?}");

    let put = ["auth", "role", "put", "team-a", "--allow", "read,acquire,keys:team-a/"];
    assert_eq!(ok(&member, &admin, &put), "role `team-a` is set\n");
    let put = ["auth", "principal", "put", "ci-a", "--role", "team-a", "--quota", "leases=5"];
    let shown = ok(&member, &admin, &put);
    assert_eq!(shown, "principal `ci-a`, enabled\nroles     team-a\nquotas    leases=5\n");
    let key = ok(&member, &admin, &["auth", "key", "create", "ci-a", "--expires", "90d"]);
    let key = key.trim();

    let token = ok(&member, key, &["run", "team-a/deploy", "--", "sh", "-c", "echo $TENURE_TOKEN"]);
    assert!(token.trim().parse::<u64>().is_ok(), "{token}");
    let elsewhere = with(&member, key, &["run", "team-b/deploy", "--", "true"]);
    assert_eq!(elsewhere.code, 77, "{elsewhere:?}");
    assert!(elsewhere.err.contains("tenure auth can - "), "{elsewhere:?}");
    let can = ["auth", "can", "-", "acquire", "team-b/deploy"];
    let why = with(&member, key, &can);
    let said = "no: its roles permit `acquire` only for names that begin with `team-a/`\n";
    assert!(why.code == 1 && why.out.starts_with(said), "{why:?}");
    let own = ok(&member, key, &["auth", "can", "-", "acquire", "team-a/x"]);
    assert_eq!(own, "yes: role `team-a` permits `acquire` for names that begin with `team-a/`\n");
    // A team sees who it is, and nothing of the others.
    assert_eq!(one(&member, key, &["auth", "status"])["principal"], "ci-a");
    assert!(one(&member, key, &["auth", "status"])["principals"].is_null());
    for forbidden in
        [&["auth", "key", "list"][..], &["auth", "role", "list"], &["auth", "disable", "--yes"]]
    {
        let ran = with(&member, key, forbidden);
        assert_eq!(ran.code, 77, "{forbidden:?}: {ran:?}");
    }

    let rotated = one(&member, &admin, &["auth", "key", "rotate", id(key), "--overlap", "1h"]);
    let newer = rotated["api_key"].as_str().unwrap();
    assert!(rotated["old_key"]["expires_ms"].is_u64(), "{rotated}");
    for each in [key, newer] {
        ok(&member, each, &["auth", "can", "-", "acquire", "team-a/x"]);
    }
    let revoked = ok(&member, &admin, &["auth", "key", "revoke", id(key)]);
    assert_eq!(revoked, format!("key {} is refused from now on\n", id(key)));
    wait("the key is refused", || {
        (with(&member, key, &["auth", "status"]).code == 77).then_some(())
    });
    ok(&member, newer, &["run", "team-a/deploy", "--", "true"]);

    let listed = ok(&member, &admin, &["auth", "principal", "list"]);
    assert!(listed.contains("ci-a       enabled  team-a            1  leases=5"), "{listed}");
    ok(&member, &admin, &["auth", "principal", "disable", "ci-a"]);
    wait("the principal is refused", || {
        (with(&member, newer, &["locks"]).code == 77).then_some(())
    });
    assert_eq!(with(&member, &admin, &["auth", "disable"]).code, 2);
    ok(&member, &admin, &["auth", "disable", "--yes"]);
    ok(&member, "", &["locks"]);
}

#[test]
fn everything_can_be_put_listed_and_deleted_and_quotas_merge() {
    let member = Member::found("rules");
    let local = local_key(&member);
    let stranger = with(&member, "", &["auth", "quota", "set", "leases=1"]);
    assert_eq!(stranger.code, 77, "{stranger:?}");
    assert!(stranger.err.contains("tenure auth init"), "{stranger:?}");
    let ok = |arguments: &[&str]| ok(&member, &local, arguments);
    ok(&["auth", "role", "put", "watcher", "--allow", "read,observe:", "--allow", "acquire:w/"]);
    let listed = ok(&["auth", "role", "list"]);
    assert_eq!(
        listed,
        "ROLE     VERBS         NAMES\n\
         watcher  read,observe  every name, and the cluster\n\
         \u{20}        acquire       w/…\n"
    );
    ok(&["auth", "cert-rule", "put", "ana", "--pattern", "cn:ana", "--principal", "ana"]);
    assert!(ok(&["auth", "cert-rule", "list"]).contains("ana   cn:ana   ana"));
    let issuer = "https://ci.example.com";
    let url = "https://ci.example.com/jwks";
    let put = [
        "auth",
        "issuer",
        "put",
        issuer,
        "--audience",
        "tenure",
        "--jwks-url",
        url,
        "--prefix",
        "ci:",
    ];
    ok(&put);
    assert!(ok(&["auth", "issuer", "list"]).contains("ci:<sub>"));
    ok(&["auth", "quota", "set", "leases=1000", "bytes=5"]);
    let shown = ok(&["auth", "quota", "set", "bytes=none"]);
    assert_eq!(shown, "default quotas: leases=1000\n");
    assert_eq!(one(&member, &local, &["auth", "quota", "show"]), json!({"leases": 1000}));
    for (kind, name) in [("role", "watcher"), ("cert-rule", "ana"), ("issuer", issuer)] {
        ok(&["auth", kind, "delete", name]);
        let gone = with(&member, &local, &["auth", kind, "delete", name]);
        assert!(gone.code == 1 && gone.err.contains("there is no"), "{gone:?}");
    }
    let unknown = with(&member, &local, &["auth", "principal", "put", "x", "--role", "none"]);
    assert!(unknown.code == 1 && unknown.err.contains("no such role"), "{unknown:?}");
}

#[test]
fn a_key_goes_to_a_new_file_that_only_its_owner_reads() {
    let member = Member::found("files");
    let admin = init(&member);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("admin.key");
    let file = path.to_str().unwrap();
    let create = ["auth", "key", "create", "admin", "--key-file", file];
    let created = with(&member, &admin, &create);
    assert!(
        created.code == 0 && created.out.is_empty() && created.err.contains(file),
        "{created:?}"
    );
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(with(&member, &admin, &create).code, 1, "an existing file is not replaced");
    // A key that the cluster refuses leaves no file behind.
    let other = dir.path().join("other.key");
    let ran = with(
        &member,
        &admin,
        &["auth", "key", "create", "nobody", "--key-file", other.to_str().unwrap()],
    );
    assert!(ran.code == 1 && !other.exists(), "{ran:?}");
    ok(&member, "", &["auth", "status", "--api-key-file", file]);
    let status = one(&member, "", &["auth", "status", "--api-key-file", file]);
    assert_eq!(status["principal"], "admin");

    // Credentials do not leave the machine in plain text.
    let far = ["auth", "status", "--addr", "192.0.2.1:7450", "--api-key-file", file];
    let refused = with(&member, "", &far);
    assert!(refused.code == 78 && refused.err.contains("--insecure-credentials"), "{refused:?}");
    let malformed = with(&member, "tenure_secret", &["locks"]);
    assert!(malformed.code == 78 && !malformed.err.contains("tenure_secret"), "{malformed:?}");
}

#[test]
fn the_guide_works_as_it_is_written() {
    let member = Member::found("guide");
    let guide = include_str!("../../../../docs/guides/access.md");
    let steps = steps(&guide.replace("/var/lib/tenure", member.data.to_str().unwrap()));
    assert!(steps.len() > 15);
    let dir = tempfile::tempdir().unwrap();
    let ran = ended(shell(dir.path(), &script(&steps)).env("TENURE_ADDR", &member.addr));
    compare("guides/access.md", steps, &ran);
}

/// A shell in this directory that runs a script, and nothing for longer than two minutes.
fn shell(dir: &Path, script: &str) -> Command {
    let bin = Path::new(crate::stage::TENURE).parent().unwrap();
    let path = format!("{}:/usr/bin:/bin", bin.display());
    let mut shell = Command::new("timeout");
    shell.args(["--foreground", "120", "sh", "-c", script]).current_dir(dir);
    shell.env_clear().env("PATH", path).env("HOME", dir);
    shell
}

/// The guide has three machines. Here the members are on one, each with ports and a directory of its own, and the
/// commands run on the machine of the first.
#[test]
fn the_guide_for_three_teams_works_as_it_is_written() {
    let members = ["a", "b", "c"].map(|name| (name, free_port(), free_port()));
    let guide = include_str!("../../../../docs/guides/teams.md");
    let mut steps = steps(guide);
    assert!(steps.len() > 30);
    let dir = tempfile::tempdir().unwrap();
    let mut served = 0;
    for step in &mut steps {
        if step.command.starts_with("tenure serve") {
            served += 1;
            step.command = members.map(|member| on_its_machine(&step.command, member)).join("\n");
            // An initial member serves when all have met.
            step.command += "\nuntil grep -q 'became leader' ?.log; do sleep 0.1; done";
        }
        for (name, _, at) in members {
            let address = format!("{name}.tenure.example:7451");
            step.command = step.command.replace(&address, &format!("127.0.0.1:{at}"));
        }
        step.command = step.command.replace("/var/lib/tenure", "data-a");
        step.command =
            step.command.replace("localhost:7450", &format!("localhost:{}", members[0].1));
    }
    assert_eq!(served, 1, "the guide starts members with one command");
    let script = [&*script(&steps), "kill $(cat ?.pid)\n"].concat();
    let mut shell = shell(dir.path(), &script);
    shell.env("TENURE_CA", "members-ca.pem");
    let ran = ended(shell.env("TENURE_ADDR", format!("127.0.0.1:{}", members[0].1)));
    compare("guides/teams.md", steps, &ran);
    for (name, ..) in members {
        let log = std::fs::read_to_string(dir.path().join(format!("{name}.jsonl"))).unwrap();
        assert!(log.contains("principal_disabled"), "the audit log of {name}: {log}");
    }
}

/// The command that starts member a, as it is on the machine of another member, in the background.
fn on_its_machine(command: &str, (name, clients, _): (&str, u16, u16)) -> String {
    let command = command
        .replace("--name a", &format!("--name {name}"))
        .replace(" a.pem", &format!(" {name}.pem"))
        .replace(" a.key", &format!(" {name}.key"))
        .replace("--members a.", &format!("--members {name}."))
        .replace("--hosts a.", &format!("--hosts {name}."))
        .replace("0.0.0.0:7450", &format!("127.0.0.1:{clients}"))
        .replace("/var/log/tenure/audit.jsonl", &format!("{name}.jsonl"))
        .replace("/var/lib/tenure", &format!("data-{name}"));
    format!("{command} --health none > {name}.log 2>&1 & echo $! > {name}.pid")
}

#[test]
fn a_change_based_on_what_is_no_longer_so_is_refused_and_additions_are_merged() {
    let member = Member::found("versions");
    let local = local_key(&member);
    let ok = |arguments: &[&str]| ok(&member, &local, arguments);
    for role in ["a", "b"] {
        ok(&["auth", "role", "put", role, "--allow", &format!("read:{role}/")]);
    }
    ok(&["auth", "principal", "put", "ci", "--role", "a"]);
    let shown = ok(&["auth", "principal", "show", "ci"]);
    let seen = shown.lines().find_map(|line| line.strip_prefix("version   ")).unwrap();
    let merged = ok(&["auth", "principal", "put", "ci", "--add-role", "b", "--quota", "leases=5"]);
    assert!(merged.contains("roles     a, b\nquotas    leases=5\n"), "{merged}");
    let old = ["auth", "principal", "put", "ci", "--no-roles", "--if-version", seen];
    let refused = with(&member, &local, &old);
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(refused.err.contains("another call has changed it meanwhile"), "{refused:?}");
    assert!(refused.err.contains("tenure auth principal show ci"), "{refused:?}");
    let fewer = ok(&["auth", "principal", "put", "ci", "--remove-role", "a"]);
    assert!(fewer.contains("roles     b\n"), "{fewer}");

    let role = objects(&ok(&["auth", "role", "list", "--output", "json"])).remove(0);
    let put = |version: &str, prefix: &str| {
        let allow = format!("read:{prefix}");
        let put = ["auth", "role", "put", "a", "--allow", &allow, "--if-version", version];
        with(&member, &local, &put)
    };
    let version = role["version"].as_str().unwrap();
    assert_eq!(put(version, "x/").code, 0);
    let refused = put(version, "y/");
    assert!(refused.code == 1 && refused.err.contains("tenure auth role list"), "{refused:?}");
    assert_eq!(put("none", "y/").code, 1);
    // Changes at the same time are merged.
    std::thread::scope(|scope| {
        for quota in ["leases=7", "places=8", "locks=9", "keys=10"] {
            let (member, local) = (&member, &local);
            scope.spawn(move || {
                let put = ["auth", "principal", "put", "ci", "--quota", quota];
                assert_eq!(with(member, local, &put).code, 0);
            });
        }
    });
    let shown = ok(&["auth", "principal", "show", "ci"]);
    assert!(shown.contains("quotas    leases=7 places=8 locks=9 keys=10\n"), "{shown}");
}

#[test]
fn a_command_that_a_quota_refuses_names_who_set_it_and_how_far_over_it_is() {
    let member = Member::found("setter");
    let admin = init(&member);
    ok(&member, &admin, &["auth", "enable"]);
    ok(&member, &admin, &["auth", "role", "put", "all", "--allow", "read,acquire:"]);
    ok(
        &member,
        &admin,
        &["auth", "principal", "put", "ci", "--role", "all", "--quota", "leases=1"],
    );
    let key = ok(&member, &admin, &["auth", "key", "create", "ci"]);
    ok(&member, key.trim(), &["lease", "grant", "--ttl", "1m"]);
    let refused = with(&member, key.trim(), &["lease", "grant", "--ttl", "1m"]);
    assert_eq!(refused.code, 1, "{refused:?}");
    let says = "the quota `leases` of the principal is 1, set for it by `admin`, asked for 2";
    assert!(refused.err.contains(says), "{refused:?}");
    let lines: Vec<&str> = refused.err.lines().map(str::trim).collect();
    let set = lines.iter().find(|line| line.starts_with("set  ")).expect("a line says when");
    assert!(set.starts_with("set      20") && set.ends_with(" by admin"), "{set}");
    assert!(lines.contains(&"over     by 1: 2 of 1 leases"), "{lines:?}");
    let json = with(&member, key.trim(), &["lease", "grant", "--ttl", "1m", "--output", "json"]);
    let error = objects(&json.err).remove(0)["error"].clone();
    assert_eq!((&error["limit"], &error["set_by"]), (&json!("leases"), &json!("admin")), "{error}");
    assert!(error["set_at"].as_str().is_some_and(|at| at.ends_with('Z')), "{error}");
    // Another administrator who changes only the roles does not become the one who set it.
    ok(&member, &admin, &["auth", "role", "put", "root", "--allow", "administer:"]);
    ok(&member, &admin, &["auth", "principal", "put", "eva", "--role", "root"]);
    let eva = ok(&member, &admin, &["auth", "key", "create", "eva"]);
    ok(&member, eva.trim(), &["auth", "principal", "put", "ci", "--add-role", "root"]);
    let refused = with(&member, key.trim(), &["lease", "grant", "--ttl", "1m"]);
    assert!(refused.err.contains("by `admin`"), "{refused:?}");
    // A quota that members count names its setter too.
    ok(&member, eva.trim(), &["auth", "principal", "put", "ci", "--quota", "sessions=0"]);
    let refused = with(&member, key.trim(), &["run", "deploy", "--", "true"]);
    assert!(refused.err.contains("is 0, set for it by `eva`"), "{refused:?}");
}

#[test]
fn a_command_that_a_rate_refuses_names_the_quota_and_an_operator_raises_it() {
    let member = Member::found("rate");
    let local = local_key(&member);
    ok(&member, &local, &["auth", "quota", "set", "requests_per_second=0"]);
    let refused = with(&member, "", &["lease", "grant", "--ttl", "60s"]);
    assert!(refused.err.contains("quota `requests_per_second`"), "{refused:?}");
    assert!(refused.code != 0 && refused.err.contains("effect   none"), "{refused:?}");
    ok(&member, &local, &["auth", "quota", "set", "requests_per_second=none"]);
    ok(&member, "", &["lease", "grant", "--ttl", "60s"]);
}

#[test]
fn a_run_whose_key_is_revoked_says_that_its_credentials_are_refused() {
    let member = Member::found("refused");
    let admin = init(&member);
    ok(&member, &admin, &["auth", "enable"]);
    ok(&member, &admin, &["auth", "role", "put", "all", "--allow", "read,acquire:"]);
    ok(&member, &admin, &["auth", "principal", "put", "ci", "--role", "all"]);
    let key = ok(&member, &admin, &["auth", "key", "create", "ci"]).trim().to_owned();
    std::thread::scope(|scope| {
        let run = |arguments: &'static [&'static str]| {
            let (member, key) = (&member, &key);
            scope.spawn(move || with(member, key, &[&["run", "--ttl", "4s"], arguments].concat()))
        };
        let held = run(&["x", "--", "sleep", "60"]);
        let count = |what: &[&str]| {
            objects(&ok(&member, &admin, &[what, &["--output", "json"]].concat())).len()
        };
        wait("it is held", || (count(&["locks"]) == 1).then_some(()));
        let waiting = run(&["x", "--", "true"]);
        wait("the other waits", || (count(&["queue", "x"]) == 1).then_some(()));
        ok(&member, &admin, &["auth", "key", "revoke", id(&key)]);
        let waiting = waiting.join().unwrap();
        assert_eq!(waiting.code, 77, "{waiting:?}");
        assert!(waiting.err.contains("the API key is unknown or was revoked"), "{waiting:?}");
        let held = held.join().unwrap();
        assert_eq!(held.code, 76, "{held:?}");
        assert!(held.err.contains("the credentials are refused"), "{held:?}");
        assert!(!held.err.contains("unreachable"), "{held:?}");
    });
}

#[test]
fn a_role_says_who_may_use_which_priority() {
    let member = Member::found("priorities");
    let admin = init(&member);
    ok(&member, &admin, &["auth", "enable"]);
    let put = ["auth", "role", "put", "deployers", "--allow", "read,acquire@3:deploy/"];
    ok(&member, &admin, &put);
    let listed = ok(&member, &admin, &["auth", "role", "list"]);
    assert!(listed.contains("deployers      read,acquire@3  deploy/…"), "{listed}");
    ok(&member, &admin, &["auth", "principal", "put", "bot", "--role", "deployers"]);
    let key = ok(&member, &admin, &["auth", "key", "create", "bot"]).trim().to_owned();
    let can = |priority| {
        with(&member, &key, &["auth", "can", "-", "acquire", "deploy/web", "--priority", priority])
    };
    let yes = "yes: role `deployers` permits `acquire` for names that begin with `deploy/`, and so \
               priorities up to 3\n";
    assert_eq!(can("3").out, yes);
    let no = can("7");
    let said = "no: its roles permit `acquire` with priorities up to 3 for this name, not 7\n";
    assert!(no.code == 1 && no.out.starts_with(said), "{no:?}");
    assert_eq!(can("10").code, 2);

    let run = |priority| {
        with(&member, &key, &["run", "deploy/web", "--priority", priority, "--", "true"])
    };
    assert_eq!(run("3").code, 0);
    let refused = run("7");
    assert_eq!(refused.code, 77, "{refused:?}");
    let said = "priority 7 is not permitted: the roles of the principal allow up to 3 for this";
    assert!(refused.err.contains(said), "{refused:?}");
}
