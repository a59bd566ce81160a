//! Expressions in shell text: the runner puts their values into the text before a shell reads it.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

/// `NAME=`, `for NAME`, `read -r NAME`, and the expression that is the start of a value.
static ASSIGNED: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let expression = r#""?\$\{\{\s*(?:env|secrets)\.(?<own>\w+)\s*\}\}"?"#;
    let commands = r"(?:for|unset|read(?:\s+-\w+)*)\s+(?<word>[A-Za-z_]\w*)";
    Regex::new(&format!(r"(?:^|[\s;&|(`])(?:{commands}|(?<name>[A-Za-z_]\w*)\+?=(?:{expression})?)")).ok()
});

/// Variables that shell text changes. A variable that only gets the value it has, as in `TOKEN=${{ secrets.TOKEN }}`, does
/// not count.
pub(super) fn assigned(run: &str) -> BTreeSet<&str> {
    let found = ASSIGNED.iter().flat_map(|pattern| pattern.captures_iter(run));
    let changed = found.filter_map(|found| {
        let name = found.name("word").or(found.name("name"))?.as_str();
        let end = found.get(0)?.end();
        let is_whole = run[end..].chars().next().is_none_or(|c| c.is_whitespace() || ";&|)".contains(c));
        let is_own = found.name("own").is_some_and(|own| own.as_str() == name);
        (!is_own || !is_whole).then_some(name)
    });
    changed.collect()
}

/// True if a constant is more than plain text for a shell that reads it at a place with this quote.
pub(super) fn is_syntax(value: &Value, quote: Option<char>) -> bool {
    let Some(text) = value.as_str().filter(|text| !text.contains("{{")) else { return false };
    match quote {
        Some('"') => text.contains(['"', '\\', '$', '`']),
        Some(_) => text.contains('\''),
        None => {
            let is_first = |c: char| text.starts_with(c) || text.contains(&format!(" {c}"));
            text.contains(|c: char| "\"'\\$`;&|<>(){}\n\r".contains(c)) || is_first('~') || is_first('#')
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn variables_that_commands_change_are_found() {
        let names = |run: &str| assigned(run).into_iter().collect::<Vec<_>>().join(" ");
        for (run, expected) in [
            ("A=1; B+=2 && C=$(x)\nexport D=4 E=5", "A B C D E"),
            ("for f in *; do read -r line; done; unset X", "X f line"),
            ("A=${{ env.A }} B=\"${{ secrets.B }}\" make", ""),
            ("A=${{ env.A }}-x B=${{ env.C }}", "A B"),
            ("make --a=1 -Db=2 $c=3 d.e=4", ""),
        ] {
            assert_eq!(names(run), expected, "{run}");
        }
    }

    #[test]
    fn constants_that_are_shell_text_are_found() {
        for (text, quote, expected) in [
            ("-a --b=c *.txt HEAD~1", None, false),
            ("-D'a b'", None, true),
            ("~/bin", None, true),
            ("a #b", None, true),
            ("a\nb", None, true),
            ("it's (a)\nb #c ~d", Some('"'), false),
            ("$HOME/bin", Some('"'), true),
            ("say \"a\"", Some('"'), true),
            ("$HOME \"a\"", Some('\''), false),
            ("it's", Some('\''), true),
            ("{{input.a}}'", None, false),
        ] {
            assert_eq!(is_syntax(&json!(text), quote), expected, "{text}");
        }
        assert!(!is_syntax(&json!({"from_env": "A"}), None));
    }
}
