//! Suggestions for misspelt names of tools.

/// The candidate that `word` was probably meant to be: at most a third of its characters differ, or it only ends earlier.
pub(crate) fn near<'c>(word: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<&'c str> {
    let fold = |text: &str| text.to_lowercase().replace(['-', ' '], "_").chars().take(MAX_CHARS).collect::<Vec<char>>();
    let word = fold(word);
    let scored = candidates.into_iter().filter_map(|candidate| {
        let other = fold(candidate);
        let is_start = word.len() >= 3 && other.starts_with(&word);
        let differing = if is_start { 1 } else { strsim::generic_levenshtein(&word, &other) };
        (differing <= word.len().max(other.len()) / 3).then_some((differing, candidate))
    });
    scored.min_by_key(|(differing, _)| *differing).map(|(_, candidate)| candidate)
}

/// Maximum number of characters that are compared; names of tools are not longer.
const MAX_CHARS: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    /// S-141: only a similar name is suggested.
    #[test]
    fn only_a_similar_name_is_suggested() {
        let names = ["hello", "etude_find", "etude_show", "sort_mail"];
        for (word, expected) in [
            ("hellos", Some("hello")),
            ("Sort-Mail", Some("sort_mail")),
            ("sort", Some("sort_mail")),
            ("etude_finds", Some("etude_find")),
            ("weather", None),
            ("", None),
            ("x", None),
        ] {
            assert_eq!(near(word, names), expected, "{word}");
        }
    }
}
