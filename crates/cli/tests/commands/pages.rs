//! Tests that the commands of the documentation exist, and that those of its pages work as they are written.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::ports::free_port;
use crate::server;
use crate::stage::{Member, TENURE, ended};
use crate::steps::{compare, script, steps};

/// The folders whose pages are run, and some pages more.
const FOLDERS: [&str; 4] = ["tutorial", "how-to", "operate", "concepts"];
const PAGES: [&str; 9] = [
    "docs/guides/cli.md",
    "docs/guides/history.md",
    "docs/guides/maintenance.md",
    "docs/guides/proxy.md",
    "docs/guides/run.md",
    "docs/guides/store.md",
    "docs/guides/terraform.md",
    "docs/guides/tickets.md",
    "docs/reference/exit-codes.md",
];
/// Pages with commands that tests of their own run: `auth.rs`, and `guide.rs` of the server's HTTP API.
const ELSEWHERE: [&str; 3] =
    ["docs/guides/access.md", "docs/guides/http.md", "docs/guides/teams.md"];
/// The programs that pages run under locks. In the tests they print their own names.
const PROGRAMS: [&str; 7] = [
    "deploy.sh",
    "migrate.sh",
    "move.sh",
    "read.sh",
    "report.sh",
    "work.sh",
    "work-under-pg_advisory_lock.sh",
];
/// What a page calls `tenure …` and is no command: the names of spans.
const NO_COMMANDS: [&str; 2] = ["tenure acquire", "tenure renew"];

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The pages of a folder, by name.
pub(crate) fn pages(folder: &Path) -> Vec<(String, String)> {
    let mut pages = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "md") {
            let name = path.strip_prefix(root()).unwrap().display().to_string();
            pages.push((name, std::fs::read_to_string(path).unwrap()));
        }
    }
    pages.sort();
    pages
}

/// Replaces the times of a page by conditions, because a busy machine is slow: a pause of one second lasts until a
/// lock is held, and what holds it for three seconds holds it for longer.
const PAUSE: &str = "sleep() {
    test $1 = 1 || { command sleep $1; return; }
    until tenure locks 2> /dev/null | grep -q .; do command sleep 0.1; done
}
";
/// A store or proxy in the background may not listen yet: curl ends with 7 then.
const CONNECT: &str = "curl() {
    for _ in $(seq 600); do
        command curl -s \"$@\"; code=$?
        test $code = 7 || return $code
        command sleep 0.1
    done
    return 7
}
";
const HOLD: (&str, &str) = ("-- sleep 3 &", "-- sleep 20 &");

/// Serves the service before which a page puts the proxy. It answers every request with `paid`.
fn upstream(page: &str) {
    let Some((_, rest)) = page.split_once("--upstream http://") else { return };
    let address = rest.split_whitespace().next().unwrap().to_owned();
    let listener = TcpListener::bind(address).unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let _ = stream.read(&mut [0; 4096]);
            let answer = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\npaid\n";
            let _ = stream.write_all(answer.as_bytes());
        }
    });
}

/// The page as it works on one machine, next to a member at `10.0.0.11`: other addresses are loopback addresses with
/// free ports, and directories of the system are below the present one.
fn on_one_machine(page: &str, member: &Member, health: u16) -> String {
    // Under TLS the page starts that member itself.
    let is_started = page.contains("--clients 10.0.0.11:7450");
    let is_started = is_started && !page.contains("$ tenure restore");
    let mut page = page.replace("127.0.0.1:7452", &format!("127.0.0.1:{health}"));
    if !is_started {
        page = page.replace("10.0.0.11:7450", &member.addr);
        page = page.replace("10.0.0.11:7451", &member.members);
    }
    for host in 11..=14 {
        let address = format!("10.0.0.{host}");
        for port in [":7450", ":7451"] {
            let free = format!("127.0.0.{host}:{}", free_port());
            page = page.replace(&[&*address, port].concat(), &free);
        }
        page = page.replace(&address, &format!("127.0.0.{host}"));
    }
    let local = format!("--data-dir {}", member.data.display());
    let replaced = [
        ("--data-dir /var/lib/tenure", &*local),
        ("/var/lib/tenure", "var"),
        ("/backups/", "backups/"),
        ("/usr/local/share/man/man1", "man1"),
        ("/etc/bash_completion.d/tenure", "backups/completion"),
    ];
    replaced.iter().fold(page, |page, (from, to)| page.replace(from, to))
}

/// Runs the commands of a page one after the other, and compares what they print.
fn follow(name: &str, page: &str) {
    let postgres = page.contains("$ psql ").then(server::postgres);
    let postgres = match postgres.map(|server| server::or_skip("the tutorial", server)) {
        Some(None) => return,
        Some(server) => server,
        None => None,
    };
    let page = page.replace("crates/fence", &format!("{}/crates/fence", root().display()));
    // In two steps: the digits of a free port may contain those of the next port of the page.
    let ports = ["7461", "7462", "7463", "7471", "7472", "7473", "8000", "8001", "3000"];
    let mark = |at: usize| format!("\u{1}{at}\u{1}");
    let marked =
        ports.iter().enumerate().fold(page, |page, (at, port)| page.replace(port, &mark(at)));
    let page =
        (0..ports.len()).fold(marked, |page, at| page.replace(&mark(at), &free_port().to_string()));
    let page = page.replace(HOLD.0, HOLD.1);
    let health = free_port();
    let member = Member::found_with("a", &["--health", &format!("127.0.0.1:{health}")]);
    let page = on_one_machine(&page, &member, health);
    let steps = steps(&page);
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("backups")).unwrap();
    for program in PROGRAMS {
        let program = dir.path().join(program);
        std::fs::write(&program, "#!/bin/sh\necho \"$(basename $0) runs\"\n").unwrap();
        let made = Command::new("chmod").arg("+x").arg(&program).status().unwrap();
        assert!(made.success());
    }
    upstream(&page);
    let script = [PAUSE, CONNECT, &script(&steps)].concat();
    let bin = Path::new(TENURE).parent().unwrap();
    // A page that hangs is ended together with all that it started.
    let mut shell = Command::new("timeout");
    shell.args(["180", "bash", "-c", &script]).current_dir(dir.path()).stdin(Stdio::null());
    shell.env_clear().env("PATH", format!("{}:/usr/bin:/bin", bin.display()));
    shell.env("HOME", dir.path()).env("TENURE_ADDR", &member.addr);
    // What a job of a CI system has.
    shell.env("CI_COMMIT_SHA", "5f1c").env("CI_ACTOR", "ana").env("CI_JOB_URL", "ci/4121");
    // As the introductions of pages say.
    shell.env("T", format!("http://{}/v1", member.addr));
    if let Some(postgres) = &postgres {
        shell.env("PGHOST", "127.0.0.1").env("PGUSER", "postgres");
        shell.env("PGPORT", postgres.port.to_string());
    }
    let ran = ended(&mut shell);
    compare(name, steps, &ran);
}

#[test]
fn the_pages_work_as_they_are_written() {
    let pages = FOLDERS.iter().flat_map(|folder| pages(&root().join("docs").join(folder)));
    let more =
        PAGES.map(|page| (page.to_owned(), std::fs::read_to_string(root().join(page)).unwrap()));
    let pages = pages.chain(more);
    let pages: Vec<_> = pages.filter(|(_, page)| !steps(page).is_empty()).collect();
    let without = PAGES.iter().find(|page| !pages.iter().any(|(name, _)| name == *page));
    assert_eq!(without, None, "this page has lost its commands");
    assert!(pages.len() >= 14, "the pages have lost their commands: {}", pages.len());
    std::thread::scope(|scope| {
        for (name, page) in &pages {
            scope.spawn(move || follow(name, page));
        }
    });
}

/// A block of commands is either run by a test or not marked as one.
#[test]
fn no_page_has_commands_that_are_not_run() {
    let docs = root().join("docs");
    let folders = std::fs::read_dir(&docs).unwrap().map(|entry| entry.unwrap().path());
    let folders = folders.filter(|path| path.is_dir()).chain([docs.clone(), root()]);
    for (name, page) in folders.flat_map(|folder| pages(&folder)) {
        let is_run = PAGES.iter().chain(&ELSEWHERE).any(|page| name.ends_with(page))
            || FOLDERS.iter().any(|folder| name.contains(&format!("docs/{folder}/")));
        assert!(is_run || steps(&page).is_empty(), "{name} has a block `console` that is not run");
    }
}

/// The sections of the reference, by command.
fn reference() -> Vec<(String, String)> {
    let page = std::fs::read_to_string(root().join("docs/reference/cli.md")).unwrap();
    let sections = page.split("\n## `").skip(1).filter_map(|section| section.split_once('`'));
    sections.map(|(name, text)| (name.to_owned(), text.to_owned())).collect()
}

/// The pieces of a page that are code: the lines of blocks, and what stands between backticks in others.
fn code(page: &str) -> Vec<&str> {
    let mut inside = false;
    let mut code = Vec::new();
    for line in page.lines() {
        if line.starts_with("```") {
            inside = !inside;
        } else if inside {
            code.push(line);
        } else {
            code.extend(line.split('`').skip(1).step_by(2));
        }
    }
    code
}

/// The words of each `tenure` command in a piece of code, up to what the shell or another command reads.
fn commands(code: &str) -> Vec<Vec<&str>> {
    const BEFORE: [&str; 6] = ["$ ", "$(", "; ", "| ", "-- ", "do "];
    let starts = code.match_indices("tenure ").filter(|(at, _)| {
        let before = &code[..*at];
        before.is_empty() || BEFORE.iter().any(|end| before.ends_with(end))
    });
    starts
        .map(|(at, _)| {
            let mut words = Vec::new();
            for word in code[at..].split_whitespace() {
                if word == "--" || word.starts_with(['|', ';', '&', '#', '>', '(', '·', '…']) {
                    break;
                }
                let bare = word.trim_end_matches([';', ',', ')', '.', '"']);
                words.push(bare);
                if bare.len() < word.len() {
                    break;
                }
            }
            words
        })
        .filter(|words| words.len() > 1 && words[1].starts_with(|c: char| c.is_ascii_lowercase()))
        .collect()
}

#[test]
fn every_command_that_a_page_shows_exists() {
    let reference = reference();
    let docs = root().join("docs");
    let others = ["fences", "guides", "internals", "reference"];
    let folders = FOLDERS.iter().chain(&others).map(|folder| docs.join(folder));
    let all = folders.chain([root(), docs.clone()]).flat_map(|folder| pages(&folder));
    let (mut seen, mut wrong) = (0, Vec::new());
    for (name, page) in all.filter(|(name, _)| name != "docs/reference/cli.md") {
        for words in code(&page).into_iter().flat_map(commands) {
            let line = words.join(" ");
            if NO_COMMANDS.contains(&line.as_str()) {
                continue;
            }
            seen += 1;
            let known = (2..=words.len()).rev().find_map(|count| {
                let command = words[..count].join(" ");
                let section = reference.iter().find(|(name, _)| *name == command)?;
                Some((count, &section.1))
            });
            let Some((count, section)) = known else {
                wrong.push(format!("{name}: no such command: {line}"));
                continue;
            };
            for flag in words[count..].iter().filter(|word| word.starts_with("--")) {
                let flag = flag.split('=').next().unwrap_or_default();
                if !section.split_whitespace().any(|word| word == flag) {
                    wrong.push(format!("{name}: no flag {flag}: {line}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(seen > 300, "the pages have lost their commands: {seen}");
}

/// The settings that `tenure config check` shows are those of the page, with their defaults.
#[test]
fn the_page_of_settings_has_every_setting_with_its_default() {
    let mut check = Command::new(TENURE);
    check.args(["config", "check", "--name", "a", "--data", "d"]).env_clear();
    let ran = ended(&mut check);
    assert_eq!(ran.code, 0, "{ran:?}");
    let page = std::fs::read_to_string(root().join("docs/reference/configuration.md")).unwrap();
    let mut rows = 0;
    for line in ran.out.lines() {
        let line = line.trim_start_matches("# ");
        let name = line.split_whitespace().next().unwrap();
        let start = format!("| `{name}` | `--");
        let row = page.lines().find(|row| row.starts_with(&start));
        let row = row.unwrap_or_else(|| panic!("`{name}` is not in the page"));
        if let Some(default) = line.strip_suffix("  # default") {
            let default = default.split('"').nth(1).unwrap();
            let shown = row.split(" | ").nth(2).unwrap().trim_matches('`');
            assert_eq!(shown, default, "{name}");
        }
        rows += 1;
    }
    let shown = page.lines().filter(|line| line.starts_with("| `") && line.contains("` | `--"));
    assert_eq!(shown.count(), rows, "the page has settings that do not exist");
}
