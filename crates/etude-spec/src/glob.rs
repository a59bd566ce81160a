//! Globs of foreign texts. The library that compiles them calls itself for each brace in a brace, and panics if the
//! regular expression of a glob is nested too deep.

use globset::{Glob, GlobBuilder};

/// Maximum number of bytes of a glob: the longest command line that a policy reads, with each byte escaped.
pub const MAX_SIZE: usize = 32 << 10;

/// Maximum number of opening braces of a glob. Those inside each other are not distinguished from those side by side, because the
/// closing ones may be literal.
pub const MAX_BRACES: usize = 64;

/// Builds the glob `text` with the settings that `set` makes.
///
/// # Errors
/// The reason why the glob is invalid, or is beyond a limit.
pub fn build<F>(text: &str, set: F) -> Result<Glob, String>
where
    F: for<'a, 'g> FnOnce(&'a mut GlobBuilder<'g>) -> &'a mut GlobBuilder<'g>,
{
    limit(text)?;
    set(&mut GlobBuilder::new(text)).build().map_err(|error| error.kind().to_string())
}

/// Checks the limits of a glob.
///
/// # Errors
/// The limit that the glob is beyond.
pub fn limit(text: &str) -> Result<(), String> {
    if text.len() > MAX_SIZE {
        return Err(format!("it is longer than {} KiB", MAX_SIZE >> 10));
    }
    if braces(text) > MAX_BRACES {
        return Err(format!("it has more than {MAX_BRACES} opening braces"));
    }
    Ok(())
}

/// Number of opening braces, without those that a backslash makes literal.
fn braces(text: &str) -> usize {
    let mut bytes = text.bytes();
    let mut count = 0;
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' if !std::path::is_separator('\\') => drop(bytes.next()),
            b'{' => count += 1,
            _ => {}
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compiled(text: &str) -> Result<globset::GlobMatcher, String> {
        let built = build(text, |glob| {
            glob.literal_separator(true).case_insensitive(true).backslash_escape(true).empty_alternates(true)
        });
        built.map(|glob| glob.compile_matcher())
    }

    /// The library panics for 300 braces inside each other, and overflows the stack for 30,000.
    #[test]
    fn braces_in_braces_are_bounded() {
        let nested = |count: usize| format!("{}a{}", "{".repeat(count), "}".repeat(count));
        assert!(compiled(&nested(MAX_BRACES)).expect("within the limit").is_match("a"));
        for text in [nested(MAX_BRACES + 1), nested(30_000), "{[}]".repeat(300), "{".repeat(300)] {
            compiled(&text).expect_err("too many");
        }
        let literal = "\\{".repeat(300);
        assert!(compiled(&literal).expect("literal").is_match("{".repeat(300)));
    }

    /// A glob of the maximum size compiles, whatever it consists of.
    #[test]
    fn long_globs_compile() {
        for part in ["a", "?", "*", "**/", "[!a]", "[aceg]", "\u{e9}", "\\*"] {
            let text = part.repeat(MAX_SIZE / part.len());
            compiled(&text).expect("within the limit");
            compiled(&format!("{text}{}", "a".repeat(part.len()))).expect_err("too long");
        }
        compiled(&format!("{{{}}}", "a,".repeat(MAX_SIZE / 2 - 1))).expect("within the limit");
    }
}
