//! `serve`: the limits of a server and of its pipelines, and its service for agents.

use crate::automation::template;
use crate::check::Findings;
use crate::diagnose::automation as diagnose;
use crate::duration::long_of_node;
use crate::yaml::{Entries, Node, integer, number, text};

/// Limits of a server. A limit that the file does not set is `None`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Serve {
    /// Maximum number of runs in progress, over all apps.
    pub max_runs: Option<u32>,
    /// Maximum number of queued runs.
    pub max_queued: Option<u32>,
    /// Cost limit of all runs of a day (UTC), in US dollars; above it no more runs are accepted.
    pub max_cost_per_day_usd: Option<f64>,
    /// Time for runs to finish their effects when the server stops, in milliseconds.
    pub drain_timeout_ms: Option<u64>,
    /// Limits of pipelines and stage machines.
    pub pipelines: Vec<PipelineLimits>,
    /// The service for agents under `serve.mcp`.
    pub mcp: Mcp,
}

/// `serve.mcp`: the service of the app for agents over the Model Context Protocol.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Mcp {
    /// Read-only tools: names of pipelines and stage machines, or of their tools.
    pub read_only: Vec<String>,
    /// Maximum time until a call returns, in milliseconds.
    pub answer_within_ms: Option<u64>,
    /// Handling of the run of an abandoned call.
    pub on_cancel: OnCancel,
    /// Place of decisions on questions that authorize something.
    pub approvals: Approvals,
}

etude_core::words! {
    /// Handling of the run of an abandoned call.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub enum OnCancel {
        /// The run continues.
        #[default]
        Leave = "leave",
        /// The run is cancelled.
        Cancel = "cancel",
    }
}

etude_core::words! {
    /// Place of decisions on questions of agents' runs that authorize something.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub enum Approvals {
        /// The web page, or `etude approve`.
        #[default]
        Page = "page",
        /// A form of the client as well.
        Client = "client",
    }
}

/// Limits that the runs of one pipeline or stage machine share.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PipelineLimits {
    /// Name of the pipeline or stage machine.
    pub name: String,
    /// Maximum number of its runs in progress, for each key.
    pub max_runs: Option<u32>,
    /// Key that separates its runs; may hold `{{input.NAME}}`.
    pub key: Option<String>,
    /// Handling of a run above the limit.
    pub when_full: WhenFull,
    /// Priority of runs that set none.
    pub priority: Option<i32>,
    /// Maximum time of a run in the queue, in milliseconds.
    pub queue_timeout_ms: Option<u64>,
}

etude_core::words! {
    /// Handling of a run when its pipeline and key have reached their limit.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub enum WhenFull {
        /// The run waits.
        #[default]
        Queue = "queue",
        /// The run is refused.
        Skip = "skip",
        /// The run replaces the oldest ones, which are cancelled.
        Cancel = "cancel",
    }
}

/// Reads `serve` of a configuration file, whose types have been checked.
pub(crate) fn read(root: &Entries<'_>) -> Serve {
    let Some(entries) = root.get("serve").and_then(Node::as_map) else { return Serve::default() };
    let count = |field: &str| integer(entries, field).and_then(|count| u32::try_from(count).ok());
    let per_day = entries.get("per_day").and_then(Node::as_map);
    let pipelines = entries.get("pipelines").and_then(Node::as_map).into_iter().flat_map(Entries::iter);
    Serve {
        max_runs: count("max_runs"),
        max_queued: count("max_queued"),
        max_cost_per_day_usd: per_day.and_then(|per_day| number(per_day, "max_cost_usd")),
        drain_timeout_ms: duration(entries, "drain_timeout"),
        pipelines: pipelines.filter_map(|(name, _, node)| Some(pipeline(name, node.as_map()?))).collect(),
        mcp: entries.get("mcp").and_then(Node::as_map).map(mcp).unwrap_or_default(),
    }
}

fn mcp(entries: &Entries<'_>) -> Mcp {
    let word = |field: &str| text(entries, field).map(|word| word.text);
    let names = entries.get("read_only").and_then(Node::as_seq).unwrap_or_default();
    Mcp {
        read_only: names.iter().filter_map(|name| name.as_text().map(str::to_owned)).collect(),
        answer_within_ms: duration(entries, "answer_within"),
        on_cancel: word("on_cancel").and_then(OnCancel::from_word).unwrap_or_default(),
        approvals: word("approvals").and_then(Approvals::from_word).unwrap_or_default(),
    }
}

fn pipeline(name: &str, entries: &Entries<'_>) -> PipelineLimits {
    let word = |field: &str| text(entries, field).map(|word| word.text);
    PipelineLimits {
        name: name.to_owned(),
        max_runs: integer(entries, "max_runs").and_then(|count| u32::try_from(count).ok()),
        key: word("key").map(str::to_owned),
        when_full: word("when_full").and_then(WhenFull::from_word).unwrap_or_default(),
        priority: integer(entries, "priority").and_then(|priority| i32::try_from(priority).ok()),
        queue_timeout_ms: duration(entries, "queue_timeout"),
    }
}

fn duration(entries: &Entries<'_>, field: &str) -> Option<u64> {
    long_of_node(entries.get(field)?).ok()
}

/// Reports faults that the field tables do not express.
pub(super) fn check(found: &mut Findings<'_>, root: &Entries<'_>) {
    let Some(pipelines) = root.get("serve").and_then(Node::as_map).and_then(|serve| serve.get("pipelines")) else {
        return;
    };
    for (name, _, node) in pipelines.as_map().into_iter().flat_map(Entries::iter) {
        let Some(entries) = node.as_map() else { continue };
        for field in ["key", "when_full"] {
            if let Some((key, _)) = entries.entry(field).filter(|_| entries.get("max_runs").is_none()) {
                found.push(diagnose::no_limit(found.file, key.span, name, field));
            }
        }
        let Some(key) = text(entries, "key") else { continue };
        for reference in template::references(&key.text.into()) {
            if reference.strip_prefix("input.").is_none_or(str::is_empty) {
                found.push(diagnose::unknown_reference(found.file, key.at, &reference, "`{{input.NAME}}`"));
            }
        }
    }
}
