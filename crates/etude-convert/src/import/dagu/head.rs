//! Fields of a whole DAG: those that it can do without, its parameters and its environment.

use etude_spec::yaml::{Entries, Node};
use serde_json::{Value, json};

use super::super::{Document, Imported, SCHEDULE, text_of};
use super::{ARGUMENT, Dag, field, pairs, snake, typed};

/// Fields that have an equivalent, or change nothing here.
const KNOWN: [&str; 11] = [
    "name", "description", "type", "params", "env", "steps", "group", "tags", "labels", "max_active_steps",
    "working_dir",
];

/// Fields that do not change the effect of the steps of one run. They are listed; with any other field no step is imported.
const LISTED: [&str; 28] = [
    "schedule", "skip_if_successful", "catchup_window", "overlap_policy", "log_dir", "log_output", "artifacts",
    "handler_on", "smtp", "mail_on", "error_mail", "info_mail", "wait_mail", "timeout_sec", "delay_sec",
    "restart_wait_sec", "hist_retention_days", "hist_retention_runs", "max_active_runs", "max_clean_up_time_sec",
    "max_output_size", "queue", "otel", "run_config", "webhook", "registry_auths", "step_types", "actions",
];

/// Maximum number of parameters of a DAG: each step looks for each of them.
const MAX_PARAMETERS: usize = 100;

/// Lists the fields that have no equivalent; false if the DAG must not run without one of them.
pub(super) fn is_importable(imported: &mut Imported, document: &Document, root: &Entries<'_>) -> bool {
    let is_known = |name: &str| KNOWN.contains(&name) || LISTED.contains(&name);
    // The steps run only after a handler for the start of the run.
    let begins =
        field(root, "handler_on").and_then(Node::as_map).is_some_and(|handlers| handlers.get("init").is_some());
    let is_guard = |name: &str| !is_known(name) || begins && name == "handler_on";
    if document.guarded(imported, root, |name| is_guard(&snake(name))) {
        return false;
    }
    let kind = field(root, "type").and_then(text_of).unwrap_or_else(|| "graph".to_owned());
    if !["chain", "graph"].contains(&kind.as_str()) {
        imported.find(document.file.path(), 1, format!("`type: {kind}`"), "etude has no equivalent");
        return false;
    }
    for (key, _) in &root.0 {
        let (name, line) = (key.as_text().unwrap_or_default(), document.line(key));
        match snake(name).as_str() {
            "schedule" => imported.find(document.file.path(), line, "trigger `schedule`", SCHEDULE),
            word if LISTED.contains(&word) => {
                imported.find(document.file.path(), line, format!("`{name}`"), "etude has no equivalent");
            }
            _ => {}
        }
    }
    true
}

impl Dag<'_> {
    /// Adds `params`, a text, a list or a mapping. Parameters with a computed default are findings.
    ///
    /// # Errors
    /// A parameter has settings without an equivalent.
    pub(super) fn parameters(&mut self, imported: &mut Imported, node: Option<&Node<'_>>) -> Result<(), String> {
        let Some(node) = node else { return Ok(()) };
        let mut declarations = Vec::new();
        for item in node.as_seq().unwrap_or(std::slice::from_ref(node)) {
            match typed::declaration(item).filter(|_| node.as_seq().is_some()) {
                Some(declaration) => declarations.push(declaration?),
                None => declarations.extend(declared(item)?.into_iter().map(|(name, default)| Declaration {
                    name,
                    schema: json!({"type": "string"}),
                    default: Some(default),
                })),
            }
        }
        if declarations.len() > MAX_PARAMETERS {
            return Err(format!("there are more than {MAX_PARAMETERS} parameters"));
        }
        for (index, Declaration { name, schema, default }) in declarations.into_iter().enumerate() {
            let name = name.unwrap_or_else(|| format!("{ARGUMENT}{}", index + 1));
            if default.as_ref().is_some_and(|default| default.contains(['`', '$'])) {
                let what = format!("parameter `{name}`");
                imported.find(self.document.file.path(), self.document.line(node), what, "its value is computed");
                self.variables.drop(&name);
                continue;
            }
            let parameter = name.to_ascii_lowercase();
            let declared = typed::with_default(&name, schema, default.as_deref())?;
            self.building.input.entry(parameter.clone()).or_insert(declared);
            self.variables.set(&name, json!(format!("{{{{input.{parameter}}}}}")));
        }
        Ok(())
    }

    /// Adds the variables of the environment. Variables with a computed value are findings.
    pub(super) fn environment(&mut self, imported: &mut Imported, node: Option<&Node<'_>>) {
        for (line, name, value) in pairs(self.document, node) {
            if !value.is_some_and(|value| self.variables.set_text(&name, &value)) {
                self.variables.drop(&name);
                let what = format!("variable `{name}`");
                imported.find(self.document.file.path(), line, what, "its value is computed");
            }
        }
    }
}

/// Declaration of a parameter.
pub(super) struct Declaration {
    /// Name; `None` if it is positional.
    pub(super) name: Option<String>,
    /// JSON Schema of its values.
    pub(super) schema: Value,
    /// Default, as text.
    pub(super) default: Option<String>,
}

/// Parameters without types, or their values: the name of each, `None` if it is positional, and its default.
pub(super) fn declared(node: &Node<'_>) -> Result<Vec<(Option<String>, String)>, String> {
    let typed = || "parameters with a schema or other settings have no equivalent".to_owned();
    let mut found = Vec::new();
    if let Some(text) = text_of(node) {
        return Ok(words(&text).iter().map(|word| pair(word)).collect());
    }
    let items = node.as_seq().unwrap_or(std::slice::from_ref(node));
    for item in items {
        match item.as_map() {
            // A schema in a file, or next to the values.
            Some(map) if map.get("schema").is_some() => return Err(typed()),
            Some(map) if node.as_seq().is_some() && map.0.len() > 1 => return Err(typed()),
            Some(map) => {
                for (key, value) in &map.0 {
                    let value = text_of(value).ok_or_else(typed)?;
                    found.push((key.as_text().map(str::to_owned), value));
                }
            }
            None => found.push(pair(&text_of(item).ok_or_else(typed)?)),
        }
    }
    Ok(found)
}

/// Reads `NAME=value`, with or without quotes around the value, or only a value.
fn pair(text: &str) -> (Option<String>, String) {
    let (name, value) = text.split_once('=').map_or((None, text), |(name, value)| (Some(name.to_owned()), value));
    (name, value.trim_matches(['"', '\'']).to_owned())
}

/// Words of a text; spaces in quotes do not divide it.
fn words(text: &str) -> Vec<String> {
    let (mut found, mut word, mut quote) = (Vec::new(), String::new(), None);
    for c in text.chars() {
        match quote {
            Some(open) if open == c => quote = None,
            None if matches!(c, '"' | '\'' | '`') => quote = Some(c),
            _ => {}
        }
        if c.is_whitespace() && quote.is_none() {
            found.push(std::mem::take(&mut word));
        } else {
            word.push(c);
        }
    }
    found.push(word);
    found.retain(|word| !word.is_empty());
    found
}
