//! Measures for the fit of the calibration, from many tables of many sizes.

use std::fmt::Write;

use etude_route::Route;

use crate::{Data, Vectors, build, decide};

/// Number of routes, number of triggers of each, number of tables.
const TABLES: [(usize, usize, usize); 17] = [
    (150, 5, 1),
    (150, 10, 1),
    (150, 3, 1),
    (150, 0, 1),
    (50, 5, 3),
    (50, 10, 2),
    (50, 3, 3),
    (50, 0, 2),
    (20, 5, 6),
    (20, 3, 6),
    (20, 10, 4),
    (20, 0, 4),
    (8, 5, 12),
    (8, 3, 12),
    (8, 10, 8),
    (8, 0, 8),
    (3, 4, 12),
];
/// Number of requests to each table: half in scope, a quarter of intents left out, a quarter out of scope.
const REQUESTS: usize = 400;

/// Table with one line per request: routes, triggers, kind (2 in scope, 1 left out, 0 out of scope), right, fit, lead,
/// nearest, central.
pub(crate) fn table(data: &Data, vectors: Option<&Vectors>) -> String {
    let mut names: Vec<&String> = data["train"].iter().map(|row| &row.1).collect();
    names.sort();
    names.dedup();
    let mut draw = Draw(12345);
    let mut out = String::new();
    for (size, shots, times) in TABLES {
        for _ in 0..times {
            let routes = routes(data, &names, size, shots, &mut draw);
            one(data, &routes, shots, vectors, &mut draw, &mut out);
        }
    }
    out
}

fn routes(data: &Data, names: &[&String], size: usize, shots: usize, draw: &mut Draw) -> Vec<Route> {
    let mut left = names.to_vec();
    let mut routes = Vec::new();
    while routes.len() < size {
        let name = left.swap_remove(draw.below(left.len()));
        let known: Vec<&String> = data["train"].iter().filter(|row| row.1 == *name).map(|row| &row.0).collect();
        let from = draw.below(known.len() - shots);
        routes.push(crate::route(name, known[from..from + shots].iter().map(|t| (*t).clone()).collect()));
    }
    routes
}

fn one(data: &Data, routes: &[Route], shots: usize, vectors: Option<&Vectors>, draw: &mut Draw, out: &mut String) {
    let router = build(routes, vectors);
    let known = |intent: &str| routes.iter().any(|route| route.name == intent);
    let (inside, others): (Vec<_>, Vec<_>) = data["val"].iter().partition(|row| known(&row.1));
    let foreign: Vec<_> = data["oos_val"].iter().chain(&data["oos_train"]).collect();
    for _ in 0..REQUESTS {
        let (pool, kind) = match draw.below(4) {
            0 | 1 => (&inside, 2),
            2 if !others.is_empty() => (&others, 1),
            _ => (&foreign, 0),
        };
        let (text, intent) = pool[draw.below(pool.len())];
        let decision = decide(&router, text, vectors);
        let right = u8::from(decision.candidates.first().is_some_and(|c| c.name == *intent));
        let s = decision.signals;
        let (size, fit, lead) = (routes.len(), s.fit, s.lead);
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{size} {shots} {kind} {right} {fit} {lead} {} {}", s.nearest, s.central);
    }
}

/// Pseudorandom numbers, the same in every run.
struct Draw(u64);

impl Draw {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit
    }
}
