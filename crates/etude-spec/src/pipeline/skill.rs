//! The skill of a step. It lies in the app, so that it is pinned with the pipeline.

use std::sync::Arc;

use serde_json::Value;

use crate::check::Findings;
use crate::code::Code;
use crate::diagnose::{references, skills as diagnose};
use crate::diagnostic::{Diagnostic, Severity};
use crate::directive;
use crate::discover::{CONSTRUCTOR, DESTRUCTOR};
use crate::files::{entries_of, miscased};
use crate::glob;
use crate::pipeline::load::Loader;
use crate::skill::{self, Instructions, SKILL_FILE, tool_list};
use crate::source::{FileKind, ReadFailure, SourceFile, Sources, Span};
use crate::tool::{self, AppTool};
use crate::wording::quoted;
use crate::yaml::{Node, Text};

/// Built-in tools that only read.
const READING: &[&str] = &["Read", "Glob", "Grep", "List"];

/// Directories of an app's skills; the first one wins (`c-applications` 2.6).
fn roots() -> impl Iterator<Item = &'static str> {
    std::iter::once(skill::APP_ROOT).chain(skill::ROOTS)
}

/// The parts of a skill that a step needs.
pub(crate) struct Skill {
    pub(crate) name: String,
    /// Path of its `SKILL.md`, relative to the app.
    pub(crate) file: String,
    /// Path of its directory, relative to the app.
    pub(crate) dir: String,
    /// Text below the frontmatter.
    pub(crate) body: String,
    /// The skill's own `allowed-tools`; `None` without that field.
    pub(crate) allowed: Option<Vec<String>>,
    /// Findings in the skill's frontmatter below the severity of an error.
    pub(crate) warnings: Vec<Diagnostic>,
}

/// Finds and reads the skill that `file` refers to as `name`.
pub(crate) fn find(sources: &dyn Sources, file: &Arc<SourceFile>, name: Text<'_>) -> Result<Skill, Vec<Diagnostic>> {
    let is_name = !name.text.is_empty() && !name.text.contains(['/', '\\']) && !name.text.starts_with('.');
    let paths = || roots().map(|folder| format!("{folder}/{}", name.text)).filter(|_| is_name);
    let is_there = |dir: &String| matches!(sources.kind(&format!("{dir}/{SKILL_FILE}")), Ok(FileKind::File { .. }));
    let Some(dir) = paths().find(is_there) else {
        let known = names(sources);
        let known: Vec<&str> = known.iter().map(String::as_str).collect();
        let unknown = references::unknown_skill(file, name.at, name.text, &known);
        let mut miscased = paths().filter_map(|dir| miscased(sources, &dir, SKILL_FILE));
        let unknown = match miscased.next() {
            Some(path) => unknown.hint(format!("rename {} to `SKILL.md`", quoted(&path))),
            None => unknown,
        };
        // A directory that cannot be listed may have the skill.
        let unlisted = roots().filter_map(|folder| entries_of(sources, folder).err());
        return Err(std::iter::once(unknown).chain(unlisted).collect());
    };
    let path = format!("{dir}/{SKILL_FILE}");
    let Instructions { body, allowed, warnings, .. } = Instructions::read(sources, &path)?;
    Ok(Skill { name: name.text.to_owned(), file: path, dir, body, allowed, warnings })
}

/// Warnings about skills of an app that are not read: their file has a name in the wrong case or errors, or their
/// directory cannot be listed.
pub fn unread(sources: &dyn Sources) -> Vec<Diagnostic> {
    let mut found: Vec<Diagnostic> =
        miscased(sources, "", SKILL_FILE).map(|path| diagnose::file_case(&path)).into_iter().collect();
    for folder in roots() {
        match entries_of(sources, folder) {
            Ok(entries) => {
                let dirs = entries.into_iter().filter(|entry| entry.kind == FileKind::Dir);
                let dirs = dirs.map(|entry| format!("{folder}/{}", entry.name));
                dirs.for_each(|dir| found.extend(unread_in(sources, &dir)));
            }
            Err(unlisted) => found.push(unlisted.severity(Severity::Warning)),
        }
    }
    found
}

/// Warnings about the skill in `dir`, if agents cannot follow it.
fn unread_in(sources: &dyn Sources, dir: &str) -> Vec<Diagnostic> {
    let path = format!("{dir}/{SKILL_FILE}");
    if sources.kind(&path) == Err(ReadFailure::Missing) {
        return miscased(sources, dir, SKILL_FILE).iter().map(|path| diagnose::file_case(path)).collect();
    }
    let errors = Instructions::read(sources, &path).err().unwrap_or_default();
    errors.into_iter().map(|fault| fault.at_most(Severity::Warning)).collect()
}

/// Names of the app's skills.
fn names(sources: &dyn Sources) -> Vec<String> {
    let mut names = Vec::new();
    for folder in roots() {
        let entries = sources.list(folder).unwrap_or_default().into_iter().map(|entry| entry.name);
        names.extend(entries.filter(|name| sources.kind(&format!("{folder}/{name}/{SKILL_FILE}")).is_ok()));
    }
    names.sort();
    names.dedup();
    names
}

/// Tools that the app's skill allows; `None` means all.
pub(super) fn allowed(sources: &dyn Sources) -> Option<Vec<String>> {
    let has_skill = matches!(sources.kind(SKILL_FILE), Ok(FileKind::File { .. }));
    let skill = has_skill.then(|| Instructions::read(sources, SKILL_FILE).ok()).flatten();
    skill.and_then(|skill| skill.allowed)
}

/// Warns of patterns in a step's `allowed_tools` that match no tool. Tools of MCP servers are known only during a run.
pub(super) fn check_patterns(found: &mut Findings<'_>, loader: &Loader<'_>, step: &Node<'_>) {
    let listed = step.as_map().and_then(|entries| entries.get("allowed_tools")).and_then(Node::as_seq);
    let Some(listed) = listed.filter(|listed| !listed.is_empty()) else { return };
    let own = loader.tools();
    let known: Vec<&str> = tool::BUILT_IN.iter().copied().chain(own.iter().map(|tool| tool.name.as_str())).collect();
    for node in listed {
        let slips = directive::slips(found.file, node.span, node.as_text().unwrap_or_default());
        // Names of tools are compared with those of the app below.
        slips.into_iter().filter(|slip| slip.code == Code::UnknownWord).for_each(|slip| found.push(slip));
        for pattern in &tool_list(node.as_text().unwrap_or_default()) {
            let name = name_of(pattern);
            if !may_be_of_a_server(name) && !known.iter().any(|tool| is_listed(name, tool, own)) {
                found.push(references::idle_pattern(found.file, node.span, pattern, name, &known));
            }
        }
    }
}

/// Part of a pattern before its parentheses: a name pattern, or `#TAG`.
fn name_of(pattern: &str) -> &str {
    pattern.split('(').next().unwrap_or_default().trim_end()
}

/// True if the pattern `name` matches the tool. `own` are the tools of the app.
fn is_listed(name: &str, tool: &str, own: &[AppTool]) -> bool {
    match name.strip_prefix('#') {
        Some(tag) => own.iter().any(|known| known.name == tool && known.tags.iter().any(|of_tool| of_tool == tag)),
        None => {
            let glob = glob::build(name, |glob| glob.empty_alternates(true));
            glob.is_ok_and(|glob| glob.compile_matcher().is_match(tool))
        }
    }
}

/// A tool that a step calls.
pub(super) struct CalledTool {
    /// Tools that the app's skill allows; `None` means all.
    pub(crate) allowed: Option<Vec<String>>,
    /// True if the tool may change something.
    pub(crate) writes: bool,
    /// Schema of its arguments; `None` for a tool of an MCP server, which is known only during a run.
    pub(crate) schema: Option<Value>,
}

/// Checks the tool that a step calls (L-43): it must be a tool of the app, a built-in one or one of a server, and the
/// app's skill must allow it.
pub(super) fn check_tool(found: &mut Findings<'_>, loader: &Loader<'_>, name: Text<'_>) -> CalledTool {
    let own = loader.tools();
    let known: Vec<&str> = tool::BUILT_IN.iter().copied().chain(own.iter().map(|tool| tool.name.as_str())).collect();
    if !known.contains(&name.text) && !name.text.starts_with(tool::MCP_PREFIX) {
        found.push(references::unknown_tool(found.file, name.at, name.text, &known));
        return CalledTool { allowed: None, writes: true, schema: None };
    }
    let allowed = loader.allowed();
    if let Some(listed) = allowed {
        let patterns = || listed.iter().flat_map(|text| tool_list(text));
        let names = |pattern: &String| is_listed(name_of(pattern), name.text, own);
        if patterns().any(|pattern| skill::denies_all(&pattern) && names(&pattern)) {
            found.push(references::denied_tool(found.file, name.at, name.text));
        } else if !patterns().any(|pattern| names(&pattern)) {
            found.push(references::excluded_tool(found.file, name.at, name.text));
        }
    }
    let schema = own.iter().find(|tool| tool.name == name.text).map(|tool| tool.input_schema.clone());
    CalledTool {
        allowed: allowed.map(<[String]>::to_vec),
        writes: may_write(name.text, own),
        schema: schema.or_else(|| tool::built_in::schema(name.text)),
    }
}

/// False only if the tool is known to be read-only (`effect_class` of a trace). `own` are the tools of the app.
fn may_write(name: &str, own: &[AppTool]) -> bool {
    match own.iter().find(|tool| tool.name == name) {
        Some(tool) => tool.effects.unwrap_or(tool.gated),
        None => !READING.contains(&name),
    }
}

/// Checks the requirement of `fallback: skill` of the pipeline `name` (L-75): the app's own `SKILL.md`. Constructor and
/// destructor never deviate.
pub(crate) fn check_fallback(found: &mut Findings<'_>, sources: &dyn Sources, name: &str, at: Option<Span>) {
    let Some(at) = at else { return };
    if [CONSTRUCTOR, DESTRUCTOR].contains(&name) {
        found.push(references::scope_fallback(found.file, at, name));
    } else if !matches!(sources.kind(SKILL_FILE), Ok(FileKind::File { .. })) {
        found.push(references::no_skill_to_fall_back_to(found.file, at));
    }
}

/// True if the name pattern may match a tool of an MCP server.
fn may_be_of_a_server(name: &str) -> bool {
    match name.find(['*', '?', '[', '{']) {
        Some(at) => tool::MCP_PREFIX.starts_with(&name[..at]) || name.starts_with(tool::MCP_PREFIX),
        None => name.starts_with(tool::MCP_PREFIX),
    }
}
