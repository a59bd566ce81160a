//! JSON values in readable form.

use std::fmt::Write;

use serde_json::Value;

/// Indentation of the lines below a name.
const INDENT: &str = "  ";

/// Maximum width to which names are padded, in characters.
const MAX_PADDED: usize = 16;

/// A complete value: each member of an object as `name: value` on its own line, texts without quotes. Multi-line texts and
/// nested values are indented below their name.
pub fn text(value: &Value) -> String {
    let mut out = String::new();
    match value {
        Value::Null => {}
        Value::Object(members) => {
            let width = members.keys().map(|name| name.chars().count()).max().unwrap_or(0).min(MAX_PADDED);
            members.iter().for_each(|(name, value)| member(&mut out, name, value, width));
        }
        other => out.push_str(&plain(other)),
    }
    out
}

fn member(out: &mut String, name: &str, value: &Value, width: usize) {
    let text = plain(value);
    if text.contains('\n') {
        let _ = writeln!(out, "{name}:");
        for line in text.lines() {
            let _ = writeln!(out, "{INDENT}{line}");
        }
    } else {
        let label = format!("{name}:");
        let _ = writeln!(out, "{label:<width$} {text}", width = width + 1);
    }
}

/// Texts without quotes, lists of numbers on one line, everything else as indented JSON.
fn plain(value: &Value) -> String {
    let is_number = |value: &Value| value.is_number() || value.is_boolean();
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) if items.iter().all(is_number) => value.to_string(),
        Value::Array(_) | Value::Object(_) => serde_json::to_string_pretty(value).unwrap_or_else(|_| value.to_string()),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn members_are_names_and_values_without_quotes() {
        let given = json!({"command": "git push", "env": {"A": "1"}, "force": true, "ids": [1, 2], "script": "a\nb"});
        assert_eq!(
            text(&given),
            "command: git push
env:
  {
    \"A\": \"1\"
  }
force:   true
ids:     [1,2]
script:
  a
  b
"
        );
        assert_eq!((text(&Value::Null), text(&json!("x\ny"))), (String::new(), "x\ny".to_owned()));
    }
}
