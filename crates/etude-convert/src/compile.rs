//! Compilation of a draft to the files of a pipeline (1.6, L-86, L-88). Commands become code steps, and judgement becomes an
//! llm step with schema and validator. Rules become questions that later steps require, and the rest of a path becomes a
//! skill step.

mod agent;
mod code;
mod parts;
mod question;
mod rules;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use crate::case::{self, Case};
use crate::draft::Draft;
use crate::label::Labels;
use crate::skill::Skill;
use crate::statement::Statement;
use crate::yaml;
use parts::{Part, Parts};
use rules::Rules;

/// File of the app that a conversion makes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    /// Its path below the app's directory.
    pub path: String,
    /// The content, byte for byte.
    pub text: String,
}

/// Rule by which the stdout of code steps becomes their output. A script does not say which one it needs: its source suggests
/// one, and its cases decide.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stdout {
    /// The rule that the sources of the scripts suggest.
    Suggested,
    /// An object with `output`, the protocol of code steps.
    Protocol,
    /// Any JSON value, which is the output.
    Json,
    /// Text, which is the output.
    Text,
}

impl Stdout {
    /// All rules, in the order in which cases try them.
    pub const ALL: [Self; 4] = [Self::Suggested, Self::Protocol, Self::Json, Self::Text];
}

/// Input of a compilation: the skill, its labels and the cases.
#[derive(Debug, Clone, Copy)]
pub struct Source<'a> {
    /// The parsed skill, whose files the pipeline's scripts come from.
    pub skill: &'a Skill,
    /// Labels of its statements.
    pub labels: &'a Labels,
    /// Cases of all pipelines of the conversion.
    pub cases: &'a [Case],
}

/// Pipeline that was compiled from a draft.
#[derive(Debug, Clone, PartialEq)]
pub struct Compiled {
    /// The name, which is that of the draft.
    pub name: String,
    /// The description, on one line.
    pub description: String,
    /// Its description and triggers: the words in which users may ask for it.
    pub words: String,
    /// Definition, scripts and schemas, each with its path below the app's directory.
    pub files: Vec<File>,
    /// Statements that code steps enforce, each with the name of the step.
    pub enforced: BTreeMap<u32, String>,
    /// Statements that a model is asked about, each with the name of the step.
    pub asked: BTreeMap<u32, String>,
    /// Parameters without which the pipeline does not run.
    pub required: BTreeSet<String>,
    /// Names of the steps that ask a model, in order.
    pub questions: Vec<String>,
    /// True if the last step is an llm step that judges: the output of a case is its completion.
    pub ends_with_judgement: bool,
}

/// Compiles a draft to the files of a pipeline. `own` are the cases of this pipeline, whose outputs give judgements their
/// form.
///
/// # Errors
/// The reasons why the draft cannot be a pipeline, as sentences for a model.
pub fn compile(source: Source<'_>, draft: &Draft, own: &[&Case], stdout: Stdout) -> Result<Compiled, Vec<String>> {
    let parts = Parts::of(source, draft)?;
    let mut pipeline =
        Pipeline { source, draft, own, stdout, files: Vec::new(), before: Vec::new(), guards: Vec::new(), skills: 0 };
    let mut compiled = Compiled {
        name: draft.name.clone(),
        description: draft.description.clone(),
        words: format!("{} {} {}", draft.name, draft.description, draft.triggers.join(" ")),
        files: Vec::new(),
        enforced: BTreeMap::new(),
        asked: BTreeMap::new(),
        required: BTreeSet::new(),
        questions: Vec::new(),
        ends_with_judgement: matches!(parts.last(), Some((_, Part::Judgement { .. }))),
    };
    let input = input(source.cases, &parts, &mut compiled.required);
    let stated: BTreeSet<u32> = parts.iter().flat_map(|(_, part)| part.ids()).collect();
    let rules = Rules::new(source, &stated);
    let mut steps = Vec::new();
    for (at, (name, part)) in parts.iter().enumerate() {
        let rules = match part {
            Part::Judgement { statement } => rules.of(&[*statement]),
            Part::Agent { statements } => rules.of(statements),
            Part::Code { .. } | Part::Guard { .. } | Part::When { .. } => Vec::new(),
        };
        note(&mut compiled, name, part, &rules);
        let is_last = at + 1 == parts.len();
        steps.push(pipeline.step(name, part, (&rules, &compiled.required), is_last));
    }
    let can_fall_back = steps.iter().any(|step: &Value| step.get("require").is_some());
    let text = yaml::text(&definition(draft, input, steps, can_fall_back));
    compiled.files = pipeline.files;
    compiled.files.insert(0, File { path: format!("pipelines/{}/pipeline.yaml", draft.name), text });
    Ok(compiled)
}

/// Notes the statements that a step enforces or asks about.
fn note(compiled: &mut Compiled, name: &str, part: &Part<'_>, rules: &[&Statement]) {
    match part {
        Part::Code { is_all: true, .. } => {
            compiled.enforced.extend(part.ids().into_iter().map(|id| (id, name.to_owned())));
        }
        Part::Code { is_all: false, .. } => {}
        Part::Judgement { .. } | Part::Agent { .. } | Part::Guard { .. } | Part::When { .. } => {
            compiled.questions.push(name.to_owned());
            // A command that runs under a condition is not a question itself.
            let own = if matches!(part, Part::When { .. }) { Vec::new() } else { part.ids() };
            for id in own.into_iter().chain(rules.iter().map(|rule| rule.id)) {
                compiled.asked.entry(id).or_insert_with(|| name.to_owned());
            }
        }
    }
}

/// Input of the pipeline: parameters of the commands, which are required, and of the cases.
fn input(cases: &[Case], parts: &[(String, Part<'_>)], required: &mut BTreeSet<String>) -> Map<String, Value> {
    let mut input = Map::new();
    for (name, types, is_always) in case::parameters(cases) {
        let declared = match types.as_slice() {
            [only] if *only != "null" => json!(only),
            _ => json!({}),
        };
        if is_always {
            required.insert(name.clone());
        }
        let declared = match declared {
            Value::String(word) if !is_always => json!({"type": word, "required": false}),
            Value::Object(_) => json!({"required": is_always}),
            declared => declared,
        };
        input.insert(name, declared);
    }
    let of_cases: BTreeSet<String> = input.keys().cloned().collect();
    for (_, part) in parts {
        if let Part::Code { command, .. } = part {
            let may_be_missing = |name: &String| command.optional.contains(name) || command.defaults.contains_key(name);
            for name in command.parameters.keys().filter(|name| !may_be_missing(name)) {
                required.insert(name.clone());
                if let Some(declared) = input.get_mut(name).filter(|declared| declared.is_object()) {
                    declared["required"] = json!(true);
                }
                input.entry(name.clone()).or_insert_with(|| json!("string"));
            }
        }
    }
    for (_, part) in parts {
        if let Part::Code { command, .. } = part {
            for (name, file) in &command.defaults {
                let declared = input.entry(name.clone()).or_insert(Value::Null);
                // A case may have the parameter as well, and may leave it out.
                if declared.is_null() || *declared == json!({"type": "string", "required": false}) {
                    *declared = json!({"type": "string", "default": file});
                }
            }
            for name in &command.optional {
                input.entry(name.clone()).or_insert_with(|| json!({"type": "string", "default": ""}));
            }
            for (name, words) in command.choices.iter().filter(|(name, _)| !of_cases.contains(*name)) {
                let declared = input.entry(name.clone()).or_insert(Value::Null);
                let chosen = json!({"type": "string", "enum": words});
                // Another command has other words for the parameter.
                let is_other = declared.is_object() && *declared != chosen;
                *declared = if words.is_empty() || is_other { json!("string") } else { chosen };
            }
        }
    }
    input
}

fn definition(draft: &Draft, input: Map<String, Value>, steps: Vec<Value>, is_guarded: bool) -> Value {
    let mut definition = Map::new();
    let mut add = |name: &str, value: Value| definition.insert(name.to_owned(), value);
    add("name", json!(draft.name));
    add("description", json!(draft.description));
    if !draft.triggers.is_empty() {
        add("triggers", json!(draft.triggers));
    }
    if is_guarded {
        add("fallback", json!("skill"));
    }
    if !input.is_empty() {
        add("input", Value::Object(input));
    }
    add("steps", Value::Array(steps));
    Value::Object(definition)
}

/// Pipeline under construction.
struct Pipeline<'a> {
    source: Source<'a>,
    draft: &'a Draft,
    own: &'a [&'a Case],
    stdout: Stdout,
    files: Vec<File>,
    /// Names of the steps so far.
    before: Vec<String>,
    /// Names of the steps whose completion must be `yes` before another step starts.
    guards: Vec<String>,
    /// Number in the name of its last skill.
    skills: usize,
}

impl Pipeline<'_> {
    fn step(&mut self, name: &str, part: &Part<'_>, facts: (&[&Statement], &BTreeSet<String>), is_last: bool) -> Value {
        let mut step = match part {
            Part::Code { statements, command, .. } => self.code(name, statements, command),
            Part::When { text, statement } => self.question(name, text, statement, facts.1),
            Part::Agent { statements } => self.agent(name, statements, facts),
            Part::Judgement { statement } => self.judgement(name, statement, facts, is_last),
            Part::Guard { statement } => self.question(name, &statement.text, statement, facts.1),
        };
        let holds = |question: &String| format!("{{{{{question}.output.holds}}}}");
        let mut required: Vec<Value> =
            self.guards.iter().map(|guard| json!({"value": holds(guard), "equals": "yes"})).collect();
        if let Part::Code { when: Some(question), .. } = part {
            step["when"] = json!({"value": holds(question), "not_equals": "no"});
            required.push(json!({"value": holds(question), "equals": "yes"}));
        }
        if !required.is_empty() {
            step["require"] = Value::Array(required);
        }
        if matches!(part, Part::Guard { .. }) {
            self.guards.push(name.to_owned());
        }
        self.before.push(name.to_owned());
        step
    }

    /// Adds a file of the pipeline; returns its path in the definition.
    fn file(&mut self, path: String, text: String) -> Value {
        self.files.push(File { path: format!("pipelines/{}/{path}", self.draft.name), text });
        json!(path)
    }
}
