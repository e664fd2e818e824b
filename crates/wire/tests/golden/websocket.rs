//! Writes the reference of the WebSocket session from its types, and checks that the page is the present one.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::Value;
use tenure_wire::json::session::{ClientMessage, ServerMessage};
use utoipa::{PartialSchema, ToSchema};

const HEAD: &str = "\
# The WebSocket session

Every field of every message at `/v1/ws`, in JSON. How a session goes, with examples:
[the guide](../guides/websocket.md). A message with a field that is not listed is refused. Numbers that do not fit a
double (tokens, revisions, leases, places) are decimal strings. A field without a *yes* may be left out.

A client sends [ClientMessage](#clientmessage), a member sends [ServerMessage](#servermessage).

This page is printed from the types: `TENURE_FIX=1 cargo test -p tenure-wire --test golden websocket`.
";

/// The whole page.
fn page() -> String {
    let mut all = BTreeMap::new();
    for (name, schema, nested) in [of::<ClientMessage>(), of::<ServerMessage>()] {
        all.insert(name, schema);
        all.extend(nested);
    }
    let mut text = HEAD.to_owned();
    for first in ["ClientMessage", "ServerMessage"] {
        let schema = all.remove(first).unwrap();
        section(&mut text, first, &schema);
    }
    for (name, schema) in &all {
        section(&mut text, name, schema);
    }
    text
}

/// A type's name and schema, and those of all types that it contains.
fn of<T: ToSchema + PartialSchema>() -> (String, Value, Vec<(String, Value)>) {
    let mut nested = Vec::new();
    T::schemas(&mut nested);
    let json = |schema| serde_json::to_value(schema).unwrap();
    let nested = nested.into_iter().map(|(name, schema)| (name, json(schema))).collect();
    (T::name().into_owned(), json(T::schema()), nested)
}

fn section(text: &mut String, name: &str, schema: &Value) {
    let said =
        schema["description"].as_str().map_or(String::new(), |it| format!("{}\n\n", line(it)));
    write!(text, "\n## {name}\n\n{said}").unwrap();
    let Some(fields) = schema["properties"].as_object() else {
        writeln!(text, "{}", kind(schema)).unwrap();
        return;
    };
    text.push_str("| field | type | needed | meaning |\n|---|---|---|---|\n");
    let needed = |field: &str| {
        let all = schema["required"].as_array();
        all.is_some_and(|all| all.iter().any(|it| it == field))
    };
    for (field, of) in fields {
        let meaning = of["description"].as_str().map(line).unwrap_or_default();
        let needed = if needed(field) { "yes" } else { "" };
        writeln!(text, "| `{field}` | {} | {needed} | {meaning} |", kind(of)).unwrap();
    }
}

/// A description in one line of a table.
fn line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|")
}

/// A type in a few words.
fn kind(schema: &Value) -> String {
    if let Some(name) = schema["$ref"].as_str().and_then(|path| path.rsplit('/').next()) {
        return format!("[{name}](#{})", name.to_lowercase());
    }
    for any in ["oneOf", "anyOf", "allOf"] {
        if let Some(all) = schema[any].as_array() {
            let all = all.iter().filter(|it| it["type"] != "null").map(kind);
            return all.collect::<Vec<_>>().join(" or ");
        }
    }
    if let Some(words) = schema["enum"].as_array() {
        let words = words.iter().filter_map(Value::as_str).map(|it| format!("`{it}`"));
        return words.collect::<Vec<_>>().join(", ");
    }
    let named = match &schema["type"] {
        Value::Array(all) => all.iter().filter_map(Value::as_str).find(|it| *it != "null"),
        one => one.as_str(),
    };
    match named {
        Some("array") => format!("list of {}", kind(&schema["items"])),
        Some("string") if schema["pattern"].as_str().is_some_and(|it| it.contains("[0-9]")) => {
            "decimal string".to_owned()
        }
        Some(named) => named.to_owned(),
        None => "anything".to_owned(),
    }
}

#[test]
fn the_websocket_reference_is_that_of_the_types() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/websocket.md");
    let text = page();
    if std::env::var_os("TENURE_FIX").is_some() {
        std::fs::write(path, &text).unwrap();
    }
    let kept = std::fs::read_to_string(path).unwrap_or_default();
    assert!(kept == text, "docs/reference/websocket.md is old: run with TENURE_FIX=1");
}
