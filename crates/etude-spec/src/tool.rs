//! Tools of an app: the contents of `tools/` (A-7.1, `b-stages` §20.5).
//!
//! `tools/<name>.yaml` describes a tool in full. An executable file without such a description is a tool, too. Its name
//! is the file name without the extension, and its description is the comment at its start. Both read JSON from stdin
//! and write JSON to stdout. Other files, such as modules that scripts import, are ignored.

use std::sync::Arc;

use etude_core::effect::Command;
use serde_json::Value;

use crate::check::{Findings, Subject, object};
use crate::command::{self, script::script_of};
use crate::diagnose::{files, references, tools as diagnose, values};
use crate::diagnostic::{self, Diagnostic};
use crate::duration;
use crate::fields::tool::TOOL;
use crate::files::{entries_of, source_text};
use crate::schema_file::meta_faults;
use crate::schema_words;
use crate::source::{Entry, FileKind, ReadFailure, SourceFile, Sources, Span, join};
use crate::yaml::{self, Entries, Locator, Node, boolean, place_in, text, texts};

pub mod built_in;
mod script;

/// The directory that holds the tools.
pub const TOOLS: &str = "tools";

/// Names of the built-in tools, which no other tool may have (`b-stages` 0.1 rule 6).
pub const BUILT_IN: &[&str] = &["Read", "Write", "Edit", "Glob", "Grep", "List", "Bash"];

/// Prefix of the names of MCP tools.
pub const MCP_PREFIX: &str = "mcp__";

/// Timeout of one call unless a tool sets one, in milliseconds.
pub const DEFAULT_TIMEOUT_MS: u64 = 120_000;

/// Maximum number of files in `tools/` that are read.
const MAX_COUNT: usize = 1_000;

/// A tool below the app's `tools/`, with its program and its description for models.
#[derive(Debug, Clone, PartialEq)]
pub struct AppTool {
    /// Name of the tool: `[A-Za-z0-9_-]{1,64}`.
    pub name: String,
    /// Description for the model; empty if only the tool's `--help` has one.
    pub description: String,
    /// JSON Schema of the arguments, which are an object.
    pub input_schema: Value,
    /// The command, which runs in the app's directory.
    pub command: Command,
    /// True if a call needs approval.
    pub gated: bool,
    /// True if a call changes something outside; `None` if the definition does not say (L-1).
    pub effects: Option<bool>,
    /// Template of the text that approval patterns match; `None` means the name.
    pub approval_key: Option<String>,
    /// Timeout of one call, in milliseconds.
    pub timeout_ms: u64,
    /// Tags that patterns can select.
    pub tags: Vec<String>,
    /// File that defines the tool, relative to the app; for a script, the script itself.
    pub file: String,
    /// True for a script without its own description that answers `--help`.
    pub has_help: bool,
    /// True for a script without a sidecar: any JSON value on its stdout is its result.
    pub bare: bool,
}

/// Loads the tools of an app, sorted by name, with the faults of their definitions. A tool with an error is left out.
pub fn load(sources: &dyn Sources) -> (Vec<AppTool>, Vec<Diagnostic>) {
    let mut entries = match entries_of(sources, TOOLS) {
        Ok(entries) => entries,
        Err(unreadable) => return (Vec::new(), vec![unreadable]),
    };
    entries.retain(|entry| !entry.name.starts_with(['.', '_']));
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    entries.truncate(MAX_COUNT);
    let (mut tools, mut diagnostics): (Vec<AppTool>, _) = (Vec::new(), Vec::new());
    for entry in entries.iter().filter(|entry| is_description(&entry.name)) {
        let (tool, found) = described(sources, &format!("{TOOLS}/{}", entry.name));
        diagnostics.extend(found);
        tools.extend(tool);
    }
    // A program that a description runs, or whose name a description has, is not a second tool.
    let used: Vec<String> = tools.iter().flat_map(|tool| words(&tool.command)).collect();
    let described: Vec<&str> =
        entries.iter().map(|entry| entry.name.as_str()).filter(|n| is_description(n)).map(stem).collect();
    // A listing does not say which files are executable.
    let is_program = |entry: &&Entry| {
        matches!(entry.kind, FileKind::File { .. })
            && sources.kind(&format!("{TOOLS}/{}", entry.name)) == Ok(FileKind::File { executable: true })
    };
    let is_other = |entry: &&Entry| !is_description(&entry.name) && !described.contains(&stem(&entry.name));
    let is_unused = |entry: &&Entry| !used.contains(&format!("{TOOLS}/{}", entry.name));
    for entry in entries.iter().filter(is_other).filter(is_unused).filter(is_program) {
        let (tool, found) = script::read(sources, &format!("{TOOLS}/{}", entry.name));
        diagnostics.extend(found);
        tools.extend(tool);
    }
    tools.sort_by(|a, b| a.name.cmp(&b.name));
    tools.dedup_by(|later, first| {
        let same = later.name == first.name;
        if same {
            diagnostics.push(diagnose::same_name(&later.file, &first.file, &first.name));
        }
        same
    });
    diagnostic::sort(&mut diagnostics);
    (tools, diagnostics)
}

fn is_description(name: &str) -> bool {
    name.ends_with(".yaml") || name.ends_with(".yml")
}

/// File name without its extension.
fn stem(name: &str) -> &str {
    name.rsplit_once('.').map_or(name, |(stem, _)| stem)
}

/// Files that a command may name, relative to the app.
fn words(command: &Command) -> Vec<String> {
    command::words(command).into_iter().filter_map(|word| join("", word)).collect()
}

fn described(sources: &dyn Sources, path: &str) -> (Option<AppTool>, Vec<Diagnostic>) {
    let file = match source_text(sources, path) {
        Ok(file) => file,
        Err(diagnostic) => return (None, vec![diagnostic]),
    };
    let (root, diagnostics) = yaml::parse(&file);
    let Some(root) = root else { return (None, diagnostics) };
    let mut found = Findings::new(&file);
    found.list = diagnostics;
    let Some(entries) = root.as_map() else {
        // A list or a text is data of another script.
        return (None, found.list.into_iter().filter(|_| root.is_invalid()).collect());
    };
    let has = |field: &str| entries.get(field).is_some();
    let is_tool = has("command") || has("inputSchema") || has("name") && has("description");
    if !is_tool {
        return (None, Vec::new());
    }
    let tool = tool(&mut found, sources, path, entries, &root);
    let sound = !found.list.iter().any(Diagnostic::is_error);
    (tool.filter(|_| sound), found.list)
}

fn tool(
    found: &mut Findings<'_>,
    sources: &dyn Sources,
    path: &str,
    entries: &Entries<'_>,
    root: &Node<'_>,
) -> Option<AppTool> {
    let file_name = stem(path.rsplit_once('/').map_or(path, |(_, name)| name));
    let at = entries.0.first().map_or(root.span, |(key, _)| key.span);
    object(found, entries, &TOOL, Subject { name: &format!("tool `{file_name}`"), at }, &[]);
    let name = text(entries, "name");
    if let Some(name) = name {
        if let Some(fault) = name_fault(found.file, name.at, name.text) {
            found.push(fault);
        } else if name.text != file_name {
            found.push(diagnose::name_mismatch(found.file, name.at, name.text, file_name));
        }
    }
    let line = text(entries, "command");
    let command = line.and_then(|line| match command::parse(line.text) {
        Ok(command) => Some(command),
        Err(why) => {
            found.push(values::bad_command(found.file, line.at, why));
            None
        }
    });
    if let (Some(command), Some(line)) = (&command, line) {
        missing_scripts(found, sources, command, line.at);
    }
    if let (Some(node), Some(0)) = (entries.get("timeout"), duration::of_field(entries, "timeout")) {
        found.push(values::zero_timeout(found.file, node.span));
    }
    // All parts are read before a missing one ends the function, so that all faults are reported.
    let (input_schema, approval_key) = (input_schema(found, entries), approval_key(found, entries));
    Some(AppTool {
        name: name?.text.to_owned(),
        description: text(entries, "description")?.text.trim().to_owned(),
        input_schema,
        command: command?,
        gated: boolean(entries, "gated").unwrap_or(true),
        effects: boolean(entries, "effects"),
        approval_key,
        timeout_ms: duration::of_field(entries, "timeout").unwrap_or(DEFAULT_TIMEOUT_MS),
        tags: texts(entries, "tags"),
        file: path.to_owned(),
        has_help: false,
        bare: false,
    })
}

/// Reports an invalid or reserved tool name.
fn name_fault(file: &Arc<SourceFile>, at: Span, name: &str) -> Option<Diagnostic> {
    let is_name =
        (1..=64).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    if BUILT_IN.contains(&name) {
        Some(diagnose::built_in_name(file, at, name, BUILT_IN))
    } else if name.starts_with(MCP_PREFIX) {
        Some(diagnose::mcp_name(file, at, name))
    } else {
        (!is_name).then(|| diagnose::bad_name(file, at, name))
    }
}

/// Warns of words that look like files of the app but do not exist.
fn missing_scripts(found: &mut Findings<'_>, sources: &dyn Sources, command: &Command, at: Span) {
    let script = script_of(command);
    for word in command::words(command) {
        let is_named = |path: &String| path.starts_with("tools/") || script == Some(word);
        let Some(path) = join("", word).filter(is_named) else { continue };
        if sources.kind(&path) == Err(ReadFailure::Missing) {
            let beside = crate::files::siblings(sources, &path);
            found.push(files::missing_script(
                found.file,
                at,
                word,
                &beside,
                "commands of tools run in the app's directory",
            ));
        }
    }
}

fn input_schema(found: &mut Findings<'_>, entries: &Entries<'_>) -> Value {
    let open = || serde_json::json!({"type": "object"});
    let Some((key, node)) = entries.entry("inputSchema").filter(|(_, node)| node.as_map().is_some()) else {
        return open();
    };
    let schema = match node.to_json() {
        Ok(text) => serde_json::from_str(&text).unwrap_or_else(|_| open()),
        Err(at) => {
            found.push(values::not_json(found.file, at, "`inputSchema`"));
            return open();
        }
    };
    let faults = meta_faults(&schema);
    if !faults.is_empty() {
        for fault in faults {
            let at = place_in(node, &fault.pointer);
            found.push(diagnose::bad_schema(found.file, at, &fault.why).maybe_hint(fault.hint));
        }
    } else if let Err(why) = etude_core::schema::Schema::compile("inputSchema", schema.clone(), Default::default()) {
        found.push(diagnose::bad_schema(found.file, key.span, &why));
    } else if schema.get("type").and_then(Value::as_str) != Some("object") {
        found.push(diagnose::schema_of_no_object(found.file, key.span));
    }
    schema_words::in_yaml(found.file, node, &schema).into_iter().for_each(|slip| found.push(slip));
    schema
}

/// Reads the template, with its references checked against the declared arguments.
fn approval_key(found: &mut Findings<'_>, entries: &Entries<'_>) -> Option<String> {
    let key = text(entries, "approvalKey")?;
    let node = entries.get("approvalKey")?;
    let mut places = Locator::new(found.file, node)?;
    let declared: Option<Vec<&str>> = entries
        .get("inputSchema")
        .and_then(|schema| schema.as_map()?.get("properties")?.as_map())
        .map(|properties| properties.keys().collect());
    let mut at = 0;
    while let Some(open) = key.text[at..].find("{{").map(|open| at + open) {
        let Some(close) = key.text[open..].find("}}").map(|close| open + close) else {
            found.push(references::unclosed(found.file, places.span(open..open + 2), "approvalKey"));
            break;
        };
        let reference = key.text[open + 2..close].trim();
        let span = places.span(open + 2..close);
        let argument = reference.strip_prefix("args.").map(|rest| rest.split(['.', '[']).next().unwrap_or_default());
        match (argument, &declared) {
            (None | Some(""), _) => found.push(diagnose::key_reference(found.file, span, reference)),
            (Some(name), Some(declared)) if !declared.contains(&name) => {
                found.push(diagnose::key_argument(found.file, span, name, declared));
            }
            _ => {}
        }
        at = close + 2;
    }
    Some(key.text.to_owned())
}

/// Source for a fault of the file as a whole.
fn whole(path: &str) -> Arc<SourceFile> {
    SourceFile::new(path, "")
}

#[cfg(test)]
mod tests;
