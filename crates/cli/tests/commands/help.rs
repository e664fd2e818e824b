//! Tests that every help text has examples and that the reference agrees with it.
//!
//! `TENURE_FIX=1` writes `docs/reference/cli.md` anew.

use std::fmt::Write as _;

use crate::stage::at;

/// Every command, in the order of the page.
const COMMANDS: &[&str] = &[
    "run",
    "lock",
    "try",
    "unlock",
    "hand-on",
    "progress",
    "locks",
    "queue",
    "explain",
    "history",
    "force",
    "drain",
    "undrain",
    "resize",
    "lease",
    "lease grant",
    "lease renew",
    "lease keep",
    "lease revoke",
    "lease list",
    "lease show",
    "elect",
    "observe",
    "watch",
    "key",
    "key get",
    "key put",
    "key delete",
    "key cas",
    "key list",
    "dev",
    "serve",
    "config",
    "config check",
    "cluster",
    "cluster status",
    "cluster members",
    "cluster invite",
    "cluster add",
    "cluster promote",
    "cluster remove",
    "cluster transfer",
    "cluster raise-level",
    "cluster limits",
    "cluster keys",
    "cluster keys list",
    "cluster keys rotate",
    "auth",
    "auth init",
    "auth status",
    "auth enable",
    "auth disable",
    "auth can",
    "auth role",
    "auth role put",
    "auth role list",
    "auth role delete",
    "auth principal",
    "auth principal put",
    "auth principal list",
    "auth principal show",
    "auth principal enable",
    "auth principal disable",
    "auth principal delete",
    "auth key",
    "auth key create",
    "auth key list",
    "auth key rotate",
    "auth key revoke",
    "auth cert-rule",
    "auth cert-rule put",
    "auth cert-rule list",
    "auth cert-rule delete",
    "auth issuer",
    "auth issuer put",
    "auth issuer list",
    "auth issuer delete",
    "auth quota",
    "auth quota show",
    "auth quota set",
    "audit",
    "backup",
    "restore",
    "store",
    "store floor",
    "store floor set",
    "store floor list",
    "store state",
    "store state list",
    "store state versions",
    "store state show",
    "store state restore",
    "store state purge",
    "fence",
    "fence proxy",
    "fence floor",
    "fence floor set",
    "fence floor list",
    "doctor",
    "top",
    "plan",
    "bench",
    "demo",
    "completions",
    "man",
    "help",
];

fn said(arguments: &[&str]) -> String {
    let ran = at("127.0.0.1:1", arguments);
    assert_eq!(ran.code, 0, "{arguments:?}: {ran:?}");
    ran.out
}

fn long(command: &str) -> String {
    let words: Vec<&str> = command.split(' ').chain(["--help"]).collect();
    said(&words)
}

/// The names of the commands that a help text lists.
fn listed(help: &str) -> Vec<String> {
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let lines = lines.take_while(|line| !line.is_empty());
    lines.filter_map(|line| line.split_whitespace().next().map(str::to_owned)).collect()
}

#[test]
fn the_page_has_every_command_as_its_help_says() {
    let mut page = String::from(
        "# Command line\n\n\
         <!-- Printed from the binary: TENURE_FIX=1 cargo test -p tenure-cli --test commands help -->\n\n\
         [The guide](../guides/cli.md) shows these at work. Addresses, names and certificates come from flags,\n\
         else from `TENURE_*` variables, else from `~/.config/tenure/client.toml`.\n\n\
         ## Exit codes\n\nThey never change. `tenure help exit` prints them too.\n\n| exit | meaning |\n|---|---|\n",
    );
    for line in said(&["help", "exit"]).lines() {
        let (code, meaning) = line.trim_start().split_once("  ").unwrap();
        let _ = writeln!(page, "| {code} | {meaning} |");
    }
    let _ = write!(page, "\n## `tenure`\n\n```text\n{}\n```\n", said(&["--help"]).trim_end());
    for command in COMMANDS {
        let _ =
            write!(page, "\n## `tenure {command}`\n\n```text\n{}\n```\n", long(command).trim_end());
    }
    let page: String = page.lines().map(|line| format!("{}\n", line.trim_end())).collect();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/cli.md");
    if std::env::var_os("TENURE_FIX").is_some() {
        std::fs::write(path, &page).unwrap();
    }
    let kept = std::fs::read_to_string(path).unwrap_or_default();
    assert!(kept == page, "docs/reference/cli.md is old: run with TENURE_FIX=1");
}

#[test]
fn no_command_is_missing_here_and_each_begins_with_an_example() {
    for command in listed(&said(&["--help"])) {
        assert!(COMMANDS.contains(&command.as_str()), "{command}");
        let help = said(&[&command, "--help"]);
        for below in listed(&help) {
            assert!(COMMANDS.contains(&format!("{command} {below}").as_str()), "{command} {below}");
        }
        let example = format!("  tenure {command}");
        let usage = help.find("Usage:").unwrap();
        let below = listed(&help);
        let leaves = match &below[..] {
            [] => vec![command.clone()],
            below => below.iter().map(|it| format!("{command} {it}")).collect(),
        };
        for leaf in leaves {
            let help = long(&leaf);
            assert!(!listed(&help).is_empty() || help.contains("--output <FORM>"), "{help}");
        }
        let example = help.find(&example).or_else(|| help.find(&format!("$(tenure {command}")));
        assert!(example.is_some_and(|at| at < usage), "{help}");
    }
    assert_eq!(said(&["help", "key", "put"]), long("key put"));
}

#[test]
fn reasons_and_codes_are_explained() {
    let held = said(&["help", "HELD"]);
    assert!(
        held.starts_with("HELD: another client has the lock") && held.contains("effect   none"),
        "{held}"
    );
    assert!(said(&["help", "UNKNOWN_OUTCOME"]).contains("effect   unknown"));
    // Help knows every table and names what reports a reason.
    for (word, by) in [
        ("STALE_TOKEN", "said by  fences"),
        ("TICKET_SHARED", "said by  tickets"),
        ("UPSTREAM_TIMEOUT", "said by  store and proxy"),
        ("UNREACHABLE", "said by  the command line"),
        ("NO_SPACE", "said by  store and proxy"),
        ("NO_SPACE", "said by  the cluster"),
    ] {
        let told = said(&["help", word]);
        assert!(told.starts_with(word) && told.contains(by), "{told}");
    }
    let all = said(&["help", "reasons"]);
    let page = include_str!("../../../../docs/reference/errors.md");
    let words = page.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let words: Vec<&str> = words.collect();
    assert!(words.len() > 100 && words.iter().all(|word| all.contains(&format!("  {word} "))));
    // The advice refers to a command that lists everything, not to a page.
    let unknown = at("127.0.0.1:1", &["help", "HOLD"]);
    assert!(unknown.err.contains("try      tenure help reasons"), "{unknown:?}");
    assert!(said(&["help", "exit"]).contains(" 75  not acquired"));
    assert!(said(&["--version"]).starts_with("tenure "));
    assert!(said(&["--version"]).contains("\nbuilt by rustc 1."), "the compiler is recorded");
    assert_eq!(said(&["-V"]).lines().count(), 1);
}

#[test]
fn completions_and_manual_pages_know_every_command() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let text = said(&["completions", shell]);
        assert!(text.contains("explain") && text.contains("connect-timeout"), "{shell}");
    }
    let bash = std::process::Command::new("bash")
        .args(["-n", "/dev/stdin"])
        .stdin(std::process::Stdio::piped())
        .spawn();
    if let Ok(mut bash) = bash {
        std::io::Write::write_all(
            &mut bash.stdin.take().unwrap(),
            said(&["completions", "bash"]).as_bytes(),
        )
        .unwrap();
        assert!(bash.wait().unwrap().success(), "bash reads it");
    }
    assert!(said(&["man"]).contains(".TH tenure 1"));
    let dir = tempfile::tempdir().unwrap();
    said(&["man", "--dir", dir.path().to_str().unwrap()]);
    for command in COMMANDS {
        let path = dir.path().join(format!("tenure-{}.1", command.replace(' ', "-")));
        let page = std::fs::read_to_string(&path).unwrap_or_else(|_| panic!("{path:?}"));
        assert!(page.contains(".SH SYNOPSIS"), "{command}");
    }
}

#[test]
fn what_is_printed_for_people_comes_as_objects_too() {
    let json = |arguments: &[&str]| {
        crate::stage::objects(&said(&[arguments, &["--output", "json"]].concat()))
    };
    let text = |value: &serde_json::Value| value["text"].as_str().unwrap().to_owned();
    let bash = json(&["completions", "bash"]).remove(0);
    assert_eq!((&bash["shell"], text(&bash)), (&"bash".into(), said(&["completions", "bash"])));
    let page = json(&["man"]).remove(0);
    assert_eq!((&page["page"], text(&page)), (&"tenure".into(), said(&["man"])));
    let dir = tempfile::tempdir().unwrap();
    let written = json(&["man", "--dir", dir.path().to_str().unwrap()]);
    assert_eq!(written.len(), COMMANDS.len() + 1, "{written:?}");
    for page in written {
        assert!(std::path::Path::new(page["file"].as_str().unwrap()).exists(), "{page}");
    }
    let codes = json(&["help", "exit"]);
    assert!(codes.iter().any(|it| it["code"] == "75"), "{codes:?}");
    let held = json(&["help", "HELD"]).remove(0);
    assert_eq!((&held["reason"], &held["effect"]), (&"HELD".into(), &"none".into()));
    assert_eq!((&held["http"], text(&held)), (&423.into(), said(&["help", "HELD"])));
    let put = json(&["help", "key", "put"]).remove(0);
    assert_eq!(
        (&put["command"], text(&put)),
        (&"tenure key put".into(), said(&["help", "key", "put"]))
    );
    assert_eq!(text(&json(&["help"]).remove(0)), said(&["help"]));
    let wrong = at("", &["help", "HOLD", "--output", "json"]);
    assert_eq!(crate::stage::objects(&wrong.err)[0]["exit_code"], 2, "{wrong:?}");
}

#[test]
fn help_carries_how_certificates_are_made() {
    let text = said(&["help", "certificates"]);
    assert!(text.contains("subjectAltName=DNS:a") && text.contains("member_ca"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
}
