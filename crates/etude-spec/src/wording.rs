//! Wording of messages: names in back-quotes, lists, numbers, and "did you mean".

use std::borrow::Cow;

pub(crate) use etude_core::report::number;

/// Maximum length of user text in a message, in characters.
const MAX_LENGTH: usize = 60;

/// Puts `name` in back-quotes, shortened and with control characters made visible.
pub(crate) fn quoted(name: &str) -> String {
    format!("`{}`", plain(name))
}

/// Makes control characters in `text` visible.
pub(crate) fn visible(text: &str) -> Cow<'_, str> {
    if !text.contains(char::is_control) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    text.chars().for_each(|c| push(&mut out, c));
    Cow::Owned(out)
}

fn push(out: &mut String, c: char) {
    if c.is_control() {
        out.extend(c.escape_debug());
    } else {
        out.push(c);
    }
}

/// Shortens `text` and makes control characters visible.
pub(crate) fn plain(text: &str) -> Cow<'_, str> {
    if text.len() <= MAX_LENGTH && !text.chars().any(char::is_control) {
        return Cow::Borrowed(text);
    }
    let mut out = String::new();
    for (at, c) in text.chars().enumerate() {
        if at == MAX_LENGTH {
            out.push('…');
            break;
        }
        push(&mut out, c);
    }
    Cow::Owned(out)
}

/// Maximum length of a cause that a message repeats whole, in characters.
const MAX_CAUSE: usize = 400;

/// Makes control characters of a cause visible. A very long cause loses its middle, since its end may say as much as
/// its beginning.
pub(crate) fn cause(text: &str) -> Cow<'_, str> {
    let count = text.chars().count();
    if count <= MAX_CAUSE {
        return visible(text);
    }
    let half = MAX_CAUSE / 2;
    let start: String = text.chars().take(half).collect();
    let end: String = text.chars().skip(count - half).collect();
    let left_out = number((count - 2 * half) as u64);
    Cow::Owned(format!("{} … ({left_out} characters) … {}", visible(&start), visible(&end)))
}

/// Maximum number of list entries in a message.
const MAX_COUNT: usize = 24;

/// Formats `a, b, c`; long lists end in `and N more`.
pub(crate) fn list<S: AsRef<str>>(names: &[S]) -> String {
    let mut out = names.iter().take(MAX_COUNT).map(|name| plain(name.as_ref())).collect::<Vec<_>>().join(", ");
    if names.len() > MAX_COUNT {
        out.push_str(&format!(" and {} more", names.len() - MAX_COUNT));
    }
    out
}

/// Formats `` `a`, `b` and `c` ``, or with another word than `and`.
pub(crate) fn quoted_list<S: AsRef<str>>(names: &[S], last: &str) -> String {
    match names {
        [] => String::new(),
        [one] => quoted(one.as_ref()),
        [init @ .., end] if names.len() <= MAX_COUNT => {
            let init = init.iter().map(|name| quoted(name.as_ref())).collect::<Vec<_>>().join(", ");
            format!("{init} {last} {}", quoted(end.as_ref()))
        }
        _ => {
            let head = names.iter().take(MAX_COUNT).map(|name| quoted(name.as_ref())).collect::<Vec<_>>().join(", ");
            format!("{head} and {} more", names.len() - MAX_COUNT)
        }
    }
}

/// Maximum number of candidates: a bound against hostile files.
const MAX_CANDIDATES: usize = 500;

/// The candidate that `word` was probably meant to be, if one is close enough.
///
/// Close means: at most a third of the longer word's characters (and at least one) must change. A difference only in
/// case, or in `-` and `_`, always counts as close. Among equally close candidates the first wins.
pub fn did_you_mean<'c>(word: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<&'c str> {
    let fold = |text: &str| text.to_lowercase().replace('-', "_");
    let (folded, length) = (fold(word), word.chars().count());
    if length == 0 || length > 100 {
        return None;
    }
    let mut best: Option<(usize, &str)> = None;
    for candidate in candidates.into_iter().take(MAX_CANDIDATES) {
        let long = candidate.chars().count().max(length);
        if long > 100 || candidate == word {
            continue;
        }
        let other = fold(candidate);
        let allowed = (long / 3).max(1);
        let distance = if other == folded {
            0
        } else if length >= 3 && other.starts_with(&folded) {
            // An abbreviation.
            1
        } else if other.len() >= 3 && folded.starts_with(&other) {
            allowed.min(strsim::damerau_levenshtein(&folded, &other))
        } else {
            strsim::damerau_levenshtein(&folded, &other)
        };
        // A candidate that shares no character is not a near miss.
        if distance <= allowed && distance < long && best.is_none_or(|(least, _)| distance < least) {
            best = Some((distance, candidate));
        }
    }
    best.map(|(_, candidate)| candidate)
}

/// The hint "did you mean", if a candidate is close enough.
pub(crate) fn meant<'c>(word: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<String> {
    did_you_mean(word, candidates).map(|candidate| format!("did you mean {}?", quoted(candidate)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// the end of a cause is kept; a very long cause loses its middle.
    #[test]
    fn causes_keep_their_ends() {
        let long = format!("{} is not one of `north`", "x".repeat(100));
        assert_eq!(cause(&long), long);
        assert_eq!(cause("a\tb"), "a\\tb");
        let huge = format!("start {} end", "é".repeat(100_000));
        let shown = cause(&huge);
        assert!(shown.starts_with("start é") && shown.ends_with("é end"), "{shown}");
        assert!(shown.contains("é … (99,610 characters) … é") && shown.chars().count() < 450, "{shown}");
    }

    /// a near miss gets a hint, a far one gets none.
    #[test]
    fn near_misses_are_found_and_far_ones_are_not() {
        assert_eq!(did_you_mean("comand", ["name", "command"]), Some("command"));
        assert_eq!(did_you_mean("cod", ["code", "llm"]), Some("code"));
        assert_eq!(did_you_mean("int", ["string", "integer"]), Some("integer"));
        assert_eq!(did_you_mean("Max-Tokens", ["max_tokens"]), Some("max_tokens"));
        assert_eq!(did_you_mean("fast", ["lite", "standard", "reasoning"]), None);
        assert_eq!(did_you_mean("x", ["y"]), None);
    }

    #[test]
    fn long_names_are_shortened_and_control_characters_shown() {
        assert_eq!(quoted("a\u{1b}[31m"), "`a\\u{1b}[31m`");
        assert_eq!(plain(&"x".repeat(100)).chars().count(), 61);
        assert_eq!(number(1_048_576), "1,048,576");
    }
}
