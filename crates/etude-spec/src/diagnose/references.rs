//! P03xx: faults of templates and of names that refer to something.

use std::sync::Arc;

use etude_core::template::Reference;

use crate::code::Code;
use crate::diagnostic::{Diagnostic, Severity};
use crate::fields::Field;
use crate::source::{SourceFile, Span};
use crate::wording::{cause, list, meant, number, plain, quoted, quoted_list, visible};

type File = Arc<SourceFile>;

pub(crate) fn unclosed(file: &File, at: Span, field: &str) -> Diagnostic {
    Diagnostic::error(Code::UnclosedTemplate, file, at, format!("`{field}` has `{{{{` without `}}}}`"))
        .hint("close it with `}}`; a literal `{{` is written `\\{{`")
}

pub(crate) fn not_a_reference(file: &File, at: Span, text: &str, steps: &[&str]) -> Diagnostic {
    let head = text.split(['.', ' ', '|', '[']).next().unwrap_or_default();
    let rest = text.get(head.len()..).unwrap_or_default();
    let hint = if let Some(hint) = of_other_tools(text) {
        hint
    } else if steps.contains(&head) && !rest.starts_with(".output") {
        let way = rest.strip_prefix('.').filter(|way| !way.is_empty() && !way.contains(' '));
        let way = way.map(|way| format!(".{way}")).unwrap_or_default();
        format!("an output is written `{{{{{head}.output{way}}}}}`")
    } else if let Some(dotted) = dotted(text) {
        format!("did you mean `{{{{{dotted}}}}}`?")
    } else if text.contains('[') {
        "an element is written with a dot: `{{step.output.0}}`".to_owned()
    } else if text.contains('|') || text.contains('(') {
        "templates have no filters or functions: compute the value in a code step".to_owned()
    } else if is_name(text) && text != "input" {
        format!("a value of the input is written `{{{{input.{text}}}}}`, an output `{{{{step.output}}}}`")
    } else {
        "references are `{{input.name}}` and `{{step.output.field}}`; a literal `{{` is written `\\{{`".to_owned()
    };
    let message =
        if text.is_empty() { "`{{}}` is empty".to_owned() } else { format!("{} is not a reference", quoted(text)) };
    Diagnostic::error(Code::NotAReference, file, at, message).hint(hint)
}

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'))
}

/// A reference with members in brackets, such as `input['name']` or `step.output[0]`, with dots in their place.
fn dotted(text: &str) -> Option<String> {
    let (head, mut rest) = text.split_once('[')?;
    let mut dotted = head.to_owned();
    loop {
        let (member, after) = rest.split_once(']')?;
        let member = member.trim().trim_matches(['\'', '"']);
        let is_index = !member.is_empty() && member.chars().all(|c| c.is_ascii_digit());
        if !is_index && !is_name(member) {
            return None;
        }
        dotted = format!("{dotted}.{member}");
        let (between, next) = after.split_once('[').unwrap_or((after, ""));
        dotted.push_str(between);
        if next.is_empty() {
            break;
        }
        rest = next;
    }
    dotted.parse::<Reference>().is_ok().then_some(dotted)
}

/// Equivalent of references of other tools, and of paths in the input of a code step.
fn of_other_tools(text: &str) -> Option<String> {
    let (head, rest) = text.split_once('.')?;
    if rest.is_empty() || rest.contains(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '.' | '_' | '-')) {
        return None;
    }
    let written = |reference: &str| format!("did you mean `{{{{{reference}}}}}`?");
    match head {
        "steps" => {
            let (step, way) = rest.split_once('.').unwrap_or((rest, "output"));
            let way = way.replacen("outputs", "output", 1);
            Some(written(&if way.starts_with("output") {
                format!("{step}.{way}")
            } else {
                format!("{step}.output.{way}")
            }))
        }
        "inputs" | "params" | "parameters" | "args" => Some(written(&format!("input.{rest}"))),
        "env" | "secrets" | "vars" => {
            let name = rest.split('.').next().unwrap_or(rest);
            Some(format!("a code step receives an environment variable with `env: {{{name}: {{from_env: {name}}}}}`"))
        }
        _ => None,
    }
}

/// A reference in a field that is used as written. `variable` is a name for its value.
pub(crate) fn not_a_template(file: &File, at: Span, field: &Field, reference: &str, variable: &str) -> Diagnostic {
    let message = format!("`{}` is not a template: {} would be passed on as written", field.name, braced(reference));
    let hint = match field.instead {
        "" => "write the value itself".to_owned(),
        instead => instead.replace("REF", &format!("{{{{{}}}}}", plain(reference))).replace("NAME", variable),
    };
    Diagnostic::error(Code::NotATemplate, file, at, message).hint(hint)
}

fn braced(reference: &str) -> String {
    format!("`{{{{{}}}}}`", plain(reference))
}

/// A reference in the braces of another program. In `${{…}}`, only the `$` is text.
pub(crate) fn other_braces(file: &File, at: Span, written: &str, reference: &str, is_doubled: bool) -> Diagnostic {
    let message = match is_doubled {
        true => format!("the `$` of {} stays in the text", quoted(written)),
        false => format!("{} is text, not a reference", quoted(written)),
    };
    Diagnostic::error(Code::Slip, file, at, message)
        .severity(Severity::Warning)
        .hint(format!("write {}", braced(reference)))
}

/// The name of a file in place of a text.
pub(crate) fn file_as_text(file: &File, at: Span, field: &str, name: &str) -> Diagnostic {
    let message = format!("`{field}` is the text {}, not the content of a file", quoted(name));
    Diagnostic::error(Code::Slip, file, at, message)
        .severity(Severity::Warning)
        .hint(format!("write the text itself in a block: `{field}: |`"))
}

/// A comparison that has the same result for each value, because its sides have different types.
pub(crate) fn decided_comparison(
    file: &File,
    at: Span,
    (value, types): (&str, &str),
    (word, is_true): (&str, bool),
    meant: Option<String>,
) -> Diagnostic {
    let always = if is_true { "always" } else { "never" };
    let message = format!("the condition is {always} true: {value} is {types}, and `{word}` has another type");
    Diagnostic::error(Code::BadCondition, file, at, message).severity(Severity::Warning).hint(match meant {
        Some(meant) => format!("write `{word}: {meant}`"),
        None => format!("compare it with {types}"),
    })
}

pub(crate) fn nested_template(file: &File, at: Span, parameter: &str) -> Diagnostic {
    let message = format!("the value of {} has a reference inside a list or mapping", quoted(parameter));
    Diagnostic::error(Code::NotAReference, file, at, message)
        .label("would not be filled in")
        .hint("give the whole value as one reference; a code step can put it together")
}

/// A reference to a step that does not exist. `earlier` are the steps that can be referred to.
pub(crate) fn unknown_step(
    file: &File,
    at: Span,
    field: &str,
    step: &str,
    owner: &str,
    earlier: &[&str],
) -> Diagnostic {
    let message = format!("`{field}` refers to {}, but there is no such step", quoted(&format!("{step}.output")));
    Diagnostic::error(Code::UnknownStep, file, at, message)
        .label(before(owner, earlier))
        .maybe_hint(meant(step, earlier.iter().copied()))
}

pub(crate) fn child_of_group(file: &File, at: Span, step: &str, group: &str) -> Diagnostic {
    let message = format!("{} is a step of the group {}", quoted(step), quoted(group));
    Diagnostic::error(Code::UnknownStep, file, at, message).hint(format!("write `{{{{{group}.output.{step}}}}}`"))
}

pub(crate) fn later_step(
    file: &File,
    at: Span,
    step: &str,
    owner: &str,
    earlier: &[&str],
    declared: Span,
) -> Diagnostic {
    let message = format!("{} runs after {}, so it has no output yet", quoted(step), quoted(owner));
    Diagnostic::error(Code::LaterStep, file, at, message)
        .label(before(owner, earlier))
        .related(declared, "runs later")
        .hint(format!("move {} before {}", quoted(step), quoted(owner)))
}

pub(crate) fn own_step(file: &File, at: Span, step: &str, earlier: &[&str]) -> Diagnostic {
    Diagnostic::error(Code::OwnStep, file, at, format!("step {} refers to its own output", quoted(step)))
        .label(before(step, earlier))
}

pub(crate) fn own_group(file: &File, at: Span, step: &str, group: &str) -> Diagnostic {
    let message = format!("step {} refers to the group {} that it belongs to", quoted(step), quoted(group));
    Diagnostic::error(Code::OwnStep, file, at, message)
        .label("the output of the group exists only after all its steps have ended")
}

pub(crate) fn sibling_step(file: &File, at: Span, step: &str, owner: &str, group: &str) -> Diagnostic {
    let message = format!("{} runs at the same time as {}", quoted(step), quoted(owner));
    Diagnostic::error(Code::SiblingStep, file, at, message)
        .label(format!("steps of `{group}` see the steps before the group, not each other"))
        .hint(format!("move {} before the group", quoted(step)))
}

/// A step without a name, which is a fault of its own, cannot be referred to.
fn before(owner: &str, earlier: &[&str]) -> String {
    let owner = if owner.is_empty() { "this step".to_owned() } else { quoted(owner) };
    let named: Vec<&str> = earlier.iter().copied().filter(|name| !name.is_empty()).collect();
    match named.as_slice() {
        [] if earlier.is_empty() => format!("no step comes before {owner}"),
        [] => format!("no step before {owner} has a name"),
        named => format!("steps before {owner}: {}", list(named)),
    }
}

pub(crate) fn unknown_input(file: &File, at: Span, name: &str, declared: &[&str]) -> Diagnostic {
    let message = format!("the pipeline has no input {}", quoted(name));
    let diagnostic = Diagnostic::error(Code::UnknownInput, file, at, message);
    match declared {
        [] => diagnostic.hint(format!("declare it: `input: {{{}: string}}`", visible(name))),
        _ => diagnostic.label(format!("declared inputs: {}", list(declared))).hint(
            meant(name, declared.iter().copied())
                .unwrap_or_else(|| format!("declare it: `{}: string` below `input`", visible(name))),
        ),
    }
}

/// `repeated`: the step has `for_each`, but `field` does not belong to its elements.
pub(crate) fn no_item(file: &File, at: Span, word: &str, field: &str, repeated: bool) -> Diagnostic {
    if repeated {
        return Diagnostic::error(Code::NoItem, file, at, format!("`{word}` does not exist yet in `{field}`"))
            .label("this field is read once, before the first element")
            .hint("the prompt, the command's `env` and other fields are read per element");
    }
    Diagnostic::error(Code::NoItem, file, at, format!("`{word}` exists only in a step with `for_each`"))
        .hint("add `for_each: \"{{step.output}}\"` to the step")
}

/// Reason why a path leads nowhere.
pub(crate) enum NoValue<'a> {
    /// A closed object without such a member.
    Member { name: &'a str, known: &'a [String] },
    /// A value without members: `a string`.
    Leaf { kind: &'a str, into: &'a str },
    /// An array, accessed by a member name; `way` is the whole rest of the reference.
    Array { name: &'a str, way: &'a str },
    /// The list of a collected fan-out, accessed by a member name.
    CollectedArray { name: &'a str, way: &'a str },
    /// An element of a collected fan-out, accessed by a member of its output.
    Collected { name: &'a str, way: &'a str },
}

/// The two forms of an element of a collected fan-out.
const COLLECTED: &str = "with `on_item_failure: collect` each element is `{\"output\": …}` or `{\"error\": …}`";

/// `whole` is the reference, `so_far` its valid part, `schema` the schema that rules out the rest.
pub(crate) fn no_such_value(
    file: &File,
    at: Span,
    whole: &str,
    so_far: &str,
    schema: &str,
    why: &NoValue<'_>,
) -> Diagnostic {
    let (message, label, hint) = match why {
        NoValue::Member { name, known } => {
            let label = if known.is_empty() {
                "the value has no members".to_owned()
            } else {
                format!("it has: {}", list(known))
            };
            (
                format!("{} has no member {}", quoted(so_far), quoted(name)),
                label,
                meant(name, known.iter().map(String::as_str)),
            )
        }
        NoValue::Leaf { kind, into } => {
            let message = format!("{} is {kind}, which has no member {}", quoted(so_far), quoted(into));
            (message, format!("the reference must end at {}", quoted(so_far)), None)
        }
        NoValue::Array { name, way } => {
            let message = format!("{} is an array, which has no member {}", quoted(so_far), quoted(name));
            (
                message,
                "elements are counted from 0".to_owned(),
                Some(format!("write `{{{{{so_far}.0.{}}}}}`, or use `for_each`", visible(way))),
            )
        }
        NoValue::CollectedArray { name, way } => {
            let message = format!("{} is an array, which has no member {}", quoted(so_far), quoted(name));
            let hint = format!("write `{{{{{so_far}.0.output.{}}}}}`, or use `for_each`", visible(way));
            (message, COLLECTED.to_owned(), Some(hint))
        }
        NoValue::Collected { name, way } => {
            let message = format!("{} has no member {}", quoted(so_far), quoted(name));
            let hint = format!("write `{{{{{so_far}.output.{}}}}}`", visible(way));
            (message, COLLECTED.to_owned(), Some(hint))
        }
    };
    let hint =
        hint.or_else(|| (!schema.is_empty()).then(|| format!("{} is described by {schema}", quoted(head(whole)))));
    Diagnostic::error(Code::NoSuchValue, file, at, message).label(label).maybe_hint(hint)
}

/// A `for_each` over a value that is never a list.
pub(crate) fn no_list(file: &File, at: Span, reference: &str, kind: &str) -> Diagnostic {
    let message = format!("`for_each` needs a list, but {} is {kind}", quoted(reference));
    let hint = match reference.strip_prefix("input.") {
        Some(name) if !name.contains('.') => format!("declare the parameter as a list: `{}: array`", visible(name)),
        _ if kind == "a string" => "let the step print JSON, or give it a `schema` of the type `array`".to_owned(),
        _ => "refer to a list inside it".to_owned(),
    };
    Diagnostic::error(Code::NoSuchValue, file, at, message)
        .severity(Severity::Warning)
        .label("the step would fail")
        .hint(hint)
}

fn head(whole: &str) -> &str {
    let mut dots = whole.match_indices('.').map(|(at, _)| at);
    dots.nth(1).map_or(whole, |at| &whole[..at])
}

pub(crate) fn unknown_output(file: &File, at: Span, name: &str, steps: &[&str]) -> Diagnostic {
    Diagnostic::error(
        Code::UnknownOutput,
        file,
        at,
        format!("`output` names {}, but no step has that name", quoted(name)),
    )
    .label(if steps.is_empty() { "there are no steps".to_owned() } else { format!("steps: {}", list(steps)) })
    .maybe_hint(meant(name, steps.iter().copied()))
}

/// An `output` that names a child of a group that runs once per element.
pub(crate) fn output_of_elements(file: &File, at: Span, name: &str, group: &str) -> Diagnostic {
    let message = format!("`output` names {}, which has one output per element", quoted(name));
    Diagnostic::error(Code::UnknownOutput, file, at, message)
        .label(format!("its group {} has `for_each`", quoted(group)))
        .hint(format!("write `output: {}`: the list of the group's outputs", plain(group)))
}

pub(crate) fn unknown_pipeline(file: &File, at: Span, name: &str, pipelines: &[&str]) -> Diagnostic {
    Diagnostic::error(Code::UnknownPipeline, file, at, format!("there is no pipeline {}", quoted(name)))
        .label(if pipelines.is_empty() {
            "the app has no other pipeline".to_owned()
        } else {
            format!("available: {}", list(pipelines))
        })
        .maybe_hint(meant(name, pipelines.iter().copied()))
}

pub(crate) fn unknown_skill(file: &File, at: Span, name: &str, skills: &[&str]) -> Diagnostic {
    Diagnostic::error(Code::UnknownSkill, file, at, format!("there is no skill {}", quoted(name)))
        .label(if skills.is_empty() {
            "the app has none: a skill is a folder of `skills/` with a SKILL.md".to_owned()
        } else {
            format!("available: {}", list(skills))
        })
        .maybe_hint(meant(name, skills.iter().copied()))
}

pub(crate) fn recursion(file: &File, at: Span, way: &[String]) -> Diagnostic {
    let message = match way {
        [one] => format!("pipeline {} runs itself", quoted(one)),
        [first, ..] => format!("pipeline {} runs itself, by way of {}", quoted(first), quoted_list(&way[1..], "and")),
        [] => "a pipeline runs itself".to_owned(),
    };
    Diagnostic::error(Code::Recursion, file, at, message)
        .label("would never end")
        .hint("use `for_each` to repeat steps")
}

/// A limit that a pipeline exceeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Excess {
    /// Nesting depth of pipelines.
    Depth { most: u32 },
    /// Number of steps, including those of inner pipelines.
    Steps { most: u64 },
    /// Size of the definitions, in bytes.
    Bytes { most: u64 },
}

/// A step that makes its pipeline exceed a limit. `of`: `pipeline` or `skill`.
pub(crate) fn too_far(file: &File, at: Span, of: &str, name: &str, excess: Excess) -> Diagnostic {
    let name = quoted(name);
    let all = "each call of another pipeline counts all its steps";
    match excess {
        Excess::Depth { most } => {
            let message = format!("with {of} {name} inside it, this pipeline holds too many inside each other");
            Diagnostic::error(Code::NestedTooDeep, file, at, message)
                .label(format!("at most {most} pipelines can run inside each other"))
                .hint("run some of the pipelines one after the other")
        }
        Excess::Steps { most } => {
            let message = format!("with {of} {name}, this pipeline has more than {} steps", number(most));
            Diagnostic::error(Code::TooManySteps, file, at, message)
                .label(all)
                .hint("use `for_each` to repeat steps; its elements are not counted")
        }
        Excess::Bytes { most } => {
            let most = most >> 20;
            let message = format!("with {of} {name}, the definitions of this pipeline have more than {most} MiB");
            Diagnostic::error(Code::TooManySteps, file, at, message)
                .label(all)
                .hint("use `for_each` to repeat steps, or put long texts into files")
        }
    }
}

pub(crate) fn scope_pipeline(file: &File, at: Span, name: &str) -> Diagnostic {
    let message = format!("{} cannot be run by a step", quoted(name));
    Diagnostic::error(Code::UnknownPipeline, file, at, message).label("etude runs it before or after every pipeline")
}

pub(crate) fn learned_pipeline(file: &File, at: Span, name: &str) -> Diagnostic {
    let message = format!("learned pipeline {} cannot be run by a step", quoted(name));
    Diagnostic::error(Code::UnknownPipeline, file, at, message)
        .label("confirmation of writes and demotion work only in a separate run")
        .hint(format!("copy it to a directory of another name without `learn.yaml`: pipelines/{name}"))
}

pub(crate) fn scope_fallback(file: &File, at: Span, name: &str) -> Diagnostic {
    let message = format!("{} cannot fall back to skill mode", quoted(name));
    Diagnostic::error(Code::MisplacedField, file, at, message)
        .label("only the pipeline of a run deviates")
        .hint("remove the field")
}

pub(crate) fn no_skill_to_fall_back_to(file: &File, at: Span) -> Diagnostic {
    let message = "`fallback: skill` needs SKILL.md, and this app has none".to_owned();
    Diagnostic::error(Code::MissingFile, file, at, message)
        .label("there is no skill mode")
        .hint("write SKILL.md in the app's directory, or remove `fallback`")
}

pub(crate) fn broken_pipeline(file: &File, at: Span, name: &str, errors: usize) -> Diagnostic {
    let count = if errors == 1 { "an error".to_owned() } else { format!("{} errors", number(errors as u64)) };
    Diagnostic::error(Code::BrokenPipeline, file, at, format!("pipeline {} has {count}", quoted(name)))
        .hint(format!("see `etude check {}`", visible(name)))
}

pub(crate) fn undeclared_binding(file: &File, at: Span, pipeline: &str, name: &str, declared: &[&str]) -> Diagnostic {
    let message = format!("pipeline {} has no input {}", quoted(pipeline), quoted(name));
    Diagnostic::error(Code::BadBinding, file, at, message)
        .label(if declared.is_empty() {
            "it takes no input".to_owned()
        } else {
            format!("its inputs: {}", list(declared))
        })
        .maybe_hint(meant(name, declared.iter().copied()))
}

pub(crate) fn missing_bindings(file: &File, at: Span, pipeline: &str, missing: &[&str]) -> Diagnostic {
    let message = format!("pipeline {} needs {}", quoted(pipeline), quoted_list(missing, "and"));
    Diagnostic::error(Code::BadBinding, file, at, message).hint(format!(
        "for example: `input: {{{}: \"{{{{input.{0}}}}}\"}}`",
        plain(missing.first().copied().unwrap_or_default())
    ))
}

pub(crate) fn mistyped_binding(file: &File, at: Span, pipeline: &str, name: &str, why: &str) -> Diagnostic {
    let message = format!("input {} of pipeline {} {}", quoted(name), quoted(pipeline), cause(why));
    Diagnostic::error(Code::BadBinding, file, at, message)
}

/// An input of a test that the pipeline or machine does not take.
pub(crate) fn misfit(file: &File, at: Span, target: &str, why: &str, hint: Option<String>) -> Diagnostic {
    let message = format!("the input does not fit {}: {why}", quoted(target));
    Diagnostic::error(Code::BadBinding, file, at, message).maybe_hint(hint)
}

/// A pattern of `allowed_tools` that no tool matches. Another version of etude or of the app may have one.
pub(crate) fn idle_pattern(file: &File, at: Span, pattern: &str, name: &str, known: &[&str]) -> Diagnostic {
    let message = format!("`allowed_tools` has the pattern {}, which matches no tool", quoted(pattern));
    Diagnostic::error(Code::UnknownTool, file, at, message)
        .severity(Severity::Warning)
        .label(format!("available: {}", list(known)))
        .hint(meant(name, known.iter().copied()).unwrap_or_else(|| {
            "tools of MCP servers are written `mcp__SERVER__TOOL`; `*` stands for any part of a name".to_owned()
        }))
}

/// A condition of a pattern that was probably meant as a directive.
pub(crate) fn bare_directive(file: &File, at: Span, pattern: &str, word: &str, directive: &str) -> Diagnostic {
    let message =
        format!("{} in the pattern {} is a condition on the call, not a directive", quoted(word), quoted(pattern));
    Diagnostic::error(Code::UnknownWord, file, at, message)
        .severity(Severity::Warning)
        .hint(format!("write `{directive}`"))
}

/// A word after `$` that is not a directive: a pattern with it allows nothing, and a denial covers every call.
pub(crate) fn unknown_directive(file: &File, at: Span, pattern: &str, word: &str, known: &[&str]) -> Diagnostic {
    let message = format!("{} in the pattern {} is not a directive", quoted(word), quoted(pattern));
    Diagnostic::error(Code::UnknownWord, file, at, message)
        .severity(Severity::Warning)
        .label(format!("must be {}", quoted_list(known, "or")))
        .maybe_hint(meant(word, known.iter().copied()))
}

/// A pattern that names a built-in tool in the wrong case.
pub(crate) fn tool_in_wrong_case(file: &File, at: Span, pattern: &str, tool: &str) -> Diagnostic {
    let message = format!("the pattern {} matches no tool, because names of tools are case-sensitive", quoted(pattern));
    Diagnostic::error(Code::UnknownTool, file, at, message).severity(Severity::Warning).hint(format!("write `{tool}`"))
}

/// A step that calls a tool which neither etude nor the app has.
pub(crate) fn unknown_tool(file: &File, at: Span, name: &str, known: &[&str]) -> Diagnostic {
    Diagnostic::error(Code::UnknownTool, file, at, format!("there is no tool {}", quoted(name)))
        .label(format!("available: {}", list(known)))
        .hint(meant(name, known.iter().copied()).unwrap_or_else(|| {
            "a tool of the app is `tools/NAME.yaml`; one of an MCP server is written `mcp__SERVER__TOOL`".to_owned()
        }))
}

/// A step that calls a tool which the app's skill does not allow.
pub(crate) fn excluded_tool(file: &File, at: Span, name: &str) -> Diagnostic {
    let message = format!("`allowed-tools` of `SKILL.md` does not list {}", quoted(name));
    Diagnostic::error(Code::UnknownTool, file, at, message)
        .label("a step can call only the tools of the app's skill")
        .hint("add it to `allowed-tools`, or remove the step")
}

/// A step that calls a tool which the app's skill denies.
pub(crate) fn denied_tool(file: &File, at: Span, name: &str) -> Diagnostic {
    Diagnostic::error(Code::UnknownTool, file, at, format!("`SKILL.md` denies all calls of {}", quoted(name)))
        .label("a step can call only the tools of the app's skill")
        .hint("remove it from `disallowed-tools`, or remove the step")
}

/// An argument that a tool does not take.
pub(crate) fn unknown_argument(file: &File, at: Span, tool: &str, name: &str, declared: &[&str]) -> Diagnostic {
    let message = format!("tool {} has no argument {}", quoted(tool), quoted(name));
    Diagnostic::error(Code::BadBinding, file, at, message)
        .label(if declared.is_empty() {
            "it takes no arguments".to_owned()
        } else {
            format!("its arguments: {}", list(declared))
        })
        .maybe_hint(meant(name, declared.iter().copied()))
}

pub(crate) fn missing_arguments(file: &File, at: Span, tool: &str, missing: &[&str]) -> Diagnostic {
    let message = format!("tool {} needs {}", quoted(tool), quoted_list(missing, "and"));
    Diagnostic::error(Code::BadBinding, file, at, message).hint(format!(
        "for example: `args: {{{}: \"{{{{input.{0}}}}}\"}}`",
        plain(missing.first().copied().unwrap_or_default())
    ))
}

pub(crate) fn mistyped_argument(file: &File, at: Span, tool: &str, name: &str, why: &str) -> Diagnostic {
    let message =
        format!("argument {} of tool {} does not fit `inputSchema`: {}", quoted(name), quoted(tool), cause(why));
    Diagnostic::error(Code::BadBinding, file, at, message)
}

/// Arguments that do not fit the tool's schema together.
pub(crate) fn unfit_arguments(file: &File, at: Span, tool: &str, why: &str) -> Diagnostic {
    let message = format!("the arguments of tool {} do not fit `inputSchema`: {}", quoted(tool), cause(why));
    Diagnostic::error(Code::BadBinding, file, at, message)
}

pub(crate) fn not_one_reference(file: &File, at: Span, field: &str) -> Diagnostic {
    Diagnostic::error(Code::NotOneReference, file, at, format!("`{field}` must be exactly one reference"))
        .label("text around a reference makes it a string")
        .hint(format!("write `{field}: \"{{{{step.output.list}}}}\"`"))
}

#[cfg(test)]
mod tests {
    use super::before;

    /// the list of steps has names only.
    #[test]
    fn steps_without_names_are_not_listed() {
        assert_eq!(before("s", &[]), "no step comes before `s`");
        assert_eq!(before("s", &["a", "", "b"]), "steps before `s`: a, b");
        assert_eq!(before("s", &[""]), "no step before `s` has a name");
        assert_eq!(before("", &["a"]), "steps before this step: a");
    }
}
