//! Workflows in the form of GitHub Actions: each job is a pipeline of its `run` steps. Several jobs are one pipeline that
//! runs them in the order of `needs`.

mod inputs;
mod texts;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use etude_spec::yaml::{Entries, Node};
use regex::Regex;
use serde_json::{Map, Value, json};

use super::order::{Dependent, after_failure, in_order, independent};
use super::shell::{Provider, STEP, Script, Variables, literal, place};
use super::{Building, Document, Imported, SCHEDULE, after, is_name, stem, text_of};
use crate::command::words::{Quotes, divided};

/// An expression of a workflow: `${{ … }}`.
static EXPRESSION: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"(?s)\$\{\{\s*(.*?)\s*\}\}").ok());

const ROOT: [&str; 6] = ["name", "run-name", "on", "env", "jobs", "permissions"];

/// Fields of a workflow that decide about the meaning of its steps.
const GUARDS: [&str; 1] = ["defaults"];

/// Variables that GitHub's runner sets.
const RUNNER: Provider =
    Provider { name: "GitHub Actions", prefixes: &["GITHUB_", "RUNNER_", "ACTIONS_"], words: &["CI"] };

/// Fields of a job that do not change what its commands do on another machine.
const JOB: [&str; 7] = ["name", "runs-on", "steps", "needs", "env", "permissions", "timeout-minutes"];

/// Fields of a step that have an equivalent.
const STEP_FIELDS: [&str; 7] = ["name", "id", "run", "env", "shell", "working-directory", "timeout-minutes"];

struct Workflow<'d> {
    document: &'d Document,
    /// Inputs as parameters.
    inputs: Map<String, Value>,
    env: Variables,
}

/// Settings that the steps of a job share.
struct Job {
    env: Variables,
    /// True if the runner has Windows, where the default shell is PowerShell.
    is_windows: bool,
}

pub(super) fn file(imported: &mut Imported, path: &str, text: &str) {
    let document = Document::new(path, text);
    document.read(imported, |imported, root| {
        if document.guarded(imported, root, |name| GUARDS.contains(&name)) {
            return;
        }
        document.unknown(imported, root, &ROOT, "");
        let mut workflow = Workflow { document: &document, inputs: Map::new(), env: Variables::default() };
        workflow.triggers(imported, root);
        workflow.env = workflow.common(imported, Variables::default(), root.get("env"));
        let title = root.get("name").and_then(text_of).unwrap_or_else(|| stem(path).to_owned());
        let jobs = jobs(imported, &document, root);
        let mut made: Vec<(String, String)> = Vec::new();
        // Jobs that were imported whole.
        let mut known = BTreeSet::new();
        for (key, job) in sorted(imported, &document, jobs) {
            let id = key.as_text().unwrap_or_default();
            let line = document.line(key);
            let lost = needs(job).into_iter().find(|need| !known.contains(need));
            let lost = lost.map(|lost| match made.iter().any(|(id, _)| *id == lost) {
                true => format!("it needs `{lost}`, which was imported only in part"),
                false => format!("it needs `{lost}`, which was not imported"),
            });
            if let Some(reason) = lost.or_else(|| imported.has_room().err()) {
                imported.find(path, line, format!("job `{id}`"), reason);
                continue;
            }
            let name = if jobs.len() == 1 { stem(path).to_owned() } else { format!("{}-{id}", stem(path)) };
            let name = imported.free(&name);
            let mut building = Building::new(name.clone(), &format!("{title}: {id}"));
            building.input.clone_from(&workflow.inputs);
            let is_whole = workflow.job(imported, &mut building, (key, job));
            if !building.steps.is_empty() && imported.add(building, path) {
                made.push((id.to_owned(), name));
                if is_whole {
                    known.insert(id.to_owned());
                }
            }
        }
        if made.len() > 1 {
            let name = imported.free(stem(path));
            let all = Building { input: workflow.inputs.clone(), ..Building::new(name, &title) };
            match together(all, &made) {
                Ok(all) => drop(imported.add(all, path)),
                Err(reason) => imported.find(path, 1, "the pipeline of all jobs", reason),
            }
        }
    });
}

/// Jobs of a workflow. Their absence is a finding.
fn jobs<'n, 's>(imported: &mut Imported, document: &Document, root: &'n Entries<'s>) -> &'n [(Node<'s>, Node<'s>)] {
    let Some((key, node)) = root.entry("jobs") else {
        imported.find(document.file.path(), 1, "the workflow", "it has no `jobs`");
        return &[];
    };
    let reason = match node.as_map() {
        Some(jobs) if jobs.0.is_empty() => "it has no job",
        Some(jobs) => return &jobs.0,
        None => "it is not a mapping",
    };
    imported.find(document.file.path(), document.line(key), "`jobs`", reason);
    &[]
}

/// Pipeline that runs the pipelines of the jobs, with their input.
///
/// # Errors
/// The pipeline would have too many bytes: the reason.
fn together(mut all: Building, made: &[(String, String)]) -> Result<Building, String> {
    let input: Map<String, Value> =
        all.input.keys().map(|name| (name.clone(), json!(format!("{{{{input.{name}}}}}")))).collect();
    let bytes: usize = input.keys().map(|name| 2 * name.len() + STEP).sum();
    for (id, pipeline) in made {
        all.charge(bytes + STEP)?;
        let step = all.step_name(id);
        let mut step = json!({"name": step, "type": "pipeline", "pipeline": pipeline});
        if !input.is_empty() {
            step["input"] = json!(input);
        }
        all.steps.push(step);
    }
    Ok(all)
}

fn needs(job: &Node<'_>) -> Vec<String> {
    let node = job.as_map().and_then(|job| job.get("needs"));
    match node.and_then(Node::as_seq) {
        Some(items) => items.iter().filter_map(text_of).collect(),
        None => node.and_then(text_of).into_iter().collect(),
    }
}

/// Jobs in the order of `needs`. Jobs that need each other are findings.
fn sorted<'n, 's>(
    imported: &mut Imported,
    document: &Document,
    jobs: &'n [(Node<'s>, Node<'s>)],
) -> Vec<&'n (Node<'s>, Node<'s>)> {
    let ids: BTreeSet<&str> = jobs.iter().filter_map(|(key, _)| key.as_text()).collect();
    let dependent = |(key, job): &(Node<'_>, Node<'_>)| {
        // A missing job is a finding of its own.
        let needs = needs(job).into_iter().filter(|name| ids.contains(name.as_str())).collect();
        Dependent { names: key.as_text().map(str::to_owned).into_iter().collect(), needs }
    };
    let items: Vec<Dependent> = jobs.iter().map(dependent).collect();
    let (done, left) = in_order(&items);
    if let Some((before, item)) = independent(&items, &done) {
        let names = [before, item].map(|index| jobs[index].0.as_text().unwrap_or_default());
        let line = document.line(&jobs[item].0);
        imported.find(document.file.path(), line, "the order of the jobs", after_failure(names));
    }
    for (key, _) in left.into_iter().map(|index| &jobs[index]) {
        let what = format!("job `{}`", key.as_text().unwrap_or_default());
        imported.find(document.file.path(), document.line(key), what, "it is part of a dependency cycle");
    }
    done.into_iter().map(|index| &jobs[index]).collect()
}

impl Workflow<'_> {
    /// Reads the inputs of manual and reusable workflows; other triggers are findings.
    fn triggers(&mut self, imported: &mut Imported, root: &Entries<'_>) {
        let Some((key, on)) = root.entry("on") else { return };
        let path = self.document.file.path();
        for (event, node) in on.as_map().map(|map| map.0.as_slice()).unwrap_or_default() {
            let name = event.as_text().unwrap_or_default();
            match name {
                "workflow_dispatch" | "workflow_call" => self.inputs(imported, name, node),
                "schedule" => imported.find(path, self.document.line(event), "trigger `schedule`", SCHEDULE),
                _ => imported.find(
                    path,
                    self.document.line(event),
                    format!("trigger `{name}`"),
                    "declare a webhook in `etude.yaml` under `webhooks`",
                ),
            }
        }
        let words = match on.as_seq() {
            Some(items) => items.iter().filter_map(text_of).collect(),
            None => text_of(on).into_iter().collect::<Vec<_>>(),
        };
        for word in words.iter().filter(|word| !["workflow_dispatch", "workflow_call"].contains(&word.as_str())) {
            imported.find(
                path,
                self.document.line(key),
                format!("trigger `{word}`"),
                "declare a webhook in `etude.yaml` under `webhooks`",
            );
        }
    }

    /// Variables `known`, with those of a workflow or a job added. A variable without an equivalent is a finding, and is
    /// dropped.
    fn common(&self, imported: &mut Imported, mut known: Variables, node: Option<&Node<'_>>) -> Variables {
        for (line, name, value) in self.variables(node) {
            match value {
                Ok(value) => known.set(&name, value),
                Err(reason) => {
                    known.drop(&name);
                    imported.find(self.document.file.path(), line, format!("variable `{name}`"), reason);
                }
            }
        }
        known
    }

    /// Mapping of variables: line, name and value of each. The error is the reason why a value has no equivalent.
    fn variables(&self, node: Option<&Node<'_>>) -> Vec<(u32, String, Result<Value, String>)> {
        let entries = match node {
            Some(node) if node.as_map().is_none() && node.to_json().is_ok_and(|json| json != "null") => {
                return vec![(self.document.line(node), "env".to_owned(), Err("it is not a mapping".to_owned()))];
            }
            node => node.and_then(Node::as_map).map(|map| map.0.as_slice()).unwrap_or_default(),
        };
        let read = |(key, value): &(Node<'_>, Node<'_>)| {
            let value = text_of(value).ok_or_else(|| "its value is not text".to_owned());
            let value = value.and_then(|text| self.value(&text));
            (self.document.line(key), key.as_text().unwrap_or_default().to_owned(), value)
        };
        entries.iter().map(read).collect()
    }

    /// Value of a variable: text, a parameter, or a secret from the environment.
    fn value(&self, text: &str) -> Result<Value, String> {
        let Some(found) = EXPRESSION.as_ref().and_then(|pattern| pattern.captures(text)) else {
            return Ok(literal(text));
        };
        let (all, inner) = (found.get(0), found.get(1).map_or("", |inner| inner.as_str()));
        let is_whole = all.is_some_and(|all| all.as_str() == text.trim());
        match (inner.strip_prefix("secrets."), input(inner)) {
            (Some(secret), _) if is_whole && is_name(secret) => Ok(json!({"from_env": secret})),
            (_, Some(name)) if is_whole && self.inputs.contains_key(&name) => {
                Ok(json!(format!("{{{{input.{name}}}}}")))
            }
            _ => Err(format!("the expression `{inner}` has no equivalent")),
        }
    }

    /// Adds the steps of a job, up to the first one without an equivalent whose failure would end the job. False if there is
    /// such a step, or no step at all.
    fn job(&self, imported: &mut Imported, building: &mut Building, (key, node): (&Node<'_>, &Node<'_>)) -> bool {
        let id = key.as_text().unwrap_or_default();
        let (path, line, what) = (self.document.file.path(), self.document.line(key), format!("job `{id}`"));
        let Some(job) = node.as_map() else {
            imported.find(path, line, what, "it is not a mapping");
            return false;
        };
        // Conditions, matrices, containers and reusable workflows decide about the meaning of the commands.
        let other = job.0.iter().filter_map(|(key, _)| key.as_text()).find(|name| !JOB.contains(name));
        if let Some(other) = other {
            imported.find(path, line, what, format!("`{other}` has no equivalent"));
            return false;
        }
        if let Some((key, _)) = job.entry("timeout-minutes") {
            let reason = "a pipeline has no time limit; set `timeout` in its steps";
            imported.find(path, self.document.line(key), format!("`timeout-minutes` of {what}"), reason);
        }
        let runner = job.get("runs-on").and_then(|node| node.to_json().ok()).unwrap_or_default();
        let common = Job {
            env: self.common(imported, self.env.clone(), job.get("env")),
            is_windows: runner.to_ascii_lowercase().contains("windows"),
        };
        let mut lost: Option<String> = None;
        for node in job.get("steps").and_then(Node::as_seq).into_iter().flatten() {
            let title = title(node);
            let done = match &lost {
                Some(lost) => Err(after(lost)),
                None => self.step(building, node, &common, &title),
            };
            if let Err(reason) = done {
                imported.find(path, self.document.line(node), title.clone(), reason);
                if !prepares(node) {
                    lost.get_or_insert(title);
                }
            }
        }
        if building.steps.is_empty() {
            imported.find(path, line, what, "no step of it could be imported");
        }
        lost.is_none() && !building.steps.is_empty()
    }

    /// Adds a step.
    ///
    /// # Errors
    /// The reason why the step has no equivalent.
    fn step(&self, building: &mut Building, node: &Node<'_>, job: &Job, title: &str) -> Result<(), String> {
        let step = node.as_map().ok_or_else(|| "it is not a mapping".to_owned())?;
        let id = step.get("id").and_then(text_of);
        let id = id.unwrap_or_else(|| title.trim_start_matches("step ").trim_matches('`').to_owned());
        self.run(building, step, job, &id)
    }

    fn run(&self, building: &mut Building, step: &Entries<'_>, job: &Job, id: &str) -> Result<(), String> {
        let field = |name: &str| step.get(name).and_then(text_of);
        if let Some(action) = field("uses") {
            return Err(format!("the action `{action}` has no equivalent; the caller's directory is used as it is"));
        }
        if let Some(other) = step.0.iter().filter_map(|(key, _)| key.as_text()).find(|name| !STEP_FIELDS.contains(name))
        {
            return Err(format!("`{other}` has no equivalent"));
        }
        let run = field("run").ok_or_else(|| "it has no `run`".to_owned())?;
        let shell = match field("shell").as_deref() {
            None if job.is_windows => return Err("its shell is PowerShell, the default on Windows".to_owned()),
            None => "bash -e",
            Some("bash") => "bash -eo pipefail",
            Some("sh") => "sh -e",
            Some(other) => return Err(format!("the shell `{other}` has no equivalent")),
        };
        let timeout = match field("timeout-minutes") {
            None => None,
            Some(minutes) if minutes.parse::<f64>().is_ok_and(|minutes| minutes > 0.0) => Some(format!("{minutes}m")),
            Some(other) => return Err(format!("its time limit `{other}` has no equivalent")),
        };
        let place = place(field("working-directory").as_deref())?;
        building.has_room()?;
        let mut variables = job.env.clone();
        for (_, name, value) in self.variables(step.get("env")) {
            variables.set(&name, value.map_err(|reason| format!("its variable `{name}`: {reason}"))?);
        }
        let text = self.text(&run, &mut variables)?;
        if let Some(reason) = variables.refusal(&text, &RUNNER).or_else(|| variables.unread(&text)) {
            return Err(reason);
        }
        let name = building.step_name(id);
        let script = Script { name: &name, text: &text, shell, env: variables.values, place: &place, stdin: None };
        let mut made = building.script(script)?;
        if let Some(timeout) = timeout {
            made["timeout"] = json!(timeout);
        }
        building.steps.push(made);
        Ok(())
    }

    /// Shell text with variables in the place of its expressions.
    fn text(&self, run: &str, variables: &mut Variables) -> Result<String, String> {
        let Some(pattern) = EXPRESSION.as_ref() else { return Ok(run.to_owned()) };
        let (mut text, mut from, quotes, assigned) = (String::new(), 0, Quotes::new(run), texts::assigned(run));
        let mut known: BTreeMap<(&str, Option<char>), String> = BTreeMap::new();
        for found in pattern.captures_iter(run) {
            let (Some(all), Some(inner)) = (found.get(0), found.get(1)) else { continue };
            let inner = inner.as_str();
            let fault = |reason: &str| format!("the expression `{inner}` {reason}");
            let quote = quotes.open_at(all.start()).map_err(fault)?;
            let variable = match known.entry((inner, quote)) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(free) => {
                    let (variable, value) = self.named(inner, variables).ok_or_else(|| fault("has no equivalent"))?;
                    let is_other = variables.values.get(&variable).is_some_and(|known| *known != value);
                    if is_other || assigned.contains(variable.as_str()) {
                        return Err(fault(&format!("and the variable `{variable}` have different values")));
                    }
                    if texts::is_syntax(&value, quote) {
                        return Err(fault("has a value with characters that the shell interprets"));
                    }
                    variables.set(&variable, value);
                    free.insert(variable)
                }
            };
            text.push_str(&run[from..all.start()]);
            // The runner inserts the value as it is, and the shell divides it.
            text.push_str(&divided(quote, variable));
            from = all.end();
        }
        text.push_str(&run[from..]);
        Ok(text)
    }

    /// Variable for an expression in shell text, and its value; `None` if there is none.
    fn named(&self, expression: &str, variables: &Variables) -> Option<(String, Value)> {
        if let Some(name) = input(expression).filter(|name| self.inputs.contains_key(name)) {
            let value = json!(format!("{{{{input.{name}}}}}"));
            return Some((format!("INPUT_{}", name.to_ascii_uppercase()), value));
        }
        match expression.split_once('.')? {
            ("env", name) => variables.values.get(name).map(|value| (name.to_owned(), value.clone())),
            ("secrets", name) if is_name(name) => Some((name.to_owned(), json!({"from_env": name}))),
            _ => None,
        }
    }
}

/// Name of a step in findings.
fn title(node: &Node<'_>) -> String {
    let Some(step) = node.as_map() else { return "a step".to_owned() };
    let title = ["name", "id", "uses", "run"].iter().find_map(|name| step.get(name).and_then(text_of));
    format!("step `{}`", title.unwrap_or_default().lines().next().unwrap_or_default())
}

/// True if a step only prepares the machine or moves files to and from GitHub. Later steps do not depend on its success.
fn prepares(node: &Node<'_>) -> bool {
    let action = node.as_map().and_then(|step| step.get("uses")).and_then(text_of).unwrap_or_default();
    let name = action.split('@').next().unwrap_or_default();
    let is_setup = !name.starts_with('.') && name.split('/').nth(1).is_some_and(|name| name.starts_with("setup-"));
    let own = name.strip_prefix("actions/").unwrap_or_default();
    is_setup
        || ["checkout", "cache", "cache/restore", "cache/save", "upload-artifact", "download-artifact"].contains(&own)
}

/// Parameter that an expression reads.
fn input(expression: &str) -> Option<String> {
    let name = expression.strip_prefix("inputs.").or_else(|| expression.strip_prefix("github.event.inputs."))?;
    let is_name = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    is_name.then(|| parameter(name))
}

/// Name of an input as the name of a parameter.
fn parameter(name: &str) -> String {
    name.replace('-', "_")
}
