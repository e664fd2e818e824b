//! Checks that every client library knows the reasons after which a request may be sent again.

use super::{TidyFindings, Tree};

/// The table of reasons: `| reason | meaning | gRPC | HTTP | WebSocket | effect | again | what to do |`.
const TABLE: &str = "docs/reference/errors.md";

/// The place of the column *again* in a row, counted after the first bar.
const AGAIN: usize = 6;

/// The file of each library that has the list.
const LISTS: [&str; 4] = [
    "clients/python/src/tenure/errors.py",
    "clients/typescript/src/errors.ts",
    "clients/go/errors.go",
    "clients/java/client/src/main/java/dev/tenure/client/RefusedException.java",
];

pub(super) fn check(tree: &Tree) -> TidyFindings {
    let mut found = TidyFindings::default();
    let text_of = |name: &str| tree.texts().find(|(path, _)| *path == name).map(|(_, text)| text);
    let Some(table) = text_of(TABLE) else {
        found.fault(TABLE, None, "there is no table of reasons");
        return found;
    };
    for list in LISTS {
        let Some(text) = text_of(list) else {
            found.fault(list, None, "there is no such list of reasons");
            continue;
        };
        let is_word = |c: char| c.is_ascii_uppercase() || c == '_';
        let known: Vec<&str> = text.split(|c| !is_word(c)).collect();
        for reason in table.lines().filter_map(repeatable) {
            found.checked += 1;
            if !known.contains(&reason) {
                let what = format!("`{reason}` may be sent again later, and is not in the list");
                found.fault(list, None, what);
            }
        }
    }
    found
}

/// The reason of a row that says that the same request may be sent again, at once or later.
fn repeatable(row: &str) -> Option<&str> {
    let cells: Vec<&str> = row.strip_prefix('|')?.split('|').map(str::trim).collect();
    let reason = cells.first()?.strip_prefix('`')?.strip_suffix('`')?;
    matches!(*cells.get(AGAIN)?, "later" | "at once").then_some(reason)
}

#[cfg(test)]
mod tests {
    use super::super::tests::faults;
    use super::*;

    const ROWS: &str = "| `A_B` | m | g | h | w | none | later | do |\n\
                        | `C` | m | g | h | w | none | no | do |\n";

    #[test]
    fn a_reason_that_a_list_lacks_is_found() {
        let files = |third: &'static str| {
            [
                (TABLE, ROWS),
                (LISTS[0], "A_B"),
                (LISTS[1], "\"A_B\""),
                (LISTS[2], third),
                (LISTS[3], "A_B"),
            ]
        };
        assert_eq!(faults(check, &files("x A_B,")), [""; 0]);
        let expected =
            "clients/go/errors.go: `A_B` may be sent again later, and is not in the list";
        assert_eq!(faults(check, &files("A_BC")), [expected]);
    }
}
