//! Commands and skills of Claude Code: each becomes a skill of the app and a pipeline that follows it.

mod arguments;
mod lenient;

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

use etude_spec::source::SourceFile;
use etude_spec::yaml::{Entries, Node};
use etude_spec::{frontmatter, yaml};
use regex::Regex;
use serde_json::{Value, json};

use super::shell::{CALLER, Provider, Script, Variables, literal};
use super::{Building, Imported, Source, UNREADABLE, stem, text_of};
use crate::compile::File;
use crate::draft::safe;
use arguments::{Arguments, WHOLE, named, references};

/// `` !`command` `` at the start of a word: its output is part of the prompt.
static COMMAND: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"(?m)(^|\s)!`([^`]+)`").ok());

/// `@path` at the start of a word, which Claude Code replaces by the file: it has a slash or an extension.
static MENTION: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r"(?:^|[\s(])(?<path>@[\w.~-]*(?:(?:/[\w.@~-]+)+/?|\.[A-Za-z0-9]{1,5}\b))(?<more>[(=@])?").ok()
});

/// An argument in any form of shell text: `"$1"`, `${ARGUMENTS:-x}`.
static ARGUMENT_OF_SHELL: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"\$\{?[#!]?(?:ARGUMENTS|\d)").ok());

/// Variables that Claude Code replaces.
const CLAUDE: Provider = Provider { name: "Claude Code", prefixes: &["CLAUDE_"], words: &[] };

/// Fields that mean the same here, or only change the way in which Claude Code shows the command.
const KNOWN: [&str; 9] = [
    "name", "description", "argument-hint", "allowed-tools", "disallowed-tools", "model", "license", "metadata",
    "compatibility",
];

/// Kind of a file, by the folders above it.
enum Place<'p> {
    Command(&'p str),
    /// The folder of the skill.
    Skill(&'p str),
    Other,
}

pub(super) fn file(imported: &mut Imported, sources: &[Source], path: &str, text: &str) {
    match place(path) {
        Place::Command(name) => command(imported, path, name, text),
        Place::Skill(folder) => skill(imported, sources, (path, folder), text),
        Place::Other => other(imported, sources, path),
    }
}

/// Handles a file without text. Files of a skill are copied.
pub(super) fn unreadable(imported: &mut Imported, sources: &[Source], path: &str) {
    match place(path) {
        Place::Command(_) | Place::Skill(_) => imported.find(path, 1, "the file", UNREADABLE),
        Place::Other => other(imported, sources, path),
    }
}

/// Handles a file that is neither a command nor a `SKILL.md`.
fn other(imported: &mut Imported, sources: &[Source], path: &str) {
    let skills = || sources.iter().filter_map(|source| source.path.strip_suffix("SKILL.md"));
    if skills().any(|folder| path.starts_with(folder)) {
        // The file is copied with its skill.
        return;
    }
    let is_lost = |folder: &&str| !skills().any(|skill| skill.starts_with(folder));
    match skill_folder(path).filter(is_lost) {
        Some(folder) => {
            let first = sources.iter().find(|source| source.path.starts_with(folder));
            if first.is_some_and(|first| first.path == path) {
                imported.find(folder.trim_end_matches('/'), 1, "the folder", "it has no `SKILL.md`");
            }
        }
        None if is_of_claude(path) => imported.find(path, 1, "the file", IMPORTED),
        None => imported.unrelated.push(path.to_owned()),
    }
}

/// Folder below `skills` that contains a path, with the slash at its end.
fn skill_folder(path: &str) -> Option<&str> {
    let start = path.rfind("/skills/").map(|at| at + 1).or_else(|| path.starts_with("skills/").then_some(0))?;
    let below = start + "skills/".len();
    path[below..].find('/').map(|end| &path[..=below + end])
}

/// Reason why any other file is not imported.
pub(super) const IMPORTED: &str = "only `commands/*.md` and `skills/*/SKILL.md` are imported";

/// True for a file that means something to Claude Code; other files belong to the project around it.
fn is_of_claude(path: &str) -> bool {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    let has = |part: &str| [".claude", "commands", "agents", "hooks"].contains(&part);
    folder.split('/').any(has) || ["CLAUDE.md", ".mcp.json"].contains(&name)
}

fn place(path: &str) -> Place<'_> {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    if name == "SKILL.md" {
        return Place::Skill(folder);
    }
    let is_command = folder.split('/').any(|part| part == "commands") || folder.is_empty();
    match name.strip_suffix(".md") {
        Some(_) if is_command => Place::Command(stem(path)),
        _ => Place::Other,
    }
}

/// Parts of a file: fields of its frontmatter, and its body.
#[derive(Default)]
struct Parts {
    description: String,
    tools: Option<String>,
    disallowed: Option<String>,
    tier: Option<&'static str>,
    /// Named arguments, as variables without a value.
    arguments: Variables,
    /// Names that the hint gives to the arguments.
    hints: Vec<String>,
    body: String,
    /// Byte offsets of the ends of the body's lines.
    ends: Vec<usize>,
    line: u32,
}

/// Parts of a file. If `is_lenient`, frontmatter that is not YAML is read line by line, which is a finding.
fn parts(imported: &mut Imported, (path, text): (&str, &str), is_lenient: bool) -> Option<Parts> {
    let file = SourceFile::new(path, text);
    let parts = match frontmatter::split(&file) {
        Ok(parts) => parts,
        Err(fault) => {
            imported.find(path, 1, "the file", fault.message.clone());
            return None;
        }
    };
    let (mut root, diagnostics) = frontmatter::parse(&file, &parts);
    let read = parts.yaml.map_or("", |span| file.slice(span));
    let plain = SourceFile::new(path, format!("\n{}", lenient::yaml(read)));
    let mut source = &file;
    if let Some(error) = diagnostics.iter().find(|diagnostic| diagnostic.is_error()) {
        let reason = match is_lenient {
            true => format!("each line was parsed as `name: text`, because {}", error.message),
            false => error.message.clone(),
        };
        imported.find(path, error.position().map_or(1, |(line, _)| line), "the frontmatter", reason);
        if !is_lenient {
            return None;
        }
        (root, source) = (yaml::parse(&plain).0, &plain);
    }
    let body = file.slice(parts.body);
    let shown = body.trim().to_owned();
    let line = file.line(parts.body.start) + lines(&body[..body.len() - body.trim_start().len()]);
    let found =
        Parts { ends: shown.match_indices('\n').map(|(at, _)| at).collect(), body: shown, line, ..Parts::default() };
    Some(match root.as_ref().and_then(Node::as_map) {
        Some(entries) => found.with(imported, source, entries),
        None => found,
    })
}

/// Number of line breaks in a text.
fn lines(text: &str) -> u32 {
    u32::try_from(text.matches('\n').count()).unwrap_or(0)
}

impl Parts {
    /// Adds the fields of the frontmatter. Fields without an equivalent are findings.
    fn with(mut self, imported: &mut Imported, file: &Arc<SourceFile>, entries: &Entries<'_>) -> Self {
        let path = file.path();
        let field = |name: &str| entries.get(name).and_then(text_of);
        let list = |name: &str| {
            let items = entries.get(name).and_then(Node::as_seq);
            items.map(|items| items.iter().filter_map(text_of).collect::<Vec<_>>())
        };
        for (key, _) in &entries.0 {
            let name = key.as_text().unwrap_or_default();
            if !KNOWN.contains(&name) {
                imported.find(path, file.line(key.span.start), format!("`{name}`"), "etude has no equivalent");
            }
        }
        self.tier = field("model").and_then(|model| {
            let tiers = [("haiku", "lite"), ("sonnet", "standard"), ("opus", "reasoning")];
            let tier = tiers.iter().find(|(name, _)| model.contains(name)).map(|(_, tier)| *tier);
            if tier.is_none() && model != "inherit" {
                let line = entries.entry("model").map_or(1, |(key, _)| file.line(key.span.start));
                imported.find(path, line, format!("model `{model}`"), "no tier is known for it");
            }
            tier
        });
        self.tools = list("allowed-tools").map(|items| items.join(", ")).or_else(|| field("allowed-tools"));
        self.disallowed = list("disallowed-tools").map(|items| items.join(", ")).or_else(|| field("disallowed-tools"));
        let words = |text: String| text.split_whitespace().map(str::to_owned).collect();
        let arguments = list("arguments").or_else(|| field("arguments").map(words)).unwrap_or_default();
        arguments.iter().for_each(|name| self.arguments.drop(name));
        let hint = field("argument-hint").map(|hint| named(&hint));
        self.hints = list("argument-hint").or(hint).unwrap_or_default();
        self.description = field("description").unwrap_or_default();
        self
    }

    /// Line of a place in the body.
    fn line_of(&self, at: usize) -> u32 {
        self.line + u32::try_from(self.ends.partition_point(|end| *end < at)).unwrap_or(0)
    }

    /// Distinct references to arguments in the body, each with the place of the first one.
    fn arguments(&self) -> Vec<(&str, usize)> {
        let mut known = BTreeSet::new();
        let found = references(&self.body);
        found.filter(|one| known.insert(one.as_str())).map(|one| (one.as_str(), one.start())).collect()
    }

    /// Distinct files that the body mentions outside of code, each with the place of the first mention.
    fn mentions(&self) -> Vec<(&str, usize)> {
        let mut known = BTreeSet::new();
        let (mut is_code, mut start, mut found) = (false, 0, Vec::new());
        for line in self.body.split_inclusive('\n') {
            let is_fence = line.trim_start().starts_with("```");
            is_code ^= is_fence;
            let matches = MENTION.iter().filter(|_| !is_code && !is_fence).flat_map(|one| one.captures_iter(line));
            for path in matches.filter(|one| one.name("more").is_none()).filter_map(|one| one.name("path")) {
                let text = path.as_str().trim_end_matches('.');
                if known.insert(text) {
                    found.push((text, start + path.start()));
                }
            }
            start += line.len();
        }
        found
    }

    /// Reason why a command in the body cannot be a code step.
    fn refusal(&self, line: &str) -> Option<String> {
        if ARGUMENT_OF_SHELL.as_ref().is_none_or(|pattern| pattern.is_match(line)) {
            return Some("arguments in its text have no equivalent".to_owned());
        }
        self.arguments.refusal(line, &CLAUDE)
    }
}

fn command(imported: &mut Imported, path: &str, name: &str, text: &str) {
    let Some(parts) = parts(imported, (path, text), true) else { return };
    let first = parts.body.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    let description = match parts.description.is_empty() {
        true => first.trim_start_matches(['#', ' ']).chars().take(200).collect(),
        false => parts.description.clone(),
    };
    if parts.body.is_empty() {
        return imported.find(path, parts.line, "the command", "it has no text");
    }
    let found = parts.arguments();
    let arguments = match Arguments::of(&found, &parts.hints) {
        Ok(arguments) => arguments,
        Err(reason) => {
            let line = found.first().map_or(parts.line, |(_, at)| parts.line_of(*at));
            return imported.find(path, line, "the command", reason);
        }
    };
    let name = imported.free(&lower(name));
    let mut building = Building::new(name.clone(), &description);
    let mut request = "{{run.request}}".to_owned();
    let parameters = arguments.parameters();
    parameters.iter().for_each(|parameter| building.parameter(parameter, Some("")));
    if parameters == [WHOLE] {
        request = format!("Arguments: {{{{input.{WHOLE}}}}}");
    } else if !parameters.is_empty() {
        let line = |parameter: &&str| format!("- {parameter}: {{{{input.{parameter}}}}}");
        request = format!("Arguments:\n{}", parameters.iter().map(line).collect::<Vec<_>>().join("\n"));
    }
    let body = context(imported, path, &parts, (&mut building, &mut request));
    let body = arguments.without(&body);
    for (mention, at) in parts.mentions() {
        let reason = "the content of the file is not inserted; print it in a code step";
        imported.find(path, parts.line_of(at), format!("`{mention}`"), reason);
    }
    let mut head = json!({"name": name, "description": building.description});
    if let Some(tools) = &parts.tools {
        head["allowed-tools"] = json!(tools);
    }
    if let Some(tools) = &parts.disallowed {
        head["disallowed-tools"] = json!(tools);
    }
    let text = format!("---\n{}---\n{body}\n", crate::yaml::text(&head));
    if follow(imported, building, &request, parts.tier, path) {
        imported.bytes += text.len();
        imported.files.push(File { path: format!("skills/{name}/SKILL.md"), text });
    }
}

/// Makes the commands of a prompt code steps, whose outputs are part of the request. Returns the body with references to
/// them.
fn context(
    imported: &mut Imported,
    path: &str,
    parts: &Parts,
    (building, request): (&mut Building, &mut String),
) -> String {
    let (mut body, mut from) = (String::new(), 0);
    for found in COMMAND.iter().flat_map(|pattern| pattern.captures_iter(&parts.body)) {
        let (Some(all), Some(lead), Some(line)) = (found.get(0), found.get(1), found.get(2)) else { continue };
        body.push_str(&parts.body[from..lead.end()]);
        from = all.end();
        let line = line.as_str();
        match parts.refusal(line) {
            None => {
                let name = building.step_name("context");
                let env = serde_json::Map::new();
                let script = Script { name: &name, text: line, shell: "bash", env, place: CALLER, stdin: None };
                match building.script(script) {
                    Ok(step) => building.steps.push(step),
                    Err(reason) => {
                        imported.find(path, parts.line_of(lead.end()), format!("command `{line}`"), reason);
                        body.push_str(&format!("(not available: the output of `{line}`)"));
                        continue;
                    }
                }
                let shown = literal(line);
                let shown = shown.as_str().unwrap_or_default();
                request.push_str(&format!("\n\nThe output of `{shown}`:\n{{{{{name}.output}}}}"));
                body.push_str(&format!("(the output of `{line}` in the request)"));
            }
            Some(reason) => {
                imported.find(path, parts.line_of(lead.end()), format!("command `{line}`"), reason);
                body.push_str(&format!("(not available: the output of `{line}`)"));
            }
        }
    }
    body.push_str(&parts.body[from..]);
    unmapped(imported, path, parts, &body);
    body
}

/// Lists blocks of commands, and variables that Claude Code replaces.
fn unmapped(imported: &mut Imported, path: &str, parts: &Parts, body: &str) {
    if let Some(at) = parts.body.find("```!") {
        let reason = "it has no equivalent, and its text stays as it is";
        imported.find(path, parts.line_of(at), "a block of commands", reason);
    }
    if let Some(at) = body.find("${CLAUDE_") {
        let name: String = body[at..].chars().take_while(|c| *c != '}').chain(['}']).collect();
        let line = parts.body.find(&name).map_or(parts.line, |at| parts.line_of(at));
        imported.find(path, line, format!("`{name}`"), "it has no equivalent, and stays as it is");
    }
}

fn skill(imported: &mut Imported, sources: &[Source], (path, folder): (&str, &str), text: &str) {
    let Some(parts) = parts(imported, (path, text), false) else { return };
    let folder_name = folder.rsplit('/').next().unwrap_or_default();
    if parts.description.is_empty() || folder_name.is_empty() || lower(folder_name) != folder_name {
        return imported.find(
            path,
            1,
            "the skill",
            "it needs a description, and a folder with a name of lower-case letters, digits and hyphens",
        );
    }
    let name = imported.free(folder_name);
    if name != folder_name {
        return imported.find(path, 1, "the skill", format!("another import has the name `{folder_name}`"));
    }
    let building = Building::new(name.clone(), &parts.description);
    if !follow(imported, building, "{{run.request}}", parts.tier, path) {
        return;
    }
    for source in sources {
        if let Some(below) = source.path.strip_prefix(folder).and_then(|below| below.strip_prefix('/')) {
            imported.copies.push((source.path.clone(), format!("skills/{name}/{below}")));
        }
    }
    // The files are copied as they are.
    for (text, at) in parts.arguments() {
        let reason = "a copied skill has no arguments; its text stays as it is";
        imported.find(path, parts.line_of(at), format!("`{text}`"), reason);
    }
    for found in COMMAND.iter().flat_map(|pattern| pattern.captures_iter(&parts.body)) {
        let (Some(lead), Some(line)) = (found.get(1), found.get(2)) else { continue };
        let reason = "a copied skill runs no commands; its text stays as it is";
        imported.find(path, parts.line_of(lead.end()), format!("command `{}`", line.as_str()), reason);
    }
    unmapped(imported, path, &parts, &parts.body);
}

/// Adds the pipeline that follows a skill, and the skill; false if the app would have too many bytes.
fn follow(imported: &mut Imported, mut building: Building, request: &str, tier: Option<&str>, path: &str) -> bool {
    let step = building.step_name("follow");
    let mut step = json!({"name": step, "type": "skill", "skill": building.name, "request": request});
    if let Some(tier) = tier {
        step["model"] = Value::from(tier);
    }
    building.steps.push(step);
    let name = building.name.clone();
    let is_added = imported.add(building, path);
    if is_added {
        imported.skills.push(name);
    }
    is_added
}

/// Text as a name of a skill: lower-case letters, digits and single hyphens.
fn lower(text: &str) -> String {
    let name = safe(&text.to_ascii_lowercase().replace('_', "-"), "skill");
    name.split('-').filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-")
}
