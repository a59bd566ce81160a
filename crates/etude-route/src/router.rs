//! Construction of the router.

use crate::exact::Exact;
use crate::features::features;
use crate::index::Index;
use crate::semantic::{Embedder, Semantic};
use crate::softmax;
use crate::spelling::Spelling;
use crate::text::tokens;
use crate::train::{Votes, train};
use crate::tuning::Tuning;

/// Maximum number of triggers per route in training. More of them teach nothing and would crowd out the other routes.
const TRIGGERS: usize = 200;

/// Entry of the routing table for one pipeline (`A-6.1`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// Name, unique in the table.
    pub name: String,
    /// Purpose of the pipeline. Data, never an instruction (`A-6.5`).
    pub description: String,
    /// Example requests for the pipeline.
    pub triggers: Vec<String>,
}

/// Routing table, indexed and trained. It is built once; decisions do not change it.
#[derive(Debug)]
pub struct Router {
    pub(crate) names: Vec<String>,
    /// True for routes without triggers.
    pub(crate) thin: Vec<bool>,
    pub(crate) exact: Exact,
    pub(crate) spelling: Spelling,
    pub(crate) index: Index,
    pub(crate) votes: Votes,
    pub(crate) semantic: Option<(Semantic, Votes)>,
    pub(crate) tuning: Tuning,
}

impl Router {
    /// Builds a router over words and letters.
    pub fn new(routes: &[Route]) -> Self {
        Self::build(routes, None)
    }

    /// Builds a router that also compares meanings. `embedder` is called once, for all texts of all routes. If its vectors
    /// are unusable (one is missing or of another length), the router is that of `new`.
    pub fn with_embeddings(routes: &[Route], embedder: &dyn Embedder) -> Self {
        Self::build(routes, Some(embedder))
    }

    fn build(routes: &[Route], embedder: Option<&dyn Embedder>) -> Self {
        let tuning = Tuning::default();
        let mut sorted: Vec<&Route> = routes.iter().collect();
        sorted.sort_by(|a, b| (&a.name, &a.description, &a.triggers).cmp(&(&b.name, &b.description, &b.triggers)));
        sorted.dedup_by(|later, first| later.name == first.name);
        let mut raw = Vec::new();
        let mut words = Vec::new();
        let mut owners = Vec::new();
        let mut plain = Vec::new();
        for (at, route) in sorted.iter().enumerate() {
            for (text, weight) in texts(route, &tuning) {
                let read = tokens(&text);
                raw.push((at as u32, weight, features(&read, &tuning)));
                words.extend(read);
                owners.push(at as u32);
                plain.push(text);
            }
        }
        let index = Index::new(sorted.len(), raw, &tuning);
        let semantic = embedder.and_then(|e| {
            let semantic = {
                let borrowed: Vec<&str> = plain.iter().map(String::as_str).collect();
                Semantic::new(sorted.len(), &owners, &e.embed(&borrowed))?
            };
            let votes = if softmax::takes(index.texts.len()) {
                softmax::train(sorted.len(), &index, &semantic, &tuning)
            } else {
                train(sorted.len(), &index, Some(&semantic), &tuning)
            };
            Some((semantic, votes))
        });
        let phrases = sorted.iter().enumerate().flat_map(|(at, route)| {
            route.triggers.iter().chain([&route.name]).map(move |phrase| (at as u32, tokens(phrase)))
        });
        Self {
            names: sorted.iter().map(|r| r.name.clone()).collect(),
            thin: sorted.iter().map(|r| r.triggers.iter().all(|t| t.trim().is_empty())).collect(),
            exact: Exact::new(phrases),
            spelling: Spelling::new(words.iter()),
            votes: train(sorted.len(), &index, None, &tuning),
            index,
            semantic,
            tuning,
        }
    }
}

/// Texts of a route for training, each once. A name is split into its words.
fn texts(route: &Route, tuning: &Tuning) -> Vec<(String, f32)> {
    let triggers = route.triggers.iter().take(TRIGGERS).map(|t| (t.clone(), 1.0));
    let about = [route.description.clone(), route.name.replace(['-', '_'], " ")].map(|t| (t, tuning.description));
    let mut found: Vec<(String, f32)> = Vec::new();
    for (text, weight) in triggers.chain(about) {
        if !text.trim().is_empty() && found.iter().all(|f| f.0 != text) {
            found.push((text, weight));
        }
    }
    found
}
