//! Expansion of `${env:NAME}` in configured texts, and masking of keys.

use etude_core::service_url::{mask, redact};
use etude_spec::Diagnostic;

/// A text with its variables replaced.
pub(super) struct Expanded {
    pub(super) text: String,
    /// Variables that the text named.
    pub(super) variables: Vec<String>,
}

/// Replaces every `${env:NAME}` by the variable's value, or by nothing if it is not set. The variables are added to
/// `withheld_env`, because a secret for a provider is also withheld from scripts.
pub(super) fn expand(text: &str, withheld_env: &mut Vec<String>) -> Expanded {
    let mut out = String::with_capacity(text.len());
    let mut variables = Vec::new();
    let mut rest = text;
    while let Some(open) = rest.find("${env:") {
        let Some(close) = rest[open..].find('}').map(|n| open + n) else { break };
        out.push_str(&rest[..open]);
        let name = &rest[open + 6..close];
        out.push_str(&std::env::var(name).unwrap_or_default());
        variables.push(name.to_owned());
        note(withheld_env, name);
        rest = &rest[close + 1..];
    }
    out.push_str(rest);
    Expanded { text: out, variables }
}

/// Adds a variable that scripts do not get.
pub(super) fn note(withheld_env: &mut Vec<String>, name: &str) {
    if !withheld_env.iter().any(|known| known == name) {
        withheld_env.push(name.to_owned());
    }
}

/// A rendered diagnostic with possible keys in its source lines masked. A line is shown for its fault, but may also contain a
/// key, or one under a misspelt name. Widths stay, so that markers still align.
pub(super) fn masked(drawn: &str) -> String {
    let is_source = |line: &str| {
        let rest = line.trim_start().trim_start_matches(|c: char| c.is_ascii_digit());
        rest.len() < line.trim_start().len() && rest.starts_with(" |")
    };
    let lines = drawn.split_inclusive('\n');
    lines.map(|line| if is_source(line) { mask_words(&mask_named(&mask(line))) } else { line.to_owned() }).collect()
}

/// A diagnostic without possible keys, because messages repeat invalid values.
pub(crate) fn without_keys(mut diagnostic: Diagnostic) -> Diagnostic {
    diagnostic.message = mask_words(&redact(&diagnostic.message));
    diagnostic.label = diagnostic.label.as_deref().map(|text| mask_words(&redact(text)));
    diagnostic.hint = diagnostic.hint.as_deref().map(|text| mask_words(&redact(text)));
    diagnostic
}

/// True for a text that looks like a key: long, one word, with letters and digits.
pub(super) fn looks_like_a_key(word: &str) -> bool {
    const SHORTEST: usize = 20;
    let has = |wanted: fn(&u8) -> bool| word.as_bytes().iter().any(wanted);
    word.len() >= SHORTEST && word.chars().all(is_of_key) && has(u8::is_ascii_digit) && has(u8::is_ascii_alphabetic)
}

fn is_of_key(c: char) -> bool {
    c.is_ascii_alphanumeric() || "_-+=".contains(c)
}

/// Ends of the names of fields whose values are keys, however short.
const SECRET_NAMES: [&str; 7] = ["api_key", "apikey", "-key", "authorization", "password", "secret", "token"];

/// A source line with the values of such fields masked, unless they are taken from variables.
fn mask_named(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(colon) = rest.find(':') {
        let (before, after) = rest.split_at(colon + 1);
        out.push_str(before);
        let name = before[..colon].trim_end_matches(['"', '\'']).to_ascii_lowercase();
        let start = after.len() - after.trim_start_matches([' ', '"', '\'']).len();
        let quote = after[..start].chars().next_back().filter(|c| *c != ' ');
        let end =
            after[start..].find(|c: char| quote.map_or(matches!(c, ',' | '}' | '\n'), |quote| c == quote || c == '\n'));
        let end = end.map_or(after.len(), |end| start + end);
        let value = &after[start..end];
        rest = after;
        if SECRET_NAMES.iter().any(|secret| name.ends_with(secret)) && !value.contains("${") {
            out.push_str(&after[..start]);
            out.push_str(&"*".repeat(value.chars().count()));
            rest = &after[end..];
        }
    }
    out + rest
}

fn mask_words(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    for piece in line.split_inclusive(|c| !is_of_key(c)) {
        let word = piece.trim_end_matches(|c| !is_of_key(c));
        if looks_like_a_key(word) {
            out.push_str(&"*".repeat(word.len()));
            out.push_str(&piece[word.len()..]);
        } else {
            out.push_str(piece);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_a_key_is_masked_in_source_lines_only() {
        let drawn = "error: `sk-0123456789-0123456789`\n  --> c.yaml:1:1\n12 | a: {k: sk-0123456789-0123456789, u: \"http://x/y\"}\n   | ^\n";
        assert_eq!(
            masked(drawn),
            "error: `sk-0123456789-0123456789`\n  --> c.yaml:1:1\n12 | a: {k: ************************, u: \"http://x/y\"}\n   | ^\n"
        );
        assert_eq!(
            masked("1 | model_mapping: {lite: claude-haiku-4-5}"),
            "1 | model_mapping: {lite: claude-haiku-4-5}"
        );
    }

    /// SECURITY.md: the value of a field for keys is not shown, however short it is.
    #[test]
    fn values_of_fields_for_keys_are_masked() {
        for (line, expected) in [
            ("1 | x: {api_key: \"pw-1\", kind: openai}\n", "1 | x: {api_key: \"****\", kind: openai}\n"),
            ("1 |     api_key: pw 1, é}\n", "1 |     api_key: ****, é}\n"),
            (
                "1 | {\"X-Api-Key\": \"pw\", Authorization: Basic abc",
                "1 | {\"X-Api-Key\": \"**\", Authorization: *********",
            ),
            ("1 | api_key: \"${env:TEAM_KEY}\"\n", "1 | api_key: \"${env:TEAM_KEY}\"\n"),
            ("1 | password: é1...\n", "1 | password: *****\n"),
            ("1 | max_tokens: 5, key: a\n", "1 | max_tokens: 5, key: a\n"),
            ("1 | api_key:\n", "1 | api_key:\n"),
        ] {
            assert_eq!(masked(line), expected, "{line}");
        }
    }

    #[test]
    fn variables_are_replaced_and_kept_from_scripts() {
        let mut redactor = Vec::new();
        let home = std::env::var("PATH").unwrap();
        assert_eq!(expand("a ${env:PATH} b ${env:ETUDE_NO_SUCH}!", &mut redactor).text, format!("a {home} b !"));
        assert_eq!(redactor, ["PATH", "ETUDE_NO_SUCH"]);
        assert_eq!(expand("${env:unclosed", &mut redactor).text, "${env:unclosed");
    }
}
