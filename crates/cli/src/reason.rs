//! Collects every reason with its meaning, for `tenure help` and `docs/reference/errors.md`.
//!
//! The reasons of the command line and of the SDK are defined here. All others are defined where they originate: the
//! cluster's APIs, the fences, the store and the proxy. The page `docs/reference/errors.md` is printed from the same
//! tables.

use serde_json::{Value, json};
use tenure_gate::reason::{Effect, Fence, Reason as Gate, Row as GateRow, TicketReason};
use tenure_wire::reason as cluster;

/// A reason that only the command line reports.
pub(crate) struct CliReason {
    pub(crate) reason: &'static str,
    /// The exit codes of a command that reports it.
    pub(crate) exit: &'static str,
    pub(crate) effect: Effect,
    pub(crate) meaning: &'static str,
    pub(crate) advice: &'static str,
}

/// A row of any of the tables, in one common form.
#[derive(Clone, Copy)]
pub(crate) struct ReasonEntry {
    pub(crate) reason: &'static str,
    pub(crate) effect: &'static str,
    pub(crate) meaning: &'static str,
    pub(crate) advice: &'static str,
    /// The HTTP status, for reasons that are reported over HTTP.
    pub(crate) http: Option<u16>,
    /// The exit codes, for reasons that only the command line or the SDK reports.
    pub(crate) exit: Option<&'static str>,
}

impl ReasonEntry {
    /// The row as an object for programs.
    pub(crate) fn object(&self, by: &str) -> Value {
        let Self { reason, effect, meaning, advice, http, exit } = self;
        let mut said = json!({
            "reason": reason, "said_by": by, "meaning": meaning, "effect": effect, "next": advice,
        });
        if let Some(http) = http {
            said["http"] = json!(http);
        }
        if let Some(exit) = exit {
            said["exit"] = json!(exit);
        }
        said
    }
}

/// A table with the name of what reports its reasons.
pub(crate) struct ReasonSection {
    pub(crate) by: &'static str,
    pub(crate) rows: Vec<ReasonEntry>,
}

const fn row(
    reason: &'static str,
    exit: &'static str,
    meaning: &'static str,
    advice: &'static str,
) -> CliReason {
    CliReason { reason, exit, effect: Effect::None, meaning, advice }
}

/// The reasons that only the command line reports.
pub(crate) const TABLE: &[CliReason] = &[
    row(
        "ARGUMENTS",
        "2",
        "the arguments are invalid; nothing was sent",
        "look at --help of the command",
    ),
    row(
        "CONFIG",
        "78",
        "a setting, a file or a variable cannot be used; nothing was sent",
        "correct what is named",
    ),
    row(
        "REFUSED",
        "1",
        "the command failed for a reason outside the cluster: a file, a terminal, a failed check",
        "look at the message",
    ),
    row(
        "UNREACHABLE",
        "69",
        "no member answered; nothing was asked for",
        "tenure doctor, or --wait-for-server 5m to keep trying",
    ),
    CliReason {
        reason: "UNANSWERED",
        exit: "69",
        effect: Effect::Unknown,
        meaning: "lock, try or elect was not answered; what was granted unseen is given back, or ends with its lease",
        advice: "tenure doctor, or the same again",
    },
    row(
        "UNAVAILABLE",
        "69",
        "members were reached, and none took the request",
        "tenure cluster status, or the same again later",
    ),
    row(
        "LOST",
        "76",
        "the lock, the lease or the leadership was held and is not any more",
        "stop the work; who has it: tenure explain LOCK",
    ),
    row(
        "START",
        "1, 78",
        "a member cannot start; 78 if another setting would help",
        "what the message ends with",
    ),
    row(
        "STOPPED",
        "1",
        "a member stopped by itself: it was removed, or its disk failed",
        "what the message ends with",
    ),
    row(
        "RESTORE",
        "1, 78",
        "a backup cannot be restored; 78 if another setting would help",
        "what the message ends with",
    ),
    row(
        "NOT_STARTED",
        "126, 127",
        "the command that was to be run cannot be executed, or was not found",
        "check the command after --",
    ),
];

/// The reasons that the SDK itself reports, in `Error::Failed`.
const SDK: &[CliReason] = &[
    row(
        "LEASE_IN_USE",
        "1",
        "the lease has guards: the work under it may not have stopped",
        "release or drop its guards, then revoke it",
    ),
    row(
        "GUARD_SHARED",
        "1",
        "there are other guards of the same hold, which have its token",
        "release or drop the others, then downgrade",
    ),
    CliReason {
        reason: "STRANGE_ANSWER",
        exit: "74",
        effect: Effect::Unknown,
        meaning: "the member answered something else than was asked",
        advice: "compare the versions of this program and of the cluster, and look before you ask again",
    },
];

/// All tables.
pub(crate) fn sections() -> Vec<ReasonSection> {
    let cluster = cluster::TABLE.iter().map(|row| ReasonEntry {
        reason: row.reason,
        effect: cluster::effect_word(row.effect),
        meaning: row.meaning,
        advice: row.advice,
        http: Some(row.http),
        exit: None,
    });
    let gate = |row: &'static GateRow| ReasonEntry {
        reason: row.reason,
        effect: row.effect.word(),
        meaning: row.meaning,
        advice: row.advice,
        http: Some(row.status),
        exit: None,
    };
    let own = |row: &'static CliReason| ReasonEntry {
        reason: row.reason,
        effect: row.effect.word(),
        meaning: row.meaning,
        advice: row.advice,
        http: None,
        exit: Some(row.exit),
    };
    vec![
        ReasonSection { by: "the cluster", rows: cluster.collect() },
        ReasonSection { by: "fences", rows: Fence::ALL.iter().map(|it| gate(it.row())).collect() },
        ReasonSection {
            by: "tickets",
            rows: TicketReason::ALL.iter().map(|it| gate(it.row())).collect(),
        },
        ReasonSection {
            by: "store and proxy",
            rows: Gate::ALL.iter().map(|it| gate(it.row())).collect(),
        },
        ReasonSection { by: "the SDK", rows: SDK.iter().map(own).collect() },
        ReasonSection { by: "the command line", rows: TABLE.iter().map(own).collect() },
    ]
}

/// The rows for a reason, from every table that has it.
pub(crate) fn find(word: &str) -> Vec<(&'static str, ReasonEntry)> {
    let found = |section: ReasonSection| {
        let row = section.rows.into_iter().find(|row| row.reason == word);
        row.map(|row| (section.by, row))
    };
    sections().into_iter().filter_map(found).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fmt::Write as _;
    use std::path::Path;

    use super::*;

    const INTRODUCTION: &str = "\
# Errors

<!-- Printed from the tables in the code: TENURE_FIX=1 cargo test -p tenure-cli --bin tenure reason -->

Every answer that is not success has a `reason`, one stable word for programs. Who says what:
[the cluster](#the-cluster), [fences](#fences) with [tickets](#tickets),
[the store and the proxy](#the-store-and-the-proxy), and, of themselves, [the SDK](#the-sdk) and
[the command line](#the-command-line). A word that stands in two of the tables has the same status and effect in both.
`tenure help REASON` explains one, `tenure help reasons` lists them.

- **effect** says what may be concluded. `none`: it did not happen and will not. `unknown`: it may have happened, or
  may still. The two never share a reason.

";

    const FENCES: &str = "
## Fences

Sent by the [HTTP layer](../fences/http.md), the proxy and the store, in the header `Tenure-Reason` and as
`{\"error\":{\"reason\":…,\"message\":…,\"effect\":…,\"next\":…,…}}`. Fences in SQL and Lua report the same in the
language of their stores ([PostgreSQL](../fences/postgresql.md)); in Rust it is `Refused::reason()`.

";

    const TICKETS: &str = "
## Tickets

Why a [ticket](../guides/tickets.md) proves nothing. Over HTTP it is answered as `FORGED_TOKEN`, with this in the
message; the store has it in the header `Tenure-Ticket` and in `ticket` of the body, too. In Rust it is
`Forged::reason()`.

";

    const GATE: &str = "
## The store and the proxy

What [the store](../guides/store.md) and [the proxy](../guides/proxy.md) say beside the reasons of fences, in the same
form. `UPSTREAM_…` is the proxy's, all others are the store's; a path that cannot be sent on is `MALFORMED` at the
proxy.

";

    const OF_SDK: &str = "
## The SDK

What [the SDK](../guides/sdk.md) says of itself, in `Error::Failed`, with the exit code of a command that meets it.

| reason | meaning | exit code | effect | what to do |
|---|---|---|---|---|
";

    const OWN: &str = "
## The command line

With `--output json` a command that fails writes one object to stderr with the `reason`: one of the tables above if
the cluster, a fence or the SDK refused, else one of these. `tenure help exit` explains the exit codes.

| reason | meaning | exit code | effect | what to do |
|---|---|---|---|---|
";

    /// The whole page `docs/reference/errors.md`.
    fn page() -> String {
        let mut page = format!("{INTRODUCTION}{}", cluster::reference());
        let mut section = |head: &str, rows: &mut dyn Iterator<Item = &'static GateRow>| {
            page.push_str(head);
            page.push_str(
                "| reason | meaning | HTTP | effect | what to do |\n|---|---|---|---|---|\n",
            );
            for row in rows {
                let (status, effect) = (row.status, row.effect.word());
                let (reason, meaning, advice) = (row.reason, row.meaning, row.advice);
                let _ =
                    writeln!(page, "| `{reason}` | {meaning} | {status} | {effect} | {advice} |");
            }
        };
        section(FENCES, &mut Fence::ALL.iter().map(|it| it.row()));
        section(TICKETS, &mut TicketReason::ALL.iter().map(|it| it.row()));
        section(GATE, &mut Gate::ALL.iter().map(|it| it.row()));
        for (head, rows) in [(OF_SDK, SDK), (OWN, TABLE)] {
            page.push_str(head);
            for CliReason { reason, exit, effect, meaning, advice } in rows {
                let effect = effect.word();
                let _ = writeln!(page, "| `{reason}` | {meaning} | {exit} | {effect} | {advice} |");
            }
        }
        page
    }

    #[test]
    fn the_errors_page_is_printed_from_the_tables() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/errors.md");
        if std::env::var_os("TENURE_FIX").is_some() {
            std::fs::write(path, page()).unwrap();
        }
        let kept = std::fs::read_to_string(path).unwrap_or_default();
        assert!(kept == page(), "docs/reference/errors.md is old: run with TENURE_FIX=1");
        for row in sections().iter().flat_map(|section| &section.rows) {
            let line = format!("| `{}` | {} |", row.reason, row.meaning);
            assert!(kept.contains(&line), "{line}");
        }
    }

    #[test]
    fn a_word_of_two_tables_has_one_status_and_one_effect() {
        let mut known = BTreeMap::new();
        for row in sections().into_iter().flat_map(|section| section.rows) {
            let said = (row.http, row.effect);
            assert_eq!(known.insert(row.reason, said).unwrap_or(said), said, "{}", row.reason);
        }
        let own = SDK.iter().chain(TABLE);
        assert!(
            own.into_iter().all(|row| find(row.reason).len() == 1),
            "their own words are theirs"
        );
    }

    /// Collects the words in capitals that are passed to one of `makers` anywhere in a directory of sources.
    fn collect_reasons(dir: &Path, makers: &[&str], words: &mut Vec<(String, String)>) {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                collect_reasons(&path, makers, words);
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            for maker in makers {
                for after in text.split(maker).skip(1) {
                    let Some(word) = after.split(';').next().unwrap().split('"').nth(1) else {
                        continue;
                    };
                    if word.chars().all(|c| c.is_ascii_uppercase() || c == '_') {
                        words.push((word.to_owned(), path.display().to_string()));
                    }
                }
            }
        }
    }

    #[test]
    fn every_reason_that_a_command_says_stands_in_a_table() {
        let mut words = Vec::new();
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        collect_reasons(&here.join("src"), &["CliError::new(", "Self::new("], &mut words);
        collect_reasons(&here.join("../client/src"), &["Error::Failed {\n"], &mut words);
        for (word, file) in &words {
            assert!(!find(word).is_empty(), "{word} of {file} stands in no table");
        }
        for row in SDK.iter().chain(TABLE) {
            let is_said = words.iter().any(|(word, _)| word == row.reason);
            assert!(is_said, "no command reports {}", row.reason);
        }
    }
}
