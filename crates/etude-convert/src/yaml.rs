//! YAML in the style of a careful person: blocks, plain words where they are safe, long texts as block scalars.

use etude_core::scalar;
use serde_json::Value;

/// Text of a YAML file with this value.
pub fn text(value: &Value) -> String {
    let mut out = String::new();
    block(&mut out, value, 0);
    out
}

fn block(out: &mut String, value: &Value, depth: usize) {
    let indent = "  ".repeat(depth);
    match value {
        Value::Object(members) if !members.is_empty() => {
            for (name, member) in members {
                out.push_str(&format!("{indent}{}:", scalar::quote(name)));
                after_mark(out, member, depth + 1);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for item in items {
                let mut inner = String::new();
                match item {
                    Value::Object(members) if !members.is_empty() => {
                        block(&mut inner, item, depth + 1);
                        out.push_str(&format!("{indent}- {}", inner.trim_start()));
                    }
                    _ => {
                        out.push_str(&format!("{indent}-"));
                        after_mark(out, item, depth + 1);
                    }
                }
            }
        }
        other => out.push_str(&format!("{indent}{}\n", scalar_of(other))),
    }
}

/// Writes the value after `name:` or `-`: on the same line, or as a block below it.
fn after_mark(out: &mut String, value: &Value, depth: usize) {
    match value {
        Value::Object(members) if !members.is_empty() => {
            out.push('\n');
            block(out, value, depth);
        }
        Value::Array(items) if !items.is_empty() => {
            out.push('\n');
            block(out, value, depth);
        }
        Value::String(text) if is_block(text) => {
            out.push_str(" |-\n");
            let indent = "  ".repeat(depth);
            for line in text.split('\n') {
                let line = if line.is_empty() { String::new() } else { format!("{indent}{line}") };
                out.push_str(&line);
                out.push('\n');
            }
        }
        other => out.push_str(&format!(" {}\n", scalar_of(other))),
    }
}

/// True if a text can be a block scalar that is read back unchanged.
fn is_block(text: &str) -> bool {
    let is_plain =
        |c: char| c == '\n' || (!c.is_control() && !matches!(c, '\u{85}' | '\u{2028}' | '\u{2029}' | '\u{feff}'));
    text.contains('\n') && text.chars().all(is_plain) && !text.starts_with([' ', '\n']) && !text.ends_with('\n')
}

fn scalar_of(value: &Value) -> String {
    match value {
        Value::String(text) => scalar::quote(text),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use etude_spec::source::SourceFile;
    use serde_json::json;

    use super::*;

    /// L-85: every value is read back as it was written.
    #[test]
    fn values_are_read_back_as_they_were_written() {
        let value = json!({
            "name": "a-b", "on": "yes", "1": "x: y # z", "empty": {}, "none": [], "prompt": "Do it:\n\n- {{a.output}}\n  b",
            "odd": ["\u{feff}a\u{85}b\u{2028}", " lead\nx", "tail\n", "", "-", "&a", "*b", "!c", "'", "\"", "true", "01", "é"],
            "list": [{"a": [1, [2.5, null]], "b": {"c": true}}, []],
        });
        let file = SourceFile::new("a.yaml", text(&value));
        let (root, diagnostics) = etude_spec::yaml::parse(&file);
        assert!(diagnostics.is_empty(), "{}\n{diagnostics:?}", file.text());
        let read = root.expect("a tree").to_json().expect("JSON");
        assert_eq!(serde_json::from_str::<Value>(&read).expect("JSON"), value, "{}", file.text());
    }
}
