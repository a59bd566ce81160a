//! Drafts of pipelines from a model: names, and the statements that become steps.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

/// Maximum number of pipelines, and of steps of a pipeline.
const MAX_PIPELINES: usize = 20;
const MAX_STEPS: usize = 100;

/// Pipeline that a model drafted. Its names are safe as names of directories, files and steps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Draft {
    /// Name, unique among the drafts.
    pub name: String,
    /// Prefix of the names of its skills: its name in the form of a skill's name, also unique among the drafts.
    pub skills: String,
    /// Purpose of the pipeline, on one line.
    pub description: String,
    /// Example requests, each on one line.
    pub triggers: Vec<String>,
    /// Steps in the order in which they run.
    pub steps: Vec<DraftStep>,
}

/// A step of a draft, which stands for one statement of the skill.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DraftStep {
    /// Name, unique in its pipeline.
    pub name: String,
    /// Id of the statement that the step is made from.
    pub statement: u32,
}

/// JSON Schema of the drafts (1.6).
pub fn schema() -> Value {
    let text = json!({"type": "string"});
    json!({
        "type": "object", "required": ["pipelines"], "additionalProperties": false,
        "properties": {"pipelines": {"type": "array", "items": {
            "type": "object", "required": ["name", "description", "triggers", "steps"], "additionalProperties": false,
            "properties": {
                "name": text, "description": text, "triggers": {"type": "array", "items": text},
                "steps": {"type": "array", "items": {
                    "type": "object", "required": ["name", "statement"], "additionalProperties": false,
                    "properties": {"name": text, "statement": {"type": "integer"}},
                }},
            },
        }}},
    })
}

/// The drafts in a value that fits the schema.
pub fn read(value: &Value) -> Vec<Draft> {
    let (mut names, mut skills) = (Names::default(), Names::default());
    let pipelines = value["pipelines"].as_array().into_iter().flatten().take(MAX_PIPELINES);
    pipelines
        .map(|pipeline| {
            let text = |name: &str| one_line(pipeline[name].as_str().unwrap_or_default());
            let triggers =
                pipeline["triggers"].as_array().into_iter().flatten().filter_map(Value::as_str).map(one_line);
            let description = text("description");
            let name = names.unique(&safe(&text("name"), "pipeline"));
            Draft {
                description: if description.is_empty() { name.replace('-', " ") } else { description },
                triggers: triggers.filter(|trigger| !trigger.is_empty()).take(MAX_PIPELINES).collect(),
                steps: steps(&pipeline["steps"]),
                skills: skills.unique(&of_skill(&name)),
                name,
            }
        })
        .collect()
}

fn steps(value: &Value) -> Vec<DraftStep> {
    let mut names = Names::new(&RESERVED);
    let steps = value.as_array().into_iter().flatten().take(MAX_STEPS);
    steps
        .map(|step| DraftStep {
            name: names.unique(&safe(step["name"].as_str().unwrap_or_default(), "step")),
            statement: step["statement"].as_u64().and_then(|id| u32::try_from(id).ok()).unwrap_or(0),
        })
        .collect()
}

/// Text as a name: letters, digits, `_` and `-`, with a letter first. `other` if no character is left.
pub fn safe(text: &str, other: &str) -> String {
    const MAX: usize = 60;
    let mut name = String::new();
    for c in text.chars() {
        match c {
            _ if c.is_ascii_alphanumeric() || c == '_' => name.push(c),
            _ if !name.is_empty() && !name.ends_with('-') => name.push('-'),
            _ => {}
        }
    }
    let name: String = name.trim_start_matches(|c: char| !c.is_ascii_alphabetic()).chars().take(MAX).collect();
    let name = name.trim_end_matches(['-', '_']);
    if name.is_empty() { other.to_owned() } else { name.to_owned() }
}

/// Safe name in the form of a skill's name (C-1.4): lower case, with `-` between its parts, and short enough to append a
/// number.
fn of_skill(name: &str) -> String {
    const MAX: usize = 50;
    let name: String = name.to_ascii_lowercase().replace('_', "-").chars().take(MAX).collect();
    let parts: Vec<&str> = name.split('-').filter(|part| !part.is_empty()).collect();
    parts.join("-")
}

/// Names that no step may have.
pub const RESERVED: [&str; 4] = ["input", "item", "index", "run"];

/// Set of names, each of which is given once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Names {
    taken: BTreeSet<String>,
    /// Number to try next, by name.
    next: BTreeMap<String, u64>,
}

impl Names {
    /// Set in which some names are already taken.
    pub fn new(taken: &[&str]) -> Self {
        Self { taken: taken.iter().map(|name| (*name).to_owned()).collect(), next: BTreeMap::new() }
    }

    /// Unused name: `name`, with a number if it is taken.
    pub fn free(&mut self, name: &str) -> String {
        if !self.taken.contains(name) {
            return name.to_owned();
        }
        let next = self.next.entry(name.to_owned()).or_insert(2);
        loop {
            let numbered = format!("{name}-{next}");
            if !self.taken.contains(&numbered) {
                return numbered;
            }
            *next += 1;
        }
    }

    /// Marks a name as taken, also if it was taken before.
    pub fn take(&mut self, name: &str) {
        self.taken.insert(name.to_owned());
    }

    /// Takes `name`, with a number if it is taken, and returns it.
    pub fn unique(&mut self, name: &str) -> String {
        let free = self.free(name);
        self.take(&free);
        free
    }
}

fn one_line(text: &str) -> String {
    const MAX: usize = 1_000;
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ").chars().filter(|c| !c.is_control()).take(MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// L-30, L-85: names from a model are made safe for files and steps, and are unique.
    #[test]
    fn names_of_a_model_are_made_safe() {
        let steps = json!([{"name": "Run it!", "statement": 2}, {"name": "input", "statement": 3}, {"name": "", "statement": -1}]);
        let pipeline =
            |name: &str| json!({"name": name, "description": "  A\n b ", "triggers": ["", "x\ny"], "steps": steps});
        let drafts = read(&json!({"pipelines": [pipeline("../../_Evil name"), pipeline("Evil name"), pipeline("…")]}));
        let names: Vec<&str> = drafts.iter().map(|draft| draft.name.as_str()).collect();
        assert_eq!(names, ["Evil-name", "Evil-name-2", "pipeline"]);
        assert_eq!(
            drafts.iter().map(|draft| draft.skills.as_str()).collect::<Vec<_>>(),
            ["evil-name", "evil-name-2", "pipeline"]
        );
        let steps: Vec<(&str, u32)> = drafts[0].steps.iter().map(|step| (step.name.as_str(), step.statement)).collect();
        assert_eq!(steps, [("Run-it", 2), ("input-2", 3), ("step", 0)]);
        assert_eq!((drafts[0].description.as_str(), drafts[0].triggers.as_slice()), ("A b", &["x y".to_owned()][..]));
    }
}
