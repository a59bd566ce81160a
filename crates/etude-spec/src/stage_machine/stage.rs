//! Reading of stage files (`b-stages` §2, §3).

use std::sync::Arc;

use etude_core::placeholder::{Body, Space, follow};
use etude_core::plan::Origin;
use etude_core::plan::stages::{
    Assert, Backoff, Exit, Gate, HookOrigins, Next, NextCase, NextRule, Resolution, Setup, Stage,
};
use etude_core::schema::Schema;
use serde_json::Value;

use super::mark::{INVALID, VALIDATION, mark_all, marked, rank};
use super::schema;
use crate::check::{Findings, value_of};
use crate::code::Code;
use crate::diagnose::{fields as diagnose_fields, stage_machine as diagnose, values};
use crate::diagnostic::{Diagnostic, Severity};
use crate::fields::stage_machine::{BACKOFF, RETRY_POLICY, STAGE};
use crate::fields::{Field, FieldKind};
use crate::frontmatter;
use crate::source::{SourceFile, Sources, Span};
use crate::tool;
use crate::wording::{did_you_mean, quoted_list};
use crate::yaml::{Entries, Node, number, text, texts};

/// Context names that etude itself provides (`b-stages` §8).
pub(crate) const RESERVED: [&str; 5] = ["workflowRunId", "stageExecutionId", "upstream", "attempts", "host"];

/// A stage file with every part that could be read.
pub(super) struct StageFile {
    pub(super) file: Arc<SourceFile>,
    /// Id with its place; `None` if it is missing or invalid.
    pub(super) id: Option<(String, Span)>,
    /// The stage, with hooks that do nothing; `None` if there are errors.
    pub(super) stage: Option<Stage>,
    pub(super) diagnostics: Vec<Diagnostic>,
}

/// Surroundings of a stage file: sources, machine and declared names.
#[derive(Clone, Copy)]
pub(super) struct StageFileContext<'a> {
    pub(super) sources: &'a dyn Sources,
    /// Directory of the machine.
    pub(super) dir: &'a str,
    /// Declared names of the context; `None` if the machine declares none (B-T10).
    pub(super) context: Option<&'a [String]>,
}

/// Reads a stage file.
pub(super) fn read(file: &Arc<SourceFile>, cx: StageFileContext<'_>) -> StageFile {
    let mut found = Findings::new(file);
    let (id, stage) = read_parts(&mut found, cx);
    mark_all(&mut found.list, rank::TEXT);
    if let Some((id, _)) = &id {
        found.list = found.list.into_iter().map(|fault| fault.about("stageId", id)).collect();
    }
    let sound = !found.list.iter().any(Diagnostic::is_error);
    StageFile { file: Arc::clone(file), id, stage: stage.filter(|_| sound), diagnostics: found.list }
}

type Id = Option<(String, Span)>;

fn read_parts(found: &mut Findings<'_>, cx: StageFileContext<'_>) -> (Id, Option<Stage>) {
    let file = found.file;
    let parts = match frontmatter::split(file) {
        Ok(parts) => parts,
        Err(diagnostic) => {
            found.push(*diagnostic);
            return (None, None);
        }
    };
    if parts.yaml.is_none() {
        found.push(diagnose::no_frontmatter(file));
        return (None, None);
    }
    let (root, diagnostics) = frontmatter::parse(file, &parts);
    found.list.extend(diagnostics);
    let Some(root) = root else { return (None, None) };
    let Some(entries) = root.as_map() else {
        if !root.is_invalid() {
            found.push(
                values::top_level(file, root.span, "the frontmatter of a stage", root.kind())
                    .hint("begin with `id: …`"),
            );
        }
        return (None, None);
    };
    inert_keys(found, entries);
    fields(found, entries, &root);
    tools(found, entries, cx.sources);
    let id = id(found, entries);
    let turn_cap = turn_cap(found, entries);
    let front = root.to_json_value().unwrap_or(Value::Null);
    let body = body(found, parts.body, &front, cx.context);
    let completion_schema = schema::of_field(found, entries, "completionSchema", "StageCompletionSchemaInvalid", cx);
    if let (Some(schema), Some(node)) = (&completion_schema, entries.get("completionSchema")) {
        let is_object = |word: &Value| word == "object";
        let fits = match schema.bundled().get("type") {
            Some(Value::Array(words)) => words.iter().any(is_object),
            said => said.is_none_or(is_object),
        };
        if !fits {
            let fault = diagnose::completion_type(found.file, node.span);
            found.push(fault.rule(VALIDATION, "StageCompletionSchemaInvalid", "/completionSchema", rank::SCHEMAS));
        }
    }
    let inputs_schema = schema::of_field(found, entries, "inputsSchema", "StageInputsSchemaInvalid", cx);
    let stage = stage(found, entries, &id, turn_cap, completion_schema).map(|stage| Stage {
        inputs_schema,
        body,
        front,
        ..stage
    });
    (id, stage)
}

/// Turns YAML faults in the author's own keys into warnings: they are never errors (B-F6).
fn inert_keys(found: &mut Findings<'_>, entries: &Entries<'_>) {
    let file = found.file;
    let is_field = |key: &str| STAGE.field(key).is_some();
    for fault in &mut found.list {
        let Some(at) = fault.span.map(|span| span.start) else { continue };
        let within = |(_, key, value): &(&str, &Node<'_>, &Node<'_>)| key.span.start <= at && at < value.span.end;
        let is_own = match (entries.iter().find(within), fault.code) {
            (Some((name, ..)), Code::UnknownTag | Code::MergeKey | Code::DuplicateKey | Code::KeyNotText) => {
                !is_field(name)
            }
            (None, Code::KeyNotText) => true,
            (None, Code::DuplicateKey) => {
                let key = fault.span.map(|span| file.slice(span)).unwrap_or_default();
                !is_field(key.trim_matches(['"', '\'']))
            }
            _ => false,
        };
        if is_own {
            fault.severity = Severity::Warning;
        }
    }
}

/// Checks presence and types of all fields, each with its JSON pointer. Unknown keys are the author's own (B-F6).
fn fields(found: &mut Findings<'_>, entries: &Entries<'_>, root: &Node<'_>) {
    let at = entries.0.first().map_or(root.span, |(key, _)| key.span);
    let subject = match text(entries, "id") {
        Some(id) => format!("stage `{}`", id.text),
        None => "the stage".to_owned(),
    };
    for field in STAGE.iter() {
        marked(found, &format!("/{}", field.name), rank::FIELDS, |found| match entries.entry(field.name) {
            Some((key, value)) => {
                let before = found.list.len();
                value_of(found, field, key, value);
                if field.name == "retryPolicy" {
                    own_keys(&mut found.list, before, value);
                }
                if let (FieldKind::Word(words), Some(fault)) = (&field.kind, found.list.get_mut(before)) {
                    fault.hint.get_or_insert_with(|| format!("valid values: {}", quoted_list(words, "and")));
                }
            }
            None if field.required => {
                found.push(diagnose_fields::missing_field(found.file, at, field, &STAGE, &subject))
            }
            None => {}
        });
    }
    if let Some(tools) = entries.get("allowedTools").and_then(Node::as_seq) {
        for (index, tool) in tools.iter().enumerate() {
            let name = tool.as_text();
            if name.is_some() && tools[..index].iter().any(|earlier| earlier.as_text() == name) {
                let path = format!("/allowedTools/{index}");
                marked(found, &path, rank::FIELDS, |found| {
                    found.push(diagnose::duplicate_tool(found.file, tool.span, name.unwrap_or_default()));
                });
            }
        }
    }
}

/// Treats keys inside of `retryPolicy` and its `backoff` as the author's own as well (B-F6). One that resembles a field
/// is a warning; if that field is required and missing, it stands for the report of its absence.
fn own_keys(list: &mut Vec<Diagnostic>, since: usize, policy: &Node<'_>) {
    let backoff = policy.as_map().and_then(|policy| policy.get("backoff"));
    for (table, node) in [(&RETRY_POLICY, Some(policy)), (&BACKOFF, backoff)] {
        let Some(entries) = node.and_then(Node::as_map) else { continue };
        for (name, key, _) in entries.iter().filter(|(name, ..)| table.field(name).is_none()) {
            let meant = did_you_mean(name, table.names());
            let is_absence = |field: &&Field| field.required && entries.get(field.name).is_none();
            if meant.and_then(|meant| table.field(meant)).filter(is_absence).is_some() {
                continue;
            }
            let is_it = |fault: &Diagnostic| fault.code == Code::UnknownField && fault.span == Some(key.span);
            let Some(at) = list[since..].iter().position(is_it).map(|at| since + at) else { continue };
            match meant {
                Some(_) => list[at].severity = Severity::Warning,
                None => drop(list.remove(at)),
            }
        }
    }
}

/// Checks the tools of a stage against those of etude and the app. Names of MCP tools are known only during a run.
fn tools(found: &mut Findings<'_>, entries: &Entries<'_>, sources: &dyn Sources) {
    let own = tool::load(sources).0;
    let known: Vec<&str> = tool::BUILT_IN.iter().copied().chain(own.iter().map(|tool| tool.name.as_str())).collect();
    let is_name = |name: &str| name.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c));
    let listed = entries.get("allowedTools").and_then(Node::as_seq).unwrap_or_default();
    for (index, node) in listed.iter().enumerate() {
        let Some(name) = node.as_text().filter(|name| !name.trim().is_empty()) else { continue };
        let fault = if !is_name(name) {
            diagnose::tool_pattern(found.file, node.span, name)
        } else if !known.contains(&name) && !name.starts_with(tool::MCP_PREFIX) {
            diagnose::unknown_tool(found.file, node.span, name, &known)
        } else {
            continue;
        };
        found.push(fault.rule(VALIDATION, "AllowedToolUnknown", format!("/allowedTools/{index}"), rank::FIELDS));
    }
    let completion = text(entries, "completionTool").filter(|name| !name.text.trim().is_empty());
    if let Some(name) = completion.as_ref().filter(|name| name.text.len() > 64 || !is_name(name.text)) {
        let fault = diagnose::tool_name(found.file, name.at, name.text);
        found.push(fault.rule(VALIDATION, INVALID, "/completionTool", rank::FIELDS));
    }
    if let Some(name) = completion.filter(|name| known.contains(&name.text)) {
        let fault = diagnose::completion_tool(found.file, name.at, name.text);
        found.push(fault.rule(VALIDATION, "CompletionToolCollision", "/completionTool", rank::FIELDS));
    }
}

fn id(found: &mut Findings<'_>, entries: &Entries<'_>) -> Id {
    let id = text(entries, "id")?;
    let is_word = |word: &str| !word.is_empty() && word.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    if !id.text.split('-').all(is_word) {
        marked(found, "/id", rank::FIELDS, |found| found.push(diagnose::stage_id(found.file, id.at, id.text)));
    }
    Some((id.text.to_owned(), id.at))
}

fn turn_cap(found: &mut Findings<'_>, entries: &Entries<'_>) -> Option<u32> {
    let node = entries.get("turnCap")?;
    let cap = node.as_integer()?;
    if cap < 1 {
        let fault = diagnose::turn_cap(found.file, node.span, &cap.to_string());
        found.push(fault.rule(VALIDATION, "StageTurnCapTooLow", "/turnCap", rank::CAP));
        return None;
    }
    Some(u32::try_from(cap).unwrap_or(u32::MAX))
}

fn backoff(found: &mut Findings<'_>, node: &Node<'_>) -> Backoff {
    if let Some(ms) = node.as_integer().and_then(|ms| u64::try_from(ms).ok()) {
        return Backoff { initial_ms: ms, factor: 1.0, max_ms: ms };
    }
    let Some(entries) = node.as_map() else { return Backoff::default() };
    let initial_ms = number(entries, "initialMs").unwrap_or(0.0) as u64;
    let is_fixed = text(entries, "kind").is_some_and(|kind| kind.text == "fixed");
    if let Some((key, _)) = entries.entry("jitter").filter(|(_, node)| node.as_bool() == Some(true)) {
        marked(found, "/retryPolicy/backoff/jitter", rank::FIELDS, |found| {
            let hint = "remove it: a replayed run must wait the same time";
            let message = format!("{} has no jitter", BACKOFF.name);
            found.push(values::contradiction(found.file, key.span, message, "cannot be `true`", hint));
        });
    }
    let max_ms = number(entries, "maxMs").unwrap_or(60_000.0) as u64;
    match is_fixed {
        true => Backoff { initial_ms, factor: 1.0, max_ms: initial_ms },
        false => Backoff { initial_ms, factor: number(entries, "factor").unwrap_or(2.0), max_ms },
    }
}

/// Reads the stage without its prompt. All parts are read before a missing one ends the function.
fn stage(
    found: &mut Findings<'_>,
    entries: &Entries<'_>,
    id: &Id,
    turn_cap: Option<u32>,
    completion_schema: Option<Arc<Schema>>,
) -> Option<Stage> {
    let policy = entries.get("retryPolicy").and_then(Node::as_map);
    let max_attempts = policy.and_then(|policy| policy.get("maxAttempts")).and_then(Node::as_integer);
    let backoff = policy.and_then(|policy| policy.get("backoff")).map(|node| backoff(found, node));
    let (id, at) = id.as_ref()?;
    let mut allowed_tools = texts(entries, "allowedTools");
    let mut seen = Vec::new();
    allowed_tools.retain(|tool| {
        let is_new = !seen.contains(tool);
        seen.push(tool.clone());
        is_new
    });
    let (line, column) = found.file.position(at.start);
    Some(Stage {
        id: id.clone(),
        name: text(entries, "name")?.text.to_owned(),
        description: text(entries, "description").map(|text| text.text.to_owned()).unwrap_or_default(),
        tags: texts(entries, "tags"),
        allowed_tools,
        completion_tool: text(entries, "completionTool")?.text.to_owned(),
        completion_schema: completion_schema?,
        max_attempts: u32::try_from(max_attempts?).ok()?,
        backoff: backoff?,
        turn_cap: turn_cap?,
        resolution: Resolution::from_word(text(entries, "resolutionPolicy")?.text)?,
        origin: Origin { file: found.file.path().to_owned(), line, column },
        ..blank(id)
    })
}

/// Parses the body and reports faults of its placeholders (B-F5, B-T10).
fn body(found: &mut Findings<'_>, at: Span, front: &Value, context: Option<&[String]>) -> Body {
    let file = found.file;
    let mut text = file.slice(at);
    // One blank line after the frontmatter belongs to neither part.
    let blank = text.split_inclusive('\n').next().filter(|line| line.trim_end_matches(['\r', '\n']).is_empty());
    text = &text[blank.map_or(0, str::len)..];
    let start = at.end as usize - text.len();
    let (body, malformed) = Body::parse(text);
    let span = |range: &std::ops::Range<usize>| Span::new(start + range.start, start + range.end);
    for fault in malformed {
        let (why, hint) = why_malformed(&fault.text);
        unresolved(found, span(&fault.range), &fault.text, why, hint);
    }
    for placeholder in body.placeholders() {
        let written = text[placeholder.range.clone()].trim_matches(['{', '}']).trim().to_owned();
        let name = placeholder.name();
        let fault = match placeholder.space {
            Space::Ctx if name == "attempts" => Some(("the prompt is made once, before any attempt", None)),
            Space::Ctx if name == "host" => Some(("`ctx.host` is not a value", None)),
            Space::Ctx => {
                undeclared(name, context).map(|hint| ("the machine declares no such context field", Some(hint)))
            }
            Space::Stage => match follow(front, &placeholder.path) {
                Some(Value::Object(_) | Value::Array(_)) => Some(("it is not a single value", None)),
                Some(_) => None,
                None => Some(("the frontmatter has no such field", None)),
            },
        };
        if let Some((why, hint)) = fault {
            unresolved(found, span(&placeholder.range), &written, why, hint);
        }
    }
    if let Some(old) = text.find("${ctx.") {
        marked(found, "/body", rank::BODY, |found| {
            found.push(diagnose::old_placeholder(found.file, Span::new(start + old, start + old + 6)));
        });
    }
    // Windows line breaks do not change the meaning of a file.
    match file.slice(Span::new(0, at.start as usize)).ends_with("\r\n") {
        true => Body::parse(&text.replace("\r\n", "\n")).0,
        false => body,
    }
}

fn unresolved(found: &mut Findings<'_>, at: Span, text: &str, why: &str, hint: Option<String>) {
    let fault = diagnose::placeholder(found.file, at, text, why, hint);
    found.push(fault.rule(VALIDATION, "StageCtxUnresolved", format!("/body#{text}"), rank::BODY));
}

/// Hint for a name that is missing in the machine's `context`.
fn undeclared(name: &str, context: Option<&[String]>) -> Option<String> {
    let declared = context?;
    if RESERVED.contains(&name) || declared.iter().any(|known| known == name) {
        return None;
    }
    let near = crate::wording::did_you_mean(name, declared.iter().map(String::as_str));
    Some(match near {
        Some(near) => format!("did you mean `ctx.{near}`?"),
        None if declared.is_empty() => "`context` in machine.yaml declares no fields".to_owned(),
        None => format!("`context` in machine.yaml declares {}", quoted_list(declared, "and")),
    })
}

fn why_malformed(text: &str) -> (&'static str, Option<String>) {
    let head = text.split(['.', '[', ' ']).next().unwrap_or_default();
    let ours = Some(
        "placeholders are `{{ctx.name}}` and `{{stage.id}}`, optionally followed by `.member` or `[0]`".to_owned(),
    );
    match head {
        "env" => ("the environment is never shown to a model", ours),
        "settings" | "config" => ("settings are never shown to a model", ours),
        "input" => {
            let hint = "copy it in `setup`: `setup: {set: {task: {from: input.task}}}`, then `{{ctx.task}}`";
            ("templates cannot read the input directly", Some(hint.to_owned()))
        }
        "ctx" | "stage" => ("it is not a path; templates have no filters or expressions", ours),
        _ => ("it is in neither namespace", ours),
    }
}

/// A stage with nothing but its id.
pub(super) fn blank(id: &str) -> Stage {
    Stage {
        id: id.to_owned(),
        name: id.to_owned(),
        description: String::new(),
        tags: Vec::new(),
        allowed_tools: Vec::new(),
        completion_tool: String::new(),
        completion_schema: Arc::new(Schema::lazy("completionSchema", Value::Bool(true), Default::default())),
        inputs_schema: None,
        max_attempts: 1,
        backoff: Backoff::default(),
        turn_cap: 1,
        resolution: Resolution::Fail,
        front: Value::Null,
        body: Body::default(),
        setup: Setup::Set(Vec::new()),
        gate: Gate::Rules(Vec::new()),
        assert: Assert::Rules(Vec::new()),
        exit: Exit::Values { output: None, slot: Vec::new() },
        next: NextRule::Cases(vec![NextCase { when: Vec::new(), next: Next::Terminal }]),
        origin: Origin::default(),
        hooks: HookOrigins::default(),
    }
}
