//! Steps that start another DAG. They become steps of type `pipeline` if that DAG is in the same folder and was imported
//! whole.

use std::collections::{BTreeMap, BTreeSet};

use etude_spec::source::SourceFile;
use etude_spec::yaml::{Entries, Node};
use serde_json::{Map, Value, json};

use super::super::order::{Dependent, in_order};
use super::super::shell::{STEP, Variables, literal};
use super::super::{Source, text_of};
use super::head::declared;
use super::{ARGUMENT, Dag, field, is_yaml, limits, may_be_dag, names, snake};

/// Fields of a step that starts a DAG and that have an equivalent.
const FIELDS: [&str; 8] = ["name", "id", "description", "run", "call", "params", "depends", "timeout_sec"];

/// DAGs of an import.
#[derive(Default)]
pub(super) struct Dags {
    /// Paths of their files.
    paths: BTreeSet<String>,
    /// DAGs that were imported so far, by their files.
    imported: BTreeMap<String, Callee>,
}

/// Imported DAG.
struct Callee {
    pipeline: String,
    /// Names of its parameters, each with true if it is a text.
    parameters: BTreeMap<String, bool>,
    /// True if all of its steps were imported.
    is_whole: bool,
}

impl Dags {
    /// DAGs of these files, and the files in the order of import: each after those that it starts.
    pub(super) fn new(sources: &[Source]) -> (Self, Vec<&Source>) {
        let readable: Vec<&Source> = sources.iter().filter(|source| source.text.is_some()).collect();
        let paths = readable.iter().map(|source| source.path.clone()).collect();
        let dags = Self { paths, imported: BTreeMap::new() };
        let dependent = |source: &&Source| Dependent {
            names: vec![source.path.clone()],
            needs: calls(source).iter().filter_map(|called| dags.file(&source.path, called)).collect(),
        };
        let (done, left) = in_order(&readable.iter().map(dependent).collect::<Vec<_>>());
        let ordered = done.into_iter().chain(left).map(|index| readable[index]).collect();
        (dags, ordered)
    }

    /// File with this name in the folder of `from`.
    pub(super) fn file(&self, from: &str, called: &str) -> Option<String> {
        let folder = from.rsplit_once('/').map_or_else(String::new, |(folder, _)| format!("{folder}/"));
        let path = format!("{folder}{}", called.strip_prefix("./").unwrap_or(called));
        let ends = if is_yaml(&path) { &[""][..] } else { &[".yaml", ".yml"][..] };
        ends.iter().map(|end| format!("{path}{end}")).find(|path| self.paths.contains(path))
    }

    /// Notes that a DAG was imported.
    pub(super) fn add(&mut self, file: &str, pipeline: String, input: &Map<String, Value>, is_whole: bool) {
        let is_text = |declared: &Value| declared == "string" || declared["type"] == "string";
        let parameters = input.iter().map(|(name, declared)| (name.clone(), is_text(declared))).collect();
        self.imported.insert(file.to_owned(), Callee { pipeline, parameters, is_whole });
    }
}

/// Names and files of the DAGs that the steps of a file start.
fn calls(source: &Source) -> Vec<String> {
    let file = SourceFile::new(source.path.as_str(), source.text.as_deref().unwrap_or_default());
    let (root, _) = etude_spec::yaml::parse(&file);
    let root = root.as_ref().and_then(Node::as_map);
    let steps = root.and_then(|root| root.get("steps")).and_then(Node::as_seq).into_iter().flatten();
    steps.filter_map(Node::as_map).filter_map(called).collect()
}

/// Name or file of a DAG that a step may start.
pub(super) fn called(step: &Entries<'_>) -> Option<String> {
    let text = |name: &str| step.get(name).and_then(text_of);
    text("call").or_else(|| text("run")).filter(|called| may_be_dag(called))
}

impl Dag<'_> {
    /// Adds a step that starts the DAG of a file.
    ///
    /// # Errors
    /// The reason why the step has no equivalent.
    pub(super) fn call(
        &mut self,
        (node, step): (&Node<'_>, &Entries<'_>),
        known: &str,
        file: &str,
    ) -> Result<(), String> {
        let other =
            step.0.iter().filter_map(|(key, _)| key.as_text()).find(|name| !FIELDS.contains(&snake(name).as_str()));
        if let Some(other) = other {
            return Err(format!("`{other}` of a step that starts a DAG has no equivalent"));
        }
        let callee = self.dags.imported.get(file).filter(|callee| callee.is_whole);
        let callee = callee.ok_or_else(|| format!("it starts `{file}`, which was not imported completely"))?;
        let input = input(step, &self.variables, (file, callee))?;
        let (_, timeout) = limits(step)?;
        let bytes: usize = input.iter().map(|(name, value)| name.len() + value.as_str().map_or(0, str::len)).sum();
        self.building.charge(STEP + bytes)?;
        let name = self.building.step_name(known);
        let mut made = json!({"name": name, "type": "pipeline", "pipeline": callee.pipeline});
        if !input.is_empty() {
            made["input"] = Value::Object(input);
        }
        if let Some(timeout) = timeout {
            made["timeout"] = json!(timeout);
        }
        self.building.steps.push(made);
        names(node).into_iter().for_each(|known| drop(self.steps.insert(known, name.clone())));
        Ok(())
    }
}

/// Input of the pipeline: constants, and variables of the caller.
fn input(
    step: &Entries<'_>,
    variables: &Variables,
    (file, callee): (&str, &Callee),
) -> Result<Map<String, Value>, String> {
    let mut input = Map::new();
    let given = field(step, "params").map(declared).transpose()?.unwrap_or_default();
    for (index, (name, text)) in given.into_iter().enumerate() {
        let name = name.unwrap_or_else(|| format!("{ARGUMENT}{}", index + 1)).to_ascii_lowercase();
        match callee.parameters.get(&name) {
            Some(true) => {}
            Some(false) => return Err(format!("the parameter `{name}` of `{file}` is not a text")),
            None => return Err(format!("`{file}` has no parameter `{name}`")),
        }
        let variable = text.strip_prefix('$').unwrap_or_default();
        let variable = variable.strip_prefix('{').and_then(|name| name.strip_suffix('}')).unwrap_or(variable);
        let value = match variables.values.get(variable) {
            Some(value) => value.clone(),
            None if text.contains(['$', '`']) => {
                return Err(format!("the value of its parameter `{name}` is computed"));
            }
            None => literal(&text),
        };
        input.insert(name, value);
    }
    Ok(input)
}
