//! Directives of patterns of tool calls, such as `$deny` in `Bash(rm *, $deny)`, and slips that leave them without effect.

use std::sync::Arc;

use crate::diagnose::references as diagnose;
use crate::diagnostic::Diagnostic;
use crate::skill::tool_list;
use crate::source::{SourceFile, Span};
use crate::tool::BUILT_IN;

/// The directives of a pattern (`d-cascade` §3.1).
pub const DIRECTIVES: [&str; 4] = ["$deny", "$policy=deny", "$policy=ask", "$policy=allow"];

/// Warns of [`mistakes`] and of unknown directives in a list of patterns.
pub(crate) fn slips(file: &Arc<SourceFile>, at: Span, list: &str) -> Vec<Diagnostic> {
    let unknown = |pattern: &String| -> Vec<Diagnostic> {
        let words = items(pattern).1.into_iter().filter(|item| is_like_directive(item));
        words.map(|word| diagnose::unknown_directive(file, at, pattern, word, &DIRECTIVES)).collect()
    };
    tool_list(list).iter().flat_map(unknown).chain(mistakes(file, at, list)).collect()
}

/// Warns of directives without `$` and of built-in tools in the wrong case in a list of patterns. Such a pattern is valid, but
/// denies nothing.
pub(crate) fn mistakes(file: &Arc<SourceFile>, at: Span, list: &str) -> Vec<Diagnostic> {
    tool_list(list).iter().flat_map(|pattern| of_pattern(file, at, pattern)).collect()
}

/// The tool of a pattern, and what its parentheses list.
fn items(pattern: &str) -> (&str, Vec<&str>) {
    let (name, specifier) = pattern.split_once('(').unwrap_or((pattern, ""));
    let listed = specifier.strip_suffix(')').unwrap_or(specifier);
    (name.trim_end(), listed.split(',').map(str::trim).collect())
}

fn of_pattern(file: &Arc<SourceFile>, at: Span, pattern: &str) -> Vec<Diagnostic> {
    let (name, items) = items(pattern);
    let built_in = BUILT_IN.iter().copied().find(|tool| tool.eq_ignore_ascii_case(name));
    let missing = |item: &&str| {
        let directive = DIRECTIVES.into_iter().find(|known| known[1..].eq_ignore_ascii_case(item))?;
        // A tool may have an argument `policy`, and a lone word is a command or a path.
        let is_certain = if item.contains('=') { built_in.is_some() } else { items.len() > 1 };
        is_certain.then(|| diagnose::bare_directive(file, at, pattern, item, directive))
    };
    let in_wrong_case = built_in.filter(|tool| *tool != name);
    let in_wrong_case = in_wrong_case.map(|tool| diagnose::tool_in_wrong_case(file, at, pattern, tool));
    items.iter().filter_map(missing).chain(in_wrong_case).collect()
}

/// True for an unknown word after `$` that looks like a directive. A variable such as `$HOME/x` or `${X}` does not.
pub(crate) fn is_like_directive(item: &str) -> bool {
    let word = item.strip_prefix('$').unwrap_or_default();
    word.starts_with(|c: char| c.is_ascii_alphabetic())
        && word.chars().all(|c| c.is_ascii_alphanumeric() || "_-=".contains(c))
        && !DIRECTIVES.contains(&item)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// D-3.1: a denial that denies nothing is reported with its probable meaning.
    #[test]
    fn denials_without_effect_are_reported() {
        let found = |list: &str| -> Vec<String> {
            let file = SourceFile::new("SKILL.md", list);
            let all = slips(&file, Span::new(0, 1), list);
            all.into_iter().map(|d| format!("{} / {}", d.message, d.hint.unwrap_or_default())).collect()
        };
        let condition = |word: &str, pattern: &str| {
            format!(
                "`{word}` in the pattern `{pattern}` is a condition on the call, not a directive / write `${}`",
                word.to_lowercase()
            )
        };
        assert_eq!(found("Read Bash(rm *, deny)"), [condition("deny", "Bash(rm *, deny)")]);
        assert_eq!(found("deploy(prod, Deny)"), [condition("Deny", "deploy(prod, Deny)")]);
        assert_eq!(found("Bash(policy=ask)"), [condition("policy=ask", "Bash(policy=ask)")]);
        let case =
            "the pattern `bash(rm *, $deny)` matches no tool, because names of tools are case-sensitive / write `Bash`";
        assert_eq!(found("Read, bash(rm *, $deny)"), [case]);
        let unknown = "`$Deny` in the pattern `Bash(rm *, $Deny)` is not a directive / did you mean `$deny`?";
        assert_eq!(found("Bash(rm *, $Deny)"), [unknown]);
        for list in [
            "Bash(rm *, $deny) Read",
            "Bash(deny)",
            "deny",
            "deploy(policy=ask)",
            "Write(deny/**)",
            "run_command",
            "*",
            "Bash($HOME/x *)",
            "Bash(git:*), mcp__x__bash",
            "#bash",
            "deploy(env=prod,$policy=ask)",
        ] {
            assert_eq!(found(list), [""; 0], "{list}");
        }
    }
}
