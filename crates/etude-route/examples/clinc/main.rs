//! Measures the router on CLINC150 (the public repository `clinc/oos-eval`, `data/data_full.json`).
//!
//! `cargo run -p etude-route --release --example clinc -- data_full.json [--vectors FILE] [--signals FILE]`
//!
//! The first 5 and 10 phrases of each intent in the train part are its triggers, its name is the description. `FILE` of
//! `--vectors` is the output of `bench/routing/minilm.py`; without it the router has words and letters alone. `--signals`
//! writes the measures of many small tables for `bench/routing/calibrate.py` instead of measuring.

mod signals;

use std::collections::BTreeMap;
use std::error::Error;
use std::time::Instant;

use etude_route::{Decision, Embedder, Route, Router, Verdict};

/// Requests with their intents, by part.
type Data = BTreeMap<String, Vec<(String, String)>>;

/// Vectors by text.
struct Vectors(BTreeMap<String, Vec<f32>>);

impl Embedder for Vectors {
    fn embed(&self, texts: &[&str]) -> Vec<Vec<f32>> {
        texts.iter().map(|text| self.0.get(*text).cloned().unwrap_or_default()).collect()
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let option = |name: &str| arguments.iter().position(|a| a == name).and_then(|at| arguments.get(at + 1));
    let path = arguments.first().ok_or("the path of data_full.json is missing")?;
    let data: Data = serde_json::from_str(&std::fs::read_to_string(path)?)?;
    let vectors = option("--vectors").map(|path| read_vectors(path)).transpose()?;
    if let Some(path) = option("--signals") {
        std::fs::write(path, signals::table(&data, vectors.as_ref()))?;
        return Ok(());
    }
    println!("| phrases | part | forced choice | with rejection | out-of-scope recall | AUROC | p50 | p99 | build |");
    println!("|---|---|---|---|---|---|---|---|---|");
    for shots in [5, 10] {
        for part in ["val", "test"] {
            measure(&data, shots, part, vectors.as_ref());
        }
    }
    many(&data);
    Ok(())
}

/// Reads the output file of `minilm.py`.
fn read_vectors(path: &str) -> Result<Vectors, Box<dyn Error>> {
    let raw = std::fs::read(path)?;
    let mut at = 0;
    let mut take = |size: usize| -> Result<&[u8], Box<dyn Error>> {
        let piece = raw.get(at..at + size).ok_or("the vector file ends too early")?;
        at += size;
        Ok(piece)
    };
    let number = |bytes: &[u8]| bytes.iter().rev().fold(0_usize, |sum, byte| sum << 8 | usize::from(*byte));
    let (count, width) = (number(take(4)?), number(take(4)?));
    let mut found = BTreeMap::new();
    for _ in 0..count {
        let size = number(take(4)?);
        let text = String::from_utf8(take(size)?.to_vec())?;
        let values = take(4 * width)?.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]));
        found.insert(text, values.collect());
    }
    Ok(Vectors(found))
}

fn build(routes: &[Route], vectors: Option<&Vectors>) -> Router {
    vectors.map_or_else(|| Router::new(routes), |vectors| Router::with_embeddings(routes, vectors))
}

fn decide(router: &Router, request: &str, vectors: Option<&Vectors>) -> Decision {
    let vector = vectors.and_then(|v| v.0.get(request)).map_or(&[][..], Vec::as_slice);
    router.decide_with_vector(request, vector)
}

fn measure(data: &Data, shots: usize, part: &str, vectors: Option<&Vectors>) {
    let mut phrases: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (text, intent) in &data["train"] {
        let known = phrases.entry(intent).or_default();
        if known.len() < shots {
            known.push(text.clone());
        }
    }
    let routes: Vec<Route> = phrases.into_iter().map(|(name, triggers)| route(name, triggers)).collect();
    let start = busy();
    let router = build(&routes, vectors);
    let built = busy() - start;
    let (mut inside, mut outside, mut times) = (Vec::new(), Vec::new(), Vec::new());
    let (mut forced, mut kept, mut caught) = (0, 0, 0);
    for (text, intent) in &data[part] {
        let decision = decide(&router, text, vectors);
        times.push(best_of_three(|| decide(&router, text, vectors)));
        forced += usize::from(decision.candidates.first().is_some_and(|c| c.name == *intent));
        kept += usize::from(decision.best.as_ref() == Some(intent));
        inside.push(decision.score);
    }
    for (text, _) in &data[&format!("oos_{part}")] {
        let decision = decide(&router, text, vectors);
        caught += usize::from(decision.verdict == Verdict::Rejected);
        outside.push(decision.score);
    }
    times.sort_by(f64::total_cmp);
    let share = |part: usize, all: usize| 100.0 * part as f64 / all as f64;
    println!(
        "| {shots} | {part} | {:.1} % | {:.1} % | {:.1} % | {:.3} | {:.0} µs | {:.0} µs | {:.0} ms |",
        share(forced, inside.len()),
        share(kept, inside.len()),
        share(caught, outside.len()),
        auroc(&inside, &outside),
        times[times.len() / 2],
        times[times.len() * 99 / 100],
        built * 1e3,
    );
}

fn route(name: &str, triggers: Vec<String>) -> Route {
    Route { name: name.to_owned(), description: name.replace('_', " "), triggers }
}

/// Measures a thousand routes of ten triggers: the train part in slices, seven routes an intent, so that all are close to
/// others.
fn many(data: &Data) {
    let mut slices: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    for (text, intent) in &data["train"] {
        let count = seen.entry(intent).or_default();
        if *count < 70 {
            slices.entry(format!("{intent}_{}", *count / 10)).or_default().push(text.clone());
        }
        *count += 1;
    }
    let routes: Vec<Route> = slices.into_iter().take(1000).map(|(name, triggers)| route(&name, triggers)).collect();
    let mut built = f64::INFINITY;
    let mut router = Router::new(&[]);
    for _ in 0..5 {
        let start = busy();
        router = Router::new(&routes);
        built = built.min(busy() - start);
    }
    let mut times: Vec<f64> = Vec::new();
    for (text, _) in &data["val"] {
        times.push(best_of_three(|| router.decide(text)));
    }
    times.sort_by(f64::total_cmp);
    let (half, most) = (times[times.len() / 2], times[times.len() * 99 / 100]);
    println!("\n{} routes of 10: build {:.0} ms, p50 {half:.0} µs, p99 {most:.0} µs", routes.len(), built * 1e3);
}

/// Microseconds of the fastest of three calls, which reduces the effect of other load.
fn best_of_three(call: impl Fn() -> Decision) -> f64 {
    let time = || {
        let start = Instant::now();
        std::hint::black_box(call());
        start.elapsed().as_secs_f64() * 1e6
    };
    time().min(time()).min(time())
}

/// Seconds of processor time of this program, if the system reports it, so that other load does not count.
fn busy() -> f64 {
    let spent = std::fs::read_to_string("/proc/self/schedstat").ok();
    let spent = spent.and_then(|text| text.split(' ').next()?.parse::<f64>().ok());
    spent.map_or_else(|| START.with(|start| start.elapsed().as_secs_f64()), |nanos| nanos / 1e9)
}

thread_local! {
    static START: Instant = Instant::now();
}

/// Probability that a request in scope scores above one out of scope.
fn auroc(inside: &[f64], outside: &[f64]) -> f64 {
    let above = |a: f64, b: f64| {
        if a > b {
            1.0
        } else if a < b {
            0.0
        } else {
            0.5
        }
    };
    let sum: f64 = inside.iter().flat_map(|a| outside.iter().map(move |b| above(*a, *b))).sum();
    sum / (inside.len() * outside.len()) as f64
}
