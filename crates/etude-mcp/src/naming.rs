//! Names of tools.

use std::collections::BTreeMap;

/// Maximum length of a name, in characters. Cursor allows 60 characters together with the server's name.
const MAX_NAME: usize = 48;

/// Length of the hash in a name, in hexadecimal digits.
const DIGITS: usize = 8;

/// A name of letters, digits, `_` and `-` with at most 48 characters. A name that had to be changed carries its hash.
pub(crate) fn tool_name(name: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
    if !name.is_empty() && name.len() <= MAX_NAME && name.chars().all(is_plain) {
        return name.to_owned();
    }
    hashed(name, name)
}

/// A name with the hash of `whole`, which makes it unique.
fn hashed(name: &str, whole: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
    let plain: String = name.chars().map(|c| if is_plain(c) { c } else { '_' }).take(MAX_NAME - DIGITS - 1).collect();
    let hash = blake3::hash(whole.as_bytes()).to_hex();
    format!("{plain}_{}", &hash[..DIGITS])
}

/// Unique names, in the order of `wanted`: pairs of a wanted name and a text that no other entry has. Names in `taken` are not
/// used.
pub(crate) fn unique(wanted: &[(String, String)], taken: &[&str]) -> Vec<String> {
    let names: Vec<String> = wanted.iter().map(|(name, _)| tool_name(name)).collect();
    let mut counts: BTreeMap<&str, usize> = taken.iter().map(|name| (*name, 1)).collect();
    names.iter().for_each(|name| *counts.entry(name).or_default() += 1);
    let distinct = |(name, (wanted, whole)): (&String, &(String, String))| match counts.get(name.as_str()) {
        Some(1) if !taken.contains(&name.as_str()) => name.clone(),
        _ => hashed(wanted, whole),
    };
    names.iter().zip(wanted).map(distinct).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// S-140: names are valid, at most 48 characters long and unique.
    #[test]
    fn names_are_valid_short_and_unique() {
        let long = "x".repeat(60);
        let wanted: Vec<(String, String)> = ["code-review", "größe", "grüße", &long, "", "etude_find", "a", "a"]
            .iter()
            .enumerate()
            .map(|(number, name)| ((*name).to_owned(), format!("{number} {name}")))
            .collect();
        let names = unique(&wanted, &["etude_find"]);
        assert_eq!(names[0], "code-review");
        for name in &names {
            assert!((1..=MAX_NAME).contains(&name.len()), "{name}");
            assert!(name.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c)), "{name}");
        }
        let mut sorted = names.clone();
        sorted.sort();
        sorted.dedup();
        assert_eq!(sorted.len(), names.len(), "{names:?}");
        assert!(!names.contains(&"etude_find".to_owned()));
        assert_eq!(names, unique(&wanted, &["etude_find"]));
    }
}
