//! Requests that are a trigger or the name of a route, apart from case, punctuation and spacing.

use crate::features::hash;
use crate::text::Token;

/// Triggers and names by their hash.
#[derive(Debug)]
pub(crate) struct Exact {
    pub(crate) known: Vec<(u64, u32)>,
}

impl Exact {
    pub(crate) fn new(phrases: impl Iterator<Item = (u32, Vec<Token>)>) -> Self {
        let mut known: Vec<(u64, u32)> = phrases.filter_map(|(route, tokens)| Some((key(&tokens)?, route))).collect();
        known.sort_unstable();
        known.dedup();
        Self { known }
    }

    /// Routes that have exactly this phrase.
    pub(crate) fn routes(&self, tokens: &[Token]) -> impl Iterator<Item = u32> {
        let key = key(tokens);
        let from = key.map_or(self.known.len(), |key| self.known.partition_point(|k| k.0 < key));
        self.known[from..].iter().take_while(move |k| Some(k.0) == key).map(|k| k.1)
    }
}

fn key(tokens: &[Token]) -> Option<u64> {
    if tokens.is_empty() {
        return None;
    }
    let mut text = Vec::new();
    for token in tokens {
        text.extend_from_slice(token.text.as_bytes());
        text.push(b' ');
    }
    Some(hash(4, &text))
}
