//! `etude engine`: administers the shared database.

use std::time::SystemTime;

use etude_postgres::{Address, Check, Grant, Postgres, RoleKind, Status};
use serde_json::json;

use crate::args;
use crate::context::Context;
use crate::engine::{CONNECT, address, credentials};
use crate::exit::Exit;
use crate::problem::Problem;
use crate::render::commands::complete;
use crate::render::stopped::of_engine;
use crate::stdout;

pub(crate) mod rules;

pub(crate) fn engine(context: &Context, command: &args::Engine) -> Exit {
    let done = match command {
        args::Engine::Check => check(context),
        args::Engine::Migrate => migrate(context),
        args::Engine::Apply => rules::apply(context),
        args::Engine::Grant(args) => grant(context, args),
    };
    done.unwrap_or_else(|problem| context.report(None, &problem))
}

fn named(context: &Context) -> Result<Address, Problem> {
    let none =
        || Problem::usage("no engine is configured").hint("name the database: --engine postgres://USER@HOST/DATABASE");
    address(&context.global)?.ok_or_else(none)
}

/// Refuses a command that needs a shared database if none is configured.
pub(crate) fn check_named(context: &Context) -> Result<(), Problem> {
    named(context).map(drop)
}

fn check(context: &Context) -> Result<Exit, Problem> {
    let report = Postgres::check(named(context)?, CONNECT, &credentials(), &SystemTime::now)
        .map_err(|error| of_engine(&error))?;
    let is_usable = report.checks.iter().all(|check| check.status != Status::Error);
    if context.is_json() {
        let checks: Vec<_> = report.checks.iter().map(document).collect();
        let engine =
            json!({"kind": "postgresql", "version": report.version, "schema": report.schema, "format": report.format});
        stdout::json(&json!({"engine": engine, "checks": checks}));
    } else {
        for check in &report.checks {
            stdout::line(&line(check));
        }
    }
    Ok(if is_usable { Exit::Done } else { Exit::Environment })
}

fn document(check: &Check) -> serde_json::Value {
    let Check { id, status, found, message, cost, hint } = check;
    json!({"id": id, "status": status.word(), "found": found, "message": message, "cost": cost, "hint": complete(hint)})
}

/// Human-readable line of a check: the finding, and cost and hint if there is a fault.
fn line(check: &Check) -> String {
    let mut line = format!("{:<8} {:<19} {}", check.status.word(), check.id, check.found);
    for (word, text) in [("cost", check.cost.to_owned()), ("hint", complete(check.hint))] {
        if !text.is_empty() {
            line.push_str(&format!("\n         {word}: {text}"));
        }
    }
    line
}

fn migrate(context: &Context) -> Result<Exit, Problem> {
    let done = Postgres::migrate(named(context)?, CONNECT).map_err(|error| of_engine(&error))?;
    if context.is_json() {
        let applied: Vec<u32> = (done.from + 1..=done.to).collect();
        stdout::json(&json!({"schema": done.schema, "from": done.from, "to": done.to, "applied": applied}));
    } else if !context.global.quiet {
        match done.from == done.to {
            true => crate::render::say!("the schema `{}` already has format {}", done.schema, done.to),
            false => crate::render::say!("the schema `{}` now has format {}", done.schema, done.to),
        }
    }
    Ok(Exit::Done)
}

/// Grants a database role its rights (K-56).
fn grant(context: &Context, args: &args::Grant) -> Result<Exit, Problem> {
    let kind = RoleKind::from_word(&args.kind).unwrap_or(RoleKind::Tenant);
    if kind == RoleKind::Worker && args.tenant.is_some() {
        return Err(Problem::usage("a worker drives the runs of all tenants").hint("remove `--tenant`"));
    }
    let tenant = (kind == RoleKind::Tenant).then(|| args.tenant.as_ref().unwrap_or(&args.role).clone());
    let grant = Grant { role: args.role.clone(), kind, tenant };
    Postgres::grant(named(context)?, CONNECT, &grant).map_err(|error| of_engine(&error))?;
    if context.is_json() {
        stdout::json(&json!({"role": grant.role, "kind": kind.word(), "tenant": grant.tenant}));
    } else if !context.global.quiet {
        match &grant.tenant {
            Some(tenant) => crate::render::say!("the role `{}` is now the tenant `{tenant}`", grant.role),
            None => crate::render::say!("the role `{}` is now a worker", grant.role),
        }
    }
    Ok(Exit::Done)
}
