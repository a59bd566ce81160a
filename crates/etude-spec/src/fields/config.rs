//! The fields of etude.yaml (`design: cli`, "Configuration" and "Policy").

use crate::fields::FieldKind::{Bool, Duration, Either, Entries, Integer, List, LongDuration, Number, Text, Word};
use crate::fields::{FieldKind, Object, automation, learn};

/// Words for a provider's `kind`.
pub const PROVIDER_KINDS: &[&str] =
    &["anthropic", "openai", "openai-chat", "gemini", "openai-compatible", "command", "local", "recorded"];

/// A whole etude.yaml.
pub static CONFIG: Object = Object {
    name: "a configuration",
    doc: "The configuration of etude: models, providers and policy.",
    fields: &[fields! {
        optional "model_mapping": FieldKind::Object(&MAPPING), "{lite: anthropic/claude-haiku-4-5}",
            "The model for each capability level, as `provider/model` or a known model name.";
        optional "providers": Entries(&PROVIDER_KIND), "{vllm: {kind: openai-compatible, base_url: \"http://127.0.0.1:8000/v1\"}}",
            "Where models are, by name.";
        optional "router": FieldKind::Object(&ROUTER), "{mode: auto}", "Settings of the router, which matches requests to pipelines.";
        optional "agent": FieldKind::Object(&AGENT), "{max_turns: 80}", "Settings of skill mode.";
        optional "approvals": FieldKind::Object(&APPROVALS), "{mode: ask}", "Actions that are allowed without approval.";
        optional "guards": List(&GUARD_KIND), "[{command: python3 guard.py}]",
            "Programs that check each tool call.";
        optional "mcp": FieldKind::Object(&MCP), "{servers: {files: {command: mcp-files, args: [docs]}}}",
            "Servers of the Model Context Protocol whose tools agents may call.";
        optional "worker": Either(&WORKER_FORMS), "python",
            "Run code steps in warm interpreters where that is possible.";
        optional "prices": Entries(&PRICE_KIND), "{my-model: {input: 0.5, output: 1.5}}",
            "Prices of models, in US dollars per million tokens.";
        optional "schedules": Entries(&automation::SCHEDULE_KIND),
            "{nightly: {pipeline: report, cron: \"30 2 * * *\", timezone: Europe/Berlin}}",
            "Schedules, by name: times at which a server starts runs.";
        optional "webhooks": Entries(&automation::WEBHOOK_KIND),
            "{push: {pipeline: review, verify: {kind: github, secrets: [\"${env:HOOK_SECRET}\"]}}}",
            "Webhooks, by name: requests of other programs that start runs.";
        optional "notices": List(&automation::NOTICE_KIND),
            "[{name: chat, url: \"https://chat.example/x\", on: [run.failed], secret: \"${env:NOTICE_SECRET}\"}]",
            "Messages to other programs about runs.";
        optional "serve": FieldKind::Object(&automation::SERVE), "{max_runs: 8, per_day: {max_cost_usd: 20}}",
            "Limits of a server and of the pipelines that it runs.";
        optional "auth": FieldKind::Object(&AUTH), "{issuer: \"https://id.example.com\", audience: \"https://runs.example.com/mcp\"}",
            "The OAuth authorization server whose access tokens a server takes besides its own.";
        optional "engine": FieldKind::Object(&ENGINE), "{url: \"${env:ETUDE_ENGINE}\", lease: 15s}",
            "The database that machines share, and the leases of workers. Not in an app's own file.";
        optional "queues": Entries(&QUEUE_KIND), "{default: {limit: 500}, batch: {priority: -1, limit: 50, per_tenant: 5}}",
            "The queues of a fleet, by name: `etude engine apply` writes them into the database. Not in an app's own file.";
        optional "tenants": Entries(&TENANT_KIND), "{acme: {live: 20, queued: 1000}}",
            "The tenants of a fleet that have limits, by name. Not in an app's own file.";
        optional "learn": FieldKind::Object(&learn::LEARN), "{shadow: 0.5, redact: [email]}",
            "Settings of `etude learn`: learning from runs in skill mode, and limits of promotions.";
        optional "joinOutsideNextStages": Bool, "true",
            "A stage may join one that its predecessor does not name." => default "false";
        optional "strictUpstream": Bool, "true",
            "A stage sees only what the stages before it hand on." => default "false";
    }],
};

/// One model, or several: if one is unreachable, the next is used.
static MODELS: [FieldKind; 2] = [Text, List(&Text)];

/// `model_mapping`.
pub static MAPPING: Object = Object {
    name: "a model mapping",
    doc: "The model for each capability level.",
    fields: &[fields! {
        optional "lite": Either(&MODELS), "anthropic/claude-haiku-4-5", "Fast and cheap: classification, extraction.";
        optional "standard": Either(&MODELS), "anthropic/claude-sonnet-4-6", "General purpose.";
        optional "reasoning": Either(&MODELS), "anthropic/claude-opus-4-6", "Deep reasoning.";
    }],
};

/// A value of `providers`, with its name as the key.
pub static PROVIDER: Object = Object {
    name: "a provider",
    doc: "Where models are and how they are asked.",
    fields: &[fields! {
        optional "kind": Word(PROVIDER_KINDS), "openai-compatible", "The protocol; by default the name of the provider.";
        optional "base_url": Text, "\"http://127.0.0.1:8000/v1\"", "Where it listens.";
        optional "api_key": Text, "\"${env:MY_KEY}\"", "The key; `${env:NAME}` is taken from the environment.";
        optional "command": Text, "claude -p", "For `command`: a program that reads a prompt and prints an answer.";
        optional "path": Text, "recordings/review.json",
            "For `recorded`: the recording. For `local`: a GGUF file, or the directory of weights.";
        optional "record": Text, "anthropic/claude-haiku-4-5",
            "For `recorded`: the model that answers what is not recorded yet.";
        optional "headers": Entries(&Text), "{X-Team: review}", "Additional HTTP headers.";
        optional "structured_output": FieldKind::Either(&[Bool, Word(&["native", "prompt"])]), "prompt",
            "True to use the provider's structured output.";
        optional "timeout": Duration, "2m", "Maximum time for one call.";
        optional "retries": Integer(0, 9), "8",
            "Maximum retries of one call after a transport failure: 408, 409, 429, 5xx, a lost connection, no answer in time."
            => default "4";
        optional "max_wait": Duration, "5m",
            "Maximum wait between two attempts, even if the provider requests a longer one (`Retry-After`)."
            => default "1m";
        optional "states_cost": Bool, "true",
            "Its responses state their cost: `--max-cost` bounds them without a price. By default true for openrouter.ai and servers of this machine.";
        optional "context": Integer(512, 1_000_000), "16384",
            "Maximum tokens of a prompt and its response together: conversations of agents are kept within it. \
             For `local` it is 8192 by default.";
        optional "max_tokens": Integer(1, 10_000_000), "64000",
            "Maximum tokens of a response if a step sets none. By default 32000 for Claude 4.5 and later, and what the \
             service allows for others.";
        optional "threads": Integer(1, 1024), "4",
            "For `local`: threads of the model's process; by default all cores but one.";
        optional "idle": Duration, "2m",
            "For `local`: time until an idle model is unloaded; 10 minutes by default.";
        optional "capabilities": FieldKind::Object(&CAPABILITIES), "{toolCalling: probed}", "Capabilities of its models.";
    }],
};

/// `capabilities` of a provider.
pub static CAPABILITIES: Object = Object {
    name: "a list of capabilities",
    doc: "Capabilities of a provider's models.",
    fields: &[fields! {
        optional "toolCalling": Word(&["hard", "probed", "preferred", "absent"]), "probed",
            "Reliability of tool calls.";
    }],
};

/// The value of `router`.
pub static ROUTER: Object = Object {
    name: "a router setting",
    doc: "Settings of the router, which matches requests to pipelines.",
    fields: &[fields! {
        optional "mode": Word(&["auto", "llm", "embedded"]), "embedded", "The router to use." => default "auto";
    }],
};

/// The value of `approvals`.
pub static APPROVALS: Object = Object {
    name: "an approval policy",
    doc: "Actions that are allowed without approval.",
    fields: &[fields! {
        optional "mode": Word(&["ask", "allowlist", "yolo"]), "allowlist",
            "Ask, allow what is listed, or allow everything." => default "ask";
        optional "allow": List(&Text), "[\"git *\"]", "Patterns of what is allowed.";
        optional "unattended": Word(&["deny", "wait"]), "wait",
            "Behaviour of a question without a terminal: the call is denied, or the run waits."
            => default "deny";
    }],
};

/// The value of `agent`.
pub static AGENT: Object = Object {
    name: "an agent setting",
    doc: "Settings of skill mode.",
    fields: &[fields! {
        optional "tier": Word(&["lite", "standard", "reasoning"]), "reasoning",
            "The model to call." => default "standard";
        optional "max_turns": FieldKind::Integer(1, 10_000), "80", "Maximum responses of the model." => default "50";
        optional "sandbox": FieldKind::Object(&SANDBOX), "{network: false}",
            "Resources that programs of agents can access besides the directories of their tools.";
    }],
};

/// The value of `auth`.
pub static AUTH: Object = Object {
    name: "an authorization server",
    doc: "The OAuth authorization server whose access tokens a server takes besides its own.",
    fields: &[fields! {
        required "issuer": Text, "\"https://id.example.com\"",
            "Its URL, as `iss` of its tokens has it, character for character; `http://` only on this machine.";
        required "audience": Text, "\"https://runs.example.com/mcp\"", "Required value in `aud` of a token.";
    }],
};

/// The value of `engine`.
pub static ENGINE: Object = Object {
    name: "an engine setting",
    doc: "The database that machines share, and the leases of workers. Not in an app's own file.",
    fields: &[fields! {
        optional "url": Text, "\"${env:ETUDE_ENGINE}\"",
            "The URL of a PostgreSQL database, or `embedded`; the environment and `--engine` override it.";
        optional "lease": LongDuration, "15s",
            "Lease of a worker after a heartbeat: at least three beats plus one second, and longer than `grace`."
            => default "15s";
        optional "beat": LongDuration, "3s", "The time between two heartbeats." => default "3s";
        optional "grace": LongDuration, "3s", "Remaining lease after the connection is closed." => default "3s";
        optional "poll": LongDuration, "500ms", "Maximum time between two polls of the queue." => default "500ms";
        optional "patience": LongDuration, "60s",
            "Time for which effects continue and writes wait while the database is down." => default "60s";
        optional "max_crashes": Integer(0, 1000), "3",
            "The deaths of workers in a row after which the run fails; 0: any number." => default "3";
        optional "cache": Either(&SIZE), "10GiB",
            "Bytes of the copies of large values and bundles on this machine; the oldest ones go." => default "10GiB";
        optional "blobs": Text, "\"s3://bucket/prefix?region=eu-central-1\"",
            "Where large values and bundles are, for `etude engine apply`: a bucket, a directory that the machines share \
             (`file:///dir`), or the word `database`.";
    }],
};

/// A value of `queues`, with its name as the key.
pub static QUEUE: Object = Object {
    name: "a queue",
    doc: "A queue of a fleet. Limits are numbers of live runs. Not in an app's own file.",
    fields: &[fields! {
        optional "priority": Integer(-100, 100), "-1",
            "A worker of several queues looks at the one of the highest priority first." => default "0";
        optional "limit": Integer(0, MAX_RUNS), "50", "Live runs of the queue." => default "500";
        optional "per_tenant": Integer(1, MAX_RUNS), "5", "Live runs of each tenant in the queue.";
        optional "per_app": Integer(1, MAX_RUNS), "10",
            "Live runs in the queue of each app: of the directory that a run was submitted from.";
        optional "per_label": Entries(&LIMIT), "{\"gpu=a100\": 2}",
            "Live runs in the queue with a label, by `KEY=VALUE`.";
        optional "allow": FieldKind::Object(&ALLOW), "{network: false}", "Permissions of runs in this queue.";
        optional "untrusted": Bool, "true", "Every step runs in a sandbox or not at all." => default "false";
    }],
};

/// `allow` of a queue.
pub static ALLOW: Object = Object {
    name: "a list of what a queue allows",
    doc: "Permissions of runs in a queue.",
    fields: &[fields! {
        optional "network": Bool, "false", "Steps that use the network." => default "true";
        optional "unsandboxed": Bool, "false", "Steps without a sandbox." => default "true";
        optional "yolo": Bool, "true", "`--yolo`: agents that act without approvals." => default "false";
        optional "folders": List(&Text), "[/data]",
            "Folders of the workers for `--read` and `--write`, with all that is in them; absolute paths.";
    }],
};

/// A value of `tenants`, with its name as the key.
pub static TENANT: Object = Object {
    name: "a tenant",
    doc: "The limits of a tenant of a fleet. Not in an app's own file.",
    fields: &[fields! {
        optional "live": Integer(0, MAX_RUNS), "20", "Live runs in all queues.";
        optional "queued": Integer(0, MAX_COUNT), "1000", "Queued runs; another submission is refused.";
        optional "records_per_day": Integer(0, MAX_COUNT), "1000000",
            "Records of runs that were submitted within the last 24 hours, before submissions are refused.";
        optional "bytes": Either(&SIZE), "10GiB",
            "Bytes of records, headers, results and large values in the database, before submissions are refused.";
        optional "cost_usd_per_day": DOLLARS, "50",
            "Cost of runs that were submitted within the last 24 hours, before submissions are refused.";
    }],
};

const MAX_RUNS: i64 = 1_000_000;

const MAX_COUNT: i64 = 1_000_000_000_000;

static LIMIT: FieldKind = Integer(0, MAX_RUNS);

static SIZE: [FieldKind; 2] = [Integer(0, i64::MAX), Text];

static QUEUE_KIND: FieldKind = FieldKind::Object(&QUEUE);

static TENANT_KIND: FieldKind = FieldKind::Object(&TENANT);

/// `sandbox` of `agent`: as in code steps, with paths as written.
pub static SANDBOX: Object = Object {
    name: "a sandbox setting",
    doc: "Resources that programs of agents can access.",
    fields: &[fields! {
        optional "network": Bool, "false", "True to permit network access.";
        optional "read": List(&Text), "[data]", "Readable paths, relative to the app's directory; `~/` is home.";
        optional "write": List(&Text), "[out]", "Readable and writable paths.";
    }],
};

/// One of `guards`.
pub static GUARD: Object = Object {
    name: "a guard",
    doc: "A program that checks each tool call.",
    fields: &[fields! {
        required "command": Text, "python3 guard.py",
            "The program." => instead "the guard reads the call as JSON from stdin";
    }],
};

/// The value of `mcp`.
pub static MCP: Object = Object {
    name: "an MCP setting",
    doc: "Servers of the Model Context Protocol whose tools agents may call.",
    fields: &[fields! {
        optional "servers": Entries(&MCP_SERVER_KIND), "{files: {command: mcp-files, args: [docs]}}",
            "The servers, by name: tools are called `mcp__NAME__TOOL`.";
    }],
};

/// A value of `mcp.servers`, with its name as the key.
pub static MCP_SERVER: Object = Object {
    name: "an MCP server",
    doc: "Command or URL of a server; with both, the URL is used.",
    fields: &[fields! {
        optional "command": Text, "npx", "A program that speaks the protocol on stdin and stdout.";
        optional "args": List(&Text), "[-y, my-mcp-server]", "Its arguments.";
        optional "env": Entries(&Text), "{TOKEN: \"${env:TOKEN}\"}", "Variables for it.";
        optional "url": Text, "\"https://mcp.example.com/mcp\"", "Where a server listens (streamable HTTP).";
        optional "headers": Entries(&Text), "{Authorization: \"Bearer ${env:TOKEN}\"}", "HTTP headers.";
        optional "timeout": Duration, "5m", "Maximum time for one call." => default "2m";
        optional "protocol": Word(&["auto", "2025-11-25", "2026-07-28"]), "\"2025-11-25\"",
            "The protocol revision; by default the newest that both sides support." => default "auto";
    }],
};

static MCP_SERVER_KIND: FieldKind = FieldKind::Object(&MCP_SERVER);

static WORKER_FORMS: [FieldKind; 2] = [Word(&["python"]), FieldKind::Object(&WORKER)];

/// The long form of `worker`.
pub static WORKER: Object = Object {
    name: "a worker setting",
    doc: "Warm interpreters that run code steps.",
    fields: &[fields! {
        optional "python": FieldKind::Object(&PYTHON_WORKER), "{preload: [json]}", "The warm Python interpreter.";
    }],
};

/// The value of `worker.python`.
pub static PYTHON_WORKER: Object = Object {
    name: "a Python worker setting",
    doc: "Settings of the warm Python interpreter.",
    fields: &[fields! {
        optional "preload": List(&Text), "[json, re]",
            "Modules that it imports once, before the first step; those that start threads keep it from working.";
        optional "steps": Word(&["all", "marked"]), "marked",
            "Steps that it runs: all that are a Python process, or those with `worker: python`." => default "all";
    }],
};

/// A value of `prices`, with the model as the key.
pub static PRICE: Object = Object {
    name: "a price",
    doc: "Price of a model, in US dollars per million tokens.",
    fields: &[fields! {
        required "input": DOLLARS, "3", "Input tokens.";
        required "output": DOLLARS, "15", "Output tokens.";
        optional "cached": DOLLARS, "0.3", "Tokens read from a cache.";
    }],
};

const DOLLARS: FieldKind = Number(0.0, 1_000_000.0);

static PROVIDER_KIND: FieldKind = FieldKind::Object(&PROVIDER);

static GUARD_KIND: FieldKind = FieldKind::Object(&GUARD);

static PRICE_KIND: FieldKind = FieldKind::Object(&PRICE);
