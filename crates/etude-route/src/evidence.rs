//! Evidence for a decision: the words with the largest effect.

use crate::decision::Evidence;
use crate::index::{Index, Query};
use crate::stem::is_stop;
use crate::text::{Kind, Token};
use crate::train::Votes;

/// Maximum number of words in a decision.
const SHOWN: usize = 8;

/// Parts of `route`'s score by word, strongest first. Signs that follow each other are one phrase.
pub(crate) fn evidence(route: u32, tokens: &[Token], query: &Query, index: &Index, votes: &Votes) -> Vec<Evidence> {
    let mut parts = vec![0.0_f64; tokens.len()];
    for (id, value, token) in &query.entries {
        for (text, held) in index.holders(*id) {
            for (_, vote) in votes.of(*text as usize).iter().filter(|v| v.0 == route) {
                parts[*token as usize] += f64::from(vote * value * held);
            }
        }
    }
    let mut found: Vec<Evidence> = Vec::new();
    let mut signs = false;
    for (token, weight) in tokens.iter().zip(parts) {
        let sign = token.kind == Kind::Sign;
        match found.last_mut() {
            Some(last) if sign && signs && token.adjacent => {
                last.text.push_str(&token.text);
                last.weight += weight;
            }
            _ => found.push(Evidence { text: token.text.clone(), weight }),
        }
        signs = sign;
    }
    found.retain(|e| e.weight != 0.0 || !is_stop(&e.text));
    found.sort_by(|a, b| b.weight.abs().total_cmp(&a.weight.abs()).then_with(|| a.text.cmp(&b.text)));
    found.dedup();
    found.truncate(SHOWN);
    found
}
