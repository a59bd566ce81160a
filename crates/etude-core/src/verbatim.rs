//! Verbatim occurrence of a value in a text: the comparison behind the origins of values and the digests of requests
//! (`learn.md` 2.1).

use crate::digest::Digest;

/// Length of a request's digest, in hexadecimal digits.
const DIGEST_DIGITS: usize = 16;

/// Normalizes a text for comparison: lower case, with `_`, `#` and runs of blanks as one blank, and none at its ends.
pub fn normal(text: &str) -> String {
    let mut normal = String::with_capacity(text.len());
    for c in text.chars().flat_map(char::to_lowercase) {
        match c {
            '_' | '#' => push_blank(&mut normal),
            c if c.is_whitespace() => push_blank(&mut normal),
            c => normal.push(c),
        }
    }
    normal.truncate(normal.trim_end().len());
    normal
}

fn push_blank(text: &mut String) {
    if !text.is_empty() && !text.ends_with(' ') {
        text.push(' ');
    }
}

/// The words of a text: runs of letters and digits.
pub fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty())
}

/// True if `text` contains `value` at the boundaries of words and numbers. Both must be [`normal`].
pub fn holds(text: &str, value: &str) -> bool {
    text.match_indices(value).any(|(at, _)| {
        let (before, after) = (&text[..at], &text[at + value.len()..]);
        let is_joined = |left: &str, right: &str| {
            let (l, r) = (left.chars().next_back(), right.chars().next());
            l.is_some_and(char::is_alphanumeric) && r.is_some_and(char::is_alphanumeric)
                || is_number_joined(left, right)
                || is_number_joined_after(left, right)
        };
        !is_joined(before, value) && !is_joined(value, after)
    })
}

/// True if `left` ends in a point after a digit, and `right` begins with a digit: `12.|5`.
fn is_number_joined(left: &str, right: &str) -> bool {
    let head = left.strip_suffix('.');
    head.is_some_and(|head| head.ends_with(|c: char| c.is_ascii_digit()))
        && right.starts_with(|c: char| c.is_ascii_digit())
}

/// True if `left` ends in a digit, and `right` begins with a point before a digit: `12|.5`.
fn is_number_joined_after(left: &str, right: &str) -> bool {
    let tail = right.strip_prefix('.');
    left.ends_with(|c: char| c.is_ascii_digit())
        && tail.is_some_and(|tail| tail.starts_with(|c: char| c.is_ascii_digit()))
}

/// The digest of a user's texts, 16 hexadecimal digits: the request and the later messages (`learn.md` 1.4). Requests
/// with the same digest count as the same request.
pub fn request_digest<'t>(said: impl IntoIterator<Item = &'t str>) -> String {
    let joined = said.into_iter().collect::<Vec<_>>().join("\n");
    let mut digits = Digest::of(normal(&joined).as_bytes()).to_string();
    digits.truncate(DIGEST_DIGITS);
    digits
}

#[cfg(test)]
mod tests {
    use super::*;

    /// L-40: case, blanks, `_` and `#` do not change the digest of a request; a later message does.
    #[test]
    fn a_digest_names_what_the_user_said() {
        let digest = |said: &[&str]| request_digest(said.iter().copied());
        let own = digest(&["Return order #W12_3  please"]);
        assert_eq!(own.len(), 16);
        assert!(own.chars().all(|c| c.is_ascii_hexdigit() && !c.is_uppercase()), "{own}");
        assert_eq!(own, digest(&["return ORDER w12 3\tplease\n"]));
        assert_ne!(own, digest(&["Return order #W12_4 please"]));
        assert_ne!(own, digest(&["Return order #W12_3 please", "and quickly"]));
        assert_eq!(digest(&["a", "b"]), digest(&["a b"]));
    }

    /// L-3: numbers and words are found whole.
    #[test]
    fn parts_of_words_and_numbers_are_not_found() {
        let found = |text: &str, value: &str| holds(&normal(text), &normal(value));
        assert!(found("my order W-12, thanks", "w-12"));
        assert!(!found("1234", "12"));
        assert!(!found("12.5", "12"));
        assert!(!found("ordering", "order"));
    }
}
