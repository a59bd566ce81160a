//! The `log` setting of a skill: the level, the scope and the reporter of its calls (D-10, D-16).

use serde_json::Value;

use crate::cascade::skill::Skill;
use crate::diagnose::cascade as diagnose;
use crate::diagnostic::Diagnostic;

/// Log levels, least important first.
pub const LEVELS: &[&str] = &["trace", "debug", "info", "warn", "error", "silent"];

/// Subjects of log lines; a chain may choose one.
pub const SCOPES: &[&str] = &["pipeline", "events", "tools", "agent"];

/// Reporters: one for each scope, limited to it, and one that writes JSON.
pub const REPORTERS: &[&str] = &["pipeline", "events", "tools", "agent", "json"];

/// Words of a `scope` value: a list, or a text with commas. `full` stands for everything.
pub fn scopes(value: &Value) -> Vec<String> {
    let texts: Vec<&str> = match value {
        Value::String(text) => text.split(',').collect(),
        Value::Array(items) => items.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    texts.into_iter().map(|word| word.trim().to_owned()).filter(|word| !word.is_empty()).collect()
}

/// Faults of a skill's own `log`, as warnings: a call ignores unknown words.
pub(super) fn faults(skill: &Skill) -> Vec<Diagnostic> {
    if skill.outline().is_some_and(|(mut keys, _)| !keys.any(|key| key == "log")) {
        return Vec::new();
    }
    let log = match skill.metadata().get("log") {
        None | Some(Value::Null) => return Vec::new(),
        Some(Value::Object(log)) => log,
        Some(value) if value.as_str().is_some_and(|text| text.contains("${")) => return Vec::new(),
        Some(_) => return vec![diagnose::log_shape(&skill.file, skill.place("/log"), &skill.name)],
    };
    let mut found = Vec::new();
    for (key, known) in [("level", LEVELS), ("scope", SCOPES), ("reporter", REPORTERS)] {
        let words = match log.get(key) {
            Some(value) if key == "scope" => scopes(value),
            Some(Value::String(word)) => vec![word.clone()],
            _ => continue,
        };
        let is_known = |word: &str| {
            let is_all = key == "scope" && word == "full";
            is_all || known.contains(&word) || word.contains("${")
        };
        for word in words.iter().filter(|word| !is_known(word)) {
            let at = skill.place(&format!("/log/{key}"));
            found.push(diagnose::log_word(&skill.file, at, &skill.name, key, word, known));
        }
    }
    found
}
