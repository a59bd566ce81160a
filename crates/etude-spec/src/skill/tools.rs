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

/// The patterns of `allowed-tools` together with a denial for each entry of `disallowed-tools`; `None` if neither limits
/// the tools (C-3.1).
pub(crate) fn without(allowed: Option<Vec<String>>, disallowed: &[String]) -> Option<Vec<String>> {
    let denials: Vec<String> =
        disallowed.iter().flat_map(|text| tool_list(text)).map(|pattern| denial(&pattern)).collect();
    if denials.is_empty() {
        return allowed;
    }
    Some(allowed.unwrap_or_else(|| vec!["*".to_owned()]).into_iter().chain(denials).collect())
}

/// The pattern that denies the calls that `pattern` describes.
fn denial(pattern: &str) -> String {
    let (name, specifier) = pattern.split_once('(').unwrap_or((pattern, ""));
    match specifier.strip_suffix(')').unwrap_or(specifier).trim() {
        "" | "*" | "**" | ":*" => format!("{name}($deny)"),
        calls => format!("{name}({calls}, $deny)"),
    }
}

/// True if `pattern` denies every call of the tools that it names.
pub(crate) fn denies_all(pattern: &str) -> bool {
    let specifier = pattern.split_once('(').map_or("", |(_, rest)| rest.strip_suffix(')').unwrap_or(rest));
    matches!(specifier.trim(), "$deny" | "$policy=deny")
}

#[cfg(test)]
mod tests {
    use super::{denies_all, tool_list, without};

    /// C-3.1: `disallowed-tools` removes tools and calls, also where the skill allows all others.
    #[test]
    fn disallowed_tools_are_denials() {
        let texts = |list: &[&str]| -> Vec<String> { list.iter().map(|text| (*text).to_owned()).collect() };
        let disallowed = texts(&["Write, Bash(git push *)", "Edit(*)"]);
        let denials = ["Write($deny)", "Bash(git push *, $deny)", "Edit($deny)"];
        assert_eq!(without(None, &disallowed).unwrap(), [&["*"], denials.as_slice()].concat());
        assert_eq!(without(Some(texts(&["Read"])), &disallowed).unwrap(), [&["Read"], denials.as_slice()].concat());
        assert_eq!((without(None, &[]), without(Some(Vec::new()), &[])), (None, Some(Vec::new())));
        assert!(denies_all("Write($deny)") && !denies_all("Bash(git push *, $deny)") && !denies_all("Write"));
    }

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
