//! Repair of hand-written frontmatter: unquoted values with a colon (C-2.4).

use std::fmt::Write;

/// Puts every such value in quotes, with its following lines folded in; `None` if there is nothing to repair.
pub(super) fn quoted(yaml: &str) -> Option<String> {
    let mut out = String::with_capacity(yaml.len() + 64);
    let mut repaired = false;
    let mut lines = yaml.lines().peekable();
    while let Some(line) = lines.next() {
        let Some((key, value)) = entry(line).filter(|(_, value)| is_open(value)) else {
            out.push_str(line);
            out.push('\n');
            continue;
        };
        let mut whole = value.trim().to_owned();
        while let Some(next) = lines.peek().filter(|next| next.starts_with([' ', '\t']) && !next.trim().is_empty()) {
            whole.push(' ');
            whole.push_str(next.trim());
            lines.next();
        }
        if whole.contains(": ") || whole.ends_with(':') || whole.contains(" #") {
            repaired = true;
            let _ = writeln!(out, "{key}: {}", serde_json::Value::from(whole));
        } else {
            let _ = writeln!(out, "{key}: {whole}");
        }
    }
    repaired.then_some(out)
}

/// Key and value of a line without indentation.
fn entry(line: &str) -> Option<(&str, &str)> {
    let (key, value) = line.split_once(": ")?;
    let is_key = !key.is_empty() && key.chars().all(|c| c.is_alphanumeric() || "_-.".contains(c));
    is_key.then_some((key, value))
}

/// True for an unquoted plain value.
fn is_open(value: &str) -> bool {
    !value.trim_start().starts_with(['"', '\'', '|', '>', '[', '{', '&', '*', '!', '#', '-'])
        && !value.trim().is_empty()
}

#[cfg(test)]
mod tests {
    use super::quoted;

    /// C-2.4: the value is quoted as written, without any loss.
    #[test]
    fn values_with_colons_are_quoted_whole() {
        assert_eq!(
            quoted("name: x\ndescription: Use when: the user says: \"tidy\" # up\nlicense: MIT\n").as_deref(),
            Some("name: x\ndescription: \"Use when: the user says: \\\"tidy\\\" # up\"\nlicense: MIT\n")
        );
        assert_eq!(
            quoted("d: one: two\n  three\nm:\n  a: b\n").as_deref(),
            Some("d: \"one: two three\"\nm:\n  a: b\n")
        );
        assert_eq!(quoted("name: x\nd: \"a: b\"\n"), None);
    }
}
