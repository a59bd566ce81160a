//! DAGs of Dagu: shell steps in the order of their dependencies, with parameters, outputs and retries.

mod calls;
mod head;
mod retry;
mod typed;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use etude_spec::yaml::{Entries, Node};
use regex::Regex;
use serde_json::{Value, json};

use super::order::{Dependent, after_failure, in_order, independent};
use super::shell::{Provider, Script, Variables, place};
use super::{Building, Document, Imported, Source, after, is_name, stem, text_of};
use calls::{Dags, called};

/// References that Dagu resolves itself: `${{ … }}`, `${step.stdout}`, `step.outputs.name`.
static EXPRESSION: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"\$\{\{|\$\{[A-Za-z0-9_]+\.|\.outputs\.").ok());

/// Variables that Dagu sets.
const DAGU: Provider = Provider { name: "Dagu", prefixes: &["DAG_", "DAGU_"], words: &[] };

/// Fields of a step that have an equivalent, in their present spelling.
const STEP: [&str; 13] = [
    "name", "id", "description", "run", "command", "script", "args", "depends", "output", "env", "working_dir",
    "retry_policy", "timeout_sec",
];

/// Imports the files. Findings are in the order of the files, also if one DAG starts another.
pub(super) fn files(imported: &mut Imported, sources: &[Source]) {
    let (mut dags, ordered) = Dags::new(sources);
    for source in ordered {
        file(imported, &mut dags, &source.path, source.text.as_deref().unwrap_or_default());
    }
    let place: BTreeMap<&str, usize> =
        sources.iter().enumerate().map(|(index, source)| (source.path.as_str(), index)).collect();
    imported.not_imported.sort_by_key(|finding| place.get(finding.file.as_str()).copied());
}

fn file(imported: &mut Imported, dags: &mut Dags, path: &str, text: &str) {
    let document = Document::new(path, text);
    document.read(imported, |imported, root| {
        if !head::is_importable(imported, &document, root) {
            return;
        }
        let named = root.get("name").and_then(text_of);
        let name = imported.free(named.as_deref().unwrap_or_else(|| stem(path)));
        let building = Building::new(name, &root.get("description").and_then(text_of).unwrap_or_default());
        let dir = field(root, "working_dir").and_then(text_of);
        let variables = Variables::default();
        let mut dag = Dag { document: &document, dags, building, dir, variables, steps: BTreeMap::new() };
        if let Err(reason) = dag.parameters(imported, root.get("params")) {
            return imported.find(path, 1, "`params`", reason);
        }
        dag.environment(imported, root.get("env"));
        let order = Order::read(root);
        // The first step that was not imported.
        let mut lost: Option<String> = None;
        for (index, node) in ordered(imported, &document, root, order).into_iter().enumerate() {
            let known = names(node).first().cloned().unwrap_or_else(|| format!("step_{}", index + 1));
            let done = match (lost.as_ref().filter(|_| order.is_after_all(node)), node.as_map()) {
                (Some(lost), _) => Err(after(lost)),
                (None, Some(step)) => dag.step((node, step), &known),
                // A text is the command of a step that has nothing else.
                (None, None) if text_of(node).is_some() => dag.step((node, &Entries(Vec::new())), &known),
                (None, None) => Err("it is not a mapping".to_owned()),
            };
            if let Err(reason) = done {
                let what = format!("step `{known}`");
                imported.find(path, document.line(node), what.clone(), reason);
                lost.get_or_insert(what);
            }
        }
        let building = dag.building;
        if let Some((key, _)) = root.entry("steps").filter(|(_, node)| node.as_seq().is_none()) {
            return imported.find(path, document.line(key), "`steps`", "it is not a list");
        }
        if building.steps.is_empty() {
            return imported.find(path, 1, "the DAG", "no step of it could be imported");
        }
        let count = root.get("steps").and_then(Node::as_seq).map_or(0, <[Node<'_>]>::len);
        let (name, input, is_whole) = (building.name.clone(), building.input.clone(), building.steps.len() == count);
        if imported.add(building, path) {
            dags.add(path, name, &input, is_whole);
        }
    });
}

/// Order of the steps of a DAG.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    /// Each step waits for all steps before it.
    Chain,
    /// Each step waits for the steps that it names.
    Graph,
    /// The file has no type, and some steps name others: versions of Dagu differ about a step that names none.
    Unknown,
}

impl Order {
    fn read(root: &Entries<'_>) -> Self {
        let kind = root.get("type").and_then(text_of).unwrap_or_default();
        let mut steps = root.get("steps").and_then(Node::as_seq).into_iter().flatten();
        match kind.trim() {
            "chain" => Self::Chain,
            "" if steps.any(names_others) => Self::Unknown,
            // A file without a type is a chain in the present versions.
            "" => Self::Chain,
            _ => Self::Graph,
        }
    }

    /// True if a step may have to wait for every step before it.
    fn is_after_all(self, step: &Node<'_>) -> bool {
        match self {
            Self::Chain => true,
            Self::Graph => false,
            Self::Unknown => !names_others(step),
        }
    }
}

/// True if a step says which other steps it waits for.
fn names_others(step: &Node<'_>) -> bool {
    step.as_map().is_some_and(|step| step.get("depends").is_some())
}

struct Dag<'d> {
    document: &'d Document,
    dags: &'d Dags,
    building: Building,
    /// Working directory of all steps.
    dir: Option<String>,
    /// Variables of parameters, of the environment and of outputs, with their templates.
    variables: Variables,
    /// Names of the imported steps, by their names in the DAG.
    steps: BTreeMap<String, String>,
}

/// Present spelling of a field: `retry_policy` for `retryPolicy`.
fn snake(name: &str) -> String {
    if name == "dir" {
        return "working_dir".to_owned();
    }
    let mut out = String::new();
    for c in name.chars() {
        if c.is_ascii_uppercase() {
            out.push('_');
        }
        out.push(c.to_ascii_lowercase());
    }
    out
}

/// Value of a field in either spelling.
fn field<'n, 's>(entries: &'n Entries<'s>, name: &str) -> Option<&'n Node<'s>> {
    entries.0.iter().find(|(key, _)| key.as_text().is_some_and(|key| snake(key) == name)).map(|(_, value)| value)
}

/// Variables in a mapping, or in a list of mappings and of texts `NAME=value`: line, name and value of each. A missing value
/// is `None`.
fn pairs(document: &Document, node: Option<&Node<'_>>) -> Vec<(u32, String, Option<String>)> {
    let mut found = Vec::new();
    for item in node.map(|node| node.as_seq().unwrap_or(std::slice::from_ref(node))).unwrap_or_default() {
        for (key, value) in item.as_map().map(|map| map.0.as_slice()).unwrap_or_default() {
            let name = key.as_text().unwrap_or_default().to_owned();
            found.push((document.line(key), name, text_of(value)));
        }
        if let Some(text) = text_of(item) {
            let (name, value) = text.split_once('=').map_or((text.as_str(), None), |(name, value)| (name, Some(value)));
            found.push((document.line(item), name.to_owned(), value.map(str::to_owned)));
        }
    }
    found
}

/// Steps in the order of their dependencies. A step that depends on a missing step, or on itself, is a finding.
fn ordered<'n, 's>(
    imported: &mut Imported,
    document: &Document,
    root: &'n Entries<'s>,
    order: Order,
) -> Vec<&'n Node<'s>> {
    let open: Vec<&Node<'_>> = root.get("steps").and_then(Node::as_seq).into_iter().flatten().collect();
    if order == Order::Chain {
        return open;
    }
    let needs = |node: &&Node<'_>| list(node.as_map().and_then(|step| step.get("depends")));
    let dependent = |node: &&Node<'_>| Dependent { names: names(node), needs: needs(node) };
    let items: Vec<Dependent> = open.iter().map(dependent).collect();
    let (done, left) = in_order(&items);
    // A step without `depends` waits for nothing only if the DAG is a graph.
    let independent = independent(&items, &done).filter(|(_, item)| !order.is_after_all(open[*item]));
    if let Some((before, item)) = independent {
        let names = [before, item].map(|index| names(open[index]).first().cloned().unwrap_or_default());
        let reason = after_failure([&names[0], &names[1]]);
        imported.find(document.file.path(), document.line(open[item]), "the order of the steps", reason);
    }
    for node in left.into_iter().map(|index| open[index]) {
        let what = format!("step `{}`", names(node).first().cloned().unwrap_or_default());
        let reason = "it depends on a missing step, or is part of a dependency cycle";
        imported.find(document.file.path(), document.line(node), what, reason);
    }
    done.into_iter().map(|index| open[index]).collect()
}

/// Names by which other steps refer to a step.
fn names(node: &Node<'_>) -> Vec<String> {
    let text = |field: &&str| node.as_map().and_then(|step| step.get(field)).and_then(text_of);
    ["name", "id"].iter().filter_map(text).collect()
}

/// A text or a list of texts.
fn list(node: Option<&Node<'_>>) -> Vec<String> {
    match node.and_then(Node::as_seq) {
        Some(items) => items.iter().filter_map(text_of).collect(),
        None => node.and_then(text_of).into_iter().collect(),
    }
}

impl Dag<'_> {
    /// Adds a step.
    ///
    /// # Errors
    /// The reason why the step has no equivalent.
    fn step(&mut self, (node, step): (&Node<'_>, &Entries<'_>), known: &str) -> Result<(), String> {
        if let Some(lost) = list(step.get("depends")).into_iter().find(|name| !self.steps.contains_key(name)) {
            return Err(format!("it depends on `{lost}`, which was not imported"));
        }
        if let Some(file) = called(step).and_then(|called| self.dags.file(self.document.file.path(), &called)) {
            return self.call((node, step), known, &file);
        }
        // A step with another condition or program must not run without it.
        let other =
            step.0.iter().filter_map(|(key, _)| key.as_text()).find(|name| !STEP.contains(&snake(name).as_str()));
        if let Some(other) = other {
            return Err(format!("`{other}` has no equivalent"));
        }
        let text = self.text((node, step))?;
        let shell = shell(&text)?;
        self.building.has_room()?;
        let mut variables = self.variables.clone();
        for (_, name, value) in pairs(self.document, step.get("env")) {
            if !value.is_some_and(|value| variables.set_text(&name, &value)) {
                return Err(format!("the value of its variable `{name}` is computed"));
            }
        }
        if let Some(reason) = variables.refusal(&text, &DAGU) {
            return Err(reason);
        }
        if let Some(name) = variables.in_single_quotes(&text) {
            return Err(format!(
                "the variable `{name}` is in single quotes, where only some versions of Dagu replace it"
            ));
        }
        // Variables for positional parameters stay only in the steps that name them.
        variables.values.retain(|name, _| !name.starts_with(ARGUMENT) || text.contains(&format!("${{{name}}}")));
        let place = place(self.dir_of(step).as_deref())?;
        let (retry, timeout) = limits(step)?;
        let output = output(step)?;
        if let Some(reason) = variables.unread(&text) {
            return Err(reason);
        }
        let name = self.building.step_name(known);
        let text = format!("{}{text}", variables.exports());
        let script =
            Script { name: &name, text: &text, shell: &shell, env: variables.values, place: &place, stdin: None };
        let mut made = self.building.script(script)?;
        if let Some(retry) = retry {
            made["retry"] = retry;
        }
        if let Some(timeout) = timeout {
            made["timeout"] = json!(timeout);
        }
        if let Some(variable) = output {
            made["command"] = json!(trimmed(made["command"].as_str().unwrap_or_default()));
            self.variables.set(&variable, json!(format!("{{{{{name}.output}}}}")));
        }
        self.building.steps.push(made);
        names(node).into_iter().for_each(|known| drop(self.steps.insert(known, name.clone())));
        Ok(())
    }

    /// Shell text of a step.
    fn text(&self, (node, step): (&Node<'_>, &Entries<'_>)) -> Result<String, String> {
        if step.get("script").is_some() && (step.get("command").is_some() || step.get("run").is_some()) {
            return Err("its command runs its script, which has no equivalent".to_owned());
        }
        // Earlier versions start another DAG with `run`, later ones a shell command.
        if let Some(run) = step.get("run").and_then(text_of).filter(|run| may_be_dag(run)) {
            let reason = "may start another DAG, but no DAG with this name is in the same directory; write `command` if it is a shell command";
            return Err(format!("`run: {run}` {reason}"));
        }
        let text = ["run", "script", "command"].iter().find_map(|field| step.get(field).and_then(text_of));
        let text = text.or_else(|| text_of(node)).map_or_else(|| commands(step), |text| Ok(Some(text)))?;
        let mut text = text.ok_or_else(|| "it has no shell command".to_owned())?;
        for argument in list(step.get("args")) {
            if argument.contains(['$', '`']) {
                return Err(format!("its argument `{argument}` is computed"));
            }
            text.push_str(&format!(" {}", etude_core::shell::quoted(&argument)));
        }
        if EXPRESSION.as_ref().is_none_or(|pattern| pattern.is_match(&text)) {
            return Err("its expressions have no equivalent".to_owned());
        }
        for number in (1..10).filter(|number| self.variables.values.contains_key(&format!("{ARGUMENT}{number}"))) {
            let variable = format!("${{{ARGUMENT}{number}}}");
            text = text.replace(&format!("${{{number}}}"), &variable).replace(&format!("${number}"), &variable);
        }
        Ok(text)
    }

    /// Directory of a step: its own, below that of the DAG.
    fn dir_of(&self, step: &Entries<'_>) -> Option<String> {
        let own = field(step, "working_dir").and_then(text_of);
        match (&self.dir, own) {
            (Some(dir), Some(own)) if !own.starts_with(['/', '~', '$']) => Some(format!("{dir}/{own}")),
            (_, Some(own)) => Some(own),
            (dir, None) => dir.clone(),
        }
    }
}

/// Commands of a list in `run` or `command`. Each has a shell of its own, and the first that fails ends the step.
///
/// # Errors
/// Versions of Dagu read the list in `command` in different ways.
fn commands(step: &Entries<'_>) -> Result<Option<String>, String> {
    let list = |field: &str| step.get(field).and_then(Node::as_seq);
    let Some(items) = list("run").or_else(|| list("command")).filter(|_| step.get("args").is_none()) else {
        return Ok(None);
    };
    let Some(lines) = items.iter().map(text_of).collect::<Option<Vec<String>>>() else { return Ok(None) };
    // Earlier versions read its first element as a program, whose name has no blank, and the others as arguments.
    let is_line = |line: &String| line.trim().contains(char::is_whitespace);
    if list("run").is_none() && lines.len() > 1 && !lines.iter().all(is_line) {
        let reason = "is ambiguous: one command with arguments, or several commands; write it as text";
        return Err(format!("its list in `command` {reason}"));
    }
    let lines = lines.iter().filter(|line| !line.trim().is_empty());
    let text: String = lines.map(|line| format!("(\n{line}\n)\n")).collect();
    Ok((!text.is_empty()).then_some(text))
}

/// Prefix of the names of variables for positional parameters.
const ARGUMENT: &str = "argument_";

/// True if the text of `run` can be the name or the path of a DAG.
fn may_be_dag(run: &str) -> bool {
    let is_word = run.chars().all(|c| c.is_ascii_alphanumeric() || "_-./".contains(c));
    is_word && (is_yaml(run) || !run.starts_with(['.', '/']))
}

/// True if a path is that of a YAML file.
fn is_yaml(path: &str) -> bool {
    [".yaml", ".yml"].iter().any(|end| path.ends_with(end))
}

/// Shell of a text: that of its first line, or the default of Dagu, which ends at the first error.
fn shell(text: &str) -> Result<String, String> {
    let Some(line) = text.strip_prefix("#!").and_then(|text| text.lines().next()) else {
        return Ok("bash -e".to_owned());
    };
    let words: Vec<&str> = line.split_whitespace().collect();
    let words = match words.as_slice() {
        [env, "-S", rest @ ..] | [env, rest @ ..] if env.ends_with("/env") => rest,
        words => words,
    };
    let (program, options) = words.split_first().ok_or_else(|| "its first line has no program".to_owned())?;
    let program = program.rsplit('/').next().unwrap_or_default();
    let is_option = |option: &&str| option.starts_with('-') && option[1..].chars().all(|c| c.is_ascii_lowercase());
    match ["sh", "bash"].contains(&program) && options.iter().all(is_option) {
        true => Ok([&[program], options].concat().join(" ")),
        false => Err(format!("its program `{}` has no equivalent", line.trim())),
    }
}

/// Command whose output has no blanks and line breaks around it, as values of variables in Dagu.
fn trimmed(command: &str) -> String {
    let (start, end) = (r#"${out#"${out%%[![:space:]]*}"}"#, r#"${out%"${out##*[![:space:]]}"}"#);
    format!("out=$({command}) || exit; out=\"{start}\"; printf '%s' \"{end}\"")
}

/// Variable that receives the output of a step.
fn output(step: &Entries<'_>) -> Result<Option<String>, String> {
    let Some(node) = step.get("output") else { return Ok(None) };
    let name = text_of(node).map(|text| text.trim_start_matches('$').to_owned());
    match name.filter(|name| is_name(name)) {
        Some(name) => Ok(Some(name)),
        None => Err("its `output` has no equivalent".to_owned()),
    }
}

/// Retries and time limit of a step.
fn limits(step: &Entries<'_>) -> Result<(Option<Value>, Option<String>), String> {
    let retry = match field(step, "retry_policy") {
        Some(node) => Some(retry::convert(node.as_map().ok_or("its retry policy is not a mapping")?)?),
        None => None,
    };
    let seconds = field(step, "timeout_sec").map(|node| text_of(node).and_then(|text| text.parse::<u64>().ok()));
    let timeout = match seconds {
        Some(None) => return Err("its time limit is not a number of seconds".to_owned()),
        // Zero means no limit.
        Some(Some(0)) | None => None,
        Some(Some(seconds)) => Some(format!("{seconds}s")),
    };
    match (&retry, &timeout) {
        (Some(_), Some(_)) => Err("its time limit is for one attempt, and `timeout` is for all of them".to_owned()),
        _ => Ok((retry, timeout)),
    }
}
