//! The fields of `schedules`, `webhooks`, `notices` and `serve` in etude.yaml.

use crate::fields::FieldKind::{Any, Bool, Entries, Integer, List, LongDuration, Number, Template, Text, Word};
use crate::fields::{FieldKind, Object};

/// Words of `overlap`.
pub const OVERLAPS: &[&str] = &["skip", "queue", "cancel", "allow"];

/// Words of `catch_up`.
pub const CATCH_UPS: &[&str] = &["none", "last", "all"];

/// Words of a webhook's `verify.kind`.
pub const VERIFY_KINDS: &[&str] = &["github", "gitlab", "standard", "stripe", "slack", "hmac", "token"];

/// Words of a notice's `on`.
pub const NOTICE_TYPES: &[&str] = &["run.succeeded", "run.failed", "run.cancelled", "run.waiting", "schedule.skipped"];

/// A value of `schedules`, with its name as the key.
pub static SCHEDULE: Object = Object {
    name: "a schedule",
    doc: "Times at which a server starts runs.",
    fields: &[fields! {
        optional "pipeline": Text, "report", "The pipeline to run.";
        optional "machine": Text, "triage", "The stage machine to run.";
        optional "cron": Text, "\"30 2 * * *\"", "Minute, hour, day, month and weekday, or `@daily`.";
        optional "every": LongDuration, "6h", "The interval, counted from midnight UTC; at least `1s`.";
        optional "timezone": Text, "Europe/Berlin", "The zone of `cron`: a name of the IANA database, `UTC` or `local`.";
        optional "input": Entries(&Any), "{day: \"{{tick.date}}\"}", "The input of each run.";
        optional "overlap": Word(OVERLAPS), "queue", "Behaviour if an earlier run has not ended." => default "skip";
        optional "catch_up": Word(CATCH_UPS), "all", "Missed ticks that run later." => default "last";
        optional "catch_up_within": LongDuration, "7d", "Maximum age of a missed tick that still runs." => default "1d";
        optional "jitter": LongDuration, "5m", "The largest delay of a tick, which spreads the load." => default "0s";
    }],
};

/// A value of `webhooks`, with its name as the key.
pub static WEBHOOK: Object = Object {
    name: "a webhook",
    doc: "A request of another program that starts a run.",
    fields: &[fields! {
        optional "pipeline": Text, "review", "The pipeline to run.";
        optional "machine": Text, "triage", "The stage machine to run.";
        optional "verify": FieldKind::Object(&VERIFY), "{kind: github, secrets: [\"${env:HOOK_SECRET}\"]}",
            "Authentication of the sender.";
        optional "when": Entries(&Any), "{body.ref: refs/heads/main}", "Values that a delivery must have to start a run.";
        optional "input": Entries(&Any), "{range: \"{{body.before}}\"}", "The input of the run; by default the body.";
        optional "repeat": Word(&["allow"]), "allow", "Equal bodies under different delivery ids are different deliveries.";
    }],
};

/// `verify` of a webhook.
pub static VERIFY: Object = Object {
    name: "a verification",
    doc: "Authentication of the sender of a webhook.",
    fields: &[fields! {
        required "kind": Word(VERIFY_KINDS), "github", "The scheme of the signature.";
        optional "secrets": List(&Text), "[\"${env:HOOK_SECRET}\"]", "The secrets; one of them must match.";
        optional "header": Text, "X-Signature", "For `hmac` and `token`: the header with the signature or secret.";
        optional "algorithm": Word(&["sha256", "sha512"]), "sha512", "For `hmac`: the hash." => default "sha256";
        optional "encoding": Word(&["hex", "base64"]), "base64", "For `hmac`: the form of the signature." => default "hex";
        optional "prefix": Text, "\"sha256=\"", "For `hmac`: the text before the signature.";
        optional "id_header": Text, "X-Delivery", "For `hmac` and `token`: the header with the delivery's id.";
    }],
};

/// An element of `notices`.
pub static NOTICE: Object = Object {
    name: "a notice",
    doc: "A message to another program about runs.",
    fields: &[fields! {
        required "name": Text, "chat", "Its name.";
        required "url": Text, "\"https://chat.example/x\"", "The receiver.";
        required "on": List(&ON), "[run.failed, run.waiting]", "The events that it reports.";
        required "secret": Text, "\"${env:NOTICE_SECRET}\"", "The key of the signature: `whsec_` and base64.";
        optional "pipelines": List(&Text), "[\"deploy*\"]", "Globs of the reported pipelines and machines.";
        optional "allow_private": Bool, "true", "Permits a private address and `http://`."
            => default "false";
    }],
};

/// Words of `when_full`.
pub const WHEN_FULL: &[&str] = &["queue", "skip", "cancel"];

/// The value of `serve` in the user's configuration.
pub static SERVE: Object = Object {
    name: "a server setting",
    doc: "Limits of a server.",
    fields: &[fields! {
        optional "max_runs": Integer(1, 10_000), "8",
            "Runs in progress at once, over all apps; suspended runs do not count." => default "32";
        optional "max_queued": Integer(1, 10_000_000), "500", "Runs that wait for their start; more are refused."
            => default "10000";
        optional "per_day": FieldKind::Object(&PER_DAY), "{max_cost_usd: 20}",
            "Daily budget; further runs are refused.";
        optional "drain_timeout": LongDuration, "2m",
            "Time for runs to finish their effects when the server stops." => default "30s";
        optional "pipelines": Entries(&LIMITS_KIND), "{deploy: {max_runs: 1, key: \"{{input.environment}}\"}}",
            "Limits of pipelines and stage machines, by name.";
        optional "mcp": FieldKind::Object(&MCP), "{read_only: [report], answer_within: 30s}", "Settings of MCP for agents.";
    }],
};

/// Words of `serve.mcp.on_cancel`.
pub const ON_CANCEL: &[&str] = &["leave", "cancel"];

/// Words of `serve.mcp.approvals`.
pub const APPROVALS: &[&str] = &["page", "client"];

/// `serve.mcp`.
pub static MCP: Object = Object {
    name: "a setting for agents",
    doc: "Settings of `etude mcp` and of `/mcp`, which serve an app to agents over MCP.",
    fields: &[fields! {
        optional "read_only": List(&Text), "[report]", "Pipelines and stage machines that change nothing: clients may call them without asking.";
        optional "answer_within": LongDuration, "30s",
            "The longest time until a call returns; the run continues, and the result says so." => default "50s";
        optional "on_cancel": Word(ON_CANCEL), "cancel",
            "Effect of an abandoned call on its run: the run continues, or is cancelled." => default "leave";
        optional "approvals": Word(APPROVALS), "client",
            "Where questions that authorize something are decided: on the page, or also in a form of the client." => default "page";
    }],
};

/// `serve.per_day`.
pub static PER_DAY: Object = Object {
    name: "a limit per day",
    doc: "Daily budget of all runs. A day begins at midnight UTC.",
    fields: &[fields! {
        optional "max_cost_usd": Number(0.0, 1_000_000_000.0), "20",
            "The cost of the models, in US dollars. Runs in progress continue to their end.";
    }],
};

/// One of `serve.pipelines`.
pub static LIMITS: Object = Object {
    name: "a limit of a pipeline",
    doc: "Limits that the runs of one pipeline or stage machine share.",
    fields: &[fields! {
        optional "max_runs": Integer(1, 10_000), "1", "Its runs in progress at once, for each key.";
        optional "key": Template, "\"{{input.environment}}\"", "Template of the key; each key has its own limit.";
        optional "when_full": Word(WHEN_FULL), "cancel",
            "Behaviour at the limit: the run waits, is refused, or replaces the oldest run, which is cancelled."
            => default "queue";
        optional "priority": Integer(-100, 100), "10", "Default priority of runs." => default "0";
        optional "queue_timeout": LongDuration, "1h", "Maximum time in the queue before the run fails.";
    }],
};

static LIMITS_KIND: FieldKind = FieldKind::Object(&LIMITS);

static ON: FieldKind = Word(NOTICE_TYPES);

pub(crate) static SCHEDULE_KIND: FieldKind = FieldKind::Object(&SCHEDULE);

pub(crate) static WEBHOOK_KIND: FieldKind = FieldKind::Object(&WEBHOOK);

pub(crate) static NOTICE_KIND: FieldKind = FieldKind::Object(&NOTICE);
