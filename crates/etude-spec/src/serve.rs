//! `serve`: the limits of a server and of the pipelines that it runs, and how it serves agents.

use crate::automation::template;
use crate::check::Findings;
use crate::diagnose::automation as diagnose;
use crate::duration::long_of_node;
use crate::yaml::{Entries, Node, integer, number, text};

/// Limits of a server. What the file does not say is `None`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Serve {
    /// Runs in progress at once, over all apps.
    pub max_runs: Option<u32>,
    /// Runs that wait for their start.
    pub max_queued: Option<u32>,
    /// What all runs of a day (UTC) may cost before no more are accepted, in US dollars.
    pub max_cost_per_day_usd: Option<f64>,
    /// The time that runs have to finish their effects when the server stops, in milliseconds.
    pub drain_timeout_ms: Option<u64>,
    /// Limits of pipelines and stage machines.
    pub pipelines: Vec<PipelineLimits>,
    /// The service for agents under `serve.mcp`.
    pub mcp: Mcp,
}

/// `serve.mcp`: how the app is served to agents over the Model Context Protocol.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Mcp {
    /// Tools that change nothing: names of pipelines and stage machines, or of their tools.
    pub read_only: Vec<String>,
    /// The longest time until a call returns, in milliseconds.
    pub answer_within_ms: Option<u64>,
    /// What becomes of the run of an abandoned call.
    pub on_cancel: OnCancel,
    /// Where questions that authorize something are decided.
    pub approvals: Approvals,
}

etude_core::words! {
    /// What becomes of the run of an abandoned call.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub enum OnCancel {
        /// It continues.
        #[default]
        Leave = "leave",
        /// It is cancelled.
        Cancel = "cancel",
    }
}

etude_core::words! {
    /// Where questions of agents' runs that authorize something are decided.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub enum Approvals {
        /// On the page, or with `etude approve`.
        #[default]
        Page = "page",
        /// Also in a form of the client.
        Client = "client",
    }
}

/// Limits that the runs of one pipeline or stage machine share.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PipelineLimits {
    /// The pipeline or stage machine.
    pub name: String,
    /// Its runs in progress at once, for each key.
    pub max_runs: Option<u32>,
    /// What distinguishes its runs; may hold `{{input.NAME}}`.
    pub key: Option<String>,
    /// What becomes of a run for which there is no room.
    pub when_full: WhenFull,
    /// The priority of runs that name none.
    pub priority: Option<i32>,
    /// How long a run may stay queued, in milliseconds.
    pub queue_timeout_ms: Option<u64>,
}

etude_core::words! {
    /// What becomes of a run while as many of its pipeline and key are in progress as may be.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub enum WhenFull {
        /// It waits.
        #[default]
        Queue = "queue",
        /// It is refused.
        Skip = "skip",
        /// It replaces the oldest ones, which are cancelled.
        Cancel = "cancel",
    }
}

/// Reads `serve` of a configuration file; types have been checked.
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

/// Faults that the tables do not show.
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
