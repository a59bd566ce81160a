//! Slugs: `echo-box` (C-1.4).

/// True for lower-case ASCII letters and digits with single hyphens between them.
pub fn is_slug(text: &str) -> bool {
    let is_part = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    text.split('-').all(is_part)
}

/// Derives a slug from any text: `Echo Box!` becomes `echo-box`; empty if no character can stay.
pub fn slugified(text: &str) -> String {
    let kept: String = text.to_lowercase().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    kept.split('-').filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// C-1.4: slugs match the pattern, and a name yields a valid one.
    #[test]
    fn slugs_are_kebab_case() {
        assert!(
            is_slug("echo-box")
                && is_slug("a1")
                && !is_slug("Echo")
                && !is_slug("a--b")
                && !is_slug("-a")
                && !is_slug("")
        );
        for (name, slug) in [("  Écho Box! 2", "cho-box-2"), ("a__b", "a-b"), ("-x-", "x"), ("___", "")] {
            assert_eq!(slugified(name), slug, "{name}");
        }
    }
}
