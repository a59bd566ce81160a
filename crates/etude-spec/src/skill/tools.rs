//! Lists of tools: `Bash(git add *) Read` and its other spellings (C-2.4).

/// Splits a list at blanks or commas. Text in brackets or braces stays whole.
pub fn tool_list(text: &str) -> Vec<String> {
    let (mut items, mut item, mut depth) = (Vec::new(), String::new(), 0_u32);
    for c in text.chars() {
        match c {
            '(' | '{' => depth += 1,
            ')' | '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 && (c == ',' || c.is_whitespace()) {
            if !item.is_empty() {
                items.push(std::mem::take(&mut item));
            }
        } else {
            item.push(c);
        }
    }
    let last = item.trim();
    if !last.is_empty() {
        items.push(last.to_owned());
    }
    items
}

#[cfg(test)]
mod tests {
    use super::tool_list;

    /// C-2.4: blanks and commas separate, brackets hold together.
    #[test]
    fn items_with_blanks_stay_whole() {
        let wanted = ["Bash(git add *)", "Read", "mcp__{x, y}__z"];
        for text in ["Bash(git add *) Read mcp__{x, y}__z", " Bash(git add *),Read ,  mcp__{x, y}__z,"] {
            assert_eq!(tool_list(text), wanted, "{text}");
        }
        assert_eq!(tool_list("Bash(a, b"), ["Bash(a, b"]);
        assert!(tool_list(" , ").is_empty());
    }
}
