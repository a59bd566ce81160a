//! Sampling of the next token.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};

use llguidance::toktrie::{SimpleVob, TokenId};

/// Share of the probability that is sampled; less probable tokens beyond it are left out.
const NUCLEUS: f64 = 0.95;

/// Sampler of tokens.
#[derive(Debug)]
pub(crate) struct Sampler {
    temperature: f64,
    state: u64,
}

impl Sampler {
    /// A sampler that takes the most probable token at temperature 0, and samples otherwise.
    pub(crate) fn new(temperature: f64, seed: u64) -> Self {
        Self { temperature: if temperature.is_finite() { temperature.max(0.0) } else { 0.0 }, state: seed }
    }

    /// A seed that differs between calls.
    pub(crate) fn seed() -> u64 {
        RandomState::new().build_hasher().finish()
    }

    /// The next token; `None` if none is allowed.
    pub(crate) fn choose(&mut self, scores: &[f32], allowed: Option<&SimpleVob>) -> Option<TokenId> {
        let is_allowed = |token: usize| allowed.is_none_or(|allowed| token < allowed.len() && allowed.get(token));
        if self.temperature == 0.0 {
            let best = scores.iter().enumerate().filter(|(token, _)| is_allowed(*token));
            return best.max_by(|a, b| a.1.total_cmp(b.1)).and_then(|(token, _)| TokenId::try_from(token).ok());
        }
        let mut likely: Vec<(usize, f64)> = scores
            .iter()
            .enumerate()
            .filter(|(token, _)| is_allowed(*token))
            .map(|(token, score)| (token, f64::from(*score) / self.temperature))
            .collect();
        likely.sort_by(|a, b| b.1.total_cmp(&a.1));
        likely.truncate(256);
        let top = likely.first()?.1;
        for (_, weight) in &mut likely {
            *weight = (*weight - top).exp();
        }
        let all: f64 = likely.iter().map(|(_, weight)| weight).sum();
        let mut sum = 0.0;
        let nucleus = likely.iter().take_while(|(_, weight)| {
            let is_inside = sum < NUCLEUS * all;
            sum += weight;
            is_inside
        });
        let nucleus: Vec<(usize, f64)> = nucleus.copied().collect();
        let total: f64 = nucleus.iter().map(|(_, weight)| weight).sum();
        let mut point = self.unit() * total;
        let chosen = nucleus.iter().find(|(_, weight)| {
            point -= weight;
            point <= 0.0
        });
        chosen.or(nucleus.last()).and_then(|(token, _)| TokenId::try_from(*token).ok())
    }

    /// A random number from 0 to 1 (SplitMix64).
    fn unit(&mut self) -> f64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_temperature_the_best_allowed_token_is_taken() {
        let mut sampler = Sampler::new(0.0, 1);
        let scores = [1.0, 3.0, 2.0];
        assert_eq!(sampler.choose(&scores, None), Some(1));
        let mut allowed = SimpleVob::alloc(3);
        assert_eq!(sampler.choose(&scores, Some(&allowed)), None);
        allowed.allow_token(0);
        allowed.allow_token(2);
        assert_eq!(sampler.choose(&scores, Some(&allowed)), Some(2));
    }

    #[test]
    fn with_temperature_all_likely_tokens_come_and_unlikely_ones_never() {
        let mut sampler = Sampler::new(1.0, 7);
        let mut seen = [0; 3];
        for _ in 0..1000 {
            let token = sampler.choose(&[1.0, 1.0, -20.0], None).expect("a token");
            seen[token as usize] += 1;
        }
        assert!(seen[0] > 300 && seen[1] > 300 && seen[2] == 0, "{seen:?}");
    }
}
