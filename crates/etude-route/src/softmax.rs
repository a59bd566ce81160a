//! One classifier for all routes of a table with vectors: logistic regression over all routes at once, and over the answer
//! "none of them".
//!
//! At the end of training, the vote of a text for a route is its cost times the missing certainty: one minus the probability
//! for its own route, zero minus the probability for another. Votes are found text by text: Newton's method solves those of
//! one text while all others are fixed, and the scores of all texts follow.

use crate::index::Index;
use crate::semantic::Semantic;
use crate::train::{NONE, Votes, gram};
use crate::tuning::Tuning;

/// Maximum number of texts that are all compared with each other: 64 MiB of similarities.
const TEXTS: usize = 4096;
/// Constant score of "none of them". Without it scores would compare routes only with each other, and in a table of two every
/// request would look like one of them.
const NONE_OF_THEM: f32 = 4.0;
/// Number of visits to all texts.
const SWEEPS: usize = 5;
/// Number of Newton steps for one text.
const STEPS: usize = 8;
/// Maximum change of a text's own scores in one step: farther off, the local curvature is meaningless.
const REACH: f32 = 2.0;
/// Share of the cost below which a change is not propagated to the scores of all texts.
const SETTLED: f32 = 1e-3;
/// Factor that brings the votes to the size of those of the other classifiers.
const SCALE: f32 = 0.1;
/// Maximum factor by which an error costs more or less if a route has fewer or more texts than others.
const BALANCE: f32 = 4.0;

/// True if a table with this number of texts is trained here.
pub(crate) fn takes(texts: usize) -> bool {
    texts <= TEXTS
}

pub(crate) fn train(routes: usize, index: &Index, semantic: &Semantic, tuning: &Tuning) -> Votes {
    let members: Vec<u32> = (0..index.texts.len() as u32).collect();
    let gram = gram(&members, index, Some(semantic), tuning, &mut vec![NONE; index.features()]);
    let owners: Vec<usize> = index.texts.iter().map(|text| text.route as usize).collect();
    let weights: Vec<f32> = index.texts.iter().map(|text| text.weight).collect();
    let votes = solve(routes, &owners, &costs(routes, &owners, &weights, tuning.soft_cost), &gram);
    let floor = SETTLED * tuning.soft_cost;
    let kept = |row: &[f32]| {
        let votes = row.iter().enumerate().filter(|vote| vote.1.abs() >= floor);
        votes.map(|(route, vote)| (route as u32, vote * SCALE)).collect()
    };
    Votes::new(&votes.chunks(routes.max(1)).map(kept).collect::<Vec<_>>())
}

/// Cost of an error on each text, balanced so that a route with many triggers is not more likely.
fn costs(routes: usize, owners: &[usize], weights: &[f32], cost: f32) -> Vec<f32> {
    let mut counts = vec![0.0_f32; routes];
    for owner in owners {
        counts[*owner] += 1.0;
    }
    let mean = owners.len() as f32 / routes.max(1) as f32;
    let balance = |owner: &usize| (mean / counts[*owner]).clamp(1.0 / BALANCE, BALANCE);
    owners.iter().zip(weights).map(|(owner, weight)| cost * weight * balance(owner)).collect()
}

/// Votes of all texts, solved text by text.
fn solve(routes: usize, owners: &[usize], costs: &[f32], gram: &[f32]) -> Vec<f32> {
    let count = owners.len();
    let mut votes = vec![0.0_f32; count * routes];
    // Scores by route, so that a change of one vote touches contiguous memory.
    let mut scores = vec![0.0_f32; count * routes];
    let mut block = Block::new(routes);
    // Texts of all routes take turns, because neighbours in the list are nearly equal.
    for at in (0..SWEEPS).flat_map(|_| in_turns(owners)) {
        let row = &gram[at * count..(at + 1) * count];
        let votes = &mut votes[at * routes..(at + 1) * routes];
        for (score, scores) in block.scores.iter_mut().zip(scores.chunks(count.max(1))) {
            *score = scores[at];
        }
        block.solve(votes, owners[at], costs[at], row[at]);
        for ((vote, change), scores) in votes.iter_mut().zip(&block.change).zip(scores.chunks_mut(count.max(1))) {
            if change.abs() >= SETTLED * costs[at] {
                *vote += change;
                for (score, similar) in scores.iter_mut().zip(row) {
                    *score += change * similar;
                }
            }
        }
    }
    votes
}

/// The first text of every route, then the second, and so on. Texts are in order of their routes.
fn in_turns(owners: &[usize]) -> Vec<usize> {
    let mut turns: Vec<(usize, usize)> = Vec::with_capacity(owners.len());
    let mut turn = 0;
    for (at, owner) in owners.iter().enumerate() {
        turn = if at > 0 && owners[at - 1] == *owner { turn + 1 } else { 0 };
        turns.push((turn, at));
    }
    turns.sort_unstable();
    turns.into_iter().map(|turn| turn.1).collect()
}

/// Problem of one text.
struct Block {
    scores: Vec<f32>,
    change: Vec<f32>,
    chance: Vec<f32>,
    step: Vec<f32>,
}

impl Block {
    fn new(routes: usize) -> Self {
        let zeros = || vec![0.0_f32; routes];
        Self { scores: zeros(), change: zeros(), chance: zeros(), step: zeros() }
    }

    /// Finds the change after which each of `votes` is `cost` times the missing certainty. `own` is the text's similarity to
    /// itself.
    fn solve(&mut self, votes: &[f32], owner: usize, cost: f32, own: f32) {
        self.change.fill(0.0);
        for _ in 0..STEPS {
            self.chances(own);
            // The Hessian is a diagonal minus one outer product, and is inverted in closed form.
            let curve = cost * own;
            let (mut along, mut length) = (0.0_f32, 0.0_f32);
            for (route, step) in self.step.iter_mut().enumerate() {
                let chance = self.chance[route];
                let wanted = cost * (f32::from(u8::from(route == owner)) - chance) - votes[route] - self.change[route];
                let diagonal = 1.0 + curve * chance;
                *step = wanted / diagonal;
                along += chance * *step;
                length += chance * chance / diagonal;
            }
            let shift = curve * along / (1.0 - curve * length).max(1e-6);
            let mut largest = 0.0_f32;
            for (step, chance) in self.step.iter_mut().zip(&self.chance) {
                *step += shift * chance / (1.0 + curve * chance);
                largest = largest.max(step.abs());
            }
            let damped = (REACH / (largest * own).max(1e-6)).min(1.0);
            for (change, step) in self.change.iter_mut().zip(&self.step) {
                *change += damped * step;
            }
            if largest < SETTLED * cost {
                break;
            }
        }
    }

    /// Computes the probability of each route after the change.
    fn chances(&mut self, own: f32) {
        let mut top = NONE_OF_THEM;
        for ((chance, score), change) in self.chance.iter_mut().zip(&self.scores).zip(&self.change) {
            *chance = score + own * change;
            top = top.max(*chance);
        }
        let mut sum = (NONE_OF_THEM - top).exp();
        for chance in &mut self.chance {
            *chance = (*chance - top).exp();
            sum += *chance;
        }
        for chance in &mut self.chance {
            *chance /= sum;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// training ends with votes that are the cost times the missing certainty.
    #[test]
    fn votes_are_what_is_missing_to_certainty() {
        let (routes, owners) = (3, [0, 0, 1, 1, 2]);
        let costs = costs(routes, &owners, &[1.0; 5], 8.0);
        let places = [[1.0_f32, 0.0], [0.8, 0.6], [0.0, 1.0], [-0.6, 0.8], [-0.8, -0.6]];
        let near = |a: [f32; 2], b: [f32; 2]| a[0] * b[0] + a[1] * b[1];
        let gram: Vec<f32> = places.iter().flat_map(|a| places.iter().map(move |b| near(*a, *b))).collect();
        let votes = solve(routes, &owners, &costs, &gram);
        for (at, owner) in owners.iter().enumerate() {
            let score = |route: usize| (0..5).map(|to| votes[to * routes + route] * gram[at * 5 + to]).sum::<f32>();
            let all: f32 = (0..routes).map(|route| score(route).exp()).sum::<f32>() + NONE_OF_THEM.exp();
            for route in 0..routes {
                let missing = f32::from(u8::from(route == *owner)) - score(route).exp() / all;
                let difference = votes[at * routes + route] - costs[at] * missing;
                assert!(difference.abs() < 0.1, "{at} {route} {difference}");
            }
        }
    }

    /// a route does not become likelier by having more triggers than others.
    #[test]
    fn errors_on_routes_with_few_texts_are_dearer() {
        let costs = costs(2, &[0, 0, 0, 1], &[1.0; 4], 6.0);
        assert!((costs[0] - 4.0).abs() < 1e-6 && (costs[3] - 12.0).abs() < 1e-6, "{costs:?}");
    }

    /// a request without any evidence is none of the routes, however few they are.
    #[test]
    fn without_votes_it_is_none_of_them() {
        let mut block = Block::new(2);
        block.chances(1.0);
        assert!(block.chance.iter().sum::<f32>() < 0.1, "{:?}", block.chance);
    }

    #[test]
    fn texts_of_all_routes_take_turns() {
        assert_eq!(in_turns(&[0, 0, 0, 1, 2, 2]), [0, 3, 4, 1, 5, 2]);
    }
}
