//! Misspelt words: an unknown word that is one slip away from a known word counts as that word.

use crate::stem::is_stop;
use crate::text::{Kind, Token};

/// Minimum number of letters of a corrected word; shorter ones are one slip from everything.
const SHORTEST: usize = 4;
/// Minimum number of letters of a word with two slips.
const TWO_SLIPS: usize = 8;
/// Maximum number of unknown words of a request that are corrected.
const TRIED: usize = 16;

/// Words that the routes use and their stems, by length.
#[derive(Debug)]
pub(crate) struct Spelling {
    pub(crate) known: Vec<(Vec<char>, String)>,
}

impl Spelling {
    pub(crate) fn new<'a>(tokens: impl Iterator<Item = &'a Token>) -> Self {
        let mut known: Vec<(Vec<char>, String)> = tokens
            .filter(|t| t.kind == Kind::Word && !is_stop(&t.text))
            .map(|t| (t.text.chars().collect::<Vec<char>>(), t.stem.clone()))
            .filter(|word| word.0.len() >= SHORTEST)
            .collect();
        known.sort_unstable_by(|a, b| a.0.len().cmp(&b.0.len()).then_with(|| a.cmp(b)));
        known.dedup();
        Self { known }
    }

    /// Gives unknown words the stem of the nearest known word. The text of the token does not change.
    pub(crate) fn correct(&self, tokens: &mut [Token], is_known: impl Fn(&Token) -> bool) {
        let unknown = tokens.iter_mut().filter(|t| t.kind == Kind::Word && !is_stop(&t.text) && !is_known(t));
        for token in unknown.take(TRIED) {
            let word: Vec<char> = token.text.chars().collect();
            if let Some(found) = self.nearest(&word) {
                token.stem = found;
            }
        }
    }

    fn nearest(&self, word: &[char]) -> Option<String> {
        let slips = match word.len() {
            0..SHORTEST => return None,
            SHORTEST..TWO_SLIPS => 1,
            _ => 2,
        };
        let from = self.known.partition_point(|k| k.0.len() + slips < word.len());
        let near = self.known[from..].iter().take_while(|k| k.0.len() <= word.len() + slips);
        let starts = |known: &[char]| known[0] == word[0] || (known[0] == word[1] && known[1] == word[0]);
        near.filter(|known| starts(&known.0))
            .filter_map(|known| Some((distance(word, &known.0, slips)?, known)))
            .min_by(|a, b| a.0.cmp(&b.0).then_with(|| a.1.cmp(b.1)))
            .map(|found| found.1.1.clone())
    }
}

/// Number of insertions, deletions, replacements and swaps of neighbours between two words; `None` above `limit`.
fn distance(a: &[char], b: &[char], limit: usize) -> Option<usize> {
    let width = b.len() + 1;
    let mut before: Vec<usize> = vec![0; width];
    let mut last: Vec<usize> = (0..width).collect();
    for row in 1..=a.len() {
        let mut current = vec![row; width];
        for column in 1..width {
            let replaced = last[column - 1] + usize::from(a[row - 1] != b[column - 1]);
            current[column] = replaced.min(last[column] + 1).min(current[column - 1] + 1);
            let swapped = row > 1 && column > 1 && a[row - 1] == b[column - 2] && a[row - 2] == b[column - 1];
            if swapped {
                current[column] = current[column].min(before[column - 2] + 1);
            }
        }
        if current.iter().all(|d| *d > limit) {
            return None;
        }
        before = std::mem::replace(&mut last, current);
    }
    (last[b.len()] <= limit).then_some(last[b.len()])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::tokens;

    fn corrected(request: &str) -> Vec<String> {
        let table = tokens("deploy review release changelog duplicate");
        let mut read = tokens(request);
        Spelling::new(table.iter()).correct(&mut read, |t| table.iter().any(|k| k.stem == t.stem));
        read.into_iter().map(|t| t.stem).collect()
    }

    #[test]
    fn slips_are_forgiven() {
        assert_eq!(corrected("depoly reveiw chagnelog"), ["deploi", "review", "changelog"]);
    }

    #[test]
    fn other_words_stay() {
        assert_eq!(corrected("employ the dog cat"), ["employ", "the", "dog", "cat"].map(crate::stem::stem));
    }
}
