//! `etude_find`: the document of a route, with the tools that it leads to.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::broken;
use crate::catalog::{Catalog, Target};
use crate::schema;

/// The commands of applications that one answer names.
const MAX_COMMANDS: usize = 5;

/// Shorter words of a request choose no command.
const MIN_WORD: usize = 3;

/// The document of a route in `app`, with the name and schema of the tool of each pipeline and machine that it names, and the commands
/// of applications whose words the request has. `app` is that of the route.
pub(crate) fn with_tools(mut document: Value, catalog: &Catalog, app: &str, request: &str) -> Value {
    let found = document["pipeline"].as_str().and_then(|name| catalog.routed(app, name)).cloned();
    if document["pipeline"].is_string() {
        // A tool that is not listed for the caller is none.
        document["tool"] = found.as_ref().map(|target| target.name.as_str()).into();
    }
    if let Some(target) = found {
        document["description"] = target.description.as_str().into();
        document["input_schema"] = schema::inlined(&target.input);
    }
    for candidate in document["candidates"].as_array_mut().into_iter().flatten() {
        let target = candidate["name"].as_str().and_then(|name| catalog.routed(app, name));
        let tool = target.map(|target| target.name.as_str()).into();
        if let Some(members) = candidate.as_object_mut() {
            members.insert("tool".to_owned(), tool);
        }
    }
    if let (Some(notes), Some(note)) = (document["notes"].as_array_mut(), broken::note(&catalog.broken)) {
        notes.push(format!("not considered: {note}").into());
    }
    let commands = commands(catalog, request);
    if !commands.is_empty() {
        document["commands"] = commands.into();
    }
    document
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
    // The order of the list among equals.
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
    // Each description of a command has these.
    let words = words.map(str::to_lowercase).filter(|word| !matches!(word.as_str(), "the" | "command" | "application"));
    words.collect()
}
