//! Typed contents of etude.yaml and config.yaml, with every value as written.
//!
//! `${env:NAME}` stays unexpanded, because only the command line reads the environment. The command line also merges
//! several files. A setting that a file does not have is `None` or empty here.

pub mod auth;
pub mod engine;
pub mod fleet;
pub mod guards;
pub mod learn;

use std::sync::Arc;

use etude_core::effect::Sandbox;
use indexmap::IndexMap;

use crate::check::{Findings, Subject, object};
use crate::diagnose::{self, values};
use crate::diagnostic::{self, Diagnostic};
use crate::directive::{DIRECTIVES, is_like_directive, mistakes};
use crate::duration;
use crate::fields::config as tables;
use crate::source::{SourceFile, Span};
use crate::yaml::{self, Entries, Node, boolean, integer, number, text, texts};
use crate::{automation, serve};

/// Contents of one configuration file.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Config {
    /// Models for each tier word, as `provider/model` or a bare known name, in the order of the tiers. If a model is
    /// unreachable, the next one is used.
    pub model_mapping: IndexMap<String, Vec<String>>,
    /// Providers by name, in order.
    pub providers: IndexMap<String, Provider>,
    /// Mode of routing: `auto`, `llm` or `embedded`.
    pub router_mode: Option<String>,
    /// Tier, turns and sandbox of agents in skill mode.
    pub agent: Agent,
    /// Policy for tool calls that need approval.
    pub approvals: Option<Approvals>,
    /// Guard commands, which run before each tool call.
    pub guards: Vec<String>,
    /// MCP servers by name, in order.
    pub mcp_servers: IndexMap<String, McpServer>,
    /// The warm Python interpreter, if one is wanted.
    pub python_worker: Option<PythonWorker>,
    /// Prices of models by name.
    pub prices: IndexMap<String, Price>,
    /// Variables that `schedules`, `webhooks` and `notices` name as `${env:NAME}`.
    pub automation_variables: Vec<String>,
    /// Limits of a server.
    pub serve: serve::Serve,
    /// The authorization server of a server, if the file names one.
    pub auth: Option<auth::Auth>,
    /// Database that machines share; `None` if the file does not set it.
    pub engine: Option<engine::EngineSettings>,
    /// Queues of a fleet by name; `None` if the file does not set them.
    pub queues: Option<IndexMap<String, fleet::Queue>>,
    /// Tenants of a fleet by name; `None` if the file does not set them.
    pub tenants: Option<IndexMap<String, fleet::Tenant>>,
    /// Settings for learning from runs in skill mode.
    pub learn: learn::Learn,
    /// Allows a stage to join one that its predecessor does not name.
    pub join_outside_next_stages: Option<bool>,
    /// Restricts the input of a stage to the outputs that earlier stages pass on.
    pub strict_upstream: Option<bool>,
}

/// Builds a diagnostic for a fault of the merged configuration, such as a model of a provider that no file configures.
///
/// It points at the provider that `why` names, or else at the first value or key of `file` that `why` names in
/// back-quotes; `None` if there is none.
pub fn unusable(file: &Arc<SourceFile>, why: &str, hint: Option<&str>) -> Option<Diagnostic> {
    let root = yaml::parse(file).0?;
    let pieces: Vec<&str> = why.split('`').collect();
    let quoted = || pieces.chunks_exact(2).map(|pair| (pair[0], pair[1]));
    let providers = quoted().filter(|(before, _)| before.ends_with("provider "));
    let at = providers.chain(quoted()).find_map(|(_, word)| place_of(&root, word))?;
    Some(values::unusable_configuration(file, at, why, hint))
}

/// Same as [`unusable`], for a fault that no file explains: it points at the start of `file`.
pub fn unusable_as_a_whole(file: &Arc<SourceFile>, why: &str, hint: Option<&str>) -> Diagnostic {
    let first = file.line_range(1);
    values::unusable_configuration(file, Span::new(first.start, first.end), why, hint)
}

/// Span of the key or value that equals `word`.
fn place_of(node: &Node<'_>, word: &str) -> Option<Span> {
    if node.as_text() == Some(word) {
        return Some(node.span);
    }
    let members = node.as_map().into_iter().flat_map(Entries::iter);
    let within = |(name, key, value): (&str, &Node<'_>, &Node<'_>)| match name == word {
        true => Some(key.span),
        false => place_of(value, word),
    };
    let items = node.as_seq().unwrap_or_default().iter();
    members.map(within).chain(items.map(|item| place_of(item, word))).find_map(|at| at)
}

/// A model provider under `providers`, as written in the file.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Provider {
    /// Line of the provider's key, from 1.
    pub line: u32,
    /// Protocol of the provider: one of [`tables::PROVIDER_KINDS`], given or derived from the name.
    pub kind: String,
    /// Base URL, up to the version; `None` means the default of the kind.
    pub base_url: Option<String>,
    /// The API key; may hold `${env:NAME}`.
    pub api_key: Option<String>,
    /// A program that reads a prompt on stdin and writes the completion to stdout.
    pub command: Option<String>,
    /// Path of the recording, or of the local model's weights.
    pub path: Option<String>,
    /// The model that answers requests without a recording.
    pub record: Option<String>,
    /// Additional HTTP headers; values may hold `${env:NAME}`.
    pub headers: IndexMap<String, String>,
    /// True if the provider's own structured output is used.
    pub structured_output: Option<bool>,
    /// Maximum time of one call, in milliseconds.
    pub timeout_ms: Option<u64>,
    /// Retries of one call after transport failures.
    pub retries: Option<u32>,
    /// Maximum wait between two attempts, in milliseconds.
    pub max_wait_ms: Option<u64>,
    /// True if the provider's responses state their cost.
    pub states_cost: Option<bool>,
    /// Context size of the local model: tokens of prompt and completion together.
    pub context_tokens: Option<u64>,
    /// Maximum tokens of a completion if a step sets none.
    pub max_tokens: Option<u32>,
    /// Threads of the local model's process.
    pub threads: Option<u64>,
    /// Time until an unused local model is unloaded, in milliseconds.
    pub idle_ms: Option<u64>,
    /// Reliability of tool calls by the provider's models: `hard`, `probed`, `preferred` or `absent`.
    pub tool_calling: Option<String>,
}

/// The value of `agent`: settings of agents in skill mode.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Agent {
    /// Tier of the agent's model, by its word.
    pub tier: Option<String>,
    /// Maximum number of turns of the agent.
    pub max_turns: Option<u32>,
    /// Resources that programs of tools may reach besides the folders of the tools; paths from the app's directory.
    pub sandbox: Option<Sandbox>,
}

/// Policy for tool calls that need approval.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Approvals {
    /// `ask`, `allowlist` or `yolo`.
    pub mode: Option<String>,
    /// Patterns of the calls that need no approval.
    pub allow: Vec<String>,
    /// Handling of a question without a terminal: `deny` or `wait`.
    pub unattended: Option<String>,
}

/// An MCP server: a program, or a URL, which wins (`d-cascade` §12).
#[derive(Debug, Clone, PartialEq, Default)]
pub struct McpServer {
    /// Line of the server's key, from 1.
    pub line: u32,
    /// A program that speaks the protocol on stdin and stdout.
    pub command: Option<String>,
    /// Arguments of the program; may hold `${env:NAME}`.
    pub args: Vec<String>,
    /// Environment variables of the program; values may hold `${env:NAME}`.
    pub env: IndexMap<String, String>,
    /// URL of a remote server; may hold `${env:NAME}`.
    pub url: Option<String>,
    /// HTTP headers; values may hold `${env:NAME}`.
    pub headers: IndexMap<String, String>,
    /// Maximum time of one call, in milliseconds.
    pub timeout_ms: Option<u64>,
    /// Protocol revision: `auto`, `2025-11-25` or `2026-07-28`.
    pub protocol: Option<String>,
}

/// Settings of the warm Python interpreter.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PythonWorker {
    /// Modules that are imported before the first step.
    pub preload: Vec<String>,
    /// True if only steps that ask for the interpreter run in it.
    pub marked_only: bool,
}

/// Price of a model, in US dollars per million tokens.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Price {
    /// Price of prompt tokens.
    pub input: f64,
    /// Price of completion tokens.
    pub output: f64,
    /// Price of prompt tokens read from a cache; `None` means the `input` price.
    pub cached: Option<f64>,
}

/// Warning for the file `path`, which would be a configuration if its name ended in `.yaml`.
pub fn ends_in_yml(path: &str) -> Diagnostic {
    diagnose::files::ends_in_yml(path)
}

/// Error for the configuration file `path`, whose `bytes` are not UTF-8.
pub fn not_utf8(path: &str, bytes: &[u8]) -> Diagnostic {
    diagnose::files::not_utf8(path, bytes)
}

/// Reads a configuration file. An empty file is valid.
pub fn read(file: &Arc<SourceFile>) -> (Config, Vec<Diagnostic>) {
    let (root, diagnostics) = yaml::parse(file);
    let Some(root) = root else {
        let empty = diagnostics.iter().all(|diagnostic| diagnostic.code == crate::Code::EmptyFile);
        return (Config::default(), if empty { Vec::new() } else { diagnostics });
    };
    let mut found = Findings::new(file);
    found.list = diagnostics;
    let Some(entries) = root.as_map() else {
        if !root.is_invalid() {
            found.push(values::config_not_a_mapping(file, root.span, root.kind()));
        }
        return (Config::default(), found.list);
    };
    let at = entries.0.first().map_or(root.span, |(key, _)| key.span);
    object(&mut found, entries, &tables::CONFIG, Subject { name: "the configuration", at }, &[]);
    leave_automation(&mut found.list, entries);
    serve::check(&mut found, entries);
    auth::check(&mut found, entries);
    engine::check(&mut found, entries);
    fleet::check(&mut found, entries);
    learn::check(&mut found, entries);
    patterns(&mut found, entries);
    let config = Config {
        model_mapping: mapping(entries),
        providers: each(entries, "providers", |name, node| provider(&mut found, name, node)),
        router_mode: owned(map(entries, "router"), "mode"),
        agent: Agent {
            tier: owned(map(entries, "agent"), "tier"),
            max_turns: map(entries, "agent").and_then(|agent| integer(agent, "max_turns")?.try_into().ok()),
            sandbox: map(entries, "agent").and_then(|agent| map(agent, "sandbox")).map(|rules| Sandbox {
                network: boolean(rules, "network").unwrap_or(false),
                read: texts(rules, "read"),
                write: texts(rules, "write"),
            }),
        },
        approvals: map(entries, "approvals").map(|approvals| Approvals {
            mode: owned(Some(approvals), "mode"),
            allow: texts(approvals, "allow"),
            unattended: owned(Some(approvals), "unattended"),
        }),
        guards: guards::read(entries),
        mcp_servers: map(entries, "mcp")
            .map(|mcp| each(mcp, "servers", |name, node| mcp_server(&mut found, name, node)))
            .unwrap_or_default(),
        python_worker: python_worker(entries),
        prices: each(entries, "prices", |_, node| price(node)),
        automation_variables: variables(file, entries),
        serve: serve::read(entries),
        auth: auth::read(entries),
        engine: engine::read(entries),
        queues: fleet::queues(entries),
        tenants: fleet::tenants(entries),
        learn: learn::read(entries),
        join_outside_next_stages: boolean(entries, "joinOutsideNextStages"),
        strict_upstream: boolean(entries, "strictUpstream"),
    };
    diagnostic::sort(&mut found.list);
    (config, found.list)
}

/// Removes diagnostics that [`crate::automation`] reports: a fault of a schedule stops only that schedule.
fn leave_automation(list: &mut Vec<Diagnostic>, entries: &Entries<'_>) {
    let sections: Vec<_> = automation::SECTIONS.iter().filter_map(|name| entries.entry(name)).collect();
    let is_of_automation = |found: &Diagnostic| {
        sections.iter().any(|(key, value)| {
            found.span.is_some_and(|at| key.span.start <= at.start && at.end <= value.span.end.max(key.span.end))
        })
    };
    list.retain(|found| !is_of_automation(found));
}

/// Variables in the sections of [`crate::automation`]. They are keys, so no script gets them.
fn variables(file: &SourceFile, entries: &Entries<'_>) -> Vec<String> {
    let sections = automation::SECTIONS.iter().filter_map(|name| entries.get(name));
    let texts = sections.map(|node| file.slice(node.span));
    let names = texts.flat_map(|text| text.split("${env:").skip(1)).filter_map(|rest| rest.split('}').next());
    names.map(str::to_owned).collect()
}

/// The JSON Schema of a configuration file, draft 2020-12.
pub fn config_schema() -> serde_json::Value {
    let mut schema = crate::schema_json::object(&tables::CONFIG);
    schema["$schema"] = crate::schema_json::DIALECT.into();
    schema["title"] = "etude.yaml".into();
    schema
}

fn map<'n>(entries: &'n Entries<'n>, field: &str) -> Option<&'n Entries<'n>> {
    entries.get(field)?.as_map()
}

fn owned(entries: Option<&Entries<'_>>, field: &str) -> Option<String> {
    text(entries?, field).map(|text| text.text.to_owned())
}

fn each<T>(
    entries: &Entries<'_>,
    field: &str,
    mut read: impl FnMut(&str, &Node<'_>) -> Option<T>,
) -> IndexMap<String, T> {
    let all = map(entries, field).into_iter().flat_map(Entries::iter);
    all.filter_map(|(name, _, node)| Some((name.to_owned(), read(name, node)?))).collect()
}

fn mapping(entries: &Entries<'_>) -> IndexMap<String, Vec<String>> {
    let given = map(entries, "model_mapping");
    let models = |tier: &str| match owned(given, tier) {
        Some(model) => vec![model],
        None => given.map(|given| texts(given, tier)).unwrap_or_default(),
    };
    let tiers = tables::MAPPING.names().map(|tier| (tier.to_owned(), models(tier)));
    tiers.filter(|(_, models)| !models.is_empty()).collect()
}

fn provider(found: &mut Findings<'_>, name: &str, node: &Node<'_>) -> Option<Provider> {
    let entries = Some(node.as_map()?);
    let kind = owned(entries, "kind").or_else(|| tables::PROVIDER_KINDS.contains(&name).then(|| name.to_owned()));
    let Some(kind) = kind else {
        if entries?.get("kind").is_none() {
            let at = entries?.0.first().map_or(node.span, |(key, _)| key.span);
            found.push(values::provider_without_kind(found.file, at, name, tables::PROVIDER_KINDS));
        }
        return None;
    };
    Some(Provider {
        line: line_of(found, node, "base_url"),
        kind,
        base_url: owned(entries, "base_url"),
        api_key: owned(entries, "api_key"),
        command: owned(entries, "command"),
        path: owned(entries, "path"),
        record: owned(entries, "record"),
        headers: each(entries?, "headers", |_, value| value.as_text().map(str::to_owned)),
        structured_output: boolean(entries?, "structured_output")
            .or_else(|| text(entries?, "structured_output").map(|word| word.text == "native")),
        timeout_ms: duration::of_field(entries?, "timeout").filter(|ms| *ms > 0),
        retries: integer(entries?, "retries").and_then(|number| u32::try_from(number).ok()),
        max_wait_ms: duration::of_field(entries?, "max_wait"),
        states_cost: boolean(entries?, "states_cost"),
        context_tokens: whole(entries?, "context"),
        max_tokens: integer(entries?, "max_tokens").and_then(|number| u32::try_from(number).ok()),
        threads: whole(entries?, "threads"),
        idle_ms: duration::of_field(entries?, "idle"),
        tool_calling: owned(map(entries?, "capabilities"), "toolCalling"),
    })
}

/// Line of `field`, or else of `node`, from 1.
fn line_of(found: &Findings<'_>, node: &Node<'_>, field: &str) -> u32 {
    let span = node.as_map().and_then(|entries| entries.get(field)).map_or(node.span, |value| value.span);
    found.file.position(span.start).0
}

/// A non-negative integer; the field table reports one that is out of bounds.
fn whole(entries: &Entries<'_>, field: &str) -> Option<u64> {
    integer(entries, field).and_then(|number| u64::try_from(number).ok())
}

fn mcp_server(found: &mut Findings<'_>, name: &str, node: &Node<'_>) -> Option<McpServer> {
    let entries = node.as_map()?;
    if entries.get("command").is_none() && entries.get("url").is_none() {
        let at = entries.0.first().map_or(node.span, |(key, _)| key.span);
        found.push(values::mcp_server_nowhere(found.file, at, name));
    }
    let owned = |field: &str| owned(Some(entries), field);
    let pairs = |field: &str| each(entries, field, |_, value| value.as_text().map(str::to_owned));
    Some(McpServer {
        line: line_of(found, node, "url"),
        command: owned("command"),
        args: texts(entries, "args"),
        env: pairs("env"),
        url: owned("url"),
        headers: pairs("headers"),
        timeout_ms: duration::of_field(entries, "timeout").filter(|ms| *ms > 0),
        protocol: owned("protocol"),
    })
}

fn python_worker(entries: &Entries<'_>) -> Option<PythonWorker> {
    if text(entries, "worker").is_some() {
        return Some(PythonWorker::default());
    }
    let python = map(map(entries, "worker")?, "python")?;
    let marked_only = owned(Some(python), "steps").as_deref() == Some("marked");
    Some(PythonWorker { preload: texts(python, "preload"), marked_only })
}

/// Reports unknown directives in `approvals`, because `$Deny` would deny nothing, and other slips in its patterns.
fn patterns(found: &mut Findings<'_>, entries: &Entries<'_>) {
    let listed = map(entries, "approvals").and_then(|approvals| approvals.get("allow")).and_then(Node::as_seq);
    for node in listed.unwrap_or_default() {
        let text = node.as_text().unwrap_or_default();
        let items = text.split(['(', ',']).skip(1).map(|item| item.trim_end_matches([')', ' ']).trim_start());
        for item in items.filter(|item| is_like_directive(item)) {
            found.push(values::unknown_word(found.file, node.span, "a directive of a pattern", item, &DIRECTIVES));
        }
        // Unknown directives have just been reported as errors.
        if text.contains('(') {
            mistakes(found.file, node.span, text).into_iter().for_each(|mistake| found.push(mistake));
        }
    }
}

fn price(node: &Node<'_>) -> Option<Price> {
    let entries = node.as_map()?;
    Some(Price {
        input: number(entries, "input")?,
        output: number(entries, "output")?,
        cached: number(entries, "cached"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(text: &str) -> Vec<String> {
        let file = SourceFile::new("etude.yaml", text);
        read(&file).1.into_iter().map(|d| format!("{} / {}", d.message, d.hint.unwrap_or_default())).collect()
    }

    #[test]
    fn a_configuration_is_read_as_written() {
        let text = "model_mapping: {standard: vllm/qwen, lite: claude-haiku-4-5}\nproviders:\n  anthropic: {api_key: \"${env:KEY}\"}\n  vllm: {kind: openai-compatible, base_url: \"http://127.0.0.1:1/v1\", headers: {X-A: b}, timeout: 2m, structured_output: prompt, capabilities: {toolCalling: hard}}\nrouter: {mode: embedded}\napprovals: {mode: allowlist, allow: [\"git *\"]}\nguards: [{command: python3 guard.py}]\nprices: {qwen: {input: 0.5, output: 1}}\njoinOutsideNextStages: true\n";
        let file = SourceFile::new("etude.yaml", text);
        let (config, diagnostics) = read(&file);
        assert_eq!(diagnostics, []);
        assert_eq!(config.model_mapping.keys().collect::<Vec<_>>(), ["lite", "standard"]);
        assert_eq!(config.providers["anthropic"].kind, "anthropic");
        assert_eq!(config.providers["anthropic"].api_key.as_deref(), Some("${env:KEY}"));
        let vllm = &config.providers["vllm"];
        assert_eq!((vllm.timeout_ms, vllm.structured_output, vllm.headers.len()), (Some(120_000), Some(false), 1));
        assert_eq!(vllm.tool_calling.as_deref(), Some("hard"));
        assert_eq!((config.router_mode.as_deref(), config.guards.len()), (Some("embedded"), 1));
        assert_eq!(config.prices["qwen"], Price { input: 0.5, output: 1.0, cached: None });
        assert_eq!((config.join_outside_next_stages, config.strict_upstream), (Some(true), None));
    }

    /// the settings of the local model are read as numbers, within bounds.
    #[test]
    fn the_local_model_is_configured_with_numbers() {
        let text = "providers: {local: {path: /m/x.gguf, threads: 3, context: 4096, idle: 90s}}\n";
        let (config, diagnostics) = read(&SourceFile::new("etude.yaml", text));
        assert_eq!(diagnostics, []);
        let local = &config.providers["local"];
        assert_eq!((local.kind.as_str(), local.path.as_deref()), ("local", Some("/m/x.gguf")));
        assert_eq!((local.threads, local.context_tokens, local.idle_ms), (Some(3), Some(4096), Some(90_000)));
        assert_eq!(problems("providers: {local: {threads: 0}}\n").len(), 1);
        assert_eq!(problems("providers: {local: {context: many}}\n").len(), 1);
    }

    /// warm interpreters and the sandbox of agents, in all their forms.
    #[test]
    fn workers_and_sandboxes_are_read_as_written() {
        let read = |text: &str| read(&SourceFile::new("etude.yaml", text));
        let worker = |text: &str| read(text).0.python_worker;
        let python = |preload: &[&str], marked_only| {
            let preload = preload.iter().map(|module| (*module).to_owned()).collect();
            Some(PythonWorker { preload, marked_only })
        };
        assert_eq!(worker("{}\n"), None);
        assert_eq!(worker("worker: python\n"), python(&[], false));
        assert_eq!(worker("worker: {python: {preload: [json, re]}}\n"), python(&["json", "re"], false));
        assert_eq!(worker("worker: {python: {steps: marked}}\n"), python(&[], true));
        assert_eq!(problems("worker: node\n").len(), 1);
        let sandbox = read("agent: {sandbox: {read: [a], write: [b]}}\n").0.agent.sandbox;
        let expected = Sandbox { network: false, read: vec!["a".to_owned()], write: vec!["b".to_owned()] };
        assert_eq!(sandbox, Some(expected));
    }

    /// `d-cascade` §12: servers are read as written, secrets unresolved.
    #[test]
    fn mcp_servers_are_read_as_written() {
        let text = "mcp:\n  servers:\n    files: {command: npx, args: [-y, x], env: {T: \"${env:T}\"}, timeout: 5s}\n    far: {url: \"https://example.com/mcp\", headers: {A: b}, protocol: \"2026-07-28\"}\n";
        let (config, diagnostics) = read(&SourceFile::new("etude.yaml", text));
        assert_eq!(diagnostics, []);
        let (files, far) = (&config.mcp_servers["files"], &config.mcp_servers["far"]);
        assert_eq!((files.command.as_deref(), files.args.len(), files.timeout_ms), (Some("npx"), 2, Some(5_000)));
        assert_eq!((files.env["T"].as_str(), far.headers["A"].as_str()), ("${env:T}", "b"));
        assert_eq!(
            (far.url.as_deref(), far.protocol.as_deref()),
            (Some("https://example.com/mcp"), Some("2026-07-28"))
        );
        assert_eq!(
            problems("mcp: {servers: {x: {args: [a]}}}\n"),
            [
                "MCP server `x` has neither `command` nor `url` / for example: `command: npx`, or `url: \"https://mcp.example.com/mcp\"`"
            ]
        );
    }

    /// a fault of the merged configuration points at the value that it names, with the whole message.
    #[test]
    fn faults_of_the_whole_are_placed_at_what_they_name() {
        let file = SourceFile::new(
            "etude.yaml",
            "model_mapping:\n  lite: [a/b, antropic/x]\nproviders: {vllm: {kind: openai-compatible}}\n",
        );
        let why =
            format!("`antropic/x` names the provider `antropic`, which is not configured{}", "; and more".repeat(20));
        let found = unusable(&file, &why, Some("did you mean `anthropic`?")).unwrap();
        assert_eq!((found.position(), &found.message), (Some((2, 15)), &why));
        assert_eq!(found.hint.as_deref(), Some("did you mean `anthropic`?"));
        assert!(crate::render::text(&found, false).contains("lite: [a/b, antropic/x]"));
        let found = unusable(&file, "provider `vllm` of kind `openai-compatible` needs `base_url`", None).unwrap();
        assert_eq!(found.position(), Some((3, 13)));
        let two = "providers:\n  a: {base_url: \"http://x\"}\n  b: {base_url: x}\n";
        let two = SourceFile::new("etude.yaml", two);
        let found = unusable(&two, "`base_url` of provider `b` is not an http or https URL", None).unwrap();
        assert_eq!(found.position(), Some((3, 3)));
        assert!(unusable(&file, "nothing in it is named", None).is_none());
        assert_eq!(unusable_as_a_whole(&file, "nothing", None).position(), Some((1, 1)));
    }

    #[test]
    fn unknown_keys_are_errors_with_a_hint() {
        assert_eq!(
            problems("model_maping: {}\n"),
            ["unknown field `model_maping` in the configuration / did you mean `model_mapping`?"]
        );
        assert_eq!(
            problems("providers: {x: {kind: openai-compat}}\n"),
            ["`kind` cannot be `openai-compat` / did you mean `openai-compatible`?"]
        );
        assert_eq!(problems("providers: {x: {base_url: y}}\n").len(), 1);
        assert_eq!(problems("model_mapping: {fast: x}\n").len(), 1);
        assert_eq!(problems("- 1\n").len(), 1);
        assert_eq!(problems(""), Vec::<String>::new());
    }

    /// A configuration has `${env:NAME}` and no references: a guard reads the call from stdin.
    #[test]
    fn references_are_errors() {
        assert_eq!(
            problems("guards: [{command: \"guard {{input.repo}}\"}]\nagent: {sandbox: {read: [\"{{input.repo}}\"]}}\n"),
            [
                "`command` is not a template: `{{input.repo}}` would be passed on as written / the guard reads the call as JSON from stdin",
                "`read` is not a template: `{{input.repo}}` would be passed on as written / write the value itself",
            ]
        );
        assert_eq!(problems("providers: {x: {kind: command, command: \"ask '{{.Prompt}}'\"}}\n"), Vec::<String>::new());
    }

    /// A misspelled directive is an error: the pattern would not deny what it describes.
    #[test]
    fn unknown_directives_of_approvals_are_errors() {
        let found = |pattern: &str| problems(&format!("approvals: {{allow: [\"{pattern}\"]}}\n"));
        for pattern in ["Bash(git push *, $Deny)", "Bash($Deny)", "deploy, $Deny", "Bash(git push *,$Deny"] {
            assert_eq!(
                found(pattern),
                ["a directive of a pattern cannot be `$Deny` / did you mean `$deny`?"],
                "{pattern}"
            );
        }
        assert_eq!(found("Bash(rm *, $policy=Deny)").len(), 1);
        let condition = "`deny` in the pattern `Bash(rm *, deny)` is a condition on the call, not a directive";
        assert_eq!(found("Bash(rm *, deny)"), [format!("{condition} / write `$deny`")]);
        let case = "the pattern `bash(rm *, $deny)` matches no tool, because names of tools are case-sensitive";
        assert_eq!(found("bash(rm *, $deny)"), [format!("{case} / write `Bash`")]);
        for pattern in [
            "Bash(git push *, $deny)",
            "deploy($policy=ask)",
            "deploy, $deny",
            "Bash(rm *, $policy=deny)",
            "Read(a, b)",
            "Bash(echo $HOME)",
            "Bash($HOME/bin/x *)",
            "Bash(${X} *)",
            "*",
        ] {
            assert_eq!(found(pattern), Vec::<String>::new(), "{pattern}");
        }
    }

    #[test]
    fn the_editor_schema_is_a_schema() {
        assert!(jsonschema::meta::is_valid(&config_schema()));
        assert_eq!(config_schema()["properties"]["router"]["properties"]["mode"]["enum"][0], "auto");
    }
}
