//! `etude_find`: the document of a route, with its tools.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::broken;
use crate::catalog::{Catalog, Target};
use crate::schema;

/// Maximum number of applications' commands in one answer.
const MAX_COMMANDS: usize = 5;

/// Minimum length of a word that counts for the choice of commands, in characters.
const MIN_WORD: usize = 3;

/// Merges the routes of a request in these apps into one document. It is the route with the highest score, with the candidates of
/// all. It has the name and schema of the tool for each pipeline and machine, and the commands of applications that share words
/// with the request.
pub(crate) fn with_tools(mut routes: Vec<(&str, Value)>, catalog: &Catalog, request: &str) -> Value {
    let mut candidates: Vec<Value> = Vec::new();
    for (app, route) in &mut routes {
        for mut candidate in route["candidates"].as_array_mut().into_iter().flat_map(std::mem::take) {
            let target = candidate["name"].as_str().and_then(|name| catalog.routed(app, name));
            let tool = target.map(|target| target.name.as_str()).into();
            if let Some(members) = candidate.as_object_mut() {
                members.insert("tool".to_owned(), tool);
            }
            candidates.push(candidate);
        }
    }
    let has_others = routes.len() > 1;
    candidates.sort_by(|a, b| score(b).total_cmp(&score(a)));
    let surest = |(_, route): &(&str, Value)| (route["pipeline"].is_string(), score(route));
    let by_certainty = |(a, x): (bool, f64), (b, y): (bool, f64)| a.cmp(&b).then(x.total_cmp(&y));
    // The first of equal ones.
    let best = routes.into_iter().rev().max_by(|a, b| by_certainty(surest(a), surest(b)));
    let Some((app, mut document)) = best else { return json!({}) };
    let found = document["pipeline"].as_str().and_then(|name| catalog.routed(app, name)).cloned();
    if document["pipeline"].is_string() {
        // A tool that is not listed for the caller does not count.
        document["tool"] = found.as_ref().map(|target| target.name.as_str()).into();
    }
    if let Some(target) = found {
        document["description"] = target.description.as_str().into();
        document["input_schema"] = schema::inlined(&target.input);
    }
    if let [first, second, ..] = candidates.as_slice()
        && has_others
    {
        document["margin"] = (score(first) - score(second)).into();
    }
    document["candidates"] = candidates.into();
    if let (Some(notes), Some(note)) = (document["notes"].as_array_mut(), broken::note(&catalog.broken)) {
        notes.push(format!("not considered: {note}").into());
    }
    let commands = commands(catalog, request);
    if !commands.is_empty() {
        document["commands"] = commands.into();
    }
    document
}

/// The score of a route or a candidate, from 0 to 1.
fn score(value: &Value) -> f64 {
    value["score"].as_f64().unwrap_or_default()
}

/// The commands of applications that share words with the request, the best first.
fn commands(catalog: &Catalog, request: &str) -> Vec<Value> {
    let wanted = words(request);
    let shared = |target: &Target| {
        let own = words(&format!("{} {}", target.name, target.description));
        own.intersection(&wanted).count()
    };
    let of_applications = catalog.targets.iter().filter(|target| target.command.is_some());
    let mut fitting: Vec<(usize, &Target)> =
        of_applications.map(|target| (shared(target), target)).filter(|(count, _)| *count > 0).collect();
    // Equal ones stay in the order of the list.
    fitting.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
    let document = |target: &Target| {
        json!({
            "tool": target.name, "description": target.description, "input_schema": schema::inlined(&target.input),
        })
    };
    fitting.into_iter().take(MAX_COMMANDS).map(|(_, target)| document(target)).collect()
}

fn words(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| word.chars().count() >= MIN_WORD);
    // Every description of a command contains these words.
    let words = words.map(str::to_lowercase).filter(|word| !matches!(word.as_str(), "the" | "command" | "application"));
    words.collect()
}
