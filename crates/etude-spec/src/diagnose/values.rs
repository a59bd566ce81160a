//! P0204 to P0219 and P0601: faults of field values.

use std::sync::Arc;

use etude_core::condition::Op;

use crate::code::Code;
use crate::diagnostic::{Diagnostic, Severity};
use crate::fields::{FieldKind, pipeline};
use crate::source::{SourceFile, Span};
use crate::wording::{cause, list, meant, plain, quoted, quoted_list, visible};
use crate::yaml::{Node, Plain, Scalar, Style, Value};

type File = Arc<SourceFile>;

/// A fault of the merged configuration, which spans several files.
pub(crate) fn unusable_configuration(file: &File, at: Span, why: &str, hint: Option<&str>) -> Diagnostic {
    Diagnostic::error(Code::Contradiction, file, at, visible(why).into_owned())
        .hint(hint.unwrap_or("list the models in use: etude model list"))
}

/// `field` holds the key, and the name of the value in messages.
pub(crate) fn wrong_type(
    file: &File,
    at: Span,
    field: (&str, &str),
    expected: &FieldKind,
    value: &Node<'_>,
) -> Diagnostic {
    let (field, what) = field;
    if value.span.is_empty() {
        return Diagnostic::error(Code::WrongType, file, at, format!("{what} has no value"))
            .label(format!("must be {}", expected.expected()))
            .hint("give it a value, or remove it");
    }
    let message = format!("{what} must be {}, not {}", expected.expected(), value.kind());
    let diagnostic = Diagnostic::error(Code::WrongType, file, at, message);
    // Of several forms, the first is the short one.
    let short = if let FieldKind::Either(kinds) = expected { kinds.first().unwrap_or(expected) } else { expected };
    let is_text = matches!(
        short,
        FieldKind::Text
            | FieldKind::Prose
            | FieldKind::Template
            | FieldKind::ArgsTemplate
            | FieldKind::Path
            | FieldKind::Word(_)
    );
    let hint = match (&value.value, expected) {
        (Value::Scalar(scalar), FieldKind::Word([word])) if scalar.text != *word => {
            Some(format!("write `{field}: {word}`"))
        }
        (Value::Scalar(scalar), _) if is_text => Some(format!("put it in quotes: `\"{}\"`", plain(&scalar.text))),
        (Value::Scalar(scalar), FieldKind::Bool)
            if ["yes", "on", "no", "off"].contains(&scalar.text.to_lowercase().as_str()) =>
        {
            let word = ["yes", "on"].contains(&scalar.text.to_lowercase().as_str());
            Some(format!("write `{word}`: `{}` is text in YAML 1.2", plain(&scalar.text)))
        }
        (Value::Scalar(scalar), FieldKind::Integer(..) | FieldKind::Number(..) | FieldKind::Bool)
            if scalar.style != Style::Plain =>
        {
            let bare = Scalar { text: scalar.text.as_ref().into(), style: Style::Plain };
            (bare.resolve() != Plain::Text).then(|| "write it without quotes".to_owned())
        }
        (Value::Seq(_) | Value::Map(_), _)
            if of_shape(field).is_some() && !file.slice(value.span).starts_with("{{") =>
        {
            of_shape(field).map(str::to_owned)
        }
        (Value::Map(_), _) if file.slice(value.span).starts_with("{{") => {
            Some("a value that begins with `{{` must be quoted".to_owned())
        }
        (Value::Scalar(scalar), FieldKind::List(_)) => Some(format!("write a list: `[{}]`", plain(&scalar.text))),
        _ => None,
    };
    diagnostic.maybe_hint(hint)
}

/// Hint on a field whose value is a list or a mapping by mistake.
fn of_shape(field: &str) -> Option<&'static str> {
    Some(match field {
        "command" => "write the command as one line of text",
        "for_each" => {
            "refer to a list, for example `for_each: \"{{input.items}}\"`; a parameter may have it as its `default`"
        }
        "from" => "refer to a list, for example `from: \"{{step.output}}\"`",
        "choose" => "for example: `choose: {from: \"{{step.output}}\"}`",
        "env" => "write a mapping: `env: {NAME: \"value\"}`",
        "steps" => {
            "begin each step with `- `, for example: `- {name: fetch, type: code, command: bash steps/fetch.sh}`"
        }
        _ => return None,
    })
}

pub(crate) fn top_level(file: &File, at: Span, what: &str, kind: &str) -> Diagnostic {
    let message = format!("{what} must be a mapping from fields to values, not {kind}");
    Diagnostic::error(Code::WrongType, file, at, message).hint("begin with `name: …`")
}

pub(crate) fn step_not_a_mapping(file: &File, at: Span, kind: &str) -> Diagnostic {
    let message = format!("a step must be a mapping with `name` and `type`, not {kind}");
    Diagnostic::error(Code::WrongType, file, at, message)
        .hint("for example: `- {name: fetch, type: code, command: bash steps/fetch.sh}`")
}

pub(crate) fn unknown_word(file: &File, at: Span, what: &str, word: &str, words: &[&str]) -> Diagnostic {
    let type_hint = || step_type(word).filter(|_| words == pipeline::STEP_TYPES).map(str::to_owned);
    let hint = type_hint().or_else(|| meant(word, words.iter().copied())).or_else(|| match words {
        pipeline::TIERS => {
            Some("a pipeline names a capability level; `model_mapping` in etude.yaml maps it to a model".to_owned())
        }
        _ => None,
    });
    let message = format!("{what} cannot be {}", quoted(word));
    Diagnostic::error(Code::UnknownWord, file, at, message)
        .label(format!("must be {}", quoted_list(words, "or")))
        .maybe_hint(hint)
}

/// Step type that other tools call `word`, if similar letters do not reveal it.
fn step_type(word: &str) -> Option<&'static str> {
    const PROGRAMS: &[&str] =
        &["shell", "bash", "sh", "run", "script", "exec", "command", "cmd", "python", "python3", "node", "javascript"];
    const MODELS: &[&str] = &["ai", "model", "prompt", "chat", "completion", "gpt", "openai", "anthropic", "claude"];
    let word = word.to_lowercase();
    if PROGRAMS.contains(&word.as_str()) {
        return Some("a step that runs a program is `type: code` with `command`");
    }
    MODELS.contains(&word.as_str()).then_some("a step that calls a model is `type: llm` with `prompt`")
}

pub(crate) fn out_of_range(file: &File, at: Span, what: &str, found: &str, min: &str, max: &str) -> Diagnostic {
    let message = format!("{what} cannot be {}", plain(found));
    Diagnostic::error(Code::OutOfRange, file, at, message).label(format!("must be from {min} to {max}"))
}

pub(crate) fn empty(file: &File, at: Span, what: &str) -> Diagnostic {
    Diagnostic::error(Code::Empty, file, at, format!("{what} is empty")).hint("give it a value, or remove it")
}

pub(crate) fn no_steps(file: &File, at: Span, subject: &str) -> Diagnostic {
    Diagnostic::error(Code::Empty, file, at, format!("`steps` of {subject} is empty"))
        .label("at least one step is needed")
        .hint("for example: `- {name: fetch, type: code, command: bash steps/fetch.sh}`")
}

pub(crate) fn name_mismatch(file: &File, at: Span, name: &str, dir: &str) -> Diagnostic {
    let message = format!("the pipeline is named {}, but its directory is {}", quoted(name), quoted(dir));
    Diagnostic::error(Code::NameMismatch, file, at, message)
        .label("must be the directory's name")
        .hint(format!("write `name: {}`, or rename the directory", visible(dir)))
}

pub(crate) fn bad_name(file: &File, at: Span, what: &str, name: &str, rule: &str) -> Diagnostic {
    let better: String =
        name.trim().chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '_' }).collect();
    let better =
        if better.starts_with(|c: char| c.is_ascii_digit() || c == '-') { format!("_{better}") } else { better };
    let usable = better.chars().any(|c| c.is_ascii_alphanumeric());
    Diagnostic::error(Code::BadName, file, at, format!("{} cannot be the name of {what}", quoted(name)))
        .label(rule.to_owned())
        .maybe_hint(usable.then(|| format!("for example {}", quoted(&better))))
}

pub(crate) fn reserved_name(file: &File, at: Span, what: &str, name: &str, why: &str) -> Diagnostic {
    Diagnostic::error(Code::ReservedName, file, at, format!("{} cannot be the name of {what}", quoted(name)))
        .label(why.to_owned())
        .hint("choose another name")
}

pub(crate) fn duplicate_name(file: &File, at: Span, first: Span, name: &str) -> Diagnostic {
    Diagnostic::error(Code::DuplicateName, file, at, format!("two steps are named {}", quoted(name)))
        .label("used again here")
        .related(first, "first used here")
        .hint("step names must be unique in a pipeline, also in groups, because references use them")
}

pub(crate) fn contradiction(file: &File, at: Span, message: String, label: &str, hint: &str) -> Diagnostic {
    Diagnostic::error(Code::Contradiction, file, at, message).label(label).hint(hint)
}

pub(crate) fn retry_of_timeout(file: &File, at: Span) -> Diagnostic {
    contradiction(
        file,
        at,
        "`on: [timeout]` has no effect".into(),
        "the `timeout` of a step is for all its attempts together",
        "end a slow attempt in the command, and repeat it by its exit status: `timeout 30 COMMAND`, `on: [124]`",
    )
    .severity(Severity::Warning)
}

pub(crate) fn no_node_worker(file: &File, at: Span) -> Diagnostic {
    Diagnostic::error(Code::IdleWorker, file, at, "there is no warm interpreter for Node".into())
        .severity(Severity::Warning)
        .label("the step runs in a new process")
        .hint("remove `worker`: the result is the same")
}

pub(crate) fn worker_without_python(file: &File, at: Span) -> Diagnostic {
    Diagnostic::error(
        Code::IdleWorker,
        file,
        at,
        "`worker: python` in a step that is not a single Python process".into(),
    )
    .severity(Severity::Warning)
    .label("the step runs in a new process")
    .hint("let `command` be `python3 FILE …` without shell syntax, or remove `worker`")
}

/// Warnings for steps that ask for a sandbox, which this machine cannot enforce because of `why`. `extensions` are
/// those that an app uses.
pub(crate) fn no_sandbox(extensions: &[Diagnostic], why: &str) -> Vec<Diagnostic> {
    let asked = |found: &&Diagnostic| found.field == Some("sandbox");
    let warn = |found: &Diagnostic| {
        let message = format!("this machine cannot enforce a sandbox: {why}");
        Diagnostic::error(Code::NoSandbox, &found.file, found.span.unwrap_or_default(), message)
            .severity(Severity::Warning)
            .label("runs are refused here")
            .hint("run it on a machine that can enforce it, or remove `sandbox`")
    };
    extensions.iter().filter(asked).map(warn).collect()
}

pub(crate) fn bad_duration(file: &File, at: Span, what: &str, why: &str) -> Diagnostic {
    let message = format!("{what} is not a duration: {why}");
    Diagnostic::error(Code::BadDuration, file, at, message)
        .hint("durations are written `500ms`, `30s`, `5m` or `1h`; a bare number is seconds")
}

pub(crate) fn zero_timeout(file: &File, at: Span) -> Diagnostic {
    Diagnostic::error(Code::OutOfRange, file, at, "`timeout` cannot be 0".into())
        .label("the step would end before it starts")
        .hint("remove `timeout` for no time limit")
}

pub(crate) fn bad_command(file: &File, at: Span, why: &str) -> Diagnostic {
    Diagnostic::error(Code::BadCommand, file, at, format!("the command cannot be split into words: {why}"))
        .hint("close the quote, or write `\\'` or `\\\"` for a quote that is meant as text")
}

pub(crate) fn bad_condition(file: &File, at: Span, message: String) -> Diagnostic {
    let words = Op::ALL.map(Op::word);
    Diagnostic::error(Code::BadCondition, file, at, message)
        .hint(format!("a comparison is `{{value: \"{{{{step.output}}}}\", OP: …}}` with one of {}", list(&words)))
}

/// A condition that is text with references, so that its value is never empty. `comparison` is the probable intention.
pub(crate) fn condition_with_text(file: &File, at: Span, field: &str, comparison: Option<&str>) -> Diagnostic {
    let message = format!("`{field}` has text beside its reference, so it would always be true");
    let fault = bad_condition(file, at, message);
    match comparison {
        Some(comparison) => fault.hint(format!("write the comparison `{comparison}`")),
        None => fault,
    }
}

pub(crate) fn bad_pattern(file: &File, at: Span, why: &str) -> Diagnostic {
    let why = why.lines().last().unwrap_or_default().trim_start_matches("error: ");
    Diagnostic::error(Code::BadCondition, file, at, format!("`matches` is not a regular expression: {why}"))
}

pub(crate) fn nested_group(file: &File, at: Span, name: &str) -> Diagnostic {
    Diagnostic::error(Code::NestedGroup, file, at, format!("group {} is inside another group", quoted(name)))
        .label("groups nest one level only")
        .hint("move its steps into the outer group, or into a separate pipeline")
}

pub(crate) fn bad_default(file: &File, at: Span, parameter: &str, why: &str) -> Diagnostic {
    let message = format!("the default of parameter {} {}", quoted(parameter), cause(why));
    Diagnostic::error(Code::BadDefault, file, at, message)
}

pub(crate) fn not_json(file: &File, at: Span, what: &str) -> Diagnostic {
    Diagnostic::error(Code::WrongType, file, at, format!("{what} holds a number that JSON cannot write"))
        .hint("JSON has neither infinity nor \"not a number\"")
}

pub(crate) fn too_large(file: &File, at: Span, what: &str) -> Diagnostic {
    Diagnostic::error(Code::WrongType, file, at, format!("{what} holds a number that is out of range"))
        .hint("a number here lies between about -1.8e308 and 1.8e308")
}

pub(crate) fn not_a_parameter_schema(file: &File, at: Span, parameter: &str, why: &str) -> Diagnostic {
    let message = format!("the declaration of parameter {} is not a JSON Schema: {why}", quoted(parameter));
    Diagnostic::error(Code::NotASchema, file, at, message)
}

pub(crate) fn unknown_input_type(file: &File, at: Span, parameter: &str, word: &str) -> Diagnostic {
    let hint = match word {
        "str" | "text" => Some("did you mean `string`?".to_owned()),
        "float" | "double" => Some("did you mean `number`?".to_owned()),
        "list" => Some("did you mean `array`?".to_owned()),
        "dict" | "map" | "json" => Some("did you mean `object`?".to_owned()),
        _ => meant(word, pipeline::INPUT_TYPES.iter().copied()),
    };
    let message = format!("parameter {} cannot have the type {}", quoted(parameter), quoted(word));
    Diagnostic::error(Code::UnknownWord, file, at, message)
        .label(format!("must be {}", quoted_list(pipeline::INPUT_TYPES, "or")))
        .maybe_hint(hint)
}

pub(crate) fn parameter_shape(file: &File, at: Span, parameter: &str, kind: &str) -> Diagnostic {
    let message = format!("parameter {} is declared by a type or a JSON Schema, not by {kind}", quoted(parameter));
    Diagnostic::error(Code::WrongType, file, at, message).hint(match parameter {
        "required" => "write each parameter below `input`, without `type`, `properties` and `required`".to_owned(),
        _ => format!("for example: `{}: string`", plain(parameter)),
    })
}

/// A word of a JSON Schema that is near a keyword. Validators ignore unknown words.
pub(crate) fn misspelled_keyword(file: &File, at: Span, word: &str, keyword: &str) -> Diagnostic {
    Diagnostic::error(Code::UnknownField, file, at, format!("{} is not a keyword of JSON Schema", quoted(word)))
        .severity(Severity::Warning)
        .label("has no effect")
        .hint(format!("did you mean {}?", quoted(keyword)))
}

pub(crate) fn no_interpreter(file: &File, at: Span, path: &str) -> Diagnostic {
    let message = format!("no known way to run the validator {}", quoted(path));
    Diagnostic::error(Code::NoInterpreter, file, at, message)
        .label("not executable, and no known extension")
        .hint("make it executable, or name it .py, .sh, .js, .mjs, .ts, .rb or .pl")
}

pub(crate) fn extension(file: &File, at: Span, subject: &str, what: &str, clause: &str) -> Diagnostic {
    Diagnostic::error(
        Code::Extension,
        file,
        at,
        format!("{subject} uses `{what}`, an extension beyond the protocol ({clause})"),
    )
    .severity(Severity::Note)
}

pub(crate) fn config_not_a_mapping(file: &File, at: Span, kind: &str) -> Diagnostic {
    Diagnostic::error(
        Code::WrongType,
        file,
        at,
        format!("a configuration must be a mapping from fields to values, not {kind}"),
    )
    .hint("begin with `model_mapping:` or `providers:`")
}

pub(crate) fn provider_without_kind(file: &File, at: Span, name: &str, kinds: &[&str]) -> Diagnostic {
    Diagnostic::error(Code::MissingField, file, at, format!("provider {} has no `kind`", quoted(name)))
        .label("the name of the provider is not a kind either")
        .hint(match meant(name, kinds.iter().copied()) {
            Some(meant) => format!("{meant} kinds are {}", list(kinds)),
            None => format!("kinds are {}", list(kinds)),
        })
}

pub(crate) fn mcp_server_nowhere(file: &File, at: Span, name: &str) -> Diagnostic {
    let message = format!("MCP server {} has neither `command` nor `url`", quoted(name));
    Diagnostic::error(Code::MissingField, file, at, message)
        .hint("for example: `command: npx`, or `url: \"https://mcp.example.com/mcp\"`")
}
