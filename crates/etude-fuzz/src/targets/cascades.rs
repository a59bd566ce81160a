//! Skills as tools, and the small languages of their metadata.

use std::sync::Arc;

use etude_spec::cascade::search::{Cache, Catalog};
use etude_spec::cascade::{
    Compiler, Overrides, PathEntry, Roots, Scope, Skill, Strategy, arguments, check, directive, interpolate, overrides,
    path,
};
use etude_spec::source::{MemorySources, Sources};
use serde_json::{Value, json};

use super::definitions::diagnostics;
use super::{parts, text};
use crate::bundle;

/// A single directory in memory.
struct OneRoot(Arc<MemorySources>);

impl Roots for OneRoot {
    fn open(&self, dir: &str) -> Option<Arc<dyn Sources + Send + Sync>> {
        (dir == "/project").then(|| Arc::clone(&self.0) as Arc<dyn Sources + Send + Sync>)
    }

    fn module(&self, _path: &str) -> Result<Value, String> {
        Err("there are no modules here".to_owned())
    }
}

pub(super) fn cascade(data: &[u8]) {
    let text = text(data);
    let roots = OneRoot(Arc::new(bundle::sources(&text, "tool.skill.md")));
    let entries = [PathEntry::Dir { dir: ".".to_owned(), external: false }];
    let catalog = Catalog::search(&roots, "/project", &entries, &mut Cache::default());
    diagnostics(&catalog.diagnostics);
    let scope = Scope::new(json!({"cwd": "/project"}), Strategy::default(), Overrides::default(), "tool");
    let compiler = Compiler::new(&catalog, &scope);
    let all: Vec<Arc<Skill>> = catalog.list().into_iter().take(16).collect();
    let mut reported = Vec::new();
    for skill in &all {
        let (compiled, found) = compiler.compile(skill);
        diagnostics(&found);
        reported.extend(found);
        if let Some(compiled) = compiled {
            let mut sorted = compiled.chain.clone();
            sorted.sort();
            sorted.dedup();
            assert_eq!(sorted.len(), compiled.chain.len(), "an entry stands in a chain twice");
        }
    }
    assert_eq!(check(&catalog, &scope, &all), reported, "checking tells something else than compiling");
}

pub(super) fn interpolation(data: &[u8]) {
    let text = text(data);
    let parts = parts(&text);
    let given = parts[0];
    let json = parts.get(1).and_then(|part| serde_json::from_str::<Value>(part).ok());
    let context = json.clone().unwrap_or_else(|| json!({"a": {"b": [1, {"c": "x"}]}, "empty": ""}));
    let strategy = Strategy::default();
    interpolate::text(given, &context, &strategy);
    interpolate::value(&json!({ given: [given] }), &context, &strategy);
    for found in directive::parse(given) {
        assert!(given.get(found.range.clone()).is_some_and(|text| text.starts_with(':')), "{found:?}");
    }
    path::query(&context, given);
    let mut changed = context.clone();
    path::set(&mut changed, given, json!(1));
    path::remove(&mut changed, given);
    // A value must survive being printed and dropped, however long the path was.
    let printed = changed.to_string();
    assert!(printed.len() < 1 << 20 || text.len() > 1 << 10, "a short path made {} bytes", printed.len());
    let pairs: Vec<(String, String)> = given
        .split_whitespace()
        .take(50)
        .filter_map(|word| word.split_once('='))
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect();
    arguments::coerce(&pairs, None, json.as_ref());
    if let Ok((path, value)) = Overrides::pair(given) {
        let mut overrides = Overrides::default();
        overrides.local.push((path, value));
        overrides.apply(&mut changed, true);
    }
    overrides::parsed(given);
}
