//! Weighted features of tokens: words, pairs of neighbours, letter sequences.

use crate::stem::is_stop;
use crate::text::{Kind, Token};
use crate::tuning::Tuning;

/// Block of a feature. The words and the letters are normalized to length one separately.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Block {
    Words,
    Letters,
}

/// Feature of a text, before the weight of its rarity.
#[derive(Debug, Clone)]
pub(crate) struct Feature {
    /// Hash of block and text.
    pub id: u64,
    /// Words or letters, which are weighted separately.
    pub block: Block,
    /// Damped number of occurrences times a factor.
    pub weight: f32,
    /// Index of the token it came from (of the second one for a pair).
    pub token: u32,
}

/// Features of a text, sorted by id, each id once.
pub(crate) fn features(tokens: &[Token], tuning: &Tuning) -> Vec<Feature> {
    let mut found = Vec::with_capacity(tokens.len() * 12);
    let mut letters = String::new();
    for (index, token) in tokens.iter().enumerate() {
        let at = index as u32;
        let factor = factor(token, tuning);
        found.push(Feature { id: hash(1, token.stem.as_bytes()), block: Block::Words, weight: factor, token: at });
        if index > 0 && token.adjacent {
            pair(&tokens[index - 1], token, at, tuning, &mut found);
        }
        if token.kind == Kind::Word {
            let scale = if is_stop(&token.text) { tuning.stop } else { 1.0 };
            sequences(&token.text, scale, at, &mut letters, &mut found);
        }
    }
    merge(found)
}

fn factor(token: &Token, tuning: &Tuning) -> f32 {
    match token.kind {
        Kind::Number => tuning.number,
        _ if is_stop(&token.text) => tuning.stop,
        Kind::Sign => 0.6,
        Kind::Word => 1.0,
    }
}

/// Adds a pair of neighbours. A pair of signs corresponds to a word in other scripts; a pair of words is a phrase.
fn pair(before: &Token, token: &Token, at: u32, tuning: &Tuning, found: &mut Vec<Feature>) {
    let signs = before.kind == Kind::Sign && token.kind == Kind::Sign;
    let mut key = before.stem.clone().into_bytes();
    key.push(b' ');
    key.extend_from_slice(token.stem.as_bytes());
    let weight = if signs { 1.0 } else { tuning.pair };
    found.push(Feature { id: hash(2, &key), block: Block::Words, weight, token: at });
    if signs {
        found.push(Feature { id: hash(3, &key), block: Block::Letters, weight: 1.0, token: at });
    }
}

fn sequences(word: &str, scale: f32, at: u32, letters: &mut String, found: &mut Vec<Feature>) {
    letters.clear();
    letters.push('^');
    letters.push_str(word);
    letters.push('$');
    let bounds: Vec<usize> = letters.char_indices().map(|(i, _)| i).chain([letters.len()]).collect();
    let count = bounds.len() - 1;
    let dense = !word.is_ascii();
    let sizes = if dense { 2..=4 } else { 3..=5 };
    for size in sizes {
        if count < size {
            continue;
        }
        for start in 0..=count - size {
            let bytes = &letters.as_bytes()[bounds[start]..bounds[start + size]];
            found.push(Feature { id: hash(3, bytes), block: Block::Letters, weight: scale, token: at });
        }
    }
}

/// Merges entries of the same id. Repetition counts with its logarithm, so that ten repetitions of a word have little effect.
fn merge(mut found: Vec<Feature>) -> Vec<Feature> {
    found.sort_by(|a, b| a.id.cmp(&b.id).then(a.token.cmp(&b.token)));
    let mut merged: Vec<Feature> = Vec::with_capacity(found.len());
    let mut times = 0.0_f32;
    for feature in found {
        match merged.last_mut() {
            Some(last) if last.id == feature.id => {
                times += 1.0;
                last.weight = last.weight.max(feature.weight) / damped(times - 1.0) * damped(times);
            }
            _ => {
                times = 1.0;
                merged.push(feature);
            }
        }
    }
    merged
}

fn damped(times: f32) -> f32 {
    1.0 + times.ln()
}

/// FNV-1a with a final mix: the same on every machine and in every build.
pub(crate) fn hash(block: u8, bytes: &[u8]) -> u64 {
    let mut state = 0xcbf2_9ce4_8422_2325_u64 ^ u64::from(block).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for byte in bytes {
        state = (state ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    state ^= state >> 32;
    state = state.wrapping_mul(0xd6e8_feb8_6659_fd93);
    state ^ (state >> 32)
}
