//! Loading of a stage machine with its stages.

use std::collections::BTreeSet;
use std::sync::Arc;

use etude_core::plan::Origin;
use etude_core::plan::stages::{Grants, Path, Root, Setup, Source, Stage, StageMachine};
use etude_core::template::Segment;

use super::definition::{self, Head};
use super::hooks::{self, HookContext};
use super::mark::{INVALID, VALIDATION, mark_all, marked, rank};
use super::stage::{self, StageFile, StageFileContext};
use super::{Machine, Rules, dir_of, file_of, next, no_machine_file};
use crate::check::Findings;
use crate::diagnose::stage_machine as diagnose;
use crate::diagnostic::{self, Diagnostic};
use crate::discover::PIPELINE_FILE;
use crate::files::{below, source};
use crate::input::InputDecl;
use crate::source::{FileKind, SourceFile, Sources, Span, join};
use crate::yaml::{self, Entries, Node};

/// A stage machine with every part that could be loaded.
pub(super) struct Loaded {
    pub(super) machine: Option<Machine>,
    /// Description, triggers and input.
    pub(super) head: (String, Vec<String>, InputDecl),
    pub(super) diagnostics: Vec<Diagnostic>,
    /// True if there is no machine.yaml.
    pub(super) missing: bool,
}

impl Loaded {
    fn failed(mut diagnostics: Vec<Diagnostic>, missing: bool) -> Self {
        mark_all(&mut diagnostics, rank::TEXT);
        Self { machine: None, head: Default::default(), diagnostics, missing }
    }
}

/// Loads the machine in `machines/<name>/`, with all its faults.
pub(super) fn machine(sources: &dyn Sources, name: &str, rules: &Rules) -> Loaded {
    let file = match source(sources, &file_of(name)) {
        Ok(file) => file,
        Err((_, true)) => return Loaded::failed(vec![no_machine_file(sources, name)], true),
        Err((diagnostic, false)) => return Loaded::failed(vec![diagnostic], false),
    };
    let (root, diagnostics) = yaml::parse(&file);
    let Some(root) = root else { return Loaded::failed(diagnostics, false) };
    let mut found = Findings::new(&file);
    found.list = diagnostics;
    let Some(entries) = root.as_map() else {
        definition::not_a_mapping(&mut found, &root);
        return Loaded::failed(found.list, false);
    };
    mark_all(&mut found.list, rank::TEXT);
    let dir = dir_of(name);
    let head =
        definition::head(&mut found, entries, &root, name, StageFileContext { sources, dir: &dir, context: None });
    let cx = StageFileContext { sources, dir: &dir, context: head.context.as_deref() };
    let files: Vec<StageFile> = stage_files(&mut found, &head, cx);
    let plan = assemble(&mut found, entries, name, &head, files, cx, rules);
    let mut diagnostics = found.list;
    diagnostics.extend(plan.elsewhere);
    diagnostic::sort(&mut diagnostics);
    let mut pinned = BTreeSet::new();
    below(&mut pinned, sources, &dir);
    let sound = !diagnostics.iter().any(Diagnostic::is_error);
    let machine = plan.machine.filter(|_| sound).map(|plan| Machine {
        description: head.description.clone(),
        triggers: head.triggers.clone(),
        input: head.input.clone(),
        plan: Arc::new(plan),
        files: pinned.into_iter().collect(),
    });
    Loaded { machine, head: (head.description, head.triggers, head.input), diagnostics, missing: false }
}

/// The plan, with the faults of files other than machine.yaml.
struct Assembled {
    machine: Option<StageMachine>,
    elsewhere: Vec<Diagnostic>,
}

fn assemble(
    found: &mut Findings<'_>,
    entries: &Entries<'_>,
    name: &str,
    head: &Head,
    files: Vec<StageFile>,
    file_context: StageFileContext<'_>,
    rules: &Rules,
) -> Assembled {
    let mut elsewhere: Vec<Diagnostic> = Vec::new();
    let ids: Vec<(String, Span, Arc<SourceFile>)> =
        files.iter().filter_map(|file| file.id.clone().map(|(id, at)| (id, at, Arc::clone(&file.file)))).collect();
    for (index, (id, at, file)) in ids.iter().enumerate() {
        if let Some((_, _, first)) = ids[..index].iter().find(|(earlier, ..)| earlier == id) {
            let fault = diagnose::duplicate_stage(file, *at, id, first.path());
            elsewhere.push(fault.rule(VALIDATION, INVALID, "/id", rank::CAP).about("duplicateId", id));
        }
    }
    // An unreadable file may define any stage, so unknown stages are not reported then.
    let is_whole = files.iter().all(|file| file.id.is_some()) && !files.is_empty();
    let known: Vec<&str> = ids.iter().map(|(id, ..)| id.as_str()).collect();
    let cx = HookContext {
        sources: file_context.sources,
        dir: file_context.dir,
        stages: is_whole.then(|| known.clone()),
        slot: head.slot.as_ref(),
        join_outside: rules.policy.join_outside_next_stages,
        parsed: None,
    };
    check_entry(found, head, &cx);
    let mut stages: Vec<Stage> = Vec::new();
    let mut complete = true;
    for file in files {
        complete &= file.stage.is_some();
        elsewhere.extend(file.diagnostics);
        stages.extend(file.stage);
    }
    complete &= pipeline(found, entries, &mut stages, &cx);
    let grants = definition::grants(found, entries, &cx);
    let mut guards = definition::guards(found, entries, &cx);
    let on_failure = definition::on_failure(found, entries, &cx);
    guards.extend(rules.guards());
    if complete && let Some((entry, _)) = &head.entry {
        for stage in next::unreachable(entry, &stages) {
            let at = ids.iter().find(|(id, ..)| *id == stage.id);
            if let Some((id, at, file)) = at {
                let fault = diagnose::unreachable(file, Some(*at), id);
                elsewhere.push(fault.rule(VALIDATION, INVALID, "/id", rank::NEXT));
            }
        }
    }
    let (line, column) = found.file.position(head.at.start);
    let machine = head.slot.clone().zip(head.entry.clone()).map(|(slot, (entry, _))| StageMachine {
        id: name.to_owned(),
        dir: file_context.dir.to_owned(),
        tier: head.tier,
        entry,
        stages: stages.into_iter().map(Arc::new).collect(),
        slot,
        requires: head.requires.clone(),
        grants,
        guards,
        on_failure,
        max_executions: head.max_executions,
        config: head.config.clone(),
        policy: rules.policy,
        origin: Origin { file: found.file.path().to_owned(), line, column },
    });
    Assembled { machine, elsewhere }
}

fn check_entry(found: &mut Findings<'_>, head: &Head, cx: &HookContext<'_>) {
    if let (Some((entry, at)), Some(known)) = (&head.entry, &cx.stages)
        && !known.contains(&entry.as_str())
    {
        let fault = diagnose::unknown_stage(found.file, *at, "`entryStage`", entry, known);
        found.push(fault.rule(VALIDATION, INVALID, "/entryStage", rank::CAP).about("entryStage", entry));
    }
}

/// Reads the hooks of all stages. Returns false if some transitions cannot be read: then a stage without one may have one.
fn pipeline(found: &mut Findings<'_>, entries: &Entries<'_>, stages: &mut [Stage], cx: &HookContext<'_>) -> bool {
    let Some(pipeline) = entries.get("pipeline").and_then(Node::as_map) else { return true };
    let mut is_whole = true;
    for (id, key, node) in pipeline.iter() {
        if let Some(known) = cx.stages.as_ref().filter(|known| !known.contains(&id)) {
            marked(found, &format!("/pipeline/{id}"), rank::CAP, |found| {
                found.push(diagnose::unknown_stage(found.file, key.span, "`pipeline`", id, known));
            });
            is_whole = false;
            continue;
        }
        // Hooks of a stage with errors in its file are read as well, to report their faults.
        let Some(hooks) = node.as_map() else { continue };
        is_whole &= match stages.iter_mut().find(|stage| stage.id == id) {
            Some(stage) => hooks::read(found, hooks, stage, cx),
            None => hooks::read(found, hooks, &mut stage::blank(id), cx),
        };
    }
    is_whole
}

/// Reads the stage files that match the patterns, in the order of the patterns, then of names.
fn stage_files(found: &mut Findings<'_>, head: &Head, cx: StageFileContext<'_>) -> Vec<StageFile> {
    let mut paths: Vec<String> = Vec::new();
    for pattern in &head.patterns {
        for path in fitting(cx.sources, cx.dir, pattern) {
            if !paths.contains(&path) {
                paths.push(path);
            }
        }
    }
    if paths.is_empty() {
        marked(found, "/stages", rank::CAP, |found| {
            found.push(diagnose::no_stages(found.file, head.at, &head.patterns.join(", ")));
        });
    }
    paths
        .into_iter()
        .map(|path| match source(cx.sources, &path) {
            Ok(file) => stage::read(&file, cx),
            Err((diagnostic, _)) => {
                let mut diagnostics = vec![diagnostic];
                mark_all(&mut diagnostics, rank::TEXT);
                let file = SourceFile::new(path, "");
                StageFile { file, id: None, stage: None, diagnostics }
            }
        })
        .collect()
}

/// Files that match a pattern: `*` stands for any characters of a file name.
fn fitting(sources: &dyn Sources, dir: &str, pattern: &str) -> Vec<String> {
    let (below, name) = pattern.rsplit_once('/').unwrap_or(("", pattern));
    let Some(full) = join(dir, below) else { return Vec::new() };
    let entries = sources.list(&full).unwrap_or_default();
    let mut names: Vec<String> = entries
        .into_iter()
        .filter(|entry| matches!(entry.kind, FileKind::File { .. }) && !entry.name.starts_with('.'))
        .map(|entry| entry.name)
        .filter(|candidate| fits(name, candidate) && candidate != PIPELINE_FILE)
        .collect();
    names.sort_unstable();
    names.into_iter().map(|name| format!("{full}/{name}")).collect()
}

/// True if `name` matches a pattern in which `*` stands for any characters.
fn fits(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = name.strip_prefix(first) else { return false };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else { return rest.is_empty() };
    for part in middle {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// Loads a machine of one stage that runs alone (X-3 `type: stage`), without hooks or a next stage.
pub(crate) fn alone(
    sources: &dyn Sources,
    path: &str,
    dir: &str,
    rules: &Rules,
) -> (Option<StageMachine>, Vec<Diagnostic>) {
    let file = match source(sources, path) {
        Ok(file) => file,
        Err((diagnostic, _)) => return (None, vec![diagnostic]),
    };
    let read = stage::read(&file, StageFileContext { sources, dir, context: None });
    // The step's input is the context: every placeholder finds the input of its name.
    let setup = |stage: &Stage| {
        let own = |name: &&str| !stage::RESERVED.contains(name);
        let from = |name: &str| {
            let segments = vec![Segment::Field(name.to_owned())];
            (name.to_owned(), Source::From(Path { root: Root::Input, segments }))
        };
        Setup::Set(stage.body.ctx_names().into_iter().filter(own).map(from).collect())
    };
    let stage = read.stage.map(|stage| Stage { setup: setup(&stage), ..stage });
    let machine = stage.map(|stage| StageMachine {
        id: stage.id.clone(),
        dir: dir.to_owned(),
        tier: Default::default(),
        entry: stage.id.clone(),
        origin: stage.origin.clone(),
        stages: vec![Arc::new(stage)],
        slot: definition::open_slot(),
        requires: Vec::new(),
        grants: Grants::Rules(Vec::new()),
        guards: rules.guards().collect(),
        on_failure: None,
        max_executions: 1,
        config: etude_core::data::Json::trusted("{}"),
        policy: rules.policy,
    });
    (machine, read.diagnostics)
}

#[cfg(test)]
mod tests {
    use super::fits;

    #[test]
    fn patterns_fit_names() {
        for (pattern, name, expected) in [
            ("*.md", "a.md", true),
            ("*.md", "a.txt", false),
            ("a*b*.md", "axbx.md", true),
            ("a.md", "a.md", true),
            ("a*a", "a", false),
        ] {
            assert_eq!(fits(pattern, name), expected, "{pattern} {name}");
        }
    }
}
