//! Workflows of Lobster: commands with `stdin` from earlier commands, approvals and conditions on them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use etude_spec::yaml::{Entries, Node};
use regex::Regex;
use serde_json::{Value, json};

use super::shell::{Provider, Script, Stdin, Variables, literal, place};
use super::{Building, Document, Imported, after, stem, text_of};
use crate::command::words::{Quotes, divided};

/// `$step.stdout`, `$step.json.items`.
static REFERENCE: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"\$([A-Za-z0-9_-]+)\.([A-Za-z0-9_]+(?:\.[A-Za-z0-9_]+)*)").ok());

/// An argument of the workflow: `${NAME}`.
static ARGUMENT: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"\$\{([A-Za-z0-9_-]+)\}").ok());

/// `$step.approved`, with or without a comparison.
static APPROVED: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"^\$([A-Za-z_][A-Za-z0-9_-]*)\.approved(?:\s*==\s*true)?$").ok());

/// Fields of a workflow that can end it early.
const GUARDS: [&str; 1] = ["cost_limit"];

const STEP: [&str; 12] =
    ["id", "name", "description", "command", "run", "stdin", "approval", "condition", "when", "env", "cwd", "pipeline"];

/// Variables that Lobster sets. Those of arguments have values here.
const LOBSTER: Provider = Provider { name: "Lobster", prefixes: &["LOBSTER_"], words: &[] };

struct Workflow<'d> {
    document: &'d Document,
    building: Building,
    /// Parameters by argument.
    arguments: BTreeMap<String, String>,
    env: Variables,
    cwd: Option<String>,
    /// Ids of all steps.
    ids: BTreeSet<String>,
    /// Names of the code step and of the approval of each step, by its id.
    steps: BTreeMap<String, String>,
    approvals: BTreeMap<String, String>,
    /// Reason why later steps are not imported: a step was lost, and each runs only after all before it.
    lost: Option<String>,
}

pub(super) fn file(imported: &mut Imported, path: &str, text: &str) {
    let document = Document::new(path, text);
    document.read(imported, |imported, root| {
        if document.guarded(imported, root, |name| GUARDS.contains(&name)) {
            return;
        }
        document.unknown(imported, root, &["name", "description", "args", "env", "cwd", "steps"], "");
        let named = root.get("name").and_then(text_of);
        let name = imported.free(named.as_deref().unwrap_or_else(|| stem(path)));
        let building = Building::new(name, &root.get("description").and_then(text_of).unwrap_or_default());
        let nodes = root.get("steps").and_then(Node::as_seq).unwrap_or_default();
        let mut workflow = Workflow {
            document: &document,
            building,
            arguments: BTreeMap::new(),
            env: Variables::default(),
            cwd: root.get("cwd").and_then(text_of),
            ids: nodes.iter().filter_map(Node::as_map).map(id).collect(),
            steps: BTreeMap::new(),
            approvals: BTreeMap::new(),
            lost: None,
        };
        workflow.heads(imported, root);
        for node in nodes {
            workflow.step(imported, node);
        }
        match workflow.building.steps.is_empty() {
            true => imported.find(path, 1, "the workflow", "no step of it could be imported"),
            false => drop(imported.add(workflow.building, path)),
        }
    });
}

/// Name by which other steps refer to a step.
fn id(step: &Entries<'_>) -> String {
    step.get("id").or(step.get("name")).and_then(text_of).unwrap_or_default()
}

/// Variable that Lobster sets for an argument.
fn alias(argument: &str) -> String {
    let name = argument.to_ascii_uppercase().replace(|c: char| !c.is_ascii_alphanumeric(), "_");
    format!("LOBSTER_ARG_{}", name.trim_matches('_'))
}

impl Workflow<'_> {
    fn heads(&mut self, imported: &mut Imported, root: &Entries<'_>) {
        for (key, node) in root.get("args").and_then(Node::as_map).map(|args| args.0.as_slice()).unwrap_or_default() {
            let Some(name) = key.as_text() else { continue };
            let default =
                node.as_map().map_or_else(|| text_of(node), |argument| argument.get("default").and_then(text_of));
            let parameter = name.replace('-', "_");
            self.building.parameter(&parameter, default.as_deref());
            self.env.set(&alias(name), json!(format!("{{{{input.{parameter}}}}}")));
            self.arguments.insert(name.to_owned(), parameter);
        }
        for (line, name, value) in self.variables(root.get("env")) {
            match value {
                Ok(value) => self.env.set(&name, value),
                Err(reason) => {
                    self.env.drop(&name);
                    imported.find(self.document.file.path(), line, format!("variable `{name}`"), reason);
                }
            }
        }
    }

    /// Mapping of variables: line, name and value of each. The error is the reason why a value has no equivalent.
    fn variables(&self, node: Option<&Node<'_>>) -> Vec<(u32, String, Result<Value, String>)> {
        let entries = node.and_then(Node::as_map).map(|map| map.0.as_slice()).unwrap_or_default();
        let read = |(key, value): &(Node<'_>, Node<'_>)| {
            let value = text_of(value).ok_or_else(|| "its value is not text".to_owned());
            let value = value.and_then(|text| self.value(&text).ok_or_else(|| "its value is computed".to_owned()));
            (self.document.line(key), key.as_text().unwrap_or_default().to_owned(), value)
        };
        entries.iter().map(read).collect()
    }

    /// Value of a text that is constant, or an argument; `None` if it is computed.
    fn value(&self, text: &str) -> Option<Value> {
        let name = text.trim().strip_prefix("${").and_then(|text| text.strip_suffix('}'));
        match name.and_then(|name| self.arguments.get(name)) {
            Some(parameter) => Some(json!(format!("{{{{input.{parameter}}}}}"))),
            None => (!text.contains('$')).then(|| literal(text)),
        }
    }

    /// Adds a step, unless an earlier one was not imported.
    fn step(&mut self, imported: &mut Imported, node: &Node<'_>) {
        let step = node.as_map();
        let what = step.map_or_else(|| "a step".to_owned(), |step| format!("step `{}`", id(step)));
        let done = match (&self.lost, step) {
            (Some(lost), _) => Err(lost.clone()),
            (None, Some(step)) => self.import(step, &id(step)),
            (None, None) => Err("it is not a mapping".to_owned()),
        };
        if let Err(reason) = done {
            imported.find(self.document.file.path(), self.document.line(node), what.clone(), reason);
            let approves = step.is_some_and(|step| approval(step).is_some());
            let lost = if approves { what.replacen("step", "the approval", 1) } else { what };
            self.lost.get_or_insert_with(|| after(&lost));
        }
    }

    /// Adds a step: its command, then its approval.
    ///
    /// # Errors
    /// The reason why the step has no equivalent.
    fn import(&mut self, step: &Entries<'_>, id: &str) -> Result<(), String> {
        if let Some(other) = step.0.iter().filter_map(|(key, _)| key.as_text()).find(|name| !STEP.contains(name)) {
            return Err(format!("`{other}` has no equivalent"));
        }
        let condition = step.get("when").or(step.get("condition"));
        let when = match condition.map(|node| text_of(node).unwrap_or_default()) {
            None => None,
            Some(text) => {
                Some(self.condition(&text).ok_or_else(|| format!("its condition `{text}` has no equivalent"))?)
            }
        };
        if step.get("pipeline").is_some() {
            return Err("pipelines of Lobster's own commands have no equivalent".to_owned());
        }
        let message = approval(step).map(message).transpose()?;
        let command = step.get("command").or(step.get("run")).and_then(text_of);
        if command.is_none() && message.is_none() {
            return Err("it has neither a command nor an approval".to_owned());
        }
        if let Some(command) = command {
            let (name, mut made) = self.command(step, id, &command)?;
            if let Some(when) = &when {
                made["when"] = when.clone();
            }
            self.building.steps.push(made);
            self.steps.insert(id.to_owned(), name);
        }
        if let Some(message) = message {
            self.approval(id, &message, when);
        }
        Ok(())
    }

    /// Adds an approval. A denial ends the run, as in Lobster.
    fn approval(&mut self, id: &str, message: &str, when: Option<Value>) {
        let code = self.steps.get(id).cloned();
        let name = self.building.step_name(&code.as_ref().map_or_else(|| id.to_owned(), |_| format!("{id}_approval")));
        let message = match code {
            Some(step) => format!("{message}\n{{{{{step}.output}}}}"),
            None => message.to_owned(),
        };
        let mut made = json!({"name": name, "type": "approval", "message": message});
        if let Some(when) = when {
            made["when"] = when;
        }
        self.building.steps.push(made);
        self.approvals.insert(id.to_owned(), name);
    }

    fn condition(&self, text: &str) -> Option<Value> {
        let id = APPROVED.as_ref()?.captures(text.trim())?.get(1)?.as_str();
        let step = self.approvals.get(id)?;
        // A skipped approval has no output.
        Some(json!([format!("{{{{{step}.output}}}}"), format!("{{{{{step}.output.approved}}}}")]))
    }

    fn command(&mut self, step: &Entries<'_>, id: &str, command: &str) -> Result<(String, Value), String> {
        self.building.has_room()?;
        let mut variables = self.env.clone();
        for (_, name, value) in self.variables(step.get("env")) {
            variables.set(&name, value.map_err(|reason| format!("its variable `{name}`: {reason}"))?);
        }
        let text = self.arguments(command)?;
        let text = self.results(&text, &mut variables)?;
        let stdin = match step.get("stdin") {
            None => None,
            Some(node) => {
                let from = text_of(node).ok_or_else(|| "its `stdin` is not text".to_owned())?;
                Some(self.stdin(&from, &mut variables)?)
            }
        };
        if let Some(reason) = variables.refusal(&text, &LOBSTER).or_else(|| variables.unread(&text)) {
            return Err(reason);
        }
        let place = place(step.get("cwd").and_then(text_of).or_else(|| self.cwd.clone()).as_deref())?;
        let name = self.building.step_name(id);
        let env = variables.values;
        // Lobster runs commands with `sh -c`, which does not end at the first error.
        let script = Script { name: &name, text: &text, shell: "sh", env, place: &place, stdin };
        let made = self.building.script(script)?;
        Ok((name, made))
    }

    /// Variable with the output of a step.
    fn variable(&self, id: &str, variables: &mut Variables) -> Result<String, String> {
        let step =
            self.steps.get(id).ok_or_else(|| format!("it reads the output of `{id}`, which was not imported"))?;
        let variable = format!("OUTPUT_{}", id.to_ascii_uppercase().replace('-', "_"));
        variables.set(&variable, json!(format!("{{{{{step}.output}}}}")));
        Ok(variable)
    }

    /// Variable with the stdin of a step: the output of another one, an argument, or a text.
    fn stdin(&self, from: &str, variables: &mut Variables) -> Result<Stdin, String> {
        let found = REFERENCE.as_ref().and_then(|pattern| pattern.captures(from.trim()));
        let whole = found.filter(|found| found.get(0).is_some_and(|all| all.as_str() == from.trim()));
        if let Some(found) = whole.filter(|found| is_output(&found[2])) {
            let variable = self.variable(&found[1], variables)?;
            // A JSON value has no line break at its end.
            return Ok(if &found[2] == "stdout" { Stdin::Output(variable) } else { Stdin::Text(variable) });
        }
        let value = self.value(from).ok_or_else(|| format!("its stdin `{from}` has no equivalent"))?;
        variables.set("STDIN_TEXT", value);
        Ok(Stdin::Text("STDIN_TEXT".to_owned()))
    }

    /// Replaces arguments in shell text by the variables that Lobster sets for them.
    ///
    /// # Errors
    /// A variable is not replaced at this place.
    fn arguments(&self, command: &str) -> Result<String, String> {
        let Some(pattern) = ARGUMENT.as_ref() else { return Ok(command.to_owned()) };
        let (mut text, mut from, quotes) = (String::new(), 0, Quotes::new(command));
        for found in pattern.captures_iter(command) {
            let (Some(all), Some(name)) = (found.get(0), found.get(1)) else { continue };
            if !self.arguments.contains_key(name.as_str()) {
                continue;
            }
            let quote = quotes.open_at(all.start()).map_err(|reason| format!("`{}` {reason}", all.as_str()))?;
            text.push_str(&command[from..all.start()]);
            // Lobster inserts the value as it is, and the shell divides it.
            text.push_str(&divided(quote, &alias(name.as_str())));
            from = all.end();
        }
        text.push_str(&command[from..]);
        Ok(text)
    }

    /// Replaces outputs of steps in shell text by variables.
    fn results(&self, command: &str, variables: &mut Variables) -> Result<String, String> {
        let Some(pattern) = REFERENCE.as_ref() else { return Ok(command.to_owned()) };
        let (mut text, mut from, quotes) = (String::new(), 0, Quotes::new(command));
        for found in pattern.captures_iter(command) {
            let (Some(all), Some(id), Some(path)) = (found.get(0), found.get(1), found.get(2)) else { continue };
            if !self.ids.contains(id.as_str()) {
                continue;
            }
            if !is_output(path.as_str()) {
                return Err(format!("`{}` has no equivalent", all.as_str()));
            }
            let variable = self.variable(id.as_str(), variables)?;
            let quote = quotes.open_at(all.start()).map_err(|reason| format!("`{}` {reason}", all.as_str()))?;
            text.push_str(&command[from..all.start()]);
            text.push_str(&divided(quote, &variable));
            from = all.end();
        }
        text.push_str(&command[from..]);
        Ok(text)
    }
}

/// True if a path into the result of a step is its output.
fn is_output(path: &str) -> bool {
    ["stdout", "json"].contains(&path)
}

/// The approval of a step, if it has one.
fn approval<'n, 's>(step: &'n Entries<'s>) -> Option<&'n Node<'s>> {
    step.get("approval").filter(|node| text_of(node).is_none_or(|text| text != "false"))
}

/// Message of an approval.
///
/// # Errors
/// The approval has rules about the person who approves, or other settings.
fn message(approval: &Node<'_>) -> Result<String, String> {
    let other = approval.as_map().and_then(|map| map.0.iter().find(|(key, _)| key.as_text() != Some("prompt")));
    if let Some((key, _)) = other {
        return Err(format!("`{}` of its approval has no equivalent", key.as_text().unwrap_or_default()));
    }
    let prompt = approval.as_map().and_then(|map| map.get("prompt")).or(Some(approval)).and_then(text_of);
    let prompt = prompt.filter(|text| !["required", "true"].contains(&text.as_str()));
    let prompt = prompt.as_deref().map(literal);
    Ok(prompt.as_ref().and_then(Value::as_str).unwrap_or("Continue?").to_owned())
}
