//! Compares an answer or event of a driver with what a scenario expects.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::scenario::{Expected, Field};

/// The values that a scenario has bound, and the prefix of its names.
pub(crate) struct Names {
    pub(crate) prefix: String,
    pub(crate) bound: BTreeMap<String, String>,
}

impl Names {
    /// Replaces `$name` by its value.
    pub(crate) fn filled(&self, text: &str) -> Result<String, String> {
        match text.strip_prefix('$') {
            None => Ok(text.to_owned()),
            Some(name) => {
                self.bound.get(name).cloned().ok_or_else(|| format!("${name} was never bound"))
            }
        }
    }

    /// Compares a whole answer.
    pub(crate) fn compare(&mut self, answer: &Value, expected: &Expected) -> Result<(), String> {
        let (kind, body) = match answer.get("ok") {
            Some(body) => ("ok", body),
            None => (answer["error"]["kind"].as_str().unwrap_or("?"), &answer["error"]),
        };
        // A library may refuse bad input itself or leave it to the cluster.
        let refused = kind == "refused" && expected.kinds.iter().any(|kind| kind == "invalid");
        let invalid = body["reason"].as_str().is_some_and(|reason| {
            reason.starts_with("INVALID_")
                || ["DUPLICATE_LOCK", "MAX_HOLD_TOO_SHORT"].contains(&reason)
        });
        let fits = expected.kinds.iter().any(|known| known == kind) || refused && invalid;
        if !fits {
            return Err(format!("expected {}", expected.kinds.join(" or ")));
        }
        let word = ["reason", "cause"].map(|field| body[field].as_str().unwrap_or_default());
        // A library need not name a reason for input that it refuses itself; if it does, it is the cluster's.
        let silent = kind == "ok" || kind == "invalid" && body["reason"].is_null();
        if !silent && !expected.words.is_empty() {
            let found = expected.words.iter().any(|known| word.contains(&known.as_str()));
            found
                .then_some(())
                .ok_or_else(|| format!("expected {}", expected.words.join(" or ")))?;
        }
        effect(kind, body)?;
        self.compare_fields(body, &expected.fields)
    }

    /// Compares fields, and binds those that are written `name=?variable`.
    pub(crate) fn compare_fields(&mut self, body: &Value, fields: &[Field]) -> Result<(), String> {
        for field in fields {
            let found = self.find(body, &field.name);
            let found = match found {
                None | Some(Value::Null) => None,
                Some(Value::String(text)) => Some(text),
                Some(other) => Some(other.to_string()),
            };
            let shown = format!("{}{}{}", field.name, field.relation, field.value);
            if let Some(name) = field.value.strip_prefix('?') {
                let found = found.ok_or_else(|| format!("there is no `{}`", field.name))?;
                self.bound.insert(name.to_owned(), found);
                continue;
            }
            let wanted = self.filled(&field.value)?;
            let found = found.unwrap_or_else(|| "-".to_owned());
            let short = found.strip_prefix(&self.prefix).unwrap_or(&found);
            let good = match field.relation {
                '=' => wanted.split('|').any(|wanted| wanted == found || wanted == short),
                '~' => found.contains(&wanted),
                _ => {
                    matches!((found.parse::<u64>(), wanted.parse::<u64>()), (Ok(a), Ok(b)) if a > b)
                }
            };
            good.then_some(()).ok_or_else(|| format!("expected {shown}, found {found}"))?;
        }
        Ok(())
    }

    /// The value at a path such as `holder.client`. A part may be a name of the scenario.
    fn find(&self, body: &Value, path: &str) -> Option<Value> {
        let mut value = body;
        for part in path.split('.') {
            let long = format!("{}{part}", self.prefix);
            value = value.get(part).or_else(|| value.get(&long))?;
        }
        Some(value.clone())
    }
}

/// What the kind of an error says about its effect must be what the error says.
fn effect(kind: &str, body: &Value) -> Result<(), String> {
    let said = body["effect"].as_str();
    let allowed: &[Option<&str>] = match kind {
        "refused" | "unavailable" | "invalid" | "closed" | "fence" => &[None, Some("none")],
        "unknown" => &[Some("unknown")],
        "timeout" => &[Some("none"), Some("unknown")],
        _ => return Ok(()),
    };
    let good = allowed.contains(&said);
    good.then_some(()).ok_or_else(|| format!("`{kind}` has the effect {said:?}"))
}
