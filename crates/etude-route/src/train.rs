//! Training of one small classifier per route, on its own texts against the nearest texts of other routes.
//!
//! Each is a squared-hinge support vector machine in its dual form with a fixed threshold. A text that shares nothing with a
//! route scores -1 there without a computation. So the cost grows with the number of texts, not with texts times routes.

use std::num::NonZero;
use std::ops::Range;
use std::panic::resume_unwind;
use std::thread;

use crate::index::Index;
use crate::semantic::Semantic;
use crate::tuning::Tuning;

/// Maximum number of other routes that a text is trained against.
const RIVALS: usize = 12;
/// Number of features of a text for the search of its rivals, and number of texts of other routes that a route is trained
/// against. Large tables get less of both, so that their construction stays fast.
fn effort(routes: usize) -> (usize, usize) {
    match routes {
        0..=256 => (256, 128),
        257..=512 => (32, 64),
        _ => (16, 32),
    }
}

/// Result of training: for each text the routes that it supports (above zero) or opposes.
#[derive(Debug, Default)]
pub(crate) struct Votes {
    /// Start of the votes of each text; one more entry than there are texts.
    pub(crate) starts: Vec<u32>,
    /// Route and vote.
    pub(crate) all: Vec<(u32, f32)>,
}

impl Votes {
    pub(crate) fn new(lists: &[Vec<(u32, f32)>]) -> Self {
        let mut votes = Self { starts: vec![0], all: Vec::new() };
        for list in lists {
            votes.all.extend_from_slice(list);
            votes.starts.push(votes.all.len() as u32);
        }
        votes
    }

    /// Votes of the text `at`.
    pub(crate) fn of(&self, at: usize) -> &[(u32, f32)] {
        &self.all[self.starts[at] as usize..self.starts[at + 1] as usize]
    }
}

/// Trains all routes. Routes do not depend on each other, so that several threads give the same result as one.
pub(crate) fn train(routes: usize, index: &Index, semantic: Option<&Semantic>, tuning: &Tuning) -> Votes {
    let rows: Vec<Vec<(u32, f32)>> =
        in_parts(index.texts.len(), |part| rivals(routes, part, index, semantic, tuning)).concat();
    let mut own: Vec<Vec<u32>> = vec![Vec::new(); routes];
    let mut against: Vec<Vec<(f32, u32)>> = vec![Vec::new(); routes];
    for (at, text) in index.texts.iter().enumerate() {
        own[text.route as usize].push(at as u32);
        for (route, near) in &rows[at] {
            against[*route as usize].push((*near, at as u32));
        }
    }
    let trained = in_parts(routes, |part| {
        let mut heads = vec![NONE; index.features()];
        let mut found: Vec<(u32, u32, f32)> = Vec::new();
        for route in part {
            let mut against = against[route].clone();
            against.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
            let members: Vec<u32> =
                own[route].iter().copied().chain(against.iter().take(effort(routes).1).map(|(_, at)| *at)).collect();
            let gram = gram(&members, index, semantic, tuning, &mut heads);
            let problem = Problem::new(&members, own[route].len(), index, gram, tuning);
            for (place, alpha) in problem.solve(tuning.sweeps).into_iter().enumerate() {
                if alpha > 0.0 {
                    found.push((members[place], route as u32, alpha * problem.side(place)));
                }
            }
        }
        found
    });
    let mut votes: Vec<Vec<(u32, f32)>> = vec![Vec::new(); index.texts.len()];
    for (text, route, vote) in trained.into_iter().flatten() {
        votes[text as usize].push((route, vote));
    }
    Votes::new(&votes)
}

/// Minimum number of items per thread: fewer are not worth one.
const PARTED: usize = 128;

/// Runs `work` on equal parts of `0..count`, each on a thread of its own, and returns the results in order.
fn in_parts<T: Send>(count: usize, work: impl Fn(Range<usize>) -> T + Sync) -> Vec<T> {
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    let parts = (count / PARTED).clamp(1, cores);
    let part = |at: usize| count * at / parts..count * (at + 1) / parts;
    if parts == 1 {
        return vec![work(part(0))];
    }
    thread::scope(|scope| {
        let threads: Vec<_> = (1..parts)
            .map(|at| {
                scope.spawn({
                    let work = &work;
                    move || work(part(at))
                })
            })
            .collect();
        let first = work(part(0));
        let others = threads.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)));
        std::iter::once(first).chain(others).collect()
    })
}

/// Other routes that are close to each text. Only its most informative features are used: the rest would change the result
/// little and cost most of the time.
fn rivals(
    routes: usize,
    part: Range<usize>,
    index: &Index,
    semantic: Option<&Semantic>,
    tuning: &Tuning,
) -> Vec<Vec<(u32, f32)>> {
    let lexical = if semantic.is_some() { 1.0 - tuning.semantic } else { 1.0 };
    let mut similar = vec![0.0_f32; index.texts.len()];
    let mut best = vec![0.0_f32; routes];
    let mut touched = Vec::new();
    let mut forwarding = Vec::new();
    let mut found = Vec::with_capacity(part.len());
    for at in part {
        let text = &index.texts[at];
        forwarding.clear();
        forwarding.extend_from_slice(&text.entries);
        forwarding.sort_unstable_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        forwarding.truncate(effort(routes).0);
        for (id, value) in &forwarding {
            for (other, held) in index.holders(*id) {
                let place = &mut similar[*other as usize];
                if *place == 0.0 {
                    touched.push(*other);
                }
                *place += value * held;
            }
        }
        for other in touched.drain(..) {
            let place = &mut best[index.texts[other as usize].route as usize];
            *place = place.max(lexical * similar[other as usize]);
            similar[other as usize] = 0.0;
        }
        if let Some(semantic) = semantic {
            for (route, place) in best.iter_mut().enumerate() {
                *place += tuning.semantic * semantic.to_route(semantic.text(at), route).max(0.0);
            }
        }
        best[text.route as usize] = 0.0;
        found.push(largest(&best, 0.02, RIVALS));
        best.fill(0.0);
    }
    found
}

/// The `count` largest values above `floor`, largest first; among equals, earlier ones first.
pub(crate) fn largest(values: &[f32], floor: f32, count: usize) -> Vec<(u32, f32)> {
    let mut found: Vec<(u32, f32)> =
        values.iter().enumerate().filter(|(_, v)| **v > floor).map(|(at, v)| (at as u32, *v)).collect();
    let order = |a: &(u32, f32), b: &(u32, f32)| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0));
    if found.len() > count {
        found.select_nth_unstable_by(count, order);
        found.truncate(count);
    }
    found.sort_unstable_by(order);
    found
}

/// Missing index in a list.
pub(crate) const NONE: u32 = u32::MAX;

/// Similarities among the members of one problem, row by row. Each feature has a list of the members with it, so that only
/// shared features are visited. `heads` has `NONE` for every feature, before and after.
pub(crate) fn gram(
    members: &[u32],
    index: &Index,
    semantic: Option<&Semantic>,
    tuning: &Tuning,
    heads: &mut [u32],
) -> Vec<f32> {
    let size = members.len();
    let mut gram = vec![0.0_f32; size * size];
    let lexical = if semantic.is_some() { 1.0 - tuning.semantic } else { 1.0 };
    let mut nodes: Vec<(u32, f32, u32)> = Vec::new();
    for (place, at) in members.iter().enumerate() {
        let row = &mut gram[place * size..][..=place];
        for (id, value) in &index.texts[*at as usize].entries {
            nodes.push((place as u32, *value, heads[*id as usize]));
            let mut node = nodes.len() as u32 - 1;
            heads[*id as usize] = node;
            while node != NONE {
                let (other, held, next) = nodes[node as usize];
                row[other as usize] += lexical * value * held;
                node = next;
            }
        }
        if let Some(semantic) = semantic {
            for (value, to) in row.iter_mut().zip(members) {
                *value += tuning.semantic * semantic.between(*at as usize, *to as usize);
            }
        }
    }
    for at in members {
        for (id, _) in &index.texts[*at as usize].entries {
            heads[*id as usize] = NONE;
        }
    }
    for row in 0..size {
        for column in 0..row {
            gram[column * size + row] = gram[row * size + column];
        }
    }
    gram
}

struct Problem {
    own: usize,
    gram: Vec<f32>,
    /// Inverted and halved cost of an error: the ridge on the diagonal.
    slack: Vec<f32>,
}

impl Problem {
    fn new(members: &[u32], own: usize, index: &Index, gram: Vec<f32>, tuning: &Tuning) -> Self {
        let slack = members
            .iter()
            .enumerate()
            .map(|(place, at)| {
                let dear = if place < own { tuning.own } else { 1.0 };
                0.5 / (tuning.cost * dear * index.texts[*at as usize].weight)
            })
            .collect();
        Self { own, gram, slack }
    }

    fn side(&self, place: usize) -> f32 {
        if place < self.own { 1.0 } else { -1.0 }
    }

    /// Solves the problem by dual coordinate descent.
    fn solve(&self, sweeps: usize) -> Vec<f32> {
        let size = self.slack.len();
        let mut alpha = vec![0.0_f32; size];
        let mut score = vec![-1.0_f32; size];
        for _ in 0..sweeps {
            for at in 0..size {
                let side = self.side(at);
                let row = &self.gram[at * size..(at + 1) * size];
                let gradient = side * score[at] - 1.0 + self.slack[at] * alpha[at];
                let new = (alpha[at] - gradient / (row[at] + self.slack[at])).max(0.0);
                let change = (new - alpha[at]) * side;
                if change.abs() > 1e-6 {
                    alpha[at] = new;
                    for (score, similar) in score.iter_mut().zip(row) {
                        *score += change * similar;
                    }
                }
            }
        }
        alpha
    }
}
