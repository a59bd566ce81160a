//! Reading of one step of a definition.

use etude_core::effect::{Command, Protocol, Worker};
use etude_core::model::Tier;
use etude_core::plan::{Binding, CodeRetry, OnFailure, OnTimeout, RetryOn, SandboxRules};
use etude_core::template::{Template, is_step_name};

use crate::Diagnostic;
use crate::check::{Findings, Subject, literal, object};
use crate::command;
use crate::diagnose::{references, values};
use crate::duration;
use crate::fields::{Field, Object, pipeline as tables};
use crate::pipeline::condition;
use crate::pipeline::definition::{
    ApprovalDef, BindingDef, Body, CacheDef, ChooseDef, CodeDef, ForEachDef, LlmDef, SchemaDef, SkillDef, StepDef,
    ValidatorDef,
};
use crate::pipeline::read::{self, Templates};
use crate::source::Span;
use crate::wording::{list as list_words, plain};
use crate::yaml::{Entries, Node, Text, boolean, integer, number, place, text, texts};

/// Maximum number of turns of a skill step that sets none.
const MAX_TURNS: u32 = 50;

/// Reads a step; `None` if it is not a mapping. `names` are the steps of the file, `group` is the enclosing group.
pub(crate) fn read<'n>(
    found: &mut Findings<'_>,
    node: &'n Node<'n>,
    list: Span,
    names: &[&str],
    group: Option<&str>,
) -> Option<StepDef<'n>> {
    let Some(entries) = node.as_map() else {
        if !node.is_invalid() {
            let at = if node.span.is_empty() { list } else { node.span };
            found.push(values::step_not_a_mapping(found.file, at, node.kind()));
        }
        return None;
    };
    let name = entries.get("name").and_then(Node::as_text).unwrap_or_default();
    let first = entries.0.first().map_or(node.span, |(key, _)| key.span);
    let at = text(entries, "name").map_or(first, |name| name.at);
    check_name(found, name, at);
    let table = table_of(entries);
    check_fields(found, entries, table, name, at);

    let mut templates = Templates { uses: Vec::new(), texts: Vec::new(), names };
    let for_each = for_each(found, entries, &mut templates);
    let when = entries.get("when").and_then(|node| condition::read(found, node, &mut templates, "when"));
    let require = entries.get("require").and_then(|node| condition::requirement(found, node, &mut templates));
    let cache = cache(found, entries, &mut templates);
    let step = StepDef {
        name,
        at,
        node,
        body: body(found, entries, table.map(|(word, _)| word), &mut templates, group),
        when,
        require,
        for_each,
        timeout_ms: duration::of_field(entries, "timeout").filter(|ms| *ms > 0),
        cache,
        effects: boolean(entries, "effects").unwrap_or(false),
        schema: table.and_then(|(_, table)| table.field("schema")).and_then(|_| schema(entries)),
        validate: table.and_then(|(_, table)| table.field("validate")).and_then(|_| validator(found, entries)),
        uses: templates.uses,
        texts: templates.texts,
    };
    check_combinations(found, entries, &step, group);
    Some(step)
}

fn check_name(found: &mut Findings<'_>, name: &str, at: Span) {
    if name.trim().is_empty() {
        return;
    }
    if matches!(name, "input" | "item" | "index") {
        let why = match name {
            "input" => "`{{input…}}` is the pipeline's input",
            _ => "`{{item}}` and `{{index}}` are the element of a `for_each`",
        };
        found.push(values::reserved_name(found.file, at, "a step", name, why));
    } else if !is_step_name(name) {
        let rule = "a letter or `_`, then letters, digits, `_` and `-`";
        found.push(values::bad_name(found.file, at, "a step", name, rule));
    }
}

/// The step's type with its table; `None` if the type is missing or unknown.
fn table_of(entries: &Entries<'_>) -> Option<(&'static str, &'static Object)> {
    let word = entries.get("type").and_then(Node::as_text)?;
    tables::steps().find(|(known, _)| *known == word)
}

fn check_fields(
    found: &mut Findings<'_>,
    entries: &Entries<'_>,
    table: Option<(&'static str, &'static Object)>,
    name: &str,
    at: Span,
) {
    let called = |word: &str| {
        if name.is_empty() { format!("{word} step") } else { format!("{word} step `{}`", plain(name)) }
    };
    if let Some((word, table)) = table {
        let others: Vec<_> = tables::steps().map(|(_, other)| other).collect();
        if word != "code" && word != "llm" {
            let clause = if word == "tool" { "L-38" } else { "X-3" };
            found.extensions.push(values::extension(
                found.file,
                place(entries, "type"),
                &called(word),
                &format!("type: {word}"),
                clause,
            ));
        }
        return object(found, entries, table, Subject { name: &called(word), at }, &others);
    }
    check_untyped(found, entries, name, at);
}

/// Checks a step whose type is missing or unknown: its fields suggest the intended type.
fn check_untyped(found: &mut Findings<'_>, entries: &Entries<'_>, name: &str, at: Span) {
    let reports = |f: &Field| f.required && f.name != "name" && f.name != "type" && entries.get(f.name).is_some();
    let guess = tables::steps().find(|(_, table)| table.iter().any(reports));
    let (word, table) = guess.unwrap_or(("code", &tables::CODE));
    let before = found.list.len();
    let subject = match name {
        "" => "a step".to_owned(),
        name => format!("step `{}`", plain(name)),
    };
    let all: Vec<_> = tables::steps().map(|(_, table)| table).collect();
    object(found, entries, table, Subject { name: &subject, at }, &all);
    let mut list = found.list.split_off(before);
    if guess.is_none() {
        // Only the head of the step is known, so only its faults are reported.
        let type_at = place(entries, "type");
        // A misspelt `type` stands for the missing one.
        let meant = |d: &Diagnostic| d.hint.as_deref().is_some_and(|h| h.contains("`type`") || h.contains("`name`"));
        let of_head = |d: &Diagnostic| d.message.ends_with("`type`") || d.message.ends_with("`name`");
        list.retain(|d| of_head(d) || meant(d) || d.span == Some(type_at));
    }
    for diagnostic in list.iter_mut().filter(|d| d.message.ends_with("has no `type`")) {
        diagnostic.label = Some("a step requires `name` and `type`".to_owned());
        diagnostic.hint = Some(match guess {
            Some(_) => format!("add `type: {word}`"),
            None => format!("types are {}", list_words(tables::STEP_TYPES)),
        });
    }
    found.list.extend(list);
}

fn check_combinations(found: &mut Findings<'_>, entries: &Entries<'_>, step: &StepDef<'_>, group: Option<&str>) {
    let is_group = matches!(step.body, Body::Parallel { .. });
    for field in ["max_parallel", "max_items", "on_item_failure"] {
        let Some((key, _)) = entries.entry(field) else { continue };
        if entries.get("for_each").is_none() && !(is_group && field == "max_parallel") {
            let message = format!("`{field}` without `for_each`");
            found.push(values::contradiction(
                found.file,
                key.span,
                message,
                "has no effect",
                "add `for_each`, or remove it",
            ));
        }
    }
    if step.cache.is_some() && step.effects {
        let message = "`cache` in a step with `effects: true`".to_owned();
        let label = "a reused output would skip the effects";
        let at = entries.entry("cache").map_or(step.at, |(key, _)| key.span);
        found.push(values::contradiction(found.file, at, message, label, "remove one of the two"));
    }
    if let (Body::Approval(_), Some((key, _))) = (&step.body, entries.entry("cache")) {
        let message = "`cache` in an approval step".to_owned();
        let label = "a person's decision would be reused";
        found.push(values::contradiction(found.file, key.span, message, label, "remove `cache`"));
    }
    if duration::of_field(entries, "timeout") == Some(0) {
        found.push(values::zero_timeout(found.file, place(entries, "timeout")));
    }
    if let (Body::Approval(_), Some((key, _)), None) = (&step.body, entries.entry("on_timeout"), entries.get("timeout"))
    {
        let message = "`on_timeout` without `timeout`".to_owned();
        found.push(values::contradiction(
            found.file,
            key.span,
            message,
            "the approval waits forever",
            "add `timeout`, or remove it",
        ));
    }
    if is_group && group.is_some() {
        found.push(values::nested_group(found.file, step.at, step.name));
    }
}

fn schema<'n>(entries: &'n Entries<'n>) -> Option<SchemaDef<'n>> {
    let inline = entries.get("schema").filter(|node| node.as_map().is_some());
    inline.map(SchemaDef::Inline).or_else(|| text(entries, "schema").map(SchemaDef::File))
}

fn validator<'n>(found: &mut Findings<'_>, entries: &'n Entries<'n>) -> Option<ValidatorDef<'n>> {
    let Some(long) = entries.get("validate").and_then(Node::as_map) else {
        return text(entries, "validate").map(ValidatorDef::Script);
    };
    let node = long.get("command")?;
    Some(ValidatorDef::Command { command: command(found, long), node })
}

/// Parses the command of a step or validator, and reports an invalid one.
fn command(found: &mut Findings<'_>, entries: &Entries<'_>) -> Option<Command> {
    let line = text(entries, "command")?;
    command::parse(line.text).map_err(|why| found.push(values::bad_command(found.file, line.at, why))).ok()
}

fn for_each<'n>(
    found: &mut Findings<'_>,
    entries: &'n Entries<'n>,
    templates: &mut Templates<'_, 'n>,
) -> Option<ForEachDef> {
    let node = entries.get("for_each")?;
    let before = found.list.len();
    let template = templates.read(found, "for_each", node, false)?;
    let Some(items) = template.sole_reference().cloned() else {
        if found.list.len() == before && !node.as_text().unwrap_or_default().trim().is_empty() {
            found.push(references::not_one_reference(found.file, node.span, "for_each"));
        }
        return None;
    };
    Some(ForEachDef {
        items,
        max_parallel: count(entries, "max_parallel").unwrap_or(1),
        max_items: count(entries, "max_items").unwrap_or(1_000),
        collect: entries.get("on_item_failure").and_then(Node::as_text) == Some("collect"),
    })
}

fn count(entries: &Entries<'_>, field: &str) -> Option<usize> {
    integer(entries, field).and_then(|n| usize::try_from(n).ok()).filter(|n| *n > 0)
}

fn cache<'n>(
    found: &mut Findings<'_>,
    entries: &'n Entries<'n>,
    templates: &mut Templates<'_, 'n>,
) -> Option<CacheDef> {
    let node = entries.get("cache")?;
    match (node.as_bool(), node.as_map()) {
        (Some(true), _) => Some(CacheDef { ttl_ms: None, key: None }),
        (_, Some(long)) => Some(CacheDef {
            ttl_ms: duration::of_field(long, "ttl"),
            key: long.get("key").and_then(|key| templates.read(found, "key", key, true)),
        }),
        _ => None,
    }
}

fn body<'n>(
    found: &mut Findings<'_>,
    entries: &'n Entries<'n>,
    word: Option<&str>,
    templates: &mut Templates<'_, 'n>,
    group: Option<&str>,
) -> Body<'n> {
    match word {
        Some("code") => Body::Code(code(found, entries, templates)),
        Some("llm") => Body::Llm(Box::new(llm(found, entries, templates))),
        Some("parallel") => {
            let name = entries.get("name").and_then(Node::as_text).unwrap_or_default();
            let subject = format!("parallel group `{}`", plain(name));
            let names = templates.names;
            let nested = group.is_some();
            Body::Parallel {
                steps: if nested { Vec::new() } else { read::steps(found, entries, &subject, names, Some(name)) },
                max_parallel: entries.get("for_each").is_none().then(|| count(entries, "max_parallel")).flatten(),
                on_failure: match entries.get("on_failure").and_then(Node::as_text) {
                    Some("wait") => OnFailure::Wait,
                    _ => OnFailure::Stop,
                },
            }
        }
        Some("pipeline") => {
            Body::Pipeline { pipeline: text(entries, "pipeline"), input: bindings(found, entries, "input", templates) }
        }
        Some(word @ ("machine" | "stage")) => Body::Machine {
            of: text(entries, word),
            is_stage: word == "stage",
            input: bindings(found, entries, "input", templates),
        },
        Some("approval") => Body::Approval(Box::new(ApprovalDef {
            message: templates.field(found, entries, "message"),
            approvers: texts(entries, "approvers"),
            on_timeout: match entries.get("on_timeout").and_then(Node::as_text) {
                Some("deny") => OnTimeout::Deny,
                Some("approve") => OnTimeout::Approve,
                _ => OnTimeout::Fail,
            },
            continue_on_deny: entries.get("on_deny").and_then(Node::as_text) == Some("continue"),
        })),
        Some("skill") => Body::Skill(Box::new(SkillDef {
            skill: text(entries, "skill"),
            tier: entries.get("model").and_then(Node::as_text).and_then(Tier::from_word).unwrap_or_default(),
            request: templates.field(found, entries, "request"),
            allowed: entries.get("allowed_tools").map(|_| texts(entries, "allowed_tools")),
            max_turns: integer(entries, "max_turns").and_then(|n| u32::try_from(n).ok()).unwrap_or(MAX_TURNS),
        })),
        Some("application") => {
            let args = entries.get("args").and_then(Node::as_seq).unwrap_or_default();
            Body::Application {
                application: text(entries, "application"),
                command: text(entries, "command"),
                args: args.iter().filter_map(|node| templates.read(found, "args", node, true)).collect(),
            }
        }
        Some("tool") => Body::Tool { tool: text(entries, "tool"), args: bindings(found, entries, "args", templates) },
        _ => {
            // Templates are still checked: their references do not depend on the step's type.
            for field in ["prompt", "system", "message"] {
                templates.field(found, entries, field);
            }
            Body::Unknown
        }
    }
}

fn code<'n>(found: &mut Findings<'_>, entries: &'n Entries<'n>, templates: &mut Templates<'_, 'n>) -> CodeDef<'n> {
    let command = command(found, entries);
    let worker = worker(found, entries, command.as_ref());
    let (env, env_from) = env(found, entries, templates);
    let statuses = entries.get("allow_exit").and_then(Node::as_seq).unwrap_or_default();
    let allow_exit: Vec<i32> =
        statuses.iter().filter_map(Node::as_integer).filter_map(|n| i32::try_from(n).ok()).collect();
    CodeDef {
        command,
        command_node: entries.get("command"),
        protocol: match entries.get("output").and_then(Node::as_text) {
            Some("text") => Protocol::Text,
            _ => Protocol::Step,
        },
        env,
        env_from,
        allow_exit: if entries.get("allow_exit").is_some() { allow_exit } else { vec![0] },
        retry: retry(found, entries),
        worker,
        sandbox: sandbox(found, entries, templates),
    }
}

/// The warm interpreter that a step asks for, if it exists. A command that it cannot run is run without it, so this is
/// only a warning.
fn worker(found: &mut Findings<'_>, entries: &Entries<'_>, command: Option<&Command>) -> Option<Worker> {
    let word = text(entries, "worker")?;
    if word.text == "node" {
        found.push(values::no_node_worker(found.file, word.at));
        return None;
    }
    if command.is_some_and(|command| !command::may_be_python(command)) {
        found.push(values::worker_without_python(found.file, word.at));
    }
    (word.text == "python").then_some(Worker::Python)
}

fn sandbox<'n>(
    found: &mut Findings<'_>,
    entries: &'n Entries<'n>,
    templates: &mut Templates<'_, 'n>,
) -> Option<SandboxRules> {
    let rules = entries.get("sandbox").and_then(Node::as_map)?;
    let mut paths = |field: &'static str| {
        let nodes = rules.get(field).and_then(Node::as_seq).unwrap_or_default();
        nodes.iter().filter_map(|node| templates.read(found, field, node, true)).collect()
    };
    let (read, write) = (paths("read"), paths("write"));
    Some(SandboxRules { network: boolean(rules, "network").unwrap_or(false), read, write })
}

/// Variables that a step takes from the environment, by name.
type FromEnv = Vec<(String, String)>;

fn env<'n>(
    found: &mut Findings<'_>,
    entries: &'n Entries<'n>,
    templates: &mut Templates<'_, 'n>,
) -> (Vec<(String, Template)>, FromEnv) {
    let (mut out, mut from) = (Vec::new(), Vec::new());
    let Some(variables) = entries.get("env").and_then(Node::as_map) else {
        return (out, from);
    };
    for (name, key, value) in variables.iter() {
        if name.starts_with("ETUDE_") {
            let why = "names that begin with `ETUDE_` are reserved for etude";
            found.push(values::reserved_name(found.file, key.span, "a variable", name, why));
        } else if !command::is_name(name) {
            let rule = "a letter or `_`, then letters, digits and `_`";
            found.push(values::bad_name(found.file, key.span, "a variable", name, rule));
        }
        if let Some(template) = templates.read(found, "env", value, true) {
            out.push((name.to_owned(), template));
        }
        if let Some(source) = value.as_map().and_then(|value| text(value, "from_env")) {
            if !command::is_name(source.text) {
                let rule = "a letter or `_`, then letters, digits and `_`";
                found.push(values::bad_name(found.file, source.at, "a variable", source.text, rule));
            }
            from.push((name.to_owned(), source.text.to_owned()));
        }
    }
    (out, from)
}

/// Reads the retries of a step. A time limit covers all attempts together, so a timeout never leads to a retry; asking
/// for one is a warning.
fn retry(found: &mut Findings<'_>, entries: &Entries<'_>) -> Option<CodeRetry> {
    let node = entries.get("retry")?;
    let words = node.as_map().and_then(|long| long.get("on")).and_then(Node::as_seq).unwrap_or_default();
    if let Some(word) = words.iter().find(|word| word.as_text() == Some("timeout")) {
        found.push(values::retry_of_timeout(found.file, word.span));
    }
    code_retry(node)
}

fn code_retry(node: &Node<'_>) -> Option<CodeRetry> {
    let simple =
        CodeRetry { max: 0, backoff_ms: 1_000, factor: 2.0, max_backoff_ms: 30_000, jitter: true, on: Vec::new() };
    let retries = |n: i64| u32::try_from(n).ok();
    let Some(entries) = node.as_map() else {
        let max = retries(node.as_integer()?)?;
        return (max > 0).then_some(CodeRetry { max, ..simple });
    };
    let on = entries.get("on").and_then(Node::as_seq).unwrap_or_default();
    Some(CodeRetry {
        max: retries(integer(entries, "max")?)?,
        backoff_ms: duration::of_field(entries, "backoff").unwrap_or(simple.backoff_ms),
        factor: number(entries, "factor").unwrap_or(simple.factor),
        max_backoff_ms: duration::of_field(entries, "max_backoff").unwrap_or(simple.max_backoff_ms),
        jitter: boolean(entries, "jitter").unwrap_or(simple.jitter),
        on: on
            .iter()
            .filter_map(|item| match item.as_text() {
                Some("timeout") => Some(RetryOn::Timeout),
                Some("signal") => Some(RetryOn::Signal),
                _ => item.as_integer().and_then(|n| i32::try_from(n).ok()).map(RetryOn::Status),
            })
            .collect(),
    })
}

fn choose<'n>(
    found: &mut Findings<'_>,
    entries: &'n Entries<'n>,
    templates: &mut Templates<'_, 'n>,
) -> Option<ChooseDef> {
    let (key, node) = entries.entry("choose")?;
    let choice = node.as_map()?;
    for field in ["schema", "validate"] {
        if entries.get(field).is_some() {
            let message = format!("`choose` and `{field}` in one step");
            let label = "the list determines the allowed responses";
            found.push(values::contradiction(found.file, key.span, message, label, "remove one of the two"));
        }
    }
    let from = choice.get("from")?;
    let before = found.list.len();
    let template = templates.read(found, "from", from, true)?;
    let Some(list) = template.sole_reference().cloned() else {
        if found.list.len() == before {
            found.push(references::not_one_reference(found.file, from.span, "from"));
        }
        return None;
    };
    Some(ChooseDef {
        from: list,
        by: text(choice, "by").map(|by| by.text.to_owned()),
        many: boolean(choice, "many").unwrap_or(false),
        always: boolean(choice, "always").unwrap_or(false),
    })
}

fn llm<'n>(found: &mut Findings<'_>, entries: &'n Entries<'n>, templates: &mut Templates<'_, 'n>) -> LlmDef<'n> {
    let images = entries.get("images").and_then(Node::as_seq).unwrap_or_default();
    LlmDef {
        tier: entries.get("model").and_then(Node::as_text).and_then(Tier::from_word).unwrap_or_default(),
        system: templates.field(found, entries, "system"),
        prompt: templates.field(found, entries, "prompt"),
        retry: integer(entries, "retry").and_then(|n| u32::try_from(n).ok()).unwrap_or(2),
        temperature: number(entries, "temperature"),
        max_tokens: integer(entries, "max_tokens").and_then(|n| u32::try_from(n).ok()),
        cache_prompt: boolean(entries, "cache_prompt").unwrap_or(false),
        choose: choose(found, entries, templates),
        images: images
            .iter()
            .filter_map(|node| {
                let template = templates.read(found, "images", node, true)?;
                Some((template, Text { text: node.as_text()?, at: node.span }))
            })
            .collect(),
    }
}

/// Reads the arguments that `field` passes to another pipeline or to a tool (L-43), by name.
fn bindings<'n>(
    found: &mut Findings<'_>,
    entries: &'n Entries<'n>,
    field: &'static str,
    templates: &mut Templates<'_, 'n>,
) -> Vec<BindingDef<'n>> {
    let Some(parameters) = entries.get(field).and_then(Node::as_map) else {
        return Vec::new();
    };
    let mut out = Vec::new();
    for (name, key, node) in parameters.iter() {
        let value = binding(found, name, node, field, templates);
        let at = if node.span.is_empty() { key.span } else { node.span };
        out.extend(value.map(|value| BindingDef { name: Text { text: name, at: key.span }, value, at }));
    }
    out
}

fn binding<'n>(
    found: &mut Findings<'_>,
    name: &str,
    node: &'n Node<'n>,
    field: &'static str,
    templates: &mut Templates<'_, 'n>,
) -> Option<Binding> {
    if node.as_text().is_some() {
        return templates.read(found, field, node, true).map(|template| condition::bind(node, template));
    }
    if let Some(inner) = nested_reference(node) {
        found.push(references::nested_template(found.file, inner, name));
        return None;
    }
    literal(found, node, &format!("the value of `{}`", plain(name))).map(Binding::Literal)
}

fn nested_reference(node: &Node<'_>) -> Option<Span> {
    if let Some(text) = node.as_text() {
        return (!etude_core::template::parse(text).0.is_literal()).then_some(node.span);
    }
    let items = node.as_seq().unwrap_or_default().iter();
    let members = node.as_map().map(|map| map.0.iter()).unwrap_or_default().map(|(_, value)| value);
    items.chain(members).find_map(nested_reference)
}
