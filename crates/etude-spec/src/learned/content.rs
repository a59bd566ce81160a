//! The content hash that identifies evidence: it covers everything that decides the behaviour of a learned pipeline
//! (`learn.md` 1.2).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use etude_core::digest::Hasher;
use serde_json::Value;

use super::{FILE, REPORT, TESTS, rules_of};
use crate::discover::PIPELINE_FILE;
use crate::files::source_text;
use crate::skill::{Instructions, SKILL_FILE};
use crate::source::{FileKind, SourceFile, Sources};
use crate::tool::AppTool;
use crate::yaml::{self, Node};

/// Name of the step that asks if the write is permitted (`learn.md` 2.7).
const QUESTION: &str = "allowed";

/// Line before the rules in the prompt of that step.
const RULES: &str = "\nRules:\n";

/// Maximum size of a file, in bytes.
const MAX_SIZE: u64 = 16 << 20;

/// Maximum number of files of one pipeline; further ones are not read.
const MAX_COUNT: usize = 2_000;

/// Content hash of a pipeline, 64 hexadecimal digits. `files` are those of its directory, by relative path; learn.yaml,
/// REPORT.md and the cases do not count. `skill` is the body of the app's SKILL.md: if the pipeline asks for the
/// permission of a write, the rules in that question count. An earlier version included all sections about any tool of
/// the pipeline. Such a hash among the `noted` ones remains valid while all of these sections are unchanged.
pub fn content(files: &BTreeMap<String, Vec<u8>>, known: &[AppTool], skill: Option<&str>, noted: &[String]) -> String {
    hash_unless(noted, files, &Steps::in_files(files), (known, skill))
}

/// The hash of an earlier version if it is among the `noted` ones, otherwise that of this version.
fn hash_unless(
    noted: &[String],
    files: &BTreeMap<String, Vec<u8>>,
    steps: &Steps,
    (known, skill): (&[AppTool], Option<&str>),
) -> String {
    let hash = |rules| hash(files, steps, (known, skill), rules);
    let earlier = (!noted.is_empty()).then(|| hash(Rules::OfAllTools));
    earlier.filter(|earlier| noted.contains(earlier)).unwrap_or_else(|| hash(Rules::OfQuestion))
}

/// Reader of the contents of learned pipelines, which reads once what they share: the tools and the SKILL.md of the app.
pub struct Contents<'s> {
    sources: &'s dyn Sources,
    tools: Arc<[AppTool]>,
    skill: Option<Instructions>,
}

/// Content of one learned pipeline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Content {
    /// Its hash, 64 hexadecimal digits.
    pub hash: String,
    /// Names of the tools that it calls.
    pub called: BTreeSet<String>,
}

impl<'s> Contents<'s> {
    /// Reads the tools and the SKILL.md of an app.
    pub fn new(sources: &'s dyn Sources) -> Self {
        Self::of_tools(sources, crate::tool::load(sources).0.into())
    }

    /// The same for an app whose tools have been read.
    pub fn of_tools(sources: &'s dyn Sources, tools: Arc<[AppTool]>) -> Self {
        Self { sources, tools, skill: Instructions::read(sources, SKILL_FILE).ok() }
    }

    /// Tools of the app without errors.
    pub fn tools(&self) -> &[AppTool] {
        &self.tools
    }

    /// Content of the pipeline in the directory `dir`.
    pub fn read(&self, dir: &str) -> Content {
        let mut files = BTreeMap::new();
        add(self.sources, dir, "", &mut files);
        let steps = Steps::in_files(&files);
        let noted: Vec<String> = noted(self.sources, dir).into_iter().collect();
        let skill = self.skill.as_ref().map(|skill| skill.body.as_str());
        let hash = hash_unless(&noted, &files, &steps, (&self.tools, skill));
        Content { hash, called: steps.tools }
    }
}

/// Selection of the skill's rules that count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rules {
    /// Rules of the tools that write, as in the question.
    OfQuestion,
    /// Rules of all tools of the pipeline.
    OfAllTools,
}

pub(super) fn hash(
    files: &BTreeMap<String, Vec<u8>>,
    steps: &Steps,
    (known, skill): (&[AppTool], Option<&str>),
    rules: Rules,
) -> String {
    let mut hasher = Hasher::new("learned pipeline 1");
    for (path, bytes) in files.iter().filter(|(path, _)| counts(path)) {
        hasher.field(b"file").field(path.as_bytes()).field(bytes);
    }
    for tool in known.iter().filter(|tool| steps.tools.contains(&tool.name)) {
        add_tool(&mut hasher, tool);
    }
    if let Some(skill) = skill.filter(|_| steps.asks) {
        let tools: Vec<&str> = steps.tools.iter().map(String::as_str).collect();
        hasher.field(b"rules");
        if rules == Rules::OfAllTools {
            hasher.field(rules_of(skill, &tools).as_bytes());
        }
        // The question has only the rules of the tool that writes, or the whole body if no section names it.
        for name in tools.into_iter().filter(|name| !known.iter().any(|tool| tool.name == **name && only_reads(tool))) {
            hasher.field(name.as_bytes()).field(rules_of(skill, &[name]).as_bytes());
        }
    }
    hasher.finish().to_string()
}

/// Hashes the interface of a tool: its description and the schema of its arguments.
fn add_tool(hasher: &mut Hasher, tool: &AppTool) {
    hasher.field(b"tool").field(tool.name.as_bytes()).field(tool.description.as_bytes());
    hasher.field(tool.input_schema.to_string().as_bytes());
}

/// Names of the tools that the pipeline in the directory `dir` calls.
pub fn called_by(sources: &dyn Sources, dir: &str) -> BTreeSet<String> {
    let bytes = sources.read(&format!("{dir}/{PIPELINE_FILE}"), MAX_SIZE).unwrap_or_default();
    std::str::from_utf8(&bytes).map(Steps::parse).unwrap_or_default().tools
}

/// True if the question before the write of the pipeline in `dir` has rules about `tool`, but not those that SKILL.md has now
/// (`learn.md` 2.7). A prompt without a list of rules has the wording of a person and is not compared.
pub fn has_other_rules(sources: &dyn Sources, dir: &str, tool: &str) -> bool {
    let bytes = sources.read(&format!("{dir}/{PIPELINE_FILE}"), MAX_SIZE).unwrap_or_default();
    let prompt = std::str::from_utf8(&bytes).ok().and_then(|text| Steps::parse(text).question);
    let Some(prompt) = prompt.filter(|prompt| prompt.contains(RULES)) else { return false };
    let Ok(skill) = Instructions::read(sources, SKILL_FILE) else { return false };
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    // As in a template, where a backslash makes braces literal.
    let rules = rules_of(&skill.body, &[tool]).replace("{{", "\\{{");
    !words(&prompt).contains(&words(&rules))
}

/// Hash of the interface of a server's tool: its description and the schema of its arguments. The order of members does
/// not count, because a server may change it each time.
pub fn hash_of_tool(name: &str, description: &str, schema: &Value) -> String {
    let mut schema = schema.clone();
    schema.sort_all_objects();
    let mut hasher = Hasher::new("tool of a server 1");
    hasher.field(name.as_bytes()).field(description.as_bytes()).field(schema.to_string().as_bytes());
    hasher.finish().to_string()
}

/// App tools among those that a pipeline calls, each with a hash of its description and schema.
pub fn tools_of(called: &BTreeSet<String>, known: &[AppTool]) -> BTreeMap<String, String> {
    let own = known.iter().filter(|tool| called.contains(&tool.name));
    let hash = |tool: &AppTool| {
        let mut hasher = Hasher::new("tool of a learned pipeline 1");
        add_tool(&mut hasher, tool);
        (tool.name.clone(), hasher.finish().to_string())
    };
    own.map(hash).collect()
}

/// True if a tool is known to change nothing.
fn only_reads(tool: &AppTool) -> bool {
    tool.effects.map_or(!tool.gated, |effects| !effects)
}

/// Content hash of the pipeline in the directory `dir` of an app.
pub fn content_of(sources: &dyn Sources, dir: &str) -> String {
    Contents::new(sources).read(dir).hash
}

/// The hash in the learn.yaml of a directory, regardless of other faults in that file.
fn noted(sources: &dyn Sources, dir: &str) -> Option<String> {
    let file = source_text(sources, &format!("{dir}/{FILE}")).ok()?;
    let root = yaml::parse(&file).0?;
    root.as_map()?.get("content").and_then(Node::as_text).map(str::to_owned)
}

fn counts(path: &str) -> bool {
    path != FILE && path != REPORT && path.split('/').next() != Some(TESTS)
}

fn add(sources: &dyn Sources, dir: &str, below: &str, files: &mut BTreeMap<String, Vec<u8>>) {
    for entry in sources.list(dir).unwrap_or_default() {
        let path = format!("{below}{}", entry.name);
        let is_made = entry.name.starts_with('.') || entry.name == "__pycache__";
        if is_made || !counts(&path) || files.len() >= MAX_COUNT {
            continue;
        }
        let full = format!("{dir}/{}", entry.name);
        match entry.kind {
            FileKind::File { .. } => {
                // An unreadable file counts as empty: a hash cannot report it.
                files.insert(path, sources.read(&full, MAX_SIZE).unwrap_or_default());
            }
            FileKind::Dir => add(sources, &full, &format!("{path}/"), files),
            FileKind::Other => {}
        }
    }
}

/// Facts about the steps of a definition, even a broken one.
#[derive(Default)]
pub(super) struct Steps {
    tools: BTreeSet<String>,
    asks: bool,
    /// Prompt of the step that asks.
    question: Option<String>,
}

impl Steps {
    /// The steps of the pipeline with these files.
    pub(super) fn in_files(files: &BTreeMap<String, Vec<u8>>) -> Self {
        let definition = files.get(PIPELINE_FILE).and_then(|bytes| std::str::from_utf8(bytes).ok());
        definition.map(Self::parse).unwrap_or_default()
    }

    fn parse(text: &str) -> Self {
        let file = SourceFile::new(PIPELINE_FILE, text);
        let Some(root) = yaml::parse(&file).0 else { return Self::default() };
        let mut found = Self::default();
        let mut waiting: Vec<&Node<'_>> = root.as_map().and_then(|entries| entries.get("steps")).into_iter().collect();
        while let Some(node) = waiting.pop() {
            waiting.extend(node.as_seq().into_iter().flatten());
            let Some(entries) = node.as_map() else { continue };
            waiting.extend(entries.get("steps"));
            let word = |field: &str| entries.get(field).and_then(Node::as_text);
            if word("name") == Some(QUESTION) && word("type") == Some("llm") {
                found.asks = true;
                found.question = word("prompt").map(str::to_owned);
            }
            found.tools.extend(word("tool").map(str::to_owned));
        }
        found
    }
}
