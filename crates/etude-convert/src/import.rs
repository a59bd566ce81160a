//! Import of definitions of other programs as an app: text in, files and findings out. Everything that is not imported is
//! listed with its place and the reason.

mod actions;
mod again;
mod claude;
mod dagu;
mod lobster;
mod order;
mod shell;

use std::sync::Arc;

use etude_spec::source::SourceFile;
use etude_spec::yaml::{Entries, Node};
use serde_json::{Map, Value, json};

use crate::compile::File;
use crate::draft::{Names, RESERVED, safe};
use crate::yaml;

/// Maximum size of a file that is read, in bytes.
pub const MAX_BYTES: u64 = 1 << 20;

/// Maximum size of a pipeline, in bytes: a definition has at most a mebibyte.
const MAX_PIPELINE: usize = 1 << 20;

/// Maximum size of all files that an import makes, in bytes.
const MAX_TOTAL: usize = 64 << 20;

/// Reason why a file without text is not imported.
const UNREADABLE: &str = "it is not UTF-8, or has more than 1 MiB";

etude_core::words! {
    /// Program that definitions are for, with its word on the command line and in reports.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum ImportKind {
        /// Commands and skills of Claude Code.
        ClaudeCode = "claude-code",
        /// A workflow in the form of GitHub Actions.
        Actions = "github-actions",
        /// A DAG of Dagu.
        Dagu = "dagu",
        /// A workflow of Lobster.
        Lobster = "lobster",
    }
}

impl ImportKind {
    /// Kind of a file, by its path and text; `None` if it is unknown.
    pub fn detect(path: &str, text: &str) -> Option<Self> {
        // Editors on some systems write a byte order mark.
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let has = |start: &str| text.lines().any(|line| line.starts_with(start));
        let is_yaml = [".yml", ".yaml"].iter().any(|end| path.ends_with(end));
        if path.ends_with(".lobster") || path.ends_with(".lobster.yaml") {
            return Some(Self::Lobster);
        }
        match is_yaml {
            true if has("jobs:") => Some(Self::Actions),
            true if has("steps:") && (text.contains("$") && text.contains(".approved") || has("args:")) => {
                Some(Self::Lobster)
            }
            true if has("steps:") => Some(Self::Dagu),
            true => None,
            // Texts next to workflows, such as a README, are not commands.
            false => {
                let is_below = path.split('/').rev().skip(1).any(|part| ["commands", "skills"].contains(&part));
                (path.ends_with(".md") && is_below).then_some(Self::ClaudeCode)
            }
        }
    }

    /// Folder of a project with the files of this kind; `None` if they may be in any folder.
    pub fn folder(self) -> Option<&'static str> {
        match self {
            Self::ClaudeCode => Some(".claude"),
            Self::Actions => Some(".github/workflows"),
            Self::Dagu | Self::Lobster => None,
        }
    }
}

/// File to import.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// Path in the form that the user knows, with `/` between its parts.
    pub path: String,
    /// Text of the file; `None` if it is not UTF-8 or too large.
    pub text: Option<String>,
}

/// Imported pipeline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pipeline {
    /// Name of the pipeline's directory.
    pub name: String,
    /// Path of the file that it comes from.
    pub source: String,
    /// Number of its steps.
    pub steps: usize,
}

/// Part of a file that was not imported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Path of the file as it was given.
    pub file: String,
    /// Line, from 1.
    pub line: u32,
    /// Field or construct as the file names it.
    pub what: String,
    /// Reason why it was not imported.
    pub reason: String,
}

/// Result of an import.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Imported {
    /// Imported pipelines, in the order of the files.
    pub pipelines: Vec<Pipeline>,
    /// Names of the imported skills.
    pub skills: Vec<String>,
    /// Files to write, with their text.
    pub files: Vec<File>,
    /// Files to copy unchanged: source, and target below the app's directory.
    pub copies: Vec<(String, String)>,
    /// Parts that were not imported, in order.
    pub not_imported: Vec<Finding>,
    /// Files that no rule covers, in order.
    unrelated: Vec<String>,
    /// Names of the pipelines.
    names: Names,
    /// Total size of the files to write, in bytes. A pipeline that was refused for its size counts as well.
    bytes: usize,
}

/// Imports files of one kind.
pub fn import(kind: ImportKind, sources: &[Source]) -> Imported {
    let mut imported = Imported::default();
    for source in sources {
        let Some(text) = &source.text else {
            match kind {
                ImportKind::ClaudeCode => claude::unreadable(&mut imported, sources, &source.path),
                _ => imported.find(&source.path, 1, "the file", UNREADABLE),
            }
            continue;
        };
        match kind {
            ImportKind::ClaudeCode => claude::file(&mut imported, sources, &source.path, text),
            ImportKind::Actions => actions::file(&mut imported, &source.path, text),
            // A DAG may start another one, so that all files are needed.
            ImportKind::Dagu => {}
            ImportKind::Lobster => lobster::file(&mut imported, &source.path, text),
        }
    }
    if kind == ImportKind::Dagu {
        dagu::files(&mut imported, sources);
    }
    imported.find_unrelated();
    imported
}

impl Imported {
    fn find(&mut self, file: &str, line: u32, what: impl Into<String>, reason: impl Into<String>) {
        self.not_imported.push(Finding { file: file.to_owned(), line, what: what.into(), reason: reason.into() });
    }

    /// Lists the files that no rule covers, in one finding.
    fn find_unrelated(&mut self) {
        let unrelated = std::mem::take(&mut self.unrelated);
        let what = match unrelated.len() {
            0 => return,
            1 => "the file".to_owned(),
            2 => "this file and 1 other".to_owned(),
            many => format!("this file and {} others", many - 1),
        };
        self.find(&unrelated[0], 1, what, claude::IMPORTED);
    }

    /// Name that no pipeline has.
    fn free(&mut self, text: &str) -> String {
        self.names.free(&safe(text, "pipeline"))
    }

    /// Checks that files can be added.
    ///
    /// # Errors
    /// The app would have too many bytes: the reason.
    fn has_room(&self) -> Result<(), String> {
        if self.bytes <= MAX_TOTAL {
            Ok(())
        } else {
            Err(format!("the app would have more than {} MiB", MAX_TOTAL >> 20))
        }
    }

    /// Adds a pipeline with its files; false if the app would have too many bytes.
    fn add(&mut self, pipeline: Building, source: &str) -> bool {
        let Building { name, description, input, steps, files, .. } = pipeline;
        let mut definition = json!({"name": name, "description": description});
        if !input.is_empty() {
            definition["input"] = Value::Object(input);
        }
        let count = steps.len();
        definition["steps"] = Value::Array(steps);
        let made = File { path: format!("pipelines/{name}/pipeline.yaml"), text: yaml::text(&definition) };
        let below = |file: File| File { path: format!("pipelines/{name}/{}", file.path), ..file };
        let files: Vec<File> = std::iter::once(made).chain(files.into_iter().map(below)).collect();
        let bytes: usize = files.iter().map(|file| file.text.len()).sum();
        self.bytes += bytes;
        if let Err(reason) = self.has_room() {
            self.find(source, 1, format!("pipeline `{name}`"), reason);
            return false;
        }
        self.files.extend(files);
        self.names.take(&name);
        self.pipelines.push(Pipeline { name, source: source.to_owned(), steps: count });
        true
    }
}

/// Pipeline under construction.
struct Building {
    name: String,
    description: String,
    input: Map<String, Value>,
    steps: Vec<Value>,
    files: Vec<File>,
    names: Names,
    /// Approximate size of its definition and its files, in bytes.
    bytes: usize,
}

impl Building {
    fn new(name: String, description: &str) -> Self {
        let words: Vec<&str> = description.split_whitespace().collect();
        let description = if words.is_empty() { name.replace(['-', '_'], " ") } else { words.join(" ") };
        let names = Names::new(&RESERVED);
        Self { name, description, input: Map::new(), steps: Vec::new(), files: Vec::new(), names, bytes: 0 }
    }

    /// Name for a step that no other step of the pipeline has.
    fn step_name(&mut self, text: &str) -> String {
        self.names.unique(&safe(text, "step"))
    }

    /// Counts bytes of a step.
    ///
    /// # Errors
    /// The pipeline would have too many bytes: the reason.
    fn charge(&mut self, bytes: usize) -> Result<(), String> {
        self.bytes = self.bytes.saturating_add(bytes);
        self.has_room()
    }

    /// Checks that steps can be added.
    ///
    /// # Errors
    /// The pipeline would have too many bytes: the reason.
    fn has_room(&self) -> Result<(), String> {
        if self.bytes <= MAX_PIPELINE { Ok(()) } else { Err("the pipeline would have more than 1 MiB".to_owned()) }
    }

    /// Adds an optional string parameter, unless it is declared already.
    fn parameter(&mut self, name: &str, default: Option<&str>) {
        let declared = match default {
            Some(default) => json!({"type": "string", "default": default}),
            None => json!("string"),
        };
        self.input.entry(name.to_owned()).or_insert(declared);
    }
}

/// YAML file with the places of its nodes.
struct Document {
    file: Arc<SourceFile>,
}

impl Document {
    fn new(path: &str, text: &str) -> Self {
        Self { file: SourceFile::new(path, text) }
    }

    /// Runs `work` on the mapping at the top. A fault of the file is a finding.
    fn read<T>(&self, imported: &mut Imported, work: impl FnOnce(&mut Imported, &Entries<'_>) -> T) -> Option<T> {
        let (root, diagnostics) = etude_spec::yaml::parse(&self.file);
        if let Some(error) = diagnostics.iter().find(|diagnostic| diagnostic.is_error()) {
            let line = error.position().map_or(1, |(line, _)| line);
            imported.find(self.file.path(), line, "the file", error.message.clone());
            return None;
        }
        match root.as_ref().and_then(Node::as_map) {
            Some(entries) => Some(work(imported, entries)),
            None => {
                imported.find(self.file.path(), 1, "the file", "it is not a mapping");
                None
            }
        }
    }

    fn line(&self, node: &Node<'_>) -> u32 {
        self.file.line(node.span.start)
    }

    /// Lists the fields without which a file must not run; true if there is one.
    fn guarded(&self, imported: &mut Imported, entries: &Entries<'_>, is_guard: impl Fn(&str) -> bool) -> bool {
        let guards: Vec<_> = entries
            .0
            .iter()
            .filter(|(key, _)| is_guard(key.as_text().unwrap_or_default()))
            .map(|(key, _)| key)
            .collect();
        for key in &guards {
            let what = format!("`{}`", key.as_text().unwrap_or_default());
            let reason = "etude has no equivalent, and the file must not run without it";
            imported.find(self.file.path(), self.line(key), what, reason);
        }
        !guards.is_empty()
    }

    /// Lists every field that is not `known`.
    fn unknown(&self, imported: &mut Imported, entries: &Entries<'_>, known: &[&str], place: &str) {
        for (key, _) in &entries.0 {
            let name = key.as_text().unwrap_or_default();
            if !known.contains(&name) {
                let what = if place.is_empty() { format!("`{name}`") } else { format!("`{name}` of {place}") };
                imported.find(self.file.path(), self.line(key), what, "etude has no equivalent");
            }
        }
    }
}

/// A scalar as text.
fn text_of(node: &Node<'_>) -> Option<String> {
    match node.to_json().ok().and_then(|json| serde_json::from_str(&json).ok())? {
        Value::String(text) => Some(text),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(word) => Some(word.to_string()),
        _ => None,
    }
}

/// Reason why a step is not imported that runs only if the one before it succeeds.
fn after(lost: &str) -> String {
    format!("it follows {lost}, which was not imported")
}

/// Reason for listing a trigger on a schedule.
const SCHEDULE: &str = "declare it in `etude.yaml` under `schedules`";

/// True if a text can be the name of a variable.
fn is_name(text: &str) -> bool {
    let is_letter = |c: char| c.is_ascii_alphabetic() || c == '_';
    text.starts_with(is_letter) && text.chars().all(|c| is_letter(c) || c.is_ascii_digit())
}

/// Name of a file without folders and extensions.
fn stem(path: &str) -> &str {
    let name = path.rsplit('/').next().unwrap_or(path);
    name.split('.').next().unwrap_or(name)
}
