//! `etude engine apply`: writes the queues, the tenants and the object storage of the configuration into the database.

use std::collections::BTreeMap;

use etude_postgres::Location;
use etude_runtime::engine::{Allow, Fleet as _, QueueRules, Rules, TenantRules};
use etude_spec::config::fleet::{Queue, Tenant};
use serde_json::{Value, json};

use crate::context::Context;
use crate::exit::Exit;
use crate::problem::Problem;
use crate::render::stopped::of_engine;
use crate::{engine, settings, stdout};

/// Value of `engine.blobs` for large values in the database.
const IN_DATABASE: &str = "database";

/// Writes the rules of the configuration, and prints the rules that are then in effect.
pub(super) fn apply(context: &Context) -> Result<Exit, Problem> {
    super::check_named(context)?;
    let config = settings::to_apply(&context.global, &check_blobs)?;
    let queues: Option<BTreeMap<_, _>> =
        config.queues.map(|all| all.iter().map(|(name, queue)| (name.clone(), queue_of(queue))).collect());
    let tenants: Option<BTreeMap<_, _>> =
        config.tenants.map(|all| all.iter().map(|(name, tenant)| (name.clone(), tenant_of(tenant))).collect());
    let blobs = config.engine.and_then(|engine| engine.blobs).map(|url| settings::secrets_in(&url));
    let place = blobs.as_deref().map(|url| Some(url).filter(|url| *url != IN_DATABASE));
    let engine = engine::open_fleet(&context.global)?;
    if let Some(place) = place {
        engine.apply_blobs(place).map_err(|error| of_engine(&error))?;
    }
    engine.apply(queues.as_ref(), tenants.as_ref()).map_err(|error| of_engine(&error))?;
    let rules = engine.rules().map_err(|error| of_engine(&error))?;
    if context.is_json() {
        stdout::json(&document(&rules));
    } else {
        stdout::text(&text(&rules));
        if queues.is_none() && tenants.is_none() && blobs.is_none() && !context.global.quiet {
            let hint =
                "hint: the configuration has no `queues`, no `tenants` and no `engine.blobs`, so nothing has changed";
            crate::render::say!("{hint}");
        }
    }
    Ok(Exit::Done)
}

/// Checks the value of `engine.blobs`; the error is the reason why large values cannot be stored there.
fn check_blobs(given: &str) -> Result<(), String> {
    let url = settings::secrets_in(given);
    if url == IN_DATABASE { Ok(()) } else { Location::parse(&url).map(drop) }
}

/// Rules of a queue; missing settings have their defaults.
fn queue_of(queue: &Queue) -> QueueRules {
    let defaults = QueueRules::default();
    let label = |(label, limit): (&String, &u32)| {
        let (key, value) = label.split_once('=').unwrap_or((label, ""));
        ((key.to_owned(), value.to_owned()), *limit)
    };
    QueueRules {
        priority: queue.priority.unwrap_or(defaults.priority),
        limit: queue.limit.or(defaults.limit),
        per_tenant: queue.per_tenant,
        per_app: queue.per_app,
        per_label: queue.per_label.iter().map(label).collect(),
        allow: Allow {
            network: queue.allow.network.unwrap_or(defaults.allow.network),
            unsandboxed: queue.allow.unsandboxed.unwrap_or(defaults.allow.unsandboxed),
            yolo: queue.allow.yolo.unwrap_or(defaults.allow.yolo),
            folders: queue.allow.folders.clone(),
        },
        is_untrusted: queue.untrusted.unwrap_or(defaults.is_untrusted),
    }
}

fn tenant_of(tenant: &Tenant) -> TenantRules {
    let Tenant { live, queued, records_per_day, bytes, cost_usd_per_day } = *tenant;
    TenantRules { live, queued, records_per_day, bytes, cost_usd_per_day }
}

fn document(rules: &Rules) -> Value {
    let queues: serde_json::Map<_, _> =
        rules.queues.iter().map(|(name, queue)| (name.clone(), of_queue(queue))).collect();
    let tenants: serde_json::Map<_, _> =
        rules.tenants.iter().map(|(name, tenant)| (name.clone(), of_tenant(tenant))).collect();
    json!({"queues": queues, "tenants": tenants, "blobs": rules.blobs})
}

fn of_queue(queue: &QueueRules) -> Value {
    let labels: serde_json::Map<_, _> =
        queue.per_label.iter().map(|((key, value), limit)| (format!("{key}={value}"), json!(limit))).collect();
    let Allow { network, unsandboxed, yolo, folders } = &queue.allow;
    json!({
        "priority": queue.priority, "limit": queue.limit, "per_tenant": queue.per_tenant, "per_app": queue.per_app,
        "per_label": labels, "untrusted": queue.is_untrusted,
        "allow": {"network": network, "unsandboxed": unsandboxed, "yolo": yolo, "folders": folders},
    })
}

fn of_tenant(tenant: &TenantRules) -> Value {
    json!({
        "live": tenant.live, "queued": tenant.queued, "records_per_day": tenant.records_per_day,
        "bytes": tenant.bytes, "cost_usd_per_day": tenant.cost_usd_per_day,
    })
}

/// Human-readable rules: a line for each queue and tenant, with its limits.
fn text(rules: &Rules) -> String {
    let mut lines = String::new();
    let queues = rules.queues.iter().map(|(name, queue)| ("queue", name, of_queue(queue)));
    let tenants = rules.tenants.iter().map(|(name, tenant)| ("tenant", name, of_tenant(tenant)));
    for (kind, name, members) in queues.chain(tenants) {
        let members = members.as_object().into_iter().flatten();
        let given = members.filter(|(_, value)| !value.is_null() && *value != &json!({}) && *value != &json!(false));
        let given: Vec<String> = given.map(|(member, value)| format!("{member} {value}")).collect();
        lines.push_str(&format!("{kind} {name}: {}\n", given.join(", ")));
    }
    lines.push_str(&format!("large values: {}\n", rules.blobs.as_deref().unwrap_or("in the database")));
    lines
}
