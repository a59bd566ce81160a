//! Decisions of the router.

use crate::calibrate::{Head, probability, verdict};
use crate::decision::{Candidate, Decision, Signals, Verdict};
use crate::evidence::evidence;
use crate::features::{Block, Feature, features, hash};
use crate::router::Router;
use crate::semantic::Embedder;
use crate::softmax;
use crate::stem::is_stop;
use crate::text::{Kind, Token, tokens};
use crate::train::largest;

/// Maximum number of candidates in a decision.
const LISTED: usize = 10;
/// Number of tokens from which on the start and the end of a request are also read alone. They state the task, and pasted
/// text between them must not outweigh it.
const LONG: usize = 48;
/// Number of tokens of such a part.
const PART: usize = 24;
/// Rate at which a candidate's share falls with its distance to the first.
const FALL: f64 = 3.0;

impl Router {
    /// Decides by words and letters.
    pub fn decide(&self, request: &str) -> Decision {
        self.decide_with_vector(request, &[])
    }

    /// Decides by words, letters and meaning, with the embedder of the router's construction.
    pub fn decide_with(&self, request: &str, embedder: &dyn Embedder) -> Decision {
        let vectors = if self.semantic.is_some() { embedder.embed(&[request]) } else { Vec::new() };
        self.decide_with_vector(request, vectors.first().map_or(&[], Vec::as_slice))
    }

    /// Decides with a vector of the request from the caller. A vector of another length than the table's is ignored.
    pub fn decide_with_vector(&self, request: &str, vector: &[f32]) -> Decision {
        let mut tokens = tokens(request);
        let known = |token: &Token| self.index.rarity(hash(1, token.stem.as_bytes())).1;
        self.spelling.correct(&mut tokens, known);
        let mut best = self.decide_tokens(&tokens, vector);
        if tokens.len() >= LONG {
            for part in [&tokens[..PART], &tokens[tokens.len() - PART..]] {
                let other = self.decide_tokens(part, &[]);
                if other.score > best.score {
                    best = other;
                }
            }
        }
        best
    }

    fn decide_tokens(&self, tokens: &[Token], vector: &[f32]) -> Decision {
        let features = features(tokens, &self.tuning);
        let query = self.index.query(&features, &self.tuning);
        let mut similar = vec![0.0_f32; self.index.texts.len()];
        self.index.similarities(query.entries.iter().map(|e| (e.0, e.1)), &mut similar);
        let meaning = self.semantic.as_ref().and_then(|(s, votes)| Some((s, votes, s.request(vector)?)));
        let votes = if let Some((semantic, votes, vector)) = &meaning {
            let share = self.tuning.semantic;
            for (at, value) in similar.iter_mut().enumerate() {
                *value = (1.0 - share) * *value + share * semantic.to_text(vector, at);
            }
            votes
        } else {
            &self.votes
        };
        let mut fit = vec![-1.0_f32; self.names.len()];
        let mut nearest = vec![0.0_f32; self.names.len()];
        for (at, value) in similar.iter().enumerate().filter(|s| *s.1 != 0.0) {
            let place = &mut nearest[self.index.texts[at].route as usize];
            *place = place.max(*value);
            for (route, vote) in votes.of(at) {
                fit[*route as usize] += vote * value;
            }
        }
        let exact = self.put_exact_first(tokens, &mut fit, &mut nearest);
        let top = largest(&fit, f32::NEG_INFINITY, LISTED);
        let Some(first) = top.first() else {
            return nothing();
        };
        let signals = Signals {
            fit: f64::from(first.1),
            lead: f64::from(first.1 - top.get(1).map_or(-1.0, |second| second.1)),
            nearest: f64::from(nearest[first.0 as usize].min(1.0)),
            coverage: self.coverage(tokens, &features),
            central: meaning.as_ref().map_or(0.0, |(s, _, v)| f64::from(s.to_route(v, first.0 as usize))),
            semantic: meaning.is_some(),
            exact,
        };
        let why = evidence(first.0, tokens, &query, &self.index, votes);
        self.decision(&top, signals, why)
    }

    fn decision(&self, top: &[(u32, f32)], signals: Signals, why: Vec<crate::decision::Evidence>) -> Decision {
        let first = top[0];
        let head = match (signals.semantic, softmax::takes(self.index.texts.len())) {
            (false, _) => Head::Words,
            (true, false) => Head::Apart,
            (true, true) => Head::Together,
        };
        let score = probability(&signals, head, self.thin[first.0 as usize], self.names.len());
        let verdict = verdict(score, head);
        let rest = score.min(1.0 - score);
        let candidates: Vec<Candidate> = top
            .iter()
            .enumerate()
            .map(|(place, (route, fit))| Candidate {
                name: self.names[*route as usize].clone(),
                score: if place == 0 { score } else { rest * (FALL * f64::from(fit - first.1)).exp() },
            })
            .collect();
        Decision {
            best: (verdict != Verdict::Rejected).then(|| candidates[0].name.clone()),
            score,
            margin: score - candidates.get(1).map_or(0.0, |second| second.score),
            verdict,
            candidates,
            why,
            signals,
        }
    }

    /// Raises the routes that have the request as a trigger or a name above all others, level with each other.
    fn put_exact_first(&self, tokens: &[Token], fit: &mut [f32], nearest: &mut [f32]) -> bool {
        let top = fit.iter().copied().fold(1.0_f32, f32::max);
        let mut found = false;
        for route in self.exact.routes(tokens) {
            fit[route as usize] = top + 1.0;
            nearest[route as usize] = 1.0;
            found = true;
        }
        found
    }

    /// Share of the request's words that some route has. A misspelt word counts with the share of its letters.
    fn coverage(&self, tokens: &[Token], features: &[Feature]) -> f64 {
        let mut letters = vec![(0.0_f64, 0.0_f64); tokens.len()];
        for feature in features.iter().filter(|f| f.block == Block::Letters) {
            let place = &mut letters[feature.token as usize];
            place.0 += f64::from(u8::from(self.index.rarity(feature.id).1));
            place.1 += 1.0;
        }
        let (mut known, mut all) = (0.0_f64, 0.0_f64);
        for (token, (held, total)) in tokens.iter().zip(letters).filter(|t| t.0.kind != Kind::Number) {
            let (rarity, seen) = self.index.rarity(hash(1, token.stem.as_bytes()));
            let weight = f64::from(rarity) * if is_stop(&token.text) { 0.3 } else { 1.0 };
            let share = if seen { 1.0 } else { (held / f64::max(total, 1.0)).powi(2) };
            known += weight * share;
            all += weight;
        }
        if all > 0.0 { known / all } else { 0.0 }
    }
}

/// Decision for an empty table.
fn nothing() -> Decision {
    Decision {
        best: None,
        score: 0.0,
        margin: 0.0,
        verdict: Verdict::Rejected,
        candidates: Vec::new(),
        why: Vec::new(),
        signals: Signals::default(),
    }
}
