//! Texts that look like a key, a token or a password.

use std::sync::LazyLock;

use regex::Regex;

/// Keys by the form that their service gives them, and the value of a name, an option or a header for a secret.
static SECRETS: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(concat!(
        r"\b((?:sk-|sk_live_|rk_live_|gh[opsur]_|github_pat_|glpat-|xox[abprs]-|AKIA|ASIA|AIza|npm_|hf_)[\w-]{16,})",
        r"|\b(eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]{5,})",
        r"|(-----BEGIN [A-Z ]*PRIVATE KEY-----)",
        r"|://[^\s/:@$<{]+:([^\s/:@$<{]{6,})@",
        r#"|(?i:(?:api_?-?key|access_?-?key|secret|token|passw(?:or)?d|authorization)[\w-]*["']?\s*[=:]\s*"#,
        r#"["']?(?:(?:bearer|basic|token)\s+)?([\w+/.~=!@%^*-]{12,}))"#,
        r#"|(?i:\s--?[\w-]*(?:api-?key|access-?key|secret|token|passw(?:or)?d)\s+["']?([\w+/.~=!@%^*-]{12,}))"#,
    ))
    .ok()
});

/// Parts of values that stand for a secret of the reader.
const PLACEHOLDERS: [&str; 8] = ["your", "example", "xxxx", "****", "....", "placeholder", "changeme", "insert"];

/// True if a text has a value that looks like a key, a token or a password, and not like a placeholder for one.
pub fn has_secret(text: &str) -> bool {
    let values = SECRETS.iter().flat_map(|pattern| pattern.captures_iter(text));
    let mut values = values.filter_map(|found| found.iter().skip(1).flatten().next().map(|found| found.as_str()));
    values.any(|value| {
        let lower = value.to_lowercase();
        let is_mixed = value.bytes().any(|b| b.is_ascii_digit()) && value.bytes().any(|b| b.is_ascii_alphabetic());
        let is_path = value.starts_with(['.', '/', '~']) || value.contains('/') && value.contains('.');
        let is_random = is_mixed && !is_path && !PLACEHOLDERS.iter().any(|part| lower.contains(part));
        is_random || value.starts_with("-----")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_found_and_placeholders_are_not() {
        let hex = "3f9a0c7be1d24856";
        for text in [
            format!("curl -H 'Authorization: Bearer {hex}' https://api.test"),
            format!("export PAY_API_KEY={hex}"),
            format!("tool --token {hex}"),
            format!("git clone https://ada:{hex}@git.test/x"),
            format!("gh auth login --with ghp_{hex}{hex}"),
            format!("{{\"password\": \"{hex}\"}}"),
            "-----BEGIN RSA PRIVATE KEY-----".to_owned(),
        ] {
            assert!(has_secret(&text), "{text}");
        }
        for text in [
            "export API_KEY=your-api-key-12345",
            "export API_KEY=$MY_KEY_2026_LONG",
            "curl -H \"Authorization: Bearer $TOKEN\"",
            "--token <token>",
            "use max_tokens: 4096 and the token count",
            "AKIAIOSFODNN7EXAMPLE",
            "sk-xxxxxxxxxxxxxxxxxxxx1",
            "password: ~/.config/app/password1",
            "--token-file scripts/token2026.txt --token scripts/token2026.txt",
            "rotate the secret deployment2026a",
            "python3 scripts/token_report_2026.py july",
            "the secret is configured elsewhere",
        ] {
            assert!(!has_secret(text), "{text}");
        }
    }
}
