//! Names of skills (C-2.2, C-2.9): lower-case letters and digits of any script, with single hyphens between them.

use icu_normalizer::ComposingNormalizerBorrowed;
use icu_properties::CodePointMapData;
use icu_properties::props::{GeneralCategory, GeneralCategoryGroup};

use super::MAX_NAME;
use crate::diagnose::skills::NameFault;

/// Normalizes text to NFKC: full-width letters become ordinary ones, accents join their letters.
pub fn normalized(text: &str) -> String {
    const NFKC: ComposingNormalizerBorrowed<'static> = ComposingNormalizerBorrowed::new_nfkc();
    NFKC.normalize(text).into_owned()
}

/// The first fault of a normalized name.
pub(super) fn fault(name: &str) -> Option<NameFault> {
    let length = name.chars().count();
    if length > MAX_NAME {
        return Some(NameFault::TooLong { length, most: MAX_NAME });
    }
    let lower = name.to_lowercase();
    if lower != name {
        return Some(NameFault::NotLowerCase(lower));
    }
    if name.starts_with('-') || name.ends_with('-') {
        return Some(NameFault::EdgeHyphen);
    }
    if name.contains("--") {
        return Some(NameFault::DoubleHyphen);
    }
    name.chars().find(|c| *c != '-' && !is_alphanumeric(*c)).map(NameFault::Character)
}

/// True for a letter or a number of any script. Marks are neither, even if they belong to the alphabet.
fn is_alphanumeric(c: char) -> bool {
    if c.is_ascii() {
        return c.is_ascii_alphanumeric();
    }
    let category = CodePointMapData::<GeneralCategory>::new().get(c);
    GeneralCategoryGroup::Letter.contains(category) || GeneralCategoryGroup::Number.contains(category)
}

/// Suggests a valid name derived from an invalid one.
pub(super) fn better(name: &str) -> Option<String> {
    let kept: String = name.to_lowercase().chars().map(|c| if is_alphanumeric(c) { c } else { '-' }).collect();
    let parts: Vec<&str> = kept.split('-').filter(|part| !part.is_empty()).collect();
    let joined: String = parts.join("-").chars().take(MAX_NAME).collect();
    let joined = joined.trim_end_matches('-');
    (!joined.is_empty()).then(|| joined.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// C-2.9: names of any script are valid if they are lower case and have no misplaced hyphen.
    #[test]
    fn names_of_any_script_are_judged_alike() {
        for good in ["tidy", "a-b", "3000", "技能", "навык", "café", "x1-2-3"] {
            assert_eq!(fault(&normalized(good)), None, "{good}");
        }
        assert_eq!(fault("Tidy"), Some(NameFault::NotLowerCase("tidy".into())));
        assert_eq!(fault("НАВЫК"), Some(NameFault::NotLowerCase("навык".into())));
        for edge in ["-x", "x-", "-"] {
            assert_eq!(fault(edge), Some(NameFault::EdgeHyphen), "{edge}");
        }
        assert_eq!(fault("a--b"), Some(NameFault::DoubleHyphen));
        for (name, c) in [("a_b", '_'), ("a.b", '.'), ("a☃", '☃'), ("a b", ' '), ("क\u{94d}", '\u{94d}')] {
            assert_eq!(fault(name), Some(NameFault::Character(c)), "{name}");
        }
        assert_eq!(fault(&"n".repeat(65)), Some(NameFault::TooLong { length: 65, most: 64 }));
        assert_eq!(normalized("ａｂｃ"), "abc");
        assert_eq!(better("My_Skill.v2 "), Some("my-skill-v2".into()));
    }
}
