//! YAML as the learner writes it: one form for each value, so that the same content has the same bytes.

use etude_core::scalar;
use serde_json::Value;

/// Maximum length of a list or mapping on one line, in bytes.
const MAX_LINE: usize = 100;

/// YAML document of a mapping.
pub fn document(value: &Value) -> String {
    let mut out = String::new();
    block(value, 0, &mut out);
    out
}

fn block(value: &Value, indent: usize, out: &mut String) {
    let pad = " ".repeat(indent);
    match value {
        Value::Object(members) => {
            for (name, inner) in members {
                out.push_str(&format!("{pad}{}:", scalar(&Value::from(name.as_str()))));
                member(inner, indent, out);
            }
        }
        Value::Array(items) => {
            for item in items {
                match item {
                    Value::Object(members) if !members.is_empty() && flow(item).len() > MAX_LINE => {
                        let mut inner = String::new();
                        block(item, indent + 2, &mut inner);
                        out.push_str(&format!("{pad}- {}", inner.trim_start_matches(' ')));
                    }
                    _ => out.push_str(&format!("{pad}- {}\n", flow(item))),
                }
            }
        }
        other => out.push_str(&format!("{pad}{}\n", scalar(other))),
    }
}

/// Writes the value after a key.
fn member(value: &Value, indent: usize, out: &mut String) {
    let is_short = flow(value).len() <= MAX_LINE;
    match value {
        Value::Object(members) if !members.is_empty() && !is_short => {
            out.push('\n');
            block(value, indent + 2, out);
        }
        Value::Array(items) if !items.is_empty() && (!is_short || items.iter().any(Value::is_object)) => {
            out.push('\n');
            block(value, indent + 2, out);
        }
        Value::String(text) if is_literal(text) => {
            let pad = " ".repeat(indent + 2);
            out.push_str(" |-\n");
            for line in text.split('\n') {
                out.push_str(&if line.is_empty() { "\n".to_owned() } else { format!("{pad}{line}\n") });
            }
        }
        _ => out.push_str(&format!(" {}\n", flow(value))),
    }
}

/// A value on one line.
fn flow(value: &Value) -> String {
    match value {
        Value::Object(members) => {
            let inner: Vec<String> = members
                .iter()
                .map(|(name, inner)| format!("{}: {}", scalar(&name.as_str().into()), flow(inner)))
                .collect();
            format!("{{{}}}", inner.join(", "))
        }
        Value::Array(items) => format!("[{}]", items.iter().map(flow).collect::<Vec<_>>().join(", ")),
        other => scalar(other),
    }
}

fn scalar(value: &Value) -> String {
    match value {
        Value::String(text) => scalar::quote(text),
        other => other.to_string(),
    }
}

/// True if a text can be written as a block literal, byte for byte.
fn is_literal(text: &str) -> bool {
    let is_kept = |line: &str| !line.ends_with([' ', '\t']) && !line.starts_with('\t');
    text.contains('\n')
        && !text.ends_with('\n')
        && !text.starts_with([' ', '\n'])
        && text.split('\n').all(is_kept)
        && text
            .chars()
            .all(|c| c == '\n' || !c.is_control() && !matches!(c, '\u{85}' | '\u{2028}' | '\u{2029}' | '\u{feff}'))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// L-10: every value has one form; texts that YAML would read otherwise are quoted.
    #[test]
    fn values_have_one_form() {
        let long = "x".repeat(MAX_LINE);
        let value = json!({
            "name": "return-items", "no": "no", "n": 1, "a b": "a: b",
            "steps": [{"name": "a", "prompt": "one\n\n  two: {{x}}"}, {"name": long}],
            "empty": [], "list": ["a", "1"],
        });
        let wanted = format!(
            "name: return-items\n\"no\": \"no\"\n\"n\": 1\n\"a b\": \"a: b\"\nsteps:\n  - {{name: a, prompt: \"one\\n\\n  two: {{{{x}}}}\"}}\n  - name: {long}\nempty: []\nlist: [a, \"1\"]\n"
        );
        assert_eq!(document(&value), wanted);
    }

    /// L-12: characters that YAML does not allow are escaped, in names as well.
    #[test]
    fn control_characters_are_escaped() {
        let odd = "a\u{7f}b\u{85}c\u{9b}\u{2028}\u{feff}";
        let wanted = "\"a\\u007fb\\u0085c\\u009b\\u2028\\ufeff\"";
        assert_eq!(document(&json!({odd: odd})), format!("{wanted}: {wanted}\n"));
    }

    /// 1.4: rules are in a prompt byte for byte.
    #[test]
    fn lines_are_kept() {
        assert_eq!(document(&json!({"prompt": "one\n\n  two"})), "prompt: |-\n  one\n\n    two\n");
        assert_eq!(document(&json!({"prompt": "one \ntwo"})), "prompt: \"one \\ntwo\"\n");
    }
}
