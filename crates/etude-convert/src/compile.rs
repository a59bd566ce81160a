//! From a draft to the files of a pipeline: commands become code steps, judgement becomes an llm step with schema and
//! validator, rules become questions that later steps require (1.6, L-86).

mod code;
mod question;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use crate::case::{self, Case};
use crate::command::{self, Command};
use crate::draft::Draft;
use crate::label::{Label, Labels};
use crate::skill::Skill;
use crate::statement::{Form, Statement};
use crate::yaml;

/// A file of the app that a conversion makes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    /// Its path below the app's directory.
    pub path: String,
    /// Its text.
    pub text: String,
}

/// How the stdout of code steps becomes their output. A script does not say which one it prints; its source suggests one, and
/// its cases decide.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stdout {
    /// As the sources of the scripts suggest.
    Suggested,
    /// An object with `output`, the protocol of code steps.
    Protocol,
    /// Any JSON value, which is the output.
    Json,
    /// Text, which is the output.
    Text,
}

impl Stdout {
    /// All of them, in the order in which cases try them.
    pub const ALL: [Self; 4] = [Self::Suggested, Self::Protocol, Self::Json, Self::Text];
}

/// What a pipeline is made from.
#[derive(Debug, Clone, Copy)]
pub struct Source<'a> {
    /// The skill.
    pub skill: &'a Skill,
    /// The labels of its statements.
    pub labels: &'a Labels,
    /// All cases.
    pub cases: &'a [Case],
}

/// A pipeline that was made from a draft.
#[derive(Debug, Clone, PartialEq)]
pub struct Compiled {
    /// Its name.
    pub name: String,
    /// What it does.
    pub description: String,
    /// Its description and triggers: the words in which users may ask for it.
    pub words: String,
    /// Its files.
    pub files: Vec<File>,
    /// The statements that code steps enforce, with the step.
    pub enforced: BTreeMap<u32, String>,
    /// The statements that a model is asked about, with the step.
    pub asked: BTreeMap<u32, String>,
    /// The parameters without which it does not run.
    pub required: BTreeSet<String>,
    /// The names of its llm steps, in order.
    pub questions: Vec<String>,
    /// Its last step is an llm step that judges: the output of a case is its completion.
    pub ends_with_judgement: bool,
}

/// What a step is made from.
enum Part<'a> {
    Code { statement: &'a Statement, command: Command },
    Judgement { statement: &'a Statement },
    Guard { statement: &'a Statement },
}

impl Part<'_> {
    fn statement(&self) -> &Statement {
        match self {
            Self::Code { statement, .. } | Self::Judgement { statement } | Self::Guard { statement } => statement,
        }
    }
}

/// Makes the files of a pipeline. `own` are the cases of this pipeline, whose outputs give judgements their form.
///
/// # Errors
/// Why the draft cannot be a pipeline, as sentences for a model.
pub fn compile(source: Source<'_>, draft: &Draft, own: &[&Case], stdout: Stdout) -> Result<Compiled, Vec<String>> {
    let parts = parts(source, draft)?;
    let mut pipeline =
        Pipeline { source, draft, own, stdout, files: Vec::new(), before: Vec::new(), guards: Vec::new() };
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
    let stated: BTreeSet<u32> = parts.iter().map(|(_, part)| part.statement().id).collect();
    let rules: Vec<&Statement> = rules(source, &stated);
    let mut steps = Vec::new();
    for (at, (name, part)) in parts.iter().enumerate() {
        let is_last = at + 1 == parts.len();
        let id = part.statement().id;
        match part {
            Part::Code { .. } => drop(compiled.enforced.insert(id, (*name).to_owned())),
            Part::Judgement { .. } | Part::Guard { .. } => {
                compiled.questions.push((*name).to_owned());
                compiled.asked.entry(id).or_insert_with(|| (*name).to_owned());
                for rule in rules.iter().filter(|_| matches!(part, Part::Judgement { .. })) {
                    compiled.asked.entry(rule.id).or_insert_with(|| (*name).to_owned());
                }
            }
        }
        steps.push(pipeline.step(name, part, (&rules, &compiled.required), is_last));
    }
    let text = yaml::text(&definition(draft, input, steps, !pipeline.guards.is_empty()));
    compiled.files = pipeline.files;
    compiled.files.insert(0, File { path: format!("pipelines/{}/pipeline.yaml", draft.name), text });
    Ok(compiled)
}

/// What each step of a draft is made from.
fn parts<'a>(source: Source<'a>, draft: &'a Draft) -> Result<Vec<(&'a str, Part<'a>)>, Vec<String>> {
    let values = case::values(source.cases);
    let (mut parts, mut faults) = (Vec::new(), Vec::new());
    for step in &draft.steps {
        let place = format!("pipeline `{}`, step `{}`", draft.name, step.name);
        let Some(statement) = source.skill.statement(step.statement) else {
            faults.push(format!("{place}: there is no statement {}", step.statement));
            continue;
        };
        let label = source.labels.get(&statement.id).copied().unwrap_or(Label::Background);
        let command = command::of_statement(source.skill, statement, &values);
        match (command, &statement.form) {
            (_, _) if !label.is_for_steps() => {
                faults.push(format!(
                    "{place}: statement {} is labelled `{}`, so it cannot be a step",
                    statement.id,
                    label.word()
                ));
            }
            (Some(command), _) => parts.push((step.name.as_str(), Part::Code { statement, command })),
            (None, Form::Code { .. } | Form::Heading | Form::Html) => {
                faults.push(format!("{place}: statement {} is neither a command nor a judgement", statement.id));
            }
            (None, _) if matches!(label, Label::Rule | Label::Condition) => {
                parts.push((step.name.as_str(), Part::Guard { statement }));
            }
            (None, _) => parts.push((step.name.as_str(), Part::Judgement { statement })),
        }
    }
    if draft.steps.is_empty() {
        faults.push(format!("pipeline `{}` has no steps", draft.name));
    }
    if faults.is_empty() { Ok(parts) } else { Err(faults) }
}

/// The rules and conditions that are no steps of their own: every judgement is asked to keep them.
fn rules<'a>(source: Source<'a>, stated: &BTreeSet<u32>) -> Vec<&'a Statement> {
    let is_rule = |s: &&Statement| {
        matches!(source.labels.get(&s.id), Some(Label::Rule | Label::Condition))
            && !stated.contains(&s.id)
            && !matches!(s.form, Form::Heading | Form::Html)
    };
    source.skill.statements.iter().filter(is_rule).collect()
}

/// The parameters: those of the commands, which are required, and those of the cases.
fn input(cases: &[Case], parts: &[(&str, Part<'_>)], required: &mut BTreeSet<String>) -> Map<String, Value> {
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
    for (_, part) in parts {
        if let Part::Code { command, .. } = part {
            for name in command.parameters.keys() {
                required.insert(name.clone());
                if let Some(declared) = input.get_mut(name).filter(|declared| declared.is_object()) {
                    declared["required"] = json!(true);
                }
                input.entry(name.clone()).or_insert_with(|| json!("string"));
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

/// A pipeline that is being made.
struct Pipeline<'a> {
    source: Source<'a>,
    draft: &'a Draft,
    own: &'a [&'a Case],
    stdout: Stdout,
    files: Vec<File>,
    /// The steps so far.
    before: Vec<String>,
    /// The steps whose completion must be `yes` before another step starts.
    guards: Vec<String>,
}

impl Pipeline<'_> {
    fn step(&mut self, name: &str, part: &Part<'_>, facts: (&[&Statement], &BTreeSet<String>), is_last: bool) -> Value {
        let mut step = match part {
            Part::Code { statement, command } => self.code(name, statement, command),
            Part::Judgement { statement } => self.judgement(name, statement, facts, is_last),
            Part::Guard { statement } => self.guard(name, statement, facts.1),
        };
        if !self.guards.is_empty() {
            let holds = |guard: &String| json!({"value": format!("{{{{{guard}.output.holds}}}}"), "equals": "yes"});
            step["require"] = self.guards.iter().map(holds).collect();
        }
        if matches!(part, Part::Guard { .. }) {
            self.guards.push(name.to_owned());
        }
        self.before.push(name.to_owned());
        step
    }

    /// Adds a file of the pipeline; its path in the definition.
    fn file(&mut self, path: String, text: String) -> Value {
        self.files.push(File { path: format!("pipelines/{}/{path}", self.draft.name), text });
        json!(path)
    }
}
