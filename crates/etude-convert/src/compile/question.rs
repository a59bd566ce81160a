//! Llm steps: judgements with schema and validator, and rules that later steps require.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use etude_core::schema::type_of;
use regex::Regex;
use serde_json::{Map, Value, json};

use super::Pipeline;
use crate::statement::Statement;

/// A word in a code span: an alternative of a decision.
static WORD: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new("`([A-Za-z][A-Za-z0-9_-]{0,40})`").ok());

impl Pipeline<'_> {
    pub(super) fn judgement(
        &mut self,
        name: &str,
        statement: &Statement,
        (rules, required): (&[&Statement], &BTreeSet<String>),
        is_last: bool,
    ) -> Value {
        let outputs: Vec<&Value> = self.own.iter().filter_map(|case| case.output.as_ref()).collect();
        let schema = match is_last && !outputs.is_empty() {
            true => inferred(&outputs),
            false => decision(statement),
        };
        let mut prompt = format!("{{{{run.request}}}}\n\nDo this:\n{}", literal(&statement.text));
        if !rules.is_empty() {
            prompt.push_str("\n\nKeep these rules:");
            rules.iter().for_each(|rule| prompt.push_str(&format!("\n- {}", literal(&rule.text))));
        }
        self.add_facts(&mut prompt, required);
        let schema = self.file(format!("schemas/{name}.json"), format!("{schema:#}\n"));
        let validator = self.file(format!("steps/validate_{name}.py"), validator(name, statement, &outputs));
        json!({"name": name, "type": "llm", "prompt": prompt, "schema": schema, "validate": validator})
    }

    /// Step that asks if a rule or condition holds.
    pub(super) fn question(
        &mut self,
        name: &str,
        text: &str,
        statement: &Statement,
        required: &BTreeSet<String>,
    ) -> Value {
        let mut prompt = format!("{{{{run.request}}}}\n\nDo the facts below show that this holds?\n{}", literal(text));
        self.add_facts(&mut prompt, required);
        let schema = json!({
            "type": "object", "required": ["holds", "reason"], "additionalProperties": false,
            "properties": {
                "holds": {"enum": ["yes", "no", "unsure"], "description": "Whether the rule or condition holds."},
                "reason": {"type": "string", "minLength": 1, "description": "The facts that show it."},
            },
        });
        let schema = self.file(format!("schemas/{name}.json"), format!("{schema:#}\n"));
        let validator = self.file(format!("steps/validate_{name}.py"), validator(name, statement, &[]));
        json!({"name": name, "type": "llm", "prompt": prompt, "schema": schema, "validate": validator})
    }

    /// Adds the parameters and the outputs of earlier steps to a prompt.
    pub(super) fn add_facts(&self, prompt: &mut String, required: &BTreeSet<String>) {
        for name in required {
            prompt.push_str(&format!("\n\nThe parameter `{name}`: {{{{input.{name}}}}}"));
        }
        for step in &self.before {
            prompt.push_str(&format!("\n\nThe output of `{step}`:\n{{{{{step}.output}}}}"));
        }
    }
}

/// Text of the skill in a template: anything that looks like a reference stays text.
fn literal(text: &str) -> String {
    text.replace("{{", r"\{{")
}

/// Schema of a decision. Words in code spans are its alternatives, if there are at least two.
fn decision(statement: &Statement) -> Value {
    let found = WORD
        .as_ref()
        .map(|word| word.captures_iter(&statement.text).filter_map(|found| found.get(1)).map(|word| word.as_str()));
    let words: BTreeSet<&str> = found.into_iter().flatten().collect();
    let decision = match words.len() {
        0 | 1 => json!({"type": "string", "minLength": 1}),
        _ => json!({"enum": words}),
    };
    json!({
        "type": "object", "required": ["decision", "reason"], "additionalProperties": false,
        "properties": {"decision": decision, "reason": {"type": "string", "minLength": 1}},
    })
}

/// Schema that all of these values fit.
fn inferred(values: &[&Value]) -> Value {
    let types: BTreeSet<&str> = values.iter().copied().map(type_of).collect();
    let types: Vec<&str> = types.into_iter().collect();
    match types.as_slice() {
        ["object"] => {
            let objects: Vec<&Map<String, Value>> = values.iter().filter_map(|value| value.as_object()).collect();
            let mut properties = Map::new();
            for name in objects.iter().flat_map(|object| object.keys()) {
                if !properties.contains_key(name) {
                    let inner: Vec<&Value> = objects.iter().filter_map(|object| object.get(name)).collect();
                    properties.insert(name.clone(), inferred(&inner));
                }
            }
            let is_always = |name: &&String| objects.iter().all(|object| object.contains_key(*name));
            let required: Vec<&String> = properties.keys().filter(is_always).collect();
            json!({"type": "object", "required": required, "additionalProperties": false, "properties": properties})
        }
        ["array"] => {
            let items: Vec<&Value> = values.iter().filter_map(|value| value.as_array()).flatten().collect();
            if items.is_empty() {
                json!({"type": "array"})
            } else {
                json!({"type": "array", "items": inferred(&items)})
            }
        }
        ["integer", "number"] => json!({"type": "number"}),
        [only] => json!({"type": only}),
        several => json!({"type": several}),
    }
}

/// Validator of a completion: it refuses blank texts and repeated texts.
fn validator(name: &str, statement: &Statement, outputs: &[&Value]) -> String {
    let may_be_blank = outputs.iter().any(|output| has_blank(output));
    let may_repeat = outputs.iter().any(|output| repeats(output));
    let mut checks = String::new();
    if !may_be_blank {
        checks
            .push_str("    if any(not text.strip() for text in found):\n        errors.append(\"a text is blank\")\n");
    }
    if !may_repeat {
        checks.push_str(
            "    long = [text.strip().lower() for text in found if len(text) > 20]\n    if len(long) != len(set(long)):\n        errors.append(\"a text only repeats another one\")\n",
        );
    }
    // Cases with blank and repeated texts leave one check.
    if checks.is_empty() {
        checks.push_str("    if any(\"\\ufffd\" in text for text in found):\n        errors.append(\"a text has characters that could not be decoded\")\n");
    }
    VALIDATOR
        .replace("@NAME@", name)
        .replace("@ID@", &statement.id.to_string())
        .replace("@LINE@", &statement.line.to_string())
        .replace("@CHECKS@", &checks)
}

const VALIDATOR: &str = r#""""Checks completions of the step `@NAME@`: statement @ID@ of SKILL.md, line @LINE@."""
import json
import sys


def texts(value):
    """Every text in a value."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [text for item in value for text in texts(item)] if isinstance(value, list) else []


def check(found):
    """What is wrong with these texts."""
    errors = []
@CHECKS@    return errors


errors = check(texts(json.load(sys.stdin)["output"]))
print(json.dumps({"valid": not errors, "errors": errors}))
sys.exit(1 if errors else 0)
"#;

/// All texts in a value, also in arrays and objects, without the keys.
fn texts(value: &Value) -> Vec<&str> {
    match value {
        Value::String(text) => vec![text],
        Value::Array(items) => items.iter().flat_map(texts).collect(),
        Value::Object(members) => members.values().flat_map(texts).collect(),
        _ => Vec::new(),
    }
}

fn has_blank(value: &Value) -> bool {
    texts(value).iter().any(|text| text.trim().is_empty())
}

fn repeats(value: &Value) -> bool {
    let long: Vec<String> =
        texts(value).into_iter().filter(|text| text.len() > 20).map(|text| text.trim().to_lowercase()).collect();
    long.iter().collect::<BTreeSet<_>>().len() != long.len()
}
