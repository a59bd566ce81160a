//! P07xx: faults of stage machines and stages.

use std::sync::Arc;

use crate::code::Code;
use crate::diagnose::files::rename;
use crate::diagnostic::{Diagnostic, Severity};
use crate::source::{SourceFile, Span};
use crate::wording::{cause, list, meant, plain, quoted, quoted_list};

type File = Arc<SourceFile>;

pub(crate) fn no_frontmatter(file: &File) -> Diagnostic {
    let message = format!("the stage file {} has no frontmatter", quoted(file.path()));
    Diagnostic::error(Code::NoFrontmatter, file, Span::new(0, file.text().lines().next().map_or(0, str::len)), message)
        .hint("its first line must be `---`, and a line `---` ends the frontmatter")
}

pub(crate) fn turn_cap(file: &File, at: Span, found: &str) -> Diagnostic {
    Diagnostic::error(Code::OutOfRange, file, at, format!("`turnCap` cannot be {}", plain(found)))
        .label("must be at least 1")
        .hint("the cap is a safety limit: give a stage that needs 3 turns about 10")
}

pub(crate) fn stage_id(file: &File, at: Span, id: &str) -> Diagnostic {
    let mut better = String::new();
    for c in id.trim().to_ascii_lowercase().chars() {
        if c.is_ascii_alphanumeric() {
            better.push(c);
        } else if !better.is_empty() && !better.ends_with('-') {
            better.push('-');
        }
    }
    let better = better.trim_end_matches('-');
    Diagnostic::error(Code::BadName, file, at, format!("{} cannot be the id of a stage", quoted(id)))
        .label("lower case letters and digits, with single `-` between words")
        .maybe_hint((!better.is_empty()).then(|| format!("for example {}", quoted(better))))
}

pub(crate) fn duplicate_stage(file: &File, at: Span, id: &str, first: &str) -> Diagnostic {
    let message = format!("two stages have the id {}: this one, and the one in {}", quoted(id), quoted(first));
    Diagnostic::error(Code::DuplicateName, file, at, message)
        .hint("transitions refer to stages by id: rename one of them")
}

pub(crate) fn duplicate_tool(file: &File, at: Span, tool: &str) -> Diagnostic {
    Diagnostic::error(Code::DuplicateName, file, at, format!("`allowedTools` names {} twice", quoted(tool)))
        .severity(Severity::Warning)
        .hint("remove one of them")
}

/// A pattern in a stage's list of tool names (B-F12).
pub(crate) fn tool_pattern(file: &File, at: Span, pattern: &str) -> Diagnostic {
    let name = pattern.split(['(', '*', ' ']).next().unwrap_or_default();
    let message = format!("`allowedTools` of a stage must list tool names; {} is a pattern", quoted(pattern));
    let hint = "a guard in machine.yaml can deny single calls: `guards: [{script: python3 scripts/guard.py}]`";
    Diagnostic::error(Code::UnknownTool, file, at, message).label("no tool has this name").hint(match name {
        "" | "mcp__" => hint.to_owned(),
        name => format!("write {}; {hint}", quoted(name)),
    })
}

/// A tool that neither etude nor the app has. Another version of either may have it, so only the run decides.
pub(crate) fn unknown_tool(file: &File, at: Span, name: &str, known: &[&str]) -> Diagnostic {
    Diagnostic::error(Code::UnknownTool, file, at, format!("there is no tool {}: the stage cannot start", quoted(name)))
        .severity(Severity::Warning)
        .label(format!("available: {}", list(known)))
        .maybe_hint(meant(name, known.iter().copied()))
}

/// A completion tool `name`, which is also the name of a tool: a call could mean either.
pub(crate) fn completion_tool(file: &File, at: Span, name: &str) -> Diagnostic {
    let message = format!("the completion tool has the name of the tool {}: the stage cannot start", quoted(name));
    Diagnostic::error(Code::UnknownTool, file, at, message)
        .severity(Severity::Warning)
        .hint("choose another name, such as `submit_result`")
}

/// A name of a completion tool that no provider accepts (B-F13).
pub(crate) fn tool_name(file: &File, at: Span, name: &str) -> Diagnostic {
    Diagnostic::error(Code::BadName, file, at, format!("{} cannot be the name of a completion tool", quoted(name)))
        .label("1 to 64 letters, digits, `_` and `-`")
        .hint("for example `submit_result`")
}

/// A completion schema that the arguments of a call cannot fit, because they are an object (B-F14).
pub(crate) fn completion_type(file: &File, at: Span) -> Diagnostic {
    let message = "`completionSchema` must describe an object, because tool arguments are an object";
    Diagnostic::error(Code::NotASchema, file, at, message.to_owned())
        .hint("put the value into a property: `{type: object, required: [items], properties: {items: …}}`")
}

pub(crate) fn not_a_schema(file: &File, at: Span, field: &str, why: &str) -> Diagnostic {
    Diagnostic::error(Code::NotASchema, file, at, format!("`{field}` is not a JSON Schema: {why}"))
}

pub(crate) fn placeholder(file: &File, at: Span, text: &str, why: &str, hint: Option<String>) -> Diagnostic {
    Diagnostic::error(Code::StagePlaceholder, file, at, format!("`{{{{{}}}}}` cannot be resolved: {why}", plain(text)))
        .maybe_hint(hint)
}

pub(crate) fn old_placeholder(file: &File, at: Span) -> Diagnostic {
    Diagnostic::error(Code::OldPlaceholder, file, at, "`${ctx.…}` is text here, not a placeholder".to_owned())
        .severity(Severity::Warning)
        .hint("placeholders are written `{{ctx.name}}`")
}

pub(crate) fn no_stages(file: &File, at: Span, pattern: &str) -> Diagnostic {
    Diagnostic::error(
        Code::NoStages,
        file,
        at,
        format!("the machine has no stages: no file matches {}", quoted(pattern)),
    )
    .hint("add a stage file, for example `stages/plan.md`")
}

pub(crate) fn unknown_stage(file: &File, at: Span, what: &str, id: &str, known: &[&str]) -> Diagnostic {
    Diagnostic::error(
        Code::UnknownStage,
        file,
        at,
        format!("{what} names the stage {}, which does not exist", quoted(id)),
    )
    .label(format!("stages are {}", list(known)))
    .maybe_hint(meant(id, known.iter().copied()))
}

pub(crate) fn dangling_join(file: &File, at: Span, stage: &str, join: &str, listed: &[String]) -> Diagnostic {
    let message =
        format!("`join` of stage {} names {}, which is not in its `parallel` list", quoted(stage), quoted(join));
    Diagnostic::error(Code::DanglingJoin, file, at, message)
        .label(format!("must be one of {}", quoted_list(listed, "and")))
        .hint(format!("add {} to the list: the join must be in the list and runs after all others", quoted(join)))
}

pub(crate) fn too_few(file: &File, at: Span, stage: &str) -> Diagnostic {
    let message = format!("`parallel` of stage {} has fewer than two entries", quoted(stage));
    Diagnostic::error(Code::TooFewSiblings, file, at, message).hint("for one stage write `sequential: [stage]`")
}

pub(crate) fn sibling_twice(file: &File, at: Span, stage: &str) -> Diagnostic {
    let message = format!("`parallel` of stage {} names a stage twice", quoted(stage));
    Diagnostic::error(Code::DuplicateName, file, at, message).hint("a stage runs once in a fan-out")
}

pub(crate) fn join_without_parallel(file: &File, at: Span) -> Diagnostic {
    Diagnostic::error(Code::Contradiction, file, at, "`join` has no effect without `parallel`".to_owned())
        .severity(Severity::Warning)
        .hint("remove it")
}

pub(crate) fn one_of(file: &File, at: Span, what: &str, words: &[&str], found: usize) -> Diagnostic {
    let message = match found {
        0 => format!("{what} has none of {}", quoted_list(words, "and")),
        _ => format!("{what} has more than one of {}", quoted_list(words, "and")),
    };
    Diagnostic::error(Code::Contradiction, file, at, message).hint("write exactly one of them")
}

pub(crate) fn reserved(file: &File, at: Span, name: &str, reserved: &[&str]) -> Diagnostic {
    Diagnostic::error(Code::ReservedName, file, at, format!("a setup cannot write {}", quoted(name)))
        .label(format!("etude sets {}", quoted_list(reserved, "and")))
        .hint("choose another name")
}

pub(crate) fn bad_path(file: &File, at: Span, path: &str) -> Diagnostic {
    Diagnostic::error(Code::BadSource, file, at, format!("{} is not a path to a value", quoted(path)))
        .hint("a path is a source, then members and elements: `parsed.steps[0].title`")
}

pub(crate) fn unknown_source(file: &File, at: Span, root: &str, phase: &str, known: &[&str]) -> Diagnostic {
    Diagnostic::error(Code::BadSource, file, at, format!("`{phase}` cannot read this source: {}", quoted(root)))
        .label(format!("sources are {}", list(known)))
        .maybe_hint(meant(root, known.iter().copied()))
}

pub(crate) fn no_slot_member(file: &File, at: Span, name: &str, known: &[&str]) -> Diagnostic {
    Diagnostic::error(Code::BadSource, file, at, format!("the state slot has no member {}", quoted(name)))
        .label(format!("its schema declares {}", list(known)))
        .maybe_hint(meant(name, known.iter().copied()))
}

pub(crate) fn comparison(file: &File, at: Span, why: &str) -> Diagnostic {
    Diagnostic::error(Code::BadCondition, file, at, format!("a test needs exactly one comparison: {why}"))
        .hint("for example `{path: result.verdict, equals: ok}`")
}

pub(crate) fn no_else(file: &File, at: Span, stage: &str) -> Diagnostic {
    let message = format!("`next` of stage {} has no `else`: if no case is true, the run fails there", quoted(stage));
    Diagnostic::error(Code::NoElse, file, at, message)
        .severity(Severity::Warning)
        .hint("end it with `- {else: true, terminal: true}`")
}

pub(crate) fn after_else(file: &File, at: Span, stage: &str) -> Diagnostic {
    let message = format!("a case of `next` of stage {} comes after a case that is always true", quoted(stage));
    Diagnostic::error(Code::NoElse, file, at, message).severity(Severity::Warning).hint("put `else` last")
}

pub(crate) fn unreachable(file: &File, at: Option<Span>, stage: &str) -> Diagnostic {
    Diagnostic::error(Code::UnreachableStage, file, at, format!("no transition leads to stage {}", quoted(stage)))
        .severity(Severity::Warning)
        .hint("name it in the `next` of another stage, or remove its file")
}

pub(crate) fn slot_value(file: &File, at: Span, name: &str, why: &str) -> Diagnostic {
    Diagnostic::error(
        Code::BadDefault,
        file,
        at,
        format!("the value of the slot member {} is not valid: {why}", quoted(name)),
    )
}

pub(crate) fn version(file: &File, at: Span, field: &str, found: &str) -> Diagnostic {
    Diagnostic::error(Code::BadName, file, at, format!("{} is not a version", quoted(found)))
        .label(format!("`{field}` must be three numbers with dots"))
        .hint("for example `\"1.0.0\"`")
}

pub(crate) fn contract_version(file: &File, at: Span, found: &str) -> Diagnostic {
    let message = format!("the machine is written for version {} of stage definitions", quoted(found));
    Diagnostic::error(Code::NotAvailable, file, at, message).label("this version of etude supports 1.x")
}

pub(crate) fn core_version(file: &File, at: Span, range: &str, core: [u64; 3]) -> Diagnostic {
    let [major, minor, patch] = core;
    let message = format!("the machine is for runners of version {}", quoted(range));
    Diagnostic::error(Code::NotAvailable, file, at, message)
        .label(format!("this version of etude supports version {major}.{minor}.{patch} of stage definitions"))
}

pub(crate) fn version_range(file: &File, at: Span, found: &str) -> Diagnostic {
    Diagnostic::error(Code::BadName, file, at, format!("{} is not a version range", quoted(found)))
        .hint("for example `\">=1 <2\"` or `^1.0`")
}

pub(crate) fn unknown_capability(file: &File, at: Span, name: &str, level: &str) -> Diagnostic {
    let fault =
        Diagnostic::error(Code::NotAvailable, file, at, format!("no known model has the capability {}", quoted(name)))
            .severity(Severity::Warning);
    match level {
        "hard" => fault
            .label("the machine will not run: `MissingCapability`")
            .hint("remove it, or write `{name: …, level: preferred}`"),
        _ => fault.label(format!("its level is {}, so the machine runs without it", quoted(level))),
    }
}

/// The configuration has no model of a machine's tier. Another configuration may have one.
pub(crate) fn unmapped_tier(file: &File, at: Span, name: &str, tier: &str) -> Diagnostic {
    let message = format!("machine {} needs a model of the tier `{tier}`, and `model_mapping` has none", quoted(name));
    Diagnostic::error(Code::NotAvailable, file, at, message)
        .severity(Severity::Warning)
        .hint(format!("set `model_mapping.{tier}` to `PROVIDER/MODEL`, or write another `model`"))
}

/// The configured model of a machine cannot run it; `why` is the reason that a run would state.
pub(crate) fn incapable_model(file: &File, at: Span, why: &str) -> Diagnostic {
    Diagnostic::error(Code::NotAvailable, file, at, cause(why).into_owned())
        .severity(Severity::Warning)
        .label("the machine will not run: `MissingCapability`")
        .hint("map the tier to a model that calls tools; if it does, set `toolCalling: hard` for its provider")
}

pub(crate) fn machine_name(file: &File, at: Span, id: &str, dir: &str) -> Diagnostic {
    let message = format!("the machine is named {}, but its directory is {}", quoted(id), quoted(dir));
    Diagnostic::error(Code::NameMismatch, file, at, message)
        .label("must be the directory's name")
        .hint(format!("write `id: {}`, or rename the directory", plain(dir)))
}

pub(crate) fn migrate_missing(file: &File, at: Span) -> Diagnostic {
    Diagnostic::error(Code::MissingField, file, at, "`drift: migrate` needs a script".to_owned())
        .hint("for example: `migrate: {script: python3 scripts/migrate.py}`")
}

pub(crate) fn unknown_machine(file: &File, at: Span, name: &str, known: &[&str]) -> Diagnostic {
    Diagnostic::error(Code::UnknownMachine, file, at, format!("there is no machine {}", quoted(name)))
        .label(if known.is_empty() {
            "the app has none: a machine is a folder of `machines/` with a machine.yaml".to_owned()
        } else {
            format!("available: {}", list(known))
        })
        .maybe_hint(meant(name, known.iter().copied()))
}

pub(crate) fn broken_machine(file: &File, at: Span, name: &str, errors: usize) -> Diagnostic {
    let errors = if errors == 1 { "an error".to_owned() } else { format!("{errors} errors") };
    Diagnostic::error(Code::UnknownMachine, file, at, format!("machine {} has {errors}", quoted(name)))
        .hint(format!("see them with `etude check {}`", plain(name)))
}

/// `misnamed` is a file of the directory with the right name but another extension.
pub(crate) fn no_machine_file(dir: &str, misnamed: Option<&str>) -> Diagnostic {
    let file = SourceFile::new(dir, "");
    Diagnostic::error(Code::NoMachineFile, &file, None, format!("the directory {} has no machine.yaml", quoted(dir)))
        .severity(Severity::Warning)
        .hint(misnamed.map_or_else(
            || "add one, or move the directory out of machines/; a name that begins with `_` is ignored".to_owned(),
            rename,
        ))
}
