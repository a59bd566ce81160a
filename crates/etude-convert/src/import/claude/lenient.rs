//! Frontmatter that is not YAML, such as `argument-hint: [number] [priority]`: each line is a name and a text.

use std::collections::BTreeSet;
use std::fmt::Write;

/// Lines of frontmatter as YAML. Each field stays on its line; a line without a field belongs to the one before it.
pub(super) fn yaml(text: &str) -> String {
    let (mut out, mut known) = (String::new(), BTreeSet::new());
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let field = field(line).filter(|(name, _)| known.insert(*name));
        let mut value = field.map_or(String::new(), |(_, value)| value.to_owned());
        let mut more = 0;
        while let Some(next) = lines.next_if(|next| field_of_line(next).is_none()) {
            value = format!("{value} {}", next.trim().trim_start_matches("- "));
            more += 1;
        }
        if let Some((name, _)) = field {
            let _ = write!(out, "{name}: {}", serde_json::json!(unquoted(value.trim())));
        }
        out.push_str(&"\n".repeat(more + 1));
    }
    out
}

fn field_of_line(line: &str) -> Option<&str> {
    field(line).map(|(name, _)| name)
}

/// Name and text of a line; `None` if it has no name.
fn field(line: &str) -> Option<(&str, &str)> {
    let (name, value) = line.split_once(':')?;
    let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_');
    (is_name && (value.is_empty() || value.starts_with(' '))).then(|| (name, value.trim()))
}

/// Text without the quotes around it.
fn unquoted(text: &str) -> &str {
    ['"', '\''].into_iter().find_map(|quote| text.strip_prefix(quote)?.strip_suffix(quote)).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_the_rest_of_their_lines() {
        let text = "argument-hint: [a] [b]\ndescription: \"One: two\"\nallowed-tools:\n  - Read\n  - Bash(ls *)\nmodel: *\nmodel: x\n";
        let expected = "argument-hint: \"[a] [b]\"\ndescription: \"One: two\"\nallowed-tools: \"Read Bash(ls *)\"\n\n\nmodel: \"*\"\n\n";
        assert_eq!(yaml(text), expected);
        assert_eq!(yaml("no field\n"), "\n");
    }
}
