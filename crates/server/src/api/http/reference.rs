//! Prints `docs/reference/http.md` from the OpenAPI description.

use std::fmt::Write as _;

use serde_json::{Map, Value};

use super::openapi::{COMMAND, QUESTION, described};

/// The tags of the description and the titles of their chapters, in the order of the page.
const CHAPTERS: [(&str, &str); 9] = [
    ("leases", "leases"),
    ("locks", "locks"),
    ("elections", "elections"),
    ("keys", "keys"),
    ("watch", "watches"),
    ("cluster", "the cluster"),
    ("access", "access"),
    ("console", "the console"),
    ("health", "health"),
];
const VERBS: [&str; 5] = ["get", "post", "put", "patch", "delete"];

const INTRODUCTION: &str = "# HTTP reference

Every call of the HTTP API, with its parameters, its body and its answers, and every type. A test prints this page from
the OpenAPI description of the member, which is also at `/openapi.json` and in [openapi.json](openapi.json). To begin:
[the guide](../guides/http.md). Who may call what: [permissions](permissions.md).

- A request with an unknown parameter or field is refused. An answer may get more fields in a later version.
- Tokens, revisions and ids are decimal strings, because many JSON readers round large numbers. Fields that end in `_ms`
  are milliseconds.
- An `Idempotency-Key` makes a request take effect once, for ten minutes.
";

const REFUSALS: &str = "
## Refusals of all calls

A call may answer with these statuses and an [`ErrorBody`](#errorbody). Its `reason` is in [errors](errors.md). The
chapters below list only what is particular to a call.

| status | calls | meaning |
|---|---|---|
";

/// The page.
fn page() -> String {
    let described = serde_json::to_value(described()).expect("the description is JSON");
    let mut page = INTRODUCTION.to_owned();
    page.push_str(REFUSALS);
    let all = QUESTION.iter().map(|it| (it, "all")).chain(COMMAND.iter().map(|it| (it, "changes")));
    for ((status, meaning), calls) in all {
        row(&mut page, &[status, calls, meaning]);
    }
    let paths = object(&described, "paths");
    let mut printed = 0;
    for (tag, title) in CHAPTERS {
        let _ = write!(page, "\n## Calls: {title}\n");
        for (path, item) in paths {
            for verb in VERBS {
                let Some(call) = item.get(verb).filter(|call| call["tags"][0] == tag) else {
                    continue;
                };
                printed += 1;
                print_call(&mut page, &verb.to_uppercase(), path, call);
            }
        }
    }
    let calls: usize = paths.values().map(|item| item.as_object().map_or(0, Map::len)).sum();
    assert_eq!(
        printed, calls,
        "a call has a tag that is in no chapter, or a verb that is not known"
    );
    page.push_str("\n## Types\n");
    for (name, schema) in object(&described["components"], "schemas") {
        print_type(&mut page, name, schema);
    }
    page
}

fn print_call(page: &mut String, verb: &str, path: &str, call: &Value) {
    let _ =
        write!(page, "\n### {verb} {path}\n\n{}\n", paragraphs(call, &["summary", "description"]));
    let parameters = call["parameters"].as_array().map_or(&[][..], Vec::as_slice);
    if !parameters.is_empty() {
        page.push_str("\n| parameter | in | type | meaning |\n|---|---|---|---|\n");
    }
    for parameter in parameters {
        let is_optional = parameter["required"] == false;
        let place =
            format!("{}{}", text(&parameter["in"]), if is_optional { "" } else { ", required" });
        let name = format!("`{}`", text(&parameter["name"]));
        row(page, &[&name, &place, &type_of(&parameter["schema"]), &meaning(parameter)]);
    }
    if let Some(content) = call["requestBody"]["content"].as_object() {
        let _ = write!(page, "\nBody: {}.\n", bodies(content));
    }
    page.push_str("\n| status | body | meaning |\n|---|---|---|\n");
    for (status, answer) in object(call, "responses") {
        let description = text(&answer["description"]);
        let is_shared = |list: &[(&str, &str)]| list.contains(&(status.as_str(), description));
        if !is_shared(QUESTION) && !is_shared(COMMAND) {
            let body = answer["content"].as_object().map_or_else(|| "none".into(), bodies);
            row(page, &[status, &body, &meaning(answer)]);
        }
    }
}

fn print_type(page: &mut String, name: &str, schema: &Value) {
    let _ = write!(page, "\n### {name}\n\n{}\n", paragraphs(schema, &["description"]));
    if schema["properties"].is_object() {
        print_fields(page, schema);
    } else if let Some(parts) = schema["allOf"].as_array() {
        for part in parts {
            match part["properties"].is_object() {
                true => print_fields(page, part),
                false => drop(write!(page, "\nAlso the fields of {}.\n", type_of(part))),
            }
        }
    } else {
        let _ = write!(page, "\nIt is {}.\n", type_of(schema));
    }
}

fn print_fields(page: &mut String, schema: &Value) {
    page.push_str("\n| field | type | meaning |\n|---|---|---|\n");
    let required = schema["required"].as_array().map_or(&[][..], Vec::as_slice);
    for (name, field) in object(schema, "properties") {
        let is_required = required.iter().any(|it| it == name);
        let kind = format!("{}{}", type_of(field), if is_required { "" } else { ", optional" });
        row(page, &[&format!("`{name}`"), &kind, &meaning(field)]);
    }
}

/// The bodies of an answer or a request, by media type.
fn bodies(content: &Map<String, Value>) -> String {
    let one = |(media, body): (&String, &Value)| match media.as_str() {
        "application/json" => type_of(&body["schema"]),
        "application/octet-stream" => "bytes".to_owned(),
        other => format!("`{other}`"),
    };
    content.iter().map(one).collect::<Vec<_>>().join(" or ")
}

/// A schema in words, without `null`: a field that may be null is one that may be absent.
fn type_of(schema: &Value) -> String {
    if let Some(name) =
        schema["$ref"].as_str().and_then(|it| it.strip_prefix("#/components/schemas/"))
    {
        return format!("[`{name}`](#{})", name.to_lowercase());
    }
    let choices = ["oneOf", "anyOf"].iter().find_map(|word| schema[word].as_array());
    if let Some(choices) = choices {
        let choices = choices.iter().filter(|it| it["type"] != "null").map(type_of);
        return choices.collect::<Vec<_>>().join(" or ");
    }
    if let Some(values) = schema["enum"].as_array() {
        let values = values.iter().map(|it| format!("`{}`", text(it)));
        return values.collect::<Vec<_>>().join(", ");
    }
    let kind = match &schema["type"] {
        Value::Array(kinds) => kinds.iter().find(|it| *it != "null").map_or("", text),
        kind => text(kind),
    };
    match kind {
        "array" => format!("list of {}", type_of(&schema["items"])),
        "integer" | "number" => "number".to_owned(),
        kind => kind.to_owned(),
    }
}

/// What a parameter, field or answer means.
fn meaning(of: &Value) -> String {
    let choices = of["oneOf"].as_array().map_or(&[][..], Vec::as_slice);
    let inner = choices.iter().map(|it| text(&it["description"])).find(|it| !it.is_empty());
    let meaning = match text(&of["description"]) {
        "" => inner.unwrap_or_default(),
        words => words,
    };
    match &of["example"] {
        Value::Null => meaning.to_owned(),
        Value::String(example) => format!("{meaning} Example: `{example}`"),
        example => format!("{meaning} Example: `{example}`"),
    }
}

fn paragraphs(of: &Value, names: &[&str]) -> String {
    let texts = names.iter().map(|name| text(&of[name])).filter(|it| !it.is_empty());
    texts.map(one_line).collect::<Vec<_>>().join("\n\n")
}

fn row(page: &mut String, cells: &[&str]) {
    let cells = cells.iter().map(|cell| one_line(cell).replace('|', "\\|"));
    let _ = writeln!(page, "| {} |", cells.collect::<Vec<_>>().join(" | "));
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn object<'a>(of: &'a Value, name: &str) -> &'a Map<String, Value> {
    of[name].as_object().unwrap_or_else(|| panic!("the description has no `{name}`"))
}

#[test]
fn the_page_is_printed_from_the_description() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/http.md");
    let page = page();
    if std::env::var_os("TENURE_FIX").is_some() {
        std::fs::write(path, &page).unwrap();
    }
    let kept = std::fs::read_to_string(path).unwrap_or_default();
    assert!(kept == page, "docs/reference/http.md is old: run with TENURE_FIX=1");
}

#[test]
fn a_field_is_printed_with_its_type() {
    let schema = serde_json::json!({
        "description": "Two\nlines.",
        "required": ["a"],
        "properties": {
            "a": {"$ref": "#/components/schemas/Decimal", "description": "One | other."},
            "b": {"type": ["array", "null"], "items": {"type": "string"}, "description": "More."},
        },
    });
    let mut page = String::new();
    print_type(&mut page, "It", &schema);
    assert_eq!(
        page,
        "\n### It\n\nTwo lines.\n\n| field | type | meaning |\n|---|---|---|\n\
         | `a` | [`Decimal`](#decimal) | One \\| other. |\n| `b` | list of string, optional | More. |\n"
    );
}
