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

/// True for scripts without blanks between words, or with particles at the end of words: Thai, Lao, Burmese, Khmer, kana,
/// Chinese characters, Hangul. A word may begin and end at each of their characters.
pub fn is_spaceless(c: char) -> bool {
    matches!(c,
        '\u{e01}'..='\u{eff}' | '\u{1000}'..='\u{109f}' | '\u{1780}'..='\u{17ff}' | '\u{3041}'..='\u{30ff}'
        | '\u{3400}'..='\u{9fff}' | '\u{ac00}'..='\u{d7a3}' | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{3ffff}')
}

/// True if two adjacent characters belong to one word or number.
pub fn is_one_word(left: char, right: char) -> bool {
    let is_part = |c: char| c.is_alphanumeric() && !is_spaceless(c);
    is_part(left) && is_part(right)
}

/// The words of a text: runs of letters and digits, and each character of a script without blanks.
pub fn words(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        rest = rest.trim_start_matches(|c: char| !c.is_alphanumeric());
        let mut pairs = rest.chars().zip(rest.char_indices().skip(1));
        let end = pairs.find(|(left, (_, right))| !is_one_word(*left, *right));
        let (word, after) = rest.split_at(end.map_or(rest.len(), |(_, (at, _))| at));
        rest = after;
        (!word.is_empty()).then_some(word)
    })
}

/// True if `text` contains `value` at the boundaries of words and numbers. Both must be [`normal`].
pub fn holds(text: &str, value: &str) -> bool {
    text.match_indices(value).any(|(at, _)| {
        let (before, after) = (&text[..at], &text[at + value.len()..]);
        let is_joined = |left: &str, right: &str| {
            let (l, r) = (left.chars().next_back(), right.chars().next());
            l.zip(r).is_some_and(|(l, r)| is_one_word(l, r))
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

    /// L-2: in scripts without blanks, a value is found between the characters beside it.
    #[test]
    fn values_are_found_in_scripts_without_blanks() {
        let found = |text: &str, value: &str| holds(&normal(text), &normal(value));
        assert!(found("注文W-12を返品したい。", "w-12"));
        assert!(found("メールはana@x.exampleです", "ana@x.example"));
        assert!(found("주문 W-12을 취소, 김철수입니다", "W-12") && found("주문 W-12을 취소, 김철수입니다", "김철수"));
        assert!(found("東京都に12個", "12") && found("คืนสินค้าW-12ครับ", "w-12"));
        assert!(!found("注文W-123を", "w-12") && !found("заказW-12", "w-12") && !found("é12", "12"));
        let words = |text| words(text).collect::<Vec<_>>().join(" ");
        assert_eq!(words("注文ord-108を、12個 x_y"), "注 文 ord 108 を 12 個 x y");
        assert_eq!(words(" -é1 "), "é1");
        assert_eq!(words("、 "), "");
    }
}
